"""Runs a user's scanners on the files of a change: any program that prints SARIF.

Each side of the change lies in a folder of its own, at the files' own paths. Lines that the change does not show are
empty, so the numbers of lines are the file's. Only results on added lines count, and not those that the old side has
as often. A scanner does not see files that could be its settings or run as its code, because a change must not choose
how it is scanned.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path

from council.agents.scan import sarif, tools
from council.agents.scan.change import FileChange, short_quote
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.languages import is_a
from council.agents.scan.own import Scanner

FILES_MAX = 1_000
LINE_NO_MAX = 100_000
FINDINGS_MAX = 200  # of one scanner
CHARS_MAX = 8_000_000  # of all files of a side
_PATH = re.compile(r"[\w.@+,=~ \[\]()-]{1,100}(?:/[\w.@+,=~ \[\]()-]{1,100}){0,30}")


def findings(
    scanners: Sequence[Scanner], changes: Sequence[FileChange], *, time_left_s: float
) -> list[Finding]:
    """What the scanners find in a change. One that fails is a finding that asks for a human.

    Blocks until all have ended, or half of ``time_left_s`` is over.
    """
    shown = [change for change in changes if change.hunks and not (change.is_binary or change.is_link)]
    if not scanners or not shown:
        return []
    found: list[Finding] = []
    for scanner in scanners:
        try:
            found += _of_one(scanner, shown, min(scanner.timeout_s, time_left_s / 2))
        except (tools.ToolFailed, sarif.NoSarif, OSError) as error:
            what = str(error).removeprefix(f"{scanner.name} ").removeprefix("it ")
            why = f"It {short_quote(what)}. Its findings are missing: mend it, or run it yourself."
            found.append(Finding("scanner-failed", "audit", "ask", f"the scanner {scanner.name}", 0, why))
    return found


def _of_one(scanner: Scanner, changes: Sequence[FileChange], timeout_s: float) -> list[Finding]:
    new, old = _texts(changes, is_new=True), _texts(changes, is_new=False)
    with ThreadPoolExecutor(2) as pool:
        now, before = pool.map(lambda texts: _results(scanner, texts, timeout_s) if new else [], (new, old))
    known = Counter(_key(result, old) for result in before)
    added = {change.path: {number for number, _ in change.added} for change in changes}
    weights: dict[str, Weight] = dict(scanner.levels)  # type: ignore[arg-type]
    found, fresh = [], []
    for result in now:
        lines = added.get(result.uri, set())
        span = range(result.first, min(result.last, result.first + LINE_NO_MAX) + 1)
        if line := next((number for number in span if number in lines), 0):
            fresh.append((result, line))
        else:  # on lines that stay: it uses up what the old side has
            known[_key(result, new)] -= 1
    for result, line in fresh:
        known[_key(result, new)] -= 1
        weight = weights.get(result.level)
        if weight and known[_key(result, new)] < 0:
            rule = short_quote(f"{scanner.name}/{result.rule or 'unnamed'}")
            message = short_quote(result.message) or "It names no reason: see its rule."
            found.append(Finding(rule, "bug", weight, short_quote(result.uri), line, message))
    return found[:FINDINGS_MAX]


def _key(result: sarif.Result, texts: dict[str, list[str]]) -> tuple[str, str]:
    """A result by its rule and the text of its line, so that moved code is not new."""
    lines = texts.get(result.uri, [])
    text = lines[result.first - 1] if 0 < result.first <= len(lines) else ""
    return result.rule, "".join(text.split())


def _texts(changes: Sequence[FileChange], *, is_new: bool) -> dict[str, list[str]]:
    """The lines of each file of a side, as far as the change shows them. Raises ToolFailed if they are too many."""
    found: dict[str, list[str]] = {}
    chars = 0
    for change in changes:
        path = change.path if is_new else change.old_path
        if path is None or change.kind == ("deleted" if is_new else "added") or not _may_lie_at(path):
            continue
        lines = found.setdefault(path, [])
        for line in (line for hunk in change.hunks for line in hunk.lines):
            number = (line.new_no if is_new else line.old_no) or 0
            if number > LINE_NO_MAX:
                raise tools.ToolFailed(f"{short_quote(path)} has more than {LINE_NO_MAX:,} lines")
            if number:
                lines.extend([""] * (number - len(lines)))
                lines[number - 1] = line.text
                chars += len(line.text)
    if len(found) > FILES_MAX or chars > CHARS_MAX:
        raise tools.ToolFailed(f"the change has more than {FILES_MAX:,} files or {CHARS_MAX:,} characters")
    return found


def _may_lie_at(path: str) -> bool:
    safe = _PATH.fullmatch(path) and not {"", ".", ".."}.intersection(path.split("/"))
    return bool(safe) and not is_a("settings", path)


def _results(scanner: Scanner, texts: dict[str, list[str]], timeout_s: float) -> list[sarif.Result]:
    if not texts:
        return []
    with tempfile.TemporaryDirectory(prefix="council-scan-", ignore_cleanup_errors=True) as name:
        home = Path(name).resolve()
        files = home / "files"
        files.mkdir(mode=0o700)
        for path, lines in texts.items():
            place = files / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace", newline="")
        printed = tools.run(
            [tools.find(scanner.command[0]), *scanner.command[1:]],
            home,
            cwd=files,
            timeout_s=timeout_s,
            succeeds=range(128),  # many exit with 1 if they find something
            cpu_s=max(1, int(4 * timeout_s)),
            path=os.environ.get("PATH", os.defpath),
        )
        try:
            results = sarif.read(printed)
        except sarif.NoSarif as error:
            told = b" ".join(each.read_bytes()[-tools.NOTE_CHARS_MAX :] for each in home.glob("*.err"))
            words = " ".join(told.decode("utf-8", "replace").split())
            raise sarif.NoSarif(f"{error} ({words})" if words else str(error)) from error
    starts = ("file://", f"{files}/", "./")  # as the change has the path
    return [result._replace(uri=reduce(str.removeprefix, starts, result.uri)) for result in results]
