"""Handles what seats send about a proposal: ballots, failures, observations, escalations, rulings."""

from __future__ import annotations

from msgspec.structs import replace

from council.core import conclusion, escalation, tokens
from council.core import effects as do
from council.core import events as ev
from council.core.state import (
    ACTS_MAX,
    INTERRUPTS_MAX,
    REASON_TOLD_MAX,
    REASONS_MAX,
    Ballot,
    CouncilState,
    Moment,
    Proposal,
    unsure,
)
from council.core.state_store import Effects, open_proposal, seat_of, store, unknown
from council.protocol.errors import Refused


@ev.handles(ev.BallotCast)
def ballot(state: CouncilState, event: ev.BallotCast, now: Moment) -> Effects:
    ballot = event.ballot
    seat_of(state, ballot.seat)
    closed = state.closed.get(ballot.proposal_id)
    proposal = state.open.get(ballot.proposal_id)
    if closed is not None:
        earlier = closed.decision.ballots + closed.decision.late
        if _is_repeated(ballot, earlier, closed.asked):
            return [do.NoteIgnored(ballot.seat, "the same ballot again")]
        decision = replace(closed.decision, late=(*closed.decision.late, ballot))
        state.closed[ballot.proposal_id] = replace(closed, decision=decision)
        effects = _late(ballot)
        return effects + (tokens.late_ballot(state, ballot.proposal_id, ballot.seat) if effects[1:] else [])
    if proposal is None:
        raise unknown(ballot.proposal_id, ballot.seat)
    seen = ballot.checks_seen if isinstance(ballot.checks_seen, int) else 0
    if seen != sum(bool(check.outcome) for check in proposal.all_checks):
        return [do.NoteIgnored(ballot.seat, "a ballot of another round, before or after a check")]
    if _is_repeated(ballot, proposal.ballots + proposal.late, proposal.asked):
        return [do.NoteIgnored(ballot.seat, "the same ballot again")]
    if proposal.stage != "deliberating":
        # Voting is over: Prime or a human decides from the ballots that they were shown.
        store(state, proposal, (replace(proposal, late=(*proposal.late, ballot)), []))
        return _late(ballot)
    effects = [do.AnnounceBallot(ballot, late=False)]
    why = escalation.for_ballot(ballot)
    lost = proposal.lost
    if ballot.seat in lost:
        lost = {name: reason for name, reason in lost.items() if name != ballot.seat}
    counted = replace(proposal, ballots=(*proposal.ballots, ballot), lost=lost)
    if why is not None:
        counted = _escalate(counted, why, effects)
    concluded = conclusion.conclude(state, counted, now)
    return effects + store(state, proposal, concluded)


def _is_repeated(ballot: Ballot, earlier: tuple[Ballot, ...], asked: frozenset[str]) -> bool:
    """Whether these bytes came before. Raises Refused for a second ballot, or one of a seat that was not asked."""
    if ballot.seat not in asked:
        raise _not_asked(ballot.proposal_id, ballot.seat)
    for first in earlier:
        if first.seat == ballot.seat:
            if first.digest == ballot.digest:
                return True
            raise Refused(  # rules 1.3: one ballot for each seat and proposal
                f"{ballot.seat} voted twice on {ballot.proposal_id}: its first ballot ({first.vote}) stands",
                code="second_ballot",
                proposal_id=ballot.proposal_id,
                sender=ballot.seat,
            )
    return False


def _not_asked(proposal_id: str, seat: str) -> Refused:
    return Refused(
        f"{seat} voted on {proposal_id} without having been given it",
        code="not_asked",
        proposal_id=proposal_id,
        sender=seat,
    )


def _refuse_unasked(proposal: Proposal, seat: str) -> None:
    if seat not in proposal.asked:
        raise _not_asked(proposal.what.proposal_id, seat)


def _late(ballot: Ballot) -> Effects:
    """Shows a late ballot, which changes nothing; one that would have escalated raises an alert (rules 1.7)."""
    effects: Effects = [do.AnnounceBallot(ballot, late=True)]
    if ballot.risk_level == "high" or unsure(ballot.confidence) or ballot.asks_human:
        text = f"{ballot.seat} voted {ballot.vote} after the vote had ended: {ballot.reason}"
        effects.append(do.RaiseAlert(ballot.proposal_id, "late_ballot", text))
    return effects


def _escalate(proposal: Proposal, why: str, effects: Effects) -> Proposal:
    """Marks a proposal for Prime's ruling after the vote, or adds a reason to one that is marked."""
    why = why if len(why) <= REASON_TOLD_MAX else why[:REASON_TOLD_MAX] + "…"
    if why in proposal.escalated_for or len(proposal.escalated_for) >= REASONS_MAX:
        return proposal
    effects.append(do.AnnouncePrimeEscalation(proposal.what.proposal_id, why))
    return replace(proposal, escalated_for=(*proposal.escalated_for, why))


