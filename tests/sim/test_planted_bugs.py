"""Each planted bug is found, by simulated councils or a named test: the measure of what these are worth."""

from __future__ import annotations

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
NAMED = [bug for bug in (*DURABLE_BUGS, *STORE_BUGS) if bug.found_by]


@pytest.mark.parametrize("bug", SIMULATED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    """The core's own invariants are not looked at here, so that the oracle alone is measured."""
    seeds, _ = hunted(bug, SEEDS_MAX)
    if seeds is None:
        pytest.fail(f"{bug.name}: no seed of {SEEDS_MAX} found it", pytrace=False)


@pytest.mark.parametrize("bug", NAMED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found_by_the_test_that_is_there_for_it(bug: Bug) -> None:
    assert _passes(bug.found_by)
    with planted(bug):
        assert not _passes(bug.found_by)


def _passes(test: str) -> bool:
    """Runs a test in this process, where the bug is."""
    path, _, name = test.partition("::")
    options = ["-x", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:timeout"]
    code = pytest.main([*options, "-qq", "--no-header", "--no-summary", f"{ROOT / path}::{name}"])
    assert code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), f"{test} could not be run: {code}"
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
