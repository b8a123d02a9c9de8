"""A council with its journal on disk, beside the same without one, and beside the bare commits it rests on."""

from __future__ import annotations

import gc
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import Row
from benchmarks.minds import STUBS
from benchmarks.running import LEVELS, rate, timed
from council import Council

# What a commit costs depends on the disk: everything here writes to the same one.
FOLDER = os.environ.get("BENCHMARK_FOLDER")
DECISION_ROWS = 4  # a proposal and three ballots
COMMITS_MAX, RATE_MIN, TIME_MAX, BYTES_MAX, RECOVERY_MAX_S = 2.2, 0.6, 1.25, 1.1, 5.0
TURNS, TURN = 30, 15
TOTALS = {1: 200, 10: 1_500, 100: 4_000, 1000: 10_000}


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="council-bench-") as name:
        yield Path(name)


class Bare:
    """Group commit and nothing else: the rows that a council has written, written again by plain sqlite3."""

    def __init__(self, store: Path, journal: str) -> None:
        source = sqlite3.connect(store)
        names = [row[1] for row in source.execute("PRAGMA table_info(packet_store)")]
        columns = [name for name in names if name != "envelope"]
        quoted = ", ".join(f'"{name}"' for name in columns)
        found = source.execute(
            f"SELECT {quoted} FROM packet_store WHERE journal = ? AND position > 1 ORDER BY position LIMIT 4000",
            (journal,),
        ).fetchall()
        source.close()
        self._rows = [row[1:] for row in found]  # the sequence is the table's own
        self._next = 0
        self._file = sqlite3.connect(store.with_suffix(".bare"), isolation_level=None)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = FULL")
        self._file.execute(f"CREATE TABLE kept ({', '.join(f'c{n}' for n in range(len(self._rows[0])))})")
        self._insert = f"INSERT INTO kept VALUES ({', '.join('?' * len(self._rows[0]))})"

    def commit(self, decisions: int) -> None:
        rows = []
        for _ in range(decisions * DECISION_ROWS):
            rows.append(self._rows[self._next % len(self._rows)])
            self._next += 1
        self._file.execute("BEGIN IMMEDIATE")
        self._file.executemany(self._insert, rows)
        self._file.execute("COMMIT")

    def rate(self, total: int, in_flight: int) -> float:
        began = time.perf_counter()
        for _ in range(max(total // in_flight, 1)):
            self.commit(in_flight)
        return max(total // in_flight, 1) * in_flight / (time.perf_counter() - began)


def durable_rows(scale: float = 1.0) -> list[Row]:
    """In process and on Ray: latency, rates and growth of a durable council; its recovery by journal length."""
    rows = []
    with _folder() as folder:
        os.environ["XDG_STATE_HOME"] = str(folder / "state")  # keys and checkpoints go with it
        settings: dict[str, Any] = {"seats": STUBS, "open_max": 5_000}
        with (
            Council.inline(**settings, name="kept", store=str(folder / "inline.db")) as council,
            Council.inline(**settings, name="bare", store="memory") as other,
        ):
            rows += _beside("durable inline", council, other, folder / "inline.db", scale)
        os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - that is its name
        os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)
        with (
            Council.launch(**settings, name="kept", store=str(folder / "ray.db")) as council,
            Council.launch(**settings, name="bare", store="memory") as other,
        ):
            rows += _beside("durable ray", council, other, folder / "ray.db", scale)
        rows += _growth(folder / "growth.db", int(100_000 * scale))
    return rows


def _beside(group: str, council: Council, other: Council, store: Path, scale: float) -> list[Row]:
    council.propose_many(["x"] * 1_000)
    other.propose_many(["x"] * 1_000)
    bare = Bare(store, "kept")

    def commit_s() -> float:  # in the rhythm of decisions: a disk that is asked all the time answers sooner
        other.propose("x")
        began = time.perf_counter()
        bare.commit(1)
        return time.perf_counter() - began

    times: list[tuple[float, float, float]] = []
    for _ in range(TURNS):  # in turn, so that the machine's drift cancels out
        gc.collect()
        times.append(
            (
                timed(lambda: council.propose("x"), TURN),
                timed(lambda: other.propose("x"), TURN),
                statistics.median(commit_s() for _ in range(TURN)),
            )
        )
    ours, theirs, commit = map(statistics.median, zip(*times, strict=True))
    commits = (ours - theirs) / commit
    rows = [
        Row(group, "one commit of one decision's rows, bare", commit * 1e3, "ms"),
        Row(
            group,
            "one decision, beside the same without a journal",
            ours * 1e3,
            "ms",
            theirs * 1e3,
            ours / theirs,
            f"floor + {COMMITS_MAX} commits (it is + {commits:.1f})",
            commits <= COMMITS_MAX,
        ),
    ]
    for level in LEVELS:
        total = max(int(scale * TOTALS[level]), level)
        mine, without, kept, floors = [], [], [], []
        for _ in range(4):  # in turn, so that the machine's drift cancels out
            mine.append(rate(council, total, level))
            without.append(rate(other, total, level))
            floors.append(bare.rate(total, level))
            kept.append(mine[-1] / min(without[-1], floors[-1]))
        share = statistics.median(kept)
        wanted, holds = (f"≥ {RATE_MIN}", share >= RATE_MIN) if level >= 100 else ("", None)
        name = (
            f"decisions a second, {level} in flight (without a journal {statistics.median(without):,.0f}, "
            f"bare commits {statistics.median(floors):,.0f})"
        )
        lower = statistics.median(min(pair) for pair in zip(without, floors, strict=True))
        rows.append(Row(group, name, statistics.median(mine), "/s", lower, share, wanted, holds))
    return rows


def _growth(store: Path, decisions: int) -> list[Row]:
    """Ten tenths of a council's decisions: time and bytes of the last beside the second; then starting again."""
    tenth = max(decisions // 10, 100)
    times, sizes, starts = [], [], []
    for number in range(10):
        with Council.inline(seats=STUBS, open_max=5_000, name="kept", store=str(store)) as council:
            if number:
                began = time.perf_counter()
            for _ in range(0, tenth, 1_000):
                council.propose_many(["x"] * min(1_000, tenth))
            times.append(0.0 if not number else time.perf_counter() - began)
        sizes.append(_checkpointed(store))
        began = time.perf_counter()
        Council.inline(seats=STUBS, name="kept", store=str(store)).close()
        starts.append(time.perf_counter() - began)
    costs = [later - earlier for earlier, later in zip([0, *sizes], sizes, strict=False)]
    last, second = times[-1] / tenth, times[1] / tenth
    return [
        Row(
            "durable growth",
            f"one of the last of {decisions:,} decisions, beside the second tenth",
            last * 1e6,
            "µs",
            second * 1e6,
            last / second,
            f"ratio ≤ {TIME_MAX}",
            last / second <= TIME_MAX,
        ),
        Row(
            "durable growth",
            "its bytes on disk",
            costs[-1] / tenth,
            "B",
            costs[1] / tenth,
            costs[-1] / costs[1],
            f"ratio ≤ {BYTES_MAX}",
            costs[-1] <= BYTES_MAX * costs[1],
        ),
        *(
            Row(
                "recovery",
                f"start and end with {(number + 1) * tenth:,} decisions behind",
                starts[number],
                "s",
                bound=f"≤ {RECOVERY_MAX_S:g} s" if number == 9 else "",
                holds=starts[number] <= RECOVERY_MAX_S if number == 9 else None,
            )
            for number in (0, 4, 9)
        ),
    ]


def _checkpointed(store: Path) -> int:
    """The size of the database, its log written back."""
    with sqlite3.connect(store) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return store.stat().st_size
