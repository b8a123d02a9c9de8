"""The durable journal: in order, by one writer, through trouble and back, and never with a gap (rules 4.5 to 4.7)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from council.core.state import Rules
from council.journal import checkpoint, writer
from council.journal.chain import Head, Tree
from council.journal.checkpoint import Checkpoint, Signer
from council.journal.engines import READERS
from council.journal.packets import packet_id
from council.journal.record import Record, Snapshot
from council.journal.store import PacketStore
from council.journal.verify import verify
from council.journal.writer import DurableJournal, identity
from council.protocol.errors import (
    CheckpointRefused,
    EpochFenced,
    JournalCorrupt,
    JournalHeld,
    OutOfOrder,
    StoreCorrupt,
    StoreFull,
    StoreLocked,
    StoreUnreachable,
)
from tests.journal.conftest import end_sessions
from tests.journal.journals import begun, life
from tests.journal.writing import (
    KEY,
    NAME,
    fresh,
    journal_of,
    locked,
    opened,
    recovered,
    unguarded,
    unlocked,
    whole,
    write,
)
from tests.logged import capture_logs
from tests.patience import HANG_S
from tests.runtime.harness import COUNCIL_ID, Hand, run, until

from .conftest import on_both, only_sqlite


def kept(address: str) -> list[bytes]:
    with PacketStore.open(address, read_only=True) as store:
        return [row.content for row in store.records(NAME)]


async def in_trouble(journal: DurableJournal) -> None:
    await until(lambda: journal.trouble is not None)


# In order


def test_what_comes_in_while_a_commit_runs_is_kept_in_order(address: str) -> None:
    hand, _ = life()
    with journal_of(address) as journal:

        async def scenario() -> None:
            await asyncio.gather(*(journal.append([record]) for record in hand.records))

        run(scenario())
        assert journal.head.position == len(hand.records)
        assert journal.tree.root() == rooted(address)
    with PacketStore.open(address, read_only=True) as store:
        assert verify(store, NAME).head.position == len(hand.records)
        assert identity(store, NAME) == COUNCIL_ID
    assert whole(recovered(address, hand.rules)) == whole(hand.driver)


def rooted(address: str) -> bytes:
    tree = Tree()
    with PacketStore.open(address, read_only=True) as store:
        for row in store.records(NAME):
            tree.append(row.row_hash)
    return tree.root()


def test_a_record_that_does_not_follow_is_not_kept(address: str) -> None:
    """Mutation: a gap is written, and no coordinator ever comes back from that journal."""
    hand, _ = life()
    with journal_of(address) as journal:
        write(journal, hand.records[:3])
        for wrong in (hand.records[4:6], hand.records[2:4]):
            with pytest.raises(OutOfOrder) as caught:
                write(journal, wrong)
            assert caught.value.facts["expected"] == 4
        write(journal, hand.records[3:])
    assert whole(recovered(address, hand.rules)) == whole(hand.driver)


def test_a_caller_that_stops_waiting_leaves_no_gap(address: str) -> None:
    """Closing cancels whoever waits for a commit: what was handed in is kept all the same, and what follows it."""
    hand, _ = life()
    journal, gate = opened(address), threading.Event()

    async def scenario() -> None:
        journal._executor.submit(gate.wait)  # as a snapshot or a checkpoint may run before it
        waiting = asyncio.ensure_future(asyncio.wait_for(journal.append(hand.records[:5]), HANG_S))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        gate.set()
        await journal.close(hand.records[5:])

    run(scenario())
    assert len(kept(address)) == len(hand.records)
    assert whole(recovered(address, hand.rules)) == whole(hand.driver)


@pytest.mark.parametrize("well_again", [False, True])
def test_closing_in_trouble_leaves_no_gap(tmp_path: Path, well_again: bool) -> None:
    """What could not be kept is tried once more, and followed by nothing where it is in vain; nobody is bothered.

    Mutations: the last records are written when the lock goes; the store is well again, and nobody tries.
    """
    hand, _ = life()
    address = str(tmp_path / "store.db")
    journal = opened(address, timeout_s=0.05)
    write(journal, hand.records[:3])
    other = locked(address)
    tried: list[int] = []
    free = threading.Event()
    append_rows = journal._store.append_rows

    def counted(*args: Any) -> Any:
        tried.append(len(args[2]))
        if well_again and journal._closing.is_set():
            assert free.wait(HANG_S)
        return append_rows(*args)

    journal._store.append_rows = counted  # type: ignore[method-assign]

    unheard: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        waiting = asyncio.ensure_future(asyncio.wait_for(journal.append(hand.records[3:6]), HANG_S))
        await in_trouble(journal)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        closing = asyncio.ensure_future(journal.close(hand.records[6:]))
        await until(lambda: journal._closing.is_set())
        if well_again:
            unlocked(other)
            free.set()
        await closing
        del waiting, closing
        gc.collect()
        await asyncio.sleep(0)

    run(scenario())
    if not well_again:
        unlocked(other)
        assert set(tried) == {3}, "the records behind the gap were tried"
    assert unheard == []
    assert len(kept(address)) == (len(hand.records) if well_again else 3)
    assert recovered(address, hand.rules).position == len(kept(address))
    journal.close_now()  # again: nothing


def test_an_answer_that_was_lost_is_asked_for_again(address: str) -> None:
    """The commit is done, and its answer lost with the connection: the same rows again are a retry (rules 4.6)."""
    hand, _ = life()

    class Lossy(PacketStore):
        lost = 0

        def append_rows(self, *args: Any) -> Any:
            answer = super().append_rows(*args)
            if self.lost < 2:
                self.lost += 1
                raise StoreUnreachable("the answer was lost", where=self.where)
            return answer

    journal = DurableJournal.open(Lossy.open(address, timeout_s=0.2), NAME, COUNCIL_ID, KEY)
    write(journal, hand.records)
    assert journal.trouble is None
    root = journal.tree.root()
    journal.close_now()
    assert root == rooted(address)
    assert whole(recovered(address, hand.rules)) == whole(hand.driver)


# One writer


@on_both
def test_a_second_is_refused_and_a_takeover_fences_the_first(address: str) -> None:
    hand, _ = life()
    with journal_of(address) as old:
        write(old, hand.records[:4])
        with pytest.raises(JournalHeld):
            opened(address)
        with journal_of(address, takeover=True) as new:
            assert (old.epoch, new.epoch) == (1, 2)
            with pytest.raises(EpochFenced) as caught:
                write(old, hand.records[4:5])
            assert (caught.value.facts["epoch"], caught.value.facts["newest"]) == (1, 2)
            write(new, hand.records[4:])
            with pytest.raises(EpochFenced):
                write(old, hand.records[4:5])
    assert len(kept(address)) == len(hand.records)


def test_each_that_opens_begins_an_epoch_and_knows_where_it_stands(address: str) -> None:
    hand = begun()
    with journal_of(address) as journal:
        assert (journal.epoch, journal.council_id) == (1, COUNCIL_ID)
        write(journal, hand.records)
    store = PacketStore.open(address)
    again = DurableJournal.open(store, NAME, "another.0123456789abcdef", KEY)
    assert (again.epoch, again.council_id, again.head.position) == (2, COUNCIL_ID, 1)
    again.close_now()


# Trouble, and its end


def test_a_locked_store_is_waited_for(address: str) -> None:
    hand, _ = life()
    with journal_of(address) as journal:
        write(journal, hand.records[:2])

        async def scenario() -> None:
            other = locked(address)
            with capture_logs() as logs:
                waiting = asyncio.ensure_future(asyncio.wait_for(journal.append(hand.records[2:]), HANG_S))
                await in_trouble(journal)
                assert isinstance(journal.trouble, StoreLocked)
                assert not waiting.done()
                unlocked(other)
                await waiting
            assert [entry["event"] for entry in logs] == ["journal stalled", "journal goes on"]

        run(scenario())
        assert journal.trouble is None
    assert whole(recovered(address, hand.rules)) == whole(hand.driver)


def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    hand, _ = life()
    address = str(tmp_path / "store.db")
    with journal_of(address) as journal:
        write(journal, hand.records[:2])
        database = journal._store.database

        def room(pages: int) -> None:
            with database.write() as connection:
                connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}").fetchall()

        with database.read() as connection:
            taken = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        room(taken)

        async def scenario() -> None:
            waiting = asyncio.ensure_future(asyncio.wait_for(journal.append(hand.records[2:]), HANG_S))
            await in_trouble(journal)
            assert isinstance(journal.trouble, StoreFull)
            await asyncio.to_thread(room, 2**30)
            await waiting

        run(scenario())
    assert whole(recovered(address, hand.rules)) == whole(hand.driver)


def test_a_hold_that_is_lost_meanwhile_is_told(address: str) -> None:
    """Mutation: nobody hears that a second council of the name may begin."""
    hand, _ = life()
    with journal_of(address) as journal:
        journal._hold_again = lambda: False
        journal.trouble = StoreUnreachable("away", where=address)
        with capture_logs() as logs:
            write(journal, hand.records)
        assert [entry["event"] for entry in logs] == ["journal goes on", "journal not held"]
    assert len(kept(address)) == len(hand.records)


def test_what_nobody_waits_for_and_fails_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: an error of another kind is lost with its future."""
    hand, _ = life()
    journal = opened(address)
    write(journal, hand.records[:3])

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(journal._snapshots, "keep", broken)
    monkeypatch.setattr(journal._store, "append_rows", broken)
    with capture_logs() as logs:
        journal.keep(Snapshot(3, b"", {3: (b"", b"")}))
        run(journal.close(hand.records[3:]))
    assert [(entry["event"], entry["why"]) for entry in logs] == [
        ("no snapshot", "broken"),
        ("last records not kept", "broken"),
    ]


