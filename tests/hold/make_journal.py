"""Wrote the journal that is kept here, by the code of commit 681f55c: ``python -m tests.hold.make_journal``.

It is not to be run again: a journal that newer code wrote would no longer show that an old one can be read. It stays
here to say how the files came about.
"""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg

from council.journal import store as store_module
from council.journal.store import PacketStore
from council.journal.writer import DurableJournal
from council.protocol.packet import PacketEnvelopeIn
from tests.hold import kept, story
from tests.journal.writing import write
from tests.postgres import postgresql
from tests.runtime.harness import run


class FixedTime(datetime):
    """The time at which epochs are begun."""

    @classmethod
    def now(cls, tz: Any = None) -> FixedTime:
        return cls(2023, 11, 16, 12, tzinfo=tz or UTC)


@contextlib.contextmanager
def as_anywhere() -> Iterator[None]:
    """Nothing of this machine or moment gets into the files."""
    with (
        mock.patch("socket.gethostname", return_value="host"),
        mock.patch("os.getpid", return_value=1),
        mock.patch.object(store_module, "datetime", FixedTime),
    ):
        yield


def fill(address: str) -> dict[str, str]:
    """Writes the story into a new store; gives the proposals' ids."""

    def opened() -> DurableJournal:
        store = PacketStore.open(address, migrate=True)
        with as_anywhere():
            return DurableJournal.open(store, story.NAME, story.COUNCIL_ID, story.JOURNAL_KEY)

    first, ids = story.first_epoch()
    journal = opened()
    write(journal, first.records)
    run(journal.close(snapshot=first.driver.snapshot))
    journal = opened()
    second, ids = story.second_epoch(first, ids, journal)
    write(journal, second.records)
    run(journal.close(snapshot=second.driver.snapshot))
    with PacketStore.open(address) as store:
        packets = [PacketEnvelopeIn.build(**fields) for fields in story.PACKETS]
        assert all(done.status == "ok" for done in store.write(packets, FixedTime.now()))
        store.enter_words()
    return ids


def main() -> None:
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
    folder = Path(tempfile.mkdtemp())
    file = folder / "store.db"
    ids = fill(str(file))
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    kept.SQLITE.write_bytes(lzma.compress(file.read_bytes(), preset=9))

    stream = io.BytesIO()
    with PacketStore.open(str(file), read_only=True) as store:
        store.export(stream)
    kept.EXPORT.write_bytes(lzma.compress(stream.getvalue(), preset=9))

    kept.put_keys()
    told = {"ids": ids, **kept.answers(str(file), ids)}
    kept.TOLD.write_bytes(lzma.compress(json.dumps(told, ensure_ascii=False).encode(), preset=9))

    with postgresql("council-hold-") as server:
        assert fill(server.get_uri()) == ids
        with psycopg.connect(server.get_uri()) as connection:
            programs = connection.execute("SELECT setting FROM pg_config WHERE name = 'BINDIR'").fetchone()
        assert programs is not None
        command = [f"{programs[0]}/pg_dump", "--inserts", "--no-owner", "--no-privileges", server.get_uri()]
        dump = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in dump.splitlines() if not line.startswith("\\")]  # those are for psql alone
    kept.POSTGRES.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9))
    shutil.rmtree(folder)
    shutil.rmtree(os.environ["XDG_STATE_HOME"])


if __name__ == "__main__":
    main()
