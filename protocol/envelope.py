"""The messages between members of a council: the GCP-Core envelope and its five bodies, as values.

This module has the shapes and limits, and reads JSON as people write it. ``codec`` has the bytes on the wire, and
``signing`` the keys. No clock is read: the caller passes an envelope's id and timestamp.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from council.protocol.metadata import Metadata
from council.protocol.models import (
    EMPTY,
    Confidence,
    JsonObject,
    Length,
    Model,
    NotNegative,
    Timestamp,
    at_most,
    read_timestamp,
    refusal,
    time_text,
    unseen,
)
from council.protocol.values import read_json, read_object
from council.protocol.wording import matching

Role = Literal["proposer", "voter", "observer", "coordinator", "human"]
RiskLevel = Literal["low", "med", "high"]
MessageType = Literal["PROPOSAL", "VOTE", "INFO", "ESCALATION", "HEARTBEAT"]
VoteWord = Literal["yes", "no", "abstain"]

# A summary is one row of a table.
SUMMARY_CHARS_MAX = 2_000
# A body may hold a whole change to review, and must leave room for the rest of the envelope.
BODY_CHARS_MAX = 900_000
# A reason is some paragraphs. Several are shown to Prime together.
REASON_CHARS_MAX = 20_000
# Names of tools and kinds are searched for and printed in tables.
NAME_CHARS_MAX = 200
# A requester is one line on a screen of 80 columns, with one field that may be long, the folder.
REQUESTER_CHARS_MAX = 200
# About 100,000 tokens. A prompt shows some thousands of them, which each seat selects from all.
HISTORY_CHARS_MAX = 400_000
HISTORY_TURNS_MAX = 1_000
# A day. A longer decision is one for a human, who has a separate deadline (rules 1.9).
TIME_BUDGET_S_MAX = 86_400
# With one beat in 30 s it takes 8 trillion years to reach this. Databases hold signed 64 bits.
BEAT_MAX = 2**63 - 1

# rules 1.15: ids of 8 to 32 digits are accepted; 16 are written.
MSG_ID_PATTERN = r"^[0-9a-f]{8,32}$"
SENDER_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"
# It precedes a turn's text in prompts, so it must be a single word.
TURN_ROLE_PATTERN = r"^[a-z][a-z0-9_-]{0,31}$"

_ID = matching(MSG_ID_PATTERN, "an id: 8 to 32 of the characters 0-9 and a-f")
_NAME = matching(SENDER_PATTERN, "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit")
_WORD = matching(TURN_ROLE_PATTERN, "one word of 1 to 32 of a-z, 0-9, '_' and '-', beginning with a letter")

MsgId = Annotated[str, _ID, at_most(NAME_CHARS_MAX)]
Sender = Annotated[str, _NAME, at_most(NAME_CHARS_MAX)]
Summary = Annotated[str, Length(SUMMARY_CHARS_MAX, 1)]
MarkdownBody = Annotated[str, Length(BODY_CHARS_MAX)]
Reason = Annotated[str, Length(REASON_CHARS_MAX)]
Name = Annotated[str, Length(NAME_CHARS_MAX, 1)]
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _on_one_line(text: str) -> str:
    if _CONTROLS.search(text):
        raise refusal("holds a control character or a line end; expected text on one line")
    return text


ShortText = Annotated[str, Length(REQUESTER_CHARS_MAX, 1), AfterValidator(_on_one_line)]
TimeBudget = Annotated[float, Field(gt=0, le=TIME_BUDGET_S_MAX)]


# The order of a class's fields is the order of its array on the wire (``codec``): add a new field at the end.


class Action(Model):
    """A call of a tool that a proposal asks for."""

    tool: Name
    args: JsonObject


class Turn(Model):
    """One turn before a proposal was made: the words of a person, or the output of a tool.

    It is outside data (rules 1.14).

    ``role`` is one word: ``user``, ``assistant``, ``tool``, ``system`` or another.
    """

    role: Annotated[str, _WORD, at_most(NAME_CHARS_MAX)]
    text: Annotated[str, Length(HISTORY_CHARS_MAX)]


class Requester(Model):
    """The requester of a proposal, as the proposer's client states it. It is not verified.

    ``agent`` is the program or agent that asks, ``user`` its user on ``host``, ``folder`` its working folder, and
    ``repository`` the git repository there. Each is text of 1 to 200 characters on one line, or None.
    """

    agent: ShortText | None = None
    user: ShortText | None = None
    host: ShortText | None = None
    folder: ShortText | None = None
    repository: ShortText | None = None

    def __str__(self) -> str:
        """All of it on one line: ``deploy-bot for ada@web-3 in ~/shop (shop.git)``."""
        place = f"{self.user or ''}{f'@{self.host}' if self.host else ''}"
        words = [self.agent, f"for {place}" if self.agent and place else place]
        words += [
            f"in {self.folder}" if self.folder else "",
            f"({self.repository})" if self.repository else "",
        ]
        return " ".join(word for word in words if word)


def _few(turns: object) -> object:
    """Turns as a tuple. Their number is checked before any of them is read."""
    found = tuple(turns) if isinstance(turns, list) else turns
    if not isinstance(found, tuple):
        raise PydanticCustomError("turns", "expected a list of turns, each with its role and text")
    if len(found) > HISTORY_TURNS_MAX:
        raise _too_long_a_history("turns", HISTORY_TURNS_MAX, len(found))
    return found


def _short(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    if (found := sum(len(turn.text) for turn in turns)) > HISTORY_CHARS_MAX:
        raise _too_long_a_history("characters", HISTORY_CHARS_MAX, found)
    return turns


def _too_long_a_history(unit: str, limit: int, found: int) -> PydanticCustomError:
    said = f"at most {limit:,} {unit} of history may come with a proposal; it has {found:,}: leave out the oldest"
    return refusal(said, limit=limit, found=found)


History = Annotated[tuple[Turn, ...], BeforeValidator(_few), AfterValidator(_short)]


def _wait_for(others: dict[str, Any]) -> Literal["decisive", "all"]:
    # rules 1.5: a proposal with an action waits for every ballot, unless it says otherwise.
    return "decisive" if others.get("action") is None else "all"


class Proposal(Model):
    """A proposal to vote on (rules 1.2). ``time_budget_s`` is in seconds; ``body`` is markdown.

    ``history`` is what was said and done before the proposal, oldest first. Most proposals have none. ``requester``
    is who asks, as the proposer's client says. ``key`` is the proposer's own name for the proposal (rules 1.12): the
    message's id is then ``id_of_key``.
    """

    summary: Summary
    body: MarkdownBody = ""
    action: Action | None = None
    wait_for: Literal["decisive", "all"] = Field(default_factory=_wait_for)
    time_budget_s: TimeBudget = 60.0
    supersedes: MsgId | None = None
    history: History = ()
    requester: Requester | None = None
    key: Annotated[str, Length(NAME_CHARS_MAX, 1)] | None = None


class Vote(Model):
    """A ballot (rules 1.2). ``control_packet`` is what the seat's model sent along, unread."""

    proposal_id: MsgId
    vote: VoteWord
    reason: Reason
    control_packet: JsonObject | None = None


