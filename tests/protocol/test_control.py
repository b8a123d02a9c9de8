"""Control packets: the document's own, each section by itself, the limits of rules 6.1, and any text at all."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from council.protocol import codec
from council.protocol.answer import mangle
from council.protocol.answer import read as control
from council.protocol.answer.read import (
    ANSWER_BYTES_MAX,
    MARKS_MAX,
    PACKET_BYTES_MAX,
    SURFACE_CHARS_MAX,
    Reading,
    read,
)
from council.protocol.answer.sections import (
    ATOMS_MAX,
    NAMES_MAX,
    OPERATIONS_MAX,
    TRACE_CHARS_MAX,
    TRANSITIONS_MAX,
    VERBS,
    ControlPacket,
    IntentClassification,
)
from council.protocol.envelope import REASON_CHARS_MAX, Envelope
from council.protocol.values import plain
from tests.cases import each

# The full schema of the document, with one of each where it lists choices.
DOCUMENTED: dict[str, Any] = {
    "intent_classification": {
        "category": "/mutation",
        "verb": "/fix",
        "target": "auth.go",
        "constraint": "without tests",
        "confidence": 0.95,
    },
    "mangle_updates": [
        'user_intent(/fix, "auth.go")',
        "task_status(/auth_fix, /in_progress)",
        'file_state("auth.go", /read)',
        'diagnostic(/error, "auth.go", 42, "E001", "fixed")',
    ],
    "memory_operations": [
        {"op": "promote_to_long_term", "key": "preference:code_style", "value": "concise"},
        {"op": "store_vector", "key": "pattern:auth_fix_20251206", "value": "Bearer tokens over cookies"},
        {"op": "forget", "key": "temp:old_session_id", "value": ""},
    ],
    "self_correction": {
        "triggered": True,
        "hypothesis": "Previous edit failed due to syntax error at line 45",
        "recovery_action": "/reparse_file",
        "confidence": 0.85,
    },
    "reasoning_trace": "User requested auth fix. Analyzed auth.go lines 40-50.",
    "execution_metadata": {
        "shard_type": "coder",
        "execution_time_ms": 2340,
        "tokens_used": 1523,
        "retry_count": 0,
        "blocked_by_constitution": False,
    },
    "state_transitions": [
        {
            "from": "task_status(/auth_fix, /pending)",
            "to": "task_status(/auth_fix, /in_progress)",
            "timestamp": "2025-12-06T10:15:23Z",
            "reason": "Shard spawned",
        },
        {
            "from": 'file_state("auth.go", /clean)',
            "to": 'file_state("auth.go", /modified)',
            "timestamp": "2025-12-06T10:15:45Z",
            "reason": "Applied patch at line 42",
        },
    ],
    "impact_analysis": {
        "files_affected": ["auth.go", "auth_test.go"],
        "dependencies_broken": [],
        "tests_impacted": ["TestAuthValidation", "TestBearerToken"],
        "estimated_scope": "minor",
    },
    "safety_gates": {
        "requires_user_approval": False,
        "chesterton_fence_warning": None,
        "dangerous_action_blocked": None,
        "constitutional_override": None,
    },
    "learning_signals": {
        "pattern_id": "auth_fix_bearer_token",
        "success": True,
        "user_accepted": None,
        "rejection_reason": None,
        "should_promote_to_learned": True,
    },
}
BALLOT: dict[str, Any] = {"vote": "yes", "reason": "it holds", "confidence": 0.9, "risk_level": "low"}
SURFACE = "I've fixed the bug in `auth.go`."


def answer(packet: Any = DOCUMENTED, **more: Any) -> str:
    return json.dumps({"control_packet": packet, "surface_response": SURFACE, **more})


def packet_with(**sections: Any) -> Reading:
    """What is read of the document's packet with these sections instead."""
    return read(answer({**DOCUMENTED, **sections}, ballot=BALLOT))


def required_alone(**sections: Any) -> dict[str, Any]:
    least = {name: DOCUMENTED[name] for name in ("intent_classification",)}
    return {**least, "mangle_updates": [], "memory_operations": [], **sections}


# The document


