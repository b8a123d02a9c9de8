"""To Prime, and to a human: rules 1.6, 1.8, 1.9."""

import pytest
from council_in_hand import (
    THREE,
    Hand,
    abstain,
    ballot,
    clean,
    interrupt,
    no,
    proposal,
    ruling,
    yes,
)

from council.core import effects as do
from council.core import events as ev
from council.core.state import Ballot, TieBreak

NAN = float("nan")
BY_DEADLINE = "had not voted by the deadline"
RISKY = "client rates the risk of the proposal high"


# What sends a proposal to Prime


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"risk_level": "high"}, RISKY),
        ({"confidence": 0.29}, "client is unsure: confidence 0.29 in the proposal"),
        ({"confidence": NAN}, "client is unsure: confidence nan in the proposal"),
    ],
)
def test_a_grave_proposal_goes_to_prime_from_the_start(fields: dict[str, object], reason: str) -> None:
    hand = Hand()
    what = proposal(**fields)
    assert hand.do(ev.ProposalSubmitted(what)) == [
        do.AnnounceProposal(what),
        *[do.DeliverProposal(name, "p1") for name in THREE],
        do.AnnouncePrimeEscalation("p1", reason),
    ]
    assert hand.open().escalated_for == (reason,)
    assert hand.open().stage == "deliberating"


@pytest.mark.parametrize("fields", [{"confidence": 0.3}, {"risk_level": "med"}, {}])
def test_a_proposal_at_the_floor_or_at_rest_does_not_escalate(fields: dict[str, object]) -> None:
    hand = Hand()
    hand.submit(**fields)
    assert hand.open().escalated_for == ()
    assert (hand.open().what.confidence, hand.open().what.risk_level) == (
        fields.get("confidence", 1.0),
        fields.get("risk_level", "low"),
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"risk_level": "high"}, "lite sees high risk"),
        ({"confidence": 0.29}, "lite is unsure: confidence 0.29 in its ballot"),
        ({"confidence": NAN}, "lite is unsure: confidence nan in its ballot"),
    ],
)
@pytest.mark.parametrize("vote", ["yes", "no", "abstain"])
def test_a_grave_ballot_sends_its_proposal_to_prime(
    vote: str, fields: dict[str, object], reason: str
) -> None:
    hand = Hand()
    hand.submit()
    cast = ballot("lite", vote, **fields)
    assert hand.vote(cast) == [
        do.AnnounceBallot(cast, late=False),
        do.AnnouncePrimeEscalation("p1", reason),
    ]
    assert hand.open().escalated_for == (reason,)


@pytest.mark.parametrize("fields", [{"confidence": 0.3}, {"risk_level": "med"}])
def test_a_ballot_at_the_floor_does_not_escalate(fields: dict[str, object]) -> None:
    hand = Hand()
    hand.submit()
    hand.vote(yes("prime", **fields), yes("lite", **fields))
    assert (hand.closed().outcome, hand.closed().escalated_for) == ("approved", ())


def test_the_deciding_ballot_itself_may_escalate() -> None:
    hand = Hand()
    hand.submit()
    hand.vote(yes("prime"))
    hand.vote(yes("lite", risk_level="high"))
    assert hand.open().stage == "deliberating"  # no early decision once it is escalated (1.5)


def test_a_seats_escalation_sends_it_to_prime() -> None:
    hand = Hand()
    hand.submit()
    raised = ev.EscalationRaised("p1", "lite", "it touches pay", "e1")
    assert hand.do(raised) == [do.AnnouncePrimeEscalation("p1", "lite escalated it: it touches pay")]
    assert hand.do(raised) == [do.NoteIgnored("lite", "an escalation that changes nothing any more")]
    assert hand.open().escalated_for == ("lite escalated it: it touches pay",)


def test_an_escalation_may_come_before_and_after_its_seats_own_ballot() -> None:
    hand = Hand()
    hand.submit(wait_for="all")
    hand.vote(yes("lite"))
    hand.do(ev.EscalationRaised("p1", "lite", "second thoughts", "e1"))
    hand.vote(yes("prime"), yes("codemind"))
    assert hand.open().stage == "ruling"


