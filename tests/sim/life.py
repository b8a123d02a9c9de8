"""One run of a coordinator in the simulator: the real driver, its clock, and what it has on the way to the disk."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from council.core.state import Decision
from council.journal.chain import Head
from council.journal.packets import Packer
from council.journal.record import Record, Snapshot
from council.journal.rows import Prepared
from council.runtime.commit import Commit
from council.runtime.driver import Driver
from tests.sim.truth import Said


class Killed(Exception):
    """The coordinator died in the middle of what it did."""


@dataclass(eq=False, slots=True)
class Writing:
    """Records on their way to the disk, in transactions, of which ``done`` are kept.

    It could have begun at ``idle_s`` for all that the coordinator had to write before, and did at ``begun_s``.
    """

    position: int
    records: list[Record] = field(default_factory=list)
    transactions: list[list[Prepared]] = field(default_factory=list)
    snapshot: tuple[Snapshot, float] | None = None  # with the uptime at which it was taken
    label: str = ""
    done: int = 0
    idle_s: float = 0.0
    begun_s: float = 0.0


@dataclass(eq=False, slots=True)
class Life:
    """``from_s`` is its uptime when it began, at ``began_s`` of the simulation's time."""

    number: int
    epoch: int
    driver: Driver
    commit: Commit
    packer: Packer
    head: Head
    began_s: float
    from_s: float
    gone: bool = False
    frozen: bool = False
    writing: Writing | None = None
    waiting: list[tuple[Snapshot, float]] = field(
        default_factory=list
    )  # snapshots that are kept with the next
    idle_s: float = 0.0  # since when it writes nothing
    troubled: bool = False  # it found no room on the disk
    stalled: set[str] = field(default_factory=set)  # the sessions that it told so
    synced_while_frozen: bool = False
    inbox: list[tuple[Said, str | None, str]] = field(default_factory=list)
    when_kept: list[tuple[int, Callable[[], None]]] = field(default_factory=list)
    feed_seen: int = 0
    wake_at: float = math.inf
    due_reply: dict[str, int] = field(default_factory=dict)
    arrived_s: dict[str, float] = field(default_factory=dict)  # when that came, the last time
    owed: set[tuple[str, str]] = field(default_factory=set)  # (session, proposal) that wait for a decision
    answered: set[tuple[str, str]] = field(default_factory=set)
    asked: list[tuple[int, str, Decision | None]] = field(
        default_factory=list
    )  # told once that position is kept
    # The last real sign of life of each seat, and when it came, by the world's time.
    signs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    heard_s: dict[str, float] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)
    inactive: set[str] = field(default_factory=set)

    def uptime(self, t: float) -> float:
        return self.from_s + (t - self.began_s)

    def time_of(self, uptime_s: float) -> float:
        """The first moment of the simulation at which the uptime is so much, or a hair later."""
        t = self.began_s + (uptime_s - self.from_s)
        while self.uptime(t) < uptime_s:
            t = math.nextafter(t, math.inf)
        return t


def name_of(record: Record) -> str:
    """What a record is about, in words that do not hang on its place in the journal."""
    event: Any = record.event
    about = record.msg_id or getattr(event, "proposal_id", "") or getattr(event, "msg_id", "")
    return f"{type(event).__name__}/{about}/{getattr(event, 'seat', '')}"
