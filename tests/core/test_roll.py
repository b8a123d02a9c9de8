"""Heartbeats, silence, death and return: rules 1.10, 1.11."""

import math

import pytest

from council.core import effects as do
from council.core import events as ev
from council.core.state import Seat
from council.core.step import next_deadline, next_due, step
from council.protocol.errors import InternalError
from tests.core.council_in_hand import THREE, Hand, proposal, ruling, yes

SILENT = "no heartbeat for more than 90 s"


def test_every_seat_counts_as_having_beaten_at_launch() -> None:
    hand = Hand(start_s=1_000.0)
    assert hand.state.seats == {
        name: Seat(name, True, 1_000.0, boot=0, beat=-1, why="at launch", since_s=1_000.0) for name in THREE
    }
    hand.move_to(1_090.0)
    assert hand.drain() == []
    hand.move_to(1_090.001)
    assert [type(effect) for effect in hand.drain()] == [do.AnnounceRoll] * 3


def test_exactly_90_s_is_still_active_and_the_next_instant_is_not() -> None:
    hand = Hand(("prime",))
    hand.move_to(90.0)
    assert next_due(hand.state, hand.moment()) is None
    hand.refused(ev.SeatFellSilent("prime"), "not_silent")
    assert next_deadline(hand.state).uptime_s == math.nextafter(90.0, math.inf)
    hand.move_to(math.nextafter(90.0, math.inf))
    due = next_due(hand.state, hand.moment())
    assert due == ev.SeatFellSilent("prime")
    assert hand.drain() == [do.AnnounceRoll("prime", False, SILENT)]
    assert next_deadline(hand.state).uptime_s is None


def test_a_beat_at_exactly_90_s_keeps_the_seat_active_for_another_90() -> None:
    hand = Hand(("prime",))
    hand.move_to(90.0)
    assert hand.beat("prime") == []
    hand.move_to(180.0)
    assert hand.drain() == []
    assert hand.state.seats["prime"].active


def test_an_ordinary_heartbeat_has_no_effects() -> None:
    hand = Hand()
    hand.move_to(30.0)
    assert hand.do(ev.SeatBeat("lite", 0, 0)) == []
    assert hand.state.seats["lite"] == Seat("lite", True, 30.0, 0, 0, "at launch")


def test_a_replayed_or_reordered_beat_is_old_and_keeps_nobody_active() -> None:
    hand = Hand(("prime",))
    hand.do(ev.SeatBeat("prime", 0, 5))
    hand.move_to(60.0)
    assert hand.do(ev.SeatBeat("prime", 0, 5)) == [do.NoteIgnored("prime", "an old heartbeat")]
    assert hand.do(ev.SeatBeat("prime", 0, 4)) == [do.NoteIgnored("prime", "an old heartbeat")]
    assert hand.state.seats["prime"].last_beat_s == 0.0
    hand.move_to(91.0)
    assert len(hand.drain()) == 1
    assert hand.do(ev.SeatBeat("prime", 0, 5)) == [do.NoteIgnored("prime", "an old heartbeat")]
    assert not hand.state.seats["prime"].active


def test_a_seat_known_dead_is_inactive_at_once_and_its_old_run_is_not_heard() -> None:
    hand = Hand()
    hand.do(ev.SeatBeat("lite", 0, 3))
    assert hand.died("lite", "its worker was killed") == [
        do.AnnounceRoll("lite", False, "its worker was killed")
    ]
    assert hand.state.seats["lite"] == Seat("lite", False, 0.0, 1, -1, "its worker was killed")
    assert hand.do(ev.SeatBeat("lite", 0, 4)) == [do.NoteIgnored("lite", "an old heartbeat")]
    assert hand.do(ev.SeatBeat("lite", 1, 0)) == [do.AnnounceRoll("lite", True, "its heartbeat is back")]


