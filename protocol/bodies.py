"""The bodies of envelopes as arrays by position, and back. Knows no bytes, and nothing of what stands around a body.

A later minor version appends to an array, and what it appended is left out here. 1.1 added a proposal's history
and an envelope's metadata, behind all else: what has neither has the array it always had, and is written as 1.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from council.protocol.envelope import (
    HISTORY_TURNS_MAX,
    Action,
    Body,
    Escalation,
    Heartbeat,
    Info,
    Proposal,
    Turn,
    Vote,
)
from council.protocol.errors import EnvelopeError
from council.protocol.metadata import Metadata
from council.protocol.values import kind_of

WIRE_VERSION = (1, 1)
_FIRST_VERSION = (1, 0)
OWN_VERSIONS = (_FIRST_VERSION, WIRE_VERSION)
CONTENT_FIELDS: dict[str, tuple[str, ...]] = {
    "PROPOSAL": ("summary", "body", "action", "wait_for", "time_budget_s", "supersedes", "history"),
    "VOTE": ("proposal_id", "vote", "reason", "control_packet"),
    "INFO": ("kind", "text", "data"),
    "ESCALATION": ("proposal_id", "reason"),
    "HEARTBEAT": ("beat", "busy_with", "uptime_s"),
}
METADATA_FIELDS = ("traceparent", "tracestate")
_ACTION_FIELDS = ("tool", "args")
_TURN_FIELDS = ("role", "text")


def version_of(body: Body, metadata: Metadata | None) -> tuple[int, int]:
    """The lowest version that can say it, so that each envelope has one form."""
    newer = metadata is not None or (type(body) is Proposal and body.history)
    return WIRE_VERSION if newer else _FIRST_VERSION


# Out


def id_out(value: str | None) -> bytes | str | None:
    if value is None or len(value) & 1:  # Half a byte has no bytes: an id of odd length stays text.
        return value
    return bytes.fromhex(value)


def _proposal_out(body: Proposal) -> tuple[Any, ...]:
    action: Action | None = body.action
    turns: tuple[Turn, ...] = body.history
    return (
        body.summary,
        body.body,
        None if action is None else (action.tool, action.args),
        body.wait_for,
        body.time_budget_s,
        id_out(body.supersedes),
        *([tuple((turn.role, turn.text) for turn in turns)] if turns else ()),
    )


def _vote_out(body: Vote) -> tuple[Any, ...]:
    return id_out(body.proposal_id), body.vote, body.reason, body.control_packet


def _info_out(body: Info) -> tuple[Any, ...]:
    return body.kind, body.text, body.data


def _escalation_out(body: Escalation) -> tuple[Any, ...]:
    return id_out(body.proposal_id), body.reason


def _heartbeat_out(body: Heartbeat) -> tuple[Any, ...]:
    return body.beat, body.busy_with, body.uptime_s


CONTENT_OUT: dict[type[Body], Callable[[Any], tuple[Any, ...]]] = {
    Proposal: _proposal_out,
    Vote: _vote_out,
    Info: _info_out,
    Escalation: _escalation_out,
    Heartbeat: _heartbeat_out,
}


# In


_Reader = Callable[[tuple[Any, ...], int], dict[str, Any]]


def id_in(value: Any) -> Any:
    return value.hex() if type(value) is bytes else value


def counted(values: tuple[Any, ...], names: tuple[str, ...], minor: int, where: str) -> tuple[Any, ...]:
    """As many values as there are names; those that a higher minor version appended are left out."""
    if type(values) is not tuple:
        problem = f"expected an array of its fields, found {kind_of(values)}"
        raise EnvelopeError.at(where.removesuffix("."), problem)
    if len(values) == len(names):
        return values
    if len(values) < len(names):
        raise EnvelopeError.at(where + names[len(values)], "is missing, and so is all that comes after it")
    if minor > WIRE_VERSION[1]:
        return values[: len(names)]
    problem = f"has {len(values)} fields where this version has {len(names)}"
    raise EnvelopeError.at(where.removesuffix(".") or "envelope", problem)


def _proposal_in(values: tuple[Any, ...], minor: int) -> dict[str, Any]:
    names = CONTENT_FIELDS["PROPOSAL"]
    if minor < WIRE_VERSION[1] or (type(values) is tuple and len(values) < len(names)):
        names = names[:-1]  # without a history, which not even later versions need to have
    content = dict(zip(names, counted(values, names, minor, "content."), strict=True))
    content["supersedes"] = id_in(content["supersedes"])
    if "history" in content:
        content["history"] = _turns_in(content["history"], minor)
    if content["action"] is not None:
        action = counted(content["action"], _ACTION_FIELDS, minor, "content.action.")
        content["action"] = dict(zip(_ACTION_FIELDS, action, strict=True))
    return content


def _turns_in(values: Any, minor: int) -> Any:
    if type(values) is not tuple or len(values) > HISTORY_TURNS_MAX:
        return values  # refused by the envelope, with its name
    turns = (counted(turn, _TURN_FIELDS, minor, f"content.history[{at}].") for at, turn in enumerate(values))
    return [dict(zip(_TURN_FIELDS, turn, strict=True)) for turn in turns]


def _fields_in(word: str) -> _Reader:
    """What reads the content of a type whose fields stand one for one in its array."""
    names = CONTENT_FIELDS[word]

    def read(values: tuple[Any, ...], minor: int) -> dict[str, Any]:
        content = dict(zip(names, counted(values, names, minor, "content."), strict=True))
        if "proposal_id" in content:
            content["proposal_id"] = id_in(content["proposal_id"])
        return content

    return read


# Of an unknown type the content stays as it is, and the type is refused.
CONTENT_IN: dict[str, _Reader] = {word: _fields_in(word) for word in CONTENT_FIELDS}
CONTENT_IN["PROPOSAL"] = _proposal_in
