"""Packets for the tests of the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from council.journal.chain import Head
from council.journal.rows import Prepared, prepared
from council.journal.store import PacketStore
from council.protocol.packet import PacketEnvelope, PacketEnvelopeIn, completed_lineage, read_packet

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PAST = datetime(2020, 1, 1, tzinfo=UTC)  # what lapses soon after has lapsed by the machine's clock too
HOUR = timedelta(hours=1)


def given(number: int | None = None, *parents: UUID, **more: Any) -> PacketEnvelopeIn:
    """A packet as a user hands it in."""
    fields: dict[str, Any] = {"packet_type": "event", "payload": {"n": number}} | more
    if number is not None:
        fields["packet_id"] = UUID(int=number)
    if parents:
        fields["lineage"] = {"parent_ids": list(parents), "derivation_type": "inference"}
    return PacketEnvelopeIn.build(**fields)


def whole(number: int, *parents: UUID, **more: Any) -> PacketEnvelope:
    """A packet as the coordinator appends it; its lineage is still to be completed."""
    fields = {name: getattr(given(number, *parents, **more), name) for name in PacketEnvelope.model_fields}
    return PacketEnvelope.build(**{**fields, "timestamp": fields["timestamp"] or NOW})


def row_of(content: bytes) -> Prepared:
    """The row of a packet, with ``content`` in whatever form that is."""
    return prepared(read_packet(PacketEnvelope.from_json(content).canonical()), content)


def append(
    store: PacketStore, journal: str, epoch: int, packets: Sequence[PacketEnvelope], after: Head
) -> Head:
    """Puts packets into a journal as its writer does, their lineage completed."""
    parents = {each for packet in packets if packet.lineage for each in packet.lineage.parent_ids}
    known = store.lineages(parents)
    rows = []
    for packet in packets:
        known[packet.packet_id] = completed_lineage(packet.lineage, packet.packet_id, known)
        done = packet.model_copy(update={"lineage": known[packet.packet_id]})
        rows.append(row_of(done.canonical()))
    return store.append_rows(journal, epoch, rows, after)[0]


def several(first: int, count: int) -> list[PacketEnvelope]:
    return [whole(number) for number in range(first, first + count)]
