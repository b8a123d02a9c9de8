"""PacketEnvelope 1.1.0, the form in which everything is kept: shapes, lineage and the canonical bytes.

This module uses no store and no clock, and makes no ids: the caller passes the time, the id, and the parents. A
packet is frozen all the way down. Equal packets have equal bytes and so one hash, in every process.

Users' packets are ``PacketEnvelope``, which checks each field and names it in errors. The journal writes and verifies
millions of ``StoredPacket``: the same fields, read and written by msgspec.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Generic, Literal, Self, TypeVar
from uuid import UUID

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from council.protocol.errors import EnvelopeError, EnvelopeTooLarge
from council.protocol.models import (
    AS_PLAIN,
    AS_TUPLE,
    Confidence,
    JsonObject,
    Length,
    Model,
    Timestamp,
    json_object,
    read_timestamp,
    refusal,
    time_text,
)
from council.protocol.values import FrozenDict, freeze, items_of, kind_of, quoted, read_object

SCHEMA_VERSION = "1.1.0"
# A packet may hold an envelope of the largest size as JSON, in which a byte may take six.
PACKET_BYTES_MAX = 8 * 2**20
# A record that ended thousands of proposals at once names each of them.
PAYLOAD_ITEMS_MAX = 250_000
# A packet has few parents, from which it follows. More would be a merge of a whole thread.
PARENTS_MAX = 1_000
GENERATION_MAX = 2**31 - 1
TAGS_MAX = 100
WORD_CHARS_MAX = 200
TEXT_CHARS_MAX = 100_000
STEPS_MAX = 2_000


def _uuid(value: object) -> object:
    """Accepts a UUID also as its canonical text. Another form would be a second name for the same packet."""
    if isinstance(value, str):
        try:
            found = UUID(value)
        except ValueError:
            found = None
        if found is None or str(found) != value.lower():
            raise PydanticCustomError("uuid", "must be a UUID, like a1b2c3d4-e5f6-7890-abcd-ef1234567890")
        return found
    return value


def _moment(value: object) -> object:
    if isinstance(value, str):
        try:
            return read_timestamp(value)
        except EnvelopeError as error:
            raise refusal(error.message.removeprefix("timestamp: ")) from None
    return value


def _numbers(scores: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, score in scores.items():
        if isinstance(score, bool) or not isinstance(score, (int, float)):
            raise refusal(f"must be a number, found {kind_of(score)}", name)
    return scores


Id = Annotated[UUID, BeforeValidator(_uuid)]
Moment = Annotated[Timestamp, BeforeValidator(_moment)]
Word = Annotated[str, Length(WORD_CHARS_MAX, 1)]
Text = Annotated[str, Length(TEXT_CHARS_MAX)]
Payload = Annotated[Mapping[str, Any], json_object(PAYLOAD_ITEMS_MAX, PACKET_BYTES_MAX), AS_PLAIN]
Scores = Annotated[JsonObject, AfterValidator(_numbers)]
ParentIds = Annotated[tuple[Id, ...], Field(max_length=PARENTS_MAX), AS_TUPLE]
Words = Annotated[tuple[Word, ...], Field(max_length=TAGS_MAX), AS_TUPLE]
Texts = Annotated[tuple[Text, ...], Field(max_length=STEPS_MAX), AS_TUPLE]
Objects = Annotated[tuple[JsonObject, ...], Field(max_length=STEPS_MAX), AS_TUPLE]
DerivationType = Literal["split", "merge", "transform", "inference"]


class PacketMetadata(Model):
    """The kind of a packet, and its owner."""

    schema_version: Word = SCHEMA_VERSION
    reasoning_mode: Word | None = None
    agent: Word | None = None
    domain: Word | None = None


class PacketProvenance(Model):
    """The source of a packet."""

    parent_packet: Id | None = None
    source: Word | None = None
    tool: Word | None = None


class PacketConfidence(Model):
    """The writer's confidence, 0 to 1, and its reason."""

    score: Confidence
    rationale: Text | None = None


class PacketLineage(Model):
    """The derivation of a packet. ``generation`` and ``root_packet_id`` are completed on writing (rules 4.3)."""

    parent_ids: ParentIds = ()
    derivation_type: DerivationType | None = None
    generation: Annotated[int, Field(ge=0, le=GENERATION_MAX)] | None = None
    root_packet_id: Id | None = None


class StructuredReasoningBlock(Model):
    """The reasoning that led to a packet, kept inside it (rules 4.8)."""

    block_id: Id
    packet_id: Id
    extracted_features: JsonObject
    inference_steps: Objects = ()
    reasoning_tokens: Texts = ()
    decision_tokens: Texts = ()
    confidence_scores: Scores
    memory_write_ops: Objects = ()
    timestamp: Moment


