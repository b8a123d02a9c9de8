"""What a coordinator answers its clients, as bytes and back. Knows nothing of who asked.

``ref`` names the sealed envelope that an answer is to, even where its id could not be read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from council.core.state import Decision, Value
from council.protocol import errors
from council.protocol.errors import CouncilError, EnvelopeError, Refused


class Told(Value, frozen=True, tag_field="kind", tag="told"):
    """The decision on a proposal, or how it stands while it waits for a human."""

    decision: Decision


class Acknowledged(Value, frozen=True, tag_field="kind", tag="ack"):
    """An act was taken: a cancellation, a human's answer."""

    ref: str


class Failed(Value, frozen=True, tag_field="kind", tag="failed"):
    """An envelope was refused; ``type`` names the error's class."""

    ref: str
    code: str
    type: str
    message: str
    facts: dict[str, str | int | float] = msgspec.field(default_factory=dict)

    def error(self) -> CouncilError:
        """The error, as its own type."""
        return error_of(self.type, self.code, self.message, self.facts)


class Stalled(Value, frozen=True, tag_field="kind", tag="stalled"):
    """Nothing can be kept at the moment, and ``why``, so that whoever waits waits on; None once it can be again."""

    why: Failed | None


Message = Told | Acknowledged | Failed | Stalled
# Of an error so much is told and journaled: it may quote what came from outside.
MESSAGE_CHARS_MAX = 2_000

_ENCODER = msgspec.json.Encoder()
_MESSAGE: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_ERRORS = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, CouncilError)
}


def error_of(kind: str, code: str, message: str, facts: Mapping[str, Any]) -> CouncilError:
    """The error of that class, or the root of all where there is none; facts named as its arguments are left out."""
    found = _ERRORS.get(kind, CouncilError)
    kept = {name: fact for name, fact in facts.items() if name not in ("self", "message", "code")}
    return found(message, code=code, **kept) if issubclass(found, Refused) else found(message, **kept)


def printable(text: str) -> str:
    """Words from elsewhere as they can be kept and told: cut, without NUL and halves of surrogate pairs."""
    return text[:MESSAGE_CHARS_MAX].replace("\0", "\\0").encode(errors="backslashreplace").decode()


def failure(sealed: bytes, error: CouncilError) -> Failed:
    """What the sender of ``sealed`` is told of ``error``: of its facts the short ones, as they were."""
    facts = {
        name: fact
        for name, fact in error.facts.items()
        if type(fact) in (int, float) or (isinstance(fact, str) and len(fact) <= 200)
    }
    return Failed(reference(sealed), error.code, type(error).__name__, printable(error.message), facts)


def to_bytes(message: Message) -> bytes:
    return _ENCODER.encode(message)


def from_bytes(data: bytes) -> Message:
    """The message that ``to_bytes`` packed. Raises EnvelopeError for anything else."""

    try:
        return _MESSAGE.decode(data)
    except msgspec.MsgspecError as error:
        raise EnvelopeError(f"message: not one of this version's: {error}", field="message") from None


def reference(sealed: bytes) -> str:
    """Names a sealed envelope in the reply to whoever sent it, even where its id can't be read."""
    return hashlib.blake2b(sealed, digest_size=8).hexdigest()
