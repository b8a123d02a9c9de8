"""Message ids: 16 lower-case hex digits, made of time and random bits (rules 1.15).

Ids of one moment begin alike, so rows that are stored by id stand together. With fully random ids each commit writes
to pages all over the index, and takes three times as long. The time repeats every 18 minutes. So in a long journal
ids collide as rarely as with 64 random bits.
"""

from __future__ import annotations

import secrets
import time

# A moment is 2**24 ns, about 17 ms. An id distinguishes 2**16 of them.
_MOMENT_BITS, _MOMENTS = 24, 2**16


def new_id() -> str:
    """A unique id: 16 bits of time, 48 random bits from the operating system."""
    return f"{(time.time_ns() >> _MOMENT_BITS) % _MOMENTS:04x}{secrets.token_hex(6)}"
