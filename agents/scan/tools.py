"""Runs an analyzer on untrusted texts: limited, without the user's environment, never through the texts' settings.

The texts lie in a private folder under names of our own. The process gets a limit of time, CPU, memory and output,
and an environment with nothing but a home in that folder. Windows has no limit of CPU and output; there the limit of
time is the only one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

CPU_SECONDS_MAX = 10  # of one analyzer, which is then ended
OUTPUT_BYTES_MAX = 32_000_000  # of one analyzer: ast-grep repeats the code around each finding
DATA_BYTES_MAX = 1 << 30  # of one analyzer, with the stacks of its threads
NOTE_CHARS_MAX = 200  # of a failed analyzer's own message, whose end says most

# Not every system limits data.
_LIMITED = (
    'ulimit -c 0; ulimit -S -t "$1"; ulimit -H -t "$(($1 + 1))"; ulimit -f "$2"; ulimit -d "$3" 2>/dev/null; '
    'shift 3; exec "$@"'
)
_FILE_BLOCK_BYTES = 512  # in which the shell's limit counts

sysconfig.get_config_vars()  # here, because in Python 3.11 two threads must not be the first to ask


class ToolFailed(Exception):
    """An analyzer did not do its work; the message says why."""


def find(name: str) -> str:
    """The path of a program that a package of this Python installed, or that is on PATH. Raises ToolFailed."""
    folders = [Path(sys.executable).parent, sysconfig.get_path("scripts")]
    folders.append(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")))
    found = shutil.which(name, path=os.pathsep.join(map(str, folders))) or shutil.which(name)
    if found is None:
        raise ToolFailed(f"{name} is not installed")
    return found


def run(
    command: Sequence[str],
    folder: Path,
    *,
    timeout_s: float,
    succeeds: Sequence[int] = (0,),
    cwd: Path | None = None,
    cpu_s: int = CPU_SECONDS_MAX,
    path: str = os.defpath,
) -> bytes:
    """What ``command`` prints, run in ``folder``. Its first word is a path from ``find``.

    ``path`` is its variable PATH. The processes that it starts end with it. Raises ToolFailed if it does not start,
    takes too long, prints too much, or ends with a code not in ``succeeds``.
    """
    name = Path(command[0]).name
    if os.name != "nt":
        limits = map(str, (cpu_s, OUTPUT_BYTES_MAX // _FILE_BLOCK_BYTES, DATA_BYTES_MAX >> 10))
        command = ["/bin/sh", "-c", _LIMITED, "sh", *limits, *command]
    environment = {"HOME": str(folder), "TMPDIR": str(folder), "PATH": path, "LC_ALL": "C.UTF-8"}
    with Path(folder, f"{name}.out").open("w+b") as out, Path(folder, f"{name}.err").open("w+b") as err:
        try:
            # It writes to files, because its output may be large.
            done = subprocess.Popen(
                command,
                cwd=cwd or folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolFailed(f"{name} did not start: {error.strerror}") from error
        try:
            done.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ToolFailed(f"{name} did not finish within {timeout_s:g} s") from error
        finally:
            _end(done)
        if os.name != "nt" and done.returncode == -signal.SIGXCPU:
            raise ToolFailed(f"{name} took more than {cpu_s} s of CPU time")
        printed = out.seek(0, os.SEEK_END)
        # Some programs ignore the signal, and fail to write.
        if printed > OUTPUT_BYTES_MAX - _FILE_BLOCK_BYTES or (
            os.name != "nt" and done.returncode == -signal.SIGXFSZ
        ):
            raise ToolFailed(f"{name} reported more than {OUTPUT_BYTES_MAX:,} bytes")
        if done.returncode not in succeeds:
            err.seek(0)
            words = " ".join(err.read(OUTPUT_BYTES_MAX).decode("utf-8", "replace").split())
            words = f": {words[-NOTE_CHARS_MAX:]}" if words else ""
            raise ToolFailed(f"{name} failed with exit code {done.returncode}{words}")
        out.seek(0)
        return out.read()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and, but on Windows, all that it started and did not take out of its session."""
    if os.name == "nt":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # all have ended
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
