"""The states of a cognition packet. Knows the moves, not the work between them.

initialized → processing ⇄ awaiting_tool ⇄ awaiting_human → ready_to_stream → completed
and from each of them, before it is completed, → aborted
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

from council.protocol.cognition.packet import CognitionPacket
from council.protocol.cognition.parts import TokenUsage
from council.protocol.cognition.vocabulary import PacketState, SystemTask
from council.protocol.errors import IllegalMove, NotDispatched
from council.protocol.values import quoted

S = TypeVar("S", bound=StrEnum)
_P = PacketState

# A tool's result and a human's answer lead back to processing. A packet that is ready to stream is only delivered.
MOVES: Mapping[PacketState, tuple[PacketState, ...]] = MappingProxyType(
    {
        _P.INITIALIZED: (_P.PROCESSING, _P.ABORTED),
        _P.PROCESSING: (_P.AWAITING_TOOL, _P.AWAITING_HUMAN, _P.READY_TO_STREAM, _P.ABORTED),
        _P.AWAITING_TOOL: (_P.PROCESSING, _P.AWAITING_HUMAN, _P.ABORTED),
        _P.AWAITING_HUMAN: (_P.PROCESSING, _P.AWAITING_TOOL, _P.READY_TO_STREAM, _P.ABORTED),
        _P.READY_TO_STREAM: (_P.COMPLETED, _P.ABORTED),
        _P.COMPLETED: (),
        _P.ABORTED: (),
    }
)


def advance(
    packet: CognitionPacket, to: PacketState, *, next_steps: Sequence[str] | None = None
) -> CognitionPacket:
    """The packet in state ``to``, finalized if that is an end, with ``next_steps`` in place of its own.

    Raises IllegalMove.
    """
    status = packet.status
    # A packet that another program finalized in an intermediate state is at its end too.
    check_move("packet", status.state, to, () if status.finalized else MOVES[status.state])
    steps = status.next_steps if next_steps is None else tuple(next_steps)
    moved = status.model_copy(update={"state": to, "finalized": not MOVES[to], "next_steps": steps})
    return packet.model_copy(update={"status": moved})


def complete(
    packet: CognitionPacket, usage: TokenUsage, *, latency_ms: int, cost_estimate: float | None = None
) -> CognitionPacket:
    """The completed packet with its costs: tokens, milliseconds, and money if that is known.

    The total of tokens is prompt plus completion, whatever ``usage`` says. Raises IllegalMove.
    """
    total = usage.prompt_tokens + usage.completion_tokens
    spent = {
        "token_usage": usage.model_copy(update={"total_tokens": total}),
        "latency_ms": latency_ms,
        "cost_estimate": cost_estimate,
    }
    done = advance(packet, PacketState.COMPLETED, next_steps=())
    return done.model_copy(update={"metrics": packet.metrics.model_copy(update=spent)})


def check_move(machine: str, state: S, to: S, allowed: Collection[S]) -> None:
    """Raises IllegalMove unless ``to`` is in ``allowed``."""
    if to in allowed:
        return
    words = tuple(str(word) for word in allowed)
    left = f"allowed are {', '.join(words)}" if words else "it is at its end"
    raise IllegalMove(
        f"{machine}: no move from {state} to {to}; {left}",
        machine=machine,
        state=str(state),
        to=str(to),
        allowed=words,
    )


def not_dispatched(packet: CognitionPacket, task: SystemTask, why: str) -> NotDispatched:
    """The error for a packet that can't be dispatched for a task."""
    return NotDispatched(f"packet {quoted(packet.header.packet_id)}: {why}", task=str(task))
