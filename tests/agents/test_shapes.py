"""The shapes of private texts as data: each row's examples, and what a wrong row says."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from council.agents.scan import personal, secrets
from council.agents.scan.secrets import find_private, find_tokens, findings
from council.agents.scan.shapes import RULES, load

ROWS: list[dict[str, Any]] = [
    row
    for file in ("secrets.yml", "personal.yml")
    for row in yaml.safe_load((RULES / file).read_text(encoding="utf-8"))
]


def joined(line: str) -> str:
    """An example as it is meant: its parts joined, so that the file itself holds no token."""
    return line.replace(" + ", "").replace("⏎", "\n")


def found(text: str) -> set[str]:
    return {spot.rule for spot in find_private(text) if spot.grade != "fake"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_shape_finds_its_bad_examples_and_no_good_one(row: dict[str, Any]) -> None:
    bad, good = (row[side].splitlines() for side in ("bad", "good"))
    assert len(bad) >= 5
    assert len(good) >= 3
    assert {line: rules for line in bad if (rules := found(joined(line))) != {row["id"]}} == {}
    assert {line: rules for line in good if (rules := found(joined(line)))} == {}


# Where a token may stand. Each is also tried on its own, so these are other quotes, names and languages.
PLACES = (
    "{}",
    "x = '{}'",
    "const k = `{}`;",
    'String s = "{}";',
    "<key>{}</key>",
    "- name: {}",
    "https://api.corp.io/?k={}&a=1",
    "fn({}, 1)",
    "\tcurl --header 'X: {}'",
    "{}\r",
)


def test_a_token_is_found_wherever_it_stands() -> None:
    """Of all rows whose shape has no surroundings of its own, in the first example's token."""
    missed, tried = [], 0
    for row in ROWS:
        if "(?P<secret>" in row["shape"] or "edges" in row or row["id"].startswith("privacy-"):
            continue
        text = joined(row["bad"].splitlines()[0])
        (spot,) = find_private(text)
        for place in PLACES:
            tried += 1
            if row["id"] not in found(place.format(text[spot.start : spot.end])):
                missed.append((row["id"], place))
    assert tried > 1_000
    assert len(missed) <= tried * 0.02, missed


def test_the_rules_hold_no_token_themselves() -> None:
    """Fails if an example is written in one piece: then the scanners of code hosts refuse a push."""
    text = (RULES / "secrets.yml").read_text(encoding="utf-8")
    own = {spot.rule for spot in find_tokens(text) if spot.grade == "sure"}
    assert own <= {"secret-connection-string", "secret-header-credential", "secret-option-credential",
                   "secret-netrc-password", "secret-xml-password", "secret-connection-settings"}  # fmt: skip


def test_a_name_is_known_to_the_shape_and_to_named_secret() -> None:
    (row,) = (row for row in ROWS if row["id"] == "secret-named-secret")
    assert secrets._NAME.pattern in row["shape"]


def test_a_finding_says_what_it_is_and_what_to_do_without_the_secret() -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8j9K0" + "m1N2p3Q4r5S6t7U8"
    (one,) = findings("app.py", [(7, "x = 1"), (9, f'k = "{token}"')])
    assert (one.rule, one.family, one.weight, one.place, one.cwe) == (
        "secret-github-token", "secret", "stop", "app.py:9", 798,
    )  # fmt: skip
    assert one.message.startswith("GitHub token ghp_… ")
    assert token[4:] not in repr(one)


@pytest.mark.parametrize(
    ("line", "lenient", "weight"),
    [
        ('password = "S3cr3t-Passw0rd!"', False, "stop"),
        ('password = "S3cr3t-Passw0rd!"', True, "note"),
        ('password = "hunter2"', False, "ask"),
        ("AKIA" + "Q7ZK3NVX2LMPT5RW", True, "stop"),
        ("4539 1488 0343 6467", False, "stop"),
        ("4539 1488 0343 6467", True, "ask"),
        ("anna.schmidt@firma-weber.de", False, "ask"),
        ("anna.schmidt@firma-weber.de", True, "note"),
        ("author: anna.schmidt@firma-weber.de", False, "note"),
        ("app:$apr1$twRiNTV2$x67rKyKRyWqjYLRWNSyGLu", False, "ask"),
    ],
)
def test_the_weight_is_of_the_grade_and_the_place(line: str, lenient: bool, weight: str) -> None:
    assert [one.weight for one in findings("a", [(1, line)], lenient=lenient)] == [weight]


def test_a_list_of_persons_weighs_more_than_one() -> None:
    lines = [
        (at, f"{name}@firma-weber.de") for at, name in enumerate(("anna", "bert", "cleo", "dora", "emil"), 1)
    ]
    assert {one.weight for one in findings("a.csv", lines[:4])} == {"ask"}
    assert {one.weight for one in findings("a.csv", lines)} == {"stop"}


GIVEN = {"id": "a", "kind": "a", "shape": "a", "bad": "a", "good": "b"}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("a: b", "expected a list of rules"),
        ([{"a": 1}], "rule 1: the key 'id' is missing"),
        ([GIVEN | {"validator": "luna"}], r"rule 1 \(a\): no validator 'luna'; there are .*luhn"),
        ([GIVEN | {"edges": "round"}], "edges: expected word, start or none; found 'round'"),
        ([GIVEN | {"shapes": "x"}], "shapes"),
        ([GIVEN | {"weights": {"sure": "stopp"}}], "stopp"),
    ],
)
def test_a_wrong_rule_names_its_file_and_why(tmp_path: Path, row: object, why: str) -> None:
    file = tmp_path / "own.yml"
    file.write_text(row if isinstance(row, str) else yaml.safe_dump(row))
    with pytest.raises(ValueError, match=why) as error:
        load(file, "secret", personal.VALIDATORS | secrets.VALIDATORS)
    assert "own.yml" in str(error.value)
