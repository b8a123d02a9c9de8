"""The steps of a packet's life after it was built. Each function returns a changed copy and reads no clock.

A packet is PROCESSING while a mind works on it, and ends COMPLETED or ABORTED. Its tool waits for the council's
decision, is approved or not, and is executed or fails. At most ``max_reinjections`` results are put back into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from council.protocol.cognition.packet import CognitionPacket
from council.protocol.cognition.parts import (
    Council,
    Model,
    ReflectionLog,
    SelectedTool,
    ToolExecutionResult,
    ToolRoutingState,
    Vote,
)
from council.protocol.cognition.vocabulary import PacketState, TargetEngine, ToolExecutionStatus

# The words for a vote in an envelope and in a packet (the fields' document: one mapping, in one place).
DECISIONS = {"yes": "approve", "no": "reject", "abstain": "abstain"}


def began(packet: CognitionPacket, seat: str, model: Mapping[str, Any]) -> CognitionPacket:
    """The mind of a seat works on the packet; ``model`` are fields of ``header.model``."""
    engine = next((each for each in TargetEngine if each.casefold() == seat), TargetEngine.COUNCIL)
    routing = packet.header.routing.model_copy(update={"target_engine": engine})
    packet = _with(packet, "header", routing=routing, model=Model.from_dict(model))
    return _with(packet, "status", state=PacketState.PROCESSING)


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


def voted(
    packet: CognitionPacket, votes: Iterable[tuple[str, str, str, float]], mode: str
) -> CognitionPacket:
    """The packet after one more round, with the votes that its seat knows: seat, vote, reason, confidence."""
    before = packet.council or Council()
    known = tuple(
        Vote(agent=seat, decision=DECISIONS[vote], reason=reason, confidence=confidence)
        for seat, vote, reason, confidence in votes
    )
    section = Council(
        mode=mode,
        participants=tuple(vote.agent for vote in known) or before.participants,
        votes=known or before.votes,
        iteration_count=before.iteration_count + 1,
    )
    return packet.model_copy(update={"council": section})


def ended(
    packet: CognitionPacket, *, error: str, latency_ms: int, tokens: int, output_tokens: int, dollars: float
) -> CognitionPacket:
    """The packet after a round: COMPLETED, or ABORTED if there is an ``error``. The figures are added to its own."""
    metrics, usage = packet.metrics, packet.metrics.token_usage
    usage = usage.model_copy(
        update={
            "prompt_tokens": usage.prompt_tokens + tokens - output_tokens,
            "completion_tokens": usage.completion_tokens + output_tokens,
            "total_tokens": usage.total_tokens + tokens,
        }
    )
    packet = _with(
        packet,
        "metrics",
        token_usage=usage,
        latency_ms=metrics.latency_ms + latency_ms,
        cost_estimate=(metrics.cost_estimate or 0.0) + dollars,
        errors=(*metrics.errors, error) if error else metrics.errors,
    )
    state = PacketState.ABORTED if error else PacketState.COMPLETED
    return _with(packet, "status", finalized=True, state=state)


def selected(
    packet: CognitionPacket, tool: str, params: Mapping[str, Any], why: str, confidence: float
) -> CognitionPacket:
    """The packet with the tool that is asked for; it waits until the council has decided."""
    choice = SelectedTool(
        tool_name=tool, params=params, selection_reasoning=why, selection_confidence=confidence
    )
    routing = ToolRoutingState(
        needs_tool=True,
        routing_requested=True,
        selected_tool=choice,
        execution_status=ToolExecutionStatus.AWAITING_CONFIDENCE,
    )
    return packet.model_copy(update={"tool_routing": routing})


def executed(routing: ToolRoutingState, result: ToolExecutionResult) -> ToolRoutingState:
    """The state with a result that is put back into the packet. After the last that may be, the tool is skipped."""
    if routing.reinjection_count >= routing.max_reinjections:
        return routing.model_copy(update={"execution_status": ToolExecutionStatus.SKIPPED})
    return routing.model_copy(
        update={
            "execution_status": ToolExecutionStatus.EXECUTED
            if result.success
            else ToolExecutionStatus.FAILED,
            "execution_result": result,
            "reinjection_count": routing.reinjection_count + 1,
        }
    )


def _with(packet: CognitionPacket, part: str, **fields: Any) -> CognitionPacket:
    """The packet with these fields in one of its parts."""
    return packet.model_copy(update={part: getattr(packet, part).model_copy(update=fields)})
