"""Writes the council's own spans as OTLP has them (protobuf), byte for byte as OpenTelemetry's encoder would.

That is made for whatever a span may hold, and takes five times the CPU. What is written here are the few things that
ours do hold; a span with anything else in it is left to that encoder. Knows nothing of where spans go.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct, pack
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import SpanContext, SpanKind, Status

from council.recorder import UNSET, Recorded, Recorder

# Texts up to here are kept as they were written, some thousand of them: names, votes and ids come again.
KEPT_CHARS_MAX = 64
_METRICS = "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"

# From opentelemetry/proto/trace/v1/trace.proto: a field begins with its number and its form, in one byte or two.
_IDS, _PARENT, _TIMES, _TIME = (Struct(form).pack for form in (">HQQHQ", ">HQ", "<BQBQ", "<BQ"))
_LOW = 2**64 - 1
_KINDS = {SpanKind.INTERNAL.value: b"0\x01", SpanKind.CLIENT.value: b"0\x03"}
_LOCAL, _REMOTE = b"\x85\x01\x00\x01\x00\x00", b"\x85\x01\x00\x03\x00\x00"


def sending(
    exporter: OTLPSpanExporter, recorder: Recorder
) -> Callable[[Sequence[Any]], SpanExportResult] | None:
    """What sends the spans of a batch by the HTTP client of ``exporter``, as that sends its own.

    None where it is to count what it sends, or is of a version whose client is not known here.
    """
    send: Callable[[bytes], Any] | None = getattr(getattr(exporter, "_client", None), "export", None)
    if send is None or os.environ.get(_METRICS, "").strip().lower() == "true":
        return None
    about = _about(recorder)

    def export(spans: Sequence[Any]) -> SpanExportResult:
        found = [written(span) if type(span) is Recorded else None for span in spans]
        ours = [data for data in found if data is not None]
        done = not ours or send(about(ours)).success
        others = [span for span, data in zip(spans, found, strict=True) if data is None]
        if others:
            done = exporter.export(others) is SpanExportResult.SUCCESS and done
        return SpanExportResult.SUCCESS if done else SpanExportResult.FAILURE

    return export


def _about(recorder: Recorder) -> Callable[[Sequence[bytes]], bytes]:
    """What makes a request of spans: they stand in a scope, and that in a resource, both the recorder's."""
    context = SpanContext(1, 1, is_remote=False)
    none = ReadableSpan("", context, resource=recorder.resource, instrumentation_scope=recorder.scope)
    (resource,) = encode_spans([none]).resource_spans
    (scope,) = resource.scope_spans
    del scope.spans[:], resource.scope_spans[:]
    before, within = resource.SerializeToString(), scope.SerializeToString()

    def request(spans: Sequence[bytes]) -> bytes:
        return _field(b"\n", before + _field(b"\x12", within + b"".join(spans)))

    return request


def written(span: Recorded) -> bytes | None:
    """The span as a field of its scope; None where there is something in it that is not written here."""
    try:
        return _written(span)
    except Exception:  # noqa: BLE001 - a mind may have put anything there: that encoder says what it can't read
        return None


def _written(span: Recorded) -> bytes | None:
    (trace_id, span_id, _, _, state, _), parent, status = span.get_span_context(), span.parent, span.status
    kind = _KINDS.get(span.kind.value)
    if kind is None or span.links:
        return None
    parts = [_IDS(0x0A10, trace_id >> 64, trace_id & _LOW, 0x1208, span_id)]
    if state:
        parts.append(_text(b"\x1a", ",".join(f"{key}={value}" for key, value in state.items())))
    if parent is not None:
        parts.append(_PARENT(0x2208, parent[1]))
    parts += _text(b"*", span.name), kind, _TIMES(0x39, span.start_time, 0x41, span.end_time)
    _add(parts, b"J", span.facts)
    for event in span.told:
        within = [_TIME(9, event.timestamp), _text(b"\x12", event.name)]
        _add(within, b"\x1a", event.attributes)
        parts.append(_field(b"Z", b"".join(within)))
    parts.append(b"z\x00" if status is UNSET else _field(b"z", _status(status)))
    parts.append(_REMOTE if parent is not None and parent[2] else _LOCAL)
    return _field(b"\x12", b"".join(parts))


def _status(status: Status) -> bytes:
    told = _field(b"\x12", status.description.encode()) if status.description else b""
    return told + (b"\x18" + _number(status.status_code.value) if status.status_code.value else b"")


def _add(parts: list[bytes], tag: bytes, attributes: Mapping[str, Any] | None) -> None:
    for key, value in (attributes or {}).items():
        kind = type(value)
        if kind is bool or kind is int or (kind is str and len(value) <= KEPT_CHARS_MAX):
            parts.append(_kept(tag, key, value))
        else:
            parts.append(_attribute(tag, key, value))


def _attribute(tag: bytes, key: str, value: Any) -> bytes:
    return _field(tag, _text(b"\n", key) + _field(b"\x12", _value(value)))


_kept = lru_cache(maxsize=1_024, typed=True)(_attribute)


def _value(value: Any) -> bytes:
    kind = type(value)
    if kind is str:
        return _field(b"\n", value.encode())
    if kind is bool:
        return b"\x10\x01" if value else b"\x10\x00"
    if kind is int:
        return b"\x18" + _number(value)
    if kind is float:
        return pack("<Bd", 0x21, value)
    if kind is list or kind is tuple:
        return _field(b"*", b"".join(_field(b"\n", _value(each)) for each in value))
    raise TypeError(f"{kind.__name__} is not written here")


@lru_cache(maxsize=256)
def _text(tag: bytes, text: str) -> bytes:
    """A text that is not empty."""
    return _field(tag, text.encode()) if text else b""


def _field(tag: bytes, body: bytes) -> bytes:
    size = len(body)
    return tag + (_BYTES[size] if size < 0x80 else _number(size)) + body


def _number(number: int) -> bytes:
    """As protobuf has it: seven bits in each byte, the lowest first; below zero by its complement to 2**64."""
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} is no number of 64 bits")
    number &= 2**64 - 1
    found = []
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


_BYTES = [bytes((number,)) for number in range(0x80)]
