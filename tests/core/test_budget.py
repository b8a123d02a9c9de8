"""What model calls may cost: reserved before each, settled after it, within every cap (rules 2.6)."""

from __future__ import annotations

import msgspec
import pytest

from council.core import effects as do
from council.core import events as ev
from council.core.state import ACTS_MAX, Account, Budget, Call, Caps, Overrun, Spend, total
from tests.core.council_in_hand import Hand, no, yes


def call(
    call_id: str = "c1", seat: str = "prime", tokens: int = 100, microusd: int = 0, **fields: str
) -> Call:
    given = {"proposal_id": "p1", "task": "ballot", "model": "small-1", **fields}
    return Call(call_id=call_id, seat=seat, worst=Spend(tokens, microusd), **given)


def settled(of: Call, tokens: int | None, microusd: int = 0, error: str = "") -> ev.CallSettled:
    used = None if tokens is None else Spend(tokens, microusd)
    return ev.CallSettled(of.proposal_id, of.seat, of.call_id, used, error)


def over(of: Call, spent: Spend, *, assumed: bool = False, error: str = "") -> do.AnnounceSpending:
    return do.AnnounceSpending(of, spent, assumed=assumed, seconds=0.0, error=error)


def granted(of: Call, *, again: bool = False) -> do.GrantCall:
    return do.GrantCall(of.seat, of.proposal_id, of.call_id, again)


def denied(of: Call, why: str, *, again: bool = True, anew: bool = False) -> do.DenyCall:
    return do.DenyCall(of.seat, of.proposal_id, of.call_id, why, again, anew)


def too_much(of: Call, why: str) -> list[do.Effect]:
    """What comes of a call that does not fit."""
    return [do.AnnounceDenial(of, why), denied(of, why, again=False)]


def test_a_call_is_reserved_at_its_worst_and_settled_at_what_it_cost() -> None:
    hand = Hand()
    hand.submit()
    one = call(tokens=500, microusd=30)
    assert hand.do(ev.CallReserved(one)) == [granted(one)]
    assert hand.open().accounts == (Account("prime", 1, held=Spend(500, 30)),)
    assert hand.do(settled(one, 120, 7)) == [over(one, Spend(120, 7))]
    account = Account("prime", 1, Spend(120, 7))
    assert hand.open().accounts == (account,)
    assert hand.state.paid == {"prime": account}
    assert hand.state.calls == {}


def test_unknown_usage_costs_the_reservation() -> None:
    hand = Hand()
    hand.submit()
    one = call(tokens=500, microusd=30)
    hand.do(ev.CallReserved(one))
    assert hand.do(settled(one, None)) == [over(one, one.worst, assumed=True)]
    assert hand.open().accounts == (Account("prime", 1, Spend(500, 30), assumed=1),)


def test_what_did_not_fail_leaves_the_record_that_it_always_left() -> None:
    """Mutation: an empty word in each, by which journals of earlier versions would come to something else."""
    one = call()
    kept = [
        msgspec.msgpack.decode(msgspec.msgpack.encode(each))
        for each in (over(one, Spend(7)), settled(one, 7))
    ]
    assert list(kept[0]) == ["call", "spent", "assumed", "seconds"]
    assert list(kept[1]) == ["proposal_id", "seat", "call_id", "used"]


def test_a_call_that_cost_more_than_was_reserved_is_told_as_it_was_and_raises_an_alert() -> None:
    hand = Hand()
    hand.submit()
    one = call(tokens=100, microusd=5)
    hand.do(ev.CallReserved(one))
    text = (
        "a call of prime to small-1 cost 101 tokens, $0.000005, more than the 100 tokens, $0.000005 reserved for it: "
        "its tokens are counted too low, or its price is"
    )
    assert hand.do(settled(one, 101, 5)) == [
        over(one, Spend(101, 5)),
        do.RaiseAlert("p1", "under_reserved", text),
    ]


