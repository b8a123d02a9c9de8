"""Reads an authentic message as an event."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from council.agents.prompting.prompt import OVERRUNS_MAX
from council.agents.prompting.tokens import WITHOUT_MODEL, TokenCounter
from council.agents.seat.budget_client import error_kind
from council.agents.seat.plan_stream import STAGE_CHARS_MAX
from council.core import events as ev
from council.core.state import (
    ACTION_STAGES,
    CHECK_CHARS_MAX,
    REASON_TOLD_MAX,
    USE_OUTCOMES,
    ActionReport,
    Answer,
    Ballot,
    Call,
    Check,
    Overrun,
    Ruling,
    Spend,
    Submission,
    Terms,
    UseRequest,
    UseResult,
    Value,
)
from council.kinds import identity
from council.protocol.envelope import RESOURCES_MAX, Action, Envelope, id_of_key
from council.protocol.errors import EnvelopeError, EnvelopeTooLarge
from council.protocol.packet import args_digest, canonical_json
from council.protocol.values import plain, quoted
from council.protocol.wording import msgspec_text

# Each seat gets a proposal, and Prime gets it again with every ballot; larger content must be split or referred to.
PROPOSAL_BYTES_MAX = 768 * 2**10
# rules 2.2: the most tokens of a reason that a seat sends.
REASON_TOKENS_MAX = 1_024
# The most that is kept of a model's name and a call's purpose, and the most tokens or micro-dollars of a call.
WORD_CHARS_MAX = 200
AMOUNT_MAX = 10**12
ROUND_MAX = 2**53  # of a seat's stream: 2**21 runs of 2**32 rounds
T = TypeVar("T")
V = TypeVar("V", bound=Value)


class Incoming(NamedTuple):
    """A message of ``size`` sealed bytes; ``digest`` identifies its canonical bytes (rules 1.12).

    ``proposal_id`` and the methods are for INFO messages.
    """

    envelope: Envelope
    size: int = 0
    digest: str = ""

    @property
    def sender(self) -> str:
        return self.envelope.sender

    @property
    def content(self) -> Any:
        """The content, of the class for the message's type."""
        return self.envelope.content

    @property
    def text(self) -> str:
        """The text of an INFO message, that of a seat within its token budget (rules 2.2)."""
        text: str = self.content.text
        return text if self.envelope.role in ("human", "proposer") else within_tokens(text)

    @property
    def proposal_id(self) -> str:
        return self.envelope.parent_id or ""

    def fact(self, name: str, kind: type[T], default: T | None = None) -> T:
        """A value of its data, required if there is no ``default``. Raises EnvelopeError for another type."""
        value = self.content.data.get(name, default)
        if not isinstance(value, kind):
            field = f"content.data.{name}"
            raise EnvelopeError(f"{field} is {quoted(value)}, expected {kind.__name__}", field=field)
        return value

    def amount(self, name: str, most: int = AMOUNT_MAX, default: int | None = None) -> int:
        """An integer of its data from 0 to ``most``. Raises EnvelopeError for another."""
        value = self.fact(name, int, default)
        if isinstance(value, bool) or not 0 <= value <= most:
            field = f"content.data.{name}"
            raise EnvelopeError(f"{field} is {quoted(value)}, expected 0 to {most:,}", field=field)
        return value

    def word(self, name: str, words: tuple[str, ...], expected: str) -> Any:
        """A value of its data that is one of ``words``. Raises EnvelopeError for another."""
        value = self.fact(name, str)
        if value not in words:
            field = f"content.data.{name}"
            raise EnvelopeError(f"{field} is {quoted(value)}, expected {expected}", field=field)
        return value

    def words(self, name: str) -> tuple[str, ...]:
        """A list of texts of its data. Raises EnvelopeError for another value, or too many."""
        value = self.fact(name, tuple)
        if len(value) > RESOURCES_MAX or not all(isinstance(each, str) for each in value):
            field = f"content.data.{name}"
            raise EnvelopeError(f"{field}: expected at most {RESOURCES_MAX} texts", field=field)
        return value

    def build(self, kind: type[V], **facts: Any) -> V:
        """A value of this class. Fields that are not in ``facts`` are filled from the message by their names."""
        known: dict[str, Any] = {
            "proposal_id": self.proposal_id,
            "msg_id": self.envelope.msg_id,
            "digest": self.digest,
            "confidence": self.envelope.confidence,
            "risk_level": self.envelope.risk_level,
            **dict.fromkeys(("seat", "observer", "human", "sender"), self.sender),
            **dict.fromkeys(("text", "reason", "why"), self.text),
            **facts,
        }
        return kind(**{name: known[name] for name in kind.__struct_fields__ if name in known})

    def overruns(self) -> tuple[Overrun, ...]:
        """The steps that made a prompt fit (rules 2.4). Raises EnvelopeError if they can't be read."""
        given = plain(self.content.data.get("overruns", ()))
        try:
            return tuple(msgspec.convert(given, list[Overrun])[:OVERRUNS_MAX])
        except msgspec.ValidationError as error:
            field = "content.data.overruns"
            raise EnvelopeError(msgspec_text(error, field), field=field) from error


