"""A mind that calls for Prime (rules 1.8), through a whole council: what the others are sure of waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from council import Council, Decision, SeatConfig
from council.agents.mind import Case, Opinion, Ruling, ShownBallot

WHY = "it pays somebody"


def agree(case: Case) -> Opinion:
    return Opinion.yes("fine", confidence=0.9)


def caller(case: Case) -> Opinion:
    return Opinion.yes("fine as it is", confidence=0.9, escalate=WHY if "pay" in case.summary else "")


class Chair:
    """A Prime with a ruling of its own; ``seen`` are the seats whose ballots it was shown."""

    def __init__(self, word: Any) -> None:
        self.word = word
        self.seen: list[str] = []

    def review(self, case: Case) -> Opinion:
        return agree(case)

    def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        self.seen = sorted(ballot.seat for ballot in ballots)
        return Ruling(self.word, "as I see it", 0.8)


def decide(prime: Any, summary: str = "pay the bill") -> Decision:
    minds = {"prime": prime, "lite": caller, "codemind": caller}  # two: one of them is in any majority
    seats = [SeatConfig(name=name, mind=mind) for name, mind in minds.items()]
    with Council.inline(seats=seats) as council:
        return council.propose(summary)


@pytest.mark.parametrize(("word", "outcome"), [("confirm", "approved"), ("reject", "rejected")])
def test_prime_rules_on_what_a_seat_escalates(word: str, outcome: str) -> None:
    """Fails where two agreeing ballots decide early all the same, as a call comes after its ballot."""
    chair = Chair(word)
    decision = decide(chair)
    assert decision.outcome == outcome
    assert decision.ruling is not None
    assert set(decision.escalated_for) == {f"{seat} escalated it: {WHY}" for seat in ("lite", "codemind")}
    assert chair.seen == ["codemind", "lite", "prime"]


def test_without_a_ruling_it_is_a_human_s() -> None:
    for prime in (Chair("human"), agree):
        decision = decide(prime)
        assert (decision.standing, decision.final, bool(decision)) == ("escalated", False, False)


def test_a_mind_that_calls_for_nobody_escalates_nothing() -> None:
    decision = decide(Chair("reject"), "paint the shed")
    assert (decision.outcome, decision.ruling, decision.escalated_for) == ("approved", None, ())
