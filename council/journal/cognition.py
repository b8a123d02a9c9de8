"""Cognition packets in the store: how one is kept, and how those of a proposal are found and completed.

A packet is known by its proposal, seat, task and round, and written once. It stands outside of the journal's chain.
Its tool's state is not kept with it: it follows from the journal's records when the packet is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from council.action.redact import redact
from council.governance.tool_routing import Kept, routed
from council.journal.queries import PAGE_MAX
from council.journal.record import SeatPacket
from council.journal.store import PacketStore
from council.protocol.cognition import CognitionPacket
from council.protocol.cognition.parts import Privacy
from council.protocol.packet import PacketEnvelopeIn, PacketMetadata
from council.protocol.values import plain

PACKET_TYPE = "cognition"
# The parts with texts that people, models and tools wrote. The others hold ids, names, figures and hashes.
_TEXTS = {"content", "context", "reasoning", "response", "metrics", "status"}
_TEXTS |= {"council", "tool_routing", "loop_state", "goal_state"}


def kept_packet(journal: str, of: SeatPacket, packet: CognitionPacket) -> PacketEnvelopeIn:
    """A seat's packet as the store takes it; ``packet`` takes the place of its text. Raises EnvelopeError."""
    thread = _thread(journal, of.proposal_id)
    payload = {
        "proposal_id": of.proposal_id,
        "seat": of.seat,
        "task": of.task,
        "round": of.round,
        "packet": packet.to_dict(),
    }
    return PacketEnvelopeIn.build(
        packet_id=uuid5(thread, f"{of.seat}/{of.task}/{of.round}"),
        packet_type=PACKET_TYPE,
        payload=payload,
        metadata=PacketMetadata(agent=of.seat),
        thread_id=thread,
    )


def _thread(journal: str, proposal_id: str) -> UUID:
    """The thread with the packets of a proposal."""
    return uuid5(NAMESPACE_URL, f"council:{journal}/{proposal_id}/{PACKET_TYPE}")


def packets_of(store: PacketStore, journal: str, proposal_id: str, now: datetime) -> list[dict[str, Any]]:
    """The packets that are kept of a proposal, by seat and round: seat, task, round and packet. Raises StoreError."""
    thread = _thread(journal, proposal_id)
    found = store.find(now, thread_id=thread, packet_type=PACKET_TYPE, limit=PAGE_MAX).packets
    kept = [plain(each.payload) for each in found]
    return sorted(kept, key=lambda each: (each["seat"], each["round"]))


def completed(
    kept: Iterable[Mapping[str, Any]], proposal_id: str, records: Iterable[Kept]
) -> list[dict[str, Any]]:
    """Kept packets with their tool's state by the records of their proposal. Raises EnvelopeError."""
    records, found = list(records), []
    for each in kept:
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
