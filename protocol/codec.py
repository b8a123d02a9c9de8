"""Envelopes as bytes and back: canonical, versioned, limited. The only user of msgpack, which reads within limits.

An envelope is an array by position, so that names cost nothing and bytes have one form:

    [MAJOR, MINOR, msg_id, parent_id, sender, role, type, timestamp, confidence, risk_level, content]

If the message has metadata, it follows these. Content, action, authorization, turn, requester and metadata are arrays
of the fields of their class in ``envelope``, in its order. An id is written as its bytes, or as text if it has an odd
number of digits. The timestamp is an integer of microseconds since 1970 in UTC. The keys of JSON objects are in order
of their code points. Equal envelopes have equal bytes, in every process. ``signing`` signs these bytes.

A later minor version appends to an array; the appended values are ignored here. 1.1 added a proposal's history and an
envelope's metadata, both at the end, 1.2 a proposal's requester, and 1.3 its key and its action's
authorization. An envelope without these has the same array as before, and is written in the lowest version that can
express it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import islice, zip_longest
from operator import attrgetter
from typing import Any, cast

import msgpack  # type: ignore[import-untyped]
import msgspec

from council.protocol.envelope import (
    BODIES,
    HISTORY_TURNS_MAX,
    Action,
    Authorization,
    Envelope,
    MessageType,
    Proposal,
    Requester,
    Turn,
)
from council.protocol.errors import EnvelopeError, EnvelopeTooLarge, VersionError
from council.protocol.metadata import Metadata
from council.protocol.models import Model
from council.protocol.values import ITEMS_MAX, FrozenDict, items_of, kind_of, quoted

# A change to review fits (bodies hold 900,000 characters). An inbox of 1,000 such envelopes fits a laptop's memory.
ENVELOPE_BYTES_MAX = 1 << 20
# The array's beginning up to the type has at most 170 bytes, with every id and name at its limit. No more is read
# of an envelope before its signature is checked.
_HEAD_BYTES_MAX = 192
# A sender's name has 64 characters of one byte; an id has at most as many. A longer id is read over, so that the
# sender behind it is known, but it is not reported as a claim.
_CLAIM_MAX = 64
# One above the limit, so that the error for a value that is just too large names its field. Arrays are allocated when
# their head is read, up to 512 deep: so this also keeps a small message from asking for gigabytes.
_LENGTH_MAX = ITEMS_MAX + 1
# An id has at most 16 bytes. If it is much longer it is refused unread; if it is slightly longer, the error names it.
_ID_BYTES_MAX = 64
# msgpack's message for a length above a limit; it has no error class for that.
_LIMIT_PASSED = re.compile(r"([0-9]{1,20}) exceeds max_[a-z]{1,10}_len\(([0-9]{1,20})\)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

WIRE_VERSION = (1, 3)
_READABLE = (1,)  # rules 7.4: our MAJOR and the one before it must be readable; there is none before 1

# The fields of each array, in order.
_NAMES: dict[type[Model], tuple[str, ...]] = {
    each: tuple(each.model_fields)
    for each in (*BODIES.values(), Action, Authorization, Turn, Requester, Metadata)
}
_NAMES[Envelope] = (
    "major",
    "minor",
    "msg_id",
    "parent_id",
    "sender",
    "role",
    "type",
    "timestamp",
    "confidence",
    "risk_level",
    "content",
    "metadata",
)
_VALUES = {each: attrgetter(*names) for each, names in _NAMES.items() if each is not Envelope}
# The minor version that added a field to the end of an array, where it was not there from the beginning.
_ADDED = {
    (Envelope, "metadata"): 1,
    (Proposal, "history"): 1,
    (Proposal, "requester"): 2,
    (Proposal, "key"): 3,
    (Action, "authorization"): 3,
}
# The fields of each array by the minor version.
_NAMES_IN = [
    {
        each: tuple(name for name in names if _ADDED.get((each, name), 0) <= minor)
        for each, names in _NAMES.items()
    }
    for minor in range(WIRE_VERSION[1] + 1)
]
_ID_NAMES = ("msg_id", "parent_id", "proposal_id", "supersedes")
_IDS_AT = {each: [at for at, name in enumerate(names) if name in _ID_NAMES] for each, names in _NAMES.items()}
_SENDER_AT, _TYPE_AT, _CONTENT_AT = map(_NAMES[Envelope].index, ("sender", "type", "content"))


# Envelopes


def encode(envelope: Envelope) -> bytes:
    """The canonical bytes of an envelope. Raises EnvelopeTooLarge above ENVELOPE_BYTES_MAX."""
    data = _packed(_wire(envelope))
    if len(data) > ENVELOPE_BYTES_MAX:
        raise _over_size(len(data))
    return data


def decode(data: bytes, *, canonical: bool = False) -> Envelope:
    """The validated envelope of canonical bytes.

    Raises EnvelopeError that names the ``field``, EnvelopeTooLarge, or VersionError, and nothing else for any bytes.
    Bytes that hold a valid envelope in another form than ``encode`` writes are refused, so that one envelope has one
    identity (rules 1.12). If a higher minor version wrote them, they may have trailing fields, which are ignored, and
    their form is not checked. ``canonical``: the form was checked before.
    """
    found = _unpacked(data)
    minor = _minor_version(found)
    fields = _fields(found, Envelope, minor, "")
    del fields["major"], fields["minor"]
    envelope = Envelope.checked(fields)
    if not canonical and minor <= WIRE_VERSION[1] and encode(envelope) != data:
        field = _other_form(envelope, found)
        raise EnvelopeError.at(field, "not in canonical form; write envelopes with codec.encode alone")
    return envelope


def read_head(data: bytes) -> tuple[str, list[Any]]:
    """The claimed sender, and the beginning of the array up to the type. Reads only the first 192 bytes.

    The array may end after the sender, and holds unchecked values. Raises EnvelopeError, EnvelopeTooLarge or
    VersionError.
    """
    _check_bytes(data)
    reader = msgpack.Unpacker(
        max_buffer_size=_HEAD_BYTES_MAX,
        max_str_len=_HEAD_BYTES_MAX,
        max_bin_len=_HEAD_BYTES_MAX,
        max_array_len=len(_NAMES[Envelope]) + 32,  # minor versions may add some
        max_map_len=0,
        max_ext_len=0,
    )
    reader.feed(data[:_HEAD_BYTES_MAX])
    head: list[Any] = []
    try:
        reader.read_array_header()
        head.extend(islice(reader, _TYPE_AT + 1))  # where it raises, what it read before stays
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        if len(head) <= _SENDER_AT:
            problem = f"its head, up to the sender, can't be read: {_cut(error)}"
            raise EnvelopeError.at("envelope", problem) from None
    _minor_version(head)
    if len(head) <= _SENDER_AT:
        raise EnvelopeError.at("sender", "is missing; the bytes end before it")
    sender = head[_SENDER_AT]
    if type(sender) is not str:
        raise EnvelopeError.at("sender", f"expected a text, found {kind_of(sender)}")
    return sender, head


def claims_of(head: list[Any]) -> dict[str, str | None]:
    """The sender, ids and type in the array of ``read_head``; None for what is not a text, or too long for one."""
    found = {
        name: value
        for name, value in zip(_NAMES[Envelope], head, strict=False)
        if isinstance(value, str | bytes) and len(value) <= _CLAIM_MAX
    }
    ids = {name: _id_in(found.get(name)) for name in ("msg_id", "parent_id")}
    claims = {"sender": found.get("sender"), **ids, "type": found.get("type")}
    return {name: claim if isinstance(claim, str) else None for name, claim in claims.items()}


# To the wire


def _wire(envelope: Envelope) -> tuple[Any, ...]:
    content, metadata = envelope.content, envelope.metadata
    kind = type(content)
    values = list(_VALUES[kind](content))
    for at in _IDS_AT[kind]:
        values[at] = _id_out(values[at])
    names, minor = _NAMES[kind], 0 if metadata is None else 1
    # The lowest version that can express it, so that each envelope has one form.
    while not values[-1] and (kind, names[len(values) - 1]) in _ADDED:
        values.pop()
    minor = max(minor, _ADDED.get((kind, names[len(values) - 1]), 0))
    if (
        isinstance(content, Proposal)
        and content.action is not None
        and content.action.authorization is not None
    ):
        minor = max(minor, _ADDED[Action, "authorization"])
    return (
        WIRE_VERSION[0],
        minor,
        _id_out(envelope.msg_id),
        _id_out(envelope.parent_id),
        envelope.sender,
        envelope.role,
        envelope.type,
        (envelope.timestamp - _EPOCH) // _MICROSECOND,
        envelope.confidence,
        envelope.risk_level,
        values,
        *(() if metadata is None else (metadata,)),
    )


def _id_out(value: str | None) -> bytes | str | None:
    if value is None or len(value) & 1:  # half a byte has no bytes, so an id of odd length stays text
        return value
    return bytes.fromhex(value)


def _unfrozen(value: object) -> Any:
    """A value of our own types in a form that msgpack can write."""
    if isinstance(value, FrozenDict):
        return items_of(value)
    if isinstance(value, Action) and value.authorization is None:
        return _VALUES[Action](value)[:-1]
    if isinstance(value, Model):
        return _VALUES[type(value)](value)
    raise TypeError(f"{type(value).__name__} reached the wire, which a valid envelope never lets it")


_packed = msgspec.msgpack.Encoder(enc_hook=_unfrozen).encode


# From the wire


class _MsgpackExtension:
    """A msgpack extension. No field accepts one, so the error names its field."""

    __slots__ = ()


def _unpacked(data: bytes) -> Any:
    """The array in an envelope's bytes. Only its size and its outer form are checked."""
    _check_bytes(data)
    try:
        return msgpack.unpackb(
            data,
            use_list=False,
            strict_map_key=True,
            object_pairs_hook=_no_key_twice,
            ext_hook=_extension,
            max_str_len=ENVELOPE_BYTES_MAX,
            max_bin_len=_ID_BYTES_MAX,
            max_array_len=_LENGTH_MAX,
            max_map_len=_LENGTH_MAX,
            max_ext_len=_ID_BYTES_MAX,
        )
    except EnvelopeError:
        raise
    except msgpack.StackError:
        raise EnvelopeTooLarge.at("envelope", "nested more than 512 deep", limit=512, found=513) from None
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        passed = _LIMIT_PASSED.match(str(error))
        if passed is not None:
            problem = f"a part of it is too long: {_cut(error)}"
            limits = {"limit": int(passed[2]), "found": int(passed[1])}
            raise EnvelopeTooLarge.at("envelope", problem, **limits) from None
        raise EnvelopeError.at("envelope", f"not msgpack: {_cut(error)}") from None


