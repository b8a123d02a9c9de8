"""Pools of councils on a cluster of several nodes on this machine, beside as many bare actors."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from functools import partial

import psutil

from benchmarks.job import Load, approved, body, summary
from benchmarks.measure import Row, in_turn, loaded, rate_row, times_row
from benchmarks.minds import seats
from benchmarks.running import timed_each
from council import CouncilPool
from tests.chaos.machines import Machines, machines

SHAPES = ((1, 3), (2, 3), (4, 3), (1, 5), (1, 9))  # coordinators, seats of each
IN_FLIGHT, TOTAL, TURNS = 200, 2_000, 3


def memory_mb(cluster: Machines) -> float:
    """What all processes of all nodes hold, in MiB; what they share is counted once (PSS)."""
    held = 0.0
    for process in itertools.chain(*(machine.processes() for machine in (cluster.head, *cluster.workers))):
        with contextlib.suppress(psutil.NoSuchProcess):  # an idle worker that Ray ended
            held += process.memory_full_info().pss / 2**20
    return held


def cluster_rows(scale: float = 1.0) -> list[Row]:
    rows: list[Row] = []
    with machines(2) as cluster:
        empty = memory_mb(cluster)
        rows.append(Row("cluster", "memory of three nodes without a council (PSS)", empty, "MB"))
        for coordinators, count in SHAPES:
            rows += _shape_rows(cluster, coordinators, count, scale, empty)
    return rows


def _shape_rows(cluster: Machines, coordinators: int, count: int, scale: float, empty: float) -> list[Row]:
    from benchmarks.floor import Plain

    total, shape = max(int(TOTAL * scale), IN_FLIGHT), f"{coordinators} × {count} seats"
    with CouncilPool.launch(
        coordinators,
        name=f"bench-{coordinators}-{count}",
        seats=seats(count),
        open_max=5_000,
        store="memory",
        ray_address=cluster.address,
        ray_insecure=True,
    ) as pool:

        def one(number: int) -> None:
            decision = pool.propose(summary(number), body(number), wait_for="all")
            assert bool(decision) == approved(number)

        async def decide(number: int) -> bool:
            return bool(await pool.aio.propose(summary(number), body(number), wait_for="all"))

        def many() -> Load:
            return loaded(decide, total, IN_FLIGHT)

        many()
        grew_mb = memory_mb(cluster) - empty
        bare = Plain(coordinators, count)
        ones = in_turn([partial(timed_each, work, 30) for work in (one, bare.one)], TURNS)
        works: list[Callable[[], Load]] = [many, partial(loaded, bare.decide, total // 4, IN_FLIGHT)]
        rates = in_turn(works, TURNS)
        bare.end()
    return [
        times_row("cluster", f"{shape}: one decision, all ballots", *ones),
        rate_row("cluster", f"{shape}: {IN_FLIGHT} in flight; memory (PSS)", *rates, grew_mb=grew_mb),
    ]
