"""What ``verify`` finds in a journal that somebody with the database in hand has been at, and what it can't."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from council.journal import verify as module
from council.journal.chain import Head, content_hash, row_hash
from council.journal.checkpoint import Checkpoint, Signer
from council.journal.rows import Place, insert_values, values
from council.journal.store import PacketStore
from council.journal.verify import Verified, verify
from council.protocol.errors import CallerError, CheckpointRefused, EnvelopeError, JournalCorrupt
from council.protocol.packet import PacketEnvelope, read_packet
from tests.patience import HANG_S

from .conftest import on_both, only_postgresql, only_sqlite, raw
from .journals import NAME, fill, life
from .packets import NOW, append, given, row_of, several, whole

Open = Callable[..., PacketStore]
SIGNER = Signer(b"k" * 32)
ROWS = 12
UNKNOWN = "00000000-0000-0000-0000-0000000000ff"


def packets() -> list[PacketEnvelope]:
    """Proposals with what follows from them, of every field that has a column."""
    more: dict[str, Any] = {
        "metadata": {"agent": "prime", "domain": "law"},
        "provenance": {"source": "seat", "parent_packet": UUID(int=1)},
        "thread_id": UUID(int=1),
        "tags": ["a", "b"],
        "confidence": {"score": 0.5},
    }
    made = [whole(1, **more), whole(2, UUID(int=1), **more), whole(3, UUID(int=1))]
    made += [whole(4, UUID(int=3), UUID(int=2), **more), whole(5), whole(6, UUID(int=4))]
    made += [
        whole(7, lineage={"parent_ids": []}),
        whole(8, payload={"of": [1e-7, 1e22, 0.25, True, None, "ü\n"]}),
    ]
    made += [
        whole(9, UUID(int=7)),
        whole(10, UUID(int=5), UUID(int=9)),
    ]  # of two roots: the first one's counts
    return [*made, whole(11, UUID(int=7)), whole(12, UUID(int=7))]


@dataclass
class Kept:
    """A journal as it was written, the way past the store, and the checkpoint of its record 8."""

    store: PacketStore
    address: str
    engine: str
    raw: Any
    checkpoint: Checkpoint
    at_end: Verified

    def sql(self, statement: str, *values: Any) -> Any:
        if self.engine == "postgresql":
            statement = statement.replace("?", "%s")
        return self.raw.execute(statement, values)

    def verify(self, **how: Any) -> Verified:
        return verify(self.store, "council", **how)

    def bad(self, **how: Any) -> JournalCorrupt:
        with pytest.raises(JournalCorrupt) as caught:
            self.verify(**how)
        error = caught.value
        assert (error.journal, error.where) == ("council", self.store.where)
        assert error.what in error.message
        assert f"record {error.position} " in error.message
        return error

    def rewrite(
        self, change: Callable[[list[bytes]], None], epochs: Callable[[int], int] | None = None
    ) -> None:
        """All of the journal anew, after ``change``, with every hash and column as it must be."""
        rows = self.store.records("council")
        contents = [row.content for row in rows]
        change(contents)
        head = Head()
        with self.store.database.write() as connection:
            if self.engine == "sqlite":
                connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            connection.exec_driver_sql("DELETE FROM packet_store WHERE journal = 'council'")
            for position, content in enumerate(contents, 1):
                epoch = epochs(position) if epochs else rows[min(position, len(rows)) - 1].epoch
                hashed = content_hash(content)
                own = row_hash(head.row_hash, position, epoch, hashed)
                place = Place("council", position, epoch, head.row_hash, own)
                row = row_of(content)
                insert_values(connection, [values(self.engine, row, hashed, place)])
                head = Head(position, own)


@pytest.fixture
def kept(store: PacketStore, address: str, engine: str) -> Iterator[Kept]:
    """Two epochs of records, and two more that wrote nothing; the triggers are gone, as an attacker sees to.

    But for those that make PostgreSQL's column, and in SQLite take a packet's words away with it.
    """
    made = packets()
    first, head = store.begin_epoch("council", "me")
    head = append(store, "council", first, made[:6], head)
    second, _ = store.begin_epoch("council", "me")
    head = append(store, "council", second, made[6:8], head)
    met = verify(store, "council")
    checkpoint = signed(met)
    append(store, "council", second, made[8:], head)
    for _ in range(2):
        store.begin_epoch("council", "me")
    append(store, "other", store.begin_epoch("other", "me")[0], [whole(200)], Head())
    store.write([given(100, ttl=NOW + timedelta(days=36_500))], NOW)
    connection = raw(address)
    if engine == "sqlite":
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in names:
            if name != "packet_store_removed":
                connection.execute(f"DROP TRIGGER {name}")
        connection.execute("PRAGMA ignore_check_constraints = ON")
    else:
        connection.execute("ALTER TABLE packet_store DISABLE TRIGGER ALL")
        connection.execute("ALTER TABLE packet_store ENABLE ALWAYS TRIGGER packet_store_written")
        connection.execute("ALTER TABLE epochs DISABLE TRIGGER ALL")
        connection.execute("ALTER TABLE packet_store DROP CONSTRAINT placed")
    yield Kept(store, address, engine, connection, checkpoint, verify(store, "council"))
    connection.close()


def signed(
    found: Verified, signer: Signer = SIGNER, council_id: str = "council.1", **more: Any
) -> Checkpoint:
    facts: dict[str, Any] = {"journal": found.journal, "epoch": found.epoch, "head": found.head}
    return signer.sign(**facts | more, council_id=council_id, tree_root=found.tree_root, at=NOW)


# What holds


def test_a_journal_that_holds(kept: Kept) -> None:
    found = kept.at_end
    last = kept.store.records("council")[-1]
    assert (found.rows, found.head, found.epoch) == (ROWS, Head(ROWS, last.row_hash), 4)
    assert (found.checkpoint, found.after) == (None, ROWS)
    against = kept.verify(checkpoint=kept.checkpoint, key=SIGNER.public, council_id="council.1")
    assert (against.checkpoint, against.after, against.tree_root) == (kept.checkpoint, 4, found.tree_root)


@on_both
def test_what_a_council_writes_holds(store: PacketStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is read fast: for none of its records a packet is built, which would take minutes for a million."""
    hand, _ = life()
    fill(store, hand.records)
    monkeypatch.setattr("council.protocol.packet.PacketEnvelope", None)
    assert verify(store, NAME).rows == len(hand.records) > 30


