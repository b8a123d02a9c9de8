"""A council's state at the last kept position: all that may be told during a stall of the journal (rules 4.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from council.core.proposals import stands
from council.core.state import Decision, Escalation, IdentityChange, Proposal
from council.protocol.errors import StoreError
from council.runtime.archive import Earlier


class DurableState(NamedTuple):
    """The council as of ``position``. ``counts`` are decisions by outcome; ``ways`` are the other counters."""

    position: int
    open: Mapping[str, Proposal]
    closed: Earlier
    counts: Mapping[str, int]
    ways: Mapping[str, int]
    identity_change: IdentityChange | None

    def decision(self, proposal_id: str, now: Decision | None, stalled: StoreError) -> Decision | None:
        """The kept decision or standing of a proposal. ``now`` is its standing including records that are not kept.

        Raises ``stalled`` if the two differ: the new one can't be told yet, and the old one is no longer true.
        """
        closed, proposal = self.closed.get(proposal_id), self.open.get(proposal_id)
        if closed is None and proposal is None:
            raise stalled
        then = stands(proposal_id, closed, proposal)
        before, after = (None if each is None else each.standing for each in (then, now))
        if before != after:
            raise stalled
        return then


def escalations(opened: Mapping[str, Proposal]) -> list[Escalation]:
    """The escalations of those proposals that wait for a human, oldest first."""
    return [each.escalation for each in opened.values() if each.escalation is not None]
