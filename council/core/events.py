"""What can happen to a council, in the past tense. Knows nothing of what follows from it.

Events come from authentic envelopes, from the roll and from time; ``next_due`` in ``step`` names those
that time brings. All but an ordinary heartbeat are journaled (rules 1.10).
"""

from __future__ import annotations

from dataclasses import dataclass

from council.core.state import Answer, Ballot, Ruling, Submission


@dataclass(frozen=True, slots=True)
class ProposalSubmitted:
    what: Submission


@dataclass(frozen=True, slots=True)
class BallotCast:
    ballot: Ballot


@dataclass(frozen=True, slots=True)
class BallotUnreadable:
    """A seat's vote on ``proposal_id`` could not be read (rules 1.2)."""

    proposal_id: str
    seat: str
    why: str
    digest: str


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """A seat reports that its mind gave no ballot, or no ruling: it raised, hung or spoke nonsense."""

    proposal_id: str
    seat: str
    task: str  # "ballot" or "ruling"
    why: str


@dataclass(frozen=True, slots=True)
class StreamObserved:
    """``observer`` watched ``stream``'s work on a proposal; ``interrupt`` says whether it called a halt."""

    proposal_id: str
    observer: str
    stream: str
    interrupt: bool
    text: str
    msg_id: str


@dataclass(frozen=True, slots=True)
class EscalationRaised:
    """A seat sent ESCALATION."""

    proposal_id: str
    seat: str
    reason: str
    msg_id: str


@dataclass(frozen=True, slots=True)
class RulingGiven:
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class HumanAnswered:
    answer: Answer


@dataclass(frozen=True, slots=True)
class ProposalCancelled:
    """The proposer took its proposal back."""

    proposal_id: str
    sender: str
    reason: str


@dataclass(frozen=True, slots=True)
class SeatBeat:
    """A heartbeat: number ``beat`` of the seat actor's run ``boot``."""

    seat: str
    boot: int
    beat: int


@dataclass(frozen=True, slots=True)
class SeatDied:
    """The seat's actor is known dead, or out of reach, in its run ``boot``."""

    seat: str
    boot: int
    why: str


@dataclass(frozen=True, slots=True)
class SeatFellSilent:
    """No heartbeat for longer than the inactivity limit."""

    seat: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The deadline of an open proposal's stage has passed."""

    proposal_id: str


@dataclass(frozen=True, slots=True)
class EscalationExpired:
    """No human answered in time."""

    proposal_id: str


@dataclass(frozen=True, slots=True)
class EnvelopeRefused:
    """An envelope was refused: malformed, forged, replayed, or against the rules."""

    sender: str
    msg_id: str
    code: str
    why: str


Event = (
    ProposalSubmitted
    | BallotCast
    | BallotUnreadable
    | WorkFailed
    | StreamObserved
    | EscalationRaised
    | RulingGiven
    | HumanAnswered
    | ProposalCancelled
    | SeatBeat
    | SeatDied
    | SeatFellSilent
    | DeadlinePassed
    | EscalationExpired
    | EnvelopeRefused
)
