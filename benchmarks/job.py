"""The job of every benchmark: proposals of 2 kB, on which three voters disagree in a third of the cases.

Needs the standard library alone, so that each peer of ``benchmarks.peers`` runs it in its own environment.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

VOTERS = ("prime", "lite", "codemind")
LEVELS = (1, 10, 100, 1000)
BODY_BYTES = 2_048
WITHIN_S = 1_800.0
_LINE = (
    "Give the worker of the billing queue 4 GB, restart it one instance at a time, and watch its backlog. "
)


def summary(number: int) -> str:
    return f"Change {number}"


def number_of(summary: str) -> int:
    """The number of the proposal with this summary."""
    return int(summary.rpartition(" ")[2])


def body(number: int) -> str:
    """A text of ``BODY_BYTES``; no two numbers have the same."""
    return f"{summary(number)}. {_LINE * (BODY_BYTES // len(_LINE) + 1)}"[:BODY_BYTES]


def approved(number: int) -> bool:
    """What the majority says: no to every sixth proposal."""
    return number % 6 != 0


def votes_yes(voter: str, number: int) -> bool:
    """All agree on two proposals of three; on the third, one of the first three voters, in turn, disagrees."""
    disagrees = number % 3 == 0 and voter == VOTERS[number // 3 % 3]
    return approved(number) != disagrees


@dataclass(frozen=True)
class Load:
    """Seconds that each of some decisions took, all of them together, and the CPU of this process meanwhile."""

    each_s: list[float]
    total_s: float
    cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        """Decisions a second."""
        return len(self.each_s) / self.total_s

    @property
    def cpu_each_s(self) -> float:
        return self.cpu_s / len(self.each_s)

    @property
    def p50(self) -> float:
        return statistics.median(self.each_s)

    @property
    def p99(self) -> float:
        return percentile_99(self.each_s)


def percentile_99(values: list[float]) -> float:
    """The smallest value that 99 % do not exceed; of fewer than 100 values the greatest."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


async def load(decide: Callable[[int], Awaitable[bool]], total: int, in_flight: int) -> Load:
    """``total`` proposals by ``in_flight`` callers, each of whom waits for one decision before the next.

    Raises AssertionError if a decision is not what the majority says, and TimeoutError after ``WITHIN_S``.
    """
    numbers, each_s = iter(range(total)), []

    async def caller() -> None:
        for number in numbers:
            began = time.perf_counter()
            assert await decide(number) == approved(number), f"proposal {number} was decided wrongly"
            each_s.append(time.perf_counter() - began)

    began, cpu_began_s = time.perf_counter(), time.process_time()
    async with asyncio.timeout(WITHIN_S):
        await asyncio.gather(*(caller() for _ in range(in_flight)))
    return Load(each_s, time.perf_counter() - began, time.process_time() - cpu_began_s)
