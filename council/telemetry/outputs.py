"""Sends what a council says to the channels of ``[output]`` (GCP 7, rules 3.4).

| what is on the record | marker |
|---|---|
| a decision | RESPONSE |
| a halt by the observer, an escalation to a human | INTERRUPT |
| the result of an approved action, or a report of it | VERIFY |
| a note of a seat: what it learned, why it would override a rule | THOUGHT_SEED |

What a seat publishes while it thinks is PLAN. It is on no record, and is sent in parts as it comes. The last 1,024
characters wait for the rest, so that a value that is split over two pieces is found.

The router redacts each text on a thread, before it is written to a file or leaves the process. Each channel delivers
on a thread of its own, at least once, from a folder that outlasts the process.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from council.action.http_request import HttpRequest
from council.action.redact import Filter, Redacted, Redactor
from council.action.router import MATRIX, Message, Router
from council.action.router import Channel as Name
from council.agents.messaging.logs import get_logger
from council.core import effects as do
from council.core.state import token_id_of
from council.protocol.answer.markers import Block
from council.telemetry.delivery import Channel, Notice, Spool, body_of, redacting, signature, to_command
from council.telemetry.watcher import Announced, Watcher

if TYPE_CHECKING:
    from council.config.outputs import Output
    from council.config.settings import OutputChannel
    from council.runtime.coordinator import Coordinator, View
    from council.runtime.streams import StreamPiece

log = get_logger("council")

SLACK_CHARS_MAX, DISCORD_CHARS_MAX = 40_000, 2_000
FILE_MODE = 0o600


class Outputs(Watcher):
    """Sends the outputs of one coordinator. Messages that wait are kept in folders below ``spool``."""

    def __init__(
        self, coordinator: Coordinator, outputs: Mapping[OutputChannel, Output], spool: Path
    ) -> None:
        redactor = Filter()
        self._channels: dict[Name, Channel] = {}
        for name, output in outputs.items():
            deliver = redacting(deliver_to(name, output), redactor)
            self._channels[name] = Channel(name, deliver, spool=Spool(spool / name))
        self._router = Router({name: self._sink(name) for name in self._channels}, filter=redactor)
        self._plans = Plans(self._router, redactor)
        self._relay = coordinator.view().driver.relay
        if self._channels.keys() & set(MATRIX["PLAN"]):
            self._relay.listeners.append(self._hear)
        self._redacting = ThreadPoolExecutor(1, "council-output")
        try:
            super().__init__(coordinator)
        except BaseException:
            self._end()
            raise

    def _sink(self, name: Name) -> Callable[[Message], None]:
        channel = self._channels[name]
        return lambda message: channel.send(asdict(message))

    def see(self, announced: Announced, view: View) -> None:
        for _, effect in announced:
            for identity, block in said(effect):
                self._submit(identity, self._router.send, identity, [block])
            match effect:
                case do.AnnounceDecision(about) | do.AnnounceEscalation(about):
                    self._submit(about.proposal_id, self._plans.end, about.proposal_id)

    def _hear(self, piece: StreamPiece) -> None:
        self._submit(piece.proposal_id, self._plans.add, piece)

    def _submit(self, identity: str, send: Callable[..., object], *args: Any) -> None:
        """Has ``send`` called with ``args`` on the thread that redacts."""

        def sent() -> None:
            try:
                send(*args)
            except Exception as error:  # noqa: BLE001 - on a thread, where nothing else would show it
                log.error("an output was not sent", id=identity, why=f"{type(error).__name__}: {error}"[:500])

        self._redacting.submit(sent)

    def close(self) -> None:
        super().close()
        if self._hear in self._relay.listeners:
            self._relay.listeners.remove(self._hear)
        self._submit("plans", self._plans.end_all)

    async def closed(self) -> None:
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._redacting.shutdown()
        with ThreadPoolExecutor(len(self._channels) or 1) as closing:
            for channel in self._channels.values():
                closing.submit(channel.close)


class Plans:
    """Redacts what the seats publish, and sends it in parts. One round of a stage is one text."""

    def __init__(self, router: Router, filter: Filter) -> None:
        self._router, self._filter = router, filter
        self._texts: dict[str, dict[str, _Text]] = {}  # by proposal, then by seat

    def add(self, piece: StreamPiece) -> None:
        """Takes a piece. Sends what can be shown of its round by now, and the rest once the round is over."""
        texts = self._texts.setdefault(piece.proposal_id, {})
        if piece.seat in texts and texts[piece.seat].round != piece.round:  # it was halted
            self._close(texts.pop(piece.seat))
        if piece.seat not in texts:
            about = piece.proposal_id, piece.seat
            texts[piece.seat] = _Text(*about, piece.round, Redactor(self._filter))
            self._show(texts[piece.seat], texts[piece.seat].redactor.feed(f"{piece.stage}: "))
        self._show(texts[piece.seat], texts[piece.seat].redactor.feed(piece.text))
        if piece.whole:
            self._close(texts.pop(piece.seat))

    def end(self, proposal_id: str) -> None:
        """Sends the rest of what was said about a proposal that is not deliberated any more."""
        for text in self._texts.pop(proposal_id, {}).values():
            self._close(text)

    def end_all(self) -> None:
        """Sends the rest of what was said about all proposals."""
        for proposal_id in list(self._texts):
            self.end(proposal_id)

    def _close(self, text: _Text) -> None:
        self._show(text, text.redactor.close())

    def _show(self, text: _Text, part: str) -> None:
        if part:
            redacted = Redacted(f"{text.proposal_id} {text.seat}: {part}", dict(text.redactor.counts))
            text.redactor.counts.clear()
            identity = f"{text.proposal_id}.{text.seat}.{text.round}:{text.parts}"
            text.parts += 1
            self._router.send_redacted(identity, "PLAN", redacted)


@dataclass(slots=True)
class _Text:
    """What a seat says in one round, and how many parts of it were sent."""

    proposal_id: str
    seat: str
    round: int
    redactor: Redactor
    parts: int = 0


def said(effect: do.Effect) -> Iterator[tuple[str, Block]]:
    """What an announcement says to people, and the id of the answer that it is part of."""
    match effect:
        case do.AnnounceDecision(decision):
            text = f"{decision.proposal_id} {decision.outcome or decision.standing}: {decision.reason}"
            yield f"{decision.proposal_id}.decision", Block("RESPONSE", text)
        case do.AnnounceEscalation(escalation):
            text = f"{escalation.escalation_id} waits for a human: {escalation.summary}: {escalation.reason}"
            yield f"{escalation.escalation_id}.waiting", Block("INTERRUPT", text)
        case do.AnnounceObservation() if effect.interrupt:
            text = f"{effect.proposal_id} was halted by {effect.observer}: {effect.text}"
            yield f"{effect.proposal_id}.{effect.stream}", Block("INTERRUPT", text)
        case do.AnnounceResult(result):
            text = f"{result.proposal_id} {result.outcome}: {result.text}"
            yield f"{token_id_of(result.proposal_id)}.{result.use_id}", Block("VERIFY", text)
        case do.AnnounceOutcome(report):
            text = f"{report.proposal_id} {report.stage} {'success' if report.ok else 'fail'}: {report.text}"
            yield f"{report.proposal_id}.{report.stage}", Block("VERIFY", text)
        case do.AnnounceBallot(ballot, late=False):
            for number, (kind, text) in enumerate(ballot.notes or ()):
                yield (
                    f"{ballot.proposal_id}.{ballot.seat}.{number}",
                    Block("THOUGHT_SEED", f"{ballot.proposal_id} {ballot.seat}, {kind}: {text}"),
                )


def deliver_to(name: OutputChannel, output: Output) -> Callable[[Notice], None]:
    """Delivers one message to the receiver that the settings name. It raises OSError or ValueError if it did not."""
    if output.file:
        return _to_file(Path(output.file))
    if output.command:
        return to_command(output.command, output.timeout_s)
    return _to_webhook(name, output)


def _to_file(path: Path) -> Callable[[Notice], None]:
    """Appends each message as a line of JSON."""

    def deliver(message: Notice) -> None:
        with open(path, "ab", opener=_private) as file:
            file.write(body_of(message) + b"\n")

    return deliver


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _to_webhook(name: OutputChannel, output: Output) -> Callable[[Notice], None]:
    """Posts each message to the one address that the settings name, whose host must be public unless they allow it.

    No redirect is followed. Slack and Discord get what they expect; others get the message as JSON, signed by the
    Standard Webhooks specification.
    """
    place = urlsplit(output.webhook)
    usual = place.port in (None, 443 if place.scheme == "https" else 80)
    host = (place.hostname or "") if usual else f"{place.hostname}:{place.port}"
    http = HttpRequest((host,), private=output.private_hosts)

    def deliver(message: Notice) -> None:
        body = _shaped(name, message)
        headers = {"content-type": "application/json", **signature(message["id"], body, output.key)}
        args = {"method": "POST", "url": output.webhook, "headers": headers, "body": body.decode()}
        http.check(args)
        result = http.run(args, timeout_s=output.timeout_s)
        if not result.ok:
            raise OSError(result.error)

    return deliver


def _shaped(name: OutputChannel, message: Notice) -> bytes:
    shaped: dict[str, Any]
    match name:
        case "slack":
            shaped = {"text": message["text"][:SLACK_CHARS_MAX]}
        case "discord":  # no mention in a model's text calls anybody
            shaped = {"content": message["text"][:DISCORD_CHARS_MAX], "allowed_mentions": {"parse": []}}
        case _:
            return body_of(message)
    return json.dumps(shaped).encode()
