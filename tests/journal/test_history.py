"""A journal is read back as it was kept, by whatever question, from both engines and from memory alike."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import event

from council.core import effects as do
from council.core.state import plain
from council.journal import history, packets
from council.journal.chain import content_hash
from council.journal.entries import DAMAGED, Asked, Entry, HistoryPage, wanted
from council.journal.memory import MemoryJournal
from council.journal.packets import agent_of
from council.journal.record import Record
from council.journal.store import PacketStore
from council.kinds.table import JOURNALED
from council.protocol.envelope import Proposal
from council.protocol.errors import CallerError, PositionLost, Refused, StoreCorrupt, UnknownJournal
from council.runtime.questions import AskHistory, from_bytes, to_bytes
from tests.journal.conftest import raw
from tests.journal.journals import NAME, begun, fill, life
from tests.journal.writing import unguarded
from tests.runtime.harness import WALL_0, Hand, run

from .conftest import on_both, only_sqlite


@pytest.fixture
def lived(store: PacketStore) -> tuple[Hand, dict[str, str]]:
    """A journal with something of everything, in the store."""
    hand, ids = life()
    fill(store, hand.records)
    return hand, ids


def page(store: PacketStore, **asked: Any) -> HistoryPage:
    return history.page(store.database, NAME, wanted(Asked(**asked)))


def every(store: PacketStore, **asked: Any) -> list[Entry]:
    """All pages, by their cursors."""
    found: list[Entry] = []
    cursor = None
    while True:
        one = page(store, **asked, cursor=cursor)
        found += one
        cursor = one.cursor
        if cursor is None:
            return found


def decisions_of(record: Record) -> tuple[Any, ...]:
    return tuple(each.decision for each in record.effects if isinstance(each, do.AnnounceDecision))


def bare(entry: Entry) -> Entry:
    """An entry without what a store alone has."""
    hashes = dict.fromkeys(("packet_id", "parents", "epoch", "content_hash", "previous_hash", "row_hash"))
    return replace(entry, **hashes)  # type: ignore[arg-type]


def positions(found: Sequence[Entry]) -> list[int]:
    return [entry.position for entry in found]


def test_every_record_comes_once_as_it_was_kept(
    store: PacketStore, lived: tuple[Hand, dict[str, str]]
) -> None:
    """Mutation: a cursor that is included, or a page that goes on where there is no more."""
    records = lived[0].records
    for newest_first, limit in itertools.product((True, False), (1, 7, 1_000)):
        found = every(store, newest_first=newest_first, limit=limit)
        assert positions(found) == [each.position for each in (records[::-1] if newest_first else records)]
    rows = {row.position: row for row in store.records(NAME)}
    for entry in every(store):
        record, row = records[entry.position - 1], rows[entry.position]
        assert (entry.kind, entry.at_s) == (JOURNALED[type(record.event)].kind, record.moment.wall_s)
        assert entry.data == plain(record.event)
        assert entry.decisions == decisions_of(record)
        assert (entry.row_hash, entry.previous_hash) == (row.row_hash.hex(), row.previous_hash.hex())
        assert entry.content_hash == row.content_hash.hex()


AT = datetime.fromtimestamp(WALL_0, UTC)
LATER = datetime.fromtimestamp(WALL_0 + 1_000, UTC)


# Of a proposal, by what became of it.
QUESTIONS: list[dict[str, Any]] = [
    {},
    {"types": ["ballot"]},
    {"types": ["ballot", "ruling"], "newest_first": False},
    {"types": ["decision"]},
    {"types": ["decision", "refusal"], "limit": 2},
    {"seat": "prime"},
    {"seat": "client", "types": ["proposal"]},
    {"seat": "nobody"},
    {"since": LATER},
    {"until": LATER, "limit": 5},
    {"since": AT, "until": AT},
    {"since": LATER, "seat": "lite", "newest_first": False},
    {"cursor": 9},
    {"cursor": 9, "newest_first": False, "limit": 3},
    {"envelopes": True, "types": ["proposal"]},
    *({"proposal": each} for each in ("approved", "rejected", "ruled", "answered", "lost", "open")),
    *({"proposal": each, "limit": 2, "newest_first": False} for each in ("revised", "revision")),
    {"proposal": "answered", "seat": "lite"},
    {"proposal": "revision", "types": ["decision"]},
]


@on_both
def test_a_store_and_a_memory_answer_alike(store: PacketStore, lived: tuple[Hand, dict[str, str]]) -> None:
    """Two implementations, SQL's and Python's, of one question."""
    hand, ids = lived
    for question in QUESTIONS:
        asked = {**question, "proposal": ids[question["proposal"]]} if "proposal" in question else question
        kept = page(store, **asked)
        remembered = history.in_memory(hand.records, wanted(Asked(**asked)))
        assert tuple(map(bare, kept)) == remembered.entries, question
        assert (kept.cursor, kept.forgotten) == (remembered.cursor, 0), question
        assert question.get("seat") == "nobody" or question.get("until") == AT or len(kept) > 0, question


@only_sqlite
def test_a_page_survives_the_way_to_another_process(
    store: PacketStore, lived: tuple[Hand, dict[str, str]]
) -> None:
    found = page(store, limit=20, envelopes=True)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=HistoryPage) == found
    asked = AskHistory(wanted(Asked(types=["ballot"], since=LATER, proposal="abcd", cursor=3)))
    assert from_bytes(to_bytes(asked)) == asked


# One proposal


def test_a_thread_holds_all_that_concerns_a_proposal(
    store: PacketStore, lived: tuple[Hand, dict[str, str]]
) -> None:
    hand, ids = lived
    found = every(store, proposal=ids["approved"], newest_first=False)
    assert [each.kind for each in found] == ["proposal", "ballot", "ballot", "ballot"]
    found = every(store, proposal=ids["answered"], newest_first=False)
    assert [each.kind for each in found] == ["proposal", *3 * ["ballot"], "ruling", "answer"]
    assert found[-1].decision is not None
    assert found[-1].decision.answer is not None
    # Ended by what is about no proposal: its revision, and a seat's death.
    revised = every(store, proposal=ids["revised"], newest_first=False)
    assert [(each.kind, each.proposal_id) for each in revised] == [
        ("proposal", ids["revised"]),
        ("proposal", ids["revision"]),
    ]
    revision = every(store, proposal=ids["revision"], newest_first=False)
    assert [each.kind for each in revision][-1] == "seat_died"
    own = {entry.packet_id for entry in revision}
    assert set(revision[-1].parents or ()) < own
    assert [agent_of(hand.records[p - 1].event) for p in positions(revision)][-1] == "codemind"


@only_sqlite
def test_a_thread_is_found_without_walking_the_journal(
    store: PacketStore, address: str, lived: tuple[Hand, dict[str, str]]
) -> None:
    """Mutation: the journal's own index is taken, and each of a million records is looked at."""
    asked: list[tuple[str, Any]] = []

    def heard(connection: Any, cursor: Any, statement: str, given: Any, *more: Any) -> None:
        asked.append((statement, given))

    event.listen(store.database._reader, "before_cursor_execute", heard)
    assert page(store, proposal=next(iter(lived[1].values()))).entries
    (thread,) = [each for each in asked if "packet_words" in each[0]]
    connection = raw(address)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {thread[0]}", thread[1])]
    connection.close()
    assert any("packet_words" in step for step in plan)
    assert not any("packet_store USING INDEX" in step for step in plan), plan
    assert not any(step.startswith("SCAN packet_store") for step in plan), plan


