"""Few seats left, one seat, none: rules 1.11."""

import pytest

from council.core import effects as do
from council.core import events as ev
from tests.core.council_in_hand import Hand, ballot, proposal, yes


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
