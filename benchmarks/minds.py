"""Stub minds for the benchmarks: they cost nothing, so that what is left is the council's own cost."""

from __future__ import annotations

import asyncio
import hashlib
import math
import statistics
import time

from council import Case, Opinion
from council.config.settings import SeatConfig

MEDIAN_S, SIGMA = 0.050, 1.0
_NORMAL = statistics.NormalDist()


async def agree(case: Case) -> Opinion:
    return Opinion.yes("agreed")


def latency_s(proposal_id: str, seat: str) -> float:
    """Log-normal (median 50 ms, sigma 1), and the same for the same proposal and seat in every process."""
    digest = hashlib.blake2b(f"{proposal_id}/{seat}".encode(), digest_size=8).digest()
    uniform = (int.from_bytes(digest) + 0.5) / 2**64
    return MEDIAN_S * math.exp(SIGMA * _NORMAL.inv_cdf(uniform))


class Slow:
    """Agrees after its latency; its reason is when it did so, in Unix seconds."""

    def __init__(self, seat: str) -> None:
        self.seat = seat

    async def review(self, case: Case) -> Opinion:
        await asyncio.sleep(latency_s(case.proposal_id, self.seat))
        return Opinion.yes(repr(time.time()))


NAMES = ("prime", "lite", "codemind")
STUBS = tuple(SeatConfig(name=name, mind="benchmarks.minds:agree") for name in NAMES)
SLOW = tuple(
    SeatConfig(name=name, mind="benchmarks.minds:Slow", options={"seat": name}, max_concurrent=256)
    for name in NAMES
)