def within_tokens(reason: str) -> str:
    """A text of a seat within its token budget, shortened by whole sentences and marked (rules 2.2, 2.4).

    If none of its sentences fits, its beginning is kept.
    """
    count = TokenCounter("", WITHOUT_MODEL)
    if count.most(reason) <= REASON_TOKENS_MAX or count(reason) <= REASON_TOKENS_MAX:
        return reason
    from council.agents.prompting.summary import MARK, summarize  # few reasons are that long

    if shortened := summarize(reason, REASON_TOKENS_MAX, count, way="tf-idf").text:
        return shortened
    longer = range(len(reason))
    too_long = bisect_right(longer, REASON_TOKENS_MAX, key=lambda chars: count(f"{MARK}\n{reason[:chars]}"))
    return f"{MARK}\n{reason[: too_long - 1]}"


def submission(message: Incoming) -> ev.ProposalSubmitted:
    envelope, content = message.envelope, message.content
    identity.refuse_another(content)
    if content.key is not None and envelope.msg_id != id_of_key(message.sender, content.key):
        raise EnvelopeError(
            f"msg_id is {envelope.msg_id}, and does not follow from the sender and the key",
            field="content.key",
        )
    if message.size > PROPOSAL_BYTES_MAX:
        less = "leave out the oldest of its history" if content.history else "split it"
        raise EnvelopeTooLarge(
            f"the proposal has {message.size:,} bytes, at most {PROPOSAL_BYTES_MAX:,} are allowed: {less}",
            field="content.history" if content.history else "content.body",
            limit=PROPOSAL_BYTES_MAX,
            found=message.size,
        )
    return ev.ProposalSubmitted(
        Submission(
            proposal_id=envelope.msg_id,
            proposer=message.sender,
            digest=message.digest,
            summary=content.summary,
            time_budget_s=content.time_budget_s,
            wait_for=content.wait_for,
            confidence=envelope.confidence,
            risk_level=envelope.risk_level,
            tool=content.action.tool if content.action is not None else None,
            supersedes=content.supersedes,
            terms=_terms(content.action),
        )
    )


def _terms(action: Action | None) -> Terms | msgspec.UnsetType:
    """What an approval of this action would allow; unset if the council is not asked to have it run."""
    if action is None or action.authorization is None:
        return msgspec.UNSET
    allows = action.authorization
    return Terms(
        allows.executor,
        allows.operations,
        allows.resources,
        args_digest(action.args),
        allows.uses,
        allows.ttl_s,
        allows.timeout_s,
    )


def ballot(message: Incoming) -> ev.BallotCast:
    """A ballot as it counts: its control packet binds it, whichever mind made it (rules 6.6)."""
    envelope, content = message.envelope, message.content
    cast = Ballot(
        proposal_id=content.proposal_id,
        seat=message.sender,
        vote=content.vote,
        reason=within_tokens(content.reason),
        confidence=envelope.confidence,
        risk_level=envelope.risk_level,
        msg_id=envelope.msg_id,
        digest=message.digest,
    )
    if not content.control_packet:
        return ev.BallotCast(cast)
    from council.protocol.answer import read  # only minds with a model send a packet
    from council.protocol.answer.sections import BallotSection

    packet = content.control_packet
    if (asked := packet.get("check")) is not None:
        cast = replace(cast, check=_check(message.sender, asked, cast.reason))
    if isinstance(seen := packet.get("checks_seen"), int):
        cast = replace(cast, checks_seen=seen)
    stated = BallotSection(
        vote=cast.vote, reason=cast.reason, confidence=cast.confidence, risk_level=cast.risk_level
    )
    counts = asdict(read.weigh_ballot(stated, plain(content.control_packet)))
    return ev.BallotCast(replace(cast, **{**counts, "notes": counts["notes"] or msgspec.UNSET}))


def _check(seat: str, asked: object, why: str) -> Check:
    """The check that a seat asks for; without a tool, if it is not ``{"tool": name, "args": {...}}``."""
    given = plain(asked)
    try:
        action = Action.model_validate(given if "args" in given else {**given, "args": {}})
        args = canonical_json(action.args)
    except (TypeError, ValueError, EnvelopeError):
        return Check(seat, "", "", "", why[:REASON_TOLD_MAX])
    if len(args) > CHECK_CHARS_MAX or action.authorization is not None:
        return Check(seat, "", "", "", why[:REASON_TOLD_MAX])
    return Check(seat, action.tool, args, args_digest(action.args), why[:REASON_TOLD_MAX])


