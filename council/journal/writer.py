"""The durable journal of one coordinator: writes its records, snapshots and checkpoints, and reads them back.

One thread writes, so that the coordinator's loop never waits for a disk. Records that arrive during one commit are
written by the next (group commit). The content of a snapshot is opaque here; the driver makes and reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self
from uuid import UUID

from council.agents.messaging.logs import get_logger
from council.core.events import CoordinatorStarted
from council.journal import history, snapshots
from council.journal.chain import Head, JournalRow, Tree, misfit
from council.journal.checkpoint import Checkpoint, CheckpointFile, Signer
from council.journal.entries import HistoryPage, Wanted
from council.journal.hold import held as held_by_us
from council.journal.packet_keeper import PacketKeeper
from council.journal.packets import Descent, Packer, packet_id, unpacked
from council.journal.record import Journal, Record, Restorable, Snapshot
from council.journal.rows import Prepared
from council.journal.search_words import ENTER_AT
from council.journal.store import PacketStore
from council.protocol.envelope import Envelope
from council.protocol.errors import (
    PASSING,
    CheckpointRefused,
    JournalCorrupt,
    OutOfOrder,
    StoreCorrupt,
)

log = get_logger("council.journal")

ROWS_AT_ONCE = 500  # to be read back; each may hold a megabyte

# The pause before a failed write is tried again. It doubles up to the second one.
RETRY_FIRST_S, RETRY_LAST_S = 0.05, 2.0


class DurableJournal(Journal):
    """One council's records on disk. Appends of an older epoch are refused (rules 4.6)."""

    linger_s = 0.01  # ballots of quick minds arrive within milliseconds, and are written with their proposal
    durable = True

    def __init__(
        self,
        store: PacketStore,
        name: str,
        council_id: str,
        signer: Signer,
        checkpoint: Path | None,
        held: contextlib.ExitStack,
        hold_again: Callable[[], bool],
    ) -> None:
        super().__init__()
        self.name = name
        self._store = store
        self._held = held
        self._hold_again = hold_again
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"journal-{name}")
        self._packets = PacketKeeper(store, name)
        self._closing = threading.Event()
        self._packer = Packer(council_id, self._lines)
        self._unentered = 1  # records whose words are not entered; an earlier coordinator may have left some
        self._checkpoints = CheckpointFile(checkpoint, signer, name, council_id)
        self._snapshots = snapshots.SnapshotStore(store.database, name, signer)
        self._snapshots.check_end()
        self.tree = Tree()  # of the rows that were read or appended here
        # From now on older writers are refused, so nobody else changes what is read next.
        self.epoch, self.head = store.begin_epoch(name, f"{socket.gethostname()}:{os.getpid()}")

    @classmethod
    def open(
        cls,
        store: PacketStore,
        name: str,
        new_council_id: str,
        key: bytes,
        *,
        checkpoint: Path | None = None,
        takeover: bool = False,
    ) -> Self:
        """Opens the journal of that name for writing, or begins one. It closes ``store`` when it is closed.

        ``key`` is the Ed25519 seed that signs its checkpoints, which are written to the file ``checkpoint``. Raises
        JournalHeld if another live coordinator writes it, unless ``takeover``; CheckpointRefused if the journal is
        shorter than its checkpoint, or is another.
        """
        with contextlib.ExitStack() as held:
            held.callback(store.close)
            hold_again = held.enter_context(held_by_us(store.database, name, takeover=takeover))
            council_id = identity(store, name) or new_council_id
            signer = Signer(key)
            if checkpoint is not None:
                _compare(store, name, council_id, checkpoint, signer)
            journal = cls(store, name, council_id, signer, checkpoint, held, hold_again)
            journal._held = held.pop_all()  # nothing can fail any more
            return journal

    @property
    def council_id(self) -> str:
        return self._packer.council_id

    # Reading it back

    def recover(self, writer: Restorable) -> None:
        """Hands ``writer`` the newest snapshot and the records after it, each checked against the chain.

        Raises JournalCorrupt with the first record that does not fit, and what ``writer`` raises.
        """
        after = Head()
        found = self._snapshots.newest(self._row_hash)
        if found is not None:
            try:
                writer.restore(found.head.position, found.base, found.mores, self._envelopes)
                after, self.tree = found.head, Tree(found.head.position, found.peaks)
            except StoreCorrupt as error:  # of another version; the records hold everything
                self._snapshots.pass_over(found.head.position, error.message)
        self._snapshots.made(after.position)
        for row in self._rows(after.position):
            if row.position != after.position + 1:
                raise self._corrupt(after.position + 1, f"record {row.position} is in its place")
            if why := misfit(row, after):
                raise self._corrupt(row.position, why)
            after = Head(row.position, row.row_hash)
            self.tree.append(row.row_hash)
            writer.replay(unpacked(row.content, row.position).record)
        if after.position < self.head.position:
            raise self._corrupt(after.position + 1, "it is missing")
        if after != self.head:
            what = "it is not the record that the journal ended with when this coordinator began"
            raise self._corrupt(after.position, what)

    def _rows(self, after: int) -> Iterator[JournalRow]:
        while rows := self._store.records(self.name, after, ROWS_AT_ONCE):
            yield from rows
            after = rows[-1].position

    def _row_hash(self, position: int) -> bytes | None:
        """The hash of the row at a position; None if there is no such row."""
        rows = self._store.records(self.name, position - 1, 1) if 0 < position <= self.head.position else []
        return rows[0].row_hash if rows and rows[0].position == position else None

    def _corrupt(self, position: int, what: str) -> JournalCorrupt:
        return JournalCorrupt(
            f"record {position} of journal {self.name} in {self._store.where} can't be trusted: {what}; see council "
            "verify, and go back to a copy",
            journal=self.name,
            position=position,
        )

    def _envelopes(self, msg_ids: Collection[str]) -> dict[str, bytes]:
        """The sealed envelopes of these messages, by their ids."""
        wanted = {UUID(packet_id(self.council_id, msg_id)): msg_id for msg_id in msg_ids}
        found = {}
        for each, (position, content) in self._store.placed(wanted).items():
            sealed = unpacked(content, position).record.sealed
            if sealed is not None:
                found[wanted[each]] = sealed
        return found

    def _lines(self, ids: Collection[str]) -> dict[str, Descent]:
        return {
            str(each): Descent(lineage.generation or 0, str(lineage.root_packet_id or each))
            for each, lineage in self._store.lineages([UUID(each) for each in ids]).items()
            if lineage is not None
        }

    # Writing

    def append(self, records: Sequence[Record]) -> asyncio.Future[None]:
        """Keeps ``records`` in one transaction.

        Raises EpochFenced once another coordinator has begun. If the store is locked, full or unreachable, it tries
        again until it succeeds; nothing is announced meanwhile (rules 4.7).
        """
        # Shielded: records are kept in order, even if their caller stops waiting for them.
        running = asyncio.get_running_loop().run_in_executor(self._executor, self._append, records)
        # So that asyncio does not report its error as unretrieved.
        running.add_done_callback(asyncio.Future.exception)
        if self._unentered >= ENTER_AT:
            self._unentered = 1  # if it fails, it is tried again after ENTER_AT more records
            self._executor.submit(self._enter)
        return asyncio.shield(running)

    def _append(self, records: Sequence[Record]) -> None:
        after = self.head.position
        if records and records[0].position != after + 1:  # an earlier append failed
            raise OutOfOrder(
                f"record {records[0].position} does not follow record {after} of journal {self.name}: it is not kept",
                journal=self.name,
                expected=after + 1,
                found=records[0].position,
            )
        rows: list[Prepared] = []
        pause_s = RETRY_FIRST_S
        while True:
            closing = self._closing.is_set()
            try:
                # Inside the loop, because it may read the lineage of parents from the store.
                rows = rows or [self._packer.packed(record) for record in records]
                began_s = time.monotonic()
                self.head, hashes = self._store.append_rows(self.name, self.epoch, rows, self.head)
                self.commits.append((len(rows), time.monotonic() - began_s))
                break
            except PASSING as error:
                before, self.trouble = self.trouble, error
                if before is None:
                    log.error("journal stalled", journal=self.name, why=error.message)
                if closing:
                    raise
                self._closing.wait(pause_s)  # when it is set, one last attempt follows
                pause_s = min(2 * pause_s, RETRY_LAST_S)
        for each in hashes:
            self.tree.append(each)
        self._unentered += len(rows)
        if self.trouble is not None:
            log.info("journal goes on", journal=self.name, position=self.head.position)
            self.trouble = None
            if not self._hold_again():  # a server that restarted has released the lock
                log.warning(
                    "journal not held",
                    journal=self.name,
                    why="another coordinator may begin, and fence this one",
                )

    def _enter(self) -> None:
        with self._logged("words not entered"):  # a search reads the records that are not entered
            self._store.enter_words()
            self._unentered = 0

    def snapshot_due(self, position: int) -> bool:
        return self._snapshots.due(position)

    def keep(self, snapshot: Snapshot) -> None:
        self._snapshots.made(snapshot.position, len(snapshot.base))
        self._executor.submit(self._keep, snapshot)

    def _keep(self, snapshot: Snapshot) -> None:
        if snapshot.position != self.head.position:
            return  # its records were not kept, because this coordinator was replaced
        with self._logged("no snapshot"):  # only the next start takes longer
            self._snapshots.keep(snapshot, self.epoch, self.head, self.tree.peaks)

    @property
    def snapshot_kept(self) -> int:
        return self._snapshots.kept_to

    def decided(self, position: int) -> bytes:
        return self._snapshots.decided(position)

    def keep_packet(self, envelope: Envelope) -> None:
        self._packets.keep(envelope)

    @contextlib.contextmanager
    def _logged(self, what: str) -> Iterator[None]:
        """A context whose errors are logged, because nobody waits for its result."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - any error would be lost with its future
            log.warning(what, journal=self.name, why=str(error))

    def tend(self) -> None:
        """Has a checkpoint written and words entered, if they are due. Does not block."""
        if self._checkpoints.due():
            self._executor.submit(self._do_due)

    def _do_due(self) -> None:
        if self._unentered:
            self._enter()
        self._checkpoints.write(self.epoch, self.head, self.tree)

    @property
    def unsigned(self) -> str | None:
        return self._checkpoints.unsigned

    async def history(self, asked: Wanted) -> HistoryPage:
        return await asyncio.to_thread(history.page, self._store.database, self.name, asked)

    async def close(
        self, last: Sequence[Record] = (), snapshot: Callable[[], Snapshot] | None = None
    ) -> None:
        """Writes the ``last`` records, a snapshot and a checkpoint, if possible; then closes the store.

        A newer version can start from the snapshot, without a replay whose effects it may word differently.
        """
        try:
            if last:
                self._executor.submit(self._append_last, last)
            if snapshot is not None:
                self._executor.submit(self._keep, snapshot())
        finally:
            await asyncio.get_running_loop().run_in_executor(None, self.close_now)

    def _append_last(self, records: Sequence[Record]) -> None:
        with self._logged("last records not kept"):  # nothing of them was announced
            self._append(records)

    def close_now(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()  # an append that waits for the store tries once more
        self._packets.close()
        self._executor.submit(self._do_due)
        self._executor.shutdown(wait=True)
        self._held.close()


def identity(store: PacketStore, name: str) -> str | None:
    """The id of the council that this journal belongs to; None if it is empty. Raises JournalCorrupt."""
    rows = store.records(name, 0, 1)
    if not rows:
        return None
    event = unpacked(rows[0].content, rows[0].position).record.event
    if not isinstance(event, CoordinatorStarted):
        raise JournalCorrupt(
            f"the journal {name} in {store.where} does not begin with a coordinator's start: see council verify",
            journal=name,
            position=rows[0].position,
        )
    return event.council_id


def _compare(store: PacketStore, name: str, council_id: str, path: Path, signer: Signer) -> None:
    """Raises CheckpointRefused if a journal is shorter than its last checkpoint, or does not fit it (rules 4.5)."""
    if not path.exists():
        return
    try:
        last = Checkpoint.read(path)
        last.check(signer.public)
    except CheckpointRefused as error:
        raise CheckpointRefused(
            f"the journal {name} in {store.where} can't be compared with its checkpoint: {error.message}. Put back "
            f"this journal's key, or its checkpoint; or, to go on without that, move {path} away",
            journal=name,
            path=str(path),
        ) from error
    rows = store.records(name, last.position - 1, 1) if last.position else []
    if last.council_id != council_id or (last.position and not rows):
        what = "has lost records, or is a different journal"
    elif last.position and rows[0].row_hash != last.row_hash:
        what = "was changed"
    else:
        return
    raise CheckpointRefused(
        f"the journal {name} in {store.where} {what}: its checkpoint {path} knows record {last.position} of "
        f"{last.council_id}; go back to a whole copy, or, to start without it, move that file away",
        journal=name,
        position=last.position,
    )
