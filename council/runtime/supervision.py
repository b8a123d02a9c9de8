"""Carries messages to and from a council's seats, reports a lost seat, and revives it.

This module passes the seats' envelopes and deaths to the driver, and then calls ``settle``. The driver decides what
follows.
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

# How many messages may wait for a seat, for each proposal that may be open. More wait only if the seat takes none.
MESSAGES_FOR_EACH_OPEN = 4
MESSAGE_BYTES_MAX = 256 * 2**20
# Pauses in seconds between attempts to revive a seat: short at first, then long enough to cost nothing.
REVIVE_FIRST_S, REVIVE_LAST_S = 0.05, 30.0


class Supervision:
    """The seats of one coordinator, on its event loop.

    ``receive`` takes messages of seats. ``kept`` returns once the record of a position is kept.
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
        self._messages_max = 0
        self._lost: dict[str, asyncio.Future[str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False

    def begin(self) -> None:
        """Starts to supervise the seats of the driver's rules, which must exist."""
        rules, still_open = self._driver.rules, len(self._driver.state.open)
        # Earlier settings may have allowed more open proposals.
        self._messages_max = MESSAGES_FOR_EACH_OPEN * max(rules.open_max, still_open)
        self._links = {
            seat: self._transport.link(seat, self._heard, partial(self._unreachable, seat))
            for seat in rules.seats
        }
        for seat in self._links:
            self._watch_over(seat)

    def give_up(self) -> None:
        """Leaves the seats to the next coordinator: no message is carried and no seat revived any more."""
        self._over = True
        for task in self._tasks:
            task.cancel()
        for link in self._links.values():
            link.drop()

    async def end(self) -> None:
        """Like ``give_up``, but returns after all tasks have ended, and the seats too."""
        self.give_up()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._transport.close()

    def send(self) -> None:
        """Sends the driver's messages for seats."""
        to_seats, perishable = self._driver.outbox.to_seats, self._driver.outbox.perishable
        touched = {}
        while to_seats or perishable:
            must_arrive = bool(to_seats)
            seat, item = (to_seats or perishable).popleft()
            link = touched[seat] = self._links[seat]
            if must_arrive or len(link) < self._messages_max // 2:  # a slow seat misses some of the streams
                link.send(item)
        for seat, link in touched.items():
            if len(link) > self._messages_max or link.waiting_bytes > MESSAGE_BYTES_MAX:
                # A mind may block its seat's loop while heartbeats go on. The seat is sent only the open proposals
                # again.
                self._lose(seat, f"it takes no messages: {len(link):,} wait for it")

    def _heard(self, items: Sequence[bytes]) -> None:
        """Takes messages of seats. After the end it drops them, because they could not be kept."""
        if items and not self._over:
            self._receive(items)

    def _unreachable(self, seat: str, error: Exception) -> None:
        self._lose(seat, f"it can't be reached: {first_line(error)}")

    def _lose(self, seat: str, why: str) -> None:
        if (lost := self._lost.get(seat)) is not None and not lost.done():
            lost.set_result(why)

    def _watch_over(self, seat: str) -> None:
        """Supervises a seat until it is given up. In process, a mind may cancel tasks that are not its own."""
        if not self._over:
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._supervise(seat))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            # After a pause, so that a loop that is ending, and cancels all tasks, can end.
            task.add_done_callback(lambda task: loop.call_later(REVIVE_FIRST_S, self._watch_over, seat))

    async def _supervise(self, seat: str) -> None:
        """Keeps a seat attended. If it is lost, reports that, and revives it as soon as possible."""
        pause_s = REVIVE_FIRST_S
        while True:
            began_s = self._clock.uptime()
            # Set before the seat is attended, because messages may already be under way and fail.
            lost = self._lost[seat] = asyncio.get_running_loop().create_future()
            boot = self._driver.boot(seat)
            await self._kept(
                self._driver.position
            )  # otherwise a crash could undo a run's number, and it would be used again
            why = await self._until_gone(seat, boot, lost)
            log.warning("seat lost", seat=seat, why=why)
            self._links[seat].drop()  # the seat will get the open proposals again
            self._driver.seat_died(seat, boot, why, self._clock.now())
            self._settle()
            if self._clock.uptime() - began_s > REVIVE_LAST_S:
                pause_s = REVIVE_FIRST_S  # it had run for a while
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
    """An error in one line, for the log and the seats' status."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
