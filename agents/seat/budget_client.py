"""A mind's budget: the cost of a model call is reserved before the call, and settled after it (rules 2.6).

The council grants or denies a reservation, and records it, before the mind continues. A call that is never settled
counts at its reserved cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from council.agents.mind import Cost, SpendingMind
from council.agents.seat.outgoing import SeatSigner
from council.protocol.errors import CallDenied, MindError

# A coordinator may fail before it answers. The same question is then sent again.
ASK_AGAIN_S = 5.0
# If the first question was lost with a coordinator, its call counts as made, and another one is reserved.
ASKED_MAX = 3
# Calls that were given up before the council answered. If a grant comes late, they are settled at zero.
GIVEN_UP_MAX = 1_000
# The kinds of error in a metric are few: an HTTP status, or a word.
_ERROR = re.compile(r"[1-5][0-9]{2}|timeout|connection_error")
OTHER = "other"
# If a council has not answered for this many seconds, it is gone, and there is no use in waiting longer.
ANSWER_MAX_S = 120.0


class Denial(NamedTuple):
    """The reason why a call may not be made. ``anew``: a new reservation may be granted."""

    why: str
    anew: bool = False


# The work item that makes a call. Tasks that a mind starts inherit it.
work: ContextVar[object] = ContextVar("work", default=None)


class SeatBudgetClient:
    """The budget client of a seat. ``signer`` signs its reservations and settlements, and ``say`` sends them."""

    def __init__(self, signer: SeatSigner, say: Callable[[bytes], None]) -> None:
        self.seat = signer.seat
        self.closed = False
        self._signer = signer
        self._say = say
        self._asked: dict[str, asyncio.Future[Denial | None]] = {}
        self._open: dict[str, tuple[str, object, Cost]] = {}  # by id: the proposal, the work item, the cost
        self._spent: dict[object, list[Cost]] = {}  # by work item: of its settled calls
        self._given_up: OrderedDict[str, str] = OrderedDict()

    def hand_to(self, mind: SpendingMind) -> None:
        """Gives itself to the seat's mind. Raises MindError if the mind holds another seat's client already."""
        with contextlib.suppress(TypeError):  # a mind that can't be hashed is not checked
            before = _holders.setdefault(mind, self)
            if before is not self and not before.closed:
                raise MindError(
                    f"one mind sits on {before.seat} and on {self.seat}, and would pay for both from one budget: "
                    "give each seat a mind of its own",
                    seat=self.seat,
                    mind=repr(mind),
                )
            _holders[mind] = self
        mind.set_budget(self)

    @property
    def busy(self) -> bool:
        """Whether it will send more to the council."""
        return bool(self._asked or self._open)

    async def reserve(self, proposal_id: str, task: str, model: str, worst: Cost, **facts: Any) -> str:
        data = {"task": task, "model": model, "tokens": worst.tokens, "microusd": worst.microusd, **facts}
        why = ""
        for _ in range(ASKED_MAX):
            call_id, denial = await self._ask(proposal_id, data, worst)
            if denial is None:
                return call_id
            why = denial.why
            if not denial.anew:
                break
        raise CallDenied(
            f"{self.seat} may not call {model} for {proposal_id}: {why}", seat=self.seat, model=model
        )

    async def _ask(self, proposal_id: str, data: Mapping[str, Any], worst: Cost) -> tuple[str, Denial | None]:
        call_id = self._signer.new_id()
        sealed = self._signer.info(proposal_id, "reserve", data, msg_id=call_id)
        answer: asyncio.Future[Denial | None] = asyncio.get_running_loop().create_future()
        self._asked[call_id] = answer
        # From now on it may be granted, even if the wait is cancelled.
        self._open[call_id] = proposal_id, work.get(), worst
        try:
            for _ in range(int(ANSWER_MAX_S / ASK_AGAIN_S)):
                self._say(sealed)
                if (await asyncio.wait([answer], timeout=ASK_AGAIN_S))[0]:
                    break
        except asyncio.CancelledError:
            self._give_up(call_id, proposal_id)
            raise
        finally:
            del self._asked[call_id]
        if not answer.done():
            self._give_up(call_id, proposal_id)
            return call_id, Denial(f"the council did not answer within {ANSWER_MAX_S:g} s")
        denial = answer.result()
        if denial is not None:
            del self._open[call_id]
        return call_id, denial

    def _give_up(self, call_id: str, proposal_id: str) -> None:
        """Settles a call that will not be made at zero, even if its reservation arrives later."""
        self._given_up[call_id] = proposal_id
        while len(self._given_up) > GIVEN_UP_MAX:
            self._given_up.popitem(last=False)
        self.settle(call_id, Cost(0))

    def answered(self, call_id: object, denial: Denial | None) -> None:
        """Takes the council's answer: a denial, or None for a grant."""
        if not isinstance(call_id, str):
            return
        answer = self._asked.get(call_id)
        if answer is not None and not answer.done():
            answer.set_result(denial)
        elif denial is None and call_id in self._given_up:  # its settlement arrived before its reservation
            self._open[call_id] = self._given_up[call_id], None, Cost(0)
            self.settle(call_id, Cost(0))

    def settle(self, call_id: str, used: Cost | None, error: str = "") -> None:
        if (call := self._open.pop(call_id, None)) is None:
            return
        proposal_id, made_for, worst = call
        if made_for is not None:
            self._spent.setdefault(made_for, []).append(worst if used is None else used)
        cost = {"tokens": None} if used is None else {"tokens": used.tokens, "microusd": used.microusd}
        failed = {"error": error_kind(error)} if error else {}
        self._say(self._signer.info(proposal_id, "settle", {"call": call_id, **cost, **failed}))

    def spent(self, on: object) -> list[Cost]:
        """The costs of a work item's calls. One under way, or of unknown usage, counts as reserved (rules 2.6)."""
        return self._spent.get(on, []) + [
            worst for _, made_for, worst in self._open.values() if made_for is on
        ]

    def close(self, ended: object) -> None:
        """Settles the calls that a finished work item left open, as unknown."""
        for call_id in [each for each, (_, made_for, _) in self._open.items() if made_for is ended]:
            self.settle(call_id, None)
        self._spent.pop(ended, None)


def error_kind(error: str) -> str:
    """The kind of an error, as a metric distinguishes it."""
    return error if _ERROR.fullmatch(error) else OTHER


_holders: WeakKeyDictionary[SpendingMind, SeatBudgetClient] = WeakKeyDictionary()
