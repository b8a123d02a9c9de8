"""Queries a journal for people: by kind, seat and time, by proposal, or by the beginning of an id.

It reads a store, or the records that a journal in memory still has. It checks each record's own hashes; ``verify``
checks the whole journal.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    Select,
    Text,
    Uuid,
    func,
    literal,
    literal_column,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import NullType

from council.config.settings import did_you_mean
from council.core.events import CoordinatorStarted, Event, ProposalSubmitted
from council.core.state import escalated_by, plain
from council.journal import chain, search_words
from council.journal.engines import Database
from council.journal.entries import (
    DAMAGED,
    DECISION,
    PAGE_BYTES_MAX,
    PAGE_MAX,
    Entry,
    HistoryPage,
    Wanted,
    size_of,
)
from council.journal.packets import PREFIX, StoredRecord, about_of, agent_of, packet_id, unpacked
from council.journal.queries import journals_there
from council.journal.record import Record, came_to
from council.journal.schema import moment_text, packet_store
from council.kinds.table import JOURNALED
from council.protocol import signing
from council.protocol.errors import CallerError, PositionLost, Refused, StoreCorrupt, UnknownJournal
from council.protocol.values import quoted

# The least number of characters that may abbreviate an id, if no other id begins so.
PREFIX_CHARS_MIN = 4
# At most this many proposals are named if an abbreviation is ambiguous.
NAMED_MAX = 8
ROWS_AT_ONCE = 200
_IDS = re.compile("[0-9a-f]{4,32}")
_c = packet_store.c
# The columns as they are stored: an invalid id or time is reported with its record.
_COLUMNS = (
    *(_c.position, _c.epoch, _c.previous_hash, _c.content_hash, _c.row_hash, _c.content),
    *(
        type_coerce(each, NullType()).label(each.name)
        for each in (_c.packet_id, _c.packet_type, _c.timestamp)
    ),
)


# From a store


def page(database: Database, journal: str, asked: Wanted) -> HistoryPage:
    """A page of a journal's entries. Raises Refused for an unknown proposal, CallerError, StoreError."""
    _check(asked)
    with database.read() as connection:
        first = _first(connection, database.where, journal)
        if asked.proposal is not None:
            council_id = _council_id(first)
            proposal_id = _resolved(connection, journal, council_id, asked.proposal)
            thread = _thread(connection, journal, council_id, proposal_id, asked.envelopes)
            return _paged(_chosen(thread, asked), asked)
        rows = _streamed(connection, _query(journal, asked, connection.dialect.name == "sqlite"))
        with closing(rows):
            return _paged((_entry(row, asked.envelopes) for row in rows), asked)


def records(database: Database, journal: str) -> Iterator[StoredRecord]:
    """Every record of a journal in order. Raises StoreCorrupt at the first that is damaged or missing."""
    with database.read() as connection:
        _council_id(_first(connection, database.where, journal))
        statement = select(*_COLUMNS).where(_c.journal == journal).order_by(_c.position)
        head = chain.Head()
        with closing(_streamed(connection, statement)) as rows:
            for row in rows:
                kept = _whole(row, head)
                head = chain.Head(row.position, row.row_hash)
                yield kept


def _first(connection: Connection, where: str, journal: str) -> Any:
    """A journal's first row. Raises UnknownJournal if there is none."""
    statement = select(*_COLUMNS).where(_c.journal == journal).order_by(_c.position).limit(1)
    row = connection.execute(statement).first()
    if row is None:
        raise UnknownJournal(
            f"the store {where} holds no record of a council {quoted(journal)} (journals there: "
            f"{journals_there(connection)})",
            journal=journal,
            where=where,
        )
    return row


def _council_id(first: Any) -> str:
    event = _whole(first).record.event
    if not isinstance(event, CoordinatorStarted):
        raise _damaged(first, "a journal begins with a coordinator's start")
    return event.council_id


def _streamed(connection: Connection, statement: Select[Any]) -> Generator[Any, None, None]:
    """Rows, fetched as they are needed: one may hold a megabyte."""
    with closing(connection.execute(statement, execution_options={"yield_per": ROWS_AT_ONCE})) as rows:
        yield from rows


