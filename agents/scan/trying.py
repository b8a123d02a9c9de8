"""Tries rules on their examples: each bad one must be found by its rule, and each good one must not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from typing import Any

from council.agents.scan import code, lines
from council.agents.scan.change import DiffLine, FileChange, Hunk, Kind
from council.agents.scan.compare import Match, compare
from council.agents.scan.pieces import Piece, pieces_of
from council.agents.scan.ruleset import PARSED, Rule
from council.agents.scan.spelling import spelled


@dataclass(frozen=True)
class Example:
    rule: Rule
    is_bad: bool
    change: FileChange
    how: str = "as written"


def of(rules: Sequence[Rule], given: Mapping[str, Mapping[str, Sequence[Any]]]) -> Iterator[Example]:
    """The examples of some rules. ``given`` has for each id lists under ``bad`` and ``good``.

    Raises ValueError for an example of another form.
    """
    for rule in rules:
        for kind in ("bad", "good"):
            for raw in given.get(rule.id, {}).get(kind) or ():
                try:
                    yield Example(rule, kind == "bad", change(raw, path_of(rule)))
                except ValueError as error:
                    raise ValueError(f"{rule.place} {rule.id}: {error}") from error


def change(raw: Any, path: str) -> FileChange:
    """A text as a new file, or ``{old, new, path}`` as a change of one. Raises ValueError for anything else."""
    given = {"new": raw} if isinstance(raw, str) else raw
    keys = (
        set(given) if isinstance(given, dict) and all(isinstance(v, str) for v in given.values()) else set()
    )
    if not ({"old", "new"} & keys and keys <= {"old", "new", "path"}):
        raise ValueError(
            f"an example is {raw!r:.80}, expected a text, or a mapping of old, new and path to texts"
        )
    old = given.get("old")
    was, now = (old or "").split("\n") if old is not None else [], given.get("new", "").split("\n")
    lines: list[DiffLine] = []
    old_no = new_no = 0
    for line in list(unified_diff(was, now, n=len(was), lineterm=""))[3:]:
        old_no, new_no = old_no + (line[0] != "+"), new_no + (line[0] != "-")
        tag: Any = line[0]
        numbers = None if tag == "+" else old_no, None if tag == "-" else new_no
        lines.append(DiffLine(tag, line[1:], *numbers))
    kind: Kind = "added" if old is None else "modified"
    path = given.get("path", path)
    hunks = (Hunk(1, 1, tuple(lines)),)
    return FileChange(path, None if old is None else path, kind, hunks=hunks, is_whole=True)


def path_of(rule: Rule) -> str:
    """The name of a file that a rule reads, for examples that name none."""
    if glob := next((glob for glob in rule.paths if glob[:1] != "!"), ""):
        return glob.replace("*", "x").replace("?", "x")
    return f"x{PARSED[rule.languages[0]]}" if rule.languages else "x.txt"


def failures(tried: Sequence[Example], *, timeout_s: float = 300.0) -> list[tuple[Example, set[str]]]:
    """Examples that do not hold, each with the ids of all rules that found something in it. Raises ToolFailed."""
    pieces, example_of = _pieces(tried)
    rules = {example.rule.id: example.rule for example in tried}
    found = [
        *code.matches(pieces, [rule for rule in rules.values() if rule.languages], timeout_s=timeout_s),
        *lines.matches(pieces, [rule for rule in rules.values() if not rule.languages]),
    ]
    matches: dict[int, list[Match]] = {}
    shown: dict[int, list[Piece]] = {}
    for match in found:
        matches.setdefault(example_of[id(match.piece)], []).append(match)
    for piece in pieces:
        shown.setdefault(example_of[id(piece)], []).append(piece)
    wrong = []
    for at, example in enumerate(tried):
        findings = compare(matches.get(at, []), shown.get(at, []))
        # An old fault that was edited becomes a note, which is none of the rule's.
        ids = {each.rule for each in findings if each.weight != "note" or rules[each.rule].weight == "note"}
        if (example.rule.id in ids) != example.is_bad:
            wrong.append((example, ids))
    return wrong


def _pieces(tried: Sequence[Example]) -> tuple[list[Piece], dict[int, int]]:
    """The pieces of all examples, each with a hunk number of its own; and for each, the number of its example."""
    pieces, example_of = [], {}
    for at, example in enumerate(tried):
        for piece in spelled(pieces_of([example.change])):
            pieces.append(replace(piece, hunk=at))
            example_of[id(pieces[-1])] = at
    return pieces, example_of
