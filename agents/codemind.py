"""CodeMind's built-in mind: static checks of the code a case brings. Never runs it, never leaves the machine.

It reads the unified diffs and code blocks of a case's body and of its action's arguments, and judges what
the *change* brings in; what was there before is not the proposer's. How it votes:

=====================================================================  =======  ====  ==========
what was found                                                         vote     risk  confidence
=====================================================================  =======  ====  ==========
a sure fault: broken syntax, a key in plain text, a shell, SQL or      no       high  0.95
eval fed with what is built at run time, certificate checks turned
off, unsafe loading of foreign data, a deleted check
pickled bytes whose origin is not visible                              no       high  0.6
a likely fault: an undefined name, the same in tests, what a linter    no       med   0.7 (0.6 if
rates medium, a check whose deletion may be meant                                     only likely)
nothing, or small matters that it names                                yes      low   0.9 (0.7)
nothing, but files in other languages, or fragments it can't parse     yes      low   0.6 (0.4)
no code, only files it can't judge, an unreadable diff, a linter that  abstain  low   0.5
did not do its work
=====================================================================  =======  ====  ==========

No confidence is below 0.3: that would send every change with a README in it to Prime (rules 1.8).
"""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from council.agents import datafiles
from council.agents.changes import CodeBlock, FileChange, Reading, read_changes, shown
from council.agents.dangers import Danger, fresh_dangers
from council.agents.fragments import Piece, Sides, parse, sides_of
from council.agents.guards import vanished_checks
from council.agents.linters import Linted, Report, lint
from council.agents.mind import Case, Opinion, RiskLevel
from council.agents.policy import is_test

REASON_CHARS_MAX = 4_000  # a ballot is read by people, and travels in every record of its decision
UNJUDGED_MAX = 20  # named in a reason; of the others the number
LINT_SECONDS_MAX = 20.0  # a review of an ordinary diff takes about one
ACTION_DEPTH_MAX = 6  # of lists and maps in an action's arguments
METHOD = "(static checks: syntax, ruff, bandit)"

