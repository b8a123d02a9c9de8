"""Decided proposals leave memory once they are on disk; what is asked and said of them is answered as before."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from council import Council
from council.core.state import Decision
from council.journal import snapshots
from council.protocol.errors import InternalError, Refused, StoreCorrupt, StoreLocked
from council.runtime import archive, read_back
from council.runtime.driver import Opened
from council.runtime.messages import Acknowledged, Failed, Told
from council.runtime.used_ids import BUCKETS, HashIndex, key_of
from tests.patience import HANG_S
from tests.runtime.harness import (
    Hand,
    in_loop,
    until,
)
from tests.runtime.test_coordinator import Client
from tests.runtime.test_outcomes import reported
from tests.runtime.test_recovery import Life, life
from tests.test_history import SEATS


class Kept:
    """A council in hand, with a disk that keeps snapshots."""

    def __init__(self, **options: Any) -> None:
        self.decided: dict[int, bytes] = {}
        self.hand = Hand(**{"decided": self.decided.__getitem__} | options)
        self.mores: list[tuple[int, bytes]] = []
        self.base = b""
        self.taken_back = 0

    def snapshot(self) -> None:
        taken = self.hand.driver.snapshot()
        self.base = taken.base
        for position, (more, decided) in taken.added.items():
            self.mores.append((position, more))
            self.decided[position] = decided
        self.hand.driver.let_go(taken.position)

    def receive(self, sealed: bytes, session: str | None = "s1") -> None:
        driver = self.hand.driver
        while (away := driver.receive(driver.open(sealed), self.hand.now, session)) is not None:
            driver.take_back(away, driver.archive.fetch(away))
            self.taken_back += 1
        self.hand.save()

    def restarted(self) -> None:
        """Goes on as the next coordinator does."""
        before, self.hand.driver = self.hand.driver, Hand(decided=self.decided.__getitem__).driver
        self.hand.driver.restore(
            before.position,
            self.base,
            self.mores,
            lambda ids: dict.fromkeys(ids, b""),
        )
        self.hand.driver.join("client", "proposer", before.senders.keyring.key("client"))

    def propose(self, votes: str = "yyy", **content: Any) -> tuple[str, bytes]:
        """A proposal, decided by these votes, and its bytes."""
        envelope = self.hand.envelope("client", "PROPOSAL", {"summary": "do it", **content})
        sealed = self.hand.sealed(envelope)
        self.receive(sealed)
        for seat, vote in zip(("prime", "lite", "codemind"), votes, strict=False):
            self.receive(self.hand.vote(seat, envelope.msg_id, {"y": "yes", "n": "no"}[vote]), None)
        self.hand.told()
        return envelope.msg_id, sealed

    def answer(self, sealed: bytes) -> Any:
        """What the session is told, in what it can be compared by."""
        self.receive(sealed)
        (message,) = self.hand.told()
        match message:
            case Told(decision):
                return decision
            case Failed():
                return message.code, message.message
            case Acknowledged():
                return "acknowledged"


def revised(kept: Kept, proposal_id: str) -> bytes:
    content = {"summary": "do it otherwise", "supersedes": proposal_id}
    return kept.hand.sealed(kept.hand.envelope("client", "PROPOSAL", content, msg_id="00000000000000aa"))


def other_content(kept: Kept, proposal_id: str) -> bytes:
    return kept.hand.sealed(kept.hand.envelope("client", "PROPOSAL", {"summary": "else"}, msg_id=proposal_id))


def by_a_human(kept: Kept, proposal_id: str) -> bytes:
    return kept.hand.info("ada", proposal_id, "answer", "no", approve=False)


SAID: dict[str, Callable[[Kept, str], bytes]] = {
    "other content under its id": other_content,
    "a cancellation": lambda kept, of: kept.hand.info("client", of, "cancel", "never mind"),
    "a human's answer": by_a_human,
    "a report": lambda kept, of: reported(kept.hand, of),
    "a report out of order": lambda kept, of: reported(kept.hand, of, "verify"),
    "another's report": lambda kept, of: reported(kept.hand, of, sender="lite"),
    "a late ballot": lambda kept, of: kept.hand.vote("codemind", of, "no"),
    "a second ballot": lambda kept, of: kept.hand.vote("prime", of, "no"),
    "an unreadable ballot": lambda kept, of: kept.hand.unreadable_vote("codemind", of),
    "a ruling": lambda kept, of: kept.hand.ruling(of, "reject"),
}
# Of which it is enough to know that the proposal is decided.
SAID_UNREAD: dict[str, Callable[[Kept, str], bytes]] = {
    "a failure": lambda kept, of: kept.hand.info("codemind", of, "fault", "hung", task="ballot"),
    "a call": lambda kept, of: kept.hand.info(
        "lite", of, "reserve", task="ballot", model="m", tokens=1, microusd=1
    ),
    "a settlement": lambda kept, of: kept.hand.info("lite", of, "settle", call="x", tokens=1, microusd=1),
}


@pytest.mark.parametrize("said", SAID | SAID_UNREAD)
@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_what_is_said_of_an_old_decision_is_answered_as_of_a_new_one(said: str, restarted: bool) -> None:
    """Mutation: answer from memory alone, and what is on disk counts as unknown."""
    old, new = Kept(), Kept()
    for kept in (old, new):
        proposal_id, _ = kept.propose("yy", action={"tool": "rm", "args": {}}, wait_for="decisive")
    for _ in range(2):
        old.snapshot()
        old.propose()
    if restarted:
        old.snapshot()
        old.restarted()
    assert old.hand.driver.away(proposal_id) is not None
    assert new.hand.driver.away(proposal_id) is None
    new.hand.ids = itertools.count(0x1000)  # of which neither has used one
    sealed = (SAID | SAID_UNREAD)[said](new, proposal_id)
    assert old.answer(sealed) == new.answer(sealed)
    assert old.taken_back == (said in SAID)
    if said in SAID:
        first, second = (kept.hand.driver.archive[proposal_id] for kept in (old, new))
        assert first == second


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
def test_a_duplicate_of_an_old_proposal_gets_its_decision_and_leaves_no_record(restarted: bool) -> None:
    """rules 1.12. Mutation: decide it anew."""
    kept = Kept()
    proposal_id, sealed = kept.propose("ynn")
    decision = kept.hand.driver.decision(proposal_id)
    for _ in range(2):
        kept.snapshot()
        kept.propose()
    if restarted:
        kept.snapshot()
        kept.restarted()
    position = kept.hand.driver.position
    assert kept.hand.driver.away(proposal_id) is not None
    assert kept.answer(sealed) == decision
    assert kept.hand.driver.position == position


def test_a_report_on_an_old_decision_is_taken_once_and_outlives_the_next_snapshots() -> None:
    """rules 3.1: each step once, also where the decision leaves memory between them."""
    kept = Kept()
    proposal_id, _ = kept.propose(action={"tool": "rm", "args": {}})
    for stage in ("act", "verify"):
        for _ in range(2):
            kept.snapshot()
            kept.propose()
        assert kept.hand.driver.away(proposal_id) is not None
        sealed = reported(kept.hand, proposal_id, stage)
        assert kept.answer(sealed) == "acknowledged"
        for _ in range(2):
            kept.snapshot()
            kept.propose()
        assert kept.answer(sealed) == "acknowledged"  # the same again
        code, _ = kept.answer(reported(kept.hand, proposal_id, stage, ok=False))
        assert code == "told_before"
    assert [stage for stage, _, _ in kept.hand.driver.archive[proposal_id].reports] == ["act", "verify"]


def test_a_revision_names_an_old_proposal() -> None:
    kept = Kept()
    proposal_id, _ = kept.propose()
    for _ in range(2):
        kept.snapshot()
        kept.propose()
    kept.receive(revised(kept, proposal_id))
    assert kept.taken_back == 1
    assert kept.hand.driver.state.open["00000000000000aa"].what.supersedes == proposal_id


def test_a_decision_stays_in_memory_while_a_call_for_it_is_under_way() -> None:
    """rules 2.6: what the call comes to is added to the decision. Mutation: let it go."""
    kept = Kept()
    envelope = kept.hand.envelope("client", "PROPOSAL", {"summary": "do it", "wait_for": "decisive"})
    kept.receive(kept.hand.sealed(envelope))
    call = kept.hand.info(
        "codemind", envelope.msg_id, "reserve", task="ballot", model="m", tokens=9, microusd=0
    )
    kept.receive(call, None)
    (call_id,) = kept.hand.driver.state.calls
    for seat in ("prime", "lite"):
        kept.receive(kept.hand.vote(seat, envelope.msg_id), None)
    for _ in range(3):
        kept.snapshot()
        kept.propose()
    assert kept.hand.driver.away(envelope.msg_id) is None
    kept.restarted()
    kept.receive(
        kept.hand.info("codemind", envelope.msg_id, "settle", call=call_id, tokens=4, microusd=0), None
    )
    (account,) = kept.hand.driver.archive[envelope.msg_id].decision.spent
    assert (account.seat, account.spent.tokens, account.held.tokens) == ("codemind", 4, 0)


def test_whole_proposals_in_memory_are_few_however_many_were_decided() -> None:
    """A count, for the memory itself is the benchmark's (benchmarks/growth.py). Mutation: let nothing go."""
    kept, most = Kept(), 0
    for number in range(200):
        kept.propose()
        most = max(most, len(kept.hand.driver.archive))
        if number % 10 == 9:
            kept.snapshot()
    assert most == 20  # of the last snapshot, and since
    assert sum(kept.hand.driver.announcements.counts.values()) == 200
    kept.restarted()
    assert len(kept.hand.driver.archive) == 0


