"""Handles what clients and humans send: a proposal, its cancellation, an answer, a report on the approved action.

The proposer runs an approved action in code of its own. Its report changes no decision.
"""

from __future__ import annotations

from msgspec.structs import replace

from council.core import conclusion, escalation, tokens
from council.core import effects as do
from council.core import events as ev
from council.core.state import (
    ACTION_STAGES,
    ActionReport,
    Closed,
    CouncilState,
    Decision,
    Moment,
    Outcome,
    Proposal,
    council_of,
)
from council.core.state_store import Effects, open_proposal, origin, store, unknown
from council.protocol.errors import Refused, TooManyOpen

# The alert to raise when a step of an approved action fails, and the step in words.
_ALERTS = {
    "act": ("action_failed", "the action"),
    "verify": ("verification_failed", "verification"),
    "revert": ("revert_failed", "the revert"),
}


@ev.handles(ev.ProposalSubmitted)
def submitted(state: CouncilState, event: ev.ProposalSubmitted, now: Moment) -> Effects:
    what = event.what
    known = _submitted_before(state, event)
    if known is not None:
        return known
    _refuse_another_councils(state, what.proposal_id)
    superseding = _superseded(state, event)
    _refuse_above_limits(state, superseding)
    active = state.active()
    reason = escalation.for_submission(what)
    proposal = Proposal(
        what=what,
        opened_s=now.uptime_s,
        deadline_s=now.uptime_s + what.time_budget_s,
        asked=active,
        escalated_for=(reason,) if reason else (),
    )
    effects: Effects = []
    if superseding is not None:
        effects += _cancel(state, superseding, f"superseded by {what.proposal_id}", now)
    effects.append(do.AnnounceProposal(what))
    effects += [do.DeliverProposal(name, what.proposal_id) for name in state.rules.seats if name in active]
    if reason:
        effects.append(do.AnnouncePrimeEscalation(what.proposal_id, reason))
    return effects + store(state, None, (proposal, []))


def _refuse_another_councils(state: CouncilState, proposal_id: str) -> None:
    """In a pool each id belongs to one council; else it could be decided twice (rules 1.12)."""
    if state.rules.pool is None:
        return
    number, count = state.rules.pool
    wanted = council_of(proposal_id, count)
    if wanted != number:
        raise Refused(
            f"{proposal_id} belongs to council {wanted} of this pool, and was proposed to council {number}: use "
            "CouncilPool, which finds the right one",
            code="another_council",
            proposal_id=proposal_id,
        )


def _submitted_before(state: CouncilState, event: ev.ProposalSubmitted) -> Effects | None:
    """The answer to a retry: the same bytes again. Raises Refused for other bytes under a known id (rules 1.12)."""
    what = event.what
    known = origin(state, what.proposal_id)
    if known is None:
        return None
    digest, _ = known
    if digest != what.digest:
        raise Refused(
            f"{what.proposer} submitted other bytes under the id {what.proposal_id}, which is taken: "
            "a revised proposal needs an id of its own, and says which one it supersedes",
            code="id_reused",
            proposal_id=what.proposal_id,
            sender=what.proposer,
        )
    return [do.AnswerAgain(what.proposal_id, what.proposer, how_it_stands(state, what.proposal_id))]


def how_it_stands(state: CouncilState, proposal_id: str) -> Decision | None:
    """The decision on a proposal, or its standing with a human; None while the council deliberates.

    Raises Refused (``unknown_proposal``) for an id that was never submitted.
    """
    return stands(proposal_id, state.closed.get(proposal_id), state.open.get(proposal_id))


def stands(proposal_id: str, closed: Closed | None, proposal: Proposal | None) -> Decision | None:
    """As ``how_it_stands``, for a proposal that is ``closed``, or open, or neither."""
    if closed is not None:
        return closed.decision
    if proposal is None:
        raise unknown(proposal_id, "the question")
    if proposal.standing is None:
        return None
    return replace(proposal.standing, late=proposal.late, spent=proposal.accounts)


def _superseded(state: CouncilState, event: ev.ProposalSubmitted) -> Proposal | None:
    """The open proposal that this one revises, if any; ballots never carry over (rules 1.3)."""
    what = event.what
    old_id = what.supersedes
    if old_id is None:
        return None
    known = origin(state, old_id)
    if known is None:
        raise unknown(old_id, what.proposer)
    _, proposer = known
    if proposer != what.proposer:
        raise _not_the_proposer(old_id, what.proposer, proposer)
    return state.open.get(old_id)


def _not_the_proposer(proposal_id: str, sender: str, proposer: str) -> Refused:
    return Refused(
        f"{sender} may not withdraw {proposal_id}: {proposer} proposed it",
        code="not_the_proposer",
        proposal_id=proposal_id,
        sender=sender,
    )


def _refuse_above_limits(state: CouncilState, leaving: Proposal | None) -> None:
    rules = state.rules
    with_human = state.with_human - (leaving is not None and leaving.stage == "human")
    deliberating = len(state.open) - (leaving is not None) - with_human
    if deliberating >= rules.open_max:
        raise TooManyOpen(
            f"{deliberating} proposals are open, as many as this council allows; "
            "wait for some to be decided, or raise open_max",
            open=deliberating,
            limit=rules.open_max,
        )
    if with_human >= rules.escalations_max:
        raise TooManyOpen(
            f"{with_human} proposals wait for a human, as many as this council allows; "
            "answer some, or raise escalations_max",
            open=with_human,
            limit=rules.escalations_max,
        )


