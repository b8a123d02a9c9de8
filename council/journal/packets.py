"""Converts a record of the council to a packet, and back: ids, lineage, canonical bytes.

Each record is one packet. Its payload holds the event, the envelope that brought it, and the decisions that followed,
so that no crash can separate a consequence from its cause (rules 4.6).
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

import msgspec

from council.core import events as ev
from council.core.state import Decision, Escalation, Moment, Value
from council.journal.record import Record, came_to, mark_of
from council.journal.rows import Prepared, prepared
from council.kinds.row import fact
from council.kinds.table import BY_KIND, JOURNALED
from council.protocol.errors import StoreCorrupt
from council.protocol.packet import (
    PARENTS_MAX,
    SCHEMA_VERSION,
    DerivationType,
    StoredLineage,
    StoredMetadata,
    StoredPacket,
)

# A change of the roll may end all open proposals. Its record holds this many bytes of decisions in full, and at
# least one; of the others it holds the outcomes. A replay of the record gives them in full.
OUTCOME_BYTES_MAX = 256 * 2**10
# Packets whose lineage is remembered: those that ballots on open proposals derive from.
LINES_KEPT = 12_000

# The prefix of the packet types of the council, which distinguishes them from those of users.
PREFIX = "council."
DOMAIN = "council"
# The fields that name who caused an event.
_AGENTS = ("seat", "observer", "human", "proposer", "sender", "executor")


class Descent(Value, frozen=True):
    """The generation and the root of a packet (rules 4.3)."""

    generation: int
    root: str


class StoredRecord(Value, frozen=True):
    """A record as it is read back, with the decisions and escalations that its packet holds.

    ``more`` has the outcomes of those that the packet does not hold in full.
    """

    record: Record
    decisions: tuple[Decision, ...]
    escalations: tuple[Escalation, ...]
    more: dict[str, str | None]
    packet_id: str
    timestamp: datetime
    parents: tuple[str, ...]


class _Payload(msgspec.Struct, omit_defaults=True):
    """The payload of a record's packet. ``more_…`` have the outcomes that it does not hold in full."""

    kind: str
    at: tuple[float, float]
    position: int
    event: msgspec.Raw
    effects: str
    decisions: tuple[Decision, ...] = ()
    escalations: tuple[Escalation, ...] = ()
    more_decisions: dict[str, str | None] = {}
    more_escalations: dict[str, str | None] = {}
    sealed: bytes | None = None
    msg_id: str | None = None
    key_mark: str | None = None


_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(StoredPacket[_Payload]).decode

_BEGINNING = re.compile("[0-9a-f]{4}")  # of a message's id, which a packet's id begins with, too


@lru_cache(4_000)  # each ballot needs its proposal's
def packet_id(council_id: str, what: str) -> str:
    """The id of a packet: of an envelope's by its message id, of a record's without envelope by ``#position``.

    It is a hash of both (UUIDv8), so that a proposal's id leads to its packet. It begins like the message's id. These
    grow with time (``messaging.ids``), so packets that are written together are near each other in an index.
    """
    found = hashlib.blake2b(f"{council_id}\0{what}".encode(), digest_size=16).hexdigest()
    beginning = _BEGINNING.match(what)
    first = beginning[0] if beginning else found[:4]
    variant = "89ab"[int(found[16], 16) & 3]
    return f"{first}{found[4:8]}-{found[8:12]}-8{found[13:16]}-{variant}{found[17:20]}-{found[20:]}"


