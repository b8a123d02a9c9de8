"""Enters the words of new records into the store's search index, many records at a time."""

from __future__ import annotations

from council.journal.search_words import ENTER_AT
from council.journal.store import PacketStore


class Indexer:
    """Counts the records whose words are not in the index of one store yet."""

    def __init__(self, store: PacketStore) -> None:
        self._store = store
        self._waiting, self._enter_at = 1, ENTER_AT  # an earlier coordinator may have left some

    def add(self, records: int) -> None:
        """Counts more records."""
        self._waiting += records

    def due(self) -> bool:
        """Whether enough records wait. After a failed ``enter`` it is due again after as many more."""
        if self._waiting < self._enter_at:
            return False
        self._enter_at = self._waiting + ENTER_AT
        return True

    def enter(self) -> None:
        """Enters the words of all waiting records. Raises StoreError."""
        if self._waiting:
            self._store.enter_words()
            self._waiting, self._enter_at = 0, ENTER_AT
