"""The council's own packets: a chain that only the newest epoch lengthens, that nobody changes (rules 4.1, 4.5-6)."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from council.journal.chain import GENESIS, Head, JournalRow
from council.journal.store import PacketStore
from council.journal.verify import verify
from council.protocol.errors import (
    CallerError,
    EpochFenced,
    JournalCorrupt,
    OutOfOrder,
    PacketConflict,
    StoreError,
    StoreLocked,
)
from tests.patience import HANG_S, until

from .conftest import on_both, only_sqlite, raw
from .packets import HOUR, NOW, append, given, several, whole
from .writing import unguarded

Open = Callable[..., PacketStore]


def test_rows_hold_on_to_each_other(store: PacketStore) -> None:
    """The hashes are computed here a second time, from the bytes that the rules name."""
    first, head = store.begin_epoch("council", "me")
    assert (first, head) == (1, Head(0, bytes(32)))
    head = append(store, "council", 1, several(1, 3), head)
    second, found = store.begin_epoch("council", "me again")
    assert (second, found) == (2, head)
    head = append(store, "council", 2, several(4, 2), head)
    rows = store.records("council")
    assert [(row.position, row.epoch) for row in rows] == [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)]
    previous = GENESIS
    for number, row in enumerate(rows, 1):
        content = whole(number).canonical()
        place = number.to_bytes(8, "big") + row.epoch.to_bytes(8, "big")
        content_hash = hashlib.sha256(content).digest()
        assert (row.content, row.content_hash, row.previous_hash) == (content, content_hash, previous)
        previous = hashlib.sha256(previous + place + content_hash).digest()
        assert row.row_hash == previous
    assert head == Head(5, previous)
    assert [row.position for row in store.records("council", after=2, limit=2)] == [3, 4]
    assert store.records("another") == []
    assert store.get(UUID(int=4), NOW) == whole(4)


def test_no_epoch_is_begun_over_one_that_never_was(store: PacketStore, address: str) -> None:
    """Who wrote a record was removed: a new epoch 1 would put itself in its place, and verify find nothing."""
    epoch, head = store.begin_epoch("council", "me")
    append(store, "council", epoch, several(1, 2), head)
    assert store.begin_epoch("council", "again")[0] == 2
    unguarded(address, "DELETE FROM epochs WHERE epoch = 2")  # nothing was written in it
    assert store.begin_epoch("council", "again")[0] == 2
    unguarded(address, "DELETE FROM epochs")
    for _ in range(2):
        with pytest.raises(
            JournalCorrupt, match="ends at record 2, of epoch 1, which was never begun"
        ) as found:
            store.begin_epoch("council", "me")
        assert found.value.position == 2
        with pytest.raises(JournalCorrupt, match="its epoch is '1', which was never begun"):
            verify(store, "council")


def test_an_older_epoch_is_fenced(address: str, opened: Open) -> None:
    """Mutation: without the check the stopped coordinator that wakes after a take-over writes on."""
    old, new = opened(address), opened(address)
    epoch, head = old.begin_epoch("council", "old")
    head = append(old, "council", epoch, several(1, 2), head)
    newer, taken = new.begin_epoch("council", "new")
    assert taken == head
    with pytest.raises(EpochFenced) as caught:
        append(old, "council", epoch, several(3, 1), head)
    assert (caught.value.epoch, caught.value.newest, caught.value.journal) == (1, 2, "council")
    append(new, "council", newer, several(5, 1), taken)
    with pytest.raises(EpochFenced):
        append(old, "council", epoch, several(1, 2), Head())  # also what it has written before
    assert [row.epoch for row in new.records("council")] == [1, 1, 2]


@only_sqlite
def test_an_epoch_that_nobody_began_is_none(store: PacketStore) -> None:
    with pytest.raises(CallerError, match="has no epoch 1"):
        append(store, "council", 1, several(1, 1), Head())


@pytest.mark.parametrize("after", [Head(), Head(1, GENESIS), Head(2, b"x" * 32), Head(3, GENESIS)])
def test_what_does_not_follow_the_head_is_refused(store: PacketStore, after: Head) -> None:
    epoch, head = store.begin_epoch("council", "me")
    append(store, "council", epoch, several(1, 2), head)
    with pytest.raises(OutOfOrder) as caught:
        append(store, "council", epoch, several(7, 1), after)
    assert (caught.value.expected, caught.value.found) == (after.position, 2)
    assert len(store.records("council")) == 2


def test_the_same_again_because_the_answer_was_lost(store: PacketStore) -> None:
    """Mutation: a coordinator whose connection broke in a commit could not tell whether it was kept."""
    epoch, start = store.begin_epoch("council", "me")
    head = append(store, "council", epoch, several(1, 3), start)
    assert append(store, "council", epoch, several(1, 3), start) == head
    with pytest.raises(OutOfOrder):
        append(store, "council", epoch, several(1, 2), start)
    with pytest.raises(OutOfOrder):
        append(store, "council", epoch, [*several(1, 2), whole(9)], start)
    assert append(store, "council", epoch, [], head) == head
    assert len(store.records("council")) == 3


def test_all_or_none_is_kept(store: PacketStore) -> None:
    epoch, head = store.begin_epoch("council", "me")
    store.write([given(3)], NOW)
    for wrong, error in (
        ([*several(1, 2), whole(3)], PacketConflict),
        ([*several(1, 2), whole(1)], PacketConflict),
        ([*several(1, 2), whole(4, ttl=NOW + HOUR)], StoreError),
    ):
        with pytest.raises(error):
            append(store, "council", epoch, wrong, head)
        assert store.records("council") == []
    with pytest.raises(PacketConflict) as caught:
        append(store, "council", epoch, [whole(3)], head)
    assert caught.value.packet_id == UUID(int=3)


@only_sqlite
def test_a_name_that_cannot_be_kept_is_refused(store: PacketStore) -> None:
    for name in ("", "x" * 201, "a\0b"):
        for journal, by in ((name, "me"), ("council", name)):
            with pytest.raises(CallerError, match="1 to 200"):
                store.begin_epoch(journal, by)


@on_both
def test_one_takes_over_while_the_other_writes(address: str, opened: Open) -> None:
    """Whatever the old one was told is kept stands below what the new one was told it begins at."""
    old = opened(address, timeout_s=HANG_S)
    new = opened(address, timeout_s=HANG_S)
    epoch, start = old.begin_epoch("council", "old")
    told: list[Head] = [start]
    fenced, over = threading.Event(), threading.Event()

    def write() -> None:
        number = 1
        while not over.is_set():
            try:
                told.append(append(old, "council", epoch, several(number, 2), told[-1]))
            except EpochFenced:
                fenced.set()
                return
            number += 2

    thread = threading.Thread(target=write)
    thread.start()
    try:
        until(lambda: len(told) >= 20 or not thread.is_alive())
        newer, head = new.begin_epoch("council", "new")
        fenced.wait(HANG_S)
    finally:
        over.set()  # or it would write on, were the test to fail
        thread.join(HANG_S)
    assert fenced.is_set()
    assert head == told[-1]
    append(new, "council", newer, several(100_001, 1), head)
    assert [row.position for row in every(new)] == list(range(1, head.position + 2))


def every(store: PacketStore) -> list[JournalRow]:
    """All that is in the journal, however much was written before somebody came round to ending it."""
    rows: list[JournalRow] = []
    while page := store.records("council", len(rows)):
        rows += page
    return rows


# Nobody changes it, whoever asks


CHANGES = [
    "UPDATE packet_store SET packet_type = 'x' WHERE journal IS NOT NULL",
    "UPDATE packet_store SET tags = tags WHERE journal IS NULL",
    "UPDATE packet_store SET ttl = NULL WHERE ttl IS NOT NULL",
    "DELETE FROM packet_store WHERE journal IS NOT NULL",
    "DELETE FROM packet_store WHERE ttl IS NULL AND journal IS NULL",
    "DELETE FROM packet_store WHERE ttl > '2100-01-01'",
    "DELETE FROM packet_store",
    "UPDATE epochs SET epoch = 7",
    "DELETE FROM epochs",
    'INSERT INTO epochs SELECT journal, epoch + 5, begun_at, "by" FROM epochs',
]
OF_SQLITE = [
    "REPLACE INTO packet_store (packet_id, packet_type, timestamp, parent_ids, tags, content, content_hash) "
    "SELECT packet_id, 'x', timestamp, parent_ids, tags, content, content_hash FROM packet_store",
    "REPLACE INTO packet_store (sequence, packet_id, packet_type, timestamp, parent_ids, tags, content, "
    "content_hash) SELECT sequence, hex(randomblob(18)), 'x', timestamp, parent_ids, tags, content, content_hash "
    "FROM packet_store",
    "REPLACE INTO packet_store (packet_id, packet_type, timestamp, parent_ids, tags, content, content_hash, journal, "
    "position, epoch, previous_hash, row_hash) SELECT hex(randomblob(18)), 'x', timestamp, parent_ids, tags, "
    "content, content_hash, journal, position, epoch, previous_hash, row_hash FROM packet_store WHERE position = 1",
    "INSERT INTO packet_store (packet_id, packet_type, timestamp, parent_ids, tags, content, content_hash) "
    "SELECT packet_id, 'x', timestamp, parent_ids, tags, content, content_hash FROM packet_store WHERE true "
    "ON CONFLICT DO UPDATE SET packet_type = 'x'",
    "REPLACE INTO epochs SELECT journal, epoch, begun_at, 'x' FROM epochs",
    "UPDATE packet_words SET word = 'x'",
    "DELETE FROM packet_words",
    "UPDATE words_entered SET upto = upto + 100",
    "DELETE FROM words_entered",
    "REPLACE INTO words_entered VALUES (1, 100)",
]
OF_POSTGRESQL = [
    "TRUNCATE packet_store",
    "TRUNCATE epochs CASCADE",
    "SET session_replication_role = replica; DELETE FROM packet_store WHERE journal IS NOT NULL",
    "SET session_replication_role = replica; UPDATE packet_store SET packet_type = 'x'",
    "INSERT INTO packet_store (packet_id, packet_type, timestamp, parent_ids, tags, content, content_hash) "
    "SELECT packet_id, 'x', timestamp, parent_ids, tags, content, content_hash FROM packet_store "
    "ON CONFLICT (packet_id) DO UPDATE SET packet_type = 'x'",
]


@on_both
def test_raw_sql_changes_nothing(store: PacketStore, address: str, engine: str) -> None:
    """Mutation: any of the migration's triggers left out lets one of these through."""
    epoch, head = store.begin_epoch("council", "me")
    append(store, "council", epoch, [whole(1, tags=["a"]), whole(2, UUID(int=1))], head)
    store.write([given(3, tags=["b"]), given(4, ttl=NOW.replace(year=9000))], NOW)
    before = dump(address)
    assert len(before) == 2
    assert [len(table) for table in before] == [4, 1]
    for statement in CHANGES + (OF_SQLITE if engine == "sqlite" else OF_POSTGRESQL):
        connection = raw(address)
        try:
            with pytest.raises(Exception, match=r"never|only|follows|goes with|UNIQUE|requires|cannot"):
                connection.execute(statement)
        finally:
            connection.close()
        assert dump(address) == before, statement


