"""The names of spans and their attributes, and the recorder of the current work's spans.

Names for model calls follow OpenTelemetry's conventions for generative AI, which are still in development.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

# Our spans and attributes
PROPOSE, DECIDE = "council.propose", "council.decide"
PLAN = "council.plan"
WORK = {"ballot": "council.review", "ruling": "council.rule", "observation": "council.observe"}
COUNCIL, SEAT, PROPOSAL = "council.name", "council.seat", "council.proposal.id"
OUTCOME, DECIDED_BY, DEGRADED = "council.outcome", "council.decided_by", "council.degraded"
QUORUM, MISSING = "council.quorum", "council.missing"
VOTE, LATE, TASK, REASON, RULING, ALERT = (
    f"council.{name}" for name in ("vote", "late", "task", "reason", "ruling", "alert")
)
CANCELLED = "council.cancelled"

# Those of the conventions
OPERATION, PROVIDER = "gen_ai.operation.name", "gen_ai.provider.name"
REQUEST_MODEL, REQUEST_STREAM = "gen_ai.request.model", "gen_ai.request.stream"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE, REQUEST_TOP_P = "gen_ai.request.temperature", "gen_ai.request.top_p"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
SERVER_ADDRESS, SERVER_PORT, ERROR_TYPE = "server.address", "server.port", "error.type"
CHAT = "chat"
OTHER = "_OTHER"  # the conventions' word for an unknown kind of error

# The ``Spans`` of the current work, or None. Tasks that a mind starts inherit it.
current: ContextVar[Any] = ContextVar("spans", default=None)