def test_several_reasons_are_all_named_and_each_announced_once() -> None:
    hand = Hand()
    hand.submit(risk_level="high")
    hand.vote(yes("prime", risk_level="high"), no("lite", confidence=0.1))
    assert hand.vote(yes("codemind")) == [
        do.AnnounceBallot(yes("codemind"), late=False),
        do.RequestRuling(
            "prime",
            "p1",
            hand.open().ballots,
            (RISKY, "prime sees high risk", "lite is unsure: confidence 0.1 in its ballot"),
        ),
    ]


# Interrupts


def test_three_interrupts_in_a_row_on_one_stream_escalate() -> None:
    hand = Hand()
    hand.submit()
    reason = "3 interrupts in a row on codemind's stream"
    for n in (1, 2):
        assert hand.do(interrupt("lite", "codemind", n)) == [
            do.AnnounceObservation("p1", "lite", "codemind", True, f"halt {n}")
        ]
        assert hand.open().escalated_for == ()
    assert hand.do(interrupt("prime", "codemind", 3)) == [
        do.AnnounceObservation("p1", "prime", "codemind", True, "halt 3"),
        do.AnnouncePrimeEscalation("p1", reason),
    ]
    assert hand.do(interrupt("lite", "codemind", 4)) == [
        do.AnnounceObservation("p1", "lite", "codemind", True, "halt 4")
    ]
    assert hand.open().escalated_for == (reason,)


def test_a_clean_observation_in_between_starts_the_count_again() -> None:
    hand = Hand()
    hand.submit()
    hand.do(interrupt("lite", "codemind", 1))
    hand.do(interrupt("lite", "codemind", 2))
    assert hand.do(clean("prime", "codemind", 3)) == [
        do.AnnounceObservation("p1", "prime", "codemind", False, "fine 3")
    ]
    hand.do(interrupt("lite", "codemind", 4))
    hand.do(interrupt("lite", "codemind", 5))
    assert hand.open().escalated_for == ()
    hand.do(interrupt("lite", "codemind", 6))
    assert len(hand.open().escalated_for) == 1


def test_streams_and_proposals_are_counted_apart_and_a_clean_one_elsewhere_changes_nothing() -> None:
    hand = Hand()
    hand.submit(proposal_id="p1")
    hand.submit(proposal_id="p2")
    hand.do(interrupt("lite", "codemind", 1))
    hand.do(interrupt("lite", "codemind", 2))
    hand.do(interrupt("lite", "prime", 1))
    hand.do(interrupt("lite", "codemind", 1, "p2"))
    hand.do(clean("lite", "prime", 9))
    hand.do(clean("lite", "codemind", 9, "p2"))
    assert hand.open("p1").escalated_for == hand.open("p2").escalated_for == ()
    hand.do(interrupt("lite", "codemind", 3))
    assert len(hand.open("p1").escalated_for) == 1
    assert hand.open("p2").escalated_for == ()


def test_a_replayed_observation_is_counted_once() -> None:
    hand = Hand()
    hand.submit()
    for _ in range(4):
        effects = hand.do(interrupt("lite", "codemind", 1))
    assert effects == [do.NoteIgnored("lite", "the same observation again")]
    assert hand.open().escalated_for == ()


def test_a_replayed_clean_observation_does_not_start_the_count_again() -> None:
    hand = Hand()
    hand.submit()
    hand.do(clean("lite", "codemind", 0))
    hand.do(interrupt("lite", "codemind", 1))
    hand.do(interrupt("lite", "codemind", 2))
    hand.do(clean("lite", "codemind", 0))
    hand.do(interrupt("lite", "codemind", 3))
    assert len(hand.open().escalated_for) == 1