def test_the_documents_packet_is_read_whole_and_written_back_unchanged() -> None:
    found = read(answer(ballot=BALLOT))
    assert (found.parse_confidence, found.warnings) == (1.0, ())
    assert plain(found.packet.data()) == DOCUMENTED
    assert (found.surface, found.confidence) == (SURFACE, 0.95)
    assert found.ballot is not None
    assert plain(found.ballot.data()) == BALLOT
    assert found.packet.state_transitions[0].from_ == "task_status(/auth_fix, /pending)"
    assert set(ControlPacket.model_fields) == set(DOCUMENTED)


def test_what_is_not_known_is_kept_and_written_back() -> None:
    """The document plans further sections and fields. Mutation: to know only 1.2.0."""
    packet = {
        **DOCUMENTED,
        "security_review": {"score": 1, "notes": ["a", {"b": None}]},
        "git_metadata": None,
        "dependencies_added": [1.5, True],
        "safety_gates": {**DOCUMENTED["safety_gates"], "second_opinion": {"of": ["lite"]}},
        "memory_operations": [{"op": "note", "key": "a:b", "value": "c", "ttl": 60}],
    }
    found = read(answer(packet, ballot={**BALLOT, "mood": "calm"}, more=1))
    assert found.warnings == ()
    assert plain(found.packet.data()) == {name: value for name, value in packet.items() if value is not None}
    assert found.ballot is not None
    assert plain(found.ballot.data()) == {**BALLOT, "mood": "calm"}
    assert read(answer(plain(found.packet.data()))).packet == found.packet


@pytest.mark.parametrize(
    "key", ["data", "self", "model_fields_set", "model_extra", "__class__", "__pydantic_extra__", ""]
)
def test_a_key_that_only_looks_known_is_kept_too(key: str) -> None:
    transition = {"from": "task_status(/a, /pending)", "to": "", key: {"x": 1}}
    found = packet_with(state_transitions=[transition], **{key: [1]})
    assert plain(found.packet.data()["state_transitions"]) == [transition]
    assert plain(found.packet.data())[key] == [1]
    assert found.packet.state_transitions[0].from_ == "task_status(/a, /pending)"


def test_a_reading_cannot_be_changed_and_pickles() -> None:
    found = packet_with(other={"a": [1, {"b": 2}]})
    for change in (
        lambda: setattr(found, "surface", "x"),
        lambda: setattr(found.packet, "safety_gates", None),
        lambda: found.packet.mangle_updates.append("x"),
        lambda: found.packet.model_extra["other"]["a"].append(1),  # type: ignore[index]
        lambda: found.packet.model_extra["other"].update(b=1),  # type: ignore[index]
        lambda: found.packet.data().update(x=1),  # type: ignore[attr-defined]
    ):
        with pytest.raises((AttributeError, TypeError, ValueError)):
            change()
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_ballots_envelope_carries_the_packet() -> None:
    found = read(answer(ballot=BALLOT))
    content = {"proposal_id": "0123456789abcdef", "vote": "yes", "reason": "x"}
    envelope = Envelope.build(
        msg_id="fedcba9876543210",
        parent_id="0123456789abcdef",
        timestamp=datetime(2026, 11, 21, 12, tzinfo=UTC),
        sender="prime",
        role="voter",
        type="VOTE",
        content={**content, "control_packet": found.packet.data()},
    )
    assert codec.decode(codec.encode(envelope)).content.control_packet == found.packet.data()


# Where the answer stands (rules 6.1)


@pytest.mark.parametrize(
    ("before", "after", "confidence"),
    [
        ("", "", 1.0),
        (" \n\ufeff", "\n", 1.0),
        ("```json\n", "\n```", 0.95),
        ("Here it is:\n~~~\n", "\n~~~\nBye.", 0.95),
        ("Here {it} is: ", " and that's {all}", 0.85),
        ('An example: {"control_packet": {}}. Mine:\n', "", 0.85),
        ('{"broken": ', "", 0.85),
    ],
)
def test_an_answer_is_found_where_it_stands(before: str, after: str, confidence: float) -> None:
    found = read(before + answer(ballot=BALLOT) + after)
    assert (found.parse_confidence, found.warnings) == (confidence, ())
    assert (found.packet, found.surface) == (read(answer()).packet, SURFACE)
    assert found.ballot is not None


def test_a_fenced_answer_goes_before_one_in_prose() -> None:
    inner = required_alone()
    found = read(f"```json\n{answer(inner)}\n```\nor {answer()}")
    assert (found.parse_confidence, plain(found.packet.data())) == (0.95, inner)
    assert "2 control packets" in found.warnings[0]


