"""Runs a program in a sandbox: bubblewrap, or Landlock if bubblewrap does not work.

Both levels give no network, a read-only system, a private /tmp, a cleared environment, and limits on time, CPU,
memory, processes, files and output. At the end every process of the program is ended. The result names the level. If
no level works, nothing is run, unless the settings say ``sandbox = "none"``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any, Final, Literal

from council.action import confine, syscall_filter
from council.action.tool import ToolResult
from council.protocol.errors import OperatorError

Level = Literal["bubblewrap", "landlock", "none"]
BUBBLEWRAP: Final = "bubblewrap"
LANDLOCK: Final = "landlock"
NONE: Final = "none"
# What a result says of each level. Landlock judges the opening of files, and no change of modes and times.
LEVELS: dict[Level, str] = {
    BUBBLEWRAP: "bubblewrap",
    LANDLOCK: "landlock: does not hold names, modes and times of files outside, nor the list of processes",
    NONE: "none",
}
# Read-only for every program, where they exist. No more of /etc: it has secrets.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = tuple(
    f"/etc/{name}"
    for name in [
        "alternatives",
        "ca-certificates",
        "group",
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
        "localtime",
        "nsswitch.conf",
        "passwd",
        "protocols",
        "services",
        "ssl",
    ]
)
_DEVICES = ("null", "zero", "full", "random", "urandom")
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}
_NOBODY = 65_534
_FILES_MAX = 1_024  # open at a time
_TRIAL_S = 10.0
_GRACE_S = 5.0  # for what is killed to be gone
_CHUNK = 65_536
_numbers = itertools.count()


class SandboxMissing(OperatorError):
    """No sandbox works on this machine for this user (``reasons``, one for each level). Nothing was run."""

    code = "sandbox_missing"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run. Memory, CPU and file size are for each process. The memory limit also holds for /tmp."""

    timeout_s: float = 60.0
    output_bytes_max: int = 2**20
    memory_bytes_max: int = 2**30
    cpu_s: int = 60
    processes_max: int = 64
    file_bytes_max: int = 2**28

    def rlimits(self) -> dict[str, int]:
        """The limits by their names in prlimit(1), none above the hard limit of this process."""
        wanted = {
            "AS": self.memory_bytes_max,
            "CPU": self.cpu_s,
            "FSIZE": self.file_bytes_max,
            "NOFILE": _FILES_MAX,
            "CORE": 0,
            "NPROC": self.processes_max,
        }
        hard = {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1] for name in wanted}
        return {
            name: value if hard[name] == resource.RLIM_INFINITY else min(value, hard[name])
            for name, value in wanted.items()
        }


@dataclass(frozen=True, slots=True)
class _Job:
    argv: tuple[str, ...]
    cwd: str
    writable: tuple[str, ...]
    readable: tuple[str, ...]
    env: Mapping[str, str]
    limits: Limits
    user: tuple[int, int] | None  # whom root becomes for it


def run_sandboxed(
    argv: Sequence[str],
    *,
    cwd: str | Path,
    writable: Sequence[str | Path] = (),
    readable: Sequence[str | Path] = (),
    env: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    sandbox: Literal["auto", "bubblewrap", "landlock", "none"] = "auto",
) -> ToolResult:
    """Runs a program to its end, at most ``limits.timeout_s`` seconds, and ends all that it started.

    ``cwd`` is absolute, and can be read. ``writable`` and ``readable`` are further absolute paths. The environment is
    PATH, LANG, HOME, TMPDIR and ``env``. Standard input is empty. Each output stream is kept up to
    ``limits.output_bytes_max`` bytes. If the superuser calls it, it runs as the owner of ``cwd``. Raises
    SandboxMissing if no level works, or not the one that ``sandbox`` names.
    """
    where = os.path.realpath(cwd)
    owner = os.stat(where)
    places = tuple(os.path.realpath(each) for each in writable)
    job = _Job(
        tuple(argv),
        where,
        places,
        # Below a writable place it needs none of its own, and a link in it that was changed by now can't lead out.
        (
            *(() if _within(os.path.abspath(cwd), places) else (where,)),
            *(os.path.realpath(each) for each in readable),
        ),
        env or {},
        limits or Limits(),
        (owner.st_uid, owner.st_gid) if os.geteuid() == 0 and owner.st_uid != 0 else None,
    )
    level = level_for(job.user, sandbox)
    return _run(level, job)


