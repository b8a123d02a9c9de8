"""Sends what a council says to the channels of ``[output]`` (GCP 7, rules 3.4).

| what is on the record | marker |
|---|---|
| a decision | RESPONSE |
| a halt by the observer, an escalation to a human | INTERRUPT |
| the result of an approved action, or a report of it | VERIFY |
| a note of a seat: what it learned, why it would override a rule | THOUGHT_SEED |

The router redacts each text on a thread, before it is written to a file or leaves the process. Each channel delivers
on a thread of its own, at least once, from a folder that outlasts the process.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from council.action.http_request import HttpRequest
from council.action.redact import Filter
from council.action.router import Channel as Name
from council.action.router import Message, Router
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
                self._redacting.submit(self._send, identity, block)

    def _send(self, identity: str, block: Block) -> None:
        try:
            self._router.send(identity, [block])
        except Exception as error:  # noqa: BLE001 - on a thread, where nothing else would show it
            log.error("an output was not sent", id=identity, why=f"{type(error).__name__}: {error}"[:500])

    async def closed(self) -> None:
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._redacting.shutdown()
        with ThreadPoolExecutor(len(self._channels) or 1) as closing:
            for channel in self._channels.values():
                closing.submit(channel.close)


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