def test_of_what_is_read_back_a_bounded_number_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: let it go with the next snapshot alone, and who asks for all of them has them all in memory."""
    monkeypatch.setattr(archive, "TAKEN_BACK_MAX", 3)
    kept = Kept()
    made = [kept.propose() for _ in range(10)]
    for _ in range(2):
        kept.snapshot()
        kept.propose()
    driver = kept.hand.driver
    within = len(driver.archive)
    for _, sealed in made:
        assert isinstance(kept.answer(sealed), Decision)
        assert len(driver.archive) <= within + 3
    assert kept.taken_back == len(made)


def test_what_is_away_is_an_error_where_it_was_not_taken_back() -> None:
    """Taken for unknown, it could be decided anew."""
    kept = Kept()
    proposal_id, _ = kept.propose()
    for _ in range(2):
        kept.snapshot()
        kept.propose()
    with pytest.raises(InternalError, match=proposal_id):
        kept.hand.driver.archive.get(proposal_id)


def test_many_decisions_are_cut_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a replay of all records: to read one back, few are decoded. Mutation: one part for each snapshot."""
    monkeypatch.setattr(archive, "PART_MAX", 4)
    kept = Kept()
    made = [kept.propose("yy") for _ in range(10)]
    kept.snapshot()
    assert [len(msgspec.msgpack.decode(each)["closed"]) for each in kept.decided.values()] == [4, 4, 2]
    kept.propose()
    kept.snapshot()
    kept.restarted()
    for proposal_id, sealed in made:
        assert kept.answer(sealed).proposal_id == proposal_id
    assert kept.taken_back == len(made)


