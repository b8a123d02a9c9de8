"""A journal's records as people and programs read them, and queries for them.

An entry is one record: what happened, who did it, what was decided, and its packet and hashes if a store keeps it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

import msgspec

from council.core.state import Decision, Escalation, Value
from council.protocol import codec
from council.protocol.envelope import NAME_CHARS_MAX, Envelope
from council.protocol.errors import CallerError, EnvelopeError
from council.protocol.wording import msgspec_text

LIMIT, PAGE_MAX = 100, 1_000
# A page crosses process borders: 1,000 proposals with the largest bodies would be most of a gigabyte.
PAGE_BYTES_MAX = 8 * 2**20
DAMAGED = "damaged"  # the kind of an entry whose record can't be trusted
DECISION = "decision"  # not a kind: a query for it finds records with a decision


class Entry(Value, frozen=True):
    """One record of a journal. ``at_s`` is Unix seconds, ``data`` the event's fields; hashes are in hex.

    ``decisions`` and ``escalations`` are its results in full. If a record ended very many proposals, ``more`` gives
    the outcomes of the others (None: to a human). ``parents`` are the packets that it derives from. Fields that need
    a store are None in a council with a journal in memory. ``payload`` is the envelope's bytes, if they were asked
    for.
    """

    position: int
    at_s: float
    kind: str
    who: str | None
    proposal_id: str | None
    data: dict[str, Any]
    decisions: tuple[Decision, ...] = ()
    escalations: tuple[Escalation, ...] = ()
    more: dict[str, str | None] = msgspec.field(default_factory=dict)
    msg_id: str | None = None
    payload: bytes | None = None
    packet_id: str | None = None
    parents: tuple[str, ...] | None = None
    epoch: int | None = None
    content_hash: str | None = None
    previous_hash: str | None = None
    row_hash: str | None = None

    @property
    def at(self) -> datetime:
        """The time of the record, in UTC."""
        return datetime.fromtimestamp(self.at_s, UTC)

    @property
    def decision(self) -> Decision | None:
        """The decision of this record, if any; of several, the one on its own proposal, or the first."""
        own = [each for each in self.decisions if each.proposal_id == self.proposal_id]
        return next(iter((*own, *self.decisions)), None)

    @property
    def envelope(self) -> Envelope | None:
        """The envelope of this record, if envelopes were asked for, and it has one that can be read."""
        try:
            return None if self.payload is None else codec.decode(self.payload)
        except EnvelopeError:
            return None

    def concerns(self, proposal_id: str) -> bool:
        """Whether it is about that proposal, decides or escalates it, or revises it."""
        return (
            proposal_id in (self.proposal_id, *self.more)
            or any(decision.proposal_id == proposal_id for decision in self.decisions)
            or any(escalation.proposal_id == proposal_id for escalation in self.escalations)
            or self.data.get("what", {}).get("supersedes") == proposal_id
        )


class HistoryPage(Value, frozen=True):
    """Some entries, and the ``cursor`` of the next page; None after the last page.

    ``forgotten`` counts the journal's oldest records that are not kept any more; with a store it is 0.
    """

    entries: tuple[Entry, ...]
    cursor: int | None = None
    forgotten: int = 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


# A name or word in a query. A longer one is refused before it is read or sent.
Word = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]


class Wanted(Value, frozen=True):
    """A query of a history; see ``Council.history``. ``cursor`` is the position after which it continues."""

    proposal: Word | None = None
    types: tuple[Word, ...] = ()
    seat: Word | None = None
    since_s: float | None = None
    until_s: float | None = None
    newest_first: bool = True
    limit: int = LIMIT
    cursor: int | None = None
    envelopes: bool = False

    def admits(self, entry: Entry) -> bool:
        """Whether the query matches an entry, as far as that can be seen from the entry alone."""
        decides = bool(entry.decisions or any(entry.more.values()))
        return (
            (not self.types or entry.kind in self.types or (DECISION in self.types and decides))
            and self.seat in (None, entry.who)
            and (self.since_s is None or entry.at_s >= self.since_s)
            and (self.until_s is None or entry.at_s < self.until_s)
            and self.behind(entry.position)
        )

    def behind(self, position: int) -> bool:
        """Whether a position comes after the cursor, in the query's direction."""
        if self.cursor is None:
            return True
        return position < self.cursor if self.newest_first else position > self.cursor


class Asked(TypedDict, total=False):
    """The arguments of ``Council.history``; see there."""

    proposal: str | None
    types: Collection[str] | None
    seat: str | None
    since: datetime | None
    until: datetime | None
    newest_first: bool
    limit: int
    cursor: int | None
    envelopes: bool


def wanted(asked: Asked) -> Wanted:
    """The query for these arguments. Raises CallerError for invalid ones."""
    types, since, until = asked.get("types"), asked.get("since"), asked.get("until")
    unknown = sorted(asked.keys() - Asked.__annotations__.keys())
    if unknown:
        raise CallerError(f"history takes no {unknown[0]!r}; it takes {', '.join(Asked.__annotations__)}")
    if isinstance(types, str):
        raise CallerError(f"types: found the text {types[:40]!r}, expected a list of texts")
    for name, moment in (("since", since), ("until", until)):
        if not isinstance(moment, datetime | None):
            raise CallerError(f"{name}: found {moment!r:.80}, expected an aware datetime")
        if moment is not None and moment.utcoffset() is None:
            raise CallerError(f"{name}: {moment.isoformat()} has no offset from UTC; give an aware time")
    found: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    found |= {"types": list(types or ())}
    for name, moment in (("since", since), ("until", until)):
        if moment is not None:
            found[f"{name}_s"] = found.pop(name).timestamp()
    try:
        return msgspec.convert(found, Wanted)
    except msgspec.ValidationError as error:
        raise CallerError(msgspec_text(error, "history")) from None


def size_of(entry: Entry) -> int:
    """The number of bytes of an entry on its way to another process."""
    return len(_ENCODER.encode(entry))


_ENCODER = msgspec.json.Encoder()
