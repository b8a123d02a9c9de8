"""The two databases that a store can be in, SQLite and PostgreSQL: opening, locking, migrating.

SQLite has one connection that writes (and so checkpoints), and others that only read; PostgreSQL has a pool. In both,
``write`` is one transaction that is on disk when it ends, and ``read`` sees one point in time.
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

TABLES = frozenset({"packet_store", "epochs"})
# STRICT tables are of 3.37, JSON functions in every build of 3.38.
SQLITE_LEAST = (3, 38, 0)
# https://sqlite.org/wal.html: a checkpoint that meets a write of another connection may damage the file.
SQLITE_WAL_SOUND = (3, 51, 3)
WAL_BYTES_KEPT = 64 * 2**20  # the file of the log is cut to this after a checkpoint
READERS = 4
WRITERS = 4  # to a server, beside the connection that holds a journal (``hold``)
# A record has some 1.3 kB, of which a page of SQLite's own 4 kB holds two, and wastes a third.
PAGE_BYTES = 8192
CACHE_KB = 8 * 2**10  # of each connection; what is behind it, the operating system has in memory mostly
# How long a writer that has stopped inside a transaction (SIGSTOP, a lost host) may keep others out.
IDLE_S_MAX = 10


class Facts(NamedTuple):
    """What is to be told of a database: its version, its bytes on disk, what is wrong with its settings."""

    version: str
    bytes_on_disk: int
    warnings: tuple[str, ...]


class Database(ABC):
    """One database, open. ``where`` names it in messages, without a password."""

    kind: str
    clock: TextClause  # the database's own, in SQL, to compare a ttl with as its triggers do
    _reader: Engine
    _writer: Engine

    def __init__(self, where: str, *, read_only: bool, timeout_s: float) -> None:
        self.where = where
        self.read_only = read_only
        self.timeout_s = timeout_s
        self._closed = False

    @contextmanager
    def write(self, *locks: str) -> Iterator[Connection]:
        """One transaction, that nobody else is in who names one of ``locks``: all of it is kept, or nothing.

        Raises StoreError; IntegrityError where a constraint or trigger refuses.
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
        """What was kept at one moment, however long one reads. Raises StoreError."""
        self._check_open()
        with as_store_errors(self.where, self.timeout_s), self._reader.begin() as connection:
            yield connection

    def connect(self) -> Connection:
        """A connection of the caller's own, which it closes."""
        return self._writer.connect()

    def close(self) -> None:
        """Gives up every connection, for good."""
        self._closed = True
        self._reader.dispose()
        self._writer.dispose()  # last: it can write SQLite's log back into the file, which then stands alone

    def _check_open(self) -> None:
        if self._closed:  # or a pool would silently connect anew, and nobody would ever close that
            raise CallerError(f"the store {self.where} was closed: open it again")

    def prepare(self, *, migrate: bool) -> tuple[str | None, str]:
        """Makes sure that the tables are what this code works with; the revision found, and the one there now.

        Raises StoreForeign, StoreNewer, StoreCorrupt, and StoreOutdated where it may not migrate.
        """
        newest = REVISIONS[-1]
        first = self._reader if self.read_only else self._writer  # which makes the file one of ours
        with as_store_errors(self.where, self.timeout_s), first.begin() as connection:
            found = self._revision(connection)
        if found == newest:
            return found, newest
        if self.read_only or not migrate:
            has = (
                "holds no store yet"
                if found is None
                else f"is of revision {found}, this version needs {newest}"
            )
            raise StoreOutdated(
                f"the store {self.where} {has}: run council store migrate",
                where=self.where,
                found=found,
                known=newest,
            )
        with self.write("migrate") as connection:
            found = self._revision(connection)  # somebody else may have been first
            if found != newest:
                _upgrade(connection)
        return found, newest

    def _revision(self, connection: Connection) -> str | None:
        """The revision of the tables that are there; None where there is nothing yet."""
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
        """Waits until nobody else is in a transaction that names this lock."""

    def oust(self, name: str) -> None:  # noqa: B027 - a file's lock is its process's own
        """Ends whoever is in a transaction that names this lock, where a server can."""

    @abstractmethod
    def _tables(self, connection: Connection) -> set[str]:
        """The tables that are there, as far as they matter."""

    @abstractmethod
    def facts(self, connection: Connection) -> Facts:
        """What is to be told of it."""


