"""A store that is locked, full, read-only, damaged, somebody else's or newer: told plainly, nothing half-written."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from council.journal import engines
from council.journal.chain import Head
from council.journal.schema import REVISIONS
from council.journal.store import PacketStore
from council.protocol.errors import (
    CallerError,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreLocked,
    StoreNewer,
    StoreOutdated,
    StoreReadOnly,
    StoreUnreachable,
)
from tests.patience import HANG_S

from .conftest import end_sessions, on_both, raw
from .packets import NOW, append, given, several

Open = Callable[..., PacketStore]
ROOT = Path(__file__).parents[2]
only_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
only_postgresql = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)


@contextmanager
def on_connect(statement: str) -> Iterator[None]:
    """Every new connection is told this first, as a limit of the machine's would be there first."""

    def say(connection: Any, record: object) -> None:
        connection.execute(statement).close()

    event.listen(Pool, "connect", say)
    try:
        yield
    finally:
        event.remove(Pool, "connect", say)


@contextmanager
def held(address: str) -> Iterator[None]:
    """Somebody else is in the middle of a write."""
    other = raw(address)
    if isinstance(other, sqlite3.Connection):
        other.execute("BEGIN IMMEDIATE")
    else:
        other.autocommit = False
        other.execute("LOCK TABLE packet_store, epochs")
    try:
        yield
    finally:
        other.rollback()
        other.close()


def waits_ms(engine: str, store: PacketStore) -> int:
    """For how long the driver of a database waits for a lock."""
    asked = "PRAGMA busy_timeout" if engine == "sqlite" else "SHOW lock_timeout"
    with store.database.write("journal:council") as connection:
        return int(str(connection.exec_driver_sql(asked).scalar_one()).removesuffix("ms"))


def test_a_locked_store_says_so_in_time_and_goes_on(engine: str, address: str, opened: Open) -> None:
    store = opened(address, timeout_s=0.3)
    epoch, head = store.begin_epoch("council", "me")
    with held(address):
        for call in (
            lambda: append(store, "council", epoch, several(1, 2), head),
            lambda: store.write([given(9)], NOW),
            lambda: store.begin_epoch("council", "me"),
        ):
            with pytest.raises(StoreLocked, match="try again") as caught:
                call()
            assert caught.value.timeout_s == 0.3
    assert waits_ms(engine, store) == 300
    append(store, "council", epoch, several(1, 2), head)
    assert store.info().packets == 2


@only_sqlite
def test_a_full_database_keeps_nothing_of_the_call(address: str, opened: Open) -> None:
    opened(address).close()
    with on_connect("PRAGMA max_page_count = 60"):
        store = opened(address)
        check_full(store)


@only_postgresql
def test_a_full_server_keeps_nothing_of_the_call(address: str, opened: Open) -> None:
    """The server's own error, raised by the server, at the row that finds no room."""
    store = opened(address)
    connection = raw(address)
    connection.execute(
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF (SELECT count(*) FROM packet_store) > 30 THEN "
        "RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END IF; RETURN NEW; END $$"
    )
    connection.execute(
        "CREATE TRIGGER room BEFORE INSERT ON packet_store FOR EACH ROW EXECUTE FUNCTION no_room()"
    )
    connection.close()
    check_full(store)


def check_full(store: PacketStore) -> None:
    epoch, head = store.begin_epoch("council", "me")
    full: StoreFull | None = None
    while full is None:
        try:
            head = append(store, "council", epoch, several(head.position + 1, 10), head)
        except StoreFull as error:
            full = error
    assert "room" in str(full)
    assert full.where == store.where
    assert len(store.records("council", limit=10_000)) == head.position > 0
    with pytest.raises(StoreFull):
        store.write([given(n, payload={"text": "x" * 20_000}) for n in range(10**6, 10**6 + 20)], NOW)
    assert store.info().packets == head.position
    with pytest.raises(StoreFull):  # and the writer is not left in the middle of something
        append(store, "council", epoch, several(head.position + 1, 300), head)


LIMITED = """
import resource, sys
from council.journal.store import PacketStore
from council.protocol.errors import StoreFull
from tests.journal.packets import append, several
store = PacketStore.open(sys.argv[1])
epoch, head = store.begin_epoch("council", "me")
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
try:
    while True:
        head = append(store, "council", epoch, several(head.position + 1, 20), head)
except StoreFull as error:
    print(head.position, error)
"""


