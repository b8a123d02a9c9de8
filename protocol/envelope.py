"""What one member of the council sends another: the GCP-Core envelope and its five bodies, as values.

Knows shapes and limits, and JSON as people write it. Knows nothing of wires, keys, quorum or time: whoever
makes an envelope hands in its id and its timestamp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from council.protocol.errors import EnvelopeError, EnvelopeTooLarge
from council.protocol.jsondata import freeze, kind_of, plain, quoted, read_json

__all__ = [
    "Action",
    "Body",
    "Envelope",
    "Escalation",
    "Heartbeat",
    "Info",
    "MessageType",
    "Proposal",
    "RiskLevel",
    "Role",
    "Vote",
    "VoteWord",
    "plain",
    "validate",
]

Role = Literal["proposer", "voter", "observer", "coordinator", "human"]
RiskLevel = Literal["low", "med", "high"]
MessageType = Literal["PROPOSAL", "VOTE", "INFO", "ESCALATION", "HEARTBEAT"]
VoteWord = Literal["yes", "no", "abstain"]

# A summary is read at a glance, in one table with others.
SUMMARY_CHARS_MAX = 2_000
# A body may hold a whole change to review, and must leave room within the envelope's bytes.
BODY_CHARS_MAX = 900_000
# A reason is some paragraphs: several are shown to Prime together.
REASON_CHARS_MAX = 20_000
# Names of tools and kinds are looked up and printed in tables.
NAME_CHARS_MAX = 200
# A day: what takes longer is a matter for a human, whose own deadline that is (rules 1.9).
TIME_BUDGET_S_MAX = 86_400
# A beat each 30 s would take 8 trillion years to pass it; databases hold signed 64 bits.
BEAT_MAX = 2**63 - 1
# So many faults are listed; a reader mends the first ones anyway.
PROBLEMS_MAX = 100

# rules 1.15: 8 to 32 are accepted, 16 are written.
MSG_ID_PATTERN = r"^[0-9a-f]{8,32}$"
SENDER_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)


def _no_nul(text: str) -> str:
    # rules 4.5: databases refuse it. A search is faster than a pattern by a microsecond for each ballot.
    if "\0" in text:
        raise PydanticCustomError("nul", "holds a NUL character, which databases refuse; remove it")
    return text


def _length(most: int, least: int = 0) -> Any:
    """The constraints of a text; counting its characters refuses halves of surrogate pairs too."""
    return Field(min_length=least, max_length=most)


def _to_utc(moment: datetime) -> datetime:
    """The same moment in UTC. A plain datetime, whatever subclass came in, so that it pickles alike."""
    if moment.tzinfo is UTC and type(moment) is datetime:
        return moment
    if moment.utcoffset() is None:
        raise PydanticCustomError("naive", "has no offset from UTC; give an aware time")
    try:
        m = moment.astimezone(UTC)
    except (OverflowError, ValueError):
        raise PydanticCustomError("out_of_range", "lies outside the years 1 to 9999 in UTC") from None
    return datetime(m.year, m.month, m.day, m.hour, m.minute, m.second, m.microsecond, UTC)


def _frozen(value: object) -> Mapping[str, Any]:
    """A JSON object, frozen; its faults as pydantic wants them, with the path inside the object beside."""
    try:
        return freeze(value)
    except EnvelopeTooLarge as fault:
        facts = {"path": fault.field, "problem": fault.message, "limit": fault.limit, "found": fault.found}
        raise PydanticCustomError("too_large", "{problem}", facts) from None
    except EnvelopeError as fault:
        facts = {"path": fault.field, "problem": fault.message}
        raise PydanticCustomError("json_value", "{problem}", facts) from None


JsonObject = Annotated[
    Mapping[str, Any],
    PlainValidator(_frozen, json_schema_input_type=dict[str, Any]),
    PlainSerializer(plain, return_type=dict[str, Any]),
]
EMPTY = freeze({})

MsgId = Annotated[str, StringConstraints(pattern=MSG_ID_PATTERN)]
Sender = Annotated[str, StringConstraints(pattern=SENDER_PATTERN)]
Timestamp = Annotated[AwareDatetime, AfterValidator(_to_utc)]
Summary = Annotated[str, _length(SUMMARY_CHARS_MAX, 1), AfterValidator(_no_nul)]
MarkdownBody = Annotated[str, _length(BODY_CHARS_MAX), AfterValidator(_no_nul)]
Reason = Annotated[str, _length(REASON_CHARS_MAX), AfterValidator(_no_nul)]
Name = Annotated[str, _length(NAME_CHARS_MAX, 1), AfterValidator(_no_nul)]
# What is not negative equals its absolute value, except -0.0: one number, one encoding.
Confidence = Annotated[float, Field(ge=0, le=1), AfterValidator(float.__abs__)]
TimeBudget = Annotated[float, Field(gt=0, le=TIME_BUDGET_S_MAX), AfterValidator(float.__abs__)]
Uptime = Annotated[float, Field(ge=0), AfterValidator(float.__abs__)]


class _Model(BaseModel):
    """Strict and frozen; what goes in is checked whichever way it goes in, and never shown in an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        revalidate_instances="always",
        hide_input_in_errors=True,
    )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, but what is updated is validated too; raises pydantic's ValidationError."""
        if not update:
            return super().model_copy(deep=deep)
        return type(self).model_validate({**dict(self), **update})


