"""The corpus of planted faults and harmless look-alikes gets at least the figures that it got, and is well-formed."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import judgement
from benchmarks.judgement import CALLS, COMMANDS, Entry, Verdict
from council.agents.scan.change import read_changes
from tests.reviewing import analyzed_together

HISTORY = Path(__file__).parent.parent / "corpus" / "history.toml"
ALARM_SHARE_MAX = 0.02  # of the commits of other projects


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return judgement.entries()


@pytest.fixture(scope="module")
def verdicts(entries: list[Entry]) -> list[Verdict]:
    with analyzed_together(entry.case for entry in entries):
        return judgement.judge(judgement.by_scan, entries)


def test_the_corpus_is_large_and_balanced(entries: list[Entry]) -> None:
    assert len({entry.id for entry in entries}) == len(entries)
    changes = [entry for entry in entries if entry.files]
    calls = [entry for entry in entries if entry.kind == CALLS]
    lines = [entry for entry in entries if entry.kind == COMMANDS]
    for chosen, least in ((changes, 150), (calls, 100), (lines, 1_000)):
        assert len(chosen) >= least
        assert 0.4 <= sum(entry.is_fault for entry in chosen) / len(chosen) <= 0.6
    assert len({entry.kind for entry in changes}) >= 16
    unread = {entry.id: read_changes(entry.case.body).faults for entry in changes}
    assert {id: faults for id, faults in unread.items() if faults} == {}


def test_faults_are_found_and_harmless_changes_pass_as_before(verdicts: list[Verdict]) -> None:
    """The figures of November 2026. They may only get better; then write the new ones here."""
    changes = [each for each in verdicts if each.entry.files]
    calls = [each for each in verdicts if each.entry.kind == CALLS]
    lines = [each for each in verdicts if each.entry.kind == COMMANDS]
    figures = {
        (name, weight, fault): judgement.reached(chosen, weight, fault=fault)[0]
        for name, chosen in (("changes", changes), ("calls", calls), ("commands", lines))
        for weight in ("stop", "ask")
        for fault in (True, False)
    }
    wrong = [each.entry.id for each in verdicts if each.entry.is_fault != (each.weight in ("stop", "ask"))]
    for name, weight, least, most in (
        ("changes", "stop", 263, 1),
        ("changes", "ask", 280, 2),
        ("calls", "stop", 45, 0),
        ("calls", "ask", 63, 0),
        ("commands", "stop", 272, 0),
        ("commands", "ask", 731, 0),
    ):
        assert figures[name, weight, True] >= least, (name, weight, wrong)
        assert figures[name, weight, False] <= most, (name, weight, wrong)


def test_an_interval_is_wilsons() -> None:
    assert judgement.interval(50, 100) == pytest.approx((40.4, 59.6), abs=0.05)
    assert judgement.interval(0, 10) == pytest.approx((0.0, 27.8), abs=0.05)


def test_the_alarms_over_other_projects_are_few_and_add_up() -> None:
    """Whoever has the repositories checks them anew: python -m benchmarks.history GIT_DIR… --check FILE."""
    kept = tomllib.loads(HISTORY.read_text(encoding="utf-8"))
    assert kept["commits"] == sum(each["commits"] for each in kept["repository"]) >= 500
    assert kept["alarms"] == sum(each["alarms"] for each in kept["repository"]) == len(kept["alarm"])
    counted = Counter(each["repository"] for each in kept["alarm"])
    assert counted == Counter({each["name"]: each["alarms"] for each in kept["repository"] if each["alarms"]})
    for each in kept["alarm"]:
        assert len(each["commit"]) == 40
        assert all(weight in ("stop", "ask") and count > 0 for _, weight, count in each["found"])
    assert kept["alarms"] <= ALARM_SHARE_MAX * kept["commits"]