def test_without_a_store_the_newest_are_kept_and_the_ids_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: forget the ids too, and an old proposal is decided anew."""
    monkeypatch.setattr(archive, "PART_MAX", 1)  # so many more are kept, until they are packed
    kept = Kept(decided=None, decisions_kept=3)
    made = [kept.propose() for _ in range(8)]
    driver = kept.hand.driver
    assert len(driver.archive) == 3
    for number, (proposal_id, sealed) in enumerate(made):
        answer = kept.answer(sealed)
        if number >= 5:
            assert isinstance(answer, Decision)
            assert answer == driver.decision(proposal_id)
            continue
        assert answer[0] == "forgotten"
        assert "decisions_kept" in answer[1]
        for said in (other_content(kept, proposal_id), reported(kept.hand, proposal_id)):
            assert kept.answer(said)[0] == "forgotten"
        kept.receive(kept.hand.unreadable_vote("lite", proposal_id), None)
        refused = dict(driver.refused)
        for unread in SAID_UNREAD.values():  # which nobody needs to have refused
            kept.receive(unread(kept, proposal_id), None)
        assert driver.refused == refused
        with pytest.raises(Refused, match="decisions_kept"):
            driver.away(proposal_id)
    assert len(driver.archive) == 3
    assert sum(driver.announcements.counts.values()) == 8


@pytest.mark.parametrize("seed", range(5))
def test_an_index_holds_what_a_dict_holds(seed: int) -> None:
    chance, index, expected = random.Random(seed), HashIndex(3), dict[str, bytes]()
    for _ in range(30_000):
        text = f"id {chance.randrange(20_000)}"
        expected[text] = chance.randbytes(3)
        index.put(key_of(text), expected[text])
    assert all(index.get(text) == value for text, value in expected.items())
    assert not any(f"other {number}" in index for number in range(5_000))
    other = HashIndex(3)
    other.add(b"".join(map(bytes, index._buckets.values())))
    assert all(other.get(text) == value for text, value in expected.items())


def test_a_value_is_not_taken_for_a_key() -> None:
    """Mutation: find a key wherever its bytes stand."""
    index, bucket = HashIndex(12), {}
    for number in range(10 * BUCKETS):
        one, key = f"{number}", key_of(f"{number}")
        other = bucket.setdefault(key[:2], one)
        if other != one:
            break
    index.put(key_of(one), key_of(other))
    assert other not in index
    index.put(key_of(other), b"x" * 12)
    assert (index.get(one), index.get(other)) == (key_of(other), b"x" * 12)


def test_a_council_reads_old_decisions_from_its_store(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's duplicate, its question, its reports and a late ballot, before and after a restart."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_RECORDS", 10)
    options: dict[str, Any] = {"seats": SEATS, "name": "old", "store": str(tmp_path / "store.db")}
    with Council.inline(**options) as council:
        first = council.draft("the first", wait_for="all")
        decision = council.propose(first)
        for number in range(20):
            council.propose(f"another, number {number}")
        assert council.propose(first) == council.decision(first.msg_id) == decision
    with Council.inline(**options) as council:
        assert council.decision(first.msg_id) == decision
        council.propose("one more")
        (entry,) = [each for each in council.history(proposal=first.msg_id) if each.decision is not None]
        assert entry.decision == decision
        assert council.status()["decided"]["approved"] == 22


OLD = "aaaaaaaa"


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot every ten records."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_RECORDS", 10)


@contextlib.asynccontextmanager
async def aged(path: Path) -> AsyncIterator[tuple[Life, Client]]:
    """A council on a real store, on whose disk alone the decision on ``OLD`` is."""
    async with life(str(path / "store.db")) as living:
        client = await living.client()
        await client.exchange(client.proposal(OLD))
        while living.driver.away(OLD) is None:
            await client.exchange(client.proposal())
        yield living, client


def act(client: Client) -> bytes:
    data = {"proposal_id": OLD, "stage": "act", "ok": True}
    return client.sealed("INFO", {"kind": "outcome", "text": "done", "data": data}, parent_id=OLD)


@pytest.mark.parametrize("error", [StoreCorrupt, StoreLocked])
@pytest.mark.usefixtures("often")
@in_loop
async def test_where_an_old_decision_can_not_be_read_the_rest_of_the_call_is_taken_in(
    error: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: go on with the moment from before the read, and time runs backwards."""
    async with aged(tmp_path) as (living, client):

        def failing(position: int) -> bytes:
            raise error("no decision can be read", position=position)

        with monkeypatch.context() as patch:
            patch.setattr(living.driver.archive, "_read", failing)
            asked = client.exchange(client.proposal("bbbbbbbb"), act(client), client.proposal("cccccccc"))
            first, _ = await asyncio.gather(asked, living.coordinator.hear(b"x" * 40))
        answers = [*first]
        while len(answers) < 3:
            answers += await client.exchange()
        failed = [each for each in answers if isinstance(each, Failed)]
        assert [each.code for each in failed] == [error.code]
        assert {each.decision.proposal_id for each in answers if isinstance(each, Told)} == {
            "bbbbbbbb",
            "cccccccc",
        }
        (answer,) = await client.exchange(act(client))
        assert isinstance(answer, Acknowledged)


