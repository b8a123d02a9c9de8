"""The rules that come with the council: each loads, and finds its bad examples and none of its good ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from council.agents.scan import code, commands
from council.agents.scan.ruleset import OWN, Rule, RuleError, files_of, globs_in, line_rules, read
from council.agents.scan.ruleset import examples as given_for
from tests.scan import examples
from tests.scan.examples import Example, load

REWRITTEN_SHARE = 0.9  # of the rewritten bad examples that must be found


@pytest.fixture(scope="module")
def rules() -> list[Rule]:
    return [rule for file in examples.files() for rule in read(file)]


def told(example: Example, found: set[str]) -> str:
    lines = "\n".join(f"    {line.tag}{line.text}" for line in example.change.hunks[0].lines)
    wanted = "must be found" if example.is_bad else "must not be found"
    return (
        f"{example.rule.place} {example.rule.id}: {wanted} ({example.how}); found: {sorted(found)}\n{lines}"
    )


def failures(of: Callable[[Path], Iterable[Example]]) -> tuple[int, list[str]]:
    """How many examples there are, and those that do not hold. Each file's rules are tried on its own examples."""
    tried = [list(of(file)) for file in examples.files()]
    return sum(map(len, tried)), [told(*each) for chosen in tried for each in examples.failures(chosen)]


def test_every_rule_loads_and_is_accepted_and_no_id_is_used_twice(rules: list[Rule]) -> None:
    assert len(rules) == len(load(OWN / "ast")) + len(load(OWN / "lines"))
    assert [id for id, count in Counter(rule.id for rule in rules).items() if count > 1] == []
    code.check([rule for rule in rules if rule.languages])


def test_every_regular_expression_of_a_command_compiles() -> None:
    """They are compiled at their first use, which must not be a user's."""
    for row in commands.table().rows:
        for regex in (row.targets, row.excepted, row.line):
            assert re.compile(regex), row.id


def test_a_rule_with_a_wrong_regular_expression_is_named(tmp_path: Path) -> None:
    text = "- {id: a-b, family: web, weight: note, message: No., match: '('}\n"
    (tmp_path / "own.yml").write_text(text, encoding="utf-8")
    with pytest.raises(RuleError, match=r"own.yml:1: rule a-b: match is no regular expression"):
        load(tmp_path)


def test_every_rule_has_enough_examples_and_every_example_a_rule(rules: list[Rule]) -> None:
    given = {id: kinds for file in examples.files() for id, kinds in given_for(file).items()}
    counts = {
        rule.id: [len(given.get(rule.id, {}).get(kind, [])) for kind in ("bad", "good")] for rule in rules
    }
    short = {id: (bad, good) for id, (bad, good) in counts.items() if bad < 5 or good < 3}
    assert short == {}
    assert sorted(given.keys() - {rule.id for rule in rules}) == []


def test_every_bad_example_is_found_and_no_good_one() -> None:
    count, wrong = failures(examples.of)
    assert count > 1_000
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
def test_nearly_all_bad_examples_are_found_when_they_are_rewritten() -> None:
    """Other quotes, calls spread over lines, renamed variables, more blanks."""
    count, lost = failures(examples.mutated)
    share = 1 - len(lost) / count
    print(f"{share:.1%} of {count} rewritten examples are found")
    assert count > 500
    assert share >= REWRITTEN_SHARE, "\n".join(lost)


def test_a_file_of_line_rules_is_left_out_only_where_none_of_them_is_for_the_path() -> None:
    for file in files_of(OWN / "lines"):
        known = set(globs_in(file))
        for rule in read(file) if known else ():
            wanted = {glob for glob in rule.paths if glob[:1] != "!"}
            assert wanted, rule.id
            assert wanted <= known, rule.id
    for_go, for_python = (
        {rule.place.split(":")[0] for rule in line_rules({path})} for path in ("a.go", "a.py")
    )
    assert "go.yml" in for_go - for_python
