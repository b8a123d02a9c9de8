"""Every change of the corpus gets the decision that it must get, from the three built-in minds in process.

A fault's ballots must carry high risk, so that it reaches Prime's ruling and is not merely outvoted.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from council import Decision
from council.agents.mind import Case
from tests.reviewing import analyzed_together, decide_all, told

FOLDER = Path(__file__).parent
CHANGES = tomllib.loads((FOLDER / "expected.toml").read_text(encoding="utf-8"))["change"]


@pytest.fixture(scope="module")
def decisions() -> dict[str, Decision]:
    cases = {
        change["file"]: Case(
            "id",
            "proposer",
            change["title"],
            (FOLDER / "changes" / change["file"]).read_text(encoding="utf-8"),
        )
        for change in CHANGES
    }
    with analyzed_together(cases.values()):
        return decide_all(cases)


def is_seen(decision: Decision) -> bool:
    accusers = [b for b in decision.ballots if b.vote == "no" and b.risk_level == "high"]
    return bool(accusers) and decision.ruling is not None and decision.ruling.ruling == "reject"


def test_every_change_gets_its_decision(decisions: dict[str, Decision]) -> None:
    wanted = {change["file"]: change["decision"] for change in CHANGES}
    assert {
        file: told(decision)
        for file, decision in decisions.items()
        if (decision.outcome or decision.standing) != wanted[file] or decision.missing != ()
    } == {}


def test_every_fault_is_seen_with_high_risk_and_ruled_on(decisions: dict[str, Decision]) -> None:
    faults = [change["file"] for change in CHANGES if change["fault"]]
    assert {file: told(decisions[file]) for file in faults if not is_seen(decisions[file])} == {}
