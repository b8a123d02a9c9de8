"""Converts packets to rows, and finds the end of a journal.

Rows go directly to the driver, because SQLAlchemy's processing of values took twice the time of SQLite itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, text

from council.journal.chain import Head, content_hash, row_hash
from council.journal.schema import Unreadable, ids_text, moment_text, words_text
from council.protocol.errors import CallerError, CouncilError, EpochFenced
from council.protocol.packet import PacketEnvelope, PacketEnvelopeIn, StoredPacket
from council.protocol.values import quoted

# The SQL type of each column for PostgreSQL: a text, an empty list and a null have no type of their own.
_COLUMNS = {
    "packet_id": "::uuid",
    "packet_type": "::text",
    "timestamp": "::timestamptz",
    "routing": "::jsonb",
    "provenance": "::jsonb",
    "thread_id": "::uuid",
    "parent_ids": "::uuid[]",
    "tags": "::text[]",
    "ttl": "::timestamp",
    "content": "",
    "content_hash": "",
    "journal": "::text",
    "position": "::bigint",
    "epoch": "::bigint",
    "previous_hash": "::bytea",
    "row_hash": "::bytea",
}
# PostgreSQL has its own representation of these.
_JSON = {"routing", "provenance", "parent_ids", "tags"}
_INTO = f"INSERT INTO packet_store ({', '.join(_COLUMNS)}) VALUES "
_INSERT = {
    "sqlite": f"{_INTO}({', '.join('?' for _ in _COLUMNS)})",
    "postgresql": f"{_INTO}({', '.join(f'%s{of}' for of in _COLUMNS.values())})",
}


class Prepared(NamedTuple):
    """A packet to be written to ``packet_store``: the columns in order, and the bytes that they come from.

    Ids and the time stay texts, as in the bytes and in SQLite. Converting them to objects and back took as long as
    all the rest.
    """

    packet_id: str
    packet_type: str
    timestamp: str  # in the form of ``moment_text``
    routing: str  # as JSON, like the provenance
    provenance: str | None
    thread_id: str | None
    parent_ids: tuple[str, ...]
    tags: tuple[str, ...]
    ttl: datetime | None
    content: bytes


class Place(NamedTuple):
    """The place of a row in a journal."""

    journal: str | None
    position: int | None
    epoch: int | None
    previous_hash: bytes | None
    row_hash: bytes | None


OUTSIDE = Place(None, None, None, None, None)


def prepared(packet: StoredPacket[Any], content: bytes) -> Prepared:
    """A packet as a row. The caller guarantees that ``content`` is canonical."""
    meta, source = packet.metadata, packet.provenance
    routing = {"agent": meta.agent, "domain": meta.domain} if meta else {}
    return Prepared(
        packet.packet_id,
        packet.packet_type,
        moment_text(packet.timestamp),
        json.dumps({name: value for name, value in routing.items() if value is not None}),
        None if source is None else msgspec.json.encode(source).decode(),
        packet.thread_id,
        packet.lineage.parent_ids if packet.lineage else (),
        packet.tags,
        packet.ttl,
        content,
    )


def values(engine: str, row: Prepared, hashed: bytes, place: Place = OUTSIDE) -> tuple[Any, ...]:
    """A row as the driver of ``engine`` takes it, in the order of the columns."""
    *plain, parents, tags, ttl, content = row
    if engine == "sqlite":
        kept: tuple[Any, ...] = ids_text(parents), words_text(tags), ttl and moment_text(ttl)
    else:
        kept = list(parents), list(tags), ttl and ttl.astimezone(UTC).replace(tzinfo=None)
    return *plain, *kept, content, hashed, *place


def wrong_column(engine: str, row: Prepared, columns: Sequence[Any]) -> str | None:
    """The first column of a row that has a wrong value. PostgreSQL's columns come in the form of SQLite's."""
    for name, found, wanted in zip(_COLUMNS, columns, values("sqlite", row, b""), strict=False):
        if found != wanted and not (engine != "sqlite" and name in _JSON and same_object(found, wanted)):
            return name
    return None


def same_object(text: str | None, content: str | bytes | None) -> bool:
    """Whether JSON that a database wrote in its own form equals ``content``."""
    try:
        return _same(json.loads(text or ""), json.loads(content or ""))
    except (TypeError, ValueError, RecursionError):
        return False


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(_same(value, other[name]) for name, value in one.items())
        )
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(_same, one, other))
    # A database may write 1e+20 as a whole number; but true is not a number.
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def insert_values(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Writes rows that ``values`` made."""
    if rows:
        connection.exec_driver_sql(_INSERT[connection.dialect.name], list(rows))


def appended(
    engine: str, journal: str, epoch: int, rows: Iterable[Prepared], after: Head
) -> tuple[list[tuple[Any, ...]], Head]:
    """The rows of packets after ``after``, for ``insert_values``, and the new head."""
    made = []
    position, previous = after
    for row in rows:
        position += 1
        hashed = content_hash(row.content)
        own = row_hash(previous, position, epoch, hashed)
        made.append(values(engine, row, hashed, Place(journal, position, epoch, previous, own)))
        previous = own
    return made, Head(position, previous)


class Standing(NamedTuple):
    """A journal's newest ``epoch``, 0 if it has none; its last row, and that row's ``last_epoch``."""

    epoch: int
    head: Head
    last_epoch: int


_STANDING = text("""
    SELECT newest.epoch, last.position, last.row_hash, last.epoch
    FROM (SELECT max(epoch) AS epoch FROM epochs WHERE journal = :journal) AS newest
    LEFT JOIN (
        SELECT position, row_hash, epoch FROM packet_store WHERE journal = :journal ORDER BY position DESC LIMIT 1
    ) AS last ON true
""")


def standing(connection: Connection, journal: str) -> Standing:
    """The newest epoch and the last row of a journal. Raises Unreadable."""
    epoch, position, last_hash, last_epoch = connection.execute(_STANDING, {"journal": journal}).one()
    if epoch is not None and type(epoch) is not int:
        raise Unreadable(f"the newest epoch of journal {quoted(journal)} is {quoted(str(epoch))}")
    if position is None:
        return Standing(epoch or 0, Head(), 0)
    if type(position) is not int or type(last_hash) is not bytes or type(last_epoch) is not int:
        raise Unreadable(f"the last record of journal {quoted(journal)} has no position, hash or epoch")
    return Standing(epoch or 0, Head(position, last_hash), last_epoch)


def fenced(where: str, journal: str, epoch: int, newest: int) -> CouncilError:
    """The error for a writer whose ``epoch`` is not the ``newest`` of its journal (rules 4.6)."""
    if epoch > newest:
        return CallerError(
            f"the journal {journal} in {where} has no epoch {epoch}: begin one with begin_epoch"
        )
    return EpochFenced(
        f"the journal {journal} in {where} is written by epoch {newest} now: this coordinator, of epoch {epoch}, "
        "has been replaced and must end",
        journal=journal,
        epoch=epoch,
        newest=newest,
    )


def same_packet(given: PacketEnvelopeIn, content: bytes) -> bool:
    """Whether a given packet equals the stored one. The store has filled in what it leaves out (rules 4.2)."""
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
