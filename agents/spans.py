"""Spans of OpenTelemetry's: of a seat's work and of its models' calls, with all names that stand in them.

The names of models' calls are those of OpenTelemetry's conventions for generative AI, which are still in development:
here alone they are written. No span holds what a proposal, a mind, a model or a ballot says. Whoever has a tracer
hands it in; without one nothing of OpenTelemetry is imported. Knows no settings and nothing of where spans go.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from council.protocol.envelope import Envelope
from council.protocol.metadata import TRACESTATE_CHARS_MAX, Metadata

if TYPE_CHECKING:
    from opentelemetry.context import Context as Context
    from opentelemetry.trace import Span, Tracer

    from council.agents.endpoint import Endpoint

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

# The conventions' names of providers, where pydantic-ai has others.
_PROVIDERS = {
    None: "openai",  # or whoever else speaks its API
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "grok": "x_ai",
    "xai": "x_ai",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
}
_PORTS = {"http": 80, "https": 443}
# Proposals whose trace a seat remembers: more than a council has open.
REMEMBERED_MAX = 10_000


class Telling(Protocol):
    """Is told what came of a proposal, and gives it back."""

    def __call__(self, decision: D, /) -> D: ...


class Spans:
    """Makes the spans of one council's part by ``tracer``; ``sampler`` is that of the tracer's provider, if any."""

    def __init__(self, tracer: Tracer, council_id: str, sampler: Any = None) -> None:
        self.tracer = tracer
        self._council_id = council_id
        self._sampler = sampler
        self._traced: OrderedDict[str, Metadata | None] = OrderedDict()

    def remember(self, proposal_id: str, metadata: Metadata | None) -> None:
        """Which trace a proposal belongs to, for the work on it that comes."""
        self._traced[proposal_id] = metadata
        while len(self._traced) > REMEMBERED_MAX:
            self._traced.popitem(last=False)

    def parent(self, proposal_id: str, metadata: Metadata | None) -> Context:
        """What the spans of a proposal are children of: the span that it was sent in.

        For one that was sent in none it is a span that nobody has seen, the same in each process, so that they are in
        one trace all the same; whether that is sampled is its sampler's to say, as for any trace that begins.
        """
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.trace.span import NonRecordingSpan, SpanContext, TraceFlags, TraceState

        if metadata is not None:
            _, trace_id, span_id, flags = metadata.traceparent.split("-")
            state = TraceState.from_header([metadata.tracestate]) if metadata.tracestate else None
            found = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)), state)
        else:
            both = hashlib.blake2b(f"{self._council_id}\0{proposal_id}".encode(), digest_size=24).digest()
            number = int.from_bytes(both[:16], "big")
            sampler = self._sampler
            sampled = (
                sampler is None or sampler.should_sample(Context(), number, DECIDE).decision.is_sampled()
            )
            found = SpanContext(number, int.from_bytes(both[16:], "big"), True, TraceFlags(int(sampled)))
        return trace.set_span_in_context(NonRecordingSpan(found), Context())

    def span(
        self,
        name: str,
        attributes: Mapping[str, Any],
        parent: Context | None = None,
        *,
        is_call: bool = False,
    ) -> Within:
        """A span around what is done within it; of what is raised there it tells the class alone.

        ``parent``: None for the span that this is done in. ``is_call``: of another process.
        """
        from opentelemetry.trace import SpanKind

        kind = SpanKind.CLIENT if is_call else SpanKind.INTERNAL
        return Within(self, self.tracer.start_span(name, parent, kind, attributes), parent)

    def work(self, seat: str, proposal_id: str, kind: str) -> Within:
        """A seat's mind at work on a proposal: a ballot, a ruling or an observation."""
        parent = self.parent(proposal_id, self._traced.get(proposal_id))
        return self.span(WORK[kind], {SEAT: seat, PROPOSAL: proposal_id}, parent)


class Within:
    """What a span is around, from when it is entered until it is left."""

    __slots__ = ("_before", "_parent", "_span", "_spans", "_token")

    def __init__(self, spans: Spans, span: Span, parent: Context | None) -> None:
        self._spans, self._span, self._parent = spans, span, parent

    def __enter__(self) -> Span:
        from opentelemetry import context, trace

        self._token = context.attach(trace.set_span_in_context(self._span, self._parent))
        self._before = _current.set(self._spans)
        return self._span

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        from opentelemetry import context

        _current.reset(self._before)
        context.detach(self._token)
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self._span.set_attribute(CANCELLED, True)
        elif error is not None:
            told = getattr(error, "error_type", None)
            _failed(self._span, told if isinstance(told, str) else type(error).__qualname__)
        self._span.end()


