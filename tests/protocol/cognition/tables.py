"""The field tables of CognitionPacket v0.3, as data (``fields.json``), and packets generated from them alone.

Knows nothing of the models: what is generated here is what another program could write.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

HERE = Path(__file__).resolve().parent
TABLES = json.loads((HERE / "fields.json").read_text(encoding="utf-8"))
ENUMS: dict[str, dict[str, str]] = TABLES["enums"]
PARTS: dict[str, list[list[Any]]] = TABLES["parts"]
SAMPLES = sorted(HERE.glob("v03_*.json"))

NOW = datetime(2026, 11, 21, 12, 0, 0, 250, tzinfo=UTC)
ID = "0123456789abcdef"

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
INTS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=2)
SCALARS = {"str": TEXTS, "int": INTS, "float": INTS | FLOATS, "bool": st.booleans(), "Any": JSON}


def values(kind: str) -> st.SearchStrategy[Any]:
    """What a field of this type may hold."""
    if kind in SCALARS:
        return SCALARS[kind]
    if kind in ("dict", "Dict[str, Any]"):
        return OBJECTS
    if kind.startswith("Optional["):
        return st.none() | values(kind[9:-1])
    if kind.startswith("List["):
        return st.lists(values(kind[5:-1]), max_size=2)
    if kind in ENUMS:
        return st.sampled_from(list(ENUMS[kind].values()))
    return parts(kind)


def parts(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Any part of this name, whole, with keys that no table has."""
    known = {row[0] for row in PARTS[name]}
    unknown = st.dictionaries(TEXTS.filter(lambda key: key not in known), JSON, max_size=1)
    fields = st.fixed_dictionaries(
        {row[0]: st.deferred(lambda row=row: values(row[1])) for row in PARTS[name]}
    )
    return st.builds(lambda one, more: one | more, fields, unknown)


def required(name: str) -> dict[str, Any]:
    """The least that a part of this name holds."""
    return {row[0]: one(row[1]) for row in PARTS[name] if len(row) == 2}


def one(kind: str) -> Any:
    """Some value of this type."""
    plain = {
        "str": "x",
        "int": 7,
        "float": 0.5,
        "bool": True,
        "Any": [1],
        "dict": {},
        "Dict[str, Any]": {"a": 1},
    }
    if kind in plain:
        return plain[kind]
    if kind.startswith("Optional["):
        return one(kind[9:-1])
    if kind.startswith("List["):
        return [one(kind[5:-1])]
    if kind in ENUMS:
        return next(iter(ENUMS[kind].values()))
    return required(kind) | ({"datetime": "2026", "sub_id": "0"} if kind == "Header" else {})


def wrong(kind: str) -> list[Any]:
    """Values that are none of this type, though a loose reader would take some of them."""
    if kind in ("Any", "Optional[Any]"):
        return [float("nan"), "a\0b"]
    if kind.startswith("Optional["):
        return [value for value in wrong(kind[9:-1]) if value is not None]
    if kind.startswith("List["):
        return [None, "abc", {}, 1, [wrong(kind[5:-1])[0]]]
    if kind in ENUMS:
        member, value = next(iter(ENUMS[kind].items()))
        other_case = value.upper() if value != value.upper() else value.lower()
        return [None, member if member != value else "?", other_case, f" {value}", 0, True]
    return {
        "str": [None, 1, True, ["x"], "a\0b"],
        "int": [None, "1", 1.0, True, 2**64],
        "float": [None, "0.5", True, float("nan"), float("inf"), 10**400],
        "bool": [None, "false", 0, 1, "x"],
        "dict": [None, [], "x", {"a": float("nan")}],
        "Dict[str, Any]": [None, [], "x", 1, {"a": float("nan")}],
    }.get(kind, [None, [], "x", 1])


def factory() -> str:
    """The packet of another program's factory, with its hashes."""
    return (HERE / "v03_factory_web.json").read_text(encoding="utf-8")
