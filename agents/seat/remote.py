"""A seat whose coordinator is elsewhere: its messages are sealed, and what it says waits for a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from council.agents.messaging.mailbox import Courier, Mailbox, Reply
from council.agents.seat.host import SeatHost
from council.protocol import signing
from council.protocol.errors import CouncilError


class RemoteSeat:
    """``host`` behind a border. ``refused`` counts what the council of ``council_id`` did not seal with ``key``."""

    def __init__(self, host: SeatHost, key: bytes, council_id: str) -> None:
        self.host = host
        self.refused = 0
        self._key = key
        self._council_id = council_id
        self._mailbox = Mailbox()
        host.say = self._mailbox.put

    async def exchange(self, batch: Sequence[bytes]) -> Reply:
        """Takes what the council sends; returns ballots as they are cast, and whether more will come."""
        for sealed in batch:
            try:
                letter = signing.open_to(sealed, self._key, self._council_id, self.host.name)
            except CouncilError:
                self.refused += 1  # not from our council: nobody to tell
            else:
                self.host.receive(letter)
        return await self._mailbox.collect(self.host.is_busy)


def courier_to(
    seat: str,
    key: bytes,
    council_id: str,
    exchange: Callable[[list[bytes]], Awaitable[Reply]],
    heard: Callable[[Sequence[bytes]], None],
    lost: Callable[[Exception], None],
) -> Courier:
    """Carries letters to a ``RemoteSeat`` by its ``exchange``; ``lost`` is told why that failed."""

    async def call(batch: list[bytes]) -> Reply:
        return await exchange([signing.seal_to(letter, key, council_id, seat) for letter in batch])

    return Courier(call, heard, lambda batch, error: lost(error))
