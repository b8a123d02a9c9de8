"""Councils on a cluster of several nodes on this machine, beside bare Ray actors, and what a larger one comes to.

The model on paper stands in ``predicted``; README.md says what follows from it. The floor has the same number of
coordinators and seats, without a protocol.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import ray

from benchmarks import floor
from benchmarks.measure import Row, median_s, pairs, rate
from benchmarks.running import timed
from council import CouncilPool
from council.cluster.actors import actor_name
from council.cluster.connection import alive
from council.config.settings import SeatConfig
from tests.chaos.machines import Machines, machines

SHAPES = ((1, 3), (2, 3), (4, 3), (1, 5), (1, 9))  # coordinators, seats of each
IN_FLIGHT, TOTAL, FLOOR_TOTAL = 200, 4_000, 600
IDLE_S = 10.0


@dataclass(frozen=True)
class Cost:
    """CPU seconds that a decision takes: of the client, of its coordinator, of one seat, of all else of Ray's."""

    client: float
    coordinator: float
    seat: float
    rest: float

    def __str__(self) -> str:
        parts = {
            "client": self.client,
            "coordinator": self.coordinator,
            "a seat": self.seat,
            "Ray": self.rest,
        }
        return ", ".join(f"{name} {seconds * 1e6:.0f}" for name, seconds in parts.items())

    def of(self, seats: int) -> float:
        return self.client + self.coordinator + self.seat * seats + self.rest


@dataclass(frozen=True)
class Measured:
    """What one run took, how many decisions it made a second, and how many processors it had."""

    cost: Cost
    rate: float
    cores: float


def predicted(cost: Cost, coordinators: int, seats: int, cores: float) -> float:
    """Decisions a second, where ``cores`` are shared by all, and a process uses one of them at most.

    What limits: all CPU there is, or that of the busiest kind of process: the coordinators, or the one client.
    """
    return min(
        cores / cost.of(seats), coordinators / max(cost.coordinator, cost.seat), 1 / max(cost.client, 1e-9)
    )


def seats_of(count: int) -> tuple[SeatConfig, ...]:
    names = ("prime", "lite", "codemind", *(f"seat{number}" for number in range(4, count + 1)))
    return tuple(SeatConfig(name=name, mind="benchmarks.minds:agree") for name in names[:count])


class Bare:
    """The floor: so many coordinators, each with seats of its own, spread over the nodes."""

    def __init__(self, coordinators: int, seats: int) -> None:
        spread: Any = {"scheduling_strategy": "SPREAD"}
        seat: Any = floor.BareSeat
        coordinator: Any = floor.BareCoordinator
        self._seats = [[seat.options(**spread).remote() for _ in range(seats)] for _ in range(coordinators)]
        self._all = [coordinator.options(**spread).remote(each) for each in self._seats]
        ray.get([each.decide.remote("x") for each in self._all])

    def one(self) -> None:
        assert ray.get(self._all[0].decide.remote("x"))

    def rate(self, total: int) -> float:
        count = len(self._all)
        return rate(lambda caller: self._all[caller % count].decide.remote("x"), total, IN_FLIGHT)

    def end(self) -> None:
        for actor in [*self._all, *itertools.chain(*self._seats)]:
            ray.kill(actor)


def pool_rate(pool: CouncilPool, total: int) -> float:
    return rate(lambda _: pool.aio.propose("x", wait_for="all"), total, IN_FLIGHT)


class Processes:
    """A pool's processes on this machine: what CPU they took, and what memory they hold."""

    def __init__(self, pool: CouncilPool, seats: Sequence[SeatConfig], cluster: Machines) -> None:
        self.coordinators = [psutil.Process(council.status()["pid"]) for council in pool.councils]
        self.seats = []
        for council, seat in itertools.product(pool.councils, seats):
            actor: Any = ray.get_actor(actor_name(council.status()["name"], seat.name), namespace="council")
            self.seats.append(psutil.Process(ray.get(actor.pid.remote())))
        known = {each.pid for each in [*self.coordinators, *self.seats]}
        holders = [cluster.head, *cluster.workers]
        self.rest = [p for each in holders for p in each.processes() if p.pid not in known]

    def cpu(self) -> tuple[float, float, float, float]:
        own = time.process_time()
        return own, _cpu(self.coordinators), _cpu(self.seats), _cpu(self.rest)


def _cpu(processes: Sequence[psutil.Process]) -> float:
    total = 0.0
    for each in processes:
        try:
            times = each.cpu_times()
        except psutil.Error:
            continue  # an idle worker that Ray ended
        total += times.user + times.system
    return total


