"""The job by a council in this process: with its journal in SQLite, and without one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks import job
from benchmarks.minds import STUBS
from benchmarks.peers.child import Decide
from council import AsyncCouncil


@asynccontextmanager
async def _council(store: str, folder: Path) -> AsyncIterator[Decide]:
    os.environ["XDG_STATE_HOME"] = str(folder)  # keys and checkpoints go with it
    async with AsyncCouncil.inline(seats=STUBS, open_max=5_000, store=store) as council:

        async def decide(number: int) -> bool:
            return bool(await council.propose(job.summary(number), job.body(number)))

        yield decide


@asynccontextmanager
async def in_memory(folder: Path) -> AsyncIterator[Decide]:
    async with _council("memory", folder) as decide:
        yield decide


@asynccontextmanager
async def durable(folder: Path) -> AsyncIterator[Decide]:
    async with _council(str(folder / "council.db"), folder) as decide:
        yield decide
