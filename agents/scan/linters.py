"""Runs ruff and bandit on untrusted texts.

No text is executed. The linters' settings come neither from the texts nor from the working directory: the files lie
in a private temporary directory under names of our own, ruff runs isolated, bandit ignores comments, and both have
an empty environment.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Only what matters to a decision: code that can't run, or certainly does not do what it says. No style rules.
RUFF_RULES = (
    "E9,F50,F52,F601,F602,F63,F7,F821,F822,F823,PLE,"  # breaks at run time, or does not do what it says
    "B002,B012,B015,B018,B020,B023,B025,B029,B030,B032"  # does something else than it seems to do
)
# Left out: rules that need knowledge of the surroundings (asserts, temporary paths, random numbers, imports of
# subprocess, calls without a shell), and those that python_dangers.py judges better because it follows values.
BANDIT_TESTS = (
    "B103,B105,B106,B107,B201,B202,B301,B302,B304,B305,B306,B307,B102,B312,B313,B314,B315,B316,B317,B318,B319,"
    "B321,B323,B324,B501,B502,B503,B504,B505,B506,B507,B508,B602,B604,B605,B608,B609,B610,B611,B612,B613,B614,"
    "B701,B702"
)
CPU_SECONDS_MAX = 10  # of one linter, which is then ended; 25,000 lines written by people take two
OUTPUT_BYTES_MAX = 4_000_000  # of one linter: about 8,000 findings; it can't write more to any file
MEMORY_BYTES_MAX = 512 << 20  # of one linter: 200,000 lines written by people take a quarter of it
NOTE_CHARS_MAX = 200  # of a failed linter's own message


@dataclass(frozen=True, slots=True)
class LinterFinding:
    """One finding of a linter. ``line`` counts in the text it was given."""

    name: str
    tool: str
    rule: str
    line: int
    end_line: int
    message: str


@dataclass(frozen=True, slots=True)
class Linted:
    """The findings, and in ``faults`` the linters that failed, with the reasons."""

    reports: tuple[LinterFinding, ...]
    faults: tuple[str, ...]


def lint(texts: Mapping[str, str], broken: Mapping[str, str], *, timeout_s: float) -> Linted:
    """Runs both linters at the same time, once for all texts. The names are keys, not file names.

    ``broken`` are texts that this Python can't parse. Only ruff reads them, because it knows newer syntax.
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
        commands: list[tuple[str, list[str], _Reader]] = [
            ("ruff", [*_RUFF, str(code), str(unread)], _read_ruff),
            ("bandit", [*_BANDIT, str(code)], _read_bandit),
        ]
        with ThreadPoolExecutor(len(commands)) as pool:
            runs = [pool.submit(_lint_with, *command, files, folder, timeout_s) for command in commands]
    found = [run.result() for run in runs]
    return Linted(
        tuple(report for linted in found for report in linted.reports),
        tuple(fault for linted in found for fault in linted.faults),
    )


_RUFF = (
    "check --isolated --no-cache --ignore-noqa --no-fix --quiet --exit-zero --output-format json "
    f"--target-version py314 --select {RUFF_RULES}"
).split()
_BANDIT = f"--quiet --format json --ignore-nosec --exit-zero --tests {BANDIT_TESTS} --recursive".split()


# A linter's process. It limits itself before it reads anything, and leaves no core file. A file above its size ends
# it by a signal, which Python would ignore. RLIMIT_AS would count the address space that threads reserve. Windows has
# no such limits; there the time limit of its parent is the only one.
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
_Reader = Callable[[Any, Mapping[str, str]], Linted]


class _Failed(Exception):
    """A linter did not do its work; the message says why."""


def _lint_with(
    tool: str, arguments: list[str], read: _Reader, files: Mapping[str, str], folder: str, timeout_s: float
) -> Linted:
    try:
        return read(_run(tool, arguments, folder, timeout_s), files)
    except _Failed as error:
        return Linted((), (str(error),))


def _run(tool: str, arguments: list[str], folder: str, timeout_s: float) -> Any:
    """The JSON that one linter prints. Raises _Failed."""
    if importlib.util.find_spec(tool) is None:
        raise _Failed(f"{tool} is not installed")
    environment = _environment(folder)
    # -P: the working directory holds foreign files and must not be importable.
    limits = map(str, (CPU_SECONDS_MAX, MEMORY_BYTES_MAX, OUTPUT_BYTES_MAX))
    command = [sys.executable, "-P", "-c", _LIMITED, *limits, tool, *arguments]
    with Path(folder, f"{tool}.out").open("w+b") as out, Path(folder, f"{tool}.err").open("w+b") as err:
        try:
            # Our own arguments, no shell. It writes to files, because its output may be large.
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=timeout_s,
            )
        except OSError as error:
            raise _Failed(f"{tool} did not start: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise _Failed(f"{tool} did not finish within {timeout_s:g} s") from error
        if os.name != "nt" and done.returncode == -signal.SIGXCPU:
            raise _Failed(f"{tool} took more than {CPU_SECONDS_MAX} s of CPU time")
        if os.name != "nt" and done.returncode == -signal.SIGXFSZ:
            raise _Failed(f"{tool} reported more than {OUTPUT_BYTES_MAX:,} bytes")
        if done.returncode != 0:
            err.seek(0)
            words = err.read(NOTE_CHARS_MAX).decode("utf-8", "replace").split()
            raise _Failed(f"{tool} failed with exit code {done.returncode}: {' '.join(words)}")
        out.seek(0)
        try:
            return json.loads(out.read() or b"null")
        except ValueError as error:
            raise _Failed(f"{tool} gave no JSON") from error


def _environment(folder: str) -> dict[str, str]:
    """An environment with only the path of the linters."""
    specs = map(importlib.util.find_spec, ("ruff", "bandit"))
    paths = [str(Path(spec.origin).parent.parent) for spec in specs if spec and spec.origin]
    return {
        "HOME": folder,
        "TMPDIR": folder,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONUSERBASE": site.getuserbase(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
    }


def _read_ruff(output: Any, files: Mapping[str, str]) -> Linted:
    if not isinstance(output, list):
        raise _Failed("ruff gave no list of findings")
    reports = []
    for item in output:
        name, rule = files[Path(item["filename"]).name], item["code"] or "invalid-syntax"
        first, last = item["location"]["row"], item["end_location"]["row"]
        reports.append(LinterFinding(name, "ruff", rule, first, last, item["message"]))
    return Linted(tuple(reports), ())


def _read_bandit(output: Any, files: Mapping[str, str]) -> Linted:
    if not isinstance(output, dict):
        raise _Failed("bandit gave no findings")
    reports = []
    for item in output["results"]:
        name, first = files[Path(item["filename"]).name], item["line_number"]
        last = max(item["line_range"] or [first])
        reports.append(LinterFinding(name, "bandit", item["test_id"], first, last, item["issue_text"]))
    errors = output.get("errors") or []
    faults = [f"bandit could not read {files[Path(item['filename']).name]}" for item in errors[:3]]
    return Linted(tuple(reports), tuple(faults))