def dump(address: str) -> list[list[tuple[object, ...]]]:
    connection = raw(address)
    try:
        return [
            sorted(tuple(map(str, row)) for row in connection.execute(f"SELECT * FROM {table}").fetchall())
            for table in ("packet_store", "epochs")
        ]
    finally:
        connection.close()


@pytest.mark.parametrize(
    "change",
    [
        "position = NULL",
        "position = 0",
        "row_hash = NULL",
        "ttl = timestamp",
        "epoch = 9",
        "content_hash = row_hash",
    ],
)
def test_a_row_that_is_half_in_a_journal_cannot_be_written(
    store: PacketStore, address: str, engine: str, change: str
) -> None:
    """The row itself is whole but for one column: each CHECK and the foreign key is asked alone."""
    epoch, head = store.begin_epoch("council", "me")
    append(store, "council", epoch, several(1, 1), head)
    new_id = "'00000000-0000-0000-0000-000000000009'"
    columns = {
        name: name
        for name in ("packet_type", "timestamp", "parent_ids", "tags", "content", "content_hash", "journal")
    } | {
        "epoch": "epoch",
        "previous_hash": "previous_hash",
        "row_hash": "row_hash",
        "packet_id": new_id if engine == "sqlite" else f"{new_id}::uuid",
        "position": "position + 1",
        "ttl": "NULL",
    }
    name, value = change.split(" = ")
    right = f"INSERT INTO packet_store ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM packet_store"
    columns[name] = "substr(row_hash, 1, 31)" if name == "content_hash" else value
    wrong = f"INSERT INTO packet_store ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM packet_store"
    connection = raw(address)
    if engine == "sqlite":
        connection.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(Exception, match=r"(?i)constraint"):
        connection.execute(wrong)
    connection.execute(right)
    connection.close()


