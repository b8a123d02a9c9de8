"""What was announced, numbered, for those who watch. Knows nothing of who they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import compress, islice
from typing import Any

from council.core import effects as do
from council.core.state import plain
from council.kinds.table import ANNOUNCED
from council.protocol.errors import PositionLost

# What is counted of decisions beside their outcomes.
WAYS = ("early", "tie_broken", "degraded")
# Refusals that watchers are told of in a minute; a fault in a client shows in the first few.
REFUSALS_TOLD_MAX = 200


def ways_of(effect: do.Effect) -> Iterable[str]:
    """The words that an announcement counts under, beside a decision's outcome."""
    match effect:
        case do.AnnounceBallot(late=True):
            return ["late"]
        case do.AnnounceDecision(decision):
            return compress(WAYS, (decision.early, decision.tie_break, decision.degraded))
    return ()


def touched(effects: Iterable[do.Effect]) -> frozenset[str]:
    """The proposals that these are about."""
    return frozenset(
        part.proposal_id
        for effect in effects
        for part in (effect, *(getattr(effect, name) for name in effect.__struct_fields__))
        if hasattr(part, "proposal_id")
    )


class Flood:
    """Keeps a flood of garbage from pushing everything else out of the feed: what is above is counted only.

    Goes by the moments of what it is handed, so that a replay tells the same.
    """

    def __init__(self, from_s: float, told: int = 0) -> None:
        self._from_s = from_s
        self._told = told

    def now(self) -> tuple[float, int]:
        """What makes another one like this."""
        return self._from_s, self._told

    def admit(self, why: str, uptime_s: float) -> str | None:
        """What is told of a refusal; None where there were too many within this minute."""
        if uptime_s >= self._from_s + 60.0:
            self._from_s, self._told = uptime_s, 0
        self._told += 1
        if self._told > REFUSALS_TOLD_MAX:
            return None
        if self._told == REFUSALS_TOLD_MAX:
            return f"{why} (more within this minute are counted, not told)"
        return why


class Feed:
    """The last ``kept_max`` announcements; ``position`` is the number of the newest, counted from 1."""

    def __init__(self, kept_max: int) -> None:
        self.position = 0
        self._kept: deque[tuple[float, do.Effect]] = deque(maxlen=kept_max)
        self._half = (kept_max + 1) // 2
        # Asked to look each time that half of it is new, so that whoever looks now and then misses nothing.
        self.watchers: list[Callable[[], None]] = []

    def newest(self, count: int) -> list[tuple[float, do.Effect]]:
        """The newest ``count`` announcements, or as many as are kept, oldest first, each with its time."""
        return [*islice(reversed(self._kept), count)][::-1]

    def append(self, wall_s: float, effect: do.Effect) -> None:
        self.position += 1
        self._kept.append((wall_s, effect))
        if self.position % self._half == 0:
            for look in self.watchers:
                look()

    def after(self, position: int, limit: int) -> list[dict[str, Any]]:
        """Up to ``limit`` events after ``position``, as plain data: position, at (Unix seconds), kind, data.

        Raises PositionLost if some of them are kept no more.
        """
        oldest = self.position - len(self._kept) + 1
        if position > self.position:
            raise PositionLost(
                f"events after position {position} were asked for, but the newest is {self.position}: "
                "this council never had them",
                asked=position,
                oldest=oldest,
            )
        if position + 1 < oldest:
            raise PositionLost(
                f"events after position {position} were asked for, but the oldest kept is {oldest}",
                asked=position,
                oldest=oldest,
            )
        first = position + 1 - oldest
        found = []
        for index in range(first, min(first + limit, len(self._kept))):
            wall_s, effect = self._kept[index]
            kind = ANNOUNCED[type(effect)].kind
            found.append({"position": oldest + index, "at": wall_s, "kind": kind, "data": plain(effect)})
        return found