def _within(path: str, places: Sequence[str]) -> bool:
    return any(os.path.commonpath([path, each]) == each for each in places)


def level_for(user: tuple[int, int] | None, sandbox: str = "auto") -> Level:
    """The level at which programs of ``user`` run: None for the user of this process. Raises SandboxMissing."""
    if sandbox == NONE:
        return NONE
    wanted: tuple[Level, ...] = (BUBBLEWRAP, LANDLOCK) if sandbox == "auto" else (sandbox,)  # type: ignore[assignment]
    reasons = {}
    for level in wanted:
        reasons[level] = why = _why_not(level, user)
        if not why:
            return level
    found = "; ".join(f"{level}: {why}" for level, why in reasons.items())
    raise SandboxMissing(
        f"no sandbox works here, so nothing was run ({found}). Install bubblewrap, or run the executor where it "
        'works. To run programs without any protection, set sandbox = "none" under [action]',
        reasons=tuple(reasons.values()),
    )


@cache
def _why_not(level: Level, user: tuple[int, int] | None) -> str:
    """Why a level does not work here; empty if it works. Each process tries a level once."""
    if sys.platform != "linux":
        return "it needs Linux"
    if platform.machine() not in syscall_filter.MACHINES:
        return f"the machine is {platform.machine()}, known are {', '.join(syscall_filter.MACHINES)}"
    as_root = os.geteuid() == 0 and user is None
    if level == LANDLOCK:
        if (abi := confine.landlock_abi()) < confine.ABI_LEAST:
            return (
                f"found version {abi} of it in the kernel, expected {confine.ABI_LEAST} or later (Linux 6.12)"
            )
        if as_root:
            return "it can't hold a program of root: run the executor as another user, or give that user the folder"
    elif shutil.which("bwrap") is None:
        return "the program bwrap is not installed"
    elif as_root and not _can_make_cgroup():
        return "root has no limit of processes without a pids cgroup, and none can be made here"
    trial = _Job(("true",), "/usr", (), ("/usr",), {}, replace(Limits(), timeout_s=_TRIAL_S), user)
    try:
        found = _run(level, trial)
    except (OSError, subprocess.SubprocessError) as error:
        return f"a trial failed: {error}"
    return "" if found.ok else f"a trial failed: {found.error.strip()[:300]}"


# The program, and its end


def _run(level: Level, job: _Job) -> ToolResult:
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        if level == BUBBLEWRAP:
            process = stack.enter_context(_bubblewrap(job))
            end: Callable[[], None] = process.kill  # its processes die with it
        else:
            process = stack.enter_context(_confined(level, job))
            end = process.terminate  # it ends its processes, then itself
        reader = stack.enter_context(contextlib.closing(_Reader(process, job.limits.output_bytes_max)))
        try:
            in_time = reader.read(began + job.limits.timeout_s)
        finally:
            if process.poll() is None:
                end()
        if not in_time:
            reader.read(time.monotonic() + _GRACE_S)
    error = reader.text(1)
    code = process.returncode if in_time else None
    if not in_time:
        error = f"time-out: it did not end within {job.limits.timeout_s:g} s, so it was killed\n{error}"
    elif code:
        error = f"{_ending(code)}\n{error}"
    seconds = time.monotonic() - began
    return ToolResult(code == 0, reader.text(0), error, code, LEVELS[level], seconds, reader.is_cut)


def _ending(code: int) -> str:
    try:
        name = signal.Signals(code - 128).name
    except ValueError:
        return f"exit code {code}"
    limit = {"SIGXCPU": ", its CPU limit", "SIGXFSZ": ", its limit on a file's size"}.get(name, "")
    return f"exit code {code}: ended by {name}{limit}"


