"""The floors on Ray: client → coordinator actor → three actors → back, with nothing in them.

The plain one makes a call for each message. The batched one has one call under way at a time, which carries all that
waits, as the council does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import ray

from benchmarks import job

_remote: Any = ray.remote
Proposal = tuple[int, str]


@_remote(num_cpus=0)
class BareSeat:
    def __init__(self, voter: str) -> None:
        self._voter = voter

    def votes(self, proposals: list[Proposal]) -> list[bool]:
        return [job.votes_yes(self._voter, number) for number, _ in proposals]


@_remote(num_cpus=0, max_concurrency=5_000)
class BareCoordinator:
    def __init__(self, seats: list[Any]) -> None:
        self._seats = seats

    async def decide(self, proposals: list[Proposal]) -> list[bool]:
        votes = await asyncio.gather(*(seat.votes.remote(proposals) for seat in self._seats))
        return [2 * sum(each) > len(self._seats) for each in zip(*votes, strict=True)]


class Plain:
    """So many coordinators, each with as many seats, on any nodes; proposals go to them in turn."""

    def __init__(self, coordinators: int = 1, seats: int = 3) -> None:
        voters = (*job.VOTERS, *(f"seat{number}" for number in range(4, seats + 1)))[:seats]
        seat: Any = BareSeat
        coordinator: Any = BareCoordinator
        spread = {"scheduling_strategy": "SPREAD"}
        self._seats = [[seat.options(**spread).remote(each) for each in voters] for _ in range(coordinators)]
        self._all = [coordinator.options(**spread).remote(each) for each in self._seats]

    def one(self, number: int) -> None:
        """From a blocking program."""
        assert ray.get(self._of(number).decide.remote([(number, job.body(number))])) == [job.approved(number)]

    async def decide(self, number: int) -> bool:
        (approved,) = await self._of(number).decide.remote([(number, job.body(number))])
        return bool(approved)

    async def decide_all(self, proposals: list[Proposal]) -> list[bool]:
        found: list[bool] = await self._all[0].decide.remote(proposals)
        return found

    def _of(self, number: int) -> Any:
        return self._all[number % len(self._all)]

    def end(self) -> None:
        for actor in (*self._all, *(seat for seats in self._seats for seat in seats)):
            ray.kill(actor)


class Batched:
    """Calls ``decide_all`` with whatever came in while the call before was under way."""

    def __init__(self, decide_all: Callable[[list[Proposal]], Awaitable[list[bool]]]) -> None:
        self._decide_all = decide_all
        self._waiting: list[tuple[Proposal, asyncio.Future[bool]]] = []
        self._pump: asyncio.Task[None] | None = None

    async def decide(self, number: int) -> bool:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(((number, job.body(number)), future))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._send())
        return bool(await future)

    async def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            found = await self._decide_all([proposal for proposal, _ in batch])
            for (_, future), approved in zip(batch, found, strict=True):
                future.set_result(approved)
