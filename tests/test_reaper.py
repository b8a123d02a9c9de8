"""How processes are ended that a Ray has left: asked, then killed, and no others."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from council.cluster import reaper

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere Ray has its own reaper"
)
DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
)


def test_what_does_not_end_is_killed_and_what_has_the_id_of_another_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reaper, "GRACE_S", 0.1)
    deaf = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE)
    other = subprocess.Popen(["sleep", "600"])
    gone = subprocess.Popen(["true"])
    gone.wait()
    try:
        assert deaf.stdout is not None
        deaf.stdout.readline()
        began = reaper.process_started(deaf.pid)
        assert began is not None
        thread = threading.get_native_id()  # an id that a process had before, now that of a thread
        noted = {
            deaf.pid: began,
            other.pid: "before this one",
            gone.pid: "before",
            thread: "before",
            0: "never",
        }
        assert reaper.end(noted) == []
        assert deaf.wait(60) == -9
        assert other.poll() is None
    finally:
        for each in (deaf, other):
            each.kill()
            each.wait()


def test_workers_are_found_by_their_title_and_the_id_of_their_raylet() -> None:
    """Mutations: go by the title alone, which each Ray gives; by the id alone, which a worker's processes inherit."""
    raylet = subprocess.Popen(["true"])
    raylet.wait()
    theirs = {"RAY_RAYLET_PID": str(raylet.pid)}
    worker, started, foreign = (
        subprocess.Popen([title, "600"], executable="/bin/sleep", env=environment)
        for title, environment in (
            ("ray::SeatActor", theirs),
            ("sleep", theirs),
            ("ray::SeatActor", {"RAY_RAYLET_PID": "1"}),
        )
    )
    try:
        assert reaper.end({raylet.pid: "before"}) == []
        assert worker.wait(60) == -15
        assert (started.poll(), foreign.poll()) == (None, None)
    finally:
        for each in (worker, started, foreign):
            each.kill()
            each.wait()
