"""A write of a simulated coordinator lingers while more comes, and no longer than its limit."""

from __future__ import annotations

from tests.sim import people
from tests.sim.life import Life
from tests.sim.plan import Motion, Plan, make
from tests.sim.world import World

# A coordinator puts a write off for at most so many times its journal's linger.
LINGERS_MAX = 10


class Measured(World):
    """``waited`` is how long writes lingered, in lingers of the journal."""

    def __init__(self, plan: Plan) -> None:
        self.waited: list[float] = []
        super().__init__(plan)

    def _write(self, life: Life, label: str) -> None:
        if life.commit._lingering is not None:
            self.waited.append((self.t - life.commit._lingering.since_s) / self.plan.linger_s)
        super()._write(life, label)


def test_writes_linger_while_more_comes_and_no_longer_than_their_limit() -> None:
    plan = make(0)
    plan.rates, plan.linger_s = {}, 0.1
    for troubles in (plan.partitions, plan.crashes, plan.false_deaths, plan.wall_jumps, plan.full):
        troubles.clear()
    for ends in (plan.kills, plan.takeovers):
        ends.clear()
    plan.motions = [Motion(n, 200.0 + 0.1 * n, "ann", 60.0, "all", 0.9, "low", None) for n in range(2)]
    world = Measured(plan)
    noise = people.forged(world, people.propose(world, world.pens["ann"], plan.motions[0]), "noise")
    for n in range(2_000):  # what is refused is on the record, and nobody waits for that
        world.at(200.2 + 0.002 * n, world._arrive, noise, None, f"noise/{n}")
    world.run()
    assert LINGERS_MAX < max(world.waited) <= 2 * LINGERS_MAX
