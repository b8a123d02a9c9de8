"""Says what must hold of a council's state at every moment. Knows nothing of how it came about."""

from __future__ import annotations

from msgspec import UNSET

from council.core.conclusion import count, majority
from council.core.state import (
    ACTION_STAGES,
    ACTS_MAX,
    CHECKS_MAX,
    Account,
    CouncilState,
    Decision,
    Proposal,
    Spend,
    escalated_by,
    unsure,
)
from council.protocol.errors import InternalError


def check(state: CouncilState) -> None:
    """Raises InternalError, naming the rule, where ``state`` breaks one. For tests: no council pays for it."""
    rules = state.rules
    _require(tuple(state.seats) == rules.seats, "the roll holds the council's seats, in order")
    _require(not state.open.keys() & state.closed.keys(), "1.12: a proposal is open or decided, never both")
    with_human = sum(proposal.stage == "human" for proposal in state.open.values())
    _require(with_human == state.with_human, "the count of proposals with a human is right")
    _check_calls(state)
    _check_tokens(state)
    armed = set(state.timers)
    armed_wall = set(state.wall_timers)
    for proposal_id, proposal in state.open.items():
        _require(proposal.what.proposal_id == proposal_id, "a proposal is kept under its id")
        _check_open(state, proposal)
        _require((proposal.deadline_s, proposal_id) in armed, f"the deadline of {proposal_id} is armed")
        if proposal.escalation is not None:
            entry = (proposal.escalation.expires_wall_s, proposal_id)
            _require(entry in armed_wall, f"the expiry of {proposal_id} is armed")
    for proposal_id, closed in state.closed.items():
        _require(closed.decision.proposal_id == proposal_id, "a decision is kept under its proposal's id")
        told = [stage for stage, _, _ in closed.reports]
        _require(not told or bool(closed.decision), f"3.1: {proposal_id} was acted on without an approval")
        in_order = told == [stage for stage in ACTION_STAGES if stage in told] and told[:1] in ([], ["act"])
        _require(in_order, f"3.1: of {proposal_id} each step is told once, the action first")
        if closed.decision.position >= state.ruled_from:  # those before were made by other rules
            _check_decision(state, closed.decision)


def _check_tokens(state: CouncilState) -> None:
    """rules 5: a token stands on an approval, and is never used more often than it allows."""
    under_way = {}
    for proposal_id, token in state.governance.tokens.items():
        _require(token.proposal_id == proposal_id, "5: a token is kept under its proposal's id")
        if token.check is UNSET:
            _require(bool(state.closed[proposal_id].decision), f"5: {token.token_id} stands on an approval")
        else:
            _require(token.terms.operations == ("read",), f"5: {token.token_id} is for a check, which reads")
            _require(proposal_id in state.open or proposal_id in state.closed, "5: a check is of a proposal")
        _require(len(token.uses) <= token.terms.uses, f"5: {token.token_id} is used as often as it allows")
        ids = [use.use_id for use in token.uses]
        _require(len(ids) == len(set(ids)), f"5: each use of {token.token_id} is counted once")
        under_way |= {use.use_id: (proposal_id, use.until_s) for use in token.under_way()}
    asked = {
        use.asked.escalation_id: use.asked
        for token in state.governance.tokens.values()
        for use in token.uses
        if use.asked is not UNSET
    }
    _require(asked == state.governance.asked, "5: the index of questions differs from the tokens")
    for question in asked.values():
        proposal_id, number = escalated_by(question.escalation_id)
        result = state.governance.tokens[proposal_id].uses[(number or 0) - 1].result
        _require(result is not None and result.outcome == "unknown", "5: a human is asked what is unknown")
    _require(
        under_way == state.governance.under_way, "5: the index of uses under way differs from the tokens"
    )