class Action(_Model):
    """A call of a tool that a proposal asks for."""

    tool: Name
    args: JsonObject


def _wait_for(others: dict[str, Any]) -> Literal["decisive", "all"]:
    # rules 1.5: with an action every ballot is waited for, unless the proposal says otherwise.
    return "decisive" if others.get("action") is None else "all"


class Proposal(_Model):
    """Something to vote on (rules 1.2). ``time_budget_s`` is in seconds; ``body`` is markdown."""

    summary: Summary
    body: MarkdownBody = ""
    action: Action | None = None
    wait_for: Literal["decisive", "all"] = Field(default_factory=_wait_for)
    time_budget_s: TimeBudget = 60.0
    supersedes: MsgId | None = None


class Vote(_Model):
    """A ballot (rules 1.2). ``control_packet`` is what the seat's model gave along, unread."""

    proposal_id: MsgId
    vote: VoteWord
    reason: Reason
    control_packet: JsonObject | None = None


class Info(_Model):
    """Something to know; binds nobody. Cancellations and answers of humans are kinds of their own."""

    kind: Name
    text: Reason = ""
    data: JsonObject = Field(default_factory=lambda: EMPTY)


class Escalation(_Model):
    """A call for Prime's attention (rules 1.8)."""

    proposal_id: MsgId
    reason: Reason


class Heartbeat(_Model):
    """A seat is alive: its beats counted, what it works on, and for how many seconds it has run."""

    beat: Annotated[int, Field(ge=0, le=BEAT_MAX)]
    busy_with: Name | None = None
    uptime_s: Uptime


Body = Proposal | Vote | Info | Escalation | Heartbeat

BODIES: dict[MessageType, type[Body]] = {
    "PROPOSAL": Proposal,
    "VOTE": Vote,
    "INFO": Info,
    "ESCALATION": Escalation,
    "HEARTBEAT": Heartbeat,
}
# pydantic-core's own entry: a third faster than model_validate, and this runs for each message.
_CONTENT: dict[MessageType, Callable[[object], Body]] = {
    word: body.__pydantic_validator__.validate_python for word, body in BODIES.items()
}


def _content(value: object, info: ValidationInfo) -> Body:
    """The body that ``type`` asks for; a fault inside it gets its path from pydantic."""
    others = info.data
    word = others.get("type")
    if word is None:  # The type itself is at fault and reported; what its content should be nobody knows.
        return cast(Body, value)
    body = _CONTENT[word](value)
    if word == "VOTE" and "parent_id" in others and others["parent_id"] != cast(Vote, body).proposal_id:
        # rules 1.2: a ballot's parent is the proposal it is cast on.
        raise PydanticCustomError(
            "parent", "must be the proposal voted on, content.proposal_id", {"field": "parent_id"}
        )
    return body


