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
# Seeds that find what few do, so that the many before them need not be run; all are where these do so no more.
LIKELY = {
    "ballots of the unasked count": 265,
    "the answer to a call that is refused may linger": 249,
    "who has voted is halted": 244,
    "a cap may be passed by one": 217,
    "the root is the last parent's": 154,
    "an earlier round that was well takes back a halt": 98,
    "a good beginning takes back a halt": 97,
    "a look spends what ballots need": 94,
    "a seat has the council's cap": 85,
    "anybody plays any part": 54,
    "0.3 itself is unsure": 51,
    "a late ballot counts": 49,
    "Prime's rejection is overlooked": 49,
    "a replayed observation counts": 43,
    "anybody tells of it": 37,
    "any part goes with any message": 37,
    "packed decisions are not there": 31,
}
NAMED = [bug for bug in (*DURABLE_BUGS, *STORE_BUGS) if bug.found_by]


@pytest.mark.parametrize("bug", SIMULATED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    """The core's own invariants are not looked at here, so that the oracle alone is measured."""
    seeds, _ = hunted(bug, SEEDS_MAX, LIKELY.get(bug.name, 0))
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