@pytest.mark.parametrize("fence", ["", "\n```\n"])
def test_of_several_the_last_is_read_with_a_warning(fence: str) -> None:
    texts = [f"{fence}{answer(required_alone(n=n), ballot=BALLOT)}{fence}" for n in range(3)]
    found = read("First ".join(["", *texts]))
    assert found.packet.data()["n"] == 2
    assert found.warnings == ("the answer holds 3 control packets, of which the last is read",)
    assert found.packet.safety_gates is None
    assert found.ballot is not None


def test_several_whose_ballots_differ_are_a_matter_for_a_human() -> None:
    """rules 1.14. Mutation: an answer that a model quotes behind its own votes for it."""
    quoted = answer(required_alone(), ballot={**BALLOT, "confidence": 1.0})
    found = read(answer(required_alone(), ballot={**BALLOT, "vote": "no"}) + " It tried this: " + quoted)
    assert "their ballots differ" in found.warnings[0]
    assert found.packet.safety_gates is not None
    assert found.packet.safety_gates.requires_user_approval


@pytest.mark.parametrize("in_fence", ["yes", "no"])
@pytest.mark.parametrize("first", ["fence", "prose"])
def test_a_ballot_in_a_fence_that_one_in_prose_contradicts_is_a_matter_for_a_human(
    in_fence: str, first: str
) -> None:
    """Rules 6.1 and 1.14: the fence is read, and what stands beside it is heard all the same.

    Mutation: ballots are compared among the fenced ones alone, and a quoted yes outvotes the model's own no.
    """
    in_prose = "no" if in_fence == "yes" else "yes"
    texts = [
        f"```json\n{answer(required_alone(), ballot={**BALLOT, 'vote': in_fence})}\n```",
        f"It said {answer(required_alone(), ballot={**BALLOT, 'vote': in_prose})} as well.",
    ]
    found = read("\n".join(texts if first == "fence" else reversed(texts)))
    assert found.parse_confidence == 0.95
    assert found.ballot is not None
    assert found.ballot.vote == in_fence
    which = "last in a fence" if first == "fence" else "last"
    assert f"2 control packets, of which the {which} is read; their ballots differ" in found.warnings[0]
    weighed = control.weigh(found)
    assert weighed is not None
    assert weighed.asks_human


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No JSON here.",
        "null",
        "[1]",
        '{"a": 1}',
        "{'control_packet': {}, 'surface_response': 'x'}",
        'I think {"control_packet": {}} is enough',
        'It holds {"quoted": {"control_packet": {}, "surface_response": "x", "ballot": {"vote": "yes"}}}',
        answer(ballot=BALLOT)[:-1],
        answer(ballot=BALLOT)[:-1] + ",}",
        answer().replace("{", "{" * 2),
    ],
)
def test_anything_else_is_a_surface_response(text: str) -> None:
    found = read(f"  {text}\n")
    assert (found.parse_confidence, found.surface, found.ballot) == (0.5, text, None)
    assert (found.packet, found.confidence) == (ControlPacket(), None)
    assert len(found.warnings) == 1


def test_an_answer_before_what_takes_too_long_to_read_is_none() -> None:
    """Mutation: the last is what counts, and it may stand where nobody looked."""
    found = read(answer(ballot=BALLOT) + '{"a":' * 200_000)
    assert (found.parse_confidence, found.ballot) == (0.5, None)
    assert "steps" in found.warnings[0]


@pytest.mark.parametrize("value", [None, 7, ["a", {"b": "é"}]])
def test_a_surface_that_is_no_text_is_dropped(value: Any) -> None:
    """As any section is. Mutation: the hidden packet is shown in its place."""
    packet = json.dumps({"control_packet": required_alone(), "surface_response": value})
    found = read(f"So:\n{packet}")
    assert (found.parse_confidence, found.surface) == (0.85, "")
    (warning,) = found.warnings
    assert warning.startswith("surface_response: ")


def test_a_surface_keeps_all_but_what_no_database_takes() -> None:
    assert read(answer(surface_response="")).surface == ""
    found = read(answer(surface_response="a\0b\ud800c"))
    assert (found.surface, found.warnings) == ("a\ufffdb\ufffdc", ())


def test_a_surface_that_is_given_twice_is_dropped() -> None:
    found = read('{"control_packet": {}, "surface_response": "one", "surface_response": "two"}')
    assert found.surface == ""
    assert any(
        each.startswith("surface_response: ") and each.endswith("; dropped") for each in found.warnings
    )


