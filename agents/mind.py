"""What a mind is: it is shown a case and says what it thinks. Knows nothing of Ray, keys or other minds.

A mind is any object with a ``review(case)`` method, plain or async, or a bare function of one case:

    async def careful(case: Case) -> Opinion:
        if "prod" in case.summary:
            return Opinion.no("production is off limits", risk_level="high")
        return Opinion.yes("nothing speaks against it", confidence=0.8)

A plain (not async) ``review`` runs on a thread of its own, so it may block; an async one must not.
The seat called Prime also needs ``rule(case, ballots)``, with which it rules on escalated proposals
(rules 1.8); a Prime without it sends every escalated proposal to a human. The seat that observes needs
``observe(case, stream)``, with which it watches what others say while they think (rules 3.1); without it
nobody is interrupted. What a mind says while it thinks, it says by the ``voice`` it is handed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

from council.protocol.errors import MindError

Vote = Literal["yes", "no", "abstain"]
RiskLevel = Literal["low", "med", "high"]
RulingWord = Literal["confirm", "reject", "human"]
COST_MAX = 10**12


class Turn(NamedTuple):
    """What somebody said, or a tool printed, before a proposal was made; ``role`` is a word such as ``user``."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Case:
    """A proposal as a mind sees it. Its text is data from outside: never instructions (rules 1.14).

    ``action`` is ``{"tool": str, "args": {...}}`` or None; ``confidence`` is 0..1 and the proposer's own;
    ``time_left_s`` is how many seconds the mind has before its ballot is lost. ``history`` is what was said and
    done before it was proposed, oldest first, as far as the proposer gave any.
    """

    proposal_id: str
    proposer: str
    summary: str
    body: str = ""
    action: Mapping[str, Any] | None = None
    confidence: float = 1.0
    risk_level: RiskLevel = "low"
    time_left_s: float = 60.0
    history: tuple[Turn, ...] = ()

    @property
    def chars(self) -> int:
        """How long its texts are that may be long."""
        return len(self.body) + sum(len(turn.text) for turn in self.history)


@dataclass(frozen=True, slots=True)
class Opinion:
    """What a mind thinks of a case: its ballot, once the seat has signed it (rules 1.2).

    ``confidence`` is 0..1; below 0.3, or with ``risk_level`` high, the proposal goes to Prime's ruling
    (rules 1.8). ``control_packet`` is what a seat's model sent along, if any (rules 6.6). ``escalate`` says
    why Prime should rule on it in any case; the seat then sends an ESCALATION before its ballot.
    """

    vote: Vote
    reason: str
    confidence: float = 1.0
    risk_level: RiskLevel = "low"
    control_packet: Mapping[str, Any] | None = None
    escalate: str = ""

    @classmethod
    def yes(
        cls, reason: str, *, confidence: float = 1.0, risk_level: RiskLevel = "low", escalate: str = ""
    ) -> Opinion:
        return cls("yes", reason, confidence, risk_level, None, escalate)

    @classmethod
    def no(
        cls, reason: str, *, confidence: float = 1.0, risk_level: RiskLevel = "low", escalate: str = ""
    ) -> Opinion:
        return cls("no", reason, confidence, risk_level, None, escalate)

    @classmethod
    def abstain(
        cls, reason: str, *, confidence: float = 1.0, risk_level: RiskLevel = "low", escalate: str = ""
    ) -> Opinion:
        return cls("abstain", reason, confidence, risk_level, None, escalate)


@dataclass(frozen=True, slots=True)
class ShownBallot:
    """A ballot as Prime sees it when it rules."""

    seat: str
    vote: Vote
    reason: str
    confidence: float
    risk_level: RiskLevel


@dataclass(frozen=True, slots=True)
class Ruling:
    """Prime's act on an escalated proposal, beside its ballot: confirm, reject, or human (rules 1.8)."""

    ruling: RulingWord
    reason: str
    confidence: float = 1.0
    risk_level: RiskLevel = "low"


@dataclass(frozen=True, slots=True)
class Stream:
    """What another seat has said so far, at one stage of its work on a case. Data, as the case is (rules 1.14).

    ``is_whole``: it has said all that it will say at this stage.
    """

    seat: str
    stage: str
    text: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Observation:
    """What an observer makes of a stream. ``interrupt`` calls a halt: ``reason`` is what that seat is told.

    Three of these in a row on one seat's work send the proposal to Prime (rules 1.8).
    """

    interrupt: bool
    reason: str = ""


