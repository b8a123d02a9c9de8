"""Exports packets from a store and imports them into another, as JSON Lines.

The first line names the format. Then come the epochs, and the packets in the order in which they were written; those
of a journal have their place in its chain. The last line has their number, so that a truncated file is recognised.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from typing import IO, Annotated, Any, NamedTuple
from uuid import UUID

import msgspec
from sqlalchemy import Connection, insert, select, type_coerce
from sqlalchemy.exc import IntegrityError
from sqlalchemy.types import NullType

from council.journal import lineage, queries, search_words
from council.journal.chain import Head, JournalRow, content_hash, misfit
from council.journal.engines import Database
from council.journal.rows import OUTSIDE, Place, Standing, insert_values, prepared, standing, values
from council.journal.schema import epochs, name_fits, packet_store
from council.protocol.errors import CallerError, EnvelopeError, ImportRefused
from council.protocol.packet import (
    PACKET_BYTES_MAX,
    PacketEnvelope,
    read_packet,
)
from council.protocol.values import quoted, read_json

FORMAT = {"format": "council-store", "version": 1}
AT_ONCE = 500  # lines of one transaction, so that a running council can write in between
BYTES_AT_ONCE = 2 * PACKET_BYTES_MAX
LINE_BYTES_MAX = PACKET_BYTES_MAX + 4_096  # a packet and its place


class ImportResult(NamedTuple):
    """The result of an import.

    ``orphans`` counts imported packets with a parent that had been removed, so that their lineage could not be
    checked against it.
    """

    packets: int
    there_already: int
    orphans: int


_Number = Annotated[int, msgspec.Meta(gt=0, le=2**63 - 1)]
_Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Placed(msgspec.Struct, forbid_unknown_fields=True):
    """A packet's place in a journal, as a line has it beside the packet."""

    journal: str
    position: _Number
    epoch: _Number
    previous_hash: _Hash
    row_hash: _Hash


class _Line(NamedTuple):
    number: int
    packet: PacketEnvelope
    content: bytes
    journal: str | None = None
    row: JournalRow | None = None


def write_lines(connection: Connection, stream: IO[bytes], where: str) -> int:
    """Writes everything that ``connection`` sees. Returns the number of packets."""
    stream.write(_json(FORMAT))
    for epoch in queries.begun(connection, where):
        stream.write(_json({"epoch": epoch | {"begun_at": epoch["begun_at"].isoformat()}}))
    c = packet_store.c
    place = (c.journal, c.position, c.epoch, c.previous_hash, c.row_hash)
    statement = (
        select(type_coerce(c.packet_id, NullType()).label("packet_id"), c.content, c.content_hash, *place)
        .order_by(c.sequence)
        .execution_options(yield_per=AT_ONCE)
    )
    count = 0
    heads: dict[str, Head] = {}
    with closing(connection.execute(statement)) as rows:  # an error's frames would keep the connection open
        for row in rows:
            content = queries.whole(row.packet_id, row.content, row.content_hash, where)
            chain = b""
            if row.journal is not None:
                if not name_fits(row.journal):
                    raise queries.damaged(row.packet_id, where, "its journal has no name")
                if why := misfit(row, heads.get(row.journal, Head())):
                    named = f"record {row.position} of journal {quoted(row.journal)}: {why}"
                    raise queries.damaged(row.packet_id, where, named)
                heads[row.journal] = Head(row.position, row.row_hash)
                hashes = {"previous_hash": row.previous_hash.hex(), "row_hash": row.row_hash.hex()}
                placed = {"journal": row.journal, "position": row.position, "epoch": row.epoch, **hashes}
                chain = _json(placed)[1:-2] + b","
            stream.write(b"{" + chain + b'"packet":' + content + b"}\n")
            count += 1
    stream.write(_json({"end": count}))
    return count


