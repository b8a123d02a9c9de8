"""A council's memory as bytes, and back, so that a coordinator that starts need not replay the whole journal.

``base`` has what is open and counted. It replaces the base of the snapshot before. ``more`` has the keys of the
proposals that were decided and the ids that were used since then. It is added to the earlier ones. These proposals
are kept beside ``more``, and are read when one is looked up (``archive``). So a snapshot costs the same, however long
the journal is. It has no payloads of open proposals: their records have them.
"""

from __future__ import annotations

import heapq
from typing import TypeVar

import msgspec

from council.core.state import (
    Account,
    CouncilState,
    Governance,
    Granted,
    IdentityChange,
    IdentityPast,
    Proposal,
    Rules,
    Seat,
    Token,
)
from council.journal.record import Snapshot
from council.protocol.errors import StoreCorrupt
from council.runtime.archive import Archive, Decided
from council.runtime.used_ids import entries_of, keys_of

T = TypeVar("T")


class Base(msgspec.Struct):
    """The current state. ``version`` is that of the format and its meaning."""

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
    tokens: list[Token] | msgspec.UnsetType = (
        msgspec.UNSET
    )  # and not written where there is none, as before them


class More(msgspec.Struct):
    """The additions since the last snapshot: decided proposals, used ids, names that are taken.

    ``decided`` are the keys of the proposals that are kept beside it; ``ids`` is from ``UsedIds.take_new``.
    """

    version: int
    decided: bytes
    ids: bytes
    proposers: dict[str, bytes]


class _MoreOf2(msgspec.Struct):
    """``More`` of version 2, which holds the decided proposals itself."""

    closed: dict[str, bytes]
    ids: dict[str, str]
    proposers: dict[str, bytes]


class _Versioned(msgspec.Struct):
    version: int = 2


VERSION = 3

_ENCODER = msgspec.msgpack.Encoder()
_BASE = msgspec.msgpack.Decoder(Base)
_VERSIONED = msgspec.msgpack.Decoder(_Versioned)
_MORE = msgspec.msgpack.Decoder(More)
_MORE_OF_2 = msgspec.msgpack.Decoder(_MoreOf2)


def packed(
    position: int, base: Base, parts: dict[int, dict[str, bytes]], ids: bytes, proposers: dict[str, bytes]
) -> Snapshot:
    """A snapshot; ``parts`` are the decided proposals, packed, by the position of their part and their id."""
    added = {}
    for at, closed in (parts | {position: parts.get(position, {})}).items():
        last = at == position
        more = More(VERSION, keys_of(closed), ids if last else b"", proposers if last else {})
        added[at] = _ENCODER.encode(more), _ENCODER.encode(Decided(closed))
    return Snapshot(position, _ENCODER.encode(base), added)


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
    """The core's state, for ``state_of``, and the counters."""
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
        identity_changed_at=state.identity_past.changed_at,
        earlier_identities=state.identity_past.earlier,
        tokens=list(state.governance.tokens.values()) or msgspec.UNSET,
    )


def base_of(packed: bytes) -> Base:
    """Raises StoreCorrupt for an unknown version."""
    base = _read(_BASE, packed)
    if base.version not in (2, VERSION):
        raise StoreCorrupt(f"a snapshot is of version {base.version}, this package knows 2 and {VERSION}")
    return base


def more_of(packed: bytes) -> More:
    """Raises StoreCorrupt for an unknown version."""
    if _read(_VERSIONED, packed).version == VERSION:
        return _read(_MORE, packed)
    before = _read(_MORE_OF_2, packed)
    return More(VERSION, keys_of(before.closed), entries_of(before.ids), before.proposers)


def _read(decoder: msgspec.msgpack.Decoder[T], packed: bytes) -> T:
    try:
        return decoder.decode(packed)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"a snapshot can't be read: {error}") from error


def state_of(base: Base, closed: Archive) -> CouncilState:
    """The core's state, with its timers set again."""
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
        identity_past=IdentityPast(base.identity_changed_at, base.earlier_identities),
        governance=_governance(base),
    )
    for proposal in base.open:
        _arm(state, proposal)
    return state


def _governance(base: Base) -> Governance:
    tokens = {} if base.tokens is msgspec.UNSET else {token.proposal_id: token for token in base.tokens}
    under_way = {
        use.use_id: (each, use.until_s) for each, token in tokens.items() for use in token.under_way()
    }
    asked = [use.asked for token in tokens.values() for use in token.uses if use.asked is not msgspec.UNSET]
    asked.sort(key=lambda each: each.asked_wall_s)
    return Governance(tokens, under_way, {each.escalation_id: each for each in asked})


def _arm(state: CouncilState, proposal: Proposal) -> None:
    heapq.heappush(state.timers, (proposal.deadline_s, proposal.what.proposal_id))
    if proposal.escalation is not None:
        heapq.heappush(state.wall_timers, (proposal.escalation.expires_wall_s, proposal.what.proposal_id))
