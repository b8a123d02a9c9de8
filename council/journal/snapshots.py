"""Keeps signed snapshots in the store, and finds the newest one that fits the journal.

A snapshot only saves time. If it is damaged, forged or of another journal, it is skipped with a warning, and its
records are replayed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import and_, delete, insert, or_, select

from council.agents.messaging.logs import get_logger
from council.journal.chain import GENESIS, Head
from council.journal.checkpoint import SIGNATURE_BYTES, Signer
from council.journal.engines import Database
from council.journal.record import Snapshot
from council.journal.rows import fenced, standing
from council.journal.schema import snapshots
from council.protocol.errors import JournalCorrupt, StoreCorrupt

log = get_logger("council.journal")

# Replaying this many records takes a quarter of a second. A snapshot with a thousand open proposals takes 10 ms.
SNAPSHOT_RECORDS = 5_000
_DOMAIN = b"council-runtime snapshot v1\0"


class UsableSnapshot(NamedTuple):
    """A snapshot that can be used, the ``head`` that it belongs to, and the peaks of the tree up to there.

    ``mores`` are the parts of all snapshots up to it with their positions, without the decided proposals.
    """

    head: Head
    base: bytes
    mores: list[tuple[int, bytes]]
    peaks: tuple[bytes, ...]


class _SignedBase(msgspec.Struct):
    """A base, bound to the chain by ``row_hash``, and by ``link`` to every ``more`` up to it."""

    position: int
    row_hash: bytes
    peaks: tuple[bytes, ...]
    link: bytes
    base: bytes


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_SignedBase)
_PAIR = msgspec.msgpack.Decoder(tuple[bytes, bytes])


class SnapshotStore:
    """The snapshots of one journal."""

    def __init__(self, database: Database, journal: str, signer: Signer) -> None:
        self._made_at, self._records_apart = 0, SNAPSHOT_RECORDS
        self._database = database
        self._journal = journal
        self._signer = signer
        self.kept_to = 0
        self._link = GENESIS
        self._hashes: dict[int, bytes] = {}  # of each ``more``, by its position
        # Snapshots that could not be kept. They are kept with the next one: a decision must not be missing.
        self._waiting: list[Snapshot] = []

    def keep(self, snapshot: Snapshot, epoch: int, head: Head, peaks: tuple[bytes, ...]) -> None:
        """Keeps a snapshot of ``head``. If it raises StoreError or EpochFenced, it is kept with the next one."""
        if head.position == self.kept_to:  # there are no new records
            return
        self._waiting.append(snapshot)
        rows, hashes, link = [], {}, self._link
        for position, pair in (each for waiting in self._waiting for each in waiting.added.items()):
            rows.append(_row(self._journal, position, "more", _ENCODER.encode(pair)))
            hashes[position] = sha256(rows[-1]["content"]).digest()
            link = _linked(link, hashes[position])
        content = _ENCODER.encode(_SignedBase(head.position, head.row_hash, peaks, link, snapshot.base))
        signed = self._signer.signature(self._signed_bytes(content)) + content
        c = snapshots.c
        rows.append(_row(self._journal, head.position, "base", signed))
        with self._database.write(f"journal:{self._journal}") as connection:
            newest = standing(connection, self._journal).epoch
            if newest != epoch:
                raise fenced(self._database.where, self._journal, epoch, newest)
            # Snapshots after ``kept_to`` were skipped; bases before it are never read.
            old = or_(c.position > self.kept_to, and_(c.part == "base", c.position < self.kept_to))
            connection.execute(delete(snapshots).where(c.journal == self._journal, old))
            connection.execute(insert(snapshots), rows)
        self._hashes |= hashes
        self._link = link
        self._waiting = []
        self.kept_to = head.position

    def due(self, position: int) -> bool:
        """Whether the last snapshot is so old that one at ``position`` saves a restart enough time."""
        return position >= self._made_at + self._records_apart

    def made(self, position: int, base_bytes: int = 0) -> None:
        """Notes that the last snapshot is at ``position``. The more bytes it has, the later the next one is due."""
        self._made_at = position
        # With a thousand open escalations a snapshot has megabytes. Then it is made less often.
        self._records_apart = max(SNAPSHOT_RECORDS, base_bytes // 1_000)

    def check_end(self) -> None:
        """Raises JournalCorrupt if a snapshot that this journal's key signed is of a later record than the last."""
        c = snapshots.c
        later = select(c.content).where(c.journal == self._journal, c.part == "base")
        with self._database.read() as connection:
            end = standing(connection, self._journal).head.position
            found = connection.execute(later.where(c.position > end).order_by(c.position.desc())).scalars()
            # It was kept after its records, in this same store.
            cut = next((base.position for base in map(self._read, found) if base is not None), end)
        if cut > end:
            raise JournalCorrupt(
                f"the journal {self._journal} in {self._database.where} was cut: it ends at record {end}, and a "
                f"snapshot beside it, signed by its own key, was made at record {cut}; put the store aside, and go "
                "back to a whole copy",
                journal=self._journal,
                where=self._database.where,
                position=end + 1,
            )

    def newest(self, row_hash: Callable[[int], bytes | None]) -> UsableSnapshot | None:
        """The newest that is signed by this journal's key and fits its chain; ``row_hash`` gives a row's."""
        c = snapshots.c
        wanted = select(c.position, c.part, c.content).where(c.journal == self._journal)
        bases, mores, links, link = [], [], {}, GENESIS
        self._hashes = {}
        with self._database.read() as connection:
            # One row in memory at a time: together they hold every decision.
            rows = connection.execution_options(yield_per=1).execute(wanted.order_by(c.position, c.part))
            for position, part, content in rows:
                if type(position) is not int or type(content) is not bytes:  # SQLite may hold any type
                    self.pass_over(position, "its position is no number, or its content no bytes")
                elif part == "base":
                    bases.append((position, content))
                elif part == "more":
                    self._hashes[position] = sha256(content).digest()
                    link = links[position] = _linked(link, self._hashes[position])
                    mores.append((position, _pair(content)[0]))
                else:
                    self.pass_over(position, f"its part is {part!r}, expected base or more")
        for position, signed in reversed(bases):
            base = self._read(signed)
            if base is None or row_hash(position) != base.row_hash:  # the hash covers the position
                why = "it is not signed by this journal's key, or does not fit its chain"
            elif links.get(position) != base.link:
                why = "a part of it is missing, or was changed"
            else:
                self.kept_to, self._link = position, base.link
                used = [more for more in mores if more[0] <= position]
                return UsableSnapshot(Head(position, base.row_hash), base.base, used, base.peaks)
            self.pass_over(position, why)
        return None

    def decided(self, position: int) -> bytes:
        """See ``Journal.decided``. Raises StoreCorrupt if the snapshot has changed since it was read."""
        c = snapshots.c
        wanted = select(c.content).where(c.journal == self._journal, c.position == position, c.part == "more")
        with self._database.read() as connection:
            content = connection.execute(wanted).scalar()
        if type(content) is not bytes or sha256(content).digest() != self._hashes.get(position):
            raise StoreCorrupt(
                f"old decisions can't be read back: the snapshot of record {position} in {self._database.where} is "
                "gone or was changed; start the council again, which then reads the journal's records instead",
                position=position,
            )
        return _pair(content)[1]

    def pass_over(self, position: int, why: str) -> None:
        """Skips this snapshot and all before: the next one will not build on them."""
        self.kept_to, self._link = 0, GENESIS
        log.warning("snapshot passed over", journal=self._journal, position=position, why=why)

    def _read(self, signed: Any) -> _SignedBase | None:
        if type(signed) is not bytes:
            return None
        signature, content = signed[:SIGNATURE_BYTES], signed[SIGNATURE_BYTES:]
        if not self._signer.signed(self._signed_bytes(content), signature):
            return None
        try:
            return _DECODER.decode(content)
        except msgspec.MsgspecError:
            return None

    def _signed_bytes(self, content: bytes) -> bytes:
        return _DOMAIN + self._journal.encode() + b"\0" + sha256(content).digest()


def _row(journal: str, position: int, part: str, content: bytes) -> dict[str, Any]:
    return {"journal": journal, "position": position, "part": part, "content": content}


def _pair(content: bytes) -> tuple[bytes, bytes]:
    """The part ``more`` and the decided proposals. In version 2 they are one, and this returns it twice."""
    try:
        return _PAIR.decode(content)
    except msgspec.MsgspecError:
        return content, content


def _linked(link: bytes, hashed: bytes) -> bytes:
    return sha256(link + hashed).digest()
