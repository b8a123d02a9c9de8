"""The chain of one journal in its store: appends rows after its head, and reads records back, checking each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from council.journal.chain import Head, Tree, content_hash, row_hash
from council.journal.packets import unpacked
from council.journal.record import Record
from council.journal.rows import Prepared
from council.journal.store import PacketStore
from council.protocol.errors import JournalCorrupt

PAGE = 500  # rows read at once; each may hold a megabyte


class StoredChain:
    """A journal's chain, as the writer of ``epoch`` continues it. ``owner`` is the writer's name in the store.

    ``head`` is the last row. ``tree`` covers the rows that were read or appended here.
    """

    def __init__(self, store: PacketStore, journal: str, owner: str) -> None:
        self._store = store
        self._journal = journal
        self.tree = Tree()
        # From now on older writers are refused, so nobody else changes what is read next.
        self.epoch, self.head = store.begin_epoch(journal, owner)

    def append(self, rows: Sequence[Prepared]) -> None:
        """Appends rows in one transaction. Raises EpochFenced, StoreError."""
        self.head, hashes = self._store.append_rows(self._journal, self.epoch, rows, self.head)
        for each in hashes:
            self.tree.append(each)

    def records(self, after: Head) -> Iterator[Record]:
        """The records after ``after``. Raises JournalCorrupt for the first that does not fit the chain."""
        head = after
        while head.position < self.head.position:
            rows = self._store.records(self._journal, head.position, PAGE)
            if not rows:
                raise self._corrupt(head.position + 1, "it is missing")
            for row in rows:
                own = row_hash(head.row_hash, row.position, row.epoch, content_hash(row.content))
                if row.position != head.position + 1:
                    raise self._corrupt(head.position + 1, f"record {row.position} is in its place")
                if own != row.row_hash or row.previous_hash != head.row_hash:
                    raise self._corrupt(row.position, "it was changed, or a record before it")
                head = Head(row.position, own)
                self.tree.append(own)
                yield unpacked(row.content, row.position).record
        if head != self.head:
            raise self._corrupt(head.position, "it is not the one that stood there a moment ago")

    def row_hash(self, position: int) -> bytes | None:
        """The hash of the row at a position; None if there is no such row."""
        if not 0 < position <= self.head.position:
            return None
        rows = self._store.records(self._journal, position - 1, 1)
        return rows[0].row_hash if rows and rows[0].position == position else None

    def _corrupt(self, position: int, what: str) -> JournalCorrupt:
        return JournalCorrupt(
            f"record {position} of journal {self._journal} in {self._store.where} can't be trusted: {what}; see "
            "council verify, and go back to a copy",
            journal=self._journal,
            position=position,
        )
