"""The work of a seat's mind: how much of it runs at once, how long it may take, how it ends."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from council.agents.messaging.logs import get_logger
from council.agents.messaging.timer import Timer
from council.agents.mind import Case
from council.agents.prompting.prompt import overruns_of
from council.agents.seat import budget_client
from council.agents.seat.budget_client import SeatBudgetClient
from council.agents.seat.observed_cases import ObservedStage
from council.agents.seat.plan_stream import sayable
from council.agents.seat.threads import WHY_CHARS_MAX, in_words, traceback_of

log = get_logger("council.seat")

# Cases that wait for a slow mind, and the characters of their texts. The other seats may decide a proposal without
# it, so the council's own limit on open proposals does not bound these.
BACKLOG_MAX = 10_000
BACKLOG_CHARS_MAX = 64 * 2**20


@dataclass(slots=True, eq=False)
class WorkItem:
    """One task of the mind on one case. If it is ``given_up``, its result is dropped.

    The mind's method is given the case and ``more``. An observation has ``observed``, the stage that it observes.
    """

    case: Case
    task_name: str  # "ballot" or "ruling"; an observation's names the seat and the stage
    more: tuple[Any, ...] = ()
    observed: ObservedStage | None = None
    task: asyncio.Task[None] | None = None
    ends_s: float = math.inf  # by the loop's clock
    given_up: bool = False
    has_slot: bool = False

    @property
    def proposal_id(self) -> str:
        return self.case.proposal_id

    @property
    def kind(self) -> str:
        return self.task_name if self.observed is None else "observation"

    @property
    def weight(self) -> int:
        """Its share of ``BACKLOG_CHARS_MAX``: 0 for an observation, which starts only if there is room for it."""
        return self.case.chars if self.observed is None else 0


class Workload:
    """The work items of one mind. ``concurrent_max`` of them run at once by ``run``, and the others wait.

    ``done`` takes what the mind returned; if it raises, the item fails. ``failed`` takes the reason, and the
    overruns of token budgets if these are the reason. ``ended`` is called last, also for an item that is given up.
    """

    def __init__(
        self,
        concurrent_max: int,
        budget: SeatBudgetClient,
        run: Callable[..., Awaitable[Any]],
        done: Callable[[WorkItem, Any], None],
        failed: Callable[[WorkItem, str, Sequence[Mapping[str, Any]]], None],
        ended: Callable[[WorkItem], None],
    ) -> None:
        self._concurrent_max = concurrent_max
        self._budget = budget
        self._run = run
        self._done = done
        self._failed = failed
        self._ended = ended
        self._slots = asyncio.Semaphore(concurrent_max)
        self._items: dict[tuple[str, str], WorkItem] = {}
        self._observations: list[WorkItem] = []  # they are among the items
        self._weight = 0
        self._timer = Timer(self._look_at_time)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def has_room(self) -> bool:
        """Whether an item that is started now runs at once."""
        return len(self._items) < self._concurrent_max

    def has_ballot(self, proposal_id: str) -> bool:
        return (proposal_id, "ballot") in self._items

    def oldest(self) -> str | None:
        """The proposal that the mind has worked on longest, if it is at work; callable from any thread."""
        for item in list(self._items.values()):
            return item.proposal_id
        return None

    def start(self, item: WorkItem) -> None:
        """Starts an item, unless its task on that proposal is under way. It fails if too much waits already."""
        key = item.proposal_id, item.task_name
        if key in self._items:
            return
        self._items[key] = item
        if item.observed is not None:
            self._observations.append(item)
        self._weight += item.weight
        if len(self._items) > BACKLOG_MAX or self._weight > BACKLOG_CHARS_MAX:
            self._fail(item, f"too much waits for its mind: {len(self._items) - 1:,} other cases")
            return
        if item.observed is None and len(self._items) > self._concurrent_max:
            self._put_off_observation()
        loop = asyncio.get_running_loop()
        item.ends_s = loop.time() + item.case.time_left_s
        self._timer.set(item.ends_s)
        item.task = loop.create_task(self._do(item))

    def give_up(self, proposal_id: str) -> None:
        """Gives up all work on a proposal."""
        own = [self._items.get((proposal_id, task_name)) for task_name in ("ballot", "ruling")]
        for item in (*own, *(each for each in self._observations if each.proposal_id == proposal_id)):
            if item is not None:
                self._give_up(item)

    def close(self) -> None:
        """Gives up all work."""
        self._timer.cancel()
        for item in list(self._items.values()):
            self._give_up(item)

    def _put_off_observation(self) -> None:
        """The mind's own ballots and rulings come first."""
        if self._observations:
            item = self._observations[-1]
            assert item.observed is not None
            item.observed.put_off()
            self._give_up(item)

    async def _do(self, item: WorkItem) -> None:
        budget_client.work.set(item)
        try:
            await self._slots.acquire()
            item.has_slot = True
            thought = await self._run(item.kind, item.case, *item.more)
            if not item.given_up:
                self._done(item, thought)
                self._end(item)
        except asyncio.CancelledError as error:
            if not item.given_up:
                self._fail_by(item, "its work was cancelled from within", error)
        except BaseException as error:  # an error of the mind costs its ballot only
            if isinstance(error, GeneratorExit) and not _is_running(item.task):
                raise  # the loop is closed, so no message can be sent
            if not item.given_up:
                self._fail_by(item, in_words(error), error)
        finally:
            self._budget.close(item)
            self._free_slot(item)
            # The task's context refers to the item: a cycle that only the garbage collector would free.
            item.task = None

    def _look_at_time(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for item in [item for item in self._items.values() if item.ends_s <= now_s]:
            self._fail(item, f"its mind did not answer within {item.case.time_left_s:g} s")
            self._give_up(item)
        self._timer.set(min((item.ends_s for item in self._items.values()), default=math.inf))

    def _fail_by(self, item: WorkItem, why: str, error: BaseException) -> None:
        """Fails an item whose mind raised. The traceback stays in this process, in its log."""
        raised = traceback_of(error)
        log.warning(
            "mind failed",
            seat=self._budget.seat,
            task=item.kind,
            proposal=item.proposal_id,
            why=sayable(why[:WHY_CHARS_MAX]),
            **({"traceback": raised} if raised else {}),
        )
        self._fail(item, why, overruns_of(error))

    def _fail(self, item: WorkItem, why: str, overruns: Sequence[Mapping[str, Any]] = ()) -> None:
        self._failed(item, why, overruns)
        self._end(item)

    def _give_up(self, item: WorkItem) -> None:
        item.given_up = True
        self._end(item)
        self._free_slot(item)  # at once: a mind may ignore its cancellation
        if item.task is not None:
            item.task.cancel()

    def _free_slot(self, item: WorkItem) -> None:
        if item.has_slot:
            item.has_slot = False
            self._slots.release()

    def _end(self, item: WorkItem) -> None:
        if self._items.get((item.proposal_id, item.task_name)) is item:
            del self._items[item.proposal_id, item.task_name]
            self._weight -= item.weight
            if item.observed is not None:
                self._observations.remove(item)
            self._ended(item)


def _is_running(task: asyncio.Task[None] | None) -> bool:
    """Whether a task is being run by its loop, and not closed with what is left of a loop."""
    try:
        return task is not None and asyncio.current_task() is task
    except RuntimeError:
        return False
