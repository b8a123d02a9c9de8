"""From packets to rows, and where a journal ends. Knows nothing of transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, select

from council.journal.chain import Head, content_hash, row_hash
from council.journal.schema import epochs, packet_store
from council.protocol.packet import PacketEnvelope, PacketEnvelopeIn

Ready = tuple[PacketEnvelope, bytes]  # a packet and its canonical bytes


def columns(packet: PacketEnvelope, content: bytes) -> dict[str, Any]:
    """The row of a packet outside of any journal: ``PacketEnvelope.row`` without what only models need."""
    meta = packet.metadata
    routing = {"agent": meta.agent, "domain": meta.domain} if meta else {}
    return {
        "packet_id": packet.packet_id,
        "packet_type": packet.packet_type,
        "timestamp": packet.timestamp,
        "routing": {name: value for name, value in routing.items() if value is not None},
        "provenance": packet.provenance and packet.provenance.model_dump(mode="json", exclude_none=True),
        "thread_id": packet.thread_id,
        "parent_ids": list(packet.lineage.parent_ids) if packet.lineage else [],
        "tags": list(packet.tags),
        "ttl": packet.ttl,
        "content": content,
        "content_hash": content_hash(content),
        "journal": None,
        "position": None,
        "epoch": None,
        "previous_hash": None,
        "row_hash": None,
    }


def appended(
    journal: str, epoch: int, ready: Sequence[Ready], after: Head
) -> tuple[list[dict[str, Any]], Head]:
    """The rows of packets that stand behind ``after``, and the head that they make."""
    rows = []
    head = after
    for packet, content in ready:
        row = columns(packet, content)
        position = head.position + 1
        own_hash = row_hash(head.row_hash, position, epoch, row["content_hash"])
        row |= {"journal": journal, "position": position, "epoch": epoch}
        row |= {"previous_hash": head.row_hash, "row_hash": own_hash}
        rows.append(row)
        head = Head(position, own_hash)
    return rows, head


def newest_epoch(connection: Connection, journal: str) -> int:
    """The newest epoch of a journal; 0 where none has begun."""
    newest = select(func.max(epochs.c.epoch)).where(epochs.c.journal == journal)
    return connection.execute(newest).scalar_one() or 0


def newest_head(connection: Connection, journal: str) -> Head:
    """The last row of a journal."""
    c = packet_store.c
    last = select(c.position, c.row_hash).where(c.journal == journal).order_by(c.position.desc()).limit(1)
    found = connection.execute(last).one_or_none()
    return Head() if found is None else Head(found.position, found.row_hash)


def same_packet(given: PacketEnvelopeIn, content: bytes) -> bool:
    """Whether what is handed in is what is kept: what it leaves out, the store has filled in (rules 4.2)."""
    kept = PacketEnvelope.from_json(content)
    fields = {name: getattr(given, name) for name in PacketEnvelope.model_fields}
    fields |= {"packet_id": kept.packet_id, "timestamp": given.timestamp or kept.timestamp}
    if given.lineage is not None and kept.lineage is not None:
        filled = ("generation", "root_packet_id")
        left_out = {
            name: getattr(kept.lineage, name) for name in filled if getattr(given.lineage, name) is None
        }
        fields["lineage"] = given.lineage.model_copy(update=left_out)
    return PacketEnvelope.build(**fields).canonical() == content
