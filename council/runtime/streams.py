"""Whom a piece of a seat's stream is relayed to, and why it is not. Knows nothing of what observers make of it.

Pieces change no state, so that they are not journaled, as heartbeats are not, and neither is what is wrong with
them: a seat that says too much fills no journal. A ballot is no piece: voting is blind (rules 1.14).
"""

from __future__ import annotations

from collections import Counter

from council.agents.seat.plan_stream import PIECES_MAX
from council.core.state import CouncilState
from council.runtime.event_reader import StreamPiece


class Relay:
    """Counts the pieces of each seat on each open proposal."""

    def __init__(self) -> None:
        self._pieces: dict[str, Counter[str]] = {}

    def why_not(self, piece: StreamPiece, state: CouncilState) -> str:
        """Why nobody is to hear this piece; empty where the observer is, and then it is counted."""
        observer, proposal = state.rules.observer, state.open.get(piece.proposal_id)
        if not observer or piece.seat == observer:
            return "nobody observes it"
        if proposal is None or proposal.stage != "deliberating":
            return "its proposal is deliberated no more, or never was"
        if piece.seat not in proposal.asked or observer not in proposal.asked:
            return "its seat, or the one that observes, was not given the proposal"
        if any(ballot.seat == piece.seat for ballot in proposal.ballots):
            return "its seat has voted"
        if not state.seats[observer].active:
            return "the seat that observes is inactive"
        said = self._pieces.setdefault(piece.proposal_id, Counter())
        if said[piece.seat] >= PIECES_MAX:
            return "its seat has said too much"
        said[piece.seat] += 1
        return ""

    def end(self, proposal_id: str) -> None:
        """The proposal is decided."""
        self._pieces.pop(proposal_id, None)
