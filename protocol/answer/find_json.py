"""Finds the JSON objects in a foreign, maybe hostile text, with bounded work.

An object inside another one is part of it, and is not found separately.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from council.protocol.errors import EnvelopeError
from council.protocol.values import STRUCTURE, read_parts

# The possible beginning of an object: a brace and its first key. In prose, a brace is nearly always followed by
# something else.
_BEGINNING = re.compile(r'\{[ \t\r\n]*+"')
# The cost of an object besides its structure: it is cut out, parsed, and examined.
_OBJECT_STEPS = 10
# The steps of one search. Each is a piece of structure, or a number of characters passed over or parsed. An answer of
# the largest size takes a tenth of them. A text that makes the search begin again and again is left unread.
STEPS_MAX = 500_000
_CHARS_A_STEP = 64
# A fence's line, and blanks, are searched within this many characters.
_FENCE_CHARS = 200
_OPENING = re.compile(r"\n[ \t]*+(?:`{3,}+|~{3,}+)[ \t]*+[\w+-]*+\s*+\Z")
_CLOSING = re.compile(r"\s*+(?:`{3,}|~{3,}|\Z)")


@dataclass(frozen=True, slots=True)
class JsonInText:
    """An object, its place in the text, and whether it fills a fenced block."""

    value: dict[str, Any]
    start: int
    end: int
    fenced: bool


@dataclass(frozen=True, slots=True)
class Search:
    """All objects found, in order. ``problem`` says why there may be more, or is "". ``steps`` is the work."""

    found: tuple[JsonInText, ...]
    problem: str
    steps: int


class _Spent(Exception):
    """The search has used up its steps."""


def find_objects(text: str, wanted: Callable[[dict[str, Any]], bool], depth_max: int) -> Search:
    """The objects of ``text`` that are ``wanted``, each nested at most ``depth_max`` deep, read by their parts.

    An object that never ends is text, and the text after its beginning may hold others. One that ends but is not
    JSON, too deep or not wanted is skipped whole, because everything in it is part of it.
    """
    walk = _Search(text, depth_max)
    found: list[JsonInText] = []
    at = 0
    try:
        while (beginning := _BEGINNING.search(text, at)) is not None:
            walk.pass_over(beginning.start() - at)
            start = beginning.start()
            end = walk.end_of(start)
            if end is None:
                at = start + 1
                continue
            at = end
            value = walk.read(start, end)
            if value is not None and wanted(value):
                found.append(JsonInText(value, start, end, _fenced(text, start, end)))
        problem = walk.problem
    except _Spent:
        problem = f"its structure takes more than {STEPS_MAX:,} steps to read"
    return Search(tuple(found), problem, walk.steps)


class _Search:
    """One pass of a search through its text, with the steps it took."""

    def __init__(self, text: str, depth_max: int) -> None:
        self.text = text
        self.depth_max = depth_max
        self.steps = self.deepest = 0
        self.problem = ""

    def pass_over(self, chars: int) -> None:
        self.steps += 1 + chars // _CHARS_A_STEP
        if self.steps > STEPS_MAX:
            raise _Spent

    def end_of(self, start: int) -> int | None:
        """The end of the object that begins at ``start``, or None."""
        at, depth, self.deepest = start, 0, 0
        for piece in STRUCTURE.finditer(self.text, start):
            self.pass_over(piece.end() - at)
            at = piece.end()
            mark = self.text[piece.start()]
            if mark in "{[":
                depth += 1
                self.deepest = max(self.deepest, depth)
            elif mark in "}]":  # the parser checks whether it closes the right bracket
                depth -= 1
                if depth == 0:
                    return at
        self.pass_over(len(self.text) - at)
        return None

    def read(self, start: int, end: int) -> dict[str, Any] | None:
        self.steps += _OBJECT_STEPS
        self.pass_over(end - start)
        if self.deepest > self.depth_max:
            self.problem = f"an object is nested {self.deepest:,} deep; at most {self.depth_max} are read"
            return None
        try:
            value = read_parts(self.text[start:end])
        except EnvelopeError as error:
            self.problem = error.message
            return None
        assert isinstance(value, dict)
        return value


def _fenced(text: str, start: int, end: int) -> bool:
    """Whether a fence's line is immediately before ``start``, and its end at ``end``."""
    before = text[max(0, start - _FENCE_CHARS) : start]
    if start <= _FENCE_CHARS:
        before = "\n" + before
    return _OPENING.search(before) is not None and _CLOSING.match(text[end : end + _FENCE_CHARS]) is not None