def _query(journal: str, asked: Wanted, sqlite: bool) -> Select[Any]:
    statement = select(*_COLUMNS).where(_c.journal == journal)
    types: list[ColumnElement[bool]] = [
        _c.packet_type.in_([PREFIX + each for each in asked.types if each != DECISION])
    ]
    if DECISION in asked.types:  # only decisions have tags among the council's packets
        types.append(func.json_array_length(_c.tags) > 0 if sqlite else func.cardinality(_c.tags) > 0)
    if asked.types:
        statement = statement.where(or_(*types))
    if asked.seat is not None:
        statement = statement.where(_c.routing["agent"].as_string() == asked.seat)
    if asked.since_s is not None:
        statement = statement.where(_c.timestamp >= datetime.fromtimestamp(asked.since_s, UTC))
    if asked.until_s is not None:
        statement = statement.where(_c.timestamp < datetime.fromtimestamp(asked.until_s, UTC))
    if asked.cursor is not None:
        later, earlier = _c.position > asked.cursor, _c.position < asked.cursor
        statement = statement.where(earlier if asked.newest_first else later)
    statement = statement.order_by(_c.position.desc() if asked.newest_first else _c.position)
    return statement.limit(asked.limit + 1)


def _whole(row: Any, after: chain.Head | None = None) -> StoredRecord:
    """The record in a row, which follows ``after``. Raises StoreCorrupt if it does not fit its hashes or columns."""
    if why := chain.misfit(row, after):
        raise _damaged(row, why)
    kept = unpacked(row.content, row.position)
    for column, found, wanted in (
        ("packet_id", str(row.packet_id), kept.packet_id),
        ("packet_type", row.packet_type, PREFIX + JOURNALED[type(kept.record.event)].kind),
        ("timestamp", _moment(row.timestamp), moment_text(kept.timestamp)),
    ):
        if found != wanted:
            raise _damaged(row, f"its column {column} does not say what its content says")
    return kept


def _moment(kept: Any) -> Any:
    """A time column's value, in SQLite's form."""
    return moment_text(kept) if isinstance(kept, datetime) else kept


def _damaged(row: Any, why: str) -> StoreCorrupt:
    named = f"record {row.position}"
    if type(row.position) is not int:
        named = f"packet {quoted(str(row.packet_id))}, of the position {quoted(str(row.position))},"
    return StoreCorrupt(f"{named} is damaged: {why}; run council verify", position=row.position)


def _entry(row: Any, envelopes: bool) -> Entry:
    """A row as an entry. A damaged row becomes an entry that says so, and hides no other.

    Raises StoreCorrupt for a row without a position, because its place is unknown.
    """
    hashes: dict[str, Any] = {
        name: _hex(getattr(row, name)) for name in ("content_hash", "previous_hash", "row_hash")
    }
    try:
        kept = _whole(row)
    except StoreCorrupt as error:
        if type(row.position) is not int:
            raise
        hashes |= {"epoch": row.epoch if type(row.epoch) is int else None, "packet_id": _id(row.packet_id)}
        why = {"why": error.message}
        return Entry(row.position, _seconds(row.timestamp), DAMAGED, None, None, why, **hashes)
    return Entry(
        **_facts(kept.record, envelopes),
        **hashes,
        decisions=kept.decisions,
        escalations=kept.escalations,
        more=kept.more,
        packet_id=kept.packet_id,
        parents=kept.parents,
        epoch=row.epoch,
    )


def _hex(kept: Any) -> str | None:
    return kept.hex() if type(kept) is bytes else None


def _id(kept: Any) -> str | None:
    try:
        return str(kept if isinstance(kept, UUID) else UUID(kept))
    except (AttributeError, TypeError, ValueError):
        return None


def _seconds(kept: Any) -> float:
    """The time in a damaged record's column; 0 if there is none."""
    try:
        moment = kept if isinstance(kept, datetime) else datetime.fromisoformat(kept)
        return moment.timestamp() if moment_text(moment) == _moment(kept) else 0.0
    except (OverflowError, TypeError, ValueError):
        return 0.0


def entry_of(kept: StoredRecord) -> Entry:
    """A record as an entry, without the fields that need its row."""
    return Entry(**_facts(kept.record, False), decisions=kept.decisions, escalations=kept.escalations)


