"""Proposals by their numbers: the same bytes in every process, and what must become of each."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from council.protocol.envelope import Envelope

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
# By the last digit. What goes to Prime's ruling is of high risk; what it gives to a human has no outcome yet.
KINDS = ("agree", "agree", "refuse", "agree", "confirm", "agree", "overrule", "agree", "human", "refuse")
OUTCOMES = {"agree": "approved", "confirm": "approved", "refuse": "rejected", "overrule": "rejected"}
BUDGET_S = 60.0


def expected(number: int) -> str | None:
    """What must become of it, unless a human is asked."""
    return OUTCOMES.get(KINDS[number % 10])


def number_of(proposal_id: str) -> int:
    return int(proposal_id, 16)


def proposal(number: int, sender: str) -> Envelope:
    kind = KINDS[number % 10]
    chance = random.Random(number)
    size = chance.choice((0, 0, 200, 800, 800, 6_000, 30_000)) if number % 4 == 0 else 100
    return Envelope.build(
        msg_id=f"{number:016x}",
        timestamp=FIRST + timedelta(milliseconds=number),
        sender=sender,
        role="proposer",
        type="PROPOSAL",
        confidence=1.0,
        risk_level="high" if kind in ("confirm", "overrule", "human") else "low",
        content={
            "summary": f"{kind} to number {number}",
            "body": "".join(chance.choices("abcdefgh \n", k=size)),
            "action": None,
            "wait_for": "decisive",
            "time_budget_s": BUDGET_S,
            "supersedes": None,
        },
    )
