"""A council that is never restarted: its memory, rate, latency and pauses as its decisions grow; then its recovery.

Each council runs in a process of its own, so that the figures are its alone: ``python -m benchmarks.growth STORE N``.

After the start the process calls ``gc.freeze()``, as a coordinator's own process on Ray does (``cluster/actors.py``).
The pauses are then those of what the council makes. Without it, each full collection also looks at all that the
process has imported, which takes 40 to 50 ms. A library can't decide that for the program it runs in.

The store exists before the start, as at each start of a council but its first: making it loads Alembic, 11 MB.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import job
from benchmarks.measure import Row
from benchmarks.minds import STUBS

IN_FLIGHT = 100
# The rate is measured over the last so many decisions before each mark.
LAST = 5_000
RSS_RATIO_MAX, RSS_MAX_MB, RATE_MIN, PAUSE_MAX_MS = 1.3, 120.0, 0.9, 30.0
RECOVERY_MAX_S = 2.0
MARKS = (1_000, 10_000, 100_000)


def rss_mb() -> float:
    """The resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


class Pauses:
    """The garbage collector's pauses since the last ``longest_ms``, in the time of its thread alone."""

    def __init__(self) -> None:
        self._began = self._longest = 0.0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self._longest = max(self._longest, time.thread_time() - self._began)

    def longest_ms(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest * 1e3


async def _decide(council: Any, first: int, total: int) -> job.Load:
    """Has ``total`` proposals decided, numbered from ``first``, by ``IN_FLIGHT`` callers at a time."""
    numbers, each_s = iter(range(first, first + total)), []

    async def caller() -> None:
        for number in numbers:
            began = time.perf_counter()
            decision = await council.aio.propose(job.summary(number), job.body(number))
            assert bool(decision) == job.approved(number), f"proposal {number} was decided wrongly"
            each_s.append(time.perf_counter() - began)

    began, cpu_began_s = time.perf_counter(), time.process_time()
    async with asyncio.timeout(job.WITHIN_S):
        await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return job.Load(each_s, time.perf_counter() - began, time.process_time() - cpu_began_s)


def grown(store: str, decisions: int) -> list[dict[str, float]]:
    """Decides so many in this process; the figures at each mark."""
    from council import Council

    found, done = [], 0
    with Council.inline(seats=STUBS, open_max=5_000, name="growth", store=store) as council:
        gc.collect()
        gc.freeze()
        pauses = Pauses()
        for mark in [each for each in MARKS if each < decisions] + [decisions]:
            last = min(LAST, mark - done)
            while done < mark - last:
                some = min(LAST, mark - last - done)
                asyncio.run(_decide(council, done, some))
                done += some
            load = asyncio.run(_decide(council, done, last))
            done += last
            found.append(
                {
                    "decisions": done,
                    "rss_mb": rss_mb(),
                    "rate": load.rate,
                    "cpu_us": load.cpu_each_s * 1e6,
                    "p50_ms": load.p50 * 1e3,
                    "p99_ms": load.p99 * 1e3,
                    "pause_ms": pauses.longest_ms(),
                }
            )
    return found


def recovered(store: str) -> list[dict[str, float]]:
    """Starts what ``grown`` left behind, in this process: how long until it is there, and how large it is then."""
    from council import Council

    began = time.perf_counter()
    with Council.inline(seats=STUBS, open_max=5_000, name="growth", store=store):
        return [{"seconds": time.perf_counter() - began, "rss_mb": rss_mb()}]


def _apart(*arguments: str) -> list[dict[str, float]]:
    command = [sys.executable, "-m", "benchmarks.growth", *arguments]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)  # type: ignore[no-any-return]


def growth_rows(scale: float = 1.0) -> list[Row]:
    """One process that decides again and again, with its journal on, and the next one, which takes over."""
    decisions = max(int(100_000 * scale), 2_000)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCHMARK_FOLDER"), prefix="council-bench-") as name:
        os.environ["XDG_STATE_HOME"] = str(Path(name) / "state")
        store = str(Path(name) / "growth.db")
        make = [sys.executable, "-m", "council.cli", "store", "migrate", "--url", store]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        marks, (after,) = _apart(store, str(decisions)), _apart(store)
    first, last = marks[0], marks[-1]
    rates = [mark["rate"] for mark in marks[1:]]
    pause = max(mark["pause_ms"] for mark in marks)
    rows = []
    for mark in marks:
        what = f"after {mark['decisions']:,.0f} decisions"
        rows += [
            Row("growth", f"memory {what}", mark["rss_mb"], "MB"),
            Row("growth", f"decisions a second, {what}", mark["rate"], "/s"),
            Row("growth", f"processor time of one decision, {what}", mark["cpu_us"], "µs"),
            Row("growth", f"one decision (p50), {what}", mark["p50_ms"], "ms"),
            Row("growth", f"one decision (p99), {what}", mark["p99_ms"], "ms"),
        ]
    ratio = last["rss_mb"] / first["rss_mb"]
    slower = rates[-1] / rates[0]
    return [
        *rows,
        Row(
            "growth",
            f"memory after {last['decisions']:,.0f} beside {first['decisions']:,.0f}",
            last["rss_mb"],
            "MB",
            first["rss_mb"],
            ratio,
            f"ratio ≤ {RSS_RATIO_MAX}, ≤ {RSS_MAX_MB:g} MB",
            ratio <= RSS_RATIO_MAX and last["rss_mb"] <= RSS_MAX_MB,
        ),
        Row(
            "growth",
            "the rate at the end beside the one at the second mark",
            rates[-1],
            "/s",
            rates[0],
            slower,
            f"ratio ≥ {RATE_MIN}",
            slower >= RATE_MIN,
        ),
        Row(
            "growth",
            "longest pause of the garbage collector, after gc.freeze()",
            pause,
            "ms",
            bound=f"≤ {PAUSE_MAX_MS:g} ms",
            holds=pause <= PAUSE_MAX_MS,
        ),
        Row(
            "growth",
            f"recovery of {decisions:,} decisions",
            after["seconds"],
            "s",
            bound=f"≤ {RECOVERY_MAX_S:g} s",
            holds=after["seconds"] <= RECOVERY_MAX_S,
        ),
        Row(
            "growth",
            "memory after it",
            after["rss_mb"],
            "MB",
            bound=f"≤ {RSS_MAX_MB:g} MB",
            holds=after["rss_mb"] <= RSS_MAX_MB,
        ),
    ]


if __name__ == "__main__":
    _, path, *count = sys.argv
    print(json.dumps(grown(path, int(count[0])) if count else recovered(path)))
