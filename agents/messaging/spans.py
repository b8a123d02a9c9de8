"""Names of OpenTelemetry spans, and the spans around a seat's work and its model calls, if they are recorded.

A ``Spans`` object (``span_recorder``) makes them. Without one, no span is made and nothing of OpenTelemetry is
imported. No span holds the text of a proposal, a mind, a model or a ballot. Names for model calls follow
OpenTelemetry's conventions for generative AI, which are still in development.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from council.protocol.envelope import Envelope
from council.protocol.metadata import Metadata

D = TypeVar("D")
Around = contextlib.AbstractContextManager


class RecordsOutcome(Protocol):
    """Records a proposal's decision, and returns it."""

    def __call__(self, decision: D, /) -> D: ...


class Spans(Protocol):
    """Makes the spans of one council in this process; ``span_recorder`` has it."""

    def remember(self, proposal_id: str, metadata: Metadata | None) -> None: ...
    def span(self, name: str, attributes: Mapping[str, Any], *, is_call: bool = False) -> Around[object]: ...
    def work(self, seat: str, proposal_id: str, kind: str) -> Around[object]: ...
    def proposing(self, proposal: str | Envelope) -> Around[RecordsOutcome]: ...
    def annotate(self, facts: Mapping[str, Any]) -> None: ...
    def carried(self) -> Metadata | None: ...


# Our spans and attributes
PROPOSE, DECIDE, PLAN = "council.propose", "council.decide", "council.plan"
WORK = {"ballot": "council.review", "ruling": "council.rule", "observation": "council.observe"}
COUNCIL, SEAT, PROPOSAL = "council.name", "council.seat", "council.proposal.id"
OUTCOME, DECIDED_BY, DEGRADED = "council.outcome", "council.decided_by", "council.degraded"
QUORUM, MISSING = "council.quorum", "council.missing"
TASK, CANCELLED = "council.task", "council.cancelled"

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
current: ContextVar[Spans | None] = ContextVar("spans", default=None)


def proposing(spans: Spans | None, proposal: str | Envelope) -> Around[RecordsOutcome]:
    """The span of a client that proposes and waits. Gives a function that records the decision and returns it.

    It is a child of the current span. A proposal that was drafted earlier keeps the parent in its bytes, which can't
    change (rules 1.12).
    """
    return contextlib.nullcontext(_same) if spans is None else spans.proposing(proposal)


def _same(decision: D) -> D:
    return decision


def carried(spans: Spans | None) -> Metadata | None:
    """The current span, for a message to carry; None if there is none or none is made."""
    return None if spans is None else spans.carried()


def work(spans: Spans | None, seat: str, proposal_id: str, kind: str) -> Around[object]:
    """The span of a mind's work on a proposal: a ballot, a ruling or an observation."""
    return contextlib.nullcontext() if spans is None else spans.work(seat, proposal_id, kind)


def stage(name: str, proposal_id: str) -> Around[object]:
    """The span of a part of a mind's work; nothing if that work is not recorded."""
    spans = current.get()
    return contextlib.nullcontext() if spans is None else spans.span(name, {PROPOSAL: proposal_id})


def answered(finish: str | None, read: int | None, written: int | None) -> None:
    """Records in the attempt's span why the model stopped and what it used, if the server reported that."""
    spans = current.get()
    if spans is not None:
        reasons = None if finish is None else (finish,)
        spans.annotate(known({INPUT_TOKENS: read, OUTPUT_TOKENS: written, FINISH_REASONS: reasons}))


def known(attributes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if value is not None}
