"""Says what must hold of a council's state at every moment. Knows nothing of how it came about."""

from __future__ import annotations

from council.core import tally
from council.core.state import CouncilState, Decision, Proposal
from council.protocol.errors import InternalError


def check(state: CouncilState) -> None:
    """Raises InternalError, naming the rule, where ``state`` breaks one. For tests and for recovery."""
    rules = state.rules
    _require(tuple(state.seats) == rules.seats, "the roll holds the council's seats, in order")
    _require(not state.open.keys() & state.closed.keys(), "1.12: a proposal is open or decided, never both")
    with_human = sum(proposal.stage == "human" for proposal in state.open.values())
    _require(with_human == state.with_human, "the count of proposals with a human is right")
    armed = set(state.timers)
    armed_wall = set(state.wall_timers)
    for proposal_id, proposal in state.open.items():
        _require(proposal.what.proposal_id == proposal_id, "a proposal is kept under its id")
        _check_open(state, proposal)
        if proposal.escalation is None:
            _require((proposal.deadline_s, proposal_id) in armed, f"the deadline of {proposal_id} is armed")
        else:
            entry = (proposal.escalation.expires_wall_s, proposal_id)
            _require(entry in armed_wall, f"the expiry of {proposal_id} is armed")
    for proposal_id, closed in state.closed.items():
        _require(closed.decision.proposal_id == proposal_id, "a decision is kept under its proposal's id")
        _check_decision(state, closed.decision)


def _check_open(state: CouncilState, proposal: Proposal) -> None:
    proposal_id = proposal.what.proposal_id
    everyone = [ballot.seat for ballot in proposal.ballots + proposal.late]
    _require(len(everyone) == len(set(everyone)), f"1.3: one ballot for each seat on {proposal_id}")
    _require(proposal.asked.issuperset(everyone), f"only seats that were given {proposal_id} voted on it")
    _require(
        proposal.asked.issuperset(proposal.lost), f"only seats that were given {proposal_id} lost a ballot"
    )
    voted = {ballot.seat for ballot in proposal.ballots}
    _require(not voted & proposal.lost.keys(), f"a ballot on {proposal_id} is cast or lost, never both")
    _require((proposal.stage == "human") == (proposal.escalation is not None), "1.9: a human is shown why")
    _require(proposal.stage != "ruling" or bool(proposal.escalated_for), "1.8: Prime rules on what escalated")
    _require(len(proposal.acts) <= 1_000, "the acts on a proposal are bounded")
    if proposal.stage == "deliberating":
        active = state.active()
        waits = any(seat not in voted and seat not in proposal.lost for seat in active)
        quorum = len(voted) >= state.rules.quorum
        _require(waits or not quorum, f"1.5: {proposal_id} does not wait when every active seat has voted")


def _check_decision(state: CouncilState, decision: Decision) -> None:
    proposal_id = decision.proposal_id
    _require(decision.final and decision.outcome is not None, f"{proposal_id}: a closed proposal is decided")
    seats = [ballot.seat for ballot in decision.ballots + decision.late]
    _require(len(seats) == len(set(seats)), f"1.3: one ballot for each seat on {proposal_id}")
    votes = tally.count(decision.ballots)
    _require(votes == decision.tally, f"1.13: the tally of {proposal_id} counts its ballots")
    missing = {name for name, _ in decision.missing}
    counted = {ballot.seat for ballot in decision.ballots}
    _require(missing | counted == set(state.rules.seats), f"1.13: {proposal_id} names every missing seat")
    _require(not missing & counted, f"1.13: no seat of {proposal_id} is both counted and missing")
    if decision.outcome == "approved" and decision.answer is None:
        ruled = decision.ruling is not None and decision.ruling.ruling == "confirm"
        _require(ruled or not decision.escalated_for, f"1.8: {proposal_id} was escalated and not confirmed")
        enough = votes.cast >= state.rules.quorum or state.rules.sole_seat == "allow-low-risk"
        _require(enough, f"1.4: {proposal_id} was approved without a quorum")
        side = tally.majority(votes) or (decision.tie_break.vote if decision.tie_break else None)
        _require(side == "yes", f"1.4: {proposal_id} was approved without a majority")


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise InternalError(f"the council broke a rule of its own: {rule}", rule=rule)
