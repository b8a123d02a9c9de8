"""CodeMind's built-in mind: static checks of the code in a case. It never runs the code, and uses no network.

It reads the unified diffs and code blocks in a case's body and in its action's arguments. It judges only what the
*change* adds: the proposer does not answer for older code. How it votes:

=====================================================================  =======  ====  ==========
what was found                                                         vote     risk  confidence
=====================================================================  =======  ====  ==========
a sure fault: broken syntax, a key in plain text, a shell, SQL or      no       high  0.95
eval fed with what is built at run time, certificate checks turned
off, unsafe loading of foreign data, a deleted check, an undefined
name on every way through its function
pickled bytes whose origin is not visible                              no       high  0.6
a likely fault: an undefined name, the same in tests, what a linter    no       med   0.7 (0.6 if
rates medium, a check whose deletion may be meant                                     only likely)
nothing, or small matters that it names                                yes      low   0.9 (0.7)
nothing, but files in other languages, or fragments it can't parse     yes      low   0.6 (0.4)
nothing, and of data files only the syntax was read                    yes      low   0.5
no code, only files it can't judge, an unreadable diff, a linter that  abstain  low   0.5
did not do its work
=====================================================================  =======  ====  ==========

No confidence is below 0.3. A lower one would send every change that has a README to Prime (rules 1.8).
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from council.agents.mind import Case, Observation, Opinion, RiskLevel, Stream
from council.agents.scan import datafiles, shell_finder
from council.agents.scan.diff import CodeBlock, FileChange, ScannedText, read_changes
from council.agents.scan.diff_lines import short_quote
from council.agents.scan.linters import Linted, LinterFinding, lint
from council.agents.scan.personal import words
from council.agents.scan.python_dangers import PythonDanger, fresh_dangers
from council.agents.scan.python_hunks import TOO_MANY, PythonPiece, Sides, Unparsable, parse, sides_of
from council.agents.scan.python_names import is_surely_used
from council.agents.scan.removed_checks import vanished_checks
from council.agents.static import marks
from council.agents.static.actions import CODE_KEYS, read_action
from council.agents.static.policy import is_python, is_test, listed, observed, written_file

REASON_CHARS_MAX = 4_000  # a ballot is read by people, and travels in every record of its decision
UNJUDGED_MAX = 20  # named in a reason; the others are only counted
LINT_SECONDS_MAX = 20.0  # the linters of one review; for an ordinary diff they take about one second
NAMES_TRIED_MAX = 20  # undefined names that are examined closely: one certain fault is enough
NAMED_CHARS_MAX = 200_000  # of a file that is examined for them
METHOD = marks.CODE

_PYTHON_NAMES = {"python", "py", "python3", "py3"}
_PROSE_NAMES = {"", "text", "txt", "console", "output", "markdown", "md", "log", "none", "plain"}
# Only these rules hold for a repaired fragment; the others need the whole file.
_FRAGMENT_RULES = ("F50", "F52", "F601", "F602", "F63", "B002", "B012", "B020", "B025", "B029")
# bandit's numbers of the dangers that python_dangers.py judges. bandit's finding is then cited, not counted again.
_SAME = {
    "eval": ("B102", "B307"), "shell": ("B602", "B604", "B605"), "sql": ("B608",), "pickle": ("B301", "B302"),
    "yaml": ("B506",), "certificate": ("B323", "B501"), "secret": ("B105", "B106", "B107"),
}  # fmt: skip
_JUDGED_OTHERWISE = {rule for rules in _SAME.values() for rule in rules}
# Names that the program which runs such a file defines: notebooks, Sphinx, Jupyter's and Spark's own, gettext.
_GIVEN = {"_", "get_ipython", "get_config", "display", "spark", "sc", "dbutils", "tags", "reveal_type"}
_SECRET = re.compile("passw|secret|token|sign")
# Faults that are certain: code that can't be compiled, and most of what bandit rates high.
_GRAVE = words("invalid-syntax F701 F702 F704 F706 F707 B201 B502 B505 B507 B613")
# Small matters. They include a weak hash, which is fine for a cache key.
_SMALL = words("B015 B018 B023 B030 B032 F601 F602 B306 B313 B314 B318 B324 B504 B702")


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a change adds. ``line`` is a line of the new file; for a deletion, of the old file."""

    path: str
    line: int
    rule: str
    message: str
    risk_level: RiskLevel
    sure: bool

    def __str__(self) -> str:
        return f"{short_quote(self.path)}:{self.line} {self.message} ({self.rule})"


