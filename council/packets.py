"""The packets of the protocol documents, with times and ids filled in, and a store for them.

    from council.packets import CognitionPacket, PacketEnvelope, PacketStore, build_packet

    with PacketStore.open("packets.db") as store:
        packet = PacketEnvelope(packet_type="event", payload={"action": "user_query"})
        store.write(packet)

``protocol/`` reads no clock and makes no ids; this module does both, and adds nothing else to the packets' rules.
Every error is a CouncilError. The formats are PacketEnvelope 1.1.0 (rules 4) and CognitionPacket v0.3.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args
from uuid import UUID, uuid4

from pydantic import BeforeValidator, Field, ValidationError

from council.journal import store as journal_store
from council.protocol import packet as envelopes
from council.protocol.cognition import packet as cognition
from council.protocol.cognition.parts import DataField
from council.protocol.cognition.vocabulary import OutputDestination, PacketState, SystemTask, TargetEngine
from council.protocol.errors import CallerError
from council.protocol.models import JsonObject, malformed
from council.protocol.packet import PacketLineage, PacketWriteResult
from council.protocol.values import quoted

__all__ = [
    "CognitionPacket",
    "DataField",
    "PacketEnvelope",
    "PacketLineage",
    "PacketPage",
    "PacketRelative",
    "PacketStore",
    "PacketWriteResult",
    "Source",
    "StructuredReasoningBlock",
    "build_packet",
]


def _now() -> datetime:
    return datetime.now(UTC)


def _as_utc(value: object) -> object:
    """A time without an offset is in UTC, as in the document's ``datetime.utcnow() + timedelta(days=7)``."""
    if isinstance(value, datetime) and value.utcoffset() is None:
        return value.replace(tzinfo=UTC)
    return value


Moment = Annotated[envelopes.Moment, BeforeValidator(_as_utc)]


class StructuredReasoningBlock(envelopes.StructuredReasoningBlock):
    """The reasoning that led to the packet ``packet_id`` (rules 4.8).

    ``block_id`` and ``timestamp`` are filled in. Raises EnvelopeError with the path of the first error.
    """

    block_id: envelopes.Id = Field(default_factory=uuid4)
    extracted_features: JsonObject = Field(default_factory=dict)
    confidence_scores: envelopes.Scores = Field(default_factory=dict)
    timestamp: Moment = Field(default_factory=_now)

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise malformed(error) from None


class PacketEnvelope(envelopes.PacketEnvelope):
    """A packet of PacketEnvelope 1.1.0, frozen. Only ``packet_type`` and ``payload`` are required.

    ``packet_id`` (a random UUID) and ``timestamp`` (now, in UTC) are filled in. A ``timestamp`` or ``ttl`` without
    an offset is read as UTC. Raises EnvelopeError, or EnvelopeTooLarge, with the path of the first error.
    """

    packet_id: envelopes.Id = Field(default_factory=uuid4)
    timestamp: Moment = Field(default_factory=_now)
    ttl: Moment | None = None

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise malformed(error) from None


class CognitionPacket(cognition.CognitionPacket):
    """A packet of CognitionPacket v0.3, frozen. ``CognitionPacket()`` is a complete one, of session "default".

    A field is a part, or a mapping of its fields. A missing ``header.datetime`` or ``header.sub_id`` is filled in
    from the clock. Raises EnvelopeError, or EnvelopeTooLarge, with the dotted path of the first error.
    """

    def __init__(self, /, **fields: Any) -> None:
        complete = cognition.CognitionPacket.from_dict(fields, now=_now())
        super().__init__(**dict(complete))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, now: datetime | None = None) -> Self:
        """The packet of a mapping of JSON values. ``now`` (aware) is the clock's time if it is left out."""
        return super().from_dict(data, now=now or _now())


# build_packet

Source = Literal["web", "discord", "audio_gateway", "voice_prime", "voice_lite", "cli", "api"]


@dataclass(frozen=True, slots=True)
class _Defaults:
    """A column of the document's table. ``session`` is the session's id, or what its user's id follows."""

    destination: OutputDestination
    session: str
    history: str
    tone_hint: str | None = "neutral"
    engine: TargetEngine = TargetEngine.PRIME
    priority: int = 5
    max_tokens: int = 2048
    time_budget_ms: int = 30_000
    safety_mode: str = "strict"
    dry_run: bool = True
    context_window: int = 8192


