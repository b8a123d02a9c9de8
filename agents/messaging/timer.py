"""One timer for many deadlines of one event loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Timer:
    """Calls ``wake`` when the earliest time that was set has come. It is unset before that call."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._at_s = math.inf
        self._handle: asyncio.Handle | None = None

    @property
    def is_set(self) -> bool:
        return self._at_s < math.inf

    def set(self, at_s: float) -> None:
        """Wakes at ``at_s`` by the loop's clock, unless an earlier time is set; infinite means never."""
        if at_s < self._at_s:
            self.cancel()
            self._at_s, self._handle = at_s, asyncio.get_running_loop().call_at(at_s, self._ring)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._at_s, self._handle = math.inf, None

    def _ring(self) -> None:
        self._at_s, self._handle = math.inf, None
        self._wake()
