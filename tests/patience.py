"""How long a test waits for what must come.

A limit ends a hang, on any machine, and nothing else. What is to take a limit's time runs in virtual time, or with a
clock that the test moves: no test asserts on a clock (tests/test_layout.py).
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any, TypeVar

HANG_S = 300.0
ROUND_S = 3 * HANG_S  # for a program of many waits, each of which has its limit
GROWTH_MAX = 32.0  # of ``growth``: four times that of a single pass, half that of one pass for each character
T = TypeVar("T")


def until(what: Callable[[], T], said: str = "it did not come about") -> T:
    """What ``what`` gives, once that is true; asks again and again."""
    ends_s, pause_s = time.monotonic() + HANG_S, 0.002
    while not (found := what()):
        assert time.monotonic() < ends_s, f"{said}; at last it was {found!r}"
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)
    return found


def growth(read: Callable[[str], object], text: str) -> float:
    """How many times as much CPU time reading a text takes as reading an eighth of it.

    About 8 where a reader goes over its text once, 64 where it begins anew at each character. The
    least of three tries counts, so that other work of the machine does not. If the first try is fast
    enough, it is the only one.
    """
    part = text[: len(text) // 8]

    def spent_s(what: str) -> float:
        began_s = time.process_time()
        read(what)
        return time.process_time() - began_s

    read(part)
    part_s = min(spent_s(part) for _ in range(3))
    found = spent_s(text) / max(part_s, 0.001)
    for _ in range(2):
        if found < GROWTH_MAX:
            break
        found = min(found, spent_s(text) / max(part_s, 0.001))
    return found


class _Instant(selectors.SelectSelector):
    """Never waits: what it is asked to wait for has passed, as far as its loop can tell."""

    waited_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everything waits, and nothing will ever happen")
        self.waited_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is what its timers make it."""

    def __init__(self) -> None:
        self._instant = _Instant()
        super().__init__(self._instant)
        self.complaints: list[str] = []
        self.set_exception_handler(lambda _, what: self.complaints.append(str(what)))

    def time(self) -> float:
        return self._instant.waited_s


class _UntilSilent(selectors.SelectSelector):
    """Waits for what may still come. Only when nothing can come, the time to wait for has passed."""

    waited_s = 0.0

    def __init__(self, silent: Callable[[], bool]) -> None:
        super().__init__()
        self._silent = silent

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ends_s = time.monotonic() + HANG_S
        while time.monotonic() < ends_s:
            silent = self._silent()  # asked first: what was sent before is found now
            if found := super().select(0.01):
                return found
            if silent:
                self.waited_s += timeout
                return []
        raise RuntimeError("nothing came, and nothing fell silent")


class SilenceLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while ``silent()``: while nothing comes from another thread or process."""

    def __init__(self, silent: Callable[[], bool]) -> None:
        self._until_silent = _UntilSilent(silent)
        super().__init__(self._until_silent)

    def time(self) -> float:
        return self._until_silent.waited_s