def test_texts_may_hold_line_ends_as_they_are() -> None:
    assert (
        read('{"surface_response": "two\nlines\tand a tab", "control_packet": {}}').surface.count("\n") == 1
    )


# Each section by itself


@each(
    ("section", "fields"),
    [
        ("intent_classification", {"category": "/other"}),
        ("intent_classification", {"category": "query"}),
        ("intent_classification", {"verb": None}),
        ("intent_classification", {"verb": ""}),
        ("intent_classification", {"target": 3}),
        ("intent_classification", {"constraint": []}),
        ("self_correction", {"triggered": "yes"}),
        ("self_correction", {"triggered": 1}),
        ("self_correction", {"confidence": 1.01}),
        ("self_correction", {"hypothesis": "x" * 20_001}),
        ("self_correction", {"recovery_action": "a\0b"}),
        ("execution_metadata", {"tokens_used": -1}),
        ("execution_metadata", {"tokens_used": 1.5}),
        ("execution_metadata", {"retry_count": True}),
        ("execution_metadata", {"execution_time_ms": -0.1}),
        ("execution_metadata", {"shard_type": 7}),
        ("execution_metadata", {"blocked_by_constitution": "no"}),
        ("execution_metadata", {"blocked_by_constitution": None}),
        ("impact_analysis", {"files_affected": "auth.go"}),
        ("impact_analysis", {"tests_impacted": [1]}),
        ("impact_analysis", {"estimated_scope": "huge"}),
        ("safety_gates", {"requires_user_approval": "true"}),
        ("safety_gates", {"requires_user_approval": None}),
        ("safety_gates", {"dangerous_action_blocked": False}),
        ("safety_gates", {"constitutional_override": {}}),
        ("learning_signals", {"success": "yes"}),
        ("learning_signals", {"pattern_id": ""}),
        ("learning_signals", {"should_promote_to_learned": 0}),
        ("learning_signals", {"unknown": "\ud800"}),
    ],
)
def test_a_section_that_does_not_validate_is_dropped_and_the_rest_kept(
    section: str, fields: dict[str, Any]
) -> None:
    found = packet_with(**{section: {**DOCUMENTED[section], **fields}})
    data = plain(found.packet.data())
    rest = {name: value for name, value in DOCUMENTED.items() if name not in (section, "safety_gates")}
    assert {name: value for name, value in data.items() if name != "safety_gates"} == rest
    (field,) = fields
    assert found.warnings[0].startswith(f"{section}.{field}")
    assert found.warnings[0].endswith("; dropped")
    assert (found.parse_confidence, found.surface) == (1.0, SURFACE)
    assert found.ballot is not None


@each(("section", "value"), product(DOCUMENTED, [7, True, "", [{}]]))
def test_a_section_of_another_kind_is_dropped(section: str, value: Any) -> None:
    if section == "reasoning_trace" and value == "":
        value = {}
    found = packet_with(**{section: value})
    assert any(warning.startswith(section) for warning in found.warnings)
    kept = plain(found.packet.data()).get(section)
    assert kept in (None, [], {"requires_user_approval": True})
    assert found.surface == SURFACE


