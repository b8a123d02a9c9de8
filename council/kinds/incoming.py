"""Reads an authentic message as an event. Knows nothing of who may send it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from council.agents.prompting.prompt import OVERRUNS_MAX
from council.agents.seat.budget_client import error_kind
from council.agents.seat.plan_stream import STAGE_CHARS_MAX
from council.core import events as ev
from council.core.state import (
    ACTION_STAGES,
    REASON_TOLD_MAX,
    ActionReport,
    Answer,
    Ballot,
    Call,
    Overrun,
    Ruling,
    Spend,
    Submission,
    Value,
)
from council.kinds import identity
from council.protocol.envelope import Envelope
from council.protocol.errors import EnvelopeError, EnvelopeTooLarge
from council.protocol.values import plain, quoted

# Three seats are handed it, and Prime once more with every ballot: what is larger is split, or named.
PROPOSAL_BYTES_MAX = 768 * 2**10
# Of a model's name and a call's purpose so much is kept; a call costs at most so many tokens, or micro-dollars.
WORD_CHARS_MAX = 200
AMOUNT_MAX = 10**12
ROUND_MAX = 2**53  # of what a seat says: 2**21 runs of 2**32 rounds (``agents.voice``)
T = TypeVar("T")
V = TypeVar("V", bound=Value)


class Incoming(NamedTuple):
    """A message of ``size`` sealed bytes; ``digest`` identifies its canonical bytes (rules 1.12).

    ``proposal_id`` and the methods are for INFO.
    """

    envelope: Envelope
    size: int = 0
    digest: str = ""

    @property
    def sender(self) -> str:
        return self.envelope.sender

    @property
    def content(self) -> Any:
        """Of the class that goes with the message's type."""
        return self.envelope.content

    @property
    def proposal_id(self) -> str:
        return self.envelope.parent_id or ""

    def fact(self, name: str, kind: type[T], default: T | None = None) -> T:
        """A fact that it must carry, unless it has a ``default``. Raises EnvelopeError for another."""
        value = self.content.data.get(name, default)
        if not isinstance(value, kind):
            field = f"content.data.{name}"
            raise EnvelopeError(f"{field} is {quoted(value)}, expected {kind.__name__}", field=field)
        return value

    def amount(self, name: str, most: int = AMOUNT_MAX, default: int | None = None) -> int:
        """A number from 0 to ``most``. Raises EnvelopeError for another."""
        value = self.fact(name, int, default)
        if isinstance(value, bool) or not 0 <= value <= most:
            field = f"content.data.{name}"
            raise EnvelopeError(f"{field} is {quoted(value)}, expected 0 to {most:,}", field=field)
        return value

    def word(self, name: str, words: tuple[str, ...], expected: str) -> Any:
        """One of these words. Raises EnvelopeError for another."""
        value = self.fact(name, str)
        if value not in words:
            field = f"content.data.{name}"
            raise EnvelopeError(f"{field} is {quoted(value)}, expected {expected}", field=field)
        return value

    def made(self, kind: type[V], **facts: Any) -> V:
        """A value of this class. A field that ``facts`` does not give is filled from the message by its name."""
        known: dict[str, Any] = {
            "proposal_id": self.proposal_id,
            "msg_id": self.envelope.msg_id,
            "digest": self.digest,
            "confidence": self.envelope.confidence,
            "risk_level": self.envelope.risk_level,
            **dict.fromkeys(("seat", "observer", "human", "sender"), self.sender),
            **dict.fromkeys(("text", "reason", "why"), self.content.text),
            **facts,
        }
        return kind(**{name: known[name] for name in kind.__struct_fields__ if name in known})

    def overruns(self) -> tuple[Overrun, ...]:
        """What was done to make a prompt fit (rules 2.4). Raises EnvelopeError where it can't be read."""
        given = plain(self.content.data.get("overruns", ()))
        try:
            return tuple(msgspec.convert(given, list[Overrun])[:OVERRUNS_MAX])
        except msgspec.ValidationError as error:
            field = "content.data.overruns"
            raise EnvelopeError(f"{field} can't be read: {error}", field=field) from error


