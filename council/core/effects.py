"""The effects that the core asks its shell to perform, in the imperative. The shell decides how.

``THINK`` effects only make seats think and may go at once. All others announce something, and wait until the record
of their event is kept (rules 4.7). A request for a ruling shows ballots, so it waits too: no seat sees another's
ballot before its own is in the journal (rules 1.14).
"""

from __future__ import annotations

from council.core.state import (
    ActionReport,
    Ballot,
    Call,
    Check,
    Decision,
    Escalation,
    IdentityChange,
    Overrun,
    Ruling,
    Spend,
    Submission,
    Token,
    UseRequest,
    UseResult,
    Value,
)


class Effect(Value, frozen=True):
    """The base of all effects."""


class DeliverProposal(Effect, frozen=True):
    """Hand the proposal to a seat; ``again`` says why its first ballot could not be read, if it sent one."""

    seat: str
    proposal_id: str
    again: str = ""


class LetObserve(Effect, frozen=True):
    """Hand the proposal to the observer, which has cast its own ballot: others may still publish streams on it."""

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
    """Tell a seat that ``observer`` called a halt to this round of its work on a proposal."""

    seat: str
    proposal_id: str
    observer: str
    round: int
    why: str


class GrantCall(Effect, frozen=True):
    """Tell a seat that it may make a model call; ``again``: it was granted before."""

    seat: str
    proposal_id: str
    call_id: str
    again: bool = False


class DenyCall(Effect, frozen=True):
    """Tell a seat that it may not make a model call.

    ``again``: the denial changed nothing, so it leaves no record. ``anew``: the seat may ask under another id.
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
    """A seat shortened its prompt (rules 2.4)."""

    call: Call
    overruns: tuple[Overrun, ...]


class AnnounceSpending(Effect, frozen=True, omit_defaults=True):
    """A model call is over: what it cost (``assumed`` if unknown), and how many seconds after its grant.

    ``error`` is the kind of failure, as its seat reported it; empty for none.
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
    """A seat's ballot or ruling will not come; ``retrying``: it was asked again.

    ``overruns`` are the steps that failed to make its prompt fit (rules 2.4).
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
    """The proposal waits for a human; its proposer gets ``standing``, which is not final."""

    escalation: Escalation
    standing: Decision


class AnnounceDecision(Effect, frozen=True):
    decision: Decision


class AnnounceOutcome(Effect, frozen=True):
    """A step of an approved action was reported."""

    report: ActionReport


class IssueToken(Effect, frozen=True):
    """An approval allows its action to be run, on these terms."""

    token: Token


class AnnounceUse(Effect, frozen=True):
    """A use of a token is counted: its executor may run the action once."""

    request: UseRequest


class AnnounceResult(Effect, frozen=True):
    """The result of a use of a token."""

    result: UseResult


class AskCheck(Effect, frozen=True):
    """An executor is to run a check before the decision, on a token that allows only that."""

    check: Check
    token: Token


class AskOutcome(Effect, frozen=True):
    """A human is asked whether a use of a token with an unknown outcome ran."""

    question: Escalation


class AnnounceRevocation(Effect, frozen=True):
    """A token allows no further use. ``why`` says who revoked it and for what reason."""

    proposal_id: str
    why: str


class AnswerAgain(Effect, frozen=True):
    """Answer a proposer that submitted the same bytes again; ``decision`` is None while the council deliberates."""

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
    """A change of the identity was allowed; it is in force from the first launch with the new identity."""

    change: IdentityChange


class AnnounceCreator(Effect, frozen=True):
    """The council was launched with another ``creator`` than ``before``; empty for none."""

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
    """A message changes nothing: a duplicate, or an old heartbeat."""

    sender: str
    what: str


Think = DeliverProposal | LetObserve | WithdrawProposal
THINK = (DeliverProposal, LetObserve, WithdrawProposal)
