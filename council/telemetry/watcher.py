"""Reads a coordinator now and then, so that no decision waits for it.

Metrics, event log, spans of decisions and notices to people are watchers. Each sees every announcement since it began
once; all of them are on the record by then (rules 4.7). Earlier announcements belong to an earlier coordinator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from council.agents.messaging.logs import get_logger
from council.core import effects as do

if TYPE_CHECKING:
    from council.runtime.coordinator import Coordinator, View

log = get_logger("council")

# Announced effects, oldest first, each with its time (Unix seconds).
Announced = Sequence[tuple[float, do.Effect]]


class Watcher(ABC):
    """Reads one coordinator, on its own loop. Subclasses process what it reads."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._fails = False
        view = coordinator.view()
        feed = view.driver.announcements.feed
        self._position = feed.position
        feed.watchers.append(self.glance)  # before the feed drops what was not read
        self.begin(view)

    def begin(self, view: View) -> None:  # noqa: B027 - most need nothing of it
        """Takes the state at the beginning."""

    @abstractmethod
    def see(self, announced: Announced, view: View) -> None:
        """Takes the announcements since the last time, and the current state."""

    def read(self) -> None:
        """Reads once. The cost grows with the number of announcements since the last time."""
        view = self._coordinator.view()
        feed = view.driver.announcements.feed
        behind, self._position = feed.position - self._position, feed.position
        self.see(feed.newest(behind), view)

    def glance(self) -> None:
        """Like ``read``, but an error is logged once and never ends the council."""
        try:
            self.read()
            self._fails = False
        except Exception as error:  # noqa: BLE001 - an error of a sink, a file or a tracer
            if not self._fails:
                why = f"{type(error).__name__}: {error}"
                log.error("what watches the council failed; it goes on", what=type(self).__name__, why=why)
            self._fails = True

    def close(self) -> None:
        """Reads for the last time, and releases its resources."""
        self.glance()

    async def closed(self) -> None:
        """Waits, after ``close``, for what ends on another thread."""
        return