def _fields(values: Any, kind: type[Model], minor: int, where: str) -> dict[str, Any]:
    """The fields in an array by name, and those of the arrays inside it, so that each error names its field.

    A value of another form stays as it is. Values that a higher minor version appended are dropped.
    """
    names, required = _NAMES_IN[min(minor, WIRE_VERSION[1])][kind], len(_NAMES_IN[0][kind])
    if type(values) is not tuple:
        problem = f"expected an array of its fields, found {kind_of(values)}"
        raise EnvelopeError.at(where.removesuffix("."), problem)
    if len(values) < required:
        raise EnvelopeError.at(where + names[len(values)], "is missing, and so is all that comes after it")
    if len(values) > len(names) and minor <= WIRE_VERSION[1]:
        problem = f"has {len(values)} fields where this version has {len(names)}"
        raise EnvelopeError.at(where.removesuffix(".") or "envelope", problem)
    fields = dict(zip(names, values, strict=False))
    for at in _IDS_AT[kind]:
        fields[names[at]] = _id_in(values[at])
    if kind is Envelope:
        word, metadata = fields["type"], fields.get("metadata")
        body = BODIES.get(cast(MessageType, word)) if type(word) is str else None
        if body is not None:  # if the type is unknown, the content stays as it is, and the type is refused
            fields["content"] = _fields(fields["content"], body, minor, "content.")
        fields["timestamp"] = _time_in(fields["timestamp"])
        if metadata is not None or ("metadata" in fields and minor <= WIRE_VERSION[1]):
            fields["metadata"] = _fields(metadata, Metadata, minor, "metadata.")
    elif kind is Proposal:
        if fields["action"] is not None:
            action = fields["action"] = _fields(fields["action"], Action, minor, "content.action.")
            if (allows := action.get("authorization")) is not None:
                where = "content.action.authorization."
                action["authorization"] = _fields(allows, Authorization, minor, where)
        turns = fields.get("history")
        if type(turns) is tuple and len(turns) <= HISTORY_TURNS_MAX:
            fields["history"] = [
                _fields(turn, Turn, minor, f"content.history[{at}].") for at, turn in enumerate(turns)
            ]
        if (requester := fields.get("requester")) is not None:
            fields["requester"] = _fields(requester, Requester, minor, "content.requester.")
    return fields


