"""What the simulator found and the runtime has not mended yet. Mended: delete the mark here and in oracle.py."""

from __future__ import annotations

import pytest

from tests.sim.oracle import ASKED_BEFORE_KEPT, KNOWN, TOLD_BACKWARDS
from tests.sim.people import propose
from tests.sim.plan import Motion, make
from tests.sim.truth import Said
from tests.sim.world import World


def without(known: str, seeds: range) -> None:
    for seed in seeds:
        World(make(seed), tolerate=KNOWN - {known}).run()


@pytest.mark.xfail(strict=True, reason=ASKED_BEFORE_KEPT)
def test_a_question_is_answered_from_what_is_kept() -> None:
    """``Driver.decision`` and ``escalations`` read the state at once; rules 4.7 has them wait for the record."""
    without(ASKED_BEFORE_KEPT, range(20))


@pytest.mark.xfail(strict=True, reason=TOLD_BACKWARDS)
def test_a_session_is_told_things_in_their_order() -> None:
    """``Driver.saved`` pays replies after all effects: a retry's older answer follows the newer decision."""
    plan = make(0)
    plan.seats, plan.prime, plan.rates = ("prime",), "prime", {}
    plan.ttl_s, plan.sole_seat = 500.0, "never"
    plan.motions = [Motion(0, 1.0, "ann", 0.5, "decisive", 0.9, "low", None)]
    world = World(plan, tolerate=KNOWN - {TOLD_BACKWARDS})

    proposed: list[Said] = []
    world.at(1.0, lambda: proposed.append(propose(world, world.pens["ann"], plan.motions[0])))

    def retry_and_cancel() -> None:  # in one call, so that one append of the journal keeps both
        (proposal,) = proposed
        cancellation = world.pens["ann"].info("cancel", proposal.pid, "cancel/0", "no more", {})
        world._writing = True
        world._arrive(proposal, "ann", "retry")
        world._arrive(cancellation, "ann", "cancel")
        world._writing = False
        world._settle()

    world.at(3.0, retry_and_cancel)
    world.run()
