"""A control packet binds the ballot that carries it, whichever mind made it (rules 6.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from council import Case, Council, CouncilConfig, Decision, Opinion, SeatConfig

NAMED = {"dangerous_action_blocked": "drop the table"}


def yes_with(**packet: Any) -> Any:
    async def mind(case: Case) -> Opinion:
        return Opinion("yes", "go ahead", 0.9, "low", packet)

    return mind


def decided(mind: Any) -> Decision:
    """The decision of a council whose three seats have this mind."""
    seats = tuple(SeatConfig(name=name, mind=mind) for name in ("prime", "lite", "codemind"))
    with Council.inline(CouncilConfig(seats=seats)) as council:
        return council.propose("Tidy the table", wait_for="all")


@pytest.mark.parametrize(
    ("packet", "words"),
    [
        ({"safety_gates": NAMED}, "a dangerous action was blocked: drop the table"),
        ({"execution_metadata": {"blocked_by_constitution": True}}, "the constitution blocked an action"),
    ],
)
def test_a_blocked_action_is_a_no_of_any_mind(packet: Mapping[str, Any], words: str) -> None:
    decision = decided(yes_with(**packet))
    assert decision.outcome == "rejected"
    assert [ballot.vote for ballot in decision.ballots] == ["no"] * 3
    assert words in decision.ballots[0].reason


def test_the_lower_confidence_counts_and_a_critical_scope_is_high_risk() -> None:
    intent = {"category": "/query", "verb": "/review", "confidence": 0.5}
    decision = decided(
        yes_with(intent_classification=intent, impact_analysis={"estimated_scope": "critical"})
    )
    assert {(ballot.confidence, ballot.risk_level) for ballot in decision.ballots} == {(0.5, "high")}
    assert decision.escalated_for


def test_what_a_user_must_approve_and_a_gate_that_cannot_be_read_wait_for_a_human() -> None:
    for gates in ({"requires_user_approval": True}, {"requires_user_approval": "maybe"}, "closed"):
        decision = decided(yes_with(safety_gates=gates))
        assert (decision.final, decision.outcome) == (False, None), gates


def test_notes_stand_with_the_decision_and_loosen_nothing() -> None:
    gates = {**NAMED, "constitutional_override": "the user said so", "chesterton_fence_warning": "it is new"}
    signals = {"pattern_id": "tidy", "success": False}
    decision = decided(yes_with(safety_gates=gates, learning_signals=signals))
    assert decision.outcome == "rejected"
    notes = dict(decision.ballots[0].notes or ())
    assert notes["override"] == "the user said so"
    assert notes["chesterton_fence"] == "it is new"
    assert '"pattern_id": "tidy"' in notes["learning"]
    assert "Note (fence) of prime: it is new" in decision.explain()


def test_a_ballot_without_a_packet_is_written_as_before() -> None:
    async def plain_yes(case: Case) -> Opinion:
        return Opinion.yes("fine")

    ballot = decided(plain_yes).ballots[0]
    assert not ballot.notes
    assert ballot.vote == "yes"