def test_a_stream_goes_on_over_restarts_of_its_seat() -> None:
    hand = Hand()
    hand.submit()
    hand.do(interrupt("lite", "codemind", 1))
    hand.do(interrupt("lite", "codemind", 2))
    hand.do(ev.SeatDied("codemind", "killed"))
    hand.do(ev.SeatBeat("codemind", 1, 0))
    hand.do(interrupt("lite", "codemind", 3))
    assert hand.open().escalated_for == ("3 interrupts in a row on codemind's stream",)


def test_observations_that_the_rules_do_not_allow_are_refused() -> None:
    hand = Hand()
    hand.submit()
    hand.refused(interrupt("lite", "lite", 1), "own_stream")
    hand.refused(interrupt("mallory", "lite", 1), "not_a_seat")
    hand.refused(interrupt("lite", "mallory", 1), "not_a_seat")
    hand.refused(interrupt("lite", "prime", 1, "p9"), "unknown_proposal")
    hand.refused(ev.EscalationRaised("p1", "client", "please", "e1"), "not_a_seat")
    hand.refused(ev.EscalationRaised("p9", "lite", "please", "e1"), "unknown_proposal")
    hand.vote(yes("prime"), yes("lite"))
    hand.refused(interrupt("lite", "prime", 1), "closed")
    hand.refused(ev.EscalationRaised("p1", "lite", "please", "e1"), "closed")


def test_interrupts_once_prime_rules_are_told_and_add_nothing() -> None:
    hand = Hand()
    _to_ruling(hand)
    for n in (1, 2, 3):
        assert hand.do(interrupt("lite", "codemind", n)) == [
            do.AnnounceObservation("p1", "lite", "codemind", True, f"halt {n}")
        ]
    assert hand.open().escalated_for == (RISKY,)
    assert hand.do(ev.EscalationRaised("p1", "lite", "again", "e9")) == [
        do.NoteIgnored("lite", "an escalation that changes nothing any more")
    ]


def test_acts_on_one_proposal_are_limited() -> None:
    hand = Hand()
    hand.submit(time_budget_s=1e6)
    for n in range(1_000):
        hand.do(clean("lite", "codemind", n))
    error = hand.refused(clean("lite", "codemind", 1_000), "too_many_acts")
    assert "1000" in str(error)
    assert hand.do(clean("lite", "codemind", 5)) == [do.NoteIgnored("lite", "the same observation again")]


@pytest.mark.xfail(
    strict=True,
    reason="1.8: 'a seat sends ESCALATION' goes to Prime; a thousand clean observations by one seat silence "
    "the escalations of all others (and further interrupts), since all acts share one limit",
)
def test_a_chatty_observer_does_not_silence_an_escalation() -> None:
    hand = Hand()
    hand.submit(time_budget_s=1e6)
    for n in range(1_000):
        hand.do(clean("lite", "codemind", n))
    hand.do(ev.EscalationRaised("p1", "prime", "it is dangerous", "e1"))
    assert hand.open().escalated_for


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
    hand.do(ev.SeatDied("prime", "killed"))
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


@pytest.mark.xfail(
    strict=True,
    reason="1.2: read once only, yet it is told as 'could not be read twice' once voting is over",
)
def test_one_unreadable_ballot_while_prime_rules_is_not_told_as_two() -> None:
    hand = Hand()
    hand.submit(risk_level="high")
    hand.vote(yes("prime"), yes("lite"))
    hand.move_to(61.0)
    hand.drain()
    effects = hand.do(ev.BallotUnreadable("p1", "codemind", "prose"))
    assert not any("twice" in getattr(effect, "why", "") for effect in effects)


@pytest.mark.xfail(
    strict=True,
    reason="1.7: a seat whose late ballot is in can still be put down as having lost its ballot",
)
def test_a_failure_after_a_late_ballot_loses_nothing() -> None:
    hand = Hand()
    hand.submit(risk_level="high")
    hand.vote(yes("prime"), yes("lite"))
    hand.move_to(61.0)
    hand.drain()
    hand.vote(no("codemind"))
    hand.do(ev.WorkFailed("p1", "codemind", "ballot", "crashed after sending"))
    assert "codemind" not in hand.open().lost


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
