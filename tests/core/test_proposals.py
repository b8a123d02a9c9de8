"""Submitting, retrying, revising, cancelling, and limits: rules 1.3, 1.12, and the design's back-pressure."""

import heapq
from typing import Any

import pytest

from council.core import effects as do
from council.core import events as ev
from council.core.proposals import how_it_stands
from council.core.state import Moment, Proposal
from council.core.step import next_deadline, next_due, step
from council.protocol.errors import Refused, TooManyOpen
from tests.core.council_in_hand import THREE, Hand, abstain, answer, no, proposal, ruling, yes
from tests.core.invariants import check


def test_a_proposal_is_announced_and_handed_to_every_active_seat_in_order() -> None:
    hand = Hand()
    what = proposal()
    hand.move_to(4.0)
    assert hand.do(ev.ProposalSubmitted(what)) == [
        do.AnnounceProposal(what),
        *[do.DeliverProposal(name, "p1") for name in THREE],
    ]
    assert hand.open() == Proposal(what=what, opened_s=4.0, deadline_s=64.0, asked=frozenset(THREE))


# Idempotence (1.12)


def test_the_same_bytes_again_are_a_retry_while_it_is_open() -> None:
    hand = Hand()
    what = hand.submit()
    hand.vote(yes("prime"))
    before = hand.open()
    assert hand.do(ev.ProposalSubmitted(what)) == [do.AnswerAgain("p1", "client", None)]
    assert hand.open() == before
    assert how_it_stands(hand.state, "p1") is None


def test_the_same_bytes_again_get_the_same_decision_with_the_ballots_that_came_late() -> None:
    hand = Hand()
    what = hand.submit()
    hand.vote(yes("prime"), yes("lite"))
    decision = hand.closed()
    assert hand.do(ev.ProposalSubmitted(what)) == [do.AnswerAgain("p1", "client", decision)]
    hand.vote(no("codemind"))
    (again,) = hand.do(ev.ProposalSubmitted(what))
    assert isinstance(again, do.AnswerAgain)
    assert again.decision is not None
    assert again.decision.late == (no("codemind"),)
    assert again.decision.outcome == "approved"
    assert len(hand.state.closed) == 1


def test_a_retry_of_what_waits_for_a_human_gets_its_standing() -> None:
    hand = Hand()
    what = hand.submit()
    hand.move_to(61.0)
    hand.drain()
    standing = hand.open().standing
    assert standing is not None
    assert hand.do(ev.ProposalSubmitted(what)) == [do.AnswerAgain("p1", "client", standing)]
    assert how_it_stands(hand.state, "p1") == standing


@pytest.mark.parametrize("closed", [False, True])
def test_other_bytes_under_a_taken_id_are_an_error(closed: bool) -> None:
    hand = Hand()
    hand.submit()
    if closed:
        hand.vote(yes("prime"), yes("lite"))
    hand.refused(ev.ProposalSubmitted(proposal(summary="something else")), "id_reused")
    hand.refused(ev.ProposalSubmitted(proposal(proposer="mallory")), "id_reused")


def test_what_was_never_submitted_stands_nowhere() -> None:
    with pytest.raises(Refused) as caught:
        how_it_stands(Hand().state, "p9")
    assert caught.value.code == "unknown_proposal"


# Cancelling


def test_the_proposer_takes_it_back_and_seats_that_think_are_told() -> None:
    hand = Hand()
    what = hand.submit()
    hand.vote(yes("lite"))
    hand.move_to(2.0)
    not_needed = "had not voted yet; its ballot was not needed"
    assert hand.do(ev.ProposalCancelled("p1", "client", "")) == [
        do.AnnounceDecision(
            hand.decision(
                what,
                "cancelled",
                "taken back by its proposer",
                yes("lite"),
                missing=(("prime", not_needed), ("codemind", not_needed)),
                position=3,
            )
        ),
        do.WithdrawProposal("prime", "p1"),
        do.WithdrawProposal("codemind", "p1"),
    ]
    assert not hand.closed()


def test_cancelling_says_why_when_it_is_told() -> None:
    hand = Hand()
    hand.submit()
    hand.do(ev.ProposalCancelled("p1", "client", "wrong branch"))
    assert hand.closed().reason == "wrong branch"


