"""What the oracle was told, by the journal's positions: so that what a crash undid is undone in it too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sim.oracle import Oracle

Told = tuple[int, int, str, tuple[Any, ...]]


class Memory:
    """An oracle, and how it came to think what it does."""

    def __init__(self, make: Callable[[], Oracle]) -> None:
        self._make = make
        self._told: list[Told] = []
        self.oracle = make()

    def tell(self, before: int, after: int, what: str, *args: Any) -> Any:
        """Tells the oracle of something that took the journal from one position to another. Its answer."""
        self._told.append((before, after, what, args))
        return getattr(self.oracle, what)(*args)

    def cut(self, position: int) -> float:
        """Forgets what the journal has lost behind ``position``; gives the uptime of the last record in it.

        Of what time brought in one go the journal may have kept the beginning; what it brought came before
        whatever woke the council. What was said to others stays said.
        """
        old, self.oracle = self.oracle, self._make()
        told, self._told = self._told, []
        uptime_s = 0.0
        for before, after, what, args in told:
            if before >= position and after > position:
                break
            now = args[:2] if what == "pass_time" else args[-2:]
            if after > position:
                what, args, after = "pass_time", (*now, position - before), position
            self.tell(before, after, what, *args)
            if after > before:
                uptime_s = now[0]
        new = self.oracle
        new.told, new.votes, new.reached = old.told, old.votes, old.reached
        new.to_hand.clear()  # it was handed over, or lost with its coordinator
        new.to_ask.clear()
        new.to_relay.clear()
        new.to_halt.clear()
        new.dirty |= new.cases.keys()
        return uptime_s
