"""Seats whose coordinator died before it attended to them: nothing of a council that never was may stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from council.cluster import panel_actor, seat_actor
from tests.patience import until
from tests.ray.shells import ROOT


def actors(council: str) -> set[str]:
    named = ray.util.list_named_actors(all_namespaces=True)
    return {actor["name"] for actor in named if actor["name"].startswith(f"{council}/")}


@pytest.mark.long
def test_a_launcher_killed_while_its_seats_begin_leaves_no_seat(name: str, tmp_path: Path) -> None:
    """Mutation: only ``attend`` notices that a coordinator is dead, and nobody attends to these."""
    code = (
        "from council import Council, SeatConfig\n"
        f"gated = {{'mind': 'tests.ray.minds:Gated', 'options': {{'gate': {str(tmp_path / 'never')!r}}}}}\n"
        "seats = [SeatConfig(name=name, **gated) for name in ('prime', 'lite', 'codemind')]\n"
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


def test_a_seat_asks_a_frozen_coordinator_one_thing_at_a_time_and_ends_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutations: asked anew at each look, all of which waits for it when it thaws; asked by a seat that it attends
    to; outlived where its node, which it may not leave, is gone.
    """
    attended = threading.Event()
    asked: list[str] = []
    killed: list[Any] = []
    # Of ten looks the first four find no answer, the next ones that it has no node, that it lives, and then, not
    # once as a head may say that has just come back, that it has none.
    looks = iter([[], [], [], [], *[["answer"]] * 6])
    gone = ray.exceptions.ActorUnschedulableError("its node is gone")
    answers = iter([gone, None, gone, None, gone, gone])

    class Pause:
        """Between its first looks and the others the seat is attended to for a while."""

        waits = 0

        def wait(self, pause_s: float) -> bool:
            self.waits += 1
            (attended.set if 4 <= self.waits < 10 else attended.clear)()
            return False

    class Hello:
        def remote(self) -> str:
            asked.append("hello")
            return f"question {len(asked)}"

    def looked(questions: list[str], timeout: float) -> tuple[list[str], list[str]]:
        assert not attended.is_set()
        return next(looks), []

    def answered(question: str) -> None:
        error = next(answers)
        if error is not None:
            raise error

    seen = SimpleNamespace(
        wait=looked,
        get=answered,
        kill=lambda actor, no_restart: killed.append(actor),
        get_runtime_context=lambda: SimpleNamespace(current_actor="seat"),
    )
    made: Any = seat_actor.SeatActor
    seat = object.__new__(made.__ray_metadata__.modified_class)
    seat._attended = attended
    monkeypatch.setattr(panel_actor, "ray", seen)
    monkeypatch.setattr(seat_actor, "ray", seen)
    monkeypatch.setattr(seat_actor, "threading", SimpleNamespace(Event=Pause))
    seat._watch(SimpleNamespace(hello=Hello()))
    assert (asked, killed) == (["hello"] * 6, ["seat"])
