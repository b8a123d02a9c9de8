"""The ten packet types of OMEN v0.7, with every rule of the schema index and of rules 5 that one packet can break.

What depends on other packets (states, invariants, ledger) is checked elsewhere. No clock is read and no id is made
here: the caller passes both.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, field_validator
from pydantic_core import PydanticKnownError

from council.protocol.errors import EnvelopeError
from council.protocol.models import Anything, Model, refusal, renamed
from council.protocol.omen.mcp import MCP, PacketHeader
from council.protocol.omen.parts import Text
from council.protocol.omen.payloads import (
    BeliefUpdate,
    Decision,
    Escalation,
    IntegrityAlert,
    Observation,
    QueueUpdate,
    TaskDirective,
    TaskResult,
    TokenGrant,
    VerificationPlan,
)
from council.protocol.values import kind_of, quoted, read_object

# A packet holds texts and one tree of data; an episode is some dozens of packets.
PACKET_BYTES_MAX = 1 << 20
COMMAS_MAX = 50_000


def _extra_key(key: object) -> object:
    if not isinstance(key, str) or not key.startswith("_"):
        raise PydanticKnownError("extra_forbidden")
    return key


def _of_packet(schema: dict[str, Any], packet: type[Any]) -> None:
    """What pydantic's schema can't say: the type in the header, and which unknown keys are allowed."""
    of_type = {"properties": {"packet_type": {"const": packet.__name__}}}
    schema["properties"]["header"] = {"allOf": [schema["properties"]["header"], of_type]}
    schema["additionalProperties"] = False
    schema["patternProperties"] = {"^_": {}}


class Packet(Model):
    """A packet: its header, its MCP and its payload. The name of the class is the header's ``packet_type``.

    Keys that begin with ``_`` are kept, unread. A consequential packet must have an ``mcp``; another may have one,
    and then it is whole (ruling: the index requires its fields for consequential packets alone).
    """

    model_config = ConfigDict(extra="allow", json_schema_extra=_of_packet)
    if TYPE_CHECKING:
        __pydantic_extra__: dict[str, Any] = Field(init=False)
        mcp: MCP | None
        payload: Any
    else:
        __pydantic_extra__: dict[Annotated[Text, BeforeValidator(_extra_key)], Anything]

    header: PacketHeader

    @field_validator("header")
    @classmethod
    def _is_of_this_type(cls, header: PacketHeader) -> PacketHeader:
        if header.packet_type != cls.__name__:
            raise refusal(f"must be '{cls.__name__}'; found '{header.packet_type}'", "packet_type")
        return header


class ObservationPacket(Packet):
    """Something was observed."""

    mcp: MCP | None = None
    payload: Observation


class BeliefUpdatePacket(Packet):
    """A belief has changed."""

    mcp: MCP | None = None
    payload: BeliefUpdate


class DecisionPacket(Packet):
    """A decision. Consequential."""

    mcp: MCP
    payload: Decision


class VerificationPlanPacket(Packet):
    """A plan to verify a decision's assumptions."""

    mcp: MCP | None = None
    payload: VerificationPlan


class ToolAuthorizationToken(Packet):
    """An authorization to use tools. Consequential."""

    mcp: MCP
    payload: TokenGrant


class TaskDirectivePacket(Packet):
    """A task to execute. Consequential."""

    mcp: MCP
    payload: TaskDirective


class TaskResultPacket(Packet):
    """The result of a task."""

    mcp: MCP | None = None
    payload: TaskResult


class EscalationPacket(Packet):
    """A question to a human. Consequential."""

    mcp: MCP
    payload: Escalation


class IntegrityAlertPacket(Packet):
    """An alert."""

    mcp: MCP | None = None
    payload: IntegrityAlert


class QueueUpdatePacket(Packet):
    """The state of a queue."""

    mcp: MCP | None = None
    payload: QueueUpdate


PACKETS: dict[str, type[Packet]] = {
    each.__name__: each
    for each in (
        ObservationPacket,
        BeliefUpdatePacket,
        DecisionPacket,
        VerificationPlanPacket,
        ToolAuthorizationToken,
        TaskDirectivePacket,
        TaskResultPacket,
        EscalationPacket,
        IntegrityAlertPacket,
        QueueUpdatePacket,
    )
}
CONSEQUENTIAL = frozenset({DecisionPacket, TaskDirectivePacket, ToolAuthorizationToken, EscalationPacket})


def read_packet(given: bytes | str | dict[str, Any]) -> Packet:
    """The packet in a JSON text, or in an object of JSON values.

    Raises EnvelopeError (EnvelopeTooLarge for a limit). ``field`` is the dotted path of the first error, and
    ``problems`` a tuple of all errors, each "path: what was expected; found what".
    """
    if isinstance(given, bytes | str):
        try:
            given = read_object(given, field="packet", bytes_max=PACKET_BYTES_MAX, commas_max=COMMAS_MAX)
        except EnvelopeError as error:
            raise type(error)(error.message, **error.facts, problems=(error.message,)) from None
    elif not isinstance(given, dict):
        raise _one("packet", f"must be an object or a JSON text; found {kind_of(given)}")
    header = given.get("header")
    if not isinstance(header, dict):
        problem = f"must be an object; found {kind_of(header)}" if "header" in given else "is missing"
        raise _one("header", problem)
    word = header.get("packet_type")
    kind = PACKETS.get(word) if isinstance(word, str) else None
    if kind is None:
        found = f"must be one of {', '.join(PACKETS)}; found {quoted(word)}"
        raise _one("header.packet_type", found if "packet_type" in header else "is missing")
    try:
        return kind.checked(given)
    except EnvelopeError as error:
        raise renamed(error, {"envelope": "packet"}) from None


def _one(path: str, problem: str) -> EnvelopeError:
    return EnvelopeError.at(path, problem, problems=(f"{path}: {problem}",))


def to_dict(packet: Packet) -> dict[str, Any]:
    """The packet as JSON values: fields in the order of the index, those that were given; other keys by name last."""
    written = packet.model_dump(mode="json", exclude_unset=True)
    extra = {key: written.pop(key) for key in sorted(packet.model_extra or ())}
    return written | extra


def to_json(packet: Packet) -> str:
    """``to_dict`` as JSON on one line. Equal packets with the same fields given have equal texts."""
    return json.dumps(to_dict(packet), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