def escalation(message: Incoming) -> ev.EscalationRaised:
    content = message.content
    return ev.EscalationRaised(
        content.proposal_id, message.sender, within_tokens(content.reason), message.envelope.msg_id
    )


def heartbeat(message: Incoming) -> ev.SeatBeat:
    return ev.SeatBeat(message.sender, int(message.envelope.parent_id or "0", 16), message.content.beat)


def cancellation(message: Incoming) -> ev.ProposalCancelled:
    return message.build(ev.ProposalCancelled, by_human=message.envelope.role == "human")


def answer(message: Incoming) -> ev.HumanAnswered:
    about = {"use": message.amount("use")} if "use" in message.content.data else {}
    return ev.HumanAnswered(message.build(Answer, approve=message.fact("approve", bool), **about))


def identity_change(message: Incoming) -> ev.IdentityChanged:
    return identity.requested_change(message.envelope, message.content)


def report(message: Incoming) -> ev.ActionReported:
    stage, ok = message.word("stage", ACTION_STAGES, ", ".join(ACTION_STAGES)), message.fact("ok", bool)
    return ev.ActionReported(
        message.build(ActionReport, stage=stage, ok=ok, text=message.content.text[:REASON_TOLD_MAX])
    )


def executor_start(message: Incoming) -> ev.ExecutorStarted:
    return ev.ExecutorStarted(message.sender, message.fact("run", str)[:WORD_CHARS_MAX])


def use(message: Incoming) -> ev.UseAsked:
    return ev.UseAsked(
        message.build(
            UseRequest,
            use_id=message.envelope.msg_id,
            executor=message.sender,
            run=message.fact("run", str)[:WORD_CHARS_MAX],
            token_id=message.fact("token", str)[:WORD_CHARS_MAX],
            tool=message.fact("tool", str)[:WORD_CHARS_MAX],
            operations=message.words("operations"),
            resources=message.words("resources"),
            arguments=message.fact("arguments", str)[:WORD_CHARS_MAX],
        )
    )


def use_result(message: Incoming) -> ev.UseReported:
    exit_code = message.content.data.get("exit_code")
    return ev.UseReported(
        message.build(
            UseResult,
            use_id=message.fact("use", str)[:WORD_CHARS_MAX],
            executor=message.sender,
            outcome=message.word("outcome", USE_OUTCOMES, ", ".join(USE_OUTCOMES)),
            sandbox=message.fact("sandbox", str, "")[:WORD_CHARS_MAX],
            exit_code=None if exit_code is None else message.fact("exit_code", int),
            output=message.fact("output", str, "")[:WORD_CHARS_MAX],
        )
    )


def revocation(message: Incoming) -> ev.TokenRevoked:
    return message.build(ev.TokenRevoked, by_human=message.envelope.role == "human")


def fault(message: Incoming) -> ev.WorkFailed:
    return message.build(ev.WorkFailed, task=message.fact("task", str), overruns=message.overruns())


def reservation(message: Incoming) -> ev.CallReserved:
    call = Call(
        call_id=message.envelope.msg_id,
        proposal_id=message.proposal_id,
        seat=message.sender,
        task=message.fact("task", str)[:WORD_CHARS_MAX],
        model=message.fact("model", str)[:WORD_CHARS_MAX],
        worst=Spend(message.amount("tokens"), message.amount("microusd")),
        prompt=message.fact("prompt", str, "")[:WORD_CHARS_MAX],
    )
    return ev.CallReserved(call, message.overruns())


def settlement(message: Incoming) -> ev.CallSettled:
    error, call_id, used = message.fact("error", str, ""), message.fact("call", str), None
    if message.content.data.get("tokens") is not None:  # else the usage is unknown
        used = Spend(message.amount("tokens"), message.amount("microusd"))
    return ev.CallSettled(
        message.proposal_id, message.sender, call_id, used, error_kind(error) if error else ""
    )


def observation(message: Incoming) -> ev.StreamObserved:
    return message.build(
        ev.StreamObserved,
        stream=message.fact("stream", str),
        interrupt=message.fact("interrupt", bool),
        stage=message.fact("stage", str, "")[:STAGE_CHARS_MAX],
        round=message.amount("round", ROUND_MAX, 0),
        whole=message.fact("whole", bool, True),
    )


def ruling(message: Incoming) -> ev.RulingGiven:
    words = ("confirm", "reject", "human", "verify")
    word = message.word("ruling", words, "confirm, reject, human or verify")
    asked = message.content.data.get("check")
    check = _check(message.sender, asked, message.text) if word == "verify" else UNSET
    return ev.RulingGiven(message.build(Ruling, ruling=word, check=check))
