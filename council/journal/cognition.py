"""Cognition packets in the store: how one is kept, and how those of a proposal are found and completed.

A packet is known by its proposal, seat, task and round, and written once. It stands outside of the journal's chain.
Its tool's state is not kept with it: it follows from the journal's records when the packet is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from council.action.redact import redact
from council.governance.tool_routing import Kept, routed
from council.journal.queries import PAGE_MAX
from council.journal.store import PacketStore
from council.kinds.incoming import Incoming
from council.protocol.cognition import CognitionPacket
from council.protocol.cognition.parts import Privacy
from council.protocol.envelope import Envelope
from council.protocol.packet import PacketEnvelopeIn, PacketMetadata
from council.protocol.values import plain

PACKET_TYPE = "cognition"
# Of one seat on one case: a ballot, a second try and a ruling, the same after each of three checks, and some after
# restarts.
ROUNDS_MAX = 20
# The parts with texts that people, models and tools wrote. The others hold ids, names, figures and hashes.
_TEXTS = {"content", "context", "reasoning", "response", "metrics", "status"}
_TEXTS |= {"council", "tool_routing", "loop_state", "goal_state"}


def kept_packet(journal: str, envelope: Envelope) -> PacketEnvelopeIn:
    """The packet in a seat's envelope, redacted, as the store takes it. Raises EnvelopeError."""
    said = Incoming(envelope)
    task, number = (
        said.word("task", ("ballot", "ruling"), "'ballot' or 'ruling'"),
        said.amount("round", ROUNDS_MAX),
    )
    packet = redacted_packet(CognitionPacket.from_json(said.fact("packet", str)))
    thread = _thread(journal, said.proposal_id)
    return PacketEnvelopeIn.build(
        packet_id=uuid5(thread, f"{said.sender}/{task}/{number}"),
        packet_type=PACKET_TYPE,
        payload={"seat": said.sender, "task": task, "round": number, "packet": packet.to_dict()},
        metadata=PacketMetadata(agent=said.sender),
        thread_id=thread,
    )


def _thread(journal: str, proposal_id: str) -> UUID:
    """The thread with the packets of a proposal."""
    return uuid5(NAMESPACE_URL, f"council:{journal}/{proposal_id}/{PACKET_TYPE}")


def packets_of(
    store: PacketStore, journal: str, proposal_id: str, records: Sequence[Kept], now: datetime
) -> list[dict[str, Any]]:
    """The packets that are kept of a proposal, by seat and round: seat, task, round and packet, as JSON data.

    The state of their tool is that of the proposal's ``records``. Raises StoreError.
    """
    thread = _thread(journal, proposal_id)
    kept = store.find(now, thread_id=thread, packet_type=PACKET_TYPE, limit=PAGE_MAX).packets
    found = []
    for each in sorted(
        (plain(each.payload) for each in kept), key=lambda each: (each["seat"], each["round"])
    ):
        packet = routed(CognitionPacket.from_dict(each["packet"]), proposal_id, records).to_dict()
        if (routing := packet["tool_routing"]) is not None:  # its texts are the journal's now
            packet["tool_routing"] = redacted(routing, Counter())
        found.append({**each, "packet": packet})
    return found


def redacted(value: Any, counts: Counter[str]) -> Any:
    """A JSON value without secrets and personal data (rules 3.4). Adds what was removed to ``counts``, by kind."""
    if isinstance(value, str):
        found = redact(value)
        counts.update(found.counts)
        return found.text
    if isinstance(value, dict):
        return {redacted(key, counts): redacted(each, counts) for key, each in value.items()}
    return [redacted(each, counts) for each in value] if isinstance(value, list) else value


def redacted_packet(packet: CognitionPacket) -> CognitionPacket:
    """The packet with redacted texts. ``privacy`` counts what was removed; the hashes are those of the result."""
    counts: Counter[str] = Counter()
    whole = packet.to_dict()
    found = CognitionPacket.from_dict(whole | {part: redacted(whole[part], counts) for part in _TEXTS})
    removed = [{"kind": kind, "count": count} for kind, count in sorted(counts.items())]
    privacy = Privacy.from_dict({"pii_detected": bool(counts), "pii_redactions": removed})
    governance = found.governance.model_copy(update={"privacy": privacy})
    return found.model_copy(update={"governance": governance}).compute_hashes()
