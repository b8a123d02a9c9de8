"""A council in process: the coordinator and its seats on one event loop, without Ray."""

from __future__ import annotations

import asyncio
import contextvars
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from council.agents.messaging.mailbox import take_batch
from council.agents.seat.host import SeatHost
from council.config.charter_files import resolve_charter
from council.config.human_keys import keys_of_humans
from council.config.notify import receivers_of
from council.config.outputs import outputs_of, spool_of
from council.config.settings import MEMORY, CouncilConfig
from council.protocol.errors import CouncilError
from council.runtime.build import new_council_id, new_seat, rules_of, system_clock
from council.runtime.coordinator import Coordinator
from council.runtime.journals import council_id_of, journal_key, open_journal
from council.runtime.proposal_size import ProposalSize
from council.telemetry.decision_spans import decision_spans
from council.telemetry.exports import Exports
from council.telemetry.tracing import Traces
from council.telemetry.watcher import Watcher

# Only the process of an inline council reaches it.
HOW_TO_ANSWER = 'council.answer("{id}", approve=…) in the program that runs this council'


class InlineLink:
    """The link to a seat on the coordinator's own loop. It delivers a message at once."""

    waiting_bytes = 0

    def __init__(self, host: SeatHost, lost: Callable[[Exception], None]) -> None:
        self._host = host
        self._lost = lost

    def send(self, item: bytes) -> None:
        try:
            self._host.receive(item)
        except Exception as error:  # noqa: BLE001 - costs this seat only, like a failed call
            self._lost(error)

    def drop(self) -> None:
        return

    def __len__(self) -> int:
        return 0


class InlineTransport:
    """Seats on the coordinator's own loop. Messages that they send in one turn are received in the next."""

    def __init__(self, hosts: dict[str, SeatHost]) -> None:
        self._hosts = hosts
        self._said: deque[bytes] = deque()
        self.coordinator: Coordinator | None = None

    def link(
        self, seat: str, heard: Callable[[Sequence[bytes]], None], lost: Callable[[Exception], None]
    ) -> InlineLink:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()  # the context of one seat's mind must not reach another seat

        def say(sealed: bytes) -> None:
            self._said.append(sealed)
            if len(self._said) == 1:
                loop.call_soon(hand_over, context=context)

        def hand_over() -> None:
            batch = take_batch(self._said)
            if self._said:
                loop.call_soon(hand_over, context=context)
            heard(batch)

        self._hosts[seat].say = say
        return InlineLink(self._hosts[seat], lost)

    async def attend(self, seat: str, boot: int) -> None:
        async def send(sealed: bytes, name: str) -> None:
            assert self.coordinator is not None
            await self.coordinator.hear(sealed)

        await self._hosts[seat].attend(boot, send)

    async def revive(self, seat: str) -> None:
        return  # a seat in process exists as long as the process

    async def close(self) -> None:
        for host in self._hosts.values():
            host.close()


class InlineCoordinator(Coordinator):
    """A coordinator with its exports, in one process."""

    exports: Exports | None = None

    async def status(self) -> dict[str, Any]:
        return {**await super().status(), "metrics": self.exports and self.exports.status()}

    async def close(self, why: CouncilError | None = None) -> None:
        await super().close(why)
        if self.exports is not None:
            await self.exports.close()


async def start(config: CouncilConfig, traces: Traces | None = None) -> InlineCoordinator:
    """Starts a council in process, on this event loop. Raises MindError, ConfigError, OperatorError.

    ``traces`` receives its spans; the caller closes it. If a store is configured, the journal is on disk; otherwise
    it is in memory and ends with the process.
    """
    config = resolve_charter(config)
    if config.store is None:
        config = config.model_copy(update={"store": MEMORY})
    durable = config.store != MEMORY
    council_id = council_id_of(config, new_council_id(config.name))
    signing_key = journal_key(config.name) if durable else b""
    keys = {seat.name: secrets.token_bytes(32) for seat in config.seats}
    spans = None if traces is None else traces.spans(council_id)
    hosts = {name: new_seat(config, name, key, council_id, spans) for name, key in keys.items()}
    transport = InlineTransport(hosts)
    humans = keys_of_humans(config, council_id)
    receivers, outputs = receivers_of(config), outputs_of(config)

    def begun() -> InlineCoordinator:
        journal = open_journal(config, council_id, signing_key)
        try:
            return InlineCoordinator(
                rules_of(config),
                council_id,
                keys,
                transport,
                journal,
                system_clock(),
                humans=humans,
                events_kept=config.events_kept,
                decisions_kept=config.decisions_kept,
                in_process=True,
                fitting=ProposalSize(config),
            )
        except BaseException:
            journal.close_now()
            raise

    coordinator = await asyncio.to_thread(begun) if durable else begun()
    transport.coordinator = coordinator
    try:
        await coordinator.open()
        watchers: list[Watcher] = [*decision_spans(config, coordinator, traces)]
        if receivers is not None:
            from council.telemetry.notices import Notices  # its clients of HTTP and mail

            watchers.append(Notices(config.name, coordinator, receivers, HOW_TO_ANSWER))
        if outputs:
            from council.telemetry.outputs import Outputs

            watchers.append(Outputs(coordinator, outputs, spool_of(config.name)))
        if config.metrics_port is not None or watchers:
            coordinator.exports = Exports(config, coordinator, watchers=watchers)
    except BaseException:
        await coordinator.close()  # otherwise its journal would be locked while this process lives
        raise
    return coordinator