def test_an_escalation_by_a_seats_death_is_found_though_no_lineage_tells(
    store: PacketStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: a thread by thread id and lineage alone."""
    monkeypatch.setattr(packets, "OUTCOME_BYTES_MAX", 10)
    hand = begun("prime", "lite", "codemind", "jurist")
    ids = [hand.propose() for _ in range(2)]
    for proposal_id in ids:
        hand.receive(hand.info("prime", proposal_id, "fault", "it raised", task="ballot"))
        hand.receive(hand.vote("lite", proposal_id, "yes"))
        hand.receive(hand.vote("codemind", proposal_id, "no"))
    hand.driver.seat_died("jurist", hand.driver.boot("jurist"), "it died", hand.now)
    hand.save()
    assert len(hand.driver.escalations()) == 2, "the death should have ended both votes in a tie"
    fill(store, hand.records)
    last = page(store, limit=1).entries[0]
    assert (last.kind, last.parents, last.more) == ("seat_died", (), {ids[1]: None})
    assert [(each.proposal_id, each.reason) for each in last.escalations] == [(ids[0], "tie")]
    for proposal_id in ids:
        assert page(store, proposal=proposal_id).entries[0] == last


def test_of_very_many_decisions_the_outcomes_are_told(
    store: PacketStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packets, "OUTCOME_BYTES_MAX", 10)
    hand = begun()
    ids = [hand.propose() for _ in range(3)]
    for proposal_id in ids:
        hand.receive(hand.vote("prime", proposal_id, "yes"))
        hand.receive(hand.vote("lite", proposal_id, "no"))
    hand.driver.seat_died("codemind", hand.driver.boot("codemind"), "it died", hand.now)
    hand.save()
    fill(store, hand.records)
    last = page(store, limit=1).entries[0]
    assert [each.proposal_id for each in last.decisions] == ids[:1]
    assert last.more == dict.fromkeys(ids[1:], "approved")
    assert all(page(store, proposal=each).entries[0] == last for each in ids)
    assert page(store, types=["decision"]).entries == (last,)


def test_a_proposal_is_known_by_its_beginning(store: PacketStore, lived: tuple[Hand, dict[str, str]]) -> None:
    hand, ids = lived
    for proposal_id in ids.values():
        for given in (proposal_id, proposal_id[:4], f"esc-{proposal_id}", proposal_id[:5].upper()):
            assert page(store, proposal=given) == page(store, proposal=proposal_id)
            remembered = history.in_memory(hand.records, wanted(Asked(proposal=given)))
            assert len(remembered) == len(page(store, proposal=proposal_id))


@only_sqlite
def test_what_is_no_id_is_refused(store: PacketStore, lived: tuple[Hand, dict[str, str]]) -> None:
    for given in ("abc", "", "xyz1", "10f3%", "a" * 33, "'; DROP"):
        with pytest.raises(CallerError, match="is not the id of a proposal"):
            page(store, proposal=given)
        with pytest.raises(CallerError, match="is not the id of a proposal"):
            history.in_memory(lived[0].records, wanted(Asked(proposal=given)))


@only_sqlite
def test_an_unknown_proposal_is_refused(store: PacketStore, lived: tuple[Hand, dict[str, str]]) -> None:
    """A ballot's own id is none, though it stands in the records of proposals."""
    hand, _ = lived
    ballot = next(each.msg_id for each in page(store) if each.kind == "ballot")
    for given in ("00000000000000ff", str(ballot), str(ballot)[:8]):
        with pytest.raises(Refused) as refused:
            page(store, proposal=given)
        assert refused.value.code == "unknown_proposal"
        with pytest.raises(Refused):
            history.in_memory(hand.records, wanted(Asked(proposal=given)))


def test_a_beginning_that_fits_several_names_them(store: PacketStore) -> None:
    hand = begun()
    ids = ["abcd" + f"{n:012x}" for n in range(12)]
    for proposal_id in ids:
        envelope = hand.envelope("client", "PROPOSAL", {"summary": f"it says \"proposal_id\":\"{proposal_id[:6]}"},
                                 msg_id=proposal_id)  # fmt: skip
        hand.receive(hand.sealed(envelope), "s1")
    fill(store, hand.records)
    for ask in (
        lambda given: page(store, proposal=given),
        lambda given: history.in_memory(hand.records, wanted(Asked(proposal=given))),
    ):
        with pytest.raises(CallerError, match="and more") as error:
            ask("abcd")
        assert len(error.value.ids) == 9
        with pytest.raises(CallerError, match="several") as error:
            ask("abcd00000000000")
        assert ask(ids[3]).entries[0].proposal_id == ids[3]


# The way it is asked


@only_sqlite
def test_the_envelope_comes_with_it_where_it_is_asked_for(
    store: PacketStore, lived: tuple[Hand, dict[str, str]]
) -> None:
    asked = {"proposal": lived[1]["approved"], "newest_first": False}
    first = page(store, **asked, envelopes=True).entries[0]
    assert first.envelope is not None
    assert isinstance(first.envelope.content, Proposal)
    assert first.envelope.content.body == "Old: 2019.\nNew: today."
    assert page(store, **asked).entries[0].payload is None
    forged = page(store, types=["refusal"], envelopes=True).entries[0]
    assert forged.data["code"] == "forged"
    unreadable = page(store, types=["ballot_unreadable"], envelopes=True).entries[0]
    assert (unreadable.payload is not None, unreadable.envelope) == (True, None)


@only_sqlite
def test_a_page_holds_so_many_bytes_and_at_least_one_record(
    store: PacketStore, lived: tuple[Hand, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in (1, 3_000):
        monkeypatch.setattr(history, "PAGE_BYTES_MAX", most)
        first = page(store)
        assert 1 <= len(first) < len(lived[0].records)
        assert (len(first) == 1) == (most == 1)
        assert positions(every(store)) == [each.position for each in lived[0].records[::-1]]


FAULTY: list[tuple[dict[str, Any], str]] = [
    ({"types": ["balot"]}, "did you mean ballot"),
    ({"types": "ballot"}, "expected a list"),
    ({"limit": 0}, "limit is 0, expected 1 to 1,000"),
    ({"limit": 1_001}, "1,000"),
    ({"limit": "many"}, "limit"),
    ({"cursor": "x"}, "cursor"),
    ({"since": datetime(2026, 1, 1)}, "offset"),
    ({"nosuch": 1}, "nosuch"),
]


@only_sqlite
def test_a_question_that_can_not_be_meant_is_told(
    store: PacketStore, lived: tuple[Hand, dict[str, str]]
) -> None:
    for asked, says in FAULTY:
        with pytest.raises(CallerError, match=says):
            page(store, **asked)
        with pytest.raises(CallerError, match=says):
            history.in_memory(lived[0].records, wanted(Asked(**asked)))


@only_sqlite
def test_a_journal_that_is_not_there_is_told_with_those_that_are(
    store: PacketStore, lived: tuple[Hand, dict[str, str]]
) -> None:
    with pytest.raises(UnknownJournal, match=r"'other'.*'test'"):
        history.page(store.database, "other", wanted(Asked()))
    with pytest.raises(UnknownJournal):
        next(history.records(store.database, "other"))


# Damage


def damage(address: str, engine: str, position: int) -> None:
    """Changes a record's content behind the store's back, so that it is still one of a council."""
    if engine == "sqlite":
        changed = "CAST(replace(CAST(content AS TEXT), 'yes', 'yEs') AS BLOB)"
    else:
        changed = "convert_to(replace(convert_from(content, 'UTF8'), 'yes', 'yEs'), 'UTF8')"
    unguarded(address, f"UPDATE packet_store SET content = {changed} WHERE position = {position}")


def test_a_damaged_record_is_told_and_hides_no_other(
    store: PacketStore, lived: tuple[Hand, dict[str, str]], address: str, engine: str
) -> None:
    hand, ids = lived
    damage(address, engine, 4)  # lite's ballot, which decided the first proposal
    found = every(store, newest_first=False)
    assert positions(found) == [each.position for each in hand.records]
    (bad,) = [each for each in found if each.kind == DAMAGED]
    assert bad.position == 4
    assert "record 4 is damaged" in bad.data["why"]
    assert "council verify" in bad.data["why"]
    assert bad.decisions == ()
    assert DAMAGED in {each.kind for each in page(store, proposal=ids["approved"][:4])}
    with pytest.raises(StoreCorrupt, match="record 4 is damaged"):
        list(history.records(store.database, NAME))


@only_sqlite
def test_a_record_whose_hash_was_mended_does_not_fit_its_place(
    store: PacketStore, lived: tuple[Hand, dict[str, str]], address: str
) -> None:
    content = store.records(NAME, 3, 1)[0].content.replace(b"yes", b"yEs")
    change = f"content = X'{content.hex()}', content_hash = X'{content_hash(content).hex()}'"
    unguarded(address, f"UPDATE packet_store SET {change} WHERE position = 4")
    (bad,) = page(store, types=["ballot"], cursor=3, newest_first=False, limit=1)
    assert (bad.kind, bad.position) == (DAMAGED, 4)
    assert "its row_hash does not fit its place" in bad.data["why"]


def test_a_record_that_is_gone_is_missed_by_whoever_reads_all(
    store: PacketStore, lived: tuple[Hand, dict[str, str]], address: str
) -> None:
    unguarded(address, "DELETE FROM packet_store WHERE position = 6")
    with pytest.raises(
        StoreCorrupt, match="record 7 is damaged: it comes right after record 5: record 6 is missing"
    ):
        list(history.records(store.database, NAME))


# Memory


def test_a_memory_says_what_it_has_no_more() -> None:
    hand, ids = life()
    journal = MemoryJournal(kept_max=10)
    journal.append(hand.records)
    gone = len(hand.records) - 10

    def asked(**what: Any) -> HistoryPage:
        return run(journal.history(wanted(Asked(**what))))

    found = asked()
    assert positions(found.entries) == [each.position for each in hand.records[:-11:-1]]
    assert (found.forgotten, found.cursor) == (gone, None)
    assert positions(asked(newest_first=False, limit=3).entries) == [gone + 1, gone + 2, gone + 3]
    assert len(asked(newest_first=False, cursor=gone, limit=1)) == 1
    with pytest.raises(PositionLost) as lost:
        asked(newest_first=False, cursor=gone - 1)
    assert lost.value.oldest == gone + 1
    assert run(MemoryJournal().history(wanted(Asked()))) == HistoryPage(())
    with pytest.raises(Refused):
        asked(proposal=ids["approved"])
