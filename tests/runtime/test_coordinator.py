"""The coordinator's shell: what is kept is told, in that order; a failing journal stops it in plain words."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from council.agents.messaging.mailbox import Reply
from council.agents.mind import Case, Opinion, Ruling, as_mind
from council.agents.seat.host import SeatHost
from council.api.inline import InlineTransport
from council.core.events import DeadlinePassed
from council.core.state import Moment, Rules
from council.journal.entries import HistoryPage, Wanted
from council.journal.memory import MemoryJournal
from council.journal.record import Record
from council.protocol import signing
from council.protocol.envelope import Envelope
from council.protocol.errors import (
    EnvelopeError,
    NameTaken,
    NotEnrolled,
    OperatorError,
    PositionLost,
    Refused,
    SignatureError,
    StoreFull,
)
from council.runtime import coordinator as coordinator_module
from council.runtime import messages
from council.runtime.commit import LINGERS_MAX
from council.runtime.coordinator import SESSION_IDLE_S, Coordinator
from council.runtime.driver import Driver
from council.runtime.messages import Acknowledged, Failed, Stalled, Told
from council.runtime.surroundings import Clock
from tests.patience import HANG_S
from tests.runtime.harness import (
    COUNCIL_ID,
    WALL_0,
    CalledTransport,
    Hand,
    greeting,
    in_loop,
    in_virtual_time,
    key_of,
    until,
)


class Chair:
    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("fine")

    async def rule(self, case: Case, ballots: Sequence[Any]) -> Ruling:
        return Ruling("confirm", "fine")


async def agree(case: Case) -> Opinion:
    return Opinion.yes("fine")


async def hang(case: Case) -> Opinion:
    await asyncio.sleep(3600)
    return Opinion.yes("never")


class SlowJournal(MemoryJournal):
    """Keeps what it is given when the test opens the gate; ``error`` makes the next append fail."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.batches: list[list[Record]] = []
        self.kept: list[Record] = []
        self.error: Exception | None = None
        self.at_once: Exception | None = None
        self.closed = False

    def append(self, records: Sequence[Record]) -> Awaitable[None] | None:  # type: ignore[override]  # in its time
        if records[0].position == 1:
            return None  # the council's start is not what these tests are about
        if self.at_once is not None:
            raise self.at_once
        self.batches.append(list(records))
        return self._keep(list(records))

    async def _keep(self, records: list[Record]) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.kept += records

    async def close(self, last: Sequence[Record] = (), snapshot: Any = None) -> None:
        self.closed = True


class SlowFromTheStart(SlowJournal):
    """Keeps the council's start no sooner than anything else."""

    def append(self, records: Sequence[Record]) -> Awaitable[None] | None:
        self.batches.append(list(records))
        return self._keep(list(records))


class HandClock:
    """Time by hand; what the coordinator's timer sleeps by is the loop's own."""

    def __init__(self) -> None:
        self.t = 0.0

    @property
    def clock(self) -> Clock:
        return Clock(uptime=lambda: self.t, wall=lambda: WALL_0 + self.t)


class Bench:
    """A coordinator with real seats on this loop."""

    def __init__(
        self,
        minds: dict[str, Any] | None = None,
        journal: Any = None,
        clock: Clock | None = None,
        fitting: Any = None,
        council_id: str = COUNCIL_ID,
        transport: Callable[[dict[str, SeatHost]], InlineTransport] = InlineTransport,
        **rules: Any,
    ) -> None:
        minds = minds or {"prime": Chair, "lite": agree, "codemind": agree}
        ids = iter(range(1, 10**9))
        self.new_id = lambda: f"{next(ids):016x}"
        keys = {name: key_of(name) for name in minds}
        began = time.monotonic()
        self.clock = clock or Clock(uptime=lambda: time.monotonic() - began, wall=time.time)
        self.hosts = {
            name: SeatHost(
                name,
                as_mind(mind, seat=name),
                keys[name],
                council_id,
                wall=lambda: datetime.now(UTC),
                uptime=time.monotonic,
                new_id=self.new_id,
            )
            for name, mind in minds.items()
        }
        self.transport: Any = transport(self.hosts)
        self.coordinator = Coordinator(
            Rules(
                seats=tuple(minds),
                prime="prime",
                lost_at_once=True,
                asks_outcome=True,
                keeps_escalation=True,
                **rules,
            ),
            council_id,
            keys,
            self.transport,
            journal or MemoryJournal(),
            self.clock,
            humans={"ada": key_of("ada")},
            fitting=fitting,
        )
        self.transport.coordinator = self.coordinator

    async def __aenter__(self) -> Bench:
        await self.coordinator.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.coordinator.close()

    async def client(self, name: str = "client", role: str = "proposer") -> Client:
        shown = greeting(name) if role == "human" else key_of(name)
        joined = await self.coordinator.join(name, role, shown)
        assert joined["council_id"] == COUNCIL_ID
        return Client(self, name, joined["session"], role)


class Client:
    def __init__(self, bench: Bench, name: str, session: str, role: str = "proposer") -> None:
        self.bench = bench
        self.name = name
        self.role = role
        self.session = session

    def sealed(self, type: str, content: dict[str, Any], **fields: Any) -> bytes:
        envelope = Envelope.build(
            msg_id=fields.pop("msg_id", None) or self.bench.new_id(),
            timestamp=datetime.now(UTC),
            sender=self.name,
            role=self.role,
            type=type,
            content=content,
            **fields,
        )
        return signing.sign(envelope, key_of(self.name), COUNCIL_ID)

    def proposal(self, msg_id: str | None = None, **content: Any) -> bytes:
        fields = {key: content.pop(key) for key in ("risk_level",) if key in content}
        return self.sealed("PROPOSAL", {"summary": "do it", **content}, msg_id=msg_id, **fields)

    def info(self, proposal_id: str, kind: str, **data: Any) -> bytes:
        return self.sealed("INFO", {"kind": kind, "data": data}, parent_id=proposal_id)

    async def exchange(self, *batch: bytes) -> list[messages.Message]:
        """The answers to this, in as many calls as they take; at least one if one is owed."""
        more, items = await self.bench.coordinator.exchange(self.session, batch)
        while more and not self.answers(items):
            more, items = await self.bench.coordinator.exchange(self.session, [])
        return self.answers(items)

    def answers(self, items: Sequence[bytes]) -> list[messages.Message]:
        opened = [self.opened(item) for item in items]
        return [each for each in opened if not isinstance(each, Stalled)]

    def opened(self, item: bytes) -> messages.Message:
        return messages.from_bytes(signing.open_to(item, key_of(self.name), COUNCIL_ID, self.name))


