"""The life of a cognition packet: response, votes, tool and end, and what is noticed over a session."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from council.protocol.cognition import CognitionPacket
from council.protocol.cognition.lifecycle import answered, began, ended, executed, selected, traced, voted
from council.protocol.cognition.parts import TokenUsage, ToolExecutionResult, ToolRoutingState, Vote
from council.protocol.cognition.session import REPEATS, Session

PACKET = CognitionPacket.from_dict({}, now=datetime(2026, 1, 2, tzinfo=UTC))
USAGE = TokenUsage(prompt_tokens=100, completion_tokens=20, total_tokens=120)


def test_a_packet_is_worked_on_answered_and_completed() -> None:
    working = began(PACKET)
    assert (working.status.state, working.status.finalized) == ("processing", False)
    vote = Vote(agent="lite", decision="approve", reason="fine", confidence=0.9)
    done = voted(answered(working, "fine", 0.9), [vote], "solo")
    done = ended(done, latency_ms=7, usage=USAGE, cost_dollars=0.5)
    assert (done.status.state, done.status.finalized) == ("completed", True)
    assert (done.response.candidate, done.response.confidence) == ("fine", 0.9)
    assert done.council is not None
    assert (done.council.votes, done.council.iteration_count) == ((vote,), 1)
    assert (done.metrics.token_usage, done.metrics.latency_ms) == (USAGE, 7)
    assert done.metrics.cost_estimate == 0.5
    assert CognitionPacket.from_json(done.to_json()) == done
    assert PACKET.status.state == "processing"  # its default: the packet itself is not changed
    assert PACKET.council is None


def test_a_second_round_completes_the_same_packet() -> None:
    vote = Vote(agent="prime", decision="reject")
    first = ended(
        voted(answered(PACKET, "no", 0.8), [vote], "solo"), latency_ms=7, usage=USAGE, cost_dollars=None
    )
    second = voted(answered(first, "confirmed", 0.7), [], "consensus")
    second = ended(second, error="too slow", latency_ms=5, usage=USAGE, cost_dollars=None)
    assert [(each.step, each.summary) for each in second.reasoning.reflection_log] == [("response", "no")]
    assert second.council is not None
    assert (second.council.votes, second.council.iteration_count) == (
        (vote,),
        2,
    )  # without votes those before stay
    assert (second.status.state, second.metrics.errors, second.metrics.latency_ms) == (
        "aborted",
        ("too slow",),
        12,
    )
    assert traced(second, "INTERRUPT: wait").status.observer_trace == ("INTERRUPT: wait",)


def test_a_result_is_put_back_three_times_and_then_the_tool_is_skipped() -> None:
    """Mutation: a fourth result that replaces the third, or counts."""
    routing = selected(None, "shell", {"command": "ls"}, "Look", 0.9)
    assert (routing.needs_tool, routing.execution_status) == (True, "awaiting_confidence")
    for number in range(1, 4):
        routing = executed(routing, ToolExecutionResult(success=number != 2, output=number))
        status = "failed" if number == 2 else "executed"
        assert (routing.execution_status, routing.reinjection_count) == (status, number)
    routing = executed(routing, ToolExecutionResult(success=True, output=4))
    assert (routing.execution_status, routing.reinjection_count) == ("skipped", 3)
    assert routing.execution_result is not None
    assert routing.execution_result.output == 3
    assert ToolRoutingState().max_reinjections == 3


# A session


def asked(session: Session, *calls: str, goal: str = "tidy up") -> Session:
    for number, call in enumerate(calls):
        session = session.asked(call, goal, f"t{number}", by_user=False)
    return session


def test_the_same_call_three_times_in_a_row_is_a_loop() -> None:
    call = 'shell {"command":"ls"}'
    assert asked(Session(), call, call).loop is None
    assert asked(Session(), call, call, "other", call).loop is None
    loop = asked(Session(), *[call] * REPEATS).loop
    assert loop is not None
    assert (loop.loop_type, loop.pattern, loop.detected_at) == ("tool_repetition", call, "t2")
    assert loop.pattern_hash == hashlib.sha256(call.encode()).hexdigest()[:16]
    assert (loop.triggered_by, loop.in_recovery, loop.reset_count) == (("tool_repetition",), False, 0)


def test_requests_without_a_call_are_no_loop() -> None:
    assert asked(Session(), "", "", "", "").loop is None


def test_two_calls_in_turn_are_a_loop() -> None:
    loop = asked(Session(), "a", "b", "a", "b").loop
    assert loop is not None
    assert (loop.loop_type, loop.pattern) == ("tool_ping_pong", "a | b")
    assert asked(Session(), "a", "b", "b", "a").loop is None


def test_a_loop_that_ends_is_recovered_from_and_the_next_one_counts_it() -> None:
    over = asked(Session(), "a", "a", "a", "b")
    assert over.loop is not None
    assert (over.loop.in_recovery, over.loop.pattern) == (True, "a")
    again = asked(over, "b", "b").loop
    assert again is not None
    assert (again.pattern, again.in_recovery, again.reset_count) == ("b", False, 1)
    assert [each.approach_summary for each in again.previous_attempts] == ["a"]
    longer = asked(Session(), "a", "a", "a", "a").loop
    assert longer is not None
    assert (longer.detected_at, longer.reset_count) == ("t2", 0)  # it is still the same loop


def test_the_same_answer_or_error_three_times_is_a_loop() -> None:
    session = Session()
    for _ in range(REPEATS):
        session = session.answered("Rename it: fine", "t")
    assert session.loop is not None
    assert session.loop.loop_type == "output_verbatim"
    session = Session()
    for _ in range(REPEATS):
        session = session.failed("it timed out", "t")
    assert session.loop is not None
    assert session.loop.loop_type == "error_repetition"


def test_a_goal_is_carried_until_it_shifts() -> None:
    session = Session().asked("", "tidy\nup", "t0", by_user=True)
    first = session.goal.current_goal
    assert first is not None
    assert (first.description, first.confidence, first.source) == ("tidy up", "high", "fast_path")
    session = session.asked("", "tidy up", "t1", by_user=False)
    carried = session.goal.current_goal
    assert carried is not None
    assert (carried.goal_id, carried.source, carried.detected_at) == (first.goal_id, "session_carry", "t0")
    assert (session.goal.turn_count, session.goal.goal_shifts) == (2, 0)
    session = session.asked("", "deploy", "t2", by_user=False)
    assert session.goal.current_goal is not None
    assert (session.goal.current_goal.description, session.goal.current_goal.confidence) == (
        "deploy",
        "medium",
    )
    assert (session.goal.turn_count, session.goal.goal_shifts) == (3, 1)
    assert [each.goal_id for each in session.goal.previous_goals] == [first.goal_id]