def _memory(processes: Sequence[psutil.Process]) -> tuple[float, float]:
    """Their resident and their proportional memory, each on the average, in MB."""
    found = [each.memory_full_info() for each in processes]
    return tuple(statistics.mean(getattr(each, kind) for each in found) / 2**20 for kind in ("rss", "pss"))


def cluster_rows(scale: float = 1.0) -> list[Row]:
    rows: list[Row] = []
    measured: dict[tuple[int, int], Measured] = {}
    with machines(2) as cluster:
        rows += _idle_rows(cluster)
        for shape in SHAPES:
            rows += _shape_rows(cluster, *shape, scale, measured)
        rows.append(_node_row(cluster))
    return rows + _model_rows(measured)


def _shape_rows(
    cluster: Machines,
    coordinators: int,
    seats: int,
    scale: float,
    measured: dict[tuple[int, int], Measured],
) -> list[Row]:
    total, configured = max(int(TOTAL * scale), IN_FLIGHT), seats_of(seats)
    shape = f"{coordinators} × {seats} seats"
    with CouncilPool.launch(
        coordinators,
        name=f"bench-{coordinators}-{seats}",
        seats=configured,
        open_max=5_000,
        store="memory",
        ray_address=cluster.address,
        ray_insecure=True,
    ) as pool:
        bare = Bare(coordinators, seats)
        one, floor_one, one_ratio = pairs(
            lambda: timed(lambda: pool.propose("x", wait_for="all"), 30), lambda: timed(bare.one, 30), 6
        )
        found, floor_rate, ratio = pairs(
            lambda: pool_rate(pool, total), lambda: bare.rate(int(FLOOR_TOTAL * scale)), 3
        )
        processes = Processes(pool, configured, cluster)
        before, began = processes.cpu(), time.perf_counter()
        pool_rate(pool, total)
        wall = time.perf_counter() - began
        client, coordinator, seat, rest = (
            (a - b) / total for a, b in zip(processes.cpu(), before, strict=True)
        )
        cost = Cost(client, coordinator, seat / seats, rest)
        measured[coordinators, seats] = Measured(cost, total / wall, cost.of(seats) * total / wall)
        memory = {what: _memory(found) for what, found in vars(processes).items() if what != "rest"}
        bare.end()
    rows = [
        Row("cluster", f"{shape}: one decision, all ballots", one * 1e3, "ms", floor_one * 1e3, one_ratio),
        Row("cluster", f"{shape}: decisions a second, {IN_FLIGHT} in flight", found, "/s", floor_rate, ratio),
        Row("cluster", f"{shape}: CPU of a decision ({cost})", cost.of(seats) * 1e6, "µs"),
    ]
    for what, (resident, proportional) in memory.items():
        rows.append(
            Row(
                "cluster",
                f"{shape}: memory of one of the {what} (RSS {resident:.0f})",
                proportional,
                "MB PSS",
            )
        )
    return rows


def _idle_rows(cluster: Machines) -> list[Row]:
    """What nodes cost by being there: Ray's head asks each of them five times a second; a status lists them."""
    (gcs,) = [each for each in cluster.head.processes() if each.name() == "gcs_server"]
    count, before = len(alive()), _cpu([gcs])
    time.sleep(IDLE_S)
    each = (_cpu([gcs]) - before) / IDLE_S / count
    listing = median_s(alive, 50) / count
    return [
        Row("cluster", "CPU of the head's GCS a second, nothing going on, for each node", each * 1e3, "ms"),
        Row("cluster", "listing the nodes, for each node", listing * 1e6, "µs"),
    ]


def _node_row(cluster: Machines) -> Row:
    held = [cluster.head, *cluster.workers]
    found = [sum(each.memory_full_info().pss for each in machine.processes()) / 2**20 for machine in held]
    return Row("cluster", "memory of a node without a council", statistics.mean(found), "MB PSS")


def _model_rows(measured: dict[tuple[int, int], Measured]) -> list[Row]:
    """What the costs at one coordinator and three seats foretell of every other shape, beside what was measured.

    Others use this machine too: what all of a run's processes had of its processors is what they are taken to have.
    """
    base, rows = measured[1, 3].cost, []
    for (coordinators, seats), found in measured.items():
        told = predicted(base, coordinators, seats, found.cores)
        name = f"{coordinators} × {seats} seats: decisions a second on {found.cores:.2f} cores, as 1 × 3 foretells"
        rows.append(Row("cluster", name, found.rate, "/s", told, found.rate / told))
    return rows
