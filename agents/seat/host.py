"""Hosts a mind: hands it cases, turns its opinions into signed ballots, and beats. Knows nothing of Ray.

A mind that raises, hangs past the deadline or returns nonsense costs that ballot and is reported to the
council; nothing that a mind does ends its seat. The council's messages to a seat are envelopes too: PROPOSAL,
and INFO of the kinds ``ask_again``, ``withdraw``, ``ruling_request``, ``granted`` and ``denied`` (``budget``),
``interrupt`` (``plan_stream``) and ``stream`` (``observing``).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

from council.agents.messaging import seat_messages
from council.agents.messaging import spans as tracing
from council.agents.messaging.timer import Timer
from council.agents.mind import (
    Case,
    Mind,
    Observation,
    ObservingMind,
    Opinion,
    RulingMind,
    RulingWord,
    ShownBallot,
    SpeakingMind,
    SpendingMind,
    Turn,
)
from council.agents.mind import Ruling as MindRuling
from council.agents.prompting.prompt import overruns_of
from council.agents.seat import budget_client as budget
from council.agents.seat.budget_client import Denial, SeatBudgetClient
from council.agents.seat.observed_cases import ObservedCases, ObservedStage
from council.agents.seat.plan_stream import SeatPlanStream, sayable
from council.agents.seat.threads import Threads, in_words, short
from council.protocol import signing
from council.protocol.envelope import Envelope, Info, Proposal
from council.protocol.errors import CouncilError
from council.protocol.values import plain

# Ballots a seat can cast again word for word when it is asked again after a lost reply. Twice as many as a council
# has open by default, so that none of those is reviewed twice.
REMEMBERED_MAX = 4_000
# A ballot has some hundred bytes, and may have a megabyte with a model's control packet: four times the usual.
REMEMBERED_BYTES_MAX = 8 * 2**20
# Cases that wait for a slow mind, and the characters of their bodies: decided early without it, they are not
# open any more for the council to bound.
BACKLOG_MAX = 10_000
BACKLOG_CHARS_MAX = 64 * 2**20
# Looks at others' work that hang; a ballot does not wait for them, nor is it lost for them.
LOOKS_HUNG_MAX = 16
RULINGS = get_args(RulingWord)
# rules 1.10: a beat comes after 27 to 30 of 30 s, so that seats do not beat in step.
JITTER = 0.1


@dataclass(slots=True, eq=False)
class _Work:
    """One case that the mind is busy with. ``given_up``: whatever it still says is not wanted.

    ``heard`` is what it looks at where that is another seat's work, as it stood in its ``round``, and then ``whole``.
    """

    proposal_id: str
    task_name: str  # "ballot" or "ruling"; of an observation with whose it is, and of which stage
    heard: ObservedStage | None = None
    round: int = 0
    whole: bool = False
    task: asyncio.Task[None] | None = None
    limit_s: float = math.inf
    ends_s: float = math.inf  # by the loop's clock
    given_up: bool = False
    has_slot: bool = False
    weight: int = 0

    @property
    def kind(self) -> str:
        return self.task_name if self.heard is None else "observation"


class SeatHost:
    """A seat of the council: ``receive`` takes what the council sends, ``attend`` is its heartbeat.

    ``say`` is given each signed envelope that the seat has for the council; whoever hosts the seat sets it.
    ``wall`` gives aware UTC, ``uptime`` monotonic seconds, ``new_id`` fresh message ids. ``receive`` runs
    on one event loop; ``attend`` may run on another, so that a busy mind does not stop the heart.
    """

    def __init__(
        self,
        name: str,
        mind: Mind,
        key: bytes,
        council_id: str,
        *,
        wall: Callable[[], datetime],
        uptime: Callable[[], float],
        new_id: Callable[[], str],
        heartbeat_s: float = 30.0,
        concurrent_max: int = 16,
        spans: tracing.Spans | None = None,
    ) -> None:
        self.name = name
        self._mind = mind
        self._is_async = {
            "ballot": _is_async(mind.review),
            "ruling": _is_async(getattr(mind, "rule", None)),
            "observation": _is_async(getattr(mind, "observe", None)),
        }
        self._key = key
        self._council_id = council_id
        self._wall = wall
        self._uptime = uptime
        self._new_id = new_id
        self._spans = spans
        self._heartbeat_s = heartbeat_s
        self.say: Callable[[bytes], None]
        self._purse = SeatBudgetClient(name, self._ask)
        if isinstance(mind, SpendingMind):
            self._purse.hand_to(mind)
        self._voice = SeatPlanStream(self._casts, self._send_stream_piece)
        if isinstance(mind, SpeakingMind):
            mind.set_plan_stream(self._voice)
        self._hearing = ObservedCases(hears=isinstance(mind, ObservingMind))
        self._concurrent_max = concurrent_max
        self._slots = asyncio.Semaphore(concurrent_max)
        self._threads, self._lookouts = Threads(name), Threads(name, "looks at others", LOOKS_HUNG_MAX)
        self._work: dict[tuple[str, str], _Work] = {}
        self._looks: list[_Work] = []  # those of them that look at others
        self._said: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._said_bytes = 0
        self._weight = 0
        self._timer = Timer(self._look_at_time)
        self._started_s = uptime()
        self._attendance = 0
        self._end_attendance: Callable[[], None] = lambda: None
        self.refused = 0

    # What the council calls

    async def attend(self, boot: int, send: Callable[[bytes, str], Awaitable[None]]) -> None:
        """Beats until a later attendance begins, or ``send`` raises.

        ``boot`` is the number of this run, which each heartbeat names (as ``parent_id``); ``send`` is given
        the sealed heartbeat and a name for it that people can read.
        """
        self._voice.begin_run(boot)
        self._attendance += 1
        attendance, beat = self._attendance, 0
        self._end_attendance()
        ended = asyncio.Event()
        self._end_attendance = _from_any_thread(asyncio.get_running_loop(), ended)
        while attendance == self._attendance:
            busy_with = self.busy_with()
            sealed = self._sealed(
                type="HEARTBEAT",
                role="observer",
                parent_id=f"{boot:08x}",
                content={"beat": beat, "busy_with": busy_with, "uptime_s": self._uptime() - self._started_s},
            )
            # Active, for a seat that is heard is (rules 1.10): so the task reads in Ray's dashboard.
            await send(sealed, f"heartbeat {self.name} #{beat} active{', busy' if busy_with else ''}")
            beat += 1
            await _pause(self._heartbeat_s * (1 - JITTER * random.random()), ended)

    def busy_with(self) -> str | None:
        """The proposal that the mind has worked on longest, if it is at work."""
        for work in list(self._work.values()):
            return work.proposal_id
        return None

    def close(self) -> None:
        """Ends the heartbeat and gives up all work."""
        self._attendance += 1
        self._end_attendance()
        self._purse.closed = True
        self._timer.cancel()
        for work in list(self._work.values()):
            self._give_up(work)

    # What arrives

    def is_busy(self) -> bool:
        """Whether the seat will have something to say."""
        return bool(self._work) or self._purse.busy

    def receive(self, letter: bytes) -> None:
        """Takes one letter of the council's (``seat_messages``); what is none is counted as ``refused``."""
        try:
            envelope, about, time_left_s = seat_messages.read(letter)
        except CouncilError:
            self.refused += 1
            return
        content, proposal_id = envelope.content, envelope.parent_id
        if self._spans is not None and isinstance((shown := about or envelope).content, Proposal):
            self._spans.remember(shown.msg_id, shown.metadata)
        if isinstance(content, Proposal):
            self._begin_review(_case_of(envelope, time_left_s))
        elif isinstance(content, Info) and proposal_id is not None:
            if content.kind == "ruling_request" and about is not None:
                self._begin_ruling(_case_of(about, time_left_s), content)
            elif content.kind == "ask_again" and about is not None:
                self._forget((proposal_id, "ballot"))
                self._begin_review(_case_of(about, time_left_s))
            elif content.kind in ("granted", "denied"):
                granted, anew = content.kind == "granted", content.data.get("anew") is True
                self._purse.answered(
                    content.data.get("call"), None if granted else Denial(content.text, anew)
                )
            elif content.kind == "observe" and about is not None:
                self._hearing.add_case(_case_of(about, time_left_s), self._uptime())
            elif content.kind == "interrupt":
                self._voice.interrupt(proposal_id, content.data["round"], content.text)
            elif content.kind == "stream":
                self._hearing.add(proposal_id, content.text, content.data)
                self._start_observation()
            elif content.kind == "withdraw":
                self._hearing.forget(proposal_id)
                for task_name in ("ballot", "ruling"):
                    self._give_up(self._work.get((proposal_id, task_name)))
                for work in [work for work in self._looks if work.proposal_id == proposal_id]:
                    self._give_up(work)

    def _begin_review(self, case: Case) -> None:
        self._hearing.add_case(case, self._uptime())
        self._begin(case, "ballot", lambda: self._mind.review(case))

    def _begin_ruling(self, case: Case, request: Info) -> None:
        ballots = tuple(ShownBallot(**shown) for shown in plain(request.data)["ballots"])

        def rule() -> MindRuling | Awaitable[MindRuling]:
            if not isinstance(self._mind, RulingMind):
                raise TypeError(
                    f"its mind, {type(self._mind).__name__}, has no rule(case, ballots): it can't hold this seat"
                )
            return self._mind.rule(case, ballots)

        self._begin(case, "ruling", rule)

    def _begin(self, case: Case, task_name: str, think: Callable[[], Any]) -> None:
        key = (case.proposal_id, task_name)
        said = self._said.get(key)
        if said is not None:  # asked again after a lost reply: the same bytes
            raised = self._said.get((case.proposal_id, "escalation"))
            if raised is not None:
                self.say(raised)
            self.say(said)
            return
        if key in self._work:
            return
        work = self._work[key] = _Work(case.proposal_id, task_name, weight=case.chars)
        self._weight += work.weight
        if len(self._work) > BACKLOG_MAX or self._weight > BACKLOG_CHARS_MAX:
            self._fail(work, f"too much waits for its mind: {len(self._work) - 1:,} other cases")
            return
        if len(self._work) > self._concurrent_max:
            self._make_room()
        self._set_going(work, case.time_left_s, think)

    def _set_going(self, work: _Work, time_left_s: float, think: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()
        work.limit_s, work.ends_s = time_left_s, loop.time() + time_left_s
        self._timer.set(work.ends_s)
        work.task = loop.create_task(self._do(work, think))

    # Observing others

    def _start_observation(self) -> None:
        """Has the mind look at what it heard of others, where no ballot of its own needs the room."""
        while len(self._work) < self._concurrent_max and not self._purse.closed:
            found = self._hearing.next_due(self._uptime())
            if found is None:
                return
            self._begin_observation(*found)

    def _begin_observation(self, heard: ObservedStage, case: Case) -> None:
        stream = heard.begin_observation()
        name = f"observation of {heard.seat} {heard.stage}"
        work = _Work(heard.proposal_id, name, heard, heard.round, heard.is_whole)
        self._work[heard.proposal_id, name] = work
        self._looks.append(work)
        mind: Any = self._mind
        self._set_going(work, case.time_left_s, lambda: mind.observe(case, stream))

    def _make_room(self) -> None:
        """Its own ballots and rulings go first: a look at another's work is put off for one."""
        if self._looks:
            work = self._looks[-1]
            assert work.heard is not None
            work.heard.put_off()
            self._give_up(work)

    def _send_observation(self, work: _Work, heard: ObservedStage, thought: Any) -> None:
        if not isinstance(thought, Observation):
            raise TypeError(f"its mind returned {short(thought)}, expected Observation")
        if not isinstance(thought.interrupt, bool):
            raise TypeError(
                f"its mind returned {short(thought.interrupt)} as interrupt, expected True or False"
            )
        told = {"stream": heard.seat, "stage": heard.stage, "round": work.round, "whole": work.whole}
        told["interrupt"] = thought.interrupt
        sealed = self._info(work.proposal_id, "observation", told, thought.reason)
        heard.looked(work.round, whole=work.whole, interrupt=thought.interrupt)
        # Also of a round that is over: the council counts what a seat does, not what it does last.
        self.say(sealed)
        self._finish(work)

    # The work

    async def _do(self, work: _Work, think: Callable[[], Any]) -> None:
        budget.work.set(work)
        try:
            await self._slots.acquire()
            work.has_slot = True
            with tracing.work(self._spans, self.name, work.proposal_id, work.kind):
                thought = await self._think(work, think)
            if not work.given_up and work.heard is not None:
                self._send_observation(work, work.heard, thought)
            elif not work.given_up:
                sealed = self._sealed_thought(work, thought)
                if isinstance(thought, Opinion) and thought.escalate:
                    self._escalate(work, thought.escalate)
                self._send_ballot(work, sealed)
        except asyncio.CancelledError:
            if not work.given_up:
                self._fail(work, "its work was cancelled from within")
        except GeneratorExit:
            raise  # the loop is gone, and with it whoever would hear of it
        except BaseException as error:  # noqa: BLE001 - whatever a mind raises costs its ballot only
            if not work.given_up:
                self._fail(work, in_words(error), overruns_of(error))
        finally:
            self._purse.close(work)
            self._free_slot(work)

    async def _think(self, work: _Work, think: Callable[[], Any]) -> Any:
        if self._is_async[work.kind]:
            thought = think()
        else:
            thought = await (self._threads if work.heard is None else self._lookouts).run(think)
        while inspect.isawaitable(thought):
            thought = await thought
        return thought

    def _look_at_time(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for work in [work for work in self._work.values() if work.ends_s <= now_s]:
            self._fail(work, f"its mind did not answer within {work.limit_s:g} s")
            self._give_up(work)
        self._timer.set(min((work.ends_s for work in self._work.values()), default=math.inf))

    def _give_up(self, work: _Work | None) -> None:
        if work is None:
            return
        work.given_up = True
        self._finish(work)
        self._free_slot(work)  # now: a mind may ignore that it is cancelled
        if work.task is not None:
            work.task.cancel()

    def _free_slot(self, work: _Work) -> None:
        if work.has_slot:
            work.has_slot = False
            self._slots.release()

    def _finish(self, work: _Work) -> None:
        if self._work.get((work.proposal_id, work.task_name)) is work:
            del self._work[(work.proposal_id, work.task_name)]
            self._weight -= work.weight
            if work.task_name == "ballot":
                self._voice.close(work.proposal_id)
            elif work.heard is not None:
                self._looks.remove(work)
                self._hearing.finish(work.heard)
            self._start_observation()

    # What the seat says

    def _send_ballot(self, work: _Work, sealed: bytes) -> None:
        if work.heard is None:
            self._remember((work.proposal_id, work.task_name), sealed)
        self._finish(work)
        self.say(sealed)

    def _escalate(self, work: _Work, why: str) -> None:
        """Calls for Prime (rules 1.8), before the ballot: that may decide it, and then it is too late."""
        content = {"proposal_id": work.proposal_id, "reason": why}
        sealed = self._sealed(type="ESCALATION", role="voter", parent_id=work.proposal_id, content=content)
        self._remember((work.proposal_id, "escalation"), sealed)
        self.say(sealed)

    def _fail(self, work: _Work, why: str, overruns: Sequence[Mapping[str, Any]] = ()) -> None:
        # rules 2.4: they stand in the journal, also where no call was made with that prompt.
        told = {"task": work.kind} | ({"overruns": overruns} if overruns else {})
        self._send_ballot(work, self._info(work.proposal_id, "fault", told, why))

    def _sealed_thought(self, work: _Work, thought: Any) -> bytes:
        """The thought, signed. Raises EnvelopeError or TypeError for what is no opinion, or no ruling."""
        wanted = Opinion if work.task_name == "ballot" else MindRuling
        if not isinstance(thought, wanted):
            raise TypeError(f"its mind returned {short(thought)}, expected {wanted.__name__}")
        fields: dict[str, Any] = {
            "role": "voter",
            "parent_id": work.proposal_id,
            "confidence": thought.confidence,
            "risk_level": thought.risk_level,
        }
        if isinstance(thought, Opinion):
            content: dict[str, Any] = {
                "proposal_id": work.proposal_id,
                "vote": thought.vote,
                "reason": thought.reason,
                "control_packet": thought.control_packet,
            }
            return self._sealed(type="VOTE", content=content, **fields)
        if thought.ruling not in RULINGS:
            raise TypeError(
                f"its mind returned the ruling {short(thought.ruling)}, expected one of {', '.join(RULINGS)}"
            )
        data = {"proposal_id": work.proposal_id, "ruling": thought.ruling}
        return self._sealed(
            type="INFO", content={"kind": "ruling", "text": thought.reason, "data": data}, **fields
        )

    def _sealed(self, msg_id: str = "", **fields: Any) -> bytes:
        about = {"msg_id": msg_id or self._new_id(), "timestamp": self._wall(), "sender": self.name}
        return signing.sign(Envelope.build(**about, **fields), self._key, self._council_id)

    def _casts(self, proposal_id: str) -> bool:
        """Whether its mind is at work on a ballot."""
        return (proposal_id, "ballot") in self._work

    def _send_stream_piece(self, proposal_id: str, text: str, data: Mapping[str, Any]) -> None:
        self.say(self._info(proposal_id, "stream", data, text))

    def _ask(self, proposal_id: str, kind: str, data: Mapping[str, Any]) -> tuple[str, Callable[[], None]]:
        """What the purse asks or settles: its id, and what leaves it for the council."""
        msg_id = self._new_id()
        sealed = self._info(proposal_id, kind, data, msg_id=msg_id)
        return msg_id, lambda: self.say(sealed)

    def _info(
        self, proposal_id: str, kind: str, data: Mapping[str, Any], text: str = "", **fields: Any
    ) -> bytes:
        """An INFO of the seat's own, about a proposal."""
        content = {"kind": kind, "text": sayable(text[:2_000]), "data": {"proposal_id": proposal_id, **data}}
        return self._sealed(type="INFO", role="voter", parent_id=proposal_id, content=content, **fields)

    def _remember(self, key: tuple[str, str], sealed: bytes) -> None:
        if key in self._said:
            self._forget(key)
        self._said[key] = sealed
        self._said_bytes += len(sealed)
        while len(self._said) > REMEMBERED_MAX or self._said_bytes > REMEMBERED_BYTES_MAX:
            self._forget(next(iter(self._said)))

    def _forget(self, key: tuple[str, str]) -> None:
        self._said_bytes -= len(self._said.pop(key, b""))


async def _pause(seconds: float, ended: asyncio.Event) -> None:
    """Waits so long, or until ``ended`` is set."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ended.wait(), seconds)


def _from_any_thread(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> Callable[[], None]:
    """What sets ``event``, which belongs to ``loop``, from wherever it is called."""

    def set_it() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so that nobody waits
            loop.call_soon_threadsafe(event.set)

    return set_it


def _is_async(method: Any) -> bool:
    """Whether a mind's method runs on the event loop; a plain one needs a thread, as it may block."""
    return method is None or inspect.iscoroutinefunction(inspect.unwrap(method))


def _case_of(envelope: Envelope, time_left_s: float) -> Case:
    """A proposal as a mind is shown it."""
    content = envelope.content
    assert isinstance(content, Proposal)
    return Case(
        proposal_id=envelope.msg_id,
        proposer=envelope.sender,
        summary=content.summary,
        body=content.body,
        action=plain(content.action.model_dump()) if content.action is not None else None,
        confidence=envelope.confidence,
        risk_level=envelope.risk_level,
        time_left_s=time_left_s,
        history=tuple(Turn(turn.role, turn.text) for turn in content.history),
    )
