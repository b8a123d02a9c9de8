"""When Prime is asked for its ruling, and what the ruling makes of it: rules 1.8."""

import pytest
from council_in_hand import (
    Hand,
    abstain,
    answer,
    ballot,
    interrupt,
    no,
    proposal,
    ruling,
    unreadable,
    yes,
)

from council.core import effects as do
from council.core import events as ev
from council.core.state import Absent, Ballot, TieBreak

NAN = float("nan")
SAY_YES = "prime (yes, 0.90): prime says yes; lite (yes, 0.90): lite says yes"
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


def test_two_agreeing_ballots_do_not_decide_what_is_escalated() -> None:
    hand = Hand()
    hand.submit()
    hand.vote(no("prime"), no("lite", risk_level="high"))
    assert hand.open().stage == "deliberating"


def test_prime_is_asked_at_the_deadline_with_a_quorum() -> None:
    hand = Hand()
    hand.submit(risk_level="high")
    ballots = yes("prime"), yes("lite")
    hand.vote(*ballots)
    assert hand.wait(60.0) == []
    hand.move_to(61.0)
    assert hand.drain() == [do.RequestRuling("prime", "p1", ballots, (RISKY,))]
    assert hand.open().deadline_s == 121.0


def test_prime_is_asked_though_it_has_not_voted_or_is_inactive() -> None:
    hand = Hand()
    hand.died("prime")
    hand.submit(risk_level="high")
    ballots = yes("lite"), yes("codemind")
    hand.vote(ballots[0])
    assert hand.vote(ballots[1]) == [
        do.AnnounceBallot(ballots[1], late=False),
        do.RequestRuling("prime", "p1", ballots, (RISKY,)),
    ]


def test_what_is_escalated_and_has_no_quorum_goes_to_a_human_at_the_deadline() -> None:
    hand = Hand()
    what = hand.submit(risk_level="high")
    hand.vote(yes("prime"))
    hand.move_to(60.5)
    effects = hand.drain()
    missing = ("lite", BY_DEADLINE), ("codemind", BY_DEADLINE)
    assert effects == [
        hand.escalation(
            what, "quorum_lost", yes("prime"), degraded=True, missing=missing, escalated_for=(RISKY,)
        )
    ]
    assert hand.open().escalation.risk_level == "high"  # type: ignore[union-attr]


def test_the_time_for_the_ruling_is_not_used_up_by_the_vote() -> None:
    hand = Hand(inactivity_limit_s=1_000.0)
    hand.submit(risk_level="high")
    hand.move_to(60.0)
    hand.vote(yes("prime"), yes("lite"), yes("codemind"))
    hand.move_to(120.0)
    assert hand.drain() == []
    hand.do(ev.RulingGiven(ruling("confirm")))
    assert hand.closed().outcome == "approved"


def test_interrupts_once_prime_rules_are_told_and_add_nothing() -> None:
    hand = Hand(observer="lite")
    _to_ruling(hand)
    for n in (1, 2, 3):
        assert hand.do(interrupt("lite", "codemind", n)) == [
            do.AnnounceObservation("p1", "lite", "codemind", True, f"halt {n}")
        ]
    assert hand.open().escalated_for == (RISKY,)
    assert hand.do(ev.EscalationRaised("p1", "lite", "again", "e9")) == [
        do.NoteIgnored("lite", "an escalation that changes nothing any more")
    ]


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


@pytest.mark.parametrize("own", ["yes", "no"])
def test_a_confirmed_tie_falls_as_primes_own_ballot(own: str) -> None:
    hand = Hand(("prime", "lite"))
    primes = ballot("prime", own)
    _to_ruling(hand, primes, ballot("lite", "no" if own == "yes" else "yes"))
    hand.do(ev.RulingGiven(ruling("confirm")))
    assert hand.closed().outcome == ("approved" if own == "yes" else "rejected")
    assert hand.closed().tie_break == TieBreak("prime", primes.msg_id, primes.vote)


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


def test_a_ruling_with_confidence_of_exactly_the_floor_decides() -> None:
    hand = Hand()
    _to_ruling(hand)
    hand.do(ev.RulingGiven(ruling("confirm", confidence=0.3)))
    assert hand.closed().outcome == "approved"


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


def test_a_ruling_at_exactly_the_deadline_counts() -> None:
    hand = Hand()
    _to_ruling(hand)
    hand.move_to(60.0)
    hand.do(ev.RulingGiven(ruling("confirm")))
    assert hand.closed().outcome == "approved"


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


def test_a_ruling_again_while_a_human_is_asked_is_ignored_and_another_refused() -> None:
    hand = Hand()
    _to_ruling(hand)
    hand.do(ev.RulingGiven(ruling("human")))
    assert hand.do(ev.RulingGiven(ruling("human"))) == [do.NoteIgnored("prime", "the same ruling again")]
    hand.refused(ev.RulingGiven(ruling("confirm")), "no_ruling_asked")


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


def test_garbage_and_failures_while_prime_rules_change_nothing() -> None:
    hand = Hand()
    hand.submit(risk_level="high")
    hand.vote(yes("prime"), yes("lite"))
    hand.move_to(61.0)
    hand.drain()
    before = hand.open()
    assert hand.do(unreadable("codemind")) == [
        do.NoteIgnored("codemind", "an unreadable ballot after the vote had ended")
    ]
    done = [do.NoteIgnored("codemind", "a failure on a proposal that it is done with")]
    assert hand.do(ev.WorkFailed("p1", "codemind", "ballot", "hung")) == done
    assert hand.open() == before
    hand.vote(no("codemind"))
    assert hand.do(ev.WorkFailed("p1", "codemind", "ballot", "crashed after sending")) == done
    assert dict(hand.open().lost) == {}


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


def test_a_required_approval_is_not_forgotten_at_the_deadline_or_when_it_is_escalated_too() -> None:
    hand = Hand()
    hand.submit(risk_level="high")
    hand.vote(no("prime"), no("lite", asks_human=True))
    hand.move_to(61.0)
    hand.drain()
    assert hand.open().escalation.reason == "user_approval"  # type: ignore[union-attr]


@pytest.mark.parametrize("word", ["confirm", "reject"])
def test_who_is_missing_is_told_as_it_was_when_the_vote_ended(word: str) -> None:
    """1.13: made from the roll at the ruling, it would name a deadline that never passed."""
    hand = Hand()
    what = hand.submit(risk_level="high")
    hand.died("codemind")
    ballots = yes("prime"), yes("lite")
    hand.vote(*ballots)
    assert hand.open().absent == Absent((("codemind", "inactive: killed"),), degraded=True)
    hand.do(ev.SeatBeat("codemind", 1, 0))
    hand.vote(no("codemind"))
    hand.died("lite")
    given = ruling(word)
    assert hand.do(ev.RulingGiven(given)) == [
        do.AnnounceRuling(given),
        do.AnnounceDecision(
            hand.decision(
                what,
                "approved" if word == "confirm" else "rejected",
                "a majority of yes, and prime confirmed" if word == "confirm" else "prime ruled against it",
                *ballots,
                ruling=given,
                escalated_for=(RISKY,),
                degraded=True,
                missing=(("codemind", "inactive: killed"),),
                late=(no("codemind"),),
                dissent="" if word == "confirm" else SAY_YES,
            )
        ),
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
