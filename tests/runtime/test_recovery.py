"""A council that ends, in whichever way, and begins again on its journal: nothing lost, nothing twice, nothing else.

With real stores, coordinators and seats, in this process. Rules 1.9 to 1.13, 1.15, 4.6, 4.7.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from council import Council
from council.agents.messaging.ids import new_id
from council.agents.mind import Case, Opinion, as_mind
from council.agents.seat.host import SeatHost
from council.api.inline import InlineTransport
from council.core.state import Rules
from council.journal.packets import unpacked
from council.journal.store import PacketStore
from council.journal.verify import verify
from council.journal.writer import DurableJournal
from council.protocol.errors import EpochFenced, NameTaken, StoreLocked
from council.runtime.coordinator import Coordinator
from council.runtime.driver import Driver
from council.runtime.messages import Acknowledged, Failed, Told
from council.runtime.session import Session
from council.runtime.surroundings import Clock
from tests.core.invariants import check
from tests.journal.writing import NAME, locked, opened, recovered, unlocked, whole
from tests.patience import HANG_S
from tests.runtime.harness import (
    COUNCIL_ID,
    WALL_0,
    greeting,
    in_loop,
    key_of,
    until,
)
from tests.runtime.test_coordinator import Chair, Client, agree, hang
from tests.runtime.test_session import Line, Wire


async def wary(case: Case) -> Opinion:
    """Has the proposals that say so asked of a human."""
    if case.summary == "wary":
        raise RuntimeError("it can't say")
    return Opinion.yes("fine")


class Time:
    """Time by hand: seconds of uptime, and of the wall."""

    def __init__(self, wall_s: float = WALL_0) -> None:
        self.up_s, self.wall_s = 0.0, wall_s

    @property
    def clock(self) -> Clock:
        return Clock(uptime=lambda: self.up_s, wall=lambda: self.wall_s)


class Life:
    """One coordinator on a journal, with seats of its own."""

    def __init__(
        self,
        address: str,
        minds: dict[str, Any] | None = None,
        *,
        clock: Clock | None = None,
        takeover: bool = False,
        checkpoint: Path | None = None,
        timeout_s: float = 5.0,
        **rules: Any,
    ) -> None:
        minds = minds or {"prime": Chair, "lite": agree, "codemind": agree}
        self.new_id = new_id
        self.address = address
        keys = {name: key_of(name) for name in minds}
        began = time.monotonic()
        hosts = {
            name: SeatHost(
                name,
                as_mind(mind, seat=name),
                keys[name],
                COUNCIL_ID,
                wall=lambda: datetime.now(UTC),
                uptime=time.monotonic,
                new_id=new_id,
            )
            for name, mind in minds.items()
        }
        transport = InlineTransport(hosts)
        self.rules = Rules(seats=tuple(minds), prime=rules.pop("prime", "prime"), **rules)
        self.journal: DurableJournal = opened(
            address, takeover=takeover, checkpoint=checkpoint, timeout_s=timeout_s
        )
        self.coordinator = Coordinator(
            self.rules,
            COUNCIL_ID,
            keys,
            transport,
            self.journal,
            clock or Clock(uptime=lambda: time.monotonic() - began, wall=time.time),
            humans={"ada": key_of("ada")},
        )
        transport.coordinator = self.coordinator

    async def client(self, name: str = "client", role: str = "proposer", key: bytes | None = None) -> Client:
        shown = greeting(name) if role == "human" else key or key_of(name)
        joined = await self.coordinator.join(name, role, shown)
        return Client(self, name, joined["session"], role)  # type: ignore[arg-type]

    @property
    def driver(self) -> Any:
        return self.coordinator._driver


@contextlib.asynccontextmanager
async def life(address: str, *args: Any, **more: Any) -> AsyncIterator[Life]:
    living = Life(address, *args, **more)
    await living.coordinator.open()
    try:
        yield living
        check(living.driver.state)
    finally:
        await living.coordinator.close()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def decided(address: str) -> list[tuple[str, str | None]]:
    """Each decision in the journal, which must hold, with its outcome; none may be there twice."""
    found = []
    with PacketStore.open(address, read_only=True) as store:
        verify(store, NAME)
        for row in store.records(NAME, 0, 10_000):
            kept = unpacked(row.content, row.position)
            found += [(each.proposal_id, each.outcome) for each in kept.decisions]
    assert len({proposal_id for proposal_id, _ in found}) == len(found)
    return found


async def told(client: Client, *batch: bytes) -> Any:
    (message,) = await client.exchange(*batch)
    return message


@in_loop
async def test_what_was_decided_stands_and_is_told_again(address: str) -> None:
    """rules 1.3, 1.12, 1.15: decisions, ids and names are what they were, for whoever asks or tries again."""
    hand = Time()
    async with life(address, clock=hand.clock) as one:
        client = await one.client()
        sealed = client.proposal("aaaaaaaa")
        first = await told(client, sealed)
        assert first.decision.outcome == "approved"
        hand.up_s = 50.0
        await told(client, client.proposal("bbbbbbbb"))
        assert isinstance(await told(client, b"garbage" * 10), Failed)
        before = await one.coordinator.status()
    hand.up_s = 0.0
    async with life(address, clock=hand.clock) as two:
        status = await two.coordinator.status()
        for name in ("council_id", "decided", "refused", "prime"):
            assert status[name] == before[name]
        assert (before["epoch"], status["epoch"]) == (1, 2)
        assert status["uptime_s"] == before["uptime_s"] == 50.0
        with pytest.raises(NameTaken, match="with another key"):
            await two.client("client", key=b"k" * 32)
        client = await two.client()
        again = await told(client, sealed)
        assert isinstance(again, Told)
        assert again.decision.outcome == "approved"
        assert (again.decision.position, again.decision.ballots[:2]) == (
            first.decision.position,
            first.decision.ballots[:2],
        )
        other = await told(client, client.proposal("aaaaaaaa", summary="something else"))
        assert isinstance(other, Failed)
        assert other.code == "id_reused"
        ballot_id = first.decision.ballots[0].msg_id
        other = await told(client, client.proposal(ballot_id))
        assert (type(other), other.code) == (Failed, "id_reused")
    assert decided(address) == [("aaaaaaaa", "approved"), ("bbbbbbbb", "approved")]


@in_loop
async def test_a_proposal_in_flight_is_decided_once_by_the_same_bytes(address: str) -> None:
    minds = {"prime": Chair, "lite": hang, "codemind": hang}
    async with life(address, minds) as one:
        client = await one.client()
        sealed = client.proposal("aaaaaaaa")
        call = asyncio.ensure_future(client.exchange(sealed))
        await until(lambda: one.driver.state.open and one.driver.state.open["aaaaaaaa"].ballots)
        before = one.driver.state.open["aaaaaaaa"]
    assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], Exception)
    async with life(address) as two:
        client = await two.client()
        answer = await told(client, sealed)
        assert answer.decision.outcome == "approved"
        assert answer.decision.ballots[0] == before.ballots[0], "a ballot that was cast counts"
    assert decided(address) == [("aaaaaaaa", "approved")]


@in_loop
async def test_what_waits_for_a_human_waits_on_and_is_answered(address: str) -> None:
    async with life(address) as one:
        client = await one.client()
        high = client.proposal("aaaaaaaa", risk_level="high")
        first = await told(client, high)
        assert first.decision.outcome == "approved", "Prime confirmed it"
    lost = {"prime": hang, "lite": hang, "codemind": hang}
    async with life(address, lost) as two:
        client = await two.client()
        (standing,) = await client.exchange(client.proposal("bbbbbbbb", time_budget_s=0.05))
        assert not standing.decision.final
        pending = await two.coordinator.escalations()
    async with life(address, lost) as three:
        assert await three.coordinator.escalations() == pending
        human = await three.client("ada", "human")
        sealed = human.info("bbbbbbbb", "answer", approve=True)
        assert isinstance(await told(human, sealed), Acknowledged)
    async with life(address, lost) as four:
        human = await four.client("ada", "human")
        assert isinstance(await told(human, sealed), Acknowledged), "the same answer again"
        late = await told(human, human.info("bbbbbbbb", "answer", approve=False))
        assert (type(late), late.code) == (Failed, "already_answered")
        assert await four.coordinator.escalations() == []
    assert decided(address) == [("aaaaaaaa", "approved"), ("bbbbbbbb", "approved")]


@pytest.mark.parametrize(("down_s", "waits"), [(86_000.0, True), (86_401.0, False), (-1e6, True)])
@in_loop
async def test_a_humans_time_runs_while_everything_is_down(address: str, down_s: float, waits: bool) -> None:
    """rules 1.9: by the wall's clock. One that was set back lengthens nothing beyond the uptime it would have had."""
    lost, hand = {"prime": hang, "lite": hang, "codemind": hang}, Time()
    async with life(address, lost, clock=hand.clock, inactivity_limit_s=1e9) as one:
        client = await one.client()
        call = asyncio.ensure_future(client.exchange(client.proposal("aaaaaaaa", time_budget_s=10.0)))
        await until(lambda: one.driver.state.open)
        hand.up_s, hand.wall_s = 11.0, WALL_0 + 11.0
        one.coordinator._wake()
        (standing,) = await call
        assert not standing.decision.final
    hand.up_s, hand.wall_s = 0.0, hand.wall_s + down_s
    async with life(address, lost, clock=hand.clock, inactivity_limit_s=1e9) as two:
        found = await two.coordinator.decision("aaaaaaaa")
        assert found is not None
        assert found.final is not waits
        if waits:
            hand.up_s += 86_400.1
            hand.wall_s = max(hand.wall_s, WALL_0)
            two.coordinator._wake()
    assert decided(address) == [("aaaaaaaa", "deferred")]


