"""Who writes a journal is alone, whichever way one comes to it; the system lets go, however that ends."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from council.journal.hold import held
from council.journal.store import PacketStore
from council.journal.writer import DurableJournal
from council.protocol.errors import JournalHeld, StoreLocked, StoreUnreachable
from tests.patience import HANG_S, until

from .conftest import end_sessions, on_both, raw

Open = Callable[..., PacketStore]
only_postgresql = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
KEY = bytes(range(32))


@on_both
def test_two_do_not_write_one_journal(address: str, opened: Open) -> None:
    """Mutation: without it the second of two councils of one name silently ends the first."""
    one, other = opened(address).database, opened(address).database
    with held(one, "council", takeover=False):
        with pytest.raises(
            JournalHeld, match=r"Council\.connect\(name=.*council down.*another name"
        ) as caught:
            held(other, "council", takeover=False).__enter__()
        assert (caught.value.facts["journal"], caught.value.facts["where"]) == ("council", other.where)
        with held(other, "another", takeover=False):
            pass
        with held(other, "council", takeover=True):  # the epoch shuts the other out
            pass
        with pytest.raises(JournalHeld):
            held(other, "council", takeover=False).__enter__()
    with held(other, "council", takeover=False):
        pass


def test_an_error_within_lets_go(address: str, opened: Open) -> None:
    database = opened(address).database
    with pytest.raises(ZeroDivisionError), held(database, "council", takeover=False):
        raise ZeroDivisionError
    with held(database, "council", takeover=False):
        pass


def hold_and_die(address: str, ready: str) -> None:
    held(PacketStore.open(address).database, "council", takeover=False).__enter__()
    Path(ready).touch()
    os.kill(os.getpid(), 9)


def test_a_process_that_is_killed_holds_nothing(address: str, opened: Open, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = multiprocessing.get_context("spawn").Process(target=hold_and_die, args=(address, str(ready)))
    process.start()
    process.join(HANG_S)
    assert process.exitcode == -9
    assert ready.exists()
    with held(opened(address).database, "council", takeover=False):
        pass


def test_whoever_holds_it_is_named_and_found_by_another_way(tmp_path: Path, opened: Open) -> None:
    """Mutation: a lock beside the link, where the file itself lies elsewhere."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    one = opened(str(real / "store.db"))
    link.mkdir()
    (link / "store.db").symlink_to(real / "store.db")
    with held(one.database, "council", takeover=False):
        with pytest.raises(JournalHeld, match=rf"\(process {os.getpid()}\)"):
            held(opened(str(link / "store.db")).database, "council", takeover=False).__enter__()
        assert oct((real / "store.db.council.lock").stat().st_mode & 0o777) == "0o600"


def test_where_no_lock_can_be_made_is_told(tmp_path: Path, opened: Open) -> None:
    database = opened(str(tmp_path / "store.db")).database
    (tmp_path / "store.db.council.lock").mkdir()
    with pytest.raises(StoreUnreachable, match=r"store.db.council.lock can't be made"):
        held(database, "council", takeover=False).__enter__()


def test_a_file_system_without_locks_is_told(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS without its lock daemon answers."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    database = opened(str(tmp_path / "store.db")).database
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(StoreUnreachable, match=r"store.db.council.lock can't be locked: No locks available"):
        held(database, "council", takeover=False).__enter__()


@only_postgresql
def test_a_server_that_let_go_is_told_to_hold_again(address: str, opened: Open) -> None:
    """Found by chaos: after a server's restart a second council of the name began, and ended the first."""
    one = opened(address).database
    with held(one, "council", takeover=False) as again:
        end_sessions(address)
        other = opened(address).database
        assert again()
        with pytest.raises(JournalHeld):
            held(other, "council", takeover=False).__enter__()
    with held(other, "council", takeover=False):
        pass


@only_postgresql
def test_one_that_somebody_else_holds_by_then_is_not_had_again(address: str, opened: Open) -> None:
    """Mutation: whoever lost it would go on as if it were alone."""
    one = opened(address).database
    with held(one, "council", takeover=False) as again:
        end_sessions(address)
        with held(opened(address).database, "council", takeover=False):
            assert not again()
        until(again)  # the server sees in its own time that the other one is gone


@only_postgresql
def test_a_server_that_sees_late_that_its_holder_is_gone_is_given_that_moment(
    address: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen in a run of all tests: a council that began just when another had ended was told that it lives.

    Mutation: that moment by the clock, which goes on while a machine stands still.
    """
    database = opened(address).database
    monotonic = time.monotonic
    with raw(address) as late, monkeypatch.context() as still:
        late.execute("SELECT pg_advisory_lock(hashtextextended('council:hold:council', 0))")
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            still.setattr(time, "monotonic", lambda: monotonic() + 10.0 * len(waits))
            if len(waits) == 3:
                late.execute("SELECT pg_advisory_unlock_all()")

        still.setattr(time, "sleep", wait)
        with held(database, "council", takeover=False):
            assert len(waits) == 3


@only_postgresql
def test_who_takes_over_does_not_wait_for_whom_it_ends(
    address: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: each new start of a coordinator, whose old one is frozen, takes that second longer."""
    database, other = opened(address).database, opened(address).database
    monkeypatch.setattr("council.journal.hold.time.sleep", pytest.fail)
    with held(database, "council", takeover=False), held(other, "council", takeover=True):
        pass


@only_postgresql
def test_who_writes_already_does_not_wait_long_to_hold_again(
    address: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: what is on disk is told a second later, where a server still has the session of before."""
    database = opened(address).database
    with held(database, "council", takeover=False) as again:
        end_sessions(address)
        waits: list[float] = []
        monkeypatch.setattr("council.journal.hold.time.sleep", waits.append)
        with raw(address) as other:
            other.execute("SELECT pg_advisory_lock(hashtextextended('council:hold:council', 0))")
            assert not again()
        assert 0 < sum(waits) <= 0.2


# A coordinator that froze in the midst of a batch keeps PostgreSQL's lock. Seen when a node was frozen: the server
# waits for the rest of the batch, which it does not take for idleness.


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
