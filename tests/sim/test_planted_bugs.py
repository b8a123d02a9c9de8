"""Each planted bug is found, by simulated councils or a named test: the measure of what these are worth."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from tests.examples import at_first
from tests.sim.bugs import BUGS, FINDING_SEEDS, Bug
from tests.sim.durable_bugs import DURABLE_BUGS, STORE_BUGS
from tests.sim.many import hunted
from tests.sim.planted import planted
from tests.sim.shrink import broken_rule, shrink

ROOT = Path(__file__).resolve().parents[2]
SEEDS_MAX = 300
PARTS = 8  # for as many processes
SIMULATED = [bug for bug in (*BUGS, *DURABLE_BUGS) if not bug.found_by]
NAMED = [bug for bug in (*DURABLE_BUGS, *STORE_BUGS) if bug.found_by]


@pytest.mark.parametrize("part", at_first(4, *range(PARTS)))
def test_each_planted_bug_is_found(part: int) -> None:
    """The core's own invariants are not looked at here, so that the oracle alone is measured."""
    missed = [
        bug.name
        for bug in SIMULATED[part::PARTS]
        if hunted(bug, SEEDS_MAX, FINDING_SEEDS.get(bug.name, 0))[0] is None
    ]
    assert missed == [], f"no seed of {SEEDS_MAX} found them"


class Planting:
    """A plugin for pytest that runs the named tests without a bug, then each of them with the bug it is there for."""

    def __init__(self) -> None:
        self.sound: dict[str, bool] = {}  # whether a test passes without a bug
        self.found: dict[str, bool] = {}  # whether a bug's test fails with the bug

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.sound = {test: _pass(session, test) for test in dict.fromkeys(bug.found_by for bug in NAMED)}
        for bug in NAMED:
            with planted(bug):
                self.found[bug.name] = not _pass(session, bug.found_by)
        return True


def _pass(session: pytest.Session, test: str) -> bool:
    items = [item for item in session.items if item.nodeid == test or item.nodeid.startswith(f"{test}[")]
    assert items, f"{test} is not there"
    reports = (report for item in items for report in runtestprotocol(item, log=False))
    return not any(report.failed for report in reports)


@pytest.fixture(scope="module")
def named() -> Planting:
    """What one run of pytest in this process, where bugs are planted, says of all that have a named test."""
    planting = Planting()
    options = ["-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:timeout", "-qq"]
    tests = [f"{ROOT / test}" for test in dict.fromkeys(bug.found_by for bug in NAMED)]
    code = pytest.main([*options, f"--rootdir={ROOT}", *tests], plugins=[planting])
    assert code is pytest.ExitCode.OK
    return planting


def test_without_a_bug_the_tests_that_are_there_for_one_pass(named: Planting) -> None:
    assert [test for test, passes in named.sound.items() if not passes] == []


def test_each_planted_bug_is_found_by_the_test_that_is_there_for_it(named: Planting) -> None:
    assert [bug for bug, found in named.found.items() if not found] == []


def test_a_failing_seed_is_made_small() -> None:
    """Of the many things that happen in a seed, those that break the rule remain."""
    bug = next(bug for bug in BUGS if bug.name == "early though all are awaited")
    with planted(bug):
        seed = FINDING_SEEDS[bug.name]
        rule, before = broken_rule(seed, frozenset())
        assert rule is not None
        drop = shrink(seed)
        still, after = broken_rule(seed, drop)
    assert still == rule
    assert len(set(after)) <= min(5, len(set(before)))


def test_a_bug_without_its_line_is_an_error() -> None:
    bug = Bug("gone", "core.conclusion:count", "a line that is not there", "")
    with pytest.raises(AssertionError, match="expected once"), planted(bug):
        pass
