"""Runs ruff on untrusted Python, and weighs its findings by ``rules/linters.yml``.

No text is executed. ruff's settings come neither from the texts nor from the working directory: the files lie in a
private temporary directory under names of our own, ruff runs isolated, and within the limits of ``tools``.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from council.agents.scan import tools
from council.agents.scan.change import FileChange, Hunk, short_quote
from council.agents.scan.finding import Finding
from council.agents.scan.pieces import Piece, hunks_of

CODES = Path(__file__).parent / "rules" / "linters.yml"
# A line that is code, and no prose that happens to parse.
_CODE = re.compile(r"^[ \t]*(?:import |from \S+ import |return\b|def |class |[\w.]+(?:\(| = ))", re.MULTILINE)
_RUFF = (
    "check --isolated --no-cache --ignore-noqa --no-fix --quiet --exit-zero --output-format json "
    "--target-version py314"
)


@dataclass(frozen=True, slots=True)
class LinterFinding:
    """One finding of ruff in the text ``name``. Its lines count from 1 in that text."""

    name: str
    rule: str
    line: int
    end_line: int
    message: str


@dataclass(frozen=True, slots=True)
class Linted:
    """The findings, and in ``faults`` why ruff failed, if it did."""

    reports: tuple[LinterFinding, ...]
    faults: tuple[str, ...]


@cache
def codes() -> dict[str, dict[str, Any]]:
    """The rows of ``rules/linters.yml`` by code: family, cwe, weight, message, and perhaps whole and unless."""
    import yaml

    from council.agents.scan.ruleset import Loader

    return {row["code"]: row for row in yaml.load(CODES.read_bytes(), Loader)}


def findings(
    old: Mapping[str, str], new: Mapping[str, str], *, timeout_s: float
) -> tuple[list[Finding], tuple[str, ...]]:
    """What ruff finds in the new texts and not as often in the old ones, and its faults. The names are paths."""
    sides = {f"old {name}": text for name, text in old.items()} | {
        f"new {name}": text for name, text in new.items()
    }
    linted = lint(sides, timeout_s=timeout_s)
    found = [_weighed(report) for report in fresh(linted.reports, sides)]
    return found, linted.faults


def of_changes(
    changes: Iterable[FileChange], pieces: Iterable[Piece], timeout_s: float
) -> tuple[list[Finding], Sequence[str]]:
    """What ruff finds in the new pieces of Python files and not as often in the old ones, and its faults."""
    hunks = hunks_of(changes)
    places = {
        f"{'new' if piece.is_new else 'old'} {piece.hunk}": piece
        for piece in pieces
        if piece.path.endswith((".py", ".pyi"))
    }
    sides = {name: piece.text for name, piece in places.items()}
    linted, found = lint(sides, timeout_s=timeout_s), []
    errors = [report.name for report in linted.reports if report.rule == "invalid-syntax"]
    broken = {name[4:] for name in errors if name.startswith("old ")}
    for report in fresh(linted.reports, sides):
        piece = places[report.name]
        change, hunk = hunks[piece.hunk]
        line = piece.number(report.line - 1)
        if report.rule == "F821" and (name := _unbound(change, report.message)):
            message = f"Uses `{name}`, which the change no longer imports or defines. Bring it back."
            found.append(Finding("name-gone", "bug", "stop", change.path, line, message, 457))
        elif report.rule == "invalid-syntax":
            if report.name[4:] not in broken and (change.is_whole or _breaks(change, hunk)):
                found.append(replace(_weighed(report), path=change.path, line=line))
                broken.add(report.name[4:])  # one error brings others
        elif change.is_whole or not codes()[report.rule].get("whole"):
            found.append(replace(_weighed(report), path=change.path, line=line))
    return found, linted.faults


def _breaks(change: FileChange, hunk: Hunk) -> bool:
    """Whether a syntax error on the new side of a hunk alone is certainly one: a hunk may end in a statement."""
    opened = [_opened(each.new_text()) - _opened(each.old_text()) for each in change.hunks]
    is_closed_elsewhere = opened[change.hunks.index(hunk)] and not sum(opened)
    lines = [
        text for text in hunk.new_text().split("\n") if text.strip() and not text.lstrip().startswith("#")
    ]
    is_cut = not lines or lines[-1].rstrip().endswith(":") or lines[-1].lstrip().startswith("@")
    return bool(_CODE.search(hunk.old_text())) and not (is_cut or is_closed_elsewhere)


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


def _weighed(report: LinterFinding) -> Finding:
    row = codes()[report.rule]
    return Finding(
        f"ruff-{report.rule}",
        row["family"],
        row["weight"],
        report.name[4:],
        report.line,
        row["message"],
        row["cwe"],
    )


def fresh(reports: Iterable[LinterFinding], sides: Mapping[str, str]) -> list[LinterFinding]:
    """The findings in texts named ``new …`` that texts named ``old …`` do not have as often, wherever lines moved."""
    lines = {name: text.split("\n") for name, text in sides.items()}
    inherited: Counter[tuple[str, str]] = Counter()
    before, after = (
        Counter(" ".join(line.split()) for name in lines if name.startswith(side) for line in lines[name])
        for side in ("old ", "new ")
    )
    kept = []
    for report in sorted(reports, key=lambda report: report.name[:3] != "old"):
        text = lines[report.name]
        shown = " ".join(text[report.line - 1].split()) if report.line <= len(text) else ""
        key = report.rule, report.message if report.rule.startswith("F82") else shown
        inherited[key] += 1 if report.name.startswith("old ") else -1
        if report.name.startswith("new ") and inherited[key] < 0:
            inherited[key] = 0
            # ruff knows some calls by their imports alone, which the old hunk may not show.
            if not (report.rule.startswith("S") and after[shown] <= before[shown]):
                kept.append(report)
    return kept


def lint(texts: Mapping[str, str], *, timeout_s: float) -> Linted:
    """Runs ruff once for all texts. The names are keys, not file names."""
    if not texts:
        return Linted((), ())
    files = {f"p{at:05d}.py": name for at, name in enumerate(texts)}
    with tempfile.TemporaryDirectory(prefix="council-lint-") as folder:
        place = Path(folder, "code")
        place.mkdir(mode=0o700)
        for file, name in files.items():
            (place / file).write_text(texts[name], encoding="utf-8", errors="replace", newline="")
        select = ",".join(code for code in codes() if code != "invalid-syntax")
        try:
            command = [tools.find("ruff"), *_RUFF.split(), "--select", select, "code"]
            output = json.loads(tools.run(command, Path(folder), timeout_s=timeout_s))
            return Linted(tuple(filter(None, (_report(item, files) for item in output))), ())
        except tools.ToolFailed as error:
            return Linted((), (str(error),))
        except (ValueError, TypeError, KeyError):
            return Linted((), ("ruff printed findings that could not be read",))


def _report(item: Any, files: Mapping[str, str]) -> LinterFinding | None:
    """None if the table says that this message is no finding."""
    code, message = item["code"] or "invalid-syntax", item["message"]
    unless = codes()[code].get("unless")
    if unless and re.search(unless, message):
        return None
    first, last = item["location"]["row"], item["end_location"]["row"]
    return LinterFinding(files[Path(item["filename"]).name], code, first, last, message)