@in_loop
async def test_a_proposal_is_decided_and_told() -> None:
    async with Bench() as bench:
        client = await bench.client()
        (told,) = await client.exchange(client.proposal())
        assert isinstance(told, Told)
        assert told.decision.outcome == "approved"
        assert (await bench.coordinator.status())["sessions"] == ["client"]


class SlowFitting:
    """Measures a batch when the test opens the gate, but for those that come later."""

    free_bytes = 0

    def __init__(self) -> None:
        self.gate, self.asked = asyncio.Event(), 0

    async def problem(self, envelope: Envelope) -> None:
        self.asked += 1
        if self.asked == 1:
            await self.gate.wait()


@in_loop
async def test_what_a_session_sends_later_does_not_overtake_what_is_still_measured() -> None:
    """Mutation: the cancellation of a long proposal is refused, for it is not known yet; then it is decided."""
    fitting = SlowFitting()
    async with Bench({"prime": hang, "lite": hang, "codemind": hang}, fitting=fitting) as bench:
        client, other = await bench.client(), await bench.client("other")
        proposed = asyncio.create_task(client.exchange(client.proposal("ab" * 8)))
        await until(lambda: fitting.asked == 1)
        cancelled = asyncio.create_task(client.exchange(client.info("ab" * 8, "cancel")))
        waits = asyncio.create_task(other.exchange(other.info("cd" * 8, "cancel")))
        (told,) = await waits  # of another session nothing is held up
        assert isinstance(told, Failed)
        assert not cancelled.done()
        fitting.gate.set()
        found = [*await proposed, *await cancelled]
        while len(found) < 2:
            found += await client.exchange()
        assert {type(each) for each in found} == {Told, Acknowledged}
        (decision,) = (each.decision for each in found if isinstance(each, Told))
        assert decision.outcome == "cancelled"


@in_loop
async def test_a_batch_is_opened_measured_and_received_one_envelope_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutation: all envelopes of a batch are decoded, and held, before the first is received."""
    steps: list[str] = []

    def noted(step: str, do: Any) -> Any:
        return lambda *given: [steps.append(step), do(*given)][1]

    fitting = SlowFitting()
    fitting.gate.set()
    async with Bench(fitting=fitting) as bench:
        client = await bench.client()
        batch = [client.proposal(), client.proposal()]
        monkeypatch.setattr(Driver, "open", noted("open", Driver.open))
        monkeypatch.setattr(Driver, "receive", noted("receive", Driver.receive))
        monkeypatch.setattr(SlowFitting, "problem", noted("measure", SlowFitting.problem))
        exchange = asyncio.create_task(client.exchange(*batch))
        await until(lambda: len(steps) >= 6)
        assert steps[:6] == ["open", "measure", "receive"] * 2
        await exchange


@pytest.mark.parametrize("passing", [True, False])
@in_loop
async def test_a_proposal_is_not_taken_in_when_the_store_fails_while_it_is_measured(passing: bool) -> None:
    """Rules 4.7: what can't be kept is not taken in, and its sender hears why.

    Mutation: the store is looked at only before the measuring; then the proposal is taken in and can't be kept.
    """
    fitting, journal = SlowFitting(), MemoryJournal()
    async with Bench(journal=journal, fitting=fitting) as bench:
        coordinator, client = bench.coordinator, await bench.client()
        refused = client.proposal()
        call = asyncio.create_task(client.exchange(refused))
        await until(lambda: fitting.asked == 1)
        before = coordinator._driver.position
        if passing:
            journal.trouble = StoreFull("no room is left", where="here")
        else:
            coordinator._break(OSError("no room is left"))
        fitting.gate.set()
        if passing:
            (failed,) = await call
            assert isinstance(failed, Failed)
            assert (failed.type, failed.message) == ("StoreFull", "no room is left")
        else:
            with pytest.raises(OperatorError, match="no room is left"):
                await call
        assert coordinator._driver.position == before
        assert not coordinator._driver.state.open
        if passing:
            journal.trouble = None
            (told,) = await client.exchange(refused)  # the same bytes again are decided
            assert isinstance(told, Told)
            assert told.decision.outcome == "approved"


@in_loop
async def test_each_client_is_told_its_own_and_nobody_elses() -> None:
    async with Bench() as bench:
        clients = [await bench.client(f"c{n}") for n in range(5)]
        found = await asyncio.gather(
            *(client.exchange(client.proposal(f"{n:08x}")) for n, client in enumerate(clients))
        )
        for n, told in enumerate(found):
            assert [message.decision.proposal_id for message in told] == [f"{n:08x}"]  # type: ignore[union-attr]
        for_another = signing.seal_to(b"{}", key_of("c1"), COUNCIL_ID, "c1")
        with pytest.raises(SignatureError):
            clients[0].opened(for_another)


# The journal


@in_loop
async def test_a_seat_beats_only_once_the_record_of_its_run_is_kept() -> None:
    """Mutation: a run that a crash undid gives its number to the next, whose heartbeats then seem old."""
    journal = SlowFromTheStart()
    async with Bench(journal=journal) as bench:
        await until(lambda: journal.batches)
        await asyncio.sleep(0.02)
        seats = bench.coordinator._driver.state.seats
        assert [seat.beat for seat in seats.values()] == [-1, -1, -1]
        journal.gate.set()
        await until(lambda: all(seat.beat == 0 for seat in seats.values()))


@in_loop
async def test_a_history_waits_for_what_is_not_kept_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: right after its launch, a council said that the store has no journal of this name."""
    journal = SlowFromTheStart()
    asked: list[int] = []

    async def count(wanted: Wanted) -> HistoryPage:
        asked.append(len(journal.kept))
        return HistoryPage(())

    monkeypatch.setattr(journal, "history", count)
    async with Bench(journal=journal) as bench:
        page = asyncio.ensure_future(bench.coordinator.history(Wanted()))
        await until(lambda: journal.batches)
        await asyncio.sleep(0)
        assert asked == []
        journal.gate.set()
        await asyncio.wait_for(page, HANG_S)
        assert asked == [len(journal.kept)] != [0]