@pytest.mark.parametrize("section", DOCUMENTED)
def test_a_section_may_be_absent_or_null_and_is_missed_where_required(section: str) -> None:
    rest = {name: value for name, value in DOCUMENTED.items() if name != section}
    for packet in (rest, {**rest, section: None}):
        found = read(answer(packet))
        assert plain(found.packet.data()) == rest
        required = section in ("intent_classification", "mangle_updates", "memory_operations")
        assert found.warnings == ((f"{section}: is missing",) if required else ())


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ('"self_correction": {"confidence": NaN}', "self_correction.confidence: NaN is no JSON number"),
        ('"self_correction": {"confidence": 1e999}', "self_correction.confidence: NaN and infinities"),
        (f'"self_correction": {{"x": {"9" * 400}}}', "self_correction.x: an integer of 400 digits"),
        ('"self_correction": {"x": 1, "x": 2}', "self_correction.x: stands twice in one object"),
        ('"self_correction": {}, "self_correction": {}', "self_correction: stands twice in one object"),
        (f'"other": {"[" * 40}{"]" * 40}', "nested more than 32 deep"),
        ('"other": "\\u0000"', "other: holds a NUL"),
        ('"oth\\ud800er": 1', "surrogate"),
    ],
)
def test_what_is_no_json_costs_the_part_it_stands_in(text: str, warning: str) -> None:
    """Mutation: one NaN, and the whole answer is prose."""
    whole = answer(required_alone(), ballot=BALLOT)
    found = read(whole.replace('{"intent', "{" + text + ', "intent'))
    assert warning in found.warnings[0]
    assert plain(found.packet.data()) == required_alone()
    assert found.ballot is not None


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        ({"op": "remember", "key": "a:b"}, "memory_operations[1].op"),
        ({"op": "note"}, "memory_operations[1].key: is missing"),
        ({"op": "note", "key": "nameless"}, "memory_operations[1].key"),
        ({"op": "note", "key": ":b"}, "memory_operations[1].key"),
        ({"op": "note", "key": "a:"}, "memory_operations[1].key"),
        ({"op": "note", "key": "a:b\nc"}, "memory_operations[1].key"),
        ({"op": "note", "key": "a:b", "value": 3}, "memory_operations[1].value"),
        ("note", "memory_operations[1]: expected an object, found a text"),
        (None, "memory_operations[1]: null"),
    ],
)
def test_an_operation_with_a_fault_is_dropped_alone(operation: Any, problem: str) -> None:
    good = {"op": "note", "key": "kind:name", "value": "x"}
    found = packet_with(memory_operations=[good, operation, {"op": "forget", "key": "a:b"}])
    assert [kept.op for kept in found.packet.memory_operations] == ["note", "forget"]
    assert found.warnings[0].startswith(problem)


@pytest.mark.parametrize("op", ["promote_to_long_term", "store_vector", "forget", "note"])
def test_the_four_operations_are_known(op: str) -> None:
    found = packet_with(memory_operations=[{"op": op, "key": "preference:naming style", "value": "v"}])
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("transition", "problem"),
    [
        ({"from": "", "to": "permitted(/a)"}, "state_transitions[0].to: 'permitted'"),
        ({"from": "made_up(/a)", "to": ""}, "state_transitions[0].from: 'made_up'"),
        ({"to": "task_status(/a, /failed)"}, "state_transitions[0].from: is missing"),
        ({"from": "", "from_": {}, "to": ""}, "state_transitions[0].from_: is given beside from"),
        ({"from": "", "to": "", "timestamp": "noon"}, "state_transitions[0].timestamp"),
        ({"from": "", "to": "", "timestamp": "2025-12-06T10:15:23"}, "state_transitions[0].timestamp"),
    ],
)
def test_a_transition_leads_between_atoms(transition: Any, problem: str) -> None:
    spawned = {"from": "", "to": "task_status(/a, /pending)", "timestamp": "2025-12-06T12:15:23+02:00"}
    found = packet_with(state_transitions=[transition, spawned])
    assert found.warnings[0].startswith(problem)
    (kept,) = found.packet.state_transitions
    assert plain(kept.data()) == {**spawned, "timestamp": "2025-12-06T10:15:23Z"}


# Intent (rules 6.2)

GIVEN_VERBS = {
    "/query": "analyze assault audit benchmark converse debug diff dream explain explore greet help knowledge "
    "lint list_tools profile read research review review_enhance search security shadow stats tool_status",
    "/mutation": "build campaign commit create delete deploy document fix format generate_tool git init migrate "
    "multi_step optimize refactor refine_tool run scaffold test write",
    "/instruction": "configure forget remember",
}


@pytest.mark.parametrize("category", GIVEN_VERBS)
def test_each_verb_is_of_its_category(category: str) -> None:
    assert VERBS[category] == {f"/{verb}" for verb in GIVEN_VERBS[category].split()}
    for other in GIVEN_VERBS:
        for verb in VERBS[category]:
            found = packet_with(intent_classification={"category": other, "verb": verb})
            assert found.packet.intent_classification == IntentClassification(category=other, verb=verb)
            assert bool(found.warnings) == (other != category)


@pytest.mark.parametrize("verb", ["/invent", "fix", "/FIX"])
def test_an_unknown_verb_is_kept_with_a_warning(verb: str) -> None:
    found = packet_with(intent_classification={"category": "/query", "verb": verb})
    assert found.packet.intent_classification is not None
    assert found.packet.intent_classification.verb == verb
    assert found.warnings == (f"intent_classification.verb: '{verb}' is not a known verb; kept",)


