"""The council's spans as they are sent: what OpenTelemetry's own encoder would write, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import (
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from council import otlp
from council.recorder import Recorded, Recorder

IDS = st.tuples(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1))
TIMES = st.integers(1, 2**64 - 1)  # a zero would be left out
# None of the halves of surrogate pairs, which nobody can write; some longer than what is kept.
TEXTS = st.text(max_size=20) | st.text(alphabet="aé€", min_size=60, max_size=200)
SCALARS = (
    TEXTS | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.sampled_from([0.0, -0.0])
)
VALUES = SCALARS | st.lists(TEXTS, max_size=3) | st.tuples(st.booleans(), st.lists(st.integers(0, 300)))
FACTS = st.dictionaries(TEXTS, VALUES, max_size=5)
STATUSES = st.sampled_from([None, Status(StatusCode.OK), Status(StatusCode.ERROR)]) | TEXTS.map(
    lambda text: Status(StatusCode.ERROR, text)
)
STATES = st.sampled_from([None, TraceState([("vendor", "1"), ("other", "x/y")])])


ABOUT = Resource({"service.name": "council", "service.instance.id": "archive/prime"}, "https://schema")
TRACER = TracerProvider(resource=ABOUT, shutdown_on_exit=False).get_tracer("council")
assert isinstance(TRACER, Tracer)
RECORDER = Recorder(TRACER)


def recorded(
    ids: tuple[int, int] = (0xABC, 0xDEF),
    parent: SpanContext | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    facts: dict[str, Any] | None = None,
    state: TraceState | None = None,
) -> Recorded:
    own = SpanContext(*ids, is_remote=False, trace_flags=TraceFlags(1), trace_state=state)
    return Recorded(RECORDER, "council.review", own, parent, kind, dict(facts or {}), 5)


def theirs(span: ReadableSpan) -> bytes:
    """The same span by OpenTelemetry's encoder, in a scope that has no name."""
    (resource,) = encode_spans([span]).resource_spans
    resource.scope_spans[0].ClearField("scope")
    return resource.scope_spans[0].SerializeToString()


@given(st.data())
def test_a_span_is_written_byte_for_byte_as_by_opentelemetrys_encoder(data: st.DataObject) -> None:
    """Mutations: a field out of its place, a length of two bytes, a text that is kept as the flag it equals."""
    remote = st.builds(lambda ids, far: SpanContext(*ids, is_remote=far), IDS, st.booleans())
    kind = data.draw(st.sampled_from([SpanKind.INTERNAL, SpanKind.CLIENT]))
    span = recorded(data.draw(IDS), data.draw(st.none() | remote), kind, data.draw(FACTS), data.draw(STATES))
    for name, facts, at_ns in data.draw(st.lists(st.tuples(TEXTS, st.none() | FACTS, TIMES), max_size=3)):
        span.add_event(name, facts, at_ns)
    span.update_name(data.draw(TEXTS))
    if (status := data.draw(STATUSES)) is not None:
        span.set_status(status)
    span.end(data.draw(TIMES))
    assert otlp.written(span) == theirs(span)


def test_equal_values_of_other_types_are_kept_apart() -> None:
    """1, true and 1.0 are one key of a dict. Mutation: a cache that does not look at types."""
    for value in (1, True, 1.0, 0.0, -0.0, False, 0, True, 1):
        span = recorded(facts={"x": value})
        span.end(9)
        assert otlp.written(span) == theirs(span), value


@pytest.mark.parametrize("size", [*range(100, 131), *range(16_350, 16_390)])
def test_a_length_is_written_in_as_many_bytes_as_it_needs(size: int) -> None:
    """Of a text, of what holds it, and of what holds that. Mutation: 128 in one byte, or 16,384 in two."""
    span = recorded(facts={"x": "y" * size})
    span.end(9)
    assert otlp.written(span) == theirs(span)


ODD: list[dict[str, Any]] = [{"x": b"raw"}, {"x": {"a": 1}}, {"x": None}, {"x": 2**63}, {"x": "\ud800"}]


@pytest.mark.parametrize("facts", ODD, ids=lambda facts: ascii(facts["x"]))
def test_what_is_not_written_here_is_left_to_opentelemetrys_encoder(facts: dict[str, Any]) -> None:
    """A mind may tell the span that it works in whatever it likes: that costs neither its work nor other spans."""
    odd, plain = recorded(facts=facts), recorded()
    for span in (odd, plain):
        span.end(9)
    client = Client()
    exporter = Exporter(client)
    assert sent(exporter, [odd, plain]) is SpanExportResult.SUCCESS
    assert exporter.all == [odd]
    assert ExportTraceServiceRequest.FromString(client.sent[0]) == encode_spans([plain])


def test_links_and_kinds_that_the_council_has_not_are_left_to_it_too() -> None:
    linked = recorded()
    linked.add_link(SpanContext(1, 2, is_remote=False))
    for span in (linked, recorded(kind=SpanKind.SERVER)):
        span.end(9)
        assert otlp.written(span) is None


class Client:
    """Stands for an exporter's HTTP client."""

    def __init__(self, success: bool = True) -> None:
        self.sent: list[bytes] = []
        self.success = success

    def export(self, data: bytes) -> Client:
        self.sent.append(data)
        return self


class Exporter:
    """Stands for OpenTelemetry's, and keeps what it is to write itself."""

    def __init__(self, client: Client) -> None:
        self.all: list[Any] = []
        self._client = client

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        self.all += spans
        return SpanExportResult.SUCCESS


def sent(exporter: Any, spans: Sequence[Any]) -> SpanExportResult:
    export = otlp.sending(exporter, RECORDER)
    assert export is not None
    return export(spans)


def test_a_request_is_the_one_that_opentelemetry_would_send() -> None:
    """With what sends it: the resource, its schema and the scope. Mutation: a request of more than 127 bytes."""
    spans = [recorded((7, number), facts={"x": "y" * number}) for number in range(1, 40)]
    for span in spans:
        span.end(9)
    for count in (1, 2, 39):
        client = Client()
        assert sent(Exporter(client), spans[:count]) is SpanExportResult.SUCCESS
        (data,) = client.sent
        assert ExportTraceServiceRequest.FromString(data) == encode_spans(spans[:count])


def test_others_spans_go_the_exporters_own_way_and_either_may_fail() -> None:
    library = ReadableSpan("GET", SpanContext(1, 2, is_remote=False))
    ours = recorded()
    ours.end(9)
    client = Client()
    exporter = Exporter(client)
    assert sent(exporter, [library]) is SpanExportResult.SUCCESS
    assert (exporter.all, client.sent) == ([library], [])  # and nothing empty is sent
    client.success = False
    assert sent(exporter, [ours, library]) is SpanExportResult.FAILURE
    assert exporter.all == [library, library]
    assert len(client.sent) == 1


def test_where_opentelemetry_is_to_count_what_it_sends_it_is_left_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where it has no client that is known here: another version of it may have another."""
    exporter = OTLPSpanExporter()
    assert otlp.sending(exporter, RECORDER) is not None
    monkeypatch.setenv("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", "true")
    assert otlp.sending(exporter, RECORDER) is None
    monkeypatch.delenv("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED")
    del exporter._client
    assert otlp.sending(exporter, RECORDER) is None
