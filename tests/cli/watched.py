"""A process for the tests of ``council watch``: a council with a case of each kind, and its screen on a terminal."""

from __future__ import annotations

import asyncio
import sys
import threading

from council.agents.mind import Case, Opinion, Ruling
from council.api.client import Council
from council.cli import render
from council.cli.operate.live import Screen
from council.cli.report import Report
from council.config.settings import SeatConfig
from tests.cli.conftest import Chair, says

WAITING = 4
REASON = "the whole reason, " * 20 + "to its end"


async def slow(case: Case) -> Opinion:
    if "slow" in case.summary:
        await asyncio.sleep(3_600)
    return Opinion.yes("agreed", confidence=0.9)


def council_to_watch() -> Council:
    """Four proposals wait for a human."""
    prime = Chair(Opinion.no(REASON, risk_level="high"), Ruling("human", "a person must look"))
    minds = {"prime": prime, "lite": says(Opinion.yes("agreed", confidence=0.9)), "codemind": slow}
    seats = [SeatConfig(name=name, mind=mind) for name, mind in minds.items()]
    council = Council.inline(seats=seats, store="memory")
    for number in range(WAITING):
        action = {"tool": "drop_table", "args": {"table": f"t{number}", "sure": True}}
        council.propose(f"Drop table {number}", action=action, risk="high", wait_for="all")
    return council


def main(mode: str) -> int:
    if mode == "broken":

        def broken(*_: object, **__: object) -> object:
            raise RuntimeError("drawing failed")

        render.row = broken  # type: ignore[assignment]
    with council_to_watch() as council:
        drafted = council.draft("slow: move the cache", wait_for="all", timeout_s=3_600)
        threading.Thread(target=council.propose, args=(drafted,), daemon=True).start()
        return Screen(council, Report(), since=0).watch()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
