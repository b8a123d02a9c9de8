"""The life of a cognition packet: response, votes, tool and end, and what is noticed over a session."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from council.protocol.cognition import CognitionPacket
from council.protocol.cognition.lifecycle import answered, began, ended, executed, selected, traced, voted
from council.protocol.cognition.parts import ToolExecutionResult, ToolRoutingState
from council.protocol.cognition.session import REPEATS, Session
from tests.cases import each

PACKET = CognitionPacket.from_dict({}, now=datetime(2026, 1, 2, tzinfo=UTC))
VOTE = ("lite", "yes", "fine", 0.9)
FIGURES: dict[str, Any] = {"latency_ms": 7, "tokens": 120, "output_tokens": 20, "dollars": 0.5}


def test_a_packet_is_worked_on_answered_and_completed() -> None:
    working = began(PACKET, "lite", {"name": "small", "provider": "openai"})
    assert (working.status.state, working.status.finalized) == ("processing", False)
    assert (working.header.routing.target_engine, working.header.model.name) == ("Lite", "small")
    assert began(PACKET, "jurist", {}).header.routing.target_engine == "Council"
    done = ended(voted(answered(working, "fine", 0.9), [VOTE], "solo"), error="", **FIGURES)
    assert (done.status.state, done.status.finalized) == ("completed", True)
    assert (done.response.candidate, done.response.confidence) == ("fine", 0.9)
    assert done.council is not None
    assert [(vote.agent, vote.decision) for vote in done.council.votes] == [("lite", "approve")]
    usage = done.metrics.token_usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 20, 120)
    assert (done.metrics.latency_ms, done.metrics.cost_estimate) == (7, 0.5)
    assert CognitionPacket.from_json(done.to_json()) == done
    assert PACKET.council is None  # the packet itself is not changed


def test_a_second_round_completes_the_same_packet() -> None:
    first = ended(voted(answered(PACKET, "fine", 0.8), [VOTE], "solo"), error="", **FIGURES)
    second = voted(answered(first, "confirmed", 0.7), [], "consensus")
    second = ended(second, error="too slow", **FIGURES)
    assert [(log.step, log.summary) for log in second.reasoning.reflection_log] == [("response", "fine")]
    assert first.council is not None
    assert second.council is not None
    assert second.council.votes == first.council.votes  # without votes those before stay
    assert (second.council.iteration_count, second.council.mode) == (2, "consensus")
    assert (second.status.state, second.metrics.errors) == ("aborted", ("too slow",))
    assert (second.metrics.latency_ms, second.metrics.token_usage.total_tokens) == (14, 240)
    assert traced(second, "INTERRUPT: wait").status.observer_trace == ("INTERRUPT: wait",)


def test_a_result_is_put_back_three_times_and_then_the_tool_is_skipped() -> None:
    """Mutation: a fourth result that replaces the third, or counts."""
    packet = selected(PACKET, "shell", {"command": "ls"}, "Look", 0.9)
    routing = packet.tool_routing
    assert routing is not None
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


def after(*calls: str) -> Session:
    session = Session()
    for number, call in enumerate(calls):
        session.asked(call, "tidy up", f"t{number}", by_user=False)
    return session


def test_the_same_call_three_times_in_a_row_is_a_loop() -> None:
    call = 'shell {"command":"ls"}'
    loop = after(*[call] * REPEATS).loop
    assert loop is not None
    assert (loop.loop_type, loop.pattern, loop.detected_at) == ("tool_repetition", call, "t2")
    assert loop.pattern_hash == hashlib.sha256(call.encode()).hexdigest()[:16]
    assert loop.triggered_by == ("tool_repetition",)


def test_two_calls_in_turn_are_a_loop() -> None:
    loop = after("a", "b", "a", "b").loop
    assert loop is not None
    assert (loop.loop_type, loop.pattern) == ("tool_ping_pong", "a | b")


@each(
    "calls",
    [
        ("a", "a"),
        ("a", "a", "b", "a"),
        ("a", "a", "a", "b"),
        ("a", "b", "b", "a"),
        ("", "", "", ""),
        ("a", "", "a", ""),
    ],
)
def test_other_calls_are_no_loop(calls: tuple[str, ...]) -> None:
    assert after(*calls).loop is None


def test_the_same_answer_or_error_three_times_is_a_loop() -> None:
    answers, errors = Session(), Session()
    for _ in range(REPEATS):
        assert answers.loop is None
        answers.ended("Rename it: fine", "", "t")
        errors.ended("Rename it: ", "it timed out", "t")
    assert answers.loop is not None
    assert answers.loop.loop_type == "output_verbatim"
    assert errors.loop is not None
    assert (errors.loop.loop_type, errors.loop.pattern) == ("error_repetition", "it timed out")
    answers.asked("", "another", "t", by_user=False)
    assert answers.loop is None


def test_a_goal_is_carried_until_it_shifts() -> None:
    session = Session()
    session.asked("", "tidy\nup", "t0", by_user=True)
    first = session.goal.current_goal
    assert first is not None
    assert (first.description, first.confidence, first.source) == ("tidy up", "high", "fast_path")
    session.asked("", "tidy up", "t1", by_user=False)
    carried = session.goal.current_goal
    assert carried is not None
    assert (carried.goal_id, carried.source, carried.detected_at) == (first.goal_id, "session_carry", "t0")
    assert (session.goal.turn_count, session.goal.goal_shifts) == (2, 0)
    session.asked("", "deploy", "t2", by_user=False)
    shifted = session.goal.current_goal
    assert shifted is not None
    assert (shifted.description, shifted.confidence) == ("deploy", "medium")
    assert (session.goal.turn_count, session.goal.goal_shifts) == (3, 1)
    assert [goal.goal_id for goal in session.goal.previous_goals] == [first.goal_id]
