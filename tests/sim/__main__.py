"""Runs simulated councils: ``python -m tests.sim --seeds 10000``, or one of them as a readable story.

Prints each failing seed with the rule that it breaks and a command that replays it; fails if one did.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.sim.many import many, mutations
from tests.sim.plan import make
from tests.sim.shrink import shrink
from tests.sim.truth import Violation
from tests.sim.world import World


def story(seed: int, *, tell: bool, small: bool) -> int:
    """Replays one seed, with its story if that is asked for."""
    drop: frozenset[str] = frozenset()
    plan = make(seed)
    if small:
        try:
            drop = shrink(seed)
        except ValueError as error:
            print(error)
    print(f"seed {seed}: seats {', '.join(plan.seats)}; quorum {plan.quorum}; sole seat {plan.sole_seat}")
    print(f"  faults: {', '.join(f'{name} {rate:.3f}' for name, rate in sorted(plan.rates.items()))}")
    world = World(plan, drop=drop, story=print if tell else None)
    try:
        world.run()
    except Violation as violation:
        if small:
            left = list(dict.fromkeys(world.fired))
            print(f"what happened, made small ({len(left)}): {', '.join(left)}")
        print(f"broken: {violation}")
        return 1
    print(f"seed {seed} keeps the rules, over {world.t:.0f} s")
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many histories to run")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--story", action="store_true", help="with --seed: tell what happens")
    parser.add_argument("--shrink", action="store_true", help="with --seed: leave out what does not matter")
    parser.add_argument(
        "--mutations", action="store_true", help="plant bugs, and tell how soon each is found"
    )
    given = parser.parse_args(arguments)
    if given.mutations:
        return 1 if mutations(given.seeds, given.processes) else 0
    if given.seed is not None:
        return story(given.seed, tell=given.story, small=given.shrink)
    return 1 if many(given.first, given.seeds, given.processes) else 0


if __name__ == "__main__":
    sys.exit(main())
