"""The checker itself: each broken state is found, so that every other test's check(state) means something."""

import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from council.core.events import HumanAnswered, RulingGiven
from council.core.state import Absent, CouncilState, Decision, Tally, TieBreak
from council.protocol.errors import InternalError
from tests.cases import each
from tests.core.council_in_hand import THREE, Hand, abstain, answer, no, ruling, yes
from tests.core.invariants import check


def _open(**fields: object) -> CouncilState:
    hand = Hand()
    hand.submit(time_budget_s=1_000.0, **fields)
    hand.vote(yes("prime"))
    return hand.state


def _decided() -> CouncilState:
    hand = Hand()
    hand.submit()
    hand.vote(yes("prime"), yes("lite"))
    return hand.state


def _with_human() -> CouncilState:
    hand = Hand()
    hand.submit()
    hand.vote(yes("lite"), no("codemind"), abstain("prime"))
    return hand.state


def _confirmed() -> CouncilState:
    hand = Hand()
    hand.submit(risk_level="high")
    hand.vote(yes("prime"), yes("lite"), yes("codemind"))
    hand.do(RulingGiven(ruling("confirm")))
    return hand.state


def _ruling() -> CouncilState:
    hand = Hand()
    hand.submit(risk_level="high")
    hand.vote(yes("prime"), yes("lite"), yes("codemind"))
    return hand.state


def _answered() -> CouncilState:
    hand = Hand()
    hand.submit()
    hand.vote(yes("lite"), no("codemind"), abstain("prime"))
    hand.do(HumanAnswered(answer(True)))
    return hand.state


def _sole() -> CouncilState:
    hand = Hand(sole_seat="allow-low-risk")
    hand.died("prime")
    hand.died("lite")
    hand.submit()
    hand.vote(yes("codemind"))
    assert hand.closed().outcome == "approved"
    return hand.state


def _tie_broken() -> CouncilState:
    hand = Hand(("prime", "lite"))
    hand.submit()
    hand.vote(yes("prime"), no("lite"))
    assert hand.closed().tie_break == TieBreak("prime", "vote-prime-p1", "yes")
    return hand.state


def _proposal(**fields: object) -> Callable[[CouncilState], None]:
    def breaks(state: CouncilState) -> None:
        state.open["p1"] = replace(state.open["p1"], **fields)  # type: ignore[arg-type]

    return breaks


def _decision(**fields: object) -> Callable[[CouncilState], None]:
    def breaks(state: CouncilState) -> None:
        closed = state.closed["p1"]
        decision: Decision = replace(closed.decision, **fields)  # type: ignore[arg-type]
        state.closed["p1"] = replace(closed, decision=decision)

    return breaks


def _unarmed(state: CouncilState) -> None:
    state.timers.clear()


def _unarmed_wall(state: CouncilState) -> None:
    state.wall_timers.clear()


def _miscounted(state: CouncilState) -> None:
    state.with_human += 1


def _roll_short(state: CouncilState) -> None:
    del state.seats["lite"]


def _under_another_id(state: CouncilState) -> None:
    state.open["p2"] = state.open.pop("p1")


def _closed_under_another_id(state: CouncilState) -> None:
    state.closed["p2"] = state.closed.pop("p1")


