"""What the simulator, or writing it, found in the runtime once."""

from __future__ import annotations

import pytest

from council.runtime.driver import Driver
from tests.runtime.harness import COUNCIL_ID, Hand, key_of
from tests.sim.compare import entries
from tests.sim.people import propose
from tests.sim.plan import Motion, make
from tests.sim.truth import Said
from tests.sim.world import World


def test_a_session_is_told_things_in_their_order() -> None:
    """A retry's older answer must not follow the newer decision when one append keeps both."""
    plan = make(0)
    plan.seats, plan.prime, plan.observer, plan.rates = ("prime",), "prime", "", {}
    plan.ttl_s, plan.sole_seat = 500.0, "never"
    plan.motions = [Motion(0, 1.0, "ann", 0.5, "decisive", 0.9, "low", None)]
    world = World(plan)

    proposed: list[Said] = []
    world.at(1.0, lambda: proposed.append(propose(world, world.pens["ann"], plan.motions[0])))

    def retry_and_cancel() -> None:  # in one call, so that one append of the journal keeps both
        (proposal,) = proposed
        cancellation = world.pens["ann"].info("cancel", proposal.pid, "cancel/0", "no more", {})
        life = world.life
        assert life is not None
        life.commit.began(life.driver.position, world.t)
        world._arrive(proposal, "ann", "retry")
        world._arrive(cancellation, "ann", "cancel")
        life.commit.written(life.commit.kept_position, world.t)
        world._settle(life)

    world.at(3.0, retry_and_cancel)
    world.run()


def _replayed(hand: Hand) -> Driver:
    keys = {name: key_of(name) for name in hand.rules.seats}
    driver = Driver(hand.rules, COUNCIL_ID, keys, (0.0, 0.0), new_id=hand.new_id)
    for record in hand.records:
        driver.replay(record)
    return driver


def test_a_replay_knows_the_ids_that_the_council_knew() -> None:
    """A heartbeat that brings its seat back has a record: its id was used up after a restart, and not before."""
    hand = Hand()
    hand.wait(100.0)
    content = {"beat": 0, "busy_with": None, "uptime_s": 100.0}
    hand.receive(hand.sealed(hand.envelope("lite", "HEARTBEAT", content, parent_id="00000000")))
    pid = hand.propose()
    hand.receive(hand.vote("lite", pid))
    assert hand.records[-3].msg_id in hand.driver._ids
    assert entries(_replayed(hand)._ids) == entries(hand.driver._ids)


def test_what_changes_nothing_uses_up_no_id() -> None:
    """It has no record, so that a replay can't know of it; a snapshot did."""
    hand = Hand()
    pid = hand.propose(wait_for="all")
    hand.receive(hand.vote("lite", pid))
    hand.receive(hand.info("lite", pid, "fault", "too late to fail", task="ballot"))
    assert sum(hand.driver.ignored.values()) == 1
    assert entries(_replayed(hand)._ids) == entries(hand.driver._ids)
    by_snapshot = _replayed(hand)
    taken = hand.driver.snapshot()
    sealed = {record.msg_id: record.sealed for record in hand.records}
    by_snapshot.restore(
        taken.position,
        taken.base,
        [(at, more) for at, (more, _) in taken.added.items()],
        lambda ids: {each: sealed[each] for each in ids},
    )
    assert entries(by_snapshot._ids) == entries(hand.driver._ids)


# Seeds that broke a rule once, through a fault of the council's or of the simulator's own.
SEEDS = {
    1: "a heartbeat's id was used up by a replay",
    5: "an id of what changed nothing was in a snapshot",
    680: "the uptime of a snapshot is later than its last record's",
    1145: "a coordinator that was replaced answered with what only its successor had kept",
    2292: "an old heartbeat counted for a new run, whose number a crash had given out before",
    2875: "a seat that came back, alone, had voted before",
    3001: "two revivals of one seat numbered its heartbeats twice",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_that_broke_a_rule_once_keeps_it(seed: int) -> None:
    World(make(seed)).run()
