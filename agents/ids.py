"""Message ids: random, 16 lower-case hex digits (rules 1.15). Knows nothing of who needs one."""

from __future__ import annotations

import os

ID_BYTES = 8
# So many are drawn from the system at a time: a draw costs as much as signing a ballot.
_DRAWN = 128

_left: list[str] = []
if hasattr(os, "register_at_fork"):  # a child process must not hand out what its parent has drawn
    os.register_at_fork(after_in_child=_left.clear)


def new_id() -> str:
    """An id that nobody else has: 64 random bits, from the system's own source."""
    while True:
        try:
            return _left.pop()
        except IndexError:  # also where another thread took the last one
            drawn, width = os.urandom(ID_BYTES * _DRAWN).hex(), 2 * ID_BYTES
            _left.extend(drawn[at : at + width] for at in range(0, len(drawn), width))
