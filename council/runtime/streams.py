"""Decides whether a piece of a seat's stream is relayed to the observer. Knows nothing of observers' minds.

Pieces change no state, so like heartbeats they are not journaled. Neither are errors in them: a seat that publishes
too much can't fill the journal. A ballot is never a piece, because voting is blind (rules 1.14).
"""

from __future__ import annotations

from collections import Counter

from council.agents.seat.plan_stream import PIECES_MAX
from council.core.state import CouncilState
from council.runtime.event_reader import StreamPiece


class Relay:
    """Counts the pieces of each seat about each open proposal."""

    def __init__(self) -> None:
        self._pieces: dict[str, Counter[str]] = {}

    def why_not(self, piece: StreamPiece, state: CouncilState) -> str:
        """Why a piece is not relayed; empty if it is, and then it is counted."""
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
        """Drops the counts of a decided proposal."""
        self._pieces.pop(proposal_id, None)
