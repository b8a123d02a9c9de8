"""Translates errors of database drivers into StoreError: what failed, where, and what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from council.journal.schema import Unreadable
from council.protocol.errors import (
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnreachable,
)

_Advice = tuple[type[StoreError], str]

_LOCKED: _Advice = (StoreLocked, "another process holds it; end what writes there, or try again")
_FULL: _Advice = (StoreFull, "there is no room to write: check its disk, quota and memory, then try again")
_READ_ONLY: _Advice = (
    StoreReadOnly,
    "you may not write it: correct the rights on it and on its folder, where SQLite also writes to read; or copy it "
    "with its -wal to where you may write",
)
_CORRUPT: _Advice = (
    StoreCorrupt,
    "it is damaged: put it aside untouched, and go back to a copy (council store import)",
)
_MISSING: _Advice = (StoreCorrupt, "a part of it is missing: go back to a copy, or name another database")
_GONE: _Advice = (
    StoreUnreachable,
    "it can't be reached, or no longer: check that it is there and up, and its log, then try again",
)
# By primary result code, and by extended codes for those that are listed.
_SQLITE: dict[int, _Advice] = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_PROTOCOL: _LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_TOOBIG: _FULL,
    sqlite3.SQLITE_IOERR_WRITE: _FULL,  # also for a quota or a limit on files
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CORRUPT: _CORRUPT,
    sqlite3.SQLITE_NOTADB: (
        StoreForeign,
        "it is not an SQLite database, or its beginning is damaged: name another",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        StoreUnreachable,
        "it can't be opened: check that its folder is there, and your rights to write there, which SQLite needs "
        "also to read; or copy it to where you have them",
    ),
    sqlite3.SQLITE_PERM: _GONE,
    sqlite3.SQLITE_IOERR: _GONE,
}
# By the whole SQLSTATE, then by its class.
_POSTGRESQL: dict[str, _Advice] = {
    "55P03": _LOCKED,
    "40P01": _LOCKED,
    "40001": _LOCKED,
    "53100": _FULL,
    "53200": _FULL,
    "25006": _READ_ONLY,
    "42501": _READ_ONLY,
    "XX001": _CORRUPT,
    "XX002": _CORRUPT,
    "42P01": _MISSING,
    "28": (StoreUnreachable, "the server refuses you: check PGUSER, PGPASSWORD or ~/.pgpass"),
    "3D": (StoreUnreachable, "there is no such database: create it, or name another"),
    "08": _GONE,
    "25P03": _GONE,
    "53": _GONE,
    "57": _GONE,
    "58": _GONE,
}


@contextmanager
def as_store_errors(where: str, timeout_s: float) -> Iterator[None]:
    """A context in which a driver's errors become StoreError; a broken constraint stays IntegrityError."""
    try:
        yield
    except exc.IntegrityError:
        raise
    except Unreadable as error:
        raise _store_error(where, _CORRUPT, str(error), timeout_s) from error
    except sqlite3.IntegrityError as error:
        raise exc.IntegrityError(None, None, error) from error
    except UnicodeDecodeError as error:  # from SQLite's own message, which quotes the damaged text
        words = " ".join(error.object.decode("utf-8", "replace").split())
        raise _store_error(where, _CORRUPT, words[:300], timeout_s) from error
    except exc.TimeoutError as error:  # from the pool: our own threads hold every connection
        raise _store_error(where, _LOCKED, "all connections are busy", timeout_s) from error
    except exc.DBAPIError as error:
        raise _of_driver(where, error.orig or error, timeout_s) from error
    except sqlite3.Error as error:
        raise _of_driver(where, error, timeout_s) from error


def _of_driver(where: str, error: BaseException, timeout_s: float) -> Exception:
    words = " ".join(str(error).split())[:300]
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        found = _SQLITE.get(code) or _SQLITE.get(code & 0xFF)
        if found is None and words == "malformed JSON":
            found = _CORRUPT
        elif found is None and words.startswith("no such "):
            found = _MISSING
    else:
        state = getattr(error, "sqlstate", None)
        if state is not None:
            found = _POSTGRESQL.get(state) or _POSTGRESQL.get(state[:2])
        else:  # the error is not from the server; an operational error means that there was none
            kinds = {kind.__name__ for kind in type(error).__mro__}
            found = _GONE if "OperationalError" in kinds else None
            if words.startswith("invalid connection option"):
                found = (
                    StoreUnreachable,
                    "its address has an option that PostgreSQL does not know: remove it",
                )
    return _store_error(where, found or (StoreError, "please report this"), words, timeout_s)


def _store_error(where: str, found: _Advice, words: str, timeout_s: float) -> StoreError:
    kind, advice = found
    facts = {"timeout_s": timeout_s} if kind is StoreLocked else {}
    return kind(f"the store {where}: {advice} ({words})", where=where, **facts)