@only_sqlite
def test_a_disk_that_refuses_a_write_keeps_nothing_of_the_call(address: str, opened: Open) -> None:
    """The kernel's refusal, as of a quota; and what was acknowledged before is there afterwards."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, address],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=ROOT,
        check=True,
    )
    position, _, said = done.stdout.splitlines()[-1].partition(" ")
    assert "quota" in said
    assert len(opened(address).records("council", limit=10_000)) == int(position) > 0


def test_what_is_opened_to_be_read_is_not_written(address: str, opened: Open) -> None:
    with opened(address) as store:
        store.write([given(1)], NOW)
    reader = opened(address, read_only=True)
    assert reader.get(UUID(int=1), NOW) is not None
    assert reader.info().packets == 1
    for call in (
        lambda: reader.write([given(2)], NOW),
        lambda: reader.begin_epoch("council", "me"),
        lambda: append(reader, "council", 1, several(1, 1), Head()),
        lambda: reader.collect_garbage(NOW),
    ):
        with pytest.raises(StoreReadOnly):
            call()


@on_both
def test_a_store_that_may_only_be_read_says_so(address: str, opened: Open, engine: str) -> None:
    """The database itself refuses, as it does for one without the rights."""
    opened(address).close()
    if engine == "sqlite":
        with on_connect("PRAGMA query_only = ON"), pytest.raises(StoreReadOnly, match="correct the rights"):
            opened(address).write([given(1)], NOW)
    else:
        connection = raw(address)
        connection.execute("CREATE ROLE onlooker LOGIN")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO onlooker")
        connection.close()
        address = address.replace("postgres:@", "onlooker@")
        with pytest.raises(StoreReadOnly, match="correct the rights"):
            opened(address).write([given(1)], NOW)
    assert opened(address, read_only=True).info().packets == 0


READS_AS_NOBODY = """
import os, sys
from council.journal.store import PacketStore
from council.protocol.errors import StoreError
os.setgid(65534); os.setuid(65534)
try:
    with PacketStore.open(sys.argv[1], read_only=True) as store:
        print(store.info().packets, flush=True)
        sys.stdin.readline()
        print(store.info().packets)