@pytest.mark.parametrize(
    ("budget", "whose"),
    [
        (Budget(proposal=Caps(tokens=250)), "this proposal"),
        (Budget(seat=Caps(tokens=250)), "prime"),
        (Budget(seat=Caps(tokens=10), seats=(("prime", Caps(tokens=250)),)), "prime"),
        (Budget(council=Caps(tokens=250)), "the council"),
    ],
)
def test_what_does_not_fit_is_denied_with_the_figures(budget: Budget, whose: str) -> None:
    """Mutation: a cap that looks at what is spent alone lets calls under way overshoot together."""
    hand = Hand(budget=budget)
    hand.submit()
    first, second, third = call("c1"), call("c2"), call("c3")
    assert hand.do(ev.CallReserved(first)) == [granted(first)]
    assert hand.do(ev.CallReserved(second)) == [granted(second)]
    why = f"the call may cost 100 tokens; of the 250 that {whose} may spend, 50 are left"
    assert hand.do(ev.CallReserved(third)) == too_much(third, why)
    hand.do(settled(first, 50))
    again = "it was asked for before, and denied"
    assert hand.do(ev.CallReserved(third)) == [denied(third, again)], "a duplicate that comes late"
    fourth = call("c4")
    assert hand.do(ev.CallReserved(fourth)) == [granted(fourth)], "to the last token"
    assert total(hand.open().accounts) == Spend(250)