_PYTHON = {".py", ".pyi", ".pyw"}
_PYTHON_NAMES = {"python", "py", "python3", "py3"}
_PROSE_NAMES = {"", "text", "txt", "console", "output", "markdown", "md", "log", "none", "plain"}
# Of the repaired text of a fragment only these can be said; the rest needs the whole file.
_FRAGMENT_RULES = ("F50", "F52", "F601", "F602", "F63", "B002", "B012", "B020", "B025", "B029")
_COMPILE_RULES = ("invalid-syntax", "F701", "F702", "F704", "F706", "F707")
_SMALL_RULES = ("B015", "B018", "B023", "B030", "B032", "F601", "F602")
# What dangers.py judges, by bandit's number; bandit's word is then cited, not counted a second time.
_SAME = {
    "eval": ("B102", "B307"),
    "shell": ("B602", "B604", "B605"),
    "sql": ("B608",),
    "pickle": ("B301", "B302"),
    "yaml": ("B506",),
    "certificate": ("B323", "B501"),
    "secret": ("B105", "B106", "B107"),
}
_JUDGED_OTHERWISE = {rule for rules in _SAME.values() for rule in rules}
_BANDIT_RISKS: dict[str, tuple[RiskLevel, bool]] = {
    "B201": ("high", True),
    "B502": ("high", True),
    "B505": ("high", True),
    "B507": ("high", True),
    "B613": ("high", True),
    "B306": ("low", False),
    "B324": ("low", False),  # a weak hash is right for a cache key; med beside a password, see below
    "B504": ("low", False),
    "B702": ("low", False),
    "B313": ("low", False),
    "B314": ("low", False),
    "B318": ("low", False),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a change brings in. ``line`` is that of the new file (of the old one for a deletion)."""

    path: str
    line: int
    rule: str
    message: str
    risk_level: RiskLevel
    sure: bool

    def __str__(self) -> str:
        return f"{shown(self.path)}:{self.line} {self.message} ({self.rule})"


def findings(reading: Reading) -> tuple[Finding, ...]:
    """The faults that what was read brings in, the gravest first."""
    return _examine(reading, LINT_SECONDS_MAX).findings


class CodeMind:
    """The mind of the seat ``codemind``; see the module for how it votes."""

    def review(self, case: Case) -> Opinion:
        """What static checks say of the case's code. Blocks, for about a second where there is any."""
        reading = _reading_of(case)
        if not (reading.files or reading.blocks or reading.faults):
            return Opinion.abstain(
                f"there is no code to judge: no diff, no code block {METHOD}", confidence=0.5
            )
        timeout_s = max(1.0, min(LINT_SECONDS_MAX, case.time_left_s / 2))
        return _opinion(_examine(reading, timeout_s), reading.faults)


# What is read


def _reading_of(case: Case) -> Reading:
    readings = [read_changes(case.body)]
    if case.action is not None:
        arguments = case.action.get("args")
        if isinstance(arguments, Mapping):
            readings.extend(_readings_of_arguments(arguments, str(case.action.get("tool", "")), 0))
    return Reading(
        tuple(item for reading in readings for item in reading.files),
        tuple(item for reading in readings for item in reading.blocks),
        tuple(item for reading in readings for item in reading.faults),
    )


def _readings_of_arguments(arguments: Mapping[str, Any], tool: str, depth: int) -> Iterator[Reading]:
    """Diffs in any argument, and Python where the tool or a path beside it says that it is some."""
    names = [str(arguments.get(key, "")) for key in ("path", "file", "filename", "file_path")]
    path = next((name for name in names if name), "")
    is_python = "python" in tool.lower() or PurePosixPath(path).suffix in _PYTHON
    for key, value in arguments.items():
        if isinstance(value, Mapping) and depth < ACTION_DEPTH_MAX:
            yield from _readings_of_arguments(value, tool, depth + 1)
        elif isinstance(value, str):
            reading = read_changes(value)
            if reading.files or reading.faults:
                yield reading
            elif is_python and str(key) in (
                "code",
                "content",
                "contents",
                "source",
                "text",
                "script",
                "body",
            ):
                yield Reading(blocks=(CodeBlock("python", value, 0),))


# What is found


@dataclass(slots=True)
class _Examination:
    """What is known so far of a change, while it is examined."""

    old: list[Piece] = field(default_factory=list)
    new: list[Piece] = field(default_factory=list)
    broken: list[tuple[str, Sides]] = field(default_factory=list)
    found: list[Finding] = field(default_factory=list)
    judged: int = 0
    unjudged: list[str] = field(default_factory=list)
    unparsed: list[str] = field(default_factory=list)
    faults: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        order = {"high": 0, "med": 1, "low": 2}
        unique = dict.fromkeys(self.found)
        return tuple(
            sorted(unique, key=lambda item: (order[item.risk_level], item.path, item.line, item.rule))
        )


def _examine(reading: Reading, timeout_s: float) -> _Examination:
    seen = _Examination()
    is_python = {id(change): _is_python(change) for change in reading.files}
    _read_python([change for change in reading.files if is_python[id(change)]], seen)
    for change in reading.files:
        if not is_python[id(change)]:
            _read_file(change, seen)
    for block in reading.blocks:
        if not block.has_diff:
            _read_block(block, seen)
    linted = _lint(seen, timeout_s)
    seen.faults = linted.faults
    _judge_broken(seen, linted)
    try:
        _judge_dangers(seen, linted)
        _judge_reports(seen, linted)
        _judge_deletions(seen)
    except RecursionError:  # nested as deeply as the parser allows, deeper than a tree can be walked
        seen.unparsed.append("what is nested too deeply")
    return seen


def _is_python(change: FileChange) -> bool:
    is_named = PurePosixPath(change.path).suffix.lower() in _PYTHON
    return is_named and bool(change.hunks) and not change.is_binary


def _read_file(change: FileChange, seen: _Examination) -> None:
    path = shown(change.path)
    if change.is_binary:
        seen.unjudged.append(f"{path} (binary)")
    elif not change.hunks:
        seen.judged += 1  # a rename, a mode, an empty file: there is no code in it
    elif datafiles.is_known(change.path) and change.is_whole:
        _read_data(change, seen)
    elif change.kind == "deleted":
        seen.unjudged.append(f"{path} (deleted)")
    else:
        seen.unjudged.append(path)


def _read_python(changes: list[FileChange], seen: _Examination) -> None:
    for change, start, side in sides_of(changes):
        if side.old is not None:
            seen.old.append(side.old)
        if side.new is not None:
            seen.new.append(side.new)
        if side.error is not None:
            seen.broken.append((change.path, side))
        elif side.new is None and change.kind != "deleted":
            seen.unparsed.append(f"{shown(change.path)}:{start} (can't be parsed as it stands)")
            continue
        seen.judged += 1


def _read_data(change: FileChange, seen: _Examination) -> None:
    hunk = change.hunks[0]
    if change.kind == "deleted":
        seen.unjudged.append(f"{shown(change.path)} (deleted)")
        return
    fault = datafiles.syntax_fault(change.path, hunk.new_text())
    is_new = change.kind == "added" or not datafiles.syntax_fault(change.path, hunk.old_text())
    if fault is None or not is_new:
        seen.judged += 1
    elif fault.sure:
        seen.judged += 1
        seen.found.append(Finding(change.path, fault.line, "syntax", fault.message, "high", True))
    else:
        seen.unjudged.append(f"{shown(change.path)} ({fault.message})")


def _read_block(block: CodeBlock, seen: _Examination) -> None:
    name = f"code block at line {block.line}" if block.line else "code of the action"
    if block.language not in _PYTHON_NAMES:
        if block.language not in _PROSE_NAMES:
            seen.unjudged.append(f"{name} ({shown(block.language)})")
        return
    text = textwrap.dedent(block.code)
    tree = parse(text)
    numbers = tuple(range(1, text.count("\n") + 2))
    if isinstance(tree, ast.Module):
        seen.judged += 1
        seen.new.append(Piece(name, text, tree, numbers, frozenset(numbers), False))
    elif tree.is_limit or ">>>" in text or "…" in text:
        seen.unparsed.append(f"{name} ({tree.message})")
    else:
        seen.broken.append((name, Sides(None, None, (tree.line, tree.message), text)))


# What it is judged to be


def _lint(seen: _Examination, timeout_s: float) -> Linted:
    texts = {f"new {at}": piece.text for at, piece in enumerate(seen.new)}
    texts |= {f"old {at}": piece.text for at, piece in enumerate(seen.old)}
    broken = {f"broken {at}": sides.broken for at, (_, sides) in enumerate(seen.broken)}
    return lint(texts, broken, timeout_s=timeout_s)


def _judge_broken(seen: _Examination, linted: Linted) -> None:
    """A syntax error counts where ruff, which reads newer Python than this one, sees it as well."""
    confirmed = {report.name for report in linted.reports if report.rule == "invalid-syntax"}
    has_ruff = not any(fault.startswith("ruff") for fault in linted.faults)
    for at, (path, sides) in enumerate(seen.broken):
        line, message = sides.error or (0, "")
        if f"broken {at}" in confirmed:
            is_block = sides.old is None and path.startswith("code ")
            risk: RiskLevel = "med" if is_block else "high"
            finding = Finding(
                path, line, "syntax", f"breaks the syntax: {shown(message)}", risk, not is_block
            )
            seen.found.append(finding)
        else:
            why = "ruff parses it, this Python does not" if has_ruff else "syntax in doubt"
            seen.unparsed.append(f"{shown(path)}:{line} ({why})")


def _judge_dangers(seen: _Examination, linted: Linted) -> None:
    at = {id(piece): f"new {at}" for at, piece in enumerate(seen.new)}
    for piece, line, danger in fresh_dangers(seen.old, seen.new, is_test=is_test):
        reports = [report for report in linted.reports if report.name == at[id(piece)]]
        rule = _cited(danger, reports)
        seen.found.append(Finding(piece.path, line, rule, danger.message, danger.risk, danger.sure))


def _cited(danger: Danger, reports: list[Report]) -> str:
    """The rule's name, with bandit's number where bandit says the same of the same lines."""
    for report in reports:
        is_same_place = report.line <= danger.end_line and danger.line <= report.end_line
        if is_same_place and report.rule in _SAME[danger.rule]:
            return f"{danger.rule}, bandit {report.rule}"
    return danger.rule


def _judge_reports(seen: _Examination, linted: Linted) -> None:
    inherited = Counter(_key(seen, report) for report in linted.reports if report.name.startswith("old "))
    for report in linted.reports:
        if not report.name.startswith("new ") or report.rule in _JUDGED_OTHERWISE:
            continue
        piece = seen.new[int(report.name[4:])]
        key = _key(seen, report)
        line = piece.line_of(report.line, report.end_line)
        if inherited[key] > 0:
            inherited[key] -= 1
        elif line and (piece.is_whole or report.tool == "bandit" or report.rule.startswith(_FRAGMENT_RULES)):
            risk, sure = _weigh(report, piece)
            rule = report.rule if report.rule == "invalid-syntax" else f"{report.tool} {report.rule}"
            seen.found.append(Finding(piece.path, line, rule, shown(report.message), risk, sure))


def _key(seen: _Examination, report: Report) -> tuple[str, str]:
    """What makes a finding the same before and after, wherever it stands."""
    if report.rule.startswith("F82"):
        return report.rule, report.message
    side, _, at = report.name.partition(" ")
    piece = (seen.new if side == "new" else seen.old)[int(at)]
    lines = piece.text.split("\n")
    return report.rule, " ".join(lines[report.line - 1].split()) if report.line <= len(lines) else ""


def _weigh(report: Report, piece: Piece) -> tuple[RiskLevel, bool]:
    """How grave a linter's finding is: what can't be compiled is sure, what bandit rates high mostly so."""
    if is_test(piece.path) and report.tool == "bandit":
        return "low", False
    if report.rule in _COMPILE_RULES:
        return "high", True
    if report.rule == "B324":
        line = piece.text.split("\n")[report.line - 1].lower()
        is_secret = any(word in line for word in ("passw", "secret", "token", "sign"))
        return ("med", False) if is_secret else ("low", False)
    if report.tool == "bandit":
        return _BANDIT_RISKS.get(report.rule, ("med", False))
    return ("low", False) if report.rule in _SMALL_RULES else ("med", report.rule.startswith("F"))


def _judge_deletions(seen: _Examination) -> None:
    old = [piece for piece in seen.old if not is_test(piece.path)]
    new = [piece for piece in seen.new if not is_test(piece.path)]
    for gone in vanished_checks(old, new):
        sure = gone.sure and not seen.unparsed  # else it may have moved to where nothing can be parsed
        message = f"deletes the check `{shown(gone.shown)}`, which nothing replaces"
        seen.found.append(
            Finding(gone.path, gone.line, f"deleted {gone.kind}", message, "high" if sure else "med", sure)
        )


# How it votes


def _opinion(seen: _Examination, faults: tuple[str, ...]) -> Opinion:
    found = seen.findings
    grave = [finding for finding in found if finding.risk_level == "high" and finding.sure]
    likely = [finding for finding in found if finding.risk_level != "low"]
    unjudged = [*seen.unparsed, *seen.unjudged]
    notes = [*faults, *seen.faults]
    if unjudged:
        more = f" and {len(unjudged) - UNJUDGED_MAX:,} more" if len(unjudged) > UNJUDGED_MAX else ""
        notes.append("not judged: " + ", ".join(unjudged[:UNJUDGED_MAX]) + more)
    if grave:
        return Opinion.no(_reason(likely, notes), confidence=0.95, risk_level="high")
    if likely:
        confidence = 0.7 if any(finding.sure for finding in likely) else 0.6
        # The gravest stands first; a high risk, though not sure, is Prime's to rule on, not to be outvoted.
        return Opinion.no(_reason(likely, notes), confidence=confidence, risk_level=likely[0].risk_level)
    if seen.faults or faults:
        # What was not read may hold anything: that is no clean result.
        return Opinion.abstain(_reason(["this can't be judged in full"], notes), confidence=0.5)
    if not seen.judged:
        what = "there is nothing here that it can judge" if unjudged else "there is no code to judge"
        return Opinion.abstain(_reason([what], notes), confidence=0.5)
    confidence = 0.4 if seen.unparsed else 0.6 if unjudged else 0.7 if found else 0.9
    if found:
        return Opinion.yes(_reason(["small matters only:", *found], notes), confidence=confidence)
    return Opinion.yes(
        _reason(["the change brings in no fault that it can see"], notes), confidence=confidence
    )


def _reason(items: list[Any], notes: list[str]) -> str:
    """The items and notes as one text within the limit: whole items, and the number of those left out."""
    parts = [str(item) for item in items] + notes
    kept: list[str] = []
    room = REASON_CHARS_MAX - len(METHOD) - 40
    for part in parts:
        cut = part if len(part) <= 1_500 else part[:1_500] + "…"
        if len(cut) + 2 > room:
            break
        kept.append(cut)
        room -= len(cut) + 2
    left_out = len(parts) - len(kept)
    more = f"; and {left_out:,} more" if left_out else ""
    return "; ".join(kept).replace(":; ", ": ") + more + " " + METHOD
