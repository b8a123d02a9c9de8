"""A council with its journal on disk, beside the same without one, and beside bare group commits."""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.job import Load
from benchmarks.measure import Row
from benchmarks.minds import STUBS
from benchmarks.running import level_of, level_rows, on_ray
from council import Council

# What a commit costs depends on the disk: everything here writes to the same one.
FOLDER = os.environ.get("BENCHMARK_FOLDER")
# Metrics are read twice a second.
COUNTED_WITHIN_S = 1.2


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FOLDER, prefix="council-bench-") as name:
        yield Path(name)


class Written:
    """What a council has written to its store: commits, as its metrics count them, and the bytes of its file."""

    def __init__(self, council: Council, store: Path) -> None:
        self._metrics = council.status()["metrics"]["url"]
        self._store = store
        self._before = self._now()

    def since(self) -> tuple[int, int]:
        """Commits and bytes since it was asked last."""
        before, self._before = self._before, self._now()
        return self._before[0] - before[0], self._before[1] - before[1]

    def _now(self) -> tuple[int, int]:
        time.sleep(COUNTED_WITHIN_S)
        with urlopen(self._metrics, timeout=30) as answer:
            found = re.search(
                r"^council_journal_commit_duration_seconds_count\S* (\S+)$", answer.read().decode(), re.M
            )
        assert found is not None, "the metrics count commits"
        with closing(sqlite3.connect(f"file:{self._store}?mode=ro", uri=True)) as file:
            (pages,), (size,) = (
                file.execute(f"PRAGMA {of}").fetchone() for of in ("page_count", "page_size")
            )
        return int(float(found[1])), pages * size


class Bare:
    """Group commits and nothing else: as many as the council made, of as many bytes together."""

    def __init__(self, store: Path) -> None:
        self._file = sqlite3.connect(store, isolation_level=None)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = FULL")
        self._file.execute("CREATE TABLE kept (bytes BLOB)")
        self.commits, self.bytes = 1, 1

    def level(self, total: int, level: int) -> Load:
        """What ``total`` decisions take that do nothing but commit, whatever the ``level``."""
        part, began = os.urandom(max(self.bytes // self.commits, 1)), time.perf_counter()
        for _ in range(self.commits):
            self._file.execute("BEGIN IMMEDIATE")
            self._file.execute("INSERT INTO kept VALUES (?)", (part,))
            self._file.execute("COMMIT")
        seconds = time.perf_counter() - began
        return Load([seconds / total] * total, seconds)

    def kept(self) -> tuple[int, int]:
        """How many commits it has made, and the bytes of their rows together."""
        found: tuple[int, int] = self._file.execute(
            "SELECT count(*), sum(length(bytes)) FROM kept"
        ).fetchone()
        return found


def durable_rows(scale: float = 1.0) -> list[Row]:
    """In process and on Ray. The floors: the same without a journal, then bare group commits."""
    rows = []
    on_ray()
    with _folder() as folder:
        os.environ["XDG_STATE_HOME"] = str(folder / "state")  # keys and checkpoints go with it
        for group, opened in (("durable inline", Council.inline), ("durable ray", Council.launch)):
            settings: dict[str, Any] = {"seats": STUBS, "open_max": 5_000}
            store = folder / f"{group}.db"
            with (
                opened(**settings, name="kept", store=str(store), metrics_port=0) as council,
                opened(**settings, name="other", store="memory") as other,
            ):
                rows += _beside(group, council, other, store, scale)
    return rows


def _beside(group: str, council: Council, other: Council, store: Path, scale: float) -> list[Row]:
    decisions, written, bare = level_of(council), Written(council, store), Bare(store.with_suffix(".bare"))

    def counted(total: int, level: int) -> Load:
        found = decisions(total, level)
        bare.commits, bare.bytes = written.since()
        return found

    return level_rows(group, council, counted, [level_of(other), bare.level], scale)
