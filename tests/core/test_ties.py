"""A tie, and whose it is to break: rules 1.6."""

import math
from typing import Any

import pytest

from council.core import effects as do
from council.core import events as ev
from council.core.state import Absent, Ballot, Submission, TieBreak
from tests.core.council_in_hand import Hand, abstain, ballot, interrupt, no, yes


@pytest.mark.parametrize(("own", "outcome"), [("yes", "approved"), ("no", "rejected")])
def test_primes_own_ballot_breaks_a_tie_in_an_act_of_its_own(own: str, outcome: str) -> None:
    hand = Hand(("prime", "lite"))
    what = hand.submit()
    primes, other = ballot("prime", own), ballot("lite", "no" if own == "yes" else "yes")
    hand.vote(primes)
    assert hand.vote(other) == [
        do.AnnounceBallot(other, late=False),
        do.AnnounceDecision(
            hand.decision(
                what,
                outcome,
                f"a tie, broken by prime's {own}",
                primes,
                other,
                tie_break=TieBreak("prime", primes.msg_id, primes.vote),
                dissent=f"lite ({other.vote}, 0.90): lite says {other.vote}",
            )
        ),
    ]
    assert len(hand.closed().ballots) == 2  # the act is no second ballot


def test_all_abstained_is_a_tie_for_a_human() -> None:
    hand = Hand()
    what = hand.submit()
    ballots = abstain("prime"), abstain("lite"), abstain("codemind")
    hand.vote(*ballots[:2])
    assert hand.vote(ballots[2]) == [
        do.AnnounceBallot(ballots[2], late=False),
        hand.escalation(what, "tie", *ballots),
    ]


SPLIT = "lite (yes, 0.90): lite says yes; codemind (no, 0.90): codemind says no"


def _tied_without_prime(hand: Hand, **fields: Any) -> tuple[Submission, tuple[Ballot, Ballot]]:
    hand.died("prime")
    what = hand.submit(**fields)
    ballots = yes("lite"), no("codemind")
    hand.vote(ballots[0])
    assert hand.vote(ballots[1]) == [do.AnnounceBallot(ballots[1], late=False)]
    return what, ballots


@pytest.mark.parametrize("wait_for", ["decisive", "all"])
def test_a_tie_waits_for_a_silent_prime_until_the_deadline_and_then_goes_to_a_human(wait_for: str) -> None:
    """All active seats have voted; Prime may still come back and break it (1.6: by the deadline, active or not)."""
    hand = Hand()
    what, ballots = _tied_without_prime(hand, wait_for=wait_for)
    assert hand.wait(60.0) == []
    assert hand.open().stage == "deliberating"
    hand.move_to(math.nextafter(60.0, math.inf))
    missing = (("prime", "inactive: killed"),)
    effects = hand.drain()
    assert effects == [hand.escalation(what, "tie", *ballots, degraded=True, missing=missing, dissent=SPLIT)]


@pytest.mark.parametrize(("own", "outcome"), [("yes", "approved"), ("no", "rejected")])
def test_prime_back_before_the_deadline_breaks_the_tie_that_waited_for_it(own: str, outcome: str) -> None:
    hand = Hand()
    what, ballots = _tied_without_prime(hand)
    hand.move_to(60.0)
    assert hand.do(ev.SeatBeat("prime", 1, 0)) == [
        do.AnnounceRoll("prime", True, "its heartbeat is back"),
        do.DeliverProposal("prime", "p1"),
    ]
    cast = ballot("prime", own)
    losing = no("codemind") if own == "yes" else yes("lite")
    assert hand.vote(cast) == [  # two of three: a majority, and no tie any more
        do.AnnounceBallot(cast, late=False),
        do.AnnounceDecision(
            hand.decision(
                what,
                outcome,
                f"a majority of {own}",
                *ballots,
                cast,
                dissent=f"{losing.seat} ({losing.vote}, 0.90): {losing.reason}",
            )
        ),
    ]


@pytest.mark.parametrize("how", ["escalation", "interrupts"])
def test_a_tie_that_waits_for_prime_and_is_escalated_goes_to_its_ruling_at_once(how: str) -> None:
    """1.8: every active seat has voted. Were nothing concluded here, a ruling would wait for the deadline."""
    hand = Hand(observer="lite")
    _, ballots = _tied_without_prime(hand)
    if how == "escalation":
        effects = hand.do(ev.EscalationRaised("p1", "lite", "it touches pay", "e1"))
        told, why = [], "lite escalated it: it touches pay"
    else:
        hand.do(interrupt("lite", "codemind", 1))
        hand.do(interrupt("lite", "codemind", 2))
        effects = hand.do(interrupt("lite", "codemind", 3))
        told = [do.AnnounceObservation("p1", "lite", "codemind", True, "halt 3")]
        why = "3 interrupts in a row on codemind's stream"
    assert effects == [
        *told,
        do.AnnouncePrimeEscalation("p1", why),
        do.RequestRuling("prime", "p1", ballots, (why,)),
    ]
    assert hand.open().absent == Absent((("prime", "inactive: killed"),), degraded=True)
