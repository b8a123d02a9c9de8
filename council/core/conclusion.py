"""Counts the ballots that were cast, and says whether they make a decision, and which.

Handlers call ``conclude`` after each event that may end the voting on an open proposal. It returns the proposal as
it goes on, or the decision, and what to announce. Nothing here changes the state.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET
from msgspec.structs import replace

from council.core import escalation
from council.core.effects import (
    AnnounceDecision,
    AnnounceEscalation,
    AskCheck,
    DeliverProposal,
    Effect,
    IssueToken,
    RequestRuling,
)
from council.core.state import (
    CHECK_CHARS_MAX,
    CHECK_S,
    CHECKS_MAX,
    RESULT_GRACE_S,
    Absent,
    Answer,
    Ballot,
    Check,
    CouncilState,
    Decision,
    Moment,
    Outcome,
    Proposal,
    Rules,
    Tally,
    Terms,
    TieBreak,
    Token,
    unsure,
)

Concluded = tuple[Proposal | Decision, list[Effect]]


def conclude(state: CouncilState, proposal: Proposal, now: Moment, *, expired: bool = False) -> Concluded:
    """Ends the voting on ``proposal`` if it is time to. ``expired``: its deadline has passed."""
    rules = state.rules
    if proposal.stage != "deliberating":
        return proposal, []
    quorum_unpaid = _is_quorum_unpaid(state, proposal)
    hopeless = quorum_unpaid or _is_quorum_lost(state, proposal)
    if len(proposal.ballots) < rules.quorum and not (expired or hopeless) and rules.sole_seat == "never":
        return proposal, []  # rules 1.11: without a quorum it waits for its deadline
    votes = count(proposal.ballots)
    voted = {ballot.seat for ballot in proposal.ballots}
    active = [name for name, seat in state.seats.items() if seat.active]
    reach = len(voted.union(active))
    awaited = [name for name in active if name not in voted and name not in proposal.lost]
    quorum = votes.cast >= rules.quorum
    asks_human = any(ballot.asks_human for ballot in proposal.ballots)
    check = _asked_check(proposal)
    waits_for_all = bool(proposal.escalated_for) or asks_human or proposal.what.wait_for == "all"

    if (
        quorum and not (waits_for_all or check) and carried(votes, reach)
    ):  # rules 1.5: no missing ballot can change it
        return _by_majority(state, proposal, now, early=bool(awaited), expired=expired)
    if awaited and not expired:
        return proposal, []
    if not quorum:
        if _sole_seat_decides(rules, proposal, active):
            return _by_majority(state, proposal, now, expired=expired)
        if quorum_unpaid:
            return to_human(state, proposal, "budget_unmet", now)
        if not (expired or hopeless):  # rules 1.11: it waits, since a seat may come back
            return proposal, []
        return to_human(state, proposal, "quorum_lost", now)
    if asks_human:
        return to_human(state, proposal, "user_approval", now)
    if check is not None and majority(votes) != "no":
        return _verify_first(state, proposal, check, now)
    if proposal.escalated_for:
        return _ask_prime(state, proposal, now)
    return _by_majority(state, proposal, now, expired=expired)


def unpaid(seat: str) -> str:
    """The key in ``acts`` of the seat's last call for work of its own, if no cap had room for that."""
    return f"{seat} unpaid"


def _is_quorum_unpaid(state: CouncilState, proposal: Proposal) -> bool:
    """Whether a quorum is out of reach only because of seats whose calls no cap had room for (rules 1.8)."""
    denied = {name for name in proposal.lost if unpaid(name) in proposal.acts}
    may_vote = _may_vote(state, proposal)
    return len(may_vote) < state.rules.quorum <= len(may_vote | denied)


def _is_quorum_lost(state: CouncilState, proposal: Proposal) -> bool:
    """Whether no quorum can come any more, whichever silent seats come back and vote (rules 1.5).

    A silent seat that may decide alone, or is the council's only one, is still waited for.
    """
    rules, may_vote = state.rules, _may_vote(state, proposal)
    if rules.lost_at_once is not True or len(may_vote) >= rules.quorum:
        return False
    heard = len(may_vote) == len(proposal.ballots)
    return heard or (bool(proposal.lost) and rules.sole_seat == "never")


def _may_vote(state: CouncilState, proposal: Proposal) -> set[str]:
    """The seats that have voted, and those that still may: all whose ballot is not lost."""
    return {ballot.seat for ballot in proposal.ballots}.union(state.seats.keys() - proposal.lost.keys())


