"""The durable journal of one coordinator: writes its records, snapshots and checkpoints, and reads them back.

One thread writes, so that the coordinator's loop never waits for a disk: what comes in while one commit runs
is written by the next (group commit). The driver alone knows what a snapshot holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections import deque
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
from council.journal.packets import Descent, Packer, packet_id, unpacked
from council.journal.record import PASSING, Record, Restorable, Snapshot
from council.journal.rows import Prepared
from council.journal.search_words import ENTER_AT
from council.journal.store import PacketStore
from council.protocol.errors import (
    CheckpointRefused,
    JournalCorrupt,
    OutOfOrder,
    StoreCorrupt,
    StoreError,
)

log = get_logger("council.journal")

ROWS_AT_ONCE = 500  # to be read back; each may hold a megabyte

# Ballots of quick minds come within some milliseconds, and go to disk with their proposal then.
LINGER_S = 0.01
# A disk that is full or a database that is away: tried again so soon, then seldom enough to cost nothing.
RETRY_FIRST_S, RETRY_LAST_S = 0.05, 2.0
COMMITS_TOLD_MAX = 10_000  # where nobody looks at them


class DurableJournal:
    """One council's records on disk. ``epoch`` is this coordinator's; an older one's appends are refused.

    ``trouble`` is why nothing can be written at the moment, while that may pass; it is tried again meanwhile.
    """

    linger_s = LINGER_S
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
        self.name = name
        self.council_id = council_id
        self.trouble: StoreError | None = None
        self.commits: deque[tuple[int, float]] = deque(maxlen=COMMITS_TOLD_MAX)
        self._store = store
        self._held = held
        self._hold_again = hold_again
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"journal-{name}")
        self._closing = threading.Event()
        self._packer = Packer(council_id, self._lines)
        self._unentered, self._enter_at = (
            1,
            ENTER_AT,
        )  # an earlier coordinator may have left records without words
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
        """The journal of the council of that name, made where there is none; it closes ``store`` with itself.

        ``key`` is the Ed25519 seed that signs its checkpoints, ``checkpoint`` the file that they go to. Raises
        JournalHeld while another coordinator that lives writes it, unless this one is to take it over, and
        CheckpointRefused where the journal is not the one that the file speaks of, or shorter.
        """
        with contextlib.ExitStack() as held:
            held.callback(store.close)
            hold_again = held.enter_context(held_by_us(store.database, name, takeover=takeover))
            council_id = identity(store, name) or new_council_id
            signer = Signer(key)
            if checkpoint is not None:
                _compare(store, name, council_id, checkpoint, signer)
            journal = cls(store, name, council_id, signer, checkpoint, held, hold_again)
            journal._held = held.pop_all()  # now that nothing can fail any more
            return journal

    # Back from disk

    def recover(self, writer: Restorable) -> None:
        """Hands ``writer`` all that was kept, as snapshots and records, each checked against the chain.

        Raises JournalCorrupt that names the first record which does not fit, and what the writer raises.
        """
        after = Head()
        found = self._snapshots.newest(self._row_hash)
        if found is not None:
            try:
                writer.restore(found.head.position, found.base, found.mores, self._envelopes)
                after, self.tree = found.head, Tree(found.head.position, found.peaks)
            except StoreCorrupt as error:  # another version's: the records have it all
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
        if after != self.head:
            raise self._corrupt(after.position + 1, "it is missing")

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
        """The envelopes of these messages, as they came."""
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

    # To disk

    def append(self, records: Sequence[Record]) -> asyncio.Future[None]:
        """Keeps ``records``, in one transaction; see ``Journal.append``.

        Raises EpochFenced once another coordinator has begun. A store that is locked, full or away is tried
        again until it is back: what was not told yet may wait, and is not lost (rules 4.7).
        """
        # Shielded: what was handed in is kept, also where its caller stops waiting before it is its turn.
        running = asyncio.get_running_loop().run_in_executor(self._executor, self._append, records)
        running.add_done_callback(asyncio.Future.exception)  # heard, also where nobody waits any more
        if self._unentered >= self._enter_at:
            self._enter_at = self._unentered + ENTER_AT  # if it fails, then again after as many more
            self._executor.submit(self._enter)
        return asyncio.shield(running)

    def _append(self, records: Sequence[Record]) -> None:
        after = self.head.position
        if records and records[0].position != after + 1:  # those between could not be kept, nor can these
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
                # Within, for where its parents stand may have to be looked up.
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
                self._closing.wait(pause_s)  # then once more, for the last time
                pause_s = min(2 * pause_s, RETRY_LAST_S)
        for each in hashes:
            self.tree.append(each)
        self._unentered += len(rows)
        if self.trouble is not None:
            log.info("journal goes on", journal=self.name, position=self.head.position)
            self.trouble = None
            if not self._hold_again():  # a server that was away has let go of what it held for us
                log.warning("journal not held", journal=self.name, why="another may begin, and end this one")

    def _enter(self) -> None:
        if self._unentered:
            with self._logged("words not entered"):  # a search reads the records that are not entered
                self._store.enter_words()
                self._unentered, self._enter_at = 0, ENTER_AT

    def snapshot_due(self, position: int) -> bool:
        """Whether a snapshot as of ``position`` is worth its while."""
        return self._snapshots.due(position)

    def keep(self, snapshot: Snapshot) -> None:
        """Keeps a snapshot of what the records handed in so far come to, once these are kept."""
        self._snapshots.made(snapshot.position, len(snapshot.base))
        self._executor.submit(self._keep, snapshot)

    def _keep(self, snapshot: Snapshot) -> None:
        if snapshot.position != self.head.position:
            return  # what it speaks of was not kept: this coordinator was replaced
        with self._logged("no snapshot"):  # the journal has it all; only the next start takes longer
            self._snapshots.keep(snapshot, self.epoch, self.head, self.tree.peaks)

    @property
    def snapshot_kept(self) -> int:
        """The position of the newest snapshot that is kept."""
        return self._snapshots.kept_to

    def decided(self, position: int) -> bytes:
        """See ``Journal.decided``."""
        return self._snapshots.decided(position)

    @contextlib.contextmanager
    def _logged(self, what: str) -> Iterator[None]:
        """What fails within it, and nobody waits for, is told by the log alone."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, it would be lost with its future
            log.warning(what, journal=self.name, why=str(error))

    def tend(self) -> None:
        """Has a checkpoint written, and words entered, if that is due; costs the coordinator nothing."""
        if self._checkpoints.due():
            self._executor.submit(self._do_due)

    def _do_due(self) -> None:
        self._enter()
        self._checkpoints.write(self.epoch, self.head, self.tree)

    @property
    def unsigned(self) -> str | None:
        """Why the checkpoint that was due last could not be written, if it could not."""
        return self._checkpoints.unsigned

    async def history(self, asked: Wanted) -> HistoryPage:
        """A page of what is kept."""
        return await asyncio.to_thread(history.page, self._store.database, self.name, asked)

    def checkpoint(self) -> Checkpoint:
        """A signed statement of how far this journal is (rules 4.5)."""
        return self._checkpoints.signed(self.epoch, self.head, self.tree)

    async def close(
        self, last: Sequence[Record] = (), snapshot: Callable[[], Snapshot] | None = None
    ) -> None:
        """Writes what was handed in, the ``last`` records, a snapshot and a checkpoint; then gives the store up.

        With the snapshot a newer version, whose words may differ, can go on without replaying this one's records.
        """
        try:
            if last:
                self._executor.submit(self._append_last, last)
            if snapshot is not None:
                self._executor.submit(self._keep, snapshot())
        finally:
            await asyncio.get_running_loop().run_in_executor(None, self.close_now)

    def _append_last(self, records: Sequence[Record]) -> None:
        with self._logged("last records not kept"):  # nobody was told of them
            self._append(records)

    def close_now(self) -> None:
        """``close`` for a thread that may wait."""
        if self._closing.is_set():
            return
        self._closing.set()  # what waits for a store that is away waits no more
        self._executor.submit(self._do_due)
        self._executor.shutdown(wait=True)
        self._held.close()


def identity(store: PacketStore, name: str) -> str | None:
    """The id of the council whose journal this is; None for one that holds nothing. Raises JournalCorrupt."""
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
    """Refuses a journal that is not what its last checkpoint says it was, or is shorter (rules 4.5)."""
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
        what = "is shorter than it was, or another"
    elif last.position and rows[0].row_hash != last.row_hash:
        what = "was changed"
    else:
        return
    raise CheckpointRefused(
        f"the journal {name} in {store.where} {what}: its checkpoint {path} knows record {last.position} of "
        f"{last.council_id}; go back to a whole copy, or, to begin anew without it, move that file away",
        journal=name,
        position=last.position,
    )
