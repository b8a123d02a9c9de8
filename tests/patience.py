"""How long a test waits for what must come: so long that the limit ends a hang, on any machine, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

HANG_S = 900.0
T = TypeVar("T")


def until(what: Callable[[], T], said: str = "it did not come about") -> T:
    """What ``what`` gives, once that is true; asks again and again."""
    ends_s = time.monotonic() + HANG_S
    while not (found := what()):
        assert time.monotonic() < ends_s, said
        time.sleep(0.05)
    return found
