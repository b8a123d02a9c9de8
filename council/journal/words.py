"""Finds packets in SQLite by type, thread, tag, parent or time: what PostgreSQL has its indexes for.

A packet is entered under its words after it was written, many at once; those that are not entered yet are looked
through. Indexes of the table itself had each commit write all over the file, and a decision wait for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Text, exists, func, literal_column, or_, select

from council.journal.schema import packet_store, packet_words, words_entered

# A search looks through fewer than these, some two thousand bytes each; to enter them takes some ten milliseconds.
ENTER_AT = 1_000
TIME = "time"
_c = packet_store.c
UNENTERED: ColumnElement[bool] = _c.sequence > select(words_entered.c.upto).scalar_subquery()


def enter(connection: Connection) -> None:
    """Enters all that is kept and is not entered yet; a trigger does it. In PostgreSQL there is nothing to do."""
    if connection.dialect.name == "sqlite":
        newest = "(SELECT coalesce(max(sequence), 0) FROM packet_store)"
        connection.exec_driver_sql(f"UPDATE words_entered SET upto = {newest} WHERE upto < {newest}")


def word(kind: str, value: object) -> str:
    """Under what a packet with this ``type``, ``thread``, ``tag`` or ``parent`` is entered."""
    return f"{kind} {value}"


def holds(column: ColumnElement[Any], some: Any) -> ColumnElement[bool]:
    """Whether the list in ``column``, of tags or parents, has one of ``some``."""
    each = func.json_each(column, type_=Text).table_valued("value")
    return exists(select(literal_column("1")).select_from(each).where(each.c.value.in_(some)))


def under(some: Sequence[str], unentered: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a packet is entered under one of these words or, where it is not entered yet, ``unentered`` holds."""
    entered = select(packet_words.c.packet).where(packet_words.c.word.in_(some))
    fresh = select(_c.sequence).where(UNENTERED, unentered)
    return or_(_c.sequence.in_(entered), _c.sequence.in_(fresh))