def _id_in(value: Any) -> Any:
    return value.hex() if type(value) is bytes else value


def _time_in(value: Any) -> Any:
    if type(value) is not int:
        return value  # the envelope refuses it by name
    try:
        return _EPOCH + timedelta(0, 0, value)
    except OverflowError:
        problem = f"{value} microseconds since 1970 lie outside the years 1 to 9999"
        raise EnvelopeError.at("timestamp", problem) from None


def _check_bytes(data: object) -> None:
    if not isinstance(data, bytes):
        raise EnvelopeError.at("envelope", f"expected bytes, found {kind_of(data)}")
    if len(data) > ENVELOPE_BYTES_MAX:
        raise _over_size(len(data))


def _no_key_twice(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise EnvelopeError.at("envelope", "a key stands twice in one object")
    return found


def _extension(code: int, data: bytes) -> _MsgpackExtension:
    return _MsgpackExtension()


def _minor_version(found: Any) -> int:
    """The minor version of an array. Raises EnvelopeError if it has none, VersionError for an unknown MAJOR."""
    if not isinstance(found, (tuple, list)) or len(found) < 2:
        problem = f"expected an array that begins with two numbers of a version, found {kind_of(found)}"
        raise EnvelopeError.at("envelope", problem)
    major, minor = found[:2]
    if type(major) is not int or type(minor) is not int or minor < 0:
        raise EnvelopeError.at("version", "expected two whole numbers")
    if major not in _READABLE:
        raise VersionError.at(
            "version",
            f"written in {major}.{minor} of the protocol; this reader knows "
            f"{', '.join(f'{known}.x' for known in _READABLE)}: bring both sides to the same release",
            found=(major, minor),
            readable=_READABLE,
        )
    return minor


def _other_form(envelope: Envelope, found: tuple[Any, ...]) -> str:
    """The field that is written in another form than ours."""
    ours = _wire(envelope)
    name = _first_difference(_NAMES[Envelope], ours, found)
    if name == "content":
        names = _NAMES[type(envelope.content)]
        return f"content.{_first_difference(names, ours[_CONTENT_AT], found[_CONTENT_AT])}"
    return "version" if name in ("major", "minor") else name


def _first_difference(names: tuple[str, ...], ours: Any, theirs: Any) -> str:
    for name, mine, other in zip_longest(names, ours, theirs):
        # The values differ, or the order of their keys does, which shows when both are written.
        if _packed(mine) != _packed(other):
            return name
    return "envelope"  # a number or a length uses more bytes than it needs


def _over_size(found: int) -> EnvelopeTooLarge:
    most = f"at most {ENVELOPE_BYTES_MAX:,} are sent: keep large texts elsewhere and name them"
    return EnvelopeTooLarge.at("envelope", f"{found:,} bytes; {most}", limit=ENVELOPE_BYTES_MAX, found=found)


def _cut(error: Exception) -> str:
    return quoted(str(error) or type(error).__name__, 120)