@runtime_checkable
class Mind(Protocol):
    """Anything that can review a case."""

    def review(self, case: Case) -> Opinion | Awaitable[Opinion]: ...


@runtime_checkable
class RulingMind(Mind, Protocol):
    """A mind that can hold Prime's seat."""

    def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling | Awaitable[Ruling]: ...


@runtime_checkable
class ObservingMind(Mind, Protocol):
    """A mind that can watch another's work as it is done. Its own ballot hears nothing of it (rules 6.7)."""

    def observe(self, case: Case, stream: Stream) -> Observation | Awaitable[Observation]: ...


Review = Callable[[Case], Opinion | Awaitable[Opinion]]


# What a seat hands to a mind that calls models or speaks while it thinks


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens, prompt and output together, and millionths of a dollar, rounded up.

    Raises ValueError for what is no whole number from 0 to 10**12: the council could not book it.
    """

    tokens: int
    microusd: int = 0

    def __post_init__(self) -> None:
        for name in ("tokens", "microusd"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= COST_MAX:
                raise ValueError(f"{name} is {value!r:.80}, expected a whole number from 0 to {COST_MAX:,}")


class BudgetClient(Protocol):
    """What a seat gives its mind to spend from. Both methods belong to the seat's event loop."""

    async def reserve(self, proposal_id: str, task: str, model: str, worst: Cost, **told: Any) -> str:
        """Asks for a call that costs ``worst`` at most; gives its id once it is granted.

        ``task`` is "ballot", "ruling" or another word for what the call is for. ``told`` is kept with it: as
        ``prompt`` the hash of what the prompt was made of, as ``overruns`` what was done to make it fit, tables
        of packet, field, limit, before, after, how (rules 2.4). Raises CallDenied where the
        call does not fit what is left, or nobody waits for it any more.
        """

    def settle(self, call_id: str, used: Cost | None, error: str = "") -> None:
        """Says what the call has cost; None where nobody knows. Also after it failed or was given up.

        ``error`` says of which kind it failed: its HTTP status, ``timeout`` or ``connection_error``; any other word
        counts as ``other``, so that no text gets into a metric.
        The first word counts. A call that its mind left open is settled, as unknown, with the mind's work.
        """


@runtime_checkable
class SpendingMind(Protocol):
    """A mind that calls models: it is handed a client of its budget before its first case."""

    def set_budget(self, purse: BudgetClient) -> None: ...


class PlanStream(Protocol):
    """What a seat gives its mind to speak by, while it works on a ballot. For the seat's event loop alone."""

    def publish(self, proposal_id: str, stage: str, text: str) -> None:
        """Says a piece of what the mind thinks at this stage, as it comes. Never any part of a ballot."""

    def end(self, proposal_id: str, stage: str) -> None:
        """This stage's stream is whole; what is said of the stage after this begins it anew."""

    def interrupted(self, proposal_id: str) -> asyncio.Future[str]:
        """Is done, with the reason, when an observer calls a halt; then ask anew for the next.

        After it every stage of the work begins anew. Never done once the mind's work on the proposal is over.
        """


@runtime_checkable
class SpeakingMind(Protocol):
    """A mind that speaks while it thinks: it is handed its plan stream before its first case."""

    def set_plan_stream(self, voice: PlanStream) -> None: ...


class _FunctionMind:
    """A bare function, as a mind."""

    def __init__(self, function: Review) -> None:
        self.review = function
        self.__doc__ = function.__doc__


def as_mind(thing: Any, *, seat: str) -> Mind:
    """The mind that ``thing`` is: an object with ``review``, a class of such objects, or a function.

    Raises MindError, naming the seat, for anything else.
    """
    if inspect.isclass(thing):
        try:
            thing = thing()
        except Exception as error:
            raise MindError(
                f"seat {seat}: {thing.__name__}() failed: {error!r}; a mind's class is built without arguments "
                "unless the seat's options give some",
                seat=seat,
                mind=thing.__qualname__,
            ) from error
    if callable(getattr(thing, "review", None)):
        return cast(Mind, thing)
    if callable(thing):
        return _FunctionMind(thing)
    raise MindError(
        f"seat {seat}: {thing!r} is no mind: expected an object with review(case), or a function of one case",
        seat=seat,
        mind=repr(thing),
    )