@ev.handles(ev.BallotUnreadable)
def unreadable(state: CouncilState, event: ev.BallotUnreadable, now: Moment) -> Effects:
    """Asks the seat once more after a vote that can't be read; a second such vote loses the ballot (rules 1.2)."""
    seat_of(state, event.seat)
    proposal = open_proposal(state, event.proposal_id, event.seat)
    _refuse_unasked(proposal, event.seat)
    if proposal.asked_again.get(event.seat) == event.digest:
        return [do.NoteIgnored(event.seat, "the same unreadable ballot again")]
    if any(ballot.seat == event.seat for ballot in proposal.ballots + proposal.late):
        raise Refused(
            f"{event.seat} voted on {event.proposal_id} before; what it sent since can't be read",
            code="second_ballot",
            proposal_id=event.proposal_id,
            sender=event.seat,
        )
    if proposal.stage != "deliberating":
        return [do.NoteIgnored(event.seat, "an unreadable ballot after the vote had ended")]
    if event.seat in proposal.asked_again:
        why = f"its ballot could not be read twice: {event.why}"
        return failed(state, ev.WorkFailed(event.proposal_id, event.seat, "ballot", why), now)
    asked = replace(proposal, asked_again={**proposal.asked_again, event.seat: event.digest})
    store(state, proposal, (asked, []))
    return [
        do.AnnounceLoss(event.proposal_id, event.seat, "ballot", event.why, retrying=True),
        do.DeliverProposal(event.seat, event.proposal_id, again=event.why),
    ]


@ev.handles(ev.WorkFailed)
def failed(state: CouncilState, event: ev.WorkFailed, now: Moment) -> Effects:
    """A mind that raised, hung or returned an invalid value loses its ballot; the council goes on without it."""
    seat_of(state, event.seat)
    if event.proposal_id in state.closed:
        return [do.NoteIgnored(event.seat, "a failure on a proposal that is decided")]
    proposal = open_proposal(state, event.proposal_id, event.seat)
    loss = do.AnnounceLoss(event.proposal_id, event.seat, event.task, event.why, overruns=event.overruns)
    if event.task == "observation":  # no ballot waits for it; announced once, because it may fail again
        _refuse_unasked(proposal, event.seat)
        acted = _acted(proposal, event.seat, "lost observation", "first")
        if acted is None or proposal.stage != "deliberating":
            return [
                do.NoteIgnored(
                    event.seat, "an observation that failed, as one had before, or too late to matter"
                )
            ]
        return [loss, *store(state, proposal, (acted, []))]
    if event.task == "ruling":
        if proposal.stage != "ruling" or event.seat != state.rules.prime:
            raise _no_ruling_asked(event.proposal_id, event.seat)
        concluded = conclusion.to_human(state, proposal, "no_ruling", now, event.why)
        return [loss, *store(state, proposal, concluded)]
    _refuse_unasked(proposal, event.seat)
    voted = any(ballot.seat == event.seat for ballot in proposal.ballots + proposal.late)
    if voted or event.seat in proposal.lost or proposal.stage != "deliberating":
        return [do.NoteIgnored(event.seat, "a failure on a proposal that it is done with")]
    without = replace(proposal, lost={**proposal.lost, event.seat: event.why})
    return [loss, *store(state, proposal, conclusion.conclude(state, without, now))]


def _acted(proposal: Proposal, seat: str, kind: str, msg_id: str) -> Proposal | None:
    """The proposal with this act noted; None if the act was seen before.

    Each seat has an allowance for each kind of act, so that none can use up another's.
    """
    key = f"{seat} {kind}"
    seen = proposal.acts.get(key, frozenset())
    if msg_id in seen:
        return None
    if len(seen) >= ACTS_MAX:
        raise Refused(
            f"{seat} has sent {ACTS_MAX} acts of kind {kind} on {proposal.what.proposal_id}, the most it may",
            code="too_many_acts",
            proposal_id=proposal.what.proposal_id,
            sender=seat,
        )
    return replace(proposal, acts={**proposal.acts, key: seen | {msg_id}})