@in_loop
async def test_a_deadline_counts_the_time_that_the_council_was_up(address: str) -> None:
    """rules 1.10: a day down is nobody's silence, and takes nothing from a proposal's time."""
    lost, hand = {"prime": Chair, "lite": hang, "codemind": hang}, Time()
    for number in range(5):
        hand.up_s = 0.0
        async with life(address, lost, clock=hand.clock) as living:
            if number == 0:
                client = await living.client()
                asyncio.ensure_future(client.exchange(client.proposal("aaaaaaaa", time_budget_s=60.0)))  # noqa: RUF006
                await until(lambda here=living: any(p.ballots for p in here.driver.state.open.values()))
            status = await living.coordinator.status()
            (proposal,) = status["open"]
            assert proposal["time_left_s"] == 60.0 - 10.0 * number
            assert all(seat["active"] for seat in status["seats"])
            hand.up_s += 10.0
            living.coordinator._wake()
            await living.coordinator.hear(b"x" * 40)  # something is journaled, with its moment
        hand.wall_s += 86_400.0 / 5
    hand.up_s = 0.0
    async with life(address, lost, clock=hand.clock) as last:
        hand.up_s = 10.5
        last.coordinator._wake()
        assert (await last.coordinator.status())["with_human"] == 1, "no quorum at its deadline"


