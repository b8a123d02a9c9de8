"""The panel of councils on a Ray that runs already: at its own address, and never in the council's way.

With it the council's metrics, beside Ray's own and at the coordinator's port.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from council import Council
from council.cluster import panel_actor
from council.config.settings import CouncilConfig
from council.gateway.panel import Server
from council.protocol.errors import CouncilError, OperatorError
from council.runtime import answers
from tests.patience import HANG_S, until
from tests.ray.nodes import free_port


def figures(url: str) -> dict[str, Any] | None:
    """What the panel tells; None while it does not answer."""
    try:
        with urllib.request.urlopen(f"{url}api/council", timeout=HANG_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, http.client.HTTPException):  # also in the midst of an answer
        return None


def pid(actor: Any) -> int | None:
    """The process that an actor is; None while it is none."""
    try:
        return int(ray.get(actor.pid.remote(), timeout=HANG_S))
    except ray.exceptions.RayError:
        return None


def actors(name: str) -> set[str]:
    named = ray.util.list_named_actors(all_namespaces=True)
    return {each["name"] for each in named if each["name"].startswith(f"{name}/")}


def url_of(council: Council) -> str:
    return str(until(lambda: council.status()["panel"]["url"], "the panel was never served"))


@pytest.fixture(scope="module")
def served() -> Iterator[Council]:
    """A council with a panel and with metrics; the second test of it closes it."""
    minds = {"prime": "Chair", "lite": "agree", "codemind": "agree"}
    seats = {seat: {"mind": f"tests.ray.minds:{mind}"} for seat, mind in minds.items()}
    limits = {"inactivity_s": HANG_S, "time_budget_s": HANG_S, "call_timeout_s": HANG_S}
    with Council.launch(
        name="served", seats=seats, store="memory", panel=True, metrics_port=0, **limits
    ) as council:
        yield council


def read(url: str) -> dict[str, float]:
    """The samples at an address, by name and labels."""
    with urllib.request.urlopen(url, timeout=HANG_S) as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and line[0] != "#"
    }


def exported(name: str, council: str, **labels: str) -> float | None:
    """A metric as Ray's node exports it, whatever labels Ray adds."""
    node = ray.nodes()[0]
    found = read(f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics")
    wanted = [f'council="{council}"', *(f'{key}="{value}"' for key, value in labels.items())]
    values = [
        value
        for sample, value in found.items()
        if sample.startswith(f"{name}{{") and all(each in sample for each in wanted)
    ]
    return max(values, default=None)


def test_metrics_are_rays_too_and_tell_of_a_dead_seat(served: Council) -> None:
    assert all(served.propose(f"a change {number}", wait_for="all") for number in range(3))
    name, url = served.name, served.status()["metrics"]["url"]
    own = read(url)
    approved = f'council="{name}",decided_by="all_ballots",degraded="no",outcome="approved"'
    assert own[f"council_decisions_total{{{approved}}}"] == 3.0
    assert own[f'council_seat_active{{council="{name}",seat="lite"}}'] == 1.0

    lite = ray.get_actor(f"{name}/lite", namespace=served.config.ray_namespace)
    os.kill(int(ray.get(lite.pid.remote(), timeout=HANG_S)), signal.SIGKILL)
    restarts = f'council_seat_restarts_total{{council="{name}",seat="lite"}}'
    until(lambda: read(url).get(restarts) == 1.0)
    # Told by the coordinator, so that it is there while its seat is not.
    assert f'council_seat_heartbeat_age_seconds{{council="{name}",seat="lite"}}' in read(url)

    until(lambda: exported("ray_council_decisions_total", name) == 3.0)
    assert exported("ray_council_decisions_total", name, outcome="approved") == 3.0
    assert exported("ray_council_seat_active", name, seat="prime") == 1.0
    assert exported("ray_council_decision_duration_seconds_count", name) == 3.0


def test_it_is_served_comes_back_when_killed_and_ends_with_its_council(served: Council) -> None:
    name, url, before = served.name, url_of(served), sum(served.status()["decided"].values())
    served.propose("Raise the limit")
    told = until(
        lambda: (
            (found := figures(url))
            and found["trouble"] is None
            and sum(found["decided"].values()) > before
            and found
        ),
        "it asked in vain",
    )
    assert told
    assert (told["name"], sum(told["decided"].values())) == (name, before + 1)
    panel: Any = ray.get_actor(f"{name}/panel", namespace="council")
    about = answers.result_or_raise(ray.get(panel.about.remote()), dict[str, Any])
    assert set(about) == {"url", "notice", "token"}
    killed = ray.get(panel.pid.remote())
    os.kill(killed, signal.SIGKILL)
    until(lambda: pid(panel) not in (None, killed), "it was not killed, or did not come back")
    assert served.propose("Raise it again") is not None
    until(
        lambda: (found := figures(url)) and sum(found["decided"].values()) == before + 2,
        "it did not come back",
    )
    served.close()
    assert not actors(name)
    with pytest.raises(CouncilError, match="closed"):
        served.propose("y")
    until(lambda: figures(url) is None, "the panel outlives its council")


@pytest.mark.long
def test_a_port_in_use_is_told_and_the_council_decides_and_once_it_is_free_it_is_served(name: str) -> None:
    port = free_port()  # that nobody else takes, once it is free again
    with socket.create_server(("127.0.0.1", port)) as taken:
        council = Council.launch(name=name, panel=True, panel_port=port, store="memory")
        try:
            told = until(lambda: (found := council.status()["panel"]) and "in use" in found["notice"] and found,
                         "it was not told")  # fmt: skip
            assert told["url"] is None
            assert "panel_port" in told["notice"]
            assert council.propose("Raise the limit").outcome == "approved"
            taken.close()
            assert url_of(council) == f"http://127.0.0.1:{port}/"
            # A coordinator without a journal on disk does not come back; its panel has nothing to show then.
            ray.kill(ray.get_actor(f"{name}/coordinator", namespace="council"), no_restart=True)
            until(lambda: f"{name}/panel" not in actors(name), "the panel outlives its council")
        finally:
            council.close()


def test_who_brings_a_council_up_is_told_of_all_that_is_not_served() -> None:
    """Mutation: of the panel alone; a port of the metrics' that is in use stood in the log."""
    panels = iter([panel_actor.STARTING, "no panel: a"])

    async def ask(_: object) -> dict[str, Any]:
        metrics = {"url": None, "notice": "no metrics: b"}
        return {"panel": {"url": None, "notice": next(panels)}, "metrics": metrics}

    assert asyncio.run(panel_actor.places(ask))["notice"] == "no panel: a; no metrics: b"


# The Metrics tab of a dashboard that is about to be started


def told_to_ray(config: CouncilConfig, *, dashboard: bool = True) -> dict[str, str]:
    names = ("RAY_GRAFANA_HOST", "RAY_GRAFANA_DEFAULT_DASHBOARD_UID", "RAY_PROMETHEUS_HOST")
    before = dict(os.environ)
    with panel_actor.for_dashboard(config, dashboard=dashboard):
        told = {name: os.environ[name] for name in names if os.environ.get(name) != before.get(name)}
    assert dict(os.environ) == before
    return told


def test_a_dashboard_is_told_of_the_panel_where_it_is_ours_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    config = panel_actor.with_panel(CouncilConfig(), dashboard=True)
    place = f"http://127.0.0.1:{config.panel_port}"
    assert panel_actor.with_panel(CouncilConfig(), dashboard=False).panel is False  # unasked there is none
    assert config.panel
    # Seen in a run of all tests: Ray took the port for itself before the panel could.
    assert config.panel_port in panel_actor.FREE_PORTS
    assert told_to_ray(config) == {}  # a Ray runs in this process already
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(panel_actor, "GRAFANA_USUAL", "http://127.0.0.1:1")
    ours = {"RAY_GRAFANA_HOST": place, "RAY_GRAFANA_DEFAULT_DASHBOARD_UID": "council"}
    assert told_to_ray(config) == ours | {"RAY_PROMETHEUS_HOST": place}
    assert told_to_ray(config, dashboard=False) == {}
    assert told_to_ray(config.model_copy(update={"ray_address": "10.0.0.1:6379"})) == {}
    assert told_to_ray(panel_actor.with_panel(CouncilConfig(panel=False), dashboard=True)) == {}
    anywhere = panel_actor.with_panel(CouncilConfig(panel_host="0.0.0.0", panel_port=7), dashboard=True)
    assert told_to_ray(anywhere)["RAY_GRAFANA_HOST"] == "http://127.0.0.1:7"
    in_brackets = CouncilConfig(panel=True, panel_host="::1", panel_port=7)
    assert told_to_ray(in_brackets)["RAY_GRAFANA_HOST"] == "http://[::1]:7"
    monkeypatch.setenv("RAY_PROMETHEUS_HOST", "http://prometheus.test:9090")
    assert told_to_ray(config) == ours  # a Prometheus of the user's own stays
    monkeypatch.setenv("RAY_GRAFANA_HOST", "http://grafana.test:3000")
    assert told_to_ray(config) == {}


def test_a_head_that_does_not_put_the_dashboard_there_in_time_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Mutation: to know of an error in the task alone, and call the rest a fault of our own."""
    over = tmp_path / "over"

    def slow(text: str) -> None:
        while not over.exists():
            time.sleep(0.05)

    monkeypatch.setattr(panel_actor, "_put_dashboard", slow)
    monkeypatch.setattr(panel_actor, "START_S", 0.1)
    try:
        with pytest.raises(OperatorError, match="head node did not put it there: GetTimeoutError"):
            panel_actor.install_dashboard()
    finally:
        over.touch()


def test_a_grafana_that_answers_where_ray_looks_is_left_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> dict[str, Any]:
        return {}

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    grafana = Server(ask, "x", "token", "127.0.0.1", 0)  # answers as one does
    try:
        monkeypatch.setattr(panel_actor, "GRAFANA_USUAL", grafana.url.rstrip("/"))
        assert told_to_ray(panel_actor.with_panel(CouncilConfig(), dashboard=True)) == {}
    finally:
        grafana.close()


def test_a_port_in_use_is_passed_over_and_a_host_without_address_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutation: a resolver that takes seconds to say so is asked for each port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(panel_actor, "FREE_PORTS", [port] * panel_actor.PORTS_TRIED)
        assert panel_actor.free_port("127.0.0.1") not in (0, port)
    asked: list[Any] = []

    def unknown(address: Any, **options: Any) -> None:
        asked.append(address)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(panel_actor.socket, "create_server", unknown)
    with pytest.raises(socket.gaierror):
        panel_actor.free_port("nowhere.invalid")
    assert len(asked) == 1


@pytest.mark.parametrize(
    "said",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"SSH-2.0-anything\r\n", b""],
    ids=["cut", "no HTTP", "nothing"],
)
def test_what_is_no_grafana_is_taken_for_none(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: whatever else listens at Grafana's usual port ends `council up --dashboard`."""

    def answer() -> None:
        met, _ = listening.accept()
        with met:
            met.recv(65_536)
            met.sendall(said)

    monkeypatch.delenv("RAY_GRAFANA_HOST", raising=False)
    monkeypatch.setattr(panel_actor, "GRAFANA_TIMEOUT_S", HANG_S)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setattr(panel_actor, "GRAFANA_USUAL", f"http://127.0.0.1:{listening.getsockname()[1]}")
        answering = threading.Thread(target=answer)
        answering.start()
        assert not panel_actor._grafana_is_there()
        answering.join(HANG_S)
