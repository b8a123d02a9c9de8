"""The search index of SQLite: finds packets by type, thread, tag, parent or time. PostgreSQL has indexes for that.

The words of a packet are entered in batches after it was written. Packets that are not entered yet are scanned.
Indexes on the table itself made each commit write all over the file, and delayed decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Text, cast, exists, func, literal_column, or_, select, text
from sqlalchemy.exc import DatabaseError

from council.journal.schema import packet_store, packet_words, words_entered
from council.protocol.values import quoted

# A search scans fewer packets than this, about two thousand bytes each. Entering them takes about ten milliseconds.
ENTER_AT = 1_000
# Few enough to be compared within SQLite's cache, and to end soon.
COMPARED_AT_ONCE = 1_000
TIME = "time"
_c = packet_store.c
UNENTERED: ColumnElement[bool] = _c.sequence > select(words_entered.c.upto).scalar_subquery()

# The words of a packet. An id, a type and a tag may have the same letters, so the first word names the kind.
# Migration 0003 wrote this into each store as a trigger, which may have been replaced since: it must not change.
WORDS = """
    SELECT 'time' AS word, "timestamp" AS moment, sequence AS packet FROM packet_store WHERE {which}
    {union} SELECT 'type ' || packet_type, "timestamp", sequence FROM packet_store WHERE {which}
    {union} SELECT 'thread ' || thread_id, "timestamp", sequence FROM packet_store
        WHERE {which} AND thread_id IS NOT NULL
    {union} SELECT 'tag ' || value, "timestamp", sequence FROM packet_store, json_each(tags) WHERE {which}
    {union} SELECT 'parent ' || value, "timestamp", sequence FROM packet_store, json_each(parent_ids) WHERE {which}
"""
# The key of the table; a view of the same name has none.
_KEY = text("SELECT name, pk > 0 FROM pragma_table_info('packet_words') ORDER BY name")
_MARK = text("""
    SELECT upto FROM words_entered
    WHERE typeof(upto) = 'integer' AND upto <= (SELECT coalesce(max(sequence), 0) FROM packet_store)
""")
_NEXT = text("""
    SELECT max(sequence) FROM (
        SELECT sequence FROM packet_store WHERE sequence > :after AND sequence <= :upto ORDER BY sequence LIMIT :count
    )
""")
_COMPARED = f"""
    FROM ({WORDS.format(union="UNION", which="sequence > :after AND sequence <= :last")}) AS own
    LEFT JOIN packet_words AS there
        ON there.word = own.word AND there.moment = own.moment AND there.packet = own.packet
"""
# How many words these packets have, and the first packet that is not entered under one of them.
_COUNTS = text(f"SELECT count(*), min(CASE WHEN there.word IS NULL THEN own.packet END) {_COMPARED}")
_FOREIGN = text(f"""
    SELECT min(packet) FROM packet_words AS there WHERE NOT EXISTS (
        SELECT 1 FROM ({WORDS.format(union="UNION ALL", which="sequence = there.packet")}) AS own
        WHERE own.word = there.word AND own.moment = there.moment AND own.packet BETWEEN 1 AND :upto
    )
""")


def enter(connection: Connection) -> None:
    """Enters all packets that are not entered yet, by a trigger. Does nothing on PostgreSQL."""
    if connection.dialect.name == "sqlite":
        newest = "(SELECT coalesce(max(sequence), 0) FROM packet_store)"
        connection.exec_driver_sql(f"UPDATE words_entered SET upto = {newest} WHERE upto < {newest}")


def index_word(kind: str, value: object) -> str:
    """The word under which a packet with this ``type``, ``thread``, ``tag`` or ``parent`` is entered."""
    return f"{kind} {value}"


def holds(column: ColumnElement[Any], some: Any) -> ColumnElement[bool]:
    """The condition that the list in ``column``, of tags or parents, has one of ``some``."""
    each = func.json_each(column, type_=Text).table_valued("value")
    return exists(select(literal_column("1")).select_from(each).where(each.c.value.in_(some)))


def under(some: Sequence[str], unentered: ColumnElement[bool]) -> ColumnElement[bool]:
    """The condition that a packet is entered under one of these words or, if not entered yet, fits ``unentered``."""
    entered = select(packet_words.c.packet).where(packet_words.c.word.in_(some))
    fresh = select(_c.sequence).where(UNENTERED, unentered)
    return or_(_c.sequence.in_(entered), _c.sequence.in_(fresh))


def misleading(connection: Connection) -> str | None:
    """A difference between the entered words and the packets themselves; None if there is none.

    Packets that are not entered yet have no words, and are found by a scan.
    """
    key = connection.execute(_KEY).all()
    if key and key != [("moment", 1), ("packet", 1), ("word", 1)]:
        return "packet_words is not the table that it was made as"
    upto = connection.execute(_MARK).scalar()
    if upto is None:
        return "the mark of how far packets are entered is missing, or lies beyond the newest: newer ones are hidden"
    after = entered = 0
    asked = {"upto": upto, "count": COMPARED_AT_ONCE}
    while last := connection.execute(_NEXT, asked | {"after": after}).scalar():
        try:
            due, missing = connection.execute(_COUNTS, {"after": after, "last": last}).one()
        except DatabaseError as error:
            if "malformed JSON" not in str(error.orig):
                raise
            return f"the words of a packet in rows {after + 1} to {last} can't be read: {error.orig}"
        if missing is not None:
            return f"{_place(connection, missing)} is not entered under each of its words: it is hidden there"
        after, entered = last, entered + due
    # Every word that must exist does. If the number is equal too, there are no others.
    if connection.execute(select(func.count()).select_from(packet_words)).scalar_one() == entered:
        return None
    foreign = connection.execute(_FOREIGN, {"upto": upto}).scalar_one()
    return f"{_place(connection, foreign)} is entered under a word that is not its own"


def _place(connection: Connection, packet: int) -> str:
    found = select(_c.journal, _c.position, cast(_c.packet_id, Text).label("packet_id")).where(
        _c.sequence == packet
    )
    row = connection.execute(found).one_or_none()
    if row is None:
        return f"a packet that is not there, number {packet},"
    if row.journal is None:
        return f"packet {row.packet_id}"
    return f"record {row.position} of journal {quoted(row.journal)}, packet {row.packet_id},"
