"""Nobody waits for nothing: every seat has voted or lost its ballot for good (rules 1.5, 1.11)."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from msgspec.structs import replace

from council.core import effects as do
from council.core import events as ev
from council.core.escalation import WHY_LOST_MAX
from council.core.state import Rules, plain
from tests.core.council_in_hand import THREE, Hand, abstain, no, yes

BOOM = "its mind raised ValueError: boom"


def lose(hand: Hand, *seats: str, why: str = BOOM, proposal_id: str = "p1") -> list[do.Effect]:
    effects: list[do.Effect] = []
    for seat in seats:
        effects = hand.do(ev.WorkFailed(proposal_id, seat, "ballot", why))
    return effects


@pytest.mark.parametrize("wait_for", ["decisive", "all"])
@pytest.mark.parametrize("risk_level", ["low", "high"])
@pytest.mark.parametrize("order", list(itertools.permutations(THREE)))
def test_without_a_quorum_a_human_is_asked_at_once(
    order: tuple[str, ...], risk_level: str, wait_for: str
) -> None:
    """In whichever order the seats vote or lose their ballots, and whatever it was escalated for."""
    hand = Hand()
    what = hand.submit(wait_for=wait_for, risk_level=risk_level)
    voter, *losers = order
    hand.vote(yes(voter))
    lose(hand, losers[0])
    assert hand.open().stage == "deliberating", "the third is at work, and is waited for"
    loss, asked = lose(hand, losers[1])
    assert loss == do.AnnounceLoss("p1", losers[1], "ballot", BOOM)
    missing = tuple((name, BOOM) for name in THREE if name != voter)
    why = ("client rates the risk of the proposal high",) if risk_level == "high" else ()
    assert asked == hand.escalation(
        what, "quorum_lost", yes(voter), degraded=True, missing=missing, escalated_for=why
    )
    detail = hand.open().escalation.detail  # type: ignore[union-attr]
    first, second = losers
    assert detail == f"too few seats voted for a quorum; ballots lost: {first}, {second} ({BOOM})"


def test_a_last_vote_that_makes_no_quorum_is_heard_and_no_more_waited_for() -> None:
    hand = Hand()
    hand.submit()
    lose(hand, "prime", "lite")
    assert hand.open().stage == "deliberating"
    hand.vote(no("codemind"))
    assert hand.open().escalation.reason == "quorum_lost"  # type: ignore[union-attr]
    assert hand.t == 0.0


def test_all_lost_and_none_heard() -> None:
    hand = Hand()
    hand.submit()
    lose(hand, *THREE)
    assert hand.open().stage == "human"
    assert [name for name, _ in hand.open().standing.missing] == list(THREE)  # type: ignore[union-attr]


@pytest.mark.parametrize("wait_for", ["decisive", "all"])
def test_with_a_quorum_it_is_decided_at_once_and_degraded(wait_for: str) -> None:
    hand = Hand()
    what = hand.submit(wait_for=wait_for)
    hand.vote(yes("prime"), abstain("lite"))
    _, decided = lose(hand, "codemind")
    assert decided == do.AnnounceDecision(
        hand.decision(
            what,
            "approved",
            "a majority of yes",
            yes("prime"),
            abstain("lite"),
            degraded=True,
            missing=(("codemind", BOOM),),
        )
    )


def test_a_tie_that_prime_can_not_break_goes_to_a_human_at_once_and_says_why() -> None:
    hand = Hand()
    hand.submit()
    hand.vote(yes("lite"), no("codemind"))
    lose(hand, "prime")
    asked = hand.open().escalation
    assert asked is not None
    assert (asked.reason, hand.t) == ("tie", 0.0)
    assert asked.detail.endswith(f"; ballots lost: prime ({BOOM})")


def test_an_escalation_whose_prime_fails_twice_is_a_humans_at_once() -> None:
    hand = Hand()
    hand.submit(risk_level="high")
    hand.vote(yes("lite"), yes("codemind"))
    lose(hand, "prime")
    assert hand.open().stage == "ruling", "Prime may rule though its own ballot is lost"
    hand.do(ev.WorkFailed("p1", "prime", "ruling", BOOM))
    asked = hand.open().escalation
    assert asked is not None
    assert (asked.reason, hand.t) == ("no_ruling", 0.0)
    assert asked.detail == f"Prime gave no ruling: {BOOM}; ballots lost: prime ({BOOM})"


def test_a_silent_seat_that_could_make_the_quorum_is_waited_for() -> None:
    """rules 1.11. Mutation: who is inactive counts as lost."""
    hand = Hand()
    hand.submit()
    hand.died("codemind")
    hand.vote(yes("prime"))
    lose(hand, "lite")
    assert hand.open().stage == "deliberating"
    hand.beat("codemind")
    hand.vote(yes("codemind"))
    assert hand.closed().outcome == "approved"


def test_a_silent_seat_that_could_not_make_the_quorum_is_not_waited_for() -> None:
    """Whether it falls silent before or after the others lose their ballots."""
    for first, then in ((("died",), ("lost",)), (("lost",), ("died",))):
        hand = Hand()
        hand.submit()
        for what in first + then:
            if what == "died":
                hand.died("codemind")
            else:
                lose(hand, "prime", "lite")
        assert hand.open().stage == "human"
        assert dict(hand.open().standing.missing)["codemind"] == "inactive: killed"  # type: ignore[union-attr]


def test_a_seat_that_is_restarted_has_not_lost_its_ballot() -> None:
    hand = Hand()
    hand.submit()
    lose(hand, "prime")
    hand.died("lite")
    assert hand.open().lost == {"prime": BOOM}
    hand.beat("lite")
    hand.vote(yes("lite"), yes("codemind"))
    assert hand.closed().outcome == "approved"


def test_where_one_may_decide_alone_a_silent_one_is_waited_for() -> None:
    hand = Hand(sole_seat="allow-low-risk")
    hand.submit()
    lose(hand, "prime", "lite")
    hand.died("prime")
    hand.died("lite")
    hand.died("codemind")
    assert hand.open().stage == "deliberating"
    hand.beat("codemind")
    hand.vote(yes("codemind"))
    assert (hand.closed().outcome, hand.closed().degraded) == ("approved", True)


def test_where_one_may_decide_alone_but_others_are_there_a_human_is_asked_at_once() -> None:
    hand = Hand(sole_seat="allow-low-risk")
    hand.submit()
    lose(hand, "prime", "lite")
    hand.vote(yes("codemind"))
    assert hand.open().escalation.reason == "quorum_lost"  # type: ignore[union-attr]


def test_the_only_seat_of_a_council_is_heard_and_waited_for_and_no_longer() -> None:
    hand = Hand(("prime",))
    hand.submit()
    hand.died("prime")
    assert hand.open().stage == "deliberating"
    hand.beat("prime")
    hand.vote(yes("prime"))
    assert hand.open().escalation.detail == "too few seats voted for a quorum"  # type: ignore[union-attr]


def test_a_long_reason_is_cut_in_the_detail_and_whole_in_the_gaps() -> None:
    hand = Hand()
    hand.submit()
    lose(hand, *THREE, why="x" * 2_000)
    asked = hand.open().escalation
    assert asked is not None
    assert asked.detail.endswith(f"; ballots lost: prime, lite, codemind ({'x' * WHY_LOST_MAX}…)")
    assert f"prime gave no ballot: {'x' * 2_000}" in asked.gaps


# Journals from before the rule


def test_rules_from_before_wait_for_the_deadline_and_say_what_they_said() -> None:
    hand = Hand(lost_at_once=msgspec.UNSET)
    hand.submit()
    lose(hand, *THREE)
    assert hand.open().stage == "deliberating"
    hand.move_to(60.5)
    hand.drain()
    assert hand.open().escalation.detail == "too few seats voted for a quorum"  # type: ignore[union-attr]


def test_rules_from_before_are_read_and_written_as_they_were() -> None:
    rules = Rules(THREE, "prime")
    assert b"lost_at_once" not in msgspec.json.encode(rules)
    assert "lost_at_once" not in plain(rules)
    for given in (rules, replace(rules, lost_at_once=True)):
        assert msgspec.json.decode(msgspec.json.encode(given), type=Rules) == given
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(given), type=Rules) == given


def test_what_waits_in_vain_by_the_rules_from_before_is_a_humans_at_the_next_start() -> None:
    hand = Hand(lost_at_once=msgspec.UNSET)
    hand.do(ev.CoordinatorStarted("c", 1, hand.rules))
    hand.submit()
    lose(hand, *THREE)
    hand.rules = replace(hand.rules, lost_at_once=True)
    started, *_, asked = hand._step(ev.CoordinatorStarted("c", 2, hand.rules))
    assert started == do.AnnounceStart(2, 1)
    assert isinstance(asked, do.AnnounceEscalation)
    assert asked.escalation.reason == "quorum_lost"