# A process that dies in the middle

WRITER = """
import sys
from council.journal.store import PacketStore
from tests.journal.packets import append, several
store = PacketStore.open(sys.argv[1], timeout_s=300.0)
epoch, head = store.begin_epoch("council", "victim")
print("ready", flush=True)
while True:
    head = append(store, "council", epoch, several(head.position + 1, 40), head)
    print(head.position, flush=True)
"""


@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.long)])
def test_a_writer_that_is_killed_leaves_whole_transactions(address: str, opened: Open, kills: int) -> None:
    """SIGKILL at any moment: what was acknowledged is there, and no transaction is there in part."""
    chance = random.Random(11)
    opened(address)
    acknowledged = 0
    for number in range(kills):
        command = [sys.executable, "-c", WRITER, address]
        root = Path(__file__).parents[2]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=root
        ) as victim:
            assert victim.stdout is not None
            assert any(line == "ready\n" for line in victim.stdout)
            heard = [victim.stdout.readline()] if number == kills - 1 else []  # however slow the machine is
            time.sleep(chance.uniform(0.0, 0.25))
            os.kill(victim.pid, signal.SIGKILL)
            said = heard + [line for line in victim.stdout if line.endswith("\n")]
        acknowledged = max([acknowledged, *map(int, said)])
        rows = every(opened(address, timeout_s=HANG_S))
        assert len(rows) >= acknowledged
        assert len(rows) % 40 == 0
        assert [row.position for row in rows] == list(range(1, len(rows) + 1))
    assert acknowledged > 0


STOPPED = """
import sys, time
from council.journal.store import PacketStore
store = PacketStore.open(sys.argv[1])
with store.database.write("journal:council") as connection:
    print("inside", flush=True)
    time.sleep(600)
"""


def test_a_writer_that_stopped_inside_does_not_block_for_ever(
    address: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGSTOP in a transaction: others are told so in time; once it is gone they go on."""
    store = opened(address, timeout_s=0.3)
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, address], stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        try:
            assert any(line == "inside\n" for line in victim.stdout)
            os.kill(victim.pid, signal.SIGSTOP)
            with pytest.raises(StoreLocked) as caught:
                store.begin_epoch("council", "me")
            assert caught.value.timeout_s == 0.3
        finally:
            os.kill(victim.pid, signal.SIGKILL)
    assert opened(address, timeout_s=HANG_S).begin_epoch("council", "me")[0] == 1
