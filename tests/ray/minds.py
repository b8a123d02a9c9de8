"""Minds for the Ray tests; imported by the seats' processes as tests.ray.minds."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from council import Action, Case, Opinion, Ruling, ShownBallot
from tests.patience import until


async def agree(case: Case) -> Opinion:
    return Opinion.yes("agreed")


async def refuse(case: Case) -> Opinion:
    return Opinion.no("refused", confidence=0.9)


async def tell_the_log(case: Case) -> Opinion:
    """Says how this process logs."""
    log = logging.getLogger("council")
    (handler,) = log.handlers
    line = handler.format(logging.makeLogRecord({"name": "council", "msg": "said"}))
    return Opinion.yes(f"{logging.getLevelName(log.level)} {line[0]}")


class Chair:
    """Agrees, and confirms whatever it must rule on."""

    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("agreed")

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        return Ruling("confirm", f"{len(ballots)} ballots seen", confidence=0.9)


async def look_first(case: Case) -> Opinion:
    """Agrees. If the summary is "look" or "glance", it first asks for that check, and tells the result."""
    if case.checks:
        return Opinion.yes(f"seen: {case.checks[0].output}")
    if case.summary not in ("look", "glance"):
        return Opinion.yes("agreed")
    return Opinion.abstain("look first", check=Action(case.summary, {"path": case.body}))


class Told:
    """Does what the proposal's summary says for its seat, then votes: ``codemind: no; lite: wait FILE, warn``.

    It votes yes but for ``no`` and ``warn``, and confirms whatever it must rule on. ``wait`` blocks its thread until
    the file exists, and leaves one beside it when it has begun. ``die`` ends its process by SIGKILL, unless the file
    that it leaves exists already, so that the restarted seat lives.
    """

    def __init__(self, seat: str) -> None:
        self.seat = seat

    def review(self, case: Case) -> Opinion:
        orders = dict(each.split(": ", 1) for each in case.summary.split("; ") if ": " in each)
        opinion = Opinion.yes("agreed")
        for order in orders.get(self.seat, "").split(", "):
            match order.split():
                case ["wait", gate]:
                    wait(Path(gate))
                case ["die", mark] if not Path(mark).exists():
                    Path(mark).write_text(str(os.getpid()))
                    os.kill(os.getpid(), signal.SIGKILL)
                case ["raise"]:
                    raise RuntimeError("no idea")
                case ["no"]:
                    opinion = Opinion.no("refused", confidence=0.9)
                case ["warn"]:
                    opinion = Opinion.no("late but sure", risk_level="high")
        return opinion

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        return Ruling("confirm", f"{len(ballots)} ballots seen", confidence=0.9)


def wait(gate: Path) -> None:
    gate.with_suffix(f"{gate.suffix}.begun").touch()
    until(gate.exists, f"{gate} did not appear")


class ToldOnItsLoop(Told):
    """The same, on its event loop: ``wait`` stops that, as an async mind must not."""

    async def review(self, case: Case) -> Opinion:  # type: ignore[override]
        return super().review(case)


class Endless:
    """Thinks for longer than any test lasts."""

    async def review(self, case: Case) -> Opinion:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


class Unbuildable:
    def __init__(self) -> None:
        raise ValueError("no licence file")

    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("never said")


class Gated:
    """Is there once a file is; leaves one beside it when it begins to wait."""

    def __init__(self, gate: str) -> None:
        wait(Path(gate))

    async def review(self, case: Case) -> Opinion:
        return Opinion.no("let in", confidence=0.9)


class LetIn(Gated):
    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("here at last")
