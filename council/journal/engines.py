"""The two databases of a store, SQLite and PostgreSQL: opening, locking, migrating.

SQLite has one connection that writes and makes checkpoints, and others that only read. PostgreSQL has a pool. In
both, ``write`` is one transaction that is on disk when it ends, and ``read`` sees one point in time.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, TextClause, create_engine, event, text
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.pool import QueuePool

from council.config.files import sync_folder
from council.journal.address import place, without_password
from council.journal.faults import as_store_errors
from council.journal.schema import APPLICATION_ID, REVISIONS, VERSION_TABLE
from council.protocol.errors import (
    CallerError,
    OperatorError,
    StoreCorrupt,
    StoreForeign,
    StoreLocked,
    StoreNewer,
    StoreOutdated,
    StoreReadOnly,
    StoreUnreachable,
)
from council.protocol.extras import require

TABLES = frozenset({"packet_store", "epochs"})
# STRICT tables exist since 3.37, JSON functions in every build since 3.38.
SQLITE_LEAST = (3, 38, 0)
# https://sqlite.org/wal.html: a checkpoint during another connection's write may damage the file.
SQLITE_WAL_SOUND = (3, 51, 3)
WAL_BYTES_KEPT = 64 * 2**20  # the size to which the log's file is cut after a checkpoint
READERS = 4
WRITERS = 4  # connections to a server, beside the one that holds a journal (``hold``)
# A record has about 1.3 kB. SQLite's default page of 4 kB holds two, and wastes a third.
PAGE_BYTES = 8192
CACHE_KB = 2 * 2**10  # of each connection, as SQLite's default; the operating system has the rest in memory
# How many seconds a writer that has stopped inside a transaction (SIGSTOP, a lost host) may keep others out.
IDLE_S_MAX = 10


class Facts(NamedTuple):
    """Facts about a database: its version, its bytes on disk, and problems of its settings."""

    version: str
    bytes_on_disk: int
    warnings: tuple[str, ...]


class Database(ABC):
    """One open database. ``where`` names it in messages, without a password."""

    kind: str
    clock: TextClause  # the database's own clock, in SQL, to compare a ttl as its triggers do
    _reader: Engine
    _writer: Engine

    def __init__(self, where: str, *, read_only: bool, timeout_s: float) -> None:
        self.where = where
        self.read_only = read_only
        self.timeout_s = timeout_s
        self._closed = False

    @contextmanager
    def write(self, *locks: str) -> Iterator[Connection]:
        """One transaction, alone among those that name one of ``locks``. Everything in it is kept, or nothing.

        Raises StoreError; IntegrityError if a constraint or trigger refuses.
        """
        if self.read_only:
            raise StoreReadOnly(
                f"the store {self.where} was opened to be read: open it without read_only", where=self.where
            )
        self._check_open()
        with as_store_errors(self.where, self.timeout_s), self._writer.begin() as connection:
            for lock in sorted(locks):  # in one order, so that no two wait for each other
                self._lock(connection, lock)
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One point in time, however long the reading takes. Raises StoreError."""
        self._check_open()
        with as_store_errors(self.where, self.timeout_s), self._reader.begin() as connection:
            yield connection

    def connect(self) -> Connection:
        """A separate connection, which the caller closes."""
        return self._writer.connect()

    def close(self) -> None:
        """Closes every connection for good."""
        self._closed = True
        self._reader.dispose()
        self._writer.dispose()  # last: it can write SQLite's log back into the file

    def _check_open(self) -> None:
        if self._closed:  # a pool would silently connect again, and nobody would close that
            raise CallerError(f"the store {self.where} was closed: open it again")

    def prepare(self, *, migrate: bool) -> tuple[str | None, str]:
        """Makes sure that the tables fit this code. Returns the revision that was found, and the current one.

        Raises StoreForeign, StoreNewer, StoreCorrupt, and StoreOutdated if migration is needed but not allowed.
        """
        newest = REVISIONS[-1]
        first = self._reader if self.read_only else self._writer  # it marks the file as ours
        with as_store_errors(self.where, self.timeout_s), first.begin() as connection:
            found = self._revision(connection)
        if found == newest:
            return found, newest
        if self.read_only or not migrate:
            has = (
                "holds no journal yet: run council up, or council store migrate to prepare it"
                if found is None
                else f"is of revision {found}, this version needs {newest}: run council store migrate"
            )
            raise StoreOutdated(
                f"the store {self.where} {has}",
                where=self.where,
                found=found,
                known=newest,
            )
        with self.write("migrate") as connection:
            found = self._revision(connection)  # another process may have been first
            if found != newest:
                _upgrade(connection)
        return found, newest

    def _revision(self, connection: Connection) -> str | None:
        """The revision of the existing tables; None if there are none yet."""
        tables = self._tables(connection)
        if VERSION_TABLE not in tables:
            if tables:
                raise StoreForeign(
                    f"the store {self.where} holds tables of something else "
                    f"({', '.join(sorted(tables)[:5])}): name another",
                    where=self.where,
                )
            return None
        versions = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars()
        found = list(map(str, versions))
        fits = len(found) == 1 and re.fullmatch("[0-9]{4}", found[0])
        if not fits or not tables >= TABLES:
            raise StoreCorrupt(
                f"the store {self.where} is damaged, a table or its version is missing: go back to a copy",
                where=self.where,
            )
        if found[0] not in REVISIONS:
            raise StoreNewer(
                f"the store {self.where} is of revision {found[0]}, this version of council-runtime knows "
                f"{REVISIONS[-1]}: install the newer version that made it",
                where=self.where,
                found=found[0],
                known=REVISIONS[-1],
            )
        return found[0]

    @abstractmethod
    def _lock(self, connection: Connection, name: str) -> None:
        """Waits until no other transaction that names this lock is open."""

    def oust(self, name: str) -> None:  # noqa: B027 - a file's lock belongs to its process
        """Ends other transactions that name this lock, if the server can."""

    @abstractmethod
    def _tables(self, connection: Connection) -> set[str]:
        """The existing tables that matter here."""

    @abstractmethod
    def facts(self, connection: Connection) -> Facts:
        """Facts for a status."""