@ev.handles(ev.ProposalCancelled)
def cancelled(state: CouncilState, event: ev.ProposalCancelled, now: Moment) -> Effects:
    """Cancels a proposal for its proposer or an enrolled human, also while it waits for a human's answer."""
    closed = state.closed.get(event.proposal_id)
    may = event.by_human or (closed is not None and closed.proposer == event.sender)
    if closed is not None and may and closed.decision.outcome == "cancelled":
        return [do.NoteIgnored(event.sender, "a cancellation of what is cancelled")]
    proposal = open_proposal(state, event.proposal_id, event.sender)
    if event.by_human:
        reason = f"cancelled by {event.sender}"
        return _cancel(state, proposal, f"{reason}: {event.reason}" if event.reason else reason, now)
    if event.sender != proposal.what.proposer:
        raise _not_the_proposer(event.proposal_id, event.sender, proposal.what.proposer)
    return _cancel(state, proposal, event.reason or "taken back by its proposer", now)


def _cancel(state: CouncilState, proposal: Proposal, reason: str, now: Moment) -> Effects:
    voted = {ballot.seat for ballot in proposal.ballots}
    effects = store(state, proposal, conclusion.decided(state, proposal, "cancelled", reason, now))
    thinking = [name for name in state.rules.seats if name in proposal.asked and name not in voted]
    if proposal.stage == "ruling" and state.rules.prime not in thinking:
        thinking.append(state.rules.prime)
    return effects + [do.WithdrawProposal(name, proposal.what.proposal_id) for name in thinking]


@ev.handles(ev.HumanAnswered)
def answered(state: CouncilState, event: ev.HumanAnswered, now: Moment) -> Effects:
    """The first answer wins, and is the one decision (rules 1.9)."""
    answer = event.answer
    if isinstance(answer.use, int):
        return tokens.answered(state, answer, answer.use, now)
    closed = state.closed.get(answer.proposal_id)
    if closed is not None and closed.decision.answer is not None:
        first = closed.decision.answer
        if first.digest == answer.digest:
            return [do.NoteIgnored(answer.human, "the same answer again")]
        raise Refused(
            f"already answered by {first.human}: {closed.decision.outcome}. Your answer was not counted.",
            code="already_answered",
            proposal_id=answer.proposal_id,
            sender=answer.human,
        )
    proposal = open_proposal(state, answer.proposal_id, answer.human)
    if proposal.stage != "human":
        raise Refused(
            f"{answer.proposal_id} does not wait for a human: the council still deliberates",
            code="not_escalated",
            proposal_id=answer.proposal_id,
            sender=answer.human,
        )
    outcome: Outcome = "approved" if answer.approve else "rejected"
    reason = f"{answer.human} {outcome} it" + (f": {answer.reason}" if answer.reason else "")
    return store(state, proposal, conclusion.decided(state, proposal, outcome, reason, now, answer=answer))


# Reports on an approved action (rules 3.1)


@ev.handles(ev.ActionReported)
def reported(state: CouncilState, event: ev.ActionReported, now: Moment) -> Effects:
    """Takes the proposer's report of one step. Each step is reported once, and the action first (rules 3.1)."""
    report = event.report
    closed = _approved(state, report)
    reported_before = [stage for stage, _, _ in closed.reports]
    for stage, ok, digest in closed.reports:
        if stage == report.stage and digest == report.digest:
            return [do.NoteIgnored(report.sender, "the same report again")]
        if stage == report.stage:
            first = "successful" if ok else "failed"
            raise _refused(report, f"it was reported as {first} before: that stands", "told_before")
    if report.stage != "act" and "act" not in reported_before:
        raise _refused(report, "the action was not reported yet: report act first", "out_of_order")
    newest = reported_before[-1] if reported_before else "act"
    if ACTION_STAGES.index(newest) > ACTION_STAGES.index(report.stage):
        raise _refused(report, f"{newest}, a later step, was reported already", "out_of_order")
    kept = (*closed.reports, (report.stage, report.ok, report.digest))
    state.closed[report.proposal_id] = replace(closed, reports=kept)
    effects: Effects = [do.AnnounceOutcome(report)]
    if not report.ok:
        kind, what = _ALERTS[report.stage]
        why = f"{what} failed, {report.sender} reports" + (f": {report.text}" if report.text else "")
        effects.append(do.RaiseAlert(report.proposal_id, kind, why))
    return effects


def _approved(state: CouncilState, report: ActionReport) -> Closed:
    """The approved proposal that a report is about. Raises Refused if it is not approved, or not the sender's."""
    known, closed = origin(state, report.proposal_id), state.closed.get(report.proposal_id)
    if known is None:
        raise unknown(report.proposal_id, report.sender)
    _, proposer = known
    if proposer != report.sender:
        raise _refused(report, f"only {proposer}, who proposed it, may report on it", "not_the_proposer")
    if closed is None:
        raise _refused(report, "it is not decided yet, so no action may have run", "not_approved")
    if not closed.decision:
        raise _refused(report, f"it is {closed.decision.outcome}, so no action may have run", "not_approved")
    return closed


def _refused(report: ActionReport, why: str, code: str) -> Refused:
    return Refused(
        f"{report.sender}'s report of {report.stage} on {report.proposal_id} is refused: {why}",
        code=code,
        proposal_id=report.proposal_id,
        sender=report.sender,
    )
