"""Commands as data: every row's own examples, and 100 command lines that nobody wrote the rows from."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from council.agents.scan import commands, flow, sql
from council.agents.scan.commands import BAD_MIN, GOOD_MIN, Row
from council.agents.scan.finding import WEIGHTS

ROWS = {row.id: row for row in commands.table().rows}
FLOWS = {row.id: row for row in flow.flows().rows}
QUERIES = {row.id: row for row in sql.table().rows}
LINES = tomllib.loads((Path(__file__).parent / "commands.toml").read_text("utf-8"))["command"]


def rules_of(script: str) -> list[str]:
    reading = commands.read(script)
    assert not reading.fault, (script, reading.fault)
    return [finding.rule for finding in reading.findings]


@pytest.mark.parametrize("id_", [*ROWS, *FLOWS])
def test_a_row_finds_its_bad_examples_and_none_of_its_good_ones(id_: str) -> None:
    row = (ROWS | FLOWS)[id_]
    missed = [line for line in row.bad.splitlines() if id_ not in rules_of(line)]
    wrong = [line for line in row.good.splitlines() if id_ in rules_of(line)]
    assert (missed, wrong) == ([], [])


@pytest.mark.parametrize("id_", QUERIES)
def test_a_row_of_sql_finds_its_bad_examples_and_none_of_its_good_ones(id_: str) -> None:
    row = QUERIES[id_]
    found = {text: {f.rule for f in sql.findings(text, "here")} for text in (row.bad + row.good).splitlines()}
    missed = [text for text in row.bad.splitlines() if id_ not in found[text]]
    wrong = [text for text in row.good.splitlines() if id_ in found[text]]
    assert (missed, wrong) == ([], [])


@pytest.mark.parametrize("id_", [*ROWS, *FLOWS, *QUERIES])
def test_a_row_has_enough_examples_and_says_what_to_do(id_: str) -> None:
    row: Row = (ROWS | FLOWS | QUERIES)[id_]  # type: ignore[assignment]
    assert len(set(row.bad.splitlines())) >= BAD_MIN
    assert len(set(row.good.splitlines())) >= GOOD_MIN
    assert len(row.message.split()) <= 25
    assert row.message.endswith(".")
    assert row.message.count(". ") == 1


def test_no_id_is_given_twice() -> None:
    assert len(ROWS | FLOWS | QUERIES) == len(ROWS) + len(FLOWS) + len(QUERIES)


@pytest.mark.parametrize(
    ("line", "weight"),
    [pytest.param(line, each["weight"], id=line[:60]) for each in LINES for line in each["lines"]],
)
def test_a_command_line_gets_its_weight(line: str, weight: str) -> None:
    found = sorted((f.weight for f in commands.findings(line, "here")), key=WEIGHTS.index)
    assert (found[0] if found and found[0] != "note" else "") == weight, commands.findings(line, "here")


def test_there_are_as_many_command_lines_as_the_figures_say() -> None:
    grave = [line for each in LINES if each["weight"] for line in each["lines"]]
    harmless = [line for each in LINES if not each["weight"] for line in each["lines"]]
    assert len(set(grave)) >= 60
    assert len(set(harmless)) >= 40
