"""Loads the shapes of private texts from ``rules/secrets.yml`` and ``rules/personal.yml``, and finds them.

A shape is a bounded regex, and a validator that grades what it matches. One pass (Aho-Corasick) finds the words of
all shapes in a text. A shape is tried only where one of its words stands. The head of secrets.yml explains the keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ahocorasick_rs import BytesAhoCorasick

from council.agents.scan.finding import WEIGHTS, Weight

Grade = Literal["sure", "likely", "fake"]
Family = Literal["secret", "privacy"]
Validator = Callable[..., "Grade | None"]  # of the value, its match, and the validator's own arguments

RULES = Path(__file__).parent / "rules"
BEFORE_MAX = 100  # characters of ``before`` that are read
NUMBER_MAX = 40  # the longest number that a word before it makes private, and what is read behind it
_WEIGHTS: dict[str, Weight] = {"sure": "stop", "likely": "ask"}
_GROUPS = re.compile(r"[ .-]")
_FOLDED = bytes(range(256)).lower().translate(bytes.maketrans(b"123456789", b"000000000"))
_CALL = re.compile(r"(\w+)(?:\((.*)\))?")


@dataclass(frozen=True)
class Shape:
    """One row: the shape of a kind of private text. ``weights`` are by grade."""

    id: str
    kind: str
    family: Family
    shape: str
    validator: Validator
    anchor: str = ""
    before: str = ""
    after: tuple[str, ...] = ()
    within: int = 60
    without: Grade | None = None
    examples: Mapping[str, Grade] = field(default_factory=dict)
    weights: Mapping[str, Weight] = field(default_factory=lambda: _WEIGHTS)
    named: bool = False
    lenient: bool = False
    message: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled only when a text holds an anchor: compiling all shapes takes longer than most texts."""
        return re.compile(self.shape)

    @cached_property
    def words(self) -> tuple[bytes, ...]:
        """What marks a place for the shape, in ASCII and lower case; () if it is tried anywhere."""
        if self.anchor:
            return tuple(map(in_bytes, _spelled_out(self.anchor)))
        return () if self.without else tuple(map(in_bytes, self.after))

    def grade(self, value: str, match: re.Match[str], start: int) -> Grade | None:
        """How much a value that begins at ``start`` looks private; None if it does not."""
        if self.examples and (known := self.examples.get(_GROUPS.sub("", value))):
            return known
        grade = self.validator(value, match)
        if grade and self.after:
            before = match.string[max(0, start - self.within) : start].lower()
            return grade if any(word in before for word in self.after) else self.without
        return grade


class Found(NamedTuple):
    """A value in a text, from ``start`` to ``end``. ``order`` is the place of its shape among all."""

    order: int
    start: int
    end: int
    shape: Shape
    grade: Grade


class Finder:
    """Finds the values of some shapes in texts. The time is linear in the length of the text."""

    def __init__(self, shapes: Iterable[Shape]) -> None:
        self._shapes = list(enumerate(shapes))
        by_word: dict[bytes, list[tuple[int, Shape, str]]] = {}
        for order, shape in self._shapes:
            for word in shape.words:
                by_word.setdefault(word, []).append((order, shape, _characters(shape.before)))
        self._of_word = list(by_word.values())
        self._words = BytesAhoCorasick(list(by_word))

    def find(self, text: str) -> list[Found]:
        """The values, in the order of their shapes, then of their places. They may overlap."""
        found: list[Found] = []
        windows: dict[int, list[list[int]]] = {}
        ends: dict[int, int] = {}  # where the last match of each shape ends
        for word, start, end in self._words.find_matches_as_indexes(in_bytes(text), overlapping=True):
            for order, shape, before in self._of_word[word]:
                if not shape.anchor:
                    _widen(windows.setdefault(order, []), end, start + shape.within)
                    continue
                begin = start
                if before:
                    head = text[max(0, start - BEFORE_MAX) : start]
                    begin -= len(head) - len(head.rstrip(before))
                if begin >= ends.get(order, 0) and (match := shape.pattern.match(text, begin)):
                    ends[order] = match.end()
                    _add(found, order, shape, match)
        for order, shape in self._shapes:
            if not shape.words:
                windows[order] = [[0, len(text)]]
            for first, last in windows.get(order, ()):
                for match in shape.pattern.finditer(text, first, last + NUMBER_MAX):
                    if match.start() <= last:
                        _add(found, order, shape, match)
        return sorted(found, key=lambda each: each[:2])


def _add(found: list[Found], order: int, shape: Shape, match: re.Match[str]) -> None:
    group = "secret" if "secret" in shape.pattern.groupindex else 0
    start, end = match.span(group)
    if grade := shape.grade(match[group], match, start):
        found.append(Found(order, start, end, shape, grade))


def _widen(windows: list[list[int]], first: int, last: int) -> None:
    if windows and first <= windows[-1][1]:
        windows[-1][1] = last
    else:
        windows.append([first, last])


def in_bytes(text: str) -> bytes:
    """One byte for each character: the lowest of its code point, in lower case, and "0" for each digit."""
    one_each = text.encode() if text.isascii() else text.encode("utf-32-le", "surrogatepass")[::4]
    return one_each.translate(_FOLDED)


def _spelled_out(anchor: str) -> list[str]:
    """The words of an anchor: ``gh[ps]_|glc_`` are ghp_, ghs_ and glc_."""
    return [
        "".join(word)
        for each in anchor.split("|")
        for word in product(
            *(
                _characters(part[1:-1]) if part[0] == "[" else [part]
                for part in re.findall(r"\[.+?\]|[^\[]+", each)
            )
        )
    ]


def _characters(ranges: str) -> str:
    """What a class of characters matches: ``0-9.`` is 0123456789 and a dot."""
    return "".join(filter(re.compile(f"[{ranges}]").match, map(chr, range(128)))) if ranges else ""


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
        given["shape"] = _bounded(given["shape"], given.pop("edges", "word"))
        given["after"] = tuple(filter(None, given.get("after", "").split("|")))
        given["examples"] = dict.fromkeys(
            given.get("examples", "").split(), given.pop("example_grade", "fake")
        )
        given["weights"] = _WEIGHTS | given.get("weights", {})
        if wrong := set(given["weights"].values()).difference(WEIGHTS):
            raise ValueError(f"weights: expected {', '.join(WEIGHTS)}; found {', '.join(wrong)}")
        own = [part.strip() for part in arguments.split(",")] if arguments else []
        return Shape(family=family, validator=_with(validators[name], own), **given)
    except KeyError as error:
        raise ValueError(f"{place}: the key {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from error


_EDGES = {
    "word": ("(?<![A-Za-z0-9_])", "(?![A-Za-z0-9_])"),
    "start": ("(?<![A-Za-z0-9_])", ""),
    "none": ("", ""),
}


def _with(validator: Validator, arguments: list[str]) -> Validator:
    return (lambda value, match: validator(value, match, *arguments)) if arguments else validator


def _bounded(shape: str, edges: str) -> str:
    """The shape with what must not stand beside it."""
    if edges not in _EDGES:
        raise ValueError(f"edges: expected word, start or none; found {edges!r}")
    before, after = _EDGES[edges]
    return f"{before}(?:{shape}){after}" if before else shape
