"""The two machines of a cognition packet: its own states and its tool's, every move and every illegal one."""

from __future__ import annotations

import pickle
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.protocol.cognition import (
    CognitionPacket,
    advance,
    answer_tool,
    build_packet,
    complete,
    record_result,
    reinject,
    request_tool,
    review_tool,
    select_tool,
    skip_tool,
    states,
    tools,
)
from council.protocol.cognition.parts import SelectedTool, TokenUsage, ToolExecutionResult, ToolRoutingState
from council.protocol.cognition.vocabulary import PacketState, ToolExecutionStatus
from council.protocol.errors import CallerError, IllegalMove, NotDispatched
from tests.cases import each
from tests.protocol.cognition.tables import ID, NOW

P, T = PacketState, ToolExecutionStatus
TOOL = SelectedTool(tool_name="read_file")
GOOD, BAD = ToolExecutionResult(success=True, output="x"), ToolExecutionResult(success=False, error="no")

LEGAL = {
    P.INITIALIZED: {P.PROCESSING, P.ABORTED},
    P.PROCESSING: {P.AWAITING_TOOL, P.AWAITING_HUMAN, P.READY_TO_STREAM, P.ABORTED},
    P.AWAITING_TOOL: {P.PROCESSING, P.AWAITING_HUMAN, P.ABORTED},
    P.AWAITING_HUMAN: {P.PROCESSING, P.AWAITING_TOOL, P.READY_TO_STREAM, P.ABORTED},
    P.READY_TO_STREAM: {P.COMPLETED, P.ABORTED},
    P.COMPLETED: set(),
    P.ABORTED: set(),
}


def packet(state: PacketState = P.PROCESSING, finalized: bool = False, **more: Any) -> CognitionPacket:
    made = build_packet("cli", "hello", now=NOW, new_id=lambda: ID)
    status = made.status.model_copy(update={"state": state, "finalized": finalized})
    return made.model_copy(update={"status": status, **more})


def status_of(found: CognitionPacket) -> tuple[ToolExecutionStatus, PacketState]:
    assert found.tool_routing is not None
    return found.tool_routing.execution_status, found.status.state


# The packet


@each(("to", "state"), product(P, P))
def test_every_move_is_legal_or_says_what_is(state: PacketState, to: PacketState) -> None:
    """Mutation: any move added to the table, or taken away."""
    before = packet(state)
    if to in LEGAL[state]:
        after = advance(before, to)
        assert (after.status.state, after.status.finalized) == (to, to in (P.COMPLETED, P.ABORTED))
        assert after.model_copy(update={"status": before.status}) == before
        return
    with pytest.raises(IllegalMove) as caught:
        advance(before, to)
    fault = pickle.loads(pickle.dumps(caught.value))
    assert (fault.machine, fault.state, fault.to) == ("packet", state, to)
    assert set(fault.allowed) == set(LEGAL[state])
    assert isinstance(fault, CallerError)
    assert str(state) in fault.message
    assert all(word in fault.message for word in fault.allowed)


@pytest.mark.parametrize("state", P)
def test_what_another_program_finalized_moves_no_more(state: PacketState) -> None:
    for to in P:
        with pytest.raises(IllegalMove, match="at its end"):
            advance(packet(state, finalized=True), to)


@given(st.lists(st.sampled_from(list(P)), max_size=12))
def test_a_packet_that_is_at_its_end_was_ready_or_aborted(moves: list[PacketState]) -> None:
    """Whatever is tried: nothing completes that was not ready to stream, and an end is an end."""
    found, past = packet(P.INITIALIZED), [P.INITIALIZED]
    for to in moves:
        try:
            found = advance(found, to)
        except IllegalMove:
            continue
        past.append(to)
    ends = [state for state in past if state in (P.COMPLETED, P.ABORTED)]
    assert len(ends) <= 1
    assert found.status.finalized is bool(ends)
    if P.COMPLETED in past:
        assert past[-2:] == [P.READY_TO_STREAM, P.COMPLETED]


def test_next_steps_are_kept_until_others_are_given() -> None:
    found = advance(packet(), P.AWAITING_HUMAN, next_steps=["escalate to Prime"])
    assert found.status.next_steps == ("escalate to Prime",)
    assert advance(found, P.PROCESSING).status.next_steps == ("escalate to Prime",)
    assert advance(found, P.PROCESSING, next_steps=()).status.next_steps == ()