# Those of the work that is under way: what a mind starts meanwhile belongs to it too.
_current: ContextVar[Spans | None] = ContextVar("spans", default=None)


def _failed(span: Span, kind: str) -> None:
    """The span's work failed, by that kind of error."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute(ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR))


def here(spans: Spans | None) -> Context | None:
    """What spans that are made elsewhere, for a caller here, are children of; None without ``spans``."""
    if spans is None:
        return None
    from opentelemetry import context

    return context.get_current()


def proposing(
    spans: Spans | None, proposal: str | Envelope, around: Context | None = None
) -> contextlib.AbstractContextManager[Telling]:
    """The span of a client that proposes and waits; gives what is told the decision, and gives it back.

    A child of ``around``, else of the span that this is done in; for a proposal that was drafted before, of that one,
    for its bytes are what they are (rules 1.12).
    """
    return contextlib.nullcontext(_same) if spans is None else _proposing(spans, proposal, around)


def _same(decision: D) -> D:
    return decision


@contextlib.contextmanager
def _proposing(spans: Spans, proposal: str | Envelope, around: Context | None) -> Iterator[Telling]:
    if isinstance(proposal, Envelope):
        around = spans.parent(proposal.msg_id, proposal.metadata)
    with spans.span(PROPOSE, {}, around, is_call=True) as span:

        def told(decision: D) -> D:
            known: Any = decision
            span.set_attributes({PROPOSAL: known.proposal_id, OUTCOME: known.outcome or known.standing})
            return decision

        yield told


def work(
    spans: Spans | None, seat: str, proposal_id: str, kind: str
) -> contextlib.AbstractContextManager[object]:
    """``Spans.work``, or nothing without ``spans``."""
    return contextlib.nullcontext() if spans is None else spans.work(seat, proposal_id, kind)


def stage(name: str, proposal_id: str) -> contextlib.AbstractContextManager[object]:
    """A span of a part of a mind's work; nothing where that work has none."""
    spans = _current.get()
    return contextlib.nullcontext() if spans is None else spans.span(name, {PROPOSAL: proposal_id})


def chat(endpoint: Endpoint, task: str) -> contextlib.AbstractContextManager[Span | None]:
    """The span of one attempt to have a model answer; None where the work that it is for has none."""
    spans = _current.get()
    if spans is None:
        return contextlib.nullcontext()
    parts = urlsplit(endpoint.base_url)
    attributes: dict[str, Any] = {
        OPERATION: CHAT,
        PROVIDER: _PROVIDERS.get(endpoint.provider, endpoint.provider),
        REQUEST_MODEL: endpoint.model,
        REQUEST_MAX_TOKENS: endpoint.max_output_tokens,
        REQUEST_STREAM: True,
        SERVER_ADDRESS: parts.hostname or "",
        SERVER_PORT: parts.port or _PORTS[parts.scheme],
        TASK: task,
    }
    chosen = ((REQUEST_TEMPERATURE, endpoint.temperature), (REQUEST_TOP_P, endpoint.top_p))
    attributes |= {key: value for key, value in chosen if value is not None}
    return spans.span(f"{CHAT} {endpoint.model}", attributes, is_call=True)


def answered(finish: str | None, read: int | None, written: int | None) -> None:
    """Tells the attempt's span why its model stopped, and what it used, as far as the server told."""
    if _current.get() is None:
        return
    from opentelemetry import trace

    span = trace.get_current_span()
    for key, value in ((INPUT_TOKENS, read), (OUTPUT_TOKENS, written)):
        if value is not None:
            span.set_attribute(key, value)
    if finish is not None:
        span.set_attribute(FINISH_REASONS, (finish,))


def carried(spans: Spans | None) -> Metadata | None:
    """The span that this is done in, for a message to carry; None where there is none, or none is made."""
    if spans is None:
        return None
    from opentelemetry import trace

    found = trace.get_current_span().get_span_context()
    if not found.is_valid:
        return None
    parent = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags & 0xFF:02x}"
    state = found.trace_state.to_header()
    try:
        return Metadata(traceparent=parent, tracestate=state if len(state) <= TRACESTATE_CHARS_MAX else "")
    except ValueError:  # a state that is none is not worth a proposal
        return Metadata(traceparent=parent)
