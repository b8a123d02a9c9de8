"""The council's own recorder hands over what OpenTelemetry's SDK would, field for field."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode

from council.agents import recording
from council.agents.recording import Spans, Starting
from council.recorder import Recorder


class Counted(IdGenerator):
    """The same ids each time."""

    def __init__(self) -> None:
        self._last = 0

    def generate_span_id(self) -> int:
        self._last += 1
        return self._last

    generate_trace_id = generate_span_id


class RandomlyCounted(Counted):
    def is_trace_id_random(self) -> bool:
        return True


def both(
    use: Callable[[Starting], None], sampler: Sampler | None = None, ids: type[IdGenerator] = Counted
) -> tuple[list[ReadableSpan], list[ReadableSpan]]:
    """What a use of the SDK's tracer makes, and one of ours."""
    found = []
    for ours in (False, True):
        memory = InMemorySpanExporter()
        about = Resource.create({"service.name": "council"})
        provider = TracerProvider(sampler, about, shutdown_on_exit=False, id_generator=ids())
        provider.add_span_processor(SimpleSpanProcessor(memory))
        tracer = provider.get_tracer("council")
        assert isinstance(tracer, Tracer)
        use(Recorder(tracer) if ours else tracer)
        found.append(list(memory.get_finished_spans()))
    return found[0], found[1]


def around(flags: int, state: trace.TraceState | None = None) -> Any:
    parent = SpanContext(0xABC, 0xDEF, True, trace.TraceFlags(flags), state)
    return trace.set_span_in_context(NonRecordingSpan(parent))


def told(span: Span) -> None:
    span.set_attribute("council.vote", "yes")
    span.set_attributes({"council.missing": ["lite"], "council.quorum": 2})
    span.add_event("ballot", {"council.seat": "lite"}, 7)
    span.add_event("to_prime", None, 8)
    span.add_link(SpanContext(0x12, 0x34, False), {"council.seat": "lite"})
    span.update_name("renamed")
    span.set_status(Status(StatusCode.ERROR))
    span.end(9)
    span.end(10)  # once


@pytest.mark.parametrize("sampler", [None, ParentBased(ALWAYS_ON)], ids=["default", "asked"])
@pytest.mark.parametrize("ids", [Counted, RandomlyCounted])
@pytest.mark.parametrize("flags", [0, 1, 2, 3])
def test_what_is_sent_is_what_the_sdk_would_send(
    flags: int, ids: type[IdGenerator], sampler: Sampler | None
) -> None:
    """Byte for byte, beginning a trace and in one. Mutations: leave out a flag, an attribute or an event."""

    def use(tracer: Starting) -> None:
        told(tracer.start_span("begins", None, SpanKind.CLIENT, {"a": True}, start_time=5))
        state = trace.TraceState([("vendor", "1")])
        told(tracer.start_span("follows", around(flags, state), SpanKind.INTERNAL, {}, start_time=5))

    sdks, ours = both(use, sampler, ids)
    assert len(sdks) == (2 if flags & 1 else 1)
    assert encode_spans(ours) == encode_spans(sdks)
    assert [span.context for span in ours] == [span.context for span in sdks]


def test_what_is_not_sampled_is_not_recorded_and_its_context_goes_on() -> None:
    contexts = []

    def use(tracer: Starting) -> None:
        span = tracer.start_span("begins")
        assert not span.is_recording()
        contexts.append(span.get_span_context())
        told(span)

    assert both(use, ParentBased(ALWAYS_OFF)) == ([], [])
    assert contexts[0] == contexts[1]


def test_work_is_told_as_by_the_sdk_and_an_error_by_its_class_alone() -> None:
    def use(tracer: Starting) -> None:
        spans = Spans(tracer, "c.1")
        with contextlib.suppress(ValueError), spans.work("lite", "0" * 16, "ballot"):
            assert trace.get_current_span().is_recording()
            raise ValueError("a secret")

    ((sdks,), (ours,)) = both(use)
    assert (ours.name, ours.attributes, ours.parent) == (sdks.name, sdks.attributes, sdks.parent)
    assert ours.status.status_code is sdks.status.status_code is StatusCode.ERROR
    assert ours.start_time is not None
    assert ours.end_time is not None
    assert ours.start_time <= ours.end_time
    assert "a secret" not in ours.to_json()


def test_a_mind_that_records_an_exception_has_its_class_told() -> None:
    """Its words may quote what was proposed."""

    def use(tracer: Starting) -> None:
        span = tracer.start_span("review")
        span.record_exception(KeyError("a secret"))
        span.end()

    _, (ours,) = both(use)
    assert [(event.name, dict(event.attributes or {})) for event in ours.events] == [
        ("exception", {"exception.type": "KeyError"})
    ]


def test_a_seat_remembers_the_newest_traces_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "REMEMBERED_MAX", 3)
    spans = Spans(TracerProvider(shutdown_on_exit=False).get_tracer("council"), "c.1")
    for number in range(5):
        spans.remember(f"{number:016x}", None)
    assert list(spans._traced) == [f"{number:016x}" for number in (2, 3, 4)]


def test_what_comes_after_its_end_is_too_late_and_its_processors_hear_of_its_beginning() -> None:
    """Mutation: a task that a mind left running changes a span that waits to be sent."""
    begun: list[str] = []

    class Hears(SimpleSpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            begun.append(span.name)

    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Hears(memory))
    tracer = provider.get_tracer("council")
    assert isinstance(tracer, Tracer)
    span = Recorder(tracer).start_span("council.review")
    span.end()
    told(span)
    span.set_status(StatusCode.ERROR)
    (kept,) = memory.get_finished_spans()
    assert (kept.name, dict(kept.attributes or {}), kept.events, kept.links) == ("council.review", {}, (), ())
    assert kept.status.status_code is StatusCode.UNSET
    assert begun == ["council.review"]
