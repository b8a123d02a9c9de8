"""The ids that a council has used, as hashes (rules 1.15), so that no decision waits for a read from the store.

``HashIndex`` is a compact map from texts to values of one size. An entry takes 20 to 40 bytes, and in a dict 200. It
holds a 96-bit hash of each text, not the text, so entries can be looked up but not listed. Two texts with the same
hash are too unlikely to matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import blake2b

KEY_BYTES = 12
# Of a message's digest this much is kept: no sender can make two messages that have it in common.
_DIGEST_BYTES = 16
# As many at most. A lookup reads one of these from end to end: some hundred entries after 100,000 decisions.
BUCKETS = 4_096


def key_of(text: str) -> bytes:
    """The key of a text: its hash."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


class HashIndex:
    """Values of ``value_bytes`` each."""

    def __init__(self, value_bytes: int) -> None:
        self._size = KEY_BYTES + value_bytes
        self._buckets: defaultdict[int, bytearray] = defaultdict(bytearray)

    def get(self, text: str) -> bytes | None:
        bucket, at = self._place(key_of(text))
        return None if at < 0 else bytes(bucket[at + KEY_BYTES : at + self._size])

    def __contains__(self, text: str) -> bool:
        return self._place(key_of(text))[1] >= 0

    def insert(self, key: bytes, value: bytes) -> bool:
        """Adds an entry under ``key_of`` a text, unless the key has one. Returns whether it did."""
        bucket, at = self._place(key)
        if at >= 0:
            return False
        bucket += key + value
        return True

    def put(self, key: bytes, value: bytes) -> None:
        """Adds an entry under ``key_of`` a text, or replaces its value."""
        bucket, at = self._place(key)
        if at < 0:
            bucket += key + value
        else:
            bucket[at + KEY_BYTES : at + self._size] = value

    def add(self, packed: bytes) -> None:
        """Adds entries from one string of bytes, each a key and its value.

        If a key occurs twice, the last entry counts.
        """
        buckets, size = self._buckets, self._size
        for at in range(0, len(packed), size):
            buckets[int.from_bytes(packed[at : at + 2]) % BUCKETS] += packed[at : at + size]

    def _place(self, key: bytes) -> tuple[bytearray, int]:
        """The bucket of a key, and the offset of its last entry in it; -1 if there is none."""
        bucket = self._buckets[int.from_bytes(key[:2]) % BUCKETS]
        at = bucket.rfind(key)
        while at >= 0 and at % self._size:  # a part of one entry and the next
            at = bucket.rfind(key, 0, at + KEY_BYTES - 1)
        return bucket, at


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
        """Whether the id was used for a message with another digest."""
        known = self._index.get(msg_id)
        return known is not None and known != _shortened(digest)

    def add(self, msg_id: str, digest: str) -> None:
        """Records that the id is used for a message with this digest, in hex; empty for none.

        The first use counts.
        """
        key, value = key_of(msg_id), _shortened(digest)
        if self._index.insert(key, value) and self._snapshots:
            self._new += key + value

    def take_new(self) -> bytes:
        """The entries since the last time."""
        new = bytes(self._new)
        self._new.clear()
        return new

    def restore(self, entries: bytes) -> None:
        """Adds the entries that an earlier ``take_new`` returned."""
        self._index.add(entries)


def entries_of(digests: Mapping[str, str]) -> bytes:
    """The entries of these ids, by id."""
    return b"".join(key_of(msg_id) + _shortened(digest) for msg_id, digest in digests.items())


def _shortened(digest: str) -> bytes:
    return bytes.fromhex(digest)[:_DIGEST_BYTES].ljust(_DIGEST_BYTES, b"\0")


def keys_of(texts: Iterable[str]) -> bytes:
    """The keys of these texts, joined."""
    return b"".join(map(key_of, texts))