def test_it_is_read_only_and_says_how_far_it_is(kept: Kept, opened: Open) -> None:
    told: list[tuple[int, int]] = []
    reader = opened(kept.address, read_only=True)
    assert verify(reader, "council", progress=lambda *now: told.append(now)).rows == ROWS
    assert told == [(ROWS, ROWS)]


def test_it_sees_one_moment_while_the_council_writes(address: str, opened: Open) -> None:
    writer, reader = opened(address, timeout_s=HANG_S), opened(address, read_only=True, timeout_s=HANG_S)
    epoch, start = writer.begin_epoch("council", "me")
    over, written = threading.Event(), threading.Event()

    def write() -> None:
        head = start
        while not over.is_set():
            head = append(writer, "council", epoch, several(head.position + 1, 20), head)
            written.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert written.wait(HANG_S)
        seen = [verify(reader, "council").rows]
        while len(seen) < 10 or seen[-1] == seen[0]:  # as long as the machine takes to write in between
            assert thread.is_alive()
            seen.append(verify(reader, "council").rows)
    finally:
        over.set()
        thread.join(HANG_S)
    assert seen == sorted(seen)
    assert all(rows % 20 == 0 for rows in seen)


def test_an_empty_journal_and_none(store: PacketStore) -> None:
    store.begin_epoch("other", "me")
    found = verify(store, "other")
    assert (found.rows, found.head, found.epoch) == (0, Head(), 1)
    assert verify(store, "other", checkpoint=signed(found)).after == 0
    with pytest.raises(CallerError, match="surrogate"):
        verify(store, "\ud800")
    with pytest.raises(CallerError, match=r"has no journal 'council'.*'other'"):
        verify(store, "council")


