"""What a change takes out of a file and puts in its place, line by line, in any language.

A *block* is a run of removed and added lines without a context line between them. A *pair* is a removed line and the
added line of its block that has most tokens in common with it. ``cut`` and ``put`` are the tokens of the two that
differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

from council.agents.scan.change import DiffLine, FileChange
from council.agents.scan.regex import Regex
from council.agents.scan.rows import load

LINE_CHARS_MAX = 500  # of a line that is compared; a longer one is data
COMPARED_MAX = 2_500  # pairs of lines in a block; a larger block is rewritten as a whole
LIKENESS_MIN = 0.4  # of lines that are a pair wherever they are in their block
PAIRS_MAX = 200_000  # of lines compared in one change
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.){0,300}"|\'(?:[^\'\\]|\\.){0,300}\'|\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?|\w+|[=!]==|[<>=!]=|&&|\|\||->|=>|\S'
)
_WORD = re.compile(r"\w+|\S")
_NO_CODE = re.compile(
    r"(?i)(?:\.(?:md|mdx|markdown|rst|adoc|txt|tex|html?|css|svg|csv|tsv|lock|json|snap|map|po|ipynb|patch|diff)|"
    r"\.min\.js|(?:^|/)(?:license|changes|authors|notice|codeowners|changelog))$"
)
_REMARK = re.compile(r"\s*(?:#(?!\[)|//|/\*|\*|--\s|<!--|;)")
_END = DiffLine(" ", "", None, None)
Numbered = Sequence[tuple[int, str]]  # lines with their numbers
Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class Block:
    """Adjacent changed lines as (number, text), and the context line after them."""

    path: str
    removed: tuple[tuple[int, str], ...]
    added: tuple[tuple[int, str], ...]
    after: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A line that became another. ``cut`` and ``put`` are empty if nothing was cut out or put in."""

    path: str
    line: int
    old: str
    new: str
    cut: tuple[str, ...]
    put: tuple[str, ...]
    block: Block = field(repr=False)


@cache
def patterns(name: str) -> dict[str, Regex]:
    """The regular expressions of a table in rules/removed.yml, by name."""
    table = load(Path(__file__).parent / "rules" / "removed.yml")
    return {key: Regex(text) for key, text in table[name].items()}


def is_code(change: FileChange) -> bool:
    """Whether a file may hold code, by its path."""
    return not (change.is_binary or change.is_link or _NO_CODE.search(change.path))


def is_remark(text: str) -> bool:
    """Whether a line is a comment."""
    return _REMARK.match(text) is not None


def blocks_of(change: FileChange) -> Iterator[Block]:
    """The blocks of a file. A blank context line does not end a block."""
    for hunk in change.hunks:
        removed: list[tuple[int, str]] = []
        added: list[tuple[int, str]] = []
        for line in (*hunk.lines, _END):
            if line.tag == "-":
                removed.append((line.old_no or 0, line.text[:LINE_CHARS_MAX]))
            elif line.tag == "+":
                added.append((line.new_no or 0, line.text[:LINE_CHARS_MAX]))
            elif line.text.strip() or line is _END:
                if removed or added:
                    yield Block(change.path, tuple(removed), tuple(added), line.text[:LINE_CHARS_MAX])
                removed, added = [], []


def pairs_of(blocks: Iterable[Block]) -> list[Pair]:
    """The pairs of all blocks."""
    found = []
    for block, old, number, new in paired((block, block.removed, block.added) for block in blocks):
        cut, put = difference(tokens(old), tokens(new))
        if cut or put:
            found.append(Pair(block.path, number, old, new, cut, put, block))
    return found


def paired(runs: Iterable[tuple[Place, Numbered, Numbered]]) -> Iterator[tuple[Place, str, int, str]]:
    """The removed lines that became added ones: the place of their run, the old text, the new number and text.

    A line became the most alike, or the one at its place if the run keeps its length. Runs beyond the limits are left
    out.
    """
    compared = 0
    for place, removed, added in runs:
        cost = len(removed) * len(added)
        if 0 < cost <= COMPARED_MAX and compared + cost <= PAIRS_MAX:
            compared += cost
            for old, (number, new) in _paired(removed, added):
                yield place, old, number, new


def _paired(removed: Numbered, added: Numbered) -> Iterator[tuple[str, tuple[int, str]]]:
    left = [(each, _words(each[1])) for each in added if each[1].strip()]
    is_even = len(removed) == len(added)
    for at, (_, old) in enumerate(removed):
        told = _words(old)
        if not told or is_remark(old):
            continue
        best = max(left, key=lambda item: _likeness(told, item[1]), default=None)
        if best is None or _likeness(told, best[1]) < LIKENESS_MIN:
            best = next((item for item in left if is_even and item[0] == added[at]), None)
        if best is not None and (len(removed) == len(added) == 1 or told & best[1]):
            left.remove(best)
            yield old, best[0]


def tokens(text: str) -> list[str]:
    """Words, numbers, strings and marks of a line."""
    return _TOKEN.findall(text[:LINE_CHARS_MAX])


def _words(text: str) -> frozenset[str]:
    """The words and marks of a line, those inside strings too."""
    return frozenset(_WORD.findall(text[:LINE_CHARS_MAX]))


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of words that two lines have in common, from 0 to 1."""
    common = len(one & other)
    return common / (len(one) + len(other) - common)


def difference(old: Sequence[str], new: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens that are cut out, and those put in their place."""
    start, most = 0, min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return tuple(old[start : len(old) - end]), tuple(new[start : len(new) - end])


def bare(text: str) -> str:
    """The text without blanks."""
    return "".join(text.split())
