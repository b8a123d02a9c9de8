"""Few seats left, one seat, none: rules 1.11."""

import pytest
from council_in_hand import Hand, answer, ballot, proposal, yes

from council.core import effects as do
from council.core import events as ev


def test_two_of_three_seats_left_decide() -> None:
    hand = Hand()
    hand.died("prime")
    what = hand.submit()
    ballots = yes("lite"), yes("codemind")
    hand.vote(ballots[0])
    assert hand.vote(ballots[1]) == [
        do.AnnounceBallot(ballots[1], late=False),
        do.AnnounceDecision(
            hand.decision(
                what,
                "approved",
                "a majority of yes",
                *ballots,
                degraded=True,
                missing=(("prime", "inactive: killed"),),
            )
        ),
    ]


def test_one_seat_left_decides_nothing_and_the_proposal_waits_for_its_deadline() -> None:
    hand = Hand()
    hand.died("prime")
    hand.died("lite")
    what = hand.submit()
    assert hand.vote(yes("codemind")) == [do.AnnounceBallot(yes("codemind"), late=False)]
    hand.move_to(60.5)
    effects = hand.drain()
    missing = ("prime", "inactive: killed"), ("lite", "inactive: killed")
    assert effects == [hand.escalation(what, "quorum_lost", yes("codemind"), degraded=True, missing=missing)]


def test_one_seat_left_and_another_comes_back_in_time() -> None:
    hand = Hand()
    hand.died("prime")
    hand.died("lite")
    hand.submit()
    hand.vote(yes("codemind"))
    hand.move_to(59.0)
    hand.do(ev.SeatBeat("lite", 1, 0))
    hand.vote(yes("lite"))
    assert hand.closed().outcome == "approved"


def test_a_proposal_that_nobody_is_there_for_is_taken_and_waits() -> None:
    hand = Hand()
    for name in hand.rules.seats:
        hand.died(name)
    what = proposal()
    assert hand.do(ev.ProposalSubmitted(what)) == [do.AnnounceProposal(what)]
    hand.move_to(61.0)
    hand.drain()
    assert hand.open().stage == "human"


def _sole(vote: str = "yes", *, sole_seat: str = "allow-low-risk", **fields: object) -> Hand:
    hand = Hand(sole_seat=sole_seat)
    hand.died("prime")
    hand.died("lite")
    hand.submit(**{k: v for k, v in fields.items() if k in ("risk_level", "confidence", "wait_for")})
    cast = {k.removeprefix("its_"): v for k, v in fields.items() if k.startswith("its_")}
    hand.vote(ballot("codemind", vote, **cast))
    return hand


@pytest.mark.parametrize(("vote", "outcome"), [("yes", "approved"), ("no", "rejected")])
@pytest.mark.parametrize("wait_for", ["decisive", "all"])
def test_a_sole_seat_decides_low_risk_when_the_council_allows_it(
    vote: str, outcome: str, wait_for: str
) -> None:
    hand = _sole(vote, wait_for=wait_for)
    assert hand.closed() == hand.decision(
        proposal(),
        outcome,
        f"a {vote} of codemind, which is alone, at low risk",
        ballot("codemind", vote),
        degraded=True,
        missing=(("prime", "inactive: killed"), ("lite", "inactive: killed")),
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"sole_seat": "never"},
        {"risk_level": "med"},
        {"risk_level": "high"},
        {"confidence": 0.1},
        {"its_risk_level": "med"},
        {"its_risk_level": "high"},
        {"its_confidence": 0.1},
        {"its_asks_human": True},
        {"vote": "abstain"},
    ],
)
def test_a_sole_seat_does_not_decide_anything_else(fields: dict[str, object]) -> None:
    hand = _sole(**fields)  # type: ignore[arg-type]
    assert hand.open().stage == "deliberating"
    hand.move_to(61.0)
    hand.drain()
    assert hand.open().escalation.reason == "quorum_lost"  # type: ignore[union-attr]


def test_the_last_but_one_seat_falling_away_leaves_the_decision_to_the_sole_one() -> None:
    hand = Hand(("prime", "lite"), sole_seat="allow-low-risk")
    hand.submit()
    assert hand.vote(yes("prime")) == [do.AnnounceBallot(yes("prime"), late=False)]
    effects = hand.died("lite")
    assert [type(effect) for effect in effects] == [do.AnnounceRoll, do.AnnounceDecision]
    assert (hand.closed().outcome, hand.closed().degraded) == ("approved", True)


def test_two_seats_of_which_one_failed_are_not_a_sole_seat() -> None:
    hand = Hand(("prime", "lite"), sole_seat="allow-low-risk")
    hand.submit()
    hand.vote(yes("prime"))
    hand.do(ev.WorkFailed("p1", "lite", "ballot", "nonsense"))
    assert hand.open().stage == "deliberating"


