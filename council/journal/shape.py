"""Checks packets fast: whether their bytes are canonical, and whether the columns beside them agree.

It repeats what ``protocol/packet.py`` knows, because building each of a million packets would take minutes. Bytes
that it accepts are canonical there too; bytes that it does not accept are checked there. Limits on sizes, which were
checked when a packet was written, are not checked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from council.journal.schema import moment_text
from council.protocol.errors import EnvelopeError
from council.protocol.packet import PacketEnvelope
from council.protocol.values import read_json

Id = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")]
Word = Annotated[str, msgspec.Meta(min_length=1)]


class _Part(msgspec.Struct, omit_defaults=True, gc=False):
    """What is left at its default is left out, as in the canonical bytes."""


class _Metadata(_Part):
    schema_version: Word
    reasoning_mode: Word | None = None
    agent: Word | None = None
    domain: Word | None = None


class _Provenance(_Part):
    parent_packet: Id | None = None
    source: Word | None = None
    tool: Word | None = None


class _Confidence(_Part):
    score: Any  # an integer would be read as a number, and written as one
    rationale: str | None = None


class Lineage(_Part):
    parent_ids: tuple[Id, ...] = ()
    derivation_type: Literal["split", "merge", "transform", "inference"] | None = None
    generation: int | None = None
    root_packet_id: Id | None = None


class Shape(_Part):
    """A kept packet, as far as it is verified; a ``reasoning_block`` is left to ``PacketEnvelope``."""

    packet_id: Id
    packet_type: Word
    timestamp: datetime
    payload: dict[str, Any]
    metadata: _Metadata | None = None
    provenance: _Provenance | None = None
    confidence: _Confidence | None = None
    reasoning_block: dict[str, Any] | None = None
    thread_id: Id | None = None
    lineage: Lineage | None = None
    tags: tuple[Word, ...] = ()
    ttl: datetime | None = None


def _number(digits: str) -> float:
    number = float(digits)
    if repr(number) != digits or digits == "-0.0":
        raise ValueError(digits)  # written otherwise than Python does
    return number


_decode = msgspec.json.Decoder(Shape, float_hook=_number).decode
_encode = msgspec.json.Encoder(order="sorted").encode
_json = msgspec.json.decode


def shape_of(content: bytes) -> Shape:
    """The packet whose canonical bytes these are. Raises EnvelopeError where they are none."""
    try:
        shape = _decode(content)
        if (
            shape.reasoning_block is None
            and (shape.confidence is None or type(shape.confidence.score) is float)
            and _encode(shape) == content
        ):
            return shape
    except (ValueError, RecursionError):
        pass  # what this can't read the packet itself may, and says what is wrong where it can't either
    packet = PacketEnvelope.from_json(content)
    if packet.canonical() != content:
        raise EnvelopeError("packet: not in its canonical form", field="packet")
    return msgspec.json.decode(content, type=Shape)


def wrong_column(shape: Shape, columns: Sequence[Any]) -> str | None:
    """The first of a row's columns that does not say what the packet says, or None.

    They are packet_id, packet_type, timestamp, thread_id, ttl, parent_ids, tags, routing and provenance, each
    as SQLite keeps it.
    """
    packet_id, packet_type, timestamp, thread_id, ttl, parent_ids, tags, routing, provenance = columns
    if packet_id != shape.packet_id:
        return "packet_id"
    if packet_type != shape.packet_type:
        return "packet_type"
    if timestamp != moment_text(shape.timestamp):
        return "timestamp"
    if thread_id != shape.thread_id:
        return "thread_id"
    if ttl != (shape.ttl and moment_text(shape.ttl)):
        return "ttl"
    parents = shape.lineage.parent_ids if shape.lineage else ()
    if (parents or parent_ids != "[]") and not _says(parent_ids, list(parents)):
        return "parent_ids"
    if (shape.tags or tags != "[]") and not _says(tags, list(shape.tags)):
        return "tags"
    meta = shape.metadata
    wanted = {} if meta is None else {"agent": meta.agent, "domain": meta.domain}
    if _object(routing) != {name: value for name, value in wanted.items() if value is not None}:
        return "routing"
    if _object(provenance) != (shape.provenance and msgspec.to_builtins(shape.provenance)):
        return "provenance"
    return None


def _says(text: Any, wanted: list[str]) -> bool:
    try:
        return bool(_json(text) == wanted)
    except (TypeError, ValueError, RecursionError):
        return False


@lru_cache(maxsize=1_000)  # the routing of a council's packets is one of few
def _object(text: Any) -> Any:
    """What a column's JSON text says; itself where it says nothing, or a key twice, which is read in two ways."""
    if text is None:
        return None
    try:
        return read_json(text, field="column")
    except (TypeError, EnvelopeError):
        return text


def same_object(text: Any, content: bytes) -> bool:
    """Whether JSON that a database wrote in its own way is what ``content``, canonical bytes, says."""
    try:
        found = _json(text)
        return _encode(found) == content or _same(found, _json(content))
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
    # A database may write 1e+20 as a whole number; but true is no number.
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
