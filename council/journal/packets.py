"""A record of the council as a packet, and back: ids, lineage, canonical bytes. Knows nothing of stores.

Each record is one packet, whose payload holds the event, the envelope that brought it and what it decided, so
that no crash can tear a consequence off its cause (rules 4.6). Its bytes are those of ``PacketEnvelope``,
made here without building one: a test holds the two to each other.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from council.core import effects as do
from council.core import events as ev
from council.core.state import Decision, Escalation, Moment, Value
from council.journal.record import KINDS, Record, mark_of
from council.journal.rows import Prepared, routing
from council.journal.schema import moment_text
from council.protocol.errors import StoreCorrupt
from council.protocol.packet import PARENTS_MAX, SCHEMA_VERSION

# A change of the roll may end all open proposals at once. So much of what it decided stands in its record word
# for word, the first one always; of the rest the outcome, for the whole follows from the record by replay.
OUTCOME_BYTES_MAX = 256 * 2**10
# Packets whose place in their line is remembered: those that ballots on open proposals derive from.
LINES_KEPT = 12_000

# The packet types of the council's own; ``council.`` keeps them apart from those of users.
PREFIX = "council."
DOMAIN = "council"
_EVENTS = {kind: msgspec.json.Decoder(event) for event, kind in KINDS.items()}


class Line(Value, frozen=True):
    """Where a packet stands in its line of descent (rules 4.3)."""

    generation: int
    root: str


class Kept(Value, frozen=True):
    """A record as it is read back: with the decisions and escalations it came to, as far as it holds them.

    ``more`` has the outcomes of those that it does not hold, and the rest is what its packet says beside it.
    """

    record: Record
    decisions: tuple[Decision, ...]
    escalations: tuple[Escalation, ...]
    more: dict[str, str | None]
    packet_id: str
    timestamp: datetime
    parents: tuple[str, ...]


class _Payload(msgspec.Struct):
    kind: str
    at: tuple[float, float]
    position: int
    event: msgspec.Raw
    effects: str
    decisions: tuple[Decision, ...] = ()
    escalations: tuple[Escalation, ...] = ()
    more_decisions: dict[str, str | None] = msgspec.field(default_factory=dict)
    more_escalations: dict[str, str | None] = msgspec.field(default_factory=dict)
    sealed: str | None = None
    msg_id: str | None = None
    key_mark: str | None = None


class _Lineage(msgspec.Struct):
    parent_ids: tuple[str, ...] = ()


class _Packet(msgspec.Struct):
    payload: _Payload
    packet_id: str
    timestamp: datetime
    lineage: _Lineage = msgspec.field(default_factory=_Lineage)


_PACKET = msgspec.json.Decoder(_Packet)


_ALIKE = re.compile("[0-9a-f]{4}")  # what a packet's id has of its message's: the moment


@lru_cache(4_000)  # a proposal's is asked for with each of its ballots
def packet_id(council_id: str, what: str) -> str:
    """The id of the packet of an envelope, by its message id, or of a record without one, by ``#position``.

    A hash of both (UUIDv8), so that whoever knows a proposal's id finds its packet. It begins as the message's
    own id does: where these follow the time (``agents.ids``), packets that are written together stand together.
    """
    found = hashlib.blake2b(f"{council_id}\0{what}".encode(), digest_size=16).hexdigest()
    alike = _ALIKE.match(what)
    first = alike[0] if alike else found[:4]
    variant = "89ab"[int(found[16], 16) & 3]
    return f"{first}{found[4:8]}-{found[8:12]}-8{found[13:16]}-{variant}{found[17:20]}-{found[20:]}"


class Packer:
    """Makes the packets of one council's records, in order. ``look_up`` finds the lines of packets kept before."""

    def __init__(self, council_id: str, look_up: Callable[[Collection[str]], Mapping[str, Line]]) -> None:
        self.council_id = council_id
        self._look_up = look_up
        self._lines: OrderedDict[str, Line] = OrderedDict()

    def packed(self, record: Record) -> Prepared:
        """The packet of a record. Raises StoreCorrupt where something it follows from was never kept."""
        event, moment = record.event, record.moment
        kind = KINDS[type(event)]
        own_id = packet_id(self.council_id, record.msg_id or f"#{moment.position}")
        decisions, escalations = _came_to(record)
        about = about_of(event)
        thread = None if about is None else packet_id(self.council_id, about)
        parents = self._parents(record, own_id, about, decisions)
        timestamp = moment_text(datetime.fromtimestamp(moment.wall_s, UTC))
        agent = agent_of(event)
        tags = tuple(sorted({f"decision:{each.outcome}" for each in decisions})) if decisions else ()
        packet: dict[str, Any] = {
            "packet_id": own_id,
            "packet_type": PREFIX + kind,
            "timestamp": timestamp.replace(".000000", ""),  # as the document's models write it
            "metadata": {"schema_version": SCHEMA_VERSION, "domain": DOMAIN},
            "payload": self._payload(record, kind, decisions, escalations),
        }
        if agent is not None:
            packet["metadata"]["agent"] = agent
        if thread is not None:
            packet["thread_id"] = thread
        if tags:
            packet["tags"] = tags
        if parents or own_id == thread:
            packet["lineage"] = self._lineage(own_id, parents, _derivation(event, decisions))
        content = _canonical(packet, record, decisions, escalations)
        who = routing(agent, DOMAIN)
        return Prepared(
            own_id, PREFIX + kind, timestamp, who, None, thread, tuple(parents), tags, None, content
        )

    def _payload(
        self, record: Record, kind: str, decisions: list[Decision], escalations: list[Escalation]
    ) -> dict[str, Any]:
        moment = record.moment
        payload: dict[str, Any] = {
            "kind": kind,
            "at": [moment.uptime_s, moment.wall_s],
            "position": moment.position,
            "event": record.event,
            "effects": mark_of(record.effects).hex(),
        }
        if record.sealed is not None:
            payload["sealed"] = b64encode(record.sealed).decode()
        if record.msg_id is not None:
            payload["msg_id"] = record.msg_id
        if record.key_mark is not None:
            payload["key_mark"] = record.key_mark.hex()
        left = OUTCOME_BYTES_MAX
        for name, found in (("decisions", decisions), ("escalations", escalations)):
            for number, each in enumerate(found):
                if number and (left := left - len(msgspec.json.encode(each))) < 0:
                    payload[f"more_{name}"] = {
                        each.proposal_id: getattr(each, "outcome", None) for each in found[number:]
                    }
                    break
                payload.setdefault(name, []).append(each)
        return payload

    def _parents(
        self, record: Record, own_id: str, about: str | None, decisions: list[Decision]
    ) -> list[str]:
        """The packets that a record follows from: its proposal, and for a decision whatever it rests on."""
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
        if decisions:  # many may be named twice, and the record itself among them
            found = [each for each in dict.fromkeys(found) if each != own_id]
        return found[:PARENTS_MAX]

    def _lineage(self, own_id: str, parents: list[str], derivation: str | None) -> dict[str, Any]:
        lines = self._lines_of(parents)
        generation = 1 + max(line.generation for line in lines) if lines else 0
        line = Line(generation, lines[0].root if lines else own_id)
        self._remember(own_id, line)
        lineage: dict[str, Any] = {"generation": line.generation, "root_packet_id": line.root}
        if parents:
            lineage["parent_ids"] = parents
        if derivation is not None:
            lineage["derivation_type"] = derivation
        return lineage

    def _lines_of(self, parents: list[str]) -> list[Line]:
        missing = [parent for parent in parents if parent not in self._lines]
        if missing:
            for found, line in self._look_up(missing).items():
                self._remember(found, line)
        try:
            return [self._lines[parent] for parent in parents]
        except KeyError as error:
            raise StoreCorrupt(f"packet {error.args[0]} should be in the journal, and is not") from error

    def _remember(self, own_id: str, line: Line) -> None:
        self._lines[own_id] = line
        while len(self._lines) > LINES_KEPT:
            self._lines.popitem(last=False)