def test_only_the_proposer_takes_back_and_only_what_is_open() -> None:
    hand = Hand()
    hand.submit()
    hand.refused(ev.ProposalCancelled("p1", "mallory", "mine now"), "not_the_proposer")
    hand.refused(ev.ProposalCancelled("p1", "prime", "no"), "not_the_proposer")
    hand.refused(ev.ProposalCancelled("p9", "client", ""), "unknown_proposal")
    hand.vote(yes("prime"), yes("lite"))
    hand.refused(ev.ProposalCancelled("p1", "client", ""), "closed")
    assert hand.closed().outcome == "approved"


def test_cancelling_while_prime_rules_withdraws_it_from_prime() -> None:
    hand = Hand()
    hand.submit(risk_level="high")
    hand.vote(yes("prime"), yes("lite"), yes("codemind"))
    effects = hand.do(ev.ProposalCancelled("p1", "client", ""))
    assert effects[1:] == [do.WithdrawProposal("prime", "p1")]
    assert hand.closed().outcome == "cancelled"
    hand.refused(ev.RulingGiven(ruling("confirm")), "closed")


def test_prime_asked_for_its_ruling_without_having_voted_is_told_once_to_stop_thinking() -> None:
    hand = Hand()
    hand.submit(risk_level="high")
    hand.vote(yes("lite"), yes("codemind"))
    hand.move_to(61.0)
    hand.drain()
    assert hand.open().stage == "ruling"
    effects = hand.do(ev.ProposalCancelled("p1", "client", ""))
    assert effects[1:] == [do.WithdrawProposal("prime", "p1")]


def test_prime_never_asked_to_vote_is_told_to_stop_ruling() -> None:
    hand = Hand()
    hand.died("prime")
    hand.submit(risk_level="high")
    hand.vote(yes("lite"), yes("codemind"))
    effects = hand.do(ev.ProposalCancelled("p1", "client", ""))
    assert effects[1:] == [do.WithdrawProposal("prime", "p1")]


def test_cancelling_again_is_ignored_and_only_the_proposer_s() -> None:
    hand = Hand()
    hand.submit()
    hand.do(ev.ProposalCancelled("p1", "client", ""))
    before = hand.closed()
    assert hand.do(ev.ProposalCancelled("p1", "client", "once more")) == [
        do.NoteIgnored("client", "a cancellation of what is cancelled")
    ]
    assert hand.closed() == before
    hand.refused(ev.ProposalCancelled("p1", "mallory", ""), "closed")


def test_an_enrolled_human_cancels_what_another_proposed_and_is_named() -> None:
    for reason, told in (("", "cancelled by ada"), ("paid already", "cancelled by ada: paid already")):
        hand = Hand()
        hand.submit()
        hand.do(ev.ProposalCancelled("p1", "ada", reason, by_human=True))
        assert (hand.closed().outcome, hand.closed().reason) == ("cancelled", told)
        before = hand.closed()
        assert hand.do(ev.ProposalCancelled("p1", "eve", "", by_human=True)) == [
            do.NoteIgnored("eve", "a cancellation of what is cancelled")
        ]
        assert hand.closed() == before


def test_a_human_cancels_only_what_is_open() -> None:
    hand = Hand()
    hand.submit()
    hand.vote(yes("prime"), yes("lite"))
    hand.refused(ev.ProposalCancelled("p1", "ada", "", by_human=True), "closed")
    hand.refused(ev.ProposalCancelled("p9", "ada", "", by_human=True), "unknown_proposal")


def test_cancelling_while_a_human_is_asked_ends_the_escalation() -> None:
    hand = Hand()
    hand.submit()
    hand.vote(yes("lite"), no("codemind"), abstain("prime"))
    hand.do(ev.ProposalCancelled("p1", "client", ""))
    assert (hand.closed().outcome, hand.closed().escalation_id) == ("cancelled", "esc-p1")
    assert hand.state.with_human == 0
    hand.refused(ev.HumanAnswered(answer(True)), "closed")
    hand.wall += 1e6
    assert hand.drain() == []


# Revising (1.3)


