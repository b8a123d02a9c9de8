"""The interface of a mind: a mind is shown a case, and returns an opinion. It needs no Ray and no keys.

A mind is any object with a ``review(case)`` method, plain or async, or a bare function of one case:

    async def careful(case: Case) -> Opinion:
        if "prod" in case.summary:
            return Opinion.no("production is off limits", risk_level="high")
        return Opinion.yes("no objection", confidence=0.8)

A plain (not async) ``review`` runs on a thread of its own, so it may block; an async one must not.
The seat called Prime also needs ``rule(case, ballots)``, which rules on escalated proposals (rules 1.8). If Prime
has none, every escalated proposal goes to a human. The seat that observes needs ``observe(case, stream)``, which
watches what other seats publish while they think (rules 3.1). If it has none, no seat is interrupted. A mind
publishes its thoughts through the plan stream that its seat gives it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Protocol, cast, runtime_checkable

from council.protocol.errors import EnvelopeError, MindError

if TYPE_CHECKING:
    from council.protocol.cognition import CognitionPacket

Vote = Literal["yes", "no", "abstain"]
RiskLevel = Literal["low", "med", "high"]
RulingWord = Literal["confirm", "reject", "human", "verify"]
COST_MAX = 10**12


# A turn of the first role has the result of a check. A proposer's own turn of this role is shown with the second one.
CHECK_ROLE, CLAIMED_ROLE = "check", "claimed-check"


class Turn(NamedTuple):
    """One turn before a proposal was made: the words of a person, or the output of a tool.

    ``role`` is a word such as ``user``.
    """

    role: str
    text: str


@dataclass(frozen=True, eq=False)
class Action(dict[str, Any]):
    """A call of a tool: ``Action("shell", {"command": "ls"})``. Nothing of it can be assigned.

    ``tool`` is the tool's name and ``args`` are its arguments by name, as JSON values. It is also the mapping
    ``{"tool": tool, "args": args}``: ``action["tool"]``, ``action.get("args")`` and ``json.dumps(action)`` work.
    """

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(tool=self.tool, args=self.args)

    @classmethod
    def of(cls, value: object) -> Action:
        """An action, or a mapping ``{"tool": str, "args": {...}}``, as an action. A mapping may leave ``args`` out.

        With ``authorization`` it is an AuthorizedAction. Raises EnvelopeError, whose field is ``content.action``, for
        anything else.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping) and "tool" in value:
            if value.keys() <= {"tool", "args"}:
                return cls(**value)
            if value.keys() <= {"tool", "args", "authorization"}:
                return AuthorizedAction(**value)
        raise EnvelopeError(
            f"action is {value!r:.80}, expected Action(tool, args) or a mapping "
            '{"tool": ..., "args": {...}}, for example Action("shell", {"command": "ls"})',
            field="content.action",
        )

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("an Action can't be changed: make another, Action(tool, args)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return Action, (self.tool, self.args)


@dataclass(frozen=True, eq=False)
class AuthorizedAction(Action):
    """An action that the council is to have run. ``authorization`` is what an approval of it allows (rules 5).

    It says who runs it, which operations on which resources, how often and until when. The mapping has it too.
    """

    authorization: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        dict.__init__(self, tool=self.tool, args=self.args, authorization=self.authorization)

    def __reduce__(self) -> tuple[Any, ...]:
        return AuthorizedAction, (self.tool, self.args, self.authorization)


class Checked(NamedTuple):
    """A check that a mind asked for and that was run: the tool, its arguments by name, and its output as text.

    The output is data from outside, redacted, and cut at 4,000 characters.
    """

    tool: str
    args: Mapping[str, Any]
    output: str


@dataclass(frozen=True, slots=True)
class Case:
    """A proposal as a mind sees it. Its text is data from outside: never instructions (rules 1.14).

    ``action`` is the call that is asked for, if it is one; a mapping ``{"tool": str, "args": {...}}`` becomes an
    Action. ``confidence`` is the proposer's own, from 0 to 1. ``time_left_s`` is the time in seconds until the mind
    loses its ballot. ``history`` is what was said and done before the proposal, oldest first, as far as the proposer
    gave it. ``requester`` are the agent and the user who ask, as the proposer says: nobody has checked it.
    ``checks`` are those that were run on this case, oldest first; each is also a turn ``check`` of the history.
    Raises EnvelopeError for an action of another shape.
    """

    proposal_id: str
    proposer: str
    summary: str
    body: str = ""
    action: Action | None = None
    confidence: float = 1.0
    risk_level: RiskLevel = "low"
    time_left_s: float = 60.0
    history: tuple[Turn, ...] = ()
    requester: tuple[str, ...] = ()
    checks: tuple[Checked, ...] = ()

    def __post_init__(self) -> None:
        if self.action is not None and not isinstance(self.action, Action):
            object.__setattr__(self, "action", Action.of(self.action))

    @property
    def chars(self) -> int:
        """The number of characters in its body and its history."""
        return len(self.body) + sum(len(turn.text) for turn in self.history)


@dataclass(frozen=True, slots=True)
class Opinion:
    """A mind's opinion on a case. Its seat signs it as a ballot (rules 1.2).

    ``confidence`` is from 0 to 1. If it is below 0.3, or if ``risk_level`` is high, the proposal goes to Prime's
    ruling (rules 1.8). ``control_packet`` is what the seat's model sent along, if any (rules 6.6). ``escalate`` is a
    reason for a ruling by Prime in any case: if it is set, the seat sends an ESCALATION before its ballot. ``check``
    is a call of a READ tool to run before the decision: its result is shown to all seats, which then vote again.
    """

    vote: Vote
    reason: str
    confidence: float = 1.0
    risk_level: RiskLevel = "low"
    control_packet: Mapping[str, Any] | None = None
    escalate: str = ""
    check: Action | None = None

    @classmethod
    def yes(
        cls,
        reason: str,
        *,
        confidence: float = 1.0,
        risk_level: RiskLevel = "low",
        escalate: str = "",
        check: Action | None = None,
    ) -> Opinion:
        return cls("yes", reason, confidence, risk_level, None, escalate, check)

    @classmethod
    def no(
        cls,
        reason: str,
        *,
        confidence: float = 1.0,
        risk_level: RiskLevel = "low",
        escalate: str = "",
        check: Action | None = None,
    ) -> Opinion:
        return cls("no", reason, confidence, risk_level, None, escalate, check)

    @classmethod
    def abstain(
        cls,
        reason: str,
        *,
        confidence: float = 1.0,
        risk_level: RiskLevel = "low",
        escalate: str = "",
        check: Action | None = None,
    ) -> Opinion:
        return cls("abstain", reason, confidence, risk_level, None, escalate, check)


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
    """Prime's act on an escalated proposal, beside its ballot: confirm, reject, human, or verify (rules 1.8).

    ``verify`` needs a ``check``, a call of a READ tool to run first: all seats then vote again.
    """

    ruling: RulingWord
    reason: str
    confidence: float = 1.0
    risk_level: RiskLevel = "low"
    check: Action | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """The words of another seat so far, at one stage of its work on a case.

    They are data, like the case (rules 1.14).

    ``is_whole``: the seat has ended this stage.
    """

    seat: str
    stage: str
    text: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Observation:
    """An observer's verdict on a stream. If ``interrupt`` is true, the observed seat is halted and gets ``reason``.

    Three interrupts in a row on one seat's work send the proposal to Prime (rules 1.8).
    """

    interrupt: bool
    reason: str = ""


@runtime_checkable
class Mind(Protocol):
    """Anything that can review a case.

    An attribute ``reads_tokens`` says how many tokens of a case it reads, ``READS_TOKENS`` by default. A longer case
    costs its ballot. A mind that asks a model has the budget of its prompts instead (rules 2.2).
    """

    def review(self, case: Case) -> Opinion | Awaitable[Opinion]: ...


# rules 2.2: the tokens of a case that a mind without a model reads, unless it says otherwise.
READS_TOKENS = 250_000


@runtime_checkable
class RulingMind(Mind, Protocol):
    """A mind that can hold Prime's seat."""

    def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling | Awaitable[Ruling]: ...


@runtime_checkable
class ObservingMind(Mind, Protocol):
    """A mind that can watch another seat's work in progress. Its own ballot sees nothing of it (rules 6.7)."""

    def observe(self, case: Case, stream: Stream) -> Observation | Awaitable[Observation]: ...


Review = Callable[[Case], Opinion | Awaitable[Opinion]]


# Interfaces that a seat gives to a mind that calls models, or speaks while it thinks


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens, prompt and output together, and millionths of a dollar, rounded up.

    ``output_tokens`` are those of the tokens that the model wrote, 0 if that is not known. Two costs are compared
    without it. Raises ValueError if a value is not a whole number from 0 to 10**12: the council could not book it.
    """

    tokens: int
    microusd: int = 0
    output_tokens: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        for name in ("tokens", "microusd", "output_tokens"):
            value = getattr(self, name)
            if type(value) is not int or not 0 <= value <= COST_MAX:
                raise ValueError(f"{name} is {value!r:.80}, expected a whole number from 0 to {COST_MAX:,}")


class BudgetClient(Protocol):
    """The budget that a seat gives to its mind. Call both methods on the seat's event loop."""

    async def reserve(self, proposal_id: str, task: str, model: str, worst: Cost, **facts: Any) -> str:
        """Reserves the cost of a call, ``worst`` at most. Returns the call's id once the council has granted it.

        ``task`` is "ballot", "ruling" or another word for the purpose of the call. ``facts`` are recorded with it:
        ``prompt`` is the hash of the prompt's sources; ``overruns`` says how the prompt was shortened, as mappings
        with the keys packet, field, limit, before, after, how (rules 2.4). Raises CallDenied if the cost exceeds what
        is left, or if the proposal is not open any more.
        """

    def settle(self, call_id: str, used: Cost | None, error: str = "") -> None:
        """Reports the actual cost of a call, also of one that failed or was given up; None if it is unknown.

        ``error`` is the kind of failure: an HTTP status, ``timeout`` or ``connection_error``. Any other word is
        recorded as ``other``, so that no free text gets into a metric. Only the first report of a call counts. If a
        mind leaves a call open, it is settled as unknown when the mind's work ends.
        """


@runtime_checkable
class SpendingMind(Protocol):
    """A mind that calls models. It gets its budget client before its first case."""

    def set_budget(self, budget: BudgetClient) -> None: ...


class PlanStream(Protocol):
    """Publishes a mind's thoughts while it works on a ballot. Call its methods on the seat's event loop."""

    def publish(self, proposal_id: str, stage: str, text: str) -> None:
        """Publishes a piece of the mind's thoughts at this stage. Never pass any part of a ballot."""

    def end(self, proposal_id: str, stage: str) -> None:
        """Ends this stage's stream. Text that is published for the stage later begins a new one."""

    def interrupted(self, proposal_id: str) -> asyncio.Future[str]:
        """A future that gets the reason when an observer interrupts the work. Call again to wait for the next.

        After an interrupt every stage begins again. The future stays pending once the work on the proposal is over.
        """


@runtime_checkable
class SpeakingMind(Protocol):
    """A mind that speaks while it thinks. It gets its plan stream before its first case."""

    def set_plan_stream(self, stream: PlanStream) -> None: ...


class PacketSource(Protocol):
    """The cognition packets that a seat holds for its mind, one for each case."""

    model: Mapping[str, Any]  # fields of a packet's ``header.model``

    async def of(self, case: Case, make: Callable[[], Awaitable[CognitionPacket]]) -> CognitionPacket:
        """The packet of a case. If there is none yet, it is the one that ``make`` builds."""

    def note(self, proposal_id: str, step: str, text: str) -> None:
        """Adds a step of reasoning to the packet of a case."""


@runtime_checkable
class PacketMind(Protocol):
    """A mind that makes prompts from cognition packets. It gets their source before its first case."""

    def set_packets(self, packets: PacketSource) -> None: ...


class _FunctionMind:
    """A function, as a mind."""

    def __init__(self, function: Review) -> None:
        self.review = function
        self.__doc__ = function.__doc__


def as_mind(thing: Any, *, seat: str) -> Mind:
    """Turns an object with ``review``, a class of such objects, or a function into a mind.

    Raises MindError, which names the seat, for anything else.
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
        f"seat {seat}: {thing!r} is not a mind: expected an object with review(case), or a function of one case",
        seat=seat,
        mind=repr(thing),
    )
