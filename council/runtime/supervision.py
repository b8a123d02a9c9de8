"""Carries messages to and from a council's seats, reports a lost seat, and revives it. Holds no rule.

The driver decides what follows. It is given envelopes and deaths; after that ``settle`` is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from council.agents.messaging.logs import get_logger
from council.runtime.driver import Driver
from council.runtime.surroundings import Clock, Link, Transport

log = get_logger("council")

# Letters that wait for a seat: a few for each proposal that may be open. More wait for a seat that takes none.
LETTERS_FOR_EACH_OPEN = 4
LETTER_BYTES_MAX = 256 * 2**20
# Pauses between attempts to have a seat back: at once at first, then seldom enough to cost nothing.
REVIVE_FIRST_S, REVIVE_LAST_S = 0.05, 30.0


class Supervision:
    """The seats of one coordinator, on its event loop.

    ``receive`` takes in what a seat sent; ``kept`` returns once a position's record is kept.
    """

    def __init__(
        self,
        driver: Driver,
        transport: Transport,
        clock: Clock,
        *,
        receive: Callable[[Sequence[bytes]], None],
        settle: Callable[[], None],
        kept: Callable[[int], Awaitable[None]],
    ) -> None:
        self._driver = driver
        self._transport = transport
        self._clock = clock
        self._receive = receive
        self._settle = settle
        self._kept = kept
        self._links: dict[str, Link] = {}
        self._letters_max = 0
        self._lost: dict[str, asyncio.Future[str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False

    def begin(self) -> None:
        """Attends to the seats of the driver's rules, which must exist."""
        rules, still_open = self._driver.rules, len(self._driver.state.open)
        # An earlier coordinator may have been let open more.
        self._letters_max = LETTERS_FOR_EACH_OPEN * max(rules.open_max, still_open)
        self._links = {
            seat: self._transport.link(seat, self._heard, partial(self._unreachable, seat))
            for seat in rules.seats
        }
        for seat in self._links:
            self._watch_over(seat)

    def give_up(self) -> None:
        """Leaves the seats to whoever comes: nothing more is carried or revived."""
        self._over = True
        for task in self._tasks:
            task.cancel()
        for link in self._links.values():
            link.drop()

    async def end(self) -> None:
        """As ``give_up``, and ends the seats; returns once nothing is under way any more."""
        self.give_up()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._transport.close()

    def send(self) -> None:
        """Carries away what the driver has for seats."""
        to_seats, perishable = self._driver.to_seats, self._driver.perishable
        touched = {}
        while to_seats or perishable:
            must_arrive = bool(to_seats)
            seat, item = (to_seats or perishable).popleft()
            link = touched[seat] = self._links[seat]
            if must_arrive or len(link) < self._letters_max // 2:  # who is slow misses some of the streams
                link.send(item)
        for seat, link in touched.items():
            if len(link) > self._letters_max or link.waiting_bytes > LETTER_BYTES_MAX:
                # A mind may block its seat's loop and let its heart beat on; told anew of what is open, not of all.
                self._lose(seat, f"it takes no letters: {len(link):,} wait for it")

    def _heard(self, items: Sequence[bytes]) -> None:
        """Takes what seats say; nothing once this is over, for nothing would be kept."""
        if items and not self._over:
            self._receive(items)

    def _unreachable(self, seat: str, error: Exception) -> None:
        self._lose(seat, f"it can't be reached: {first_line(error)}")

    def _lose(self, seat: str, why: str) -> None:
        if (lost := self._lost.get(seat)) is not None and not lost.done():
            lost.set_result(why)

    def _watch_over(self, seat: str) -> None:
        """Supervises a seat until it is given up; in process a mind may cancel tasks that are not its own."""
        if not self._over:
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._supervise(seat))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            # Later, so that a loop which is itself ending, and cancels all, is left to end.
            task.add_done_callback(lambda task: loop.call_later(REVIVE_FIRST_S, self._watch_over, seat))

    async def _supervise(self, seat: str) -> None:
        """Keeps a seat attended to; when it is gone, says so, and has it back as soon as that can be."""
        pause_s = REVIVE_FIRST_S
        while True:
            began_s = self._clock.uptime()
            # From here on: letters may be under way, and fail, before the seat is attended to.
            lost = self._lost[seat] = asyncio.get_running_loop().create_future()
            boot = self._driver.boot(seat)
            await self._kept(
                self._driver.position
            )  # a run's number that a crash undid would be given out again
            why = await self._until_gone(seat, boot, lost)
            log.warning("seat lost", seat=seat, why=why)
            self._links[seat].drop()  # it will be told anew what is open
            self._driver.seat_died(seat, boot, why, self._clock.now())
            self._settle()
            if self._clock.uptime() - began_s > REVIVE_LAST_S:
                pause_s = REVIVE_FIRST_S  # it had been well for a while
            while True:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, REVIVE_LAST_S)
                try:
                    await self._transport.revive(seat)
                    break
                except Exception as error:  # noqa: BLE001 - tried again, and visible in the log and on the roll
                    log.warning("seat not back yet", seat=seat, why=first_line(error))

    async def _until_gone(self, seat: str, boot: int, lost: asyncio.Future[str]) -> str:
        attending = asyncio.ensure_future(self._transport.attend(seat, boot))
        try:
            waiting: set[asyncio.Future[Any]] = {lost, attending}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if attending.done():
                error = attending.exception()
                return "its heartbeat ended" if error is None else f"its actor died: {first_line(error)}"
            return lost.result()
        finally:
            attending.cancel()


def first_line(error: BaseException) -> str:
    """An error in a line, for the log and the roll."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
