"""How the rows of a journal hold on to each other: one hash for each, over all before it (rules 4.5).

Knows nothing of where rows are kept.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

HASH_BYTES = 32
GENESIS = bytes(HASH_BYTES)  # stands before the first row


class Head(NamedTuple):
    """The last row of a journal: its position, and the hash that speaks for everything up to it."""

    position: int = 0
    row_hash: bytes = GENESIS


class JournalRow(NamedTuple):
    """One row of a journal, as it is kept. ``content`` are the packet's canonical bytes."""

    position: int
    epoch: int
    previous_hash: bytes
    content_hash: bytes
    row_hash: bytes
    content: bytes


def content_hash(content: bytes) -> bytes:
    """The hash of a packet's canonical bytes."""
    return hashlib.sha256(content).digest()


def row_hash(previous_hash: bytes, position: int, epoch: int, content_hash: bytes) -> bytes:
    """The hash of a row: SHA-256 of the previous row's, the position and epoch as 8 bytes each, the content's."""
    place = position.to_bytes(8, "big") + epoch.to_bytes(8, "big")
    return hashlib.sha256(previous_hash + place + content_hash).digest()