@in_loop
async def test_a_letter_that_fails_before_its_seat_is_attended_to_is_not_forgotten() -> None:
    """Mutation: the seat is waited for until the deadline, and was never given the proposal."""
    journal = SlowFromTheStart()
    async with Bench(journal=journal, transport=CalledTransport) as bench:
        exchange = bench.transport.exchange
        failed = asyncio.Event()

        async def once(seat: str, batch: list[bytes]) -> Reply:
            if seat == "codemind" and not failed.is_set():
                failed.set()
                raise ConnectionError("the line broke")
            return await exchange(seat, batch)

        bench.transport.exchange = once
        client = await bench.client()
        call = asyncio.ensure_future(client.exchange(client.proposal(wait_for="all")))
        await failed.wait()  # while the start's record is still being kept, and nobody is attended to
        await asyncio.sleep(0)
        journal.gate.set()
        (told,) = await asyncio.wait_for(call, HANG_S)
        assert isinstance(told, Told)
        ((seat, why),) = told.decision.missing
        assert (seat, "the line broke" in why) == ("codemind", True)
        await until(lambda: bench.coordinator._driver.state.seats["codemind"].active)


@in_loop
async def test_a_decision_is_told_only_once_it_is_kept() -> None:
    """Mutation: delivering before the append's awaitable is done tells what a crash would unsay."""
    journal = SlowJournal()
    async with Bench(journal=journal) as bench:
        client = await bench.client()
        call = asyncio.ensure_future(client.exchange(client.proposal()))
        driver = bench.coordinator._driver
        await until(lambda: driver.announcements.counts or driver.state.closed)
        for _ in range(50):
            await asyncio.sleep(0)
        assert not call.done()
        assert await bench.coordinator.events(0) == []
        journal.gate.set()
        (told,) = await call
        assert isinstance(told, Told)
        decided_at = told.decision.position
        assert decided_at in [record.position for record in journal.kept]


@in_loop
async def test_an_append_that_ends_while_the_council_closes_tells_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rules 4.7. Mutation: it is cancelled after the seats have ended, and tells what only the last append keeps."""
    journal = SlowJournal()
    async with Bench(journal=journal) as bench:
        client = await bench.client()
        call = asyncio.ensure_future(client.exchange(client.proposal()))
        driver = bench.coordinator._driver
        await until(lambda: driver.announcements.counts or driver.state.closed)
        seats, kept_before = bench.coordinator._seats, bench.coordinator._commit.kept_position
        end = seats.end

        async def ends_meanwhile() -> None:
            journal.gate.set()
            for _ in range(5):
                await asyncio.sleep(0)
            await end()

        monkeypatch.setattr(seats, "end", ends_meanwhile)
        await bench.coordinator.close()
        assert bench.coordinator._commit.kept_position == kept_before
        assert not bench.coordinator._timer.is_set
        with pytest.raises(OperatorError, match="closed"):
            await call


@in_loop
async def test_what_comes_in_while_one_append_runs_is_kept_by_the_next() -> None:
    journal = SlowJournal()
    async with Bench(journal=journal) as bench:
        client = await bench.client()
        calls = [asyncio.ensure_future(client.exchange(client.proposal())) for _ in range(10)]
        await until(lambda: len(bench.coordinator._driver.state.closed) == 10)
        assert len(journal.batches) == 1
        journal.gate.set()
        await until(lambda: len(journal.kept) >= 40)
        assert len(journal.batches) <= 4
        positions = [record.position for record in journal.kept]
        assert positions == list(range(2, len(positions) + 2))  # behind the council's start
        await asyncio.gather(*calls)


@in_loop
async def test_who_waits_hears_once_that_nothing_can_be_kept_and_once_that_it_can_be_again() -> None:
    """Rules 4.7. Mutation: it is told at each look, twice a second, for as long as the disk is full."""
    journal = SlowJournal()
    async with Bench(journal=journal) as bench:
        coordinator, client = bench.coordinator, await bench.client()
        call = asyncio.ensure_future(coordinator.exchange(client.session, [client.proposal()]))
        await until(lambda: journal.batches)
        told: list[messages.Message] = []

        async def look() -> None:
            """As the timer does; what the session is told by it."""
            nonlocal call
            coordinator._check_stall()
            coordinator._sessions[client.session].mailbox.release()
            _, items = await call
            told.extend(map(client.opened, items))
            call = asyncio.ensure_future(coordinator.exchange(client.session, []))
            await asyncio.sleep(0)

        await look()
        assert told == []
        journal.trouble = StoreFull("no room is left", where="here")
        for _ in range(3):
            await look()
        assert [each.why is not None for each in told if isinstance(each, Stalled)] == [True]
        journal.trouble = None
        for _ in range(3):
            await look()
        assert [each.why is not None for each in told if isinstance(each, Stalled)] == [True, False]
        assert len(told) == 2
        journal.gate.set()
        _, items = await call
        assert any(isinstance(each, Told) for each in client.answers(items))


@pytest.mark.parametrize("when", ["at once", "later"])
@in_loop
async def test_a_failing_journal_stops_the_council_and_tells_all_who_wait(when: str) -> None:
    journal = SlowJournal()
    async with Bench(journal=journal) as bench:
        one, two = await bench.client("one"), await bench.client("two")
        first = asyncio.ensure_future(one.exchange(one.proposal()))
        events = asyncio.ensure_future(bench.coordinator.events(0, wait_s=30.0))
        await until(lambda: journal.batches)
        asked = asyncio.ensure_future(bench.coordinator.escalations())
        await asyncio.sleep(0)
        journal.error = OSError("disk full")
        if when == "at once":
            journal.at_once, journal.error = journal.error, None
        second = asyncio.ensure_future(two.exchange(two.proposal()))
        await asyncio.sleep(0.01)
        journal.gate.set()
        for waiting in (first, second, events, asked):
            with pytest.raises(OperatorError, match=r"journal failed.*disk full"):
                await waiting
        for call in (
            bench.coordinator.status(),
            bench.coordinator.decision("bbbbbbbb"),  # which another, that took over, may know of
            bench.coordinator.escalations(),
            bench.coordinator.exchange(one.session, []),
            bench.coordinator.join("three", "proposer", key_of("three")),
            bench.coordinator.hear(b"x"),
            bench.coordinator.events(bench.coordinator._driver.announcements.feed.position, wait_s=1.0),
        ):
            with pytest.raises(OperatorError, match="disk full"):
                await call
        appended = len(journal.batches)
        await asyncio.sleep(0.05)
        assert len(journal.batches) == appended, "something was written after a gap"
    assert journal.closed


@in_loop
async def test_what_is_not_kept_can_be_asked_for_by_nobody() -> None:
    """rules 4.7, for those who ask as for those who wait. Mutation: reading the core's state and not waiting."""
    journal = SlowJournal()
    minds = {"prime": Chair, "lite": hang, "codemind": hang}
    async with Bench(minds, journal=journal) as bench:
        client = await bench.client()
        calls: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(client.exchange(client.proposal("aaaaaaaa", time_budget_s=0.05)))
        ]
        await until(lambda: bench.coordinator._driver.state.with_human)
        calls += [
            asyncio.ensure_future(bench.coordinator.decision("aaaaaaaa")),
            asyncio.ensure_future(bench.coordinator.escalations()),
        ]
        await asyncio.sleep(0.02)
        assert not any(call.done() for call in calls)
        journal.gate.set()
        _, decision, escalations = await asyncio.gather(*calls)
        assert decision.standing == "escalated"
        assert len(escalations) == 1


