"""The corpus of changes is whole: listed, well-formed, balanced. Knows nothing of what judges it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from unidiff.patch import PatchSet

from tests.cases import each

HERE = Path(__file__).parent
CHANGES = HERE / "changes"
ENTRIES: list[dict[str, Any]] = tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))["change"]
SAMPLE = HERE.parent.parent / "council" / "cli" / "decide" / "sample.patch"
KINDS = {
    "syntax-error",
    "hard-coded-key",
    "shell-injection",
    "sql-injection",
    "eval-on-input",
    "disabled-tls-check",
    "deleted-check",
    "dangerous-command",
}
KEYS = {"file", "title", "fault", "alarming", "decision", "note"}
HUNK = re.compile(r"@@ -\d{1,6}(?:,(\d{1,6}))? \+\d{1,6}(?:,(\d{1,6}))? @@")
ADDRESS = re.compile(r"[\w.]{1,40}@(\w{1,40}(?:\.\w{1,20}){1,4})")


def text_of(name: str) -> str:
    return (CHANGES / name).read_text(encoding="utf-8")


def parsed(name: str) -> PatchSet:
    return PatchSet(text_of(name))


def changed_lines(text: str) -> list[str]:
    """The added and removed lines of a change, without the names of files."""
    return [
        line
        for line in text.splitlines()
        if line[:1] in ("+", "-") and not line.startswith(("+++ ", "--- ", "-- "))
    ]


def test_every_patch_is_listed_and_every_listed_patch_is_there() -> None:
    names = [entry["file"] for entry in ENTRIES]
    assert sorted(names) == sorted(path.name for path in CHANGES.iterdir())
    assert len(names) == len(set(names))


@each("entry", ENTRIES)
def test_an_entry_is_complete_and_agrees_with_itself(entry: dict[str, Any]) -> None:
    assert set(entry) == KEYS
    assert entry["fault"] in KINDS | {""}
    assert entry["decision"] == ("rejected" if entry["fault"] else "approved")
    assert not (entry["fault"] and entry["alarming"]), "alarming is said of harmless changes only"
    assert entry["title"].strip()
    assert entry["note"].endswith(".")


@each("entry", ENTRIES)
def test_a_patch_parses_and_has_the_size_of_a_real_one(entry: dict[str, Any]) -> None:
    files = parsed(entry["file"])
    assert 2 <= len(files) <= 6
    assert 20 <= files.added + files.removed <= 150


@each("path", [*sorted(CHANGES.iterdir()), SAMPLE])
def test_the_hunk_headers_count_what_follows(path: Path) -> None:
    """unidiff stops at the counts a header gives; here every line of the patch is accounted for."""
    lines = path.read_text(encoding="utf-8").split("\n")
    hunks = at = 0
    while at < len(lines):
        header = HUNK.match(lines[at])
        at += 1
        if header is None:
            continue
        hunks += 1
        old, new = (1 if count is None else int(count) for count in header.groups())
        while old or new:
            mark = lines[at][:1]
            assert mark in (" ", "+", "-", "\\"), f"{path.name}:{at + 1}"
            old -= mark in (" ", "-")
            new -= mark in (" ", "+")
            at += 1
        after = lines[at] if at < len(lines) else ""
        assert after.startswith(("diff --git", "@@", "\\ No newline", "-- ")) or after == "", (
            f"{path.name}:{at + 1}: {after!r}"
        )
    assert hunks


def test_half_are_faulty_and_each_kind_comes_in_several_disguises() -> None:
    kinds = Counter(entry["fault"] for entry in ENTRIES)
    harmless = kinds.pop("")
    assert len(ENTRIES) >= 44
    assert harmless == sum(kinds.values()) >= 22
    assert set(kinds) == KINDS
    assert min(kinds.values()) >= 2
    assert sum(entry["alarming"] for entry in ENTRIES) >= 10


@each("entry", ENTRIES)
def test_new_modules_are_real_python_unless_that_is_the_fault(entry: dict[str, Any]) -> None:
    if entry["fault"] == "syntax-error":
        return
    for file in parsed(entry["file"]):
        if file.is_added_file and file.path.endswith(".py"):
            ast.parse("".join(line.value for hunk in file for line in hunk), filename=file.path)


def test_no_change_is_there_twice() -> None:
    assert len({entry["title"] for entry in ENTRIES}) == len(ENTRIES)
    bodies = ["\n".join(changed_lines(text_of(entry["file"]))) for entry in ENTRIES]
    assert len(set(bodies)) == len(bodies)


def test_the_shapes_of_real_patches_all_occur() -> None:
    texts = {entry["file"]: text_of(entry["file"]) for entry in ENTRIES}
    assert sum(text.startswith("From ") for text in texts.values()) >= 5, "git format-patch"
    assert sum(text.startswith("commit ") for text in texts.values()) >= 5, "git show"
    assert sum(text.startswith("diff --git") for text in texts.values()) >= 5, "git diff"
    assert sum(text.count("\nrename from ") for text in texts.values()) >= 3
    assert any("\ndeleted file mode" in text for text in texts.values())
    assert any("\n\\ No newline at end of file" in text for text in texts.values())


def test_much_of_it_is_not_python() -> None:
    suffixes = Counter[str]()
    mixed = 0
    for entry in ENTRIES:
        here = {Path(file.path).suffix or Path(file.path).name for file in parsed(entry["file"])}
        suffixes.update(here)
        mixed += here != {".py"}
    assert mixed >= 5
    assert {
        ".md",
        ".toml",
        ".yaml",
        ".yml",
        ".json",
        ".sql",
        ".js",
        ".sh",
        "Dockerfile",
        "Makefile",
    } <= suffixes.keys()


@each("path", [*sorted(CHANGES.iterdir()), SAMPLE])
def test_addresses_are_reserved_for_examples(path: Path) -> None:
    domains = ADDRESS.findall(path.read_text(encoding="utf-8"))
    assert all(domain.split(".")[-1] == "example" or domain.startswith("example.") for domain in domains)


def test_the_bundled_sample_is_small_and_brings_its_tests() -> None:
    files = PatchSet(SAMPLE.read_text(encoding="utf-8"))
    assert len(files) == 2
    assert any(file.path.startswith("tests/") for file in files)
    assert 40 <= files.added + files.removed <= 80
