"""What looks at a coordinator from beside it, now and then, so that no decision waits for it.

Its metrics, its event log and its decisions' spans are watchers: each is told once of all that was announced since it
began, which is on the record by then (rules 4.7). What came before was another coordinator's to tell. Holds no rule.
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

# Looks at a driver and its journal, at a time (uptime and Unix seconds), all up to a position being kept.
Look = Callable[["Driver", "Journal", tuple[float, float], int], None]
# Effects that somebody outside heard of, oldest first, each with its time (Unix seconds).
Announced = Sequence[tuple[float, do.Effect]]


class Readable(Protocol):
    """The part of a coordinator that is looked at."""

    def read(self, look: Look) -> None:
        """Has ``look`` look; both belong to the coordinator's loop."""


class Watcher:
    """Reads one coordinator, from its own loop. A kind of watcher says what it makes of what it sees."""

    def __init__(self, coordinator: Readable) -> None:
        self._coordinator = coordinator
        self._position = 0
        self._fails = False
        coordinator.read(self._begin)

    def begin(self, driver: Driver, now: tuple[float, float]) -> None:
        """Sees how things are when it begins."""

    def see(
        self, announced: Announced, driver: Driver, journal: Journal, now: tuple[float, float], kept: int
    ) -> None:
        """Sees what was announced since the last time, and how things are."""
        raise NotImplementedError

    def read(self) -> None:
        """Looks once; costs as much as was announced since the last time."""
        self._coordinator.read(self._report)

    def glance(self) -> None:
        """As ``read``, for who can't help it: what goes wrong is told once, and is no council's end."""
        try:
            self.read()
            self._fails = False
        except Exception as error:  # noqa: BLE001 - a sink, a file or a tracer of anybody's
            if not self._fails:
                why = f"{type(error).__name__}: {error}"
                log.error("what watches the council failed; it goes on", what=type(self).__name__, why=why)
            self._fails = True

    def close(self) -> None:
        """Looks for the last time, and lets go of what it holds."""
        self.glance()

    def _begin(self, driver: Driver, journal: Journal, now: tuple[float, float], kept: int) -> None:
        self._position = driver.feed.position
        driver.feed.watchers.append(self.glance)  # or it would miss what is kept no more when it looks
        self.begin(driver, now)

    def _report(self, driver: Driver, journal: Journal, now: tuple[float, float], kept: int) -> None:
        behind, self._position = driver.feed.position - self._position, driver.feed.position
        self.see(driver.feed.newest(behind), driver, journal, now, kept)
