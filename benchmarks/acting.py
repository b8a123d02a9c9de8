"""From a decision to an action: how long until an approved command has started in its sandbox, and until it ended."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace

from benchmarks.job import Load
from benchmarks.measure import Row, in_turn, times_row
from benchmarks.minds import seats
from council import Council

# A command's own time of its start: seconds since 1970, with nanoseconds.
CLOCK = ["date", "+%s.%N"]
TURNS = 4
STARTED_MS = 25.0


def acting_rows(scale: float = 1.0) -> list[Row]:
    """``act`` with a command that prints when it started, beside the same as a bare subprocess."""
    total = max(int(40 * scale), 5)
    with (
        tempfile.TemporaryDirectory() as root,
        Council.inline(seats=seats(mind="Agrees"), action={"root": root}) as council,
    ):

        def ours() -> str:
            result = council.act("command", {"argv": CLOCK})
            assert result.ok, result
            return result.output

        def bare() -> str:
            return subprocess.run(CLOCK, check=True, capture_output=True, text=True).stdout

        level = council.act("command", {"argv": ["true"]}).sandbox
        found, floor = in_turn([lambda: _starts(ours, total), lambda: _starts(bare, total)], TURNS)
    name = f"from act to the started command, with its decision ({level})"
    row = times_row("acting", name, found, floor)
    return [replace(row, bound=f"p50 ≤ {STARTED_MS:g} ms", holds=row.figure <= STARTED_MS)]


def _starts(run: Callable[[], str], count: int) -> Load:
    """The seconds from each call to the start that its command prints."""
    each_s = []
    for _ in range(count):
        began = time.time()
        each_s.append(float(run()) - began)
    return Load(each_s, sum(each_s))
