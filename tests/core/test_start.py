"""A coordinator that starts, the first one or a later: rules 1.9, 1.10, 1.11, 4.6."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from council.core import effects as do
from council.core import events as ev
from council.core.state import Seat
from council.core.step import next_due
from tests.core.council_in_hand import DAY_S, THREE, Hand, abstain, answer, ballot, no, ruling, yes

BACK = "the coordinator started anew"


def begun(seats: tuple[str, ...] = THREE, **rules: Any) -> Hand:
    """A council whose first coordinator has started."""
    hand = Hand(seats, **rules)
    assert start(hand, 1) == []
    return hand


def start(hand: Hand, epoch: int, **changed: Any) -> list[do.Effect]:
    """A coordinator starts, which is the first thing that it does: nothing is drained before."""
    rules = replace(hand.rules, **changed)
    effects = hand._step(ev.CoordinatorStarted("c", epoch, rules))
    hand.rules = rules
    return effects


def down(hand: Hand, seconds: float) -> None:
    """Time passes that no coordinator counts: the wall's alone."""
    hand.wall += seconds


def open_of(hand: Hand, *proposal_ids: str) -> None:
    assert tuple(hand.state.open) == proposal_ids


# The roll


def test_the_first_start_of_all_finds_the_seats_as_they_were_launched() -> None:
    hand = Hand(start_s=5.0)
    hand.move_to(20.0)
    assert start(hand, 1) == []
    assert hand.state.seats == {
        name: Seat(name, True, 20.0, boot=0, beat=-1, why="at launch", since_s=20.0) for name in THREE
    }
    assert (hand.state.epoch, hand.state.ruled_from) == (1, 1)


def test_the_first_start_may_be_of_a_later_epoch() -> None:
    """The coordinator of epoch 1 died before its start was kept."""
    hand = Hand()
    assert start(hand, 2) == []
    assert hand.state.seats["lite"].boot == 0


def test_every_seat_counts_as_having_beaten_when_a_coordinator_starts() -> None:
    hand = begun()
    hand.move_to(80.0)
    down(hand, 10_000.0)
    assert start(hand, 2) == [do.AnnounceStart(2, 0)]
    assert hand.state.seats == {
        name: Seat(name, True, 80.0, boot=1, beat=-1, why="at launch", handed_on=1, since_s=80.0)
        for name in THREE
    }
    hand.move_to(170.0)
    assert hand.drain() == []
    hand.move_to(170.001)
    assert [type(effect) for effect in hand.drain()] == [do.AnnounceRoll] * 3


def test_a_seat_that_was_inactive_is_active_again_which_is_announced() -> None:
    hand = begun()
    hand.died("lite")
    assert start(hand, 2) == [do.AnnounceStart(2, 0), do.AnnounceRoll("lite", True, BACK)]
    assert hand.state.seats["lite"] == Seat("lite", True, 0.0, boot=2, beat=-1, why=BACK, handed_on=1)


# Redelivery


def test_what_is_open_is_handed_over_again_to_whoever_has_not_answered() -> None:
    hand = begun()
    hand.submit(proposal_id="p1", wait_for="all")
    hand.submit(proposal_id="p2", wait_for="all")
    hand.vote(yes("prime", "p1"))
    hand.do(ev.WorkFailed("p2", "lite", "ballot", "nonsense"))
    assert start(hand, 2) == [
        do.AnnounceStart(2, 2),
        do.DeliverProposal("lite", "p1"),
        do.DeliverProposal("codemind", "p1"),
        do.DeliverProposal("prime", "p2"),
        do.DeliverProposal("codemind", "p2"),
    ]
    hand.vote(yes("lite", "p1"), yes("codemind", "p1"))
    assert hand.closed("p1").outcome == "approved"


def test_a_ruling_is_requested_again_within_the_same_time() -> None:
    hand = begun()
    hand.submit(risk_level="high")
    ballots = yes("prime"), yes("lite"), yes("codemind")
    hand.vote(*ballots)
    deadline_s = hand.open().deadline_s
    hand.move_to(20.0)
    down(hand, 10_000.0)
    assert start(hand, 2) == [
        do.AnnounceStart(2, 1),
        do.RequestRuling("prime", "p1", ballots, ("client rates the risk of the proposal high",)),
    ]
    assert hand.open().deadline_s == deadline_s == 60.0
    hand.do(ev.RulingGiven(ruling("confirm")))
    assert hand.closed().outcome == "approved"


# Humans


def waiting_for_a_human() -> Hand:
    hand = begun()
    hand.submit()
    hand.move_to(60.5)
    hand.drain()
    assert hand.open().stage == "human"
    return hand