def _check_calls(state: CouncilState) -> None:
    """rules 2.6: what is reserved and spent is told alike by call, by proposal and by seat."""
    held: dict[tuple[str, str], Spend] = {}
    for call_id, granted in state.calls.items():
        key = granted.call.proposal_id, granted.call.seat
        held[key] = held.get(key, Spend()) + granted.call.worst
        _require(granted.call.call_id == call_id, "2.6: a call is kept under its id")
    sums: dict[str, Account] = {}
    told = [(each, proposal.accounts) for each, proposal in state.open.items()]
    told += [(each, closed.decision.spent) for each, closed in state.closed.items()]
    for proposal_id, accounts in told:
        for account in accounts:
            reserved = held.pop((proposal_id, account.seat), Spend())
            _require(account.held == reserved, f"2.6: {proposal_id} holds what its calls may cost")
            before = sums.get(account.seat, Account(account.seat))
            sums[account.seat] = Account(
                account.seat,
                before.calls + account.calls,
                before.spent + account.spent,
                before.held + account.held,
                before.assumed + account.assumed,
            )
    _require(not held, "2.6: a call is on the account of its proposal")
    _require(sums == state.paid, "2.6: what seats have spent is told by proposals as well")


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
    waits = [check for check in proposal.all_checks if not check.outcome]
    is_last = not waits or (len(waits) == 1 and proposal.all_checks[-1] is waits[0])
    _require((proposal.stage == "checking") == bool(waits) and is_last, "5: a check that waits is the last")
    _require(len(proposal.all_checks) <= CHECKS_MAX, "5: the checks of a proposal are bounded")
    _require(proposal.stage != "ruling" or bool(proposal.escalated_for), "1.8: Prime rules on what escalated")
    _require(
        all(len(seen) <= ACTS_MAX for seen in proposal.acts.values()), "the acts on a proposal are bounded"
    )
    _require((proposal.stage == "deliberating") == (proposal.absent is None), "who is missing is said once")
    if proposal.stage == "deliberating":
        done = proposal.done()
        waits = bool(state.active() - done)
        unheard = set(state.rules.seats) - done
        alone = state.rules.sole_seat != "never" or len(state.rules.seats) == 1
        vain = len(voted | unheard) < state.rules.quorum and not (alone and unheard)
        quorum = len(voted) >= state.rules.quorum
        tied = majority(count(proposal.ballots)) is None
        elsewhere = bool(proposal.escalated_for) or any(ballot.asks_human for ballot in proposal.ballots)
        prime_may_vote = tied and not elsewhere and state.rules.prime not in done
        _require(
            waits or prime_may_vote or not (quorum or (vain and state.rules.lost_at_once is True)),
            f"1.5: {proposal_id} does not wait when every active seat has voted",
        )


def _check_decision(state: CouncilState, decision: Decision) -> None:
    proposal_id = decision.proposal_id
    _require(decision.final and decision.outcome is not None, f"{proposal_id}: a closed proposal is decided")
    seats = [ballot.seat for ballot in decision.ballots + decision.late]
    _require(len(seats) == len(set(seats)), f"1.3: one ballot for each seat on {proposal_id}")
    votes = count(decision.ballots)
    _require(votes == decision.tally, f"1.13: the tally of {proposal_id} counts its ballots")
    missing = {name for name, _ in decision.missing}
    counted = {ballot.seat for ballot in decision.ballots}
    # Who is missing is said when voting ends; a coordinator with other rules may have started since.
    earlier = state.ruled_from > 1 and (decision.escalation_id is not None or decision.ruling is not None)
    unheard = set(state.rules.seats) - counted  # a seat that is one no more may have voted
    _require(not missing & counted, f"1.13: no seat of {proposal_id} is both counted and missing")
    _require(earlier or missing == unheard, f"1.13: {proposal_id} names every missing seat")
    if decision.answer is not None:
        _require(decision.escalation_id is not None, f"1.9: {proposal_id} was answered, but never asked")
        word = "approved" if decision.answer.approve else "rejected"
        _require(decision.outcome == word, f"1.9: {proposal_id} is what the human answered")
    elif decision.outcome == "deferred":
        _require(decision.escalation_id is not None, f"1.9: {proposal_id} was deferred without a human asked")
    elif decision.outcome in ("approved", "rejected"):
        _check_voted(state, decision, earlier)


def _check_voted(state: CouncilState, decision: Decision, earlier: bool) -> None:
    """What must hold where the council itself approved or rejected."""
    proposal_id, rules = decision.proposal_id, state.rules
    ruling, act = decision.ruling, decision.tie_break
    _require(decision.escalation_id is None, f"1.9: {proposal_id} waited for a human, and none answered")
    _require(not any(b.asks_human for b in decision.ballots), f"1.8: a user had to approve {proposal_id}")
    _require(
        bool(decision.escalated_for) == (ruling is not None), f"1.8: {proposal_id} escalated, not ruled on"
    )
    _require(ruling is None or not unsure(ruling.confidence), f"1.8: Prime was unsure of {proposal_id}")
    if act is not None:
        own = [b for b in decision.ballots if b.msg_id == act.ballot_msg_id]
        named = len(own) == 1 and own[0].seat == act.seat == rules.prime and own[0].vote == act.vote
        _require(named, f"1.6: the tie of {proposal_id} was broken by Prime's own ballot")
        _require(majority(decision.tally) is None, f"1.6: {proposal_id} was no tie")
    if decision.tally.cast < rules.quorum and not earlier:
        alone = rules.sole_seat == "allow-low-risk" and decision.tally.cast == 1 and decision.degraded
        low = all(b.risk_level == "low" for b in decision.ballots)
        _require(alone and low, f"1.11: {proposal_id} was decided without a quorum")
    if ruling is not None and ruling.ruling == "reject":
        _require(decision.outcome == "rejected", f"1.8: {proposal_id} is not what Prime ruled")
        return
    _require(ruling is None or ruling.ruling == "confirm", f"1.8: {proposal_id} was left to a human by Prime")
    side = majority(decision.tally) or (act.vote if act is not None else None)
    wanted = {"yes": "approved", "no": "rejected"}.get(side or "")
    _require(decision.outcome == wanted, f"1.4: {proposal_id} is not what its majority says")


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise InternalError(f"the council broke a rule of its own: {rule}", rule=rule)
