"""The supervision of seats: how soon one that is gone is tried again, and what ends with its earlier run."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from council.agents.messaging.mailbox import BATCH_ITEMS_MAX, Reply
from council.agents.seat.host import SeatHost
from council.protocol.errors import EpochFenced
from council.runtime import supervision
from council.runtime.messages import Told
from council.runtime.supervision import REVIVE_FIRST_S, REVIVE_LAST_S
from tests.runtime.harness import (
    CalledTransport,
    in_loop,
    until,
)
from tests.runtime.test_coordinator import Bench, HandClock


class Attended(CalledTransport):
    """Notes the attendances that run, and ends those of a seat when the test says so.

    ``refusals`` is how often a seat is not back yet when it is to be revived.
    """

    def __init__(self, hosts: dict[str, SeatHost]) -> None:
        super().__init__(hosts)
        self.running: list[tuple[str, int]] = []
        self.running_at_revival: list[list[tuple[str, int]]] = []
        self.falls: dict[str, asyncio.Future[None]] = {}
        self.unreachable: set[str] = set()
        self.refusals = 0

    async def exchange(self, seat: str, batch: list[bytes]) -> Reply:
        if seat in self.unreachable:
            raise ConnectionError("the line broke")
        return await super().exchange(seat, batch)

    async def attend(self, seat: str, boot: int) -> None:
        fall = self.falls[seat] = asyncio.get_running_loop().create_future()
        self.running.append((seat, boot))
        try:
            await fall
        finally:
            self.running.remove((seat, boot))

    async def revive(self, seat: str) -> None:
        self.unreachable.discard(seat)
        self.running_at_revival.append(list(self.running))
        if self.refusals:
            self.refusals -= 1
            raise ConnectionError("not yet")


def attended(**options: Any) -> tuple[Bench, Attended]:
    bench = Bench(transport=Attended, **options)
    return bench, bench.transport


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before each attempt to have a seat back; none of them is waited for."""
    found: list[float] = []
    sleep = asyncio.sleep

    async def noted(delay: float) -> None:
        if delay >= REVIVE_FIRST_S:
            found.append(delay)
            delay = 0
        await sleep(delay)

    monkeypatch.setattr(asyncio, "sleep", noted)
    return found


@pytest.mark.parametrize(
    ("well_s", "then"), [(REVIVE_LAST_S, 8 * REVIVE_FIRST_S), (REVIVE_LAST_S + 0.1, REVIVE_FIRST_S)]
)
@in_loop
async def test_the_pauses_begin_anew_once_a_seat_was_well_for_longer_than_the_longest(
    well_s: float, then: float, pauses: list[float]
) -> None:
    """A seat that falls again at once is tried ever more seldom; one that was well for a while, at once.

    Mutations: the pauses go on from the last one however long the seat was well; they begin anew each time.
    """
    hand = HandClock()
    bench, transport = attended(clock=hand.clock)
    async with bench:
        await until(lambda: ("lite", 0) in transport.running)
        transport.refusals = 2
        transport.falls["lite"].set_exception(ConnectionError("gone"))
        await until(lambda: ("lite", 1) in transport.running)
        assert pauses == [REVIVE_FIRST_S, 2 * REVIVE_FIRST_S, 4 * REVIVE_FIRST_S]
        hand.t += well_s
        transport.falls["lite"].set_exception(ConnectionError("gone again"))
        await until(lambda: ("lite", 2) in transport.running)
        assert pauses[3:] == [then]


@in_loop
async def test_the_pauses_grow_no_longer_than_the_longest(pauses: list[float]) -> None:
    """Mutation: they double for ever, and a seat that was away for a night is not looked for in the morning."""
    bench, transport = attended()
    async with bench:
        await until(lambda: ("lite", 0) in transport.running)
        transport.refusals = 12
        transport.falls["lite"].set_exception(ConnectionError("gone"))
        await until(lambda: ("lite", 1) in transport.running)
        assert pauses == [min(2**n * REVIVE_FIRST_S, REVIVE_LAST_S) for n in range(13)]
        assert pauses[-1] == REVIVE_LAST_S


@in_loop
async def test_the_attendance_of_a_seat_that_is_given_up_ends_before_it_is_revived() -> None:
    """Rules 1.10: a run that is over beats no more. Its letters fail here, while its heart still beats.

    Mutation: the earlier attendance is left running beside the later one.
    """
    bench, transport = attended()
    async with bench:
        await until(lambda: len(transport.running) == 3)
        transport.unreachable.add("lite")
        client = await bench.client()
        await client.exchange(client.proposal())
        await until(lambda: ("lite", 1) in transport.running)
        assert sorted(transport.running) == [("codemind", 0), ("lite", 1), ("prime", 0)]
        assert transport.running_at_revival == [[("prime", 0), ("codemind", 0)]]


