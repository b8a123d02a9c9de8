"""Reads an authentic envelope as an event of the core. Knows who may say what, and nothing of what follows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from council.agents.prompting.prompt import OVERRUNS_MAX
from council.agents.seat.budget_client import error_kind
from council.agents.seat.plan_stream import PIECE_CHARS, STAGE_CHARS_MAX
from council.core import events as ev
from council.core.outcomes import STAGES
from council.core.state import (
    REASON_TOLD_MAX,
    ActionReport,
    Answer,
    Ballot,
    Call,
    Overrun,
    Ruling,
    Spend,
    Submission,
)
from council.protocol import signing
from council.protocol.envelope import Envelope, Heartbeat, Info, Proposal, Vote
from council.protocol.envelope import Escalation as EscalationBody
from council.protocol.errors import CouncilError, EnvelopeError, EnvelopeTooLarge, Refused
from council.protocol.values import plain, quoted
from council.runtime import identity
from council.runtime.messages import printable

# Three seats are handed it, and Prime once more with every ballot: what is larger is split, or named.
PROPOSAL_BYTES_MAX = 768 * 2**10
# Of a model's name and a call's purpose so much is kept; a call costs at most so many tokens, or micro-dollars.
WORD_CHARS_MAX = 200
AMOUNT_MAX = 10**12
ROUND_MAX = 2**53  # of what a seat says: 2**21 runs of 2**32 rounds (``agents.voice``)
# rules 1.1: the parts that each may play in a message; a seat may propose too.
PARTS = {
    "voter": ("voter", "observer", "proposer"),
    "proposer": ("proposer",),
    "human": ("human",),
}
# rules 1.1: the part that a message of a type is played in; INFO is of kinds of its own.
PART_OF = {
    "PROPOSAL": ("proposer",),
    "VOTE": ("voter",),
    "ESCALATION": ("voter", "observer"),
    "HEARTBEAT": ("voter", "observer"),
}
# As what those join who may send INFO of a kind; of all others, as a voter.
SPEAKERS = {"answer": "human", identity.KIND: "human", "cancel": "any", "outcome": "any"}
T = TypeVar("T")


def event_of(envelope: Envelope, size: int, digest: str, role: str | None) -> ev.Event:
    """The event that an authentic envelope of ``size`` sealed bytes stands for; ``role``: its sender's.

    Raises Refused where its sender may not say it.
    """
    content, sender = envelope.content, envelope.sender
    if envelope.role not in PARTS.get(role or "", ()):
        raise Refused(
            f"{sender} joined as a {role} and may not speak as {envelope.role}",
            code="wrong_role",
            sender=sender,
        )
    if role != "voter" and not isinstance(content, (Proposal, Info)):
        raise Refused(f"{sender} is no seat and may not send {envelope.type}", code="not_a_seat")
    if envelope.role not in PART_OF.get(envelope.type, (envelope.role,)):
        raise Refused(
            f"{sender} sent a {envelope.type} as {envelope.role}: expected {' or '.join(PART_OF[envelope.type])}",
            code="wrong_role",
            sender=sender,
        )
    if isinstance(content, Proposal):
        identity.refuse_another(content)
        return _submission(envelope, content, size, digest)
    if isinstance(content, Info):
        return _info(envelope, content, digest, role)
    if isinstance(content, Vote):
        return ev.BallotCast(
            Ballot(
                proposal_id=content.proposal_id,
                seat=sender,
                vote=content.vote,
                reason=content.reason,
                confidence=envelope.confidence,
                risk_level=envelope.risk_level,
                msg_id=envelope.msg_id,
                digest=digest,
                asks_human=content.control_packet is not None and _asks_human(content.control_packet),
            )
        )
    if isinstance(content, EscalationBody):
        return ev.EscalationRaised(content.proposal_id, sender, content.reason, envelope.msg_id)
    assert isinstance(content, Heartbeat)
    return ev.SeatBeat(sender, int(envelope.parent_id or "0", 16), content.beat)


def reserved_for(envelope: Envelope) -> str:
    """The proposal that a reservation is for; empty for any other message."""
    content = envelope.content
    return (envelope.parent_id or "") if isinstance(content, Info) and content.kind == "reserve" else ""


class StreamPiece(NamedTuple):
    """A piece of what a seat's mind says while it thinks: of a stage's round, from a character on."""

    proposal_id: str
    seat: str
    text: str
    stage: str
    round: int
    at: int
    whole: bool


def unreadable(error: CouncilError, sealed: bytes) -> ev.BallotUnreadable | None:
    """The event that an authentic VOTE which can't be read is; None for any other error."""
    facts = error.facts
    if not (isinstance(error, EnvelopeError) and facts.get("authentic") and facts.get("type") == "VOTE"):
        return None
    return ev.BallotUnreadable(
        facts["parent_id"] or "", facts["sender"], printable(error.message), digest(sealed)
    )


