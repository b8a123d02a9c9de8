"""What became of an approved action, as its proposer tells: rules 3.1."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from council.core import effects as do
from council.core import events as ev
from council.core.state import ActionReport, Closed
from council.protocol.errors import InternalError
from tests.core.council_in_hand import Hand, no, report, yes
from tests.core.invariants import check


@pytest.fixture
def hand() -> Hand:
    """A council that has approved p1."""
    made = Hand()
    made.submit(tool="rm")
    made.vote(yes("prime"), yes("lite"), yes("codemind"))
    assert made.closed().outcome == "approved"
    return made


def told(hand: Hand, said: ActionReport) -> list[do.Effect]:
    return hand.do(ev.ActionReported(said))


def refused(hand: Hand, said: ActionReport, code: str) -> str:
    return hand.refused(ev.ActionReported(said), code).message


def test_each_step_is_told_once_and_the_decision_stays(hand: Hand) -> None:
    before = hand.closed()
    for stage in ("act", "verify", "revert"):
        said = report(stage, text="as it should")
        assert told(hand, said) == [do.AnnounceOutcome(said)]
    assert hand.closed() == before
    assert [(stage, ok) for stage, ok, _ in hand.state.closed["p1"].reports] == [
        ("act", True),
        ("verify", True),
        ("revert", True),
    ]


@pytest.mark.parametrize(
    ("stage", "kind", "words"),
    [
        ("act", "action_failed", "the action failed, client reports: disk full"),
        ("verify", "verification_failed", "verification failed, client reports: disk full"),
        ("revert", "revert_failed", "the revert failed, client reports: disk full"),
    ],
)
def test_a_step_that_failed_is_an_alert(hand: Hand, stage: str, kind: str, words: str) -> None:
    if stage != "act":
        told(hand, report("act"))
    said = report(stage, ok=False, text="disk full")
    assert told(hand, said) == [do.AnnounceOutcome(said), do.RaiseAlert("p1", kind, words)]
    assert hand.closed().outcome == "approved"


def test_the_same_bytes_again_are_ignored_and_others_refused(hand: Hand) -> None:
    """Also once later steps were told of. Mutation: a digest that is not compared, or the order looked at first."""
    said = report("act")
    told(hand, said)
    told(hand, report("verify", ok=False))
    state = hand.state.closed["p1"]
    assert told(hand, said) == [do.NoteIgnored("client", "the same report again")]
    assert "reported as successful before: that stands" in refused(
        hand, report("act", ok=False), "told_before"
    )
    assert "reported as failed before: that stands" in refused(hand, report("verify"), "told_before")
    assert hand.state.closed["p1"] == state


def test_what_never_ran_is_neither_verified_nor_reverted(hand: Hand) -> None:
    for stage in ("verify", "revert"):
        assert "report act first" in refused(hand, report(stage), "out_of_order")
    told(hand, report("act", ok=False))
    told(hand, report("revert"))  # of an action that failed half way
    assert "revert, a later step, was reported already" in refused(hand, report("verify"), "out_of_order")


def test_only_the_proposer_may_tell(hand: Hand) -> None:
    """Mutation: whoever knows the id reports, another client or a seat."""
    for other in ("mallory", "prime"):
        assert "only client, who proposed it" in refused(hand, report(sender=other), "not_the_proposer")
    hand.submit(proposal_id="p2")
    refused(hand, report(proposal_id="p2", sender="mallory"), "not_the_proposer")
    assert hand.state.closed["p1"].reports == ()


def test_only_what_was_approved_can_have_run() -> None:
    hand = Hand()
    hand.submit()
    assert "not decided yet" in refused(hand, report(), "not_approved")
    hand.vote(no("prime"), no("lite"))
    assert "it is rejected" in refused(hand, report(), "not_approved")
    hand.submit(proposal_id="p2")
    hand.do(ev.ProposalCancelled("p2", "client", ""))
    assert "it is cancelled" in refused(hand, report(proposal_id="p2"), "not_approved")
    refused(hand, report(proposal_id="p3"), "unknown_proposal")


def test_a_late_ballot_keeps_what_was_told(hand: Hand) -> None:
    made = Hand()
    made.submit()
    made.vote(yes("prime"), yes("lite"))
    told(made, report())
    made.vote(no("codemind"))
    assert [ballot.seat for ballot in made.closed().late] == ["codemind"]
    assert len(made.state.closed["p1"].reports) == 1


def test_what_is_kept_of_a_decision_costs_nothing_where_nothing_was_told(hand: Hand) -> None:
    """As older packages packed it, which these bytes are read from. Mutation: no ``omit_defaults``."""
    closed = hand.state.closed["p1"]
    assert b"reports" not in msgspec.msgpack.encode(closed)
    told(hand, report(text="x" * 500))
    kept = hand.state.closed["p1"]
    packed = msgspec.msgpack.encode(kept)
    assert msgspec.msgpack.decode(packed, type=Closed) == kept
    assert len(packed) - len(msgspec.msgpack.encode(closed)) < 100  # the words stand in the journal alone


@pytest.mark.parametrize(
    ("reports", "outcome"),
    [
        ((("verify", True, "d"),), "approved"),
        ((("act", True, "d"), ("act", False, "e")), "approved"),
        ((("act", True, "d"), ("revert", True, "e"), ("verify", True, "f")), "approved"),
        ((("act", True, "d"),), "rejected"),
    ],
)
def test_the_invariants_see_what_can_not_be(hand: Hand, reports: Any, outcome: Any) -> None:
    closed = hand.state.closed["p1"]
    decision = closed.decision if outcome == "approved" else replace(closed.decision, outcome=outcome)
    hand.state.closed["p1"] = replace(closed, decision=decision, reports=reports)
    with pytest.raises(InternalError, match=r"3\.1"):
        check(hand.state)
