"""The kept journal: where its files are, how it is put back, and what is asked about it."""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from council.journal import snapshots as snapshot_store
from council.runtime.snapshot import more_of
from tests.hold import doors, story

FOLDER = Path(__file__).parent
SQLITE = FOLDER / "journal.db.xz"
POSTGRES = FOLDER / "journal.sql.xz"
EXPORT = FOLDER / "journal.jsonl.xz"
TOLD = FOLDER / "told.json.xz"
# Proposals that `council show` has different things to say of.
SHOWN = ("tie_broken", "ruled_against", "answered", "degraded", "spent", "acted", "revision", "open")


def export() -> list[bytes]:
    """The lines of the journal's export."""
    return lzma.decompress(EXPORT.read_bytes()).splitlines(keepends=True)


def told() -> dict[str, Any]:
    """The proposals' ``ids``, and the exit code and document that each question was answered with."""
    found: dict[str, Any] = json.loads(lzma.decompress(TOLD.read_bytes()))
    return found


def put_sqlite(file: Path) -> str:
    file.write_bytes(lzma.decompress(SQLITE.read_bytes()))
    return str(file)


def put_postgres(address: str) -> str:
    """Loads the dump into an empty database."""
    import psycopg

    with psycopg.connect(address) as connection:
        connection.execute(lzma.decompress(POSTGRES.read_bytes()))
    return address


def put_keys() -> None:
    """The journal's key, where whoever launches its council has it."""
    folder = Path(os.environ["XDG_STATE_HOME"]) / "council" / "journals"
    folder.mkdir(parents=True)
    key = folder / f"{story.NAME}.key"
    key.touch(0o600)
    key.write_bytes(story.JOURNAL_KEY)


def answers(address: str, ids: dict[str, str]) -> dict[str, Any]:
    """What the commands that read the journal say: the exit code and the document of each."""
    where = ["--name", story.NAME, "--url", address, "--json"]
    lines = {
        "log": ["log", "--limit", "1000"],
        **{f"show {name}": ["show", ids[name]] for name in SHOWN},
        "verify": ["verify"],
        "replay": ["replay"],
        "replay without lite": ["replay", "--what-if", "without=lite"],
        "identity": ["identity", "show", "--journal"],
    }
    return {name: list(doors.command(*line, *where, placeless=True)) for name, line in lines.items()}


def comparable(lines: list[bytes]) -> list[Any]:
    """The lines of an export without what the words of a refusal change: these, and the hashes over them."""
    found = [json.loads(line) for line in lines]
    for line in found:
        line.pop("row_hash", None)
        line.pop("previous_hash", None)
        payload = line.get("packet", {}).get("payload", {})
        if payload.get("kind") in ("refusal", "ballot_unreadable"):
            payload["event"]["why"] = payload["effects"] = None
    return found


def snapshots(file: Path) -> list[Any]:
    """What the snapshots in an SQLite store say, without signatures and what binds them to the hashes of records."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT position, part, content FROM snapshots ORDER BY 1, 2").fetchall()
    return [
        (position, part, _in_order(doors.snapshot_in(content)) if part == "base" else _more(content))
        for position, part, content in rows
    ]


def _more(content: bytes) -> tuple[Any, ...]:
    """What a snapshot adds, alike of the version that the journal was kept by (2) and of this one."""
    packed, decided = snapshot_store._pair(content)
    more = more_of(packed)
    return more.decided, more.ids, more.proposers, _in_order(msgspec.msgpack.decode(decided)["closed"])


def _in_order(value: Any) -> Any:
    """MessagePack in MessagePack, decoded; a set of seats is written in any order."""
    if isinstance(value, bytes):
        try:
            found = msgspec.msgpack.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return value
        return _in_order(found) if isinstance(found, (dict, list)) else value
    if isinstance(value, dict):
        return {_in_order(name): _in_order(each) for name, each in value.items()}
    if isinstance(value, list):
        return (
            sorted(value) if set(map(str, value)) <= set(story.SEATS) else [_in_order(each) for each in value]
        )
    return value


def drop_snapshots(address: str) -> None:
    """As where a store comes from an export, or its snapshots are of another version."""
    if "://" in address:
        import psycopg

        with psycopg.connect(address) as connection:
            connection.execute("DELETE FROM snapshots")
    else:
        with contextlib.closing(sqlite3.connect(address)) as connection:
            connection.execute("DELETE FROM snapshots")
            connection.commit()
