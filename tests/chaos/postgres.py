"""SIGKILL of a PostgreSQL server, or of one of its processes, under a council that lives on and goes on by itself."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from council.api import inline
from council.config.settings import CouncilConfig
from council.protocol.errors import JournalHeld
from council.runtime import journals
from tests.chaos.ledger import JOURNAL, Ledger, Round
from tests.chaos.load import Load, config
from tests.chaos.sqlite import DECISIONS, PAUSE_S
from tests.patience import HANG_S
from tests.postgres import postgresql


class Server:
    """A PostgreSQL of our own that syncs its log, as installed; it can be killed and started again."""

    def __init__(self, running: Any) -> None:
        self._running = running
        self.address = str(running.get_uri()).replace(":@", "@")  # an empty password is one in our settings
        import psycopg

        with psycopg.connect(self.address) as connection:
            for name in ("fsync", "full_page_writes", "synchronous_commit"):
                found = connection.execute(f"SHOW {name}").fetchone()
                assert found == ("on",), f"this server runs with {name} = {found}"

    def processes(self) -> list[psutil.Process]:
        """The server's first process, then all the others."""
        first = psutil.Process(self._running.get_pid())
        return [first, *first.children(recursive=True)]

    def kill(self) -> None:
        """All of its processes at once, as when its host dies but for the disk."""
        processes = self.processes()
        for each in processes:
            try:
                os.kill(each.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        psutil.wait_procs(processes, HANG_S)

    def kill_one(self, chance: random.Random) -> None:
        """A process that serves somebody: the server then ends all the others, and recovers by itself."""
        serving = [each for each in self.processes()[1:] if "[local]" in " ".join(_words(each))]
        if serving:
            os.kill(chance.choice(serving).pid, signal.SIGKILL)

    def start(self) -> None:
        self._running.ensure_postgres_running()


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@contextmanager
def server() -> Iterator[Server]:
    with postgresql("chaos-pg-") as running:
        yield Server(running)


def run(count: int, seed: int, folder: Path) -> Round:
    result = Round("postgres")
    with server() as running:
        asyncio.run(_hurt(running, count, random.Random(seed), result))
    return result


async def _hurt(running: Server, count: int, chance: random.Random, result: Round) -> None:
    ledger, settings, told = Ledger(), config(running.address), asyncio.Event()

    def note(*what: Any) -> None:
        ledger.note(*what)
        told.set()

    coordinator = await inline.start(settings)
    load = Load(coordinator, settings, note)
    await load.open()
    working = asyncio.ensure_future(load.run(itertools.count()))
    for kill in range(count):
        enough = len(ledger.final) + chance.randint(*DECISIONS)
        while len(ledger.final) < enough:
            told.clear()
            await told.wait()
        await asyncio.sleep(chance.uniform(0, PAUSE_S))
        await asyncio.to_thread(_kill, running, kill, chance, result)
        up_s = time.monotonic()
        # Sent once the server is up again: its decision is no answer from before.
        await asyncio.wait_for(load.propose(10**9 + kill), HANG_S)
        result.back_s.append(time.monotonic() - up_s)
        result.kills += 1
    load.finish()
    await asyncio.wait_for(working, HANG_S)
    await load.ask_all(sorted(ledger.final))
    await asyncio.to_thread(_check_held, settings, coordinator.council_id)
    await coordinator.close()
    ledger.compare(running.address, JOURNAL, result)


def _check_held(settings: CouncilConfig, council_id: str) -> None:
    """The server forgot, each time, who writes the journal; a second council of the name is kept out all the same."""
    try:
        journals.open_journal(settings, council_id, journals.journal_key(settings.name))
    except JournalHeld:
        return
    raise AssertionError("a second council could begin on this journal, and so end the first")


def _kill(running: Server, kill: int, chance: random.Random, result: Round) -> None:
    if kill % 3 == 0:
        running.kill_one(chance)
        result.notes["one process killed"] += 1
        return
    running.kill()
    result.notes["whole server killed"] += 1
    running.start()
    if kill % 3 == 2:  # and again while the council finds its way back
        time.sleep(chance.uniform(0, 0.3))
        running.kill()
        result.notes["killed again on its return"] += 1
        running.start()
