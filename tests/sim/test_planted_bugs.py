"""The simulator finds each planted bug within some hundred seeds: the measure of what it is worth."""

from __future__ import annotations

import pytest

from tests.sim.plan import make
from tests.sim.planted import BUGS, Bug, planted
from tests.sim.shrink import broken_rule, shrink
from tests.sim.truth import Violation
from tests.sim.world import World

SEEDS_MAX = 300


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    """The core's own invariants are not looked at here, so that the oracle alone is measured."""
    with planted(bug):
        for seed in range(SEEDS_MAX):
            try:
                World(make(seed), own_checks=False).run()
            except Violation:
                return
    pytest.fail(f"{bug.name}: no seed of {SEEDS_MAX} found it", pytrace=False)


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