class _Packet(Model):
    """The fields that given and kept packets share."""

    packet_type: Word
    payload: Payload
    metadata: PacketMetadata | None = None
    provenance: PacketProvenance | None = None
    confidence: PacketConfidence | None = None
    reasoning_block: StructuredReasoningBlock | None = None
    thread_id: Id | None = None
    lineage: PacketLineage | None = None
    tags: Words = ()
    ttl: Moment | None = None

    @classmethod
    def build(cls, /, **fields: Any) -> Self:
        """A packet of these fields. Raises EnvelopeError (EnvelopeTooLarge) that names the ``field``."""
        return cls.checked(fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """A packet in the document's form. Raises EnvelopeError, EnvelopeTooLarge."""
        # Each of its objects has a limit. Together they may hold as much as fits into its bytes.
        return cls.checked(
            read_object(text, field="packet", bytes_max=PACKET_BYTES_MAX, commas_max=PACKET_BYTES_MAX)
        )

    def canonical(self) -> bytes:
        """The bytes that are stored and hashed (rules 4.5): JSON in UTF-8, keys in order, no spaces.

        Fields that were not given are left out.
        """
        data = canonical_json(self).encode()
        if len(data) > PACKET_BYTES_MAX:
            problem = f"{len(data):,} bytes; at most {PACKET_BYTES_MAX:,} are kept"
            raise EnvelopeTooLarge.at("packet", problem, limit=PACKET_BYTES_MAX, found=len(data))
        return data


class PacketEnvelopeIn(_Packet):
    """A packet as its writer gives it. Only ``packet_type`` and ``payload`` are required (rules 4.2)."""

    packet_id: Id | None = None
    timestamp: Moment | None = None

    def completed(
        self,
        packet_id: UUID,
        timestamp: datetime,
        parents: Mapping[UUID, PacketLineage | None] = MappingProxyType({}),
    ) -> PacketEnvelope:
        """The packet as it is kept: ``packet_id`` and ``timestamp`` are filled in if missing, and the lineage.

        ``parents`` maps the ids in ``lineage.parent_ids`` to the lineages of kept packets. Raises EnvelopeError for a
        parent that is missing there, and for a lineage that contradicts theirs.
        """
        own_id = self.packet_id or packet_id
        fields = {name: getattr(self, name) for name in _Packet.model_fields}
        fields["lineage"] = completed_lineage(self.lineage, own_id, parents)
        return PacketEnvelope.build(**fields, packet_id=own_id, timestamp=self.timestamp or timestamp)


class PacketEnvelope(_Packet):
    """A packet as it is kept. It never changes."""

    packet_id: Id
    timestamp: Moment

    def expired(self, now: datetime) -> bool:
        """Whether its ``ttl``, a point in time, has passed (rules 4.4)."""
        return self.ttl is not None and self.ttl <= now


class PacketWriteResult(Model):
    """The result of a write: the written tables, or the error."""

    packet_id: Id
    written_tables: Words = ()
    status: Literal["ok", "error"] = "ok"
    error_message: Text | None = None


def completed_lineage(
    given: PacketLineage | None, own_id: UUID, parents: Mapping[UUID, PacketLineage | None]
) -> PacketLineage | None:
    """The lineage as it is kept, from the parents' generations and roots (rules 4.3). ``parents`` are kept packets'.

    Raises EnvelopeError for a parent that is missing there, and for a lineage that contradicts theirs.
    """
    if given is None:
        return None
    wanted = tuple(given.parent_ids)
    if own_id in wanted:
        raise EnvelopeError.at("lineage.parent_ids", "a packet can't be its own parent")
    if len(set(wanted)) != len(wanted):
        raise EnvelopeError.at("lineage.parent_ids", "a parent is listed twice")
    for parent_id in wanted:
        if parent_id not in parents:
            problem = f"{parent_id} is not kept here; a parent is written before its children"
            raise EnvelopeError.at("lineage.parent_ids", problem)
    lineages = [parents[parent_id] for parent_id in wanted]
    generation = 1 + max((of.generation or 0) if of else 0 for of in lineages) if lineages else 0
    if generation > GENERATION_MAX:
        problem = f"one has generation {generation - 1:,}, which is the last"
        raise EnvelopeError.at("lineage.parent_ids", problem)
    root = own_id
    if lineages:
        root = (lineages[0].root_packet_id if lineages[0] else None) or wanted[0]
    for name, expected in (("generation", generation), ("root_packet_id", root)):
        value = getattr(given, name)
        if value not in (None, expected):
            problem = f"{quoted(str(value))} contradicts its parents, which make it {expected}; leave it out"
            raise EnvelopeError.at(f"lineage.{name}", problem)
    return PacketLineage(
        parent_ids=wanted,
        derivation_type=given.derivation_type,
        generation=generation,
        root_packet_id=root,
    )


def _value(value: object) -> Any:
    """A value that JSON does not have, converted one level deep. Unset fields are left out."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, FrozenDict):
        return items_of(value)
    if isinstance(value, datetime):
        return time_text(value)
    assert isinstance(value, Model)
    return {name: inner for name, inner in vars(value).items() if inner is not None and inner != ()}


# For any model or JSON value: keys in order, no spaces. Its result in UTF-8 is hashed.
canonical_json = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=_value
).encode


def args_digest(args: Mapping[str, Any]) -> str:
    """The sha256 of the canonical JSON of an action's arguments, in hex: a token is bound to it (rules 5).

    Raises EnvelopeError for arguments that are not JSON.
    """
    return hashlib.sha256(canonical_json(freeze(args)).encode()).hexdigest()


# Packets by the million


P = TypeVar("P")
_Filled = Annotated[str, msgspec.Meta(min_length=1)]
_ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# A number that msgspec and Python may write in two forms: with an exponent, or as small as 0.00001.
_TWO_FORMS = re.compile(rb"e-?[0-9]{1,3}[,}\]]")
_encode = msgspec.json.Encoder(order="sorted").encode


class _Stored(msgspec.Struct, omit_defaults=True, gc=False):
    """Fields with their default value are left out, as in the canonical bytes."""


class StoredMetadata(_Stored):
    """See PacketMetadata."""

    schema_version: _Filled
    reasoning_mode: _Filled | None = None
    agent: _Filled | None = None
    domain: _Filled | None = None


class StoredLineage(_Stored):
    """See PacketLineage."""

    parent_ids: tuple[str, ...] = ()
    derivation_type: DerivationType | None = None
    generation: int | None = None
    root_packet_id: str | None = None


class StoredPacket(_Stored, Generic[P]):
    """See PacketEnvelope. Ids are texts, as in the bytes. ``payload`` has the decoded type.

    The council's own packets have no provenance, confidence or reasoning block. Those of users are plain JSON here.
    """

    packet_id: str
    packet_type: _Filled
    timestamp: datetime
    payload: P
    metadata: StoredMetadata | None = None
    provenance: dict[str, Any] | None = None
    confidence: dict[str, Any] | None = None
    reasoning_block: dict[str, Any] | None = None
    thread_id: str | None = None
    lineage: StoredLineage | None = None
    tags: tuple[_Filled, ...] = ()
    ttl: datetime | None = None

    def canonical(self) -> bytes:
        """The bytes of ``PacketEnvelope.canonical``. Limits on sizes are not checked."""
        data = _encode(self)
        if b"0.0000" in data or _TWO_FORMS.search(data):
            return canonical_json(json.loads(data)).encode()
        return data

    def _is_checked(self) -> bool:
        """Whether msgspec has checked all of it: its ids are canonical, and no part but the payload is plain JSON."""
        ids = [self.packet_id, self.thread_id]
        if self.lineage is not None:
            ids += (self.lineage.root_packet_id, *self.lineage.parent_ids)
        plain_json = (self.provenance, self.confidence, self.reasoning_block)
        return plain_json == (None, None, None) and all(each is None or _ID.fullmatch(each) for each in ids)


def _number(digits: str) -> float:
    number = float(digits)
    if repr(number) != digits or digits == "-0.0":
        raise ValueError(digits)  # Python writes it in another form
    return number


_decode = msgspec.json.Decoder(StoredPacket[dict[str, Any]], float_hook=_number).decode


def read_packet(content: bytes) -> StoredPacket[dict[str, Any]]:
    """The packet of canonical bytes. Raises EnvelopeError if they are invalid.

    Limits on sizes were checked when the packet was written, and are not checked again.
    """
    try:
        packet = _decode(content)
        if packet._is_checked() and _encode(packet) == content:
            return packet
    except (ValueError, RecursionError):
        pass  # PacketEnvelope may be able to read it, and otherwise reports the error
    if PacketEnvelope.from_json(content).canonical() != content:
        raise EnvelopeError("packet: not in its canonical form", field="packet")
    return msgspec.json.decode(content, type=StoredPacket[dict[str, Any]])
