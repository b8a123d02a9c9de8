"""Envelopes as bytes and back: canonical, versioned, limited. The one user of msgpack, which reads within limits.

An envelope is an array by position, so that names cost nothing and bytes have one form:

    [MAJOR, MINOR, msg_id, parent_id, sender, role, type, timestamp, confidence, risk_level, content]

and, where the message has any, metadata behind these. Content, action, turn and metadata are arrays of the fields of
their class in ``envelope``, in its order. Ids are their bytes (as text where they have an odd number of digits), the
timestamp is an integer of microseconds since 1970 in UTC, and the keys of JSON objects stand in order of their code
points. Equal envelopes have equal bytes, in every process. Knows nothing of keys.

A later minor version appends to an array, and what it appended is left out here. 1.1 added a proposal's history
and an envelope's metadata, behind all else: what has neither has the array it always had, and is written as 1.0.
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

# A change to review fits (bodies hold 900,000 characters); a council's inbox of 1,000 of them fits a laptop.
ENVELOPE_BYTES_MAX = 1 << 20
# The array's head up to the sender, at its longest 145 bytes with every id and name at its limit: all that
# is read of an envelope whose signature is not checked yet.
_HEAD_BYTES_MAX = 192
# Unpacking so much costs less than a look at its head alone and once more at all of it.
SMALL_BYTES_MAX = 4_096
# Arrays are allocated when their head is read, and nobody has signed for these bytes yet.
_SMALL_LENGTH_MAX = 64
# One more than may be, so that a value that is just too large is named by its field. Arrays are allocated
# when their head is read, up to 512 deep: this also keeps a small message from asking for gigabytes.
_LENGTH_MAX = ITEMS_MAX + 1
# An id has 16 bytes at most. What is longer is refused unread; what is little longer is named by its field.
_ID_BYTES_MAX = 64
# A sender's name has 64 characters of one byte.
_SENDER_BYTES_MAX = 64
# What msgpack says where a length passes a limit; it has no error of its own for that.
_LIMIT_PASSED = re.compile(r"([0-9]{1,20}) exceeds max_[a-z]{1,10}_len\(([0-9]{1,20})\)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

WIRE_VERSION = (1, 1)
_FIRST_VERSION = (1, 0)
_READABLE = (1,)  # rules 7.4 ask for the MAJOR that is ours and the one before it, and there is none before 1
# Beside those of the envelope itself; a class has one at most.
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


class Head(NamedTuple):
    """What an envelope claims to be, before anything of it is believed."""

    version: tuple[int, int]
    msg_id: str | None
    parent_id: str | None
    sender: str
    type: str | None


# Envelopes


def encode(envelope: Envelope) -> bytes:
    """The canonical bytes of an envelope. Raises EnvelopeTooLarge past ENVELOPE_BYTES_MAX."""
    data = _packed(_wire(envelope))
    if len(data) > ENVELOPE_BYTES_MAX:
        raise _over_size(len(data))
    return data


def decode(data: bytes) -> Envelope:
    """The envelope that canonical bytes hold, validated.

    Raises EnvelopeError that names the ``field``, EnvelopeTooLarge, or VersionError; nothing else,
    whatever the bytes. Bytes that hold a valid envelope in another form than ``encode`` writes are refused,
    so that one envelope has one identity (rules 1.12). Written by a higher minor version, they may have
    trailing fields, which are ignored, and their form is that version's to judge.
    """
    return read(unpack_array(data), data)


def unpack_array(data: bytes, length_max: int = _LENGTH_MAX) -> Any:
    """The array in an envelope's bytes, as it was found: nothing of it is checked but its size and form."""
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
    """The array in the bytes of a small envelope of our own version, and who claims to have sent it.

    Both None for all others, whose head ``sender_of`` reads alone: most envelopes are small, and are then
    unpacked once, not twice.
    """
    if len(data) > SMALL_BYTES_MAX:
        return None, None
    try:
        found = unpack_array(data, _SMALL_LENGTH_MAX)
    except EnvelopeError:
        return None, None  # decode says what is wrong, once it is known whose fault it is
    lengths = (len(_ALL_FIELDS), len(_WITH_METADATA))
    if type(found) is tuple and len(found) in lengths and found[:2] in (_FIRST_VERSION, WIRE_VERSION):
        sender = found[_SENDER_AT]
        if type(sender) is str:
            return found, sender
    return None, None


def read(found: Any, data: bytes, *, checked: bool = False) -> Envelope:
    """The envelope in what ``unpack_array`` found in ``data``. Raises as ``decode`` does.

    ``checked``: somebody whom we trust has seen already that the bytes are canonical.
    """
    _, minor = _version(found)
    envelope = _envelope(found, minor)
    if not checked and minor <= WIRE_VERSION[1] and encode(envelope) != data:
        _refuse_form(envelope, cast(tuple[Any, ...], found))
    return envelope


