"""A database that another process holds for longer than the council waits: refused in words, nothing lost."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.child import Child
from tests.chaos.full import hurt
from tests.chaos.ledger import Round

_HOLDER = (
    "import sqlite3, sys; held = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60); "
    "held.execute('BEGIN IMMEDIATE'); print('held', flush=True); sys.stdin.read()"
)


def run(count: int, seed: int, folder: Path) -> Round:
    result = Round("locked")
    hurt(result, count, seed, folder / "locked.db", held, "store_locked")
    return result


@contextmanager
def held(child: Child, store: Path, chance: random.Random) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield  # leaving closes the pipe, and so ends the holder and its transaction