@only_sqlite
def test_old_parents_are_read_again(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: a memory that forgets and does not look takes the oldest parents for forged."""
    monkeypatch.setattr(module, "LINEAGES_KEPT", 1)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 3)
    assert kept.verify() == kept.at_end


# What was changed


def literal(engine: str, *ids: str) -> str:
    return json.dumps(ids) if engine == "sqlite" else "{" + ",".join(ids) + "}"


COLUMNS: list[tuple[str, Any]] = [
    ("packet_id", UNKNOWN),
    ("packet_type", "x"),
    ("timestamp", "2026-11-21T12:00:00.000001Z"),
    ("routing", '{"agent":"prime"}'),
    ("routing", '{"agent":"prime","domain":"law","more":1}'),
    ("routing", None),
    ("provenance", '{"source":"client"}'),
    ("provenance", None),
    ("provenance", "null"),
    ("thread_id", UNKNOWN),
    ("thread_id", None),
    ("parent_ids", ()),
    ("parent_ids", ("00000000-0000-0000-0000-000000000002", "00000000-0000-0000-0000-000000000003")),
    ("tags", ()),
    ("tags", ("a",)),
    ("tags", ("b", "a")),
    ("ttl", "2100-01-01T00:00:00.000000Z"),
]


def test_a_column_that_is_edited(kept: Kept) -> None:
    """Mutation: a column that is not compared can say what the packet does not, and searches go by columns."""
    of = {
        "packet_id": "uuid",
        "thread_id": "uuid",
        "parent_ids": "uuid[]",
        "tags": "text[]",
        "ttl": "timestamp",
    }
    of |= {"timestamp": "timestamptz", "routing": "jsonb", "provenance": "jsonb"}
    kept.sql("CREATE TEMPORARY TABLE sound AS SELECT * FROM packet_store WHERE position = 4")
    found: dict[tuple[str, Any], tuple[int, str]] = {}
    for column, value in COLUMNS:
        text = literal(kept.engine, *value) if isinstance(value, tuple) else value
        cast = f"::{of[column]}" if kept.engine == "postgresql" and column in of else ""
        kept.sql(f"UPDATE packet_store SET {column} = ?{cast} WHERE position = 4", text)
        with suppress(pytest.fail.Exception):
            error = kept.bad()
            found[column, value] = (error.position, error.what)
        kept.sql(f"UPDATE packet_store SET {column} = (SELECT {column} FROM sound) WHERE position = 4")
    assert found == {
        (column, value): (4, f"its column {column} does not say what its content says")
        for column, value in COLUMNS
    }
    assert kept.verify() == kept.at_end


@only_sqlite
def test_a_key_that_stands_twice_in_a_column(kept: Kept) -> None:
    """JSONB holds each key once."""
    kept.sql(
        "UPDATE packet_store SET routing = ? WHERE position = 4",
        '{"agent":"lite","agent":"prime","domain":"law"}',
    )
    assert kept.bad().what == "its column routing does not say what its content says"


@only_sqlite
def test_a_column_of_bytes_that_are_no_text(kept: Kept) -> None:
    """The driver would refuse the row, and all that were fetched with it, and not say which it was.

    PostgreSQL looks at its texts itself.
    """
    for column in ("packet_type", "tags", "routing", "provenance"):
        kept.sql(f"UPDATE packet_store SET {column} = CAST(x'22ff22' AS TEXT) WHERE position = 4")
        assert (kept.bad().position, kept.bad().what[:11]) == (4, "its column ")
        assert kept.store.info().packets == ROWS + 2  # on the same connection


def test_the_searchable_envelope_that_is_edited(kept: Kept, opened: Open) -> None:
    """Lineage and other programs read this column; in SQLite its definition has to be changed for that."""
    if kept.engine == "postgresql":
        edit = "jsonb_set(envelope, '{payload,of,3}', '1')"  # true, and 1, which some take for equal
        kept.sql(f"UPDATE packet_store SET envelope = {edit} WHERE position = 8")
        assert kept.bad().position == 8
    else:
        kept.sql("PRAGMA writable_schema = ON")
        kept.sql("UPDATE sqlite_master SET sql = replace(sql, 'CAST(content AS TEXT)', '''{}''')")
        kept.store = opened(kept.address, read_only=True)
        assert kept.bad().position == 1
    assert "envelope" in kept.bad().what


def edited(kept: Kept, position: int) -> bytes:
    content = kept.store.records("council", position - 1, 1)[0].content
    found = content.replace(b'{"n":%d}' % position, b'{"n":999}')
    assert found != content
    return found


def test_content_that_is_edited_with_more_and_more_of_its_hashes(kept: Kept) -> None:
    """Each step needs one more hash; the last leaves it to the next record to tell."""
    content = edited(kept, 4)
    kept.sql("UPDATE packet_store SET content = ? WHERE position = 4", content)
    assert (kept.bad().position, kept.bad().what[:30]) == (4, "its content does not fit its c")
    kept.sql("UPDATE packet_store SET content_hash = ? WHERE position = 4", content_hash(content))
    assert (kept.bad().position, kept.bad().what[:12]) == (4, "its row_hash")
    row = kept.store.records("council", 3, 1)[0]
    own = row_hash(row.previous_hash, 4, row.epoch, content_hash(content))
    kept.sql("UPDATE packet_store SET row_hash = ? WHERE position = 4", own)
    if kept.engine == "postgresql":
        assert "envelope" in kept.bad().what
        kept.sql("UPDATE packet_store SET envelope = convert_from(content, 'UTF8')::jsonb WHERE position = 4")
    assert (kept.bad().position, kept.bad().what[:17]) == (5, "its previous_hash")


@pytest.mark.parametrize(
    ("change", "position", "told"),
    [
        ("DELETE FROM packet_store WHERE position = 1", 1, "removed or moved: record '2'"),
        ("DELETE FROM packet_store WHERE position = 5", 5, "removed or moved: record '6'"),
        ("DELETE FROM packet_store WHERE position IN (5, 6, 7)", 5, "removed or moved: record '8'"),
        ("UPDATE packet_store SET journal = 'other' WHERE position = 5", 5, "removed or moved: record '6'"),
        ("UPDATE packet_store SET journal = NULL WHERE position = 5", 5, "removed or moved: record '6'"),
        ("UPDATE packet_store SET position = 99 WHERE position = 5", 5, "record '99' is in its place"),
        ("UPDATE packet_store SET position = 0 WHERE position = 1", 1, "record '0' is in its place"),
        ("UPDATE packet_store SET position = NULL WHERE position = 4", 4, "record 'None' is in its place"),
        ("UPDATE packet_store SET epoch = 1 WHERE position = 8", 8, "its epoch is 1, after one of epoch 2"),
        ("UPDATE packet_store SET epoch = 9 WHERE position = 8", 8, "9', which was never begun"),
        ("UPDATE packet_store SET epoch = 2 WHERE position = 6", 6, "row_hash"),
        ("DELETE FROM epochs WHERE epoch = 1", 1, "1', which was never begun"),
        ("DELETE FROM epochs WHERE epoch = 3", 13, "epoch 3 was removed from those begun"),
        ("UPDATE epochs SET epoch = 7 WHERE epoch = 4", 13, "epoch 4 was removed from those begun"),
    ],
)
@only_sqlite
def test_what_is_lost_or_moved(kept: Kept, change: str, position: int, told: str) -> None:
    kept.sql(change)
    error = kept.bad()
    assert (error.position, told in error.what) == (position, True), error.what


@only_sqlite
def test_two_that_are_swapped(kept: Kept) -> None:
    for place in ((4, -1), (5, 4), (-1, 5)):
        kept.sql("UPDATE packet_store SET position = ? WHERE position = ?", place[1], place[0])
    assert kept.bad().position == 4
    assert "moved" in kept.bad().what


def test_two_that_are_swapped_in_all_but_their_place(kept: Kept) -> None:
    """Place, sequence and epoch stay; packets, columns and content change over."""
    names = [
        "packet_id",
        "packet_type",
        "routing",
        "provenance",
        "thread_id",
        "parent_ids",
        "tags",
        "content",
    ]
    names += ["content_hash"] + (["envelope"] if kept.engine == "postgresql" else [])
    kept.sql("UPDATE packet_store SET packet_id = ? WHERE position = 12", UNKNOWN)
    columns = ", ".join(f"{name} = other.{name}" for name in names if name != "packet_id")
    kept.sql(
        f"UPDATE packet_store SET {columns} FROM packet_store AS other "
        "WHERE packet_store.position = 12 AND other.position = 11"
    )
    assert kept.bad().position == 12
    assert "row_hash" in kept.bad().what


def test_one_that_is_put_in(kept: Kept) -> None:
    """Those behind it make room; in the order of the hashes, or in that of writing, it does not fit."""
    kept.sql("UPDATE packet_store SET position = position + 1000 WHERE position >= 5")
    kept.sql("UPDATE packet_store SET position = position - 999 WHERE position > 1000")
    content = whole(50).canonical()
    row = kept.store.records("council", 3, 1)[0]
    own = row_hash(row.row_hash, 5, 1, content_hash(content))
    place = Place("council", 5, 1, row.row_hash, own)
    with kept.store.database.write() as connection:
        made = values(kept.engine, row_of(content), content_hash(content), place)
        insert_values(connection, [made])
    assert kept.bad().position == 5
    assert "moved" in kept.bad().what
    if kept.engine == "sqlite":  # the sequence too: then the next record does not hold on to it
        kept.sql("UPDATE packet_store SET sequence = -sequence WHERE position > 5")
        kept.sql("UPDATE packet_store SET sequence = 1000 WHERE position = 5")
        kept.sql("UPDATE packet_store SET sequence = 1000 - sequence WHERE position > 5")
        assert kept.bad().position == 6
        assert "previous_hash" in kept.bad().what


@only_postgresql
def test_one_that_stands_twice(kept: Kept) -> None:
    """Where the constraint was dropped with the triggers; in SQLite it goes with the table alone."""
    kept.sql("ALTER TABLE packet_store DROP CONSTRAINT packet_store_place")
    kept.sql("UPDATE packet_store SET position = 4 WHERE position = 5")
    assert kept.bad().position == 5
    assert "record '4'" in kept.bad().what


@only_sqlite
def test_one_that_is_mended_again(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: a cursor that the error of the first reading keeps open shows the second what was there before."""
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 2)
    kept.sql("UPDATE packet_store SET packet_type = 'x' WHERE position = 4")
    error = kept.bad()
    kept.sql("UPDATE packet_store SET packet_type = 'event' WHERE position = 4")
    assert kept.verify() == kept.at_end
    assert error.position == 4


