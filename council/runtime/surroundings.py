"""What a coordinator is handed: where it has the time from, its way to the seats, what measures. Holds no rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from council.protocol.errors import CouncilError
from council.protocol.signing import Keyring


@dataclass(frozen=True, slots=True)
class Clock:
    """Where the shell has the time from: monotonic seconds of uptime, and Unix seconds."""

    uptime: Callable[[], float]
    wall: Callable[[], float]

    def now(self) -> tuple[float, float]:
        return self.uptime(), self.wall()

    def going_on(self, from_s: float) -> Clock:
        """This clock, its uptime going on from ``from_s``: time while the council was down does not count."""
        ahead_s = from_s - self.uptime()
        # Never below it, by no rounding either: the core takes no time that falls.
        return Clock(uptime=lambda: max(from_s, self.uptime() + ahead_s), wall=self.wall)


class Link(Protocol):
    """A way to a seat. What waits there, because the seat takes none of it, has a length and ``waiting_bytes``."""

    waiting_bytes: int

    def send(self, item: bytes) -> None:
        """Carries a letter to the seat, now or with others of this turn of the loop."""

    def drop(self) -> object:
        """Forgets what waits."""

    def __len__(self) -> int: ...


class Transport(Protocol):
    """How seats are reached. A coroutine may raise whatever its transport raises when a seat is gone."""

    def link(
        self, seat: str, heard: Callable[[Sequence[bytes]], None], lost: Callable[[Exception], None]
    ) -> Link:
        """The way to a seat. ``heard`` is given what seats say, ``lost`` why this one can't be reached."""

    async def attend(self, seat: str, boot: int) -> None:
        """Has the seat beat as run ``boot``; lasts until the seat is gone."""

    async def revive(self, seat: str) -> None:
        """Makes sure that the seat exists again."""

    async def close(self) -> None:
        """Ends all seats."""


class Fitting(Protocol):
    """Measures proposals before they are taken in (rules 2.2)."""

    async def problems(
        self, batch: Sequence[bytes], keyring: Keyring, council_id: str
    ) -> Mapping[bytes, CouncilError]:
        """Of these sealed envelopes those that are proposals which no seat can be shown, each with why."""
