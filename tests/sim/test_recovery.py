"""What a coordinator that starts refuses to take back, and what the simulator found about starting again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from council.core import events as ev
from council.journal.packets import unpacked
from council.protocol.errors import ReplayDiverged, StoreCorrupt
from tests.sim.plan import make
from tests.sim.world import World


@pytest.fixture(scope="module")
def world() -> World:
    """A council without troubles, at its end, with a decision or two behind it."""
    plan = make(6)
    plan.rates, plan.kills, plan.takeovers, plan.crashes = {}, [], [], []
    return World(plan).run()


def test_a_record_that_comes_to_something_else_stops_a_replay(world: World) -> None:
    """As when other rules, or another version, wrote it: nothing is decided anew behind a journal's back."""
    records = world.disk.records()
    at = next(n for n, record in enumerate(records) if isinstance(record.event, ev.BallotCast))
    event: Any = records[at].event
    other = replace(records[at], event=replace(event, ballot=replace(event.ballot, reason="another")))
    driver = world._driver(0.0)
    for record in records[:at]:
        driver.replay(record)
    with pytest.raises(ReplayDiverged, match=f"record {at + 1} "):
        driver.replay(other)


def test_a_record_that_is_refused_now_stops_a_replay(world: World) -> None:
    driver = world._driver(0.0)
    start, *rest = world.disk.records()
    driver.replay(start)
    ballot = next(record for record in rest if isinstance(record.event, ev.BallotCast))
    with pytest.raises(ReplayDiverged, match="it is refused now"):
        driver.replay(ballot)


def test_a_record_in_another_place_is_no_record(world: World) -> None:
    row = world.disk.rows[1]
    assert unpacked(row.content, row.position).record.position == 2
    with pytest.raises(StoreCorrupt, match="it says that its position is 2"):
        unpacked(row.content, 3)
