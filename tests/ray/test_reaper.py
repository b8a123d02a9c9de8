"""What a killed process leaves of its Ray: nothing. With real processes, which end by a real SIGKILL."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from council.cluster import known, reaper
from tests.ray.conftest import ROOT
from tests.ray.test_cli_ray import alive, below, opened, until

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere Ray has a reaper of its own"),
]
# It closes one council, and launches another, each on a thread that ends at once. Each time it starts a process of
# its own as Ray starts.
LAUNCHER = """
import subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
from council import Council
from council.cluster import connection
for _ in range(2):
    other = lambda: print(subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL).pid, flush=True)
    begun = threading.Timer(0.5, other)
    begun.start()
    with ThreadPoolExecutor(1) as thread:
        council = thread.submit(Council.launch, store="memory").result()
    begun.join()
    assert council.propose("Still there")
    print(connection.raylet(), flush=True)
    sys.stdin.readline()
    council.close()
    print("closed", flush=True)
"""
# Starts the launcher, becomes the parent of what that leaves, and never waits for any of it: it stays as a zombie, as
# in a container without an init. What the launcher says ends with the launcher.
HEEDLESS = """
import ctypes, os, subprocess, sys, time
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
launcher = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print(launcher.pid, flush=True)
os.close(1)
time.sleep(3600)
"""


@pytest.fixture(scope="package", autouse=True)
def a_ray() -> None:
    """No Ray in this process: these tests have theirs in others, which they kill."""


def daemons(raylet: int) -> set[int]:
    """The processes that wait for the end of a raylet."""
    wanted = [reaper.__file__.encode(), f"{raylet} ".encode()]
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if all(any(word.startswith(begins) for word in words) for begins in wanted):
            found.add(int(path.parent.name))
    return found


def started(pids: set[int]) -> dict[int, str | None]:
    """Processes, and when each began; an id alone may become another's."""
    return {pid: reaper.process_started(pid) for pid in pids}


def left(noted: dict[int, str | None]) -> set[int]:
    return {pid for pid, began in noted.items() if began and reaper.process_started(pid) == began}


def test_a_launcher_that_is_killed_leaves_nothing_of_its_ray_and_all_else(tmp_path: Path) -> None:
    """Mutations: leave agents or workers to themselves; end whatever the launcher has started; start Ray on any
    thread."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", HEEDLESS, LAUNCHER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    others: set[int] = set()
    try:
        launcher = int(parent.stdout.readline())
        others.add(int(parent.stdout.readline()))
        first = int(parent.stdout.readline())
        assert len(daemons(first)) == 1
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "closed\n"
        until(lambda: not daemons(first))  # with its Ray, though the launcher lives
        others.add(int(parent.stdout.readline()))
        second = int(parent.stdout.readline())
        (daemon,) = daemons(second)
        noted = started(below(launcher) - others)
        assert len(noted) > 8
        assert alive({launcher})
        os.kill(launcher, signal.SIGKILL)
        until(lambda: not alive({launcher, daemon}))
        until(lambda: not left(noted))
        assert alive(others) == others
    finally:
        for pid in {parent.pid, *below(parent.pid), *others}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.wait()
        parent.stdin.close()
        parent.stdout.close()


def test_council_down_ends_what_is_left_where_the_host_and_the_daemon_were_killed(tmp_path: Path) -> None:
    """Mutation: forget a council whose host is gone, and leave what its Ray left."""
    with opened(tmp_path) as shell:
        shell.told("up")
        path = tmp_path / "council" / "councils" / "council.json"
        kept = msgspec.json.decode(path.read_bytes(), type=known.Known)
        assert kept.pid is not None
        noted = started(below(kept.pid))
        (daemon,) = {each for pid in noted for each in daemons(pid)}
        os.kill(daemon, signal.SIGKILL)
        os.kill(kept.pid, signal.SIGKILL)
        until(lambda: not alive({daemon, kept.pid}))
        assert left(noted)
        done = shell.run("down")
        assert (done.returncode, done.stdout) == (
            0,
            f"council 'council' is down: it had crashed; its process {kept.pid} had ended already\n",
        )
        until(lambda: not left(noted))
