"""A running council, on Ray beside the bare floor and in process beside a bare gather."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import measure
from benchmarks.measure import Row, pairs
from benchmarks.minds import NAMES, SLOW, STUBS, latency_s
from council import Council, Decision

LEVELS = (1, 10, 100, 1000)
ON_RAY_RATE = 4_000.0


def rate(council: Council, total: int, in_flight: int) -> float:
    return measure.rate(lambda _: council.aio.propose("x"), total, in_flight)


def timed(work: Callable[[], object], count: int) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def ray_rows(scale: float = 1.0) -> list[Row]:
    """One decision's latency and decisions a second at each level, beside the floor in the same run."""
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - that is its name
    os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)
    with Council.launch(seats=STUBS, open_max=5_000, store="memory") as council:  # with a journal: durable.py
        from benchmarks import floor

        bare = floor.start()
        rows = []
        ours, theirs, ratio = pairs(
            lambda: timed(lambda: council.propose("x"), 40), lambda: timed(lambda: floor.one(bare), 40), 24
        )
        rows.append(
            Row("ray", "one decision", ours * 1e3, "ms", theirs * 1e3, ratio, "ratio ≤ 1.3", ratio <= 1.3)
        )
        ours, theirs, ratio = pairs(  # the floor has no early decision: it always gathers three
            lambda: timed(lambda: council.propose("x", wait_for="all"), 40),
            lambda: timed(lambda: floor.one(bare), 40),
            10,
        )
        rows.append(Row("ray", "one decision on all three ballots", ours * 1e3, "ms", theirs * 1e3, ratio))
        for level in LEVELS:
            total = int(scale * {1: 200, 10: 1_000, 100: 4_000, 1000: 12_000}[level])
            floor_total = int(scale * {1: 200, 10: 500, 100: 600, 1000: 1_000}[level])

            def floor_rate(total: int = floor_total, level: int = level) -> float:
                return measure.rate(lambda _: bare.decide.remote("x"), total, level)

            def our_rate(total: int = total, level: int = level) -> float:
                return rate(council, total, level)

            found, floor_is, ratio = pairs(our_rate, floor_rate, 4)
            bound, holds = ("ratio > 1", ratio > 1.0) if level >= 10 else ("", None)
            if level == 1000:
                bound, holds = f"≥ {ON_RAY_RATE:,.0f}/s, ratio > 1", found >= ON_RAY_RATE and ratio > 1.0
            rows.append(
                Row(
                    "ray",
                    f"decisions a second, {level} in flight",
                    found,
                    "/s",
                    floor_is,
                    ratio,
                    bound,
                    holds,
                )
            )
    with Council.launch(seats=SLOW, name="slow", store="memory") as council:
        rows.append(_after_second(council, "ray", 10.0))
    return rows


def inline_rows(scale: float = 1.0) -> list[Row]:
    """The same in process, beside three coroutines and ``asyncio.gather``."""
    with Council.inline(seats=STUBS, open_max=5_000) as council:
        loop = asyncio.new_event_loop()

        async def agree() -> str:
            await asyncio.sleep(0)
            return "yes"

        async def gather() -> bool:
            return (await asyncio.gather(agree(), agree(), agree())).count("yes") > 1

        ours, theirs, ratio = pairs(
            lambda: timed(lambda: council.propose("x"), 200),
            lambda: timed(lambda: loop.run_until_complete(gather()), 200),
            10,
        )
        rows = [
            Row("inline", "one decision", ours * 1e3, "ms", theirs * 1e3, ratio, "≤ 0.5 ms", ours <= 5e-4)
        ]
        for level in LEVELS:
            total = int(scale * {1: 500, 10: 2_000, 100: 4_000, 1000: 6_000}[level])
            found = statistics.median(rate(council, total, level) for _ in range(3))
            rows.append(Row("inline", f"decisions a second, {level} in flight", found, "/s"))
        loop.close()
    rows.append(growth_row(int(10_000 * scale)))
    with Council.inline(seats=SLOW) as council:
        rows.append(_after_second(council, "inline", 2.0))
    return rows


def growth_row(decisions: int) -> Row:
    """The last tenth of a council's decisions beside its first: what is behind it must cost nothing."""
    with Council.inline(seats=STUBS, open_max=5_000) as council:
        council.propose_many(["x"] * 500)
        tenth = max(decisions // 10, 1)
        costs = []
        for _ in range(10):
            began = time.process_time()
            found = council.propose_many(["x"] * tenth)
            costs.append((time.process_time() - began) / tenth)
            assert all(isinstance(decision, Decision) and decision for decision in found)
    last, first = statistics.median(costs[-3:]), statistics.median(costs[:3])
    name = f"CPU of a decision after {decisions:,}, beside the first"
    return Row(
        "inline", name, last * 1e6, "µs", first * 1e6, last / first, "ratio ≤ 1.25", last / first <= 1.25
    )


def _after_second(council: Council, group: str, bound_ms: float) -> Row:
    """How long after the second agreeing ballot was cast the decision is in the caller's hands."""
    lags, waits = [], []
    for _ in range(60):
        draft = council.draft("x")
        seconds = sorted(latency_s(draft.msg_id, name) for name in NAMES)[1]
        began = time.perf_counter()
        decision = council.propose(draft)
        done = time.time()
        waits.append(time.perf_counter() - began)
        assert decision.early, "the second agreeing ballot decides"
        lags.append(done - max(float(ballot.reason) for ballot in decision.ballots))
        assert seconds - 2e-3 <= waits[-1]  # timers of uvloop round to a millisecond
    lag_ms = statistics.median(lags) * 1e3
    name = f"decision after the second agreeing ballot (median wait {statistics.median(waits) * 1e3:.0f} ms)"
    return Row(group, name, lag_ms, "ms", None, None, f"≤ {bound_ms:g} ms", lag_ms <= bound_ms)