# Updates (rules 6.3, 6.4)


def test_an_update_that_may_not_be_is_dropped_and_the_rest_kept() -> None:
    good = DOCUMENTED["mangle_updates"]
    bad = ["permitted(/rm)", "p(X)", "a(/b) :- c(/d).", "made_up(/a)", "task_status(/a, /b)", "", 7, None, {}]
    found = packet_with(mangle_updates=[*bad, *good])
    assert list(found.packet.mangle_updates) == good
    assert [warning.split(":")[0] for warning in found.warnings] == [
        f"mangle_updates[{n}]" for n in range(len(bad))
    ]
    assert "never by a model" in found.warnings[0]


def test_a_users_schema_stands_beside_the_shipped_one() -> None:
    schema = mangle.shipped().extended("Decl seen(Path) bound [/string].")
    text = answer({**DOCUMENTED, "mangle_updates": ['seen("a")', "task_status(/a, /failed)"]})
    assert len(read(text, schema).packet.mangle_updates) == 2
    assert len(read(text).packet.mangle_updates) == 1


# Limits (rules 6.1)


def cut_to(found: str, most: int, before: str) -> bool:
    note = f"\n[cut: there were {len(before):,} characters]"
    return found == before[: most - len(note)] + note


def test_at_each_limit_all_is_kept() -> None:
    transition = DOCUMENTED["state_transitions"][0]
    found = packet_with(
        mangle_updates=["shard_state(/a, /failed)"] * ATOMS_MAX,
        memory_operations=[{"op": "note", "key": "a:b", "value": ""}] * OPERATIONS_MAX,
        state_transitions=[transition] * TRANSITIONS_MAX,
        reasoning_trace="t" * TRACE_CHARS_MAX,
    )
    assert found.warnings == ()
    assert len(found.packet.mangle_updates) == 2_000
    assert (len(found.packet.memory_operations), len(found.packet.state_transitions)) == (500, 500)
    assert len(found.packet.reasoning_trace or "") == 50_000
    assert read(answer(surface_response="s" * 50_000)).surface == "s" * 50_000


def test_past_a_limit_the_rest_is_cut_with_a_warning() -> None:
    found = read(
        answer(
            required_alone(
                mangle_updates=["shard_state(/a, /failed)"] * (ATOMS_MAX + 1),
                memory_operations=[{"op": "note", "key": "a:b"}] * (OPERATIONS_MAX + 1),
                state_transitions=[{"from": "", "to": ""}] * (TRANSITIONS_MAX + 1),
                reasoning_trace="t" * (TRACE_CHARS_MAX + 1),
                impact_analysis={"files_affected": ["a"] * (NAMES_MAX + 1)},
            ),
            surface_response="s" * 60_000,
        )
    )
    assert (len(found.packet.mangle_updates), len(found.packet.memory_operations)) == (2_000, 500)
    assert len(found.packet.state_transitions) == 500
    assert found.packet.impact_analysis is not None
    assert len(found.packet.impact_analysis.files_affected) == 1_000
    assert cut_to(found.packet.reasoning_trace or "", TRACE_CHARS_MAX, "t" * 50_001)
    assert cut_to(found.surface, SURFACE_CHARS_MAX, "s" * 60_000)
    assert [warning.split(":")[0] for warning in found.warnings] == [
        "mangle_updates",
        "memory_operations",
        "state_transitions",
        "reasoning_trace",
        "impact_analysis.files_affected",
        "surface_response",
    ]


def test_nesting_is_limited_to_200() -> None:
    """What is nested deeper than an envelope carries is dropped by itself; past 200 nothing is parsed."""
    for levels, confidence in ((198, 1.0), (199, 0.5)):
        deep = json.dumps({"x": 0}).replace("0", "[" * (levels - 1) + "]" * (levels - 1))
        found = read(f'{{"control_packet": {{"other": {deep}}}, "surface_response": "s"}}')
        assert found.parse_confidence == confidence
        assert found.packet == ControlPacket()


@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600"])
def test_an_answer_has_at_most_5_mib(letter: str) -> None:
    empty = json.dumps({"control_packet": required_alone(), "surface_response": ""})
    room = (ANSWER_BYTES_MAX - len(empty)) // len(letter.encode())
    for length, confidence in ((room, 1.0), (room + 1, 0.5)):
        found = read(empty[:-2] + letter * length + '"}')
        assert found.parse_confidence == confidence
        assert len(found.surface) == SURFACE_CHARS_MAX