class Envelope(_Model):
    """A message of the council (GCP 8.1). ``parent_id`` is what it answers, ``confidence`` 0..1.

    Two envelopes are equal exactly when their canonical bytes (``codec.encode``) are.
    """

    msg_id: MsgId
    parent_id: MsgId | None = None
    timestamp: Timestamp
    sender: Sender
    role: Role
    type: MessageType
    confidence: Confidence = 1.0
    risk_level: RiskLevel = "low"
    content: Annotated[
        Body,
        PlainValidator(_content, json_schema_input_type=Body),
        PlainSerializer(lambda body: body.model_dump(), return_type=dict[str, Any]),
    ]

    @classmethod
    def build(cls, /, **fields: Any) -> Self:
        """An envelope of these fields; ``content`` is a body or a mapping of its fields.

        Raises EnvelopeError (EnvelopeTooLarge for a limit) with ``field``, the dotted path of the first
        fault, and ``problems``, a tuple of all of them in words.
        """
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise envelope_error(error) from None

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read an envelope as GCP 8.1 shows it. ``content`` is an object, or a string that holds one.

        A PROPOSAL's content may be markdown too (its first line is the summary), and so may an INFO's
        (a note). What begins with ``{`` is taken for JSON and never for markdown: half an object must not
        become a proposal without its action. Digits of a second past the sixth are dropped. Raises
        EnvelopeError, EnvelopeTooLarge.
        """
        found = read_json(text, field="envelope")
        if not isinstance(found, dict):
            raise EnvelopeError(f"envelope: expected an object, found {kind_of(found)}", field="envelope")
        if isinstance(found.get("timestamp"), str):
            found["timestamp"] = _read_timestamp(found["timestamp"])
        if isinstance(found.get("content"), str):
            found["content"] = _read_content(found.get("type"), found["content"])
        return cls.build(**found)

    def to_json(self) -> str:
        """The envelope as GCP 8.1 shows it, on one line; ``content`` is an object."""
        return json.dumps(
            {
                "msg_id": self.msg_id,
                "parent_id": self.parent_id,
                "timestamp": self.timestamp.isoformat().replace("+00:00", "Z"),
                "sender": self.sender,
                "role": self.role,
                "type": self.type,
                "confidence": self.confidence,
                "risk_level": self.risk_level,
                "content": _plain_body(self.content),
            },
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        )


def validate(fields: dict[str, Any]) -> Envelope:
    """``Envelope.build`` for a reader that has the fields in a dict already, and is in a hurry."""
    try:
        return cast(Envelope, _VALIDATE(fields))
    except ValidationError as error:
        raise envelope_error(error) from None


_VALIDATE = Envelope.__pydantic_validator__.validate_python


# From pydantic's errors to ours


def envelope_error(error: ValidationError) -> EnvelopeError:
    """pydantic's faults as one EnvelopeError that names the first and lists all."""
    faults = error.errors(include_url=False)
    first = faults[0]
    field = _path(first)
    problems = tuple(f"{_path(fault)}: {_words(fault)}" for fault in faults[:PROBLEMS_MAX])
    message = problems[0]
    if len(faults) > 1:
        message += f" (and {len(faults) - 1} more, see problems)"
    if first["type"] in ("too_large", "string_too_long"):
        context = first["ctx"]
        limit = context.get("limit", context.get("max_length"))
        found = context["found"] if "found" in context else len(first["input"])
        return EnvelopeTooLarge(message, field=field, problems=problems, limit=limit, found=found)
    return EnvelopeError(message, field=field, problems=problems)


def _path(fault: ErrorDetails) -> str:
    """``content.action.args.files[3]``; a key from outside is cut and escaped."""
    context = fault.get("ctx", {})
    if "field" in context:
        return str(context["field"])
    steps = [step if isinstance(step, str) and step.isidentifier() else str(step) for step in fault["loc"]]
    path = ".".join(step if step.isidentifier() and len(step) <= 64 else quoted(step) for step in steps)
    inner = str(context.get("path", ""))
    if not inner:
        return path or "envelope"
    return path + inner if inner.startswith("[") else f"{path}.{inner}"


def _words(fault: ErrorDetails) -> str:
    """What was expected and what was found; what was found only where it is short."""
    kind, value = fault["type"], fault["input"]
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is no field here; remove it"
    if kind == "string_unicode":
        return "holds half of a surrogate pair, which is no text"
    message = fault["msg"]
    if kind == "string_too_long":
        return f"{message}; it has {len(value):,}"
    if kind in ("too_large", "json_value", "nul", "naive", "out_of_range", "parent"):
        return message
    if isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 64):
        return f"{message}; found {value!r}"
    return f"{message}; found {quoted(value)}"


# JSON as people write it


def _read_timestamp(text: str) -> datetime:
    """RFC 3339. Without an offset the result is naive, and the envelope refuses it."""
    found = _TIMESTAMP.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        day, clock, fraction, offset = found.groups(default="")
        return datetime.fromisoformat(f"{day}T{clock}{fraction}{offset.upper()}")
    except ValueError:
        message = f"timestamp: {quoted(text)} is no time; expected one like 2025-07-11T19:22:00Z"
        raise EnvelopeError(message, field="timestamp", problems=(message,)) from None


def _read_content(word: object, text: str) -> Any:
    """The object that a string of content means."""
    stripped = text.lstrip()
    if stripped.startswith("{") or word not in ("PROPOSAL", "INFO"):
        return read_json(text, field="content")
    if word == "INFO":
        return {"kind": "note", "text": text}
    summary, _, rest = stripped.partition("\n")
    return {"summary": summary.lstrip("#").strip(), "body": rest.strip("\r\n")}


def _plain_body(body: Body) -> dict[str, Any]:
    shown = body.model_dump()
    if isinstance(body, Vote) and body.control_packet is None:
        del shown["control_packet"]  # rules 1.2: it stands there where the seat's model gave one
    return shown