@in_loop
async def test_no_attendance_goes_on_once_another_coordinator_has_the_seats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rules 4.6: the seats of a coordinator that was replaced are the other's to attend to.

    Mutations: their attendances go on, and the seats beat for two coordinators; they begin again.
    """
    monkeypatch.setattr(
        supervision, "REVIVE_FIRST_S", 0.0
    )  # what would begin again does so in the next turns
    bench, transport = attended()
    async with bench:
        await until(lambda: len(transport.running) == 3)
        bench.coordinator._break(EpochFenced("another has begun", journal="j", epoch=1, newest=2))
        await until(lambda: not transport.running)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (transport.running, transport.running_at_revival) == ([], [])


@in_loop
async def test_a_seat_whose_letters_are_too_many_bytes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few letters may be large. Mutation: they are counted alone, and a stuck seat fills the memory."""
    monkeypatch.setattr(supervision, "MESSAGE_BYTES_MAX", 100_000)
    bench, transport = attended()
    exchange, stuck = transport.exchange, asyncio.Event()

    async def blocked(seat: str, batch: list[bytes]) -> Reply:
        if seat == "codemind":
            await stuck.wait()
        return await exchange(seat, batch)

    transport.exchange = blocked  # type: ignore[method-assign]
    async with bench:
        await until(lambda: len(transport.running) == 3)
        client = await bench.client()
        seats, courier = (
            bench.coordinator._driver.state.seats,
            bench.coordinator._seats._links["codemind"],
        )
        most = 0
        while seats["codemind"].boot == 0:
            await client.exchange(client.proposal(body="x" * 30_000))
            most = max(most, courier.waiting_bytes)
            assert most < 200_000
        assert len(courier) < bench.coordinator._seats._messages_max
        assert most > 60_000
        assert "it takes no messages" in seats["codemind"].why
        stuck.set()


@in_loop
async def test_a_seat_in_process_that_fails_costs_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: what a seat raises as it takes a message reaches the client whose proposal it was."""
    async with Bench() as bench:
        seats = bench.coordinator._driver.state.seats
        await until(lambda: seats["lite"].beat == 0)

        def broken(letter: bytes) -> None:
            raise RuntimeError("a fault of the seat")

        with monkeypatch.context() as patched:
            patched.setattr(bench.hosts["lite"], "receive", broken)
            client = await bench.client()
            (told,) = await client.exchange(client.proposal())
            assert isinstance(told, Told)
            assert told.decision.outcome == "approved"
            await until(lambda: seats["lite"].boot == 1)
        await until(lambda: seats["lite"].active)
        (told,) = await client.exchange(client.proposal(wait_for="all"))
        assert isinstance(told, Told)
        assert told.decision.tally.yes == 3


@in_loop
async def test_what_seats_in_process_say_in_one_turn_is_kept_in_one_write() -> None:
    """Mutations: each ballot is settled by itself; more than a call carries keeps the loop for all of it."""
    async with Bench(open_max=1_000) as bench:
        heard: list[int] = []
        link = bench.transport.link("lite", lambda items: heard.append(len(items)), lambda error: None)
        assert len(link) == link.waiting_bytes == 0
        for _ in range(BATCH_ITEMS_MAX + 3):
            bench.hosts["lite"].say(b"sealed")
        assert heard == []
        await until(lambda: sum(heard) == BATCH_ITEMS_MAX + 3)
        assert heard == [BATCH_ITEMS_MAX, 3]


@in_loop
async def test_the_context_of_a_mind_in_process_is_not_the_councils() -> None:
    """Mutation: what is done with a ballot runs in the context of the mind that cast it."""
    tenant = contextvars.ContextVar("tenant", default="none")
    async with Bench() as bench:
        found: list[str] = []
        bench.transport.link("lite", lambda items: found.append(tenant.get()), lambda error: None)
        tenant.set("lite's")
        bench.hosts["lite"].say(b"sealed")
        await until(lambda: found)
        assert found == ["none"]


@in_loop
async def test_what_a_seat_in_process_says_after_the_end_is_not_heard() -> None:
    """Mutation: a mind that ends late has its ballot stepped, and written to a journal that is closed."""
    bench = Bench()
    async with bench:
        await until(lambda: all(seat.beat == 0 for seat in bench.coordinator._driver.state.seats.values()))
    position, refused = bench.coordinator._driver.position, bench.coordinator._driver.refused.total()
    bench.hosts["lite"].say(b"too late")
    for _ in range(20):
        await asyncio.sleep(0)
    assert bench.coordinator._driver.position == position
    assert bench.coordinator._driver.refused.total() == refused