def test_uptime_never_falls_by_rounding() -> None:
    """The core takes no time that falls. Mutation: the sum alone, which may round below what it goes on from."""
    chance = random.Random(1)
    fell = 0
    for _ in range(20_000):
        start, now = chance.uniform(0, 1), chance.uniform(0, 10)
        clock = Clock(uptime=lambda now=now: now, wall=time.time)
        fell += now + (start - now) < start
        assert clock.going_on(start).uptime() >= start
    assert fell > 100, "so that this test can fail"


# The one that was there before


@in_loop
async def test_the_old_ones_word_counts_no_more(address: str) -> None:
    """rules 4.6. What the old coordinator decides on its own is told to nobody, and is nowhere."""
    async with life(address) as old:
        client = await old.client("one")
        await told(client, client.proposal("aaaaaaaa"))
        async with life(address, takeover=True) as new:
            call = await asyncio.gather(client.exchange(client.proposal("bbbbbbbb")), return_exceptions=True)
            assert isinstance(call[0], EpochFenced)
            for asked in (old.coordinator.status(), old.coordinator.hear(b"x"), client.exchange()):
                with pytest.raises(EpochFenced):
                    await asked
            other = await new.client("two")
            answer = await told(other, other.proposal("cccccccc"))
            assert answer.decision.outcome == "approved"
            assert await asyncio.gather(new.coordinator.decision("bbbbbbbb"), return_exceptions=True) != [
                None
            ]
    assert decided(address) == [("aaaaaaaa", "approved"), ("cccccccc", "approved")]