def read_lines(database: Database, stream: IO[bytes]) -> ImportResult:
    """Imports lines; see ``PacketStore.import_``."""
    importing = _Import(database)
    seen = 0
    ended = False
    for number, line, found in _objects(stream):
        if ended:
            raise _refused(number, "something follows the last line: is it two files in one?")
        if number == 1:
            if found != FORMAT:
                raise _refused(1, f"expected {json.dumps(FORMAT)}: this is no export, or a newer version's")
        elif set(found) == {"epoch"}:
            importing.add_epoch(number, found["epoch"])
        elif "packet" in found:
            importing.add_packet(_read(number, found), len(line))
            seen += 1
        elif set(found) == {"end"}:
            ended = True
            importing.write()
            if found["end"] != seen or isinstance(found["end"], bool):
                raise _refused(
                    number, f"{seen:,} packets came, and the last line counts {found['end']!r:.40}"
                )
        else:
            raise _refused(number, "it is neither an epoch nor a packet")
    if not ended:
        importing.write()
        raise ImportRefused(
            f"the file is cut: its last line is missing; {seen:,} packets were imported; get the whole file",
            line=None,
        )
    return ImportResult(importing.packets, importing.there_already, importing.orphans)


def _objects(stream: IO[bytes]) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        try:
            found = read_json(
                line, field=f"line {number}", bytes_max=LINE_BYTES_MAX, commas_max=LINE_BYTES_MAX
            )
        except EnvelopeError as error:
            raise _refused(number, error.message.removeprefix(f"line {number}: ")) from error
        if not isinstance(found, dict):
            raise _refused(number, "expected a JSON object")
        yield number, line, found