class CodeMind:
    """The mind of the seat ``codemind``. The module's docstring says how it votes."""

    def observe(self, case: Case, stream: Stream) -> Observation:
        """Interrupts a stream that breaks policy, as Lite does (rules 3.1). No text in the stream makes it raise."""
        return observed(case, stream)

    def review(self, case: Case) -> Opinion:
        """Returns its opinion, by static checks of the case's code. Blocks for about a second if there is code."""
        reading = _reading_of(case)
        if not (reading.files or reading.blocks or reading.faults):
            reason = f"there is no code to judge: no diff, no code block {METHOD}"
            return Opinion.abstain(reason, confidence=0.5)
        timeout_s = max(1.0, min(LINT_SECONDS_MAX, case.time_left_s / 2))
        return _opinion(_examine(reading, timeout_s), reading.faults)


# What is read


def _reading_of(case: Case) -> ScannedText:
    """The diffs in its body and its action's arguments, the files that it writes, and the Python that it runs."""
    reading, action = read_changes(case.body), read_action(case.action)
    for argument in action.args:
        key, text, path = argument
        more = read_changes(text)
        if more.files or more.faults:
            reading = reading.with_more(more)
        elif action.writes(argument):
            reading = reading.with_more(ScannedText(files=(written_file(argument),)))
        elif (action.runs_python or shell_finder.is_python(path)) and key.lower() in CODE_KEYS:
            reading = reading.with_more(ScannedText(blocks=(CodeBlock("python", text, 0),)))
        elif action.names_file(argument):
            reading = reading.with_more(ScannedText(files=(written_file(argument),)))
    return reading


# What is found


@dataclass(slots=True)
class _Examination:
    """The findings about a change so far."""

    old: list[PythonPiece] = field(default_factory=list)
    new: list[PythonPiece] = field(default_factory=list)
    broken: list[tuple[str, Sides]] = field(default_factory=list)
    found: list[Finding] = field(default_factory=list)
    judged: int = 0
    only_data: int = 0  # of the judged files, those whose syntax alone was read
    unjudged: list[str] = field(default_factory=list)
    unparsed: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    faults: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        order = ("high", "med", "low")
        unique = dict.fromkeys(self.found)
        places = sorted(unique, key=lambda f: (f.path, f.line, f.rule))
        return tuple(sorted(places, key=lambda f: (order.index(f.risk_level), "F821" in f.rule)))


def _examine(reading: ScannedText, timeout_s: float) -> _Examination:
    seen = _Examination()
    _read_python([change for change in reading.files if is_python(change)], seen)
    for change in reading.files:
        if not is_python(change):
            _read_file(change, seen)
    for block in reading.blocks:
        if not block.has_diff:
            _read_block(block, seen)
    linted = _lint(seen, timeout_s)
    seen.faults = (*linted.faults, *seen.unread)
    _judge_broken(seen, linted)
    try:
        _judge_dangers(seen, linted)
        _judge_reports(seen, linted)
        _judge_deletions(seen)
    except RecursionError:  # the parser accepts deeper nesting than a tree walk
        seen.faults = (*seen.faults, "what is nested too deeply is unread")
    return seen


def _read_file(change: FileChange, seen: _Examination) -> None:
    path = short_quote(change.path)
    if change.is_binary or change.is_link:
        seen.unjudged.append(f"{path} ({'binary' if change.is_binary else 'a symbolic link'})")
    elif not change.hunks:
        seen.judged += 1  # a rename, a mode, an empty file: it holds no code
    elif change.kind == "deleted":
        seen.unjudged.append(f"{path} (deleted)")
    elif change.path.lower().endswith(datafiles.CARRIERS) and change.is_whole:
        _read_carrier(change, seen)
    elif not (datafiles.is_known(change.path) and change.is_whole):
        seen.unjudged.append(path)
    else:
        _read_data(change, seen)


def _read_data(change: FileChange, seen: _Examination) -> None:
    hunk = change.hunks[0]
    fault = datafiles.syntax_fault(change.path, hunk.new_text())
    is_new = change.kind == "added" or not datafiles.syntax_fault(change.path, hunk.old_text())
    if fault and is_new and not fault.sure:
        seen.unjudged.append(f"{short_quote(change.path)} ({fault.message})")
        return
    seen.judged += 1
    seen.only_data += 1
    if fault and is_new:
        seen.found.append(Finding(change.path, fault.line, "syntax", fault.message, "high", True))


