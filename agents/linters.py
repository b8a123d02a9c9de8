"""Runs ruff and bandit on texts that must not be trusted. Knows what they report, not what it is worth.

Nothing of the texts is executed, and nothing of them, nor of the directory the council runs in, reaches the
linters' settings: the files lie in a private temporary directory under names of our own, ruff runs isolated,
bandit without its comments, and both with a bare environment.
"""

from __future__ import annotations

import importlib.util
import json
import os
import site
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Only what matters to a decision: the code can't run, or surely does not do what it says. Style is not here.
RUFF_RULES = (
    "E9,F50,F52,F601,F602,F63,F7,F821,F822,F823,PLE,"  # breaks or lies at run time
    "B002,B012,B015,B018,B020,B023,B025,B029,B030,B032"  # does something else than it seems to
)
# Left out: what needs knowledge of the surroundings (asserts, temporary paths, random numbers, imports of
# subprocess, calls without a shell), and what dangers.py judges better because it follows values.
BANDIT_TESTS = (
    "B103,B105,B106,B107,B201,B202,B301,B302,B304,B305,B306,B307,B102,B312,B313,B314,B315,B316,B317,B318,B319,"
    "B321,B323,B324,B501,B502,B503,B504,B505,B506,B507,B508,B602,B604,B605,B608,B609,B610,B611,B612,B613,B614,"
    "B701,B702"
)
OUTPUT_BYTES_MAX = 20_000_000  # of one linter: far above what 200,000 lines can yield of the rules above
NOTE_CHARS_MAX = 200  # of a linter's own words when it fails


@dataclass(frozen=True, slots=True)
class Report:
    """One finding of a linter. ``line`` counts in the text it was given; ``severity`` is bandit's."""

    name: str
    tool: str
    rule: str
    line: int
    end_line: int
    message: str
    severity: str = ""
    confidence: str = ""


@dataclass(frozen=True, slots=True)
class Linted:
    """What the linters found, and in ``faults`` which of them did not do its work, and why."""

    reports: tuple[Report, ...]
    faults: tuple[str, ...]


def lint(texts: Mapping[str, str], broken: Mapping[str, str], *, timeout_s: float) -> Linted:
    """Runs both linters, at the same time, once for all texts. The names are keys, not file names.

    ``broken`` are texts that this Python can't parse: ruff alone reads them, for it knows newer syntax.
    """
    if not texts and not broken:
        return Linted((), ())
    files = {f"p{at:05d}.py": name for at, name in enumerate([*texts, *broken])}
    with tempfile.TemporaryDirectory(prefix="council-lint-") as folder:
        code, unread = Path(folder, "code"), Path(folder, "unread")
        code.mkdir(mode=0o700)
        unread.mkdir(mode=0o700)
        for file, name in files.items():
            place = code if name in texts else unread
            text = texts[name] if name in texts else broken[name]
            (place / file).write_text(text, encoding="utf-8", errors="replace", newline="")
        ruff = _Run("ruff", [*_RUFF, str(code), str(unread)], folder)
        bandit = _Run("bandit", [*_BANDIT, str(code)], folder)
        found = [_read_ruff(ruff.finish(timeout_s), files), _read_bandit(bandit.finish(timeout_s), files)]
    return Linted(
        tuple(report for linted in found for report in linted.reports),
        tuple(fault for linted in found for fault in linted.faults),
    )


_RUFF = (
    "check --isolated --no-cache --ignore-noqa --no-fix --quiet --exit-zero --output-format json "
    f"--target-version py314 --select {RUFF_RULES}"
).split()
_BANDIT = f"--quiet --format json --ignore-nosec --exit-zero --tests {BANDIT_TESTS} --recursive".split()


@dataclass(frozen=True, slots=True)
class _Outcome:
    tool: str
    output: Any
    fault: str = ""


class _Run:
    """One linter, running. Its output goes to files: a full pipe would stop it."""

    def __init__(self, tool: str, arguments: Sequence[str], folder: str) -> None:
        self._tool = tool
        self._out, self._err = Path(folder, f"{tool}.out"), Path(folder, f"{tool}.err")
        self._process: subprocess.Popen[bytes] | None = None
        self._fault = ""
        if importlib.util.find_spec(tool) is None:
            self._fault = f"{tool} is not installed"
            return
        # -P: the working directory holds foreign files and must not be importable.
        command = [sys.executable, "-P", "-m", tool, *arguments]
        try:
            with self._out.open("wb") as out, self._err.open("wb") as err:
                self._process = subprocess.Popen(  # our own arguments, no shell
                    command,
                    cwd=folder,
                    env=_environment(folder),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )
        except OSError as error:
            self._fault = f"{tool} did not start: {error.strerror}"

    def finish(self, timeout_s: float) -> _Outcome:
        if self._process is None:
            return _Outcome(self._tool, None, self._fault)
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return _Outcome(self._tool, None, f"{self._tool} did not finish within {timeout_s:g} s")
        if code != 0:
            words = self._err.read_bytes()[:NOTE_CHARS_MAX].decode("utf-8", "replace")
            return _Outcome(
                self._tool, None, f"{self._tool} failed with exit code {code}: {' '.join(words.split())}"
            )
        if self._out.stat().st_size > OUTPUT_BYTES_MAX:
            return _Outcome(self._tool, None, f"{self._tool} reported more than {OUTPUT_BYTES_MAX:,} bytes")
        try:
            return _Outcome(self._tool, json.loads(self._out.read_bytes() or b"null"))
        except ValueError:
            return _Outcome(self._tool, None, f"{self._tool} gave no JSON")


def _environment(folder: str) -> dict[str, str]:
    """Nothing of the council's environment but where the linters are installed."""
    paths: list[str] = []
    for tool in ("ruff", "bandit"):
        spec = importlib.util.find_spec(tool)
        if spec and spec.origin:
            paths.append(str(Path(spec.origin).parent.parent))
    return {
        "HOME": folder,
        "TMPDIR": folder,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONUSERBASE": site.getuserbase(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
    }


def _read_ruff(outcome: _Outcome, files: Mapping[str, str]) -> Linted:
    if outcome.fault or not isinstance(outcome.output, list):
        return Linted((), (outcome.fault or "ruff gave no list of findings",))
    reports = []
    for item in outcome.output:
        name = files[Path(item["filename"]).name]
        start, end = item["location"], item["end_location"]
        rule = item["code"] or "invalid-syntax"
        reports.append(Report(name, "ruff", rule, start["row"], end["row"], item["message"]))
    return Linted(tuple(reports), ())


def _read_bandit(outcome: _Outcome, files: Mapping[str, str]) -> Linted:
    if outcome.fault or not isinstance(outcome.output, dict):
        return Linted((), (outcome.fault or "bandit gave no findings",))
    reports = []
    for item in outcome.output["results"]:
        name = files[Path(item["filename"]).name]
        lines = item["line_range"] or [item["line_number"]]
        reports.append(
            Report(
                name,
                "bandit",
                item["test_id"],
                item["line_number"],
                max(lines),
                item["issue_text"],
                item["issue_severity"],
                item["issue_confidence"],
            )
        )
    errors = outcome.output.get("errors") or []
    faults = tuple(f"bandit could not read {files[Path(item['filename']).name]}" for item in errors[:3])
    return Linted(tuple(reports), faults)
