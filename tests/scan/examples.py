"""Tries rules on their examples. ``python -m tests.scan.examples [FILE…]`` prints which do not hold."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from council.agents.scan import code, lines
from council.agents.scan.change import DiffLine, FileChange, Hunk
from council.agents.scan.compare import compare
from council.agents.scan.pieces import pieces_of
from council.agents.scan.rules import EXAMPLES, OWN, PARSED, Rule, examples, read
from council.agents.scan.spelling import spelled


@dataclass(frozen=True)
class Example:
    rule: Rule
    is_bad: bool
    change: FileChange
    how: str = "as written"


def files() -> list[Path]:
    return sorted(
        file for folder in ("ast", "lines") for file in (OWN / folder).glob("*.yml") if not file.name.endswith(EXAMPLES)
    )


def of(file: Path) -> Iterator[Example]:
    """The examples of a file's rules, as they are written."""
    given = examples(file)
    for rule in read(file):
        for kind in ("bad", "good"):
            for raw in given.get(rule.id, {}).get(kind, []):
                yield Example(rule, kind == "bad", change(raw, _path(rule)))


def change(raw: Any, path: str) -> FileChange:
    """A text as a new file, or ``{old, new, path}`` as a change of one."""
    given = {"new": raw} if isinstance(raw, str) else dict(raw)
    old, new = given.get("old"), given.get("new", "")
    path = given.get("path", path)
    found: list[DiffLine] = []
    was, now = (old or "").split("\n") if old is not None else [], new.split("\n")
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        if tag == "equal":
            found += [DiffLine(" ", was[i], i + 1, j + 1) for i, j in zip(range(i1, i2), range(j1, j2), strict=True)]
        else:
            found += [DiffLine("-", was[i], i + 1, None) for i in range(i1, i2)]
            found += [DiffLine("+", now[j], None, j + 1) for j in range(j1, j2)]
    kind = "added" if old is None else "modified"
    return FileChange(path, None if old is None else path, kind, hunks=(Hunk(1, 1, tuple(found)),), is_whole=True)


def _path(rule: Rule) -> str:
    if rule.globs:
        return rule.globs[0].replace("*", "x").replace("?", "x")
    return f"x{PARSED[rule.languages[0]]}" if rule.languages else "x.txt"


def failures(tried: list[Example]) -> list[tuple[Example, set[str]]]:
    """Examples that do not hold, each with the ids of all rules that found something in it."""
    by_piece: dict[int, Example] = {}
    pieces = spelled_apart(tried, by_piece)
    rules = {example.rule.id: example.rule for example in tried}
    found = [
        *code.matches(pieces, [rule for rule in rules.values() if rule.languages], timeout_s=300.0),
        *lines.matches(pieces, [rule for rule in rules.values() if not rule.languages]),
    ]
    grouped: dict[int, list[Any]] = {}
    for match in found:
        grouped.setdefault(id(by_piece[id(match.piece)]), []).append(match)
    shown: dict[int, list[Any]] = {}
    for piece in pieces:
        shown.setdefault(id(by_piece[id(piece)]), []).append(piece)
    wrong = []
    for example in tried:
        ids = {f.rule for f in compare(grouped.get(id(example), []), shown.get(id(example), [])) if f.weight != "note" or rules[f.rule].weight == "note"}
        if (example.rule.id in ids) != example.is_bad:
            wrong.append((example, ids))
    return wrong


def spelled_apart(tried: list[Example], by_piece: dict[int, Example]) -> list[Any]:
    """The pieces of all examples, each with a hunk number of its own."""
    from dataclasses import replace

    pieces = []
    for at, example in enumerate(tried):
        for piece in spelled(pieces_of([example.change])):
            piece = replace(piece, hunk=at)
            by_piece[id(piece)] = example
            pieces.append(piece)
    return pieces


# Mutations: other ways to write the same

_C_LIKE = {"javascript", "typescript", "tsx", "go", "java", "kotlin", "php", "csharp", "python", "c", "cpp", "rust", "ruby"}


