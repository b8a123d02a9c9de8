"""The tables of the store and their columns, for queries.

``packet_store`` has the columns of the PacketEnvelope document, the canonical ``content`` with its hash, and for the
council's own packets their place in a journal. ``migrations`` creates the tables, with SQL for each engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, Column, Computed, LargeBinary, MetaData, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from council.protocol.values import quoted, text_problem

# The migrations in order; a test compares them with the files. This code works with the last one.
REVISIONS = ("0001", "0002", "0003")
NAME_CHARS_MAX = 200
VERSION_TABLE = "council_version"
# A mark in the header of an SQLite file, by which it is recognised as ours.
APPLICATION_ID = int.from_bytes(b"CNCL", "big")


def name_fits(text: object) -> bool:
    """Whether this is a valid name of a journal or of its writer."""
    return isinstance(text, str) and 0 < len(text) <= NAME_CHARS_MAX and text_problem(text) is None


def moment_text(moment: datetime) -> str:
    """A time in SQLite's form. It has a fixed width, so that the order of texts is the order of time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


class Unreadable(ValueError):
    """A column holds an invalid value."""


class _Bytes(LargeBinary):
    """Bytes as they are stored. SQLAlchemy would convert other values to bytes."""

    def result_processor(self, dialect: Dialect, coltype: object) -> None:
        return None


class _AsText(TypeDecorator[Any]):
    """A type that PostgreSQL has and SQLite stores as text."""

    impl = Text
    cache_ok = True

    def __init__(
        self, name: str, native: TypeEngine[Any], write: Callable[[Any], Any], read: Callable[[str], Any]
    ) -> None:
        super().__init__()
        self.name = name
        self.native = native
        self.write = write
        self.read = read

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else self.native)

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return value if value is None or dialect.name != "sqlite" else self.write(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        if value is None or dialect.name != "sqlite":
            return value
        try:
            return self.read(value)
        except (AttributeError, OverflowError, RecursionError, TypeError, ValueError):
            raise Unreadable(f"{quoted(str(value))} stands where a {self.name} should") from None


def _moment(text: str) -> datetime:
    """The time of a text in the form of ``moment_text``; another form is refused, because it sorts differently."""
    moment = datetime.fromisoformat(text)
    if moment_text(moment) != text:
        raise ValueError(text)
    return moment


class Lapse(_AsText):
    """The document's TIMESTAMP without a zone. Here it is UTC, whatever the session's zone."""

    cache_ok = True

    def __init__(self) -> None:
        super().__init__("time", TIMESTAMP(), moment_text, _moment)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is not None and dialect.name != "sqlite":
            return value.astimezone(UTC).replace(tzinfo=None)
        return super().process_bind_param(value, dialect)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        if value is not None and dialect.name != "sqlite":
            return value.replace(tzinfo=UTC)
        return super().process_result_value(value, dialect)


def words_text(words: Sequence[str]) -> str:
    """Texts in SQLite's form, which its triggers read."""
    return json.dumps(words, ensure_ascii=False) if words else "[]"


def ids_text(ids: Sequence[UUID | str]) -> str:
    """Ids in SQLite's form."""
    return '["' + '", "'.join(map(str, ids)) + '"]' if ids else "[]"


ID = _AsText("packet's id", Uuid(), str, UUID)
IDS = _AsText("list of ids", ARRAY(Uuid()), ids_text, lambda text: [UUID(each) for each in json.loads(text)])
WORDS = _AsText("list of texts", ARRAY(Text()), words_text, json.loads)
MOMENT = _AsText("time", TIMESTAMP(timezone=True), moment_text, _moment)
LAPSE = Lapse()
OBJECT = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

metadata = MetaData()

packet_store = Table(
    "packet_store",
    metadata,
    Column("packet_id", ID, primary_key=True),
    Column("packet_type", Text, nullable=False),
    # The database computes it from the content, so that the two never differ.
    Column("envelope", OBJECT, Computed("content")),
    Column("timestamp", MOMENT, nullable=False),
    Column("routing", OBJECT),
    Column("provenance", OBJECT),
    Column("thread_id", ID),
    Column("parent_ids", IDS, nullable=False),
    Column("tags", WORDS, nullable=False),
    Column("ttl", LAPSE),
    # It grows with every row, so a packet comes after its parents and before its children.
    Column("sequence", BigInteger, nullable=False, server_default=""),
    Column("content", _Bytes, nullable=False),
    Column("content_hash", _Bytes, nullable=False),
    Column("journal", Text),
    Column("position", BigInteger),
    Column("epoch", BigInteger),
    Column("previous_hash", _Bytes),
    Column("row_hash", _Bytes),
)

epochs = Table(
    "epochs",
    metadata,
    Column("journal", Text, primary_key=True),
    Column("epoch", BigInteger, primary_key=True),
    Column("begun_at", MOMENT, nullable=False),
    Column("by", Text, nullable=False),
)

# Records that a start need not replay, and decisions that have left memory. They may be removed while no coordinator
# runs.
snapshots = Table(
    "snapshots",
    metadata,
    Column("journal", Text, primary_key=True),
    Column("position", BigInteger, primary_key=True),
    Column("part", Text, primary_key=True),
    Column("content", _Bytes, nullable=False),
)

# For SQLite only. PostgreSQL has indexes instead (``search_words``).
sqlite_metadata = MetaData()
packet_words = Table(
    "packet_words",
    sqlite_metadata,
    Column("word", Text, primary_key=True),
    Column("moment", MOMENT, primary_key=True),
    Column("packet", BigInteger, primary_key=True),
)
words_entered = Table(
    "words_entered",
    sqlite_metadata,
    Column("one", BigInteger, primary_key=True),
    Column("upto", BigInteger, nullable=False),
)
