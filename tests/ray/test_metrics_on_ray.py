"""The council's metrics beside Ray's own, and at the coordinator's port, also once a seat is dead."""

from __future__ import annotations

import os
import signal
import time
import urllib.request

import ray

from council import Council, SeatConfig

MINDS = "tests.ray.minds:"
# Ray exports every ten seconds.
WITHIN_S = 60.0


def read(url: str) -> dict[str, float]:
    """The samples at an address, by name and labels."""
    with urllib.request.urlopen(url, timeout=60) as answer:
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


def test_metrics_are_rays_too_and_tell_of_a_dead_seat(name: str) -> None:
    seats = tuple(
        SeatConfig(name=seat, mind=f"{MINDS}{mind}")
        for seat, mind in (("prime", "Chair"), ("lite", "agree"), ("codemind", "agree"))
    )
    with Council.launch(name=name, seats=seats, store="memory", metrics_port=0) as council:
        assert all(council.propose(f"a change {number}", wait_for="all") for number in range(3))
        url = council.status()["metrics"]["url"]
        own = read(url)
        approved = f'council="{name}",decided_by="all_ballots",degraded="no",outcome="approved"'
        assert own[f"council_decisions_total{{{approved}}}"] == 3.0
        assert own[f'council_seat_active{{council="{name}",seat="lite"}}'] == 1.0

        lite = ray.get_actor(f"{name}/lite", namespace=council.config.ray_namespace)
        os.kill(ray.get(lite.pid.remote(), timeout=30), signal.SIGKILL)
        ends_s = time.monotonic() + WITHIN_S
        restarts = f'council_seat_restarts_total{{council="{name}",seat="lite"}}'
        while read(url).get(restarts) != 1.0 and time.monotonic() < ends_s:
            time.sleep(0.1)
        assert read(url)[restarts] == 1.0
        # Told by the coordinator, so that it is there while its seat is not.
        assert f'council_seat_heartbeat_age_seconds{{council="{name}",seat="lite"}}' in read(url)

        while exported("ray_council_decisions_total", name) != 3.0 and time.monotonic() < ends_s:
            time.sleep(0.5)
        assert exported("ray_council_decisions_total", name, outcome="approved") == 3.0
        assert exported("ray_council_seat_active", name, seat="prime") == 1.0
        assert exported("ray_council_decision_duration_seconds_count", name) == 3.0
