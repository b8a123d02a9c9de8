"""Reads the address of a store: a SQLite file, or a database on a server."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from council.protocol.errors import CallerError
from council.protocol.values import text_problem


def where_of(url: str) -> str:
    """The database of ``url`` as messages name it, the same for every spelling. Raises CallerError."""
    found = place(url)
    return str(found) if isinstance(found, Path) else without_password(found)


def without_password(url: URL) -> str:
    """The address of a server, without a password."""
    return url.set(drivername="postgresql").render_as_string(hide_password=True)


def place(url: str) -> Path | URL:
    """The file of ``url``, or the URL of a server. Raises CallerError."""
    if not url or text_problem(url):
        raise _no_store("it is empty, or holds a NUL or half a character")
    try:
        parsed = make_url(url) if "://" in url else URL.create("sqlite", database=url)
    except (ArgumentError, ValueError):
        raise _no_store("it can't be read") from None
    engine, _, driver = parsed.drivername.partition("+")
    if engine == "sqlite" and driver in ("", "pysqlite"):
        if not parsed.database or parsed.database == ":memory:" or parsed.query:
            raise _no_store("an SQLite store is a file, without options")
        try:
            return Path(parsed.database).expanduser().absolute()
        except RuntimeError:
            raise _no_store("~ is the folder of no user") from None
    if engine in ("postgresql", "postgres") and driver in ("", "psycopg"):
        if any("password" in name for name in parsed.query):  # it would be shown wherever the store is named
            raise _no_store("a password among its options: leave it to PGPASSWORD or ~/.pgpass")
        return parsed
    raise _no_store(f"{parsed.drivername[:40]!r} is not a supported engine")


def _no_store(why: str) -> CallerError:
    # The address itself is not shown, because it may hold a password.
    return CallerError(
        f"the store's address names no store, {why}: give a path, sqlite:///path or postgresql://user@host/database"
    )