@in_loop
async def test_a_decision_is_told_as_it_is_on_disk_while_nothing_can_be_kept() -> None:
    """rules 4.7: exactly what a coordinator that went on from the disk would tell, or why that can't be told.

    Mutations: all of them refused; what stands by what is not kept told, as decided, escalated or deliberated; late
    ballots and costs told that are not kept; what is deliberated refused for a ballot that is not kept.
    """
    decided, late, open_, to_decide, to_escalate, waiting, answered, new = (
        f"{number:08x}" for number in range(0xA0, 0xA8)
    )
    hand = HandClock()
    journal, pens = SlowJournal(), Hand()
    journal.gate.set()
    pens.ids = itertools.count(10**6)
    minds = dict.fromkeys(("prime", "lite", "codemind"), hang)
    async with Bench(minds, journal=journal, clock=hand.clock) as bench:
        coordinator, driver = bench.coordinator, bench.coordinator._driver
        client, ada = await bench.client(), await bench.client("ada", "human")
        calls: list[asyncio.Future[Any]] = []

        def propose(*ids: str, budget_s: float = 60.0) -> None:
            batch = [client.proposal(each, time_budget_s=budget_s) for each in ids]
            calls.append(asyncio.ensure_future(client.exchange(*batch)))

        async def reserved(seat: str, proposal_id: str) -> str:
            facts = {"task": "ballot", "model": "small-1", "tokens": 300, "microusd": 30}
            content = {"kind": "reserve", "text": "", "data": facts}
            asked = pens.envelope(seat, "INFO", content, parent_id=proposal_id, role="voter")
            await coordinator.hear(pens.sealed(asked))
            return asked.msg_id

        async def vote(proposal_id: str, *seats: str) -> None:
            for seat in seats:
                await coordinator.hear(pens.vote(seat, proposal_id))

        propose(waiting, answered, budget_s=10.0)
        await until(lambda: len(driver.state.open) == 2)
        await reserved("lite", waiting)
        hand.t = 11.0
        propose(decided, late, open_, to_decide)
        propose(to_escalate, budget_s=10.0)
        await until(lambda: len(driver.state.open) == 7)
        call_late = await reserved("codemind", late)
        await vote(decided, "prime", "lite", "codemind")
        await vote(late, "prime", "lite")
        await vote(to_decide, "prime")
        await until(lambda: not driver.awaits_saving and not coordinator._commit.writing)
        assert (driver.state.with_human, len(driver.state.closed)) == (2, 2)
        before = {each: driver.decision(each) for each in (decided, late, open_, waiting, answered)}

        journal.gate.clear()
        propose(new)
        await until(lambda: new in driver.state.open)
        await vote(late, "codemind")
        await coordinator.hear(pens.info("codemind", late, "settle", call=call_late, tokens=9, microusd=1))
        driver.seat_died("lite", driver.boot("lite"), "killed", coordinator._clock.now())
        await vote(waiting, "codemind")
        await vote(open_, "prime")
        await vote(to_decide, "lite")
        calls.append(asyncio.ensure_future(ada.exchange(ada.info(answered, "answer", approve=True))))
        await until(lambda: answered in driver.state.closed)
        hand.t = 22.0
        await vote(decided, "codemind")
        asked_before = asyncio.ensure_future(coordinator.decision(late))
        await asyncio.sleep(0)
        journal.trouble = StoreFull("no room is left", where="here")
        assert before[late] != driver.decision(late)
        assert before[waiting] != driver.decision(waiting)
        assert driver.state.with_human == 2
        for proposal_id, then in before.items():
            if proposal_id == answered:
                continue
            assert await asyncio.wait_for(coordinator.decision(proposal_id), HANG_S) == then, proposal_id
        assert await asyncio.wait_for(asked_before, HANG_S) == before[late]
        asked = await asyncio.wait_for(coordinator.escalations(), HANG_S)
        assert [each.proposal_id for each in asked] == [waiting, answered]
        found = await asyncio.wait_for(coordinator.status(), HANG_S)
        told_open = [each["proposal_id"] for each in found["open"]]
        assert sorted(told_open) == sorted((waiting, answered, open_, to_decide, to_escalate))
        assert (found["with_human"], found["decided"]) == (2, {"approved": 2})
        for proposal_id in (to_decide, to_escalate, answered, new):
            with pytest.raises(StoreFull, match="no room is left"):
                await asyncio.wait_for(coordinator.decision(proposal_id), HANG_S)
        with pytest.raises(Refused, match="has no proposal with the id 'ffffffff'"):
            await asyncio.wait_for(coordinator.decision("ffffffff"), HANG_S)

        journal.trouble = None
        journal.gate.set()
        for proposal_id, outcome in ((answered, "approved"), (to_escalate, None), (late, "approved")):
            decision = await asyncio.wait_for(coordinator.decision(proposal_id), HANG_S)
            assert decision == driver.decision(proposal_id)
            assert decision.outcome == outcome  # type: ignore[union-attr]
        for call in calls:
            call.cancel()