def _sole_seat_decides(rules: Rules, proposal: Proposal, active: list[str]) -> bool:
    """Whether the one seat left may decide (rules 1.11): low risk throughout, and it took a side."""
    return (
        rules.sole_seat == "allow-low-risk"
        and [ballot.seat for ballot in proposal.ballots] == active
        and len(active) == 1
        and proposal.ballots[0].vote != "abstain"
        and not proposal.ballots[0].asks_human
        and proposal.what.risk_level == proposal.ballots[0].risk_level == "low"
        and not proposal.escalated_for
    )


def _by_majority(
    state: CouncilState, proposal: Proposal, now: Moment, *, early: bool = False, expired: bool = False
) -> Concluded:
    """The decision by the ballots that were cast. Prime breaks a tie, or it goes to a human (rules 1.6)."""
    found = _side(state.rules, proposal)
    if found is None:
        return _tied(state, proposal, now, expired=expired)
    outcome, reason, tie_break = found
    if len(proposal.ballots) < state.rules.quorum:
        (alone,) = proposal.ballots
        reason = f"a {alone.vote} of {alone.seat}, which is alone, at low risk"
    return decided(state, proposal, outcome, reason, now, early=early, expired=expired, tie_break=tie_break)


def _tied(state: CouncilState, proposal: Proposal, now: Moment, *, expired: bool) -> Concluded:
    """A tie goes to a human, unless Prime, silent now, may still come back and break it (rules 1.6)."""
    prime = state.rules.prime
    prime_may_vote = prime not in proposal.lost and all(b.seat != prime for b in proposal.ballots)
    if prime_may_vote and not expired:
        return proposal, []
    return to_human(state, proposal, "tie", now)


def _side(rules: Rules, proposal: Proposal) -> tuple[Outcome, str, TieBreak | None] | None:
    """The outcome by the ballots, the reason, and the tie-break; None for a tie that Prime's does not break."""
    side = majority(count(proposal.ballots))
    tie_break = None if side else break_tie(proposal.ballots, rules.prime)
    if side is not None:
        how = f"a majority of {side}"
    elif tie_break is not None:
        side = tie_break.vote
        how = f"a tie, broken by {rules.prime}'s {side}"
    else:
        return None
    return ("approved" if side == "yes" else "rejected"), how, tie_break


def _asked_check(proposal: Proposal) -> Check | None:
    """The check that a ballot asks for, the first if there are several."""
    return next((each.check for each in proposal.ballots if isinstance(each.check, Check)), None)


def _verify_first(state: CouncilState, proposal: Proposal, check: Check, now: Moment) -> Concluded:
    """Has a check run before the decision (VERIFY_FIRST), or asks a human, if it can't be run (rules 5)."""
    what, before, why = proposal.what, proposal.all_checks, ""
    if not check.tool:
        why = 'its request is not {"tool": name, "args": {...}}'
    elif what.terms is UNSET:
        why = "the proposal names no executor, as one made by act does"
    elif any((each.tool, each.digest) == (check.tool, check.digest) for each in before):
        why = "that check was run already"
    elif len(before) >= CHECKS_MAX:
        why = f"{CHECKS_MAX} checks were run already, the most for a proposal"
    if why or what.terms is UNSET:
        named = f" {check}" if check.tool else ""
        return to_human(state, proposal, "check_failed", now, f"{check.seat} asked for{named}: {why}")
    # A check only reads, and its resources follow from its arguments: the token is bound to these.
    terms = Terms(what.terms.executor, ("read",), (), check.digest, 1, CHECK_S, CHECK_S)
    ends = now.uptime_s + CHECK_S, now.wall_s + CHECK_S
    token = Token(what.proposal_id, what.proposer, check.tool, terms, *ends, check=len(before) + 1)
    waiting = replace(
        proposal,
        stage="checking",
        deadline_s=now.uptime_s + CHECK_S + RESULT_GRACE_S,
        absent=_absent(state, proposal, over=True),
        checks=(*before, check),
    )
    return waiting, [AskCheck(check, token)]


