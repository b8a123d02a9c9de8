"""What a human is shown, and what becomes of the answer or of none: rules 1.9."""

import copy
import math
from typing import Any

import pytest

from council.core import effects as do
from council.core import events as ev
from council.core.state import Answer
from council.core.step import next_deadline, next_due, step
from council.protocol.errors import InternalError, Refused
from tests.core.council_in_hand import (
    DAY_S,
    WALL_0,
    Hand,
    abstain,
    answer,
    interrupt,
    no,
    proposal,
    ruling,
    yes,
)

# The human (1.9)


def _to_human(hand: Hand) -> None:
    hand.submit()
    hand.vote(yes("lite"), no("codemind"), abstain("prime"))
    assert hand.open().stage == "human"


def test_what_a_human_is_shown() -> None:
    hand = Hand(escalation_ttl_s=7_200.0)
    _to_human(hand)
    shown = hand.open().escalation
    assert shown is not None
    assert (shown.escalation_id, shown.reason, shown.risk_level, shown.summary) == (
        "esc-p1",
        "tie",
        "low",
        "summary of p1",
    )
    assert [option.name for option in shown.options] == ["approve", "reject"]  # what an answer can say
    approve, reject = shown.options
    assert approve.pros == reject.cons == ("lite: lite says yes",)
    assert approve.cons == reject.pros == ("codemind: codemind says no",)
    assert shown.next_step == "Decide between the two sides. With no answer within 2 h it is deferred."
    assert shown.gaps == ("prime abstained: prime says abstain",)
    assert (shown.asked_wall_s, shown.expires_wall_s) == (WALL_0, WALL_0 + 7_200.0)


@pytest.mark.parametrize(
    ("proposed", "seen", "ruled", "shown"),
    [
        ("low", "low", "low", "low"),
        ("low", "med", "low", "med"),
        ("med", "low", "low", "med"),
        ("low", "low", "med", "med"),
        ("med", "high", "low", "high"),
        ("low", "med", "high", "high"),
    ],
)
def test_the_risk_that_a_human_is_shown_is_the_highest_that_was_said(
    proposed: Any, seen: Any, ruled: Any, shown: str
) -> None:
    """Mutation: what escalates for low confidence is no matter of high risk, and was shown as one."""
    hand = Hand()
    hand.submit(risk_level=proposed, confidence=0.1)
    hand.vote(yes("prime"), yes("lite", risk_level=seen), yes("codemind"))
    hand.do(ev.RulingGiven(ruling("human", risk_level=ruled)))
    assert hand.open().escalation.risk_level == shown  # type: ignore[union-attr]


def test_three_interrupts_in_a_row_are_shown_as_high_risk() -> None:
    """rules 3.1: they raise the risk to high."""
    hand = Hand(observer="lite")
    hand.submit()
    for n in (1, 2, 3):
        hand.do(interrupt("lite", "codemind", n))
    hand.vote(yes("prime"), yes("lite"), yes("codemind"))
    hand.do(ev.RulingGiven(ruling("human")))
    assert hand.open().escalation.risk_level == "high"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("approve", "outcome", "losing"), [(True, "approved", "codemind"), (False, "rejected", "lite")]
)
def test_the_humans_answer_is_the_one_decision(approve: bool, outcome: str, losing: str) -> None:
    hand = Hand()
    _to_human(hand)
    given = answer(approve)
    hand.move_to(30.0)
    vote = "no" if approve else "yes"
    assert hand.do(ev.HumanAnswered(given)) == [
        do.AnnounceDecision(
            hand.decision(
                proposal(),
                outcome,
                f"ada {outcome} it: seen in person",
                yes("lite"),
                no("codemind"),
                abstain("prime"),
                answer=given,
                escalation_id="esc-p1",
                dissent=f"{losing} ({vote}, 0.90): {losing} says {vote}",
            )
        )
    ]
    assert hand.state.with_human == 0
    assert next_deadline(hand.state).wall_s is None


def test_a_human_may_approve_what_the_seats_are_against_and_give_no_reason() -> None:
    hand = Hand()
    hand.submit()
    hand.vote(no("prime", asks_human=True), no("lite"), no("codemind"))
    hand.do(ev.HumanAnswered(answer(True, reason="")))
    assert (hand.closed().outcome, hand.closed().reason) == ("approved", "ada approved it")


