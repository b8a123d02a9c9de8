"""One record of the journal, the interface of what keeps them, and a journal in memory.

The driver appends every event before any effect that tells somebody of it is performed (rules 4.7). The
journal in memory lasts as long as its coordinator; a durable one satisfies the same interface.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Protocol

from council.core.events import Event
from council.core.state import Moment, Value


class Record(Value, frozen=True):
    """An event with its moment, and the sealed envelope that brought it, if one did."""

    moment: Moment
    event: Event
    sealed: bytes | None = None

    @property
    def position(self) -> int:
        return self.moment.position


class Journal(Protocol):
    """Keeps records in the order of their positions."""

    def append(self, records: Sequence[Record]) -> Awaitable[None] | None:
        """Keeps ``records``: all of them once the awaitable is done, or on return where there is none.

        Raises, or its awaitable does, if they are not kept; then none of them is.
        """

    async def close(self) -> None: ...


# Of the envelopes in it a journal in memory keeps so much: a proposal may hold most of a megabyte.
MEMORY_BYTES_MAX = 64 * 2**20


class MemoryJournal:
    """The last ``kept_max`` records, in memory: their order is kept, their durability is the process's."""

    def __init__(self, kept_max: int = 20_000, bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self.records: deque[Record] = deque()
        self._kept_max = kept_max
        self._bytes_left = bytes_max

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            self.records.append(record)
            self._bytes_left -= len(record.sealed or b"")
        while len(self.records) > self._kept_max or (self._bytes_left < 0 and self.records):
            self._bytes_left += len(self.records.popleft().sealed or b"")

    async def close(self) -> None:
        return
