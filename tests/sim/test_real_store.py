"""The simulated disk beside the real one: a simulated council writes both, and both hold the same, byte for byte."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from council.journal.record import Record
from council.journal.store import PacketStore
from council.journal.writer import DurableJournal
from council.protocol.errors import EpochFenced, JournalCorrupt, StoreFull
from council.runtime.driver import Driver
from council.runtime.snapshot import base_of
from tests.sim import compare
from tests.sim.life import Life
from tests.sim.plan import make
from tests.sim.world import World

KEY = bytes(range(32))
SEEDS = (49, 2, 4, 158, 203, 272)


class OnStore(World):
    """A simulated council of whose coordinators each also writes a real journal, and recovers from it."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.folder = folder
        self.journals: dict[int, DurableJournal] = {}  # by epoch
        super().__init__(make(seed))

    def open(self) -> DurableJournal:
        store = PacketStore.open(str(self.folder / "real.db"))
        journal = DurableJournal.open(store, "sim", self.council_id, KEY, takeover=True)
        return self.journals.setdefault(journal.epoch, journal)

    def _begin_epoch(self, start: int) -> None:
        before = self.disk.epoch
        super()._begin_epoch(start)
        if self.disk.epoch > before:
            assert self.open().epoch == self.disk.epoch

    def _recovered(self, start: int, epoch: int) -> None:
        if start == self._starts:
            journal = self.journals[epoch]
            driver = self._driver(0.0, journal.decided)
            journal.recover(driver)
            compare.recovered(driver, self.shadow)
            found = journal._snapshots.newest(journal._row_hash)
            announced = base_of(found.base).announced if found is not None else 0
            assert (
                driver.announcements.feed.position - len(driver.announcements.feed.newest(10**9)) == announced
            ), "a snapshot was passed over"
        super()._recovered(start, epoch)

    def _sync(self, life: Life, count: int) -> None:
        """What goes to the simulated disk goes to the real one; where that refuses it, so must this."""
        writing, journal = life.writing, self.journals[life.epoch]
        assert writing is not None
        made = [sum(map(len, writing.transactions[:n])) for n in (writing.done, count)]
        records = writing.records[made[0] : made[1]]
        snapshot = writing.snapshot
        if life.epoch == self.disk.epoch:
            written(journal, records)
        elif records:
            with pytest.raises(EpochFenced):
                written(journal, records)
        super()._sync(life, count)
        if snapshot is not None and writing.snapshot is None:
            journal._executor.submit(journal._keep, snapshot[0]).result()

    def close(self) -> None:
        for journal in self.journals.values():
            journal.close_now()


def written(journal: DurableJournal, records: Sequence[Record]) -> None:
    """Has its thread write these, and waits for it."""
    if records:
        journal._executor.submit(journal._append, records).result()


def begun(council: OnStore, journal: DurableJournal, driver: Driver) -> None:
    """A coordinator has recovered, and begins."""
    assert council.life is not None
    driver.begin(journal.epoch, council.rules, council._now(council.life))
    written(journal, driver.drain())


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> OnStore:
    """A council at its end, that had its share of troubles."""
    world = OnStore(SEEDS[0], tmp_path_factory.mktemp("lived"))
    world.run()
    world.close()
    return world


@pytest.fixture
def council(lived: OnStore, tmp_path: Path) -> Iterator[OnStore]:
    """This council with a copy of its store."""
    council = copy.copy(lived)
    council.folder = shutil.copytree(lived.folder, tmp_path / "copy")
    council.journals = {}
    yield council
    council.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_simulated_council_on_a_real_store(seed: int, tmp_path: Path) -> None:
    with closing(OnStore(seed, tmp_path)) as council:
        council.run()
        newest = council.open()
        rows = newest._store.records("sim", 0, 10_000)
        assert rows == council.disk.rows
        driver = council._driver(0.0, newest.decided)
        newest.recover(driver)
        compare.recovered(driver, council.shadow)
        assert newest.tree.size == len(rows)


def test_these_councils_had_their_share_of_troubles(tmp_path: Path) -> None:
    reached: set[str] = set()
    snapshots = 0
    for seed in SEEDS:
        world = World(make(seed)).run()
        reached |= world.oracle.reached
        snapshots += len(world.disk.snapshots)
    assert {"killed", "fenced", "restored", "kept, and nobody told"} <= reached
    assert snapshots > 1


def test_a_changed_record_is_not_taken_back(council: OnStore, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = council.open()
    monkeypatch.setattr(journal._snapshots, "newest", lambda row_hash: None)
    rows = journal._store.records("sim", 0, 10_000)
    changed = rows[3]._replace(content=rows[3].content.replace(b'"kind"', b'"Kind"'))
    monkeypatch.setattr(journal._store, "records", lambda *_: [*rows[:3], changed, *rows[4:]])
    with pytest.raises(JournalCorrupt, match=r"^record 4 "):
        journal.recover(council._driver(0.0))


def test_a_record_that_is_missing_is_missed(council: OnStore, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = council.open()
    monkeypatch.setattr(journal._snapshots, "newest", lambda row_hash: None)
    rows = journal._store.records("sim", 0, 10_000)
    monkeypatch.setattr(journal._store, "records", lambda *_: [*rows[:3], *rows[4:]])
    with pytest.raises(JournalCorrupt, match=r"^record 4 "):
        journal.recover(council._driver(0.0))


def test_who_was_replaced_keeps_no_snapshot(council: OnStore) -> None:
    older = council.open()
    driver = council._driver(0.0)
    older.recover(driver)
    newer = council.open()
    again = council._driver(0.0)
    newer.recover(again)
    begun(council, newer, again)
    older._executor.submit(older._keep, driver.snapshot()).result()
    found = newer._snapshots.newest(newer._row_hash)
    assert found is None or found.head.position < driver.position


def test_a_full_disk_is_waited_for(council: OnStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, and nothing is written twice."""
    journal = council.open()
    driver = council._driver(0.0, journal.decided)
    journal.recover(driver)
    real, tries = journal._store.append_rows, []

    def full(*arguments: Any) -> Any:
        tries.append(journal.trouble)
        if len(tries) < 3:
            raise StoreFull("no room")
        return real(*arguments)

    monkeypatch.setattr(journal._store, "append_rows", full)
    begun(council, journal, driver)
    assert [trouble and trouble.code for trouble in tries] == [None, "store_full", "store_full"]
    assert journal.trouble is None
    assert len(journal._store.records("sim", 0, 10_000)) == driver.position


def test_a_snapshot_that_could_not_be_kept_goes_with_the_next(
    council: OnStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = council.open()
    driver = council._driver(0.0, journal.decided)
    monkeypatch.setattr(journal._snapshots, "newest", lambda row_hash: None)
    journal.recover(driver)
    monkeypatch.undo()

    def full(*_: Any) -> Any:
        raise StoreFull("no room")

    monkeypatch.setattr(journal._snapshots._database, "write", full)
    journal._executor.submit(journal._keep, driver.snapshot()).result()
    monkeypatch.undo()
    begun(council, journal, driver)
    journal._executor.submit(journal._keep, driver.snapshot()).result()
    newer = council.open()
    by_snapshot, by_records = council._driver(0.0, newer.decided), council._driver(0.0)
    newer.recover(by_snapshot)
    assert not by_snapshot.announcements.feed.newest(1)  # nothing was replayed
    other = council.open()
    monkeypatch.setattr(other._snapshots, "newest", lambda row_hash: None)
    other.recover(by_records)
    compare.recovered(by_snapshot, by_records)
