"""A snapshot and the records behind it come to what all records come to; one that can't be used is passed over."""

from __future__ import annotations

import random
from typing import Any

import pytest

from council.journal import snapshots
from council.journal.checkpoint import Signer
from council.journal.record import Record, Snapshot
from council.protocol.errors import JournalCorrupt
from tests.examples import at_first
from tests.journal.conftest import raw
from tests.journal.journals import begun
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
from tests.runtime.harness import Hand
from tests.runtime.test_replay import votes, years

from .conftest import on_both


def written(address: str, hand: Hand, cuts: list[int], **options: Any) -> list[int]:
    """Writes the records of ``hand``, with a snapshot behind each of ``cuts``."""
    driver = fresh(hand.rules)
    with journal_of(address, **options) as journal:
        journal.recover(driver)
        done = driver.position
        for cut in [*cuts, len(hand.records)]:
            some: list[Record] = hand.records[done:cut]
            for record in some:
                driver.replay(record)
            write(journal, some)
            if cut in cuts:
                journal.keep(driver.snapshot())
            done = cut
    return cuts


def parts(address: str) -> list[tuple[int, str]]:
    connection = raw(address)
    rows = connection.execute("SELECT position, part FROM snapshots ORDER BY position, part").fetchall()
    connection.close()
    return [tuple(row) for row in rows]


def moved(there: str, here: str) -> None:
    """Puts the snapshots of one store in place of another's."""
    connection = raw(here)
    connection.execute(f"ATTACH '{there}' AS there")
    connection.execute("DELETE FROM snapshots")
    connection.execute("INSERT INTO snapshots SELECT * FROM there.snapshots")
    connection.close()


def passed_over(logs: list[Any]) -> list[int]:
    return [entry["position"] for entry in logs if entry["event"] == "snapshot passed over"]


@pytest.mark.parametrize("seed", at_first(4, *range(12)))
def test_a_snapshot_and_the_rest_come_to_what_all_comes_to(seed: int, tmp_path: Any) -> None:
    """Live, replayed whole, and from snapshots at random places: one state. Mutation: leave any part out of it."""
    hand = years(seed, proposals=25)
    for _ in range(10):  # a flood that is cut short, within one minute and across two
        hand.receive(b"garbage" * 10)
    chance, count = random.Random(seed), len(hand.records)
    cuts = sorted(chance.sample(range(1, count + 1), 4))
    address, plain = str(tmp_path / "with.db"), str(tmp_path / "without.db")
    written(address, hand, cuts)
    written(plain, hand, [])
    assert [at for at, part in parts(address) if part == "more"] == cuts
    assert [at for at, part in parts(address) if part == "base"] == cuts[-2:]
    assert parts(plain) == []
    with capture_logs() as logs:
        one, other = recovered(address, hand.rules), recovered(plain, hand.rules)
    assert passed_over(logs) == []
    assert whole(one) == whole(other) == whole(hand.driver)
    # And they go on alike: what is decided stays so, what is open ends in the same way.
    hand.wait(100_000)
    for driver in (one, other):
        driver.wake(hand.now)
        driver.drain()
        driver.saved(driver.position)
    hand.save()
    assert whole(one) == whole(other) == whole(hand.driver)


def test_a_flood_of_refusals_is_told_alike_after_a_restart(tmp_path: Any, monkeypatch: Any) -> None:
    """Mutation: a minute that begins when the driver was made, not when the council was."""
    monkeypatch.setattr("council.runtime.feed.REFUSALS_TOLD_MAX", 3)
    hand = years(1, proposals=1)
    late = Hand()
    late.t = 0.75
    late.driver.begin(1, late.rules, late.now)
    late.save()
    for _ in range(5):
        late.receive(b"x" * 40)
    late.t = 60.5  # within a minute of the council's begin, not of the driver's making
    for _ in range(5):
        late.receive(b"y" * 40)
    assert len(hand.records) > 1
    address = str(tmp_path / "store.db")
    written(address, late, [])
    driver = recovered(address, late.rules)
    assert whole(driver) == whole(late.driver)
    assert driver.announcements.feed.position == 3


