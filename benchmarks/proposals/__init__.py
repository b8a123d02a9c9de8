"""Twenty proposals, what was said before each, and the facts planted in both. Knows nothing of councils.

Each is a file: a change of the corpus or of this repository, or an action, with what its proposer says of it and the
session that led to it, from nothing to some 20,000 tokens. ``«…»`` marks a fact; the marks are not shown to anybody.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
_FACT = re.compile(r"«([^«»\n]+)»")


@dataclass(frozen=True, slots=True)
class Turn:
    who: str
    text: str


@dataclass(frozen=True, slots=True)
class Planted:
    """A proposal, its session oldest first, and the facts that stand in the one and in the other."""

    name: str
    summary: str
    body: str
    action: Mapping[str, Any] | None
    history: tuple[Turn, ...]
    in_proposal: tuple[str, ...]
    in_history: tuple[str, ...]


def load() -> tuple[Planted, ...]:
    """All twenty, in the order of their names."""
    return tuple(_read(path) for path in sorted(FOLDER.glob("*.toml")))


def _read(path: Path) -> Planted:
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    change = f"\n{_shown(found['change'])}" if "change" in found else ""
    turns = [
        Turn(turn["who"], text)
        for turn in found.get("history", ())
        for text in ([turn["text"].strip()] if "text" in turn else map(_shown, turn["shows"]))
    ]
    return Planted(
        path.stem,
        found["summary"],
        _plain(found["body"].strip()) + change,
        found.get("action"),
        tuple(Turn(turn.who, _plain(turn.text)) for turn in turns),
        tuple(_FACT.findall(found["body"])),
        tuple(fact for turn in turns for fact in _FACT.findall(turn.text)),
    )


def _shown(change: str) -> str:
    return (ROOT / change).read_text(encoding="utf-8")


def _plain(text: str) -> str:
    return _FACT.sub(r"\1", text)
