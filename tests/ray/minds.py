"""Minds for the Ray tests; imported by the seats' processes as tests.ray.minds."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from council import Case, Opinion, Ruling, ShownBallot


async def agree(case: Case) -> Opinion:
    return Opinion.yes("agreed")


async def refuse(case: Case) -> Opinion:
    return Opinion.no("refused", confidence=0.9)


class Chair:
    """Agrees, and confirms whatever it must rule on."""

    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("agreed")

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        return Ruling("confirm", f"{len(ballots)} ballots seen", confidence=0.9)


class Mortal:
    """Dies by SIGKILL in the middle of its first review of a proposal with ``die`` in its summary.

    ``mark`` is a file that says that it died already, so that the restarted seat lives.
    """

    def __init__(self, mark: str) -> None:
        self.mark = Path(mark)

    def review(self, case: Case) -> Opinion:
        if "die" in case.summary and not self.mark.exists():
            self.mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return Opinion.yes("still here")


class Waiting:
    """Votes once ``gate`` exists; ``beside`` it leaves a file when it has begun. Blocks a thread."""

    def __init__(self, gate: str) -> None:
        self.gate = Path(gate)

    def review(self, case: Case) -> Opinion:
        self.gate.with_suffix(".begun").touch()
        until = time.monotonic() + 60
        while not self.gate.exists() and time.monotonic() < until:
            time.sleep(0.01)
        return Opinion.no("late but sure", risk_level="high")


class Gated(Waiting):
    """The same, and it votes yes."""

    def review(self, case: Case) -> Opinion:
        super().review(case)
        return Opinion.yes("the gate is open")


class Stopped:
    """Stops its whole event loop, as an async mind must not."""

    async def review(self, case: Case) -> Opinion:
        time.sleep(20)  # noqa: ASYNC251 - that is the fault it is here for
        return Opinion.yes("too late")


async def raising(case: Case) -> Opinion:
    raise RuntimeError("no idea")


class Slow:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def review(self, case: Case) -> Opinion:
        await asyncio.sleep(self.seconds)
        return Opinion.yes("thought it over")


class Unbuildable:
    def __init__(self) -> None:
        raise ValueError("no licence file")

    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("never said")


class SlowToBuild:
    """Takes its time before it is there."""

    def __init__(self, seconds: float = 4.0) -> None:
        time.sleep(seconds)

    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("here at last")
