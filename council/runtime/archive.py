"""The decided proposals of a council: the newest in memory, the others in its store.

Once decided, a proposal is seldom looked up: by the same proposal again, by a report, by a late ballot. So it moves:

1. *fresh*: as the core made it;
2. *packed*: as bytes. All that are packed together are a part, named by the position of the newest record. The next
   snapshot writes the part to the store;
3. *away*: in the store alone, once a later snapshot is there too. Memory has a hash of its id, and the part's name.

Without a store the oldest are *forgotten* instead: memory has the hashes of their ids.

The core sees a map of all decisions, and does no I/O. A step looks up decided proposals only under the ids that its
event names (``named_in``). Before a step, the shell calls ``away`` for each of these. If one is away, ``fetch`` reads
it from the store, and ``take_back`` puts it back into memory. So a replay has the same effects, whatever was in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from itertools import islice
from typing import NamedTuple

import msgspec

from council.core import events as ev
from council.core.state import Closed, Granted
from council.protocol.errors import InternalError, Refused, StoreCorrupt
from council.runtime.used_ids import KEY_BYTES, HashIndex, key_of

# A part has this many decided proposals at most: reading one of them back decodes its part.
PART_MAX = 1_000
# At most this many of the decisions that were read back stay in memory.
TAKEN_BACK_MAX = 1_000
# The name of a part; 0 for what is forgotten.
_NAME_BYTES = 6
FORGOTTEN = 0


class Away(NamedTuple):
    """A decided proposal that is not in memory, and the part that holds it."""

    proposal_id: str
    part: int


class Decided(msgspec.Struct):
    """A part as the store has it: decided proposals by id, each packed by itself."""

    closed: dict[str, bytes]


_ENCODER = msgspec.msgpack.Encoder()
_CLOSED = msgspec.msgpack.Decoder(Closed)
_DECIDED = msgspec.msgpack.Decoder(Decided)


# For these the core asks at most whether the proposal is decided, which memory knows. With a call under way it stays
# in memory.
# What is said of a token is looked up among the tokens.
_NOT_LOOKED_UP = (
    *(ev.UseAsked, ev.UseReported, ev.UseTimedOut, ev.TokenRevoked),
    *(ev.WorkFailed, ev.StreamObserved, ev.CallReserved, ev.CallSettled),
)


def named_in(event: ev.Event) -> list[str]:
    """The proposals that a step may look up for this event if they are decided."""
    if isinstance(event, _NOT_LOOKED_UP) or _is_of_token(event):
        return []
    about = event if hasattr(event, "proposal_id") else getattr(event, event.__struct_fields__[0])
    named = (getattr(about, name, None) for name in ("proposal_id", "supersedes", "agreed"))
    return [each for each in named if each]


def _is_of_token(event: ev.Event) -> bool:
    """Whether a human's answer, or its expiry, is about the outcome of a use of a token."""
    about = event.answer if isinstance(event, ev.HumanAnswered) else event
    return isinstance(getattr(about, "use", None), int)


