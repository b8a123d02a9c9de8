"""The metrics that are read from a coordinator, and the sinks that all metrics go to.

Those that count announcements are defined in ``kinds/table.py``.

A ``Meter`` reads a coordinator now and then: it counts what was announced since the last time, and measures the
rest. A sink takes the values: ``Registry`` is scraped by Prometheus, and Ray's own sink is in ``cluster/``.
Announcements are on the record (rules 4.7); refused and ignored messages are counted as they happen.

Names, units and labels follow Prometheus's conventions. The values of a label are the council's own words, its seats
and its models. Seats can make up some of them: of those there are at most ``SERIES_MAX``, then ``other``.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, get_args

from council.core import effects as do
from council.core.state import Caps, Spend, Stage, total
from council.kinds.row import Metric, fact
from council.kinds.table import ANNOUNCED, COUNTED
from council.protocol.errors import OperatorError
from council.telemetry.watcher import Announced, Watcher

if TYPE_CHECKING:
    from council.runtime.coordinator import Coordinator, View
    from council.runtime.driver import Driver

# Series of one metric; 15 seats with 13 models or reasons each are far from it.
SERIES_MAX = 200
OTHER = "other"
# How long a scrape waits for a coordinator that is busy; Prometheus itself waits 10 s.
SCRAPE_S = 5.0
COMMIT_SECONDS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
RECORDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

# The methods of prometheus_client and of Ray that record a value.
SETTERS = {"counter": "inc", "gauge": "set", "histogram": "observe"}


# Read from the coordinator. The metrics that count announcements are in the table of kinds.
_MEASURED = (
    # Seats
    Metric("gauge", "council_seat_active", "Whether the seat is active: 1 or 0.", ("seat",)),
    Metric("gauge", "council_seat_heartbeat_age_seconds", "Time since the seat's last heartbeat.", ("seat",)),
    Metric(
        "gauge",
        "council_seat_heartbeat_interval_seconds",
        "Time between the seat's last heartbeats.",
        ("seat",),
    ),
    Metric("counter", "council_seat_restarts", "Runs of the seat's actor that ended.", ("seat",)),
    Metric("gauge", "council_seat_silence_limit_seconds", "A seat that is silent for longer is inactive."),
    Metric("gauge", "council_quorum_seats", "How many ballots a decision needs."),
    # Proposals
    Metric("gauge", "council_proposals_open", "Proposals that are not decided, by stage.", ("stage",)),
    Metric("counter", "council_refused_envelopes", "Envelopes that were refused.", ("reason",)),
    Metric("counter", "council_ignored_envelopes", "Envelopes that were duplicates or late.", ("reason",)),
    Metric("gauge", "council_escalations_open", "Proposals that wait for a human."),
    Metric("gauge", "council_escalation_age_seconds", "How long the oldest of them has waited, or 0."),
    # The journal
    Metric(
        "histogram",
        "council_journal_commit_duration_seconds",
        "Time to write a batch of records, and to have it on disk.",
        (),
        COMMIT_SECONDS,
    ),
    Metric("histogram", "council_journal_batch_records", "Records in a batch.", (), RECORDS),
    Metric("gauge", "council_journal_lag_records", "Records that are not on disk yet."),
    Metric("gauge", "council_journal_stalled", "Whether the journal is stalled: 1 or 0."),
    # What models cost
    Metric(
        "gauge", "council_model_reserved_tokens", "Tokens reserved for calls under way.", ("seat", "model")
    ),
    Metric("gauge", "council_budget_tokens", "The cap on tokens, if there is one.", ("whose",)),
    Metric("gauge", "council_budget_left_tokens", "Tokens left under the cap.", ("whose",)),
    Metric("gauge", "council_budget_dollars", "The cap on US dollars, if there is one.", ("whose",)),
    Metric("gauge", "council_budget_left_dollars", "US dollars left under the cap.", ("whose",)),
    # The coordinator
    Metric("gauge", "council_coordinator_epoch", "How many coordinators the journal has had."),
    Metric("gauge", "council_coordinator_uptime_seconds", "The total uptime of these coordinators."),
)
METRICS = ChainMap({each.name: each for each in _MEASURED}, COUNTED)
_HELD = "council_model_reserved_tokens"


class Sink(Protocol):
    """A destination of metrics."""

    def record(self, metric: Metric, value: float, labels: dict[str, str]) -> None:
        """A counter grew by ``value``, a gauge is at it, or a histogram has one more.

        ``labels`` are all labels of the metric, ``council`` among them.
        """


class Meter(Watcher):
    """Records a coordinator's metrics with the sinks. It counts from its beginning."""

    def __init__(self, council: str, coordinator: Coordinator, sinks: Sequence[Sink]) -> None:
        self._council = council
        self._sinks = tuple(sinks)
        self._series: dict[str, dict[tuple[str, ...], dict[str, str]]] = {}
        self._grown: dict[tuple[str, ...], float] = defaultdict(float)
        self._counted: dict[tuple[str, ...], float] = {}
        self._beats: dict[str, tuple[int, int, float]] = {}
        self._held: set[tuple[str, ...]] = set()
        super().__init__(coordinator)

    # Recording

    def _add(self, name: str, amount: float, *labels: str) -> None:
        """A counter grew. It is recorded once for each reading, because a sink may be slow."""
        self._grown[name, *labels] += amount

    def _grown_to(self, name: str, value: float, *labels: str) -> None:
        """A counter that is kept elsewhere is at ``value``."""
        more = value - self._counted.get((name, *labels), 0.0)
        if more > 0:
            self._counted[name, *labels] = value
            self._add(name, more, *labels)

    def _record(self, name: str, value: float, *labels: str) -> None:
        metric, full = METRICS[name], self._labels(name, labels)
        for sink in self._sinks:
            sink.record(metric, value, full)

    def _labels(self, name: str, values: tuple[str, ...]) -> dict[str, str]:
        """All labels of a series; those of one too many are ``other``."""
        known = self._series.setdefault(name, {})
        found = known.get(values)
        if found is None:
            shown = values if len(known) < SERIES_MAX else (OTHER,) * len(values)
            found = {"council": self._council, **dict(zip(METRICS[name].labels, shown, strict=True))}
            if len(known) < SERIES_MAX:
                known[values] = found
        return found

    # Reading

    def begin(self, view: View) -> None:
        driver = view.driver
        for name, counts in (
            ("council_refused_envelopes", driver.refused),
            ("council_ignored_envelopes", driver.ignored),
        ):
            self._counted |= {(name, why): count for why, count in counts.items()}
        for seat in driver.state.seats.values():
            self._counted["council_seat_restarts", seat.name] = seat.boot - seat.handed_on

    def see(self, announced: Announced, view: View) -> None:
        driver, journal = view.driver, view.journal
        uptime_s, wall_s = view.now
        for _, effect in announced:
            self._count(effect)
        self._read_seats(driver, uptime_s)
        self._read_proposals(driver, wall_s)
        while journal.commits:
            records, seconds = journal.commits.popleft()
            self._record("council_journal_batch_records", records)
            self._record("council_journal_commit_duration_seconds", seconds)
        self._record("council_journal_lag_records", max(driver.position - view.kept_position, 0))
        self._record("council_journal_stalled", journal.trouble is not None)
        self._read_budget(driver)
        self._record("council_coordinator_epoch", driver.state.epoch)
        self._record("council_coordinator_uptime_seconds", uptime_s)
        grown, self._grown = self._grown, defaultdict(float)
        for (name, *labels), amount in grown.items():
            self._record(name, amount, *labels)

    def _read_seats(self, driver: Driver, uptime_s: float) -> None:
        rules = driver.state.rules
        for seat in driver.state.seats.values():
            self._record("council_seat_active", seat.active, seat.name)
            # Recorded by the coordinator: a dead actor's own series would look well, and then vanish.
            self._record("council_seat_heartbeat_age_seconds", uptime_s - seat.last_beat_s, seat.name)
            boot, beat, last_s = self._beats.get(seat.name, (seat.boot, -1, 0.0))
            if boot == seat.boot and 0 <= beat < seat.beat:
                interval_s = (seat.last_beat_s - last_s) / (seat.beat - beat)
                self._record("council_seat_heartbeat_interval_seconds", interval_s, seat.name)
            self._beats[seat.name] = seat.boot, seat.beat, seat.last_beat_s
            self._grown_to("council_seat_restarts", seat.boot - seat.handed_on, seat.name)
        self._record("council_seat_silence_limit_seconds", rules.inactivity_limit_s)
        self._record("council_quorum_seats", rules.quorum)

    def _read_proposals(self, driver: Driver, wall_s: float) -> None:
        """Proposals as they are kept: no change is shown before that, as in status (rules 4.7)."""
        opened = driver.kept.open
        stages = dict.fromkeys(get_args(Stage), 0)
        for proposal in opened.values():
            stages[proposal.stage] += 1
        for stage, count in stages.items():
            self._record("council_proposals_open", count, stage)
        asked_s = [each.asked_wall_s for each in driver.kept.escalations()]
        self._record("council_escalations_open", len(asked_s))
        self._record("council_escalation_age_seconds", max(wall_s - min(asked_s, default=wall_s), 0.0))
        for code, count in driver.refused.items():
            self._grown_to("council_refused_envelopes", count, code)
        for what, count in driver.ignored.items():
            self._grown_to("council_ignored_envelopes", count, what)

    def _read_budget(self, driver: Driver) -> None:
        state = driver.state
        budget, own = state.rules.budget, dict(state.rules.budget.seats)
        self._put_caps("council", budget.council, total(state.paid.values()))
        for name in state.rules.seats:
            account = state.paid.get(name)
            self._put_caps(name, own.get(name, budget.seat), total([account] if account else []))
        # A series that was recorded falls to 0.
        held: dict[tuple[str, ...], int] = dict.fromkeys(self._held, 0)
        for call in (granted.call for granted in state.calls.values()):
            series = tuple(self._labels(_HELD, (call.seat, call.model)).values())[1:]
            held[series] = held.get(series, 0) + call.worst.tokens
        self._held = set(held)
        for series, tokens in held.items():
            self._record(_HELD, tokens, *series)

    def _put_caps(self, whose: str, caps: Caps, used: Spend) -> None:
        if caps.tokens is not None:
            self._record("council_budget_tokens", caps.tokens, whose)
            self._record("council_budget_left_tokens", max(caps.tokens - used.tokens, 0), whose)
        if caps.microusd is not None:
            self._record("council_budget_dollars", caps.microusd / 1e6, whose)
            self._record("council_budget_left_dollars", max(caps.microusd - used.microusd, 0) / 1e6, whose)

    def _count(self, effect: do.Effect) -> None:
        """Counts one announcement, by the metrics in its row."""
        for metric in ANNOUNCED[type(effect)].counted:
            if fact(effect, metric.when):
                record = self._add if metric.kind == "counter" else self._record
                labels = (_word(fact(effect, metric.values.get(label, label))) for label in metric.labels)
                record(metric.name, fact(effect, metric.amount), *labels)


