"""Reports of what became of an action, on their way: who may send them, and that they outlive a coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from council.core.state import REASON_TOLD_MAX
from council.protocol import signing
from council.runtime.coordinator import View
from council.telemetry.metrics import Meter, Registry
from tests.runtime.harness import Hand, key_of


@pytest.fixture
def hand() -> Hand:
    return Hand()


def approved(hand: Hand, **fields: Any) -> str:
    proposal_id = hand.propose(action={"tool": "rm", "args": {}}, **fields)
    for seat in ("prime", "lite", "codemind"):
        hand.receive(hand.vote(seat, proposal_id))
    hand.told()
    return proposal_id


def reported(hand: Hand, proposal_id: str, stage: Any = "act", ok: Any = True, **more: Any) -> bytes:
    sender, text = more.pop("sender", "client"), more.pop("text", "as wanted")
    data = {"proposal_id": proposal_id, "stage": stage, "ok": ok}
    content = {"kind": "outcome", "text": text, "data": data}
    return hand.sealed(hand.envelope(sender, "INFO", content, parent_id=proposal_id, role="proposer", **more))


def test_a_report_is_journaled_told_and_acknowledged_and_changes_no_decision(hand: Hand) -> None:
    proposal_id = approved(hand)
    before = hand.driver.decision(proposal_id)
    hand.receive(reported(hand, proposal_id), "s1", save=False)
    assert hand.told() == []  # rules 4.7: not before it is kept
    assert "outcome" not in hand.kinds()
    hand.save()
    hand.acknowledged()
    told = hand.last("outcome")["report"]
    assert (told["stage"], told["ok"], told["text"], told["sender"]) == ("act", True, "as wanted", "client")
    assert hand.records[-1].sealed is not None
    hand.receive(reported(hand, proposal_id, "verify", False), "s1")
    assert hand.last("alert")["kind"] == "verification_failed"
    assert hand.driver.decision(proposal_id) == before


def test_the_same_report_again_is_acknowledged_and_leaves_no_record(hand: Hand) -> None:
    """A client whose answer was lost sends the same bytes again. Mutation: its own retry is refused."""
    sealed = reported(hand, approved(hand))
    hand.receive(sealed, "s1")
    hand.told()
    records = len(hand.records)
    hand.receive(sealed, "s1")
    hand.acknowledged()
    assert len(hand.records) == records
    assert sum(hand.driver.ignored.values()) == 1


def test_a_seat_reports_what_it_proposed_and_nobody_else_does(hand: Hand) -> None:
    proposal_id = approved(hand, sender="lite", session=None)
    for other in ("prime", "client"):
        hand.receive(reported(hand, proposal_id, sender=other), "s1")
        assert hand.failed().code == "not_the_proposer"
    hand.receive(reported(hand, proposal_id, sender="lite"), "s1")
    hand.acknowledged()


@pytest.mark.parametrize(
    ("stage", "ok", "field"),
    [
        ("done", True, "content.data.stage"),
        (None, True, "content.data.stage"),
        ("act", "yes", "content.data.ok"),
        ("act", 1, "content.data.ok"),
    ],
)
def test_a_report_that_says_nothing_is_refused_and_names_the_field(
    hand: Hand, stage: Any, ok: Any, field: str
) -> None:
    hand.receive(reported(hand, approved(hand), stage, ok), "s1")
    assert field in hand.failed().message
    assert "outcome" not in hand.kinds()


def test_of_a_long_text_so_much_is_told_on(hand: Hand) -> None:
    """The envelope, in its record, has all of it."""
    proposal_id = approved(hand)
    hand.receive(reported(hand, proposal_id, ok=False, text="x" * 5_000))
    assert len(hand.last("outcome")["report"]["text"]) == REASON_TOLD_MAX
    assert len(hand.last("alert")["text"]) < REASON_TOLD_MAX + 100
    assert b"x" * 5_000 in signing.payload_of(hand.records[-1].sealed)


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_what_was_told_outlives_the_coordinator(by_snapshot: bool) -> None:
    """By replay and by snapshot, also of a decision that an earlier snapshot had already packed."""
    hand, other = Hand(), Hand()
    proposal_id = approved(hand)
    first = hand.driver.snapshot()
    act, verify = reported(hand, proposal_id), reported(hand, proposal_id, "verify")
    hand.receive(act, "s1")
    second = hand.driver.snapshot()
    if by_snapshot:
        added = dict(first.added) | dict(second.added)
        mores = [(at, more) for at, (more, _) in added.items()]
        other = Hand(decided=lambda position: added[position][1])
        other.driver.restore(second.position, second.base, mores, lambda ids: {})
        away = other.driver.away(proposal_id)
        assert away == (proposal_id, second.position)
        other.driver.take_back(away, other.driver.archive.fetch(away))
    else:
        for record in hand.records:
            other.driver.replay(record)
    kept = other.driver.state.closed[proposal_id]
    assert kept == hand.driver.state.closed[proposal_id]
    assert [(stage, ok) for stage, ok, _ in kept.reports] == [("act", True)]
    other.driver.join("client", "proposer", key_of("client"))
    other.receive(act, "s1")
    other.acknowledged()
    other.receive(reported(hand, proposal_id, ok=False), "s1")
    assert other.failed().code == "told_before"
    other.receive(verify, "s1")
    other.acknowledged()


def test_outcomes_are_counted_by_stage(hand: Hand) -> None:
    class Readable:
        commits: tuple[()] = ()
        trouble = None

        def view(self) -> Any:
            return View(hand.driver, self, hand.now, hand.driver.position)  # type: ignore[arg-type]

    registry = Registry()
    meter = Meter("main", Readable(), [registry])
    for _ in range(2):
        proposal_id = approved(hand)
        hand.receive(reported(hand, proposal_id))
        hand.receive(reported(hand, proposal_id))
        hand.receive(reported(hand, proposal_id, "verify", False))
    meter.read()

    def value(name: str, **labels: str) -> float | None:
        return registry.collected.get_sample_value(name, {"council": "main", **labels})

    assert value("council_action_outcomes_total", stage="act", ok="yes") == 2.0
    assert value("council_action_outcomes_total", stage="verify", ok="no") == 2.0
    assert value("council_action_outcomes_total", stage="verify", ok="yes") is None
    assert value("council_alerts_total", alert="verification_failed") == 2.0