def test_a_second_report_of_the_same_death_is_ignored_and_does_not_lock_the_seat_out() -> None:
    """Begin a run at each report, and the restarted seat, told of run 1, is never heard again."""
    hand = Hand()
    hand.died("lite")
    told = hand.state.seats["lite"].boot  # what the coordinator tells the restarted seat
    again = ev.SeatDied("lite", 0, "killed, says a second watcher")
    assert hand.do(again) == [do.NoteIgnored("lite", "the death of an earlier run")]
    assert hand.state.seats["lite"] == Seat("lite", False, 0.0, 1, -1, "killed")
    assert hand.do(ev.SeatBeat("lite", told, 0)) == [do.AnnounceRoll("lite", True, "its heartbeat is back")]
    assert hand.do(again) == [do.NoteIgnored("lite", "the death of an earlier run")]
    assert hand.state.seats["lite"].active


def test_a_beat_of_a_run_never_begun_is_refused() -> None:
    Hand().refused(ev.SeatBeat("lite", 1, 0), "unknown_boot")


@pytest.mark.parametrize(
    "event",
    [
        ev.SeatBeat("mallory", 0, 0),
        ev.SeatDied("mallory", 0, "?"),
        ev.SeatFellSilent("mallory"),
    ],
)
def test_nobody_else_is_on_the_roll(event: ev.Event) -> None:
    error = Hand().refused(event, "not_a_seat")
    assert error.sender == "mallory"


def test_every_step_moves_time_on() -> None:
    hand = Hand()
    hand.move_to(3.0)
    hand.do(ev.EnvelopeRefused("mallory", "0f", "forged", "wrong signature"))
    hand.t = 2.0
    with pytest.raises(InternalError, match="backwards"):
        step(hand.state, ev.SeatBeat("prime", 0, 0), hand.moment())


def test_a_deadline_overslept_is_an_internal_error_and_changes_nothing() -> None:
    hand = Hand()
    hand.submit(time_budget_s=10.0)
    hand.move_to(10.1)
    before = repr(hand.state)
    with pytest.raises(InternalError, match="p1"):
        step(hand.state, ev.BallotCast(yes("prime")), hand.moment())
    assert repr(hand.state) == before


# The roll and open proposals


def test_a_seat_that_was_inactive_is_not_asked_until_it_is_back() -> None:
    hand = Hand()
    hand.died("codemind")
    what = proposal()
    assert hand.do(ev.ProposalSubmitted(what)) == [
        do.AnnounceProposal(what),
        do.DeliverProposal("prime", "p1"),
        do.DeliverProposal("lite", "p1"),
    ]
    hand.refused(ev.BallotCast(yes("codemind")), "not_asked")
    hand.vote(yes("prime"))
    assert hand.do(ev.SeatBeat("codemind", 1, 0)) == [
        do.AnnounceRoll("codemind", True, "its heartbeat is back"),
        do.DeliverProposal("codemind", "p1"),
    ]
    assert hand.open().asked == frozenset(THREE)
    assert hand.vote(yes("codemind"))[0] == do.AnnounceBallot(yes("codemind"), late=False)
    assert hand.closed().outcome == "approved"


def test_a_seat_back_from_death_is_handed_again_what_it_had_not_answered() -> None:
    hand = Hand()
    hand.submit(proposal_id="p1", wait_for="all")
    hand.submit(proposal_id="p2", wait_for="all")
    hand.submit(proposal_id="p3", wait_for="all")
    hand.vote(yes("lite", "p2"))
    hand.do(ev.WorkFailed("p3", "lite", "ballot", "nonsense"))
    hand.died("lite")
    assert hand.do(ev.SeatBeat("lite", 1, 0)) == [
        do.AnnounceRoll("lite", True, "its heartbeat is back"),
        do.DeliverProposal("lite", "p1"),  # p2 has its ballot, p3 its failure
    ]


def test_an_observer_that_is_back_is_shown_what_others_may_still_speak_of() -> None:
    """Mutation: handed nothing, it hears no more of what it has voted on, as one that votes at once always has."""
    hand = Hand(observer="lite")
    for pid in ("p1", "p2", "p3"):
        hand.submit(proposal_id=pid, wait_for="all")
    hand.vote(yes("lite", "p2"), *(yes(seat, "p3") for seat in THREE))
    hand.do(ev.WorkFailed("p1", "lite", "ballot", "nonsense"))
    hand.died("lite")
    back = hand.do(ev.SeatBeat("lite", 1, 0))
    assert back[1:] == [do.LetObserve("lite", "p1"), do.LetObserve("lite", "p2")]
    hand.vote(yes("prime", "p2"))
    hand.died("prime")
    assert do.LetObserve("prime", "p2") not in hand.do(ev.SeatBeat("prime", 1, 0))


