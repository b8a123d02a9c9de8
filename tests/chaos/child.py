"""A council in a forked process of its own, which tells by a pipe what its clients were told.

What was written to the pipe outlives the process. Forked, not started: it has everything imported already.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from council.api import inline
from council.config.settings import CouncilConfig
from council.protocol.errors import StoreLocked
from council.runtime import journals
from tests.chaos.ledger import Ledger
from tests.chaos.load import Load, Note
from tests.patience import HANG_S

PR_SET_PDEATHSIG = 1
Wanted = Callable[..., bool]


def noted(*begin: Any) -> Wanted:
    """A note that begins so."""
    return lambda *note: note[: len(begin)] == begin


class Child:
    """A process that was forked off and lives until it is killed. ``ledger`` takes what it notes."""

    def __init__(self, work: Callable[[Note], None], ledger: Ledger) -> None:
        self.ledger = ledger
        self.began_s = time.monotonic()
        self._left = b""
        self._pipe, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _work(work, writing)
        os.close(writing)

    def decide(self, count: int) -> None:
        """Takes what it notes until so many more decisions are told."""
        enough = len(self.ledger.final) + count
        assert self.hear(HANG_S, lambda *_: len(self.ledger.final) >= enough), "it decides no more"

    def hear(self, seconds: float, until: Wanted = lambda *_: False) -> tuple[Any, ...] | None:
        """Takes what it notes, for so long or until a note that is wanted, which it gives."""
        ends_s = time.monotonic() + seconds
        found = None
        while found is None and (left_s := ends_s - time.monotonic()) > 0:
            if not select.select([self._pipe], [], [], left_s)[0]:
                continue
            data = os.read(self._pipe, 1 << 16)
            if not data:
                return None
            found = self._take(data, until)
        return found

    def _take(self, data: bytes, until: Wanted) -> tuple[Any, ...] | None:
        *lines, self._left = (self._left + data).split(b"\n")
        found = None
        for line in lines:
            note = tuple(json.loads(line))
            self.ledger.note(*note)
            if found is None and until(*note):
                found = note
        return found

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL; what it had noted before is taken."""
        self.signal(signal.SIGKILL)
        os.waitpid(self.pid, 0)
        while data := os.read(self._pipe, 1 << 16):
            self._take(data, lambda *_: False)
        os.close(self._pipe)


def _work(work: Callable[[Note], None], pipe: int) -> None:
    """Does ``work`` in this process, which ends with it, or with its parent."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        def note(*what: Any) -> None:
            os.write(pipe, json.dumps(what).encode() + b"\n")

        try:
            work(note)
            code = 0
        except BaseException:
            note("died", traceback.format_exc())
    finally:
        os._exit(code)


def council(
    config: CouncilConfig,
    note: Note,
    numbers: Iterable[int],
    *,
    again: Iterable[int] = (),
    ask: list[str] | None = None,
    takeover: bool = False,
) -> None:
    """Runs a council in process, with clients who propose ``again`` what was not decided, then ``numbers``.

    With ``ask`` it proposes nothing new, and asks for these decisions once more; notes ``asked`` when done.
    Notes ``locked`` where somebody else has the database.
    """

    async def live() -> None:
        if takeover:
            inline.open_journal = partial(journals.open_journal, takeover=True)
        try:
            coordinator = await inline.start(config)
        except StoreLocked:
            note("locked")
            return
        note("open")
        load = Load(coordinator, config, note)
        await load.open()
        if ask is None:
            await load.run(itertools.chain(again, numbers))
        else:
            await load.run(iter(again))
            await load.ask_all(ask)
            note("asked")
        await coordinator.close()

    asyncio.run(live())
