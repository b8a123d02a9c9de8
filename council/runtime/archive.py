"""The decided proposals, as the core looks them up: the newest in memory, the others in snapshots on disk.

What is away is known by the hash of its id. A step looks up decided proposals only under the ids that its event
names (``core.events.names``): the shell takes back those that are away before it steps, so that the core sees a
map of all decisions, and a replay has the same effects whatever was in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, MutableMapping
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

import msgspec

from council.core.state import Closed
from council.protocol.errors import InternalError, StoreCorrupt
from council.runtime.hash_index import KEY_BYTES, HashIndex, key_of, keys_of

# The position of the snapshot that holds a decided proposal; 0 where none does, as it is forgotten.
_PLACE_BYTES = 6
FORGOTTEN = 0
# Decided proposals that are read back stay in memory until there are so many, or a snapshot is kept.
TAKEN_BACK_MAX = 1_000


class Decided(msgspec.Struct):
    """Decided proposals as a snapshot holds them, each packed by itself."""

    closed: dict[str, bytes]


class Away(NamedTuple):
    """A decided proposal that is not in memory, and the snapshot that holds it."""

    proposal_id: str
    position: int


class Part(NamedTuple):
    """What one snapshot adds to an archive: ``decided`` as it is kept, its hash, and the keys of what is in it."""

    keys: bytes
    hash: bytes
    decided: bytes


_ENCODER = msgspec.msgpack.Encoder()
_CLOSED = msgspec.msgpack.Decoder(Closed)
_DECIDED = msgspec.msgpack.Decoder(Decided)


class Archive(MutableMapping[str, Closed]):
    """Decided proposals: those since the last snapshot as they are, those of the last one packed, older ones away.

    Its length and its iteration are of what is in memory.
    """

    def __init__(self) -> None:
        self._fresh: OrderedDict[str, Closed] = OrderedDict()
        self._packed: dict[str, tuple[int, bytes]] = {}
        self._away = HashIndex(_PLACE_BYTES)
        self._hashes: dict[int, bytes] = {}
        self._taken_back = 0
        self.kept_to = 0
        self._earlier: Earlier | None = None

    def __getitem__(self, proposal_id: str) -> Closed:
        found = self.get(proposal_id)
        if found is None:
            raise KeyError(proposal_id)
        return found

    def __contains__(self, proposal_id: object) -> bool:
        return isinstance(proposal_id, str) and self.get(proposal_id) is not None

    def get(self, proposal_id: str, default: Closed | None = None) -> Closed | None:  # type: ignore[override]
        """Raises InternalError for one that is away: taken for unknown, it could be decided anew."""
        fresh = self._fresh.get(proposal_id)
        if fresh is not None:
            return fresh
        packed = self._packed.get(proposal_id)
        if packed is not None:
            return _CLOSED.decode(packed[1])
        if proposal_id in self._away:
            raise InternalError(f"{proposal_id} is decided, and was not taken back before it was looked up")
        return default

    def __setitem__(self, proposal_id: str, closed: Closed) -> None:
        if self._earlier is not None:
            self._earlier.was.setdefault(proposal_id, self.get(proposal_id))
        self._fresh[proposal_id] = closed

    def __delitem__(self, proposal_id: str) -> None:
        raise TypeError("a decision is never forgotten")

    def __iter__(self) -> Iterator[str]:
        yield from self._packed
        yield from (each for each in self._fresh if each not in self._packed)

    def __len__(self) -> int:
        return len(self._packed) + sum(each not in self._packed for each in self._fresh)

    def frozen(self) -> Earlier:
        """How it is now, which stays so; costs what changes until the next one."""
        earlier = Earlier(self)
        if self._earlier is not None:
            self._earlier.then = earlier
        self._earlier = earlier
        return earlier

    # To disk and back

    def pack(self, position: int) -> Part:
        """Packs what is new or changed since the last time, for a snapshot at ``position``."""
        packed = {proposal_id: _ENCODER.encode(closed) for proposal_id, closed in self._fresh.items()}
        self._packed |= {proposal_id: (position, closed) for proposal_id, closed in packed.items()}
        self._fresh.clear()
        decided = _ENCODER.encode(Decided(packed)) if packed else b""
        part = Part(keys_of(packed), sha256(decided).digest(), decided)
        self._hashes[position] = part.hash
        return part

    def add(self, position: int, keys: bytes, hash: bytes) -> None:
        """Takes in what a snapshot of an earlier run added; later ones win. All of it is away."""
        place = position.to_bytes(_PLACE_BYTES)
        each = (keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES))
        self._away.add(b"".join(key + place for key in each))
        self._hashes[position] = hash

    def let_go(self, kept_to: int, pinned: Collection[str]) -> None:
        """The snapshot at ``kept_to`` is on disk: lets go of what older ones hold, but for what is ``pinned``."""
        self.kept_to, self._taken_back = kept_to, 0
        for proposal_id, (position, _) in list(self._packed.items()):
            if position < kept_to and proposal_id not in pinned:
                del self._packed[proposal_id]
                self._away.put(key_of(proposal_id), position.to_bytes(_PLACE_BYTES))

    def forget(self, kept_max: int, pinned: Collection[str]) -> None:
        """Without a store: of the decided proposals but the newest, knows only that they were decided."""
        for proposal_id in list(islice(self._fresh, max(len(self._fresh) - kept_max, 0))):
            if proposal_id not in pinned:
                del self._fresh[proposal_id]
                self._away.put(key_of(proposal_id), FORGOTTEN.to_bytes(_PLACE_BYTES))

    def holds(self, proposal_id: str) -> bool:
        """Whether a decided proposal is in memory."""
        return proposal_id in self._fresh or proposal_id in self._packed

    def away(self, proposal_id: str) -> Away | None:
        """Where a decided proposal is that is not in memory; None where it is, or was never decided."""
        if self.holds(proposal_id):
            return None
        place = self._away.get(proposal_id)
        return None if place is None else Away(proposal_id, int.from_bytes(place))

    def take_back(self, away: Away, decided: bytes, pinned: Collection[str]) -> None:
        """Has it in memory again, for a while. ``decided`` is what the snapshot holds, ``pinned`` as in ``let_go``.

        Raises StoreCorrupt where ``decided`` is not as it was.
        """
        proposal_id, position = away
        if sha256(decided).digest() != self._hashes[position]:
            raise StoreCorrupt(
                f"the decision on {proposal_id} can't be read back: the snapshot of record {position} is gone or was "
                "changed; start the council again, which then reads the journal's records instead",
                position=position,
            )
        if self._taken_back >= TAKEN_BACK_MAX:
            self.let_go(self.kept_to, pinned)
        if self.away(proposal_id) == away:  # or somebody else took it back, and it may have changed since
            self._packed[proposal_id] = position, _DECIDED.decode(decided).closed[proposal_id]
            self._taken_back += 1


class Earlier:
    """An archive as it was: what has changed ``was`` so, and all else is as it is ``then``, a while later."""

    def __init__(self, now: Archive) -> None:
        self.was: dict[str, Closed | None] = {}
        self.then: Archive | Earlier = now

    def get(self, proposal_id: str) -> Closed | None:
        return self.was[proposal_id] if proposal_id in self.was else self.then.get(proposal_id)