@pytest.mark.usefixtures("often")
@in_loop
async def test_what_follows_a_read_is_refused_where_nothing_can_be_kept_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rules 4.7. Mutation: look for trouble before the read alone."""
    async with aged(tmp_path) as (living, client):
        read = living.journal.decided

        def meanwhile(position: int) -> bytes:
            living.journal.trouble = StoreLocked("it is locked", where="here", timeout_s=0)
            return read(position)

        monkeypatch.setattr(living.driver.archive, "_read", meanwhile)
        position = living.driver.position
        answers = await client.exchange(act(client), client.proposal("bbbbbbbb"))
        assert [each.code for each in answers if isinstance(each, Failed)] == [StoreLocked.code] * 2
        assert living.driver.position == position
        living.journal.trouble = None


def test_with_a_store_nothing_leaves_memory_before_the_store_has_it() -> None:
    """Mutation: ``decisions_kept`` bounds what a council with a store keeps."""
    kept = Kept(decisions_kept=1)
    decided = [kept.propose()[0] for _ in range(3)]
    kept.hand.driver.archive.new_parts(kept.hand.driver.position)  # packed, and not written
    kept.hand.save()
    assert [kept.hand.driver.away(each) for each in decided] == [None, None, None]


@pytest.mark.usefixtures("often")
@in_loop
async def test_a_decision_that_moved_while_its_read_waited_is_read_from_its_new_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: read it from the place that was found before the wait."""
    async with aged(tmp_path) as (living, _):
        kept, back = living.driver.archive, living.coordinator._read_back
        before = living.driver.away(OLD)
        assert before is not None
        moved, closed, read = before._replace(part=before.part + 1), kept.fetch(before), list[object]()

        def fetch(away: archive.Away) -> bytes:
            read.append(away)
            return closed

        monkeypatch.setattr(kept, "fetch", fetch)
        await back._turn.acquire()
        asked = asyncio.ensure_future(back.take_back(before))
        await asyncio.sleep(0)
        monkeypatch.setattr(living.driver, "away", lambda proposal_id: moved)
        back._turn.release()
        await asked
        assert read == [moved]


