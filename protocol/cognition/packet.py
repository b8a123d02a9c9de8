"""CognitionPacket v0.3, the work unit that a seat gets: reading, writing and hashes.

This module reads no clock and calls no model. If a packet has no time, its reader passes ``now``. Packets of other
programs are kept unchanged: known fields are checked, and unknown ones are kept.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self

from council.protocol.cognition.fields import Part
from council.protocol.cognition.parts import (
    Content,
    Context,
    Council,
    DataField,
    GoalState,
    Governance,
    Header,
    Intent,
    LoopState,
    Metrics,
    Reasoning,
    Response,
    Status,
    ToolRoutingState,
)
from council.protocol.cognition.vocabulary import VERSION, OutputDestination, PacketState, SystemTask
from council.protocol.errors import EnvelopeError
from council.protocol.models import LongText as Text
from council.protocol.values import JSON_BYTES_MAX, quoted, read_object, too_large

# GCP 4.1.1: a packet's id has 8 characters.
PACKET_ID_CHARS = 8


class CognitionPacket(Part):
    """The unit of work that passes through the stages. The protocol's document describes its parts."""

    version: Text = VERSION
    header: Header
    intent: Intent = Intent()
    context: Context = Context()
    content: Content = Content(original_prompt="")
    reasoning: Reasoning = Reasoning()
    response: Response = Response()
    governance: Governance = Governance()
    metrics: Metrics = Metrics()
    status: Status = Status()
    schema_id: Text | None = None
    council: Council | None = None
    tool_routing: ToolRoutingState | None = None
    loop_state: LoopState | None = None
    goal_state: GoalState | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, now: datetime | None = None) -> Self:
        """The packet of a mapping of JSON values; ``{}`` is a complete one, of session "default".

        If ``header.datetime`` is missing, ``now`` (aware) takes its place; it also gives a missing ``header.sub_id``.
        Raises EnvelopeError (EnvelopeTooLarge) with ``field``, the dotted path of the first error.
        """
        if isinstance(data, Mapping):
            header = data.get("header", {"session_id": "default", "packet_id": "default"})
            if now is not None and isinstance(header, Mapping):
                header = _times(now) | dict(header)
            data = {**data, "header": header}
        return super().from_dict(data)

    @classmethod
    def from_json(cls, text: str | bytes, *, now: datetime | None = None) -> Self:
        """The packet of a JSON text; like ``from_dict``. At most 8 MiB are read."""
        return cls.from_dict(read_object(text, field="packet", commas_max=JSON_BYTES_MAX), now=now)

    def to_json(self) -> str:
        """The packet as programs of this protocol write it, in one line of ASCII. Raises EnvelopeTooLarge."""
        text = json.dumps(self.to_dict(), allow_nan=False)
        if len(text) > JSON_BYTES_MAX:  # from_json would refuse it
            raise too_large("packet", "bytes of JSON", JSON_BYTES_MAX, len(text))
        return text

    def compute_hashes(self) -> Self:
        """The packet with the hashes of its header and of its content among its signatures."""
        hashes = {"header_hash": _hash_of(self.header), "content_hash": _hash_of(self.content)}
        signatures = self.governance.signatures.model_copy(update=hashes)
        governance = self.governance.model_copy(update={"signatures": signatures})
        return self.model_copy(update={"governance": governance})


def moment(now: datetime) -> str:
    """A time in a packet's form: ISO 8601 in UTC, to the microsecond. Raises EnvelopeError for a naive one."""
    if now.utcoffset() is None:
        raise EnvelopeError.at("now", "has no offset from UTC; give an aware time")
    return now.astimezone(UTC).isoformat(timespec="microseconds")


def _times(now: datetime) -> dict[str, str]:
    wall = str(now.replace(tzinfo=None)).encode()
    return {"datetime": moment(now), "sub_id": hashlib.md5(wall, usedforsecurity=False).hexdigest()[:8]}


def build_packet(
    prompt: str,
    *,
    now: datetime,
    new_id: Callable[[], str],
    session_id: str,
    time_budget_ms: int,
    data_fields: Sequence[DataField] = (),
    identity_hash: str | None = None,
) -> CognitionPacket:
    """A new packet for a council to decide on, with ``prompt`` word for word and the defaults of the document's API.

    ``new_id`` gives lower-case hex digits, of which 8 are used. ``identity_hash`` is kept in the governance block
    (rules 7.1). Raises EnvelopeError.
    """
    packet_id = new_id()[:PACKET_ID_CHARS]
    if not re.fullmatch(f"[0-9a-f]{{{PACKET_ID_CHARS}}}", packet_id):
        problem = f"new_id gave {quoted(packet_id)}; expected {PACKET_ID_CHARS} lower-case hex digits"
        raise EnvelopeError.at("header.packet_id", problem)
    api = OutputDestination.API
    header = {
        "session_id": session_id,
        "packet_id": packet_id,
        "datetime": moment(now),
        "sub_id": "0",
        "persona": {"tone_hint": "neutral"},
        "output_routing": {
            "primary": {"destination": api, "channel_id": session_id},
            "source_destination": api,
        },
        "operational_status": {"status": "initialized"},
    }
    context = {
        "session_history_ref": {"type": "web_session", "value": session_id},
        "constraints": {"time_budget_ms": time_budget_ms},
    }
    message = {"key": "user_message", "value": prompt, "type": "text"}
    form = {
        "header": header,
        "intent": {"user_intent": "decide", "system_task": SystemTask.DECISION, "confidence": 1.0},
        "context": context,
        "content": {"original_prompt": prompt, "data_fields": [message, *data_fields]},
        "response": {"confidence": 0.0},  # there is no answer yet
        "governance": {} if identity_hash is None else {"identity_hash": identity_hash},
        "status": {"state": PacketState.INITIALIZED},
        "tool_routing": {},
    }
    return CognitionPacket.from_dict(form).compute_hashes()


def _hash_of(part: Part) -> str:
    # Other programs hash this form: keys in order, a space after each comma and colon, ASCII.
    return hashlib.sha256(json.dumps(part.to_dict(), allow_nan=False, sort_keys=True).encode()).hexdigest()