@in_loop
async def test_a_broken_council_does_not_grow_with_every_call() -> None:
    journal = SlowJournal()
    async with Bench(journal=journal) as bench:
        journal.at_once = OSError("disk full")
        client = await bench.client()
        await asyncio.gather(client.exchange(client.proposal()), return_exceptions=True)

        async def frames() -> int:
            with pytest.raises(OperatorError) as caught:
                await bench.coordinator.status()
            found, trace = 0, caught.value.__traceback__
            while trace is not None:
                found, trace = found + 1, trace.tb_next
            return found

        first = await frames()
        for _ in range(20):
            await frames()
        assert await frames() == first
        errors = await asyncio.gather(*(bench.coordinator.status() for _ in range(2)), return_exceptions=True)
        assert errors[0] is not errors[1]
        assert str(errors[0]) == str(errors[1])


# Time


@in_virtual_time
async def test_the_timer_brings_the_deadline() -> None:
    time_s = asyncio.get_running_loop().time
    clock = Clock(uptime=time_s, wall=lambda: WALL_0 + time_s())
    async with Bench({"prime": Chair, "lite": hang, "codemind": hang}, clock=clock) as bench:
        client = await bench.client()
        (told,) = await client.exchange(client.proposal(time_budget_s=1.0))
        assert isinstance(told, Told)
        assert (told.decision.standing, told.decision.final) == ("escalated", False)
        assert told.decision.seconds == pytest.approx(1.0, abs=0.01)
        assert set(dict(told.decision.missing)) == {"lite", "codemind"}


@in_loop
async def test_an_earlier_deadline_moves_the_timer_up() -> None:
    async with Bench({"prime": hang, "lite": hang, "codemind": hang}) as bench:
        client = await bench.client()
        await bench.coordinator.exchange(client.session, [])
        slow = asyncio.ensure_future(client.exchange(client.proposal(time_budget_s=500.0)))
        await asyncio.sleep(0)
        other = await bench.client("other")
        (told,) = await other.exchange(other.proposal(time_budget_s=0.1))
        assert isinstance(told, Told)
        assert told.decision.reason
        slow.cancel()


@in_loop
async def test_an_escalation_expires_by_the_wall_clock() -> None:
    minds = {"prime": hang, "lite": hang, "codemind": hang}
    async with Bench(minds, escalation_ttl_s=0.2) as bench:
        client = await bench.client()
        found = await client.exchange(client.proposal(time_budget_s=0.05))
        while not (isinstance(found[-1], Told) and found[-1].decision.final):
            found += await client.exchange()
        assert [m.decision.outcome for m in found] == [None, "deferred"]  # type: ignore[union-attr]


@in_loop
async def test_a_wall_clock_that_jumps_ahead_is_noticed_within_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("council.core.step.WALL_CHECK_S", 0.05)
    jump = 0.0
    began = time.monotonic()
    clock = Clock(uptime=lambda: time.monotonic() - began, wall=lambda: WALL_0 + jump)
    minds = {"prime": hang, "lite": hang, "codemind": hang}
    async with Bench(minds, clock=clock, escalation_ttl_s=3600.0) as bench:
        client = await bench.client()
        (told,) = await client.exchange(client.proposal(time_budget_s=0.05))
        assert not told.decision.final  # type: ignore[union-attr]
        jump = 7200.0
        (told,) = await client.exchange()
        assert told.decision.outcome == "deferred"  # type: ignore[union-attr]


# Sessions


@in_loop
async def test_an_unknown_session_is_told_to_join_again() -> None:
    async with Bench() as bench:
        with pytest.raises(Refused) as caught:
            await bench.coordinator.exchange("no such session", [])
        assert caught.value.code == "no_session"


@in_loop
async def test_an_idle_session_expires_and_its_proposal_stays_open() -> None:
    hand = HandClock()
    async with Bench({"prime": Chair, "lite": hang, "codemind": hang}, clock=hand.clock) as bench:
        old = await bench.client("old")
        sealed = old.proposal("aaaaaaaa", time_budget_s=80_000.0)
        call = asyncio.ensure_future(bench.coordinator.exchange(old.session, [sealed]))
        await until(lambda: "aaaaaaaa" in bench.coordinator._driver.state.open)
        call.cancel()  # the client is gone
        hand.t += SESSION_IDLE_S
        await bench.client("first")
        assert "old" in (await bench.coordinator.status())["sessions"]  # exactly the limit is not over it
        hand.t += 0.1
        await bench.client("second")
        status = await bench.coordinator.status()
        assert "old" not in status["sessions"]
        assert status["open_count"] == 1
        with pytest.raises(Refused):
            await bench.coordinator.exchange(old.session, [])
        again = await bench.client("old")
        back = asyncio.ensure_future(again.exchange(sealed, again.info("aaaaaaaa", "cancel")))
        kinds = {type(message) for message in await back}
        assert Acknowledged in kinds


@in_loop
async def test_a_session_is_not_idle_while_a_call_of_its_own_is_parked() -> None:
    """It is as old as the end of its last call. Mutation: as that call's beginning; then a client is forgotten
    that has waited for long and is about to ask for more.
    """
    hand = HandClock()
    async with Bench({"prime": Chair, "lite": hang, "codemind": hang}, clock=hand.clock) as bench:
        client = await bench.client()
        sealed = client.proposal("aaaaaaaa", time_budget_s=80_000.0)
        call = asyncio.ensure_future(bench.coordinator.exchange(client.session, [sealed]))
        await until(lambda: "aaaaaaaa" in bench.coordinator._driver.state.open)
        hand.t += SESSION_IDLE_S
        bench.coordinator._sessions[client.session].mailbox.release()
        await call
        hand.t += 1.0
        await bench.client("other")
        assert "client" in (await bench.coordinator.status())["sessions"]


@in_loop
async def test_the_number_of_sessions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "SESSIONS_MAX", 2)
    async with Bench() as bench:
        first = await bench.client("one")
        await bench.client("two")
        with pytest.raises(OperatorError, match="2 clients"):
            await bench.client("three")
        await bench.coordinator.leave(first.session)
        await bench.client("three")