def _read(number: int, found: Mapping[str, Any]) -> _Line:
    given = found["packet"]
    place = {name: value for name, value in found.items() if name != "packet"}
    try:
        packet = PacketEnvelope.build(**given) if isinstance(given, dict) else None
    except EnvelopeError as error:
        raise _refused(number, error.message) from error
    if packet is None:
        raise _refused(number, "packet: expected an object")
    content = packet.canonical()
    # The given packet is stored, so it must be in the canonical form, which is hashed.
    if content != json.dumps(given, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode():
        raise _refused(
            number, "the packet is not in its canonical form; import what council store export wrote"
        )
    if not place:
        return _Line(number, packet, content)
    try:
        placed = msgspec.convert(place, _Placed)
    except msgspec.ValidationError:
        raise _refused(
            number, "expected journal, position, epoch, previous_hash and row_hash beside the packet, or none"
        ) from None
    if packet.ttl is not None:
        raise _refused(number, "a packet of a journal has no ttl")
    previous, own = bytes.fromhex(placed.previous_hash), bytes.fromhex(placed.row_hash)
    row = JournalRow(placed.position, placed.epoch, previous, content_hash(content), own, content)
    return _Line(number, packet, content, placed.journal, row)


class _Import:
    """An import under way: its counts, the newest epochs in the file, and the lines that are not written yet."""

    def __init__(self, database: Database) -> None:
        self.packets = self.there_already = self.orphans = 0
        self._database = database
        self._newest: dict[str, int] = {}
        self._lines: list[_Line] = []
        self._bytes = 0

    def add_epoch(self, number: int, found: object) -> None:
        """Imports an epoch at once."""
        try:
            if not isinstance(found, dict) or not queries.epoch_fits(found):
                raise ValueError(found)
            row = {**found, "begun_at": queries.aware("begun_at", datetime.fromisoformat(found["begun_at"]))}
        except (TypeError, ValueError, CallerError):
            raise _refused(number, "epoch: expected journal, epoch, begun_at and by") from None
        journal, epoch = row["journal"], row["epoch"]
        with self._database.write(f"journal:{journal}") as connection:
            there = connection.execute(select(epochs).filter_by(journal=journal, epoch=epoch)).one_or_none()
            if there is None:
                if epoch != standing(connection, journal).epoch + 1:
                    why = f"epoch {epoch} of journal {journal} does not follow the newest here"
                    raise _refused(number, why)
                connection.execute(insert(epochs), row)
            elif there._asdict() != row:
                why = f"epoch {epoch} of journal {journal} is another here: the two have parted ways"
                raise _refused(number, why)
        self._newest[journal] = max(epoch, self._newest.get(journal, 0))

    def add_packet(self, line: _Line, size: int) -> None:
        """Imports a packet, together with others."""
        self._lines.append(line)
        self._bytes += size
        if len(self._lines) == AT_ONCE or self._bytes >= BYTES_AT_ONCE:
            self.write()

    def write(self) -> None:
        """Writes the lines that were added, in one transaction: all of them, or none."""
        lines, self._lines, self._bytes = self._lines, [], 0
        if not lines:
            return
        journals = {line.journal for line in lines if line.journal is not None}
        try:
            with self._database.write(*(f"journal:{journal}" for journal in journals)) as connection:
                self._write(connection, lines, {each: standing(connection, each) for each in journals})
        except IntegrityError as error:
            raise _refused(
                lines[0].number,
                f"or one up to {lines[-1].number} meets what is written here meanwhile; try again",
            ) from error

    def _write(self, connection: Connection, lines: list[_Line], stands: dict[str, Standing]) -> None:
        there = _placed(connection, [line.packet.packet_id for line in lines])
        known = lineage.Lineages(
            connection,
            [(line.packet.packet_id, line.packet.lineage) for line in lines],
            there.keys(),
            now=None,
        )
        rows = []
        for line in lines:
            packet_id = line.packet.packet_id
            hashed = content_hash(line.content)
            mine = (hashed, line.journal, line.row and line.row.row_hash)
            if packet_id in there:
                if there[packet_id] != mine:
                    raise _refused(
                        line.number, f"packet {packet_id} is kept already, as another or elsewhere"
                    )
                self.there_already += 1
                continue
            try:
                self.orphans += known.check_imported(packet_id, line.packet.lineage)
            except EnvelopeError as error:
                raise _refused(line.number, error.message) from error
            place = OUTSIDE
            if line.journal is not None and line.row is not None:
                row = line.row
                stands[line.journal] = self._follow(line.number, line.journal, row, stands[line.journal])
                place = Place(line.journal, row.position, row.epoch, row.previous_hash, row.row_hash)
            made = prepared(read_packet(line.content), line.content)
            rows.append(values(connection.dialect.name, made, hashed, place))
            there[packet_id] = mine
            known.add(packet_id, line.packet.lineage)
        insert_values(connection, rows)
        search_words.enter(connection)
        self.packets += len(rows)

    def _follow(self, number: int, journal: str, row: JournalRow, stands: Standing) -> Standing:
        """Verifies a line's place in its journal, and that nobody else writes that journal (rules 4.5, 4.6)."""
        begun, head, last_epoch = stands
        newest = self._newest.get(journal, 0)
        if begun != newest:
            why = "a newer epoch than any of the file's has begun here"
        elif row.epoch > newest:
            why = f"it is of epoch {row.epoch}, which the file does not have"
        elif row.position != head.position + 1:
            why = f"the journal ends at {head.position} here, or has another there"
        elif row.epoch < last_epoch:
            why = f"epoch {row.epoch} follows a newer one"
        else:
            why = misfit(row, head)
        if why:
            raise _refused(number, f"journal {journal}, position {row.position}: {why}")
        return Standing(begun, Head(row.position, row.row_hash), row.epoch)


def _placed(connection: Connection, ids: list[UUID]) -> dict[UUID, tuple[bytes, str | None, bytes | None]]:
    c = packet_store.c
    statement = select(c.packet_id, c.content_hash, c.journal, c.row_hash).where(queries.among(c.packet_id))
    return {row[0]: tuple(row[1:]) for row in queries.in_chunks(connection, statement, ids)}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _refused(number: int, why: str) -> ImportRefused:
    return ImportRefused(f"line {number}: {why}", line=number)