class Packer:
    """Makes the packets of a council's records, in order. ``look_up`` gives the lineage of packets kept before."""

    def __init__(self, council_id: str, look_up: Callable[[Collection[str]], Mapping[str, Descent]]) -> None:
        self.council_id = council_id
        self._look_up = look_up
        self._lines: OrderedDict[str, Descent] = OrderedDict()

    def packed(self, record: Record) -> Prepared:
        """The packet of a record. Raises StoreCorrupt if a parent is not in the store."""
        event, moment = record.event, record.moment
        own_id = packet_id(self.council_id, record.msg_id or f"#{moment.position}")
        decisions, escalations = came_to(record.effects)
        about = about_of(event)
        thread = None if about is None else packet_id(self.council_id, about)
        parents = self._parents(record, own_id, about, decisions)
        lineage = None
        if parents or own_id == thread:
            lineage = self._lineage(own_id, parents, _derivation(event, decisions))
        packet = StoredPacket(
            own_id,
            PREFIX + JOURNALED[type(event)].kind,
            datetime.fromtimestamp(moment.wall_s, UTC),
            _payload(record, decisions, escalations),
            StoredMetadata(SCHEMA_VERSION, agent=agent_of(event), domain=DOMAIN),
            thread_id=thread,
            lineage=lineage,
            tags=tuple(sorted({f"decision:{each.outcome}" for each in decisions})),
        )
        return prepared(packet, packet.canonical())

    def _parents(
        self, record: Record, own_id: str, about: str | None, decisions: Sequence[Decision]
    ) -> list[str]:
        """The packets that a record derives from: its proposal; for a decision, also its ballots and acts."""
        event = record.event
        wanted: list[str] = []
        if isinstance(event, ev.ProposalSubmitted):
            wanted += [event.what.supersedes] if event.what.supersedes else []
        elif about is not None:
            wanted.append(about)
        for decision in decisions:
            wanted.append(decision.proposal_id)
            wanted += [ballot.msg_id for ballot in decision.ballots]
            wanted += [act.msg_id for act in (decision.ruling, decision.answer) if act is not None]
        found = [packet_id(self.council_id, each) for each in wanted]
        if decisions:  # they may name a packet twice, or the record itself
            found = [each for each in dict.fromkeys(found) if each != own_id]
        return found[:PARENTS_MAX]

    def _lineage(self, own_id: str, parents: list[str], derivation: DerivationType | None) -> StoredLineage:
        lines = self._lines_of(parents)
        generation = 1 + max(line.generation for line in lines) if lines else 0
        line = Descent(generation, lines[0].root if lines else own_id)
        self._remember(own_id, line)
        return StoredLineage(tuple(parents), derivation, line.generation, line.root)

    def _lines_of(self, parents: list[str]) -> list[Descent]:
        missing = [parent for parent in parents if parent not in self._lines]
        if missing:
            for found, line in self._look_up(missing).items():
                self._remember(found, line)
        try:
            return [self._lines[parent] for parent in parents]
        except KeyError as error:
            raise StoreCorrupt(f"packet {error.args[0]} is missing from the journal") from error

    def _remember(self, own_id: str, line: Descent) -> None:
        self._lines[own_id] = line
        while len(self._lines) > LINES_KEPT:
            self._lines.popitem(last=False)


def _payload(record: Record, decisions: Sequence[Decision], escalations: Sequence[Escalation]) -> _Payload:
    moment = record.moment
    ended: dict[str, Any] = {}
    left = OUTCOME_BYTES_MAX
    for name, found in (("decisions", decisions), ("escalations", escalations)):
        whole = len(found)
        for number, each in enumerate(found):
            if number and (left := left - len(_encode(each))) < 0:
                whole = number
                ended[f"more_{name}"] = {
                    each.proposal_id: getattr(each, "outcome", None) for each in found[whole:]
                }
                break
        ended[name] = tuple(found[:whole])
    return _Payload(
        JOURNALED[type(record.event)].kind,
        (moment.uptime_s, moment.wall_s),
        moment.position,
        msgspec.Raw(_encode(record.event)),
        mark_of(record.effects).hex(),
        sealed=record.sealed,
        msg_id=record.msg_id,
        key_mark=None if record.key_mark is None else record.key_mark.hex(),
        **ended,
    )


def unpacked(content: bytes, position: int) -> StoredRecord:
    """The record in a packet's canonical bytes. Raises StoreCorrupt if it is not a council's record."""
    try:
        packet = _decode(content)
        payload = packet.payload
        event = _decoder(payload.kind).decode(payload.event)
        if payload.position != position:
            raise ValueError(f"it says that its position is {payload.position}")
        datetime.fromtimestamp(payload.at[1], UTC)  # raises if it is not a time
        record = Record(
            Moment(*payload.at, position),
            event,
            payload.sealed,
            msg_id=payload.msg_id,
            key_mark=None if payload.key_mark is None else bytes.fromhex(payload.key_mark),
            mark=bytes.fromhex(payload.effects),
        )
    except (msgspec.MsgspecError, KeyError, OSError, OverflowError, TypeError, ValueError) as error:
        raise StoreCorrupt(
            f"record {position} is not a record of a council: {error}; run council verify", position=position
        ) from error
    more = payload.more_decisions | payload.more_escalations
    ended = payload.decisions, payload.escalations, more
    parents = packet.lineage.parent_ids if packet.lineage else ()
    return StoredRecord(record, *ended, packet.packet_id, packet.timestamp, parents)


@cache
def _decoder(kind: str) -> msgspec.json.Decoder[ev.Event]:
    """A decoder of the events of a kind. Raises KeyError for a kind that has no event."""
    event = BY_KIND[kind].event
    if event is None:
        raise KeyError(kind)
    return msgspec.json.Decoder(event)


def about_of(event: ev.Event) -> str | None:
    """The proposal that an event is about, if it is about one."""
    return fact(event, "proposal_id", None) or None


def agent_of(event: ev.Event) -> str | None:
    """The seat, client or human that caused an event; None if it was the time or the coordinator."""
    found: str = next(filter(None, (fact(event, name, None) for name in _AGENTS)), "")
    return found[:200] or None


def _derivation(event: ev.Event, decisions: Sequence[Decision]) -> DerivationType | None:
    if isinstance(event, ev.ProposalSubmitted):
        return "transform" if event.what.supersedes else None
    return "merge" if decisions else "inference"
