"""To Prime, and to a human: rules 1.6, 1.8, 1.9."""

import pytest
from msgspec.structs import replace

from council.core import effects as do
from council.core import events as ev
from tests.core.council_in_hand import (
    THREE,
    Hand,
    ballot,
    clean,
    interrupt,
    no,
    proposal,
    yes,
)

NAN = float("nan")
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


def test_a_seats_escalation_sends_it_to_prime() -> None:
    hand = Hand()
    hand.submit()
    raised = ev.EscalationRaised("p1", "lite", "it touches pay", "e1")
    assert hand.do(raised) == [do.AnnouncePrimeEscalation("p1", "lite escalated it: it touches pay")]
    assert hand.do(raised) == [do.NoteIgnored("lite", "an escalation that changes nothing any more")]
    assert hand.open().escalated_for == ("lite escalated it: it touches pay",)


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
    hand = Hand(observer="lite")
    hand.submit()
    reason = "3 interrupts in a row on codemind's stream"
    for n in (1, 2):
        assert hand.do(interrupt("lite", "codemind", n)) == [
            do.AnnounceObservation("p1", "lite", "codemind", True, f"halt {n}")
        ]
        assert hand.open().escalated_for == ()
    assert hand.do(interrupt("lite", "codemind", 3)) == [
        do.AnnounceObservation("p1", "lite", "codemind", True, "halt 3"),
        do.AnnouncePrimeEscalation("p1", reason),
    ]
    assert hand.do(interrupt("lite", "codemind", 4)) == [
        do.AnnounceObservation("p1", "lite", "codemind", True, "halt 4")
    ]
    assert hand.open().escalated_for == (reason,)


def test_streams_and_proposals_are_counted_apart_and_a_clean_one_elsewhere_changes_nothing() -> None:
    hand = Hand(observer="lite")
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
    hand = Hand(observer="lite")
    hand.submit()
    for _ in range(4):
        effects = hand.do(interrupt("lite", "codemind", 1))
    assert effects == [do.NoteIgnored("lite", "the same observation again")]
    assert hand.open().escalated_for == ()


def test_observations_that_the_rules_do_not_allow_are_refused() -> None:
    hand = Hand(observer="lite")
    hand.submit()
    hand.refused(interrupt("lite", "lite", 1), "own_stream")
    hand.refused(interrupt("mallory", "lite", 1), "not_a_seat")
    hand.refused(interrupt("lite", "mallory", 1), "not_a_seat")
    hand.refused(interrupt("lite", "prime", 1, "p9"), "unknown_proposal")
    hand.refused(ev.EscalationRaised("p1", "client", "please", "e1"), "not_a_seat")
    hand.refused(ev.EscalationRaised("p9", "lite", "please", "e1"), "unknown_proposal")
    hand.vote(yes("prime"), yes("lite"))
    # Who observes can't know yet that all is decided, and does no wrong.
    late = do.NoteIgnored("lite", "an observation on a proposal that is decided")
    assert hand.do(interrupt("lite", "prime", 1)) == [late]
    hand.refused(ev.EscalationRaised("p1", "lite", "please", "e1"), "closed")


def test_observations_of_others_than_the_observer_are_refused_and_neither_halt_nor_count() -> None:
    """Mutation: any seat's counting, a second one would take back each halt of the first."""
    hand = Hand(observer="lite")
    hand.submit()
    for n in range(5):
        error = hand.refused(clean("codemind", "prime", n), "not_observer")
        assert str(error) == "codemind does not observe in this council: lite does"
        hand.refused(interrupt("codemind", "prime", n), "not_observer")
        if n < 2:
            hand.do(interrupt("lite", "prime", n))
    assert hand.open().interrupts == {"prime": 2}
    hand.do(interrupt("lite", "prime", 2))
    assert len(hand.open().escalated_for) == 1
    hand = Hand()
    hand.submit()
    error = hand.refused(interrupt("lite", "prime", 1), "not_observer")
    assert str(error) == "lite does not observe in this council: no seat does"


