"""The ids of all messages that a council took in, so that each is used once (rules 1.15)."""

from __future__ import annotations

from collections.abc import Mapping

from council.runtime.hash_index import HashIndex, key_of

# Of a message's digest so much is kept: no sender can make two messages that have it in common.
_DIGEST_BYTES = 16


class UsedIds:
    """Ids with the digests of their messages, in some 30 bytes each.

    ``new`` are the entries since the last snapshot; without snapshots there are none.
    """

    def __init__(self, *, snapshots: bool) -> None:
        self._index = HashIndex(_DIGEST_BYTES)
        self._snapshots, self._new = snapshots, bytearray()

    def __contains__(self, msg_id: str) -> bool:
        return msg_id in self._index

    def differs(self, msg_id: str, digest: str) -> bool:
        """Whether the id is used, for a message of another digest."""
        known = self._index.get(msg_id)
        return known is not None and known != _shortened(digest)

    def add(self, msg_id: str, digest: str) -> None:
        """The id is used for a message of this digest, in hex; empty for none. What it was used for first counts."""
        key, value = key_of(msg_id), _shortened(digest)
        if self._index.insert(key, value) and self._snapshots:
            self._new += key + value

    def take_new(self) -> bytes:
        """The entries since the last time."""
        new = bytes(self._new)
        self._new.clear()
        return new

    def restore(self, entries: bytes) -> None:
        """Takes in what an earlier ``take_new`` gave."""
        self._index.add(entries)


def entries_of(digests: Mapping[str, str]) -> bytes:
    """The entries of these ids, by id."""
    return b"".join(key_of(msg_id) + _shortened(digest) for msg_id, digest in digests.items())


def _shortened(digest: str) -> bytes:
    return bytes.fromhex(digest)[:_DIGEST_BYTES].ljust(_DIGEST_BYTES, b"\0")
