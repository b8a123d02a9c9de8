"""A coordinator's answers to its clients, and their bytes.

``ref`` identifies the sealed envelope that is answered, even if its id could not be read.
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
    """The decision on a proposal, or its standing while it waits for a human."""

    decision: Decision


class Acknowledged(Value, frozen=True, tag_field="kind", tag="ack"):
    """An act was accepted: a cancellation, a human's answer."""

    ref: str


class Failed(Value, frozen=True, tag_field="kind", tag="failed"):
    """An envelope was refused; ``type`` names the error's class."""

    ref: str
    code: str
    type: str
    message: str
    facts: dict[str, str | int | float] = msgspec.field(default_factory=dict)

    def error(self) -> CouncilError:
        """The error, as an instance of its own class."""
        return error_of(self.type, self.code, self.message, self.facts)


class Stalled(Value, frozen=True, tag_field="kind", tag="stalled"):
    """Nothing can be kept at present, and ``why``, so that callers keep waiting; ``why`` is None at the end of it."""

    why: Failed | None


Message = Told | Acknowledged | Failed | Stalled
# The characters of an error's message that are sent and journaled: it may quote text from outside.
MESSAGE_CHARS_MAX = 2_000

_ENCODER = msgspec.json.Encoder()
_MESSAGE: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_ERRORS = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, CouncilError)
}


def error_of(kind: str, code: str, message: str, facts: Mapping[str, Any]) -> CouncilError:
    """An error of that class; CouncilError if the class is unknown. Facts with an argument's name are left out."""
    found = _ERRORS.get(kind, CouncilError)
    kept = {name: fact for name, fact in facts.items() if name not in ("self", "message", "code")}
    return found(message, code=code, **kept) if issubclass(found, Refused) else found(message, **kept)


def printable(text: str) -> str:
    """A foreign text in a form that can be journaled and sent: cut, without NUL and halves of surrogate pairs."""
    return text[:MESSAGE_CHARS_MAX].replace("\0", "\\0").encode(errors="backslashreplace").decode()


def failure(sealed: bytes, error: CouncilError) -> Failed:
    """The answer to the sender of ``sealed`` about ``error``, with those of its facts that are short."""
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
    """An id for a sealed envelope in its answer, even if the envelope's own id can't be read."""
    return hashlib.blake2b(sealed, digest_size=8).hexdigest()
