"""Makes a failing history small: leaves out faults and proposals while the same rule is still broken."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.plan import make
from tests.sim.truth import Violation
from tests.sim.world import World

# Runs of one shrinking; each takes some milliseconds, and what is not small by then will do.
RUNS_MAX = 600


def broken_rule(seed: int, drop: frozenset[str]) -> tuple[str | None, list[str]]:
    """The rule that a seed breaks with these left out, if any, and the faults and proposals that happened."""
    world = World(make(seed), drop=drop)
    try:
        world.run()
    except Violation as violation:
        return violation.rule, world.fired
    return None, world.fired


def shrink(seed: int, drop: frozenset[str] = frozenset()) -> frozenset[str]:
    """What to leave out of a failing seed so that little is left and the same rule is still broken."""
    rule, fired = broken_rule(seed, drop)
    if rule is None:
        raise ValueError(f"seed {seed} breaks no rule: nothing to shrink")
    runs = 0

    def still_fails(without: frozenset[str]) -> bool:
        nonlocal runs
        runs += 1
        return broken_rule(seed, without)[0] == rule

    # Whole kinds of faults first, then halves, quarters, single ones of what is left.
    for kind in sorted({identity.partition(":")[0] for identity in fired}):
        without = drop | {identity for identity in fired if identity.partition(":")[0] == kind}
        if still_fails(without):
            drop = without
    return _by_halves(seed, drop, still_fails, lambda: runs < RUNS_MAX)


def _by_halves(
    seed: int,
    drop: frozenset[str],
    still_fails: Callable[[frozenset[str]], bool],
    may_go_on: Callable[[], bool],
) -> frozenset[str]:
    left = _left(seed, drop)
    size = max(len(left) // 2, 1)
    while may_go_on() and left:
        start, found = 0, False
        while start < len(left) and may_go_on():
            without = drop | set(left[start : start + size])
            if still_fails(without):
                drop, found = without, True
                left = _left(seed, drop)
            else:
                start += size
        if size == 1 and not found:
            break
        size = max(size // 2, 1)
    return drop


def _left(seed: int, drop: frozenset[str]) -> list[str]:
    return list(dict.fromkeys(broken_rule(seed, drop)[1]))