def test_an_atom_nested_behind_a_comment_costs_that_atom_alone() -> None:
    """Mutation: the quote in the comment hides the brackets, and the reading ends in a RecursionError."""
    deep = "task_status(# it's deep\n" + "[" * 1_500 + "]" * 1_500 + ", /failed)"
    found = packet_with(mangle_updates=[deep, "task_status(/a, /failed)"])
    assert found.warnings == ("mangle_updates[0]: nested more than 32 deep; dropped",)
    assert len(found.packet.mangle_updates) == 1


def test_atoms_are_read_within_a_budget() -> None:
    """Mutation: 2,000 updates of 4,000 characters each take half a minute."""
    many = "shard_state([" + "1," * 1_000 + "], /failed)"
    found = packet_with(mangle_updates=[many] * (MARKS_MAX // 1_000 + 5) + ["shard_state(/a, /failed)"])
    assert found.packet.mangle_updates == ()
    assert f"more than {MARKS_MAX:,} commas and brackets" in found.warnings[-1]
    unread = "shard_state([" + "1," * MARKS_MAX + "], /failed)"
    found = packet_with(mangle_updates=[unread, "shard_state(/a, /failed)"])
    assert found.packet.mangle_updates == ("shard_state(/a, /failed)",)


@pytest.mark.parametrize(
    "packet",
    [
        {f"k{n}": ["x" * 1_000] for n in range(2_000)},
        {f"k{n}": [1] * 100 for n in range(500)},
        {"memory_operations": [{"op": "note", "key": "a:b", "value": "é" * 10_000}] * 40},
        {"safety_gates": {"x": "y" * 600_000, "requires_user_approval": True}},
        {"execution_metadata": {"blocked_by_constitution": True, "x": "y" * 600_000}},
        {"impact_analysis": {"files_affected": ["x" * 10_000] * 100}},
        {"mangle_updates": [f'file_state("{"x" * 3_900}", /read)'] * 400},
    ],
)
def test_what_no_envelope_carries_is_dropped_and_told(packet: dict[str, Any]) -> None:
    """Mutation: a model that says too much loses its ballot where the seat signs it."""
    found = read(answer(required_alone(**packet), ballot=BALLOT))
    data = found.packet.data()
    assert len(json.dumps(plain(data), ensure_ascii=False).encode()) <= PACKET_BYTES_MAX
    assert any("larger than an envelope carries" in warning for warning in found.warnings)
    assert found.ballot is not None
    bearing = not packet.keys().isdisjoint({"safety_gates", "execution_metadata", "impact_analysis"})
    gates = found.packet.safety_gates
    assert (gates is not None and gates.requires_user_approval) == bearing


def test_warnings_are_limited() -> None:
    found = packet_with(mangle_updates=[1] * 500)
    assert len(found.warnings) == control.WARNINGS_MAX + 1
    assert found.warnings[-1] == "and 400 more"


# The ballot (rules 6.6)


@pytest.mark.parametrize("missing", BALLOT)
def test_nothing_of_a_ballot_is_guessed(missing: str) -> None:
    """Mutation: a confidence that is not given counts as certainty."""
    found = read(answer(ballot={name: value for name, value in BALLOT.items() if name != missing}))
    assert found.ballot is None
    assert found.warnings == (f"ballot.{missing}: is missing; dropped",)


@each(
    ("field", "value"),
    [
        *[("vote", vote) for vote in ("YES", "approve", "", None, True, ["yes"])],
        *[("confidence", value) for value in ("0.9", True, -0.1, 1.1, None, float("nan"), float("inf"))],
        *[("risk_level", level) for level in ("medium", "LOW", None, 1)],
        *[("reason", reason) for reason in (None, 3, "a\0b", "x" * (REASON_CHARS_MAX + 1))],
        ("proposal_id", "this one"),
    ],
)
def test_a_ballot_that_is_not_wholly_valid_is_none(field: str, value: Any) -> None:
    found = read(answer(ballot={**BALLOT, field: value}))
    assert found.ballot is None
    assert found.warnings[0].startswith(f"ballot.{field}")
    assert plain(found.packet.data()) == DOCUMENTED


@pytest.mark.parametrize("text", ['"ballot": "yes"', '"ballot": {"vote": "no"}, "ballot": {"vote": "yes"}'])
def test_what_is_no_ballot_is_none(text: str) -> None:
    found = read(answer()[:-1] + f", {text}}}")
    assert found.ballot is None
    assert found.warnings[0].startswith("ballot: ")


def test_without_a_ballot_there_is_none_and_that_is_no_fault() -> None:
    for text in (answer(), answer(ballot=None)):
        assert (read(text).ballot, read(text).warnings) == (None, ())


# Any text

TEXTS = st.text(max_size=30)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def changed(value: Any, draw: Any) -> Any:
    """A copy of a JSON value with one place in it replaced, removed or doubled."""
    if isinstance(value, Mapping) and value:
        key = draw(st.sampled_from(sorted(value)))
        rest = {name: inner for name, inner in value.items() if name != key}
        match draw(st.integers(0, 4)):
            case 0:
                return rest
            case 1:
                return {**value, draw(TEXTS): draw(VALUES)}
            case _:
                return {**value, key: changed(value[key], draw)}
    if isinstance(value, list) and value and draw(st.booleans()):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], changed(value[at], draw), *value[at:]]
    return draw(VALUES)


