"""The tables are the document's, in both engines, and what queries know of them is what is there."""

from __future__ import annotations

import hashlib
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from council.journal import engines, schema
from council.journal.store import PacketStore
from council.protocol.errors import OperatorError
from council.protocol.packet import PacketEnvelope
from council.protocol.values import plain
from tests.patience import HANG_S

from .conftest import raw
from .packets import NOW, append, given, several, whole

DOCUMENTED = {
    "packet_id": "uuid",
    "packet_type": "text",
    "envelope": "jsonb",
    "timestamp": "timestamp with time zone",
    "routing": "jsonb",
    "provenance": "jsonb",
    "thread_id": "uuid",
    "parent_ids": "uuid[]",
    "tags": "text[]",
    "ttl": "timestamp without time zone",
}
INDEXES = {
    "idx_packet_store_packet_type": "USING btree (packet_type)",
    "idx_packet_store_timestamp": 'USING btree ("timestamp" DESC)',
    "idx_packet_thread": "USING btree (thread_id)",
    "idx_packet_lineage": "USING gin (parent_ids)",
    "idx_packet_tags": "USING gin (tags)",
    "idx_packet_ttl": "USING btree (ttl) WHERE (ttl IS NOT NULL)",
}


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_postgresql_has_the_documents_columns_types_and_indexes(store: PacketStore, address: str) -> None:
    connection = raw(address)
    found = dict(
        connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = 'packet_store'::regclass AND attnum > 0"
        ).fetchall()
    )
    assert {name: found[name] for name in DOCUMENTED} == DOCUMENTED
    indexes = dict(
        connection.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'packet_store'"
        ).fetchall()
    )
    for name, words in INDEXES.items():
        assert indexes[name].endswith(words), indexes[name]
    connection.close()


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_postgresql_is_told_to_wait_for_its_disk(store: PacketStore, address: str) -> None:
    """Also where the server's own setting is to lose the last commits."""
    connection = raw(address)
    connection.execute(f"ALTER DATABASE {connection.info.dbname} SET synchronous_commit = off")
    connection.close()
    with PacketStore.open(address) as anew, anew.database.write() as inside:
        assert inside.exec_driver_sql("SHOW synchronous_commit").scalar_one() == "on"
        assert inside.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_sqlite_is_told_to_wait_for_its_disk(store: PacketStore) -> None:
    with store.database.write() as connection:

        def value(name: str) -> object:
            return connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()

        assert (value("journal_mode"), value("synchronous"), value("foreign_keys")) == ("wal", 2, 1)
        assert value("application_id") == schema.APPLICATION_ID
    with store.database.read() as connection:
        for statement in ("CREATE TABLE x (y)", "DELETE FROM epochs"):
            with pytest.raises(Exception, match="readonly"):
                connection.exec_driver_sql(statement)


def test_the_tables_that_queries_know_are_those_that_are_there(
    store: PacketStore, address: str, engine: str
) -> None:
    connection = raw(address)
    for table in schema.metadata.sorted_tables + (
        schema.sqlite_metadata.sorted_tables if engine == "sqlite" else []
    ):
        found = [each[0] for each in connection.execute(f"SELECT * FROM {table.name} LIMIT 0").description]
        assert set(found) == set(table.columns.keys())
    connection.close()


