"""A coordinator that froze in the midst of a batch keeps PostgreSQL's lock; whoever takes over must not wait for it.

Seen when a node was frozen: the server waits for the rest of the batch, which it takes for no idleness.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from council.journal.store import PacketStore
from council.journal.writer import DurableJournal
from council.protocol.errors import StoreLocked
from tests.patience import until

Open = Callable[..., PacketStore]
only_postgresql = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
KEY = bytes(range(32))


@pytest.fixture
def frozen(address: str, opened: Open) -> psycopg.Connection:
    """A writer's session that has the lock, and has sent a part of what it will: it says nothing more."""
    opened(address)
    found = psycopg.connect(address)
    found.execute("SELECT pg_advisory_lock(hashtextextended('council:hold:council', 0))")
    found.commit()
    found.execute("SELECT pg_advisory_xact_lock(hashtextextended('council:journal:council', 0))")
    pipe = found.pgconn
    pipe.enter_pipeline_mode()
    pipe.send_query_params(b"SELECT 1", None)
    pipe.send_flush_request()
    pipe.flush()
    return found


@only_postgresql
def test_a_writer_that_froze_in_a_batch_is_ended(
    address: str, opened: Open, frozen: psycopg.Connection
) -> None:
    """Mutation: without ``oust`` the newcomer hears StoreLocked, however often it tries."""
    journal = DurableJournal.open(opened(address), "council", "council.1", KEY, takeover=True)
    assert journal.epoch == 1
    journal.close_now()
    gone(address, {frozen.info.backend_pid})


@only_postgresql
@pytest.mark.usefixtures("frozen")
def test_a_journal_that_can_not_be_had_keeps_no_connection(address: str, opened: Open) -> None:
    """Mutation: a coordinator that tries again and again takes all that the server has."""
    before = sessions(address)
    store = opened(address, timeout_s=0.3)
    store.database.oust = lambda name: None  # type: ignore[method-assign]
    with pytest.raises(StoreLocked):
        DurableJournal.open(store, "council", "council.1", KEY, takeover=True)
    gone(address, sessions(address) - before)


def gone(address: str, ended: set[int]) -> None:
    """That these are ended: a server sees a moment later that somebody has left."""
    until(lambda: not sessions(address) & ended, "some are still there")


def sessions(address: str) -> set[int]:
    """The processes that serve somebody at this database, but for who asks."""
    statement = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(address) as looking:
        return {pid for (pid,) in looking.execute(statement)}
