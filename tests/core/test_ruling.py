"""When Prime is asked for its ruling, and what the ruling makes of it: rules 1.8."""

import pytest

from council.core import effects as do
from council.core import events as ev
from council.core.state import Ballot
from tests.core.council_in_hand import (
    Hand,
    abstain,
    answer,
    no,
    proposal,
    ruling,
    yes,
)

NAN = float("nan")
BY_DEADLINE = "had not voted by the deadline"
RISKY = "client rates the risk of the proposal high"


# When Prime is asked


def _to_ruling(hand: Hand, *ballots: Ballot) -> None:
    cast = ballots or (yes("prime"), yes("lite"), yes("codemind"))
    hand.submit(risk_level="high")
    hand.vote(*cast)
    assert hand.open().stage == "ruling"


def test_prime_is_asked_when_every_active_seat_has_voted_and_is_shown_all_ballots() -> None:
    hand = Hand()
    hand.submit(risk_level="high")
    ballots = yes("prime"), no("lite"), yes("codemind")
    hand.vote(ballots[0])
    assert hand.vote(ballots[1]) == [do.AnnounceBallot(ballots[1], late=False)]
    hand.move_to(10.0)
    assert hand.vote(ballots[2]) == [
        do.AnnounceBallot(ballots[2], late=False),
        do.RequestRuling("prime", "p1", ballots, (RISKY,)),
    ]
    assert hand.open().deadline_s == 70.0  # the time budget, counted again from the request


# What its ruling makes of it


YYN = yes("prime"), yes("lite"), no("codemind")
NYN = no("prime"), yes("lite"), no("codemind")
ALL_YES = yes("prime"), yes("lite"), yes("codemind")


@pytest.mark.parametrize(
    ("ballots", "word", "outcome", "reason"),
    [
        (YYN, "confirm", "approved", "a majority of yes, and prime confirmed"),
        (NYN, "confirm", "rejected", "a majority of no, and prime confirmed"),
        (ALL_YES, "reject", "rejected", "prime ruled against it"),
        ((no("prime"), no("lite"), no("codemind")), "reject", "rejected", "prime ruled against it"),
        ((yes("lite"), no("codemind"), abstain("prime")), "reject", "rejected", "prime ruled against it"),
    ],
)  # fmt: skip
def test_a_ruling_decides(ballots: tuple[Ballot, ...], word: str, outcome: str, reason: str) -> None:
    hand = Hand()
    _to_ruling(hand, *ballots)
    given = ruling(word)
    against = "no" if outcome == "approved" else "yes"
    dissent = "; ".join(f"{b.seat} ({b.vote}, 0.90): {b.reason}" for b in ballots if b.vote == against)
    hand.move_to(7.0)
    effects = hand.do(ev.RulingGiven(given))
    assert effects == [
        do.AnnounceRuling(given),
        do.AnnounceDecision(
            hand.decision(
                proposal(risk_level="high"),
                outcome,
                reason,
                *ballots,
                ruling=given,
                escalated_for=(RISKY,),
                dissent=dissent,
            )
        ),
    ]
    assert len(hand.closed().ballots) == 3  # the ruling stands beside Prime's ballot


@pytest.mark.parametrize(
    ("word", "fields", "reason"),
    [
        ("human", {}, "prime_asks"),
        ("confirm", {"confidence": 0.29}, "ruling_unsure"),
        ("reject", {"confidence": 0.0}, "ruling_unsure"),
        ("confirm", {"confidence": NAN}, "ruling_unsure"),
        ("human", {"confidence": 0.1}, "ruling_unsure"),
    ],
)
def test_a_ruling_for_a_human_or_an_unsure_one_goes_to_a_human(
    word: str, fields: dict[str, object], reason: str
) -> None:
    hand = Hand()
    _to_ruling(hand)
    given = ruling(word, **fields)
    effects = hand.do(ev.RulingGiven(given))
    ballots = yes("prime"), yes("lite"), yes("codemind")
    assert effects == [
        do.AnnounceRuling(given),
        hand.escalation(proposal(risk_level="high"), reason, *ballots, ruling=given, escalated_for=(RISKY,)),
    ]
    assert hand.open().escalation.ruling == given  # type: ignore[union-attr]


def test_a_confirmed_tie_that_prime_cannot_break_goes_to_a_human() -> None:
    hand = Hand()
    _to_ruling(hand, yes("lite"), no("codemind"), abstain("prime"))
    hand.do(ev.RulingGiven(ruling("confirm")))
    assert hand.open().escalation.reason == "tie"  # type: ignore[union-attr]