# What was made anew, with every hash as it must be


def with_lineage(position: int, **lineage: Any) -> Callable[[list[bytes]], None]:
    def change(contents: list[bytes]) -> None:
        found = json.loads(contents[position - 1])
        found["lineage"] = found.get("lineage", {}) | lineage
        contents[position - 1] = json.dumps(
            found, ensure_ascii=False, sort_keys=True, separators=(",", ":")
        ).encode()

    return change


def uuid(number: int) -> str:
    return str(UUID(int=number))


@pytest.mark.parametrize(
    ("lineage", "told"),
    [
        ({"generation": 1}, "generation 1, its parents make it 2"),
        ({"root_packet_id": uuid(2)}, "root 00000000-0000-0000-0000-000000000002, its parents make it"),
        ({"parent_ids": [UNKNOWN]}, "is not before it"),
        ({"parent_ids": [uuid(6)], "generation": 4}, "is not before it"),
        ({"parent_ids": [uuid(4)], "generation": 2}, "is not before it"),
        ({"parent_ids": [uuid(100)], "generation": 1}, "is not before it"),
        ({"parent_ids": [uuid(200)], "generation": 1}, "is not before it"),
        ({"parent_ids": [uuid(2), uuid(2)]}, "a parent twice"),
        ({"parent_ids": [uuid(1)]}, "generation 2, its parents make it 1"),
    ],
)
@only_sqlite
def test_a_lineage_that_is_forged(kept: Kept, lineage: dict[str, Any], told: str) -> None:
    """Parents that are not there, stand behind, are itself, or outside of the journal; what does not follow."""
    kept.rewrite(with_lineage(4, **lineage))
    error = kept.bad()
    assert (error.position, told in error.what) == (4, True), error.what