@pytest.mark.usefixtures("often")
@in_loop
async def test_two_who_ask_for_one_part_read_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what a seat says late is dropped at the end. Mutation: read without a turn."""
    async with aged(tmp_path) as (living, _):
        reads, gate, read = list[int](), threading.Event(), living.journal.decided

        def counted(position: int) -> bytes:
            reads.append(position)
            assert gate.wait(HANG_S)
            return read(position)

        monkeypatch.setattr(living.driver.archive, "_read", counted)
        asked = [asyncio.ensure_future(living.coordinator.decision(OLD)) for _ in range(3)]
        await until(lambda: reads)
        living.coordinator._receive([Hand().vote("lite", OLD, "no")])
        gate.set()
        first, *others = await asyncio.gather(*asked)
        assert others == [first, first]
        assert first is not None
        assert len(reads) == 1


@pytest.mark.parametrize("cancelled", [False, True], ids=["", "cancelled"])
@pytest.mark.usefixtures("often")
@in_loop
async def test_what_stands_before_an_old_decision_does_not_wait_for_its_read(
    cancelled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: settle after the whole call alone. What is said twice meanwhile is taken once."""
    async with aged(tmp_path) as (living, client):
        gate, read, unsent = threading.Event(), living.journal.decided, list[int]()

        def slow(position: int) -> bytes:
            unsent.append(len(living.driver.outbox.to_seats))
            assert gate.wait(HANG_S)
            return read(position)

        monkeypatch.setattr(living.driver.archive, "_read", slow)
        other, said = await living.client(), act(client)
        asked = asyncio.ensure_future(client.exchange(client.proposal("bbbbbbbb"), said))
        again = asyncio.ensure_future(other.exchange(said))
        try:
            await until(lambda: living.driver.archive.holds("bbbbbbbb"))
            assert unsent[0] == 0  # a heartbeat would send it too, but later
            if cancelled:
                asked.cancel()
                await asyncio.wait([asked])
        finally:
            gate.set()
        (answer,) = await again
        assert isinstance(answer, Acknowledged)
        if not cancelled:
            assert await asked
        reports = living.driver.archive[OLD].reports
        assert [stage for stage, _, _ in reports] == ["act"]


@pytest.mark.parametrize("through", ["hear", "reply"])
@pytest.mark.usefixtures("often")
@in_loop
async def test_what_a_seat_says_of_an_old_decision_is_taken_in_once_it_is_read(
    through: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ballot that says otherwise, while the store is away and after. Mutation: drop what is away."""
    async with aged(tmp_path) as (living, _):
        read, failed = living.journal.decided, list[int]()

        def once_locked(position: int) -> bytes:
            if not failed:
                failed.append(position)
                raise StoreLocked("it is locked", where="here", timeout_s=0)
            return read(position)

        monkeypatch.setattr(living.driver.archive, "_read", once_locked)
        pens = Hand()
        pens.ids = itertools.count(0xF000)
        seen = living.driver.refused.total(), living.driver.position
        vote = pens.vote("lite", OLD, "no")
        if through == "hear":
            await living.coordinator.hear(vote)
        else:
            living.coordinator._receive([vote])
        await until(lambda: (living.driver.refused.total(), living.driver.position) != seen)
        assert failed
        assert living.driver.archive.holds(OLD)


@in_loop
async def test_late_messages_of_seats_are_few_keep_their_order_and_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutation: a task for each, or an end that does not wait for it."""
    monkeypatch.setattr(read_back, "WAITING_MAX", 2)
    kept, gate, heard = Kept(decided=lambda position: gate.wait(HANG_S) and b""), threading.Event(), []
    proposal_id, _ = kept.propose()
    for _ in range(2):
        kept.snapshot()
        kept.propose()
    away = kept.hand.driver.away(proposal_id)

    def receive(opened: Opened) -> Any:
        heard.append(opened.sealed)
        return away if opened.sealed == b"1" else None

    late = read_back.ReadBack(kept.hand.driver, receive)
    late.receive_later(b"1")
    await until(lambda: heard)
    for sealed in (b"2", b"3", b"4"):
        late.receive_later(sealed)
    gate.set()  # what is read is no part: that message is dropped, and the next two are received
    await until(lambda: len(heard) == 3)
    assert heard == [b"1", b"2", b"3"]
    late.receive_later(b"1")
    await late.end()
    assert late._task is not None
    assert late._task.done()
