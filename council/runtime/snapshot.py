"""A council's memory as bytes, and back: what a coordinator that starts needs not replay. Knows nothing of where.

A snapshot has three parts. ``base`` is what is open and counted, and replaces the one before. ``more`` says which
proposals were decided and which ids were used since the one before, and is added to it. ``decided`` are these
proposals, read where one is looked up (``archive``). So each costs the same, however long the journal is. Payloads
of open proposals are in none: their records have them.
"""

from __future__ import annotations

import heapq
from hashlib import sha256
from itertools import islice
from typing import TypeVar

import msgspec

from council.core.state import Account, CouncilState, Granted, IdentityChange, Proposal, Rules, Seat
from council.journal.record import Snapshot
from council.protocol.errors import StoreCorrupt
from council.runtime.archive import Archive
from council.runtime.hash_index import key_of, keys_of

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
    """What has come since the last one, and is added: decided proposals, used ids, names that are taken.

    ``keys`` are those of the proposals in the part ``decided``, of which ``hash`` is the sha256; ``ids`` are entries
    of the index of used ids.
    """

    version: int
    keys: bytes
    hash: bytes
    ids: bytes
    proposers: dict[str, bytes]


class _MoreBefore(msgspec.Struct):
    """``More`` of version 2, which holds the decided proposals itself."""

    closed: dict[str, bytes]
    ids: dict[str, str]
    proposers: dict[str, bytes]


class _Versioned(msgspec.Struct):
    version: int = 2


VERSION = 3
# Of a digest so much is kept with an id: no sender can make two messages that have it in common (rules 1.15).
DIGEST_BYTES = 16

_ENCODER = msgspec.msgpack.Encoder()
_BASE = msgspec.msgpack.Decoder(Base)
_VERSIONED = msgspec.msgpack.Decoder(_Versioned)
_MORE = msgspec.msgpack.Decoder(More)
_MORE_BEFORE = msgspec.msgpack.Decoder(_MoreBefore)


def packed(position: int, base: Base, more: More, decided: bytes) -> Snapshot:
    """A snapshot of these parts."""
    return Snapshot(position, _ENCODER.encode(base), _ENCODER.encode(more), decided)


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
    """Raises StoreCorrupt for what is of no version that this one knows."""
    base = _read(_BASE, packed)
    if base.version not in (2, VERSION):
        raise StoreCorrupt(f"a snapshot is of version {base.version}, this package knows 2 and {VERSION}")
    return base


def more_of(packed: bytes) -> More:
    """Raises StoreCorrupt for what is of no version that this one knows."""
    if _read(_VERSIONED, packed).version == VERSION:
        return _read(_MORE, packed)
    before = _read(_MORE_BEFORE, packed)
    ids = b"".join(key_of(each) + digest_entry(digest) for each, digest in before.ids.items())
    return More(VERSION, keys_of(before.closed), sha256(packed).digest(), ids, before.proposers)


def digest_entry(digest: str) -> bytes:
    """A digest in hex as the index of used ids has it; empty for an id that is used up, whatever it is used for."""
    return bytes.fromhex(digest)[:DIGEST_BYTES].ljust(DIGEST_BYTES, b"\0")


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
