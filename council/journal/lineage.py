"""The lineage of packets: which packet was derived from which (rules 4.3, 4.9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Connection, Uuid, bindparam, select, type_coerce
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import NullType

from council.journal import queries, search_words
from council.journal.schema import LAPSE, Unreadable, packet_store, packet_words
from council.protocol.errors import CallerError, EnvelopeError, StoreCorrupt, UnknownPacket
from council.protocol.packet import PacketEnvelope, PacketLineage

RELATIVES_MAX = 10_000  # the limit of one answer in memory; nobody reads a longer one
_c = packet_store.c
_LINEAGES = select(  # the ttl as it is stored: an invalid time is reported with its packet
    _c.packet_id, type_coerce(_c.ttl, NullType()), _c.envelope["lineage"]
).where(queries.among(_c.packet_id))
_CHILDREN = select(
    _c.packet_id, _c.parent_ids, _c.envelope[("lineage", "generation")].as_integer().label("generation")
)
_CHILDREN_ENTERED = _CHILDREN.join(packet_words, packet_words.c.packet == _c.sequence).where(
    queries.among(packet_words.c.word)
)
_CHILDREN_FRESH = _CHILDREN.where(search_words.UNENTERED, search_words.holds(_c.parent_ids, queries.SOME))
_CHILDREN = _CHILDREN.where(type_coerce(_c.parent_ids, ARRAY(Uuid())).overlap(bindparam("ids")))


class Relative(NamedTuple):
    """A packet, and its distance in steps of derivation."""

    distance: int
    packet: PacketEnvelope


def lineages(
    connection: Connection, ids: Iterable[UUID], now: datetime | None
) -> dict[UUID, PacketLineage | None]:
    """The lineages of those of ``ids`` that are kept and, if ``now`` is given, have not expired."""
    known: dict[UUID, PacketLineage | None] = {}
    for packet_id, kept, found in queries.in_chunks(connection, _LINEAGES, ids):
        try:
            ttl = LAPSE.process_result_value(kept, connection.dialect)
            if now is None or ttl is None or ttl > now:
                known[packet_id] = None if found is None else PacketLineage.model_validate(found)
        except (Unreadable, ValidationError) as error:
            what = "ttl" if isinstance(error, Unreadable) else "lineage"
            raise StoreCorrupt(
                f"the {what} of packet {packet_id} is damaged: go back to a copy", packet_id=packet_id
            ) from error
    return known


def below(connection: Connection, ids: Set[UUID]) -> dict[UUID, int]:
    """For each of ``ids`` from which kept packets derive, the least generation of these packets.

    Before a packet with such an id is written, this can only be if one was removed, or is still to be imported.
    """
    found: dict[UUID, int] = {}
    for row in _children(connection, list(ids)):
        for parent in ids & set(row.parent_ids):
            found[parent] = min(row.generation or 0, found.get(parent, row.generation or 0))
    return found


def check_above(packet_id: UUID, lineage: PacketLineage | None, below: Mapping[UUID, int]) -> None:
    """Raises EnvelopeError if ``lineage`` would make a packet derive from one of its own descendants.

    Generations grow along every line. If each is above its parents', no line can return to its start.
    """
    least = below.get(packet_id)
    if least is not None and lineage is not None and (lineage.generation or 0) >= least:
        raise EnvelopeError(
            f"lineage.parent_ids: what {packet_id} is to derive from may derive from it; choose a new id",
            field="lineage.parent_ids",
        )


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
    now = queries.aware("now", now)
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
        if up:
            ids = [each for packet in level if packet.lineage for each in packet.lineage.parent_ids]
        else:
            ids = [row.packet_id for row in _children(connection, [packet.packet_id for packet in level])]
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


def _children(connection: Connection, ids: Sequence[UUID]) -> Iterable[Any]:
    """The rows of packets that have one of ``ids`` as a parent."""
    if connection.dialect.name == "sqlite":
        entered = [search_words.index_word("parent", each) for each in ids]
        return chain(
            queries.in_chunks(connection, _CHILDREN_ENTERED, entered),
            queries.in_chunks(connection, _CHILDREN_FRESH, map(str, ids)),
        )
    return connection.execute(_CHILDREN, {"ids": list(ids)})