@in_loop
async def test_leaving_is_idempotent_and_releases_the_parked_call() -> None:
    async with Bench({"prime": Chair, "lite": hang, "codemind": hang}) as bench:
        client = await bench.client()
        call = asyncio.ensure_future(bench.coordinator.exchange(client.session, [client.proposal()]))
        await asyncio.sleep(0.01)
        await bench.coordinator.leave(client.session)
        await bench.coordinator.leave(client.session)
        assert await call == (False, [])


@in_loop
async def test_clients_that_come_and_go_do_not_use_the_council_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from council.runtime import senders

    monkeypatch.setattr(senders, "SENDERS_MAX", 10)
    async with Bench() as bench:
        for n in range(30):
            client = await bench.client(f"client-{n:08x}")
            await bench.coordinator.leave(client.session)
        keyring = bench.coordinator._driver.senders.keyring
        assert len(keyring) == len(("prime", "lite", "codemind", "ada"))


@in_loop
async def test_a_name_is_free_again_once_its_client_has_left_and_not_before() -> None:
    async with Bench() as bench:
        first, second = await bench.client("ann"), await bench.client("ann")
        await bench.coordinator.leave(first.session)
        with pytest.raises(NameTaken):
            await bench.coordinator.join("ann", "proposer", key_of("bob"))
        assert (await bench.coordinator.status())["sessions"] == ["ann"]
        (told,) = await second.exchange(second.proposal())  # the other session of the name still speaks
        assert isinstance(told, Told)
        await bench.coordinator.leave(second.session)
        assert "ann" not in bench.coordinator._driver.senders.keyring
        with pytest.raises(NameTaken):  # what was proposed under it is hers to revise (rules 1.3)
            await bench.coordinator.join("ann", "proposer", key_of("bob"))
        await bench.coordinator.join("ann", "proposer", key_of("ann"))
        idle = await bench.client("idle")
        await bench.coordinator.leave(idle.session)
        await bench.coordinator.join("idle", "proposer", key_of("bob"))


@in_loop
async def test_a_name_stays_taken_while_something_of_its_own_is_open() -> None:
    """Mutations: to free it at once lets anybody take the proposal back; never to free it uses the names up."""
    async with Bench({"prime": Chair, "lite": hang, "codemind": hang}) as bench:
        ann = await bench.client("ann")
        call = asyncio.ensure_future(bench.coordinator.exchange(ann.session, [ann.proposal("aaaaaaaa")]))
        await until(lambda: "aaaaaaaa" in bench.coordinator._driver.state.open)
        await bench.coordinator.leave(ann.session)
        await call
        with pytest.raises(NameTaken):
            await bench.coordinator.join("ann", "proposer", key_of("bob"))
        again = await bench.client("ann")  # her own key lets her back in
        assert {type(m) for m in await again.exchange(again.info("aaaaaaaa", "cancel"))} == {Acknowledged}
        await bench.coordinator.leave(again.session)
        assert "ann" not in bench.coordinator._driver.senders.keyring


@in_loop
async def test_a_name_is_free_once_the_last_that_was_left_open_is_decided() -> None:
    """Mutation: to look only when a client leaves keeps the names of all that left something open, for good."""
    async with Bench({"prime": Chair, "lite": hang, "codemind": hang}) as bench:
        ann = await bench.client("ann")
        sealed = [ann.proposal(f"{n:08x}", time_budget_s=0.05 + n) for n in range(2)]
        call = asyncio.ensure_future(bench.coordinator.exchange(ann.session, sealed))
        await until(lambda: len(bench.coordinator._driver.state.open) == 2)
        await bench.coordinator.leave(ann.session)
        await call
        ada = await bench.client("ada", "human")
        for n in range(2):
            await until(lambda: bench.coordinator._driver.state.with_human == 1)
            assert "ann" in bench.coordinator._driver.senders.keyring
            await ada.exchange(ada.info(f"{n:08x}", "answer", approve=True))
        assert "ann" not in bench.coordinator._driver.senders.keyring


@in_loop
async def test_a_client_that_came_back_is_not_forgotten_when_what_it_left_open_is_decided() -> None:
    async with Bench({"prime": Chair, "lite": hang, "codemind": hang}) as bench:
        ann = await bench.client("ann")
        call = asyncio.ensure_future(
            bench.coordinator.exchange(ann.session, [ann.proposal("aaaaaaaa", time_budget_s=0.05)])
        )
        await until(lambda: bench.coordinator._driver.state.open)
        await bench.coordinator.leave(ann.session)
        await call
        again = await bench.client("ann")
        await until(lambda: bench.coordinator._driver.state.with_human)
        ada = await bench.client("ada", "human")
        await ada.exchange(ada.info("aaaaaaaa", "answer", approve=True))
        with pytest.raises(NameTaken):
            await bench.coordinator.join("ann", "proposer", key_of("bob"))
        (told,) = await again.exchange(again.proposal(time_budget_s=0.05))
        assert isinstance(told, Told)


@in_loop
async def test_a_client_that_was_idle_for_too_long_gives_its_name_back() -> None:
    hand = HandClock()
    async with Bench(clock=hand.clock) as bench:
        await bench.client("ann")
        hand.t += SESSION_IDLE_S + 1
        await bench.coordinator.join("ann", "proposer", key_of("bob"))
        assert (await bench.coordinator.status())["sessions"] == ["ann"]


@in_loop
async def test_humans_and_seats_keep_their_names() -> None:
    async with Bench() as bench:
        ada = await bench.client("ada", "human")
        await bench.coordinator.leave(ada.session)
        with pytest.raises(NotEnrolled):
            await bench.coordinator.join("ada", "human", greeting("ada", key_of("mallory")))
        with pytest.raises(NameTaken):
            await bench.coordinator.join("ada", "proposer", key_of("ada"))
        await bench.client("ada", "human")
        bench.coordinator._driver.retire("lite")
        bench.coordinator._driver.retire("nobody")
        with pytest.raises(NameTaken):
            await bench.coordinator.join("lite", "proposer", key_of("mallory"))


@pytest.mark.parametrize(
    "item", ["text", None, bytearray(99), memoryview(b"x" * 99), 7], ids=lambda i: type(i).__name__
)
@in_loop
async def test_an_item_that_is_no_bytes_is_refused_and_nothing_of_its_call_was_done(item: Any) -> None:
    """Mutation: to look at each item in its turn leaves what stood before it done, and neither kept nor told."""
    async with Bench() as bench:
        client = await bench.client()
        with pytest.raises(EnvelopeError, match=type(item).__name__) as caught:
            await bench.coordinator.exchange(client.session, [client.proposal(), item])
        assert caught.value.field == "envelope"
        driver = bench.coordinator._driver
        assert (driver.position, driver.state.open, driver.refused) == (1, {}, {})
        (told,) = await client.exchange(client.proposal())
        assert isinstance(told, Told)


