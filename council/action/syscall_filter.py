"""The system calls that no sandboxed program may make, as a seccomp filter (classic BPF).

The filter closes what file and network isolation leave open: new user namespaces, other processes' memory, keys, and
io_uring. Landlock has no network namespace, so there the filter denies every socket and System V IPC as well.
"""

from __future__ import annotations

import errno
import struct

# By machine: the kernel's number for the calling convention, the numbers of calls.
_DENIED = (
    "unshare setns ptrace process_vm_readv process_vm_writev keyctl add_key request_key io_uring_setup bpf "
    "perf_event_open userfaultfd mount umount2 pivot_root move_mount open_tree fsopen mount_setattr"
).split()
_SOCKETS = "socket shmget semget msgget mq_open".split()
_OWN_ONLY = "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr".split()
_X86 = (272, 308, 101, 310, 311, 250, 248, 249, 425, 321, 298, 323, 165, 166, 155, 429, 428, 430, 442)
_ARM = (97, 268, 117, 270, 271, 219, 217, 218, 425, 280, 241, 282, 40, 39, 41, 429, 428, 430, 442)
_MACHINES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        dict(zip(_DENIED, _X86, strict=True))
        | dict(zip(_SOCKETS, (41, 29, 64, 68, 240), strict=True))
        | dict(zip(_OWN_ONLY, (302, 203, 144, 142, 314), strict=True))
        | {"clone": 56, "clone3": 435},
    ),
    "aarch64": (
        0xC00000B7,
        dict(zip(_DENIED, _ARM, strict=True))
        | dict(zip(_SOCKETS, (198, 194, 190, 186, 180), strict=True))
        | dict(zip(_OWN_ONLY, (261, 122, 119, 118, 274), strict=True))
        | {"clone": 220, "clone3": 435},
    ),
}
MACHINES = tuple(_MACHINES)
_LOAD, _EQUAL, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST = 0, 4, 16  # offsets in struct seccomp_data; the low half of the first argument
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000  # calls of the x32 convention, which have other numbers
_NEW_USER = 0x10000000  # CLONE_NEWUSER


def filter_for(machine: str, *, sockets: bool) -> bytes:
    """The filter as the kernel reads it, an array of struct sock_filter.

    ``machine`` is one of MACHINES, as platform.machine() says. Without ``sockets`` no socket can be made (a pair of
    connected ones can), and no System V IPC; scheduling and limits of other processes can't be changed.
    """
    arch, numbers = _MACHINES[machine]
    refused, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    steps = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    steps += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, unknown)]
    # The flags of clone3 are in memory, which a filter can't read. Without clone3, libraries use clone.
    steps += [(_EQUAL, 0, 1, numbers["clone3"]), (_RETURN, 0, 0, unknown)]
    for name in _DENIED if sockets else _DENIED + _SOCKETS:
        steps += [(_EQUAL, 0, 1, numbers[name]), (_RETURN, 0, 0, refused)]
    if not sockets:
        for name in _OWN_ONLY:  # the first argument is a process; 0 is the caller
            steps += [(_EQUAL, 0, 4, numbers[name]), (_LOAD, 0, 0, _FIRST), (_EQUAL, 1, 0, 0)]
            steps += [(_RETURN, 0, 0, refused), (_RETURN, 0, 0, _ALLOW)]
    steps += [(_EQUAL, 0, 3, numbers["clone"]), (_LOAD, 0, 0, _FIRST)]
    steps += [(_HAS_BITS, 0, 1, _NEW_USER), (_RETURN, 0, 0, refused), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", code, yes, no, value) for code, yes, no, value in steps)
