"""Reads a coordinator now and then, so that no decision waits for it.

Metrics, event log and spans of decisions are watchers. Each sees every announcement since it began once; all of them
are on the record by then (rules 4.7). Earlier announcements belong to an earlier coordinator. Holds no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from council.agents.messaging.logs import get_logger
from council.core import effects as do

if TYPE_CHECKING:
    from council.journal.record import Journal
    from council.runtime.driver import Driver

log = get_logger("council")

# Reads a driver and its journal, at a time (uptime and Unix seconds), with all records up to a position kept.
Look = Callable[["Driver", "Journal", tuple[float, float], int], None]
# Announced effects, oldest first, each with its time (Unix seconds).
Announced = Sequence[tuple[float, do.Effect]]


class Readable(Protocol):
    """The part of a coordinator that a watcher reads."""

    def read(self, look: Look) -> None:
        """Calls ``look``. Both belong to the coordinator's loop."""


class Watcher:
    """Reads one coordinator, on its own loop. Subclasses process what it reads."""

    def __init__(self, coordinator: Readable) -> None:
        self._coordinator = coordinator
        self._position = 0
        self._fails = False
        coordinator.read(self._begin)

    def begin(self, driver: Driver, now: tuple[float, float]) -> None:
        """Takes the state at the beginning."""

    def see(
        self, announced: Announced, driver: Driver, journal: Journal, now: tuple[float, float], kept: int
    ) -> None:
        """Takes the announcements since the last time, and the current state."""
        raise NotImplementedError

    def read(self) -> None:
        """Reads once. The cost grows with the number of announcements since the last time."""
        self._coordinator.read(self._report)

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

    def _begin(self, driver: Driver, journal: Journal, now: tuple[float, float], kept: int) -> None:
        self._position = driver.announcements.feed.position
        driver.announcements.feed.watchers.append(self.glance)  # before the feed drops what was not read
        self.begin(driver, now)

    def _report(self, driver: Driver, journal: Journal, now: tuple[float, float], kept: int) -> None:
        feed = driver.announcements.feed
        behind, self._position = feed.position - self._position, feed.position
        self.see(feed.newest(behind), driver, journal, now, kept)
