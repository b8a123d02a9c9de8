"""Compares both sides of a change: which matches of a rule are new, and which are gone.

Matches are counted over the whole change by their text, white space aside. So code that was moved is neither new nor
gone, and an old fault is no finding when a line beside it changes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from council.agents.scan.finding import Finding
from council.agents.scan.pieces import Piece
from council.agents.scan.regex import Regex
from council.agents.scan.ruleset import Rule

STAYS = "STAYS"  # the metavariable whose text must still stand where a match is gone
NUMBER = "N"  # the metavariable or group that is compared as a number

SCOPE_LINES_MAX = 500  # above a match, in which the function around it is looked for
EXAMINED_MAX = 500  # matches of one rule that are gone; of more, each is a finding

_DEFINES = re.compile(r"\s*(?:[a-z]+\s+){0,4}(?:def|class|function|func|fun)\s+(\w+)")
_SPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"-?\d[\d_]*(?:\.\d+)?(?:[eE]-?\d+)?")


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Where a rule matches: lines ``first`` to ``last`` of the piece's text, from 0; and what it captured by name."""

    rule: Rule
    piece: Piece
    first: int
    last: int
    text: str
    captured: Mapping[str, str]

    @property
    def is_changed(self) -> bool:
        return self.piece.touches(self.first, self.last)

    def found(self) -> Finding:
        rule, line = self.rule, self.piece.line_of(self.first, self.last)
        return Finding(rule.id, rule.family, rule.weight, self.piece.path, line, rule.message, rule.cwe)


def compare(matches: Iterable[Match], pieces: Sequence[Piece]) -> list[Finding]:
    """The findings that the matches of both sides amount to."""
    texts = _Texts(pieces)
    by_rule: dict[str, tuple[Rule, list[Match], list[Match]]] = {}
    for match in matches:
        rule = match.rule
        if (rule.unless and rule.unless.search(match.text)) or (
            rule.near and not texts.holds(match.piece, rule.near)
        ):
            continue
        _, old, new = by_rule.setdefault(rule.id, (rule, [], []))
        (new if match.piece.is_new else old).append(match)
    found: list[Finding] = []
    for rule, old, new in by_rule.values():
        if rule.when == "appears":
            found.extend(_appeared(old, new))
        elif rule.when == "vanishes":
            found.extend(_vanished(old, new, texts))
        elif rule.when == "pair":
            found.extend(match.found() for match in new)
        else:
            found.extend(_moved(old, new, up=rule.when == "number-up"))
    return list(dict.fromkeys(found))


class _Texts:
    """The texts that are shown of each file's side."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        shown: dict[tuple[str, bool], list[str]] = defaultdict(list)
        for piece in pieces:
            shown[piece.path, piece.is_new].append(piece.text)
        self._shown = {key: "\n".join(texts) for key, texts in shown.items()}
        self._lines: dict[int, list[str]] = {}
        self._held: dict[tuple[int, str, bool], bool] = {}

    def holds(self, piece: Piece, pattern: Regex) -> bool:
        key = (id(pattern), piece.path, piece.is_new)
        if key not in self._held:
            self._held[key] = pattern.search(self._shown[piece.path, piece.is_new]) is not None
        return self._held[key]

    def still_has(self, path: str, text: str) -> bool:
        return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", self._shown.get((path, True), "")) is not None

    def depth(self, match: Match) -> int:
        """How far the line of a match is indented."""
        return _indent(self._lines_of(match.piece)[match.first])

    def loses_function_around(self, match: Match) -> bool:
        """Whether the function or class around a match is removed too: its name, and the lines around the match."""
        piece, lines = match.piece, self._lines_of(match.piece)
        least = len(lines[match.first])  # the match's own line is the first that is less
        for at in range(match.first, max(-1, match.first - SCOPE_LINES_MAX), -1):
            if lines[at].strip() and _indent(lines[at]) < least:
                least = _indent(lines[at])
                if found := _DEFINES.match(lines[at]):
                    around = range(at, min(match.last + 2, len(lines)))
                    body = (each for each in around if each == at or _indent(lines[each]) > least)
                    is_gone = all(piece.touches(each, each) for each in body if lines[each].strip())
                    return is_gone and not self.still_has(piece.path, found[1])
        return False

    def _lines_of(self, piece: Piece) -> list[str]:
        if id(piece) not in self._lines:
            self._lines[id(piece)] = piece.text.split("\n")
        return self._lines[id(piece)]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _plain(text: str) -> str:
    """The text without blanks, and without the comma that a further item of a list brings."""
    return _SPACE.sub("", text).removesuffix(",")


def _unmatched(one: Sequence[Match], other: Sequence[Match]) -> list[Match]:
    """The matches of one side beyond those of the other, by their texts. Lines that stay are paired off first.

    A match of code on lines that stay counts too, if its rule means stop: the lines around it made it a match.
    """
    left = Counter(_plain(match.text) for match in other)
    beyond = []
    for match in sorted(one, key=lambda match: match.is_changed):
        text = _plain(match.text)
        if left[text]:
            left[text] -= 1
        elif match.is_changed or (match.rule.languages and match.rule.weight == "stop"):
            beyond.append(match)
    return beyond


def _appeared(old: Sequence[Match], new: Sequence[Match]) -> Iterator[Finding]:
    edited = Counter(match.piece.hunk for match in _unmatched(old, new) if match.is_changed)
    for match in _unmatched(new, old):
        found = match.found()
        if edited[match.piece.hunk]:  # an old fault, whose line was edited
            edited[match.piece.hunk] -= 1
            found = replace(found, weight="note")
        yield found


def _vanished(old: Sequence[Match], new: Sequence[Match], texts: _Texts) -> Iterator[Finding]:
    left = len(old) - len(new)
    replaced = {match.piece.hunk for match in _unmatched(new, old) if match.is_changed}  # by one of its kind
    outer: dict[tuple[int, str], int] = {}  # by the same one further out, which may hold for all in its scope
    for match in new if left > 0 else ():
        if match.is_changed:
            key, depth = (match.piece.hunk, _plain(match.text)), texts.depth(match)
            outer[key] = min(depth, outer.get(key, depth))
    for at, match in enumerate(_unmatched(old, new)):
        stays, depth = match.captured.get(STAYS), texts.depth(match)
        if (
            left <= 0
            or not match.piece.is_left
            or not match.is_changed
            or (match.rule.languages and match.piece.hunk in replaced)
            or (match.rule.languages and outer.get((match.piece.hunk, _plain(match.text)), depth) < depth)
            or (at < EXAMINED_MAX and stays and not texts.still_has(match.piece.path, stays))
            or (at < EXAMINED_MAX and texts.loses_function_around(match))
        ):
            continue
        left -= 1
        yield match.found()


def _moved(old: Sequence[Match], new: Sequence[Match], *, up: bool) -> Iterator[Finding]:
    before = {(match.piece.hunk, _around(match)): _value(match) for match in old if match.is_changed}
    for match in new:
        was, now = before.get((match.piece.hunk, _around(match))), _value(match)
        if match.is_changed and was is not None and now is not None and (now > was if up else now < was):
            yield match.found()


def _around(match: Match) -> str:
    number = match.captured.get(NUMBER)
    return _plain(match.text.replace(number, "#", 1) if number else match.text)


def _value(match: Match) -> float | None:
    number = _NUMBER.search(match.captured.get(NUMBER, ""))
    return float(number[0].replace("_", "")) if number else None
