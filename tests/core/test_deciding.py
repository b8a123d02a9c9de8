"""When the seats themselves decide: rules 1.2 to 1.7, 1.11, 1.13."""

import math

import pytest

from council.core import effects as do
from council.core import events as ev
from council.core.state import SEATS_MAX
from tests.cases import each
from tests.core.council_in_hand import Hand, abstain, ballot, no, yes

NOT_NEEDED = "had not voted yet; its ballot was not needed"
BY_DEADLINE = "had not voted by the deadline"


# Early, and not early (1.5)


@pytest.mark.parametrize(("vote", "outcome"), [("yes", "approved"), ("no", "rejected")])
def test_the_second_agreeing_ballot_of_three_seats_decides_early(vote: str, outcome: str) -> None:
    hand = Hand(shared=(("one-vendor", ("prime", "lite")),))
    what = hand.submit()
    first, second = ballot("lite", vote), ballot("codemind", vote)
    assert hand.vote(first) == [do.AnnounceBallot(first, late=False)]
    hand.move_to(3.5)
    assert hand.vote(second) == [
        do.AnnounceBallot(second, late=False),
        do.AnnounceDecision(
            hand.decision(
                what,
                outcome,
                f"a majority of {vote}",
                first,
                second,
                early=True,
                missing=(("prime", NOT_NEEDED),),
                seconds=3.5,
                position=3,
                shared=(("one-vendor", ("prime", "lite")),),
            )
        ),
    ]
    assert bool(hand.closed()) is (outcome == "approved")


def test_wait_for_all_hears_everybody_before_it_decides() -> None:
    hand = Hand()
    what = hand.submit(wait_for="all")
    ballots = yes("prime"), yes("lite"), no("codemind", reason="it drops a table")
    hand.vote(ballots[0])
    assert hand.vote(ballots[1]) == [do.AnnounceBallot(ballots[1], late=False)]
    assert hand.vote(ballots[2]) == [
        do.AnnounceBallot(ballots[2], late=False),
        do.AnnounceDecision(
            hand.decision(
                what,
                "approved",
                "a majority of yes",
                *ballots,
                dissent="codemind (no, 0.90): it drops a table",
            )
        ),
    ]


@each("seats", range(1, SEATS_MAX + 1))
def test_with_any_number_of_seats_one_more_than_half_decides(seats: int) -> None:
    names = ["prime", *(f"s{i}" for i in range(1, seats))]
    hand = Hand(names)
    hand.submit()
    needed = max(2, seats // 2 + 1)
    for cast, name in enumerate(names, start=1):
        if "p1" in hand.state.closed:
            break
        hand.vote(yes(name))
        assert ("p1" in hand.state.closed) is (cast >= needed)
    if seats == 1:
        assert hand.open().stage == "human"  # rules 1.11: one seat never decides by itself
    else:
        assert hand.closed().early is (needed < seats)
        assert len(hand.closed().ballots) == needed


# The deadline (1.7)


def test_a_ballot_at_exactly_the_deadline_counts() -> None:
    hand = Hand()
    hand.submit()
    hand.vote(yes("prime"))
    assert hand.wait(60.0) == []
    assert hand.t == 60.0
    hand.vote(yes("lite"))
    assert (hand.closed().outcome, hand.closed().early, hand.closed().degraded) == ("approved", True, False)


def test_a_quorum_at_the_deadline_decides_degraded_and_names_who_is_missing() -> None:
    hand = Hand(("prime", "a", "b", "c", "d"))
    hand.died("d")
    what = hand.submit(wait_for="all")
    ballots = yes("prime"), abstain("a")
    hand.vote(*ballots)
    hand.do(ev.WorkFailed("p1", "b", "ballot", "nonsense"))
    assert hand.wait(60.0) == []
    hand.move_to(math.nextafter(60.0, math.inf))
    effects = hand.drain()
    assert effects == [
        do.AnnounceDecision(
            hand.decision(
                what,
                "approved",
                "a majority of yes",
                *ballots,
                degraded=True,
                missing=(("b", "nonsense"), ("c", BY_DEADLINE), ("d", "inactive: killed")),
            )
        )
    ]


@pytest.mark.parametrize("cast", [0, 1])
def test_no_quorum_at_the_deadline_goes_to_a_human(cast: int) -> None:
    hand = Hand()
    what = hand.submit()
    ballots = (yes("prime"),)[:cast]
    hand.vote(*ballots)
    hand.move_to(60.001)
    missing = tuple((name, BY_DEADLINE) for name in hand.rules.seats[cast:])
    effects = hand.drain()
    assert effects == [hand.escalation(what, "quorum_lost", *ballots, degraded=True, missing=missing)]
    escalation = hand.open().escalation
    assert escalation is not None
    assert escalation.gaps == tuple(f"{name} gave no ballot: {BY_DEADLINE}" for name, _ in missing)


def test_a_deadline_that_has_not_passed_is_refused_and_so_is_one_of_another_stage() -> None:
    hand = Hand()
    hand.submit()
    hand.move_to(60.0)
    hand.refused(ev.DeadlinePassed("p1"), "not_expired")
    hand.move_to(61.0)
    hand.drain()
    assert hand.open().stage == "human"
    hand.refused(ev.DeadlinePassed("p1"), "not_expired")
    hand.refused(ev.DeadlinePassed("p9"), "unknown_proposal")
    hand.submit(proposal_id="p2")
    hand.vote(yes("prime", "p2"), yes("lite", "p2"))
    hand.refused(ev.DeadlinePassed("p2"), "closed")
