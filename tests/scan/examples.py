"""Tries our rules on their examples. ``python -m tests.scan.examples [FILE…]`` prints which do not hold."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from council.agents.scan import code, trying
from council.agents.scan.ruleset import OWN, Rule, checked, examples, files_of, read
from council.agents.scan.trying import Example, change, failures, path_of


def files() -> list[Path]:
    return [file for folder in ("ast", "lines") for file in files_of(OWN / folder)]


def load(folder: Path) -> tuple[Rule, ...]:
    """The rules of a folder, with all their regular expressions compiled."""
    return checked((file.name, file.read_text("utf-8")) for file in files_of(folder))


def of(file: Path) -> Iterator[Example]:
    """The examples of a file's rules, as they are written."""
    yield from trying.of(tuple(read(file)), examples(file))


# Mutations: other ways to write the same

_C_LIKE = {
    "javascript",
    "typescript",
    "tsx",
    "go",
    "java",
    "kotlin",
    "php",
    "csharp",
    "python",
    "c",
    "cpp",
    "rust",
    "ruby",
}


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
    names = set(
        re.findall(r"(?:^|[\s(,])(?:const |let |var |final |val )?\$?([a-z_]\w{2,})\s*:?=(?!=)", text)
    )
    names -= {
        "shell",
        "verify",
        "default",
        "debug",
        "check",
        "true",
        "false",
        "self",
        "this",
        "algorithms",
        "mode",
        "parser",
    }
    if language in ("javascript", "tsx"):
        names -= set(re.findall(r"\s(\w+)=[{\"']", text))  # attributes of JSX
    for name in names:
        if re.search(
            rf"(?<![.\w]){name}\s*\(|[(,]\s*{name}\s*=|\.{name}\b|\b(?:password|secret|token|key)\b", text
        ):
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
                    new = {
                        key: mutate(each, rule.languages[0]) if key in ("old", "new") else each
                        for key, each in raw.items()
                    }
                if new != raw:
                    yield Example(rule, True, change(new, path_of(rule)), how)


def main(names: list[str]) -> int:
    chosen = [Path(name) for name in names] or files()
    code.check([rule for file in chosen for rule in read(file)])
    tried = [example for file in chosen for example in of(file)]
    wrong = failures(tried)
    for example, ids in wrong:
        text = "\n".join(f"    {line.tag}{line.text}" for line in example.change.hunks[0].lines)
        what = "bad is not found" if example.is_bad else "good is found"
        print(f"{example.rule.place} {example.rule.id}: {what}\n{text}")
        print(f"    found by: {', '.join(sorted(ids)) or 'none'}")
    short = 0
    for file in chosen:
        given = examples(file)
        for rule in read(file):
            bad, good = (
                len(given.get(rule.id, {}).get("bad", [])),
                len(given.get(rule.id, {}).get("good", [])),
            )
            if bad < 5 or good < 3:
                short += 1
                print(
                    f"{rule.place} {rule.id}: {bad} bad and {good} good examples, at least 5 and 3 are needed"
                )
    rewritten = [example for file in chosen for example in mutated(file)]
    lost = failures(rewritten)
    for example, _ in lost[:40]:
        print(
            f"{example.rule.id}: not found when rewritten ({example.how}):\n    "
            + "\n    ".join(line.text for line in example.change.hunks[0].lines if line.tag != "-")
        )
    print(
        f"{len(tried)} examples, {len(wrong)} do not hold; "
        f"{len(rewritten)} rewritten, {len(lost)} are lost; {short} rules lack examples"
    )
    return 1 if wrong or short else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