def _waiting_for_prime(hand: Hand) -> None:
    hand.submit(risk_level="high")
    hand.vote(yes("prime"), yes("lite"), yes("codemind"))
    assert hand.open().stage == "ruling"


def test_prime_back_from_death_is_asked_for_its_ruling_again_within_the_same_time() -> None:
    hand = Hand()
    _waiting_for_prime(hand)
    deadline_s = hand.open().deadline_s
    hand.move_to(20.0)
    assert hand.died("prime") == [do.AnnounceRoll("prime", False, "killed")]
    hand.move_to(40.0)
    ballots = yes("prime"), yes("lite"), yes("codemind")
    assert hand.do(ev.SeatBeat("prime", 1, 0)) == [
        do.AnnounceRoll("prime", True, "its heartbeat is back"),
        do.RequestRuling("prime", "p1", ballots, ("client rates the risk of the proposal high",)),
    ]
    assert hand.open().deadline_s == deadline_s == 60.0
    hand.do(ev.RulingGiven(ruling("confirm")))
    assert hand.closed().outcome == "approved"


def test_what_time_brings_comes_in_the_order_in_which_it_fell_due() -> None:
    """Overslept by minutes: the deadline at 60 s comes before the silence at 90 s, then the second deadline."""
    hand = Hand()
    hand.submit(proposal_id="p1", time_budget_s=60.0)
    hand.submit(proposal_id="p2", time_budget_s=95.0)
    hand.move_to(300.0)
    hand.drain()
    assert [event for event, _, _ in hand.journal[2:]] == [
        ev.DeadlinePassed("p1"),
        ev.SeatFellSilent("prime"),
        ev.SeatFellSilent("lite"),
        ev.SeatFellSilent("codemind"),
        ev.DeadlinePassed("p2"),
    ]


def test_replay_tells_the_same_silence() -> None:
    """Heartbeats are not journaled: tell the age of a silence, and a replay tells another (1.10)."""
    hand = Hand(("prime",))
    hand.move_to(30.0)
    hand.beat("prime")  # no effects: not journaled
    hand.move_to(121.0)
    live = hand.drain()
    again = Hand(("prime",))
    again.move_to(121.0)
    assert again.drain() == live == [do.AnnounceRoll("prime", False, SILENT)]


def test_the_limit_of_silence_is_told_as_it_is_set() -> None:
    hand = Hand(("prime",), inactivity_limit_s=7.5)
    hand.move_to(8.0)
    assert hand.drain() == [do.AnnounceRoll("prime", False, "no heartbeat for more than 7.5 s")]


def test_a_heartbeat_from_before_the_coordinators_restart_stays_old() -> None:
    """Heartbeats are not journaled, and their numbers are lost: what tells is the run that a start begins."""
    hand = Hand(("prime",))
    recorded = ev.SeatBeat("prime", 0, 0)
    hand.do(ev.CoordinatorStarted("c", 1, hand.rules))
    hand.do(recorded)
    hand.do(ev.SeatBeat("prime", 0, 1))
    hand.move_to(100.0)
    hand.drain()
    assert hand.do(recorded) == [do.NoteIgnored("prime", "an old heartbeat")]
    restarted = Hand(("prime",))
    for event, now, effects in hand.journal:
        if not isinstance(event, ev.SeatBeat):
            restarted.t, restarted.wall = now.uptime_s, now.wall_s
            assert restarted._step(event) == effects
    restarted.do(ev.CoordinatorStarted("c", 2, hand.rules))
    restarted.move_to(150.0)
    assert restarted.do(recorded) == [do.NoteIgnored("prime", "an old heartbeat")]
    restarted.move_to(191.0)
    assert restarted.drain() == [do.AnnounceRoll("prime", False, SILENT)]
    assert restarted.do(recorded) == [do.NoteIgnored("prime", "an old heartbeat")]
    assert restarted.beat("prime") == [do.AnnounceRoll("prime", True, "its heartbeat is back")]