@pytest.mark.parametrize(
    ("budget", "whose", "cap", "left", "ballots"),
    [
        (Budget(proposal=Caps(tokens=500)), "this proposal", 500, 300, 2),
        (Budget(council=Caps(tokens=500)), "the council", 500, 300, 2),
        (Budget(seats=(("lite", Caps(tokens=300)),)), "lite", 300, 200, 1),
    ],
)
def test_a_look_leaves_room_for_the_ballots_that_are_awaited(
    budget: Budget, whose: str, cap: int, left: int, ballots: int
) -> None:
    """For each as much as the dearest call so far. Mutation: a look spends what a ballot needs, and that is lost."""
    hand = Hand(budget=budget, observer="lite")
    hand.submit(wait_for="all")
    hand.vote(yes("codemind"))
    hand.do(ev.CallReserved(call("c1")))
    hand.do(ev.CallReserved(call("c2", seat="lite")))
    over = call("c3", seat="lite", tokens=101, task="observe")
    why = (
        f"the call may cost 101 tokens; of the {cap} that {whose} may spend, {left} are left, "
        f"and {101 * ballots} of them are kept for ballots"
    )
    assert hand.do(ev.CallReserved(over)) == too_much(over, why)
    ballot = call("c4", seat="lite")
    assert hand.do(ev.CallReserved(ballot)) == [granted(ballot)]
    hand.do(settled(ballot, 0))
    hand.do(ev.WorkFailed("p1", "prime", "ballot", "it hung"))  # is awaited no more
    look = call("c5", seat="lite", tokens=left // 2, task="observe")
    assert hand.do(ev.CallReserved(look)) == [granted(look)]


def test_money_is_capped_as_tokens_are() -> None:
    hand = Hand(budget=Budget(council=Caps(microusd=10)))
    hand.submit()
    hand.do(ev.CallReserved(call("c1", microusd=10)))
    over = call("c2", seat="lite", microusd=1)
    why = "the call may cost 1 micro-dollars; of the 10 that the council may spend, 0 are left"
    assert hand.do(ev.CallReserved(over)) == too_much(over, why)
    free = call("c3", seat="lite", tokens=10**9)
    assert hand.do(ev.CallReserved(free)) == [granted(free)]


def test_caps_hold_for_each_on_its_own() -> None:
    """One proposal's spending is not another's, one seat's not another's; the council's is everybody's."""
    hand = Hand(budget=Budget(proposal=Caps(tokens=100), seat=Caps(tokens=200), council=Caps(tokens=300)))
    hand.submit()
    hand.submit(proposal_id="p2")
    hand.submit(proposal_id="p3")
    for one in (call("c1"), call("c2", proposal_id="p2"), call("c3", seat="lite", proposal_id="p3")):
        assert hand.do(ev.CallReserved(one)) == [granted(one)]
    for one, whose in (
        (call("c4", seat="lite"), "this proposal"),
        (call("c5", proposal_id="p3"), "this proposal"),
        (call("c6", seat="lite", proposal_id="p3"), "this proposal"),
    ):
        told, effect = hand.do(ev.CallReserved(one))
        assert isinstance(told, do.AnnounceDenial)
        assert isinstance(effect, do.DenyCall)
        assert f"that {whose} may" in effect.why
        assert told.why == effect.why


def test_a_grant_that_was_lost_is_given_again_and_reserves_nothing_more() -> None:
    hand = Hand()
    hand.submit()
    one = call()
    hand.do(ev.CallReserved(one))
    before = hand.open()
    assert hand.do(ev.CallReserved(one)) == [granted(one, again=True)]
    assert hand.open() == before
    hand.do(settled(one, 10))
    why = "it was asked for before, and is settled: ask for another"
    assert hand.do(ev.CallReserved(one)) == [denied(one, why, anew=True)]
    (ignored,) = hand.do(settled(one, 99))
    assert isinstance(ignored, do.NoteIgnored)
    assert hand.state.paid["prime"].spent == Spend(10)


def test_another_call_under_the_id_of_one_is_denied() -> None:
    hand = Hand()
    hand.submit()
    hand.do(ev.CallReserved(call(tokens=100)))
    for other in (call(tokens=5), call(seat="lite")):
        (effect,) = hand.do(ev.CallReserved(other))
        assert isinstance(effect, do.DenyCall)
    assert total(hand.state.paid.values()) == Spend(100)


def test_nothing_is_spent_on_what_nobody_waits_for() -> None:
    hand = Hand()
    hand.submit()
    hand.submit(proposal_id="p2", risk_level="high")
    hand.vote(yes("prime"), yes("lite"))
    one = call()
    assert hand.do(ev.CallReserved(one)) == [denied(one, "p1 is decided already")]
    hand.refused(ev.CallReserved(call(proposal_id="p9")), "unknown_proposal")
    hand.refused(ev.CallReserved(call(seat="ada")), "not_a_seat")
    hand.died("codemind")
    hand.submit(proposal_id="p3")
    hand.refused(ev.CallReserved(call(seat="codemind", proposal_id="p3")), "not_asked")
    hand.vote(yes("prime", "p3", confidence=0.1), no("lite", "p3"))
    hand.do(ev.WorkFailed("p3", "prime", "ruling", "it hung"))
    late = call(proposal_id="p3")
    assert hand.do(ev.CallReserved(late)) == [denied(late, "p3 waits for a human")]


def test_a_settlement_is_its_own_seats() -> None:
    hand = Hand()
    hand.submit()
    hand.submit(proposal_id="p2")
    hand.do(ev.CallReserved(call()))
    hand.refused(ev.CallSettled("p1", "lite", "c1", Spend(0)), "not_its_call")
    hand.refused(ev.CallSettled("p2", "prime", "c1", Spend(0)), "not_its_call")
    (ignored,) = hand.do(ev.CallSettled("p1", "prime", "c9", Spend(0)))
    assert isinstance(ignored, do.NoteIgnored)


def test_a_seat_makes_so_many_calls_on_a_proposal() -> None:
    hand = Hand()
    hand.submit()
    for number in range(ACTS_MAX):
        one = call(f"c{number}")
        hand.do(ev.CallReserved(one))
        hand.do(settled(one, 1))
    one = call("more")
    why = f"{ACTS_MAX} calls were made on p1, the most that a seat may ask for"
    assert hand.do(ev.CallReserved(one)) == [denied(one, why)]
    other = call("other", seat="lite")
    assert hand.do(ev.CallReserved(other)) == [granted(other)]


def test_a_decision_tells_what_was_spent_by_whom_and_goes_on_to() -> None:
    hand = Hand()
    hand.submit(tool="deploy")
    mine, theirs, slow = call("c1"), call("c2", seat="lite"), call("c3", seat="codemind")
    for one in (mine, theirs, slow):
        hand.do(ev.CallReserved(one))
    hand.do(settled(mine, 40, 4))
    hand.do(settled(theirs, None))
    told = hand.vote(yes("prime"), yes("lite"))
    spent = (
        Account("codemind", 1, held=Spend(100)),
        Account("lite", 1, Spend(100), assumed=1),
        Account("prime", 1, Spend(40, 4)),
    )
    assert hand.closed().spent == spent
    assert not any(isinstance(effect, do.WithdrawProposal) for effect in told), "a late ballot may warn"
    hand.do(settled(slow, 70))
    assert hand.closed().spent == (Account("codemind", 1, Spend(70)), *spent[1:])


@pytest.mark.parametrize("votes", [(yes, yes), (no, no)])
def test_models_at_work_stop_where_no_action_follows(votes: tuple[object, object]) -> None:
    """Mutation: a third model goes on at full price after the decision. Seats without a call are told nothing."""
    hand = Hand()
    hand.submit(tool=None if votes[0] is yes else "deploy")
    slow = call(seat="codemind")
    hand.do(ev.CallReserved(slow))
    first, second = votes
    told = hand.vote(first("prime"), second("lite"))  # type: ignore[operator]
    assert [each for each in told if isinstance(each, do.WithdrawProposal)] == [
        do.WithdrawProposal("codemind", "p1")
    ]


def test_calls_of_a_seat_that_died_have_cost_what_was_reserved() -> None:
    """Mutation: they are held for ever, or given back."""
    hand = Hand()
    hand.submit()
    mine, other = call("c1", seat="codemind", tokens=60), call("c2", seat="lite", tokens=30)
    hand.do(ev.CallReserved(mine))
    hand.do(ev.CallReserved(other))
    assert over(mine, Spend(60), assumed=True) in hand.died("codemind")
    assert [each.call for each in hand.state.calls.values()] == [other]
    assert hand.open().accounts == (
        Account("codemind", 1, Spend(60), assumed=1),
        Account("lite", 1, held=Spend(30)),
    )


def test_all_calls_under_way_when_a_coordinator_ended_have_cost_what_was_reserved() -> None:
    hand = Hand()
    hand.do(ev.CoordinatorStarted("council", 1, hand.rules))
    hand.submit()
    mine, other = call("c1"), call("c2", seat="lite", tokens=30)
    hand.do(ev.CallReserved(mine))
    hand.do(ev.CallReserved(other))
    told = hand.do(ev.CoordinatorStarted("council", 2, hand.rules))
    assert [each.spent for each in told if isinstance(each, do.AnnounceSpending)] == [Spend(100), Spend(30)]
    assert hand.state.calls == {}
    (ignored,) = hand.do(settled(mine, 1))
    assert isinstance(ignored, do.NoteIgnored)


def test_what_was_shortened_is_told_with_the_call_once() -> None:
    hand = Hand(budget=Budget(proposal=Caps(tokens=150)))
    hand.submit()
    overruns = (Overrun("p1", "history", 2_203, 9_000, 2_199, "local tf-idf"),)
    one, two = call("c1"), call("c2")
    assert hand.do(ev.CallReserved(one, overruns)) == [do.AnnounceOverruns(one, overruns), granted(one)]
    assert hand.do(ev.CallReserved(one, overruns)) == [granted(one, again=True)]
    told, _, refused = hand.do(ev.CallReserved(two, overruns))
    assert told == do.AnnounceOverruns(two, overruns)
    assert isinstance(refused, do.DenyCall)


def test_denials_are_counted_apart_from_calls() -> None:
    """Mutation: a mind that tries smaller and smaller prompts uses up the calls it may make."""
    hand = Hand(budget=Budget(seat=Caps(tokens=500)))
    hand.submit()
    for number in range(ACTS_MAX):
        _, effect = hand.do(ev.CallReserved(call(f"d{number}", tokens=501)))
        assert isinstance(effect, do.DenyCall)
        assert not effect.again
    why = f"{ACTS_MAX} calls were denied on p1, the most that a seat may ask for"
    small = call("small", tokens=1)
    assert hand.do(ev.CallReserved(small)) == [denied(small, why)]


def test_prime_may_rule_by_a_model_though_it_was_away_when_the_proposal_came() -> None:
    """Mutation: its ruling is asked of it, and the call for it is refused."""
    hand = Hand()
    hand.died("prime")
    hand.submit(risk_level="high")
    hand.vote(yes("lite"), yes("codemind"))
    hand.beat("prime")
    assert (hand.open().stage, "prime" in hand.open().asked) == ("ruling", False)
    one = call(task="ruling")
    assert hand.do(ev.CallReserved(one)) == [granted(one)]
    other = call("c2", seat="lite", task="ruling")
    assert hand.do(ev.CallReserved(other)) == [granted(other)]


def test_a_cancelled_proposal_is_withdrawn_once() -> None:
    hand = Hand()
    hand.submit()
    hand.do(ev.CallReserved(call()))
    told = hand.do(ev.ProposalCancelled("p1", "client", ""))
    withdrawn = [each.seat for each in told if isinstance(each, do.WithdrawProposal)]
    assert sorted(withdrawn) == ["codemind", "lite", "prime"]


OVER = "the call may cost 100 tokens; of the 50 that this proposal may spend, 50 are left"


def give_up(hand: Hand, *seats: str) -> list[do.Effect]:
    """Each asks for a call that no cap has room for, is denied, and reports that it has no ballot."""
    effects: list[do.Effect] = []
    for seat in seats:
        hand.do(ev.CallReserved(call(seat, seat)))
        effects = hand.do(ev.WorkFailed("p1", seat, "ballot", OVER))
    return effects


def test_where_no_cap_has_room_for_a_quorum_a_human_is_asked_at_once() -> None:
    """Rules 1.8: a budget that can't be met. Mutation: all wait out the time budget for ballots that can't come."""
    hand = Hand(budget=Budget(proposal=Caps(tokens=50)))
    what = hand.submit()
    assert give_up(hand, "prime", "lite") == [do.AnnounceLoss("p1", "lite", "ballot", OVER)]
    assert hand.open().stage == "deliberating", "codemind has no model, and is waited for"
    cast = yes("codemind")
    told, asked = hand.vote(cast)
    assert told == do.AnnounceBallot(cast, late=False)
    missing = (("prime", OVER), ("lite", OVER))
    assert asked == hand.escalation(what, "budget_unmet", cast, degraded=True, missing=missing)
    assert hand.open().escalation.gaps == tuple(f"{name} gave no ballot: {OVER}" for name, _ in missing)  # type: ignore[union-attr]


@pytest.mark.parametrize(("hung", "reason"), [(1, "budget_unmet"), (2, "quorum_lost")])
def test_where_money_made_no_difference_it_is_not_named(hung: int, reason: str) -> None:
    """Two that hung and one that was denied: with any money there is no quorum."""
    hand = Hand(budget=Budget(proposal=Caps(tokens=50)))
    hand.submit()
    for name in ("prime", "codemind")[:hung]:
        hand.do(ev.WorkFailed("p1", name, "ballot", "it hung"))
    give_up(hand, *("lite", "codemind")[: 3 - hung])
    assert hand.open().escalation.reason == reason  # type: ignore[union-attr]


@pytest.mark.parametrize("denied_for", ["nothing", "a look"])
def test_who_is_silent_or_votes_all_the_same_may_still_make_a_quorum(denied_for: str) -> None:
    """Mutation: whoever is inactive, or was denied anything, counts as lost."""
    hand = Hand(budget=Budget(proposal=Caps(tokens=50)))
    hand.submit()
    if denied_for == "a look":
        hand.do(ev.CallReserved(call("look", "lite", task="observe")))
    hand.died("lite")
    give_up(hand, "prime")
    assert [type(effect) for effect in hand.vote(yes("codemind"))] == [do.AnnounceBallot]
    assert hand.open().stage == "deliberating"
    hand.beat("lite")
    hand.vote(yes("lite"))
    assert hand.closed().outcome == "approved"
