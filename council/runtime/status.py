"""Says how a council is, for whoever asks. Decides nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from council.core.state import Account, Caps, CouncilState, Spend, plain

if TYPE_CHECKING:
    from council.runtime.driver import Driver


def status(driver: Driver, now: tuple[float, float]) -> dict[str, Any]:
    """The council at a glance, as plain data: seats, what is open, what was decided and refused."""
    state = driver.state
    return {
        "council_id": driver.council_id,
        "uptime_s": now[0],
        "epoch": state.epoch,
        "position": driver.position,
        "events": driver.feed.position,
        "prime": state.rules.prime,
        "quorum": state.rules.quorum,
        "seats": [
            {
                "name": seat.name,
                "active": seat.active,
                "heartbeat_age_s": now[0] - seat.last_beat_s,
                "heartbeats": seat.beat + 1,
                "restarts": seat.boot - seat.handed_on,
                "why": seat.why,
            }
            for seat in state.seats.values()
        ],
        "inactivity_limit_s": state.rules.inactivity_limit_s,
        "shared": plain(state.rules.shared),
        "humans": driver.senders.humans,
        "budget": _budget(state),
        "open": [
            {
                "proposal_id": proposal.what.proposal_id,
                "summary": proposal.what.summary,
                "proposer": proposal.what.proposer,
                "risk_level": proposal.what.risk_level,
                "stage": proposal.stage,
                "age_s": now[0] - proposal.opened_s,
                "time_left_s": proposal.deadline_s - now[0] if proposal.stage != "human" else None,
                "voted": {ballot.seat: ballot.vote for ballot in proposal.ballots},
                "lost": dict(proposal.lost),
                "escalated_for": list(proposal.escalated_for),
            }
            for proposal in list(state.open.values())[:200]
        ],
        "open_count": len(state.open) - state.with_human,
        "with_human": state.with_human,
        "decided": dict(driver.counts),
        "refused": dict(driver.refused),
        "ignored": dict(driver.ignored),
    }


def _budget(state: CouncilState) -> dict[str, Any]:
    """What models have cost over the council's life, what is held for calls under way, and the caps (rules 2.6)."""
    budget, paid = state.rules.budget, state.paid
    own = dict(budget.seats)

    def told(accounts: Collection[Account], caps: Caps) -> dict[str, Any]:
        return {
            "calls": sum(account.calls for account in accounts),
            "assumed": sum(account.assumed for account in accounts),
            "spent": plain(sum((account.spent for account in accounts), Spend())),
            "held": plain(sum((account.held for account in accounts), Spend())),
            "caps": plain(caps),
        }

    everybody = dict.fromkeys((*state.rules.seats, *paid))  # who is a seat no more has spent all the same
    return {
        "council": told(paid.values(), budget.council),
        "seats": {
            name: told([paid[name]] if name in paid else [], own.get(name, budget.seat)) for name in everybody
        },
        "proposal_caps": plain(budget.proposal),
        "under_way": len(state.calls),
    }
