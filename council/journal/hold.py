"""Prevents two coordinators from writing one journal by mistake.

Epochs alone protect the journal, whoever writes (rules 4.6). Without this lock, however, the second of two councils
of one name would silently end the first.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text

from council.journal.engines import Database, SQLite
from council.journal.faults import told
from council.protocol.errors import JournalHeld, StoreError, StoreUnreachable

# A server needs a moment to see that a connection was closed: whoever holds at all these glances lives. They are
# counted, not timed, for a machine that stood still meanwhile gave the server no time either.
GLANCES = 50
GLANCE_S = 0.02
# While it writes, each of them holds up what is to be told.
GLANCES_AGAIN = 5


@contextmanager
def held(database: Database, journal: str, *, takeover: bool) -> Iterator[Callable[[], bool]]:
    """Within it, this process is the one that writes ``journal``; the system lets go, however that ends.

    Gives what takes hold again where the database has let go, as a server does that was restarted, and says
    whether it could. Raises JournalHeld while another one lives, unless this is to take over: then the epoch
    shuts the other out.
    """
    if isinstance(database, SQLite):
        kept = _file(database.path, journal)
    else:  # who takes over has no need to wait: whoever still holds is ended
        kept = _session(database, journal, glances=0 if takeover else GLANCES)
    with kept as (had, by, again):
        if not had and not takeover:
            raise JournalHeld(
                f"a coordinator that lives{by} writes the journal {journal} in {database.where}: take that council "
                "down, give this one another name, or store = 'memory' for one that keeps nothing",
                journal=journal,
                where=database.where,
            )
        if not had:  # it may stand still in the midst of a batch
            database.oust(f"journal:{journal}")
        yield again


@contextmanager
def _file(path: Path, journal: str) -> Iterator[tuple[bool, str, Callable[[], bool]]]:
    """A lock on a file beside the database, which holds the process's number for whoever asks."""
    path = path.resolve()  # one lock, by whichever way one comes
    beside = path.with_name(f"{path.name}.{journal}.lock")
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreUnreachable(f"{beside} can't be made: {error.strerror}", where=str(path)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            by = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            yield False, f" (process {by})" if by.isdigit() else "", lambda: True
            return
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield True, "", lambda: True
    finally:
        os.close(descriptor)


@contextmanager
def _session(
    database: Database, journal: str, glances: int
) -> Iterator[tuple[bool, str, Callable[[], bool]]]:
    """A lock of the server's, for as long as a connection of its own lives."""

    def take(glances: int) -> bool:
        for _ in range(glances):
            if attempt():
                return True
            time.sleep(GLANCE_S)
        return attempt()

    def attempt() -> bool:
        with told(database.where, database.timeout_s):
            key = {"key": f"council:hold:{journal}"}
            lock = text("SELECT pg_try_advisory_lock(hashtextextended(:key, 0))")
            had = connection.execute(lock, key).scalar_one()
            connection.commit()
        return bool(had)

    def again() -> bool:
        for _ in range(2):  # the first may find that the connection is gone, and the next makes one
            try:
                return take(GLANCES_AGAIN)
            except StoreError:
                connection.rollback()
        return False

    with told(database.where, database.timeout_s):
        connection = database.connect()
    try:
        yield take(glances), "", again
    finally:
        connection.invalidate()  # not given back to the pool, where the lock would live on
        connection.close()