def submission(said: Incoming) -> ev.ProposalSubmitted:
    envelope, content = said.envelope, said.content
    identity.refuse_another(content)
    if said.size > PROPOSAL_BYTES_MAX:
        less = "leave out the oldest of its history" if content.history else "split it"
        raise EnvelopeTooLarge(
            f"the proposal has {said.size:,} bytes, at most {PROPOSAL_BYTES_MAX:,} are allowed: {less}",
            field="content.history" if content.history else "content.body",
            limit=PROPOSAL_BYTES_MAX,
            found=said.size,
        )
    return ev.ProposalSubmitted(
        Submission(
            proposal_id=envelope.msg_id,
            proposer=said.sender,
            digest=said.digest,
            summary=content.summary,
            time_budget_s=content.time_budget_s,
            wait_for=content.wait_for,
            confidence=envelope.confidence,
            risk_level=envelope.risk_level,
            tool=content.action.tool if content.action is not None else None,
            supersedes=content.supersedes,
        )
    )


def ballot(said: Incoming) -> ev.BallotCast:
    envelope, content = said.envelope, said.content
    gates = (content.control_packet or {}).get("safety_gates")
    return ev.BallotCast(
        Ballot(
            proposal_id=content.proposal_id,
            seat=said.sender,
            vote=content.vote,
            reason=content.reason,
            confidence=envelope.confidence,
            risk_level=envelope.risk_level,
            msg_id=envelope.msg_id,
            digest=said.digest,
            asks_human=isinstance(gates, Mapping) and gates.get("requires_user_approval") is True,
        )
    )


def escalation(said: Incoming) -> ev.EscalationRaised:
    content = said.content
    return ev.EscalationRaised(content.proposal_id, said.sender, content.reason, said.envelope.msg_id)


def heartbeat(said: Incoming) -> ev.SeatBeat:
    return ev.SeatBeat(said.sender, int(said.envelope.parent_id or "0", 16), said.content.beat)


def cancellation(said: Incoming) -> ev.ProposalCancelled:
    return said.made(ev.ProposalCancelled)


def answer(said: Incoming) -> ev.HumanAnswered:
    return ev.HumanAnswered(said.made(Answer, approve=said.fact("approve", bool)))


def identity_change(said: Incoming) -> ev.IdentityChanged:
    return identity.requested_change(said.envelope, said.content)


def report(said: Incoming) -> ev.ActionReported:
    stage, ok = said.word("stage", ACTION_STAGES, ", ".join(ACTION_STAGES)), said.fact("ok", bool)
    return ev.ActionReported(
        said.made(ActionReport, stage=stage, ok=ok, text=said.content.text[:REASON_TOLD_MAX])
    )


def fault(said: Incoming) -> ev.WorkFailed:
    return said.made(ev.WorkFailed, task=said.fact("task", str), overruns=said.overruns())


def reservation(said: Incoming) -> ev.CallReserved:
    call = Call(
        call_id=said.envelope.msg_id,
        proposal_id=said.proposal_id,
        seat=said.sender,
        task=said.fact("task", str)[:WORD_CHARS_MAX],
        model=said.fact("model", str)[:WORD_CHARS_MAX],
        worst=Spend(said.amount("tokens"), said.amount("microusd")),
        prompt=said.fact("prompt", str, "")[:WORD_CHARS_MAX],
    )
    return ev.CallReserved(call, said.overruns())


def settlement(said: Incoming) -> ev.CallSettled:
    error, call_id, used = said.fact("error", str, ""), said.fact("call", str), None
    if said.content.data.get("tokens") is not None:  # else its seat does not know
        used = Spend(said.amount("tokens"), said.amount("microusd"))
    return ev.CallSettled(said.proposal_id, said.sender, call_id, used, error_kind(error) if error else "")


def observation(said: Incoming) -> ev.StreamObserved:
    return said.made(
        ev.StreamObserved,
        stream=said.fact("stream", str),
        interrupt=said.fact("interrupt", bool),
        stage=said.fact("stage", str, "")[:STAGE_CHARS_MAX],
        round=said.amount("round", ROUND_MAX, 0),
        whole=said.fact("whole", bool, True),
    )


def ruling(said: Incoming) -> ev.RulingGiven:
    word = said.word("ruling", ("confirm", "reject", "human"), "confirm, reject or human")
    return ev.RulingGiven(said.made(Ruling, ruling=word))