@only_sqlite
def test_a_lineage_that_was_never_completed(kept: Kept) -> None:
    def change(contents: list[bytes]) -> None:
        contents[3] = contents[3].replace(b'"generation":2,', b"")

    kept.rewrite(change)
    assert "generation None, its parents make it 2" in kept.bad().what


NOT_CANONICAL = [
    (b'{"n":4}', b'{"n": 4}'),
    (b'{"n":4}', b'{"n":4,"n":4}'),
    (b'{"n":4}', b'{"n":4,"m":1}'),
    (b'{"n":4}', b'{"n":"\\u0041"}'),
    (b'{"n":4}', b'{"n":-0.0}'),
    (b'{"n":4}', b'{"n":1E2}'),
    (b'{"n":4}', b'{"n":0.00001}'),
    (b'{"n":4}', b'{"n":0.10}'),
    (b'"score":0.5', b'"score":1'),
    (b'"tags":["a","b"]', b'"tags":["a","b"],"ttl":null'),
    (b'12:00:00Z"', b'12:00:00+00:00"'),
    (b'12:00:00Z"', b'12:00:00.000000Z"'),
    (b'"thread_id":"00000000-', b'"thread_id":"0000000000000000-'),
    (b'"metadata":{', b'"metadata":{"reasoning_mode":null,'),
    (b'{"n":4}', b"[]"),
    (b'{"n":4}', b'{"n":4},"unknown":1'),
    (b'{"n":4}', b"{"),
]