def test_a_revision_cancels_the_old_one_and_carries_no_ballots_over() -> None:
    hand = Hand()
    old = hand.submit()
    hand.vote(yes("prime"))
    new = proposal("p2", supersedes="p1")
    not_needed = "had not voted yet; its ballot was not needed"
    assert hand.do(ev.ProposalSubmitted(new)) == [
        do.AnnounceDecision(
            hand.decision(
                old,
                "cancelled",
                "superseded by p2",
                yes("prime"),
                missing=(("lite", not_needed), ("codemind", not_needed)),
            )
        ),
        do.WithdrawProposal("lite", "p1"),
        do.WithdrawProposal("codemind", "p1"),
        do.AnnounceProposal(new),
        *[do.DeliverProposal(name, "p2") for name in THREE],
    ]
    assert hand.open("p2").ballots == ()
    assert hand.vote(yes("lite", "p2")) == [do.AnnounceBallot(yes("lite", "p2"), late=False)]


@pytest.mark.parametrize("closed", [False, True])
def test_nobody_revises_what_another_proposed(closed: bool) -> None:
    hand = Hand()
    hand.submit()
    if closed:
        hand.vote(yes("prime"), yes("lite"))
    hand.refused(
        ev.ProposalSubmitted(proposal("p2", proposer="mallory", supersedes="p1")), "not_the_proposer"
    )


def test_nobody_revises_what_was_never_there_or_itself() -> None:
    hand = Hand()
    hand.refused(ev.ProposalSubmitted(proposal("p2", supersedes="p1")), "unknown_proposal")
    hand.refused(ev.ProposalSubmitted(proposal("p2", supersedes="p2")), "unknown_proposal")


# Back-pressure


def test_as_many_as_open_max_may_be_open_and_a_retry_is_never_turned_away() -> None:
    hand = Hand(open_max=2)
    first = hand.submit(proposal_id="p1")
    hand.submit(proposal_id="p2")
    error = hand.refused(ev.ProposalSubmitted(proposal("p3")), "too_many_open", TooManyOpen)
    assert (error.open, error.limit) == (2, 2)
    assert hand.do(ev.ProposalSubmitted(first)) == [do.AnswerAgain("p1", "client", None)]
    hand.vote(yes("prime"), yes("lite"))
    hand.submit(proposal_id="p3")
    assert set(hand.state.open) == {"p2", "p3"}


def test_what_waits_for_a_human_does_not_use_up_the_councils_own_room() -> None:
    hand = Hand(open_max=1, escalations_max=2)
    for n in (1, 2):
        hand.submit(proposal_id=f"p{n}", time_budget_s=1.0)
        hand.move_to(n * 5.0)
        hand.drain()
    assert hand.state.with_human == 2
    error = hand.refused(ev.ProposalSubmitted(proposal("p3")), "too_many_open", TooManyOpen)
    assert (error.open, error.limit) == (2, 2)
    hand.do(ev.HumanAnswered(answer(False, "p1")))
    hand.submit(proposal_id="p3")


def _one_with_a_human_and_one_open(**rules: int) -> Hand:
    hand = Hand(**rules)
    hand.submit(proposal_id="human", time_budget_s=1.0)
    hand.move_to(5.0)
    hand.drain()
    assert hand.open("human").stage == "human"
    return hand


def test_revising_what_is_with_a_human_does_not_pass_open_max() -> None:
    hand = _one_with_a_human_and_one_open(open_max=1)
    hand.submit(proposal_id="p1")
    hand.refused(ev.ProposalSubmitted(proposal("p2", supersedes="human")), "too_many_open", TooManyOpen)


def test_revising_what_is_with_a_human_frees_its_place_there() -> None:
    hand = _one_with_a_human_and_one_open(escalations_max=1)
    hand.submit(proposal("p2", supersedes="human"))
    assert set(hand.state.open) == {"p2"}
    assert hand.state.with_human == 0


def test_revising_what_is_open_frees_no_place_with_a_human() -> None:
    hand = _one_with_a_human_and_one_open(escalations_max=2)
    hand.submit(proposal_id="p1", time_budget_s=1.0)
    hand.submit(proposal_id="p2")
    hand.move_to(10.0)
    hand.drain()
    assert hand.state.with_human == 2
    hand.refused(ev.ProposalSubmitted(proposal("p3", supersedes="p2")), "too_many_open", TooManyOpen)


# What was refused at the edge


def test_a_refused_envelope_is_told_and_changes_nothing() -> None:
    hand = Hand()
    before = repr(hand.state)
    assert hand.do(ev.EnvelopeRefused("mallory", "0f", "forged", "wrong signature")) == [
        do.AnnounceRefusal("mallory", "0f", "forged", "wrong signature")
    ]
    assert repr(hand.state) == before


