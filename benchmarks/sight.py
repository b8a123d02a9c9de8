"""What it costs to be seen: the CPU that metrics and traces add to one decision, in pairs with and without."""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.measure import Row, median_s
from benchmarks.minds import STUBS
from council.agents.messaging import spans
from council.api import inline
from council.api.keywords import new_proposal
from council.cluster.metrics import RaySink
from council.config.settings import CouncilConfig
from council.runtime.session import Session
from council.telemetry.metrics import Meter, Registry, Sink
from council.telemetry.tracing import traces_of

# One batch of spans, and what comes to one look where much is decided: it looks twice a second.
DECISIONS, TURNS = 100, 30
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
BODY = {"body": "", "action": None, "wait_for": "all", "time_budget_s": 60.0, "supersedes": None}


def sight_rows(scale: float = 1.0) -> list[Row]:
    """The CPU of metrics by each sink and by both, and of traces sent by OTLP."""
    turns = max(int(TURNS * scale), 6)
    rows = asyncio.run(_metered(turns))
    with _collector() as endpoint:
        before = os.environ.get(ENDPOINT)
        os.environ[ENDPOINT] = endpoint
        try:
            rows.append(asyncio.run(_traced(turns)))
        finally:
            del os.environ[ENDPOINT]
            os.environ |= {ENDPOINT: before} if before is not None else {}
    return rows


def _name(what: str) -> str:
    return f"{what}: CPU for each decision, beside the decision's own"


async def _metered(turns: int) -> list[Row]:
    rows = []
    council = await _Proposing.at("metered")
    sides: dict[str, list[Sink]] = {"Ray's": [RaySink()], "Prometheus's": [Registry()]}
    sides["both"] = [RaySink(), Registry()]
    for what, sinks in sides.items():
        meter = Meter("metered", council.coordinator, sinks)

        async def seen(meter: Meter = meter) -> None:
            await council.decide()
            meter.read()

        rows.append(await _row(f"metrics, {what}", seen, council.decide, turns, meter.read))
        idle_s = median_s(meter.read, 200)
        rows.append(Row("sight", f"metrics, {what}: a look when nothing happened", idle_s * 1e6, "µs"))
    await council.coordinator.close()
    return rows


async def _traced(turns: int) -> Row:
    bare, council = await _Proposing.at("bare"), await _Proposing.at("traced", traces="otlp")
    assert council.traces is not None
    assert council.coordinator.exports is not None
    watchers, provider = council.coordinator.exports._watchers, council.traces.provider

    async def seen() -> None:
        await council.decide()
        for watcher in watchers:
            watcher.read()
        provider.force_flush()

    row = await _row("traces", seen, bare.decide, turns)
    for each in (bare, council):
        await each.coordinator.close()
    council.traces.close()
    return row


class _Proposing:
    """A council in process with stub minds, and a client that proposes to it on the same loop."""

    def __init__(self, coordinator: inline.InlineCoordinator, session: Session, traces: Any) -> None:
        self.coordinator = coordinator
        self.traces = traces
        self._session = session
        self._spans = None if traces is None else traces.spans(session.council_id)

    @classmethod
    async def at(cls, name: str, **settings: Any) -> _Proposing:
        config = CouncilConfig(name=name, seats=STUBS, store="memory", **settings)
        traces = traces_of(config, "benchmark")
        coordinator = await inline.start(config, traces)
        session = Session(coordinator, "bench", "proposer", bytes(range(32)), 30.0)
        await session.open()
        return cls(coordinator, session, traces)

    async def decide(self) -> None:
        for _ in range(DECISIONS):
            with spans.proposing(self._spans, "x") as told:
                metadata = spans.carried(self._spans)
                content = {"summary": "x", **BODY, "history": ()}
                envelope = new_proposal("bench", content, confidence=1.0, risk_level="low", metadata=metadata)
                assert told(await self._session.propose(envelope))


async def _row(
    what: str,
    seen: Callable[[], Awaitable[None]],
    unseen: Callable[[], Awaitable[None]],
    turns: int,
    before: Callable[[], None] = lambda: None,
) -> Row:
    """A B B A …, so that the machine's drift cancels out; ``before`` each, for what is left of the last."""

    async def cpu_s(work: Callable[[], Awaitable[None]]) -> float:
        before()
        gc.collect()
        began = time.process_time()
        await work()
        return (time.process_time() - began) / DECISIONS

    await cpu_s(seen), await cpu_s(unseen)  # warm both up
    found = []
    for turn in range(turns):
        first, second = (seen, unseen) if turn % 2 == 0 else (unseen, seen)
        one, two = await cpu_s(first), await cpu_s(second)
        found.append((one, two) if turn % 2 == 0 else (two, one))
    cost = statistics.median(a - b for a, b in found)
    bare = statistics.median(b for _, b in found)
    return Row("sight", _name(what), cost * 1e6, "µs", bare * 1e6, cost / bare)


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
