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
