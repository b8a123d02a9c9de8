"""What the sections do to the ballot (rules 6.6): stricter, never laxer."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.protocol.answer.read import Reading, Weighed, read, weigh
from council.protocol.answer.sections import BallotSection, ControlPacket
from council.protocol.envelope import REASON_CHARS_MAX
from tests.cases import each

RISKS = ("low", "med", "high")
BALLOT: dict[str, Any] = {"vote": "yes", "reason": "it holds", "confidence": 0.9, "risk_level": "low"}
LEAST: dict[str, Any] = {
    "intent_classification": {"category": "/query", "verb": "/review"},
    "mangle_updates": [],
    "memory_operations": [],
}


def weighed(ballot: Any = BALLOT, **sections: Any) -> Weighed:
    text = json.dumps({"control_packet": {**LEAST, **sections}, "surface_response": "", "ballot": ballot})
    found = weigh(read(text))
    assert found is not None
    return found


PLAIN = Weighed("yes", "it holds", 0.9, "low", asks_human=False)


def intent(**more: Any) -> dict[str, Any]:
    return {"category": "/query", "verb": "/review", **more}


def test_a_ballot_without_a_word_of_the_packet_stays_what_it_is() -> None:
    assert weighed() == PLAIN
    text = json.dumps({"surface_response": "", "ballot": BALLOT})
    assert weigh(read(text)) == PLAIN


def test_without_a_ballot_nothing_is_weighed() -> None:
    text = json.dumps({"control_packet": {"safety_gates": {"requires_user_approval": True}}})
    assert weigh(read(text)) is None
    assert weigh(read("prose")) is None


@pytest.mark.parametrize(("stated", "counts"), [(0.2, 0.2), (0.95, 0.9), (0, 0.0), (1, 0.9), (None, 0.9)])
def test_the_lower_confidence_counts(stated: float | None, counts: float) -> None:
    assert weighed(intent_classification=intent(confidence=stated)).confidence == counts


def test_an_intent_that_is_dropped_does_not_raise_the_confidence() -> None:
    """Mutation: an unknown category, and with it the doubt that stood beside it is gone."""
    found = weighed(intent_classification={"category": "/other", "confidence": 0.1})
    assert (found.confidence, found.asks_human) == (0.1, False)


@pytest.mark.parametrize("stated", ["0.1", float("nan"), -1, 1.1, True, [0.1]])
def test_a_confidence_that_cannot_be_read_is_a_matter_for_a_human(stated: Any) -> None:
    assert weighed(intent_classification=intent(confidence=stated)).asks_human


BLOCKS = [
    {"execution_metadata": {"blocked_by_constitution": True}},
    {"safety_gates": {"dangerous_action_blocked": "rm -rf /"}},
]


@pytest.mark.parametrize("section", BLOCKS)
@pytest.mark.parametrize("vote", ["yes", "abstain", "no"])
def test_a_blocked_action_makes_the_ballot_a_no(section: dict[str, Any], vote: str) -> None:
    found = weighed({**BALLOT, "vote": vote}, **section)
    assert found.vote == "no"
    assert found.reason.endswith("it holds")
    assert ("blocked" in found.reason and f"voted {vote}" in found.reason) == (vote != "no")


@pytest.mark.parametrize("text", [None, "", "  \n"])
def test_nothing_named_is_nothing_blocked(text: str | None) -> None:
    assert weighed(safety_gates={"dangerous_action_blocked": text}) == PLAIN


def test_a_reason_that_grows_is_still_one_that_an_envelope_carries() -> None:
    found = weighed({**BALLOT, "reason": "x" * REASON_CHARS_MAX}, **BLOCKS[1])
    assert len(found.reason) == REASON_CHARS_MAX
    found = weighed(safety_gates={"dangerous_action_blocked": "x" * 20_000})
    assert found.reason.endswith("it holds")
    assert len(found.reason) < 1_000


def test_an_approval_that_is_required_asks_a_human() -> None:
    for needed in (True, False):
        assert weighed(safety_gates={"requires_user_approval": needed}).asks_human == needed


@pytest.mark.parametrize(
    "section",
    [
        {"safety_gates": {"requires_user_approval": "yes"}},
        {"safety_gates": [{"requires_user_approval": True}]},
        {"safety_gates": {"dangerous_action_blocked": ["rm"]}},
        {"execution_metadata": {"blocked_by_constitution": "true"}},
        {"execution_metadata": "blocked"},
        {"impact_analysis": {"estimated_scope": "CRITICAL"}},
        {"intent_classification": "low confidence"},
    ],
)
def test_a_gate_that_cannot_be_read_is_a_closed_one(section: dict[str, Any]) -> None:
    """Mutation: a section is dropped, and the human whom it asked for with it."""
    found = weighed(**section)
    assert found.asks_human
    text = json.dumps({"control_packet": {**LEAST, **section}, "surface_response": "", "ballot": BALLOT})
    gates = read(text).packet.data()["safety_gates"]
    assert gates["requires_user_approval"] is True  # where the coordinator looks for it


def test_closing_a_gate_leaves_what_else_it_says() -> None:
    gates = {"dangerous_action_blocked": "rm", "chesterton_fence_warning": "recent", "more": 1}
    text = json.dumps({"control_packet": {**LEAST, "safety_gates": gates, "impact_analysis": 7}})
    assert read(text).packet.data()["safety_gates"] == {**gates, "requires_user_approval": True}


@pytest.mark.parametrize("packet", ['"{}"', "[]", "7", '{}, "control_packet": {}'])
def test_a_packet_that_cannot_be_read_is_a_closed_gate(packet: str) -> None:
    found = weigh(
        read(f'{{"control_packet": {packet}, "surface_response": "", "ballot": {json.dumps(BALLOT)}}}')
    )
    assert found is not None
    assert found.asks_human


@each(("scope", "risk"), product(["trivial", "minor", "major", "critical"], RISKS))
def test_a_critical_scope_makes_the_risk_high(scope: str, risk: str) -> None:
    found = weighed({**BALLOT, "risk_level": risk}, impact_analysis={"estimated_scope": scope})
    assert found.risk_level == ("high" if scope == "critical" else risk)


@pytest.mark.parametrize("section", [*BLOCKS, {"impact_analysis": {"estimated_scope": "critical"}}])
def test_an_override_loosens_nothing(section: dict[str, Any]) -> None:
    gates = {"requires_user_approval": True, **section.get("safety_gates", {})}
    strict = weighed(**{**section, "safety_gates": gates})
    gates = {**gates, "constitutional_override": "the user told me to"}
    found = weighed(**{**section, "safety_gates": gates})
    assert replace(found, notes=()) == strict
    assert found.notes == (("override", "the user told me to"),)


def test_a_models_own_count_of_tokens_settles_nothing() -> None:
    for tokens in (0, 10**9):
        assert weighed(execution_metadata={"tokens_used": tokens}) == PLAIN


@given(
    st.sampled_from(["yes", "no", "abstain"]),
    st.floats(0, 1),
    st.sampled_from(RISKS),
    st.fixed_dictionaries(
        {},
        optional={
            "execution_metadata": st.fixed_dictionaries(
                {}, optional={"blocked_by_constitution": st.booleans()}
            ),
            "impact_analysis": st.fixed_dictionaries(
                {}, optional={"estimated_scope": st.sampled_from(["trivial", "minor", "major", "critical"])}
            ),
            "safety_gates": st.fixed_dictionaries(
                {},
                optional={
                    "requires_user_approval": st.booleans(),
                    "dangerous_action_blocked": st.none() | st.text(max_size=5),
                    "constitutional_override": st.none() | st.text(max_size=5),
                },
            ),
        },
    ),
    st.none() | st.floats(0, 1),
)
def test_no_packet_makes_a_ballot_laxer(
    vote: str, confidence: float, risk: str, sections: dict[str, Any], stated: float | None
) -> None:
    ballot = BallotSection.model_validate(
        {**BALLOT, "vote": vote, "confidence": confidence, "risk_level": risk}
    )
    packet = ControlPacket.model_validate(sections)
    found = weigh(Reading(packet, "", ballot, 1.0, confidence=stated))
    assert found is not None
    assert found.vote in (vote, "no")
    assert found.confidence <= confidence
    assert RISKS.index(found.risk_level) >= RISKS.index(risk)
