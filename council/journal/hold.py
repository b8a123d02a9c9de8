"""Prevents two coordinators from writing one journal by mistake.

Epochs alone protect the journal from any writer (rules 4.6). But without this lock, the second of two councils of one
name would silently end the first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text

from council.config.files import lock
from council.journal.engines import Database, SQLite
from council.journal.faults import as_store_errors
from council.protocol.errors import JournalHeld, StoreError, StoreUnreachable

# A server needs a moment to notice that a connection was closed. If all these attempts fail, the holder is alive.
# They are counted, not timed, because a machine that was suspended meanwhile gave the server no time either.
ATTEMPTS = 50
PAUSE_S = 0.02
# Fewer attempts during operation, because each delays announcements.
ATTEMPTS_AGAIN = 5


@contextmanager
def held(database: Database, journal: str, *, takeover: bool) -> Iterator[Callable[[], bool]]:
    """A context in which this process holds ``journal`` for writing. The system releases it in any case.

    Gives a function that takes the lock again if the database has lost it, as after a restart of a server; it returns
    whether it could. Raises JournalHeld if another process holds the lock, unless ``takeover``: then the epoch shuts
    the other out.
    """
    if isinstance(database, SQLite):
        kept = _file(database.path, journal)
    else:  # a takeover need not wait: it ends any other holder
        kept = _session(database, journal, count=0 if takeover else ATTEMPTS)
    with kept as (had, by, again):
        if not had and not takeover:
            raise JournalHeld(
                f"the council {journal!r} runs already{by} and writes its journal in {database.where}: to use it, "
                f"call Council.connect(name={journal!r}); to end it, use council down; to run a second one, give it "
                "another name, or store = 'memory', which keeps no journal",
                journal=journal,
                where=database.where,
            )
        if not had:  # the other holder may be frozen inside a transaction
            database.oust(f"journal:{journal}")
        yield again


@contextmanager
def _file(path: Path, journal: str) -> Iterator[tuple[bool, str, Callable[[], bool]]]:
    """A lock on a file next to the database. The file holds the process's number, for messages."""
    path = path.resolve()  # one lock for every path to it
    beside = path.with_name(f"{path.name}.{journal}.lock")
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreUnreachable(f"{beside} can't be made: {error.strerror}", where=str(path)) from error
    try:
        try:
            locked = lock(descriptor)
        except OSError as error:  # some network file systems have no locks
            raise StoreUnreachable(f"{beside} can't be locked: {error.strerror}", where=str(path)) from error
        if not locked:
            by = _holder(descriptor)
            yield False, f" (process {by})" if by.isdigit() else "", lambda: True
            return
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield True, "", lambda: True
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    """The text that the process that has locked the file wrote into it."""
    try:
        return os.read(descriptor, 20).decode("ascii", "replace").strip()
    except OSError:  # Windows lets nobody else read what is locked
        return ""


@contextmanager
def _session(database: Database, journal: str, count: int) -> Iterator[tuple[bool, str, Callable[[], bool]]]:
    """A lock of the server, held while a connection of its own lives."""

    def attempts(count: int) -> bool:
        for _ in range(count):
            if attempt():
                return True
            time.sleep(PAUSE_S)
        return attempt()

    def attempt() -> bool:
        with as_store_errors(database.where, database.timeout_s):
            key = {"key": f"council:hold:{journal}"}
            lock = text("SELECT pg_try_advisory_lock(hashtextextended(:key, 0))")
            had = connection.execute(lock, key).scalar_one()
            connection.commit()
        return bool(had)

    def again() -> bool:
        for _ in range(2):  # the first attempt may find the connection closed, and the next makes a new one
            try:
                return attempts(ATTEMPTS_AGAIN)
            except StoreError:
                connection.rollback()
        return False

    with as_store_errors(database.where, database.timeout_s):
        connection = database.connect()
    try:
        yield attempts(count), "", again
    finally:
        connection.invalidate()  # not returned to the pool, where the lock would live on
        connection.close()
