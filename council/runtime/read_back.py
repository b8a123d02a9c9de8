"""Reads decided proposals back from the store, when something names one that is not in memory (``archive``)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from council.agents.messaging.logs import get_logger
from council.journal.record import PASSING
from council.protocol.errors import CouncilError
from council.runtime.archive import Away
from council.runtime.commit import TROUBLE_CHECK_S
from council.runtime.driver import Driver

log = get_logger("council")

# Messages of seats that wait for a decision to be read back: late ballots mostly.
WAITING_MAX = 10_000


class ReadBack:
    """For one coordinator, on its event loop. ``receive`` has the driver receive a seat's message now."""

    def __init__(self, driver: Driver, receive: Callable[[bytes], Away | None]) -> None:
        self._driver = driver
        self._receive = receive
        self._turn = asyncio.Lock()
        self._waiting: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None

    async def take_back(self, away: Away) -> None:
        """Has a decided proposal in memory again. Raises StoreError."""
        async with self._turn:  # what several ask for at once is read once
            if self._driver.away(away.proposal_id) is not None:
                closed = await asyncio.to_thread(self._driver.archive.fetch, away)
                self._driver.take_back(away, closed)

    def receive_later(self, sealed: bytes) -> None:
        """Takes a seat's message in once what it names is read back, however long the store is away.

        Such messages keep their order. Others overtake them: they speak of other proposals.
        """
        if len(self._waiting) >= WAITING_MAX:
            log.warning("late message dropped", why=f"{WAITING_MAX} wait for decisions to be read back")
            return
        self._waiting.append(sealed)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._receive_waiting())

    async def _receive_waiting(self) -> None:
        while self._waiting:
            sealed = self._waiting.popleft()
            while (away := self._receive(sealed)) is not None:
                try:
                    await self.take_back(away)
                except PASSING:
                    await asyncio.sleep(TROUBLE_CHECK_S)
                except CouncilError as error:
                    log.error("late message dropped", proposal_id=away.proposal_id, why=error.message)
                    break

    async def end(self) -> None:
        """Receives nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
