"""The lineage of packets: which packet was derived from which (rules 4.3, 4.9)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Connection, Uuid, select, type_coerce
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import NullType

from council.journal import queries, search_words
from council.journal.schema import LAPSE, Unreadable, packet_store
from council.protocol.errors import CallerError, EnvelopeError, StoreCorrupt, UnknownPacket
from council.protocol.packet import PacketEnvelope, PacketLineage, completed_lineage

RELATIVES_MAX = 10_000  # the limit of one answer in memory; nobody reads a longer one
_c = packet_store.c
_LINEAGES = select(  # the ttl as it is stored: an invalid time is reported with its packet
    _c.packet_id, type_coerce(_c.ttl, NullType()), _c.envelope["lineage"]
).where(queries.among(_c.packet_id))
_CHILDREN = select(
    _c.packet_id, _c.parent_ids, _c.envelope[("lineage", "generation")].as_integer().label("generation")
)


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


class Lineages:
    """Checks the lineages of some packets before they are written, in the transaction that writes them.

    ``packets`` are their ids and given lineages; ``there`` are the ids that are kept already. A parent counts as kept
    only if it has not expired by ``now``, if that is given.
    """

    def __init__(
        self,
        connection: Connection,
        packets: Collection[tuple[UUID, PacketLineage | None]],
        there: Set[UUID],
        now: datetime | None,
    ) -> None:
        parents = {each for _, given in packets if given for each in given.parent_ids}
        self.known = lineages(connection, parents, now)
        # The least generation of the kept packets that derive from an id. If a packet of that id is not kept, it was
        # removed, or is still to be imported.
        self._below: dict[UUID, int] = {}
        new = {packet_id for packet_id, _ in packets} - there if parents else set()
        for row in _children(connection, list(new)):
            for parent in new & set(row.parent_ids):
                self._note_child(parent, row.generation or 0)

    def check(self, packet_id: UUID, given: PacketLineage | None) -> None:
        """Raises EnvelopeError if ``given`` would make a packet derive from one of its own descendants.

        Generations grow along every line. If each is above its parents', no line can return to its start.
        """
        least = self._below.get(packet_id)
        if least is not None and given is not None and (given.generation or 0) >= least:
            raise EnvelopeError(
                f"lineage.parent_ids: what {packet_id} is to derive from may derive from it; choose a new id",
                field="lineage.parent_ids",
            )

    def check_imported(self, packet_id: UUID, given: PacketLineage | None) -> bool:
        """``check`` for a completed lineage. Returns whether a parent is missing, because it was removed."""
        if given is None:
            return False
        known = self.known
        gone: set[UUID] = set()
        if given.generation and given.root_packet_id:
            # A missing parent is assumed to have the generation and root that it must have had.
            gone = {each for each in given.parent_ids if each not in known}
            stand_in = PacketLineage(generation=given.generation - 1, root_packet_id=given.root_packet_id)
            known = {**{each: known.get(each) for each in given.parent_ids}, **dict.fromkeys(gone, stand_in)}
        if completed_lineage(given, packet_id, known) != given:
            raise EnvelopeError("lineage: it is not complete", field="lineage")
        self.check(packet_id, given)
        return bool(gone)

    def add(self, packet_id: UUID, given: PacketLineage | None) -> None:
        """Notes a packet that will be written in this transaction."""
        self.known[packet_id] = given
        for parent in given.parent_ids if given else ():
            self._note_child(parent, (given and given.generation) or 0)

    def _note_child(self, parent: UUID, generation: int) -> None:
        self._below[parent] = min(generation, self._below.get(parent, generation))


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


def _children(connection: Connection, ids: Sequence[UUID]) -> Iterator[Any]:
    """The rows of packets that have one of ``ids`` as a parent."""
    for start in range(0, len(ids), queries.IDS_AT_ONCE):
        some = ids[start : start + queries.IDS_AT_ONCE]
        if connection.dialect.name == "sqlite":
            words = [search_words.index_word("parent", each) for each in some]
            theirs = search_words.under(words, search_words.holds(_c.parent_ids, map(str, some)))
        else:
            theirs = type_coerce(_c.parent_ids, ARRAY(Uuid())).overlap(some)
        yield from connection.execute(_CHILDREN.where(theirs))
