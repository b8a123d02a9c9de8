"""Ends the processes that a local Ray leaves behind if the process that started it is killed.

On Linux the kernel ends a Ray's raylet with the process that started it. The raylet's agents and workers must detect
that themselves. The agents first report it to Ray's head, which is gone too, and stay for minutes. The workers check
whether the raylet's process id is still in use. It stays in use if the raylet's new parent never waits for it, as in
a container without an init. So a daemon waits for the raylet's end, and then ends its agents and workers. It starts
when Ray is up; if the process is killed before that, they remain. On other systems Ray has its own reaper, and this
module does nothing.

This file is also the daemon's program, so it imports only the standard library while it loads.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# A process that obeys SIGTERM ends within seconds. A killed one ends at once, except on slow disks.
GRACE_S, KILL_S = 5.0, 60.0
# How often the daemon checks whether the raylet is there, and ``end`` whether a process has ended.
LOOK_S, END_LOOK_S = 0.5, 0.05
START_S = 30.0
PS_TIMEOUT_S = 5.0


def watch(raylet: int | None, stop: Callable[[], object]) -> None:
    """Starts a daemon for the Ray of ``raylet``, which this process has just started. The daemon ends with that Ray.

    If no daemon can be started, ``stop`` ends that Ray. Raises OperatorError.
    """
    if raylet is None or not sys.platform.startswith("linux"):
        return
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    try:
        if not sys.executable:
            raise OSError("this Python does not know where it is (sys.executable is empty)")
        words = [f"{pid} {began}" for pid, began in noted(raylet).items()]
        command = [sys.executable, "-I", "-S", __file__, *words]
        subprocess.run(command, check=True, timeout=START_S, cwd="/", **quiet)
    except BaseException as error:
        stop()
        if isinstance(error, (OSError, subprocess.SubprocessError)):
            from council.protocol.errors import OperatorError

            raise OperatorError(
                f"the process that ends Ray after a crash can't be started: {error}"
            ) from error
        raise


def noted(raylet: int | None) -> dict[int, str]:
    """The argument for ``end``: the ids of ``raylet``, its agents and its current workers, and when each began.

    Empty on systems other than Linux.
    """
    if raylet is None or not sys.platform.startswith("linux"):
        return {}
    return {pid: began for pid in [raylet, *_children(raylet)] if (began := process_started(pid)) is not None}


def end(noted: Mapping[int, str]) -> list[int]:
    """Ends the processes of ``noted``, and workers that began later. Returns the ids of any that remain.

    It asks them to end, and kills those that don't. It leaves alone an id that now belongs to another process.
    """
    processes = {**noted, **_workers(noted)}
    left = _there(processes)
    for number, limit_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, KILL_S)):
        ends_s = time.monotonic() + limit_s
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while (left := _there(processes)) and time.monotonic() < ends_s:
            time.sleep(END_LOOK_S)
    return left


def process_started(pid: int) -> str | None:
    """The start time of the process with that id, in some notation; None if it has ended, or only waits to be reaped.

    An id may be used again, but an id with its start identifies one process for good. Raises OperatorError.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _started_by_ps(pid)
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else f"{boot}/{rest[18]}"


def _started_by_ps(pid: int) -> str | None:
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PS_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        from council.protocol.errors import OperatorError

        raise OperatorError(f"ps does not say whether process {pid} runs: {error}") from error
    return done.stdout.strip() or None


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may have ended
            if int(path.read_bytes().rpartition(b")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def _workers(noted: Mapping[int, str]) -> dict[int, str]:
    """The workers of a raylet, found by the title that Ray gives them and the raylet's id in their environment.

    Processes that they have started inherit that id, but have another title. An agent may have lost the id.
    """
    theirs = {
        f"RAY_RAYLET_PID={pid}".encode()
        for pid, began in noted.items()
        if process_started(pid) in (None, began)
    }
    found = {}
    namespace = os.readlink("/proc/self/ns/pid") if theirs else ""  # ids in a container are its own
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            began = process_started(pid := int(path.name))
            title = (path / "cmdline").read_bytes()
            if (
                (title.startswith(b"ray::") or b"/ray/_private/workers/default_worker.py\0" in title)
                and not theirs.isdisjoint((path / "environ").read_bytes().split(b"\0"))
                and os.readlink(path / "ns/pid") == namespace
                and began is not None
                and process_started(pid) == began
            ):
                found[pid] = began
    return found


def _there(processes: Mapping[int, str]) -> list[int]:
    return [pid for pid, began in processes.items() if process_started(pid) == began]


def _main(raylet: str, *children: str) -> None:
    """Continues as a daemon, so that the process that started Ray need not wait for it."""
    os.setsid()
    if os.fork():
        os._exit(0)
    first, *others = (word.split(" ", 1) for word in (raylet, *children))
    while _there({int(first[0]): first[1]}):
        time.sleep(LOOK_S)
    end({int(pid): began for pid, began in (first, *others)})


if __name__ == "__main__":
    _main(*sys.argv[1:])
