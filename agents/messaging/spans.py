"""Spans of OpenTelemetry's around a seat's work and its models' calls: all their names, and what one asks for them.

The names of models' calls are those of OpenTelemetry's conventions for generative AI, which are still in development:
here alone they are written. No span holds what a proposal, a mind, a model or a ballot says. What makes them is a
``Spans`` (``span_recording``); where there is none, nothing is made, and nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from council.protocol.envelope import Envelope
from council.protocol.metadata import Metadata

if TYPE_CHECKING:
    from council.agents.messaging.span_recording import Spans as Spans

D = TypeVar("D")

# Our spans, and what stands in them
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
OTHER = "_OTHER"  # the conventions' word for a kind of error that nobody has told


# What makes the spans of the work that is under way: what a mind starts meanwhile belongs to it too.
current: ContextVar[Spans | None] = ContextVar("spans", default=None)


class Telling(Protocol):
    """Is told what came of a proposal, and gives it back."""

    def __call__(self, decision: D, /) -> D: ...


def proposing(spans: Spans | None, proposal: str | Envelope) -> contextlib.AbstractContextManager[Telling]:
    """The span of a client that proposes and waits; gives what is told the decision, and gives it back.

    A child of the span that this is done in; for a proposal that was drafted before, of that one, for its bytes are
    what they are (rules 1.12).
    """
    return contextlib.nullcontext(_same) if spans is None else spans.proposing(proposal)


def _same(decision: D) -> D:
    return decision


def carried(spans: Spans | None) -> Metadata | None:
    """The span that this is done in, for a message to carry; None where there is none, or none is made."""
    return None if spans is None else spans.carried()


def work(
    spans: Spans | None, seat: str, proposal_id: str, kind: str
) -> contextlib.AbstractContextManager[object]:
    """The span of a seat's mind at work on a proposal: a ballot, a ruling or an observation."""
    return contextlib.nullcontext() if spans is None else spans.work(seat, proposal_id, kind)


def stage(name: str, proposal_id: str) -> contextlib.AbstractContextManager[object]:
    """The span of a part of a mind's work; nothing where that work has none."""
    spans = current.get()
    return contextlib.nullcontext() if spans is None else spans.span(name, {PROPOSAL: proposal_id})


def answered(finish: str | None, read: int | None, written: int | None) -> None:
    """Tells the attempt's span why its model stopped, and what it used, as far as the server told."""
    spans = current.get()
    if spans is not None:
        reasons = None if finish is None else (finish,)
        spans.tell(known({INPUT_TOKENS: read, OUTPUT_TOKENS: written, FINISH_REASONS: reasons}))


def known(attributes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if value is not None}
