"""Exports what a coordinator does: metrics and their server, the event log, notices, and spans of decisions.

It runs on the coordinator's loop and never delays it. What does not work (a port in use, a file that can't be
written) is reported, and the council goes on without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from council.agents.messaging.logs import get_logger
from council.config.settings import CouncilConfig
from council.protocol.errors import OperatorError
from council.telemetry.metrics import Meter, MetricsServer, Registry, Sink
from council.telemetry.watcher import Watcher

if TYPE_CHECKING:
    from council.runtime.coordinator import Coordinator

log = get_logger("council")

# An event is counted and written this many seconds after its announcement at the latest.
LOOK_S = 0.5


class Exports:
    """Begins with an open coordinator, and ends after it. ``sinks`` get its metrics, besides the endpoint."""

    def __init__(
        self,
        config: CouncilConfig,
        coordinator: Coordinator,
        *,
        sinks: Sequence[Sink] = (),
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self._endpoint: MetricsServer | None = None
        self.notice: str | None = None
        registry = None if config.metrics_port is None else Registry()
        all_sinks = [*sinks] if registry is None else [*sinks, registry]
        meter = Meter(config.name, coordinator, all_sinks)
        self._watchers = [meter, *watchers] if all_sinks else [*watchers]
        if registry is not None and config.metrics_port is not None:
            try:
                self._endpoint = MetricsServer(registry, meter, config.metrics_host, config.metrics_port)
                log.info("metrics", council=config.name, url=self._endpoint.url)
            except OperatorError as error:
                self.notice = error.message
                log.warning("no metrics endpoint", council=config.name, why=error.message)
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    def status(self) -> dict[str, Any]:
        """The address of the metrics, or the reason why there is none."""
        return {"url": None if self._endpoint is None else self._endpoint.url, "notice": self.notice}

    async def close(self) -> None:
        """Reads once more, and releases port and files."""
        self._watching.cancel()
        if self._endpoint is not None:
            await asyncio.to_thread(self._endpoint.close)
        for watcher in self._watchers:
            watcher.close()
        await asyncio.gather(*(watcher.closed() for watcher in self._watchers))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for watcher in self._watchers:
                watcher.glance()
