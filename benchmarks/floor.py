"""The floor: the council's shape with nothing in it. Client → coordinator actor → three actors → back."""

from __future__ import annotations

import asyncio
from typing import Any

import ray

_remote: Any = ray.remote


@_remote(num_cpus=0)
class BareSeat:
    def vote(self, proposal: str) -> str:
        return "yes"


@_remote(num_cpus=0, max_concurrency=5_000)
class BareCoordinator:
    def __init__(self, seats: list[Any]) -> None:
        self._seats = seats

    async def decide(self, proposal: str) -> bool:
        votes = await asyncio.gather(*(seat.vote.remote(proposal) for seat in self._seats))
        return sum(vote == "yes" for vote in votes) > 1


def start() -> Any:
    seats = [BareSeat.remote() for _ in range(3)]
    coordinator = BareCoordinator.remote(seats)
    ray.get(coordinator.decide.remote("x"))
    return coordinator


def one(coordinator: Any) -> None:
    assert ray.get(coordinator.decide.remote("x"))


def many(coordinator: Any, total: int, in_flight: int) -> None:
    """``total`` decisions from independent callers, at most ``in_flight`` of them open: as ours are called."""
    left = iter(range(total))

    async def caller() -> None:
        for _ in left:
            assert await coordinator.decide.remote("x")

    async def all_callers() -> None:
        await asyncio.gather(*(caller() for _ in range(in_flight)))

    asyncio.run(all_callers())