def is_piece(envelope: Envelope, role: str | None) -> bool:
    """Whether it is a piece of a seat's stream, which changes nothing and is no event."""
    content = envelope.content
    return isinstance(content, Info) and content.kind == "stream" and role == "voter"


def piece_of(envelope: Envelope) -> StreamPiece:
    """The piece in an envelope that is one. Raises EnvelopeError where it has not a piece's form."""
    content = envelope.content
    assert isinstance(content, Info)
    if len(content.text) > PIECE_CHARS:
        raise EnvelopeError(
            f"content.text has {len(content.text):,} characters, expected at most {PIECE_CHARS}",
            field="content.text",
        )
    return StreamPiece(
        proposal_id=envelope.parent_id or "",
        seat=envelope.sender,
        text=content.text,
        stage=_fact(content, "stage", str)[:STAGE_CHARS_MAX],
        round=_amount(content, "round", ROUND_MAX),
        at=_amount(content, "at"),
        whole=_fact(content, "whole", bool),
    )


def _asks_human(control_packet: Mapping[str, Any]) -> bool:
    gates = control_packet.get("safety_gates")
    return isinstance(gates, Mapping) and gates.get("requires_user_approval") is True


def _submission(envelope: Envelope, content: Proposal, size: int, digest: str) -> ev.ProposalSubmitted:
    if size > PROPOSAL_BYTES_MAX:
        less = "leave out the oldest of its history" if content.history else "split it"
        raise EnvelopeTooLarge(
            f"the proposal has {size:,} bytes, at most {PROPOSAL_BYTES_MAX:,} are allowed: {less}",
            field="content.history" if content.history else "content.body",
            limit=PROPOSAL_BYTES_MAX,
            found=size,
        )
    return ev.ProposalSubmitted(
        Submission(
            proposal_id=envelope.msg_id,
            proposer=envelope.sender,
            digest=digest,
            summary=content.summary,
            time_budget_s=content.time_budget_s,
            wait_for=content.wait_for,
            confidence=envelope.confidence,
            risk_level=envelope.risk_level,
            tool=content.action.tool if content.action is not None else None,
            supersedes=content.supersedes,
        )
    )