def test_an_escalation_that_expired_while_all_was_down_is_deferred_after_the_start() -> None:
    hand = waiting_for_a_human()
    down(hand, DAY_S + 1.0)
    assert start(hand, 2) == [do.AnnounceStart(2, 1)]
    assert next_due(hand.state, hand.moment()) == ev.EscalationExpired("p1")
    hand.drain()
    assert hand.closed().outcome == "deferred"
    hand.refused(ev.HumanAnswered(answer(True)), "closed")


# Epochs and rules


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_an_epoch_that_does_not_rise_is_refused(epoch: int) -> None:
    hand = begun()
    start(hand, 2)
    hand.refused(ev.CoordinatorStarted("c", epoch, hand.rules), "fenced")


def test_new_rules_hold_from_the_start_on() -> None:
    hand = begun()
    hand.submit(proposal_id="p0")
    hand.vote(yes("prime", "p0"), yes("lite", "p0"))
    old = hand.closed("p0")
    start(hand, 2, quorum=3, inactivity_limit_s=40.0, escalation_ttl_s=10.0)
    assert hand.state.rules == hand.rules
    assert hand.state.ruled_from == hand.position
    assert hand.closed("p0") == old
    hand.submit(wait_for="decisive")
    hand.vote(yes("prime"), yes("lite"))
    open_of(hand, "p1")
    hand.move_to(40.001)
    assert [type(effect) for effect in hand.drain()] == [do.AnnounceRoll] * 3


def test_the_same_rules_leave_what_they_hold_for_as_it_was() -> None:
    hand = begun()
    start(hand, 2)
    assert hand.state.ruled_from == 1


def test_a_lower_quorum_decides_at_once_what_waited_for_a_ballot() -> None:
    hand = begun(quorum=3, lost_at_once=UNSET)
    what = hand.submit()
    first, second = yes("prime"), yes("lite")
    hand.vote(first, second)
    hand.do(ev.WorkFailed("p1", "codemind", "ballot", "nonsense"))
    open_of(hand, "p1")
    effects = start(hand, 2, quorum=2)
    missing = (("codemind", "nonsense"),)
    decision = hand.decision(
        what, "approved", "a majority of yes", first, second, missing=missing, degraded=True
    )
    assert effects == [do.AnnounceStart(2, 1), do.AnnounceDecision(decision)]


def test_another_prime_is_the_one_to_rule_and_to_break_ties() -> None:
    hand = begun()
    hand.submit(risk_level="high")
    ballots = yes("prime"), no("lite"), abstain("codemind")
    hand.vote(*ballots)
    effects = start(hand, 2, prime="lite")
    assert effects[1:] == [
        do.RequestRuling("lite", "p1", ballots, ("client rates the risk of the proposal high",))
    ]
    hand.refused(ev.RulingGiven(ruling("confirm")), "not_prime")
    hand.do(ev.RulingGiven(ruling("confirm", seat="lite")))
    assert hand.closed().outcome == "rejected"


def test_a_seat_may_come_and_another_go() -> None:
    """Who came is asked of what is open; who went has no say any more, but what it cast counts (rules 1.4)."""
    hand = begun()
    hand.submit(wait_for="all")
    hand.vote(no("codemind"))
    effects = start(hand, 2, seats=("prime", "lite", "new"))
    assert effects == [
        do.AnnounceStart(2, 1),
        do.AnnounceRoll("new", True, "at launch"),
        do.DeliverProposal("prime", "p1"),
        do.DeliverProposal("lite", "p1"),
        do.DeliverProposal("new", "p1"),
    ]
    assert hand.state.seats["new"] == Seat("new", True, 0.0, boot=0, beat=-1, why="at launch")
    hand.refused(ev.BallotCast(ballot("codemind", "yes")), "not_a_seat")
    hand.refused(ev.SeatBeat("codemind", 0, 0), "not_a_seat")
    hand.vote(yes("prime"), yes("lite"))
    open_of(hand, "p1")
    hand.vote(yes("new"))
    assert hand.closed().tally.cast == 4


def test_what_prime_or_a_human_was_asked_stands_on_the_rules_that_the_vote_ended_by() -> None:
    hand = begun()
    hand.submit(proposal_id="p1", risk_level="high")
    hand.submit(proposal_id="p2")
    hand.vote(yes("prime", "p1"), yes("lite", "p1"))
    hand.move_to(60.5)
    hand.drain()
    assert (hand.open("p1").stage, hand.open("p2").stage) == ("ruling", "human")
    start(hand, 2, seats=("prime", "lite", "new"), quorum=3)
    hand.do(ev.RulingGiven(ruling("confirm", "p1")))
    assert hand.closed("p1").outcome == "approved"
    assert [name for name, _ in hand.closed("p1").missing] == ["codemind"]
    hand.do(ev.HumanAnswered(answer(False, "p2")))
    assert [name for name, _ in hand.closed("p2").missing] == list(THREE)


# Replay
