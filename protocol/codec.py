"""Envelopes as bytes and back: canonical, versioned, limited. The only user of msgpack, which reads within limits.

An envelope is an array by position, so that names cost nothing and bytes have one form:

    [MAJOR, MINOR, msg_id, parent_id, sender, role, type, timestamp, confidence, risk_level, content]

If the message has metadata, it follows these. Content, action, turn and metadata are arrays of the fields of their
class in ``envelope``, in its order. An id is written as its bytes, or as text if it has an odd number of digits. The
timestamp is an integer of microseconds since 1970 in UTC. The keys of JSON objects are in order of their code points.
Equal envelopes have equal bytes, in every process. Knows nothing of keys.

A later minor version appends to an array; the appended values are ignored here. 1.1 added a proposal's history and an
envelope's metadata, both at the end. An envelope with neither has the same array as before, and is written as 1.0.
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime, timedelta
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn, cast

import msgpack  # type: ignore[import-untyped]
import msgspec

from council.protocol.envelope import BODIES, HISTORY_TURNS_MAX, Action, Envelope, MessageType, Proposal, Turn
from council.protocol.errors import EnvelopeError, EnvelopeTooLarge, VersionError
from council.protocol.metadata import Metadata
from council.protocol.models import Model
from council.protocol.values import ITEMS_MAX, FrozenDict, items_of, kind_of, quoted

# A change to review fits (bodies hold 900,000 characters). An inbox of 1,000 such envelopes fits a laptop's memory.
ENVELOPE_BYTES_MAX = 1 << 20
# The array's beginning up to the sender has at most 145 bytes, with every id and name at its limit. No more is read
# of an envelope before its signature is checked.
_HEAD_BYTES_MAX = 192
# Up to this size, unpacking the whole array costs less than reading its head first.
SMALL_BYTES_MAX = 4_096
# Arrays are allocated when their head is read, and the signature of these bytes is not checked yet.
_SMALL_LENGTH_MAX = 64
# One above the limit, so that the error for a value that is just too large names its field. Arrays are allocated when
# their head is read, up to 512 deep: so this also keeps a small message from asking for gigabytes.
_LENGTH_MAX = ITEMS_MAX + 1
# An id has at most 16 bytes. If it is much longer it is refused unread; if it is slightly longer, the error names it.
_ID_BYTES_MAX = 64
# A sender's name has 64 characters of one byte.
_SENDER_BYTES_MAX = 64
# msgpack's message for a length above a limit; it has no error class for that.
_LIMIT_PASSED = re.compile(r"([0-9]{1,20}) exceeds max_[a-z]{1,10}_len\(([0-9]{1,20})\)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

WIRE_VERSION = (1, 1)
_FIRST_VERSION = (1, 0)
_READABLE = (1,)  # rules 7.4: our MAJOR and the one before it must be readable; there is none before 1
# The names of ids other than the envelope's own; a class has one at most.
_ID_NAMES = ("proposal_id", "supersedes")
_FIELDS = (
    "msg_id",
    "parent_id",
    "sender",
    "role",
    "type",
    "timestamp",
    "confidence",
    "risk_level",
    "content",
)
_ALL_FIELDS = ("major", "minor", *_FIELDS)
_WITH_METADATA = (*_ALL_FIELDS, "metadata")
_ARRAYS: tuple[type[Model], ...] = (*BODIES.values(), Action, Turn, Metadata)
_NAMES = {each: tuple(each.model_fields) for each in _ARRAYS}
_VALUES = {each: attrgetter(*names) for each, names in _NAMES.items()}
_ID_AT = {each: names.index(name) for each, names in _NAMES.items() for name in _ID_NAMES if name in names}
_TYPE_AT = _ALL_FIELDS.index("type")
_SENDER_AT = _ALL_FIELDS.index("sender")


class EnvelopeHead(NamedTuple):
    """The claims of an envelope that is not verified yet."""

    version: tuple[int, int]
    msg_id: str | None
    parent_id: str | None
    sender: str
    type: str | None


# Envelopes


def encode(envelope: Envelope) -> bytes:
    """The canonical bytes of an envelope. Raises EnvelopeTooLarge above ENVELOPE_BYTES_MAX."""
    data = _packed(_wire(envelope))
    if len(data) > ENVELOPE_BYTES_MAX:
        raise _over_size(len(data))
    return data


def decode(data: bytes) -> Envelope:
    """The validated envelope of canonical bytes.

    Raises EnvelopeError that names the ``field``, EnvelopeTooLarge, or VersionError, and nothing else for any bytes.
    Bytes that hold a valid envelope in another form than ``encode`` writes are refused, so that one envelope has one
    identity (rules 1.12). If a higher minor version wrote them, they may have trailing fields, which are ignored, and
    their form is not checked.
    """
    return read(unpack_array(data), data)


def unpack_array(data: bytes, length_max: int = _LENGTH_MAX) -> Any:
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
            max_array_len=length_max,
            max_map_len=length_max,
            max_ext_len=_ID_BYTES_MAX,
        )
    except EnvelopeError:
        raise
    except msgpack.StackError:
        raise EnvelopeTooLarge.at("envelope", "nested more than 512 deep", limit=512, found=513) from None
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        passed = _LIMIT_PASSED.match(str(error))
        if passed is not None:
            problem = f"a part of it is too long: {_told(error)}"
            limits = {"limit": int(passed[2]), "found": int(passed[1])}
            raise EnvelopeTooLarge.at("envelope", problem, **limits) from None
        raise EnvelopeError.at("envelope", f"not msgpack: {_told(error)}") from None


def small(data: bytes) -> tuple[Any, str | None]:
    """The array of a small envelope of our own version, and the sender that it claims.

    Both are None for all other bytes; ``sender_of`` then reads the head alone. Most envelopes are small, and so are
    unpacked once, not twice.
    """
    if len(data) > SMALL_BYTES_MAX:
        return None, None
    try:
        found = unpack_array(data, _SMALL_LENGTH_MAX)
    except EnvelopeError:
        return None, None  # decode reports the error, once the sender is known
    lengths = (len(_ALL_FIELDS), len(_WITH_METADATA))
    if type(found) is tuple and len(found) in lengths and found[:2] in (_FIRST_VERSION, WIRE_VERSION):
        sender = found[_SENDER_AT]
        if type(sender) is str:
            return found, sender
    return None, None


def read(found: Any, data: bytes, *, checked: bool = False) -> Envelope:
    """The envelope in the result of ``unpack_array(data)``. Raises as ``decode`` does.

    ``checked``: a trusted part has already checked that the bytes are canonical.
    """
    _, minor = _version(found)
    envelope = _envelope(found, minor)
    if not checked and minor <= WIRE_VERSION[1] and encode(envelope) != data:
        _refuse_form(envelope, cast(tuple[Any, ...], found))
    return envelope


def peek(data: bytes) -> EnvelopeHead:
    """The claimed sender and ids of these bytes. Reads only the first 192 bytes.

    ``type`` is None if it can't be read. Raises EnvelopeError, EnvelopeTooLarge or VersionError.
    """
    found = _head(data, with_type=True)
    msg_id, parent_id = _id_in(found[2]), _id_in(found[3])
    return EnvelopeHead(
        (found[0], found[1]),
        msg_id if isinstance(msg_id, str) else None,
        parent_id if isinstance(parent_id, str) else None,
        found[4],
        found[_TYPE_AT] if len(found) > _TYPE_AT and isinstance(found[_TYPE_AT], str) else None,
    )


def sender_of(data: bytes) -> str:
    """``peek(data).sender``, but faster."""
    return cast(str, _head(data)[4])


# To the wire


def _wire(envelope: Envelope) -> tuple[Any, ...]:
    content, metadata = envelope.content, envelope.metadata
    kind = type(content)
    values = list(_VALUES[kind](content))
    if kind in _ID_AT:
        values[_ID_AT[kind]] = _id_out(values[_ID_AT[kind]])
    newer = metadata is not None
    if isinstance(content, Proposal):
        if content.history:
            newer = True
        else:
            del values[-1]
    # The lowest version that can express it, so that each envelope has one form.
    return (
        *(WIRE_VERSION if newer else _FIRST_VERSION),
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
    if isinstance(value, Model):
        return _VALUES[type(value)](value)
    raise TypeError(f"{type(value).__name__} reached the wire, which a valid envelope never lets it")


_packed = msgspec.msgpack.Encoder(enc_hook=_unfrozen).encode


# From the wire


class _MsgpackExtension:
    """A msgpack extension. No field accepts one, so the error names its field."""

    __slots__ = ()


def _envelope(found: tuple[Any, ...], minor: int) -> Envelope:
    """Turns positions into names, so that each error names its field."""
    metadata = None
    if minor >= WIRE_VERSION[1] and len(found) > len(_ALL_FIELDS):
        *others, metadata = _counted(found, _WITH_METADATA, minor, "")
        found = tuple(others)
        if metadata is not None or minor == WIRE_VERSION[1]:  # a later version writes None if there is none
            metadata = _named(metadata, Metadata, minor, "metadata.")
    fields = dict(zip(_FIELDS, _counted(found, _ALL_FIELDS, minor, "")[2:], strict=True))
    word = fields["type"]
    body = BODIES.get(cast(MessageType, word)) if type(word) is str else None
    if body is not None:  # if the type is unknown, the content stays as it is, and the type is refused
        fields["content"] = _named(fields["content"], body, minor, "content.")
    fields["msg_id"], fields["parent_id"] = _id_in(fields["msg_id"]), _id_in(fields["parent_id"])
    fields["timestamp"], fields["metadata"] = _time_in(fields["timestamp"]), metadata
    return Envelope.checked(fields)


def _id_in(value: Any) -> Any:
    return value.hex() if type(value) is bytes else value


def _named(values: Any, kind: type[Model], minor: int, where: str) -> dict[str, Any]:
    """The fields of a class by name, and of the classes inside it. A value of another form stays as it is."""
    names = _NAMES[kind]
    if kind is Proposal and (minor < WIRE_VERSION[1] or (type(values) is tuple and len(values) < len(names))):
        names = names[:-1]  # without a history, which later versions may omit too
    fields = dict(zip(names, _counted(values, names, minor, where), strict=True))
    if kind in _ID_AT:
        name = names[_ID_AT[kind]]
        fields[name] = _id_in(fields[name])
    if kind is Proposal:
        if fields["action"] is not None:
            fields["action"] = _named(fields["action"], Action, minor, "content.action.")
        turns = fields.get("history")
        if type(turns) is tuple and len(turns) <= HISTORY_TURNS_MAX:
            told = ((turn, f"content.history[{at}].") for at, turn in enumerate(turns))
            fields["history"] = [_named(turn, Turn, minor, place) for turn, place in told]
    return fields


def _counted(values: Any, names: tuple[str, ...], minor: int, where: str) -> tuple[Any, ...]:
    """As many values as there are names. Values that a higher minor version appended are dropped."""
    if type(values) is not tuple:
        problem = f"expected an array of its fields, found {kind_of(values)}"
        raise EnvelopeError.at(where.removesuffix("."), problem)
    if len(values) < len(names):
        raise EnvelopeError.at(where + names[len(values)], "is missing, and so is all that comes after it")
    if len(values) > len(names) and minor <= WIRE_VERSION[1]:
        problem = f"has {len(values)} fields where this version has {len(names)}"
        raise EnvelopeError.at(where.removesuffix(".") or "envelope", problem)
    return values[: len(names)]


def _head(data: bytes, *, with_type: bool = False) -> list[Any]:
    """The fields up to the sender; with ``with_type``, up to the type if it can be read.

    The version and the sender have the right types; the others are unchecked.
    """
    _check_bytes(data)
    reader = msgpack.Unpacker(
        max_buffer_size=_HEAD_BYTES_MAX,
        max_str_len=_SENDER_BYTES_MAX,
        max_bin_len=_SENDER_BYTES_MAX,
        max_array_len=len(_FIELDS) + 32,  # minor versions may add some
        max_map_len=0,
        max_ext_len=0,
    )
    reader.feed(data[:_HEAD_BYTES_MAX])
    try:
        reader.read_array_header()
        found = list(islice(reader, 5))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        problem = f"its head, up to the sender, can't be read: {_told(error)}"
        raise EnvelopeError.at("envelope", problem) from None
    _version(found)
    if len(found) < 5:
        raise EnvelopeError.at("sender", "is missing; the bytes end before it")
    if type(found[4]) is not str:
        raise EnvelopeError.at("sender", f"expected a text, found {kind_of(found[4])}")
    if with_type:
        with contextlib.suppress(ValueError, TypeError, msgpack.UnpackException):  # decode reports the error
            found += islice(reader, _TYPE_AT - 4)
    return found


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


def _version(found: Any) -> tuple[int, int]:
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
    return major, minor


def _time_in(value: Any) -> Any:
    if type(value) is not int:
        return value  # the envelope refuses it by name
    try:
        return _EPOCH + timedelta(0, 0, value)
    except OverflowError:
        problem = f"{value} microseconds since 1970 lie outside the years 1 to 9999"
        raise EnvelopeError.at("timestamp", problem) from None


def _refuse_form(envelope: Envelope, found: tuple[Any, ...]) -> NoReturn:
    """Raises an error for the field that is written in another form than ours."""
    wire = _wire(envelope)
    if wire[:2] != found[:2]:
        _refuse("version")
    for name, ours, theirs in zip(_WITH_METADATA[2 : len(wire)], wire[2:], found[2:], strict=True):
        if name == "content":
            names = _NAMES[type(envelope.content)]
            if len(ours) < len(theirs):  # an empty history, which must be left out
                _refuse(f"content.{names[len(ours)]}")
            names = names[: len(ours)]
            pairs = [(f"content.{n}", a, b) for n, a, b in zip(names, ours, theirs, strict=True)]
        else:
            pairs = [(name, ours, theirs)]
        for field, mine, other in pairs:
            # The values differ, or the order of their keys does, which shows when both are written.
            if _packed(mine) != _packed(other):
                _refuse(field)
    _refuse("envelope")  # a number or a length uses more bytes than it needs


def _refuse(field: str) -> NoReturn:
    raise EnvelopeError.at(field, "not in canonical form; write envelopes with codec.encode alone")


def _over_size(found: int) -> EnvelopeTooLarge:
    most = f"at most {ENVELOPE_BYTES_MAX:,} are sent: keep large texts elsewhere and name them"
    return EnvelopeTooLarge.at("envelope", f"{found:,} bytes; {most}", limit=ENVELOPE_BYTES_MAX, found=found)


def _told(error: Exception) -> str:
    return quoted(str(error) or type(error).__name__, 120)
