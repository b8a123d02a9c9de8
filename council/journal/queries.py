"""Reads packets and journal rows. Knows nothing of writing.

What is read is compared with its hash: a packet that was changed behind the store's back is an error, not an
answer.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Text,
    bindparam,
    literal,
    or_,
    select,
    tuple_,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import ARRAY

from council.journal.chain import JournalRow, content_hash
from council.journal.schema import epochs, packet_store, packet_tags
from council.protocol.errors import CallerError, EnvelopeError, StoreCorrupt
from council.protocol.jsondata import quoted
from council.protocol.packet import PacketEnvelope

PAGE_MAX = 1_000
IDS_AT_ONCE = 500  # in one statement: databases limit its variables
_CURSOR_CHARS_MAX = 200
NAMED_MAX = 10


class Page(NamedTuple):
    """Some packets, and where to go on; no ``cursor`` once there are no more."""

    packets: tuple[PacketEnvelope, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Question:
    """What ``find`` was asked; a cursor belongs to one."""

    thread_id: UUID | None
    packet_type: str | None
    tags_any: tuple[str, ...]
    tags_all: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    newest_first: bool
    expired: bool

    def mark(self) -> str:
        """What tells it from other questions."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


def aware(name: str, moment: datetime) -> datetime:
    """``moment`` in UTC; raises CallerError where it has no offset from it, or lies outside its years."""
    if moment.utcoffset() is None:
        raise CallerError(f"{name}: {moment.isoformat()} has no offset from UTC; give an aware time")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise CallerError(f"{name}: {moment.isoformat()} lies outside the years 1 to 9999 in UTC") from None


def find(
    connection: Connection, question: Question, now: datetime, limit: int, cursor: str | None, where: str
) -> Page:
    """One page; see ``PacketStore.find``."""
    now = aware("now", now)
    c = packet_store.c
    statement = select(c.packet_id, c.content, c.content_hash, c.timestamp, c.sequence)
    for condition in _conditions(question, now, connection.dialect.name == "sqlite"):
        statement = statement.where(condition)
    place = tuple_(c.timestamp, c.sequence)
    if cursor is not None:
        moment, sequence = _read_cursor(cursor, question)
        bound = tuple_(literal(moment, c.timestamp.type), literal(sequence, c.sequence.type))
        statement = statement.where(place < bound if question.newest_first else place > bound)
    order = (c.timestamp, c.sequence)
    statement = statement.order_by(*(each.desc() if question.newest_first else each for each in order))
    rows = connection.execute(statement.limit(limit + 1)).all()
    more = len(rows) > limit
    rows = rows[:limit]
    packets = tuple(_packet(row.packet_id, row.content, row.content_hash, where) for row in rows)
    return Page(packets, _write_cursor(rows[-1].timestamp, rows[-1].sequence, question) if more else None)


def _conditions(question: Question, now: datetime, sqlite: bool) -> Iterator[ColumnElement[bool]]:
    c = packet_store.c
    if question.thread_id is not None:
        yield c.thread_id == question.thread_id
    if question.packet_type is not None:
        yield c.packet_type == question.packet_type
    if question.since is not None:
        yield c.timestamp >= aware("since", question.since)
    if question.until is not None:
        yield c.timestamp < aware("until", question.until)
    if not question.expired:
        yield or_(c.ttl.is_(None), c.ttl > now)
    if sqlite:
        tagged = select(packet_tags.c.packet)
        if question.tags_any:
            yield c.sequence.in_(tagged.where(packet_tags.c.tag.in_(question.tags_any)))
        for tag in question.tags_all:
            yield c.sequence.in_(tagged.where(packet_tags.c.tag == tag))
    else:
        tags = type_coerce(c.tags, ARRAY(Text()))
        if question.tags_any:
            yield tags.overlap(list(question.tags_any))
        if question.tags_all:
            yield tags.contains(list(question.tags_all))


def _write_cursor(moment: datetime, sequence: int, question: Question) -> str:
    place = json.dumps([question.mark(), moment.isoformat(), sequence], separators=(",", ":"))
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def _read_cursor(cursor: str, question: Question) -> tuple[datetime, int]:
    try:
        if len(cursor) > _CURSOR_CHARS_MAX:
            raise ValueError(cursor)
        mark, moment, sequence = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        place = aware("cursor", datetime.fromisoformat(moment)), int(sequence)
        if not 0 < place[1] < 2**63:
            raise ValueError(sequence)
    except (ValueError, TypeError, OverflowError, RecursionError, CallerError):
        raise CallerError("cursor: this is none; give the one of the page before, as it is") from None
    if mark != question.mark():
        raise CallerError("cursor: it belongs to another question; go on with the arguments it came from")
    return place


def _packet(packet_id: UUID, content: bytes, kept_hash: bytes, where: str) -> PacketEnvelope:
    try:
        return PacketEnvelope.from_json(whole(packet_id, content, kept_hash, where))
    except EnvelopeError as error:
        raise _damaged(packet_id, where, error.message) from error


def whole(packet_id: UUID, content: bytes, kept_hash: bytes, where: str) -> bytes:
    """``content``; raises StoreCorrupt where it is not what was written."""
    if content_hash(content) != kept_hash:
        raise _damaged(packet_id, where, "its content does not fit its hash")
    return content


def _damaged(packet_id: UUID, where: str, why: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"the store {where}: packet {packet_id} is damaged ({why}); go back to a copy",
        where=where,
        packet_id=packet_id,
    )


def in_chunks(connection: Connection, statement: Select[Any], values: Iterable[Any]) -> Iterator[Any]:
    """The rows of ``statement``, which asks for ``among``, for all of ``values``, however many these are."""
    each = iter(values)
    while some := list(islice(each, IDS_AT_ONCE)):
        yield from connection.execute(statement, {"some": some})


def among(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether ``column`` is one of the values that ``in_chunks`` is given."""
    return column.in_(bindparam("some", expanding=True))


# Built once: to build a statement costs more than to ask it.
_c = packet_store.c
_CONTENTS = select(_c.packet_id, _c.content, _c.content_hash).where(among(_c.packet_id))


def contents(connection: Connection, ids: Collection[UUID], where: str) -> dict[UUID, bytes]:
    """The canonical bytes of those of ``ids`` that are kept, expired or not."""
    rows = in_chunks(connection, _CONTENTS, ids)
    return {each: whole(each, content, hashed, where) for each, content, hashed in rows}


def packets_of(connection: Connection, ids: Collection[UUID], where: str) -> dict[UUID, PacketEnvelope]:
    """Those of ``ids`` that are kept, expired or not."""
    rows = in_chunks(connection, _CONTENTS, ids)
    return {each: _packet(each, content, hashed, where) for each, content, hashed in rows}


def journals_there(connection: Connection) -> str:
    """The journals that were begun, as messages name them; the first of many."""
    names = connection.execute(select(epochs.c.journal).distinct().limit(NAMED_MAX)).scalars()
    return ", ".join(sorted(map(quoted, names))) or "none"


def records(connection: Connection, journal: str, after: int, limit: int) -> list[JournalRow]:
    """Rows of a journal in order; see ``PacketStore.records``."""
    c = packet_store.c
    statement = select(*(c[name] for name in JournalRow._fields))
    statement = statement.where(c.journal == journal, c.position > after).order_by(c.position).limit(limit)
    return [JournalRow(*row) for row in connection.execute(statement)]
