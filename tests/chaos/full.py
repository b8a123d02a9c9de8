"""A disk that is full for a while, under a council that writes: refused in words, nothing lost, and on it goes.

In turn a limit on the size of the process's files (EFBIG), and, where a file system may be mounted, a small one
that is really full (ENOSPC).
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.chaos.child import Child, Wanted, council, noted
from tests.chaos.ledger import Ledger, Round
from tests.chaos.load import config
from tests.chaos.sqlite import DECISIONS, PAUSE_S, finish
from tests.patience import HANG_S

SMALL = "48m"
FAULTS_PER_FILE = 5  # what they decide must fit, once there is room again
FAULT_S = 0.3
Fault = Callable[[Child, Path, random.Random], AbstractContextManager[None]]


def run(count: int, seed: int, folder: Path) -> Round:
    result = Round("full")
    with mounted(folder / "small") as small:
        while result.kills < count:
            some, turn = min(FAULTS_PER_FILE, count - result.kills), result.kills // FAULTS_PER_FILE
            if small and turn % 2 == 0:
                hurt(result, some, seed + turn, folder / "small" / "full.db", no_room, "store_full")
                for each in (folder / "small").iterdir():
                    each.unlink()
                result.notes["on a full file system"] += some
            else:
                hurt(result, some, seed + turn, folder / f"full-{turn}.db", limited, "store_full")
                result.notes["over a limit on files"] += some
    return result


def hurt(result: Round, count: int, seed: int, store: Path, fault: Fault, code: str) -> None:
    """``count`` faults of a kind; in each the clients hear ``code``, and are decided for again once it is over."""
    chance, ledger = random.Random(seed), Ledger()
    child = _begun(store, ledger)
    try:
        for number in range(count):
            child.decide(chance.randint(*DECISIONS))
            child.hear(chance.uniform(0, PAUSE_S))
            with fault(child, store, chance):
                heard = child.hear(HANG_S, noted("refused"))
                assert heard, "nobody was told that nothing can be kept"
                child.hear(chance.uniform(0, FAULT_S))
                if number % 3 == 2:
                    child.kill()  # what is refused now must be whole when it begins anew
            over_s = time.monotonic()
            if number % 3 == 2:
                child = _begun(store, ledger)
                result.notes["killed meanwhile"] += 1
            assert child.hear(HANG_S, _anew(set(ledger.final))), "it does not go on"
            result.back_s.append(time.monotonic() - over_s)
            result.kills += 1
    finally:
        child.kill()
    assert set(ledger.refused) <= {code}, f"expected {code} alone, found {dict(ledger.refused)}"
    finish(str(store), ledger, result)


def _anew(known: set[str]) -> Wanted:
    """A decision that was not told before."""
    return lambda what, *rest: what == "told" and rest[0] not in known


def _begun(store: Path, ledger: Ledger) -> Child:
    first, again = max(ledger.sent, default=-1) + 1, ledger.unanswered
    child = Child(lambda note: council(config(str(store)), note, itertools.count(first), again=again), ledger)
    assert child.hear(HANG_S, noted("open")), "it does not begin"
    return child


@contextmanager
def limited(child: Child, store: Path, chance: random.Random) -> Iterator[None]:
    """The process may write its files so far and no further; the write that crosses the line is cut."""
    log = os.stat(f"{store}-wal").st_size
    limit = chance.randrange(4096, max(log, 8192))
    resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        if os.path.exists(f"/proc/{child.pid}"):
            resource.prlimit(
                child.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )


@contextmanager
def no_room(child: Child, store: Path, chance: random.Random) -> Iterator[None]:
    """Somebody else's file takes all the room that is left."""
    ballast = store.with_name("ballast")
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def mounted(folder: Path) -> Iterator[bool]:
    """A small file system of our own in ``folder``; False where this user may not mount one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "chaos", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", str(folder)], check=True)
