"""Records the council's own spans for OpenTelemetry's SDK to send, at a third of the CPU of the SDK's own.

Those are made for any number of threads, and for attributes without end; the council's have one thread, and a few
short ones. What is handed over is what the SDK would hand over, but that an exception is told by its class alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time_ns
from typing import Any, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Event, ReadableSpan, Tracer
from opentelemetry.sdk.trace.sampling import DEFAULT_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

UNSET = Status(StatusCode.UNSET)
_SAMPLED, _WITH_RANDOM_ID = int(TraceFlags.SAMPLED), int(TraceFlags.RANDOM_TRACE_ID)
_FLAGS = [TraceFlags(flags) for flags in range(4)]


class Recorder:
    """Stands in for the SDK's own ``tracer``, as far as ``agents/recording`` needs one."""

    def __init__(self, tracer: Tracer) -> None:
        self._sampler, self._ids = tracer.sampler, tracer.id_generator
        self._flags = _WITH_RANDOM_ID if self._ids.is_trace_id_random() else 0
        self.resource = tracer.resource
        self.scope = InstrumentationScope("council", "")
        self.begun, self.hand_over = tracer.span_processor.on_start, tracer.span_processor.on_end

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        *,
        start_time: int | None = None,
    ) -> Span:
        """As ``opentelemetry.trace.Tracer.start_span``."""
        parent: SpanContext | None = trace.get_current_span(context).get_span_context()
        trace_id, _, _, flags, state, is_valid = cast(SpanContext, parent)
        if is_valid:
            whole = flags & _WITH_RANDOM_ID
        else:
            parent, trace_id, whole = None, self._ids.generate_trace_id(), self._flags
        if self._sampler is DEFAULT_ON:  # what that one says is known
            recorded = sampled = parent is None or bool(flags & _SAMPLED)
            told = attributes or {}
        else:
            found: Any = self._sampler.should_sample(context, trace_id, name, kind, attributes, ())
            recorded, sampled = found.decision.is_recording(), found.decision.is_sampled()
            told, state = found.attributes, found.trace_state
        own = SpanContext(trace_id, self._ids.generate_span_id(), False, _FLAGS[whole | sampled], state)
        if not recorded:
            return NonRecordingSpan(own)
        span: Any = Recorded(self, name, own, parent, kind, dict(told), start_time)
        self.begun(span, context)
        return cast(Span, span)


class Recorded(Span, ReadableSpan):
    """A span as it is told; handed over once, when it ends. What comes after that is too late."""

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: dict[str, Any],
        start_time: int | None,
    ) -> None:
        self._recorder = recorder
        self.told: list[Event] = []
        ReadableSpan.__init__(
            self,
            name,
            context,
            parent,
            recorder.resource,
            attributes,
            self.told,
            kind=kind,
            status=UNSET,
            start_time=time_ns() if start_time is None else start_time,
            instrumentation_scope=recorder.scope,
        )
        self.facts = attributes

    def get_span_context(self) -> SpanContext:
        assert self._context is not None
        return self._context

    def is_recording(self) -> bool:
        return self._end_time is None

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        if self._end_time is None:
            self.facts |= attributes

    def set_attribute(self, key: str, value: Any) -> None:
        self.set_attributes({key: value})

    def add_event(
        self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None
    ) -> None:
        if self._end_time is None:
            self.told.append(Event(name, attributes, timestamp))

    def add_link(self, context: SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
        if self._end_time is None:
            self._links = (*self._links, Link(context, attributes))

    def update_name(self, name: str) -> None:
        if self._end_time is None:
            self._name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        if self._end_time is None:
            self._status = status if isinstance(status, Status) else Status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        kind = {"exception.type": type(exception).__qualname__}
        self.add_event("exception", {**(attributes or {}), **kind}, timestamp)

    def end(self, end_time: int | None = None) -> None:
        if self._end_time is None:
            self._end_time = time_ns() if end_time is None else end_time
            self._recorder.hand_over(self)
