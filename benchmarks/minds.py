"""The minds of the benchmarks vote by the number of the proposal, at no cost of their own."""

from __future__ import annotations

import asyncio
import hashlib
import math
import statistics
import time

from benchmarks import job
from council import Case, Opinion, SeatConfig

MEDIAN_S, SIGMA = 0.050, 1.0
_NORMAL = statistics.NormalDist()


class Voter:
    """Votes as ``job.votes_yes`` says, at once."""

    def __init__(self, voter: str) -> None:
        self.voter = voter

    async def review(self, case: Case) -> Opinion:
        return self.opinion(case, "as its number says")

    def opinion(self, case: Case, reason: str) -> Opinion:
        yes = job.votes_yes(self.voter, job.number_of(case.summary))
        return Opinion.yes(reason) if yes else Opinion.no(reason)


class Agrees(Voter):
    """Votes yes, whatever is proposed."""

    def opinion(self, case: Case, reason: str) -> Opinion:
        return Opinion.yes(reason)


class SlowVoter(Voter):
    """The same after a latency that is log-normal (median 50 ms); its reason is when it answered, in Unix seconds."""

    async def review(self, case: Case) -> Opinion:
        digest = hashlib.blake2b(f"{case.proposal_id}/{self.voter}".encode(), digest_size=8).digest()
        uniform = (int.from_bytes(digest) + 0.5) / 2**64
        await asyncio.sleep(MEDIAN_S * math.exp(SIGMA * _NORMAL.inv_cdf(uniform)))
        return self.opinion(case, repr(time.time()))


def seats(count: int = 3, mind: str = "Voter") -> tuple[SeatConfig, ...]:
    """``count`` seats with the ``mind`` of this module; from the fourth on they vote with the majority."""
    names = (*job.VOTERS, *(f"seat{number}" for number in range(4, count + 1)))[:count]
    where = f"benchmarks.minds:{mind}"
    return tuple(
        SeatConfig(name=name, mind=where, options={"voter": name}, max_concurrent=256) for name in names
    )


STUBS = seats()