DAMAGE = {
    "a base that was changed": "UPDATE snapshots SET content = x'00' WHERE part = 'base' AND position={last}",
    "a base that is gone": "DELETE FROM snapshots WHERE part = 'base' AND position = {last}",
    "a base of another place": "UPDATE snapshots SET content = (SELECT content FROM snapshots AS s WHERE "
    "s.part = 'base' AND s.position = {before}) WHERE part = 'base' AND position = {last}",
    "a part that was changed": "UPDATE snapshots SET content = x'00' WHERE part = 'more' AND position={last}",
    "decisions that were changed": "UPDATE snapshots SET content = substr(content, 1, length(content) - 1) "
    "WHERE part = 'more' AND position = {first}",
    "a part that is gone": "DELETE FROM snapshots WHERE part = 'more' AND position = {before}",
    "the first part is gone": "DELETE FROM snapshots WHERE part = 'more' AND position = {first}",
    "parts that changed places": "UPDATE snapshots SET content = (SELECT content FROM snapshots AS s WHERE "
    "s.part = 'more' AND s.position = {first}) WHERE part = 'more' AND position = {before}",
    "no base at all": "DELETE FROM snapshots WHERE part = 'base'",
    "empty": "UPDATE snapshots SET content = x''",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_passed_over_and_healed_by_the_next(damage: str, tmp_path: Any) -> None:
    hand = years(3, proposals=20)
    address, count = str(tmp_path / "store.db"), len(hand.records)
    first, before, last = written(address, hand, [count // 4, count // 2, count * 3 // 4])
    connection = raw(address)
    assert connection.execute(DAMAGE[damage].format(first=first, before=before, last=last)).rowcount
    connection.close()
    with capture_logs() as logs:
        assert whole(recovered(address, hand.rules)) == whole(hand.driver)
    assert passed_over(logs) or "gone" in damage or "no base" in damage
    hand.propose(summary="one more")
    written(address, hand, [len(hand.records)])
    with capture_logs() as logs:
        assert whole(recovered(address, hand.rules)) == whole(hand.driver)
    assert passed_over(logs) == []


def test_what_is_no_snapshot_does_not_take_those_before_with_it(tmp_path: Any) -> None:
    """Mutation: pass it over once a good one is found, and the start after the next forgets old decisions."""
    hand = years(3, proposals=20)
    address, count = str(tmp_path / "store.db"), len(hand.records)
    written(address, hand, [count // 2])
    connection = raw(address)
    for statement in (  # a table that takes anything, as SQLite has them
        "CREATE TABLE other AS SELECT * FROM snapshots",
        "DROP TABLE snapshots",
        "ALTER TABLE other RENAME TO snapshots",
        f"INSERT INTO snapshots VALUES ('{NAME}', 'nowhere', 'more', 'no bytes')",
    ):
        connection.execute(statement)
    connection.close()
    written(address, hand, [])  # a start, which finds it
    hand.propose(summary="one more")
    written(address, hand, [len(hand.records)])
    assert [part for _, part in parts(address)].count("more") == 2
    with capture_logs() as logs:
        assert whole(recovered(address, hand.rules)) == whole(hand.driver)
    assert passed_over(logs) == []


def test_a_stale_or_foreign_one_is_passed_over(tmp_path: Any) -> None:
    """A snapshot of a longer journal, of another chain, or signed by another key speaks for nothing here."""
    hand, foreign = years(4, proposals=12), years(5, proposals=12)
    here, there, forged = (str(tmp_path / f"{name}.db") for name in ("here", "there", "forged"))
    count = min(len(hand.records), len(foreign.records)) - 1
    written(here, hand, [])
    written(there, foreign, [count])
    written(forged, hand, [count], key=b"k" * 32)
    for other in (there, forged):
        moved(other, here)
        with capture_logs() as logs:
            assert whole(recovered(here, hand.rules)) == whole(hand.driver)
        assert passed_over(logs) == [count]


def test_one_of_another_chain_is_passed_over_though_this_key_signed_it(tmp_path: Any) -> None:
    """Rules 4.5: a snapshot that could be read, of a journal of this name and key, whose records are others.

    Nothing is open in it, so that nothing but the chain tells it from one of ours. Mutation: leave out the
    comparison of its row's hash, and a journal that is whole is refused as damaged.
    """
    hands = {"yes": begun(), "no": begun()}
    for vote, hand in hands.items():
        proposal_id = hand.propose()
        votes(hand, proposal_id, prime=vote, lite=vote, codemind=vote)
    here, there = str(tmp_path / "here.db"), str(tmp_path / "there.db")
    hand, count = hands["yes"], len(hands["no"].records)
    assert len(hand.records) == count
    assert not hands["no"].driver.state.open
    written(here, hand, [])
    written(there, hands["no"], [count])
    moved(there, here)
    with capture_logs() as logs:
        assert whole(recovered(here, hand.rules)) == whole(hand.driver)
    assert passed_over(logs) == [count]


def test_one_that_another_version_wrote_is_passed_over(tmp_path: Any) -> None:
    """It is signed and fits, but can't be read. Mutation: without this an upgrade could never start again."""
    hand = years(6, proposals=12)
    address = str(tmp_path / "store.db")
    count = len(hand.records)
    written(address, hand, [])
    driver = fresh(hand.rules)
    with journal_of(address) as journal:
        journal.recover(driver)
        keeper = snapshots.SnapshotStore(journal._store.database, NAME, Signer(KEY))
        assert keeper.newest(journal._row_hash) is None
        # An empty map, with no field of ours, and a part that is none: the next one stands without both.
        journal.keep(Snapshot(count, b"\x80", {count: (b"\x80", b"")}))
    for _ in range(2):
        with capture_logs() as logs:
            assert whole(recovered(address, hand.rules)) == whole(hand.driver)
        assert passed_over(logs) == [count]
    hand.propose(summary="one more")
    written(address, hand, [count + 1])
    with capture_logs() as logs:
        assert whole(recovered(address, hand.rules)) == whole(hand.driver)
    assert passed_over(logs) == []


def test_what_could_not_be_kept_goes_with_the_next(address: str) -> None:
    """Mutation: a decision that is in no snapshot is forgotten, and could be made again."""
    hand = years(7, proposals=20)
    count = len(hand.records)
    driver = fresh(hand.rules)
    with journal_of(address) as journal:
        for record in hand.records[: count // 2]:
            driver.replay(record)
        write(journal, hand.records[: count // 2])
        other = locked(address)
        with capture_logs() as logs:
            journal.keep(driver.snapshot())
            journal._executor.submit(lambda: None).result(HANG_S)
        unlocked(other)
        assert [entry["event"] for entry in logs] == ["no snapshot"]
        assert parts(address) == []
        for record in hand.records[count // 2 :]:
            driver.replay(record)
        write(journal, hand.records[count // 2 :])
        journal.keep(driver.snapshot())
    assert [part for _, part in parts(address)].count("more") == 2
    again = recovered(address, hand.rules)
    assert whole(again) == whole(hand.driver)
    assert again.announcements.feed.newest(10) == [], "nothing had to be replayed"


def test_one_of_records_that_were_not_kept_is_not_kept(address: str) -> None:
    hand = years(8, proposals=6)
    driver = fresh(hand.rules)
    journal = opened(address)
    for record in hand.records:
        driver.replay(record)
    write(journal, hand.records[:-1])
    journal.keep(driver.snapshot())
    journal.close_now()
    assert parts(address) == []


def test_a_fenced_coordinator_keeps_none(address: str) -> None:
    hand = years(9, proposals=6)
    driver = fresh(hand.rules)
    with journal_of(address) as journal:
        for record in hand.records:
            driver.replay(record)
        write(journal, hand.records)
        with journal_of(address, takeover=True), capture_logs() as logs:
            journal.keep(driver.snapshot())
            journal._executor.submit(lambda: None).result(HANG_S)
        assert [entry["event"] for entry in logs] == ["no snapshot"]
    assert parts(address) == []


def test_one_is_due_after_so_many_records(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SNAPSHOT_RECORDS", 10)
    with journal_of(address) as journal:
        assert not journal.snapshot_due(9)
        assert journal.snapshot_due(10)
        journal.keep(Snapshot(10, b"", {10: (b"", b"")}))
        assert not journal.snapshot_due(19)
        assert journal.snapshot_due(20)
        journal.keep(
            Snapshot(20, bytes(30_000), {20: (b"", b"")})
        )  # a large one weighs as much as thirty records
        assert not journal.snapshot_due(49)
        assert journal.snapshot_due(50)


def test_a_journal_that_ends_before_its_own_snapshot_is_refused(address: str) -> None:
    """Also without a checkpoint, as at a new path, and before an epoch is begun. One of another key says nothing."""
    hand = years(10, proposals=12)
    count = len(hand.records)
    written(address, hand, [count - 1, count])  # the newest is the one that is told
    unguarded(address, f"DELETE FROM packet_store WHERE position > {count - 2}")
    with pytest.raises(
        JournalCorrupt, match=f"was cut: it ends at record {count - 2}, and.* made at record {count};"
    ):
        recovered(address, hand.rules)
    connection = raw(address)
    assert connection.execute("SELECT max(epoch) FROM epochs").fetchone() == (1,)
    connection.close()
    with journal_of(address, key=b"k" * 32) as journal:
        assert journal.epoch == 2


@on_both
def test_one_that_is_kept_already_is_not_kept_again(address: str) -> None:
    """As where a coordinator was refused once it had read all, and closes."""
    hand = years(11, proposals=12)
    count = len(hand.records)
    written(address, hand, [count])
    driver = fresh(hand.rules)
    with journal_of(address) as journal, capture_logs() as logs:
        journal.recover(driver)
        journal.keep(driver.snapshot())
        journal._executor.submit(lambda: None).result(HANG_S)
    assert [entry["event"] for entry in logs] == []
    assert parts(address) == [(count, "base"), (count, "more")]