def _quotes(text: str, language: str) -> str:
    """Strings in the other quotes."""
    if language not in ("python", "javascript", "typescript", "tsx"):
        return text
    return re.sub(r"(?<![\w\"'])\"([^\"'\\\n{}$]*)\"(?!\")", r"'\1'", text)


def _spread(text: str, language: str) -> str:
    """Calls over several lines, broken after a parenthesis and a comma."""
    if language not in _C_LIKE:
        return text
    parts = re.split(r"(\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`]*`|#[^\n]*|//[^\n]*)", text)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"(?<=[\w])\((?=[^)\s])", "(\n        ", parts[at])
    return "".join(parts)


def _renamed(text: str, language: str) -> str:
    """Variables by other names: those that are assigned or are parameters, and are never called."""
    if language not in _C_LIKE:
        return text
    names = set(re.findall(r"(?:^|[\s(,])(?:const |let |var |final |val )?\$?([a-z_]\w{2,})\s*:?=(?!=)", text))
    names -= {"shell", "verify", "default", "debug", "check", "true", "false", "self", "this", "algorithms", "mode", "parser"}
    if language in ("javascript", "tsx"):
        names -= set(re.findall(r"\s(\w+)=[{\"']", text))  # attributes of JSX
    for name in names:
        if re.search(rf"(?<![.\w]){name}\s*\(|[(,]\s*{name}\s*=|\.{name}\b|\b(?:password|secret|token|key)\b", text):
            continue
        text = re.sub(rf"(?<![.\w'\"]){name}\b(?!['\":])", f"{name}_q", text)
    return text


def _spaced(text: str, language: str) -> str:
    """More blanks after commas."""
    return re.sub(r",(?=\S)(?![^\"'\n]*[\"'][^\"'\n]*$)", ", ", text) if language in _C_LIKE else text


MUTATIONS: dict[str, Callable[[str, str], str]] = {
    "other quotes": _quotes,
    "spread over lines": _spread,
    "renamed variables": _renamed,
    "more blanks": _spaced,
}


def mutated(file: Path) -> Iterator[Example]:
    """The bad examples of a file's code rules, each rewritten in every way that changes it."""
    given = examples(file)
    for rule in read(file):
        if not rule.languages:
            continue
        for raw in given.get(rule.id, {}).get("bad", []):
            for how, mutate in MUTATIONS.items():
                if isinstance(raw, str):
                    new: Any = mutate(raw, rule.languages[0])
                else:
                    new = {key: mutate(each, rule.languages[0]) if key in ("old", "new") else each for key, each in raw.items()}
                if new != raw:
                    yield Example(rule, True, change(new, _path(rule)), how)


def main(names: list[str]) -> int:
    chosen = [Path(name) for name in names] or files()
    code.check([rule for file in chosen for rule in read(file)])
    tried = [example for file in chosen for example in of(file)]
    wrong = failures(tried)
    for example, ids in wrong:
        text = "\n".join(f"    {line.tag}{line.text}" for line in example.change.hunks[0].lines)
        print(f"{example.rule.place} {example.rule.id}: {'bad is not found' if example.is_bad else 'good is found'}\n{text}")
        print(f"    found by: {', '.join(sorted(ids)) or 'none'}")
    short = 0
    for file in chosen:
        given = examples(file)
        for rule in read(file):
            bad, good = len(given.get(rule.id, {}).get("bad", [])), len(given.get(rule.id, {}).get("good", []))
            if bad < 5 or good < 3:
                short += 1
                print(f"{rule.place} {rule.id}: {bad} bad and {good} good examples, at least 5 and 3 are needed")
    rewritten = [example for file in chosen for example in mutated(file)]
    lost = failures(rewritten)
    for example, _ in lost[:40]:
        print(f"{example.rule.id}: not found when rewritten ({example.how}):\n    " + "\n    ".join(l.text for l in example.change.hunks[0].lines if l.tag != "-"))
    print(f"{len(tried)} examples, {len(wrong)} do not hold; {len(rewritten)} rewritten, {len(lost)} are lost; {short} rules lack examples")
    return 1 if wrong or short else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