class SQLite(Database):
    """A file in WAL mode. BEGIN IMMEDIATE for each write: one that begins as a read fails where it turns."""

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
        # Even to read, SQLite makes files beside it, unless it is told that nobody writes there.
        shut = read_only and not os.access(path.parent, os.W_OK)
        self._rest = self._at_rest() if shut else None
        self._writer = self._engine("rw", 1, "BEGIN IMMEDIATE")
        self._reader = self._engine("ro&immutable=1" if self._rest else "ro", READERS, "BEGIN")
        event.listen(self._writer, "connect", self._prepare_writer)

    def _create(self) -> None:
        """An empty file that is its owner's alone, as are then the two that SQLite puts beside it."""
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # or a power cut could take the file with all that is in it
            finally:
                os.close(folder)
        except FileExistsError:
            return
        except OSError as error:
            raise StoreUnreachable(
                f"the store {self.where} can't be made: {error.strerror}; see that its folder is there and yours",
                where=self.where,
            ) from error

    def _file_id(self) -> tuple[int, int]:
        """Which file stands at the path."""
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise StoreUnreachable(
                f"there is no store at {self.path}: council store migrate makes one, --url names another",
                where=self.where,
            ) from None
        except OSError as error:
            raise StoreUnreachable(
                f"the store {self.where} can't be looked at: {error.strerror}; see to your rights on its folders",
                where=self.where,
            ) from error
        if not stat.S_ISREG(found.st_mode):
            raise StoreForeign(f"the store {self.where} is no file: name one", where=self.where)
        return found.st_dev, found.st_ino

    def _at_rest(self) -> tuple[int, int] | None:
        """How the file is where nobody has it open to write; who does has a log beside it."""
        try:
            if any(Path(f"{self.path}{suffix}").exists() for suffix in ("-wal", "-journal")):
                return None
            found = self.path.stat()
        except OSError:  # what can't be looked at is not known to rest
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
                    f"the store {self.where}: somebody began to write it while it was read, from a folder that you "
                    "may not write: open it anew once they are done, or copy it, with what stands beside it",
                    where=self.where,
                    timeout_s=self.timeout_s,
                )

    def _check_there(self) -> None:
        """What went to a file that was removed, or replaced by a copy, would be lost with it (rules 4.7)."""
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
            # Text that is not UTF-8 is read all the same: the driver would give up, and not say in which row.
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
            return  # somebody else's: left as it is, and refused by who looks at its tables
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
        warnings = []
        if sqlite3.sqlite_version_info < SQLITE_WAL_SOUND:
            sound = ".".join(map(str, SQLITE_WAL_SOUND))
            warnings.append(
                f"SQLite {sqlite3.sqlite_version} may damage a file that two processes write at once (its WAL-reset "
                f"fault): use a Python with {sound} or newer, or let one process write at a time"
            )
        return Facts(sqlite3.sqlite_version, taken, tuple(warnings))


class PostgreSQL(Database):
    """A database on a server, through psycopg 3."""

    kind = "postgresql"
    clock = text("clock_timestamp() AT TIME ZONE 'UTC'")

    def __init__(self, url: URL, *, read_only: bool, timeout_s: float) -> None:
        where = without_password(url)
        super().__init__(where, read_only=read_only, timeout_s=timeout_s)
        try:
            # Not stricter: each statement after the lock must see what its last holder committed.
            self._writer = self._engine(url, 1 + WRITERS, isolation_level="READ COMMITTED")
            # Of its own, so that no writer waits until somebody has read to the end.
            reader = self._engine(url, READERS, isolation_level="REPEATABLE READ")
        except ModuleNotFoundError as error:
            raise OperatorError(
                f"the store {where} needs psycopg: pip install 'council-runtime[postgres]'"
            ) from error
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
                # A server whose host is gone is told so after some three of these.
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
            # In another zone the first and last hours of the years 1 to 9999 can be written, but not read.
            cursor.execute("SET TIME ZONE 'UTC'")
            cursor.execute("SHOW synchronous_commit")
            # Less than on loses what was acknowledged; more, for standbys, is the server's to say.
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
        # Waiting for the rest of a batch is no idleness: no limit of the server's ends a writer that froze so.
        ended = text(
            "SELECT pg_terminate_backend(pid) FROM pg_locks "
            "WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid() AND objsubid = 1 "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
            "AND (CAST(classid AS bigint) << 32 | CAST(objid AS bigint)) = hashtextextended(:key, 0)"
        )
        with as_store_errors(self.where, self.timeout_s), self._writer.begin() as connection:
            connection.execute(ended, {"key": f"council:{name}"})

    def _tables(self, connection: Connection) -> set[str]:
        names = sorted({VERSION_TABLE, *TABLES})
        found = connection.execute(
            text(
                "SELECT name FROM unnest(CAST(:names AS text[])) AS name WHERE to_regclass(name) IS NOT NULL"
            ),
            {"names": names},
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
    """The database that ``url`` names, or a path of an SQLite file, which is made if it may be.

    Raises CallerError for any other address.
    """
    found = place(url)
    if isinstance(found, Path):
        return SQLite(found, create=create, read_only=read_only, timeout_s=timeout_s)
    return PostgreSQL(found, read_only=read_only, timeout_s=timeout_s)


# Alembic's contexts are the process's, and no two threads' at once.
_UPGRADING = threading.Lock()


def _upgrade(connection: Connection) -> None:
    from alembic import command  # takes its time, and is needed once in a store's life
    from alembic.config import Config

    config = Config()
    folder = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _UPGRADING:
        command.upgrade(config, "head")
