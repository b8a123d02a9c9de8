"""Loads the tables in ``rules/``. ``Rule`` is what the rows about commands, flows and SQL have in common."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from council.agents.scan.finding import WEIGHTS, Family, Weight
from council.agents.scan.ruleset import Loader

_T = TypeVar("_T")


class Rule(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A row that is a finding. ``message`` says what it is, then what to do.

    ``bad`` and ``good`` are examples, one a line: each of ``bad`` must give this finding, none of ``good`` may.
    ``in_files`` is the weight in a file, because a file is reviewed before it runs. With ``reach``, the weight shifts
    by one step: up for production, down for test systems.
    """

    id: str
    weight: Weight
    family: Family
    message: str
    bad: str
    good: str
    cwe: int = 0
    in_files: Weight | None = None
    reach: bool = False


def load(path: Path) -> Any:
    """The YAML of a file. Raises ValueError, which names the file, line and why, if it can't be read."""
    try:
        return yaml.load(path.read_text("utf-8"), Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name}: {error}") from error


def convert(item: Any, kind: type[_T], place: str) -> _T:
    """Loaded YAML as a type. Raises ValueError, which begins with ``place``, if it does not fit the type."""
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{place}: {error}") from error


@cache
def table(name: str) -> dict[str, str]:
    """A file of rules/ that has a text by name."""
    return convert(load(Path(__file__).parent / "rules" / name), dict[str, str], name)


@cache
def word_list(name: str) -> frozenset[str]:
    """The words of a table of rules/words.yml."""
    return frozenset(table("words.yml")[name].split())


def word_set(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


_REACH = {
    name: re.compile(rf"(?<![a-z0-9])(?:{words})(?![a-z0-9])") for name, words in table("reach.yml").items()
}


def reach(text: str) -> Literal["limited", "wide", "unsaid"]:
    """Whether words name production and everybody, or only staging, tests and the like."""
    low = text.lower()
    if _REACH["wide"].search(low):
        return "wide"
    return "limited" if _REACH["limited"].search(low) else "unsaid"


def shifted(weight: Weight, around: str) -> Weight | None:
    """A weight one step up if the words around name production, one down for test systems; below a note, None."""
    at = max(WEIGHTS.index(weight) + {"wide": -1, "limited": 1}.get(reach(around), 0), 0)
    return WEIGHTS[at] if at < len(WEIGHTS) else None
