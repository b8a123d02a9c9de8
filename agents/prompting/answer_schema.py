"""JSON Schemas for a model's answers: the three keys of rules 6.6, ``ruling`` for a ruling, and the other stages.

They ask only for what the council can use. ``protocol/answer/read.py`` accepts more. If an answer fits these schemas
and holds no NUL, it is read without losing a ballot.

Thoughts come before votes, because a model writes its keys in order. Every object is closed and all its keys are
required, as the strict mode of some servers needs it. Keywords that common servers don't know are not used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, get_args

from council.agents.prompting.prompt import Task
from council.protocol.answer.markers import Outcome
from council.protocol.answer.sections import VERBS, ImpactAnalysis, MemoryOperation, Section
from council.protocol.envelope import RiskLevel, VoteWord

# A second digit from a model means nothing. Steps keep a number within 0 to 1 where a server's grammar has no bounds.
# There are values on both sides of 0.3, below which a ballot escalates (rules 1.8).
CONFIDENCES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.95)

_TEXT: dict[str, Any] = {"type": "string"}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    # Not ["string", "null"]: some servers and SDKs accept only a single type.
    return {"anyOf": [schema, {"type": "null"}]}


_TEXT_OR_NULL = _or_null(_TEXT)


def _one_of(words: Iterable[Any], kind: str = "string") -> dict[str, Any]:
    return {"type": kind, "enum": list(words)}


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _many(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _words_of(section: type[Section], field: str) -> dict[str, Any]:
    """The allowed words of a section's field, also if the field is optional."""
    found = get_args(section.model_fields[field].annotation)
    return _one_of(found if isinstance(found[0], str) else get_args(found[0]))


_PACKET = _object(
    intent_classification=_object(category=_one_of(VERBS), verb=_TEXT),
    mangle_updates=_many(_TEXT),
    memory_operations=_many(_object(op=_words_of(MemoryOperation, "op"), key=_TEXT, value=_TEXT)),
    impact_analysis=_object(estimated_scope=_words_of(ImpactAnalysis, "estimated_scope")),
    safety_gates=_object(requires_user_approval={"type": "boolean"}, dangerous_action_blocked=_TEXT_OR_NULL),
    # A closed object can't list the arguments of every tool. So they are a JSON object in a text.
    check=_or_null(_object(tool=_TEXT, args=_TEXT)),
)


def _answer(key: Task, **word: dict[str, Any]) -> dict[str, Any]:
    act = _object(
        reason=_TEXT,
        **word,
        confidence=_one_of(CONFIDENCES, "number"),
        risk_level=_one_of(get_args(RiskLevel)),
    )
    return _object(control_packet=_PACKET, surface_response=_TEXT, **{key: act})


SCHEMAS: Mapping[Task, Mapping[str, Any]] = MappingProxyType(
    {
        "ballot": _answer("ballot", vote=_one_of(get_args(VoteWord))),
        "ruling": _answer("ruling", ruling=_one_of(("confirm", "reject", "human"))),
        # The other stages (GCP 6), with the same content as their blocks.
        "plan": _object(plan=_many(_TEXT)),
        "observe": _object(interrupt=_TEXT_OR_NULL),
        "act": _object(response=_TEXT),
        "verify": _object(summary=_TEXT, verify=_one_of(get_args(Outcome))),
    }
)
# A schema in the form in which a server may insert it into the prompt.
SCHEMA_TEXTS: Mapping[Task, str] = MappingProxyType(
    {task: json.dumps(schema) for task, schema in SCHEMAS.items()}
)