@in_loop
async def test_a_council_that_is_closed_twice_or_in_the_middle_leaves_a_whole_journal(address: str) -> None:
    for number in range(6):
        async with life(address) as living:
            client = await living.client()
            calls = [asyncio.ensure_future(client.exchange(client.proposal())) for _ in range(20)]
            for _ in range(number * 7):
                await asyncio.sleep(0)
        await living.coordinator.close()
        for call in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(call, (list, Exception))
        decided(address)
    async with life(address) as last:
        await until(lambda: not last.driver.state.open)
        position = last.driver.position
    driver = recovered(address, last.rules)
    assert driver.position >= position
    assert len(decided(address)) == sum(driver.announcements.counts.values()) == len(driver.state.closed)


# Other settings


@in_loop
async def test_other_seats_and_another_prime_go_on_with_what_is_open(address: str) -> None:
    async with life(address, {"prime": Chair, "lite": hang, "codemind": hang}) as one:
        client = await one.client()
        sealed = client.proposal("aaaaaaaa", risk_level="high")
        call = asyncio.ensure_future(client.exchange(sealed))
        await until(lambda: one.driver.state.open and one.driver.state.open["aaaaaaaa"].ballots)
    await asyncio.gather(call, return_exceptions=True)
    minds = {"chair": Chair, "second": agree}
    async with life(address, minds, prime="chair") as two:
        client = await two.client()
        answer = await told(client, sealed)
        assert answer.decision.outcome == "approved"
        assert {ballot.seat for ballot in answer.decision.ballots} == {"prime", "chair", "second"}
        assert answer.decision.ruling.seat == "chair"
    assert whole(recovered(address, two.rules)) == whole(two.driver)


