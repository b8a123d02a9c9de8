"""Redacts the texts of models and actions, and sends them to their destinations (GCP 7, rules 3.4).

``Router.send`` redacts a text first and then delivers it to each sink of its marker. A sink that fails is tried again
with growing pauses. So it may get a message twice, with the same id. ``Router.dead`` has the messages that no try
delivered.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from council.action.http_request import HttpRequest
from council.action.redact import Filter
from council.protocol.answer.markers import Block, Marker
from council.protocol.cognition.parts import OutputRouting
from council.protocol.cognition.vocabulary import OutputDestination

Channel = Literal[
    "cli", "web", "discord", "slack", "council", "shell", "memory", "log", "api", "webhook", "audio"
]
CHANNELS: tuple[Channel, ...] = get_args(Channel)
Shape = Literal["plain", "slack", "discord"]

ATTEMPTS, PAUSE_S, PAUSE_MAX_S = 4, 0.2, 5.0
DEAD_MAX, QUEUE_MAX = 1_000, 1_000
TIMEOUT_S = 10.0
DISCORD_CHARS_MAX, SLACK_CHARS_MAX = 2_000, 40_000
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
    """Receives the messages of one channel. It raises if it did not accept one, and limits its own time."""

    def __call__(self, message: Message, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Dead:
    """A message that a sink did not accept, how often it was tried, and the last error."""

    message: Message
    attempts: int
    why: str


@dataclass(slots=True)
class _Due:
    message: Message
    attempts: int
    at_s: float


class Queue:
    """A sink that an app reads: web and memory. It refuses messages while 1,000 wait."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()

    def __call__(self, message: Message) -> None:
        if len(self._messages) >= QUEUE_MAX:
            raise OSError(f"{QUEUE_MAX:,} messages wait to be read")
        self._messages.append(message)

    def take(self) -> list[Message]:
        """Removes and returns all waiting messages, the oldest first."""
        taken = []
        while self._messages:
            taken.append(self._messages.popleft())
        return taken


class Webhook:
    """Posts JSON to one URL of a listed host, with no redirect followed.

    The body is ``{"id", "channel", "marker", "text", "counts"}``, or what Slack or Discord expects. With a ``key``
    the header ``X-Council-Signature`` is ``sha256=`` and the hex HMAC of the time in ``X-Council-Time``, a dot and
    the body.
    """

    def __init__(
        self,
        url: str,
        hosts: Iterable[str],
        *,
        shape: Shape = "plain",
        key: bytes | None = None,
        private: bool = False,
    ) -> None:
        """``private`` allows addresses that are not public. Raises ArgumentsRefused for a URL that is not allowed."""
        self._url, self._shape, self._key = url, shape, key
        self._http = HttpRequest(tuple(hosts), private=private)
        self._http.check({"method": "POST", "url": url})

    def __call__(self, message: Message) -> None:
        body = json.dumps(_body(message, self._shape), ensure_ascii=False)
        headers = {"Content-Type": "application/json", "X-Council-Id": message.id}
        if self._key is not None:
            at = str(int(time.time()))
            signed = hmac.new(self._key, f"{at}.{body}".encode(), hashlib.sha256).hexdigest()
            headers |= {"X-Council-Time": at, "X-Council-Signature": f"sha256={signed}"}
        args = {"method": "POST", "url": self._url, "headers": headers, "body": body}
        self._http.check(args)
        result = self._http.run(args, timeout_s=TIMEOUT_S)
        if not result.ok:
            raise OSError(result.error)


def _body(message: Message, shape: Shape) -> dict[str, object]:
    if shape == "slack":
        return {"text": message.text[:SLACK_CHARS_MAX]}
    if shape == "discord":  # no mention in a model's text calls anybody
        return {"content": message.text[:DISCORD_CHARS_MAX], "allowed_mentions": {"parse": []}}
    return {
        "id": message.id,
        "channel": message.channel,
        "marker": message.marker,
        "text": message.text,
        "counts": dict(message.counts),
    }


class Router:
    """Redacts texts and delivers them. Sinks run in the caller's thread, one after another."""

    def __init__(
        self,
        sinks: Mapping[Channel, Sink],
        *,
        filter: Filter | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """``shell`` is a sink that proposes the command and never runs it. Raises ValueError for another channel."""
        if unknown := set(sinks).difference(CHANNELS):
            raise ValueError(f"found the channel {min(unknown)!r}, expected one of {', '.join(CHANNELS)}")
        self._sinks, self._filter = dict(sinks), filter or Filter()
        self._clock, self._pause = clock, pause
        self._due: list[_Due] = []
        self._dead: deque[Dead] = deque(maxlen=DEAD_MAX)

    @property
    def dead(self) -> tuple[Dead, ...]:
        """The last 1,000 messages that no try delivered, the oldest first. Their texts are redacted."""
        return tuple(self._dead)

    def send(
        self, id: str, blocks: Iterable[Block], routing: OutputRouting | None = None
    ) -> tuple[Message, ...]:
        """Sends each block to the sinks of its marker, or to those of them that ``routing`` names.

        ``id`` is the answer's; a message's id is made of it, so that the same answer sent again has the same ids.
        Returns the messages that were made. Those not delivered at once are tried again by ``retry``.
        """
        made = []
        for number, block in enumerate(blocks):
            redacted = self._filter.redact(block.text)
            for channel, channel_id, reply_to in self._targets(block.marker, routing):
                message = Message(
                    f"{id}:{number}:{channel}:{channel_id or ''}", channel, block.marker, redacted.text,
                    redacted.counts, channel_id, reply_to,
                )  # fmt: skip
                made.append(message)
                self._try(_Due(message, 0, 0.0))
        return tuple(made)

    def retry(self, limit_s: float) -> int:
        """Tries what is due until nothing waits or ``limit_s`` seconds are over. Returns how many still wait."""
        ends_s = self._clock() + limit_s
        while self._due:
            self._due.sort(key=lambda due: due.at_s)
            wait_s = self._due[0].at_s - self._clock()
            if max(self._clock(), self._due[0].at_s) > ends_s:
                break
            if wait_s > 0:
                self._pause(wait_s)
                continue
            self._try(self._due.pop(0))
        return len(self._due)

    def _try(self, due: _Due) -> None:
        try:
            self._sinks[due.message.channel](due.message)
        except Exception as error:  # noqa: BLE001 - whatever a sink raises, it did not accept the message
            due.attempts += 1
            if due.attempts == ATTEMPTS or len(self._due) >= QUEUE_MAX:
                why = self._filter.redact(f"{type(error).__name__}: {error}"[:500]).text
                self._dead.append(Dead(due.message, due.attempts, why))
                return
            due.at_s = self._clock() + min(PAUSE_MAX_S, PAUSE_S * 2 ** (due.attempts - 1))
            self._due.append(due)

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
