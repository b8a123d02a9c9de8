"""The cognition packets that seats send. They change nothing, so like pieces of streams they are not journaled."""

from __future__ import annotations

from council.core.state import CouncilState
from council.journal.record import SeatPacket
from council.kinds.incoming import Incoming
from council.protocol.envelope import Envelope, Info
from council.protocol.errors import EnvelopeError, Refused

ROUNDS_MAX = 10  # of one seat on one case: a ballot, a second try, a ruling, and some after restarts


def is_packet(envelope: Envelope) -> bool:
    """Whether it is a cognition packet, which is no event."""
    return isinstance(envelope.content, Info) and envelope.content.kind == "packet"


def packet_of(envelope: Envelope, state: CouncilState) -> SeatPacket:
    """The packet in an envelope that is one. Raises EnvelopeError; Refused if the council did not ask for it."""
    said = Incoming(envelope)
    number = said.amount("round", ROUNDS_MAX)
    if not number:
        raise EnvelopeError("content.data.round is 0, expected 1 or more", field="content.data.round")
    if said.sender not in state.seats:
        raise Refused(f"{said.sender} is no seat, so it has no packets", code="wrong_role")
    if said.proposal_id not in state.open and said.proposal_id not in state.closed:
        raise Refused(f"no proposal {said.proposal_id} is known", code="unknown_proposal")
    task = said.word("task", ("ballot", "ruling"), "'ballot' or 'ruling'")
    return SeatPacket(said.proposal_id, said.sender, task, number, said.fact("packet", str))