def _info(envelope: Envelope, content: Info, digest: str, role: str | None) -> ev.Event:
    """The acts that travel as INFO of kinds of their own (rules 1.2)."""
    sender = envelope.sender
    proposal_id = envelope.parent_id or ""
    speaker = SPEAKERS.get(content.kind, "voter")
    if speaker != "any" and role != speaker:
        raise Refused(
            f"{sender} joined as a {role} and may not send INFO of kind {content.kind}", code="wrong_role"
        )
    if content.data.get("proposal_id", proposal_id) != proposal_id:
        raise EnvelopeError(
            "content.data.proposal_id names another proposal than parent_id", field="content.data.proposal_id"
        )
    match content.kind:
        case "cancel":
            return ev.ProposalCancelled(proposal_id, sender, content.text)
        case "answer":
            approve = _fact(content, "approve", bool)
            answer = Answer(proposal_id, sender, approve, content.text, envelope.msg_id, digest)
            return ev.HumanAnswered(answer)
        case identity.KIND:
            return identity.requested_change(envelope, content)
        case "outcome":
            return ev.ActionReported(_report(envelope, content, proposal_id, digest))
        case "fault":
            task = _fact(content, "task", str)
            return ev.WorkFailed(proposal_id, sender, task, content.text, _overruns(content))
        case "reserve":
            return ev.CallReserved(_call(envelope, content, proposal_id), _overruns(content))
        case "settle":
            error = _fact(content, "error", str, "")
            return ev.CallSettled(
                proposal_id,
                sender,
                _fact(content, "call", str),
                _used(content),
                error_kind(error) if error else "",
            )
        case "observation":
            return ev.StreamObserved(
                proposal_id=proposal_id,
                observer=sender,
                stream=_fact(content, "stream", str),
                interrupt=_fact(content, "interrupt", bool),
                text=content.text,
                msg_id=envelope.msg_id,
                stage=_fact(content, "stage", str, "")[:STAGE_CHARS_MAX],
                round=_amount(content, "round", ROUND_MAX, 0),
                whole=_fact(content, "whole", bool, True),
            )
        case "ruling":
            word = _fact(content, "ruling", str)
            if word not in ("confirm", "reject", "human"):
                raise EnvelopeError(
                    f"content.data.ruling is {quoted(word)}, expected confirm, reject or human",
                    field="content.data.ruling",
                )
            return ev.RulingGiven(
                Ruling(
                    proposal_id=proposal_id,
                    seat=sender,
                    ruling=word,  # type: ignore[arg-type]  # checked just above
                    reason=content.text,
                    confidence=envelope.confidence,
                    risk_level=envelope.risk_level,
                    msg_id=envelope.msg_id,
                    digest=digest,
                )
            )
    raise Refused(f"INFO of kind {content.kind!r} is none that the council acts on", code="unknown_kind")


def _report(envelope: Envelope, content: Info, proposal_id: str, digest: str) -> ActionReport:
    stage = _fact(content, "stage", str)
    if stage not in STAGES:
        raise EnvelopeError(
            f"content.data.stage is {quoted(stage)}, expected {', '.join(STAGES)}", field="content.data.stage"
        )
    return ActionReport(
        proposal_id=proposal_id,
        sender=envelope.sender,
        stage=stage,
        ok=_fact(content, "ok", bool),
        text=content.text[:REASON_TOLD_MAX],
        digest=digest,
    )


def _call(envelope: Envelope, content: Info, proposal_id: str) -> Call:
    return Call(
        call_id=envelope.msg_id,
        proposal_id=proposal_id,
        seat=envelope.sender,
        task=_fact(content, "task", str)[:WORD_CHARS_MAX],
        model=_fact(content, "model", str)[:WORD_CHARS_MAX],
        worst=Spend(_amount(content, "tokens"), _amount(content, "microusd")),
        prompt=_fact(content, "prompt", str, "")[:WORD_CHARS_MAX],
    )


def _overruns(content: Info) -> tuple[Overrun, ...]:
    given = plain(content.data.get("overruns", ()))
    try:
        return tuple(msgspec.convert(given, list[Overrun])[:OVERRUNS_MAX])
    except msgspec.ValidationError as error:
        field = "content.data.overruns"
        raise EnvelopeError(f"{field} can't be read: {error}", field=field) from error


def _used(content: Info) -> Spend | None:
    """What a call has cost; None where its seat does not know."""
    if content.data.get("tokens") is None:
        return None
    return Spend(_amount(content, "tokens"), _amount(content, "microusd"))


def _amount(content: Info, name: str, most: int = AMOUNT_MAX, default: int | None = None) -> int:
    value = _fact(content, name, int, default)
    if isinstance(value, bool) or not 0 <= value <= most:
        field = f"content.data.{name}"
        raise EnvelopeError(f"{field} is {quoted(value)}, expected 0 to {most:,}", field=field)
    return value


def _fact(content: Info, name: str, kind: type[T], default: T | None = None) -> T:
    """A fact that an INFO of this kind must carry, unless it has a ``default``. Raises EnvelopeError for another."""
    value = content.data.get(name, default)
    if not isinstance(value, kind):
        field = f"content.data.{name}"
        raise EnvelopeError(f"{field} is {quoted(value)}, expected {kind.__name__}", field=field)
    return value


def digest(sealed: bytes) -> str:
    """Identifies an envelope's canonical bytes, whoever's key signed them (rules 1.12)."""
    return hashlib.blake2b(signing.payload_of(sealed), digest_size=16).hexdigest()