def _facts(record: Record, envelopes: bool) -> dict[str, Any]:
    """The fields of an entry that come from its record."""
    payload = signing.payload_of(record.sealed) if envelopes and record.sealed is not None else None
    return {
        "position": record.position,
        "at_s": record.moment.wall_s,
        "kind": JOURNALED[type(record.event)].kind,
        "who": agent_of(record.event),
        "proposal_id": about_of(record.event),
        "data": _data(record.event),
        "msg_id": record.msg_id,
        "payload": payload,
    }


def _data(event: Event) -> dict[str, Any]:
    """An event's fields; ``by_human`` only where it is true, as records of older versions have no such field."""
    data: dict[str, Any] = plain(event)
    return {name: value for name, value in data.items() if name != "by_human" or value}


def _thread(
    connection: Connection, journal: str, council_id: str, proposal_id: str, envelopes: bool
) -> list[Entry]:
    """All entries about a proposal, in order."""
    own = UUID(packet_id(council_id, proposal_id))
    if connection.dialect.name == "sqlite":
        fresh = or_(_c.thread_id == own, search_words.holds(_c.parent_ids, [str(own)]))
        concerns = search_words.under(
            [search_words.index_word("thread", own), search_words.index_word("parent", own)], fresh
        )
        # The plus keeps SQLite from using the journal's index, because only a few positions are asked for.
        within = literal_column("+packet_store.journal", Text) == journal
    else:
        within = _c.journal == journal
        concerns = or_(_c.thread_id == own, type_coerce(_c.parent_ids, ARRAY(Uuid())).contains([own]))
    every = select(*_COLUMNS)
    statement = every.where(within, concerns).order_by(_c.position)
    found = _entries(connection, statement, envelopes)
    if not any(each.packet_id == str(own) for each in found):
        raise StoreCorrupt(
            f"the proposal {proposal_id} is there, and a search for its records misses it; run council verify",
            proposal_id=proposal_id,
        )
    first = next((each.position for each in found if each.kind == "proposal"), 0)
    ended = (each.position for each in found if any(d.proposal_id == proposal_id for d in each.decisions))
    # A change of the roll may escalate many proposals, and end more than a lineage holds. Only its content shows
    # that.
    every = every.where(_c.journal == journal)
    sweeping = [PREFIX + row.kind for row in JOURNALED.values() if row.sweeps]
    statement = every.where(_c.packet_type.in_(sweeping), _c.position > first)
    last = next(ended, None)
    if last is not None:
        statement = statement.where(_c.position < last)
    swept = _entries(connection, statement, envelopes)
    by_position = {each.position: each for each in found}
    by_position |= {each.position: each for each in swept if each.concerns(proposal_id)}
    return [by_position[position] for position in sorted(by_position)]


def _entries(connection: Connection, statement: Select[Any], envelopes: bool) -> list[Entry]:
    # Closed in any case: an error's frames would keep the rows, and with them the connection.
    with closing(_streamed(connection, statement)) as rows:
        return [_entry(row, envelopes) for row in rows]


def _resolved(connection: Connection, journal: str, council_id: str, given: str) -> str:
    """The full id of the one proposal whose id is ``given``, or begins with it."""
    start = _start_of(given)
    proposals = select(*_COLUMNS).where(_c.journal == journal, _c.packet_type == f"{PREFIX}proposal")
    whole = proposals.where(_c.packet_id == packet_id(council_id, start))
    if connection.execute(whole).first() is not None:
        return start
    # Canonical JSON escapes a quote within a text, so no text can hold these bytes.
    needle = literal(f'"proposal_id":"{start}'.encode(), LargeBinary)
    if connection.dialect.name == "sqlite":
        holds = func.instr(_c.content, needle) > 0
    else:
        holds = func.position(needle.op("IN")(_c.content)) > 0
    rows = _streamed(connection, proposals.where(holds).order_by(_c.position.desc()))
    with closing(rows):
        events = (_whole(row).record.event for row in rows)  # a damaged one may be what is asked for
        what = (each.what for each in events if isinstance(each, ProposalSubmitted))
        return _only(start, ((each.proposal_id, each.summary) for each in what))