def _word(value: Any) -> str:
    """The value of a label."""
    return ("yes" if value else "no") if isinstance(value, bool) else value or ""


class Registry:
    """A sink for Prometheus: the metrics of prometheus_client."""

    def __init__(self) -> None:
        import prometheus_client as prometheus  # only a council that serves metrics needs it

        self.collected = prometheus.CollectorRegistry()
        kinds: Any = {"counter": prometheus.Counter, "gauge": prometheus.Gauge}
        self._made: dict[str, Any] = {}
        for name, metric in METRICS.items():
            about = (name, metric.help, ("council", *metric.labels))
            if metric.kind == "histogram":
                self._made[name] = prometheus.Histogram(
                    *about, registry=self.collected, buckets=metric.buckets
                )
            else:
                self._made[name] = kinds[metric.kind](*about, registry=self.collected)

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        series = self._made[metric.name].labels(**labels)
        getattr(series, SETTERS[metric.kind])(value)


class MetricsServer:
    """An HTTP server for Prometheus, on a thread of its own: ``http://host:port/metrics``."""

    def __init__(self, registry: Registry, meter: Meter, host: str, port: int) -> None:
        """Listens at ``port``, 0 for a free one. Called on the coordinator's loop. Raises OperatorError."""
        from council.gateway import web  # only a council that serves metrics needs it

        try:
            listener = web.listening(host, port)
        except OSError as error:
            raise OperatorError(
                f"metrics can't be served at {host} port {port}: {error}; see metrics_host and metrics_port"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{listener.getsockname()[1]}/metrics"
        served = _scraped(registry, meter, asyncio.get_running_loop())
        self._server = web.AppServer(served, listener, "council-metrics")

    def close(self) -> None:
        """Stops listening; for a thread that may wait."""
        self._server.close()


def _scraped(registry: Registry, meter: Meter, loop: asyncio.AbstractEventLoop) -> Any:
    """The metrics as they are when they are asked for, at any path: the meter reads first, on ``loop``."""
    from prometheus_client import make_asgi_app
    from prometheus_client.exposition import choose_encoder
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse

    metrics = make_asgi_app(registry.collected)

    async def read() -> None:
        meter.read()

    async def response(request: Request) -> Any:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("expected GET or HEAD", 405, {"Allow": "GET, HEAD"})
        try:
            read_later = (b"accept", b"accept-encoding")
            given = [(name, value.decode()) for name, value in request.headers.raw if name in read_later]
            choose_encoder(",".join(value for name, value in given if name == b"accept"))
        except (TypeError, ValueError):  # not UTF-8, or a version that is not a number
            return PlainTextResponse("Accept can't be read: expected what Prometheus sends, or none", 400)
        try:
            async with asyncio.timeout(SCRAPE_S):
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(read(), loop))
        except TimeoutError:
            return PlainTextResponse(f"the coordinator has not answered within {SCRAPE_S:g} s", 503)
        return metrics

    async def app(scope: Any, receive: Any, send: Any) -> None:
        answer = await response(Request(scope))
        await answer(scope, receive, send)

    return app