def test_a_completed_packet_says_what_it_took() -> None:
    usage = TokenUsage(prompt_tokens=100, completion_tokens=20, total_tokens=7, projected_tokens=30)
    found = complete(packet(P.READY_TO_STREAM), usage, latency_ms=900, cost_estimate=0.02)
    assert (found.status.state, found.status.finalized) == (P.COMPLETED, True)
    assert found.metrics.token_usage.model_dump() == {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "projected_tokens": 30,
    }
    assert (found.metrics.latency_ms, found.metrics.cost_estimate) == (900, 0.02)
    with pytest.raises(IllegalMove):
        complete(packet(P.PROCESSING), usage, latency_ms=1)


def test_moves_touch_nothing_that_was_hashed() -> None:
    found = complete(packet(P.READY_TO_STREAM), TokenUsage(), latency_ms=1)
    assert found.compute_hashes() == found
    assert found.governance.signatures.header_hash


# Its tool


def test_a_tool_is_asked_for_chosen_reviewed_and_run() -> None:
    found = request_tool(packet())
    assert found.tool_routing is not None
    assert (found.tool_routing.needs_tool, found.tool_routing.routing_requested) == (True, True)
    assert status_of(found) == (T.PENDING, P.AWAITING_TOOL)
    assert request_tool(found) == found
    found = select_tool(found, TOOL, [SelectedTool(tool_name="list_dir")])
    assert status_of(found) == (T.AWAITING_CONFIDENCE, P.AWAITING_TOOL)
    found = review_tool(found, 0.7, "fits")
    assert status_of(found) == (T.APPROVED, P.AWAITING_TOOL)
    found = record_result(found, GOOD)
    assert status_of(found) == (T.EXECUTED, P.PROCESSING)
    routing = found.tool_routing
    assert routing is not None
    assert (routing.selected_tool, routing.execution_result, routing.review_reasoning) == (TOOL, GOOD, "fits")
    assert [tool.tool_name for tool in routing.alternative_tools] == ["list_dir"]
    assert found.compute_hashes() == found


@pytest.mark.parametrize(
    ("confidence", "needs_human", "status", "state"),
    [
        (0.7, False, T.APPROVED, P.AWAITING_TOOL),
        (0.6999999, False, T.SKIPPED, P.PROCESSING),
        (0.6999999, True, T.SKIPPED, P.PROCESSING),
        (0.9, True, T.AWAITING_APPROVAL, P.AWAITING_HUMAN),
    ],
)
def test_a_review_below_its_least_confidence_does_not_approve(
    confidence: float, needs_human: bool, status: ToolExecutionStatus, state: PacketState
) -> None:
    found = select_tool(request_tool(packet()), TOOL)
    found = review_tool(found, confidence, "", needs_human=needs_human)
    assert status_of(found) == (status, state)
    assert found.tool_routing is not None
    assert found.tool_routing.review_confidence == confidence


def test_a_confidence_that_is_no_number_approves_nothing() -> None:
    """Mutation: ``confidence < 0.7`` is false for NaN."""
    found = select_tool(request_tool(packet()), TOOL)
    with pytest.raises(ValueError, match="NaN"):
        review_tool(found, float("nan"), "")


@pytest.mark.parametrize(
    ("approved", "status", "state"),
    [(True, T.APPROVED, P.AWAITING_TOOL), (False, T.USER_DENIED, P.PROCESSING)],
)
def test_a_human_says_yes_or_no(approved: bool, status: ToolExecutionStatus, state: PacketState) -> None:
    asked = review_tool(select_tool(request_tool(packet()), TOOL), 0.8, "", needs_human=True)
    assert status_of(answer_tool(asked, approved)) == (status, state)


def test_a_failed_tool_is_failed_and_a_skipped_one_skipped() -> None:
    approved = review_tool(select_tool(request_tool(packet()), TOOL), 0.8, "")
    assert status_of(record_result(approved, BAD)) == (T.FAILED, P.PROCESSING)
    assert status_of(skip_tool(request_tool(packet()))) == (T.SKIPPED, P.PROCESSING)


def ran(found: CognitionPacket) -> CognitionPacket:
    return record_result(review_tool(select_tool(found, TOOL), 0.8, "x"), BAD)


