"""Each planted bug is found, by simulated councils or a named test: the measure of what these are worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sim.bugs import BUGS, Bug
from tests.sim.durable_bugs import DURABLE_BUGS, STORE_BUGS
from tests.sim.many import hunted
from tests.sim.planted import planted
from tests.sim.shrink import broken_rule, shrink

ROOT = Path(__file__).resolve().parents[2]
SEEDS_MAX = 300
SIMULATED = [bug for bug in (*BUGS, *DURABLE_BUGS) if not bug.found_by]
# The first seed that finds each bug. It is tried first; where it finds the bug no more, all seeds are.
FINDING_SEEDS: dict[str, int] = json.loads((Path(__file__).parent / "finding_seeds.json").read_text())
NAMED = [bug for bug in (*DURABLE_BUGS, *STORE_BUGS) if bug.found_by]


@pytest.mark.parametrize("bug", SIMULATED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    """The core's own invariants are not looked at here, so that the oracle alone is measured."""
    seeds, _ = hunted(bug, SEEDS_MAX, FINDING_SEEDS.get(bug.name, 0))
    if seeds is None:
        pytest.fail(f"{bug.name}: no seed of {SEEDS_MAX} found it", pytrace=False)


def test_without_a_bug_the_tests_that_are_there_for_one_pass() -> None:
    assert _pass(*dict.fromkeys(bug.found_by for bug in NAMED))


@pytest.mark.parametrize("bug", NAMED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_by_the_test_that_is_there_for_it(bug: Bug) -> None:
    with planted(bug):
        assert not _pass(bug.found_by)


def _pass(*tests: str) -> bool:
    """Runs tests in this process, where the bug is."""
    options = ["-x", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:timeout"]
    code = pytest.main(
        [*options, "-qq", "--no-header", "--no-summary", *(f"{ROOT / test}" for test in tests)]
    )
    assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), f"{tests} could not be run: {code}"
    return code is pytest.ExitCode.OK


def test_a_failing_seed_is_made_small() -> None:
    """Of the many things that happen in a seed, those that break the rule remain."""
    bug = next(bug for bug in BUGS if bug.name == "early though all are awaited")
    with planted(bug):
        seed = next(seed for seed in range(SEEDS_MAX) if broken_rule(seed, frozenset())[0] is not None)
        rule, before = broken_rule(seed, frozenset())
        drop = shrink(seed)
        still, after = broken_rule(seed, drop)
    assert still == rule
    assert len(set(after)) <= min(5, len(set(before)))


def test_a_bug_without_its_line_is_an_error() -> None:
    bug = Bug("gone", "core.tally:count", "a line that is not there", "")
    with pytest.raises(AssertionError, match="expected once"), planted(bug):
        pass