def test_a_proposal_is_observed_by_whom_it_was_given_to_and_of_whom_it_was_given_to() -> None:
    hand = Hand(observer="lite")
    hand.died("prime")
    hand.submit()
    error = hand.refused(interrupt("lite", "prime", 1), "not_asked")
    assert str(error) == "lite observed prime on p1, which prime was not given"
    hand = Hand(observer="lite")
    hand.died("lite")
    hand.submit()
    error = hand.refused(interrupt("lite", "prime", 1), "not_asked")
    assert str(error) == "lite observed prime on p1, which lite was not given"


def seen(n: int, number: int, *, halts: bool, whole: bool = True) -> ev.StreamObserved:
    return ev.StreamObserved("p1", "lite", "prime", halts, "seen", f"s{n}", "plan", number, whole)


@pytest.mark.parametrize(
    ("looks", "run"),
    [
        ([(7, True, True), (8, False, False), (8, True, True), (9, False, False), (9, True, True)], 3),
        ([(10, True, True), (11, True, True), (9, False, True), (12, True, True)], 3),
        ([(10, True, False), (10, False, True), (11, True, True), (12, True, True)], 3),
        ([(10, True, True), (11, False, True), (12, True, True)], 1),
        ([(10, True, True), (10, True, True), (11, True, True)], 2),
        ([(11, True, True), (10, True, True)], 2),
        ([(11, True, True), (3, True, True), (4, True, True)], 3),
    ],
    ids=["begins well", "late", "same round", "well in between", "told again", "turned round", "clock back"],
)
def test_only_a_later_round_that_is_whole_and_clean_starts_the_count_again(
    looks: list[tuple[int, bool, bool]], run: int
) -> None:
    """Mutations: a clean beginning, or a late one, takes back a halt; one halt that is told twice counts twice."""
    hand = Hand(observer="lite")
    hand.submit()
    for n, (number, halts, whole) in enumerate(looks):
        hand.do(seen(n, number, halts=halts, whole=whole))
    assert hand.open().interrupts == {"prime": run}
    assert len(hand.open().escalated_for) == (run >= 3)


def test_a_halt_that_may_not_have_arrived_is_told_again() -> None:
    hand = Hand(observer="lite")
    hand.submit()
    told = do.InterruptSeat("prime", "p1", "lite", 7, "seen")
    for n in range(4):
        assert told in hand.do(seen(n, 7, halts=True))
    assert hand.open().interrupts == {"prime": 1}


def halted(n: int, number: int = 7) -> ev.StreamObserved:
    return ev.StreamObserved("p1", "lite", "codemind", True, "not that", f"h{n}", "plan", number)


def test_a_halt_is_told_to_the_seat_whose_ballot_is_awaited() -> None:
    hand = Hand(observer="lite")
    hand.submit()
    announced = do.AnnounceObservation("p1", "lite", "codemind", True, "not that")
    told = do.InterruptSeat("codemind", "p1", "lite", 7, "not that")
    assert hand.do(halted(1)) == [announced, told]
    assert hand.do(halted(1)) == [do.NoteIgnored("lite", "the same observation again")]
    assert hand.do(halted(2, 8)) == [announced, replace(told, round=8)]
    assert hand.do(halted(3, 9)) == [  # told also as it goes to Prime
        announced,
        replace(told, round=9),
        do.AnnouncePrimeEscalation("p1", "3 interrupts in a row on codemind's stream"),
    ]


def test_a_halt_that_names_no_round_is_told_to_nobody() -> None:
    """As journals hold them that were written before there were rounds: they must replay as they were."""
    hand = Hand(observer="lite")
    hand.submit()
    announced = do.AnnounceObservation("p1", "lite", "codemind", True, "not that")
    assert hand.do(halted(1, number=0)) == [announced]


