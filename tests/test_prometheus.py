"""Metrics for real: a Prometheus that scrapes a running council, and promtool on the metrics and alerts that ship."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from council import Case, Council, Opinion, SeatConfig
from tests.patience import HANG_S, until
from tests.ray.nodes import free_port

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "deploy" / "prometheus"


def needs(program: str) -> pytest.MarkDecorator:
    """In CI there must be one: the test then runs, and fails."""
    return pytest.mark.skipif(
        shutil.which(program) is None and not os.environ.get("CI"),
        reason=f"no {program} here: apt-get install prometheus to have the metrics scraped",
    )


def agree(case: Case) -> Opinion:
    return Opinion.no("no") if "bad" in case.summary else Opinion.yes("yes")


SEATS = [SeatConfig(name=name, mind=agree) for name in ("prime", "lite", "codemind")]


def scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=HANG_S) as answer:
        text: str = answer.read().decode()
        return text


@needs("promtool")
def test_the_alerts_that_ship_fire_when_they_should_and_not_before() -> None:
    """Each of them has a history in which it fires, and a moment at which it does not yet."""
    for command in (
        ["promtool", "check", "rules", "alerts.yml"],
        ["promtool", "check", "config", "prometheus.yml"],
        ["promtool", "test", "rules", "alerts_test.yml"],
    ):
        done = subprocess.run(
            command, cwd=SHIPPED, capture_output=True, text=True, timeout=HANG_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    tested = (SHIPPED / "alerts_test.yml").read_text()
    for line in (SHIPPED / "alerts.yml").read_text().splitlines():
        if line.strip().startswith("- alert:"):
            name = line.split(":")[1].strip()
            assert tested.count(f"alertname: {name}\n") >= 1, name


def test_the_alerts_ask_for_metrics_that_there_are() -> None:
    import re

    from council.telemetry.metrics import METRICS

    there = set(METRICS) | {f"{name}{end}" for name in METRICS for end in ("_total", "_bucket", "_sum")}
    rules = (SHIPPED / "alerts.yml").read_text()
    expressions = [line for line in rules.splitlines() if "council_" in line]
    asked = {name for line in expressions for name in re.findall(r"\bcouncil_\w+", line)}
    assert asked
    assert asked <= there


@needs("promtool")
def test_what_is_served_is_in_prometheus_own_form() -> None:
    with Council.inline(seats=SEATS, metrics_port=0) as council:
        council.propose_many(["good", "bad"])
        text = scraped(council.status()["metrics"]["url"])
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert (
        'council_decisions_total{council="council",decided_by="early",degraded="no",outcome="approved"} 1.0'
        in text
    )


def test_a_durable_council_tells_of_its_commits(tmp_path: Path) -> None:
    with Council.inline(seats=SEATS, store=str(tmp_path / "kept.db"), metrics_port=0) as council:
        council.propose("good")
        text = scraped(council.status()["metrics"]["url"])
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    label = '{council="council"}'
    assert float(values[f"council_journal_commit_duration_seconds_count{label}"]) >= 1
    # A start, a proposal, and the ballots that decided it.
    assert float(values[f"council_journal_batch_records_sum{label}"]) >= 4
    assert float(values[f"council_journal_lag_records{label}"]) >= 0
    assert float(values[f"council_coordinator_epoch{label}"]) == 1


def test_a_port_in_use_is_told_and_the_council_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with Council.inline(seats=SEATS, metrics_port=port) as council:
            assert council.propose("good")
            told = council.status()["metrics"]
    assert told["url"] is None
    assert f"metrics can't be served at 127.0.0.1 port {port}" in told["notice"]
    assert "metrics_port" in told["notice"]


def test_the_port_is_free_again_once_the_council_is_closed() -> None:
    port = free_port()  # that nobody else takes meanwhile
    with Council.inline(seats=SEATS, metrics_port=port) as council:
        url = council.status()["metrics"]["url"]
        assert "council_seat_active" in scraped(url)
    with pytest.raises(urllib.error.URLError):
        scraped(url)
    with Council.inline(seats=SEATS, metrics_port=port) as council:
        assert council.status()["metrics"]["url"] == url


def test_it_is_served_in_the_form_that_is_asked_for() -> None:
    with Council.inline(seats=SEATS, metrics_port=0) as council:
        council.propose("good")
        url = council.status()["metrics"]["url"]
        some = scraped(f"{url}?name[]=council_proposals_total")
        assert 'council_proposals_total{council="council"} 1.0' in some
        assert "council_seat_active" not in some

        def answered(**headers: str) -> tuple[int, str | None, str | None]:
            try:
                with urllib.request.urlopen(
                    urllib.request.Request(url, headers=headers), timeout=HANG_S
                ) as answer:
                    told = answer.headers
                    return answer.status, told["Content-Type"].split(";")[0], told["Content-Encoding"]
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, None, None

        assert answered() == (200, "text/plain", None)
        openmetrics = "application/openmetrics-text; version=1.0.0"
        assert answered(**{"Accept": openmetrics, "Accept-Encoding": "gzip"}) == (
            200,
            "application/openmetrics-text",
            "gzip",
        )
        for version in ("x", "1.x", "", "1" * 5_000):  # of which the client library makes an error
            assert answered(Accept=f"application/openmetrics-text; version={version}")[0] in (200, 400)


def test_without_a_port_nothing_is_served() -> None:
    with Council.inline(seats=SEATS) as council:
        assert council.status()["metrics"] is None


class Prometheus:
    """A server of Prometheus of the test's own."""

    def __init__(self, folder: Path, target: str) -> None:
        config = (SHIPPED / "prometheus.yml").read_text()
        shutil.copy(SHIPPED / "alerts.yml", folder)
        assert "127.0.0.1:9464" in config
        config = config.replace("127.0.0.1:9464", target).replace("interval: 5s", "interval: 500ms")
        (folder / "prometheus.yml").write_text(config)
        self.port = free_port()
        path = shutil.which("prometheus")
        assert path is not None, "no Prometheus here: see .ci/run"
        self._process = subprocess.Popen(
            [
                path,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        return json.loads(scraped(url))["data"]

    def values(self, query: str) -> dict[str, float]:
        """The values of an expression, by the labels that tell them apart."""
        found = {}
        for each in self.ask("query", query=query)["result"]:
            labels = {
                k: v for k, v in each["metric"].items() if k not in ("__name__", "job", "instance", "council")
            }
            found[",".join(labels.values())] = float(each["value"][1])
        return found

    def until(self, query: str, wanted: dict[str, float]) -> None:
        def come() -> bool:
            with contextlib.suppress(OSError, ValueError):
                return self.values(query) == wanted
            return False

        until(come, f"{query} does not come to {wanted}")

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(HANG_S)


@pytest.fixture
def council() -> Iterator[Council]:
    with Council.inline(seats=SEATS, metrics_port=0) as council:
        yield council


@needs("prometheus")
def test_a_prometheus_scrapes_a_running_council(council: Council, tmp_path: Path) -> None:
    target = urllib.parse.urlsplit(council.status()["metrics"]["url"]).netloc
    prometheus = Prometheus(tmp_path, target)
    try:
        council.propose_many(["good", "good too", "bad"])
        prometheus.until("up", {"": 1.0})
        prometheus.until("sum by (outcome) (council_decisions_total)", {"approved": 2.0, "rejected": 1.0})
        prometheus.until("council_seat_active", {"prime": 1.0, "lite": 1.0, "codemind": 1.0})
        council.propose("good again")
        prometheus.until("sum by (outcome) (council_decisions_total)", {"approved": 3.0, "rejected": 1.0})
        rules = prometheus.ask("rules")["groups"][0]["rules"]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
        assert "CouncilSeatSilent" in {rule["name"] for rule in rules}
        assert prometheus.ask("alerts")["alerts"] == []
    finally:
        prometheus.close()
