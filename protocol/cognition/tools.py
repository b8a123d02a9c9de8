"""Lifecycle step 5, a packet's tool: requested, selected, reviewed, approved, executed, and its result considered.

Knows nothing of what a tool does. An approval here does not permit execution: that needs a decision and a token
(rules 5). Meanwhile the packet waits for the tool, or for a human.
token (rules 5). While it is under way the packet waits for it, or for a human.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from council.protocol.cognition.packet import CognitionPacket
from council.protocol.cognition.parts import SelectedTool, ToolExecutionResult, ToolRoutingState
from council.protocol.cognition.states import advance, check_move, not_dispatched
from council.protocol.cognition.vocabulary import PacketState, SystemTask, ToolExecutionStatus
from council.protocol.values import quoted

# A review with a lower confidence does not approve; exactly this one does.
REVIEW_CONFIDENCE_MIN = 0.7
# A packet may set fewer, but not more: each is another round of model calls.
REINJECTIONS_MAX = 3

_T = ToolExecutionStatus

STATUS_MOVES: Mapping[ToolExecutionStatus, tuple[ToolExecutionStatus, ...]] = MappingProxyType(
    {
        _T.PENDING: (_T.AWAITING_CONFIDENCE, _T.SKIPPED),
        _T.AWAITING_CONFIDENCE: (_T.APPROVED, _T.AWAITING_APPROVAL, _T.SKIPPED),
        _T.AWAITING_APPROVAL: (_T.APPROVED, _T.USER_DENIED),
        _T.APPROVED: (_T.EXECUTED, _T.FAILED),
        _T.EXECUTED: (_T.PENDING, _T.SKIPPED),
        _T.FAILED: (_T.PENDING, _T.SKIPPED),
        _T.SKIPPED: (),
        _T.USER_DENIED: (),
    }
)
# The packet's own state meanwhile.
_PACKET_STATE: Mapping[ToolExecutionStatus, PacketState] = MappingProxyType(
    {
        _T.PENDING: PacketState.AWAITING_TOOL,
        _T.AWAITING_CONFIDENCE: PacketState.AWAITING_TOOL,
        _T.AWAITING_APPROVAL: PacketState.AWAITING_HUMAN,
        _T.APPROVED: PacketState.AWAITING_TOOL,
        _T.EXECUTED: PacketState.PROCESSING,
        _T.FAILED: PacketState.PROCESSING,
        _T.SKIPPED: PacketState.PROCESSING,
        _T.USER_DENIED: PacketState.PROCESSING,
    }
)


def request_tool(packet: CognitionPacket) -> CognitionPacket:
    """The packet, waiting for a selection. Raises IllegalMove; NotDispatched if its model may use no tool."""
    if not packet.header.model.allow_tools:
        raise not_dispatched(
            packet, SystemTask.TOOL_ROUTING, "its model may use no tools (header.model.allow_tools)"
        )
    routing = packet.tool_routing or ToolRoutingState()
    _check_only(routing, _T.PENDING, _T.PENDING)
    routing = routing.model_copy(update={"needs_tool": True, "routing_requested": True})
    return _waiting(packet.model_copy(update={"tool_routing": routing}), PacketState.AWAITING_TOOL)


def select_tool(
    packet: CognitionPacket, tool: SelectedTool, alternatives: Sequence[SelectedTool] = ()
) -> CognitionPacket:
    """The packet with a selected tool, to be reviewed. Raises IllegalMove, NotDispatched for a forbidden tool."""
    known = packet.context.available_mcp_tools
    if known is not None and tool.tool_name not in known:
        names = ", ".join(known) or "none"
        raise not_dispatched(
            packet, SystemTask.TOOL_ROUTING, f"{quoted(tool.tool_name)} is no tool it has; these are: {names}"
        )
    return _moved(packet, _T.AWAITING_CONFIDENCE, selected_tool=tool, alternative_tools=tuple(alternatives))


def skip_tool(packet: CognitionPacket) -> CognitionPacket:
    """The packet, continuing without a tool because none fits. Raises IllegalMove."""
    return _moved(packet, _T.SKIPPED)


def review_tool(
    packet: CognitionPacket, confidence: float, reasoning: str, *, needs_human: bool = False
) -> CognitionPacket:
    """The packet after the review: approved, waiting for a human's approval, or skipped. Raises IllegalMove."""
    if not confidence >= REVIEW_CONFIDENCE_MIN:
        to = _T.SKIPPED
    else:
        to = _T.AWAITING_APPROVAL if needs_human else _T.APPROVED
    _check_only(_routing(packet), _T.AWAITING_CONFIDENCE, to)  # a review must not replace a human's answer
    return _moved(packet, to, review_confidence=confidence, review_reasoning=reasoning)


def answer_tool(packet: CognitionPacket, approved: bool) -> CognitionPacket:
    """The packet with a human's answer. Raises IllegalMove if none was requested."""
    to = _T.APPROVED if approved else _T.USER_DENIED
    _check_only(_routing(packet), _T.AWAITING_APPROVAL, to)
    return _moved(packet, to)


def record_result(packet: CognitionPacket, result: ToolExecutionResult) -> CognitionPacket:
    """The packet with its tool's result. Raises IllegalMove for a tool that was not approved."""
    return _moved(packet, _T.EXECUTED if result.success else _T.FAILED, execution_result=result)


def reinject(packet: CognitionPacket) -> CognitionPacket:
    """The packet with a request for another tool. It keeps the last tool's result.

    After the third time (or fewer, if it says so) the tool is skipped instead. Raises IllegalMove.
    """
    routing = _routing(packet)
    done = max(0, routing.reinjection_count)
    if done >= min(routing.max_reinjections, REINJECTIONS_MAX):
        return _moved(packet, _T.SKIPPED)
    again = {"selected_tool": None, "review_confidence": 0.0, "review_reasoning": ""}
    return _moved(packet, _T.PENDING, reinjection_count=done + 1, **again)


def _moved(packet: CognitionPacket, to: ToolExecutionStatus, **more: Any) -> CognitionPacket:
    routing = _routing(packet)
    check_move("tool", routing.execution_status, to, STATUS_MOVES[routing.execution_status])
    routing = routing.model_copy(update={"execution_status": to, **more})
    return _waiting(packet.model_copy(update={"tool_routing": routing}), _PACKET_STATE[to])


def _check_only(routing: ToolRoutingState, place: ToolExecutionStatus, to: ToolExecutionStatus) -> None:
    """Raises IllegalMove unless the tool's state is ``place``, the only one from which this call leads to ``to``."""
    status = routing.execution_status
    if status is not place:
        check_move("tool", status, to, [word for word in STATUS_MOVES[status] if word is not to])


def _waiting(packet: CognitionPacket, state: PacketState) -> CognitionPacket:
    if packet.status.state is state and not packet.status.finalized:
        return packet
    return advance(packet, state)


def _routing(packet: CognitionPacket) -> ToolRoutingState:
    if packet.tool_routing is None or not packet.tool_routing.routing_requested:
        raise not_dispatched(
            packet, SystemTask.TOOL_ROUTING, "no tool was asked for; call request_tool first"
        )
    return packet.tool_routing