ALL_MISSING = tuple((name, "x") for name in THREE)
NO_ALONE: dict[str, object] = {
    "ballots": (no("prime"),),
    "tally": Tally(0, 1, 0),
    "missing": ALL_MISSING[1:],
}
BROKEN: list[tuple[Callable[[], CouncilState], Callable[[CouncilState], None], str]] = [
    (_open, _roll_short, "the roll"),
    (_open, _miscounted, "the count of proposals with a human"),
    (_open, _unarmed, "the deadline of p1 is armed"),
    (_with_human, _unarmed_wall, "the expiry of p1 is armed"),
    (_open, _under_another_id, "a proposal is kept under its id"),
    (_decided, _closed_under_another_id, "a decision is kept under"),
    (_open, _proposal(deadline_s=999.0), "the deadline of p1 is armed"),
    (_open, _proposal(ballots=(yes("prime"), no("prime"))), "1.3"),
    (_open, _proposal(late=(no("prime"),)), "1.3"),
    (_open, _proposal(asked=frozenset(["lite"])), "only seats that were given"),
    (_open, _proposal(asked=frozenset(["prime"]), lost={"lite": "x"}), "only seats that were given"),
    (_open, _proposal(lost={"prime": "x"}), "cast or lost"),
    (_open, _proposal(stage="human"), "the count of proposals with a human"),
    (_open, _proposal(stage="ruling"), "1.8"),
    (_open, _proposal(acts={"lite interrupt": frozenset(str(n) for n in range(101))}), "bounded"),
    (_open, _proposal(absent=Absent((), degraded=False)), "who is missing is said once"),
    (_ruling, _proposal(absent=None), "who is missing is said once"),
    (_with_human, _proposal(absent=None), "who is missing is said once"),
    (_with_human, _unarmed, "the deadline of p1 is armed"),
    (_with_human, _proposal(deadline_s=999.0), "the deadline of p1 is armed"),
    (_open, _proposal(ballots=(yes("prime"), yes("lite"), yes("codemind"))), "1.5"),
    (_decided, _decision(final=False), "is decided"),
    (_decided, _decision(outcome=None), "is decided"),
    (_decided, _decision(late=(no("prime"),)), "1.3"),
    (_decided, _decision(tally=Tally(3, 0, 0)), "1.13: the tally"),
    (_decided, _decision(missing=()), "names every missing seat"),
    (_decided, _decision(missing=ALL_MISSING), "both counted and missing"),
    (_decided, _decision(escalated_for=("high risk",)), "1.8: p1 escalated, not ruled on"),
    (_decided, _decision(ruling=ruling("confirm")), "1.8: p1 escalated, not ruled on"),
    (_confirmed, _decision(ruling=None), "1.8: p1 escalated, not ruled on"),
    (_confirmed, _decision(ruling=ruling("reject")), "1.8: p1 is not what Prime ruled"),
    (_confirmed, _decision(ruling=ruling("human")), "1.8: p1 was left to a human by Prime"),
    (_confirmed, _decision(ruling=ruling("confirm", confidence=0.29)), "1.8: Prime was unsure of p1"),
    (_confirmed, _decision(ruling=ruling("confirm", confidence=float("nan"))), "1.8: Prime was unsure of p1"),
    (_confirmed, _decision(outcome="rejected"), "1.4: p1 is not what its majority says"),
    (_decided, _decision(ballots=(yes("prime"), yes("lite", asks_human=True))), "1.8: a user had to approve"),
    (_decided, _decision(escalation_id="esc-p1"), "1.9: p1 waited for a human, and none answered"),
    (_decided, _decision(answer=answer(True)), "1.9: p1 was answered, but never asked"),
    (_answered, _decision(answer=answer(False)), "1.9: p1 is what the human answered"),
    (_answered, _decision(outcome="deferred"), "1.9: p1 is what the human answered"),
    (_answered, _decision(answer=None), "1.9: p1 waited for a human, and none answered"),
    (_decided, _decision(outcome="deferred"), "1.9: p1 was deferred without a human asked"),
    (_decided, _decision(outcome="rejected"), "1.4: p1 is not what its majority says"),
    (_decided, _decision(outcome="rejected", **NO_ALONE), "1.11: p1 was decided without a quorum"),
    (_sole, _decision(degraded=False), "1.11: p1 was decided without a quorum"),
    (_sole, _decision(ballots=(yes("codemind", risk_level="med"),)), "1.11: p1 was decided without a quorum"),
    (
        _sole,
        _decision(ballots=(), tally=Tally(), missing=ALL_MISSING),
        "1.11: p1 was decided without a quorum",
    ),
    (_tie_broken, _decision(tie_break=TieBreak("lite", "vote-lite-p1", "no")), "1.6: the tie of p1"),
    (_tie_broken, _decision(tie_break=TieBreak("prime", "vote-lite-p1", "yes")), "1.6: the tie of p1"),
    (_tie_broken, _decision(tie_break=TieBreak("prime", "vote-prime-p1", "no")), "1.6: the tie of p1"),
    (_tie_broken, _decision(tie_break=TieBreak("prime", "nobody's", "yes")), "1.6: the tie of p1"),
    (_tie_broken, _decision(tie_break=None), "1.4: p1 is not what its majority says"),
    (_tie_broken, _decision(outcome="rejected"), "1.4: p1 is not what its majority says"),
    (_decided, _decision(tie_break=TieBreak("prime", "vote-prime-p1", "yes")), "1.6: p1 was no tie"),
    (
        _decided,
        _decision(
            ballots=(yes("prime"),),
            tally=Tally(1, 0, 0),
            missing=(("lite", "x"), ("codemind", "x")),
        ),
        "1.11: p1 was decided without a quorum",
    ),
    (
        _decided,
        _decision(ballots=(yes("prime"), no("lite")), tally=Tally(1, 1, 0)),
        "1.4: p1 is not what its majority says",
    ),
]


@each(("build", "breaks", "rule"), BROKEN)
def test_a_broken_state_is_found(
    build: Callable[[], CouncilState], breaks: Callable[[CouncilState], None], rule: str
) -> None:
    state = build()
    check(state)
    breaks(state)
    with pytest.raises(InternalError, match=re.escape(rule)):
        check(state)


def test_open_and_closed_at_once_is_found() -> None:
    hand = Hand()
    hand.submit()
    proposal = hand.open()
    hand.vote(yes("prime"), yes("lite"))
    hand.state.open["p1"] = proposal
    with pytest.raises(InternalError, match=r"1\.12"):
        check(hand.state)
