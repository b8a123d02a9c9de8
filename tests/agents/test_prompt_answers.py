"""The answer that is asked for is one that is read: schema, prompts and ``protocol/answer/read.py`` keep in step."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.agents.mind import RulingWord
from council.agents.prompting.answer_schema import CONFIDENCES, SCHEMA_TEXTS, SCHEMAS
from council.agents.prompting.prompt import Task
from council.agents.prompting.texts import load_texts
from council.protocol.answer import read, sections
from tests.examples import tried

TASKS: tuple[Task, ...] = ("ballot", "ruling")
TEXTS = load_texts().texts
PACKET = SCHEMAS["ballot"]["properties"]["control_packet"]
SECTIONS: dict[str, Any] = {
    "intent_classification": sections.IntentClassification,
    "memory_operations": sections.MemoryOperation,
    "impact_analysis": sections.ImpactAnalysis,
    "safety_gates": sections.SafetyGates,
}


def kept(schema: Any) -> st.SearchStrategy[Any]:
    """Anything that keeps to a schema of the few keywords that ours use."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of(map(kept, schema["anyOf"]))
    if schema["type"] == "object":
        return st.fixed_dictionaries({name: kept(inner) for name, inner in schema["properties"].items()})
    if schema["type"] == "array":
        return st.lists(kept(schema["items"]), max_size=3)
    letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    one_of: dict[str, st.SearchStrategy[Any]] = {
        "string": st.text(letters, max_size=30)
        | st.sampled_from(["/deploy", "preference:tone", "task_status(/a, /failed)"]),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return one_of[schema["type"]]


@settings(max_examples=tried(50))
@given(kept(SCHEMAS["ballot"]))
def test_whatever_keeps_to_the_schema_is_a_ballot(answer: dict[str, Any]) -> None:
    """A bound of ``sections`` that the schema does not keep loses the ballot here."""
    jsonschema.validate(answer, SCHEMAS["ballot"])
    reading = read.read(json.dumps(answer))
    assert reading.parse_confidence == 1.0
    assert reading.ballot is not None
    data = reading.ballot.data()
    assert {name: data[name] for name in answer["ballot"]} == answer["ballot"]
    gates = answer["control_packet"]["safety_gates"]
    assert reading.packet.safety_gates is not None
    assert reading.packet.safety_gates.requires_user_approval == gates["requires_user_approval"]
    assert not [note for note in reading.warnings if note.endswith(": is missing")]


@settings(max_examples=tried(30))
@given(kept(SCHEMAS["ruling"]))
def test_a_ruling_is_read_as_a_ballot_is(answer: dict[str, Any]) -> None:
    words = {"confirm": "yes", "reject": "no", "human": "abstain"}
    ruling = answer.pop("ruling")
    ballot = {"vote": words[ruling.pop("ruling")], **ruling}
    assert read.read(json.dumps({**answer, "ballot": ballot})).ballot is not None


def test_an_answer_as_one_would_hope_for_is_read_without_a_warning() -> None:
    answer = {
        "control_packet": {
            "intent_classification": {"category": "/mutation", "verb": "/deploy"},
            "mangle_updates": ["task_status(/review, /complete)"],
            "memory_operations": [{"op": "note", "key": "risk:bucket", "value": "unread since May"}],
            "impact_analysis": {"estimated_scope": "minor"},
            "safety_gates": {"requires_user_approval": False, "dangerous_action_blocked": None},
            "check": {"tool": "scans_of", "args": '{"index": "old"}'},
        },
        "surface_response": "Nobody reads it.",
        "ballot": {"reason": "unused", "vote": "yes", "confidence": 0.7, "risk_level": "low"},
    }
    jsonschema.validate(answer, SCHEMAS["ballot"])
    assert read.read(json.dumps(answer)).warnings == ()


def test_the_three_keys_and_the_packets_required_sections_are_asked_for() -> None:
    assert list(SCHEMAS["ballot"]["properties"]) == ["control_packet", "surface_response", "ballot"]
    assert list(SCHEMAS["ruling"]["properties"]) == ["control_packet", "surface_response", "ruling"]
    assert set(read._REQUIRED) <= set(PACKET["required"])


def test_every_key_is_one_that_the_sections_have() -> None:
    """And every word that is closed there is whole here. ``check`` is a key beside the sections."""
    assert PACKET["properties"].keys() <= {*sections.ControlPacket.model_fields, "check"}
    for name, model in SECTIONS.items():
        asked = PACKET["properties"][name]
        asked = asked.get("items", asked)
        assert asked["properties"].keys() <= model.model_fields.keys()
        required = {key for key, field in model.model_fields.items() if field.is_required()}
        assert required <= asked["properties"].keys()
    ballot = SCHEMAS["ballot"]["properties"]["ballot"]["properties"]
    assert ballot.keys() == sections.BallotSection.model_fields.keys() - {"proposal_id"}
    operation = PACKET["properties"]["memory_operations"]["items"]["properties"]["op"]["enum"]
    assert operation == ["promote_to_long_term", "store_vector", "note", "forget"]
    scope = PACKET["properties"]["impact_analysis"]["properties"]["estimated_scope"]["enum"]
    assert scope == ["trivial", "minor", "major", "critical"]
    assert PACKET["properties"]["intent_classification"]["properties"]["category"]["enum"] == list(
        sections.VERBS
    )


@pytest.mark.parametrize("task", TASKS)
def test_a_vote_is_written_after_its_reason(task: Task) -> None:
    """And both after what was found: a model writes in the order of its keys."""
    act = list(SCHEMAS[task]["properties"][task]["properties"])
    assert act.index("reason") < act.index("vote" if task == "ballot" else "ruling")
    assert list(SCHEMAS[task]["properties"])[-1] == task


@pytest.mark.parametrize("task", SCHEMAS)
def test_it_is_closed_and_of_few_keywords(task: Task) -> None:
    """What strict modes ask for, and nothing that a common server refuses. Mutation: a list of types."""
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[task])
    known = {"type", "enum", "properties", "required", "additionalProperties", "items"}

    def check(schema: Any) -> None:
        if "anyOf" in schema:
            assert schema.keys() == {"anyOf"}
            for part in schema["anyOf"]:
                check(part)
            return
        assert schema.keys() <= known
        assert isinstance(schema["type"], str)
        if schema["type"] == "object":
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])
        for inner in (
            *schema.get("properties", {}).values(),
            *([schema["items"]] if "items" in schema else []),
        ):
            check(inner)

    check(SCHEMAS[task])
    assert json.loads(SCHEMA_TEXTS[task]) == SCHEMAS[task]


