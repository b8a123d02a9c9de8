"""Applies line rules: regular expressions on single lines, and on pairs of a removed and an added line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby

from council.agents.scan.compare import Match
from council.agents.scan.line_pairs import difference, paired
from council.agents.scan.pieces import Piece
from council.agents.scan.ruleset import Rule, reads

LINE_CHARS_MAX = 2_000  # of a line that rules are applied to
CHUNK_CHARS = 4_000  # a pattern that runs on over lines takes the square of a chunk's length at most

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
    return [*found, *_in_pairs(pieces, by_path)]


def _in_piece(piece: Piece, rules: Sequence[Rule]) -> Iterator[Match]:
    """The matches on changed lines: a line that stays is on both sides, and counts on neither."""
    changed = [(at, line) for at, line, is_changed in _marked(piece) if is_changed and line.strip()]
    for chunk in _chunks(changed) if rules else ():
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
    ends = accumulate(len(line) for _, line in lines)
    for _, chunk in groupby(zip(ends, lines, strict=True), key=lambda each: each[0] // CHUNK_CHARS):
        yield [line for _, line in chunk]


def _in_pairs(pieces: Sequence[Piece], by_path: Mapping[str, Sequence[Rule]]) -> Iterator[Match]:
    """Lines that became others, each with what it lost and got."""
    pairs = {
        path: some for path, rules in by_path.items() if (some := [r for r in rules if r.when == "pair"])
    }
    old = {piece.hunk: piece for piece in pieces if not piece.is_new and piece.path in pairs}
    runs = (
        (piece, removed, added)
        for piece in pieces
        if piece.is_new and piece.hunk in old
        for removed, added in zip(_runs(old[piece.hunk]), _runs(piece), strict=False)
    )
    for piece, was, at, now in paired(runs):
        cut, put = map(str.strip, _difference(was, now))
        for rule in pairs[piece.path] if cut or put else ():
            asked = ((rule.cut, cut), (rule.put, put))
            fits = all(regex is None or regex.fullmatch(text) for regex, text in asked)
            if fits and (rule.match is None or rule.match.search(now)):
                yield Match(rule, piece, at, at, now, {})


def _difference(was: str, now: str) -> tuple[str, str]:
    """What was cut out of a line, and what was put in its place, in whole tokens."""
    cut, put = difference(_TOKEN.findall(was), _TOKEN.findall(now))
    return "".join(cut), "".join(put)


def _runs(piece: Piece) -> list[_Numbered]:
    """The changed lines between two lines that stay, which both sides have: also empty runs."""
    runs: list[_Numbered] = [[]]
    for at, line, is_changed in _marked(piece):
        if is_changed:
            runs[-1].append((at, line))
        else:
            runs.append([])
    return runs


def _marked(piece: Piece) -> list[tuple[int, str, bool]]:
    """The lines of the file in a piece: index in the text, the line, whether it is changed."""
    lines = piece.text.split("\n")
    return [
        (at, line.removesuffix("\r")[:LINE_CHARS_MAX], number in piece.changed)
        for at, (line, number) in enumerate(zip(lines, piece.numbers, strict=True))
        if number
    ]
