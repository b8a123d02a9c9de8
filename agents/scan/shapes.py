"""Loads the shapes of private texts: ``rules/secrets.yml`` and ``rules/personal.yml``.

A shape is a bounded regex, and a validator that grades what it matches. The head of secrets.yml explains the keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from council.agents.scan.finding import WEIGHTS, Weight

Grade = Literal["sure", "likely", "fake"]
Family = Literal["secret", "privacy"]
Validator = Callable[..., "Grade | None"]  # of the value, its match, and the validator's own arguments

RULES = Path(__file__).parent / "rules"
CONTEXT_CHARS = 60  # characters before a value that may hold the word that names it
_WEIGHTS: dict[str, Weight] = {"sure": "stop", "likely": "ask"}
_GROUPS = re.compile(r"[ .-]")
_CALL = re.compile(r"(\w+)(?:\((.*)\))?")


@dataclass(frozen=True, slots=True)
class Shape:
    """One row: the shape of a kind of private text. ``weights`` are by grade."""

    id: str
    kind: str
    family: Family
    shape: str
    validator: Validator
    arguments: tuple[str, ...] = ()
    anchor: str = ""
    after: tuple[str, ...] = ()
    without: Grade | None = None
    examples: frozenset[str] = frozenset()
    example_grade: Grade = "fake"
    weights: Mapping[str, Weight] = field(default_factory=lambda: _WEIGHTS)
    named: bool = False
    lenient: bool = False
    message: str = ""

    def find(self, text: str, lower: str) -> Iterator[tuple[Grade, int, int]]:
        """The grade, start and end of each value in ``text``; ``lower`` is the text in lower case."""
        if self.anchor not in text or (
            self.after and not self.without and not any(word in lower for word in self.after)
        ):
            return
        pattern = _compiled(self.shape)
        group = "secret" if "secret" in pattern.groupindex else 0
        for match in pattern.finditer(text):
            if grade := self._grade(match[group], match, match.start(group)):
                yield grade, *match.span(group)

    def _grade(self, value: str, match: re.Match[str], start: int) -> Grade | None:
        if self.examples and _GROUPS.sub("", value) in self.examples:
            return self.example_grade
        grade = self.validator(value, match, *self.arguments)
        if grade and self.after:
            before = match.string[max(0, start - CONTEXT_CHARS) : start].lower()
            return grade if any(word in before for word in self.after) else self.without
        return grade


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Only when a text holds the anchor: compiling all shapes takes longer than most texts."""
    return re.compile(pattern)


def load(file: Path, family: Family, validators: Mapping[str, Validator]) -> list[Shape]:
    """The shapes of a file, in its order. Raises ValueError, which names the file, the row and why."""
    import yaml

    from council.agents.scan.ruleset import Loader

    rows = yaml.load(file.read_bytes(), Loader)
    if not isinstance(rows, list):
        raise ValueError(f"{file.name}: expected a list of rules")
    return [_shape(row, f"{file.name}, rule {at}", family, validators) for at, row in enumerate(rows, 1)]


def _shape(row: Any, place: str, family: Family, validators: Mapping[str, Validator]) -> Shape:
    try:
        given = dict(row)
        place = f"{place} ({given['id']})"
        given.pop("bad"), given.pop("good")
        call = _CALL.fullmatch(given.pop("validator", "token"))
        name, arguments = (call[1], call[2]) if call else ("", None)
        if name not in validators:
            raise ValueError(f"no validator {name!r}; there are {', '.join(sorted(validators))}")
        given["shape"] = _bounded(given["shape"], given.get("anchor", ""), given.pop("edges", "word"))
        given["after"] = tuple(filter(None, given.get("after", "").split("|")))
        given["examples"] = frozenset(given.get("examples", "").split())
        given["weights"] = _WEIGHTS | given.get("weights", {})
        if wrong := set(given["weights"].values()).difference(WEIGHTS):
            raise ValueError(f"weights: expected {', '.join(WEIGHTS)}; found {', '.join(wrong)}")
        own = tuple(part.strip() for part in arguments.split(",")) if arguments else ()
        return Shape(family=family, validator=validators[name], arguments=own, **given)
    except KeyError as error:
        raise ValueError(f"{place}: the key {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from error


def _bounded(shape: str, anchor: str, edges: str) -> str:
    """The shape with what must not stand beside it. A regex that begins with plain text is searched much faster."""
    if edges not in ("word", "start", "none"):
        raise ValueError(f"edges: expected word, start or none; found {edges!r}")
    if edges == "none":
        return shape
    begin = next((each for each in (anchor, re.escape(anchor)) if shape.startswith(each)), "")
    after = "(?![A-Za-z0-9_])" if edges == "word" else ""
    return f"{begin}(?<![A-Za-z0-9_]{begin})(?:{shape[len(begin) :]}){after}"