_WEB, _VOICE = ("web_ui_session", "web_session"), ("discord_voice_", "discord_voice")
_AUDIO = OutputDestination.AUDIO
_SOURCES: dict[Source, _Defaults] = {
    "web": _Defaults(OutputDestination.WEB, *_WEB),
    "discord": _Defaults(OutputDestination.DISCORD, "discord_", "discord_channel", "conversational"),
    "audio_gateway": _Defaults(_AUDIO, "voice_session", "ref", None, safety_mode="standard", dry_run=False),
    "voice_prime": _Defaults(_AUDIO, *_VOICE, "conversational", max_tokens=512, time_budget_ms=15_000),
    "voice_lite": _Defaults(
        _AUDIO, *_VOICE, "conversational", TargetEngine.LITE, 8, 128, 5_000, context_window=4096
    ),
    "cli": _Defaults(OutputDestination.CLI, *_WEB),
    "api": _Defaults(OutputDestination.API, *_WEB),
}


def build_packet(
    source: Source,
    user_input: str,
    *,
    session_id: str | None = None,
    user_id: str | None = None,
    channel_id: str | None = None,
    reply_to_message_id: str | None = None,
    is_dm: bool = False,
    author_name: str | None = None,
    target_engine: TargetEngine | str | None = None,
    priority: int | None = None,
    max_tokens: int | None = None,
    time_budget_ms: int | None = None,
    safety_mode: str | None = None,
    tone_hint: str | None = None,
    dry_run: bool | None = None,
    extra_data_fields: Sequence[DataField | Mapping[str, Any]] = (),
    system_hint: str | None = None,
    compute_hashes: bool = True,
) -> CognitionPacket:
    """A new packet for a text that came from ``source``; docs/packets.md has the values of each source.

    An argument that is None takes the value of the source. Without ``session_id``, a Discord message needs
    ``user_id`` (if ``is_dm``) or ``channel_id``, and a voice ``user_id``. ``author_name`` and ``is_dm`` are kept in
    the metadata of the destination. Raises CallerError for an unknown source or a missing id, else EnvelopeError.
    """
    of = _defaults(source)
    session = _session(source, session_id, user_id, channel_id, is_dm)
    metadata: dict[str, Any] = {"is_dm": is_dm} if source == "discord" else {}
    if author_name is not None:
        metadata["author_name"] = author_name
    ids = {"channel_id": channel_id, "user_id": user_id, "reply_to_message_id": reply_to_message_id}
    primary = {"destination": of.destination, **ids, "metadata": metadata}
    header = {
        "session_id": session,
        "packet_id": secrets.token_hex(cognition.PACKET_ID_CHARS // 2),
        "sub_id": "0",
        "persona": {"tone_hint": _or(tone_hint, of.tone_hint)},
        "routing": {"target_engine": _or(target_engine, of.engine), "priority": _or(priority, of.priority)},
        "model": {"context_window_tokens": of.context_window},
        "output_routing": {"primary": primary, "source_destination": of.destination},
        "operational_status": {"status": "initialized"},
    }
    constraints = {
        "max_tokens": _or(max_tokens, of.max_tokens),
        "time_budget_ms": _or(time_budget_ms, of.time_budget_ms),
        "safety_mode": _or(safety_mode, of.safety_mode),
    }
    fields = _texts(user_message=user_input, system_hint=system_hint)
    packet = CognitionPacket(
        header=header,
        intent={"user_intent": "chat", "system_task": SystemTask.GENERATE_DRAFT, "confidence": 0.0},
        context={"session_history_ref": {"type": of.history, "value": session}, "constraints": constraints},
        content={"original_prompt": user_input, "data_fields": [*fields, *extra_data_fields]},
        governance={"safety": {"dry_run": _or(dry_run, of.dry_run)}},
        status={"state": PacketState.INITIALIZED},
        tool_routing={},
    )
    return packet.compute_hashes() if compute_hashes else packet


def _defaults(source: Source) -> _Defaults:
    if source not in get_args(Source):
        raise CallerError(f"source is {quoted(str(source))}, expected one of {', '.join(get_args(Source))}")
    return _SOURCES[source]


def _texts(**texts: str | None) -> list[dict[str, Any]]:
    """The data fields of the texts that were given."""
    return [{"key": key, "value": text, "type": "text"} for key, text in texts.items() if text is not None]


def _or(given: Any, default: Any) -> Any:
    return default if given is None else given


def _session(
    source: Source, given: str | None, user_id: str | None, channel_id: str | None, is_dm: bool
) -> str:
    """The session's id, or the one that its source gives it."""
    if given is not None:
        return given
    prefix, name, of = _SOURCES[source].session, "user_id", user_id
    if not prefix.endswith("_"):
        return prefix
    if source == "discord":
        prefix += "dm_" if is_dm else "channel_"
        name, of = ("user_id", user_id) if is_dm else ("channel_id", channel_id)
    if of is None:
        raise CallerError(f"{name} is missing: a packet from {source} needs it, or session_id")
    return prefix + of


# The store


class PacketPage(NamedTuple):
    """Some packets, and the ``cursor`` of the next page; None after the last page."""

    packets: tuple[PacketEnvelope, ...]
    cursor: str | None


class PacketRelative(NamedTuple):
    """A packet, and its distance in steps of derivation."""

    distance: int
    packet: PacketEnvelope


class PacketStore:
    """Packets on disk, written once. It is thread-safe; ``open`` makes it, and ``with`` closes it.

    Each method uses the current time, and raises StoreError if the database fails. The database may also hold a
    council's journal. The packets do not become part of the journal's hash chain (rules 4.1).
    """

    def __init__(self, store: journal_store.PacketStore) -> None:
        self._store = store

    @classmethod
    def open(cls, where: str | Path, *, read_only: bool = False) -> Self:
        """The store at a path, ``sqlite:///path`` or ``postgresql://user@host/database``.

        If there is none it is created, unless ``read_only``. Raises StoreError; CallerError for an invalid address.
        """
        url = str(where)
        return cls(journal_store.PacketStore.open(url, migrate=not read_only, read_only=read_only))

    def close(self) -> None:
        """Closes the store. Every written packet is already on disk."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, *packets: PacketEnvelope) -> list[PacketWriteResult]:
        """Writes packets, and returns a result for each, in order. A failed packet does not stop the others.

        A result's ``status`` is "ok", or "error" with an ``error_message``: a parent is missing, the ttl has passed,
        or another packet has this id. The same packet again is "ok". Lineage is completed (rules 4.3).
        """
        given = [envelopes.PacketEnvelopeIn.build(**dict(packet)) for packet in packets]
        return self._store.write(given, _now())

    def get(self, packet_id: UUID, *, expired: bool = False) -> PacketEnvelope | None:
        """The packet, or None. One whose ``ttl`` has passed is returned only if ``expired``."""
        found = self._store.get(packet_id, _now(), expired=expired)
        return None if found is None else _read(found)

    def find(
        self,
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
    ) -> PacketPage:
        """A page of the packets that meet all conditions; ``since`` (aware) is included, ``until`` is not.

        The next page needs the same conditions and the page's ``cursor``. Raises CallerError for an invalid value.
        """
        page = self._store.find(
            _now(),
            thread_id=thread_id,
            packet_type=packet_type,
            tags_any=tags_any,
            tags_all=tags_all,
            since=since,
            until=until,
            newest_first=newest_first,
            expired=expired,
            limit=limit,
            cursor=cursor,
        )
        return PacketPage(tuple(map(_read, page.packets)), page.cursor)

    def ancestors(
        self, packet_id: UUID, *, depth: int | None = None, expired: bool = False
    ) -> list[PacketRelative]:
        """The packets that a packet was derived from, nearest first, at most ``depth`` steps away.

        Raises UnknownPacket; CallerError if there are more than 10,000.
        """
        found = self._store.ancestors(packet_id, _now(), depth=depth, expired=expired)
        return [PacketRelative(each.distance, _read(each.packet)) for each in found]

    def descendants(
        self, packet_id: UUID, *, depth: int | None = None, expired: bool = False
    ) -> list[PacketRelative]:
        """The packets that were derived from a packet; otherwise like ``ancestors``."""
        found = self._store.descendants(packet_id, _now(), depth=depth, expired=expired)
        return [PacketRelative(each.distance, _read(each.packet)) for each in found]

    def collect_garbage(self) -> int:
        """Removes the packets whose ``ttl`` has passed, and returns their number."""
        return self._store.collect_garbage(_now())


def _read(packet: envelopes.PacketEnvelope) -> PacketEnvelope:
    return PacketEnvelope(**dict(packet))
