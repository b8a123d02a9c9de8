"""``python -m benchmarks.peers.child MODULE:FUNCTION FOLDER SCALE``: one peer does the job; prints one JSON line.

Runs in the peer's own environment, which has psutil and neither the council nor what it needs.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from benchmarks import job

Decide = Callable[[int], Awaitable[bool]]
Opened = Callable[[Path], AbstractAsyncContextManager[Decide]]
TOTALS = {1: 300, 10: 1_000, 100: 2_000, 1000: 4_000}
WARM = 20


def rss_mb() -> float:
    """The resident memory of this process, in MiB."""
    return float(psutil.Process().memory_info().rss) / 2**20


async def measured(opened: Opened, folder: Path, scale: float) -> dict[str, Any]:
    """What one run of the job took.

    ``levels``: milliseconds of a decision, of its CPU, and decisions a second. ``rss``: memory once all is decided,
    in MiB; ``grew``: by how much it is more than after the first ``WARM`` decisions.
    """
    levels = {}
    async with opened(folder) as decide:
        await job.load(decide, WARM, 1)
        before = rss_mb()
        for level in job.LEVELS:
            gc.collect()
            found = await job.load(decide, max(level, int(TOTALS[level] * scale)), level)
            levels[str(level)] = {
                "p50": found.p50 * 1e3,
                "p99": found.p99 * 1e3,
                "rate": found.rate,
                "cpu": found.cpu_each_s * 1e3,
            }
        rss = rss_mb()
    return {"levels": levels, "rss": rss, "grew": rss - before}


def main() -> None:
    where, folder, scale = sys.argv[1:]
    module, _, function = where.partition(":")
    opened: Opened = getattr(import_module(f"benchmarks.peers.{module}"), function)
    print(json.dumps(asyncio.run(measured(opened, Path(folder), float(scale)))))


if __name__ == "__main__":
    main()