@in_loop
async def test_less_room_than_was_taken_is_no_reason_to_give_seats_up(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: letters counted by the new limit lose every seat that is told of what is open, over and over."""
    monkeypatch.setattr("council.agents.messaging.mailbox.BATCH_ITEMS_MAX", 5)
    lost = {"prime": hang, "lite": hang, "codemind": hang}
    async with life(address, lost) as one:
        client = await one.client()
        calls = [asyncio.ensure_future(client.exchange(client.proposal())) for _ in range(60)]
        await until(lambda: len(one.driver.state.open) == 60)
    await asyncio.gather(*calls, return_exceptions=True)
    async with life(address, lost, open_max=1) as two:
        await until(lambda: "lite" in two.coordinator._seats._lost)  # it is watched over
        boot = two.driver.boot("lite")
        two.coordinator._seats._lose("lite", "it was lost")
        await until(lambda: two.driver.boot("lite") > boot and two.driver.state.seats["lite"].active)
        await asyncio.sleep(0.3)
        assert two.driver.boot("lite") == boot + 1, "lost again, for what it was told of anew"


# Trouble


async def stalled(living: Life) -> Any:
    """Has the journal's writer kept out, once all is kept; gives what keeps it out."""
    await until(lambda: not living.driver.awaits_saving and not living.coordinator._commit.writing)
    return locked(living.address)


@in_loop
async def test_who_asks_while_nothing_can_be_kept_hears_why(address: str) -> None:
    """Of what is not kept nobody hears what became of it (rules 4.7). Mutations: whoever asks how the council is
    waits until it is well, or hears nothing of it; what is told counts what is not on disk.
    """
    minds = dict.fromkeys(("prime", "lite", "codemind"), wary)
    async with life(address, minds, timeout_s=0.2) as living:
        client = await living.client()
        await told(client, client.proposal("aaaaaaaa"))
        standing = await told(client, client.proposal("eeeeeeee", time_budget_s=0.05, summary="wary"))
        assert standing.decision.standing == "escalated"
        other = await stalled(living)
        call = asyncio.ensure_future(client.exchange(client.proposal("bbbbbbbb")))
        lost = asyncio.ensure_future(
            client.exchange(client.proposal("dddddddd", summary="wary", time_budget_s=0.05))
        )
        await until(lambda: living.driver.state.with_human == 2)
        await until(lambda: "bbbbbbbb" in living.driver.state.closed)
        await until(lambda: living.journal.trouble is not None)
        status = await living.coordinator.status()
        assert "another process holds it" in status["journal_trouble"]
        assert status["journal_lag"] == living.driver.position - living.coordinator._commit.kept_position > 0
        assert (status["decided"], status["untold"]) == ({"approved": 1}, 2)
        assert (status["open_count"], status["with_human"]) == (0, 1)
        assert [each["proposal_id"] for each in status["waiting"]] == ["eeeeeeee"]
        assert "bbbbbbbb" not in str(status)
        assert "dddddddd" not in str(status)
        waiting = await living.coordinator.escalations()
        assert [each.proposal_id for each in waiting] == ["eeeeeeee"]
        await living.coordinator.join("two", "proposer", key_of("two"))
        for proposal_id, kept in (("aaaaaaaa", "approved"), ("eeeeeeee", None)):
            found = await living.coordinator.decision(proposal_id)
            assert found.outcome == kept
        for asked in (
            living.coordinator.decision("bbbbbbbb"),
            living.coordinator.decision("dddddddd"),
            client.exchange(client.proposal("cccccccc")),
        ):
            with pytest.raises(StoreLocked):
                await asked
        assert not call.done()
        unlocked(other)
        answers: dict[str, Any] = {}
        for asking in asyncio.as_completed((call, lost)):
            answers |= {each.decision.proposal_id: each.decision for each in await asking}
            if {
                "bbbbbbbb",
                "dddddddd",
            } <= answers.keys():  # one may bring both, and the other has none then
                break
        call.cancel()
        lost.cancel()
        assert answers["bbbbbbbb"].outcome == "approved"
        status = await living.coordinator.status()
        assert (status["journal_trouble"], status["untold"], status["journal_lag"]) == (None, 0, 0)
        assert (status["decided"], status["with_human"]) == ({"approved": 2}, 2)
    assert decided(address) == [("aaaaaaaa", "approved"), ("bbbbbbbb", "approved")]


@in_loop
async def test_who_asked_before_nothing_could_be_kept_hears_why_too(address: str) -> None:
    """Mutation: whoever asked while it was well, of something that is not kept yet, waits until it is well again."""
    async with life(address, timeout_s=0.2) as living:
        client = await living.client()
        await told(client, client.proposal("aaaaaaaa"))
        other = await stalled(living)
        store, all_asked = living.journal._store, threading.Event()
        append_rows = store.append_rows

        def then(*rows: Any) -> Any:
            assert all_asked.wait(HANG_S)
            return append_rows(*rows)

        store.append_rows = then  # type: ignore[method-assign]
        call = asyncio.ensure_future(client.exchange(client.proposal("bbbbbbbb")))
        await until(lambda: living.driver.awaits_saving or living.coordinator._commit.writing)
        asked = [
            asyncio.ensure_future(living.coordinator.status()),
            asyncio.ensure_future(living.coordinator.decision("bbbbbbbb")),
        ]
        await until(lambda: "bbbbbbbb" in living.driver.state.closed)
        assert living.journal.trouble is None
        all_asked.set()
        status = await asked[0]
        assert "another process holds it" in status["journal_trouble"]
        assert (status["decided"], status["untold"]) == ({"approved": 1}, 1)
        with pytest.raises(StoreLocked):
            await asked[1]
        unlocked(other)
        (answer,) = await call
        assert answer.decision.outcome == "approved"


@in_loop
async def test_who_waits_when_nothing_can_be_kept_hears_why_within_the_time_that_it_gave(
    address: str,
) -> None:
    """Mutations: it hears nothing, or for any other reason; whoever has time left, or a human's answer to wait for,
    is told that it failed; what was refused meanwhile takes along what was not.
    """
    minds = dict.fromkeys(("prime", "lite", "codemind"), wary)
    async with life(address, minds, timeout_s=0.1) as living:
        session = Session(Line(living.coordinator), "client", "proposer", key_of("client"), 2 * HANG_S)  # type: ignore[arg-type]
        await session.open()
        wire = Wire(living, living.coordinator, session)  # type: ignore[arg-type]
        human = asyncio.ensure_future(
            session.propose(wire.draft("eeeeeeee", time_budget_s=0.05, summary="wary"), wait_for_human=True)
        )
        await until(lambda: living.driver.state.with_human)
        other = await stalled(living)
        draft = wire.draft("aaaaaaaa", time_budget_s=1.0)
        long = asyncio.ensure_future(session.propose(wire.draft("bbbbbbbb", time_budget_s=60.0)))
        with pytest.raises(
            StoreLocked, match="aaaaaaaa may still be decided: propose the same draft again"
        ) as heard:
            await session.propose(draft)
        assert heard.value.facts["proposal_id"] == "aaaaaaaa"
        with pytest.raises(StoreLocked) as refused:
            await session.propose(wire.draft("cccccccc"))
        assert "may still" not in refused.value.message
        unlocked(other)
        assert (await long).outcome == "approved"
        assert (await session.propose(draft)).outcome == "approved"
        assert not human.done()
        human.cancel()
        await session.close()
    assert sorted(decided(address)) == [("aaaaaaaa", "approved"), ("bbbbbbbb", "approved")]


@in_loop
async def test_what_is_counted_beside_outcomes_outlives_a_coordinator(address: str) -> None:
    """Mutation: a restart, by records or by a snapshot, begins the counts anew."""
    hand = Time()
    minds = {"prime": Chair, "lite": agree, "codemind": hang}
    async with life(address, minds, clock=hand.clock) as one:
        client = await one.client()
        await told(client, client.proposal("aaaaaaaa"))
        waits = asyncio.ensure_future(told(client, client.proposal("bbbbbbbb", wait_for="all")))
        await until(lambda: any(len(p.ballots) == 2 for p in one.driver.state.open.values()))
        hand.up_s = 60.5
        one.coordinator._wake()
        await waits
        found = await one.coordinator.status()
        assert found["ways"] == {"early": 1, "tie_broken": 0, "degraded": 1}
        assert found["journal_write_s"] > 0
    async with life(address) as two:
        assert (await two.coordinator.status())["ways"] == found["ways"]
        assert two.driver.announcements.ways == one.driver.announcements.ways


@in_loop
async def test_a_quiet_council_signs_what_came_last(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: a checkpoint is looked for only when something is kept, and the last decisions stand in none."""
    file = tmp_path / "a.checkpoint"
    async with life(address, checkpoint=file) as living:
        client = await living.client()
        await told(client, client.proposal("aaaaaaaa"))
        await until(lambda: not living.driver.awaits_saving and not living.coordinator._commit.writing)
        assert not file.exists()
        monkeypatch.setattr("council.journal.checkpoint.CHECKPOINT_S", 0.0)
        content = {"beat": 10_000, "busy_with": None, "uptime_s": 1.0}
        seat = Client(living, "lite", "", "voter")  # type: ignore[arg-type]
        boot = living.driver.boot("lite")
        await living.coordinator.hear(seat.sealed("HEARTBEAT", content, parent_id=f"{boot:08x}"))
        await until(file.exists)


@in_loop
async def test_a_long_life_of_many_short_ones_is_one(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots at small distances, closings at any moment, seats that die: live, recovered and journaled agree."""
    monkeypatch.setattr("council.journal.snapshots.SNAPSHOT_RECORDS", 7)
    chance = random.Random(4)

    async def unsure(case: Case) -> Opinion:
        return chance.choice(
            [Opinion.yes("so be it"), Opinion.no("never", risk="high"), Opinion.abstain("who knows")]
        )

    for _ in range(12):
        async with life(address, {"prime": Chair, "lite": unsure, "codemind": unsure}) as living:
            client = await living.client()
            calls = [
                asyncio.ensure_future(client.exchange(client.proposal(time_budget_s=0.2)))
                for _ in range(chance.randint(1, 12))
            ]
            await asyncio.sleep(chance.choice([0.0, 0.005, 0.05]))
            if chance.random() < 0.3:
                living.coordinator._seats._lose("lite", "it was lost")
            await asyncio.sleep(chance.choice([0.0, 0.02]))
        await asyncio.gather(*calls, return_exceptions=True)
        # A council that is closed tells nobody of the last it did; its journal has it.
        live = whole(living.driver) | {"feed": living.driver.announcements.announced}
        assert whole(recovered(address, living.rules)) == live
    decided(address)


def test_a_council_that_was_closed_starts_without_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a newer version, which may say the same in other words, can go on with its journal."""
    store = str(tmp_path / "store.db")
    with Council.inline(store=store) as council:
        decision = council.propose("Rotate the staging key", wait_for="all")
    monkeypatch.setattr(Driver, "replay", lambda self, record: pytest.fail(f"{record.position} was replayed"))
    with Council.inline(store=store) as council:
        assert council.decision(decision.proposal_id) == decision
        assert council.status()["epoch"] == 2
