"""What the simulator, or writing it, found in the runtime once."""

from __future__ import annotations

from tests.sim.people import propose
from tests.sim.plan import Motion, make
from tests.sim.truth import Said
from tests.sim.world import World


def test_a_session_is_told_things_in_their_order() -> None:
    """A retry's older answer must not follow the newer decision when one append keeps both."""
    plan = make(0)
    plan.seats, plan.prime, plan.rates = ("prime",), "prime", {}
    plan.ttl_s, plan.sole_seat = 500.0, "never"
    plan.motions = [Motion(0, 1.0, "ann", 0.5, "decisive", 0.9, "low", None)]
    world = World(plan)

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
