"""One record of the journal, and the interface of what keeps records.

The driver appends every event before any effect that tells somebody of it is performed (rules 4.7).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from council.core import effects as do
from council.core import events as ev
from council.core.effects import Effect
from council.core.events import Event
from council.core.state import Decision, Escalation, Moment, Value
from council.journal.entries import HistoryPage, Wanted
from council.kinds.table import JOURNALED
from council.protocol.errors import ReplayDiverged, StoreError, StoreFull, StoreLocked, StoreUnreachable

# What is wrong with a store that may pass by itself: it is tried again.
PASSING = (StoreLocked, StoreUnreachable, StoreFull)


class Record(Value, frozen=True):
    """An event with its moment, the sealed envelope that brought it, if one did, and what followed from it.

    ``msg_id`` is the envelope's, where it has used that one up (rules 1.15); ``key_mark`` tells the key of a
    proposal's sender, who keeps its name, from others (rules 1.3). Read back, a record has no ``effects`` but
    their ``mark``.
    """

    moment: Moment
    event: Event
    sealed: bytes | None = None
    effects: tuple[Effect, ...] = ()
    msg_id: str | None = None
    key_mark: bytes | None = None
    mark: bytes | None = None

    @property
    def position(self) -> int:
        return self.moment.position


_EFFECTS = msgspec.msgpack.Encoder(order="deterministic")


def mark_of(effects: Sequence[Effect]) -> bytes:
    """Tells these effects, in this order, from all others: a hash of 8 bytes, against accidents alone."""
    told = [(type(effect).__name__, effect) for effect in effects]
    return hashlib.blake2b(_EFFECTS.encode(told), digest_size=8).digest()


def came_to(effects: Sequence[Effect]) -> tuple[tuple[Decision, ...], tuple[Escalation, ...]]:
    """What was decided, and what goes to a human."""
    decisions = tuple(effect.decision for effect in effects if isinstance(effect, do.AnnounceDecision))
    return decisions, tuple(
        effect.escalation for effect in effects if isinstance(effect, do.AnnounceEscalation)
    )


def leaves_one(event: Event, effects: list[Effect]) -> bool:
    """Whether an event leaves a record: whether it changed something (rules 1.10)."""
    if isinstance(event, ev.SeatBeat):
        return any(isinstance(effect, do.AnnounceRoll) for effect in effects)
    if len(effects) != 1:
        return True
    (effect,) = effects
    if isinstance(effect, (do.GrantCall, do.DenyCall)):
        return not effect.again
    return not isinstance(effect, (do.NoteIgnored, do.AnswerAgain))


def diverged(record: Record, why: str) -> ReplayDiverged:
    """What is raised where a record comes to something else than it did."""
    return ReplayDiverged(
        f"record {record.position} ({JOURNALED[type(record.event)].kind}) comes to something else by this version's "
        f"rules: {why}; run the version that wrote it, or see council verify",
        position=record.position,
        why=why,
    )


class Snapshot(NamedTuple):
    """What records up to ``position`` come to: ``base`` replaces the one before, ``added`` is added to it.

    ``added`` has positions behind the one before, in order, the last of them ``position``. At each stand a part
    ``more``, which a start reads, and the proposals that were decided up to there, for whoever looks one up.
    """

    position: int
    base: bytes
    added: Mapping[int, tuple[bytes, bytes]]


class Restorable(Protocol):
    """Whoever wrote to a journal, and is given back what it kept."""

    def restore(
        self,
        position: int,
        base: bytes,
        mores: Iterable[tuple[int, bytes]],
        envelopes: Callable[[Collection[str]], Mapping[str, bytes]],
    ) -> None:
        """Goes on from snapshots; ``envelopes`` gives those of the messages of these ids."""

    def replay(self, record: Record) -> None:
        """Goes on by one record."""


class Journal(Protocol):
    """Keeps records in the order of their positions. ``epoch`` is that of the coordinator that writes it.

    ``trouble`` is why it can keep nothing at the moment, while that may pass; ``linger_s`` how long a record
    that nobody waits for may wait for others to be written with it; ``durable`` whether what it keeps outlives it.
    ``unsigned`` is why it has no checkpoint of late, where one was due.
    ``commits`` are the last ones that nobody has looked at yet: how many records, in how many seconds.
    ``snapshot_kept`` is the position of the newest snapshot that is kept, 0 where none is.
    """

    epoch: int
    linger_s: float
    durable: bool
    trouble: StoreError | None
    commits: deque[tuple[int, float]]

    @property
    def snapshot_kept(self) -> int: ...

    @property
    def unsigned(self) -> str | None: ...

    def recover(self, writer: Restorable) -> None:
        """Hands ``writer`` what earlier ones wrote."""

    def append(self, records: Sequence[Record]) -> Awaitable[None] | None:
        """Keeps ``records``: all of them once the awaitable is done, or on return where there is none.

        Raises, or its awaitable does, if they are not kept; then none of them is.
        """

    def snapshot_due(self, position: int) -> bool:
        """Whether a snapshot as of ``position`` is wanted."""

    def keep(self, snapshot: Snapshot) -> None:
        """Takes a snapshot of what all records handed in so far come to."""

    def decided(self, position: int) -> bytes:
        """The decided proposals that a snapshot added at ``position``. Blocks, in any thread; raises StoreError."""

    def tend(self) -> None:
        """Called now and then: whatever is due at a time."""

    async def history(self, asked: Wanted) -> HistoryPage:
        """A page of what is kept."""

    async def close(
        self, last: Sequence[Record] = (), snapshot: Callable[[], Snapshot] | None = None
    ) -> None:
        """Keeps what was handed in, the ``last``, and a snapshot of it all, where it can; then lets go."""

    def close_now(self) -> None:
        """``close`` for a thread that may wait."""
