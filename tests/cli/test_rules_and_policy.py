"""``council rules``, ``council policy`` and ``council review --sarif``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Cli, Repository


@pytest.fixture
def repository(home: Path) -> Repository:
    return Repository(home)


def told(out: str) -> dict[str, Any]:
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "more", [[], ["--language", "python"], ["--language", "go"], ["--language", "csharp"]]
)
def test_a_new_rule_holds_as_it_is_written(cli: Cli, home: Path, more: list[str]) -> None:
    done = cli("rules", "new", "my-rule", *more)
    assert (done.code, "council.rules/my-rule.yml" in done.out) == (0, True)
    assert sorted(each.name for each in (home / "council.rules").iterdir()) == [
        "my-rule.examples.yml",
        "my-rule.yml",
    ]
    done = cli("rules", "test")
    assert (done.code, done.out) == (0, "1 rules, 3 examples, 0 do not hold\n")
    again = cli("rules", "new", "my-rule", *more)
    assert (again.code, "is there already" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("new", "My Rule"), "id is 'My Rule', expected words in lower case joined by -"),
        (("new", "x", "--language", "cobol"), "--language cobol: expected one of "),
        (("new", "x", "--language", "yaml"), "it has no calls, so leave --language out"),
        (("new", "../x"), "expected words in lower case"),
        (("show", "docker-user-rot"), "did you mean docker-user-root?"),
        (("test",), "there is no folder council.rules here"),
        (("test", "nowhere"), "nowhere: it can't be read: No such file or directory"),
    ],
)
def test_wrong_usage_is_told_in_words(cli: Cli, home: Path, arguments: tuple[str, ...], why: str) -> None:
    done = cli("rules", *arguments)
    assert done.code == 2
    assert why in done.err
    assert not (home / "council.rules").exists()


def test_rules_are_listed_with_ones_own(cli: Cli, home: Path) -> None:
    ours = {rule["id"]: rule for rule in told(cli("rules", "list", "--json").out)["rules"]}
    assert len(ours) > 100
    assert ours["docker-user-root"] | {"place": ""} == {
        "id": "docker-user-root",
        "message": "The container runs as root. Name an unprivileged user.",
        "family": "container",
        "weight": "ask",
        "cwe": 250,
        "when": "appears",
        "languages": [],
        "paths": ["Dockerfile*", "*.dockerfile", "Containerfile*"],
        "place": "",
        "from": "council",
    }
    cli("rules", "new", "docker-user-root")
    cli("rules", "new", "py-mine", "--language", "python")
    both = {rule["id"]: rule["from"] for rule in told(cli("rules", "list", "--json").out)["rules"]}
    assert both.keys() == ours.keys() | {"py-mine"}
    assert {id for id, source in both.items() if source == "council.rules"} == {"docker-user-root", "py-mine"}
    assert "py-mine" in cli("rules", "list").out
    shown = told(cli("rules", "show", "py-mine", "--json").out)
    assert (shown["languages"], shown["good"]) == (["python"], ["x = allowed(1)"])
    out = cli("rules", "show", "docker-latest").out
    assert "docker-latest" in out
    assert "bad" in out


def test_examples_that_do_not_hold_are_shown(cli: Cli, home: Path) -> None:
    cli("rules", "new", "my-rule")
    beside = home / "council.rules" / "my-rule.examples.yml"
    beside.write_text('my-rule: {bad: ["debug: false"], good: ["debug: true"]}\nother: {bad: []}')
    done = cli("rules", "test")
    assert done.code == 1
    assert done.out == (
        "council.rules/my-rule.yml:1 my-rule: a bad example is not found:\n    +debug: false\n"
        "council.rules/my-rule.yml:1 my-rule: a good example is found:\n    +debug: true\n"
        "council.rules: examples for other, and there is no such rule\n"
        "1 rules, 2 examples, 2 do not hold\n"
    )
    for text, why in (
        ("my-rule: {bad: [3]}", "an example is 3, expected a text, or a mapping of old, new and path"),
        ("my-rule: {bad: [{nw: x}]}", "expected a text, or a mapping of old, new and path"),
        ("my-rule: {bad: x}", "expected for each rule's id lists under bad and good"),
        ("{", "my-rule.examples.yml:2: it can't be read"),
    ):
        beside.write_text(text)
        done = cli("rules", "test")
        assert (done.code, why in done.err) == (2, True), done.err
    beside.unlink()
    done = cli("rules", "test")
    assert (done.code, "my-rule: it has no bad example" in done.out) == (1, True)


POLICY = """
[[policy]]
tool = "shell"
args = {command = "^terraform"}
then = "reject"
reason = "No terraform by hand"
[[policy]]
tool = "write_file"
paths = ["prod/*"]
then = "human"
reason = "Ask the owners"
[[policy]]
agent = "bot-*"
then = "note"
reason = "A bot"
"""


def test_policy_is_tried(cli: Cli, home: Path) -> None:
    (home / "council.toml").write_text(POLICY)
    done = cli("policy", "test", "shell", "command=terraform apply")
    assert (done.code, done.out) == (1, "reject: policy row 1: No terraform by hand\n")
    done = cli("policy", "test", "write_file", '{"path": "prod/x"}', "--agent", "bot-1", "--json")
    assert done.code == 3
    assert told(done.out) == {
        "then": "human",
        "rows": [
            {"row": 2, "then": "human", "reason": "Ask the owners"},
            {"row": 3, "then": "note", "reason": "A bot"},
        ],
        "of": 3,
        "exit_code": 3,
    }
    done = cli("policy", "test", "shell", "command=ls")
    assert (done.code, done.out) == (0, "no row fits: none of 3 says anything of this action\n")
    (home / "a.json").write_text('{"tool": "shell", "args": {"command": "terraform plan"}}')
    assert cli("policy", "test", "a.json").code == 1
    (home / "c.json").write_text('{"tool": 3}')
    for given, why in (
        (("b.json",), "b.json: there is no such file"),
        (("shell", "ls"), "'ls': expected NAME=VALUE"),
        (("shell", "{"), "the arguments: not JSON"),
        (("council.toml",), "council.toml: not JSON"),
        (("c.json",), "'c.json' names no tool"),
        (("", "a=b"), "'' names no tool"),
    ):
        done = cli("policy", "test", *given)
        assert (done.code, why in done.err) == (2, True), done.err


def test_a_wrong_row_in_a_file_is_named(cli: Cli, home: Path) -> None:
    (home / "council.toml").write_text(POLICY.replace('"note"', '"notes"'))
    done = cli("policy", "test", "shell")
    assert done.code == 2
    assert "key policy.3.then: found 'notes', expected 'reject', 'human' or 'note'" in done.err
    slow = '[[policy]]\nthen = "note"\nreason = "x"\nargs = {a = "(a+)+$"}\n'
    (home / "council.toml").write_text(slow)
    done = cli("policy", "test", "shell")
    assert (done.code, "key policy.1.args: found" in done.err) == (2, True)


def test_a_review_prints_sarif(cli: Cli, repository: Repository) -> None:
    (repository.path / "council.rules").mkdir()
    (repository.path / "council.rules" / "silence.yml").write_text(
        "- {rule: py-eval-of-data, paths: [b.py], reason: ours}"
    )
    repository.git("add", "-A")
    repository.commit("Begin", c__py="x = 1\n")
    repository.commit(
        "Evaluate", a__py="def f(x):\n    return eval(x)\n", b__py="def g(x):\n    return eval(x)\n"
    )
    done = cli("review", "--inline", "--sarif")
    assert done.code == 1
    (run,) = told(done.out)["runs"]
    results = {
        each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]: each
        for each in run["results"]
        if each["ruleId"] == "py-eval-of-data"
    }
    assert results["a.py"]["level"] == "error"
    assert "suppressions" not in results["a.py"]
    assert results["b.py"]["suppressions"] == [{"kind": "external", "justification": "ours"}]
    assert "rejected" in done.err
    assert cli("review", "--sarif", "--json").code == 2