def test_the_migrations_are_those_that_the_code_knows() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(engines.__file__).parent / "migrations"))
    scripts = list(ScriptDirectory.from_config(config).walk_revisions())
    assert tuple(reversed([each.revision for each in scripts])) == schema.REVISIONS
    assert f"application_id = {schema.APPLICATION_ID}" in inspect.getsource(scripts[-1].module)


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_what_an_older_version_wrote_is_found_by_its_words(
    address: str, opened: Callable[..., PacketStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: the migration leaves the mark at the newest packet, and enters nothing."""
    with monkeypatch.context() as older:
        config = Config()
        config.set_main_option("script_location", str(Path(engines.__file__).parent / "migrations"))
        older.setattr(engines, "_upgrade", lambda connection: upgraded(config, connection, "0002"))
        older.setattr(engines, "REVISIONS", ("0001", "0002"))
        store = opened(address)
        epoch, head = store.begin_epoch("council", "me")
        thread = UUID(int=77)
        packets = [whole(1, tags=["a b"], thread_id=thread), whole(2, UUID(int=1), packet_type="other")]
        append(store, "council", epoch, packets, head)
        assert store.revision == "0002"
        store.close()
    store = opened(address)
    assert (store.revision_found, store.revision) == ("0002", schema.REVISIONS[-1])
    connection = raw(address)
    words = [row[0] for row in connection.execute("SELECT word FROM packet_words WHERE packet = 1")]
    assert sorted(words) == ["tag a b", f"thread {thread}", "time", "type event"]
    assert connection.execute("SELECT upto FROM words_entered").fetchone() == (2,)
    connection.close()
    assert [each.packet.packet_id for each in store.descendants(UUID(int=1), NOW)] == [UUID(int=2)]
    assert len(store.find(NOW, packet_type="other").packets) == 1


def upgraded(config: Config, connection: Connection, revision: str) -> None:
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def test_a_row_is_what_the_packet_says_it_is(store: PacketStore) -> None:
    """``rows.prepared`` goes a quicker way than ``PacketEnvelope.row``, to the same columns."""
    fields = {
        "metadata": {"agent": "plasticos", "domain": "brokerage", "reasoning_mode": "x"},
        "provenance": {"parent_packet": UUID(int=9), "source": "gateway"},
        "confidence": {"score": 0.5},
        "thread_id": UUID(int=8),
        "tags": ["a", "b"],
        "ttl": NOW.replace(year=9000),
        "payload": {"text": "ü𝄞", "n": [1, 2.5, None, True]},
    }
    store.write([given(1), given(2, UUID(int=1), **fields), given(3, metadata={})], NOW)
    epoch, head = store.begin_epoch("council", "me")
    del fields["ttl"]
    append(store, "council", epoch, [whole(4, UUID(int=2), UUID(int=1), **fields), whole(5)], head)
    with store.database.read() as connection:
        found = connection.execute(schema.packet_store.select()).all()
    for row in found:
        packet = PacketEnvelope.from_json(row.content)
        shown = json.loads(packet.canonical())
        meta = shown.get("metadata", {})
        assert plain(row.envelope) == shown
        assert row.routing == {name: meta[name] for name in ("agent", "domain") if name in meta}
        assert row.provenance == shown.get("provenance")
        assert tuple(row.parent_ids) == (packet.lineage.parent_ids if packet.lineage else ())
        assert tuple(row.tags) == packet.tags
        for name in ("packet_id", "packet_type", "timestamp", "thread_id", "ttl"):
            assert getattr(row, name) == getattr(packet, name), name
        assert row.content_hash == hashlib.sha256(packet.canonical()).digest()


def test_info_says_what_is_there(store: PacketStore, engine: str) -> None:
    epoch, head = store.begin_epoch("council", "me")
    head = append(store, "council", epoch, several(1, 3), head)
    store.write([given(10), given(11, ttl=NOW.replace(year=9000))], NOW)
    info = store.info()
    assert (info.engine, info.revision, info.where) == (engine, schema.REVISIONS[-1], store.where)
    assert (info.packets, info.outside, info.expiring) == (5, 2, 1)
    assert info.bytes_on_disk > 10_000
    assert [(each.journal, each.epoch, each.by, each.head) for each in info.journals] == [
        ("council", 1, "me", head)
    ]
    assert info.version


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("version", "warned"), [((3, 51, 2), True), ((3, 51, 3), False), ((3, 40, 1), True)])
def test_an_sqlite_with_the_wal_fault_is_warned_of(
    address: str,
    opened: Callable[..., PacketStore],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: tuple[int, ...],
    warned: bool,
) -> None:
    monkeypatch.setattr("sqlite3.sqlite_version_info", version)
    store = opened(address)
    assert any("WAL-reset" in each for each in store.info().warnings) is warned
    assert ("WAL-reset" in caplog.text) is warned


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_an_sqlite_that_is_too_old_is_refused(
    address: str, opened: Callable[..., PacketStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlite3.sqlite_version_info", (3, 37, 2))
    with pytest.raises(OperatorError, match=r"SQLite 3\.38\.0 or newer"):
        opened(address)


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("from council import *", ["sqlalchemy", "alembic", "psycopg"]),
        ("import council.cli.app", ["sqlalchemy", "alembic", "psycopg", "council.journal.store"]),
        ("import council.journal.record, council.config.settings", ["sqlalchemy"]),
        ("import council.journal.store", ["alembic", "psycopg", "ray"]),
    ],
)
def test_what_is_not_used_is_not_imported(statement: str, absent: list[str]) -> None:
    code = f"import sys; {statement}; print([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_store_that_is_current_is_opened_without_alembic(
    address: str, opened: Callable[..., PacketStore]
) -> None:
    """Mutation: half a second at every start of a coordinator."""
    opened(address).close()
    code = (
        "import sys; from council.journal.store import PacketStore; PacketStore.open(sys.argv[1]).info();"
        "print('alembic' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, address], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"
