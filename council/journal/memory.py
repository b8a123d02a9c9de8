"""A journal in memory, which ends with its coordinator."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from council.journal.entries import HistoryPage, Wanted
from council.journal.record import Record, Restorable, Snapshot
from council.protocol.errors import InternalError, StoreError

# The bytes of envelopes that are kept: a proposal may hold most of a megabyte.
MEMORY_BYTES_MAX = 64 * 2**20


class MemoryJournal:
    """The last ``kept_max`` records, in memory. They are lost when the process ends."""

    epoch = 1
    linger_s = 0.0
    durable = False
    trouble: StoreError | None = None
    unsigned: str | None = None
    snapshot_kept = 0

    def __init__(self, kept_max: int = 20_000, bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self.records: deque[Record] = deque()
        self.commits: deque[tuple[int, float]] = deque()  # writes take no time here
        self._kept_max = kept_max
        self._bytes_left = bytes_max

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            self.records.append(record)
            self._bytes_left -= len(record.sealed or b"")
        while len(self.records) > self._kept_max or (self._bytes_left < 0 and self.records):
            self._bytes_left += len(self.records.popleft().sealed or b"")

    def recover(self, writer: Restorable) -> None:
        """Does nothing: there is no earlier writer."""

    def snapshot_due(self, position: int) -> bool:
        return False  # nothing of it outlives its coordinator

    def keep(self, snapshot: Snapshot) -> None:
        """Does nothing: no snapshot is ever due."""

    def decided(self, position: int) -> bytes:
        raise InternalError(f"a snapshot at {position} was asked for, and none is kept in memory")

    def tend(self) -> None:
        """Does nothing: there is no upkeep."""

    def close_now(self) -> None:
        return

    async def history(self, asked: Wanted) -> HistoryPage:
        from council.journal.history import in_memory  # it loads SQLAlchemy

        return await asyncio.to_thread(in_memory, list(self.records), asked)

    async def close(
        self, last: Sequence[Record] = (), snapshot: Callable[[], Snapshot] | None = None
    ) -> None:
        if last:
            self.append(last)
