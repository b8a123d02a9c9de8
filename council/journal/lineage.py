"""Who was derived from whom, among the packets that are kept (rules 4.3, 4.9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Connection, Uuid, select, type_coerce
from sqlalchemy.dialects.postgresql import ARRAY

from council.journal import queries
from council.journal.rows import Ready
from council.journal.schema import packet_parents, packet_store
from council.protocol.errors import CallerError, StoreCorrupt, UnknownPacket
from council.protocol.packet import PacketEnvelope, PacketLineage, completed_lineage

RELATIVES_MAX = 10_000  # what one answer may hold in memory; nobody reads a longer one


class Relative(NamedTuple):
    """A packet, and how many steps of derivation lie between."""

    distance: int
    packet: PacketEnvelope


def lineages(
    connection: Connection, ids: Iterable[UUID], now: datetime | None
) -> dict[UUID, PacketLineage | None]:
    """The lineage of those of ``ids`` that are kept and, where it is ``now``, have not expired."""
    c = packet_store.c
    statement = select(c.packet_id, c.ttl, c.envelope["lineage"])
    known: dict[UUID, PacketLineage | None] = {}
    for packet_id, ttl, found in queries.in_chunks(connection, statement, c.packet_id, ids):
        if now is None or ttl is None or ttl > now:
            try:
                known[packet_id] = None if found is None else PacketLineage.model_validate(found)
            except ValidationError as error:
                raise StoreCorrupt(
                    f"the lineage of packet {packet_id} is damaged: go back to a copy", packet_id=packet_id
                ) from error
    return known


def all_completed(connection: Connection, ready: list[Ready]) -> list[Ready]:
    """Packets with their lineage completed and checked, in an order in which parents come first."""
    wanted = {each for packet, _ in ready if packet.lineage for each in packet.lineage.parent_ids}
    if not wanted and all(packet.lineage is None for packet, _ in ready):
        return ready
    known = lineages(connection, wanted, None)
    found = []
    for packet, content in ready:
        whole = completed_lineage(packet.lineage, packet.packet_id, known)
        if whole != packet.lineage:
            packet = packet.model_copy(update={"lineage": whole})
            content = packet.canonical()
        known[packet.packet_id] = whole
        found.append((packet, content))
    return found


def relatives(
    connection: Connection,
    packet_id: UUID,
    now: datetime,
    depth: int | None,
    expired: bool,
    where: str,
    *,
    up: bool,
) -> list[Relative]:
    """Ancestors or descendants; see ``PacketStore.ancestors``. An expired packet ends its line, unless asked for."""
    queries.aware("now", now)
    if depth is not None and depth < 1:
        raise CallerError(f"depth is {depth}, expected 1 or more, or none for all")
    level = list(queries.packets_of(connection, [packet_id], where).values())
    if not level or (not expired and level[0].expired(now)):
        raise UnknownPacket(f"the store {where} keeps no packet {packet_id}", packet_id=packet_id)
    seen = {packet_id}
    found: list[Relative] = []
    distance = 0
    while level and (depth is None or distance < depth):
        distance += 1
        ids = _parents(level) if up else _children(connection, [packet.packet_id for packet in level])
        ids = [each for each in dict.fromkeys(ids) if each not in seen]
        seen.update(ids)
        if len(seen) > RELATIVES_MAX:
            raise CallerError(
                f"packet {packet_id} has more than {RELATIVES_MAX:,} of them: give a smaller depth"
            )
        packets = queries.packets_of(connection, ids, where).values()
        level = sorted(
            (packet for packet in packets if expired or not packet.expired(now)),
            key=lambda packet: (packet.timestamp, packet.packet_id.int),
        )
        found += [Relative(distance, packet) for packet in level]
    return found


def _parents(packets: Iterable[PacketEnvelope]) -> list[UUID]:
    return [each for packet in packets if packet.lineage for each in packet.lineage.parent_ids]


def _children(connection: Connection, ids: Sequence[UUID]) -> list[UUID]:
    c = packet_store.c
    if connection.dialect.name == "sqlite":
        statement = select(c.packet_id).join(packet_parents, packet_parents.c.packet == c.sequence)
        rows = queries.in_chunks(connection, statement, packet_parents.c.parent, ids)
    else:
        parents = type_coerce(c.parent_ids, ARRAY(Uuid()))
        rows = connection.execute(select(c.packet_id).where(parents.overlap(list(ids))))
    return [row.packet_id for row in rows]