class SQLite(Database):
    """A file in WAL mode. Writes use BEGIN IMMEDIATE: a transaction that begins as a read may fail to upgrade."""

    kind = "sqlite"
    clock = text(r"strftime('%Y-%m-%dT%H\:%M\:%f', 'now')")

    def __init__(self, path: Path, *, create: bool, read_only: bool, timeout_s: float) -> None:
        super().__init__(str(path), read_only=read_only, timeout_s=timeout_s)
        if sqlite3.sqlite_version_info < SQLITE_LEAST:
            least = ".".join(map(str, SQLITE_LEAST))
            raise OperatorError(
                f"SQLite {least} or newer is needed, this Python has {sqlite3.sqlite_version}"
            )
        self.path = path
        if create and not read_only:
            self._create()
        self._file = self._file_id()
        # Even to read, SQLite creates files next to the database, unless it is opened as immutable.
        shut = read_only and not os.access(path.parent, os.W_OK)
        self._rest = self._at_rest() if shut else None
        self._writer = self._engine("rw", 1, "BEGIN IMMEDIATE")
        self._reader = self._engine("ro&immutable=1" if self._rest else "ro", READERS, "BEGIN")
        event.listen(self._writer, "connect", self._prepare_writer)

    def _create(self) -> None:
        """Creates an empty file for its owner alone; the two files that SQLite adds inherit that."""
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            sync_folder(self.path.parent)  # otherwise a power cut could lose the file with all its content
        except FileExistsError:
            return
        except OSError as error:
            raise StoreUnreachable(
                f"the store {self.where} can't be made: {error.strerror}; see that its folder is there and yours",
                where=self.where,
            ) from error

    def _file_id(self) -> tuple[int, int]:
        """The identity of the file at the path."""
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise StoreUnreachable(
                f"nothing is recorded yet at {self.path}: run council up, or name another journal with --url",
                where=self.where,
            ) from None
        except OSError as error:
            raise StoreUnreachable(
                f"the store {self.where} can't be looked at: {error.strerror}; see to your rights on its folders",
                where=self.where,
            ) from error
        if not stat.S_ISREG(found.st_mode):
            raise StoreForeign(f"the store {self.where} is not a file: name one", where=self.where)
        return found.st_dev, found.st_ino

    def _at_rest(self) -> tuple[int, int] | None:
        """The file's size and time if nobody has it open for writing; a writer has a log next to it."""
        try:
            if any(Path(f"{self.path}{suffix}").exists() for suffix in ("-wal", "-journal")):
                return None
            found = self.path.stat()
        except OSError:  # an unknown state does not count as rest
            return None
        return found.st_size, found.st_mtime_ns

    @contextmanager
    def read(self) -> Iterator[Connection]:
        try:
            with super().read() as connection:
                yield connection
        finally:
            if self._rest and self._rest != self._at_rest():
                raise StoreLocked(
                    f"the store {self.where}: a writer opened it while it was read, from a folder that you "
                    "may not write: open it again once they are done, or copy it together with the files beside it",
                    where=self.where,
                    timeout_s=self.timeout_s,
                )

    def _check_there(self) -> None:
        """Raises if the file was removed or replaced by a copy: writes to it would be lost (rules 4.7)."""
        why = "was removed, or replaced by another file, while it was open: put it back, or end what uses it"
        try:
            found = os.stat(self.where)
            if (found.st_dev, found.st_ino) == self._file:
                return
        except FileNotFoundError:
            pass
        except OSError as error:
            why = f"can't be looked at any more: {error.strerror}; see to its disk, and your rights on its folders"
        raise StoreUnreachable(f"the store {self.where} {why}", where=self.where)

    def _engine(self, mode: str, size: int, begin: str) -> Engine:
        name = f"file:{quote(str(self.path))}?mode={mode}"

        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(
                name, uri=True, timeout=self.timeout_s, isolation_level=None, check_same_thread=False
            )
            # Text that is not UTF-8 is still read. The driver would raise an error that does not name the row.
            connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
            return connection

        engine = create_engine(
            "sqlite://",
            creator=connect,
            poolclass=QueuePool,
            pool_size=size,
            max_overflow=0,
            pool_timeout=self.timeout_s,
        )

        def begun(connection: Connection) -> None:
            self._check_there()
            driver: Any = connection.connection.driver_connection
            driver.execute(begin)

        event.listen(engine, "begin", begun)
        return engine

    def _prepare_writer(self, connection: sqlite3.Connection, record: object) -> None:
        def value(statement: str) -> Any:
            return connection.execute(statement).fetchone()[0]

        application, tables = value("PRAGMA application_id"), value("SELECT count(*) FROM sqlite_master")
        if (application, tables) != (0, 0) and application != APPLICATION_ID:
            return  # another program's file is left unchanged; the check of its tables refuses it
        if tables == 0:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        if value("PRAGMA journal_mode = WAL") != "wal":
            raise StoreUnreachable(
                f"the store {self.where} can't keep a write-ahead log there: put it on a local disk",
                where=self.where,
            )
        # FULL: a commit is on disk when it returns. NORMAL lost acknowledged commits in simulated power cuts.
        for setting in (
            "synchronous = FULL",
            "foreign_keys = ON",
            "recursive_triggers = ON",
            "cell_size_check = ON",
            f"cache_size = -{CACHE_KB}",
        ):
            connection.execute(f"PRAGMA {setting}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}").fetchone()

    def _lock(self, connection: Connection, name: str) -> None:
        """BEGIN IMMEDIATE keeps every other writer out."""

    def _tables(self, connection: Connection) -> set[str]:
        application = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
        if application not in (0, APPLICATION_ID):
            raise StoreForeign(
                f"the store {self.where} is another program's file: name another", where=self.where
            )
        names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars()
        return set(names)

    def facts(self, connection: Connection) -> Facts:
        files = [Path(f"{self.path}{suffix}") for suffix in ("", "-wal", "-shm")]
        taken = sum(file.stat().st_size for file in files if file.exists())
        fault = sqlite_fault()
        return Facts(sqlite3.sqlite_version, taken, () if fault is None else (fault,))


