"""A council's memory as bytes, and back: what a coordinator that starts needs not replay. Knows nothing of where.

A snapshot has two parts. ``base`` is what is open and counted, and replaces the one before; ``more`` is what
was decided and said since the one before, and is added to it. So each costs the same, however long the
journal is. Payloads of open proposals are in neither: their records have them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, MutableMapping
from itertools import islice
from typing import TypeVar

import msgspec

from council.core.state import Account, Closed, CouncilState, Granted, IdentityChange, Proposal, Rules, Seat
from council.journal.record import Snapshot
from council.protocol.errors import StoreCorrupt

T = TypeVar("T")


class Base(msgspec.Struct):
    """What there is now, and replaces what there was. ``version`` is that of what all of this means."""

    version: int
    council_id: str
    rules: Rules
    ruled_from: int
    epoch: int
    uptime_s: float
    seats: list[Seat]
    open: list[Proposal]
    calls: list[Granted]
    paid: list[Account]
    announced: int
    refusals: tuple[float, int]
    decided: dict[str, int]
    refused: dict[str, int]
    identity_change: IdentityChange | None = None
    identity_changed_at: int = 0
    earlier_identities: tuple[str, ...] = ()
    ways: dict[str, int] = msgspec.field(default_factory=dict)


class More(msgspec.Struct):
    """What has come since the last one, and is added: decided proposals, used ids, names that are taken."""

    closed: dict[str, bytes]
    ids: dict[str, str]
    proposers: dict[str, bytes]


VERSION = 2

_ENCODER = msgspec.msgpack.Encoder()
_BASE = msgspec.msgpack.Decoder(Base)
_MORE = msgspec.msgpack.Decoder(More)
_CLOSED = msgspec.msgpack.Decoder(Closed)


class Archive(MutableMapping[str, Closed]):
    """The decided proposals: those since the last snapshot as they are, the older ones packed."""

    def __init__(self) -> None:
        self._fresh: dict[str, Closed] = {}
        self._packed: dict[str, bytes] = {}
        self._earlier: Earlier | None = None

    def __getitem__(self, proposal_id: str) -> Closed:
        fresh = self._fresh.get(proposal_id)
        return fresh if fresh is not None else _CLOSED.decode(self._packed[proposal_id])

    def __contains__(self, proposal_id: object) -> bool:
        return proposal_id in self._fresh or proposal_id in self._packed

    def get(self, proposal_id: str, default: Closed | None = None) -> Closed | None:  # type: ignore[override]
        # Looked for with every ballot, and mostly not there: without the exception that the mixin would raise.
        found = self._fresh.get(proposal_id)
        if found is not None:
            return found
        packed = self._packed.get(proposal_id)
        return default if packed is None else _CLOSED.decode(packed)

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

    def pack(self) -> dict[str, bytes]:
        """Packs what is new or changed since the last time, and gives it."""
        packed = {proposal_id: _ENCODER.encode(closed) for proposal_id, closed in self._fresh.items()}
        self._packed |= packed
        self._fresh.clear()
        return packed

    def add(self, packed: dict[str, bytes]) -> None:
        """Takes in what an earlier ``pack`` gave; later ones win."""
        self._packed |= packed


class Earlier:
    """An archive as it was: what has changed ``was`` so, and all else is as it is ``then``, a while later."""

    def __init__(self, now: Archive) -> None:
        self.was: dict[str, Closed | None] = {}
        self.then: Archive | Earlier = now

    def get(self, proposal_id: str) -> Closed | None:
        return self.was[proposal_id] if proposal_id in self.was else self.then.get(proposal_id)


def packed(position: int, base: Base, more: More) -> Snapshot:
    """A snapshot of these parts."""
    return Snapshot(position, _ENCODER.encode(base), _ENCODER.encode(more))


def newer(values: dict[str, T], seen: int) -> dict[str, T]:
    """What a map that only grows holds behind the first ``seen``."""
    return dict(islice(values.items(), seen, None))


def based(
    state: CouncilState,
    *,
    council_id: str,
    announced: int,
    refusals: tuple[float, int],
    decided: dict[str, int],
    ways: dict[str, int],
    refused: dict[str, int],
) -> Base:
    """What ``state_of`` makes the core's state of again, with what else is counted."""
    return Base(
        version=VERSION,
        council_id=council_id,
        rules=state.rules,
        ruled_from=state.ruled_from,
        epoch=state.epoch,
        uptime_s=state.uptime_s,
        seats=list(state.seats.values()),
        open=list(state.open.values()),
        calls=list(state.calls.values()),
        paid=list(state.paid.values()),
        announced=announced,
        refusals=refusals,
        decided=decided,
        ways=ways,
        refused=refused,
        identity_change=state.identity_change,
        identity_changed_at=state.identity_changed_at,
        earlier_identities=state.earlier_identities,
    )


def base_of(packed: bytes) -> Base:
    """Raises StoreCorrupt for what is none of this version's."""
    base = _read(_BASE, packed)
    if base.version != VERSION:
        raise StoreCorrupt(f"a snapshot is of version {base.version}, this package knows {VERSION}")
    return base


def more_of(packed: bytes) -> More:
    return _read(_MORE, packed)


def _read(decoder: msgspec.msgpack.Decoder[T], packed: bytes) -> T:
    try:
        return decoder.decode(packed)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"a snapshot can't be read: {error}") from error


def state_of(base: Base, closed: Archive) -> CouncilState:
    """The core's state, its timers armed anew."""
    state = CouncilState(
        rules=base.rules,
        seats={seat.name: seat for seat in base.seats},
        open={proposal.what.proposal_id: proposal for proposal in base.open},
        closed=closed,
        with_human=sum(proposal.stage == "human" for proposal in base.open),
        calls={each.call.call_id: each for each in base.calls},
        paid={account.seat: account for account in base.paid},
        uptime_s=base.uptime_s,
        epoch=base.epoch,
        ruled_from=base.ruled_from,
        identity_change=base.identity_change,
        identity_changed_at=base.identity_changed_at,
        earlier_identities=base.earlier_identities,
    )
    for proposal in base.open:
        _arm(state, proposal)
    return state


def _arm(state: CouncilState, proposal: Proposal) -> None:
    heapq.heappush(state.timers, (proposal.deadline_s, proposal.what.proposal_id))
    if proposal.escalation is not None:
        heapq.heappush(state.wall_timers, (proposal.escalation.expires_wall_s, proposal.what.proposal_id))