@st.composite
def answers(draw: Any) -> str:
    value = {"control_packet": DOCUMENTED, "surface_response": SURFACE, "ballot": BALLOT}
    for _ in range(draw(st.integers(0, 3))):
        value = changed(value, draw)
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    if draw(st.booleans()):
        start = draw(st.integers(0, len(text)))
        text = text[:start] + draw(TEXTS) + text[start + draw(st.integers(0, 3)) :]
    return str(draw(st.sampled_from(["{}", "```json\n{}\n```", "so {} it is", "{}{}"]))).replace("{}", text)


def check(text: str) -> None:
    """What holds of every reading."""
    found = read(text)
    assert found.parse_confidence in (1.0, 0.95, 0.85, 0.5)
    assert found.warnings or found.parse_confidence > 0.5
    assert all(len(warning) < 1_000 and warning.isprintable() for warning in found.warnings)
    assert len(found.surface) <= SURFACE_CHARS_MAX
    found.surface.encode()
    assert "\0" not in found.surface
    if found.parse_confidence == 0.5:
        assert found.ballot is None
        assert (
            len(text) > SURFACE_CHARS_MAX
            or found.surface == control._clean(text).strip().strip("\ufeff").strip()
        )
    again = read(json.dumps({"control_packet": plain(found.packet.data()), "surface_response": ""}))
    assert again.packet == found.packet
    assert control.weigh(found) is None or found.ballot is not None


@given(st.text() | st.text(st.sampled_from('{}[]",:\\`\n ab1')) | answers())
@example("\ud800")
@example('{"control_packet": {"\ud800": 1}, "surface_response": "\udfff"}')
@example('{"surface_response": {"a": NaN, "b": 1, "b": 2}, "control_packet": []}')
def test_any_text_is_read(text: str) -> None:
    check(text)


@given(answers())
def test_an_answer_with_faults_never_votes_otherwise(text: str) -> None:
    """A ballot that is read is one that stands in the answer, word for word."""
    ballot = read(text).ballot
    if ballot is not None:
        assert f'"vote": "{ballot.vote}"' in text
        assert f'"confidence": {json.dumps(ballot.confidence)}' in text or ballot.confidence in (0, 1)


KNOWN = "from_ from to data op key value vote confidence files_affected verb category estimated_scope model_config"
KEYS = TEXTS | st.sampled_from([*KNOWN.split(), "requires_user_approval", "__class__", "x\0", "\ud800", ""])
LEAVES = st.sampled_from(["a:b", "/query", "note", "task_status(/a, /failed)", "critical", "low", 0.5, True])
OBJECTS = st.dictionaries(KEYS, VALUES | LEAVES | st.dictionaries(KEYS, VALUES, max_size=3), max_size=5)


@given(
    st.dictionaries(
        st.sampled_from([*DOCUMENTED, "other", "from_", "data"]),
        OBJECTS | st.lists(OBJECTS | LEAVES, max_size=3) | VALUES,
        max_size=6,
    ),
    OBJECTS | VALUES,
)
def test_any_packet_is_read(packet: dict[str, Any], ballot: Any) -> None:
    """Mutation: a key of a model's that is the name of a field of ours breaks the reading."""
    check(json.dumps({"control_packet": packet, "surface_response": "", "ballot": ballot}))
