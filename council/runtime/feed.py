"""The numbered announcements, for watchers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import compress, islice
from typing import Any

import msgspec

from council.core import effects as do
from council.core.state import plain
from council.kinds.table import ANNOUNCED
from council.protocol.errors import PositionLost

_ENCODER = msgspec.msgpack.Encoder()
# Counts of decisions besides their outcomes.
WAYS = ("early", "tie_broken", "degraded")
# Announcements that are kept have this many bytes at most, and each this many beside its own.
BYTES_MAX, EVENT_BYTES = 4 * 2**20, 150
# The most refusals that are announced in a minute; a fault in a client shows in the first few.
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
    """Keeps a flood of refusals from pushing everything else out of the feed: those above the limit are only counted.

    It uses the times of the events, so a replay has the same result.
    """

    def __init__(self, from_s: float, told: int = 0) -> None:
        self._from_s = from_s
        self._told = told

    def now(self) -> tuple[float, int]:
        """The arguments that make an equal one."""
        return self._from_s, self._told

    def admit(self, why: str, uptime_s: float) -> str | None:
        """The text to announce for a refusal; None if there were too many within this minute."""
        if uptime_s >= self._from_s + 60.0:
            self._from_s, self._told = uptime_s, 0
        self._told += 1
        if self._told > REFUSALS_TOLD_MAX:
            return None
        if self._told == REFUSALS_TOLD_MAX:
            return f"{why} (more within this minute are counted, not told)"
        return why


class _Kept(msgspec.Struct, frozen=True, gc=False):
    """An announcement, packed: thousands of these are kept, and the garbage collector need not look at them."""

    at: float
    position: int
    kind: type[do.Effect]
    packed: bytes

    @property
    def size(self) -> int:
        return len(self.packed) + EVENT_BYTES

    def effect(self) -> do.Effect:
        return msgspec.msgpack.decode(self.packed, type=self.kind)


class Feed:
    """The last ``kept_max`` announcements, packed, while these have few bytes; the newest in any case.

    They are numbered from 1, and ``position`` is the number of the newest. Clients know this number as the ``cursor``
    of an event, because the event's ``position`` is that of its record in the journal.
    """

    def __init__(self, kept_max: int, bytes_max: int = BYTES_MAX) -> None:
        self.position = 0
        self._kept: deque[_Kept] = deque()
        self._kept_max, self._bytes_max = kept_max, bytes_max
        self._bytes = self._new = self._new_bytes = 0
        # Called each time that half of it is new, so that a watcher misses nothing.
        self.watchers: list[Callable[[], None]] = []

    def newest(self, count: int) -> list[tuple[float, do.Effect]]:
        """The newest ``count`` announcements, or as many as are kept, oldest first, each with its time."""
        return [(kept.at, kept.effect()) for kept in islice(reversed(self._kept), count)][::-1]

    def append(self, wall_s: float, effect: do.Effect, position: int) -> None:
        """Appends the announcement of an effect of the journal's record at ``position``."""
        self.position += 1
        kept = _Kept(wall_s, position, type(effect), _ENCODER.encode(effect))
        self._kept.append(kept)
        self._bytes += kept.size
        while len(self._kept) > self._kept_max or (self._bytes > self._bytes_max and len(self._kept) > 1):
            self._bytes -= self._kept.popleft().size
        self._new, self._new_bytes = self._new + 1, self._new_bytes + kept.size
        if 2 * self._new >= self._kept_max or 2 * self._new_bytes >= self._bytes_max:
            self._new = self._new_bytes = 0
            for look in self.watchers:
                look()

    def after(self, cursor: int, limit: int) -> list[dict[str, Any]]:
        """Up to ``limit`` events after ``cursor``, as plain data: cursor, position, at (Unix seconds), kind, data.

        ``position`` is that of the event's record in the journal; events of one record have the same. Raises
        PositionLost if some of those events are not kept any more.
        """
        oldest = self.position - len(self._kept) + 1
        lost = ""
        if cursor > self.position:
            lost = f"the newest is {self.position}: this council never had them"
        elif cursor + 1 < oldest:
            lost = f"the oldest kept is {oldest}"
        if lost:
            why = f"events after cursor {cursor} were asked for, but {lost}"
            raise PositionLost(why, asked=cursor, oldest=oldest)
        first = cursor + 1 - oldest
        found = []
        for number, kept in enumerate(islice(self._kept, first, first + limit), cursor + 1):
            data, kind = plain(kept.effect()), ANNOUNCED[kept.kind].kind
            place = {"cursor": number, "position": kept.position}
            found.append({**place, "at": kept.at, "kind": kind, "data": data})
        return found
