"""The parts that a coordinator gets from outside: its clock, and the transport to the seats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks of the shell: monotonic seconds of uptime, and Unix seconds."""

    uptime: Callable[[], float]
    wall: Callable[[], float]

    def now(self) -> tuple[float, float]:
        return self.uptime(), self.wall()

    def going_on(self, from_s: float) -> Clock:
        """This clock, its uptime continuing from ``from_s``: time while the council was down does not count."""
        ahead_s = from_s - self.uptime()
        # Rounding must not take it below ``from_s``: the core refuses time that goes back.
        return Clock(uptime=lambda: max(from_s, self.uptime() + ahead_s), wall=self.wall)


class Link(Protocol):
    """A way to a seat. Its length and ``waiting_bytes`` are those of messages that the seat has not taken."""

    waiting_bytes: int

    def send(self, item: bytes) -> None:
        """Carries a message to the seat, now or with others of this turn of the loop."""

    def drop(self) -> object:
        """Drops the waiting messages."""

    def __len__(self) -> int: ...


class Transport(Protocol):
    """The connection to the seats. A coroutine may raise its transport's errors if a seat is gone."""

    def link(
        self, seat: str, heard: Callable[[Sequence[bytes]], None], lost: Callable[[Exception], None]
    ) -> Link:
        """The way to a seat. ``heard`` gets the seats' messages, ``lost`` the error if this seat can't be reached."""

    async def attend(self, seat: str, boot: int) -> None:
        """Makes the seat send heartbeats as run ``boot``. Returns when the seat is gone."""

    async def revive(self, seat: str) -> None:
        """Makes sure that the seat exists again."""

    async def close(self) -> None:
        """Ends all seats."""
