"""Repeats, interleaves and prints. Knows nothing of what it times."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import psutil

from benchmarks.job import Load, load, percentile_99

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, the floor beside it, and what it is to reach.

    ``ratio`` is figure / floor; ``bound`` says what must hold of the figure or the ratio, ``holds`` whether
    it did in this run; both are empty for a figure that is told only. ``cpu_ms`` is what one decision
    takes of this process. ``grew_mb`` says by how much the coordinator's process grew meanwhile, in MiB.
    """

    group: str
    name: str
    figure: float
    unit: str
    floor: float | None = None
    ratio: float | None = None
    bound: str = ""
    holds: bool | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    second_floor: float | None = None
    second_ratio: float | None = None
    cpu_ms: float | None = None
    grew_mb: float | None = None


def timed(work: Callable[[], object], count: int) -> Load:
    """``count`` calls, one after the other."""
    each_s, cpu_began_s = [], time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        work()
        each_s.append(time.perf_counter() - began)
    return Load(each_s, sum(each_s), time.process_time() - cpu_began_s)


def cpu(work: Callable[[], object]) -> Load:
    """The CPU time of one call."""
    began = time.process_time()
    work()
    used_s = time.process_time() - began
    return Load([used_s], used_s)


def loaded(decide: Callable[[int], Awaitable[bool]], total: int, in_flight: int) -> Load:
    """The job of ``benchmarks.job``, on an event loop of its own."""
    return asyncio.run(load(decide, total, in_flight))


def in_turn(works: Iterable[Callable[[], T]], turns: int) -> list[list[T]]:
    """What each work returned in each turn: A B C C B A …, so that the machine's drift cancels out."""
    works = list(works)
    found: list[list[T]] = [[] for _ in works]
    for work in works:  # warms it up
        work()
    for turn in range(turns):
        places = range(len(works))
        for place in places if turn % 2 == 0 else reversed(places):
            gc.collect()
            found[place].append(works[place]())
    return found


def ratios(mine: Iterable[float], theirs: Iterable[float]) -> float:
    """The median of the ratios, turn by turn."""
    return statistics.median(a / b for a, b in zip(mine, theirs, strict=True))


def times_row(group: str, name: str, mine: list[Load], floor: list[Load] | None = None, **more: Any) -> Row:
    """How long one took, in ms, over all turns; beside the floor's."""
    each_s = [second for one in mine for second in one.each_s]
    p50_ms, p99_ms = statistics.median(each_s) * 1e3, percentile_99(each_s) * 1e3
    if floor is not None:
        more["floor"] = statistics.median(one.p50 for one in floor) * 1e3
        more["ratio"] = ratios((one.p50 for one in mine), (one.p50 for one in floor))
    return Row(group, name, p50_ms, "ms", p50_ms=p50_ms, p99_ms=p99_ms, **more)


def rate_row(group: str, name: str, mine: list[Load], *floors: list[Load], **more: Any) -> Row:
    """Decisions a second, with what each took; beside one floor, or two."""
    found = times_row(group, name, mine)
    for floor, (key, ratio) in zip(
        floors, (("floor", "ratio"), ("second_floor", "second_ratio")), strict=False
    ):
        more[key] = statistics.median(one.rate for one in floor)
        more[ratio] = ratios((one.rate for one in mine), (one.rate for one in floor))
    rate = statistics.median(one.rate for one in mine)
    cpu_ms = statistics.median(one.cpu_each_s for one in mine) * 1e3
    return Row(group, name, rate, "/s", p50_ms=found.p50_ms, p99_ms=found.p99_ms, cpu_ms=cpu_ms, **more)


def rss_mb(pid: int | None = None) -> float:
    """The resident memory of a process, in MiB; without ``pid`` of this one."""
    return float(psutil.Process(pid).memory_info().rss) / 2**20


def show(rows: list[Row]) -> None:
    """The rows as a table in Markdown, then one JSON line each."""
    head = [
        "group",
        "what",
        "figure",
        "p50; p99",
        "CPU",
        "floor",
        "ratio",
        "second floor",
        "ratio",
        "grew",
        "to reach",
    ]
    print(markdown([head, *map(_cells, rows)]))
    for row in rows:
        print(json.dumps(asdict(row)))


def markdown(rows: list[list[str]]) -> str:
    """A table whose first row is its head."""
    head, *body = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body))


def number(value: float) -> str:
    """Three digits, or all of those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _cells(row: Row) -> list[str]:
    def cell(value: float | None, unit: str = "") -> str:
        return "" if value is None else f"{number(value)} {unit}".strip()

    times = "" if row.p50_ms is None else f"{number(row.p50_ms)}; {cell(row.p99_ms)} ms"
    floors = [
        cell(row.floor, row.unit),
        cell(row.ratio),
        cell(row.second_floor, row.unit),
        cell(row.second_ratio),
    ]
    held = {None: "", True: ": yes", False: ": **no**"}[row.holds]
    figure = cell(row.figure, row.unit)
    used, grew = cell(row.cpu_ms, "ms"), cell(row.grew_mb, "MB")
    return [row.group, row.name, figure, times, used, *floors, grew, row.bound + held]