@pytest.mark.parametrize("engine", ["postgresql"])
def test_readers_keep_no_writer_waiting(address: str) -> None:
    """Found by reading: with one pool for all, four long reads stalled the journal."""
    hand, _ = life()

    async def written(journal: DurableJournal) -> None:
        await asyncio.wait_for(journal.append(hand.records), HANG_S)

    with journal_of(address) as journal, contextlib.ExitStack() as reading:
        for _ in range(READERS):
            reading.enter_context(journal._store.database.read())
        run(written(journal))
    assert len(kept(address)) == len(hand.records)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_connections_that_a_server_ends_are_made_anew(address: str) -> None:
    hand, _ = life()
    with journal_of(address) as journal:
        write(journal, hand.records[:2])
        end_sessions(address)
        write(journal, hand.records[2:])
        assert journal.trouble is None
    assert whole(recovered(address, hand.rules)) == whole(hand.driver)


def test_a_store_that_is_away_when_a_parent_is_looked_up_is_waited_for(tmp_path: Path) -> None:
    """A ballot on what was proposed before a restart. Mutation: the look-up beside the retries ends the council."""
    hand = begun()
    proposal = hand.propose()
    hand.receive(hand.vote("prime", proposal))
    path, away = tmp_path / "store.db", tmp_path / "away.db"
    with journal_of(str(path)) as journal:
        write(journal, hand.records[:2])
    with journal_of(str(path)) as journal:

        async def scenario() -> None:
            path.rename(away)
            waiting = asyncio.ensure_future(asyncio.wait_for(journal.append(hand.records[2:]), HANG_S))
            await in_trouble(journal)
            assert isinstance(journal.trouble, StoreUnreachable)
            away.rename(path)
            await waiting

        run(scenario())
    assert len(kept(str(path))) == 3


