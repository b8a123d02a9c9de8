"""Validating OMEN packets: each kind from a dict, beside jsonschema with the exported schema on the same."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from benchmarks.measure import Row, cpu
from council.protocol.omen import PACKETS, read_packet
from council.protocol.omen.schema import schemas
from tests.omen_samples import sample

# Packets a second on one core, for a simple packet (one without an MCP), and how many times jsonschema's figure.
SIMPLE_PER_S = 20_000
TIMES_JSONSCHEMA = 5
INNER = 200


def omen_rows(scale: float = 1.0) -> list[Row]:
    """Packets of each kind a second, full samples; then a simple observation."""
    found = schemas()
    registry: Any = Registry().with_resources(
        (schema["$id"], Resource.from_contents(schema)) for schema in found.values()
    )
    simple = sample("ObservationPacket")
    simple["payload"] = {"observation_type": "tool_output", "data": {"lines": 3}}
    del simple["mcp"], simple["_note"]
    turns = max(int(10 * scale), 3)
    rows = []
    for packet_type in PACKETS:
        theirs = Draft202012Validator(
            found[f"omen/v0.7/packets/{packet_type}.schema.json"], registry=registry
        )
        rows.append(_row(f"{packet_type}, full", sample(packet_type), theirs, turns))
        if packet_type == "ObservationPacket":
            rows.append(_row("a simple observation", simple, theirs, turns, least=SIMPLE_PER_S))
    return rows


def _row(name: str, packet: dict[str, Any], theirs: Any, turns: int, least: int = 0) -> Row:
    mine = _per_s(partial(read_packet, packet), INNER, turns)
    floor = _per_s(partial(theirs.validate, packet), INNER // 20, turns)
    ratio = mine / floor
    bound = f"≥ {TIMES_JSONSCHEMA} times" + (f", ≥ {least:,} /s" if least else "")
    holds = ratio >= TIMES_JSONSCHEMA and mine >= least
    return Row("omen", name, mine, "packets/s", floor, ratio, bound, holds)


def _per_s(work: Any, inner: int, turns: int) -> float:
    """Calls in a second of CPU: the median of some turns."""

    def repeated() -> None:
        for _ in range(inner):
            work()

    repeated()
    return inner / statistics.median(cpu(repeated).total_s for _ in range(turns))
