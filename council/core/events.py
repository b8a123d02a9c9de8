"""The events of a council, in the past tense.

Events come from authentic envelopes, from the roll and from time (``next_due`` in ``step.py``). All but ordinary
heartbeats are journaled (rules 1.10). Each class has a handler in the core (``handles``), which ``step`` calls, and a
row in ``council/kinds/table.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from council.core.effects import Effect
from council.core.state import (
    ActionReport,
    Answer,
    Ballot,
    Call,
    CouncilState,
    IdentityChange,
    Moment,
    Overrun,
    Rules,
    Ruling,
    Spend,
    Submission,
    UseRequest,
    UseResult,
    Value,
)


class Event(Value, frozen=True):
    """The base of all events."""


E = TypeVar("E", bound=Event)
Handler = Callable[[CouncilState, E, Moment], list[Effect]]
HANDLERS: dict[type[Event], Handler[Any]] = {}


def handles(kind: type[E]) -> Callable[[Handler[E]], Handler[E]]:
    """Registers the decorated function as the handler of this class of event."""

    def enter(handler: Handler[E]) -> Handler[E]:
        HANDLERS[kind] = handler
        return handler

    return enter


class ProposalSubmitted(Event, frozen=True):
    what: Submission


class BallotCast(Event, frozen=True):
    ballot: Ballot


class BallotUnreadable(Event, frozen=True):
    """A seat's vote on ``proposal_id`` could not be read (rules 1.2)."""

    proposal_id: str
    seat: str
    why: str
    digest: str


class WorkFailed(Event, frozen=True):
    """A mind gave no ballot, ruling or observation: it raised, hung or returned an invalid value."""

    proposal_id: str
    seat: str
    task: str  # "ballot", "ruling" or "observation"
    why: str
    overruns: tuple[Overrun, ...] = ()  # of a prompt that was never sent (rules 2.4)


class StreamObserved(Event, frozen=True):
    """``observer`` observed the work of seat ``stream`` on a proposal; ``interrupt``: it called a halt.

    ``round`` is the number of the round that it observed, at any ``stage``; 0 if it names none, then no seat is
    halted. ``whole``: it observed all of that round, not only the beginning.
    """

    proposal_id: str
    observer: str
    stream: str
    interrupt: bool
    text: str
    msg_id: str
    stage: str = ""
    round: int = 0
    whole: bool = True


class EscalationRaised(Event, frozen=True):
    """A seat sent ESCALATION."""

    proposal_id: str
    seat: str
    reason: str
    msg_id: str


class RulingGiven(Event, frozen=True):
    ruling: Ruling


class HumanAnswered(Event, frozen=True):
    answer: Answer


class ProposalCancelled(Event, frozen=True, omit_defaults=True):
    """The proposer took its proposal back, or an enrolled human did (``by_human``)."""

    proposal_id: str
    sender: str
    reason: str
    by_human: bool = False


class CallReserved(Event, frozen=True):
    """A seat asked to make a model call, with its highest cost (rules 2.6).

    ``overruns`` are the steps since its last call that made the prompt fit (rules 2.4).
    """

    call: Call
    overruns: tuple[Overrun, ...] = ()


class CallSettled(Event, frozen=True, omit_defaults=True):
    """A seat reported the cost of a call: ``used``, None if unknown, and the kind of ``error`` if it failed."""

    proposal_id: str
    seat: str
    call_id: str
    used: Spend | None
    error: str = ""


class ActionReported(Event, frozen=True):
    """The proposer of an approved action reported one step of it."""

    report: ActionReport


class ExecutorStarted(Event, frozen=True):
    """An executor began, or began again: what an earlier run of it had under way has an unknown outcome."""

    executor: str
    run: str


class UseAsked(Event, frozen=True):
    request: UseRequest


class UseReported(Event, frozen=True):
    """An executor reported the result of a use."""

    result: UseResult


class UseTimedOut(Event, frozen=True):
    """No result of a use came in time."""

    proposal_id: str
    use_id: str


class TokenRevoked(Event, frozen=True):
    """The proposer of an approved action took its token back, or an enrolled human did (``by_human``)."""

    proposal_id: str
    sender: str
    reason: str
    by_human: bool = False


class SeatBeat(Event, frozen=True):
    """A heartbeat: number ``beat`` of the seat actor's run ``boot``."""

    seat: str
    boot: int
    beat: int


class SeatDied(Event, frozen=True):
    """The seat's actor is known dead, or out of reach, in its run ``boot``."""

    seat: str
    boot: int
    why: str


class SeatFellSilent(Event, frozen=True):
    """No heartbeat for longer than the inactivity limit."""

    seat: str


class DeadlinePassed(Event, frozen=True):
    """The deadline of an open proposal's stage has passed."""

    proposal_id: str


class EscalationExpired(Event, frozen=True):
    """No human answered in time. ``use`` is set for a question about the outcome of that use of its token."""

    proposal_id: str
    use: int | UnsetType = UNSET


class CoordinatorStarted(Event, frozen=True):
    """A coordinator took over, the first one or a later one, with this epoch and these rules."""

    council_id: str
    epoch: int
    rules: Rules


class IdentityChanged(Event, frozen=True):
    """The creator changed the identity; a change that is not allowed is an ``EnvelopeRefused``."""

    change: IdentityChange


class EnvelopeRefused(Event, frozen=True):
    """An envelope was refused: malformed, forged, replayed, or against the rules."""

    sender: str
    msg_id: str
    code: str
    why: str
