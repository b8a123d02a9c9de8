"""Makes spans with OpenTelemetry. It is imported only if there is a tracer.

``spans`` has the names of the spans.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, TraceFlags, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from council.agents.messaging import spans as names
from council.protocol.envelope import Envelope
from council.protocol.metadata import TRACESTATE_CHARS_MAX, Metadata

D = TypeVar("D")

_HEADERS = TraceContextTextMapPropagator()
# Proposals whose trace a seat remembers: a council has fewer open.
REMEMBERED_MAX = 10_000


class SpanRecorder:
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
        if metadata is not None:
            carrier = {"traceparent": metadata.traceparent, "tracestate": metadata.tracestate}
            return _HEADERS.extract(carrier, Context())
        both = hashlib.blake2b(f"{self._council_id}\0{proposal_id}".encode(), digest_size=24).digest()
        trace_id, span_id = int.from_bytes(both[:16], "big"), int.from_bytes(both[16:], "big")
        sampled = self._sampler is None or (
            self._sampler.should_sample(Context(), trace_id, names.DECIDE).decision.is_sampled()
        )
        made = SpanContext(trace_id, span_id, True, TraceFlags(int(sampled)))
        return trace.set_span_in_context(NonRecordingSpan(made), Context())

    @contextlib.contextmanager
    def span(
        self,
        name: str,
        attributes: Mapping[str, Any],
        parent: Context | None = None,
        *,
        is_call: bool = False,
    ) -> Iterator[Span]:
        """The span around a body of code, current in it. It records only the class of an error.

        ``parent`` is the current span if it is None. ``is_call``: the body calls another process.
        """
        kind = SpanKind.CLIENT if is_call else SpanKind.INTERNAL
        before = names.current.set(self)
        try:
            with self.tracer.start_as_current_span(
                name, parent, kind, attributes, record_exception=False, set_status_on_exception=False
            ) as span:
                try:
                    yield span
                except (asyncio.CancelledError, GeneratorExit):
                    span.set_attribute(names.CANCELLED, True)
                    raise
                except BaseException as error:
                    error_type = getattr(error, "error_type", None)
                    is_named = isinstance(error_type, str)
                    span.set_attribute(names.ERROR_TYPE, error_type if is_named else type(error).__qualname__)
                    span.set_status(StatusCode.ERROR)
                    raise
        finally:
            names.current.reset(before)

    def work(self, seat: str, proposal_id: str, kind: str) -> contextlib.AbstractContextManager[Span]:
        """The span of a mind's work on a proposal: a ballot, a ruling or an observation."""
        parent = self.parent(proposal_id, self._traced.get(proposal_id))
        return self.span(names.WORK[kind], {names.SEAT: seat, names.PROPOSAL: proposal_id}, parent)

    @contextlib.contextmanager
    def proposing(self, proposal: str | Envelope) -> Iterator[names.RecordsOutcome]:
        """See ``spans.proposing``."""
        parent = self.parent(proposal.msg_id, proposal.metadata) if isinstance(proposal, Envelope) else None
        with self.span(names.PROPOSE, {}, parent, is_call=True) as span:

            def record(decision: D) -> D:
                known: Any = decision
                outcome = known.outcome or known.standing
                span.set_attributes({names.PROPOSAL: known.proposal_id, names.OUTCOME: outcome})
                return decision

            yield record

    def annotate(self, facts: Mapping[str, Any]) -> None:
        """Sets attributes of the current span."""
        trace.get_current_span().set_attributes(facts)

    def carried(self) -> Metadata | None:
        """The current span, for a message to carry; None if there is none."""
        if not trace.get_current_span().get_span_context().is_valid:
            return None
        found: dict[str, str] = {}
        _HEADERS.inject(found)
        if len(found.get("tracestate", "")) <= TRACESTATE_CHARS_MAX:
            with contextlib.suppress(ValueError):  # an invalid state must not cost a proposal
                return Metadata.model_validate(found)
        return Metadata(traceparent=found["traceparent"])
