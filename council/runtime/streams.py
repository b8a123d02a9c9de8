"""The pieces of seats' streams: what they are, and whether one is relayed to the observer and to the outputs.

Pieces change no state, so like heartbeats they are not journaled. Neither are errors in them: a seat that publishes
too much can't fill the journal. A ballot is never a piece, because voting is blind (rules 1.14).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from council.agents.seat.plan_stream import PIECE_CHARS, PIECES_MAX, STAGE_CHARS_MAX
from council.core.state import CouncilState
from council.kinds.incoming import ROUND_MAX, Incoming
from council.protocol.envelope import Envelope, Info
from council.protocol.errors import EnvelopeError

_NOT_GIVEN = "its seat, or the one that observes, was not given the proposal"


class StreamPiece(NamedTuple):
    """A piece of a seat's stream in a round of a stage, from the character ``at``."""

    proposal_id: str
    seat: str
    text: str
    stage: str
    round: int
    at: int
    whole: bool


def is_piece(envelope: Envelope, role: str | None) -> bool:
    """Whether it is a piece of a seat's stream, which changes nothing and is no event."""
    content = envelope.content
    return isinstance(content, Info) and content.kind == "stream" and role == "voter"


def piece_of(envelope: Envelope) -> StreamPiece:
    """The piece in an envelope that is one. Raises EnvelopeError if it has another form."""
    content = envelope.content
    assert isinstance(content, Info)
    if len(content.text) > PIECE_CHARS:
        raise EnvelopeError(
            f"content.text has {len(content.text):,} characters, expected at most {PIECE_CHARS}",
            field="content.text",
        )
    said = Incoming(envelope)
    return StreamPiece(
        proposal_id=said.proposal_id,
        seat=said.sender,
        text=content.text,
        stage=said.fact("stage", str)[:STAGE_CHARS_MAX],
        round=said.amount("round", ROUND_MAX),
        at=said.amount("at"),
        whole=said.fact("whole", bool),
    )


class Relay:
    """Counts the pieces of each seat about each open proposal.

    Each of ``listeners`` is called with each piece of a seat that is at work, observed or not, on the council's loop.
    """

    def __init__(self) -> None:
        self.listeners: list[Callable[[StreamPiece], None]] = []
        self._pieces: dict[str, Counter[str]] = {}

    def take(self, piece: StreamPiece, state: CouncilState) -> str:
        """Counts a piece and tells the listeners, if its seat is at work.

        Returns why the observer does not get the piece, or "" if it does.
        """
        if why := self._why_not(piece, state):
            return why
        for listener in self.listeners:
            listener(piece)
        observer = state.rules.observer
        if not observer or piece.seat == observer:
            return "nobody observes it"
        if observer not in state.open[piece.proposal_id].asked:
            return _NOT_GIVEN
        return "" if state.seats[observer].active else "the seat that observes is inactive"

    def _why_not(self, piece: StreamPiece, state: CouncilState) -> str:
        """Why a piece is dropped. Otherwise counts it, and returns ""."""
        proposal = state.open.get(piece.proposal_id)
        if proposal is None or proposal.stage != "deliberating":
            return "its proposal is deliberated no more, or never was"
        if piece.seat not in proposal.asked:
            return _NOT_GIVEN
        if any(ballot.seat == piece.seat for ballot in proposal.ballots):
            return "its seat has voted"
        said = self._pieces.setdefault(piece.proposal_id, Counter())
        if said[piece.seat] >= PIECES_MAX:
            return "its seat has said too much"
        said[piece.seat] += 1
        return ""

    def end(self, proposal_id: str) -> None:
        """Drops the counts of a decided proposal."""
        self._pieces.pop(proposal_id, None)
