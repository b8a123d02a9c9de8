"""The steps of a packet's life after it was built. Each function returns a changed copy and reads no clock.

A packet is PROCESSING while a mind works on it, and ends COMPLETED or ABORTED. Its tool waits for the council's
decision, is approved or not, and is executed or fails. At most ``max_reinjections`` results are put back into it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from council.protocol.cognition.packet import CognitionPacket
from council.protocol.cognition.parts import (
    Council,
    ReflectionLog,
    SelectedTool,
    TokenUsage,
    ToolExecutionResult,
    ToolRoutingState,
    Vote,
)
from council.protocol.cognition.vocabulary import PacketState, ToolExecutionStatus

# The words for a vote in an envelope and in a packet (the fields' document: one mapping, in one place).
DECISIONS = {"yes": "approve", "no": "reject", "abstain": "abstain"}


def began(packet: CognitionPacket) -> CognitionPacket:
    """A mind works on the packet."""
    return _with(packet, "status", finalized=False, state=PacketState.PROCESSING)


def traced(packet: CognitionPacket, line: str) -> CognitionPacket:
    """The packet with one more line of what an observer said."""
    return _with(packet, "status", observer_trace=(*packet.status.observer_trace, line))


def reflected(
    packet: CognitionPacket, step: str, summary: str, confidence: float | None = None
) -> CognitionPacket:
    """The packet with one more step of reasoning."""
    log = ReflectionLog(step=step, summary=summary, confidence=confidence)
    return _with(packet, "reasoning", reflection_log=(*packet.reasoning.reflection_log, log))


def answered(packet: CognitionPacket, candidate: str, confidence: float) -> CognitionPacket:
    """The packet with its response. An earlier response becomes a step of reasoning."""
    if (before := packet.response).candidate:
        packet = reflected(packet, "response", before.candidate, before.confidence)
    return _with(packet, "response", candidate=candidate, confidence=confidence)


def voted(packet: CognitionPacket, votes: Sequence[Vote], mode: str) -> CognitionPacket:
    """The packet with the votes as its seat knows them, after one more round. Without ``votes`` the earlier stay."""
    before = packet.council or Council()
    votes = tuple(votes) or before.votes
    section = Council(
        mode=mode,
        participants=tuple(vote.agent for vote in votes),
        votes=votes,
        iteration_count=before.iteration_count + 1,
    )
    return packet.model_copy(update={"council": section})


def ended(
    packet: CognitionPacket,
    *,
    error: str = "",
    latency_ms: int,
    usage: TokenUsage,
    cost_dollars: float | None,
) -> CognitionPacket:
    """The packet with its final metrics: COMPLETED, or ABORTED if there is an ``error``. ``latency_ms`` is added."""
    metrics = packet.metrics
    packet = _with(
        packet,
        "metrics",
        token_usage=usage,
        latency_ms=metrics.latency_ms + latency_ms,
        cost_estimate=cost_dollars,
        errors=(*metrics.errors, error) if error else metrics.errors,
    )
    state = PacketState.ABORTED if error else PacketState.COMPLETED
    return _with(packet, "status", finalized=True, state=state)


# The packet's tool


def selected(
    routing: ToolRoutingState | None, tool: str, params: Mapping[str, Any], why: str, confidence: float
) -> ToolRoutingState:
    """The tool that is asked for; it waits until it is reviewed."""
    choice = SelectedTool(
        tool_name=tool, params=params, selection_reasoning=why, selection_confidence=confidence
    )
    return (routing or ToolRoutingState()).model_copy(
        update={
            "needs_tool": True,
            "routing_requested": True,
            "selected_tool": choice,
            "execution_status": ToolExecutionStatus.AWAITING_CONFIDENCE,
        }
    )


def executed(routing: ToolRoutingState, result: ToolExecutionResult) -> ToolRoutingState:
    """The result of an execution is put back into the packet. After the last that may be, the tool is skipped."""
    if routing.reinjection_count >= routing.max_reinjections:
        return routing.model_copy(update={"execution_status": ToolExecutionStatus.SKIPPED})
    status = ToolExecutionStatus.EXECUTED if result.success else ToolExecutionStatus.FAILED
    return routing.model_copy(
        update={
            "execution_status": status,
            "execution_result": result,
            "reinjection_count": routing.reinjection_count + 1,
        }
    )


def _with(packet: CognitionPacket, part: str, **fields: Any) -> CognitionPacket:
    """The packet with these fields in one of its parts."""
    return packet.model_copy(update={part: getattr(packet, part).model_copy(update=fields)})