@only_sqlite
def test_content_that_is_not_canonical(kept: Kept) -> None:
    """What would be hashed otherwise, were it written by us; each reading of it is asked of the packet itself."""
    row = kept.store.records("council", 3, 1)[0]
    contents = [row.content.replace(old, new) for old, new in NOT_CANONICAL]
    assert row.content not in contents
    for wrong in [*contents, b"", b"\xff\xfe", b"null", b"[" * 5_000, b'{"payload":' * 2_000]:
        with pytest.raises(EnvelopeError):
            read_packet(wrong)
        own = row_hash(row.previous_hash, 4, 1, content_hash(wrong))
        change = "UPDATE packet_store SET content = ?, content_hash = ?, row_hash = ? WHERE position = 4"
        kept.sql(change, wrong, content_hash(wrong), own)
        error = kept.bad()
        assert (error.position, "canonical form" in error.what) == (4, True), wrong


@only_sqlite
def test_a_ttl_in_a_journal(kept: Kept) -> None:
    def change(contents: list[bytes]) -> None:
        contents[3] = contents[3][:-1] + b',"ttl":"2100-01-01T00:00:00Z"}'

    kept.rewrite(change)
    assert (kept.bad().position, "ttl" in kept.bad().what) == (4, True)


@only_sqlite
def test_an_epoch_that_comes_back(kept: Kept) -> None:
    """A writer that was fenced and wrote all the same, with every hash right."""
    kept.rewrite(lambda contents: None, lambda position: 1 if position == 10 else 2 if position > 6 else 1)
    assert (kept.bad().position, "a newer one fences it" in kept.bad().what) == (10, True)


# What only a checkpoint shows


@only_sqlite
def test_a_journal_that_is_cut(kept: Kept) -> None:
    """Without a checkpoint the end of a journal may be gone: that is said in the documents, and shown here."""
    kept.sql("DELETE FROM packet_store WHERE position > 8")
    assert kept.verify().rows == 8
    assert kept.verify(checkpoint=kept.checkpoint).after == 0
    kept.sql("DELETE FROM packet_store WHERE position > 6")
    assert kept.verify().rows == 6
    error = kept.bad(checkpoint=kept.checkpoint)
    assert (error.position, "its end was cut off" in error.what) == (7, True)
    kept.sql("DELETE FROM packet_store WHERE journal = 'council'")
    kept.sql("DELETE FROM epochs")
    assert kept.bad(checkpoint=kept.checkpoint).position == 1


