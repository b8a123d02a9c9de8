"""Builds a cognition packet from a user's input, with the defaults of its source.

The module is pure: the time and the ids are arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal

from council.protocol.cognition.packet import CognitionPacket, moment
from council.protocol.cognition.parts import DataField
from council.protocol.cognition.vocabulary import OutputDestination, PacketState, SystemTask, TargetEngine
from council.protocol.errors import EnvelopeError
from council.protocol.values import quoted

Source = Literal["web", "discord", "audio_gateway", "voice_prime", "voice_lite", "cli", "api"]

# GCP 4.1.1: a packet's id has 8 characters.
PACKET_ID_CHARS = 8


@dataclass(frozen=True, slots=True)
class Defaults:
    """The default values of packets from one source."""

    destination: OutputDestination
    history: str
    session: str  # {user} and {channel} are replaced
    target_engine: TargetEngine = TargetEngine.PRIME
    priority: int = 5
    tone_hint: str | None = "conversational"
    max_tokens: int = 2048
    time_budget_ms: int = 30_000
    safety_mode: str = "strict"
    dry_run: bool = True
    context_window_tokens: int = 8192
    direct_session: str = ""  # another session for direct messages


def _like_web(destination: OutputDestination) -> Defaults:
    return Defaults(destination, "web_session", "web_ui_session", tone_hint="neutral")


SOURCES: Mapping[Source, Defaults] = MappingProxyType(
    {
        "web": _like_web(OutputDestination.WEB),
        "cli": _like_web(OutputDestination.CLI),
        "api": _like_web(OutputDestination.API),
        "discord": Defaults(
            OutputDestination.DISCORD,
            "discord_channel",
            "discord_channel_{channel}",
            direct_session="discord_dm_{user}",
        ),
        "audio_gateway": Defaults(
            OutputDestination.AUDIO,
            "ref",
            "voice_session",
            tone_hint=None,
            safety_mode="standard",
            dry_run=False,
        ),
        "voice_prime": Defaults(
            OutputDestination.AUDIO,
            "discord_voice",
            "discord_voice_{user}",
            max_tokens=512,
            time_budget_ms=15_000,
        ),
        "voice_lite": Defaults(
            OutputDestination.AUDIO,
            "discord_voice",
            "discord_voice_{user}",
            target_engine=TargetEngine.LITE,
            priority=8,
            max_tokens=128,
            time_budget_ms=5_000,
            context_window_tokens=4096,
        ),
    }
)


def build_packet(
    source: Source,
    user_input: str,
    *,
    now: datetime,
    new_id: Callable[[], str],
    session_id: str | None = None,
    user_id: str | None = None,
    channel_id: str | None = None,
    reply_to_message_id: str | None = None,
    is_dm: bool = False,
    author_name: str | None = None,
    target_engine: TargetEngine | None = None,
    priority: int | None = None,
    max_tokens: int | None = None,
    time_budget_ms: int | None = None,
    safety_mode: str | None = None,
    tone_hint: str | None = None,
    dry_run: bool | None = None,
    extra_data_fields: Sequence[DataField] = (),
    system_hint: str | None = None,
    identity_hash: str | None = None,
    compute_hashes: bool = True,
) -> CognitionPacket:
    """A new packet, initialized, with ``user_input`` word for word. None means the default of ``source``.

    ``new_id`` gives lower-case hex digits, of which 8 are used. ``identity_hash`` is kept in the governance block
    (rules 7.1). Raises EnvelopeError.
    """
    usual = _usual(
        source,
        target_engine=target_engine,
        priority=priority,
        max_tokens=max_tokens,
        time_budget_ms=time_budget_ms,
        safety_mode=safety_mode,
        tone_hint=tone_hint,
        dry_run=dry_run,
    )
    session = session_id or _session(usual, source, user_id=user_id, channel_id=channel_id, is_dm=is_dm)
    said = {"user_message": user_input} | ({} if system_hint is None else {"system_hint": system_hint})
    fields = [{"key": key, "value": value, "type": "text"} for key, value in said.items()]
    about = ({"is_dm": is_dm} if usual.direct_session else {}) | (
        {} if author_name is None else {"author_name": author_name}
    )
    target = {
        "destination": usual.destination,
        "channel_id": channel_id or session,
        "user_id": user_id,
        "reply_to_message_id": reply_to_message_id,
        "metadata": about,
    }
    governance = {"safety": {"dry_run": usual.dry_run}}
    identity = {} if identity_hash is None else {"identity_hash": identity_hash}
    data_fields = [*fields, *extra_data_fields]
    form = _form(usual, session, user_input, data_fields, target, governance | identity)
    form["header"] |= {"packet_id": _packet_id(new_id), "datetime": moment(now)}
    packet = CognitionPacket.from_dict(form)
    return packet.compute_hashes() if compute_hashes else packet


def _form(
    usual: Defaults,
    session: str,
    prompt: str,
    fields: Sequence[Any],
    target: Mapping[str, Any],
    governance: Mapping[str, Any],
) -> dict[str, Any]:
    """A new packet as JSON, without its id and its time."""
    return {
        "header": {
            "session_id": session,
            "persona": {"tone_hint": usual.tone_hint},
            "routing": {"target_engine": usual.target_engine, "priority": usual.priority},
            "model": {"context_window_tokens": usual.context_window_tokens},
            "sub_id": "0",
            "output_routing": {"primary": target, "source_destination": usual.destination},
            "operational_status": {"status": "initialized"},
        },
        # There is no intent and no answer yet, so both have a confidence of zero.
        "intent": {"system_task": SystemTask.GENERATE_DRAFT, "confidence": 0.0},
        "response": {"confidence": 0.0},
        "context": {
            "session_history_ref": {"type": usual.history, "value": session},
            "constraints": {
                "max_tokens": usual.max_tokens,
                "time_budget_ms": usual.time_budget_ms,
                "safety_mode": usual.safety_mode,
            },
        },
        "content": {"original_prompt": prompt, "data_fields": fields},
        "governance": governance,
        "status": {"state": PacketState.INITIALIZED},
        "tool_routing": {},
    }


def _usual(source: Source, **given: Any) -> Defaults:
    """The defaults of ``source``, replaced by the given values that are not None."""
    if source not in SOURCES:
        raise EnvelopeError.at("source", f"{quoted(source)} is none; known are {', '.join(SOURCES)}")
    return replace(SOURCES[source], **{key: value for key, value in given.items() if value is not None})


def _packet_id(new_id: Callable[[], str]) -> str:
    found = new_id()[:PACKET_ID_CHARS]
    if not re.fullmatch(f"[0-9a-f]{{{PACKET_ID_CHARS}}}", found):
        problem = f"new_id gave {quoted(found)}; expected {PACKET_ID_CHARS} lower-case hex digits"
        raise EnvelopeError.at("header.packet_id", problem)
    return found


def _session(
    usual: Defaults, source: str, *, user_id: str | None, channel_id: str | None, is_dm: bool
) -> str:
    """The session of a user. Two users must not share one because a name is missing."""
    pattern = usual.direct_session if is_dm and usual.direct_session else usual.session
    for name, given in (("user", user_id), ("channel", channel_id)):
        if f"{{{name}}}" in pattern and not given:
            problem = f"from {source}, give it or {name}_id, which it is made from"
            raise EnvelopeError.at("session_id", problem)
    return pattern.format(user=user_id, channel=channel_id)
