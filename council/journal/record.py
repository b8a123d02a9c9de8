"""One record of the journal, and the interface of a journal.

The driver appends every event before it performs an effect that announces the event (rules 4.7).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
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
from council.protocol.envelope import Envelope
from council.protocol.errors import ReplayDiverged, StoreError

COMMITS_MAX = 10_000  # this many are counted until they are read


class Record(Value, frozen=True):
    """An event with its moment, the sealed envelope that brought it, if any, and the effects that followed from it.

    ``msg_id`` is the envelope's, if the record has used it up (rules 1.15). ``key_mark`` identifies the key of a
    proposal's sender, whose name is bound to it (rules 1.3). A record that is read back has the ``mark`` of its
    ``effects`` instead of them.
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
    """A hash of these effects in this order. Its 8 bytes detect accidents, not attacks."""
    named = [(type(effect).__name__, effect) for effect in effects]
    return hashlib.blake2b(_EFFECTS.encode(named), digest_size=8).digest()


def came_to(effects: Sequence[Effect]) -> tuple[tuple[Decision, ...], tuple[Escalation, ...]]:
    """The decisions and the escalations among these effects."""
    decisions = tuple(effect.decision for effect in effects if isinstance(effect, do.AnnounceDecision))
    return decisions, tuple(
        effect.escalation for effect in effects if isinstance(effect, do.AnnounceEscalation)
    )


def leaves_one(event: Event, effects: list[Effect]) -> bool:
    """Whether an event is journaled: whether it changed something (rules 1.10)."""
    if isinstance(event, ev.SeatBeat):
        return any(isinstance(effect, do.AnnounceRoll) for effect in effects)
    if len(effects) != 1:
        return True
    (effect,) = effects
    if isinstance(effect, (do.GrantCall, do.DenyCall)):
        return not effect.again
    return not isinstance(effect, (do.NoteIgnored, do.AnswerAgain))


def diverged(record: Record, why: str) -> ReplayDiverged:
    """The error for a record that has other effects when it is replayed."""
    return ReplayDiverged(
        f"record {record.position} ({JOURNALED[type(record.event)].kind}) comes to something else by this version's "
        f"rules: {why}; run the version that wrote it, or see council verify",
        position=record.position,
        why=why,
    )


class Snapshot(NamedTuple):
    """The state after the records up to ``position``. ``base`` replaces the previous base, ``added`` is added to it.

    ``added`` has positions after the previous snapshot, in order; the last one is ``position``. Each has a part
    ``more``, which a start reads, and the proposals that were decided up to there, which are read when asked for.
    """

    position: int
    base: bytes
    added: Mapping[int, tuple[bytes, bytes]]


class Restorable(Protocol):
    """The writer of a journal: ``Journal.recover`` hands it what the journal keeps."""

    def restore(
        self,
        position: int,
        base: bytes,
        mores: Iterable[tuple[int, bytes]],
        envelopes: Callable[[Collection[str]], Mapping[str, bytes]],
    ) -> None:
        """Continues from snapshots; ``envelopes`` returns the envelopes of messages, by their ids."""

    def replay(self, record: Record) -> None:
        """Continues by one record."""


class Journal(ABC):
    """Keeps records in the order of their positions.

    ``epoch`` is that of the coordinator that writes it. A record that nobody waits for may wait ``linger_s`` for
    others to be written with it. ``durable`` is whether the journal outlives its process. ``trouble`` is the error
    for which nothing can be written at the moment, while it may pass. ``commits`` has the number of records and the
    seconds of each commit, until they are read.
    """

    epoch: int
    linger_s = 0.0
    durable = False

    def __init__(self) -> None:
        self.trouble: StoreError | None = None
        self.commits: deque[tuple[int, float]] = deque(maxlen=COMMITS_MAX)

    @property
    def snapshot_kept(self) -> int:
        """The position of the newest snapshot that is kept; 0 if there is none."""
        return 0

    @property
    def unsigned(self) -> str | None:
        """The reason why the checkpoint that was due last could not be written; None if it was."""
        return None

    def recover(self, writer: Restorable) -> None:  # noqa: B027 - a journal in memory keeps nothing from before
        """Hands ``writer`` what earlier coordinators wrote. Raises StoreError, and what ``writer`` raises."""

    @abstractmethod
    def append(self, records: Sequence[Record]) -> Awaitable[None] | None:
        """Keeps ``records``: all of them, once the awaitable is done, or on return if there is none.

        If it raises, or its awaitable does, none of them is kept.
        """

    def snapshot_due(self, position: int) -> bool:
        """Whether a snapshot at ``position`` is wanted."""
        return False

    def keep(self, snapshot: Snapshot) -> None:
        """Keeps a snapshot of the state after all records that were handed in so far."""
        raise NotImplementedError

    def decided(self, position: int) -> bytes:
        """The decided proposals that a snapshot added at ``position``. Blocks; any thread may call it."""
        raise NotImplementedError

    def tend(self) -> None:  # noqa: B027
        """Does upkeep that is due. It is called from time to time."""

    def keep_packet(self, envelope: Envelope) -> None:  # noqa: B027 - a journal in memory keeps none
        """Keeps the cognition packet in a seat's envelope (``packet_keeper``). Does not block."""

    @abstractmethod
    async def history(self, asked: Wanted) -> HistoryPage:
        """A page of the records that are kept."""

    async def close(
        self, last: Sequence[Record] = (), snapshot: Callable[[], Snapshot] | None = None
    ) -> None:
        """Keeps the ``last`` records and a snapshot of everything, if possible; then closes the journal."""
        if last:
            self.append(last)

    def close_now(self) -> None:  # noqa: B027
        """``close`` for a thread that may block."""