# Events


@in_virtual_time
async def test_events_wait_for_the_first_and_no_longer_than_asked() -> None:
    async with Bench() as bench:
        assert await bench.coordinator.events(0, wait_s=0.0) == []
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await bench.coordinator.events(0, wait_s=7.0) == []
        assert loop.time() - began_s == pytest.approx(7.0)
        waiting = asyncio.ensure_future(bench.coordinator.events(0, wait_s=30.0))
        client = await bench.client()
        await client.exchange(client.proposal())
        found = await waiting
        assert found[0]["kind"] == "proposal"
        assert found[0]["cursor"] == 1
        rest = await bench.coordinator.events(found[-1]["cursor"])
        kinds = [event["kind"] for event in found + rest]
        assert kinds[-1] == "decision" or "decision" in kinds
        assert len(await bench.coordinator.events(0, limit=2)) == 2
        assert len(await bench.coordinator.events(0, limit=-5)) == 1
        assert not bench.coordinator._feed_waiters
        with pytest.raises(PositionLost):
            await bench.coordinator.events(-3)
        with pytest.raises(PositionLost):  # at once: what a follower of an earlier council asks for
            await bench.coordinator.events(5_000, wait_s=30.0)


@in_loop
async def test_closing_ends_every_wait_with_a_clear_error() -> None:
    async with Bench({"prime": Chair, "lite": hang, "codemind": hang}) as bench:
        client = await bench.client()
        call = asyncio.ensure_future(client.exchange(client.proposal()))
        await until(lambda: bench.coordinator._driver.announcements.feed.position == 2)
        events = asyncio.ensure_future(bench.coordinator.events(2, wait_s=30.0))
        await asyncio.sleep(0.02)
        await bench.coordinator.close()
        for waiting in (call, events):
            with pytest.raises(OperatorError, match="closed"):
                await waiting
        with pytest.raises(OperatorError, match="closed"):
            await bench.coordinator.status()


# Seats


class Fragile(CalledTransport):
    """Seats whose calls fail while they are down."""

    def __init__(self, hosts: dict[str, SeatHost]) -> None:
        super().__init__(hosts)
        self.down: set[str] = set()
        self.revived: list[str] = []
        self.hearts: dict[str, asyncio.Task[None]] = {}

    async def exchange(self, seat: str, batch: list[bytes]) -> Any:
        if seat in self.down:
            raise ConnectionError(f"{seat} is down\nwith a long trace")
        return await super().exchange(seat, batch)

    async def attend(self, seat: str, boot: int) -> None:
        if seat in self.down:
            raise ConnectionError("still down")
        await super().attend(seat, boot)

    async def revive(self, seat: str) -> None:
        self.revived.append(seat)
        if seat in self.down and self.revived.count(seat) < 3:
            raise ConnectionError("not yet")
        self.down.discard(seat)


@in_loop
async def test_a_seat_that_cannot_be_reached_is_inactive_revived_and_asked_anew() -> None:
    bench = Bench(transport=Fragile)
    transport = bench.transport
    async with bench:
        await until(lambda: bench.coordinator._driver.state.seats["lite"].beat == 0)
        transport.down.add("lite")
        client = await bench.client()
        (told,) = await client.exchange(client.proposal(wait_for="all", time_budget_s=20.0))
        assert isinstance(told, Told)
        lite = bench.coordinator._driver.state.seats["lite"]
        # Two ballots were in when the seat died, so that the decision may have come without it.
        assert told.decision.outcome == "approved"
        missing = dict(told.decision.missing)
        assert missing == {} or "ConnectionError: lite is down" in missing["lite"]
        assert "\n" not in str(missing)
        await until(lambda: bench.coordinator._driver.state.seats["lite"].active)
        assert lite.boot == 1
        assert transport.revived.count("lite") == 3
        (told,) = await client.exchange(client.proposal(wait_for="all"))
        assert told.decision.tally.yes == 3  # type: ignore[union-attr]
        rolls = [e["data"] for e in await bench.coordinator.events(0) if e["kind"] == "roll"]
        assert [(r["seat"], r["active"]) for r in rolls] == [("lite", False), ("lite", True)]


@in_loop
async def test_a_seat_that_takes_no_letters_is_given_up_before_they_fill_the_memory() -> None:
    """Mutation: a mind that blocks its seat's loop, whose heart beats on, has the coordinator keep every letter."""
    async with Bench(open_max=10, transport=CalledTransport) as bench:
        client = await bench.client()
        exchange = bench.transport.exchange
        stuck = asyncio.Event()

        async def blocked(seat: str, batch: list[bytes]) -> Reply:
            if seat == "codemind" and not stuck.is_set():
                await stuck.wait()
            return await exchange(seat, batch)

        bench.transport.exchange = blocked
        courier = bench.coordinator._seats._links["codemind"]
        most = 0
        for n in range(200):
            (told,) = await client.exchange(client.proposal(f"{n:08x}"))
            assert isinstance(told, Told)
            most = max(most, len(courier))
        assert most <= 41
        status = await bench.coordinator.status()
        codemind = next(seat for seat in status["seats"] if seat["name"] == "codemind")
        assert codemind["restarts"] >= 1
        stuck.set()
        # Attended to anew, and with what it was told meanwhile behind it: else it may be given up once more.
        seats = bench.coordinator._driver.state.seats
        await until(lambda: seats["codemind"].active and not len(courier))
        (told,) = await client.exchange(client.proposal("ffffffff", wait_for="all"))
        assert isinstance(told, Told)
        assert len(told.decision.ballots) == 3