class _Reader:
    """Reads both streams of a process until it has ended, and keeps the beginning of each."""

    def __init__(self, process: subprocess.Popen[bytes], bytes_max: int) -> None:
        self._process, self._bytes_max = process, bytes_max
        self._kept = (bytearray(), bytearray())
        self._selector = selectors.DefaultSelector()
        self.is_cut = False
        for number, stream in enumerate((process.stdout, process.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, number)

    def read(self, deadline: float) -> bool:
        """Whether the process ended before ``deadline``, on the monotonic clock."""
        while self._selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in self._selector.select(left):
                chunk = os.read(key.fd, _CHUNK)
                room = self._bytes_max - len(self._kept[key.data])
                self._kept[key.data].extend(chunk[:room])
                self.is_cut |= len(chunk) > room
                if not chunk:
                    self._selector.unregister(key.fileobj)
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        self._selector.close()

    def text(self, number: int) -> str:
        return self._kept[number].decode("utf-8", "replace")


@contextlib.contextmanager
def _started(
    argv: Sequence[str], stdin: int, descriptors: Sequence[int]
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with nothing of ours but these descriptors; it is gone at the end."""
    process = subprocess.Popen(
        argv,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=descriptors,
        env={},
        cwd="/",
        start_new_session=True,
    )
    try:
        with process:
            try:
                yield process
            finally:
                try:
                    process.wait(_GRACE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
    finally:
        assert process.returncode is not None


# Landlock


@contextlib.contextmanager
def _confined(level: Level, job: _Job) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryDirectory(prefix="council-run-", ignore_cleanup_errors=True) as private:
        if job.user:
            os.chown(private, *job.user)
        places = [*_SYSTEM, *_ETC, *job.readable]
        paths: dict[str, str] = {path: "read" for path in places if os.path.exists(path)}
        paths |= {f"/dev/{name}": "device" for name in _DEVICES}
        paths |= dict.fromkeys((*job.writable, private), "write")
        env = {**_ENVIRONMENT, "HOME": private, "TMPDIR": private, **job.env}
        denied = (
            syscall_filter.filter_for(platform.machine(), sockets=False).hex() if level == LANDLOCK else None
        )
        orders: dict[str, Any] = {
            "argv": job.argv,
            "cwd": job.cwd,
            "env": env,
            "rlimits": job.limits.rlimits(),
            "user": job.user,
            "landlock": paths if level == LANDLOCK else None,
            "filter": denied,
        }
        command = (sys.executable, "-I", "-S", confine.__file__)
        with (
            _memory_file(json.dumps(orders).encode()) as stdin,
            _started(command, stdin, ()) as process,
        ):
            yield process


# bubblewrap


@contextlib.contextmanager
def _bubblewrap(job: _Job) -> Iterator[subprocess.Popen[bytes]]:
    """Starts it behind a gate, and opens the gate when the limits are set on its first process inside."""
    program = shutil.which("bwrap")
    assert program is not None, "the level was tried"
    with contextlib.ExitStack() as stack:
        options = stack.enter_context(_memory_file("\0".join(_options(job)).encode() + b"\0"))
        denied = syscall_filter.filter_for(platform.machine(), sockets=True)
        seccomp = stack.enter_context(_memory_file(denied))
        info_read, info_end = _pipe(stack)
        gate_end, gate_write = _pipe(stack)
        info, gate = info_end.fileno(), gate_end.fileno()
        numbers = ("--args", options, "--seccomp", seccomp, "--info-fd", info, "--block-fd", gate)
        argv = [program, *map(str, numbers), "--", *job.argv]
        if job.user:
            argv = [*_as_user(job.user), *argv]
        process = stack.enter_context(_started(argv, subprocess.DEVNULL, (options, seccomp, info, gate)))
        info_end.close()
        gate_end.close()
        try:
            told = info_read.read()
            if told:  # else it has failed, and says why
                child = int(json.loads(told)["child-pid"])
                if os.geteuid() == 0 and job.user is None:
                    stack.enter_context(_pids_cgroup(child, job.limits.processes_max))
                with contextlib.suppress(ProcessLookupError, BrokenPipeError):  # it has failed, and says why
                    _set_rlimits(child, job)
                    gate_write.write(b".")
        except BaseException:
            process.kill()
            raise
        yield process


def _options(job: _Job) -> list[str]:
    options = ["--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if os.geteuid() == 0:
        options += ["--uid", str(_NOBODY), "--gid", str(_NOBODY)]
    for path in _SYSTEM:
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            options += ["--ro-bind", path, path]
    for path in _ETC:
        options += ["--ro-bind-try", path, path]
    size = str(job.limits.memory_bytes_max)
    # A program of root could write settings of the kernel: bwrap does not cover all of /proc/sys.
    options += ["--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    options += ["--size", size, "--tmpfs", "/dev/shm", "--size", size, "--tmpfs", "/tmp"]
    for path in job.readable:
        options += ["--ro-bind", path, path]
    for path in job.writable:
        options += ["--bind", path, path]
    for name, value in {**_ENVIRONMENT, "HOME": "/tmp", "TMPDIR": "/tmp", **job.env}.items():
        options += ["--setenv", name, value]
    return [*options, "--remount-ro", "/", "--chdir", job.cwd]


def _set_rlimits(process: int, job: _Job) -> None:
    """Sets them inside the new user namespace, where RLIMIT_NPROC counts nothing but the sandbox (Linux 5.14)."""
    limits = job.limits.rlimits()
    if job.user is None:
        for name, value in limits.items():
            resource.prlimit(process, getattr(resource, f"RLIMIT_{name}"), (value, value))
        return
    # A root without CAP_SYS_RESOURCE, as in a container, may not; the user itself may.
    options = [f"--{name.lower()}={value}" for name, value in limits.items()]
    command = [*_as_user(job.user), "prlimit", "--pid", str(process), *options]
    found = subprocess.run(command, timeout=_GRACE_S, capture_output=True)
    if found.returncode and os.path.exists(f"/proc/{process}"):
        raise OSError(
            f"the limits of a process can't be set: {found.stderr.decode(errors='replace').strip()}"
        )


def _as_user(user: tuple[int, int]) -> list[str]:
    return ["setpriv", "--reuid", str(user[0]), "--regid", str(user[1]), "--clear-groups", "--"]


# A limit of processes for root, which RLIMIT_NPROC exempts


@contextlib.contextmanager
def _pids_cgroup(process: int, processes_max: int) -> Iterator[None]:
    folder = _new_cgroup()
    if folder is None:
        raise OSError("no pids cgroup could be made")
    try:
        (folder / "pids.max").write_text(str(processes_max))
        (folder / "cgroup.procs").write_text(str(process))
        yield
    finally:
        _remove_cgroup(folder)


def _new_cgroup() -> Path | None:
    """A new group below this process's own, or beside it; None if none with a limit can be made."""
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").split()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "pids" in controllers.split(","):
            base = Path("/sys/fs/cgroup/pids")
        elif not controllers:
            base = Path("/sys/fs/cgroup")
        else:
            continue
        own = base / path.lstrip("/")
        for place in dict.fromkeys((own, own.parent if own != base else own, base)):
            folder = place / f"council-{os.getpid()}-{next(_numbers)}"
            try:
                folder.mkdir()
            except OSError:
                continue
            if (folder / "pids.max").exists():
                return folder
            folder.rmdir()
    return None


def _remove_cgroup(folder: Path) -> None:
    """Removes a group when its processes, which are being killed, are gone."""
    deadline = time.monotonic() + _GRACE_S
    while True:
        try:
            return folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


@cache
def _can_make_cgroup() -> bool:
    folder = _new_cgroup()
    if folder is not None:
        folder.rmdir()
    return folder is not None


# Descriptors


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    number = os.memfd_create("council", os.MFD_CLOEXEC)
    try:
        os.write(number, content)
        os.lseek(number, 0, os.SEEK_SET)
        yield number
    finally:
        os.close(number)


def _pipe(stack: contextlib.ExitStack) -> tuple[FileIO, FileIO]:
    """The reading end and the writing end of a pipe, as files, which are closed only once."""
    reading, writing = os.pipe()
    return stack.enter_context(FileIO(reading, "r")), stack.enter_context(FileIO(writing, "w"))
