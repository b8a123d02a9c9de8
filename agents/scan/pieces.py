"""The texts of a change, side by side: what rules are applied to.

A file whose change shows it whole is one piece a side, any other file one piece a hunk and side. A fragment of Python
or YAML gets lines above it that make its indentation valid; they have the number 0. The Python in a notebook's cells
is a piece of Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from council.agents.scan.change import FileChange, Hunk
from council.agents.scan.datafiles import CARRIERS, code_in
from council.agents.scan.languages import BY_NAME, Language, language_of

# What stands above lines that are indented deeper than later ones.
_LEVEL = {"python": "if 1:", "yaml": "_:"}
_QUOTES = ('"""', "'''")
_CODE = re.compile(
    r"[ \t]{0,200}(?:(?:async |def |class |import |from \S{1,200} import |return |raise |for |"
    r"with |if |while |try:|@\w)|[\w.]{1,200}(?:\(| [-+*/|&]?= |: \w))"
)
_INDENT = re.compile(r"[ \t]*")


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """One side of a hunk. ``numbers`` are the file's line numbers of the lines of ``text``.

    ``changed`` are the numbers that the change adds, or for the old side removes. Both sides of a hunk have the same
    ``hunk``, and no other piece has it. ``is_left``: the file is there after the change.
    """

    path: str
    language: Language | None
    is_new: bool
    hunk: int
    text: str
    numbers: tuple[int, ...]
    changed: frozenset[int]
    is_left: bool = True

    def number(self, at: int) -> int:
        """The file's number of a line of the text, which counts from 0."""
        return self.numbers[min(at, len(self.numbers) - 1)] if self.numbers else 0

    def touches(self, first: int, last: int) -> bool:
        """Whether the change touches one of these lines of the text, which count from 0."""
        return not self.changed.isdisjoint(self.numbers[first : last + 1])


def pieces_of(changes: Iterable[FileChange]) -> list[Piece]:
    """The pieces of all readable hunks."""
    found: list[Piece] = []
    for change in changes:
        if change.is_binary or change.is_link:
            continue
        for hunk in change.hunks:
            found.extend(_sides(change, hunk, len(found)))
    return found


def piece_of(path: str, language: Language | None, text: str, first: int = 1) -> Piece:
    """A text that is new as a whole, such as a code block."""
    numbers = tuple(range(first, first + text.count("\n") + 1))
    return Piece(path, language, True, -1, text, numbers, frozenset(numbers))


def _sides(change: FileChange, hunk: Hunk, at: int) -> Iterator[Piece]:
    for is_new, other in ((True, "-"), (False, "+")):
        lines = [line for line in hunk.lines if line.tag != other]
        if not lines:
            continue
        path = change.path if is_new else change.old_path or change.path
        numbers = [(line.new_no if is_new else line.old_no) or 0 for line in lines]
        changed = frozenset(number for line, number in zip(lines, numbers, strict=True) if line.tag != " ")
        texts = [line.text for line in lines]
        if change.is_whole and path.lower().endswith(CARRIERS) and (held := code_in(path, "\n".join(texts))):
            yield Piece(path, BY_NAME["python"], is_new, at, *held, changed, change.kind != "deleted")
            continue
        language = language_of(path, texts[0] if numbers[0] == 1 else "")
        name = language.name if language else ""
        if name in _LEVEL:
            above = _levels(texts, _LEVEL[name])
            above += [quote for quote in _QUOTES if name == "python" and _starts_inside(texts, quote)]
            texts, numbers = above + texts, [0] * len(above) + numbers
        elif name == "php" and not any(line.lstrip().startswith("<") for line in texts[:1]):
            texts[0] = "<?php " + texts[0]
        yield Piece(
            path, language, is_new, at, "\n".join(texts), tuple(numbers), changed, change.kind != "deleted"
        )


def _starts_inside(lines: list[str], quote: str) -> bool:
    """Whether a fragment of Python starts inside a string: its first triple quote is the last thing before code."""
    at = next((at for at, line in enumerate(lines) if quote in line), None)
    if (
        at is None
        or sum(line.count(quote) for line in lines) % 2 == 0
        or not lines[at].rstrip().endswith(quote)
    ):
        return False
    after = next((line for line in lines[at + 1 :] if line.strip()), "")
    return _CODE.match(after) is not None


def _levels(lines: list[str], opening: str) -> list[str]:
    """A line for each level of indentation that the fragment leaves but does not enter."""
    levels: list[str] = []
    for line in lines:
        indent = _INDENT.match(line)[0]  # type: ignore[index]
        if len(indent) < len(line) and (not levels or len(indent) < len(levels[-1])):
            levels.append(indent)
    if levels and levels[-1]:
        levels.append("")
    return [indent + opening for indent in reversed(levels[1:])]