# Checkpoints


def checked(address: str, file: Path, key: bytes = KEY, name: str = NAME) -> None:
    store = PacketStore.open(address)
    DurableJournal.open(store, name, COUNCIL_ID, key, checkpoint=file).close_now()


def test_a_checkpoint_is_written_now_and_then_and_at_the_end(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand, _ = life()
    file = tmp_path / "a.checkpoint"
    with journal_of(address, checkpoint=file) as journal:
        write(journal, hand.records[:2])
        journal.tend()
        journal._executor.submit(lambda: None).result(HANG_S)
        assert not file.exists(), "none is due yet"
        monkeypatch.setattr(checkpoint, "CHECKPOINT_S", 0.0)
        journal.tend()
        journal._executor.submit(lambda: None).result(HANG_S)
        first = Checkpoint.read(file)
        first.check(Signer(KEY).public)
        assert (first.position, first.epoch, first.council_id, first.journal) == (2, 1, COUNCIL_ID, NAME)
        written_at = file.stat().st_mtime_ns
        journal.tend()
        journal._executor.submit(lambda: None).result(HANG_S)
        assert file.stat().st_mtime_ns == written_at, "nothing new to sign"
        write(journal, hand.records[2:])
    last = Checkpoint.read(file)
    assert last.position == len(hand.records)
    assert last.tree_root == rooted(address)
    with PacketStore.open(address, read_only=True) as store:
        verify(store, NAME, checkpoint=last)
    checked(address, file)
    assert file.stat().st_mode & 0o777 == 0o600


def test_one_that_can_not_be_written_stops_nothing_and_is_written_later(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: not before something new is decided, which may be never."""
    hand, _ = life()
    (tmp_path / "a.checkpoint").mkdir()
    with pytest.raises(Exception, match=r"a\.checkpoint"):
        checked(address, tmp_path / "a.checkpoint")
    file = tmp_path / "none" / "a.checkpoint"
    monkeypatch.setattr(checkpoint, "CHECKPOINT_S", 0.0)
    with journal_of(address, checkpoint=file) as journal:
        with capture_logs() as logs:
            write(journal, hand.records)
            journal._executor.submit(journal._do_due).result(HANG_S)
        assert [entry["event"] for entry in logs] == ["no checkpoint"]
        assert str(file) in str(journal.unsigned)
        file.parent.mkdir()
        journal.tend()
        journal._executor.submit(lambda: None).result(HANG_S)
        assert Checkpoint.read(file).position == len(hand.records)
        assert journal.unsigned is None


def shorter(address: str) -> None:
    unguarded(address, "DELETE FROM packet_store WHERE position > 5")


def altered(address: str) -> None:
    unguarded(address, "UPDATE packet_store SET row_hash = content_hash WHERE position = 8")


def emptied(address: str) -> None:
    unguarded(address, "DELETE FROM packet_store")


@pytest.mark.parametrize("wrong", [shorter, altered, emptied])
@only_sqlite
def test_a_journal_that_is_not_what_its_checkpoint_says_is_refused(
    wrong: Callable[[str], None], address: str, tmp_path: Path
) -> None:
    """rules 4.5. And the epoch of whoever writes it is untouched: a refusal fences nobody."""
    hand, _ = life()
    file = tmp_path / "a.checkpoint"
    with journal_of(address, checkpoint=file) as journal:
        write(journal, hand.records[:8])
    wrong(address)
    with pytest.raises(
        CheckpointRefused, match=r"go back to a whole copy, or, to start without it, move that file away"
    ):
        checked(address, file)
    file.rename(tmp_path / "kept.checkpoint")
    with PacketStore.open(address) as store:
        assert store.info().journals[0].epoch == 1


@only_sqlite
def test_a_checkpoint_of_another_or_a_forged_one_is_refused(address: str, tmp_path: Path) -> None:
    hand, _ = life()
    file = tmp_path / "a.checkpoint"
    with journal_of(address, checkpoint=file) as journal:
        write(journal, hand.records[:8])
    found = json.loads(file.read_bytes())
    with pytest.raises(CheckpointRefused, match="another council's, or forged"):
        checked(address, file, key=b"k" * 32)
    for change in ({"position": 7}, {"council_id": "x.1"}, {"signature": "0" * 128}, {"row_hash": "0" * 64}):
        file.write_text(json.dumps(found | change, indent=1))
        with pytest.raises(CheckpointRefused):
            checked(address, file)
    with pytest.raises(CheckpointRefused, match=f"this journal's key, .*, move {file} away"):
        checked(address, file, key=b"k" * 32)
    for garbage in (b"", b"{}", b"\xff", b"[]"):
        file.write_bytes(garbage)
        with pytest.raises(CheckpointRefused, match=f"{file}: this checkpoint .* move {file} away"):
            checked(address, file)
        with pytest.raises(
            CheckpointRefused, match=f"{file}: this checkpoint .* take it from where it was kept"
        ):
            Checkpoint.read(file)
    signed = Signer(KEY).sign(
        journal=NAME,
        council_id="another.1",
        epoch=1,
        head=journal.head,
        tree_root=journal.tree.root(),
        at=Checkpoint.of(found).at,
    )
    signed.write(file)
    with pytest.raises(CheckpointRefused, match="or is a different journal: its checkpoint"):
        checked(address, file)


# Damage


@pytest.mark.parametrize(
    ("statement", "position", "says"),
    [
        ("DELETE FROM packet_store WHERE position = 4", 4, "record 5 is in its place"),
        ("UPDATE packet_store SET epoch = 2 WHERE position = 4", 4, "changed"),
        ("UPDATE packet_store SET content = {other} WHERE position = 4", 4, "changed"),
        ("UPDATE packet_store SET row_hash = content_hash WHERE position = 4", 4, "changed"),
        ("UPDATE packet_store SET previous_hash = content_hash WHERE position = 4", 4, "changed"),
        (
            "UPDATE packet_store SET position = 1009 - position WHERE position IN (4, 5);"
            "UPDATE packet_store SET position = position - 1000 WHERE position > 1000",
            4,
            "changed",
        ),
    ],
)
@only_sqlite
def test_the_first_record_that_does_not_fit_is_named_at_the_start(
    statement: str, position: int, says: str, address: str, tmp_path: Path
) -> None:
    hand, _ = life()
    file = tmp_path / "a.checkpoint"
    with journal_of(address, checkpoint=file) as journal:
        write(journal, hand.records)
    signed = file.read_bytes()
    with journal_of(address):  # an epoch more
        pass
    other = "(SELECT content FROM packet_store WHERE position = 5)"
    unguarded(address, *statement.format(other=other).split(";"))
    with pytest.raises(
        JournalCorrupt, match=rf"record {position} of journal {NAME} .*{says}.*council verify"
    ):
        recovered(address, hand.rules, checkpoint=file)
    assert file.read_bytes() == signed, "a journal that could not be read back was vouched for"


def test_an_end_that_changed_since_the_epoch_began_is_named(address: str) -> None:
    hand, _ = life()
    with journal_of(address) as journal:
        write(journal, hand.records[:4])
        end = journal.head
        for head, says in (
            (Head(5, bytes(32)), "record 5 of .*it is missing"),
            (Head(4, bytes(32)), "record 4 of .*it is not the record that the journal ended with"),
        ):
            journal.head, journal.tree = head, Tree()
            with pytest.raises(JournalCorrupt, match=says):
                journal.recover(fresh(hand.rules, journal.decided))
        journal.head = end


def test_a_record_under_another_place_is_none(address: str) -> None:
    """Also where all hashes fit, since whoever wrote it made them."""
    hand = begun()
    ids = [hand.propose() for _ in range(3)]
    with journal_of(address) as journal:
        rows = [journal._packer.packed(record) for record in hand.records]
        journal._store.append_rows(NAME, 1, [rows[0], rows[2], rows[1]], journal.head)
    with pytest.raises(StoreCorrupt, match=r"record 2 .*it says that its position is 3"):
        recovered(address, hand.rules)
    assert packet_id(COUNCIL_ID, ids[0]) == rows[1].packet_id


def test_a_journal_that_does_not_begin_with_a_start_is_none(address: str) -> None:
    hand: Hand = begun()
    hand.propose()
    record: Record = hand.records[1]
    with journal_of(address) as journal:
        journal._store.append_rows(NAME, 1, [journal._packer.packed(record)], journal.head)
    with pytest.raises((JournalCorrupt, StoreCorrupt)):
        recovered(address, Rules(("prime",), "prime"))


# Beside the way


def words(address: str) -> int:
    with PacketStore.open(address, read_only=True) as store, store.database.read() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM packet_words").scalar_one())


@only_sqlite
def test_words_are_entered_behind_the_records(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many at once, at a checkpoint's time, and at the end; a failure delays no append, and is made good later."""
    hand, _ = life()
    monkeypatch.setattr(writer, "ENTER_AT", 5)
    journal = opened(address)

    def entered() -> int:
        journal._executor.submit(lambda: None).result(HANG_S)
        return words(address)

    def broken() -> None:
        raise StoreFull("no room", where=address)

    write(journal, hand.records[:3])
    assert words(address) == 0, "a commit waits for no words"
    with monkeypatch.context() as full, capture_logs() as logs:
        full.setattr(journal._store, "enter_words", broken)
        for first, last in ((3, 6), (6, 7), (7, 8)):
            write(journal, hand.records[first:last])
        assert entered() == 0
    assert [(line["event"], line["why"]) for line in logs] == [("words not entered", "no room")]
    assert journal.trouble is None
    for first, last in ((8, 13), (13, 14)):
        write(journal, hand.records[first:last])
    many = entered()
    assert many >= 2 * 13
    write(journal, hand.records[14:15])
    journal._checkpoints._tried_s = -1e9
    journal.tend()
    assert entered() > many
    many = words(address)
    write(journal, hand.records[15:16])
    journal.close_now()
    assert words(address) > many


@only_sqlite
def test_an_idle_journal_writes_nothing(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: a transaction at each checkpoint's time, which waits where the store is locked."""
    hand, _ = life()
    monkeypatch.setattr(checkpoint, "CHECKPOINT_S", 0.0)
    with journal_of(address) as journal:
        entered: list[int] = []
        enter_words = journal._store.enter_words

        def enter() -> None:
            entered.append(journal.head.position)
            enter_words()

        monkeypatch.setattr(journal._store, "enter_words", enter)

        def ticks() -> None:
            for _ in range(3):
                journal.tend()
                journal._executor.submit(lambda: None).result(HANG_S)

        ticks()
        write(journal, hand.records[:2])
        ticks()
    assert entered == [0, 2]  # an earlier coordinator may have left some


@only_sqlite
def test_a_snapshot_that_can_not_be_made_leaves_no_journal_open(address: str) -> None:
    """Mutation: the error of the snapshot overtakes the end, and nobody else may write any more."""

    def broken() -> Snapshot:
        raise RuntimeError("it can't be packed")

    journal = opened(address)
    with pytest.raises(RuntimeError, match="it can't be packed"):
        run(journal.close((), broken))
    run(opened(address).close())


def test_a_replaced_coordinator_leaves_the_checkpoint_of_its_successor(tmp_path: Path) -> None:
    """Found by chaos: a council could be cut back to where the old one ended, and nothing would have told it."""
    address, file = str(tmp_path / "store.db"), tmp_path / "checkpoint"

    async def succeeded() -> None:
        hand = begun()
        old = opened(address, checkpoint=file)
        await old.append(hand.records)
        new = opened(address, checkpoint=file, takeover=True)
        new.recover(Hand(inactivity_limit_s=10_000.0).driver)
        await new.close()
        assert Checkpoint.read(file).epoch == 2
        await old.close()

    asyncio.run(succeeded())
    assert Checkpoint.read(file).epoch == 2