def test_an_observation_that_fails_is_told_once_and_costs_no_ballot() -> None:
    hand = Hand(observer="lite")
    hand.submit()
    failed = ev.WorkFailed("p1", "lite", "observation", "its mind raised ValueError: no idea")
    assert hand.do(failed) == [
        do.AnnounceLoss("p1", "lite", "observation", "its mind raised ValueError: no idea")
    ]
    again = ev.WorkFailed("p1", "lite", "observation", "another reason")
    assert hand.do(again) == [
        do.NoteIgnored("lite", "an observation that failed, as one had before, or too late to matter")
    ]
    assert not hand.open().lost
    hand.refused(ev.WorkFailed("p9", "lite", "observation", "x"), "unknown_proposal")
    hand.vote(yes("prime"), yes("lite"))
    assert hand.do(again) == [do.NoteIgnored("lite", "a failure on a proposal that is decided")]
    hand = Hand(observer="lite")
    hand.submit(risk_level="high")
    hand.vote(*map(yes, THREE))
    assert hand.open().stage == "ruling"
    late = [do.NoteIgnored("lite", "an observation that failed, as one had before, or too late to matter")]
    assert hand.do(failed) == late


def test_acts_of_one_seat_and_kind_are_limited() -> None:
    hand = Hand(observer="lite")
    hand.submit(time_budget_s=1e6)
    for n in range(100):
        hand.do(clean("lite", "codemind", n))
    error = hand.refused(clean("lite", "prime", 100), "too_many_acts")
    assert "lite has sent 100 acts of kind observation on p1" in str(error)
    assert error.sender == "lite"
    assert hand.do(clean("lite", "codemind", 5)) == [do.NoteIgnored("lite", "the same observation again")]
    assert {key: len(seen) for key, seen in hand.open().acts.items()} == {"lite observation": 100}
    hand.submit(proposal_id="p2")
    hand.do(clean("lite", "codemind", 1, "p2"))  # each proposal has its own allowance


def test_a_chatty_observer_silences_neither_itself_nor_anybody_else() -> None:
    """1.8: whatever one seat sends of one kind, an ESCALATION and a halt are still heard, its own too."""
    hand = Hand(observer="lite")
    hand.submit(time_budget_s=1e6)
    for n in range(100):
        hand.do(clean("lite", "codemind", n))
    raised = ev.EscalationRaised("p1", "prime", "it is dangerous", "e1")
    assert hand.do(raised) == [do.AnnouncePrimeEscalation("p1", "prime escalated it: it is dangerous")]
    raised = ev.EscalationRaised("p1", "lite", "so it is", "e2")
    assert hand.do(raised) == [do.AnnouncePrimeEscalation("p1", "lite escalated it: so it is")]
    hand.do(interrupt("lite", "codemind", 1_001))
    hand.do(interrupt("lite", "codemind", 1_002))
    assert hand.do(interrupt("lite", "codemind", 1_003)) == [
        do.AnnounceObservation("p1", "lite", "codemind", True, "halt 1003"),
        do.AnnouncePrimeEscalation("p1", "3 interrupts in a row on codemind's stream"),
    ]


@pytest.mark.parametrize("kind", ["escalation", "interrupt"])
def test_escalations_and_interrupts_are_limited_too(kind: str) -> None:
    def act(n: int, seat: str = "lite") -> ev.Event:
        if kind == "interrupt":
            return interrupt(seat, "codemind", n)
        return ev.EscalationRaised("p1", seat, "again", f"e{n}")

    hand = Hand(observer="lite")
    hand.submit(time_budget_s=1e6)
    for n in range(100):
        hand.do(act(n))
    hand.refused(act(100), "too_many_acts")
    if kind == "escalation":
        hand.do(act(100, "prime"))
    assert len(hand.open().escalated_for) == (1 if kind == "interrupt" else 2)
