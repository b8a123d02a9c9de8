"""Message ids: 16 lower-case hex digits, a moment and chance (rules 1.15). Knows nothing of who needs one.

Ids of one moment begin alike, so that what is kept by id stands together: an index over ids of pure chance is
written all over with each commit, which takes three times the time. The moment comes round every 18 minutes, so
that in a long journal ids are as seldom the same as if all 64 bits were chance.
"""

from __future__ import annotations

import os
import time

CHANCE_BYTES = 6
# Moments of 2**24 ns, some 17 ms; 2**16 of them are told apart.
_MOMENT_BITS, _MOMENTS = 24, 2**16
# So many are drawn from the system at a time: a draw costs as much as signing a ballot.
_DRAWN = 128

_left: list[str] = []
if hasattr(os, "register_at_fork"):  # a child process must not hand out what its parent has drawn
    os.register_at_fork(after_in_child=_left.clear)


def new_id() -> str:
    """An id that nobody else has: 16 bits of the time, 48 of chance from the system's own source."""
    while True:
        try:
            chance = _left.pop()
        except IndexError:  # also where another thread took the last one
            drawn, width = os.urandom(CHANCE_BYTES * _DRAWN).hex(), 2 * CHANCE_BYTES
            _left.extend(drawn[at : at + width] for at in range(0, len(drawn), width))
        else:
            return f"{(time.time_ns() >> _MOMENT_BITS) % _MOMENTS:04x}{chance}"