_ENCODER = msgspec.json.Encoder(order="sorted")


def _came_to(record: Record) -> tuple[list[Decision], list[Escalation]]:
    decisions, escalations = [], []
    for effect in record.effects:
        if isinstance(effect, do.AnnounceDecision):
            decisions.append(effect.decision)
        elif isinstance(effect, do.AnnounceEscalation):
            escalations.append(effect.escalation)
    return decisions, escalations


def _canonical(
    packet: dict[str, Any], record: Record, decisions: list[Decision], escalations: list[Escalation]
) -> bytes:
    """The canonical bytes of a packet (rules 4.5), in a sixth of the time where that can be had.

    msgspec writes JSON as ``PacketEnvelope`` does, but for numbers so small or large that they have an exponent.
    """
    if not escalations:
        numbers = _numbers(record, decisions)
        if numbers is not None and all(x == 0 or 1e-4 <= x < 1e16 for x in numbers):
            return _ENCODER.encode(packet)
    found = msgspec.to_builtins(packet)
    return json.dumps(
        found, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode()


def _numbers(record: Record, decisions: list[Decision]) -> list[float] | None:
    """The fractions in a record's packet; None where it may have more of them than are worth looking for."""
    found = [record.moment.uptime_s, record.moment.wall_s]
    event = record.event
    if isinstance(event, ev.ProposalSubmitted):
        found += (event.what.confidence, event.what.time_budget_s)
    elif isinstance(event, ev.BallotCast):
        found.append(event.ballot.confidence)
    elif not isinstance(event, (ev.EnvelopeRefused, ev.CallReserved, ev.CallSettled, ev.ActionReported)):
        return None
    for decision in decisions:
        if decision.ruling is not None or decision.late:
            return None
        found.append(decision.seconds)
        found += [ballot.confidence for ballot in decision.ballots]
    return found


def unpacked(content: bytes, position: int) -> Kept:
    """The record in a packet's canonical bytes. Raises StoreCorrupt where that is none of the council's."""
    try:
        packet = _PACKET.decode(content)
        payload = packet.payload
        event = _EVENTS[payload.kind].decode(payload.event)
        if payload.position != position:
            raise ValueError(f"it says that it stands at {payload.position}")
        datetime.fromtimestamp(payload.at[1], UTC)  # raises where that is no time
        record = Record(
            Moment(*payload.at, position),
            event,
            None if payload.sealed is None else b64decode(payload.sealed, validate=True),
            msg_id=payload.msg_id,
            key_mark=None if payload.key_mark is None else bytes.fromhex(payload.key_mark),
            mark=bytes.fromhex(payload.effects),
        )
    except (msgspec.MsgspecError, KeyError, OSError, OverflowError, TypeError, ValueError) as error:
        raise StoreCorrupt(
            f"record {position} is no record of a council: {error}; run council verify", position=position
        ) from error
    more = payload.more_decisions | payload.more_escalations
    ended = payload.decisions, payload.escalations, more
    return Kept(record, *ended, packet.packet_id, packet.timestamp, packet.lineage.parent_ids)


def about_of(event: ev.Event) -> str | None:
    """The proposal that an event is about, if it is about one."""
    match event:
        case ev.ProposalSubmitted(what):
            return what.proposal_id
        case ev.BallotCast(act) | ev.RulingGiven(act) | ev.HumanAnswered(act) | ev.CallReserved(act):
            return act.proposal_id
        case ev.ActionReported(report):
            return report.proposal_id
        case _:
            return getattr(event, "proposal_id", None) or None


def agent_of(event: ev.Event) -> str | None:
    """Who brought an event about: a seat, a client or a human; None for time and the coordinator."""
    match event:
        case ev.ProposalSubmitted(what):
            return what.proposer
        case ev.BallotCast(ballot):
            return ballot.seat
        case ev.RulingGiven(ruling):
            return ruling.seat
        case ev.CallReserved(call):
            return call.seat
        case ev.HumanAnswered(answer):
            return answer.human
        case ev.IdentityChanged(change):
            return change.human
        case ev.ActionReported(report):
            return report.sender[:200] or None
        case ev.StreamObserved():
            return event.observer
        case ev.ProposalCancelled() | ev.EnvelopeRefused():
            return event.sender[:200] or None
        case _:
            return getattr(event, "seat", None)


def _derivation(event: ev.Event, decisions: list[Decision]) -> str | None:
    if isinstance(event, ev.ProposalSubmitted):
        return "transform" if event.what.supersedes else None
    return "merge" if decisions else "inference"