class Info(Model):
    """A message that binds nobody. Cancellations and human answers are kinds of it."""

    kind: Name
    text: Reason = ""
    data: JsonObject = Field(default_factory=lambda: EMPTY)


class Escalation(Model):
    """A seat's request for a ruling by Prime (rules 1.8)."""

    proposal_id: MsgId
    reason: Reason


class Heartbeat(Model):
    """A seat is alive: the number of the beat, the proposal it works on, and its uptime in seconds."""

    beat: Annotated[int, Field(ge=0, le=BEAT_MAX)]
    busy_with: Name | None = None
    uptime_s: NotNegative


Body = Proposal | Vote | Info | Escalation | Heartbeat

BODIES: dict[MessageType, type[Body]] = {
    "PROPOSAL": Proposal,
    "VOTE": Vote,
    "INFO": Info,
    "ESCALATION": Escalation,
    "HEARTBEAT": Heartbeat,
}


def _content(value: object, info: ValidationInfo) -> Body:
    """The body for this ``type``. pydantic adds the path to an error inside it."""
    others = info.data
    word = others.get("type")
    if word is None:  # the type itself is invalid and reported, so the content can't be checked
        return cast(Body, value)
    # Like ``Model.checked``, but the envelope reports the errors.
    body = cast(Body, BODIES[word].__pydantic_validator__.validate_python(value))
    if word == "VOTE" and "parent_id" in others and others["parent_id"] != cast(Vote, body).proposal_id:
        # rules 1.2: a ballot's parent is its proposal.
        raise refusal("must be the proposal voted on, content.proposal_id", field="parent_id")
    return body


class Envelope(Model):
    """A message of the council (GCP 8.1). ``parent_id`` is the message that it answers; ``confidence`` is 0 to 1.

    ``metadata`` names the message's trace; most messages have none. Two envelopes are equal exactly if their
    canonical bytes (``codec.encode``) are.
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
    metadata: Metadata | None = None

    @classmethod
    def build(cls, /, **fields: Any) -> Self:
        """An envelope of these fields. ``content`` is a body or a mapping of its fields.

        Raises EnvelopeError (EnvelopeTooLarge for a limit) with ``field``, the dotted path of the first error, and
        ``problems``, a tuple of all errors in words.
        """
        return cls.checked(fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Reads an envelope in the form of GCP 8.1. ``content`` is an object, or a string that holds one.

        A PROPOSAL's content may also be markdown, with the summary in its first line; an INFO's may be a note. Text
        that begins with ``{`` is always read as JSON: half an object must not become a proposal without its action.
        Digits of a second after the sixth are dropped. Raises EnvelopeError, EnvelopeTooLarge.
        """
        found = read_object(text, field="envelope")
        if isinstance(found.get("timestamp"), str):
            found["timestamp"] = read_timestamp(found["timestamp"])
        if isinstance(found.get("content"), str):
            found["content"] = _read_content(found.get("type"), found["content"])
        return cls.checked(found)

    def to_json(self) -> str:
        """The envelope in the form of GCP 8.1, on one line; ``content`` is an object."""
        shown = self.model_dump()
        shown["timestamp"] = time_text(self.timestamp)
        shown["content"] = {
            name: value
            for name, value in shown["content"].items()
            # rules 1.2: if there is one
            if (name, value)
            not in (("control_packet", None), ("history", ()), ("requester", None), ("key", None))
        }
        if self.metadata is None:
            del shown["metadata"]
        elif not self.metadata.tracestate:
            del shown["metadata"]["tracestate"]
        return json.dumps(shown, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def id_of_key(sender: str, key: str) -> str:
    """The id of the proposal that a sender names by a key of its own, 32 hex characters (rules 1.12)."""
    return hashlib.sha256(f"{sender}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


# JSON as people write it


def _read_content(word: object, text: str) -> Any:
    """The object for a content that is a string."""
    begins = next((char for char in text if not char.isspace() and unseen(char) is None), "")
    if begins == "{" or word not in ("PROPOSAL", "INFO"):
        return read_json(text, field="content")
    if word == "INFO":
        return {"kind": "note", "text": text}
    summary, _, rest = text.lstrip().partition("\n")
    return {"summary": summary.lstrip("#").strip(), "body": rest.strip("\r\n")}