def test_after_three_reinjections_the_tool_is_skipped() -> None:
    """Mutation: ``>`` for ``>=`` gives a fourth."""
    found = ran(request_tool(packet()))
    for count in (1, 2, 3):
        found = reinject(found)
        routing = found.tool_routing
        assert routing is not None
        assert routing.reinjection_count == count
        assert (routing.selected_tool, routing.review_confidence, routing.review_reasoning) == (None, 0.0, "")
        assert routing.execution_result == BAD  # what it thinks over
        assert status_of(found) == (T.PENDING, P.AWAITING_TOOL)
        found = ran(found)
    found = reinject(found)
    assert status_of(found) == (T.SKIPPED, P.PROCESSING)
    assert found.tool_routing is not None
    assert found.tool_routing.reinjection_count == 3
    with pytest.raises(IllegalMove):
        reinject(found)


@pytest.mark.parametrize(
    ("count", "most", "left"),
    [(0, 1, 1), (0, 0, 0), (0, 1000, 3), (-50, 1000, 3), (2, 3, 1), (9, 3, 0), (0, -1, 0)],
)
def test_a_packet_may_ask_for_fewer_reinjections_and_not_for_more(count: int, most: int, left: int) -> None:
    """Mutation: believing a count of -50, or a limit of 1000, that came from outside."""
    routing = ToolRoutingState(reinjection_count=count, max_reinjections=most)
    found, times = ran(request_tool(packet(tool_routing=routing))), 0
    while status_of(found := reinject(found))[0] is T.PENDING:
        times += 1
        found = ran(found)
    assert times == left


CALLS = {
    "request": request_tool,
    "select": lambda found: select_tool(found, TOOL),
    "skip": skip_tool,
    "review": lambda found: review_tool(found, 0.8, ""),
    "approve": lambda found: answer_tool(found, True),
    "deny": lambda found: answer_tool(found, False),
    "record": lambda found: record_result(found, GOOD),
    "reinject": reinject,
}
LEGAL_CALLS = {
    T.PENDING: {"request", "select", "skip"},
    T.AWAITING_CONFIDENCE: {"review", "skip"},
    T.AWAITING_APPROVAL: {"approve", "deny"},
    T.APPROVED: {"record"},
    T.EXECUTED: {"reinject", "skip"},
    T.FAILED: {"reinject", "skip"},
    T.SKIPPED: set(),
    T.USER_DENIED: set(),
}


@each(("call", "status"), product(CALLS, T))
def test_every_call_is_legal_or_says_what_is(status: ToolExecutionStatus, call: str) -> None:
    """Mutation: ``answer_tool`` approving what no review has seen."""
    routing = ToolRoutingState(needs_tool=True, routing_requested=True, execution_status=status)
    before = packet(tools._PACKET_STATE[status], tool_routing=routing)
    if call in LEGAL_CALLS[status]:
        assert CALLS[call](before).tool_routing is not None
        return
    with pytest.raises(IllegalMove) as caught:
        CALLS[call](before)
    assert (caught.value.machine, caught.value.state) == ("tool", status)
    assert caught.value.to not in caught.value.allowed


@given(st.lists(st.sampled_from(sorted(CALLS)), max_size=40))
def test_nothing_runs_that_was_not_approved(calls: list[str]) -> None:
    """Any calls in any order: a result only of what was approved, and never more than three reinjections."""
    found, approved = packet(), False
    for call in calls:
        try:
            after = CALLS[call](found)
        except (IllegalMove, NotDispatched):
            continue
        if call == "record":
            assert approved
        found = after
        assert found.tool_routing is not None
        approved = found.tool_routing.execution_status is T.APPROVED
        assert found.tool_routing.reinjection_count <= tools.REINJECTIONS_MAX
        assert found.status.state is tools._PACKET_STATE[found.tool_routing.execution_status]
    assert set(states.MOVES) == set(P)
    assert set(tools.STATUS_MOVES) == set(T) == set(tools._PACKET_STATE)


def test_a_tool_that_is_not_to_be_had_is_not_chosen() -> None:
    base = packet()
    without = base.model_copy(
        update={
            "header": base.header.model_copy(
                update={"model": base.header.model.model_copy(update={"allow_tools": False})}
            )
        }
    )
    with pytest.raises(NotDispatched, match="allow_tools"):
        request_tool(without)
    context = base.context.model_copy(update={"available_mcp_tools": ("list_dir",)})
    with pytest.raises(NotDispatched, match="'read_file' is no tool it has; these are: list_dir"):
        select_tool(request_tool(packet(context=context)), TOOL)
    with pytest.raises(NotDispatched, match="call request_tool first"):
        select_tool(base, TOOL)


def test_a_tool_is_asked_for_while_the_packet_is_at_work() -> None:
    for state in (P.INITIALIZED, P.READY_TO_STREAM, P.COMPLETED):
        with pytest.raises(IllegalMove):
            request_tool(packet(state))
