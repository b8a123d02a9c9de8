"""Tries rules on their examples: each bad one must be found by its rule, and each good one must not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from typing import Any

from council.agents.scan import code, lines
from council.agents.scan.change import FileChange, read_changes
from council.agents.scan.compare import Match, compare
from council.agents.scan.pieces import pieces_of
from council.agents.scan.ruleset import PARSED, Rule
from council.agents.scan.spelling import spelled


@dataclass(frozen=True)
class Example:
    """A change that a rule must find if ``is_bad``, and must not find otherwise. ``how`` names its variant."""

    rule: Rule
    is_bad: bool
    change: FileChange
    how: str = "as written"


def of(rules: Sequence[Rule], given: Mapping[str, Mapping[str, Sequence[Any]]]) -> Iterator[Example]:
    """The examples of some rules. ``given`` has for each id lists under ``bad`` and ``good``.

    Raises ValueError for an example that has another form.
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
    is_known = isinstance(given, dict) and all(isinstance(each, str) for each in given.values())
    if not (is_known and {"old", "new"} & given.keys() and given.keys() <= {"old", "new", "path"}):
        raise ValueError(
            f"an example is {raw!r:.80}, expected a text, or a mapping of old, new and path to texts"
        )
    old, new, path = given.get("old"), given.get("new", ""), given.get("path", path)
    was, before = ([], "/dev/null") if old is None else (old.split("\n"), f"a/{path}")
    diff = unified_diff(was, new.split("\n"), before, f"b/{path}", n=len(was), lineterm="")
    files = read_changes("".join(f"{line}\n" for line in diff)).files
    if not files:
        raise ValueError(f"an example changes nothing: {raw!r:.80}")
    return replace(files[0], is_whole=True)


def path_of(rule: Rule) -> str:
    """The name of a file that a rule reads, for examples that name none."""
    if glob := next((glob for glob in rule.paths if glob[:1] != "!"), ""):
        return glob.replace("*", "x").replace("?", "x")
    return f"x{PARSED[rule.languages[0]]}" if rule.languages else "x.txt"


def failures(tried: Sequence[Example], *, timeout_s: float = 300.0) -> list[tuple[Example, set[str]]]:
    """Examples that do not hold, each with the ids of all rules that found something in it. Raises ToolFailed."""
    # All by one run of ast-grep; the number of a piece's hunk is that of its example.
    shown = [
        [replace(piece, hunk=at) for piece in spelled(pieces_of([example.change]))]
        for at, example in enumerate(tried)
    ]
    pieces = [piece for some in shown for piece in some]
    rules = {example.rule.id: example.rule for example in tried}
    matches: list[list[Match]] = [[] for _ in tried]
    for match in code.matches(pieces, rules.values(), timeout_s=timeout_s):
        matches[match.piece.hunk].append(match)
    for match in lines.matches(pieces, rules.values()):
        matches[match.piece.hunk].append(match)
    wrong = []
    for example, found, some in zip(tried, matches, shown, strict=True):
        # An old fault that was edited becomes a note, which is none of the rule's.
        ids = {
            each.rule
            for each in compare(found, some)
            if each.weight != "note" or rules[each.rule].weight == "note"
        }
        if (example.rule.id in ids) != example.is_bad:
            wrong.append((example, ids))
    return wrong
