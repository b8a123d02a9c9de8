"""Runs a program under Landlock, a filter of system calls, and rlimits. A script of its own: it imports no council.

``python -I -S confine.py`` reads its orders from standard input as JSON: argv, cwd, env, rlimits ([number, value]),
processes_max, user ([uid, gid] or null), landlock ({path: "read" | "write" | "device"} or null), filter (hex or null).
It stays as the parent of all that the program starts, and ends all of it: when the program ends, at SIGTERM, and when
the executor dies. Its exit code is the program's, or 128 + the signal that ended it; 125 if nothing was run.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import struct
import sys
import time
from typing import Any

NOT_RUN = 125
ABI_LEAST = 6  # the first that keeps signals and abstract sockets in: Linux 6.12
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls of Landlock, the same on every machine
_PR_SET_PDEATHSIG, _PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 1, 36, 38, 22
_ALL_FILES = (1 << 16) - 1  # every right on files up to ABI 6
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_MAKE_DEVICES = (1 << 6) | (1 << 11)
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | (1 << 14) | (1 << 15)  # those that a plain file has
_RIGHTS = {
    "read": _EXECUTE | _READ_FILE | _READ_DIR,
    "write": _ALL_FILES & ~_MAKE_DEVICES & ~(1 << 15),
    "device": _READ_FILE | _WRITE_FILE,
}
_NETWORK = 0b11  # TCP bind and connect
_SCOPES = 0b11  # abstract Unix sockets and signals
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def landlock_abi() -> int:
    """The version of this kernel's Landlock; 0 without it."""
    return max(0, int(_libc.syscall(ctypes.c_long(_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint32(1))))


def _checked(found: int, what: str) -> int:
    if found < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return found


def _prctl(option: int, first: int, second: Any = 0) -> None:
    arguments = ctypes.c_ulong(first), second or ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)
    _checked(_libc.prctl(option, *arguments), f"prctl {option}")


def _call(number: int, *arguments: Any) -> int:
    return _checked(int(_libc.syscall(ctypes.c_long(number), *arguments)), f"system call {number}")


def _ruleset(paths: dict[str, str]) -> int:
    """The descriptor of a ruleset that allows these paths and nothing else."""
    handled = struct.pack("=QQQ", _ALL_FILES, _NETWORK, _SCOPES)
    rules = _call(_CREATE, handled, ctypes.c_size_t(len(handled)), ctypes.c_uint32(0))
    for path, kind in paths.items():
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights = _RIGHTS[kind] & (_ALL_FILES if os.path.isdir(path) else _FILE_RIGHTS)
        rule = struct.pack("=Qi", rights, place)
        _call(_ADD, ctypes.c_int(rules), ctypes.c_int(1), rule, ctypes.c_uint32(0))
        os.close(place)
    return rules


def _tasks_of(uid: int) -> int:
    """How many tasks this user has, which RLIMIT_NPROC counts too."""
    found = 0
    for each in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{each}/status", encoding="utf-8", errors="replace") as status:
                lines = dict(line.split(":", 1) for line in status if line.startswith(("Uid:", "Threads:")))
        except OSError:
            continue  # it has ended
        if int(lines["Uid"].split()[0]) == uid:
            found += int(lines["Threads"])
    return found


def _become(orders: dict[str, Any]) -> None:
    """Turns this new process into the program; returns only by an OSError."""
    os.chdir(orders["cwd"])
    rules = None if orders["landlock"] is None else _ruleset(orders["landlock"])
    uid = orders["user"][0] if orders["user"] else os.getuid()
    limits = [*orders["rlimits"], [resource.RLIMIT_NPROC, _tasks_of(uid) + orders["processes_max"]]]
    if orders["user"]:
        os.setgroups([])
        os.setresgid(*[orders["user"][1]] * 3)
        os.setresuid(*[uid] * 3)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    for number, value in limits:
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))
    if rules is not None:
        _call(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))
        os.close(rules)
    if orders["filter"] is not None:
        steps = bytes.fromhex(orders["filter"])
        held = ctypes.create_string_buffer(steps)
        program = struct.pack("@HP", len(steps) // 8, ctypes.addressof(held))
        _prctl(_PR_SET_SECCOMP, 2, ctypes.c_char_p(program))
    os.execvpe(orders["argv"][0], orders["argv"], orders["env"])


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as found:
        return [int(each) for each in found.read().split()]


def _end_all() -> None:
    """Ends every child. As the subreaper this process inherits theirs, so that none is left at last."""
    while children := _children():
        for each in children:
            try:
                resource.prlimit(each, resource.RLIMIT_NPROC, (0, 0))  # so that it can't outrun this loop
                os.kill(each, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # it has ended; without a sandbox it may be another user's now
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def main() -> int:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(_PR_SET_SUBREAPER, 1)
    orders = json.load(sys.stdin.buffer)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            _become(orders)
        except OSError as error:
            print(f"not run: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(NOT_RUN)
    status = None
    while status is None and signal.sigwait({signal.SIGTERM, signal.SIGCHLD}) == signal.SIGCHLD:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    status = ended[1]
                    break
        except ChildProcessError:
            break
    _end_all()
    code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
