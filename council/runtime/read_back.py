"""Reads decided proposals back from the store, when something names one that is not in memory (``archive``)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from council.agents.messaging.logs import get_logger
from council.protocol.errors import PASSING
from council.runtime.archive import Away
from council.runtime.commit import TROUBLE_CHECK_S
from council.runtime.driver import Driver, Opened

log = get_logger("council")

# Messages of seats that wait for a decision to be read back: late ballots mostly.
WAITING_MAX, WAITING_BYTES_MAX = 10_000, 64 * 2**20


class ReadBack:
    """For one coordinator, on its event loop. ``receive`` has the driver receive a seat's message now.

    Messages wait as bytes, and are opened again later: an opened one takes several times the memory.
    """

    def __init__(self, driver: Driver, receive: Callable[[Opened], Away | None]) -> None:
        self._driver = driver
        self._receive = receive
        self._turn = asyncio.Lock()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = None

    async def take_back(self, away: Away) -> None:
        """Reads a decided proposal back into memory. Raises StoreError."""
        async with self._turn:  # a proposal that several ask for at once is read once
            if (now := self._driver.away(away.proposal_id)) is not None:  # it may have moved meanwhile
                closed = await asyncio.to_thread(self._driver.archive.fetch, now)
                self._driver.take_back(now, closed)

    def receive_later(self, sealed: bytes) -> None:
        """Receives a seat's message once the proposal that it names is read back, however long the store is away.

        Such messages keep their order among themselves. Messages about other proposals overtake them.
        """
        if len(self._waiting) >= WAITING_MAX or self._waiting_bytes + len(sealed) > WAITING_BYTES_MAX:
            why = f"{len(self._waiting)} messages wait for decisions to be read back"
            log.warning("late message dropped", why=why)
            return
        self._waiting.append(sealed)
        self._waiting_bytes += len(sealed)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._receive_waiting())

    async def _receive_waiting(self) -> None:
        while self._waiting:
            sealed = self._waiting.popleft()
            self._waiting_bytes -= len(sealed)
            try:
                await self._receive_one(self._driver.open(sealed))
            except Exception as error:  # noqa: BLE001 - costs this message only, and those behind it are received
                log.error("late message dropped", why=str(error) or type(error).__name__)

    async def _receive_one(self, opened: Opened) -> None:
        while (away := self._receive(opened)) is not None:
            try:
                await self.take_back(away)
            except PASSING:
                await asyncio.sleep(TROUBLE_CHECK_S)

    async def end(self) -> None:
        """Receives nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
