"""A seat in another process than its coordinator: its messages are sealed, and wait for the coordinator's calls."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence

from council.agents.messaging.mailbox import Courier, Mailbox, Reply
from council.agents.seat.host import SeatHost
from council.protocol import signing
from council.protocol.errors import CouncilError


class RemoteSeat:
    """Gives access to ``host``. Messages that the council did not seal with ``key`` are ignored."""

    def __init__(self, host: SeatHost, key: bytes, council_id: str) -> None:
        self.host = host
        self._key = key
        self._council_id = council_id
        self._mailbox = Mailbox()
        host.say = self._mailbox.put

    async def exchange(self, batch: Sequence[bytes]) -> Reply:
        """Takes the council's messages. Returns ballots as they are cast, and whether more will come."""
        for sealed in batch:
            with contextlib.suppress(CouncilError):  # not from our council, so no error is returned
                self.host.receive(signing.open_to(sealed, self._key, self._council_id, self.host.name))
        return await self._mailbox.collect(self.host.is_busy)


def courier_to(
    seat: str,
    key: bytes,
    council_id: str,
    exchange: Callable[[list[bytes]], Awaitable[Reply]],
    heard: Callable[[Sequence[bytes]], None],
    lost: Callable[[Exception], None],
) -> Courier:
    """Carries messages to a ``RemoteSeat`` by its ``exchange``; ``lost`` takes the error of a failed call."""

    async def call(batch: list[bytes]) -> Reply:
        return await exchange([signing.seal_to(message, key, council_id, seat) for message in batch])

    return Courier(call, heard, lambda batch, error: lost(error))
