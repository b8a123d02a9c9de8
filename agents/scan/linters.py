"""Runs ruff on the Python of a change, and weighs what it reports by ``rules/linters.yml``.

No text is executed. ruff's settings come neither from the texts nor from the working directory: the files lie in a
private temporary directory under names of our own, ruff runs isolated, and within the limits of ``tools``.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from council.agents.scan import tools
from council.agents.scan.change import FileChange, Hunk, short_quote
from council.agents.scan.finding import Family, Finding, Weight
from council.agents.scan.pieces import Piece, hunks_of
from council.agents.scan.rows import load

SYNTAX = "invalid-syntax"  # the code of what can't be parsed
# A line that is code, and no prose that happens to parse.
_CODE = re.compile(r"^[ \t]*(?:import |from \S+ import |return\b|def |class |[\w.]+(?:\(| = ))", re.MULTILINE)
_RUFF = (
    "check --isolated --no-cache --ignore-noqa --no-fix --quiet --exit-zero --output-format json "
    "--target-version py314"
)


class Code(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table. The head of the file says what its keys mean."""

    code: str
    family: Family
    weight: Weight
    cwe: int
    message: str
    bad: list[str]
    good: list[str]
    whole: bool = False
    unless: str = ""


class Report(NamedTuple):
    """One report of ruff. ``text`` is the index of the text that it is about; ``line`` counts from 1."""

    text: int
    code: str
    line: int
    message: str


@cache
def codes() -> dict[str, Code]:
    """The rows of the table by code."""
    table = load(Path(__file__).parent / "rules" / "linters.yml")
    return {row.code: row for row in msgspec.convert(table, list[Code])}


def findings(changes: Iterable[FileChange], pieces: Iterable[Piece], timeout_s: float) -> list[Finding]:
    """What ruff reports on the new pieces of Python files, and not as often on the old ones. Raises ToolFailed."""
    hunks, pieces = hunks_of(changes), [each for each in pieces if each.path.endswith((".py", ".pyi"))]
    reports = lint([piece.text for piece in pieces], timeout_s=timeout_s)
    broken = {
        pieces[each.text].hunk for each in reports if each.code == SYNTAX and not pieces[each.text].is_new
    }
    found = []
    for report in _fresh(reports, pieces):
        piece, row = pieces[report.text], codes()[report.code]
        change, hunk = hunks[piece.hunk]
        line = piece.number(report.line - 1)
        if report.code == SYNTAX:
            holds = piece.hunk not in broken and (change.is_whole or _breaks(change, hunk))
            broken.add(piece.hunk)  # one error brings others
        else:
            holds = change.is_whole or not row.whole
        if report.code == "F821" and (name := _unbound(change, report.message)):
            message = f"Uses `{name}`, which the change no longer imports or defines. Bring it back."
            found.append(Finding("name-gone", "bug", "stop", change.path, line, message, 457))
        elif holds:
            rule = f"ruff-{row.code}"
            found.append(Finding(rule, row.family, row.weight, change.path, line, row.message, row.cwe))
    return found


def _fresh(reports: Sequence[Report], pieces: Sequence[Piece]) -> list[Report]:
    """The reports on new sides that the old sides do not have as often. Lines that moved are not new."""
    texts = [["".join(line.split()) for line in piece.text.split("\n")] for piece in pieces]
    # How many more of each report, and of each line, the old sides have.
    known: Counter[tuple[str, str]] = Counter()
    for piece, lines in zip(pieces, texts, strict=True):
        for line in lines:
            known["", line] += -1 if piece.is_new else 1
    fresh = []
    for report in sorted(reports, key=lambda report: pieces[report.text].is_new):
        lines = texts[report.text]
        line = lines[report.line - 1] if report.line <= len(lines) else ""
        key = report.code, report.message if report.code.startswith("F82") else line
        if not pieces[report.text].is_new:
            known[key] += 1
        elif known[key] > 0:
            known[key] -= 1
        # ruff knows some calls by their imports alone, which the old hunk may not show.
        elif not report.code.startswith("S") or known["", line] < 0:
            fresh.append(report)
    return fresh


def _breaks(change: FileChange, hunk: Hunk) -> bool:
    """Whether a syntax error that only the new side of a hunk has is certainly one. A hunk may cut a statement."""
    opened = [_opened(each.new_text()) - _opened(each.old_text()) for each in change.hunks]
    is_closed_elsewhere = opened[change.hunks.index(hunk)] and not sum(opened)
    lines = [line.strip() for line in hunk.new_text().split("\n")]
    last = next((line for line in reversed(lines) if line and line[0] != "#"), ":")
    return bool(_CODE.search(hunk.old_text())) and not (
        last.endswith(":") or last.startswith("@") or is_closed_elsewhere
    )


def _opened(text: str) -> int:
    """How many more brackets open than close, strings and comments included."""
    return sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))


def _unbound(change: FileChange, message: str) -> str:
    """The name that ruff says is undefined, if the change takes away what binds it at the top of the file."""
    name = short_quote(message).split("`")[1]
    word = rf"\b{re.escape(name)}\b"
    binds = re.compile(rf"(?:(?:from .+ )?import .*|(?:async )?def |class |(?={word} ?[:=])){word}")
    lists = re.compile(rf"\s+(?:[\w, ]+, )?{word}(?:, [\w, ]*)?,?$")  # a line of an import in brackets
    is_gone = any(binds.match(line) for _, line in change.removed)
    is_back = any(binds.match(line) or lists.match(line) for _, line in change.added)
    return name if is_gone and not is_back else ""


def lint(texts: Sequence[str], *, timeout_s: float) -> list[Report]:
    """What one run of ruff reports on some texts, by the codes of the table. Raises ToolFailed."""
    if not texts:
        return []
    with tempfile.TemporaryDirectory(prefix="council-lint-") as folder:
        place = Path(folder, "code")
        place.mkdir(mode=0o700)
        for at, text in enumerate(texts):
            (place / f"{at:05d}.py").write_text(text, encoding="utf-8", errors="replace", newline="")
        select = ",".join(code for code in codes() if code != SYNTAX)
        command = [tools.find("ruff"), *_RUFF.split(), "--select", select, "code"]
        printed = tools.run(command, Path(folder), timeout_s=timeout_s)
    try:
        reports = [
            Report(
                int(Path(each["filename"]).stem),
                each["code"] or SYNTAX,
                each["location"]["row"],
                each["message"],
            )
            for each in msgspec.json.decode(printed)
        ]
        return [
            each
            for each in reports
            if not ((no := codes()[each.code].unless) and re.search(no, each.message))
        ]
    except (ValueError, TypeError, LookupError) as error:
        raise tools.ToolFailed("ruff printed findings that could not be read") from error
