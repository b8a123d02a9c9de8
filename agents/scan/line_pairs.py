"""What a change takes out of a file and puts in its place, line by line, in any language.

A *block* is a run of removed and added lines without a context line between them. A *pair* is a removed line and the
added line of its block that has most tokens in common with it. ``cut`` and ``put`` are the tokens of the two that
differ.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from council.agents.scan.change import DiffLine, FileChange, Hunk

LINE_CHARS_MAX = 500  # of a line that is compared; a longer one is data
COMPARED_MAX = 2_500  # pairs of lines in a block; a larger block is rewritten as a whole
LIKENESS_MIN = 0.5  # of lines that are a pair wherever they are in their block
PAIRS_MAX = 200_000  # of lines compared in one change
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.){0,300}"|\'(?:[^\'\\]|\\.){0,300}\'|\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?|\w+|[=!]==|[<>=!]=|&&|\|\||->|=>|\S'
)
_NO_CODE = re.compile(
    r"(?i)(?:\.(?:md|mdx|markdown|rst|adoc|txt|tex|html?|css|svg|csv|tsv|lock|json|snap|map|po|ipynb|patch|diff)|"
    r"\.min\.js|(?:^|/)(?:license|changes|authors|notice|codeowners|changelog))$"
)
_REMARK = re.compile(r"\s*(?:#(?!\[)|//|/\*|\*|--\s|<!--|;)")


@dataclass(frozen=True, slots=True)
class Block:
    """Adjacent changed lines as (number, text).

    ``after`` is the context line after them.
    """

    path: str
    removed: tuple[tuple[int, str], ...]
    added: tuple[tuple[int, str], ...]
    after: str
    hunk: Hunk = field(repr=False, compare=False)

    @property
    def only_takes(self) -> bool:
        """Whether it puts nothing in, but for lines that it took out and indents otherwise."""
        taken = Counter(bare(text) for _, text in self.removed)
        put = Counter(bare(text) for _, text in self.added if text.strip() and not is_remark(text))
        return put <= taken


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

    @property
    def is_alone(self) -> bool:
        """Whether no line beside it changes."""
        return len(self.block.removed) == len(self.block.added) == 1


def is_code(change: FileChange) -> bool:
    """Whether a file may hold code, by its path."""
    return not (change.is_binary or change.is_link or _NO_CODE.search(change.path))


def is_remark(text: str) -> bool:
    return _REMARK.match(text) is not None


def blocks_of(change: FileChange) -> Iterator[Block]:
    for hunk in change.hunks:
        run: list[DiffLine] = []
        for line in (*hunk.lines, DiffLine(" ", "", None, None)):
            if line.tag != " ":
                run.append(line)
            elif run and (line.text.strip() or line is hunk.lines[-1] or line.new_no is None):
                # a blank context line separates nothing
                removed = tuple(
                    (each.old_no or 0, each.text[:LINE_CHARS_MAX]) for each in run if each.tag == "-"
                )
                added = tuple(
                    (each.new_no or 0, each.text[:LINE_CHARS_MAX]) for each in run if each.tag == "+"
                )
                yield Block(change.path, removed, added, line.text[:LINE_CHARS_MAX], hunk)
                run = []


def pairs_of(blocks: Sequence[Block]) -> list[Pair]:
    """The pairs of all blocks that are small enough to be compared."""
    found: list[Pair] = []
    compared = 0
    for block in blocks:
        cost = len(block.removed) * len(block.added)
        if not cost or cost > COMPARED_MAX or compared + cost > PAIRS_MAX:
            continue
        compared += cost
        left = [(number, text, frozenset(tokens(text))) for number, text in block.added if text.strip()]
        is_even = len(block.removed) == len(block.added)
        for at, (_, old) in enumerate(block.removed):
            words = tokens(old)
            if not words or is_remark(old):
                continue
            told = frozenset(words)
            best = max(left, key=lambda item: _likeness(told, item[2]), default=None)
            if best is None or _likeness(told, best[2]) < LIKENESS_MIN:
                best = next((item for item in left if is_even and item[0] == block.added[at][0]), None)
            if best is None or not told & best[2]:
                continue
            left.remove(best)
            cut, put = difference(words, tokens(best[1]))
            if cut or put:
                found.append(Pair(block.path, best[0], old, best[1], cut, put, block))
    return found


def tokens(text: str) -> list[str]:
    """Words, numbers, strings and marks of a line."""
    return _TOKEN.findall(text[:LINE_CHARS_MAX])


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of tokens that two lines have in common, from 0 to 1."""
    common = len(one & other)
    return common / (len(one) + len(other) - common or 1)


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