def test_the_ballot_of_a_dead_seat_does_not_decide_alone() -> None:
    """1.11: a single *active* seat may decide; here none is."""
    hand = Hand(("prime", "lite"), sole_seat="allow-low-risk")
    what = hand.submit()
    hand.vote(yes("prime"))
    assert hand.died("prime") == [do.AnnounceRoll("prime", False, "killed")]
    assert hand.died("lite") == [do.AnnounceRoll("lite", False, "killed")]
    hand.move_to(60.5)
    effects = hand.drain()
    missing = (("lite", "inactive: killed"),)
    assert effects == [hand.escalation(what, "quorum_lost", yes("prime"), degraded=True, missing=missing)]


def test_the_ballot_of_a_dead_seat_does_not_decide_for_the_one_that_is_left() -> None:
    """One active seat and one ballot, but not its own: even when its own is lost, and at the deadline."""
    hand = Hand(("prime", "lite"), sole_seat="allow-low-risk")
    hand.submit()
    hand.vote(yes("prime"))
    hand.died("prime")
    loss = do.AnnounceLoss("p1", "lite", "ballot", "nonsense")
    assert hand.do(ev.WorkFailed("p1", "lite", "ballot", "nonsense")) == [loss]
    hand.move_to(60.5)
    hand.drain()
    assert hand.open().escalation.reason == "quorum_lost"  # type: ignore[union-attr]


def test_a_dead_seat_that_voted_and_the_one_that_is_left_are_a_quorum() -> None:
    hand = Hand(("prime", "lite"), sole_seat="allow-low-risk")
    hand.submit()
    hand.vote(yes("prime"))
    hand.died("prime")
    hand.vote(yes("lite", risk_level="med"))
    assert (hand.closed().outcome, hand.closed().reason) == ("approved", "a majority of yes")
    assert not hand.closed().degraded


@pytest.mark.parametrize(("vote", "outcome"), [("yes", "approved"), ("no", "rejected")])
def test_a_council_of_one_decides_degraded_though_nobody_is_missing(vote: str, outcome: str) -> None:
    hand = Hand(("prime",), sole_seat="allow-low-risk")
    what = hand.submit()
    cast = ballot("prime", vote)
    reason = f"a {vote} of prime, which is alone, at low risk"
    assert hand.vote(cast) == [
        do.AnnounceBallot(cast, late=False),
        do.AnnounceDecision(hand.decision(what, outcome, reason, cast, degraded=True)),
    ]


def test_what_a_human_answers_or_the_proposer_takes_back_is_not_the_sole_seat_s_to_degrade() -> None:
    for event in (ev.HumanAnswered(answer(True)), ev.ProposalCancelled("p1", "client", "")):
        hand = Hand(("prime", "lite"), sole_seat="allow-low-risk")
        hand.submit()
        hand.vote(yes("prime", asks_human=True), yes("lite"))
        hand.do(event)
        assert not hand.closed().degraded
    hand = Hand(("prime",), sole_seat="allow-low-risk")
    hand.submit()
    hand.do(ev.ProposalCancelled("p1", "client", ""))
    assert (hand.closed().outcome, hand.closed().degraded) == ("cancelled", False)


@pytest.mark.parametrize(("vote", "outcome"), [("yes", "approved"), ("no", "rejected")])
def test_a_ballot_cast_while_its_seat_was_silent_decides_alone_once_the_seat_is_back(
    vote: str, outcome: str
) -> None:
    """1.5: then every active seat has voted; it would wait for its deadline, were the return not looked at."""
    hand = Hand(sole_seat="allow-low-risk")
    what = hand.submit()
    for name in hand.rules.seats:
        hand.died(name)
    cast = ballot("codemind", vote)
    assert hand.vote(cast) == [do.AnnounceBallot(cast, late=False)]
    assert hand.do(ev.SeatBeat("codemind", 1, 0)) == [
        do.AnnounceRoll("codemind", True, "its heartbeat is back"),
        do.AnnounceDecision(
            hand.decision(
                what,
                outcome,
                f"a {vote} of codemind, which is alone, at low risk",
                cast,
                degraded=True,
                missing=(("prime", "inactive: killed"), ("lite", "inactive: killed")),
            )
        ),
    ]


def test_two_seats_are_not_a_sole_seat_though_the_quorum_is_three() -> None:
    hand = Hand(quorum=3, sole_seat="allow-low-risk")
    hand.died("prime")
    hand.submit()
    hand.vote(yes("lite"), yes("codemind"))
    assert hand.open().stage == "deliberating"


def test_a_human_s_answer_on_one_ballot_is_not_degraded_by_being_one() -> None:
    hand = Hand(("prime",), sole_seat="never")
    hand.submit()
    hand.vote(yes("prime"))
    hand.move_to(61.0)
    hand.drain()
    hand.do(ev.HumanAnswered(answer(True)))
    assert (hand.closed().outcome, hand.closed().degraded) == ("approved", False)