# Cost


def test_the_timers_stay_bounded_over_many_quick_decisions() -> None:
    """Drop the compaction in keeping._arm and this fails: 5,000 timers of decided proposals pile up."""
    hand = Hand(inactivity_limit_s=1e9)
    most = 0
    for n in range(5_000):
        what = proposal(f"p{n}", time_budget_s=3_600.0, digest=str(n))
        events: list[ev.Event] = [ev.ProposalSubmitted(what)]
        events += [
            ev.BallotCast(yes(name, what.proposal_id, digest="v")) for name in ("prime", "lite", "codemind")
        ]
        for event in events:
            now = Moment(n * 0.001, 0.0, n)
            assert next_due(hand.state, now) is None
            step(hand.state, event, now)
        most = max(most, len(hand.state.timers))
    assert hand.state.open == {}
    assert len(hand.state.closed) == 5_000
    assert most <= 1_100
    check(hand.state)


def test_the_wall_timers_stay_bounded_too() -> None:
    hand = Hand(("prime", "lite"), inactivity_limit_s=1e9)
    for n in range(3_000):
        pid = f"p{n}"
        now = hand.moment()
        step(hand.state, ev.ProposalSubmitted(proposal(pid, digest=str(n))), now)
        step(hand.state, ev.BallotCast(abstain("prime", pid, digest="a")), now)
        step(hand.state, ev.BallotCast(abstain("lite", pid, digest="b")), now)
        assert hand.state.with_human == 1
        step(hand.state, ev.HumanAnswered(answer(False, pid, digest="c")), now)
    assert hand.state.with_human == 0
    assert len(hand.state.wall_timers) <= 1_100
    assert len(hand.state.timers) <= 1_100


def test_timers_of_live_proposals_are_not_sorted_over_and_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them armed three, all behind one that is live: sort at two for each, and every step sorts all."""
    sorts = 0
    sort = heapq.heapify

    def counted(heap: list[Any]) -> None:
        nonlocal sorts
        sorts += 1
        sort(heap)

    hand = Hand(("prime", "lite"), inactivity_limit_s=1e9)
    hand.submit(proposal_id="first", time_budget_s=10.0)
    monkeypatch.setattr("council.core.state_store.heapq.heapify", counted)
    for n in range(2_000):
        pid = f"p{n}"
        now = hand.moment()
        what = proposal(pid, digest=str(n), risk_level="high", time_budget_s=100.0 + n)
        step(hand.state, ev.ProposalSubmitted(what), now)
        step(hand.state, ev.BallotCast(yes("prime", pid, digest="a")), now)
        hand.t += 0.001  # another moment, so that its ruling has a deadline of its own
        step(hand.state, ev.BallotCast(yes("lite", pid, digest="b")), hand.moment())
        step(hand.state, ev.RulingGiven(ruling("human", pid, digest="c")), hand.moment())
    assert hand.state.with_human == 2_000
    assert sorts <= 6
    check(hand.state)


class _Counted(dict):  # type: ignore[type-arg]
    """A map that refuses to be walked: a step may look up, never go through what is closed."""

    def _walked(self, *_: object) -> None:
        raise AssertionError("a step went through all closed proposals")

    __iter__ = items = values = keys = copy = _walked  # type: ignore[assignment]


def test_no_step_goes_through_the_closed_proposals() -> None:
    hand = Hand(inactivity_limit_s=1e9)
    hand.submit(proposal_id="old")
    hand.vote(yes("prime", "old"), yes("lite", "old"))
    hand.state.closed = _Counted(hand.state.closed)
    for event in (
        ev.ProposalSubmitted(proposal("p1")),
        ev.ProposalSubmitted(proposal("p1")),
        ev.SeatDied("lite", 0, "killed"),
        ev.SeatBeat("lite", 1, 0),
        ev.BallotCast(yes("codemind", "old")),
        ev.BallotCast(yes("prime", "p1")),
        ev.BallotCast(yes("lite", "p1")),
        ev.BallotCast(yes("codemind", "p1")),
        ev.WorkFailed("p1", "codemind", "ballot", "x"),
    ):
        assert next_due(hand.state, hand.moment()) is None
        next_deadline(hand.state)
        step(hand.state, event, hand.moment())
    assert "p1" in hand.state.closed
