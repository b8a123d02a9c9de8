"""Some hundred simulated councils keep the rules. ``make sim`` runs thousands more."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.__main__ import replay_command
from tests.sim.plan import make
from tests.sim.truth import Violation
from tests.sim.world import World

CHUNKS, SEEDS_OF_CHUNK = 10, 40


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_seeds_keep_the_rules(chunk: int) -> None:
    """Every step of every seed agrees with the oracle; test_planted_bugs.py says what that catches."""
    for seed in range(chunk * SEEDS_OF_CHUNK, (chunk + 1) * SEEDS_OF_CHUNK):
        try:
            World(make(seed)).run()
        except Violation as violation:
            pytest.fail(f"seed {seed} breaks {violation}\nreplay it: {replay_command(seed)}", pytrace=False)


def test_the_seeds_reach_what_the_rules_speak_of() -> None:
    """A simulator that never gets anywhere finds nothing: each of these is reached by several seeds."""
    reached: Counter[str] = Counter()
    for seed in range(150):
        world = World(make(seed))
        world.run()
        reached.update(world.oracle.reached)
    ends = {"approved", "rejected", "deferred", "cancelled", "early", "tie-break", "sole seat", "late ballot"}
    ends |= {"ruling confirm", "ruling reject", "ruling human", "three interrupts", "ballot lost"}
    ends |= {"silent", "back on the roll", "unreadable ballot"}
    whys = ("quorum lost", "no ruling", "Prime asks", "gate", "tie")
    ends |= {f"to a human: {why}" for why in whys}
    rare = {what: reached[what] for what in ends if reached[what] < 3}
    assert not rare


@pytest.mark.parametrize("seed", [1, 7, 30])
def test_a_seed_is_one_history(seed: int) -> None:
    """The same seed twice gives the same records; else no failure could be replayed."""
    first, second = World(make(seed)).run(), World(make(seed)).run()
    assert first.kept
    assert first.kept == second.kept
    assert first.fired == second.fired


def test_leaving_one_fault_out_leaves_the_others() -> None:
    """What befalls a message hangs on the message alone, so that a failing seed can be made small."""
    seed = next(s for s in range(50) if "loss" in make(s).rates and World(make(s)).run().fired)
    before = World(make(seed)).run().fired
    lost = next(identity for identity in before if identity.startswith("loss:beat"))
    after = World(make(seed), drop={lost}).run().fired
    beats = {identity for identity in before if identity.startswith("loss:beat")}
    assert beats - set(after) == {lost}