@only_sqlite
def test_a_journal_that_is_made_anew(kept: Kept) -> None:
    def change(contents: list[bytes]) -> None:
        contents[4] = contents[4].replace(b'{"n":5}', b'{"n":500}')

    kept.rewrite(change)
    assert kept.verify().rows == ROWS
    error = kept.bad(checkpoint=kept.checkpoint)
    assert (error.position, "replaced" in error.what) == (8, True)


@only_sqlite
def test_what_is_made_anew_behind_the_checkpoint_is_not_found(kept: Kept) -> None:
    def change(contents: list[bytes]) -> None:
        contents[9] = contents[9].replace(b'{"n":10}', b'{"n":11}')

    kept.rewrite(change)
    assert kept.verify(checkpoint=kept.checkpoint).after == 4
    assert kept.bad(checkpoint=signed(kept.at_end)).position == ROWS


@only_sqlite
def test_a_root_alone_that_differs(kept: Kept) -> None:
    """Mutation: comparing the row's hash alone leaves proofs under a root that is not the journal's."""
    head = Head(kept.checkpoint.position, kept.checkpoint.row_hash)
    facts: dict[str, Any] = {"journal": "council", "council_id": "council.1", "epoch": 2, "at": NOW}
    other = SIGNER.sign(**facts, head=head, tree_root=b"x" * 32)
    assert kept.bad(checkpoint=other).position == 8


@only_sqlite
def test_an_epoch_that_the_checkpoint_has_fenced(kept: Kept) -> None:
    """Signed in epoch 3, and yet epoch 2 wrote on; or in one that is no longer among those begun."""
    met = Verified("council", "", 8, Head(8, kept.checkpoint.row_hash), kept.checkpoint.tree_root, 3)
    error = kept.bad(checkpoint=signed(met))
    assert (error.position, "a newer one fences it" in error.what) == (9, True)
    assert "was never begun" in kept.bad(checkpoint=signed(met, epoch=5)).what
    assert "it is of epoch 2, the checkpoint of 1" in kept.bad(checkpoint=signed(met, epoch=1)).what


@only_sqlite
def test_a_checkpoint_that_is_forged_or_of_another(kept: Kept) -> None:
    forged = signed(kept.at_end, Signer(b"f" * 32))
    assert kept.verify(checkpoint=forged).rows == ROWS  # by a key that nobody knows
    for checkpoint, how, told in (
        (forged, {"key": SIGNER.public}, "forged"),
        (signed(kept.at_end, journal="other"), {}, "is of the journal 'other', and 'council'"),
        (signed(kept.at_end), {"council_id": "council.2"}, "is of the council 'council.1'"),
        (Checkpoint.of(forged.document() | {"position": 1}), {}, "changed, or forged"),
    ):
        with pytest.raises(CheckpointRefused, match=re.escape(told)):
            kept.verify(checkpoint=checkpoint, **how)


# Anything at all


@only_sqlite
def test_no_byte_of_a_record_can_be_changed(kept: Kept) -> None:
    """One random bit in one random column that is hashed, 60 times, each put back: found, and named."""
    chance = random.Random(5)
    for _ in range(60):
        position = chance.randint(1, ROWS)
        column = chance.choice(["content", "content_hash", "previous_hash", "row_hash"])
        row = kept.store.records("council", position - 1, 1)[0]
        was = getattr(row, column)
        now = bytearray(was)
        now[chance.randrange(len(now))] ^= 1 << chance.randrange(8)
        change = f"UPDATE packet_store SET {column} = ? WHERE position = {position}"
        kept.sql(change, bytes(now))
        assert kept.bad().position == position
        kept.sql(change, was)
    assert kept.verify() == kept.at_end
