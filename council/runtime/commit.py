"""Says when what the driver did is written, and when those who wait hear of it. Has no clock, no I/O, no rules.

Whoever performs it runs this loop after each turn of the driver, and again once ``next_due`` has come::

    while commit.writes(driver, now):
        position, records = driver.position, driver.drain()
        keeping = journal.append(records)  # write
        commit.began(position, now)
        await keeping
        commit.written(position, now)  # kept
        driver.saved(position)  # tell

Nothing is told before it is kept (rules 4.7). One write runs at a time, and the next takes along all that came in
meanwhile (group commit). ``now`` are seconds of any one clock that does not go back.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple, Protocol

# So many times its journal's linger a write is put off at most, while more comes or nothing is deliberated.
LINGERS_MAX = 10
# Whoever waits for a write hears after so long that nothing can be kept.
TROUBLE_CHECK_S = 0.5


class PendingRecords(Protocol):
    """The part of a driver that says what there is to write."""

    @property
    def position(self) -> int:
        """The position of the newest record."""

    @property
    def awaits_saving(self) -> bool:
        """Whether there is something to keep, or to tell once it is kept."""

    @property
    def hurries(self) -> bool:
        """Whether somebody waits for it."""

    @property
    def deliberates(self) -> bool:
        """Whether some proposal waits for seats."""


class _Linger(NamedTuple):
    """A write that is put off until ``until_s``; ``position`` was the newest record's when that was said."""

    since_s: float
    until_s: float
    position: int


class Commit:
    """The writes of one coordinator. Records up to ``position`` are kept when it begins.

    ``linger_s`` is how long a record that nobody waits for may wait for others to be written with it, 0 for not at
    all. ``write_s`` is how long the last write took that took time.
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
        """Whether a write is put off."""
        return self._lingering is not None

    @property
    def next_due(self) -> float:
        """When there is something to do by then at the latest, ``writes`` or ``stall_due``; infinite for never."""
        if self.failed:
            return math.inf
        return min(self._look_at, self._lingering.until_s if self._lingering is not None else math.inf)

    # Writing

    def writes(self, work: PendingRecords, now: float) -> bool:
        """Whether a write begins now."""
        if self.failed or self.writing or not work.awaits_saving:
            return False
        if work.hurries or self._wanted > self.kept_position:
            return True
        return not (self._linger_s and self._put_off(work, now))

    def _put_off(self, work: PendingRecords, now: float) -> bool:
        """Whether the write waits for more to write along: a proposal's record can go with its ballots'.

        As long as more comes, but for a limit: a write that begins just before a decision would hold that up.
        Where nothing is deliberated, for all of that limit: a late ballot goes with the next decision, in one commit.
        """
        since_s = now
        if self._lingering is not None:
            since_s, until_s, position = self._lingering
            if now < until_s:
                return True
            if work.position == position or now - since_s >= LINGERS_MAX * self._linger_s:
                return False
        longest_s = self._linger_s * (1 if work.deliberates else LINGERS_MAX)
        self._lingering = _Linger(since_s, now + longest_s, work.position)
        return True

    def hurry(self, position: int) -> None:
        """Somebody waits until the record at ``position`` is kept."""
        self._wanted = max(self._wanted, position)

    def began(self, position: int, now: float) -> None:
        """A write of all up to ``position`` is under way."""
        self._began_s, self._lingering = now, None
        self._look_at = min(self._look_at, now + TROUBLE_CHECK_S)

    def written(self, position: int, now: float) -> None:
        """All up to ``position`` is kept: by the write that began, or at once where that takes no time."""
        if self._began_s is not None:
            self.write_s = now - self._began_s
        self.kept_position = position
        self._began_s = self._lingering = None
        self._look_at = (
            now if self._stalled else math.inf
        )  # who heard of a stall hears at once that it is over

    def fail(self) -> None:
        """A write failed for good: nothing is written after a gap."""
        self.failed = True

    # Stalls

    def stall_due(self, now: float) -> bool:
        """Whether it is time to look whether the write stalls; see ``looked``."""
        return not self.failed and now >= self._look_at

    def looked(self, now: float, owed: Collection[str], *, stalls: bool) -> set[str]:
        """Who is to hear how it is now, of the sessions that are ``owed`` something.

        Each hears once that nothing can be kept, and once that it can be again: how long it waits is its own to say.
        """
        told = set(owed) - self._stalled if stalls else self._stalled
        self._stalled = self._stalled | told if stalls else set()
        self._look_at = now + TROUBLE_CHECK_S if self.writing or self._stalled else math.inf
        return told