@in_loop
async def test_a_mind_that_cancels_what_is_not_its_own_does_not_end_the_seats() -> None:
    """Mutation: the tasks that watch over the seats end silently, and no heart beats any more."""
    cancelled = []

    async def vandal(case: Case) -> Opinion:
        for task in asyncio.all_tasks():
            if "_supervise" in repr(task.get_coro()):
                cancelled.append(task)
                task.cancel()
        return Opinion.yes("oops")

    async with Bench({"prime": Chair, "lite": vandal, "codemind": agree}) as bench:
        client = await bench.client()
        await client.exchange(client.proposal("aaaaaaaa", wait_for="all"))

        def watching() -> int:
            return sum(not task.done() for task in bench.coordinator._seats._tasks)

        await until(lambda: watching() == 3)
        assert len(cancelled) == 3
        assert not bench.coordinator._seats._tasks.intersection(cancelled)


@in_loop
async def test_calls_that_wait_for_events_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: watchers take all the calls that the coordinator serves, and the seats' heartbeats wait."""
    from council.runtime import coordinator as module

    monkeypatch.setattr(module, "WATCHERS_MAX", 2)
    async with Bench() as bench:
        position = bench.coordinator._driver.announcements.feed.position
        calls = [asyncio.ensure_future(bench.coordinator.events(position, 10, 5.0)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(OperatorError, match="2 calls wait for events"):
            await bench.coordinator.events(position, 10, 5.0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


def test_a_journal_in_memory_is_bounded_in_bytes() -> None:
    """Mutation: twenty thousand proposals of most of a megabyte each are kept, and nobody reads them."""
    journal = MemoryJournal(100, bytes_max=1_000)
    moment = Moment(0.0, 0.0, 1)
    for n in range(50):
        journal.append([Record(moment, DeadlinePassed(str(n)), b"x" * 100)])
    assert [record.event.proposal_id for record in journal.records] == [str(n) for n in range(40, 50)]  # type: ignore[union-attr]
    journal.append([Record(moment, DeadlinePassed("large"), b"x" * 5_000)])
    assert not journal.records
    journal.append([Record(moment, DeadlinePassed("n"), None) for _ in range(150)])
    assert len(journal.records) == 100


class Patient(SlowJournal):
    """Lingers for so long that only the test's hand ends it."""

    linger_s = 1_000.0


def left_s(coordinator: Coordinator) -> float:
    """How long what lingers may still do so."""
    assert coordinator._commit.lingers
    return coordinator._commit.next_due - asyncio.get_running_loop().time()


def once(gate: asyncio.Event) -> Callable[[Case], Awaitable[Opinion]]:
    """A mind that agrees as soon as the gate is open."""

    async def review(case: Case) -> Opinion:
        await gate.wait()
        return Opinion.yes("late")

    return review


@in_loop
async def test_what_nobody_waits_for_is_written_once_somebody_does() -> None:
    """What ``test_commit`` says of lingering, performed. Mutation: who asks waits until the linger is over."""
    journal = Patient()
    journal.gate.set()
    async with Bench(minds={"prime": hang, "lite": hang, "codemind": hang}, journal=journal) as bench:
        coordinator, client = bench.coordinator, await bench.client()
        await coordinator.status()  # the council's start is kept
        calls = [asyncio.ensure_future(client.exchange(client.proposal()))]
        await until(lambda: coordinator._driver.state.open)
        assert left_s(coordinator) > 900
        assert journal.batches == []
        await coordinator.escalations()  # somebody waits now
        assert len(journal.batches) == 1
        assert not coordinator._commit.lingers
        journal.gate.clear()
        for count in (2, 3):  # the second comes in while the first is being written
            calls.append(asyncio.ensure_future(client.exchange(client.proposal())))
            await until(lambda count=count: len(coordinator._driver.state.open) == count)
            if count == 2:
                coordinator._hurry(coordinator._driver.position)
        asked = asyncio.ensure_future(coordinator.status())
        await asyncio.sleep(0)
        assert len(journal.batches) == 2
        journal.gate.set()
        await asyncio.wait_for(asked, HANG_S)
        assert len(journal.batches) == 3
        for call in calls:
            call.cancel()


@in_loop
async def test_a_late_ballot_goes_to_disk_with_the_next_decision() -> None:
    """Mutation: let it linger as a proposal's record does; its write then holds up the decision after it."""
    journal, late = Patient(), asyncio.Event()
    journal.gate.set()

    async with Bench(minds={"prime": Chair, "lite": agree, "codemind": once(late)}, journal=journal) as bench:
        coordinator = bench.coordinator
        client = await bench.client()
        (told,) = await client.exchange(client.proposal())
        assert isinstance(told, Told)
        before = len(journal.batches)
        late.set()
        await until(lambda: coordinator._commit.lingers)
        assert left_s(coordinator) == pytest.approx(LINGERS_MAX * Patient.linger_s, rel=0.01)
        (told,) = await client.exchange(client.proposal())
        assert isinstance(told, Told)
        first, *_ = journal.batches[before:]
        kinds = [type(record.event).__name__ for record in first]
        assert kinds[:4] == ["BallotCast", "ProposalSubmitted", "BallotCast", "BallotCast"]


@in_loop
async def test_seats_are_attended_without_waiting_for_what_lingers() -> None:
    """Mutation: a launch, and each seat that comes back, waits for the linger's end; here that never comes."""
    journal = SlowFromTheStart()
    journal.linger_s = Patient.linger_s
    journal.gate.set()
    async with Bench(journal=journal) as bench:
        seats = bench.coordinator._driver.state.seats
        await until(lambda: all(seat.beat >= 0 for seat in seats.values()))
        assert len(journal.batches) == 1


@in_loop
async def test_who_waits_for_a_human_holds_up_no_decision_of_others() -> None:
    """Mutation: a late ballot is written by itself as long as anything is open, for a day perhaps."""
    journal, late = Patient(), asyncio.Event()
    journal.gate.set()

    async def twofold(case: Case) -> Opinion:
        return Opinion.yes("sure", risk_level="high" if case.summary == "risky" else "low")

    minds = {"prime": twofold, "lite": agree, "codemind": once(late)}
    async with Bench(minds=minds, journal=journal) as bench:
        coordinator, client = bench.coordinator, await bench.client()
        (told,) = await client.exchange(client.proposal(summary="risky", time_budget_s=0.2))
        assert isinstance(told, Told)
        assert coordinator._driver.state.with_human == 1
        (told,) = await client.exchange(client.proposal())
        assert isinstance(told, Told)
        await until(lambda: not coordinator._commit.writing)
        late.set()
        await until(lambda: coordinator._commit.lingers)
        assert left_s(coordinator) > (LINGERS_MAX - 1) * Patient.linger_s
