"""The hash chain of a journal: each row's hash covers all rows before it (rules 4.5).

A Merkle tree (RFC 6962) over the same rows proves the place of one row without the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

HASH_BYTES = 32
GENESIS = bytes(HASH_BYTES)  # the hash before the first row


class Head(NamedTuple):
    """The last row of a journal: its position, and its hash, which covers everything up to it."""

    position: int = 0
    row_hash: bytes = GENESIS


class JournalRow(NamedTuple):
    """One stored row of a journal. ``content`` is the packet's canonical bytes."""

    position: int
    epoch: int
    previous_hash: bytes
    content_hash: bytes
    row_hash: bytes
    content: bytes


def content_hash(content: bytes) -> bytes:
    """The hash of a packet's canonical bytes."""
    return sha256(content).digest()


def row_hash(previous_hash: bytes, position: int, epoch: int, content_hash: bytes) -> bytes:
    """The hash of a row: SHA-256 of the previous row's hash, position and epoch (8 bytes each), content's hash."""
    place = position.to_bytes(8, "big") + epoch.to_bytes(8, "big")
    return sha256(previous_hash + place + content_hash).digest()


def misfit(row: Any, after: Head | None = None) -> str:
    """The reason why a row with the columns of JournalRow does not fit its own hashes; empty if it does.

    If ``after`` is given, the row before it: also the reason why it does not follow that row.
    """
    if after is not None and row.position != after.position + 1:
        return (
            f"it comes right after record {after.position}: record {after.position + 1} is missing or moved"
        )
    if type(row.content) is not bytes or content_hash(row.content) != row.content_hash:
        return "its content does not fit its content_hash: one of them was changed"
    if after is not None and row.previous_hash != after.row_hash:
        return (
            "its previous_hash is not the hash of the record before it: one of the two was inserted, changed or "
            "replaced, or one between them was removed"
        )
    numbers = all(type(each) is int and each > 0 for each in (row.position, row.epoch))
    if (
        not numbers
        or type(row.previous_hash) is not bytes
        or row_hash(row.previous_hash, row.position, row.epoch, row.content_hash) != row.row_hash
    ):
        return "its row_hash does not fit its place, epoch and content: one of them was changed"
    return ""


# Different first bytes, so that a leaf can't be taken for an inner node.
_LEAF, _NODE = b"\x00", b"\x01"
EMPTY_ROOT = sha256(b"").digest()


class Tree:
    """The Merkle tree over the first ``size`` rows of a journal. It holds only the ``peaks``.

    These are the roots of its complete subtrees, the largest first: about 20 hashes for a million rows.
    """

    __slots__ = ("_peaks", "size")

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size = size
        self._peaks = list(peaks)
        if size < 0 or len(self._peaks) != size.bit_count() or any(len(p) != HASH_BYTES for p in self._peaks):
            raise ValueError(f"a tree of {size} rows has {abs(size).bit_count()} peaks of {HASH_BYTES} bytes")

    @property
    def peaks(self) -> tuple[bytes, ...]:
        """The state from which it can be continued: ``Tree(size, peaks)``."""
        return tuple(self._peaks)

    def append(self, row_hash: bytes) -> None:
        """Adds a row."""
        node = sha256(_LEAF + row_hash).digest()
        peaks, size = self._peaks, self.size
        self.size = size + 1
        while size & 1:
            node = sha256(_NODE + peaks.pop() + node).digest()
            size >>= 1
        peaks.append(node)

    def root(self) -> bytes:
        """The hash that covers every row."""
        if not self._peaks:
            return EMPTY_ROOT
        *larger, node = self._peaks
        for peak in reversed(larger):
            node = sha256(_NODE + peak + node).digest()
        return node


def inclusion(row_hashes: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """The path from row ``index``, counted from 0, to the root of the tree over all ``row_hashes``.

    Raises IndexError if there is no such row.
    """
    if not 0 <= index < len(row_hashes):
        raise IndexError(f"row {index} of {len(row_hashes)}")
    level = [sha256(_LEAF + each).digest() for each in row_hashes]
    path = []
    while len(level) > 1:
        if index ^ 1 < len(level):  # the last of an odd number has no neighbour, so it moves up unchanged
            path.append(level[index ^ 1])
        odd = level[-1:] if len(level) % 2 else []
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [sha256(_NODE + left + right).digest() for left, right in pairs] + odd
        index //= 2
    return tuple(path)


def rooted(row_hash: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """The root of the tree of ``size`` rows, computed by ``path`` from row ``index``, counted from 0.

    Raises ValueError if the path does not have that row's length.
    """
    if not 0 <= index < size:
        raise ValueError(f"row {index} is not among {size}")
    node = sha256(_LEAF + row_hash).digest()
    left = list(path)
    while size > 1:
        if index ^ 1 < size:
            if not left:
                raise ValueError("the path is too short")
            other = left.pop(0)
            node = sha256(_NODE + (other + node if index & 1 else node + other)).digest()
        index, size = index // 2, (size + 1) // 2
    if left:
        raise ValueError("the path is too long")
    return node
