"""What a coordinator answers its clients, as bytes and back. Knows nothing of who asked.

``ref`` names the sealed envelope that an answer is to, even where its id could not be read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from council.core.state import Decision, Escalation
from council.protocol import errors
from council.protocol.errors import CouncilError, Refused


@dataclass(frozen=True, slots=True)
class Told:
    """The decision on a proposal, or how it stands while it waits for a human."""

    decision: Decision
    kind: Literal["told"] = "told"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An act was taken: a cancellation, a human's answer."""

    ref: str
    kind: Literal["ack"] = "ack"


@dataclass(frozen=True, slots=True)
class Failed:
    """An envelope was refused; ``type`` names the error's class."""

    ref: str
    code: str
    type: str
    message: str
    facts: dict[str, str | int | float] = field(default_factory=dict)
    kind: Literal["failed"] = "failed"

    def error(self) -> CouncilError:
        """The error, as its own type."""
        kind = _ERRORS.get(self.type, CouncilError)
        facts = {name: fact for name, fact in self.facts.items() if name != "code"}
        if issubclass(kind, Refused):
            return kind(self.message, code=self.code, **facts)
        return kind(self.message, **facts)


Message = Told | Acknowledged | Failed

# With the kind named, one form is tried, not three: a decision is read in a third of the time.
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])
_ESCALATIONS: TypeAdapter[list[Escalation]] = TypeAdapter(list[Escalation])
_ERRORS = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, CouncilError)
}


def to_bytes(message: Message) -> bytes:
    return _MESSAGE.dump_json(message)


def from_bytes(data: bytes) -> Message:
    return _MESSAGE.validate_json(data)


def escalations_to_bytes(escalations: list[Escalation]) -> bytes:
    return _ESCALATIONS.dump_json(escalations)


def escalations_from_bytes(data: bytes) -> list[Escalation]:
    return _ESCALATIONS.validate_json(data)


def reference(sealed: bytes) -> str:
    """Names a sealed envelope in the reply to whoever sent it, even where its id can't be read."""
    return hashlib.blake2b(sealed, digest_size=8).hexdigest()
