"""A collector of spans on loopback, as OTLP/HTTP has it: takes them, or does not, and tells what it was sent."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.patience import HANG_S


class Sent(NamedTuple):
    """A span as it came in, and the resource that sent it."""

    name: str
    trace: str
    span: str
    parent: str
    attributes: dict[str, Any]
    resource: dict[str, Any]


class Collector:
    """``status`` is what it answers."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.spans: list[Sent] = []
        self.asked = 0
        self._came = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector._take(self.path, self.rfile.read(int(self.headers["content-length"])))
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def until(self, *names: str) -> list[Sent]:
        """The spans, once there is one of each of these names."""
        with self._came:
            found = self._came.wait_for(lambda: set(names) <= {each.name for each in self.spans}, HANG_S)
            assert found, f"{set(names) - {each.name for each in self.spans}} did not come"
            return list(self.spans)

    def _take(self, path: str, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        with self._came:
            self.asked += 1
            if self.status == 200 and path == "/v1/traces":
                for group in request.resource_spans:
                    about = _plain(group.resource.attributes)
                    self.spans += [_sent(each, about) for scope in group.scope_spans for each in scope.spans]
            self._came.notify_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _sent(span: Any, resource: dict[str, Any]) -> Sent:
    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
    return Sent(span.name, *ids, _plain(span.attributes), resource)


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
