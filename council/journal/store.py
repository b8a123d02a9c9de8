"""The store of packets: writes them once, reads them back, removes those that have expired.

It is synchronous and thread-safe. Times are arguments; only the beginning of an epoch is noted by the machine's
clock, for people. The council's own packets form a journal: a chain of rows to which only the newest epoch may append
(rules 4.1, 4.5, 4.6). Users' packets are outside of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import IO, Self
from uuid import UUID

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from council.agents.messaging.logs import get_logger
from council.journal import lineage, queries, search_words, transfer
from council.journal.chain import Head, JournalRow, content_hash
from council.journal.engines import Database, open_database
from council.journal.rows import (
    Prepared,
    appended,
    fenced,
    insert_values,
    prepared,
    same_packet,
    standing,
    values,
)
from council.journal.schema import NAME_CHARS_MAX, epochs, name_fits, packet_store
from council.protocol.errors import (
    CallerError,
    EnvelopeError,
    JournalCorrupt,
    OutOfOrder,
    PacketConflict,
    StoreError,
    StoreLocked,
)
from council.protocol.packet import (
    TAGS_MAX,
    PacketEnvelope,
    PacketEnvelopeIn,
    PacketLineage,
    PacketWriteResult,
    read_packet,
)

log = get_logger("council.store")

TIMEOUT_S = 5.0  # seconds that another process may hold the store before a call fails
# One transaction of this many removals takes about 10 ms, so that nobody waits long for it.
GARBAGE_AT_ONCE = 500
RECORDS_MAX = 10_000
# One transaction of this many packets takes a second or two. A coordinator of the same store waits longer than that.
WRITTEN_MAX = 5_000
# If two writers pass the same packets at the same time, one of them tries again.
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class JournalInfo:
    """The end of a journal, and its writer."""

    journal: str
    epoch: int
    begun_at: datetime
    by: str
    head: Head


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """The location and content of a store. ``warnings`` name dangers of the location."""

    where: str
    engine: str
    version: str
    revision: str
    bytes_on_disk: int
    packets: int
    outside: int
    expiring: int
    journals: tuple[JournalInfo, ...]
    warnings: tuple[str, ...]


class PacketStore:
    """Packets on disk. Every method raises StoreError if the store fails; it has then kept nothing."""

    def __init__(self, database: Database, revisions: tuple[str | None, str]) -> None:
        self.database = database
        self.revision_found, self.revision = revisions

    @classmethod
    def open(
        cls, url: str, *, migrate: bool = True, read_only: bool = False, timeout_s: float = TIMEOUT_S
    ) -> Self:
        """The store at ``url``: a path, ``sqlite:///path``, or ``postgresql://user@host/database``.

        If there is none it is created, and an older one is migrated, unless the arguments forbid it. No call waits
        longer than ``timeout_s`` seconds for others. Raises StoreError of each kind; CallerError if ``url`` is
        invalid.
        """
        database = open_database(url, create=migrate, read_only=read_only, timeout_s=timeout_s)
        try:
            store = cls(database, database.prepare(migrate=migrate))
            if not read_only:
                with database.read() as connection:
                    for warning in database.facts(connection).warnings:
                        log.warning("store", where=database.where, warning=warning)
        except BaseException:
            database.close()
            raise
        return store

    @property
    def where(self) -> str:
        """Its location, for messages."""
        return self.database.where

    def close(self) -> None:
        """Closes the store. All that was written is kept already."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The council's own packets

    def begin_epoch(self, journal: str, by: str) -> tuple[int, Head]:
        """Begins a new epoch of ``journal``. Returns it with the journal's head; ``by`` names the writer.

        From now on every older epoch is refused, also in a transaction that waits already (rules 4.6). Raises
        JournalCorrupt if the last row's epoch never began: the next epoch would hide that.
        """
        _fit(journal=journal, by=by)
        with self.database.write(f"journal:{journal}") as connection:
            newest, head, ends_in = standing(connection, journal)
            if ends_in > newest:
                raise JournalCorrupt(
                    f"the journal {journal} in {self.where} ends at record {head.position}, of epoch {ends_in}, "
                    "which was never begun there: what says who wrote it was removed. It is left as it is: put it "
                    "aside, and go back to a copy that council verify finds sound",
                    journal=journal,
                    where=self.where,
                    position=head.position,
                )
            epoch = newest + 1
            row = {"journal": journal, "epoch": epoch, "begun_at": datetime.now(UTC), "by": by}
            connection.execute(insert(epochs), row)
            return epoch, head

    def append_rows(
        self, journal: str, epoch: int, rows: Sequence[Prepared], after: Head
    ) -> tuple[Head, list[bytes]]:
        """Appends ``rows`` after ``after``, the head as the caller knows it: all of them, or none.

        The caller is trusted with their bytes and lineage; place, epoch and ids are checked. Returns the new head,
        and the hash of each row. If the answer is lost, the same call again gives the same. Raises EpochFenced if a
        newer epoch has begun, OutOfOrder if the head is another, and PacketConflict if an id is taken.
        """
        # Prepared before, so that the lock is held only while writing.
        made, behind = appended(self.database.kind, journal, epoch, rows, after)
        try:
            with self.database.write(f"journal:{journal}") as connection:
                newest, head, _ = standing(connection, journal)
                if epoch != newest:
                    raise fenced(self.where, journal, epoch, newest)
                if head == after:
                    insert_values(connection, made)
                elif head != behind:  # if it is, exactly these rows are there: the hash covers them
                    raise OutOfOrder(
                        f"the journal {journal} in {self.where} ends at position {head.position}, the writer "
                        f"meant {after.position}: begin a new epoch, and go on from where that stands",
                        journal=journal,
                        expected=after.position,
                        found=head.position,
                    )
        except IntegrityError as error:
            taken = self._existing([UUID(row.packet_id) for row in rows])
            if taken is None:  # no id is taken, so a row does not fit its columns
                raise StoreError(
                    f"the store {self.where} refuses these rows, and kept none: please report this ({error.orig})",
                    where=self.where,
                ) from error
            raise PacketConflict(
                f"packet {taken} is kept already, or twice in one call; a packet is written once",
                packet_id=taken,
            ) from error
        return behind, [row[-1] for row in made]

    def _existing(self, ids: Sequence[UUID]) -> UUID | None:
        """One of the ids that is kept already, or occurs twice."""
        if len(set(ids)) < len(ids):
            return next(each for each in ids if ids.count(each) > 1)
        with self.database.read() as connection:
            return next(iter(queries.contents(connection, ids, self.where)), None)

    def records(self, journal: str, after: int = 0, limit: int = 1_000) -> list[JournalRow]:
        """Up to ``limit`` rows of a journal after position ``after``, unchecked."""
        _within("limit", limit, RECORDS_MAX)
        _fit(journal=journal)
        if not 0 <= after < 2**63:
            raise CallerError(f"after is {after}, expected a position, or 0 for all")
        with self.database.read() as connection:
            return queries.records(connection, journal, after, limit)

    def placed(self, ids: Collection[UUID]) -> dict[UUID, tuple[int, bytes]]:
        """The position and the canonical bytes of those packets that are in a journal."""
        c = packet_store.c
        statement = select(c.packet_id, c.position, c.content).where(
            c.position.is_not(None), queries.among(c.packet_id)
        )
        with self.database.read() as connection:
            rows = queries.in_chunks(connection, statement, ids)
            return {row.packet_id: (row.position, row.content) for row in rows}

    def lineages(self, ids: Collection[UUID]) -> dict[UUID, PacketLineage | None]:
        """The lineages of those packets that are kept."""
        with self.database.read() as connection:
            return lineage.lineages(connection, ids, None)

    def enter_words(self) -> None:
        """Enters the words of appended packets, which are then found without a scan (``search_words``)."""
        with self.database.write() as connection:
            search_words.enter(connection)

    # Packets of users

    def write(self, packets: Iterable[PacketEnvelopeIn], now: datetime) -> list[PacketWriteResult]:
        """Writes packets of users. Returns one result for each, in order; an error of one does not stop the others.

        Ids, times and lineage are completed (rules 4.2, 4.3). A packet that is kept already with this content is ok
        and not written again; with other content it is a conflict. A parent that is missing or has expired, and a ttl
        that is not in the future, are errors. An ``error_message`` begins with the error's code. Raises CallerError
        for more than WRITTEN_MAX packets.
        """
        now = queries.aware("now", now)
        given = [(packet, packet.packet_id or new_id(now)) for packet in islice(packets, WRITTEN_MAX + 1)]
        if len(given) > WRITTEN_MAX:
            raise CallerError(f"packets: more than {WRITTEN_MAX:,} in one call; write them in several")
        for _ in range(ATTEMPTS):
            try:
                with self.database.write() as connection:
                    return _written(connection, given, now, self.where)
            except IntegrityError as error:
                cause = error
        raise StoreLocked(
            f"the store {self.where}: others write these same packets all the time; try again",
            where=self.where,
            timeout_s=self.database.timeout_s,
        ) from cause

    def get(self, packet_id: UUID, now: datetime, *, expired: bool = False) -> PacketEnvelope | None:
        """One packet, or None. One that has expired by ``now`` is returned only if ``expired``."""
        now = queries.aware("now", now)
        with self.database.read() as connection:
            found = queries.packets_of(connection, [packet_id], self.where).get(packet_id)
        return None if found is None or (not expired and found.expired(now)) else found

    def find(
        self,
        now: datetime,
        *,
        thread_id: UUID | None = None,
        packet_type: str | None = None,
        tags_any: Collection[str] = (),
        tags_all: Collection[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        newest_first: bool = True,
        expired: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> queries.Page:
        """A page of the packets that meet all conditions; ``since`` is included, ``until`` is not.

        Packets of one time come in the order in which they were written. The next page needs the same query and the
        page's ``cursor``. Every packet that existed at the first page comes once, whatever is added meanwhile. Raises
        CallerError for an invalid limit or cursor.
        """
        _within("limit", limit, queries.PAGE_MAX)
        _fit(**{} if packet_type is None else {"packet_type": packet_type})
        question = queries.PacketQuery(
            thread_id, packet_type, _words(tags_any), _words(tags_all), since, until, newest_first, expired
        )
        with self.database.read() as connection:
            return queries.find(connection, question, now, limit, cursor, self.where)

    def ancestors(
        self, packet_id: UUID, now: datetime, *, depth: int | None = None, expired: bool = False
    ) -> list[lineage.Relative]:
        """The packets that a packet was derived from, nearest first, at most ``depth`` steps away (rules 4.9).

        Raises UnknownPacket, and CallerError if there are more than RELATIVES_MAX.
        """
        with self.database.read() as connection:
            return lineage.relatives(connection, packet_id, now, depth, expired, self.where, up=True)

    def descendants(
        self, packet_id: UUID, now: datetime, *, depth: int | None = None, expired: bool = False
    ) -> list[lineage.Relative]:
        """The packets that were derived from a packet; otherwise like ``ancestors``."""
        with self.database.read() as connection:
            return lineage.relatives(connection, packet_id, now, depth, expired, self.where, up=False)

    # Upkeep

    def collect_garbage(self, now: datetime) -> int:
        """Removes users' packets with a ttl before ``now``, and before the machine's time. Returns their number."""
        now = queries.aware("now", now)
        c = packet_store.c
        # The triggers use the database's clock, and so does this: a caller's wrong clock removes nothing early.
        passed = (c.ttl.is_not(None), c.ttl <= now, c.ttl <= self.database.clock, c.journal.is_(None))
        some = select(c.packet_id).where(*passed).limit(GARBAGE_AT_ONCE)
        statement = delete(packet_store).where(c.packet_id.in_(some.scalar_subquery()))
        removed = 0
        while True:
            with self.database.write("garbage") as connection:
                found = connection.execute(statement).rowcount
            removed += found
            if found < GARBAGE_AT_ONCE:
                return removed

    def info(self) -> StoreInfo:
        """The location and content of the store."""
        c = packet_store.c
        with self.database.read() as connection:
            every = select(func.count()).select_from(packet_store)
            packets = connection.execute(every).scalar_one()
            placed = connection.execute(every.where(c.journal.is_not(None))).scalar_one()
            expiring = connection.execute(every.where(c.ttl.is_not(None))).scalar_one()
            newest = {each["journal"]: each for each in queries.begun(connection, self.where)}
            journals = tuple(
                JournalInfo(**newest[name], head=standing(connection, name).head) for name in sorted(newest)
            )
            version, taken, warnings = self.database.facts(connection)
        return StoreInfo(
            where=self.where,
            engine=self.database.kind,
            version=version,
            revision=self.revision,
            bytes_on_disk=taken,
            packets=packets,
            outside=packets - placed,
            expiring=expiring,
            journals=journals,
            warnings=warnings,
        )

    def export(self, stream: IO[bytes]) -> int:
        """Writes all packets of this moment as JSON Lines. Returns their number.

        Raises StoreCorrupt at the first packet that does not fit its hash: a copy of it would hide the damage.
        """
        with self.database.read() as connection:
            return transfer.write_lines(connection, stream, self.where)

    def import_(self, stream: IO[bytes]) -> transfer.ImportResult:
        """Imports what ``export`` wrote. Existing packets are skipped, so an import can be repeated.

        Every packet is checked, and every journal's chain is verified. Raises ImportRefused that names the line;
        earlier lines, in whole transactions, are kept.
        """
        return transfer.read_lines(self.database, stream)


def new_id(now: datetime) -> UUID:
    """A UUIDv7, which sorts by its time, so that an index grows at its end."""
    millis = max(0, int(now.timestamp() * 1000)) & (2**48 - 1)
    chance = secrets.randbits(74)
    number = millis << 80 | 0x7 << 76 | (chance >> 62) << 64 | 0b10 << 62 | chance & (2**62 - 1)
    return UUID(int=number)


def _written(
    connection: Connection, given: Sequence[tuple[PacketEnvelopeIn, UUID]], now: datetime, where: str
) -> list[PacketWriteResult]:
    ids = {packet_id for _, packet_id in given}
    there = queries.contents(connection, ids, where)
    known = lineage.Lineages(
        connection, [(each, packet.lineage) for packet, each in given], there.keys(), now
    )
    rows = []
    results = []
    for packet, packet_id in given:
        try:
            if packet_id in there:
                if not same_packet(packet, there[packet_id]):
                    raise PacketConflict(
                        f"another packet is kept under the id {packet_id}; none is ever overwritten: choose a new id",
                        packet_id=packet_id,
                    )
                results.append(PacketWriteResult(packet_id=packet_id))
                continue
            if packet.ttl is not None and packet.ttl <= now:
                raise EnvelopeError(
                    f"ttl: {packet.ttl.isoformat()} has passed; give a time ahead, or leave it out",
                    field="ttl",
                )
            kept = packet.completed(packet_id, now, known.known)
            known.check(packet_id, kept.lineage)
            content = kept.canonical()
        except (EnvelopeError, PacketConflict) as error:
            message = f"{error.code}: {error.message}"
            results.append(PacketWriteResult(packet_id=packet_id, status="error", error_message=message))
            continue
        rows.append(
            values(connection.dialect.name, prepared(read_packet(content), content), content_hash(content))
        )
        there[packet_id] = content
        known.add(packet_id, kept.lineage)
        results.append(PacketWriteResult(packet_id=packet_id, written_tables=("packet_store",)))
    insert_values(connection, rows)
    search_words.enter(connection)
    return results


def _within(name: str, value: int, most: int) -> None:
    if not 0 < value <= most:
        raise CallerError(f"{name} is {value}, expected 1 to {most:,}")


def _words(tags: Collection[str]) -> tuple[str, ...]:
    if len(tags) > TAGS_MAX:
        raise CallerError(f"tags: found {len(tags):,}, a packet has at most {TAGS_MAX}")
    if isinstance(tags, str):
        raise CallerError(f"tags: found the text {tags[:40]!r}, expected a list of texts")
    for tag in tags:
        _fit(tags=tag)
    return tuple(sorted(set(tags)))


def _fit(**texts: str) -> None:
    for name, value in texts.items():
        if not name_fits(value):
            raise CallerError(
                f"{name}: expected a text of 1 to {NAME_CHARS_MAX} characters, without NUL or half characters"
            )
