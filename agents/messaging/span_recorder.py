"""Makes spans with OpenTelemetry. Imported only where a tracer exists.

Knows no settings, and not where spans are exported. ``span_names`` has their names.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from contextvars import Token
from typing import Any, Protocol, TypeVar

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
)

from council.agents.messaging import span_names as names
from council.protocol.envelope import Envelope
from council.protocol.metadata import TRACESTATE_CHARS_MAX, Metadata

D = TypeVar("D")

_FLAGS = [TraceFlags(flags) for flags in range(0x100)]
# Proposals whose trace a seat remembers: a council has fewer open.
REMEMBERED_MAX = 10_000


class Spans:
    """Makes the spans of one council in this process by ``tracer``; ``sampler`` is its provider's, if any."""

    def __init__(self, tracer: Tracer, council_id: str, sampler: Any = None) -> None:
        self.tracer = tracer
        self._council_id = council_id
        self._sampler = sampler
        # An OrderedDict, because a plain dict finds its oldest key slowly after many deletions.
        self._traced: OrderedDict[str, Metadata | None] = OrderedDict()

    def remember(self, proposal_id: str, metadata: Metadata | None) -> None:
        """Keeps the trace of a proposal, for the spans of later work on it."""
        self._traced[proposal_id] = metadata
        if len(self._traced) > REMEMBERED_MAX:
            self._traced.popitem(last=False)

    def parent(self, proposal_id: str, metadata: Metadata | None) -> Context:
        """The parent of a proposal's spans: the span in which the proposal was sent.

        If it was sent in none, the parent is a span id derived from the proposal, the same in each process. So its
        spans are in one trace, though no such span was recorded. The sampler decides about it as about any new trace.
        """
        if metadata is None:
            found = self._unseen(proposal_id)
        else:
            text = metadata.traceparent  # 00-<32 digits>-<16 digits>-<2 digits>
            state = TraceState.from_header([metadata.tracestate]) if metadata.tracestate else None
            flags = _FLAGS[int(text[53:], 16)]
            found = SpanContext(int(text[3:35], 16), int(text[36:52], 16), True, flags, state)
        return trace.set_span_in_context(NonRecordingSpan(found), Context())

    def _unseen(self, proposal_id: str) -> SpanContext:
        both = hashlib.blake2b(f"{self._council_id}\0{proposal_id}".encode(), digest_size=24).digest()
        trace_id, span_id = int.from_bytes(both[:16], "big"), int.from_bytes(both[16:], "big")
        sampled = self._sampler is None or (
            self._sampler.should_sample(Context(), trace_id, names.DECIDE).decision.is_sampled()
        )
        return SpanContext(trace_id, span_id, True, TraceFlags(int(sampled)))

    def span(
        self,
        name: str,
        attributes: Mapping[str, Any],
        parent: Context | None = None,
        *,
        is_call: bool = False,
    ) -> Within:
        """A context manager: the span around its body. It records only the class of an error.

        ``parent`` is the current span if it is None. ``is_call``: the body calls another process.
        """
        kind = SpanKind.CLIENT if is_call else SpanKind.INTERNAL
        return Within(self, self.tracer.start_span(name, parent, kind, attributes), parent)

    def work(self, seat: str, proposal_id: str, kind: str) -> Within:
        """The span of a mind's work on a proposal: a ballot, a ruling or an observation."""
        parent = self.parent(proposal_id, self._traced.get(proposal_id))
        return self.span(names.WORK[kind], {names.SEAT: seat, names.PROPOSAL: proposal_id}, parent)

    def proposing(self, proposal: str | Envelope) -> Proposing:
        """See ``spans.proposing``."""
        around: Context | None = None
        if isinstance(proposal, Envelope):
            around = self.parent(proposal.msg_id, proposal.metadata)
        return Proposing(self, self.tracer.start_span(names.PROPOSE, around, SpanKind.CLIENT), around)

    def annotate(self, facts: Mapping[str, Any]) -> None:
        """Sets attributes of the current span."""
        trace.get_current_span().set_attributes(facts)

    def carried(self) -> Metadata | None:
        """The current span, for a message to carry; None if there is none."""
        found = trace.get_current_span().get_span_context()
        if not found.is_valid:
            return None
        parent = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags & 0xFF:02x}"
        if not found.trace_state:
            return Metadata(traceparent=parent)
        state = found.trace_state.to_header()
        try:
            return Metadata(
                traceparent=parent, tracestate=state if len(state) <= TRACESTATE_CHARS_MAX else ""
            )
        except ValueError:  # an invalid state must not cost a proposal
            return Metadata(traceparent=parent)


class RecordsOutcome(Protocol):
    """Records a proposal's decision, and returns it."""

    def __call__(self, decision: D, /) -> D: ...


class Within:
    """Makes a span current in its body, and ends it after that."""

    __slots__ = ("_attached", "_before", "_parent", "_span", "_spans")
    _attached: Token[Context]
    _before: Token[Spans | None]

    def __init__(self, spans: Spans, span: Span, parent: Context | None) -> None:
        self._spans, self._span, self._parent = spans, span, parent

    def __enter__(self) -> Any:
        self._attached = contexts.attach(trace.set_span_in_context(self._span, self._parent))
        self._before = names.current.set(self._spans)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        names.current.reset(self._before)
        contexts.detach(self._attached)
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self._span.set_attribute(names.CANCELLED, True)
        elif error is not None:
            told = getattr(error, "error_type", None)
            what = told if isinstance(told, str) else type(error).__qualname__
            self._span.set_attribute(names.ERROR_TYPE, what)
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class Proposing(Within):
    """Like ``Within``. On entry it gives the function that records the decision."""

    __slots__ = ()

    def __enter__(self) -> RecordsOutcome:
        super().__enter__()
        return self._annotated

    def _annotated(self, decision: D) -> D:
        known: Any = decision
        outcome = known.outcome or known.standing
        self._span.set_attributes({names.PROPOSAL: known.proposal_id, names.OUTCOME: outcome})
        return decision
