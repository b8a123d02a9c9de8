"""Repeats, interleaves and prints. Knows nothing of what it times."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, the floor beside it, and what it is to reach.

    ``ratio`` is figure / floor; ``bound`` says what must hold of the figure or the ratio, ``holds`` whether
    it did in this run; both are empty for a figure that is told only.
    """

    group: str
    name: str
    figure: float
    unit: str
    floor: float | None = None
    ratio: float | None = None
    bound: str = ""
    holds: bool | None = None


def median_s(work: Callable[[], Any], repeats: int, inner: int = 1) -> float:
    """The median of ``repeats`` timings, in seconds for one of ``inner`` calls each."""
    times = []
    work()
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(inner):
            work()
        times.append((time.perf_counter() - began) / inner)
    return statistics.median(times)


def rate(decide: Callable[[int], Awaitable[Any]], total: int, in_flight: int) -> float:
    """How many of ``total`` true answers come in a second, to independent callers who wait for one after another."""
    left = iter(range(total))

    async def caller(number: int) -> None:
        for _ in left:
            assert await decide(number)

    async def callers() -> None:
        await asyncio.gather(*(caller(number) for number in range(in_flight)))

    began = time.perf_counter()
    asyncio.run(callers())
    return total / (time.perf_counter() - began)


def pairs(ours: Callable[[], float], floor: Callable[[], float], count: int) -> tuple[float, float, float]:
    """Medians of both and of the ratio, pair by pair: A B B A …, so that the machine's drift cancels out."""
    mine, theirs, ratios = [], [], []
    ours(), floor()  # warm both up
    for turn in range(count):
        gc.collect()
        first, second = (ours, floor) if turn % 2 == 0 else (floor, ours)
        one, two = first(), second()
        a, b = (one, two) if turn % 2 == 0 else (two, one)
        mine.append(a)
        theirs.append(b)
        ratios.append(a / b)
    return statistics.median(mine), statistics.median(theirs), statistics.median(ratios)


def show(rows: list[Row]) -> None:
    """The rows as a table, then one JSON line each."""
    console = Console(width=None if sys.stdout.isatty() else 150)
    table = Table(title="council benchmarks", title_justify="left")
    for column in ("group", "what", "figure", "floor", "ratio", "to reach", ""):
        table.add_column(column, justify="right" if column in ("figure", "floor", "ratio") else "left")
    for row in rows:
        table.add_row(
            row.group,
            row.name,
            f"{row.figure:,.4g} {row.unit}",
            "" if row.floor is None else f"{row.floor:,.4g} {row.unit}",
            "" if row.ratio is None else f"{row.ratio:.2f}",
            row.bound,
            "" if row.holds is None else "[green]yes[/]" if row.holds else "[red]NO[/]",
        )
    console.print(table)
    for row in rows:
        print(json.dumps(asdict(row)))
