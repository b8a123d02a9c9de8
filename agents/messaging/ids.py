"""Message ids: 16 lower-case hex digits, made of time and random bits (rules 1.15).

Ids of one moment begin alike, so rows that are stored by id stand together. With fully random ids each commit writes
to pages all over the index, and takes three times as long. The time repeats every 18 minutes. So in a long journal
ids collide as rarely as with 64 random bits.
"""

from __future__ import annotations

import os
import time

CHANCE_BYTES = 6
# A moment is 2**24 ns, about 17 ms. An id distinguishes 2**16 of them.
_MOMENT_BITS, _MOMENTS = 24, 2**16
# So many random values are read from the system at once: one read costs as much as signing a ballot.
_DRAWN = 128

_left: list[str] = []
if hasattr(os, "register_at_fork"):  # a child process must not use the values that its parent has read
    os.register_at_fork(after_in_child=_left.clear)


def new_id() -> str:
    """A unique id: 16 bits of time, 48 random bits from the operating system."""
    while True:
        try:
            chance = _left.pop()
        except IndexError:  # also if another thread took the last one
            drawn, width = os.urandom(CHANCE_BYTES * _DRAWN).hex(), 2 * CHANCE_BYTES
            _left.extend(drawn[at : at + width] for at in range(0, len(drawn), width))
        else:
            return f"{(time.time_ns() >> _MOMENT_BITS) % _MOMENTS:04x}{chance}"
