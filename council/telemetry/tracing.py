"""Sends a process's spans where the setting ``traces`` says.

Without the setting, nothing of OpenTelemetry is imported. A collector that is away is reported once; the council
loses its traces alone.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from council.protocol.errors import ConfigError
from council.protocol.extras import require

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import TracerProvider

    from council.agents.messaging.span_recorder import SpanRecorder
    from council.config.settings import CouncilConfig

# The last spans are sent within this many seconds or lost: a council also closes if the collector is away.
FLUSH_S = 3.0


class Traces:
    """The destination of a process's spans. ``close`` sends the last ones, which may take some seconds."""

    def __init__(self, provider: TracerProvider, close: Callable[[], None]) -> None:
        self.provider = provider
        self._tracer = provider.get_tracer("council")
        self.close = close

    def spans(self, council_id: str) -> SpanRecorder:
        """The maker of spans for a part of that council."""
        from council.agents.messaging.span_recorder import SpanRecorder

        return SpanRecorder(self._tracer, council_id, getattr(self.provider, "sampler", None))


def traces_of(config: CouncilConfig, part: str) -> Traces | None:
    """The destination of the spans of that ``part`` of a council, by its setting ``traces``; None for nowhere.

    Raises ConfigError if that is not possible.
    """
    if config.traces == "off":
        return None
    refuse_untraceable(config)
    if config.traces == "global":
        from opentelemetry import trace

        return Traces(trace.get_tracer_provider(), lambda: None)
    try:
        return _exporting(f"{config.name}/{part}")
    except Exception as error:  # whatever a variable says that OpenTelemetry can't read
        raise _unfit(f"can't be used: {error}; see the variables OTEL_…") from error


def end(traces: Traces | None) -> None:
    """Sends the last spans, if there are traces. Blocks."""
    if traces is not None:
        traces.close()


def refuse_untraceable(config: CouncilConfig) -> None:
    """Raises ConfigError if the extra that the setting ``traces`` needs is not installed."""
    needed = {
        "global": ("opentelemetry.trace", "opentelemetry-api"),
        "otlp": (
            "opentelemetry.exporter.otlp.proto.http.trace_exporter",
            "opentelemetry-exporter-otlp-proto-http",
        ),
    }
    if config.traces in needed:
        module, package = needed[config.traces]
        require(module, package=package, extra="otel", what=f"traces = '{config.traces}'")


def traces_if(config: CouncilConfig, part: str) -> Traces | None:
    """Like ``traces_of``, but an error is only logged, and the council goes on without traces."""
    try:
        return traces_of(config, part)
    except ConfigError as error:
        _log().warning("no traces", council=config.name, part=part, why=error.message)
        return None


def traces_here(config: CouncilConfig, part: str) -> Traces | None:
    """Like ``traces_if``, for a process of the council's own: its minds' spans go there too."""
    found = traces_if(config, part)
    if config.traces == "otlp" and found is not None:
        from opentelemetry import trace

        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):  # nobody has set one
            trace.set_tracer_provider(found.provider)
    return found


def _log() -> Any:
    from council.agents.messaging.logs import get_logger

    return get_logger("council")


def _unfit(what: str) -> ConfigError:
    problem = f"traces = 'otlp' {what}"
    return ConfigError(problem, problems=[problem])


# Sending


def _exporting(instance: str) -> Traces:
    """Sends spans to the collector that the variables OTEL_… name, sampled and batched as they say."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    about = {SERVICE_INSTANCE_ID: instance}
    given = f"{os.environ.get('OTEL_SERVICE_NAME', '')},{os.environ.get('OTEL_RESOURCE_ATTRIBUTES', '')}"
    if given.startswith(",") and f"{SERVICE_NAME}=" not in given:
        about[SERVICE_NAME] = "council"
    exporter = _reporting(OTLPSpanExporter())
    provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))

    def close() -> None:
        ending = threading.Thread(target=provider.shutdown, name="council-traces", daemon=True)
        ending.start()
        ending.join(FLUSH_S)
        if ending.is_alive():
            exporter.shutdown()  # ends its pauses between attempts
            _log().warning("the last traces were not sent", within_s=FLUSH_S)

    return Traces(provider, close)


_ours: ContextVar[bool] = ContextVar("ours", default=False)


def _reporting(exporter: SpanExporter) -> SpanExporter:
    """The exporter, with one log line when it can't send and one when it can again. Its own log lines are muted."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    where = getattr(exporter, "_endpoint", "the collector")

    class Reporting(SpanExporter):
        failing = ended = False

        def export(self, spans: Any) -> SpanExportResult:
            if self.ended:  # the waiting spans are lost, and reported as lost
                return SpanExportResult.FAILURE
            token = _ours.set(True)
            try:
                result = exporter.export(spans)
            finally:
                _ours.reset(token)
            failed = result is not SpanExportResult.SUCCESS
            if failed and not self.failing and not self.ended:
                why = "no collector takes them there; the council goes on, and what waited is lost"
                _log().warning("traces can't be sent", to=where, why=why)
            elif self.failing and not failed:
                _log().info("traces are sent again", to=where)
            self.failing = failed
            return result

        def shutdown(self) -> None:
            if not self.ended:
                self.ended = True
                exporter.shutdown()

    logging.getLogger(type(exporter).__module__).addFilter(_not_ours)
    return Reporting()


def _not_ours(record: logging.LogRecord) -> bool:
    return not _ours.get()
