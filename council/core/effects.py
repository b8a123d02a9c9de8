"""What the core asks its shell to do, in the imperative. Knows nothing of how it is done.

``THINK`` effects only make seats think and may go at once. All others tell somebody something and wait
until the record of their event is kept (rules 4.7). A ruling's request shows ballots, so it waits too:
no seat sees another's ballot before its own is in the journal (rules 1.14).
"""

from __future__ import annotations

from council.core.state import (
    ActionReport,
    Ballot,
    Call,
    Decision,
    Escalation,
    IdentityChange,
    Overrun,
    Ruling,
    Spend,
    Submission,
    Value,
)


class Effect(Value, frozen=True):
    """What every effect is."""


class DeliverProposal(Effect, frozen=True):
    """Hand the proposal to a seat; ``again`` says why its first ballot did not do, if it gave one."""

    seat: str
    proposal_id: str
    again: str = ""


class LetObserve(Effect, frozen=True):
    """Hand the proposal to the seat that observes, which is done with its own ballot: others may speak of it."""

    seat: str
    proposal_id: str


class WithdrawProposal(Effect, frozen=True):
    """Tell a seat that the proposal was cancelled, so that it can stop thinking."""

    seat: str
    proposal_id: str


class RequestRuling(Effect, frozen=True):
    """Show Prime all ballots and ask for its ruling."""

    seat: str
    proposal_id: str
    ballots: tuple[Ballot, ...]
    escalated_for: tuple[str, ...]


class InterruptSeat(Effect, frozen=True):
    """Tell a seat that ``observer`` called a halt to what it says of a proposal, in its round of that number."""

    seat: str
    proposal_id: str
    observer: str
    round: int
    why: str


class GrantCall(Effect, frozen=True):
    """Tell a seat that it may make a model call; ``again`` where it was told before."""

    seat: str
    proposal_id: str
    call_id: str
    again: bool = False


class DenyCall(Effect, frozen=True):
    """Tell a seat that it may not make a model call.

    ``again`` where nothing came of it, so that it leaves no record; ``anew`` where it may ask under another id.
    """

    seat: str
    proposal_id: str
    call_id: str
    why: str
    again: bool = False
    anew: bool = False


class AnnounceDenial(Effect, frozen=True):
    """A model call does not fit the budget."""

    call: Call
    why: str


class AnnounceOverruns(Effect, frozen=True):
    """A seat had to shorten what its model is shown (rules 2.4)."""

    call: Call
    overruns: tuple[Overrun, ...]


class AnnounceSpending(Effect, frozen=True, omit_defaults=True):
    """A model call is over, what it cost (``assumed`` where that is not known), and how long after its grant.

    ``error`` is of which kind it failed, as its seat told; empty where it did not, or nobody told.
    """

    call: Call
    spent: Spend
    assumed: bool
    seconds: float
    error: str = ""


class AnnounceProposal(Effect, frozen=True):
    what: Submission


class AnnounceBallot(Effect, frozen=True):
    ballot: Ballot
    late: bool


class AnnounceLoss(Effect, frozen=True):
    """A seat's ballot or ruling will not come, or not as it was; ``retrying`` if it was asked again.

    ``overruns`` are what was done in vain to make its prompt fit (rules 2.4).
    """

    proposal_id: str
    seat: str
    task: str
    why: str
    retrying: bool = False
    overruns: tuple[Overrun, ...] = ()


class AnnounceObservation(Effect, frozen=True):
    proposal_id: str
    observer: str
    stream: str
    interrupt: bool
    text: str


class AnnouncePrimeEscalation(Effect, frozen=True):
    """The proposal goes to Prime's ruling, for ``reason``."""

    proposal_id: str
    reason: str


class AnnounceRuling(Effect, frozen=True):
    ruling: Ruling


class AnnounceEscalation(Effect, frozen=True):
    """The proposal waits for a human; ``standing`` is what its proposer is told meanwhile."""

    escalation: Escalation
    standing: Decision


class AnnounceDecision(Effect, frozen=True):
    decision: Decision


class AnnounceOutcome(Effect, frozen=True):
    """What became of an approved action."""

    report: ActionReport


class AnswerAgain(Effect, frozen=True):
    """The proposer submitted the same bytes again: tell it how the proposal stands (None: still open)."""

    proposal_id: str
    proposer: str
    decision: Decision | None


class AnnounceRoll(Effect, frozen=True):
    """A seat became active or inactive."""

    seat: str
    active: bool
    why: str


class AnnounceStart(Effect, frozen=True):
    """A coordinator took over after another, and goes on with ``open`` proposals."""

    epoch: int
    open: int


class AnnounceIdentityChange(Effect, frozen=True):
    """Another identity was allowed; it is in force from the first launch on that has it."""

    change: IdentityChange


class AnnounceCreator(Effect, frozen=True):
    """The council was launched with another ``creator`` than the one ``before``; empty: with none."""

    before: str
    creator: str


class RaiseAlert(Effect, frozen=True):
    """Something a person should look at: a late ballot that would have escalated it, an action that failed."""

    proposal_id: str
    kind: str
    text: str


class AnnounceRefusal(Effect, frozen=True):
    sender: str
    msg_id: str
    code: str
    why: str


class NoteIgnored(Effect, frozen=True):
    """Something was received that changes nothing, and why: a duplicate, or an old heartbeat."""

    sender: str
    what: str


Think = DeliverProposal | LetObserve | WithdrawProposal
THINK = (DeliverProposal, LetObserve, WithdrawProposal)
