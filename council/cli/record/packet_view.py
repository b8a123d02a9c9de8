"""Draws cognition packets for a terminal: what each seat was handed, what it answered, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from council.cli import render
from council.cli.render import text
from council.kinds.text import line

TEXT_CHARS_MAX = 500  # of each text; --json has all that is kept


def packets(found: Iterable[Mapping[str, Any]]) -> RenderableType:
    """Packets as ``Council.packets`` returns them."""
    parts: list[RenderableType] = []
    for each in found:
        packet = each["packet"]
        head = f"{each['seat']}  {each['task']}, round {each['round']}"
        state = packet["status"]["state"]
        style = "green" if state == "completed" else "yellow"
        parts.append(
            Padding(Text.assemble(text(head, "bold"), "  ", text(state, style)), (bool(parts), 0, 0, 0))
        )
        parts.append(
            Padding.indent(
                render.facts((name, text(line(said, TEXT_CHARS_MAX))) for name, said in _facts(packet)), 2
            )
        )
    return Group(*parts)


def _facts(packet: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    header, metrics, usage = packet["header"], packet["metrics"], packet["metrics"]["token_usage"]
    yield "packet", f"{header['packet_id']}, by {header['model']['name']}"
    yield "prompt", packet["content"]["original_prompt"]
    for step in packet["reasoning"]["reflection_log"]:
        yield step["step"], step["summary"]
    response = packet["response"]
    if response["candidate"]:
        yield "response", f"{response['candidate']} (confidence {response['confidence']:.2f})"
    council = packet["council"] or {"votes": []}
    if council["votes"]:
        votes = ", ".join(f"{vote['agent']} {vote['decision']}" for vote in council["votes"])
        yield "council", f"{council['mode']}: {votes}"
    yield from _tool(packet["tool_routing"])
    loop, goal = packet["loop_state"], (packet["goal_state"] or {}).get("current_goal")
    if loop:
        yield "loop", f"{loop['loop_type']}{', over' if loop['in_recovery'] else ''}: {loop['pattern']}"
    if goal:
        shifts = packet["goal_state"]["goal_shifts"]
        yield "goal", f"{goal['description']} (turn {packet['goal_state']['turn_count']}, shifts {shifts})"
    for said in packet["status"]["observer_trace"]:
        yield "observed", said
    used = [f"{metrics['latency_ms']:,} ms"]
    if usage["total_tokens"]:
        used.append(f"{usage['prompt_tokens']:,} tokens read and {usage['completion_tokens']:,} written")
    if metrics["cost_estimate"]:
        used.append(f"${metrics['cost_estimate']:.6f}")
    yield "used", ", ".join(used)
    for error in metrics["errors"]:
        yield "error", error
    if packet["governance"]["privacy"]["pii_redactions"]:
        removed = packet["governance"]["privacy"]["pii_redactions"]
        yield "redacted", ", ".join(f"{each['count']} {each['kind']}" for each in removed)


def _tool(routing: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    if routing is None or routing["selected_tool"] is None:
        return
    yield "tool", f"{routing['selected_tool']['tool_name']}: {routing['execution_status']}"
    result = routing["execution_result"]
    if result is not None:
        said = result["output"] if result["success"] else result["error"]
        yield (
            "result",
            f"{said} (put back {routing['reinjection_count']} of {routing['max_reinjections']} times)",
        )
