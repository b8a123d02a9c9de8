"""What can happen to a council, in the past tense. Knows nothing of what follows from it.

Events come from authentic envelopes, from the roll and from time; ``next_due`` in ``step`` names those
that time brings. All but an ordinary heartbeat are journaled (rules 1.10). Each class has a handler in the core
(``handlers.handles``) and a row in ``council/kinds/table.py``.
"""

from __future__ import annotations

from council.core.state import (
    ActionReport,
    Answer,
    Ballot,
    Call,
    IdentityChange,
    Overrun,
    Rules,
    Ruling,
    Spend,
    Submission,
    Value,
)


class Event(Value, frozen=True):
    """What every event is."""


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
    """A seat reports that its mind gave no ballot, ruling or observation: it raised, hung or spoke nonsense."""

    proposal_id: str
    seat: str
    task: str  # "ballot", "ruling" or "observation"
    why: str
    overruns: tuple[Overrun, ...] = ()  # of a prompt that no call was made with (rules 2.4)


class StreamObserved(Event, frozen=True):
    """``observer`` watched ``stream``'s work on a proposal; ``interrupt`` says whether it called a halt.

    ``round`` is the number of what was watched, as the seat counts what it says at any ``stage``; 0 for none: then
    nobody is told to halt. ``whole``: of that round all was watched, not its beginning.
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


class ProposalCancelled(Event, frozen=True):
    """The proposer took its proposal back."""

    proposal_id: str
    sender: str
    reason: str


class CallReserved(Event, frozen=True):
    """A seat asked to make a model call, and said what it may cost at worst (rules 2.6).

    ``overruns`` are what was done since its last call to make the prompt fit (rules 2.4).
    """

    call: Call
    overruns: tuple[Overrun, ...] = ()


class CallSettled(Event, frozen=True, omit_defaults=True):
    """A seat told what a call had cost; ``used`` is None where nobody knows. ``error`` is of which kind it failed."""

    proposal_id: str
    seat: str
    call_id: str
    used: Spend | None
    error: str = ""


class ActionReported(Event, frozen=True):
    """The proposer of an approved action told what became of it."""

    report: ActionReport


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
    """No human answered in time."""

    proposal_id: str


class CoordinatorStarted(Event, frozen=True):
    """A coordinator took the council over, the first one or a later: its epoch, and the rules it was given."""

    council_id: str
    epoch: int
    rules: Rules


class IdentityChanged(Event, frozen=True):
    """The creator changed the identity, and was allowed to; what is not allowed is an ``EnvelopeRefused``."""

    change: IdentityChange


class EnvelopeRefused(Event, frozen=True):
    """An envelope was refused: malformed, forged, replayed, or against the rules."""

    sender: str
    msg_id: str
    code: str
    why: str
