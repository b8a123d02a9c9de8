"""Writes of simulated coordinators linger where nobody waits for them, and there alone."""

from __future__ import annotations

from council.core.events import ProposalCancelled, ProposalSubmitted
from tests.sim import people
from tests.sim.life import Life
from tests.sim.plan import Motion, Plan, make
from tests.sim.world import World

# So many times its journal's linger a coordinator puts a write off at most, while more comes or nothing is open.
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


def patient() -> Measured:
    """A council whose writes linger for ten seconds, without troubles; two proposals come within the first."""
    plan = make(0)
    plan.rates, plan.linger_s = {}, 10.0
    for troubles in (plan.partitions, plan.crashes, plan.false_deaths, plan.wall_jumps):
        troubles.clear()
    for ends in (plan.kills, plan.takeovers, plan.full):
        ends.clear()
    plan.motions = [Motion(n, 200.0 + 0.1 * n, "ann", 60.0, "all", 0.9, "low", None) for n in range(2)]
    return Measured(plan)


def proposals(world: World) -> int:
    return sum(isinstance(record.event, ProposalSubmitted) for record in world.disk.records())


def test_what_lingers_is_lost_together_though_seats_are_at_work_on_it() -> None:
    world = patient()

    def die() -> None:
        life = world.life
        assert life is not None
        assert life.commit.lingers
        assert len(life.driver.state.open) == 2
        assert proposals(world) == 0
        assert all(seat.work for seat in world.seats.values())
        world._kill("kill/0")
        assert proposals(world) == 0

    world.at(200.2, die)
    world.run()
    assert "proposals lost together" in world.oracle.reached
    assert proposals(world) == len(world.oracle.told) == 2  # their proposer, told of nothing, said them again


def test_what_somebody_waits_for_is_written_at_once_with_all_that_lingered() -> None:
    world = patient()

    def cancel() -> None:
        life = world.life
        assert life is not None
        assert life.commit.lingers
        (pid, *_) = world.oracle.live
        world._arrive(world.pens["ann"].info("cancel", pid, "cancel/0", "no more", {}), "ann", "cancel/0")
        assert not life.commit.lingers
        assert life.writing is not None
        kinds = [type(record.event) for record in life.writing.records]
        assert kinds.count(ProposalSubmitted) == 2
        assert kinds[-1] is ProposalCancelled

    world.at(200.2, cancel)
    world.run()


def test_who_asks_ends_a_linger() -> None:
    """As the real coordinator's ``status`` and ``decision`` do, which tell of what is kept alone (rules 4.7)."""
    world = patient()

    def ask() -> None:
        life = world.life
        assert life is not None
        assert life.commit.lingers
        world.plan.rates["poll"] = 1.0
        world._poll(life)
        del world.plan.rates["poll"]
        world._settle(life)
        assert not life.commit.lingers
        assert life.writing is not None

    world.at(200.2, ask)
    world.run()


def test_writes_linger_while_more_comes_and_no_longer_than_their_limit() -> None:
    world = patient()
    world.plan.linger_s = 0.1
    noise = people.forged(world, people.propose(world, world.pens["ann"], world.plan.motions[0]), "noise")
    for n in range(2_000):  # what is refused is on the record, and nobody waits for that
        world.at(200.2 + 0.002 * n, world._arrive, noise, None, f"noise/{n}")
    world.run()
    assert LINGERS_MAX < max(world.waited) <= 2 * LINGERS_MAX


def test_in_most_seeds_nothing_lingers() -> None:
    patient_ones = sum(make(seed).linger_s > 0 for seed in range(1_000))
    assert 350 < patient_ones < 450