def on_checked(state: CouncilState, proposal: Proposal, outcome: str, text: str, now: Moment) -> Concluded:
    """Takes the result of the check that ``proposal`` waits for. The seats vote again; else a human is asked."""
    *before, check = proposal.all_checks
    check = replace(check, outcome=outcome, text=text[:CHECK_CHARS_MAX])
    checked = replace(proposal, checks=(*before, check))
    if outcome != "ok":
        return to_human(state, checked, "check_failed", now, f"{check.seat} asked for {check}")
    active, what = state.active(), proposal.what
    again = replace(
        checked,
        stage="deliberating",
        deadline_s=now.uptime_s + what.time_budget_s,
        asked=active,
        ballots=(),
        late=(),
        lost={},
        asked_again={},
        interrupts={},
        escalated_for=_still_escalated_for(state.rules, proposal),
        absent=None,
        ruling=None,
    )
    after, effects = conclude(state, again, now)
    deliver = [DeliverProposal(name, what.proposal_id) for name in state.rules.seats if name in active]
    return after, [*deliver, *effects]


def _still_escalated_for(rules: Rules, proposal: Proposal) -> tuple[str, ...]:
    """The reasons to ask Prime that hold after a check: all but those of the ballots, which are cast anew."""
    own = escalation.for_submission(proposal.what)
    if rules.keeps_escalation is not True:
        return (own,) if own else ()
    of_ballots = {escalation.for_ballot(ballot) for ballot in proposal.ballots}
    return tuple(reason for reason in proposal.escalated_for if reason == own or reason not in of_ballots)


def _ask_prime(state: CouncilState, proposal: Proposal, now: Moment) -> Concluded:
    """Voting is over; Prime is shown all ballots and has the time budget once more (rules 1.8)."""
    waiting = replace(
        proposal,
        stage="ruling",
        deadline_s=now.uptime_s + proposal.what.time_budget_s,
        absent=_absent(state, proposal, over=True),
    )
    return waiting, [ruling_request(state.rules, waiting)]


def ruling_request(rules: Rules, proposal: Proposal) -> RequestRuling:
    return RequestRuling(rules.prime, proposal.what.proposal_id, proposal.ballots, proposal.escalated_for)


def on_ruling(state: CouncilState, proposal: Proposal, now: Moment) -> Concluded:
    """Acts on Prime's ruling, which ``proposal`` holds (rules 1.8)."""
    ruling = proposal.ruling
    assert ruling is not None
    if unsure(ruling.confidence):
        return to_human(state, proposal, "ruling_unsure", now)
    if ruling.ruling == "human":
        return to_human(state, proposal, "prime_asks", now)
    if ruling.ruling == "verify":
        assert isinstance(ruling.check, Check), "its reader has checked it"
        return _verify_first(state, proposal, ruling.check, now)
    if ruling.ruling == "reject":
        return decided(state, proposal, "rejected", f"{ruling.seat} ruled against it", now)
    found = _side(state.rules, proposal)
    if found is None:
        return to_human(state, proposal, "tie", now)
    outcome, how, tie_break = found
    return decided(state, proposal, outcome, f"{how}, and {ruling.seat} confirmed", now, tie_break=tie_break)


def to_human(state: CouncilState, proposal: Proposal, reason: str, now: Moment, why: str = "") -> Concluded:
    """Makes the proposal wait for a human (rules 1.9). Its proposer gets a decision that is not final."""
    absent = proposal.absent or _absent(state, proposal, over=True)
    asked = escalation.to_human(state.rules, proposal, reason, absent.missing, now, why)
    waiting = replace(
        proposal,
        stage="human",
        deadline_s=now.uptime_s + state.rules.escalation_ttl_s,
        escalation=asked,
        absent=absent,
    )
    standing = _decision(state.rules, waiting, absent, None, asked.detail, now)
    return replace(waiting, standing=standing), [AnnounceEscalation(asked, standing)]


def decided(
    state: CouncilState,
    proposal: Proposal,
    outcome: Outcome,
    reason: str,
    now: Moment,
    *,
    early: bool = False,
    expired: bool = False,
    tie_break: TieBreak | None = None,
    answer: Answer | None = None,
) -> Concluded:
    """The one decision on ``proposal`` (rules 1.13)."""
    absent = proposal.absent or _absent(state, proposal, over=expired)
    decision = _decision(state.rules, proposal, absent, outcome, reason, now, early, tie_break, answer)
    return decision, [AnnounceDecision(decision), *_token(proposal, decision, now)]


