"""Runs ruff on untrusted Python, and weighs its findings by ``rules/linters.yml``.

No text is executed. ruff's settings come neither from the texts nor from the working directory: the files lie in a
private temporary directory under names of our own, ruff runs isolated, and its environment is empty.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import site
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from council.agents.scan.change import FileChange, Hunk
from council.agents.scan.finding import Finding

CODES = Path(__file__).parent / "rules" / "linters.yml"
CPU_SECONDS_MAX = 10  # of ruff, which is then ended; 25,000 lines written by people take two
OUTPUT_BYTES_MAX = 4_000_000  # of ruff: about 8,000 findings; it can't write more to any file
MEMORY_BYTES_MAX = 512 << 20  # of ruff: 200,000 lines written by people take a quarter of it
NOTE_CHARS_MAX = 200  # of ruff's own message if it fails
_RUFF = (
    "check --isolated --no-cache --ignore-noqa --no-fix --quiet --exit-zero --output-format json "
    "--target-version py314"
)
# It limits itself before it reads anything, and leaves no core file. A file above its size ends it by a signal, which
# Python would ignore. RLIMIT_AS would count the address space that threads reserve. Windows has no such limits; there
# the time limit of its parent is the only one.
_LIMITED = """
import os, signal, sys
from runpy import run_module
seconds, memory, output = map(int, sys.argv[1:4])
if os.name != "nt":
    from resource import RLIMIT_CORE, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE, setrlimit
    setrlimit(RLIMIT_CORE, (0, 0))
    setrlimit(RLIMIT_CPU, (seconds, seconds + 1))
    setrlimit(RLIMIT_DATA, (memory, memory))
    setrlimit(RLIMIT_FSIZE, (output, output))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
del sys.argv[:4]
run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


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


class _Failed(Exception):
    """ruff did not do its work; the message says why."""


@cache
def codes() -> dict[str, dict[str, Any]]:
    """The rows of ``rules/linters.yml`` by code: family, cwe, weight, message, and perhaps whole and unless."""
    import yaml

    return {row["code"]: row for row in yaml.load(CODES.read_bytes(), Loader=yaml.CSafeLoader)}


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


def of_changes(changes: Iterable[FileChange], timeout_s: float) -> tuple[list[Finding], tuple[str, ...]]:
    """What ruff finds on the new sides of Python files and not as often on the old ones, and its faults."""
    sides: dict[str, str] = {}
    places: dict[str, tuple[FileChange, Hunk]] = {}
    for at, change in enumerate(changes):
        for number, hunk in enumerate(change.hunks if change.path.endswith((".py", ".pyi")) else ()):
            if change.kind != "added":
                sides[f"old {at}.{number}"] = textwrap.dedent(hunk.old_text())
            if change.kind != "deleted":
                sides[f"new {at}.{number}"] = textwrap.dedent(hunk.new_text())
                places[f"new {at}.{number}"] = change, hunk
    linted, found = lint(sides, timeout_s=timeout_s), []
    for report in fresh(linted.reports, sides):
        change, hunk = places[report.name]
        if change.is_whole or not codes()[report.rule].get("whole"):
            line = hunk.new_start + report.line - 1
            found.append(replace(_weighed(report), path=change.path, line=line))
    return found, linted.faults


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
    stood = Counter(" ".join(line.split()) for name in lines if name.startswith("old ") for line in lines[name])
    kept = []
    for report in sorted(reports, key=lambda report: report.name[:3] != "old"):
        text = lines[report.name]
        shown = " ".join(text[report.line - 1].split()) if report.line <= len(text) else ""
        key = report.rule, report.message if report.rule.startswith("F82") else shown
        inherited[key] += 1 if report.name.startswith("old ") else -1
        if report.name.startswith("new ") and inherited[key] < 0:
            inherited[key] = 0
            # ruff knows some calls by their imports alone, which the old hunk may not show.
            if not (report.rule.startswith("S") and stood[shown]):
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
            output = _run("ruff", [*_RUFF.split(), "--select", select, str(place)], folder, timeout_s)
            if not isinstance(output, list):
                raise _Failed("ruff gave no list of findings")
            return Linted(tuple(filter(None, (_report(item, files) for item in output))), ())
        except _Failed as error:
            return Linted((), (str(error),))


def _report(item: Any, files: Mapping[str, str]) -> LinterFinding | None:
    """None if the table says that this message is no finding."""
    code, message = item["code"] or "invalid-syntax", item["message"]
    unless = codes()[code].get("unless")
    if unless and re.search(unless, message):
        return None
    first, last = item["location"]["row"], item["end_location"]["row"]
    return LinterFinding(files[Path(item["filename"]).name], code, first, last, message)


def _run(tool: str, arguments: list[str], folder: str, timeout_s: float) -> Any:
    """The JSON that the linter prints. Raises _Failed."""
    spec = importlib.util.find_spec(tool)
    if spec is None or spec.origin is None:
        raise _Failed(f"{tool} is not installed")
    environment = {
        "HOME": folder,
        "TMPDIR": folder,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
        "PYTHONPATH": str(Path(spec.origin).parent.parent),
        "PYTHONUSERBASE": site.getuserbase(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
    }
    # -P: the working directory holds foreign files and must not be importable.
    limits = map(str, (CPU_SECONDS_MAX, MEMORY_BYTES_MAX, OUTPUT_BYTES_MAX))
    command = [sys.executable, "-P", "-c", _LIMITED, *limits, tool, *arguments]
    with Path(folder, f"{tool}.out").open("w+b") as out, Path(folder, f"{tool}.err").open("w+b") as err:
        how: dict[str, Any] = {
            "cwd": folder,
            "env": environment,
            "stdin": subprocess.DEVNULL,
            "timeout": timeout_s,
        }
        try:
            # Our own arguments, no shell. It writes to files, because its output may be large.
            status = subprocess.run(command, stdout=out, stderr=err, **how).returncode
        except OSError as error:
            raise _Failed(f"{tool} did not start: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise _Failed(f"{tool} did not finish within {timeout_s:g} s") from error
        if os.name != "nt" and status == -signal.SIGXCPU:
            raise _Failed(f"{tool} took more than {CPU_SECONDS_MAX} s of CPU time")
        if os.name != "nt" and status == -signal.SIGXFSZ:
            raise _Failed(f"{tool} reported more than {OUTPUT_BYTES_MAX:,} bytes")
        if status != 0:
            err.seek(0)
            words = err.read(NOTE_CHARS_MAX).decode("utf-8", "replace").split()
            raise _Failed(f"{tool} failed with exit code {status}: {' '.join(words)}")
        out.seek(0)
        try:
            return json.loads(out.read() or b"null")
        except ValueError as error:
            raise _Failed(f"{tool} gave no JSON") from error
