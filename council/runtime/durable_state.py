"""How a council stands at the last position that is kept: all that may be told while nothing is kept (rules 4.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from council.core.proposals import stands
from council.core.state import Decision, Escalation, IdentityChange, Proposal
from council.protocol.errors import StoreError
from council.runtime.archive import Earlier


class DurableState(NamedTuple):
    """The council as of ``position``; ``counts`` are its decisions by outcome, ``ways`` what else is counted."""

    position: int
    open: Mapping[str, Proposal]
    closed: Earlier
    counts: Mapping[str, int]
    ways: Mapping[str, int]
    identity_change: IdentityChange | None

    def decision(self, proposal_id: str, now: Decision | None, stalled: StoreError) -> Decision | None:
        """The decision on a proposal or how it stood; ``now`` is how it stands by what is not kept.

        Raises ``stalled`` where it came to stand otherwise since: that can't be told, and nothing else be said.
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
    """Those of these proposals that wait for a human, oldest first."""
    return [each.escalation for each in opened.values() if each.escalation is not None]
