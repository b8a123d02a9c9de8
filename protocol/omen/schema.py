"""JSON Schemas (draft 2020-12) of the wire formats, made from the models, so that other languages can validate.

What a schema can't say is checked on reading only: the depth and the total size of free JSON objects, days that a
month does not have, halves of surrogate pairs, and in cognition packets and envelopes the rules of their texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from council.protocol.answer.sections import ControlPacket
from council.protocol.cognition.packet import CognitionPacket
from council.protocol.envelope import BODIES, Envelope
from council.protocol.omen.mcp import MCP, PacketHeader
from council.protocol.omen.packets import PACKETS
from council.protocol.packet import PacketEnvelope

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_LOCAL = "#/$defs/"
# What is exported. OMEN's folders are those of the schema index.
_FORMATS: dict[str, type[BaseModel]] = {
    "omen/v0.7/header/PacketHeader": PacketHeader,
    "omen/v0.7/mcp/MCP": MCP,
    **{f"omen/v0.7/packets/{name}": packet for name, packet in PACKETS.items()},
    "envelope/Envelope": Envelope,
    **{f"envelope/{body.__name__}": body for body in BODIES.values()},
    "control/ControlPacket": ControlPacket,
    "cognition/CognitionPacket": CognitionPacket,
    "journal/PacketEnvelope": PacketEnvelope,
}


class _Generator(GenerateJsonSchema):
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - a frozen object; the base class declares a set


def schemas() -> dict[str, dict[str, Any]]:
    """The schema of each format, by the path of its file: ``omen/v0.7/packets/DecisionPacket.schema.json``."""
    return {f"{path}.schema.json": _schema(path, model) for path, model in _FORMATS.items()}


def _id(path: str) -> str:
    return f"urn:council-runtime:schema:{path.replace('/', ':')}"


def _schema(path: str, model: type[BaseModel]) -> dict[str, Any]:
    found = model.model_json_schema(schema_generator=_Generator)
    if model is Envelope:
        found["allOf"] = [
            {
                "if": {"properties": {"type": {"const": word}}},
                "then": {"properties": {"content": {"$ref": f"{_LOCAL}{body.__name__}"}}},
            }
            for word, body in BODIES.items()
        ]
    shared = {each.__name__: _id(place) for place, each in _FORMATS.items() if _top(place) == _top(path)}
    parts = found.pop("$defs", {})
    for node in (*_nodes(found), *_nodes(parts)):
        name = str(node.get("$ref", "")).removeprefix(_LOCAL)
        if name in shared:
            node["$ref"] = shared[name]
    used = _reached(found, parts)
    whole = {"$schema": DRAFT, "$id": _id(path), **found}
    return whole | {"$defs": {name: parts[name] for name in sorted(used)}} if used else whole


def _top(path: str) -> str:
    """The folder of a family of formats. Within it schemas refer to each other; names are unique there."""
    return path.partition("/")[0]


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in a schema."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _nodes(inner)


def _reached(value: Any, parts: dict[str, Any]) -> set[str]:
    """The names of the parts that a schema refers to, directly or through others."""
    found: set[str] = set()
    waiting = [value]
    while waiting:
        for node in _nodes(waiting.pop()):
            reference = str(node.get("$ref", ""))
            name = reference.removeprefix(_LOCAL)
            if reference.startswith(_LOCAL) and name not in found:
                found.add(name)
                waiting.append(parts[name])
    return found
