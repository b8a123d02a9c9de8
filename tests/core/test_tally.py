"""Counting ballots, and the sizes of majorities: rules 1.4, 1.5, 1.6."""

import math

import pytest

from council.core.conclusion import carried, count, dissent, majority
from council.core.state import CONFIDENCE_FLOOR, INTERRUPTS_MAX, SEATS_MAX, Rules, Tally, unsure
from tests.cases import each
from tests.core.council_in_hand import abstain, no, yes


def test_an_abstention_is_counted_as_presence_and_not_as_a_side() -> None:
    counted = count([yes("a"), abstain("b"), no("c"), abstain("d")])
    assert counted == Tally(yes=1, no=1, abstain=2)
    assert counted.cast == 4
    assert majority(counted) is None
    assert str(counted) == "1 yes, 1 no, 2 abstained"


@pytest.mark.parametrize(
    ("ayes", "noes", "reach", "expected"),
    [
        (2, 0, 3, True),  # the second agreeing ballot of three seats
        (1, 0, 3, False),
        (2, 0, 4, False),  # exactly half is not more than half
        (0, 3, 4, True),
        (2, 2, 4, False),
        (1, 0, 1, True),
        (1, 0, 2, False),
        (8, 0, 15, True),
        (7, 7, 15, False),
    ],
)
def test_a_side_carries_when_it_exceeds_half_of_the_reach(
    ayes: int, noes: int, reach: int, expected: bool
) -> None:
    assert carried(Tally(ayes, noes, 0), reach) is expected


def test_dissent_is_the_losing_side_in_words() -> None:
    ballots = [
        yes("prime"),
        no("lite", reason="it leaks", confidence=0.5),
        no("x", reason="slow"),
        abstain("y"),
    ]
    assert dissent(ballots, "approved") == "lite (no, 0.50): it leaks; x (no, 0.90): slow"
    assert dissent(ballots, "rejected") == "prime (yes, 0.90): prime says yes"


@pytest.mark.parametrize("outcome", ["deferred", "cancelled", None])
def test_without_a_winner_both_sides_are_told_and_one_side_alone_is_no_dissent(outcome: str | None) -> None:
    assert dissent([yes("a"), no("b"), abstain("c")], outcome) == (
        "a (yes, 0.90): a says yes; b (no, 0.90): b says no"
    )
    assert dissent([yes("a"), yes("b"), abstain("c")], outcome) == ""


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [
        (0.3, False),
        (0.2999999999999999, True),
        (0.0, True),
        (1.0, False),
        (float("nan"), True),
        (0.30000000000000004, False),
    ],
)
def test_unsure_is_below_the_floor_or_not_comparable(confidence: float, expected: bool) -> None:
    assert unsure(confidence) is expected


def test_the_figures_of_the_protocol() -> None:
    assert (CONFIDENCE_FLOOR, INTERRUPTS_MAX, SEATS_MAX) == (0.3, 3, 15)
    rules = Rules(seats=("prime",), prime="prime")
    assert (rules.quorum, rules.inactivity_limit_s, rules.escalation_ttl_s, rules.sole_seat) == (
        2,
        90.0,
        86_400.0,
        "never",
    )


@each(
    "fields",
    [
        {"quorum": 1},
        {"quorum": 0},
        {"seats": ()},
        {"seats": ("prime", "lite", "lite")},
        {"seats": ("lite", "codemind")},
        {"seats": tuple(["prime"] + [f"s{i}" for i in range(15)])},
        {"quorum": 4},
        {"seats": ("prime", "lite"), "quorum": 3},
        {"seats": ("prime",), "quorum": 3},
        *[
            {name: value}
            for name in ("inactivity_limit_s", "escalation_ttl_s", "open_max", "escalations_max")
            for value in (0, -1, math.nan, math.inf)
        ],
    ],
)
def test_rules_that_the_protocol_does_not_allow_are_an_error(fields: dict[str, object]) -> None:
    given: dict[str, object] = {"seats": ("prime", "lite", "codemind"), "prime": "prime", **fields}
    with pytest.raises(ValueError, match="must be"):
        Rules(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("seats", "quorum"), [(1, 2), (2, 2), (3, 3), (15, 2), (15, 15)])
def test_a_quorum_of_two_up_to_all_seats_is_allowed(seats: int, quorum: int) -> None:
    """A council of one has a quorum of two, which it never reaches: only a sole seat may decide there."""
    names = ("prime", *(f"s{i}" for i in range(1, seats)))
    assert Rules(seats=names, prime="prime", quorum=quorum).quorum == quorum
