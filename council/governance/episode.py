"""An episode: all accepted packets of one correlation id. A frozen value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import field

from council.governance.ledger import Grant, Ledger
from council.protocol.omen import Packet

State = Literal[
    "S0_IDLE",
    "S1_SENSE",
    "S2_MODEL",
    "S3_DECIDE",
    "S4_VERIFY",
    "S5_AUTHORIZE",
    "S6_EXECUTE",
    "S7_REVIEW",
    "S8_ESCALATED",
    "S9_SAFEMODE",
]
Status = Literal["open", "SUCCESS", "FAILURE", "CANCELLED", "TIMED_OUT"]
# The seconds that a directive may take if neither itself nor a budget says it.
TIMEOUT_S = 3600
# An episode with more packets is refused, so that hostile input costs bounded time.
PACKETS_MAX = 5_000


class Directive(msgspec.Struct, frozen=True):
    """A directive that was accepted. It is open until a result closes it; at ``due`` a result is still in time."""

    packet_id: str
    task_id: str
    safety: str
    due: datetime
    status: Status = "open"


class VerifyLoop(msgspec.Struct, frozen=True):
    """What has come since the last Decision VERIFY_FIRST."""

    is_planned: bool = False
    reads: int = 0
    successes: int = 0
    is_observed: bool = False
    is_believed: bool = False


class Episode(msgspec.Struct, frozen=True):
    """What the accepted packets of an episode have come to. Its mappings are never changed, only replaced.

    ``outcome`` and ``decision_id`` are those of the last Decision. In S8, ``is_asked`` says that an Escalation has
    come, and ``is_answered`` that the human's answer has.
    """

    correlation_id: str
    state: State = "S0_IDLE"
    outcome: str | None = None
    decision_id: str | None = None
    ledger: Ledger = Ledger()
    tokens: Mapping[str, Grant] = field(default_factory=dict)
    directives: Mapping[str, Directive] = field(default_factory=dict)
    loop: VerifyLoop = VerifyLoop()
    packet_ids: frozenset[str] = frozenset()
    last_packet_id: str = ""
    is_asked: bool = False
    is_answered: bool = False

    def open_directives(self) -> Iterator[Directive]:
        """The directives that no result has closed."""
        return (each for each in self.directives.values() if each.status == "open")

    def overdue(self, now: datetime) -> tuple[Directive, ...]:
        """The open directives whose time has passed."""
        return tuple(each for each in self.open_directives() if now > each.due)

    @property
    def is_verifying(self) -> bool:
        """Whether the loop of a Decision VERIFY_FIRST is not decided yet, and no human has taken it over."""
        return self.outcome == "VERIFY_FIRST" and not self.is_answered


def safety_of(directive: Packet) -> str:
    """READ, WRITE or MIXED. A directive of the type tool_write is never READ; without a class, others are READ."""
    declared = directive.payload.tool_safety_class
    if directive.payload.task_type == "tool_write" and declared in (None, "READ"):
        return "WRITE"
    return str(declared or "READ")
