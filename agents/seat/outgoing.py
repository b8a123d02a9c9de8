"""The messages that a seat sends: how they are signed, and which it keeps to send them again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_args

from council.agents.mind import Action, Opinion, Ruling, RulingWord
from council.agents.seat.plan_stream import sayable
from council.agents.seat.threads import short
from council.protocol import signing
from council.protocol.envelope import Envelope

# A council has half as many proposals open by default, so a seat reviews none of them twice.
REMEMBERED_MAX = 4_000
# A ballot has some hundred bytes, and up to a megabyte with a model's control packet: four times the usual sum.
REMEMBERED_BYTES_MAX = 8 * 2**20
RULINGS = get_args(RulingWord)


@dataclass(frozen=True, slots=True)
class SeatSigner:
    """Builds the envelopes of one seat, and signs them with its key.

    ``wall`` gives aware UTC, ``new_id`` a fresh message id.
    """

    seat: str
    key: bytes = field(repr=False)
    council_id: str
    wall: Callable[[], datetime]
    new_id: Callable[[], str]

    def thought(self, proposal_id: str, task_name: str, thought: Any, checks: int = 0) -> bytes:
        """A VOTE for the task "ballot", an INFO of kind ``ruling`` for the task "ruling".

        ``checks`` is the number of checks that its mind was shown the results of.

        Raises TypeError if ``thought`` has another type than the task needs, and EnvelopeError if a field is invalid.
        """
        wanted = Opinion if task_name == "ballot" else Ruling
        if not isinstance(thought, wanted):
            raise TypeError(f"its mind returned {short(thought)}, expected {wanted.__name__}")
        fields: dict[str, Any] = {"confidence": thought.confidence, "risk_level": thought.risk_level}
        if isinstance(thought, Opinion):
            content: dict[str, Any] = {
                "proposal_id": proposal_id,
                "vote": thought.vote,
                "reason": thought.reason,
                "control_packet": _with_check(thought, checks),
            }
            return self._sign("VOTE", "voter", proposal_id, content, **fields)
        if thought.ruling not in RULINGS:
            raise TypeError(
                f"its mind returned the ruling {short(thought.ruling)}, expected one of {', '.join(RULINGS)}"
            )
        data: dict[str, Any] = {"proposal_id": proposal_id, "ruling": thought.ruling}
        if thought.ruling == "verify":
            data["check"] = dict(Action.of(thought.check))
        content = {"kind": "ruling", "text": thought.reason, "data": data}
        return self._sign("INFO", "voter", proposal_id, content, **fields)

    def escalation(self, proposal_id: str, reason: str) -> bytes:
        """An ESCALATION: the seat asks for Prime's ruling (rules 1.8). Raises EnvelopeError."""
        content = {"proposal_id": proposal_id, "reason": reason}
        return self._sign("ESCALATION", "voter", proposal_id, content)

    def info(
        self, proposal_id: str, kind: str, data: Mapping[str, Any], text: str = "", msg_id: str = ""
    ) -> bytes:
        """An INFO about a proposal; its text is cut at 2,000 characters."""
        content = {"kind": kind, "text": sayable(text[:2_000]), "data": {"proposal_id": proposal_id, **data}}
        return self._sign("INFO", "voter", proposal_id, content, msg_id)

    def heartbeat(self, boot: int, beat: int, busy_with: str | None, uptime_s: float) -> bytes:
        """A HEARTBEAT (rules 1.10); its ``parent_id`` is the number of the seat's run, in hex."""
        content = {"beat": beat, "busy_with": busy_with, "uptime_s": uptime_s}
        return self._sign("HEARTBEAT", "observer", f"{boot:08x}", content)

    def _sign(
        self, type: str, role: str, parent_id: str, content: dict[str, Any], msg_id: str = "", **fields: Any
    ) -> bytes:
        envelope = Envelope.build(
            msg_id=msg_id or self.new_id(),
            timestamp=self.wall(),
            sender=self.seat,
            role=role,
            type=type,
            parent_id=parent_id,
            content=content,
            **fields,
        )
        return signing.sign(envelope, self.key, self.council_id)


def _with_check(opinion: Opinion, checks: int) -> Mapping[str, Any] | None:
    """Its control packet, with the check that it asks for, and the number of those that were run before."""
    given = opinion.control_packet or {}
    if not isinstance(given, Mapping):
        return opinion.control_packet  # the envelope refuses it
    packet = {name: value for name, value in given.items() if name != "checks_seen"}
    if opinion.check is not None:
        packet["check"] = dict(Action.of(opinion.check))
    if checks:
        packet["checks_seen"] = checks
    return packet or opinion.control_packet


class SentMessages:
    """The newest messages of a seat for each task, by count and bytes: an escalation, if any, then the ballot.

    The council asks again after a reply was lost. The seat then sends the same bytes (rules 1.3).
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Sequence[bytes]] = OrderedDict()
        self._bytes = 0

    def add(self, proposal_id: str, task_name: str, sealed: Sequence[bytes]) -> None:
        self.forget(proposal_id, task_name)
        self._kept[proposal_id, task_name] = sealed
        self._bytes += sum(map(len, sealed))
        while len(self._kept) > REMEMBERED_MAX or self._bytes > REMEMBERED_BYTES_MAX:
            self.forget(*next(iter(self._kept)))

    def answer(self, proposal_id: str, task_name: str) -> Sequence[bytes]:
        """The messages that the seat sent for this task; empty if there are none."""
        return self._kept.get((proposal_id, task_name), ())

    def forget(self, proposal_id: str, task_name: str) -> None:
        self._bytes -= sum(map(len, self._kept.pop((proposal_id, task_name), ())))