class Archive(MutableMapping[str, Closed]):
    """Decided proposals by id. Iteration and length cover those in memory.

    ``read`` returns a part from the store. It blocks, may run in any thread, and raises StoreError. Without ``read``,
    that is without a store, ``kept_max`` decided proposals are kept; None means all.
    """

    def __init__(self, read: Callable[[int], bytes] | None = None, kept_max: int | None = None) -> None:
        self._read, self._kept_max = read, kept_max
        self._fresh: dict[str, Closed] = {}
        self._packed: dict[str, tuple[int, bytes]] = {}
        self._new_parts: dict[int, dict[str, bytes]] = {}
        self._away = HashIndex(_NAME_BYTES)
        self._taken_back = self._kept_to = self._old = 0
        self._earlier: Earlier | None = None

    # As the core sees it

    def __getitem__(self, proposal_id: str) -> Closed:
        found = self.get(proposal_id)
        if found is None:
            raise KeyError(proposal_id)
        return found

    def __contains__(self, proposal_id: object) -> bool:
        return isinstance(proposal_id, str) and (self.holds(proposal_id) or proposal_id in self._away)

    def get(self, proposal_id: str, default: Closed | None = None) -> Closed | None:  # type: ignore[override]
        """Raises InternalError for one that is away: if it were unknown, it could be decided again."""
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
        return len(self._packed.keys() | self._fresh.keys())

    def frozen(self) -> Earlier:
        """The archive as it is now. It costs only what changes until the next call."""
        earlier = Earlier(self)
        if self._earlier is not None:
            self._earlier.then = earlier
        self._earlier = earlier
        return earlier

    # To the store

    def advance(self, position: int) -> None:
        """Called for each new record: packs the fresh proposals if they are enough for a part."""
        if len(self._fresh) >= PART_MAX:
            self._pack(position)

    def _pack(self, position: int) -> None:
        packed = {proposal_id: _ENCODER.encode(closed) for proposal_id, closed in self._fresh.items()}
        self._fresh.clear()
        for proposal_id, closed in packed.items():
            self._packed.pop(proposal_id, None)  # the newest are last
            self._packed[proposal_id] = position, closed
        if packed and self._read is not None:
            self._new_parts.setdefault(position, {}).update(packed)

    def new_parts(self, position: int) -> dict[int, dict[str, bytes]]:
        """The parts since the last call, for a snapshot of all records up to ``position``."""
        self._pack(position)
        parts, self._new_parts = self._new_parts, {}
        return parts

    def let_go(self, kept_to: int, calls: Iterable[Granted]) -> None:
        """A snapshot at ``kept_to`` is in the store: releases the parts of earlier snapshots.

        Proposals with a call in ``calls`` stay in memory, because its cost is added to the decision.
        """
        if kept_to > self._kept_to:
            self._old, self._kept_to = self._kept_to, kept_to
            self._release_old(calls)

    def _release_old(self, calls: Iterable[Granted]) -> None:
        self._taken_back = 0
        self._release([each for each, (part, _) in self._packed.items() if part <= self._old], calls)

    def forget(self, told_to: int, calls: Iterable[Granted]) -> None:
        """Without a store, forgets the oldest above ``kept_max`` among those announced up to ``told_to``."""
        if self._read is not None or self._kept_max is None:
            return
        if (above := len(self._packed) - self._kept_max) > 0:
            oldest = islice(self._packed.items(), above)
            self._release([each for each, (part, _) in oldest if part <= told_to], calls)

    def _release(self, proposal_ids: Iterable[str], calls: Iterable[Granted]) -> None:
        needed = {granted.call.proposal_id for granted in calls}
        for proposal_id in proposal_ids:
            if proposal_id not in needed:
                part, _ = self._packed.pop(proposal_id)
                name = FORGOTTEN if self._read is None else part
                self._away.put(key_of(proposal_id), name.to_bytes(_NAME_BYTES))

    # And back

    def empty(self) -> Archive:
        """An empty archive on the same store."""
        return Archive(self._read, self._kept_max)

    def restore(self, part: int, keys: bytes) -> None:
        """The proposals with these keys are in that part of the store. If one is in two parts, the later counts."""
        name = part.to_bytes(_NAME_BYTES)
        each = (keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES))
        self._away.add(b"".join(key + name for key in each))
        self._old = self._kept_to = part

    def holds(self, proposal_id: str) -> bool:
        """Whether a decided proposal is in memory."""
        return proposal_id in self._fresh or proposal_id in self._packed

    def away(self, proposal_id: str) -> Away | None:
        """The place of a decided proposal that is not in memory; None if it is in memory, or was never decided.

        Raises Refused if it is forgotten.
        """
        if self.holds(proposal_id) or (name := self._away.get(proposal_id)) is None:
            return None
        part = int.from_bytes(name)
        if part == FORGOTTEN:
            raise Refused(
                f"{proposal_id} was decided, and its decision is not kept any more: without a store the newest "
                f"{self._kept_max:,} are (decisions_kept)",
                code="forgotten",
                proposal_id=proposal_id,
            )
        return Away(proposal_id, part)

    def fetch(self, away: Away) -> bytes:
        """Its bytes from the store, for ``take_back``. Blocks, in any thread. Raises StoreError."""
        assert self._read is not None
        try:
            return _DECIDED.decode(self._read(away.part)).closed[away.proposal_id]
        except (msgspec.MsgspecError, KeyError) as error:
            raise StoreCorrupt(f"the decision on {away.proposal_id} can't be read back: {error}") from error

    def take_back(self, away: Away, closed: bytes, calls: Iterable[Granted]) -> None:
        """Keeps the fetched proposal in memory until a snapshot or many others come; ``calls`` as in ``let_go``."""
        if self._taken_back >= TAKEN_BACK_MAX:
            self._release_old(calls)
        if not self.holds(away.proposal_id):  # else it was taken back before, and may have changed since
            self._packed[away.proposal_id] = away.part, closed
            self._taken_back += 1


class Earlier:
    """An archive at an earlier time: changed entries as they ``was``, all others as in ``then``, a later archive."""

    def __init__(self, now: Archive) -> None:
        self.was: dict[str, Closed | None] = {}
        self.then: Archive | Earlier = now

    def get(self, proposal_id: str) -> Closed | None:
        return self.was[proposal_id] if proposal_id in self.was else self.then.get(proposal_id)
