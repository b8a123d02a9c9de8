"""Enters the words of new records into the store's search index, many records at a time."""

from __future__ import annotations

from council.journal.store import PacketStore
from council.journal.words import ENTER_AT


class Indexer:
    """Counts the records whose words wait to be entered into the index of one store."""

    def __init__(self, store: PacketStore) -> None:
        self._store = store
        self._waiting, self._enter_at = 1, ENTER_AT  # an earlier coordinator may have left some

    def add(self, records: int) -> None:
        """So many more records wait."""
        self._waiting += records

    def due(self) -> bool:
        """Whether enough records wait. Where ``enter`` fails, it is due again after as many more."""
        if self._waiting < self._enter_at:
            return False
        self._enter_at = self._waiting + ENTER_AT
        return True

    def enter(self) -> None:
        """Enters the words of all records that wait. Raises StoreError."""
        if self._waiting:
            self._store.enter_words()
            self._waiting, self._enter_at = 0, ENTER_AT