def _read_carrier(change: FileChange, seen: _Examination) -> None:
    """Reads the Python in a notebook or .pth file. Its code is checked as a fragment."""
    hunk = change.hunks[0]
    sides = [(seen.new, hunk.new_text(), hunk.added)]
    if change.kind != "added":
        sides.append((seen.old, hunk.old_text(), hunk.removed))
    for pieces, text, changed in sides:
        code = datafiles.code_in(change.path, text)
        tree = parse(code[0]) if code else None
        if code and isinstance(tree, ast.Module):
            fresh = frozenset(number for number, _ in changed)
            pieces.append(PythonPiece(change.path, code[0], tree, code[1], fresh, False))
            seen.judged += pieces is seen.new
        elif len(text) > datafiles.CHARS_MAX or (isinstance(tree, Unparsable) and tree.is_limit):
            seen.unread.append(f"{short_quote(change.path)} is unread: {TOO_MANY}")
        elif pieces is seen.new:
            seen.unjudged.append(f"{short_quote(change.path)} (its code can't be read)")


def _read_python(changes: list[FileChange], seen: _Examination) -> None:
    for change, start, side in sides_of(changes):
        if side.old is not None:
            seen.old.append(side.old)
        if side.new is not None:
            seen.new.append(side.new)
        if side.unread:
            seen.unread.append(f"{short_quote(change.path)}:{start} is unread: {side.unread}")
            continue
        if side.error is not None:
            seen.broken.append((change.path, side))
        elif side.new is None and change.kind != "deleted":
            seen.unparsed.append(f"{short_quote(change.path)}:{start} (can't be parsed as it stands)")
            continue
        seen.judged += 1


def _read_block(block: CodeBlock, seen: _Examination) -> None:
    name = f"code block at line {block.line}" if block.line else "code of the action"
    if block.language not in _PYTHON_NAMES:
        if block.language not in _PROSE_NAMES:
            seen.unjudged.append(f"{name} ({short_quote(block.language)})")
        return
    text = textwrap.dedent(block.code)
    tree = parse(text)
    numbers = tuple(range(1, text.count("\n") + 2))
    if isinstance(tree, ast.Module):
        seen.judged += 1
        seen.new.append(PythonPiece(name, text, tree, numbers, frozenset(numbers), False))
    elif tree.is_limit:
        seen.unread.append(f"{name} is unread: {tree.message}")
    elif ">>>" in text or "…" in text:
        seen.unparsed.append(f"{name} ({tree.message})")
    else:
        seen.broken.append((name, Sides(None, None, (tree.line, tree.message), text)))


# How a finding is judged


def _lint(seen: _Examination, timeout_s: float) -> Linted:
    texts = {f"new {at}": piece.text for at, piece in enumerate(seen.new)}
    texts |= {f"old {at}": piece.text for at, piece in enumerate(seen.old)}
    broken = {f"broken {at}": sides.broken for at, (_, sides) in enumerate(seen.broken)}
    return lint(texts, broken, timeout_s=timeout_s)


def _judge_broken(seen: _Examination, linted: Linted) -> None:
    """A syntax error counts only if ruff finds it too, because ruff reads newer Python than this interpreter."""
    confirmed = {report.name for report in linted.reports if report.rule == "invalid-syntax"}
    has_ruff = not any(fault.startswith("ruff") for fault in linted.faults)
    for at, (path, sides) in enumerate(seen.broken):
        line, message = sides.error or (0, "")
        if f"broken {at}" in confirmed:
            sure = not (sides.old is None and path.startswith("code "))  # a block may be a sketch
            message = f"breaks the syntax: {short_quote(message)}"
            seen.found.append(Finding(path, line, "syntax", message, "high" if sure else "med", sure))
        else:
            why = "ruff parses it, this Python does not" if has_ruff else "syntax in doubt"
            seen.unparsed.append(f"{short_quote(path)}:{line} ({why})")


def _judge_dangers(seen: _Examination, linted: Linted) -> None:
    at = {id(piece): f"new {at}" for at, piece in enumerate(seen.new)}
    for piece, line, danger in fresh_dangers(seen.old, seen.new, is_test=is_test):
        reports = [report for report in linted.reports if report.name == at[id(piece)]]
        rule = _cited(danger, reports)
        seen.found.append(Finding(piece.path, line, rule, danger.message, danger.risk, danger.sure))


def _cited(danger: PythonDanger, reports: list[LinterFinding]) -> str:
    """The rule's name, with bandit's number if bandit reports the same lines for the same reason."""
    for report in reports:
        is_same_place = report.line <= danger.end_line and danger.line <= report.end_line
        if is_same_place and report.rule in _SAME[danger.rule]:
            return f"{danger.rule}, bandit {report.rule}"
    return danger.rule


