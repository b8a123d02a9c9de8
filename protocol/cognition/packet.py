"""CognitionPacket v0.3: what a seat is handed to think about. Reading, writing, hashes, budget and safety.

Knows nothing of clocks or models: who reads a packet that names no time hands in ``now``. Packets of other programs
come through unchanged: what is known is checked, what is not is kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Self

from council.protocol.cognition.fields import Part
from council.protocol.cognition.parts import (
    Content,
    Context,
    Council,
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
from council.protocol.cognition.vocabulary import VERSION
from council.protocol.errors import EnvelopeError
from council.protocol.models import LongText as Text
from council.protocol.values import JSON_BYTES_MAX, read_object, too_large

# Actions that only look, and look at nothing outside: these alone need no leave.
READ_ONLY_ACTIONS = frozenset(
    [
        "read_file",
        "list_dir",
        "list_files",
        "list_tree",
        "find_files",
        "find_relevant_documents",
        "world_state",
        "memory_status",
        "memory_query",
        "query_knowledge",
        "fragment_read",
        "fragment_list_pending",
    ]
)


class CognitionPacket(Part):
    """The unit of work that travels through the stages; the parts are told in the protocol's own document."""

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
        """The packet that a mapping of JSON values says; ``{}`` is a whole one, of session "default".

        ``now`` (aware) is taken for ``header.datetime``, and makes ``header.sub_id``, where they are missing.
        Raises EnvelopeError (EnvelopeTooLarge) with ``field``, the dotted path of the first fault.
        """
        if isinstance(data, Mapping):
            header = data.get("header", {"session_id": "default", "packet_id": "default"})
            if now is not None and isinstance(header, Mapping):
                header = _times(now) | dict(header)
            data = {**data, "header": header}
        return super().from_dict(data)

    @classmethod
    def from_json(cls, text: str | bytes, *, now: datetime | None = None) -> Self:
        """The packet that a JSON text holds; as ``from_dict``. At most 8 MiB are read."""
        return cls.from_dict(read_object(text, field="packet", commas_max=JSON_BYTES_MAX), now=now)

    def to_json(self) -> str:
        """The packet as programs of this protocol write it, in one line of ASCII. Raises EnvelopeTooLarge."""
        text = json.dumps(self.to_dict(), allow_nan=False)
        if len(text) > JSON_BYTES_MAX:  # from_json would not read it again
            raise too_large("packet", "bytes of JSON", JSON_BYTES_MAX, len(text))
        return text

    def compute_hashes(self) -> Self:
        """The packet with the hashes of its header and its content, each by itself, among its signatures."""
        hashes = {"header_hash": _hash_of(self.header), "content_hash": _hash_of(self.content)}
        signatures = self.governance.signatures.model_copy(update=hashes)
        governance = self.governance.model_copy(update={"signatures": signatures})
        return self.model_copy(update={"governance": governance})

    def check_token_budget(self) -> bool:
        """Whether the projected answer leaves the buffer free that is set aside of its model's output.

        Where the buffer, the output's limit or the projection is not set or 0, there is nothing to pass.
        """
        model = self.header.model
        projected = self.metrics.token_usage.projected_tokens
        if not (projected and model.response_buffer_tokens and model.max_output_tokens):
            return True
        return projected <= model.max_output_tokens - model.response_buffer_tokens

    def is_execution_safe(self) -> bool:
        """Whether nothing it asks for beside the answer needs leave, or leave is given for a whitelist."""
        safety = self.governance.safety
        if safety.execution_allowed and safety.allowed_commands_whitelist_id is not None:
            return True
        return all(action.action_type in READ_ONLY_ACTIONS for action in self.response.sidecar_actions)


def moment(now: datetime) -> str:
    """A moment as a packet holds it: ISO 8601 in UTC, to the microsecond. Raises EnvelopeError for a naive one."""
    if now.utcoffset() is None:
        raise EnvelopeError.at("now", "has no offset from UTC; give an aware time")
    return now.astimezone(UTC).isoformat(timespec="microseconds")


def _times(now: datetime) -> dict[str, str]:
    wall = str(now.replace(tzinfo=None)).encode()
    return {"datetime": moment(now), "sub_id": hashlib.md5(wall, usedforsecurity=False).hexdigest()[:8]}


def _hash_of(part: Part) -> str:
    # The form that is hashed in the field: keys in order, a space behind each comma and colon, ASCII.
    return hashlib.sha256(json.dumps(part.to_dict(), allow_nan=False, sort_keys=True).encode()).hexdigest()