def test_a_confidence_can_be_on_either_side_of_what_escalates() -> None:
    assert all(0 <= one <= 1 for one in CONFIDENCES)
    assert min(CONFIDENCES) < 0.3 < max(CONFIDENCES)


# What the prompts say of it


def form(task: Task) -> str:
    return next(line for line in TEXTS[f"{task}_answer"].split("\n") if line.startswith("{"))


@pytest.mark.parametrize("task", TASKS)
def test_the_prompt_shows_the_keys_in_their_order_and_every_word(task: Task) -> None:
    def keys(schema: Any) -> list[str]:
        below = [one for part in schema.get("anyOf", ()) for one in keys(part)]
        return below + [
            one for name, each in schema.get("properties", {}).items() for one in (name, *keys(each))
        ]

    assert re.findall(r'"(\w+)":', form(task)) == keys(SCHEMAS[task])
    act = SCHEMAS[task]["properties"][task]["properties"]
    scope = PACKET["properties"]["impact_analysis"]["properties"]["estimated_scope"]
    category = PACKET["properties"]["intent_classification"]["properties"]["category"]
    for closed in (act["vote" if task == "ballot" else "ruling"], act["risk_level"], scope, category):
        *first, last = (f'"{word}"' for word in closed["enum"])
        assert f"{', '.join(first)} or {last}" in form(task)
    assert f'"confidence": {min(CONFIDENCES)} to {max(CONFIDENCES)}' in form(task)


@pytest.mark.parametrize("task", sorted(SCHEMAS.keys() - {*TASKS}))
def test_a_stages_prompt_shows_its_keys_and_what_its_block_would_be(task: Task) -> None:
    block = {"plan": "PLAN", "observe": "INTERRUPT", "act": "RESPONSE", "verify": "VERIFY"}[task]
    assert re.findall(r'"(\w+)":', form(task)) == list(SCHEMAS[task]["properties"])
    assert f"it stands for the {block} block" in TEXTS[f"{task}_answer"]
    assert f"the {block} block" in TEXTS[f"{task}_marked"]
    words = SCHEMAS[task]["properties"].get("verify", {}).get("enum", [])
    assert all(f'"{word}"' in form(task) for word in words)


@pytest.mark.parametrize("task", TASKS)
def test_the_form_is_no_answer(task: Task) -> None:
    """A model that repeats it before its answer has given one answer, not two."""
    assert read.read(form(task)).ballot is None
    answer = {
        "control_packet": {},
        "surface_response": "",
        "ballot": {"reason": "r", "vote": "no", "confidence": 0.7, "risk_level": "low"},
    }
    reading = read.read(f"{TEXTS[f'{task}_answer']}\n\n{json.dumps(answer)}")
    assert reading.ballot is not None
    assert reading.packet.safety_gates is None


def test_the_ruling_words_are_told_with_what_they_do() -> None:
    said = TEXTS["ruling_answer"]
    assert all(f'"{word}" {does}' in said for word, does in RULINGS.items())


RULINGS: dict[RulingWord, str] = {
    "confirm": "lets a majority",
    "reject": "ends",
    "human": "hands it to a person",
}
