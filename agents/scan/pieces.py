"""The texts of a change, side by side: what rules are applied to.

If a change shows a file whole, each side of the file is one piece. Otherwise each side of a hunk is one. A fragment
of Python or YAML gets lines above it that make its indentation valid; they have the number 0. The Python in a
notebook's cells is a piece of Python. Python is parsed here, once for all readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from council.agents.scan import python
from council.agents.scan.change import FileChange, Hunk
from council.agents.scan.datafiles import CARRIERS, CHARS_MAX, code_in
from council.agents.scan.languages import BY_NAME, Language, language_of
from council.agents.scan.python import Statement, Tree

PLACE_LINES_MAX = 500  # of a place whose first changed line is looked for
_PYTHON = BY_NAME["python"]
_INDENT = re.compile(r"[ \t]*")


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One side of a hunk. ``numbers`` are the file's line numbers of the lines of ``text``.

    ``path`` is that of the file after the change. ``changed`` are the numbers that the change adds, or for the old
    side removes. Both sides of a hunk have the same ``hunk``: its place in ``hunks_of``. No other piece has it.
    ``is_left``: the file is there after the change. ``tree`` is that of Python that was parsed; its lines may go on
    after those of ``text``. ``unread`` names the limit that ended the reading, if one did.
    """

    path: str
    language: Language | None
    is_new: bool
    hunk: int
    text: str
    numbers: tuple[int, ...]
    changed: frozenset[int]
    is_left: bool = True
    tree: Tree | None = None
    unread: str = ""

    @property
    def statements(self) -> Iterator[Statement]:
        """All statements of Python that was parsed, those of outer blocks first."""
        return (statement for block in (self.tree.blocks if self.tree else ()) for statement in block)

    def number(self, at: int) -> int:
        """The number in the file of a line of the text, which counts from 0. After the end it is the last number."""
        return self.numbers[min(at, len(self.numbers) - 1)] if self.numbers else 0

    def touches(self, first: int, last: int) -> bool:
        """Whether the change touches one of these lines of the text, which count from 0."""
        return not self.changed.isdisjoint(self.numbers[first : last + 1])

    def line_of(self, first: int, last: int) -> int:
        """The file's line of a place in the text: the first changed one, if any; 0 if none of the file's is there."""
        numbers = [number for number in self.numbers[first : last + 1][:PLACE_LINES_MAX] if number]
        return next((number for number in numbers if number in self.changed), numbers[0] if numbers else 0)


def hunks_of(changes: Iterable[FileChange]) -> list[tuple[FileChange, Hunk]]:
    """All readable hunks, each with its file."""
    return [
        (change, hunk)
        for change in changes
        for hunk in change.hunks
        if not (change.is_binary or change.is_link)
    ]


def pieces_of(changes: Iterable[FileChange]) -> list[Piece]:
    """The pieces of all readable hunks."""
    found: list[Piece] = []
    left = python.EFFORT_TOKENS_MAX
    for at, (change, hunk) in enumerate(hunks_of(changes)):
        sides = [_side(change, hunk, at, is_new=is_new) for is_new in (True, False)]
        sides = [side for side in sides if side.numbers]
        if any(side.language is _PYTHON for side in sides):
            sides, spent = _parsed(sides, is_whole=change.is_whole, allowed=left)
            left -= spent
        found += sides
    return found


def piece_of(path: str, language: Language | None, text: str, first: int = 1) -> Piece:
    """A text that is new as a whole, such as a code block."""
    numbers = tuple(range(first, first + text.count("\n") + 1))
    tree = python.parse(text) if language is _PYTHON else None
    tree = tree if isinstance(tree, Tree) else None
    return Piece(path, language, True, -1, text, numbers, frozenset(numbers), tree=tree)


def _side(change: FileChange, hunk: Hunk, at: int, *, is_new: bool) -> Piece:
    lines = [line for line in hunk.lines if line.tag != ("-" if is_new else "+")]
    numbers = [(line.new_no if is_new else line.old_no) or 0 for line in lines]
    changed = frozenset(number for line, number in zip(lines, numbers, strict=True) if line.tag != " ")
    first = next((line.text for line in change.hunks[0].lines if (line.new_no or line.old_no) == 1), "")
    language, text = language_of(change.path, first), "\n".join(line.text for line in lines)
    piece = Piece(change.path, language, is_new, at, text, tuple(numbers), changed, change.kind != "deleted")
    if change.is_whole and change.path.lower().endswith(CARRIERS):
        if held := code_in(change.path, text):
            return replace(piece, language=_PYTHON, text=held[0], numbers=held[1])
        return replace(piece, unread=python.TOO_MANY if len(text) > CHARS_MAX else "")
    if language and language.name == "yaml":
        return _under(_levels(text.split("\n"), "_:"), piece)
    if language and language.name == "php" and not text.lstrip(" \t").startswith("<"):
        return replace(piece, text="<?php " + text)
    return piece


def _under(head: Sequence[str], piece: Piece) -> Piece:
    """The piece with these lines above it."""
    text = "\n".join([*head, piece.text])
    return replace(piece, text=text, numbers=(0,) * len(head) + piece.numbers)


def _parsed(sides: Sequence[Piece], *, is_whole: bool, allowed: int) -> tuple[list[Piece], int]:
    """Both sides of a hunk of Python with their trees, if both can be parsed, and the number of tokens parsed."""
    lines: list[list[str]] = [[], []]
    for side in sides:
        lines[side.is_new] = [
            line.expandtabs(8) if line[:1].isspace() else line
            for line in side.text.removeprefix("\ufeff").split("\n")
        ]
    parsed = python.parse_sides(lines, is_whole=is_whole, allowed=allowed)
    found = []
    for side in sides:
        piece = replace(side, text="\n".join(lines[side.is_new]), unread=parsed.unread or side.unread)
        if parsed.trees:
            head, tree = parsed.heads[side.is_new], parsed.trees[side.is_new]
            found.append(_under(head, replace(piece, tree=tree)))
        else:
            found.append(_under(_levels(lines[side.is_new], "if 1:"), piece))
    return found, parsed.tokens


def _levels(lines: Sequence[str], opening: str) -> list[str]:
    """A line for each level of indentation that the fragment leaves but does not enter."""
    levels: list[str] = []
    for line in lines:
        indent = _INDENT.match(line)[0]  # type: ignore[index]
        if len(indent) < len(line) and (not levels or len(indent) < len(levels[-1])):
            levels.append(indent)
    if levels and levels[-1]:
        levels.append("")
    return [indent + opening for indent in reversed(levels[1:])]
