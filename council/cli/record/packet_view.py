"""Draws cognition packets for a terminal: what each seat was handed, what it answered, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding

from council.cli import render
from council.cli.render import text
from council.kinds.text import line

TEXT_CHARS_MAX = 500  # of each text; --json has all that is kept


def packets(found: Iterable[Mapping[str, Any]]) -> RenderableType:
    """Packets as ``journal.cognition.packets_of`` returns them."""
    parts: list[RenderableType] = []
    for each in found:
        packet = each["packet"]
        head = f"{each['seat']} {each['task']}, round {each['round']}: {packet['status']['state']}"
        facts = ((name, text(line(said, TEXT_CHARS_MAX))) for name, said in _facts(packet))
        parts += [text(head, "bold"), Padding.indent(render.facts(facts), 2)]
    return Group(*parts)


def _facts(packet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    header, metrics, response = packet["header"], packet["metrics"], packet["response"]
    yield "packet", f"{header['packet_id']}, by {header['model']['name']}"
    yield "prompt", packet["content"]["original_prompt"]
    for step in packet["reasoning"]["reflection_log"]:
        yield step["step"], step["summary"]
    if response["candidate"]:
        yield "response", f"{response['candidate']} (confidence {response['confidence']:.2f})"
    if (council := packet["council"]) and council["votes"]:
        votes = ", ".join(f"{vote['agent']} {vote['decision']}" for vote in council["votes"])
        yield "council", f"{council['mode']}: {votes}"
    if (routing := packet["tool_routing"]) and routing["selected_tool"]:
        yield "tool", f"{routing['selected_tool']['tool_name']}: {routing['execution_status']}"
        if result := routing["execution_result"]:
            yield "result", result["output"] if result["success"] else result["error"]
    if loop := packet["loop_state"]:
        yield "loop", f"{loop['loop_type']}: {loop['pattern']}"
    if goals := packet["goal_state"]:
        yield "goal", f"{goals['current_goal']['description']} (turn {goals['turn_count']} of its session)"
    for said in packet["status"]["observer_trace"]:
        yield "observed", said
    tokens = metrics["token_usage"]["total_tokens"]
    yield "used", f"{metrics['latency_ms']:,} ms, {tokens:,} tokens, ${metrics['cost_estimate']:.6f}"
    for error in metrics["errors"]:
        yield "error", error
    for removed in packet["governance"]["privacy"]["pii_redactions"]:
        yield "redacted", f"{removed['count']} {removed['kind']}"
