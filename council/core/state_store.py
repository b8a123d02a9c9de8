"""The maps and timers of the state: handlers look proposals up here, and store what they decided."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from msgspec import UNSET

from council.core import conclusion
from council.core import effects as do
from council.core.state import Closed, CouncilState, Decision, Proposal, Seat, Spend, Token
from council.protocol.errors import Refused

Effects = list[do.Effect]
# So many tokens that ended are kept at least, to answer what is said of them late. Those that may be used all are.
TOKENS_KEPT = 500


def first_timer(state: CouncilState) -> tuple[float, str] | None:
    while state.timers:
        deadline_s, proposal_id = state.timers[0]
        proposal = state.open.get(proposal_id)
        if proposal is not None and proposal.deadline_s == deadline_s:
            return state.timers[0]
        heapq.heappop(state.timers)
    return None


def first_wall_timer(state: CouncilState) -> tuple[float, str] | None:
    while state.wall_timers:
        proposal = state.open.get(state.wall_timers[0][1])
        if proposal is not None and proposal.escalation is not None:
            return state.wall_timers[0]
        heapq.heappop(state.wall_timers)
    return None


def _arm(timers: list[tuple[float, str]], entry: tuple[float, str], live: Mapping[str, Proposal]) -> None:
    """Adds a timer. Drops those of proposals that are gone when they become too many (amortised O(1))."""
    heapq.heappush(timers, entry)
    # A proposal arms one timer in each of its three stages; beyond that, a thousand may be stale.
    if len(timers) > 3 * len(live) + 1_000:
        timers[:] = [kept for kept in timers if kept[1] in live]
        heapq.heapify(timers)


def store(state: CouncilState, before: Proposal | None, concluded: conclusion.Concluded) -> Effects:
    """Stores the proposal as it goes on, or its decision. Returns the effects, and those for seats that may stop."""
    after, effects = concluded
    if isinstance(after, Decision):
        assert before is not None
        what = before.what
        state.with_human -= before.stage == "human"
        del state.open[what.proposal_id]
        state.closed[what.proposal_id] = Closed(what.digest, what.proposer, before.asked, after)
        for effect in effects:
            if isinstance(effect, do.IssueToken):
                _keep_token(state, effect.token)
        return effects + _not_needed(before, after)
    state.open[after.what.proposal_id] = after
    for effect in effects:
        if isinstance(effect, do.AskCheck):
            _keep_token(state, effect.token)
    if before is None or after.deadline_s != before.deadline_s:
        _arm(state.timers, (after.deadline_s, after.what.proposal_id), state.open)
    if after.escalation is not None and (before is None or before.escalation is None):
        state.with_human += 1
        _arm(state.wall_timers, (after.escalation.expires_wall_s, after.what.proposal_id), state.open)
    return effects


def _not_needed(before: Proposal, decision: Decision) -> Effects:
    """Stops the seats that still call models, unless an action follows, of which a late ballot may warn."""
    if decision.outcome == "cancelled" or (decision.outcome == "approved" and before.what.tool is not None):
        return []  # a cancellation withdraws it from all seats itself
    proposal_id = before.what.proposal_id
    return [do.WithdrawProposal(each.seat, proposal_id) for each in before.accounts if each.held != Spend()]


def _keep_token(state: CouncilState, token: Token) -> None:
    """Keeps a new token, and forgets the oldest of those that ended above ``TOKENS_KEPT`` (amortised O(1))."""
    tokens = state.governance.tokens
    tokens[token.proposal_id] = token
    if len(tokens) < 2 * TOKENS_KEPT or len(tokens) % TOKENS_KEPT:
        return
    issued_s = token.expires_s - token.terms.ttl_s
    ended = [each.proposal_id for each in tokens.values() if _has_ended(each, issued_s)]
    for proposal_id in ended[: len(tokens) - TOKENS_KEPT]:
        del tokens[proposal_id]


def _has_ended(token: Token, uptime_s: float) -> bool:
    over = token.spent() or bool(token.revoked) or uptime_s > token.expires_s
    return over and not token.under_way() and all(use.asked is UNSET for use in token.uses)


def seat_of(state: CouncilState, name: str) -> Seat:
    seat = state.seats.get(name)
    if seat is None:
        seats = ", ".join(state.seats)
        raise Refused(f"{name} is not a seat of this council ({seats})", code="not_a_seat", sender=name)
    return seat


def origin(state: CouncilState, proposal_id: str) -> tuple[str, str] | None:
    """The digest and the proposer of a proposal, open or decided; None if it was never submitted."""
    if (proposal := state.open.get(proposal_id)) is not None:
        return proposal.what.digest, proposal.what.proposer
    closed = state.closed.get(proposal_id)
    return None if closed is None else (closed.digest, closed.proposer)


def open_proposal(state: CouncilState, proposal_id: str, sender: str) -> Proposal:
    """The open proposal of that id. Raises Refused, which says whether it is decided or unknown."""
    proposal = state.open.get(proposal_id)
    if proposal is not None:
        return proposal
    closed = state.closed.get(proposal_id)
    if closed is not None:
        raise Refused(
            f"{proposal_id} is decided already ({closed.decision.outcome}); {sender} came too late",
            code="closed",
            proposal_id=proposal_id,
            sender=sender,
        )
    raise unknown(proposal_id, sender)


def unknown(proposal_id: str, sender: str) -> Refused:
    return Refused(
        f"this council has no proposal with the id '{proposal_id}'; council log lists the ids",
        code="unknown_proposal",
        proposal_id=proposal_id,
        sender=sender,
    )
