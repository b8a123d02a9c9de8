"""Reads a journal from the first to the last record, and names the first one that was changed (rules 4.5).

A person who can write the database can also recompute every hash, or cut records off the end. Only a checkpoint that
was kept elsewhere shows either. The time and the owner of an epoch are outside of the chain. So are the words of
SQLite's search index, which are compared with the packets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlalchemy import Connection, func, select, text

from council.journal import search_words
from council.journal.chain import Head, Tree, misfit
from council.journal.checkpoint import Checkpoint
from council.journal.queries import begun as begun_epochs
from council.journal.queries import journals_there
from council.journal.rows import prepared, same_object, wrong_column
from council.journal.schema import epochs, packet_store
from council.journal.store import PacketStore
from council.protocol.errors import (
    CallerError,
    CheckpointRefused,
    EnvelopeError,
    JournalCorrupt,
    StoreCorrupt,
)
from council.protocol.packet import StoredPacket, read_packet
from council.protocol.values import quoted, text_problem

Progress = Callable[[int, int], None]  # the number of verified records, and of all

ROWS_AT_ONCE = 1_000
# The lineages of this many packets are kept in memory; that of an older parent is read again.
LINEAGES_KEPT = 100_000
ADVICE = "put the store aside untouched, and go back to a copy that verifies"

# By ``sequence``, the order in which the store writes and reads, and not by the index on positions, which is not
# verified. SQLite itself shows whether the generated column still is one.
_ROWS = {
    "sqlite": """
        SELECT position, epoch, previous_hash, content_hash, row_hash, content,
            envelope IS CAST(content AS TEXT), packet_id, packet_type, "timestamp", routing, provenance, thread_id,
            parent_ids, tags, ttl
        FROM packet_store NOT INDEXED WHERE journal = :journal ORDER BY sequence
    """,
    "postgresql": r"""
        SELECT position, epoch, previous_hash, content_hash, row_hash, content,
            CAST(envelope AS text), CAST(packet_id AS text), packet_type,
            to_char("timestamp" AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24\:MI\:SS.US"Z"'),
            CAST(routing AS text), CAST(provenance AS text), CAST(thread_id AS text),
            CAST(to_json(parent_ids) AS text), CAST(to_json(tags) AS text),
            to_char(ttl, 'YYYY-MM-DD"T"HH24\:MI\:SS.US"Z"')
        FROM packet_store WHERE journal = :journal ORDER BY sequence
    """,
}
_CONTENT = "SELECT content FROM packet_store WHERE journal = :journal AND position < :before AND packet_id = "
_PARENT = {"sqlite": f"{_CONTENT}:id", "postgresql": f"{_CONTENT}CAST(:id AS uuid)"}


@dataclass(frozen=True, slots=True)
class Verified:
    """A valid journal: its ``rows``, ``head``, the Merkle ``tree`` over them, and its newest ``epoch``.

    ``checkpoint`` is the one that it was compared with, if any; ``after`` is the number of rows after it.
    """

    journal: str
    where: str
    rows: int
    head: Head
    tree_root: bytes
    epoch: int
    checkpoint: Checkpoint | None = None

    @property
    def after(self) -> int:
        return self.rows - (self.checkpoint.position if self.checkpoint else 0)


def verify(
    store: PacketStore,
    journal: str,
    *,
    checkpoint: Checkpoint | None = None,
    key: str | None = None,
    council_id: str | None = None,
    progress: Progress | None = None,
    see: Callable[[int, bytes, str], None] | None = None,
    searches: bool = True,
) -> Verified:
    """Verifies a journal as of now, also while a council writes it; if there is a ``checkpoint``, against that.

    ``key`` and ``council_id`` are those that the checkpoint must have. ``see`` gets every row's position, hash and
    packet id. ``searches``: the search words of the whole store are verified too. Raises JournalCorrupt with the
    ``position`` of the first bad record and ``what`` is wrong with it; StoreCorrupt if the journal is valid but the
    search words are not; CheckpointRefused; CallerError if there is no such journal; and StoreError.
    """
    if problem := text_problem(journal):
        raise CallerError(f"journal: {quoted(journal)} {problem}")
    if checkpoint is not None:
        _check(checkpoint, journal, key, council_id)
    with store.database.read() as connection:
        begun = connection.execute(
            select(epochs.c.epoch).where(epochs.c.journal == journal).order_by(epochs.c.epoch)
        )
        walk = _Verification(connection, store.where, journal, list(begun.scalars()), checkpoint)
        own = select(func.count()).where(packet_store.c.journal == journal)
        total = connection.execute(own).scalar_one()
        if not walk.begun and not total and checkpoint is None:
            raise CallerError(
                f"the store {store.where} has no journal {quoted(journal)}; name one of those there: "
                f"{journals_there(connection)}"
            )
        for done in walk.through(see):
            if progress is not None:
                progress(done, max(done, total))
        found = walk.result()
        for _ in begun_epochs(connection, store.where, journal):
            pass  # it raises if one is invalid
        if searches and store.database.kind == "sqlite" and (what := search_words.misleading(connection)):
            raise StoreCorrupt(
                f"journal {quoted(journal)} in {store.where} holds, but searches of this store mislead: {what}. "
                "To rebuild its search words, end the council, then run council store export, and council store "
                "import into a new store",
                where=store.where,
                what=what,
            )
        return found


def _check(checkpoint: Checkpoint, journal: str, key: str | None, council_id: str | None) -> None:
    checkpoint.check(key)
    for what, found, wanted, otherwise in (
        ("journal", checkpoint.journal, journal, ""),
        ("council", checkpoint.council_id, council_id, "; if this one does, another was put in its place"),
    ):
        if wanted is not None and found != wanted:
            raise CheckpointRefused(
                f"the checkpoint is of the {what} {quoted(found)}, and {quoted(wanted)} is to be verified: take the "
                f"one that belongs to it{otherwise}",
                found=found,
                expected=wanted,
            )


class _Verification:
    """One pass over one journal, up to its first bad record."""

    def __init__(
        self,
        connection: Connection,
        where: str,
        journal: str,
        begun: Sequence[Any],
        checkpoint: Checkpoint | None,
    ) -> None:
        self.connection = connection
        self.engine = connection.dialect.name
        self.where = where
        self.journal = journal
        self.begun = frozenset(each for each in begun if type(each) is int and each > 0)
        self.newest = max(self.begun, default=0)
        self.checkpoint = checkpoint
        self.head = Head()
        self.epoch = 0
        self.tree = Tree()
        self.lineages: dict[str, tuple[int, str]] = {}  # the generation and root of the packets verified last

    def through(self, see: Callable[[int, bytes, str], None] | None) -> Iterator[int]:
        """Verifies row by row. Gives the number of verified rows now and then. Raises JournalCorrupt."""
        self._meet()
        statement = text(_ROWS[self.engine])
        stream = self.connection.execution_options(yield_per=ROWS_AT_ONCE)
        # Closed in any case: a cursor that an error's traceback keeps open would hold its point in time, also for the
        # next user of the connection.
        with stream.execute(statement, {"journal": self.journal}) as found:
            for batch in found.partitions(ROWS_AT_ONCE):
                for row in batch:
                    packet = self._read_row(row)
                    self.head = Head(row.position, row.row_hash)
                    self.tree.append(row.row_hash)
                    self._meet()
                    if see is not None:
                        see(row.position, row.row_hash, packet.packet_id)
                yield self.head.position

    def _read_row(self, row: Any) -> StoredPacket[Any]:
        position, epoch, content, envelope = row.position, row.epoch, row.content, row[6]
        expected = self.head.position + 1
        if type(position) is not int or position != expected:
            self._bad(expected, f"it was removed or moved: record {quoted(str(position))} is in its place")
        if epoch != self.epoch:
            self._enter(position, epoch)
        if what := misfit(row, self.head):
            self._bad(position, what)
        try:
            packet = read_packet(content)
        except EnvelopeError as error:
            self._bad(position, f"its content is no packet in the canonical form ({error.message})")
        wrong = wrong_column(self.engine, prepared(packet, content), row[7:])
        if wrong is None and not (
            envelope == 1 if self.engine == "sqlite" else same_object(envelope, content)
        ):
            wrong = "envelope"
        if wrong is not None:
            self._bad(position, f"its column {wrong} does not say what its content says")
        if packet.ttl is not None:
            self._bad(position, "it has a ttl, and a journal's records are kept forever")
        self._descend(position, packet)
        return packet

    def _enter(self, position: int, epoch: Any) -> None:
        if type(epoch) is not int or epoch not in self.begun:
            self._bad(position, f"its epoch is {quoted(str(epoch))}, which was never begun")
        if epoch < self.epoch:
            self._bad(
                position, f"its epoch is {epoch}, after one of epoch {self.epoch}: a newer one fences it"
            )
        self.epoch = epoch

    def _descend(self, position: int, packet: StoredPacket[Any]) -> None:
        """Checks that a packet's lineage follows from its parents (rules 4.3), which come before it."""
        given = packet.lineage
        now = (0, packet.packet_id)
        if given is not None:
            if given.parent_ids:
                now = self._descent(position, given.parent_ids)
            for name, found, wanted in (
                ("generation", given.generation, now[0]),
                ("root", given.root_packet_id, now[1]),
            ):
                if found != wanted:
                    self._bad(position, f"its lineage says {name} {found}, its parents make it {wanted}")
        self.lineages[packet.packet_id] = now
        if len(self.lineages) > LINEAGES_KEPT:
            del self.lineages[next(iter(self.lineages))]

    def _descent(self, position: int, parents: Sequence[str]) -> tuple[int, str]:
        if len(set(parents)) != len(parents):
            self._bad(position, "its lineage names a parent twice")
        known = [self.lineages.get(each) or self._read(position, each) for each in parents]
        return 1 + max(generation for generation, _ in known), known[0][1]

    def _read(self, position: int, parent: str) -> tuple[int, str]:
        """The generation and root of a packet that was verified long ago."""
        statement = text(_PARENT[self.engine])
        bound = {"journal": self.journal, "before": position, "id": parent}
        content = self.connection.execute(statement, bound).scalar_one_or_none()
        if content is None:
            self._bad(position, f"its lineage names the parent {parent}, which is not before it")
        lineage = read_packet(content).lineage
        # It was verified before, so it has both or neither.
        return (0, parent) if lineage is None else (lineage.generation or 0, lineage.root_packet_id or parent)

    def _meet(self) -> None:
        """Compares with the checkpoint, if this is its position."""
        kept = self.checkpoint
        if kept is None or kept.position != self.head.position:
            return
        if (kept.row_hash, kept.tree_root) != (self.head.row_hash, self.tree.root()):
            self._bad(
                kept.position,
                f"it is not the one of the checkpoint of {kept.at:%Y-%m-%d %H:%M:%S}Z: the journal was replaced, "
                "this record or one before it",
            )
        if kept.epoch < self.epoch:
            self._bad(kept.position, f"it is of epoch {self.epoch}, the checkpoint of {kept.epoch}")
        if kept.epoch not in self.begun and kept.epoch:
            self._bad(kept.position, f"epoch {kept.epoch}, which the checkpoint names, was never begun")
        self.epoch = kept.epoch  # the signer's epoch had shut out every older one

    def result(self) -> Verified:
        """The result. Raises JournalCorrupt if records are missing at the end."""
        end = self.head.position
        kept = self.checkpoint
        if kept is not None and kept.position > end:
            self._bad(
                end + 1,
                f"it is missing: the journal ends at {end}, and reached {kept.position} at the checkpoint of "
                f"{kept.at:%Y-%m-%d %H:%M:%S}Z: its end was cut off",
            )
        if len(self.begun) != self.newest:
            missing = min(set(range(1, self.newest)) - self.begun)
            self._bad(end + 1, f"epoch {missing} was removed from those begun, and {self.newest} is there")
        tree = self.tree
        return Verified(self.journal, self.where, end, self.head, tree.root(), self.newest, kept)

    def _bad(self, position: int, what: str) -> NoReturn:
        raise JournalCorrupt(
            f"journal {quoted(self.journal)} in {self.where}: record {position} is the first bad one: {what}; "
            f"{ADVICE}",
            journal=self.journal,
            where=self.where,
            position=position,
            what=what,
        )