def sqlite_fault() -> str | None:
    """The fault of this Python's SQLite, and what to do about it; None if there is none."""
    if sqlite3.sqlite_version_info >= SQLITE_WAL_SOUND:
        return None
    sound = ".".join(map(str, SQLITE_WAL_SOUND))
    return (
        f"SQLite {sqlite3.sqlite_version} may damage a store that two processes write at once (its WAL-reset fault): "
        f"use a Python with SQLite {sound} or newer, or give each council a store of its own"
    )


class PostgreSQL(Database):
    """A database on a server, through psycopg 3."""

    kind = "postgresql"
    clock = text("clock_timestamp() AT TIME ZONE 'UTC'")

    def __init__(self, url: URL, *, read_only: bool, timeout_s: float) -> None:
        where = without_password(url)
        super().__init__(where, read_only=read_only, timeout_s=timeout_s)
        require("psycopg", package="psycopg", extra="postgres", what=f"the store {where}")
        # No stricter level: each statement after the lock must see what the lock's last holder committed.
        self._writer = self._engine(url, 1 + WRITERS, isolation_level="READ COMMITTED")
        # A separate pool, so that no writer waits for a long read.
        reader = self._engine(url, READERS, isolation_level="REPEATABLE READ")
        self._reader = reader.execution_options(postgresql_readonly=True)

    def _engine(self, url: URL, size: int, isolation_level: IsolationLevel) -> Engine:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_size=size,
            max_overflow=0,
            pool_timeout=self.timeout_s,
            isolation_level=isolation_level,
            connect_args={
                "connect_timeout": max(2, math.ceil(self.timeout_s)),
                "tcp_user_timeout": self._timeout_ms,
                # A server detects a lost host after about three of these.
                "keepalives_idle": max(1, math.ceil(self.timeout_s)),
                "keepalives_interval": max(1, math.ceil(self.timeout_s)),
                "keepalives_count": 2,
            },
        )
        event.listen(engine, "connect", self._prepare_connection)
        return engine

    @property
    def _timeout_ms(self) -> int:
        return max(1, round(self.timeout_s * 1000))

    def _prepare_connection(self, connection: Any, record: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {self._timeout_ms}")
            # In another time zone the first and last hours of the years 1 to 9999 can be written, but not read.
            cursor.execute("SET TIME ZONE 'UTC'")
            cursor.execute("SHOW synchronous_commit")
            # Any setting below "on" loses acknowledged commits. Those above, for standbys, are the server's choice.
            if cursor.fetchone()[0] in ("off", "local", "remote_write"):
                cursor.execute("SET synchronous_commit = on")
            cursor.execute("SHOW server_encoding")
            if (encoding := cursor.fetchone()[0]) != "UTF8":
                raise StoreForeign(
                    f"the store {self.where} keeps text as {encoding}: create a database with encoding UTF8",
                    where=self.where,
                )
        connection.commit()

    def _lock(self, connection: Connection, name: str) -> None:
        key = f"council:{name}"
        connection.execute(
            text(
                "SELECT set_config('idle_in_transaction_session_timeout', :idle, true), "
                "pg_advisory_xact_lock(hashtextextended(:key, 0))"
            ),
            {"idle": f"{IDLE_S_MAX}s", "key": key},
        )

    def oust(self, name: str) -> None:
        # Waiting for the rest of a batch does not count as idle, so no limit of the server ends a frozen writer
        # there.
        ended = text(
            "SELECT pg_terminate_backend(pid) FROM pg_locks "
            "WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid() AND objsubid = 1 "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
            "AND (CAST(classid AS bigint) << 32 | CAST(objid AS bigint)) = hashtextextended(:key, 0)"
        )
        with as_store_errors(self.where, self.timeout_s), self._writer.begin() as connection:
            connection.execute(ended, {"key": f"council:{name}"})

    def _tables(self, connection: Connection) -> set[str]:
        # Not to_regclass: it answers from the session's cache, which may still lack tables committed a moment ago.
        found = connection.execute(
            text(
                "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
                "WHERE relname = ANY(CAST(:names AS text[])) AND nspname = ANY(current_schemas(false))"
            ),
            {"names": [VERSION_TABLE, *TABLES]},
        )
        return set(found.scalars())

    def facts(self, connection: Connection) -> Facts:
        def setting(name: str) -> str:
            return str(connection.execute(text("SELECT current_setting(:name)"), {"name": name}).scalar_one())

        size = connection.execute(text("SELECT pg_total_relation_size('packet_store')")).scalar_one()
        warnings = [
            f"the server runs with {name} = off, and may lose or damage what was acknowledged when its power fails: "
            f"set it on"
            for name in ("fsync", "full_page_writes")
            if setting(name) == "off"
        ]
        return Facts(setting("server_version"), size, tuple(warnings))


def open_database(url: str, *, create: bool, read_only: bool, timeout_s: float) -> Database:
    """The database of ``url``, a URL or the path of an SQLite file, which is created if ``create``.

    Raises CallerError for any other address.
    """
    found = place(url)
    if isinstance(found, Path):
        return SQLite(found, create=create, read_only=read_only, timeout_s=timeout_s)
    return PostgreSQL(found, read_only=read_only, timeout_s=timeout_s)


# Alembic's contexts are global to the process, so only one thread may use them at a time.
_UPGRADING = threading.Lock()


def _upgrade(connection: Connection) -> None:
    from alembic import command  # slow to load, and needed once in a store's life
    from alembic.config import Config

    config = Config()
    folder = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _UPGRADING:
        command.upgrade(config, "head")