def test_no_ruling_in_time_goes_to_a_human() -> None:
    hand = Hand()
    hand.move_to(5.0)
    _to_ruling(hand)
    assert hand.wait(60.0) == []
    assert hand.t == 65.0
    hand.move_to(65.001)
    ballots = yes("prime"), yes("lite"), yes("codemind")
    effects = hand.drain()
    assert effects == [
        hand.escalation(proposal(risk_level="high"), "no_ruling", *ballots, escalated_for=(RISKY,))
    ]
    assert hand.open().escalation.detail == "Prime gave no ruling: it did not come within 60 s"  # type: ignore[union-attr]
    hand.refused(ev.RulingGiven(ruling("confirm")), "no_ruling_asked")


def test_a_ruling_that_fails_goes_to_a_human() -> None:
    hand = Hand()
    _to_ruling(hand)
    hand.refused(ev.WorkFailed("p1", "lite", "ruling", "x"), "no_ruling_asked")
    ballots = yes("prime"), yes("lite"), yes("codemind")
    effects = hand.do(ev.WorkFailed("p1", "prime", "ruling", "its mind raised"))
    assert effects == [
        do.AnnounceLoss("p1", "prime", "ruling", "its mind raised"),
        hand.escalation(proposal(risk_level="high"), "no_ruling", *ballots, escalated_for=(RISKY,)),
    ]
    assert hand.open().escalation.detail == "Prime gave no ruling: its mind raised"  # type: ignore[union-attr]


def test_rulings_that_nobody_asked_for_are_refused() -> None:
    hand = Hand()
    hand.submit(risk_level="high")
    hand.refused(ev.RulingGiven(ruling("confirm")), "no_ruling_asked")
    hand.refused(ev.RulingGiven(ruling("confirm", seat="lite")), "not_prime")
    hand.refused(ev.RulingGiven(ruling("confirm", "p9")), "unknown_proposal")
    hand.vote(yes("prime"), yes("lite"), yes("codemind"))
    hand.do(ev.RulingGiven(ruling("confirm")))
    assert hand.do(ev.RulingGiven(ruling("confirm"))) == [do.NoteIgnored("prime", "the same ruling again")]
    hand.refused(ev.RulingGiven(ruling("reject")), "closed")


def test_a_ballot_while_prime_rules_is_late_and_does_not_change_the_majority() -> None:
    hand = Hand(("prime", "lite", "codemind", "d"))
    hand.submit(risk_level="high", time_budget_s=10.0)
    hand.vote(yes("prime"), yes("lite"), no("codemind"))
    hand.move_to(11.0)
    hand.drain()
    assert hand.vote(no("d")) == [do.AnnounceBallot(no("d"), late=True)]
    hand.do(ev.RulingGiven(ruling("confirm")))
    decision = hand.closed()
    assert (decision.outcome, decision.late, decision.degraded) == ("approved", (no("d"),), True)
    assert decision.missing == (("d", BY_DEADLINE),)


# A user's approval that a control packet requires


def test_a_required_approval_goes_to_a_human_when_the_vote_has_ended() -> None:
    hand = Hand()
    what = hand.submit()
    ballots = yes("prime", asks_human=True), yes("lite"), yes("codemind")
    hand.vote(ballots[0])
    assert hand.vote(ballots[1]) == [do.AnnounceBallot(ballots[1], late=False)]
    assert hand.vote(ballots[2]) == [
        do.AnnounceBallot(ballots[2], late=False),
        hand.escalation(what, "user_approval", *ballots),
    ]


def test_who_is_missing_stays_the_same_from_the_vote_to_the_human_to_the_end() -> None:
    hand = Hand()
    what = hand.submit(risk_level="high")
    hand.died("codemind")
    ballots = yes("prime"), yes("lite")
    hand.vote(*ballots)
    hand.do(ev.SeatBeat("codemind", 1, 0))
    given = ruling("human")
    missing = (("codemind", "inactive: killed"),)
    same = {"ruling": given, "escalated_for": (RISKY,), "degraded": True, "missing": missing}
    effects = hand.do(ev.RulingGiven(given))
    assert effects == [do.AnnounceRuling(given), hand.escalation(what, "prime_asks", *ballots, **same)]
    assert hand.open().escalation.gaps == ("codemind gave no ballot: inactive: killed",)  # type: ignore[union-attr]
    hand.died("lite")
    told = answer(True)
    assert hand.do(ev.HumanAnswered(told)) == [
        do.AnnounceDecision(
            hand.decision(
                what,
                "approved",
                "ada approved it: seen in person",
                *ballots,
                answer=told,
                escalation_id="esc-p1",
                **same,
            )
        )
    ]
