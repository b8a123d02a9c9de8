"""Moves items between two peers in calls that carry what waits, and return when there is something to say.

One side calls (``Courier``), the other is called (``Mailbox``). A call takes all waiting items. The other side parks
it until there is something to return. So one round trip serves one question or a thousand. At most two calls are
under way: a new one releases the parked one, and after that has returned the next one can start.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from council.protocol.errors import EnvelopeError
from council.protocol.values import too_large

# A parked call returns after this many seconds, so that no wait is unlimited. This is far above a round trip, and far
# below the time after which a peer counts as lost.
PARK_S = 20.0
# The items and bytes of one call. Larger calls take more time and memory without more throughput.
BATCH_ITEMS_MAX = 512
BATCH_BYTES_MAX = 4 * 2**20

# Items are bytes if they may cross a process border; within a process they may be anything.
Reply = tuple[bool, list[Any]]


def take_batch(waiting: deque[Any]) -> list[Any]:
    """Removes from the front of ``waiting`` what fits one call: at least one item, if there is any."""
    batch: list[Any] = []
    size = 0
    while waiting and len(batch) < BATCH_ITEMS_MAX:
        item = waiting[0]
        size += len(item) if isinstance(item, bytes) else 0
        if batch and size > BATCH_BYTES_MAX:
            break
        batch.append(waiting.popleft())
    return batch


def frame(items: Sequence[bytes]) -> bytes:
    """Joins items into one string of bytes, which Ray carries unchanged; it would pickle a list of them."""
    return b"".join((struct.pack(f">I{len(items)}I", len(items), *map(len, items)), *items))


def unframe(data: bytes) -> list[bytes]:
    """The items that ``frame`` joined.

    Raises EnvelopeError if the lengths do not fit the data. Raises EnvelopeTooLarge if there are more items than one
    call carries besides its session's name.
    """
    try:
        (count,) = struct.unpack_from(">I", data)
        if count > BATCH_ITEMS_MAX + 1:
            raise too_large("frame", "items in one call", BATCH_ITEMS_MAX + 1, count)
        lengths = struct.unpack_from(f">{count}I", data, 4)
    except (struct.error, TypeError):
        raise EnvelopeError("frame: its head does not fit what follows", field="frame") from None
    bounds = list(accumulate(lengths, initial=4 + 4 * count))
    if bounds[-1] != len(data):
        raise EnvelopeError(
            f"frame: {len(data):,} bytes, where its items should end after {bounds[-1]:,}", field="frame"
        )
    return [data[begin:end] for begin, end in pairwise(bounds)]


def frame_reply(reply: Reply) -> bytes:
    """Joins a reply into one string of bytes: whether more will come, then the items."""
    more, items = reply
    return (b"\1" if more else b"\0") + frame(items)


def unframe_reply(data: bytes) -> Reply:
    """The reply that ``frame_reply`` packed. Raises EnvelopeError."""
    return data[:1] == b"\1", unframe(data[1:])


class Mailbox:
    """The items that wait for a peer to call, and that peer's parked call."""

    def __init__(self) -> None:
        self._waiting: deque[Any] = deque()
        self._parked: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: Any) -> None:
        """Adds ``item`` for the peer. A parked call returns it, with all others that are added in the same turn."""
        self._waiting.append(item)
        self.release()

    def release(self) -> None:
        """Makes the parked call return with what there is."""
        if self._parked is not None and not self._parked.done():
            self._parked.set_result(None)

    async def collect(self, busy: Callable[[], bool], park_s: float = PARK_S) -> Reply:
        """Returns what waits, and whether more will come. Parks first if nothing waits but ``busy()`` is true."""
        self.release()
        if not self._waiting and busy():
            parked = self._parked = asyncio.get_running_loop().create_future()
            timer = asyncio.get_running_loop().call_later(park_s, self.release)
            try:
                await parked
            finally:
                timer.cancel()
        batch = take_batch(self._waiting)
        return bool(self._waiting) or busy(), batch


class Courier:
    """Carries items to a peer, and passes on what comes back.

    ``call`` makes one call. ``receive`` takes each reply's items. ``failed`` takes the items of a call that raised,
    and the error; it decides whether and when to send them again.
    """

    def __init__(
        self,
        call: Callable[[list[bytes]], Awaitable[Reply]],
        receive: Callable[[Sequence[Any]], None],
        failed: Callable[[list[bytes], Exception], None],
    ) -> None:
        self._call = call
        self._receive = receive
        self._failed = failed
        self._waiting: deque[bytes] = deque()
        self._flights: set[asyncio.Task[None]] = set()
        self._more = False
        self._boarding: asyncio.Task[None] | None = None
        self._launched = self._heard = 0
        self.waiting_bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._flights and not self._waiting

    def send(self, item: bytes) -> None:
        """Queues ``item``. All items that are sent in the same turn of the loop leave in one call."""
        self._waiting.append(item)
        self.waiting_bytes += len(item)
        self._launch()

    def expect(self) -> None:
        """Makes further calls after a failed one: the peer still has something to return."""
        self._more = True

    def drop(self) -> list[bytes]:
        """Cancels the calls under way. Removes and returns the waiting items."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._more = False
        self.waiting_bytes = 0
        for flight in list(self._flights):
            flight.cancel()
        return waiting

    def _launch(self) -> None:
        """Begins a call. It takes the waiting items in the next turn of the loop."""
        wanted = self._waiting or not self._flights
        if wanted and self._boarding is None and len(self._flights) < 2:
            flight = self._boarding = asyncio.get_running_loop().create_task(self._fly())
            self._flights.add(flight)
            flight.add_done_callback(self._landed)  # also if it is cancelled before its first step

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if self._boarding is flight:
            self._boarding = None
        if self._waiting or self._more:
            self._launch()

    async def _fly(self) -> None:
        self._boarding = None
        self._launched += 1
        number, batch = self._launched, take_batch(self._waiting)
        self.waiting_bytes -= sum(map(len, batch))
        if self._waiting:
            self._launch()
        try:
            more, items = await self._call(batch)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a transport may raise anything
            self._more = False
            self._failed(batch, error)
        else:
            # If replies arrive out of order, the earlier call's must not hide that the later one has more to return.
            self._more = more or (self._more and number < self._heard)
            self._heard = max(self._heard, number)
            self._receive(items)
