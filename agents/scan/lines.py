"""Applies line rules: regular expressions on single lines, and on pairs of a removed and an added line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from council.agents.scan.compare import Match
from council.agents.scan.line_pairs import difference
from council.agents.scan.pieces import Piece
from council.agents.scan.ruleset import Rule, reads

LINE_CHARS_MAX = 2_000  # of a line that rules are applied to
CHUNK_CHARS = 4_000  # a pattern that runs on over lines takes the square of a chunk's length at most
TOKENS_MAX = 400  # of a line that is compared with another
PAIRS_MAX = 400  # lines of a run are compared with each other up to this number
ALIKE = 0.5  # the share of a line that must be left of it

_COMMENT = re.compile(r"\s*(?:#(?!!)|//|;|<!--)")
_Numbered = list[tuple[int, str]]
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


def matches(pieces: Sequence[Piece], rules: Iterable[Rule]) -> list[Match]:
    """Where the rules match, on both sides."""
    found: list[Match] = []
    by_globs: dict[tuple[str, ...], list[Rule]] = {}
    for rule in rules:
        if not rule.languages:
            by_globs.setdefault(rule.paths, []).append(rule)
    by_path: dict[str, list[Rule]] = {}
    for piece in pieces:
        if piece.path not in by_path:
            fitting = [some for globs, some in by_globs.items() if reads(globs, piece.path)]
            by_path[piece.path] = [rule for some in fitting for rule in some]
        found.extend(_in_piece(piece, [rule for rule in by_path[piece.path] if rule.when != "pair"]))
    changed = {(piece.hunk, piece.is_new): piece for piece in pieces if piece.hunk >= 0}
    for (hunk, is_new), piece in changed.items():
        old = changed.get((hunk, False))
        pairs = [rule for rule in by_path[piece.path] if rule.when == "pair"]
        if is_new and old is not None and pairs:
            found.extend(_in_pairs(old, piece, pairs))
    return found


def _in_piece(piece: Piece, rules: Sequence[Rule]) -> Iterator[Match]:
    """The matches on changed lines: a line that stays is on both sides, and counts on neither."""
    for chunk in _chunks(
        [(at, line) for at, line, is_changed in _marked(piece) if is_changed] if rules else []
    ):
        text = "\n".join(line for _, line in chunk)
        for rule in rules:
            if rule.match and rule.match.search(text):
                for at, line in chunk:
                    match = rule.match.search(line)
                    if match and (rule.comments or not _COMMENT.match(line)):
                        named = {name: value for name, value in match.groupdict().items() if value}
                        yield Match(rule, piece, at, at, line, named)


def _chunks(lines: _Numbered) -> Iterator[_Numbered]:
    """Some lines at a time, so that most rules are done with many lines in one search."""
    chunk: _Numbered = []
    chars = 0
    for each in lines:
        if each[1].strip():
            chunk.append(each)
            chars += len(each[1])
        if chars >= CHUNK_CHARS:
            yield chunk
            chunk, chars = [], 0
    if chunk:
        yield chunk


def _in_pairs(old: Piece, new: Piece, rules: Sequence[Rule]) -> Iterator[Match]:
    """A run of removed lines became a run of added ones: line by line, each with what it lost and got."""
    for removed, added in zip(_runs(old), _runs(new), strict=False):
        for before, after in _paired(removed, added):
            cut, put = _difference(before[1], after[1])
            for rule in rules if (cut + put).strip() else ():
                if (
                    (rule.cut is None or rule.cut.fullmatch(cut.strip()))
                    and (rule.put is None or rule.put.fullmatch(put.strip()))
                    and (rule.match is None or rule.match.search(after[1]))
                ):
                    yield Match(rule, new, after[0], after[0], after[1], {})


def _runs(piece: Piece) -> list[_Numbered]:
    """The changed lines between two lines that stay, which both sides have: also empty runs."""
    runs: list[_Numbered] = [[]]
    for at, line, is_changed in _marked(piece):
        if is_changed:
            runs[-1].append((at, line))
        else:
            runs.append([])
    return runs


def _paired(removed: _Numbered, added: _Numbered) -> Iterator[tuple[tuple[int, str], tuple[int, str]]]:
    """Which removed line became which added one: by order if they are as many, otherwise the most alike."""
    if len(removed) == len(added):
        yield from zip(removed, added, strict=True)
    elif len(removed) * len(added) <= PAIRS_MAX:
        left = list(removed)
        for after in added:
            alike = [(_alike(before[1], after[1]), at) for at, before in enumerate(left)]
            share, at = max(alike, default=(0.0, 0))
            if share >= ALIKE:
                yield left.pop(at), after


def _alike(before: str, after: str) -> float:
    """The share of two lines that is equal at their ends."""
    cut, put = _difference(before, after)
    longest = max(len(before), len(after)) or 1
    return 1 - max(len(cut), len(put)) / longest


def _marked(piece: Piece) -> list[tuple[int, str, bool]]:
    lines = piece.text.split("\n")
    return [
        (at, line.removesuffix("\r")[:LINE_CHARS_MAX], number in piece.changed)
        for at, (line, number) in enumerate(zip(lines, piece.numbers, strict=True))
        if number
    ]


def _difference(before: str, after: str) -> tuple[str, str]:
    """What was cut out of a line, and what was put in its place, in whole tokens."""
    old, new = _TOKEN.findall(before)[:TOKENS_MAX], _TOKEN.findall(after)[:TOKENS_MAX]
    cut, put = difference(old, new)
    return "".join(cut), "".join(put)
