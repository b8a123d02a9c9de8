"""Redacts the texts of models and actions, and hands them to their destinations (GCP 7, rules 3.4).

``Router.send`` redacts a text first and then hands it to each sink of its marker. ``council.telemetry.outputs`` has
the sinks of the settings, which deliver and try again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from council.action.redact import Filter, Redacted
from council.protocol.answer.markers import Block, Marker
from council.protocol.cognition.parts import OutputRouting
from council.protocol.cognition.vocabulary import OutputDestination

Channel = Literal[
    "cli", "web", "discord", "slack", "council", "shell", "memory", "log", "api", "webhook", "audio"
]
CHANNELS: tuple[Channel, ...] = get_args(Channel)
_PEOPLE: tuple[Channel, ...] = ("cli", "web", "discord", "slack", "api", "webhook", "audio")
# GCP 7.2. The other channels to people get what web_chat gets. PLAN goes to the log, not to the screen of the CLI.
MATRIX: Mapping[Marker, tuple[Channel, ...]] = {
    "PLAN": ("log", "council"),
    "EXECUTE": ("shell",),
    "RESPONSE": _PEOPLE,
    "THOUGHT_SEED": ("council", "memory"),
    "INTERRUPT": (*_PEOPLE, "council"),
    "VERIFY": (*_PEOPLE, "council"),
}


@dataclass(frozen=True, slots=True)
class Message:
    """A redacted text for one sink. ``id`` is the same for each try. ``counts`` are of redacted values by kind."""

    id: str
    channel: Channel
    marker: Marker
    text: str
    counts: Mapping[str, int]
    channel_id: str | None = None
    reply_to: str | None = None


class Sink(Protocol):
    """Takes the messages of one channel. It does not wait for their delivery."""

    def __call__(self, message: Message, /) -> None: ...


class Router:
    """Redacts texts and hands them to the sinks of their channels."""

    def __init__(self, sinks: Mapping[Channel, Sink], *, filter: Filter | None = None) -> None:
        """``shell`` is a sink that proposes the command and never runs it. Raises ValueError for another channel."""
        if unknown := set(sinks).difference(CHANNELS):
            raise ValueError(f"found the channel {min(unknown)!r}, expected one of {', '.join(CHANNELS)}")
        self._sinks, self._filter = dict(sinks), filter or Filter()

    def send(
        self, id: str, blocks: Iterable[Block], routing: OutputRouting | None = None
    ) -> tuple[Message, ...]:
        """Sends each block to the sinks of its marker, or to those of them that ``routing`` names.

        ``id`` is the answer's; a message's id is made of it, so that the same answer sent again has the same ids.
        Returns the messages that were made.
        """
        made: list[Message] = []
        for number, block in enumerate(blocks):
            redacted = self._filter.redact(block.text)
            made += self.send_redacted(f"{id}:{number}", block.marker, redacted, routing)
        return tuple(made)

    def send_redacted(
        self, id: str, marker: Marker, redacted: Redacted, routing: OutputRouting | None = None
    ) -> tuple[Message, ...]:
        """Like ``send``, for one text that is redacted already, as a ``Redactor`` does with a stream."""
        made = []
        for channel, channel_id, reply_to in self._targets(marker, routing):
            message = Message(
                f"{id}:{channel}:{channel_id or ''}", channel, marker, redacted.text, redacted.counts, channel_id,
                reply_to,
            )  # fmt: skip
            made.append(message)
            self._sinks[channel](message)
        return tuple(made)

    def _targets(
        self, marker: Marker, routing: OutputRouting | None
    ) -> list[tuple[Channel, str | None, str | None]]:
        """Channel, channel's id and message replied to; each once."""
        allowed = [channel for channel in MATRIX[marker] if channel in self._sinks]
        if routing is None:
            return [(channel, None, None) for channel in allowed]
        found: dict[tuple[Channel, str | None], str | None] = {
            (channel, None): None for channel in allowed if channel not in _PEOPLE
        }
        targets = (routing.primary, *routing.secondary)
        if marker == "RESPONSE" and not routing.addressed_to_gaia:
            targets = ()  # nobody asked; INTERRUPT and VERIFY are still told
        for target in targets:
            if routing.suppress_echo and target.destination == routing.source_destination:
                continue
            everywhere = target.destination == OutputDestination.BROADCAST
            for channel in allowed:
                if everywhere or channel == target.destination.value:
                    found.setdefault((channel, target.channel_id), target.reply_to_message_id)
        return [(channel, channel_id, reply) for (channel, channel_id), reply in found.items()]