def _token(proposal: Proposal, decision: Decision, now: Moment) -> list[Effect]:
    """The token that an approval of an action issues, in the record of the decision (rules 4.6, 5)."""
    what = proposal.what
    if not decision or what.tool is None or what.terms is UNSET:
        return []
    ends = now.uptime_s + what.terms.ttl_s, now.wall_s + what.terms.ttl_s
    return [IssueToken(Token(what.proposal_id, what.proposer, what.tool, what.terms, *ends))]


def _decision(
    rules: Rules,
    proposal: Proposal,
    absent: Absent,
    outcome: Outcome | None,
    reason: str,
    now: Moment,
    early: bool = False,
    tie_break: TieBreak | None = None,
    answer: Answer | None = None,
) -> Decision:
    """A decision; without ``outcome``, what the proposer gets while the proposal waits for a human."""
    alone = outcome in ("approved", "rejected") and len(proposal.ballots) < rules.quorum and answer is None
    return Decision(
        proposal_id=proposal.what.proposal_id,
        summary=proposal.what.summary,
        standing="escalated" if outcome is None else "decided",
        outcome=outcome,
        final=outcome is not None,
        reason=reason,
        tally=count(proposal.ballots),
        quorum=rules.quorum,
        ballots=proposal.ballots,
        ruling=proposal.ruling,
        answer=answer,
        tie_break=tie_break,
        early=early,
        degraded=(absent.degraded or alone) and outcome != "cancelled",
        missing=absent.missing,
        late=proposal.late,
        escalated_for=proposal.escalated_for,
        escalation_id=proposal.escalation.escalation_id if proposal.escalation else None,
        dissent=dissent(proposal.ballots, outcome),
        shared=rules.shared,
        seconds=now.uptime_s - proposal.opened_s,
        position=now.position,
        spent=proposal.accounts,
        checks=proposal.checks,
    )


def _absent(state: CouncilState, proposal: Proposal, *, over: bool) -> Absent:
    """The seats without a ballot, as of now. ``over``: voting ends without those that have not voted.

    A ballot that was not needed does not degrade the decision. A lost one, one that missed the deadline, or the
    ballot of an inactive seat does.
    """
    voted = {ballot.seat for ballot in proposal.ballots}
    missing: list[tuple[str, str]] = []
    degraded = False
    for name, seat in state.seats.items():
        if name in voted:
            continue
        if name in proposal.lost:
            missing.append((name, proposal.lost[name]))
        elif not seat.active:
            missing.append((name, f"inactive: {seat.why}"))
        elif over:
            missing.append((name, "had not voted by the deadline"))
        else:
            missing.append((name, "had not voted yet; its ballot was not needed"))
            continue
        degraded = True
    return Absent(tuple(missing), degraded)


# Counting


def count(ballots: Iterable[Ballot]) -> Tally:
    """Counts the ballots by vote. An abstention counts for the quorum and for neither side (rules 1.4)."""
    votes = [ballot.vote for ballot in ballots]
    return Tally(votes.count("yes"), votes.count("no"), votes.count("abstain"))


def majority(tally: Tally) -> str | None:
    """``yes``, ``no``, or None for a tie; among the ballots cast (rules 1.4)."""
    if tally.yes == tally.no:
        return None
    return "yes" if tally.yes > tally.no else "no"


def carried(tally: Tally, reach: int) -> bool:
    """Whether one side exceeds half of ``reach`` seats, so that no ballot can change the result (rules 1.5)."""
    return 2 * max(tally.yes, tally.no) > reach


def break_tie(ballots: Iterable[Ballot], prime: str) -> TieBreak | None:
    """The act by which Prime's own ballot breaks a tie; None if it has none, or abstained (rules 1.6)."""
    for ballot in ballots:
        if ballot.seat == prime and ballot.vote != "abstain":
            return TieBreak(prime, ballot.msg_id, ballot.vote)
    return None


def dissent(ballots: Iterable[Ballot], outcome: str | None) -> str:
    """The losing side in words, each seat with its vote, confidence and reason; empty if there is none."""
    losing = {"approved": ("no",), "rejected": ("yes",)}.get(outcome or "", ("yes", "no"))
    against = [ballot for ballot in ballots if ballot.vote in losing]
    if outcome not in ("approved", "rejected") and len({ballot.vote for ballot in against}) < 2:
        return ""  # there was one side only
    return "; ".join(f"{b.seat} ({b.vote}, {b.confidence:.2f}): {b.reason}" for b in against)
