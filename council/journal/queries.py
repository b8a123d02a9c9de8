"""Reads packets and journal rows.

The hash of each is checked: a packet that was changed in the database is an error.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    BindParameter,
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

from council.journal import search_words
from council.journal.chain import JournalRow, content_hash
from council.journal.schema import epochs, name_fits, packet_store, packet_words
from council.protocol.errors import CallerError, EnvelopeError, StoreCorrupt
from council.protocol.packet import PacketEnvelope
from council.protocol.values import quoted

PAGE_MAX = 1_000
IDS_AT_ONCE = 500  # in one statement: databases limit the variables
_CURSOR_CHARS_MAX = 200
NAMED_MAX = 10
_c = packet_store.c
SOME: BindParameter[Any] = bindparam("some", expanding=True)  # the values that ``in_chunks`` is given
_COLUMNS = (_c.packet_id, _c.content, _c.content_hash, _c.timestamp, _c.sequence)


class Page(NamedTuple):
    """Some packets, and the ``cursor`` of the next page; None after the last page."""

    packets: tuple[PacketEnvelope, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class PacketQuery:
    """The arguments of ``find``. A cursor belongs to one query."""

    thread_id: UUID | None
    packet_type: str | None
    tags_any: tuple[str, ...]
    tags_all: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    newest_first: bool
    expired: bool

    def mark(self) -> str:
        """A hash that tells it from other queries."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]


def aware(name: str, moment: datetime) -> datetime:
    """``moment`` in UTC. Raises CallerError if it has no UTC offset, or is outside of the years of datetime."""
    if moment.utcoffset() is None:
        raise CallerError(f"{name}: {moment.isoformat()} has no offset from UTC; give an aware time")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise CallerError(f"{name}: {moment.isoformat()} lies outside the years 1 to 9999 in UTC") from None


def find(
    connection: Connection, question: PacketQuery, now: datetime, limit: int, cursor: str | None, where: str
) -> Page:
    """One page; see ``PacketStore.find``."""
    now = aware("now", now)
    place = None if cursor is None else _read_cursor(cursor, question)
    if connection.dialect.name == "sqlite":
        rows = _found_by_words(connection, question, now, place, limit + 1)
    else:
        asked = select(*_COLUMNS).where(*_conditions(question, now, sqlite=False))
        rows = list(connection.execute(_first(asked, question, place, limit + 1, _c.timestamp, _c.sequence)))
    more = len(rows) > limit
    rows = rows[:limit]
    packets = tuple(_packet(row.packet_id, row.content, row.content_hash, where) for row in rows)
    return Page(packets, _write_cursor(rows[-1].timestamp, rows[-1].sequence, question) if more else None)


def _found_by_words(
    connection: Connection,
    question: PacketQuery,
    now: datetime,
    place: tuple[datetime, int] | None,
    count: int,
) -> list[Any]:
    """The first matches among the packets under a query's words, and among those that are not entered yet."""
    conditions = list(_conditions(question, now, sqlite=True))
    moment, packet = packet_words.c.moment, packet_words.c.packet
    entered = select(moment, packet).join_from(packet_words, packet_store, packet == _c.sequence)
    asked = [(entered.where(packet_words.c.word == each), moment, packet) for each in _words(question)]
    fresh = select(_c.timestamp, _c.sequence).where(search_words.UNENTERED)
    asked.append((fresh, _c.timestamp, _c.sequence))
    places: set[tuple[datetime, int]] = set()  # places only, because a packet may hold a megabyte
    for statement, *order in asked:
        first = _first(statement.where(*conditions), question, place, count, *order)
        places.update((row[0], row[1]) for row in connection.execute(first))
    ordered = [each for _, each in sorted(places, reverse=question.newest_first)[:count]]
    rows = {row.sequence: row for row in in_chunks(connection, _BY_SEQUENCE, ordered)}
    return [rows[each] for each in ordered]


def _words(question: PacketQuery) -> list[str]:
    """Words of the query. Every match is entered under one of them; there may be other words with fewer packets."""
    if question.thread_id is not None:
        return [search_words.index_word("thread", question.thread_id)]
    if question.tags_all or question.tags_any:
        return [search_words.index_word("tag", tag) for tag in question.tags_all[:1] or question.tags_any]
    return [
        search_words.TIME
        if question.packet_type is None
        else search_words.index_word("type", question.packet_type)
    ]


def _first(
    asked: Select[Any],
    question: PacketQuery,
    place: tuple[datetime, int] | None,
    count: int,
    moment: ColumnElement[Any],
    packet: ColumnElement[Any],
) -> Select[Any]:
    """Those of ``asked`` after ``place``, in the order of these columns, which has an index."""
    if question.since is not None:
        asked = asked.where(moment >= aware("since", question.since))
    if question.until is not None:
        asked = asked.where(moment < aware("until", question.until))
    if place is not None:
        bound = tuple_(literal(place[0], _c.timestamp.type), literal(place[1], _c.sequence.type))
        at = tuple_(moment, packet)
        asked = asked.where(at < bound if question.newest_first else at > bound)
    order = (moment.desc(), packet.desc()) if question.newest_first else (moment, packet)
    return asked.order_by(*order).limit(count)


