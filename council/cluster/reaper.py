"""Ends the processes that a local Ray leaves behind if the process that started it is killed.

On Linux the kernel ends a Ray's raylet with the process that started it. The raylet's agents and workers must notice
that by themselves. The agents first report it to Ray's head, which is gone too, and stay for minutes. The workers
check whether the raylet's process id is still in use. It stays in use if the raylet's new parent never waits for it,
as in a container without an init. So a daemon waits for the raylet's end, and then ends its agents and workers. It
starts when Ray is up; if the process is killed before that, they remain. On other systems Ray has a reaper of its
own, and this module does nothing.

This file is the daemon's program too, so that it imports only the standard library while it loads.
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

# A process that ends at SIGTERM does so within seconds; one that is killed is gone at once, but for slow disks.
GRACE_S, KILL_S = 5.0, 60.0
# So often the daemon looks whether the raylet is there, and ``end`` whether a process has ended.
LOOK_S, END_LOOK_S = 0.5, 0.05
START_S = 30.0
PS_TIMEOUT_S = 5.0


def watch(raylet: int | None, stop: Callable[[], object]) -> None:
    """Starts a daemon for the Ray of ``raylet``, which this process has just started; the daemon ends with it.

    Where there can be none, ``stop`` ends that Ray. Raises OperatorError.
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
    """What ``end`` needs: the ids of ``raylet``, its agents and its workers so far, and when each began.

    Nothing elsewhere than on Linux.
    """
    if raylet is None or not sys.platform.startswith("linux"):
        return {}
    return {pid: began for pid in [raylet, *_children(raylet)] if (began := process_started(pid)) is not None}


def end(noted: Mapping[int, str]) -> list[int]:
    """Ends what ``noted`` gave, and the workers that began later; gives the ids of any that stay.

    It asks them to end, and kills those that don't. An id that has become another process's is left alone.
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
    """When the process of that id began, in some notation; None where it is gone, or only waits to be reaped.

    With the id it names one process for good: ids are used again, ids with a start are not. Raises OperatorError.
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
    """The workers of a raylet, found by the title that Ray gives them and the raylet's id that it hands them.

    What they have started inherits that id, but has another title. An agent may have lost it from its environment.
    """
    theirs = {
        f"RAY_RAYLET_PID={pid}".encode()
        for pid, began in noted.items()
        if process_started(pid) in (None, began)
    }
    found = {}
    namespace = os.readlink("/proc/self/ns/pid") if theirs else ""  # ids of a container are its own
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
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
    """Goes on as a daemon, for which whoever started Ray need not wait."""
    os.setsid()
    if os.fork():
        os._exit(0)
    first, *others = (word.split(" ", 1) for word in (raylet, *children))
    while _there({int(first[0]): first[1]}):
        time.sleep(LOOK_S)
    end({int(pid): began for pid, began in (first, *others)})


if __name__ == "__main__":
    _main(*sys.argv[1:])