def _judge_reports(seen: _Examination, linted: Linted) -> None:
    lines = {f"new {at}": piece.text.split("\n") for at, piece in enumerate(seen.new)}
    lines |= {f"old {at}": piece.text.split("\n") for at, piece in enumerate(seen.old)}
    inherited = Counter(_key(lines, report) for report in linted.reports if report.name.startswith("old "))
    tried = 0
    for report in linted.reports:
        if not report.name.startswith("new ") or report.rule in _JUDGED_OTHERWISE:
            continue
        piece = seen.new[int(report.name[4:])]
        key = _key(lines, report)
        line = piece.line_of(report.line, report.end_line)
        if inherited[key] > 0:
            inherited[key] -= 1
        elif line and (piece.is_whole or report.tool == "bandit" or report.rule.startswith(_FRAGMENT_RULES)):
            risk, sure = _weigh(report, piece, lines[report.name])
            if report.rule == "F821" and tried < NAMES_TRIED_MAX:
                tried += 1
                risk, sure = ("high", True) if _is_certain(report, piece) else (risk, sure)
            rule = report.rule if report.rule == "invalid-syntax" else f"{report.tool} {report.rule}"
            seen.found.append(Finding(piece.path, line, rule, short_quote(report.message), risk, sure))


def _key(lines: dict[str, list[str]], report: LinterFinding) -> tuple[str, str]:
    """A key that a finding has before and after the change, wherever its lines have moved."""
    if report.rule.startswith("F82"):
        return report.rule, report.message
    text = lines[report.name]
    return report.rule, " ".join(text[report.line - 1].split()) if report.line <= len(text) else ""


def _is_certain(report: LinterFinding, piece: PythonPiece) -> bool:
    """Whether an undefined name raises NameError on every path."""
    if is_test(piece.path) or not piece.path.endswith(".py") or len(piece.text) > NAMED_CHARS_MAX:
        return False
    name = report.message.partition("`")[2].partition("`")[0]
    return piece.is_whole and name not in _GIVEN and is_surely_used(piece.tree, name, report.line)


def _weigh(report: LinterFinding, piece: PythonPiece, lines: list[str]) -> tuple[RiskLevel, bool]:
    """The risk level of a linter's finding, and whether it is certain."""
    if is_test(piece.path) and report.tool == "bandit":
        return "low", False
    if report.rule in _GRAVE:
        return "high", True
    if report.rule == "B324" and _SECRET.search(lines[report.line - 1].lower()):
        return "med", False
    if report.rule in _SMALL:
        return "low", False
    return "med", report.tool == "ruff" and report.rule.startswith("F")


def _judge_deletions(seen: _Examination) -> None:
    old = [piece for piece in seen.old if not is_test(piece.path)]
    new = [piece for piece in seen.new if not is_test(piece.path)]
    for gone in vanished_checks(old, new):
        sure = gone.sure and not seen.unparsed  # else it may have moved into a part that can't be parsed
        risk: RiskLevel = "high" if sure else "med"
        message = f"deletes the check `{short_quote(gone.shown)}`, which nothing replaces"
        seen.found.append(Finding(gone.path, gone.line, f"deleted {gone.kind}", message, risk, sure))


# How it votes


def _opinion(seen: _Examination, faults: tuple[str, ...]) -> Opinion:
    found = seen.findings
    grave = [finding for finding in found if finding.risk_level == "high" and finding.sure]
    likely = [finding for finding in found if finding.risk_level != "low"]
    unjudged = [*seen.unparsed, *seen.unjudged]
    notes = [*faults, *seen.faults]
    if unjudged:
        notes.append("not judged: " + listed(unjudged, UNJUDGED_MAX, ", "))
    if grave:
        return Opinion.no(_reason(likely, notes), confidence=0.95, risk_level="high")
    if likely:
        confidence = 0.7 if any(finding.sure for finding in likely) else 0.6
        # The gravest stands first. A high risk that is not certain is left to Prime's ruling: it must not be
        # outvoted.
        return Opinion.no(_reason(likely, notes), confidence=confidence, risk_level=likely[0].risk_level)
    if seen.faults or faults:
        # An unread part may hold a fault, so the result is not clean.
        return Opinion.abstain(_reason(["this can't be judged in full"], notes), confidence=0.5)
    if not seen.judged:
        what = "there is nothing here that it can judge" if unjudged else "there is no code to judge"
        return Opinion.abstain(_reason([what], notes), confidence=0.5)
    if seen.judged == seen.only_data and not found:
        says = ["only the syntax of data files was read, and it is well-formed"]
        return Opinion.yes(_reason(says, notes), confidence=0.5)
    confidence = 0.4 if seen.unparsed else 0.6 if unjudged else 0.7 if found else 0.9
    told = ["small matters only:", *found] if found else ["the change brings in no fault that it can see"]
    return Opinion.yes(_reason(told, notes), confidence=confidence)


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
