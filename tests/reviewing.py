"""Reviews of many changes by the real minds."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from council import Council, Decision
from council.agents.codemind import CodeMind
from council.agents.mind import Case, Opinion
from tests.patience import ROUND_S

Name = TypeVar("Name", bound=Hashable)


def review_all(cases: Mapping[Name, Case]) -> dict[Name, Opinion]:
    """What CodeMind says of each case."""
    return {name: CodeMind().review(case) for name, case in cases.items()}


def decide_all(cases: Mapping[str, Case]) -> dict[str, Decision]:
    """What the three built-in minds decide in process on each case."""
    with Council.inline(time_budget_s=ROUND_S) as council:
        drafts = [
            council.draft(case.summary, case.body, action=case.action, wait_for="all")
            for case in cases.values()
        ]
        found = dict(zip(cases, council.propose_many(drafts), strict=True))
    assert {name: one for name, one in found.items() if not isinstance(one, Decision)} == {}
    return {name: one for name, one in found.items() if isinstance(one, Decision)}


def told(decision: Decision) -> str:
    """A decision with its ballots, as a failed test shows it."""
    lines = [f"{decision.outcome or decision.standing}: {decision.reason}"]
    lines += [f"  {b.seat} {b.vote} {b.confidence} {b.risk_level}: {b.reason}" for b in decision.ballots]
    return "\n".join(lines)
