"""Seats whose coordinator died before it attended to them: nothing of a council that never was may stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import ray

from tests.ray.conftest import ROOT

# Seats outlive their launcher by their constructor, one look for their coordinator, and Ray's own time to end them.
WITHIN_S = 60.0


def actors(council: str) -> set[str]:
    named = ray.util.list_named_actors(all_namespaces=True)
    return {actor["name"] for actor in named if actor["name"].startswith(f"{council}/")}


def until(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(0.1)


def test_a_launcher_killed_while_its_seats_begin_leaves_no_seat(name: str) -> None:
    """Mutation: only ``attend`` notices that a coordinator is dead, and nobody attends to these."""
    code = (
        "from council import Council, SeatConfig\n"
        "seats = [SeatConfig(name=n, mind='tests.ray.minds:SlowToBuild') for n in ('prime', 'lite', 'codemind')]\n"
        f"Council.launch(seats=seats, name={name!r}, ray_address={ray.get_runtime_context().gcs_address!r})\n"
    )
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "PYTHONPATH": str(ROOT)}
    launcher = subprocess.Popen([sys.executable, "-c", code], env=environment)
    try:
        until(lambda: len(actors(name)) == 4, "the council never began")
    finally:
        launcher.kill()
        assert launcher.wait() == -signal.SIGKILL, "it had ended before it was killed"
    until(lambda: not actors(name), f"still there: {actors(name)}")
