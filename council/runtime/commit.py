"""Decides when the driver's records are written, and when callers learn of a stall. Has no clock, no I/O, no rules.

The coordinator runs this loop after each turn of the driver, and again when ``next_due`` has come::

    while commit.writes(driver, now):
        position, records = driver.position, driver.drain()
        keeping = journal.append(records)  # write
        commit.began(position, now)
        await keeping
        commit.written(position, now)  # kept
        driver.saved(position)  # tell

Nothing is announced before it is kept (rules 4.7). One write runs at a time; the next includes all records that
arrived meanwhile (group commit). ``now`` is seconds of any one clock that does not go back.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from council.runtime.driver import Driver

# A write is delayed by at most this many times its journal's linger, while more records come or no seat is at work.
LINGERS_MAX = 10
# Callers that wait for a write learn after this many seconds that nothing can be saved.
TROUBLE_CHECK_S = 0.5


class _Linger(NamedTuple):
    """A write is put off until ``until_s``. ``position`` was the newest record's at that decision."""

    since_s: float
    until_s: float
    position: int


class Commit:
    """The writes of one coordinator. It starts with the records up to ``position`` kept.

    ``linger_s`` is how many seconds a record that nobody waits for may wait for others; 0 means not at all.
    ``write_s`` is the duration of the last write that took any time.
    """

    def __init__(self, position: int, linger_s: float) -> None:
        self.kept_position = position
        self.write_s: float | None = None
        self.failed = False
        self._linger_s = linger_s
        self._lingering: _Linger | None = None
        self._began_s: float | None = None
        self._wanted = position
        self._look_at = math.inf
        self._stalled: set[str] = set()

    @property
    def writing(self) -> bool:
        """Whether a write is under way."""
        return self._began_s is not None

    @property
    def lingers(self) -> bool:
        """Whether a write is being put off."""
        return self._lingering is not None

    @property
    def next_due(self) -> float:
        """The latest time at which ``writes`` or ``stall_due`` must be asked again; infinite for never."""
        if self.failed:
            return math.inf
        return min(self._look_at, self._lingering.until_s if self._lingering is not None else math.inf)

    # Writing

    def writes(self, driver: Driver, now: float) -> bool:
        """Whether a write begins now. The caller must then begin one."""
        if self.failed or self.writing or not driver.awaits_saving:
            return False
        if driver.hurries or self._wanted > self.kept_position:
            return True
        return not (self._linger_s and self._put_off(driver, now))

    def _put_off(self, driver: Driver, now: float) -> bool:
        """Whether the write waits for more records: a proposal's record can be written with its ballots'.

        It waits while more records arrive, up to a limit, because a write just before a decision would delay that
        one. If nothing is deliberated it waits until the limit: a late ballot is then written with the next decision.
        """
        since_s = now
        if self._lingering is not None:
            since_s, until_s, position = self._lingering
            if now < until_s:
                return True
            if driver.position == position or now - since_s >= LINGERS_MAX * self._linger_s:
                return False
        longest_s = self._linger_s * (1 if driver.deliberates else LINGERS_MAX)
        self._lingering = _Linger(since_s, now + longest_s, driver.position)
        return True

    def hurry(self, position: int) -> None:
        """Called when somebody waits until the record at ``position`` is kept."""
        self._wanted = max(self._wanted, position)

    def began(self, position: int, now: float) -> None:
        """A write of all records up to ``position`` has begun."""
        self._began_s, self._lingering = now, None
        self._look_at = min(self._look_at, now + TROUBLE_CHECK_S)

    def written(self, position: int, now: float) -> None:
        """All records up to ``position`` are kept, by the write that began or by one that took no time."""
        if self._began_s is not None:
            self.write_s = now - self._began_s
        self.kept_position = position
        self._began_s = self._lingering = None
        # The sessions that heard of a stall hear of its end at once.
        self._look_at = now if self._stalled else math.inf

    def fail(self) -> None:
        """A write failed for good. No further write may follow a gap."""
        self.failed = True

    # Stalls

    def stall_due(self, now: float) -> bool:
        """Whether it is time to check for a stall; see ``looked``."""
        return not self.failed and now >= self._look_at

    def looked(self, now: float, owed: Collection[str], *, stalls: bool) -> set[str]:
        """The sessions that get a notice of the stall or its end, among those that are ``owed`` an answer.

        Each gets one notice that nothing can be kept, and one when it can be again. It decides itself how long it
        waits.
        """
        informed = set(owed) - self._stalled if stalls else self._stalled
        self._stalled = self._stalled | informed if stalls else set()
        self._look_at = now + TROUBLE_CHECK_S if self.writing or self._stalled else math.inf
        return informed