def _start_of(given: str) -> str:
    start, _ = escalated_by(given.lower())
    if not _IDS.fullmatch(start):
        raise CallerError(
            f"{given[:40]!r} is not the id of a proposal: expected its first {PREFIX_CHARS_MIN} characters or more, "
            "each 0-9 or a-f; council log lists the ids"
        )
    return start


def _only(start: str, proposals: Iterable[tuple[str, str]]) -> str:
    """The one of these proposals (id, summary) whose id begins so. Raises Refused; CallerError for several."""
    found = dict(islice((each for each in proposals if each[0].startswith(start)), NAMED_MAX + 1))
    if start in found or len(found) == 1:
        return start if start in found else next(iter(found))
    if not found:
        raise Refused(
            f"this council has no proposal with an id that begins with {start}; council log lists the ids",
            code="unknown_proposal",
            proposal_id=start,
        )
    named = [f"{each} ({quoted(summary)})" for each, summary in found.items()]
    raise CallerError(
        f"{start} begins the ids of several proposals: {', '.join(named[:NAMED_MAX])}"
        f"{', and more' if len(named) > NAMED_MAX else ''}; give more of it",
        ids=list(found),
    )


# From memory


def in_memory(kept: Sequence[Record], asked: Wanted) -> HistoryPage:
    """A page of a journal in memory. Raises PositionLost if it would skip records that are not kept any more."""
    _check(asked)
    forgotten = next((record.position - 1 for record in kept), 0)
    if asked.cursor is not None and not asked.newest_first and asked.cursor < forgotten:
        raise PositionLost(
            f"records after {asked.cursor} were asked for, but the oldest kept in memory is {forgotten + 1}",
            asked=asked.cursor,
            oldest=forgotten + 1,
        )
    proposal_id = None if asked.proposal is None else _only(_start_of(asked.proposal), _proposals(kept))
    turned = reversed(kept) if asked.newest_first else kept
    entries = (_remembered(record, asked.envelopes) for record in turned if asked.behind(record.position))
    found = (
        entry
        for entry in entries
        if asked.admits(entry) and (proposal_id is None or entry.concerns(proposal_id))
    )
    return msgspec.structs.replace(_paged(found, asked), forgotten=forgotten)


def _remembered(record: Record, envelopes: bool) -> Entry:
    decisions, escalations = came_to(record.effects)
    return Entry(**_facts(record, envelopes), decisions=decisions, escalations=escalations)


def _proposals(kept: Iterable[Record]) -> Iterable[tuple[str, str]]:
    """Every proposal in the records, with its summary if that is still kept."""
    summaries: dict[str, str] = {}
    for record in kept:
        proposal_id, event = about_of(record.event), record.event
        if proposal_id is not None:
            summaries.setdefault(proposal_id, "")
            if isinstance(event, ProposalSubmitted):
                summaries[proposal_id] = event.what.summary
    return summaries.items()


# From either


def _check(asked: Wanted) -> None:
    kinds = [row.kind for row in JOURNALED.values()]
    unknown = sorted(set(asked.types) - {*kinds, DECISION, DAMAGED})
    if unknown:
        raise CallerError(
            f"{quoted(unknown[0])} is not a type of record: the types are {', '.join(kinds)}, and {DECISION} for "
            f"every record that decides something{did_you_mean(unknown[0], [*kinds, DECISION])}"
        )
    if not 1 <= asked.limit <= PAGE_MAX:
        raise CallerError(f"limit is {asked.limit}, expected 1 to {PAGE_MAX:,}")


def _chosen(entries: list[Entry], asked: Wanted) -> list[Entry]:
    return [entry for entry in (entries[::-1] if asked.newest_first else entries) if asked.admits(entry)]


def _paged(found: Iterable[Entry], asked: Wanted) -> HistoryPage:
    """A page of at most as many entries as were asked for, and of limited size."""
    entries: list[Entry] = []
    size = 0
    for entry in found:
        size += size_of(entry)
        if entries and (len(entries) == asked.limit or size > PAGE_BYTES_MAX):
            return HistoryPage(tuple(entries), entries[-1].position)
        entries.append(entry)
    return HistoryPage(tuple(entries))
