"""A journal in memory, which ends with its coordinator."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from council.journal.entries import HistoryPage, Wanted
from council.journal.record import Journal, Record

# The bytes of envelopes that are kept: a proposal may hold most of a megabyte.
MEMORY_BYTES_MAX = 64 * 2**20


class MemoryJournal(Journal):
    """The last ``kept_max`` records, in memory. They are lost when the process ends."""

    epoch = 1

    def __init__(self, kept_max: int = 20_000, bytes_max: int = MEMORY_BYTES_MAX) -> None:
        super().__init__()
        self.records: deque[Record] = deque()
        self._kept_max = kept_max
        self._bytes_left = bytes_max

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            self.records.append(record)
            self._bytes_left -= len(record.sealed or b"")
        while len(self.records) > self._kept_max or (self._bytes_left < 0 and self.records):
            self._bytes_left += len(self.records.popleft().sealed or b"")

    async def history(self, asked: Wanted) -> HistoryPage:
        from council.journal.history import in_memory  # it loads SQLAlchemy

        return await asyncio.to_thread(in_memory, list(self.records), asked)
