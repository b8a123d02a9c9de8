"""Runs many simulated councils, on as many processes as there are cores, and hunts for planted bugs with them."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from tests.sim.bugs import BUGS, Bug
from tests.sim.durable_bugs import DURABLE_BUGS, STORE_BUGS
from tests.sim.plan import make
from tests.sim.planted import planted
from tests.sim.truth import Violation
from tests.sim.world import World

# Seeds of one task: enough that handing them out costs nothing, few enough that both ends stay busy.
CHUNK = 50
FAILURES_SHOWN = 10
# Not forked: a test session that runs this may have threads of Ray's, which a fork would leave in mid-air.
FRESH = get_context("spawn")


def one(seed: int) -> tuple[float, set[str], str | None]:
    """Virtual seconds of a seed's history, what it came to, and what it broke."""
    world = World(make(seed))
    try:
        world.run()
    except Violation as violation:
        return world.t, world.oracle.reached, str(violation)
    return world.t, world.oracle.reached, None


def replay_command(seed: int) -> str:
    return f"python -m tests.sim --seed {seed} --story"


def many(first: int, count: int, processes: int) -> int:
    """Runs seeds ``first`` to ``first + count``. Returns how many failed."""
    began = time.monotonic()
    virtual_s, failed, reached = 0.0, 0, Counter[str]()
    seeds = range(first, first + count)
    with ProcessPoolExecutor(processes, FRESH) as pool:
        for seed, (lasted_s, came_to, broken) in zip(
            seeds, pool.map(one, seeds, chunksize=CHUNK), strict=True
        ):
            virtual_s += lasted_s
            reached.update(came_to)
            if broken is not None:
                failed += 1
                if failed <= FAILURES_SHOWN:
                    print(f"seed {seed}: {broken[:500]}\n  {replay_command(seed)} --shrink", flush=True)
    took_s = time.monotonic() - began
    print(f"{count} seeds, {virtual_s / 3600:.0f} simulated hours, {took_s:.0f} s; {failed} failed")
    print(", ".join(f"{what}: {times}" for what, times in reached.most_common()))
    return failed


def hunted(bug: Bug, seeds_max: int, likely: int = 0) -> tuple[int | None, str]:
    """With how many seeds a planted bug is found, and by which rule; None where none of them finds it.

    The core's own invariants are not looked at, so that the oracle alone is measured. The ``likely`` seed is the
    first to be tried.
    """
    with planted(bug):
        for seed in dict.fromkeys((likely, *range(seeds_max))):
            try:
                World(make(seed), own_checks=False).run()
            except Violation as violation:
                return seed + 1, violation.rule
    return None, ""


def mutations(seeds_max: int, processes: int) -> int:
    """Prints how soon each planted bug is found. Returns how many are not, by any seed or test."""
    bugs = [bug for bug in (*BUGS, *DURABLE_BUGS) if not bug.found_by]
    with ProcessPoolExecutor(processes, FRESH) as pool:
        found = list(pool.map(partial(hunted, seeds_max=seeds_max), bugs))
    print("| planted bug | in | seeds to find it | by rule |\n|---|---|---|---|")
    for bug, (seeds, rule) in zip(bugs, found, strict=True):
        print(f"| {bug.name} | `{bug.place}` | {seeds or 'not found'} | {rule} |")
    for bug in (*DURABLE_BUGS, *STORE_BUGS):
        if bug.found_by:
            print(f"| {bug.name} | `{bug.place}` | named test | `{bug.found_by.partition('::')[2]}` |")
    needed = [seeds for seeds, _ in found if seeds is not None]
    print(
        "\n" + "; ".join(f"{sum(n <= most for n in needed)} with {most}" for most in (1, 3, 10, 30, 100, 300))
    )
    return len(found) - len(needed)