def peek(data: bytes) -> Head:
    """Who claims to have sent these bytes; reads no more than their first 192, whatever follows.

    ``type`` is None where it can't be read.

    Raises EnvelopeError, EnvelopeTooLarge or VersionError.
    """
    found = _head(data, with_type=True)
    msg_id, parent_id = _id_in(found[2]), _id_in(found[3])
    return Head(
        (found[0], found[1]),
        msg_id if isinstance(msg_id, str) else None,
        parent_id if isinstance(parent_id, str) else None,
        found[4],
        found[_TYPE_AT] if len(found) > _TYPE_AT and isinstance(found[_TYPE_AT], str) else None,
    )


def sender_of(data: bytes) -> str:
    """``peek(data).sender``, for one who is in a hurry."""
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
    # The lowest version that can say it, so that each envelope has one form.
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
    if value is None or len(value) & 1:  # Half a byte has no bytes: an id of odd length stays text.
        return value
    return bytes.fromhex(value)


def _unfrozen(value: object) -> Any:
    """What can be written of the types of ours."""
    if isinstance(value, FrozenDict):
        return items_of(value)
    if isinstance(value, Model):
        return _VALUES[type(value)](value)
    raise TypeError(f"{type(value).__name__} reached the wire, which a valid envelope never lets it")


_packed = msgspec.msgpack.Encoder(enc_hook=_unfrozen).encode


# From the wire


class _MsgpackExtension:
    """A msgpack extension, which no field accepts: so the field that holds it is named."""

    __slots__ = ()


def _envelope(found: tuple[Any, ...], minor: int) -> Envelope:
    """Positions become names here, so that each fault is told by its name."""
    metadata = None
    if minor >= WIRE_VERSION[1] and len(found) > len(_ALL_FIELDS):
        *others, metadata = _counted(found, _WITH_METADATA, minor, "")
        found = tuple(others)
        if metadata is not None or minor == WIRE_VERSION[1]:  # later, in the place of what it has not
            metadata = _named(metadata, Metadata, minor, "metadata.")
    fields = dict(zip(_FIELDS, _counted(found, _ALL_FIELDS, minor, "")[2:], strict=True))
    word = fields["type"]
    body = BODIES.get(cast(MessageType, word)) if type(word) is str else None
    if body is not None:  # of an unknown type the content stays as it is, and the type is refused
        fields["content"] = _named(fields["content"], body, minor, "content.")
    fields["msg_id"], fields["parent_id"] = _id_in(fields["msg_id"]), _id_in(fields["parent_id"])
    fields["timestamp"], fields["metadata"] = _time_in(fields["timestamp"]), metadata
    return Envelope.checked(fields)


def _id_in(value: Any) -> Any:
    return value.hex() if type(value) is bytes else value


def _named(values: Any, kind: type[Model], minor: int, where: str) -> dict[str, Any]:
    """The fields of a class by their names, and of those inside it. What has not its form stays as it is."""
    names = _NAMES[kind]
    if kind is Proposal and (minor < WIRE_VERSION[1] or (type(values) is tuple and len(values) < len(names))):
        names = names[:-1]  # without a history, which not even later versions need to have
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
    """As many values as there are names; those that a higher minor version appended are left out."""
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
    """The fields up to the sender, and on to the type if that is wanted and can be read.

    The version and the sender are of the right kind, the others as they were found.
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
        with contextlib.suppress(ValueError, TypeError, msgpack.UnpackException):  # decode says what is wrong
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
        return value  # refused by the envelope, with its name
    try:
        return _EPOCH + timedelta(0, 0, value)
    except OverflowError:
        problem = f"{value} microseconds since 1970 lie outside the years 1 to 9999"
        raise EnvelopeError.at("timestamp", problem) from None


def _refuse_form(envelope: Envelope, found: tuple[Any, ...]) -> NoReturn:
    """Name the field that is written in another form than ours."""
    wire = _wire(envelope)
    if wire[:2] != found[:2]:
        _refuse("version")
    for name, ours, theirs in zip(_WITH_METADATA[2 : len(wire)], wire[2:], found[2:], strict=True):
        if name == "content":
            names = _NAMES[type(envelope.content)][: len(ours)]
            pairs = [(f"content.{n}", a, b) for n, a, b in zip(names, ours, theirs, strict=True)]
        else:
            pairs = [(name, ours, theirs)]
        for field, mine, other in pairs:
            # Differs as a value, or in the order of its keys, which shows when both are written.
            if _packed(mine) != _packed(other):
                _refuse(field)
    _refuse("envelope")  # a number or a length is written in more bytes than it needs


def _refuse(field: str) -> NoReturn:
    raise EnvelopeError.at(field, "not in canonical form; write envelopes with codec.encode alone")


def _over_size(found: int) -> EnvelopeTooLarge:
    most = f"at most {ENVELOPE_BYTES_MAX:,} are sent: keep large texts elsewhere and name them"
    return EnvelopeTooLarge.at("envelope", f"{found:,} bytes; {most}", limit=ENVELOPE_BYTES_MAX, found=found)


def _told(error: Exception) -> str:
    return quoted(str(error) or type(error).__name__, 120)
