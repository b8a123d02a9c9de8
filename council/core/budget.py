"""Caps the cost of model calls: reserved before each call, settled after it.

A seat reserves the highest cost of a call, and makes it only once that is granted, so that calls under way together
can't exceed a cap together (rules 2.6). Reserved amounts count like spent ones, on the proposal, the seat and the
council. If a seat or the coordinator dies, its calls under way have cost what was reserved for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from council.core import effects as do
from council.core import events as ev
from council.core.conclusion import unpaid
from council.core.state import (
    ACTS_MAX,
    Account,
    Call,
    Caps,
    CouncilState,
    Granted,
    Moment,
    Proposal,
    Spend,
    total,
)
from council.core.state_store import Effects, open_proposal, seat_of, store
from council.protocol.errors import Refused

# The task of a call that observes another seat's work.
LOOK = "observe"


@ev.handles(ev.CallReserved)
def reserved(state: CouncilState, event: ev.CallReserved, now: Moment) -> Effects:
    """Grants a call, or denies it if its highest cost does not fit. A repeated request is granted again.

    Raises Refused for a proposal that the seat was never given.
    """
    call = event.call
    seat_of(state, call.seat)
    granted = state.calls.get(call.call_id)
    if granted is not None and granted.call == call:
        return [do.GrantCall(call.seat, call.proposal_id, call.call_id, again=True)]
    if call.proposal_id in state.closed:
        return _denied(call, f"{call.proposal_id} is decided already")
    proposal = open_proposal(state, call.proposal_id, call.seat)
    # Prime may rule even if it was inactive when the proposal came.
    rules_on_it = proposal.stage == "ruling" and call.seat == state.rules.prime
    if call.seat not in proposal.asked and not rules_on_it:
        raise Refused(
            f"{call.seat} reserved a call for {call.proposal_id} without having been given it",
            code="not_asked",
            proposal_id=call.proposal_id,
            sender=call.seat,
        )
    made, refused = (proposal.acts.get(f"{call.seat} {kind}", frozenset()) for kind in ("call", "denial"))
    if call.call_id in made or call.call_id in state.calls:
        return _denied(call, "it was asked for before, and is settled: ask for another", anew=True)
    if call.call_id in refused:
        return _denied(call, "it was asked for before, and denied")
    if proposal.stage == "human":
        return _denied(call, f"{call.proposal_id} waits for a human")
    for kind, calls in (("made", made), ("denied", refused)):
        if len(calls) >= ACTS_MAX:
            return _denied(
                call, f"{ACTS_MAX} calls were {kind} on {call.proposal_id}, the most that a seat may ask for"
            )
    effects: Effects = [do.AnnounceOverruns(call, event.overruns)] if event.overruns else []
    why = _too_much(state, proposal, call)
    if why:  # for good: else a late duplicate of the request might be granted to a seat that has given up
        acts = {**proposal.acts, f"{call.seat} denial": refused | {call.call_id}}
        if call.task != LOOK:
            acts[unpaid(call.seat)] = frozenset({call.call_id})
        after = replace(proposal, acts=acts)
        effects.append(do.AnnounceDenial(call, why))
        return [*effects, *_denied(call, why, again=False), *store(state, proposal, (after, []))]
    state.calls[call.call_id] = Granted(call, now.uptime_s)
    acts = {**proposal.acts, f"{call.seat} call": made | {call.call_id}}
    if call.task != LOOK:
        acts.pop(unpaid(call.seat), None)
    after = replace(
        proposal,
        acts=acts,
        accounts=_with(proposal.accounts, _begun(_account_of(proposal.accounts, call.seat), call)),
        dearest=_greater(proposal.dearest, call.worst),
    )
    state.paid[call.seat] = _begun(_paid_by(state, call.seat), call)
    grant = do.GrantCall(call.seat, call.proposal_id, call.call_id)
    return [*effects, grant, *store(state, proposal, (after, []))]


def _denied(call: Call, why: str, *, again: bool = True, anew: bool = False) -> Effects:
    """Denies a call. ``again``: the denial changes nothing, so it leaves no record, however often the seat asks."""
    return [do.DenyCall(call.seat, call.proposal_id, call.call_id, why, again, anew)]


def _begun(account: Account, call: Call) -> Account:
    return replace(account, calls=account.calls + 1, held=account.held + call.worst)


def _too_much(state: CouncilState, proposal: Proposal, call: Call) -> str:
    """The reason why the highest cost of a call does not fit, with the figures; empty if it fits.

    An observation must leave room for each ballot that is awaited: as much as the dearest call so far.
    """
    budget = state.rules.budget
    own = _paid_by(state, call.seat)
    awaited = _awaited(state, proposal) if call.task == LOOK else frozenset()
    dearest = _greater(proposal.dearest, call.worst)
    for whose, caps, used, ballots in (
        ("this proposal", budget.proposal, total(proposal.accounts), len(awaited)),
        (
            call.seat,
            dict(budget.seats).get(call.seat, budget.seat),
            own.spent + own.held,
            call.seat in awaited,
        ),
        ("the council", budget.council, total(state.paid.values()), len(awaited)),
    ):
        for unit, cap, there, more, kept in _measured(caps, used, call.worst, dearest):
            if there + more + kept * ballots > cap:
                for_ballots = f", and {kept * ballots:,} of them are kept for ballots" if ballots else ""
                return (
                    f"the call may cost {more:,} {unit}; of the {cap:,} that {whose} may spend, "
                    f"{max(cap - there, 0):,} are left{for_ballots}"
                )
    return ""


def _awaited(state: CouncilState, proposal: Proposal) -> frozenset[str]:
    """The seats whose ballots may still come."""
    return (proposal.asked & state.active()) - proposal.done()


def _greater(one: Spend, other: Spend) -> Spend:
    return Spend(max(one.tokens, other.tokens), max(one.microusd, other.microusd))


def _measured(caps: Caps, used: Spend, worst: Spend, kept: Spend) -> Iterator[tuple[str, int, int, int, int]]:
    if caps.tokens is not None:
        yield "tokens", caps.tokens, used.tokens, worst.tokens, kept.tokens
    if caps.microusd is not None:
        yield "micro-dollars", caps.microusd, used.microusd, worst.microusd, kept.microusd


@ev.handles(ev.CallSettled)
def settled(state: CouncilState, event: ev.CallSettled, now: Moment) -> Effects:
    """Replaces the amount reserved for a call by what it has cost; unknown usage costs the reserved amount."""
    seat_of(state, event.seat)
    granted = state.calls.get(event.call_id)
    if granted is None:
        return [do.NoteIgnored(event.seat, "a settlement of a call that is none, or is settled")]
    call = granted.call
    if (call.seat, call.proposal_id) != (event.seat, event.proposal_id):
        raise Refused(
            f"{event.seat} settled the call {event.call_id}, which is {call.seat}'s for {call.proposal_id}",
            code="not_its_call",
            sender=event.seat,
            proposal_id=event.proposal_id,
        )
    return _settle(state, granted, event.used, now, event.error)


def abandoned(state: CouncilState, now: Moment, seat: str | None = None) -> Effects:
    """Settles the calls of a seat that died, or all calls, at what was reserved: their usage stays unknown."""
    calls = [granted for granted in state.calls.values() if seat in (None, granted.call.seat)]
    return [effect for granted in calls for effect in _settle(state, granted, None, now)]


def _settle(
    state: CouncilState, granted: Granted, used: Spend | None, now: Moment, error: str = ""
) -> Effects:
    call = granted.call
    del state.calls[call.call_id]
    spent = call.worst if used is None else used

    def closed(account: Account) -> Account:
        return replace(
            account,
            spent=account.spent + spent,
            held=account.held - call.worst,
            assumed=account.assumed + (used is None),
        )

    state.paid[call.seat] = closed(state.paid[call.seat])
    proposal = state.open.get(call.proposal_id)
    if proposal is not None:
        accounts = _with(proposal.accounts, closed(_account_of(proposal.accounts, call.seat)))
        store(state, proposal, (replace(proposal, accounts=accounts), []))
    else:  # decided meanwhile: its decision shows the final cost
        decided = state.closed[call.proposal_id]
        spending = decided.decision.spent
        accounts = _with(spending, closed(_account_of(spending, call.seat)))
        state.closed[call.proposal_id] = replace(decided, decision=replace(decided.decision, spent=accounts))
    took_s = now.uptime_s - granted.at_s
    effects: Effects = [do.AnnounceSpending(call, spent, assumed=used is None, seconds=took_s, error=error)]
    if spent.tokens > call.worst.tokens or spent.microusd > call.worst.microusd:
        text = (
            f"a call of {call.seat} to {call.model} cost {spent}, more than the {call.worst} reserved for it: "
            "its tokens are counted too low, or its price is"
        )
        effects.append(do.RaiseAlert(call.proposal_id, "under_reserved", text))
    return effects


def _paid_by(state: CouncilState, seat: str) -> Account:
    """The amount that a seat has spent on all proposals."""
    return state.paid.get(seat, Account(seat))


def _account_of(accounts: Iterable[Account], seat: str) -> Account:
    """A seat's account among these, or an empty one."""
    return next((account for account in accounts if account.seat == seat), Account(seat))


def _with(accounts: tuple[Account, ...], account: Account) -> tuple[Account, ...]:
    others = [each for each in accounts if each.seat != account.seat]
    return tuple(sorted((*others, account), key=lambda each: each.seat))
