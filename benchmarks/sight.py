"""What it costs to be seen: the CPU that metrics or traces add to a decision in process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.job import Load
from benchmarks.measure import Row, in_turn, times_row
from benchmarks.minds import STUBS
from benchmarks.running import level_of
from council import Council

DECISIONS, TURNS, IN_FLIGHT = 1_000, 20, 10
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def sight_rows(scale: float = 1.0) -> list[Row]:
    """The CPU of a decision with metrics for Prometheus and with traces by OTLP, beside one without."""
    with _collector() as endpoint:
        before = os.environ.get(ENDPOINT)
        os.environ[ENDPOINT] = endpoint
        try:
            with (
                Council.inline(name="unseen", seats=STUBS, store="memory") as unseen,
                Council.inline(name="metered", seats=STUBS, store="memory", metrics_port=0) as metered,
                Council.inline(name="traced", seats=STUBS, store="memory", traces="otlp") as traced,
            ):
                works = [_cpu(council) for council in (unseen, metered, traced)]
                bare, metrics, traces = in_turn(works, max(int(TURNS * scale), 2))
        finally:
            del os.environ[ENDPOINT]
            os.environ |= {ENDPOINT: before} if before is not None else {}
    return [
        times_row("sight", "CPU of a decision with metrics for Prometheus", metrics, bare),
        times_row("sight", "CPU of a decision with traces by OTLP", traces, bare),
    ]


def _cpu(council: Council) -> Callable[[], Load]:
    """The CPU of all threads for one decision, on the average of some that take longer than what looks at them."""
    decisions = level_of(council)

    def each() -> Load:
        found = decisions(DECISIONS, IN_FLIGHT)
        return Load([found.cpu_each_s], found.cpu_s)

    return each


@contextmanager
def _collector() -> Iterator[str]:
    """A collector that takes spans and forgets them, in a process of its own, so that its CPU is not counted."""
    command = [sys.executable, "-c", "from benchmarks.sight import forget; forget()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def forget() -> None:
    """Says at which port it listens, and takes whatever comes until it is killed."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