def _conditions(question: PacketQuery, now: datetime, *, sqlite: bool) -> Iterator[ColumnElement[bool]]:
    if question.thread_id is not None:
        yield _c.thread_id == question.thread_id
    if question.packet_type is not None:
        yield _c.packet_type == question.packet_type
    if not question.expired:
        yield or_(_c.ttl.is_(None), _c.ttl > now)
    if sqlite:
        if question.tags_any:
            yield search_words.holds(_c.tags, question.tags_any)
        for tag in question.tags_all:
            yield search_words.holds(_c.tags, [tag])
    else:
        tags = type_coerce(_c.tags, ARRAY(Text()))
        if question.tags_any:
            yield tags.overlap(list(question.tags_any))
        if question.tags_all:
            yield tags.contains(list(question.tags_all))


def _write_cursor(moment: datetime, sequence: int, question: PacketQuery) -> str:
    place = json.dumps([question.mark(), moment.isoformat(), sequence], separators=(",", ":"))
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def _read_cursor(cursor: str, question: PacketQuery) -> tuple[datetime, int]:
    try:
        if len(cursor) > _CURSOR_CHARS_MAX:
            raise ValueError(cursor)
        mark, moment, sequence = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        place = aware("cursor", datetime.fromisoformat(moment)), int(sequence)
        if not 0 < place[1] < 2**63:
            raise ValueError(sequence)
    except (ValueError, TypeError, OverflowError, RecursionError, CallerError):
        raise CallerError(
            "cursor: this is no cursor; pass the cursor of the previous page unchanged"
        ) from None
    if mark != question.mark():
        raise CallerError("cursor: it belongs to another question; go on with the arguments it came from")
    return place


def _packet(packet_id: UUID, content: bytes, kept_hash: bytes, where: str) -> PacketEnvelope:
    try:
        return PacketEnvelope.from_json(whole(packet_id, content, kept_hash, where))
    except EnvelopeError as error:
        raise damaged(packet_id, where, error.message) from error


def whole(packet_id: object, content: bytes, kept_hash: bytes, where: str) -> bytes:
    """``content``. Raises StoreCorrupt if it does not fit its hash."""
    if type(content) is not bytes or content_hash(content) != kept_hash:
        raise damaged(packet_id, where, "its content does not fit its hash")
    return content


def damaged(packet_id: object, where: str, why: str) -> StoreCorrupt:
    """The error for a packet that is not what was written."""
    named = quoted(str(packet_id)).strip("'")
    return StoreCorrupt(
        f"the store {where}: packet {named} is damaged ({why}); go back to a copy",
        where=where,
        packet_id=packet_id,
    )


def in_chunks(connection: Connection, statement: Select[Any], values: Iterable[Any]) -> Iterator[Any]:
    """The rows of ``statement``, which uses ``among``, for any number of ``values``."""
    each = iter(values)
    while some := list(islice(each, IDS_AT_ONCE)):
        yield from connection.execute(statement, {"some": some})


def among(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """The condition that ``column`` is one of the values of ``in_chunks``."""
    return column.in_(SOME)


# Built once: building a statement costs more than running it.
_CONTENTS = select(_c.packet_id, _c.content, _c.content_hash).where(among(_c.packet_id))
_BY_SEQUENCE = select(*_COLUMNS).where(among(_c.sequence))


def contents(connection: Connection, ids: Collection[UUID], where: str) -> dict[UUID, bytes]:
    """The canonical bytes of those of ``ids`` that are kept, expired or not."""
    rows = in_chunks(connection, _CONTENTS, ids)
    return {each: whole(each, content, hashed, where) for each, content, hashed in rows}


def packets_of(connection: Connection, ids: Collection[UUID], where: str) -> dict[UUID, PacketEnvelope]:
    """Those of ``ids`` that are kept, expired or not."""
    rows = in_chunks(connection, _CONTENTS, ids)
    return {each: _packet(each, content, hashed, where) for each, content, hashed in rows}


def journals_there(connection: Connection) -> str:
    """The names of the existing journals, for messages; only the first of many."""
    names = connection.execute(select(epochs.c.journal).distinct().limit(NAMED_MAX)).scalars()
    return ", ".join(sorted(map(quoted, names))) or "none"


def begun(connection: Connection, where: str, journal: str | None = None) -> Iterator[dict[str, Any]]:
    """The epochs of a journal, or of all, in order. Raises StoreCorrupt at the first that is invalid."""
    statement = select(epochs).order_by(epochs.c.journal, epochs.c.epoch)
    for row in connection.execute(statement if journal is None else statement.filter_by(journal=journal)):
        found = row._asdict()
        if found["begun_at"] is None or not epoch_fits(found):
            named = f"epoch {quoted(str(row.epoch))} of journal {quoted(str(row.journal))}"
            raise StoreCorrupt(
                f"the store {where}: when {named} was begun, or by whom, can't be read; go back to a copy",
                where=where,
            )
        yield found


def epoch_fits(found: Mapping[str, Any]) -> bool:
    """Whether these are the columns of an epoch. Its time is checked when it is read."""
    return (
        found.keys() == {"journal", "epoch", "begun_at", "by"}
        and (type(found["epoch"]) is int and 0 < found["epoch"] < 2**63)
        and name_fits(found["journal"])
        and name_fits(found["by"])
    )


def records(connection: Connection, journal: str, after: int, limit: int) -> list[JournalRow]:
    """Rows of a journal in order; see ``PacketStore.records``."""
    c = packet_store.c
    statement = select(*(c[name] for name in JournalRow._fields))
    statement = statement.where(c.journal == journal, c.position > after).order_by(c.position).limit(limit)
    return [JournalRow(*row) for row in connection.execute(statement)]