def test_the_first_answer_wins() -> None:
    hand = Hand()
    _to_human(hand)
    first = answer(False)
    hand.do(ev.HumanAnswered(first))
    assert hand.do(ev.HumanAnswered(first)) == [do.NoteIgnored("ada", "the same answer again")]
    error = hand.refused(ev.HumanAnswered(answer(True, human="bob")), "already_answered")
    assert "already answered by ada: rejected. Your answer was not counted." in str(error)
    hand.refused(ev.HumanAnswered(answer(True)), "already_answered")
    assert hand.closed().answer == first


@pytest.mark.parametrize("given", [answer(True), answer(False)])
def test_an_answer_that_nobody_asked_for_is_refused(given: Answer) -> None:
    hand = Hand()
    hand.refused(ev.HumanAnswered(given), "unknown_proposal")
    hand.submit(risk_level="high")
    hand.refused(ev.HumanAnswered(given), "not_escalated")
    hand.vote(yes("prime"), yes("lite"), yes("codemind"))
    hand.refused(ev.HumanAnswered(given), "not_escalated")
    hand.do(ev.RulingGiven(ruling("confirm")))
    hand.refused(ev.HumanAnswered(given), "closed")


def test_an_escalation_expires_in_wall_time_as_deferred_never_approved() -> None:
    hand = Hand()
    _to_human(hand)
    expires = WALL_0 + DAY_S
    deadlines = next_deadline(hand.state)
    assert deadlines.wall_s == math.nextafter(expires, math.inf)
    hand.wall = expires  # exactly then an answer still counts
    assert hand.drain() == []
    hand.refused(ev.EscalationExpired("p1"), "not_expired")
    hand.wall = deadlines.wall_s
    effects = hand.drain()
    assert effects == [
        do.AnnounceDecision(
            hand.decision(
                proposal(),
                "deferred",
                "no human answered in time",
                yes("lite"),
                no("codemind"),
                abstain("prime"),
                escalation_id="esc-p1",
                dissent="lite (yes, 0.90): lite says yes; codemind (no, 0.90): codemind says no",
            )
        )
    ]
    assert not hand.closed()
    hand.refused(ev.HumanAnswered(answer(True)), "closed")
    hand.refused(ev.EscalationExpired("p1"), "closed")


DEFERRED = "no human answered in time"


def test_uptime_alone_expires_it_too() -> None:
    """4.6: a wall clock that stands still, or goes back, may not lengthen anything."""
    hand = Hand(inactivity_limit_s=1e9)
    hand.move_to(7.0)
    _to_human(hand)
    assert hand.open().deadline_s == 7.0 + DAY_S
    assert next_deadline(hand.state).uptime_s == math.nextafter(7.0 + DAY_S, math.inf)
    hand.wall -= DAY_S / 2
    hand.t = 7.0 + DAY_S  # exactly then an answer still counts
    assert hand.drain() == []
    hand.refused(ev.EscalationExpired("p1"), "not_expired")
    hand.refused(ev.DeadlinePassed("p1"), "not_expired")
    hand.t = math.nextafter(7.0 + DAY_S, math.inf)
    assert next_due(hand.state, hand.moment()) == ev.EscalationExpired("p1")
    with pytest.raises(Refused, match="has not passed"):  # this is no deadline of the seats'
        step(hand.state, ev.DeadlinePassed("p1"), hand.moment())
    assert [type(effect) for effect in hand.drain()] == [do.AnnounceDecision]
    assert (hand.closed().outcome, hand.closed().reason) == ("deferred", DEFERRED)
    assert next_deadline(hand.state).wall_s is None


@pytest.mark.parametrize("clock", ["wall", "uptime"])
@pytest.mark.parametrize(
    "event",
    [
        ev.HumanAnswered(answer(True)),
        ev.ProposalCancelled("p1", "client", ""),
        ev.ProposalSubmitted(proposal("p2")),
        ev.BallotCast(yes("prime", "p2")),
    ],
)
def test_nothing_is_handled_before_an_expiry_that_was_overslept(clock: str, event: ev.Event) -> None:
    """An answer after the expiry never approves, though the shell forgot to ask what time has brought."""
    hand = Hand(inactivity_limit_s=1e9)
    _to_human(hand)
    hand.drain()  # drops the timers of stages that are over
    if clock == "wall":
        hand.wall = math.nextafter(WALL_0 + DAY_S, math.inf)
    else:
        hand.t = math.nextafter(DAY_S, math.inf)
    before = copy.deepcopy(hand.state)
    with pytest.raises(InternalError, match="the deadline of p1 passed at"):
        step(hand.state, event, hand.moment())
    assert hand.state == before
