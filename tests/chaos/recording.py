"""SQLite on a disk that records what is written and synced: a VFS of apsw, behind the interface of ``sqlite3``.

The engines' own SQL, pragmas and threads run over it; the files are real ones beside the record.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from unittest import mock

import apsw

VFS = "recorded"


class Op(NamedTuple):
    """What happened to the file with this ``suffix``: "write", "truncate" (to ``offset``) or "sync"."""

    kind: str
    suffix: str
    offset: int = 0
    data: bytes = b""


Log = list[Any]


class _File(apsw.VFSFile):
    def __init__(self, log: Log, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._log = log
        # Files of a statement's own have no name, and are not there any more after a cut.
        self._suffix = path.rpartition(".db")[2] if ".db" in path else "unnamed"
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._log.append(Op("write", self._suffix, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self._log.append(Op("truncate", self._suffix, size))

    def xSync(self, flags: int) -> None:
        # The file behind need not be synced: what a cut leaves of it is made from the record.
        self._log.append(Op("sync", self._suffix))


class _Disk(apsw.VFS):
    def __init__(self, log: Log) -> None:
        self._log = log
        super().__init__(VFS, "")

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        return _File(self._log, name, flags)


class _Cursor:
    """As much of a DBAPI cursor as SQLAlchemy uses."""

    arraysize = 1
    lastrowid = None
    description: Any = None

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._cursor.exec_trace = self._begun
        self._rows: Iterator[Any] = iter(())
        self.rowcount = -1

    def _begun(self, cursor: Any, statement: str, bindings: Any) -> bool:
        self.description = tuple((*each[:1], *[None] * 6) for each in cursor.get_description()) or None
        return True

    def execute(self, statement: str, parameters: Any = ()) -> _Cursor:
        self.description = None
        # Read to its end at once: a statement that is under way keeps its transaction.
        self._rows = iter(list(self._cursor.execute(statement, parameters or None)))
        self.rowcount = self._connection.changes()
        return self

    def executemany(self, statement: str, parameters: Iterable[Any]) -> _Cursor:
        for each in parameters:
            self.execute(statement, each)
        return self

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchmany(self, size: int = 1) -> list[Any]:
        return [row for row, _ in zip(self._rows, range(size), strict=False)]

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def close(self) -> None:
        self._cursor.close()


class _Connection:
    """As much of a DBAPI connection as SQLAlchemy and the engines use, in autocommit as they ask for."""

    isolation_level = None

    def __init__(self, name: str) -> None:
        flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE
        self._connection = apsw.Connection(name, flags=flags, vfs=VFS)

    def cursor(self) -> _Cursor:
        return _Cursor(self._connection)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> _Cursor:
        return self.cursor().execute(statement, parameters)

    def commit(self) -> None:
        if self._connection.in_transaction:
            self.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self.execute("ROLLBACK")

    def create_function(self, name: str, count: int, function: Callable[..., Any], **_: Any) -> None:
        self._connection.create_scalar_function(name, function, count)

    def close(self) -> None:
        # A reader that is the last to close tries for a lock that it can't have, and leaves the log as it is.
        with suppress(apsw.IOError):
            self._connection.close()


@contextmanager
def recorded(log: Log, synchronous: str) -> Iterator[None]:
    """Within it, SQLite's files are written over the record; ``synchronous`` stands for the engine's own setting."""
    disk = _Disk(log)

    class Connection(_Connection):
        def execute(self, statement: str, parameters: Sequence[Any] = ()) -> _Cursor:
            return super().execute(
                statement.replace("synchronous = FULL", f"synchronous = {synchronous}"), parameters
            )

    def connect(name: str, **_: Any) -> Connection:
        return Connection(name)

    with mock.patch.object(sqlite3, "connect", connect):
        yield
    disk.unregister()
