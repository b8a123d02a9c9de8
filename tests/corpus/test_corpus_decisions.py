"""Every change of the corpus gets the decision that it must get, from the three built-in minds in process.

A fault's ballots must carry high risk, so that it reaches Prime's ruling and is not merely outvoted.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from council import Council, Decision

FOLDER = Path(__file__).parent
CHANGES = tomllib.loads((FOLDER / "expected.toml").read_text(encoding="utf-8"))["change"]


@pytest.fixture(scope="module")
def decisions() -> dict[str, Decision]:
    with Council.inline(time_budget_s=150.0) as council:
        drafts = [
            council.draft(
                change["title"],
                (FOLDER / "changes" / change["file"]).read_text(encoding="utf-8"),
                wait_for="all",
            )
            for change in CHANGES
        ]
        found = council.propose_many(drafts)
    decided = {}
    for change, decision in zip(CHANGES, found, strict=True):
        assert isinstance(decision, Decision), f"{change['file']}: {decision!r}"
        decided[change["file"]] = decision
    return decided


def _told(decision: Decision) -> str:
    lines = [f"{decision.outcome or decision.standing}: {decision.reason}"]
    lines += [f"  {b.seat} {b.vote} {b.confidence} {b.risk_level}: {b.reason}" for b in decision.ballots]
    return "\n".join(lines)


@pytest.mark.parametrize("change", CHANGES, ids=[change["file"] for change in CHANGES])
def test_change_gets_its_decision(change: dict[str, str], decisions: dict[str, Decision]) -> None:
    decision = decisions[change["file"]]
    assert (decision.outcome or decision.standing) == change["decision"], _told(decision)
    assert decision.missing == (), _told(decision)


@pytest.mark.parametrize(
    "change",
    [change for change in CHANGES if change["fault"]],
    ids=[change["file"] for change in CHANGES if change["fault"]],
)
def test_fault_is_seen_with_high_risk_and_ruled_on(
    change: dict[str, str], decisions: dict[str, Decision]
) -> None:
    decision = decisions[change["file"]]
    accusers = [b for b in decision.ballots if b.vote == "no" and b.risk_level == "high"]
    assert accusers, _told(decision)
    assert decision.ruling is not None, _told(decision)
    assert decision.ruling.ruling == "reject", _told(decision)
