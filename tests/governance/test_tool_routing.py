"""What becomes of a packet's tool: each step follows from the records of its proposal."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from council.core.state import Answer, Ballot, Decision, Escalation, Ruling, Tally
from council.governance.tool_routing import routed
from council.protocol.cognition import CognitionPacket
from council.protocol.cognition.lifecycle import selected
from council.protocol.cognition.parts import ToolRoutingState
from tests.cases import each

ID = "aaaaaaaa"
PLAIN = CognitionPacket.from_dict({}, now=datetime(2026, 1, 2, tzinfo=UTC))
PACKET = selected(PLAIN, "put", {}, "Put it", 1.0)


@dataclass
class Record:
    kind: str
    data: dict[str, Any] = field(default_factory=dict)
    proposal_id: str | None = ID
    at_s: float = 0.0
    position: int = 0
    decisions: tuple[Decision, ...] = ()
    escalations: tuple[Escalation, ...] = ()
    more: dict[str, str | None] = field(default_factory=dict)


def decided(outcome: Any, *confidences: float, **more: Any) -> Record:
    ballots = tuple(Ballot(ID, f"s{n}", "yes", "r", c, "low", "m", "d") for n, c in enumerate(confidences))
    decision = Decision(ID, "Put it", "decided", outcome, True, "2 of 3", Tally(), 2, ballots, **more)
    return Record("ballot", decisions=(decision,))


def use(number: int, at_s: float = 0.0, run: str = "r1", proposal_id: str = ID) -> Record:
    request = {"executor": "exec", "run": run, "use_id": f"u{number}", "proposal_id": proposal_id}
    return Record("use", {"request": request}, proposal_id, at_s)


def result(number: int, outcome: str = "ok", at_s: float = 0.0) -> Record:
    return Record(
        "result", {"result": {"use_id": f"u{number}", "outcome": outcome, "text": f"t{number}"}}, ID, at_s
    )


def after(*records: Record) -> ToolRoutingState:
    found = routed(PACKET, ID, records).tool_routing
    assert found is not None
    return found


WAITS = Record(
    "ballot", escalations=(Escalation("esc", ID, "s", "low", "tie", "", (), (), "", (), None, 0.0, 0.0),)
)
NO, YES = (Answer(ID, "ada", approve, "r", "m", "d") for approve in (False, True))


@each(
    ("records", "status"),
    [
        ([], "awaiting_confidence"),
        ([WAITS], "awaiting_approval"),
        ([decided("approved", 0.9)], "approved"),
        ([WAITS, decided("approved", answer=YES)], "approved"),
        ([WAITS, decided("rejected", answer=NO)], "user_denied"),
        ([decided("rejected")], "skipped"),
        ([decided("cancelled")], "skipped"),
        ([Record("seat_died", more={ID: "rejected"})], "skipped"),
        ([Record("seat_died", more={ID: None})], "awaiting_approval"),
        ([decided("approved"), use(1)], "approved"),
        ([decided("approved"), use(1), result(1)], "executed"),
        ([decided("approved"), use(1), result(1, "failed")], "failed"),
        ([decided("approved"), use(1), result(1, "cancelled")], "skipped"),
        ([decided("approved"), use(1), result(1, "unknown")], "failed"),
        ([decided("approved"), use(1), Record("use_timeout", {"use_id": "u1"})], "failed"),
        (
            [decided("approved"), use(1), Record("executor", {"executor": "exec", "run": "r2"}, None)],
            "failed",
        ),
        (
            [decided("approved"), use(1), Record("executor", {"executor": "other", "run": "r2"}, None)],
            "approved",
        ),
        (
            [decided("approved"), use(1), use(2, run="r2", proposal_id="bbbbbbbb")],
            "failed",
        ),
        ([decided("approved"), Record("revocation")], "skipped"),
        ([decided("approved"), use(1), result(1), Record("revocation")], "executed"),
        (
            [
                decided("approved"),
                Record("outcome", {"report": {"stage": "act", "ok": True, "text": "done"}}),
            ],
            "executed",
        ),
        ([Record("result", result(1).data, "bbbbbbbb")], "awaiting_confidence"),
    ],
)
def test_the_status_follows_the_records(records: list[Record], status: str) -> None:
    assert after(*records).execution_status == status


def test_the_review_is_the_councils() -> None:
    found = after(
        decided("approved", 0.9, 0.6, ruling=Ruling(ID, "prime", "confirm", "r", 0.8, "low", "m", "d"))
    )
    assert (found.review_confidence, found.review_reasoning) == (0.6, "2 of 3")
    assert found.execution_status == "approved"  # the decision approves, whatever the confidence


def test_a_result_has_its_text_and_its_time() -> None:
    found = after(decided("approved"), use(1, 10.0), result(1, "ok", 10.25)).execution_result
    assert found is not None
    assert (found.success, found.output, found.error, found.execution_time_ms) == (True, "t1", None, 250)
    found = after(decided("approved"), use(1), result(1, "unknown")).execution_result
    assert found is not None
    assert (found.success, found.error) == (False, "its outcome is unknown: t1")


def test_results_are_put_back_at_most_three_times() -> None:
    records = [record for number in range(4) for record in (use(number), result(number))]
    assert after(*records[:6]).reinjection_count == 3
    found = after(*records)
    assert (found.reinjection_count, found.execution_status) == (3, "skipped")


def test_a_packet_without_a_tool_stays_as_it_is() -> None:
    assert routed(PLAIN, ID, [decided("approved")]) == PLAIN