except StoreError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def for_all() -> Iterator[Path]:
    """A folder that all may read. pytest's own may be closed again meanwhile, by another that begins."""
    folder = Path(tempfile.mkdtemp(prefix="council-faults-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def reads_as_nobody(address: str) -> subprocess.Popen[str]:
    """Opens the store of which all may read the folder, and only root write it; reads twice."""
    folder = Path(address).parent
    folder.chmod(0o755)
    for each in folder.iterdir():
        each.chmod(0o644)
    return subprocess.Popen(
        [sys.executable, "-c", READS_AS_NOBODY, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
def test_a_store_in_a_folder_that_may_not_be_written_is_read(for_all: Path, opened: Open) -> None:
    """And refused once somebody writes there, of whom a reader that looks at no log would see half."""
    address = str(for_all / "store.db")
    with opened(address) as store:
        store.write([given(1)], NOW)
        assert store.info().packets == 1
    assert not Path(f"{address}-wal").exists(), "the file stands alone once it is closed"
    with reads_as_nobody(address) as reader:
        assert reader.communicate("\n", timeout=HANG_S)[0].splitlines() == ["1", "1"]
    with reads_as_nobody(address) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "1\n"
        opened(address).write([given(2)], NOW)
        said = reader.communicate("\n", timeout=HANG_S)[0]
        assert "a writer opened it" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
def test_a_log_that_can_not_be_read_without_writing_is_told(
    for_all: Path, opened: Open, tmp_path: Path
) -> None:
    """It holds packets that the file does not: what reads the file alone would say that they are not there."""
    address = str(tmp_path / "store.db")
    opened(address).write([given(1)], NOW)
    for suffix in ("", "-wal"):
        shutil.copy(f"{address}{suffix}", for_all / f"store.db{suffix}")
    with reads_as_nobody(str(for_all / "store.db")) as reader:
        said = reader.communicate("\n", timeout=HANG_S)[0]
    assert "copy it to where you have them" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
def test_a_file_without_rights_is_unreachable_or_read_only(for_all: Path, opened: Open) -> None:
    address = str(for_all / "store.db")
    opened(address).close()
    os.chmod(address, 0o444)
    code = (
        "import os, sys; from council.journal.store import PacketStore; from council.protocol import errors;"
        "os.setgid(65534); os.setuid(65534)\n"
        "try: PacketStore.open(sys.argv[1]).begin_epoch('council', 'me')\n"
        "except errors.StoreError as error: print(type(error).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, address],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=ROOT,
        check=False,
    )
    assert done.stdout.split()[-1:] in (["StoreReadOnly"], ["StoreUnreachable"]), done.stderr


# What is no store of ours


@only_sqlite
@pytest.mark.parametrize(
    "content", [b"root:x:0:0:root:/root:/bin/bash\n" * 40, b"\x00" * 8192, b"SQLite format 3\0"]
)
def test_a_file_that_is_no_database_is_left_as_it_is(address: str, opened: Open, content: bytes) -> None:
    Path(address).write_bytes(content)
    for read_only in (True, False):
        with pytest.raises((StoreForeign, StoreCorrupt)):
            opened(address, read_only=read_only)
    assert Path(address).read_bytes() == content


@only_sqlite
@pytest.mark.parametrize(
    "statements",
    [["CREATE TABLE notes (x)"], ["CREATE TABLE packet_store (x)"], ["PRAGMA application_id = 252006673"]],
)
def test_another_programs_database_is_left_as_it_is(
    address: str, opened: Open, statements: list[str]
) -> None:
    with sqlite3.connect(address) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    before = Path(address).read_bytes()
    for read_only in (True, False):
        with pytest.raises(StoreForeign, match="name another"):
            opened(address, read_only=read_only)
    assert Path(address).read_bytes() == before
    assert not Path(f"{address}-wal").exists()


@only_postgresql
def test_a_database_with_a_table_of_that_name_is_foreign(address: str, opened: Open) -> None:
    connection = raw(address)
    connection.execute("CREATE TABLE other_tables_are_fine (x int)")
    connection.execute("CREATE TABLE epochs (x int)")
    with pytest.raises(StoreForeign, match="epochs"):
        opened(address)
    connection.execute("DROP TABLE epochs")
    connection.close()
    assert opened(address).info().packets == 0


def test_a_newer_store_is_refused_and_left_as_it_is(address: str, opened: Open) -> None:
    opened(address).close()
    connection = raw(address)
    connection.execute("UPDATE council_version SET version_num = '9999'")
    for options in ({}, {"read_only": True}, {"migrate": False}):
        with pytest.raises(StoreNewer, match="install the newer version") as caught:
            opened(address, **options)
        assert (caught.value.found, caught.value.known) == ("9999", REVISIONS[-1])
    assert connection.execute("SELECT version_num FROM council_version").fetchall() == [("9999",)]
    connection.close()


@pytest.mark.parametrize("statement", ["DELETE FROM council_version", "DROP TABLE packet_store CASCADE"])
def test_a_store_that_lost_a_part_is_corrupt(address: str, opened: Open, statement: str, engine: str) -> None:
    opened(address).close()
    connection = raw(address)
    connection.execute(statement.removesuffix(" CASCADE") if engine == "sqlite" else statement)
    connection.close()
    with pytest.raises(StoreCorrupt, match="go back to a copy"):
        opened(address)


@only_sqlite
def test_a_damaged_file_is_told(address: str, opened: Open) -> None:
    """Pages overwritten at many places: each is found when it is met, and never an answer."""
    with opened(address) as store:
        store.write([given(n, payload={"text": f"{n}" * 300}) for n in range(1, 301)], NOW)
    whole = Path(address).read_bytes()
    told = []
    chance = random.Random(3)  # no bytes that nobody sees again: some might say something else
    for page in range(1, len(whole) // 4096, 7):
        copy = Path(address).with_name(f"damaged{page}.db")
        copy.write_bytes(whole[: page * 4096] + chance.randbytes(4096) + whole[(page + 1) * 4096 :])
        try:
            with opened(str(copy)) as store:
                found = [store.get(UUID(int=n), NOW) for n in range(1, 301)]
            for number, each in enumerate(found, 1):
                assert each is None or each.payload["text"] == f"{number}" * 300
        except StoreError as error:
            told.append(type(error))
    assert set(told) == {StoreCorrupt}


@only_sqlite
def test_a_store_that_is_not_there(address: str, opened: Open, tmp_path: Path) -> None:
    for options in ({"read_only": True}, {"migrate": False}):
        with pytest.raises(StoreUnreachable, match="nothing is recorded yet at"):
            opened(address, **options)
    assert not Path(address).exists()
    with pytest.raises(StoreUnreachable, match="folder"):
        opened(str(tmp_path / "nowhere" / "store.db"))


@only_postgresql
def test_a_server_that_is_not_there(address: str, opened: Open, tmp_path: Path) -> None:
    for wrong in (
        "postgresql://nobody@127.0.0.1:1/x",
        f"postgresql://postgres@/x?host={tmp_path}",
        address.replace("/store", "/nostore"),
    ):
        with pytest.raises(StoreUnreachable):
            opened(wrong, timeout_s=1.0)


@only_postgresql
def test_a_connection_that_is_lost_is_told_and_made_anew(address: str, opened: Open) -> None:
    store = opened(address)
    epoch, head = store.begin_epoch("council", "me")
    end_sessions(address)
    with pytest.raises(StoreUnreachable):
        append(store, "council", epoch, several(1, 2), head)
    assert append(store, "council", epoch, several(1, 2), head).position == 2


def test_an_empty_store_waits_for_its_migration(address: str, opened: Open, engine: str) -> None:
    if engine == "sqlite":
        Path(address).touch()
    for options in ({"read_only": True}, {"migrate": False}):
        with pytest.raises(StoreOutdated, match="council store migrate"):
            opened(address, **options)


def test_a_migration_that_fails_leaves_nothing(
    address: str, opened: Open, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade = engines._upgrade

    def fails(connection: Any) -> None:
        upgrade(connection)
        raise KeyboardInterrupt

    monkeypatch.setattr(engines, "_upgrade", fails)
    with pytest.raises(KeyboardInterrupt):
        opened(address)
    connection = raw(address)
    tables = "SELECT name FROM sqlite_master" if engine == "sqlite" else "SELECT tablename FROM pg_tables"
    assert not {"packet_store", "epochs", "council_version"} & {row[0] for row in connection.execute(tables)}
    connection.close()
    monkeypatch.undo()
    assert opened(address).revision_found is None


def test_many_open_a_new_store_at_once(address: str, opened: Open) -> None:
    code = "import sys; from council.journal.store import PacketStore; PacketStore.open(sys.argv[1], timeout_s=300.0)"
    started = [
        subprocess.Popen([sys.executable, "-c", code, address], cwd=ROOT, stdout=subprocess.DEVNULL)
        for _ in range(3)
    ]
    assert [each.wait(HANG_S) for each in started] == [0] * 3
    assert opened(address, migrate=False).revision_found == REVISIONS[-1]


@only_postgresql
def test_tables_that_another_process_made_are_seen_in_an_open_transaction(address: str, opened: Open) -> None:
    database = engines.open_database(address, create=True, read_only=False, timeout_s=HANG_S)
    with database.write("other") as connection:
        assert database._tables(connection) == set()
        opened(address)
        assert database._tables(connection) == {engines.VERSION_TABLE, *engines.TABLES}
    database.close()


def test_an_address_that_names_no_store_is_refused(opened: Open) -> None:
    for address in (
        *("", "/tmp/a\0b", "/tmp/\udcff", "~no-such-user/x.db", "sqlite:///a\0b", "sqlite://", "://"),
        *("sqlite:///:memory:", "sqlite:////tmp/x?mode=memory", "mysql://user:secret@host/x"),
        *("postgresql+asyncpg://host/x", "postgresql://host:port/secret", "postgresql://h/x?password=secret"),
    ):
        with pytest.raises(CallerError, match="names no store") as caught:
            opened(address)
        assert "secret" not in str(caught.value)


@only_postgresql
def test_a_password_is_never_shown(address: str, opened: Open) -> None:
    store = opened(address.replace("postgres:@", "postgres:secret@"))
    assert "secret" not in store.where
    with pytest.raises(StoreUnreachable) as caught:
        opened("postgresql://me:secret@127.0.0.1:1/x", timeout_s=1.0)
    assert "secret" not in str(caught.value)


@only_sqlite
def test_the_file_is_its_owners_alone(address: str, opened: Open) -> None:
    store = opened(address)
    store.write([given(1)], NOW)
    modes = {
        stat.S_IMODE(each.stat().st_mode) for each in Path(address).parent.glob(f"{Path(address).name}*")
    }
    assert modes == {0o600}
    copy = shutil.copy(address, f"{address}.copy")  # nothing but the path is odd here
    odd = str(Path(copy).rename(Path(address).with_name("a?b#c%20d.db")))
    assert opened(odd).where == odd
