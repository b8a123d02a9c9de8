"""A running council: in process beside a bare gather, on Ray beside bare actors, with a journal and without."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import job
from benchmarks.job import Load
from benchmarks.measure import Row, in_turn, loaded, rate_row, rss_mb, timed, times_row
from benchmarks.minds import STUBS, seats
from council import Council

TOTALS = {1: 200, 10: 1_000, 100: 2_000, 1000: 6_000}
TURNS = 4
ON_RAY_RATE = 4_000.0
Level = Callable[[int, int], Load]


def propose(council: Council, number: int, **details: Any) -> None:
    decision = council.propose(job.summary(number), job.body(number), **details)
    assert bool(decision) == job.approved(number)


def timed_each(work: Callable[[int], object], total: int) -> Load:
    """One proposal after another, by a blocking program."""
    numbers = iter(range(total))
    return timed(lambda: work(next(numbers)), total)


def level_of(council: Council) -> Level:
    """So many decisions, with so many in flight: one by the blocking method, more by coroutines."""

    async def decide(number: int) -> bool:
        return bool(await council.aio.propose(job.summary(number), job.body(number)))

    def decisions(total: int, level: int) -> Load:
        return timed_each(partial(propose, council), total) if level == 1 else loaded(decide, total, level)

    return decisions


def level_rows(group: str, council: Council, ours: Level, floors: list[Level], scale: float) -> list[Row]:
    """Decisions a second at each level, beside the floors, and by how much the coordinator's process grew."""
    rows, pid = [], council.status().get("pid")
    for level in job.LEVELS:
        total = max(int(TOTALS[level] * scale), level)
        grew_mb: list[float] = []

        def mine(total: int = total, level: int = level, grew_mb: list[float] = grew_mb) -> Load:
            before = rss_mb(pid)
            found = ours(total, level)
            grew_mb.append(rss_mb(pid) - before)
            return found

        works: list[Callable[[], Load]] = [mine, *(partial(floor, total, level) for floor in floors)]
        found, *theirs = in_turn(works, TURNS)
        name = f"{level} in flight, {len(grew_mb) * total:,} decisions"
        rows.append(rate_row(group, name, found, *theirs, grew_mb=sum(grew_mb)))
    return rows


def inline_rows(scale: float = 1.0) -> list[Row]:
    """Beside three coroutines in ``asyncio.gather``."""

    async def vote(voter: str, number: int, body: str) -> bool:
        await asyncio.sleep(0)
        return job.votes_yes(voter, number)

    async def decide(number: int) -> bool:
        body = job.body(number)
        return sum(await asyncio.gather(*(vote(voter, number, body) for voter in job.VOTERS))) > 1

    with Council.inline(seats=STUBS, open_max=5_000) as council:
        one, *more = level_rows("inline", council, level_of(council), [partial(loaded, decide)], scale)
    assert one.p50_ms is not None
    one = replace(one, bound="p50 ≤ 0.5 ms", holds=one.p50_ms <= 0.5)
    with Council.inline(seats=seats(mind="SlowVoter")) as council:
        return [one, *more, after_second(council, "inline", 2.0, scale)]


def on_ray() -> None:
    """Sets what the workers of a Ray that starts here need: this package, and the processor as others have it."""
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - that is its name
    os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)


def ray_rows(scale: float = 1.0) -> list[Row]:
    """Beside bare actors: a call for each message, and one call at a time that carries all that waits."""
    on_ray()
    with Council.launch(seats=STUBS, open_max=5_000, store="memory") as council:  # with a journal: durable.py
        from benchmarks.floor import Batched, Plain

        bare = Plain()

        def plain(total: int, level: int) -> Load:
            return timed_each(bare.one, total) if level == 1 else loaded(bare.decide, total, level)

        def batched(total: int, level: int) -> Load:
            return loaded(Batched(bare.decide_all).decide, total, level)

        one, *more = level_rows("ray", council, level_of(council), [plain, batched], scale)
        more = [replace(row, bound="ratio > 1", holds=(row.ratio or 0.0) > 1.0) for row in more]
        most = more[-1]
        holds = bool(most.holds) and most.figure >= ON_RAY_RATE
        more[-1] = replace(most, bound=f"≥ {ON_RAY_RATE:,.0f}/s, ratio > 1", holds=holds)
        ours = partial(propose, council, wait_for="all")
        found, theirs = in_turn([partial(timed_each, work, 40) for work in (ours, bare.one)], TURNS)
        rows = [one, *more, times_row("ray", "one decision on all three ballots", found, theirs)]
    with Council.launch(seats=seats(mind="SlowVoter"), name="slow", store="memory") as council:
        return [*rows, after_second(council, "ray", 10.0, scale)]


def after_second(council: Council, group: str, bound_ms: float, scale: float) -> Row:
    """How long after the second agreeing ballot was cast the decision is in the caller's hands."""
    lags_s = []
    for number in range(max(int(100 * scale), 12)):
        decision = council.propose(job.summary(number), job.body(number))
        done = time.time()
        agreeing = [each for each in decision.ballots if (each.vote == "yes") == bool(decision)]
        lags_s.append(done - sorted(float(each.reason) for each in agreeing)[1])
    row = times_row(group, "the decision after the second agreeing ballot", [Load(lags_s, sum(lags_s))])
    return replace(row, bound=f"p50 ≤ {bound_ms:g} ms", holds=row.figure <= bound_ms)