@ev.handles(ev.StreamObserved)
def observed(state: CouncilState, event: ev.StreamObserved, now: Moment) -> Effects:
    """Takes an observation of the observer. Three interrupts in a row on one stream escalate (rules 1.8).

    A round counts as halted once, even if the seat gets a second message because the first may be lost. A clean
    observation resets the count if it is of a whole round, later than the last that was halted. A plan that begins
    well, or a clean earlier round, does not take back a halt.
    """
    seat_of(state, event.observer)
    seat_of(state, event.stream)
    if event.observer == event.stream:
        raise Refused(f"{event.observer} may not observe its own stream", code="own_stream")
    if event.observer != state.rules.observer:
        does = f"{state.rules.observer} does" if state.rules.observer else "no seat does"
        raise _observation_refused(
            event, f"{event.observer} does not observe in this council: {does}", "not_observer"
        )
    if event.proposal_id in state.closed:
        return [do.NoteIgnored(event.observer, "an observation on a proposal that is decided")]
    proposal = open_proposal(state, event.proposal_id, event.observer)
    for seat in (event.observer, event.stream):
        if seat not in proposal.asked:
            why = (
                f"{event.observer} observed {event.stream} on {event.proposal_id}, which {seat} was not given"
            )
            raise _observation_refused(event, why, "not_asked")
    # Two allowances: a seat that has used up its clean observations may still call a halt.
    kind = "interrupt" if event.interrupt else "observation"
    acted = _acted(proposal, event.observer, kind, event.msg_id)
    if acted is None:
        return [do.NoteIgnored(event.observer, "the same observation again")]
    effects: Effects = [
        do.AnnounceObservation(event.proposal_id, event.observer, event.stream, event.interrupt, event.text)
    ]
    if event.interrupt and event.round and _is_at_work(acted, event.stream):
        effects.append(
            do.InterruptSeat(event.stream, event.proposal_id, event.observer, event.round, event.text)
        )
    run, halted = acted.interrupts.get(event.stream, 0), acted.halted.get(event.stream, 0)
    if event.interrupt:
        run += not event.round or event.round != halted
        halted = max(halted, event.round)
    elif event.whole and (not event.round or event.round > halted):
        run = 0
    acted = replace(
        acted,
        interrupts={**acted.interrupts, event.stream: run},
        halted={**acted.halted, event.stream: halted},
    )
    concluded: conclusion.Concluded = acted, []
    if run >= INTERRUPTS_MAX and acted.stage == "deliberating":
        why = f"{INTERRUPTS_MAX} interrupts in a row on {event.stream}'s stream"
        concluded = conclusion.conclude(state, _escalate(acted, why, effects), now)
    return effects + store(state, proposal, concluded)


def _observation_refused(event: ev.StreamObserved, why: str, code: str) -> Refused:
    return Refused(why, code=code, proposal_id=event.proposal_id, sender=event.observer)


def _is_at_work(proposal: Proposal, seat: str) -> bool:
    """Whether a seat's ballot is still awaited, so that a halt may change it."""
    return proposal.stage == "deliberating" and seat not in proposal.done()


@ev.handles(ev.EscalationRaised)
def raised(state: CouncilState, event: ev.EscalationRaised, now: Moment) -> Effects:
    seat_of(state, event.seat)
    proposal = open_proposal(state, event.proposal_id, event.seat)
    acted = _acted(proposal, event.seat, "escalation", event.msg_id)
    if acted is None or acted.stage != "deliberating":
        return [do.NoteIgnored(event.seat, "an escalation that changes nothing any more")]
    effects: Effects = []
    acted = _escalate(acted, f"{event.seat} escalated it: {event.reason}", effects)
    # A tie that waited for Prime's own ballot goes to Prime's ruling instead (rules 1.8).
    return effects + store(state, proposal, conclusion.conclude(state, acted, now))


def _no_ruling_asked(proposal_id: str, seat: str) -> Refused:
    return Refused(
        f"{seat} ruled on {proposal_id}, on which no ruling is asked of it",
        code="no_ruling_asked",
        proposal_id=proposal_id,
        sender=seat,
    )


@ev.handles(ev.RulingGiven)
def ruled(state: CouncilState, event: ev.RulingGiven, now: Moment) -> Effects:
    ruling = event.ruling
    if ruling.seat != state.rules.prime:
        raise Refused(
            f"{ruling.seat} may not rule: {state.rules.prime} is Prime", code="not_prime", sender=ruling.seat
        )
    closed = state.closed.get(ruling.proposal_id)
    known = state.open.get(ruling.proposal_id) or (closed.decision if closed else None)
    if known is not None and known.ruling is not None and known.ruling.digest == ruling.digest:
        return [do.NoteIgnored(ruling.seat, "the same ruling again")]
    proposal = open_proposal(state, ruling.proposal_id, ruling.seat)
    if proposal.stage != "ruling":
        raise _no_ruling_asked(ruling.proposal_id, ruling.seat)
    ruled = replace(proposal, ruling=ruling)
    concluded = conclusion.on_ruling(state, ruled, now)
    return [do.AnnounceRuling(ruling), *store(state, proposal, concluded)]
