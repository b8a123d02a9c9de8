"""How much of what is wrong the scan sees, and how often it alarms at what is not.

Run it with ``python -m benchmarks.judgement``.

The cases lie in tests/corpus/judgement: changes by language, and calls of tools. About half of them are harmless and
look like a fault. In ``diff``, a line ``=== PATH`` begins a file, and ``=== PATH (new)`` one that the change adds,
whose lines have no tags. ``@@`` begins another part of a file. A fault is found, and a harmless case alarmed, if a
tool reports anything at the weight in question in what the change adds.

ruff, bandit and shellcheck are run beside it, each on the files as they are after the change, if they are installed;
they read Python, Python and shell alone. A part of a file that does not stand alone is none of their work, so this is
no measure of them. The figures say what a gate made of them would see.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from council.agents.mind import Action, Case
from council.agents.scan.finding import WEIGHTS
from council.agents.scan.scan import scan

CORPUS = Path(__file__).parent.parent / "tests" / "corpus" / "judgement"
CALLS, COMMANDS = "tool-calls", "commands"  # the files that hold calls of tools, and command lines
FIRST_LINE = 40  # of a file of which a part is shown
TOOL_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Entry:
    """One case of the corpus. ``files`` are (path, text before, text after, is new) of each part of a file."""

    id: str
    kind: str
    is_fault: bool
    family: str
    files: tuple[tuple[str, str, str, bool], ...]
    case: Case


@dataclass(frozen=True)
class Verdict:
    """What one tool said of an entry: the gravest weight, or "" if it reported nothing; and its wall time."""

    entry: Entry
    weight: str
    seconds: float


def entries() -> list[Entry]:
    """All cases. Raises ValueError if one is not written as it should be."""
    return [
        _entry(file.stem, raw)
        for file in sorted(CORPUS.glob("*.toml"))
        for kind, rows in tomllib.loads(file.read_text(encoding="utf-8")).items()
        for raw in (_commands(kind, rows) if file.stem == COMMANDS else rows)
        if kind in ("change", "action", "harm", "alike")
    ]


def _commands(kind: str, lines: list[str]) -> Iterator[dict[str, object]]:
    """Command lines, each as a call of a shell."""
    for number, line in enumerate(lines, start=1):
        yield {
            "id": f"{kind}-{number}",
            "fault": kind == "harm",
            "family": "",
            "tool": "shell",
            "args": {"command": line},
        }


def _entry(kind: str, raw: dict[str, object]) -> Entry:
    name, is_fault, family = str(raw["id"]), bool(raw["fault"]), str(raw["family"])
    if kind in (CALLS, COMMANDS):
        action = Action.of({"tool": raw["tool"], "args": raw["args"]})
        return Entry(name, kind, is_fault, family, (), Case("", "bench", f"Call {action.tool}", "", action))
    files = tuple(_files(name, str(raw["diff"])))
    body = "".join(_unified(*each) for each in files)
    return Entry(name, kind, is_fault, family, files, Case("", "bench", str(raw["title"]), body))


def _files(name: str, text: str) -> Iterator[tuple[str, str, str, bool]]:
    path, is_new, old, new = "", False, list[str](), list[str]()
    for line in [*text.splitlines(), "=== "]:
        if line.startswith("=== ") or line == "@@":
            if path and (old or new):
                yield path, "\n".join(old) + "\n" if old else "", "\n".join(new) + "\n", is_new
            old, new = [], []
            if line != "@@":
                path, is_new = line[4:].removesuffix(" (new)"), line.endswith(" (new)")
        elif is_new:
            new.append(line)
        elif line[:1] in ("+", "-", " ", ""):
            old += [line[1:]] * (line[:1] != "+")
            new += [line[1:]] * (line[:1] != "-")
        else:
            raise ValueError(f"{name}: a line of {path} has no tag: {line!r}")


def _unified(path: str, old: str, new: str, is_new: bool) -> str:
    before = [""] * 0 if is_new else _below(old)
    lines = difflib.unified_diff(before, new.splitlines(True) if is_new else _below(new), "", "", n=3)
    hunks = [line for line in lines if not line.startswith(("--- ", "+++ "))]
    first = "/dev/null" if is_new else f"a/{path}"
    mode = "new file mode 100644\n" if is_new else ""
    return f"diff --git a/{path} b/{path}\n{mode}--- {first}\n+++ b/{path}\n" + "".join(hunks)


def _below(text: str) -> list[str]:
    """A part of a file, below lines that are not shown, unless it shows the first."""
    return ["\n"] * (0 if text.startswith(("#!", "<?php")) else FIRST_LINE) + text.splitlines(True)


# Tools


def by_scan(entry: Entry) -> str:
    """The scan's gravest weight; what it could not read is asked about."""
    found = scan(entry.case)
    if found.unread or found.failed:
        return "ask"
    return next((weight for weight in WEIGHTS if found.of(weight)), "")


def _external(
    command: Sequence[str], endings: tuple[str, ...], count: Callable[[str], int]
) -> Callable[[Entry], str]:
    """A tool that is given the files before and after: it reports if it has more to say of those after."""

    def judged(entry: Entry) -> str:
        counts = []
        for side in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                names = [f"{at}-{Path(each[0]).name}" for at, each in enumerate(entry.files)]
                chosen = [at for at, name in enumerate(names) if name.endswith(endings)]
                if not chosen:
                    return ""
                for at in chosen:
                    Path(folder, names[at]).write_text(_alone(str(entry.files[at][side])), encoding="utf-8")
                done = subprocess.run(
                    [*command, *(names[at] for at in chosen)],
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=TOOL_SECONDS_MAX,
                )
                counts.append(count(done.stdout))
        return "stop" if counts[1] > counts[0] else ""

    return judged


def _alone(text: str) -> str:
    """A part of a file, without the indentation that it has there."""
    return textwrap.dedent(text)


def tools() -> Iterator[tuple[str, Callable[[Entry], str] | None]]:
    """Each tool that is measured by name; None for one that is not installed."""
    yield "scan", by_scan
    rows: tuple[tuple[str, list[str], tuple[str, ...], Callable[[str], int]], ...] = (
        ("ruff", ["check", "--isolated", "--no-cache", "--select=S,B,PLE,F", "--ignore=S101,F401,F821",
                  "--output-format=json"], (".py",), lambda text: len(json.loads(text or "[]"))),
        ("bandit", ["-q", "-f", "json"], (".py",), lambda text: len(json.loads(text or "{}").get("results", ()))),
        ("shellcheck", ["-f", "json"], (".sh", "hooks", ".bash"), lambda text: len(json.loads(text or "[]"))),
    )  # fmt: skip
    for name, options, endings, count in rows:
        place = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
        yield name, _external([place, *options], endings, count) if place else None


def judge(tool: Callable[[Entry], str], cases: Sequence[Entry]) -> list[Verdict]:
    """All cases by one tool, one after another."""
    found = []
    for entry in cases:
        began = time.perf_counter()
        weight = tool(entry)
        found.append(Verdict(entry, weight, time.perf_counter() - began))
    return found


# The table


def interval(part: int, whole: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval at 95 % of a share, in percent."""
    if not whole:
        return 0.0, 100.0
    share, square = part / whole, z * z
    middle = (share + square / (2 * whole)) / (1 + square / whole)
    half = z * math.sqrt(share * (1 - share) / whole + square / (4 * whole * whole)) / (1 + square / whole)
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)


def reached(verdicts: Sequence[Verdict], weight: str, *, fault: bool) -> tuple[int, int]:
    """How many faults, or harmless cases, got this weight or a graver one; and of how many."""
    of = [each for each in verdicts if each.entry.is_fault == fault]
    enough = WEIGHTS[: WEIGHTS.index(weight) + 1]
    return sum(each.weight in enough for each in of), len(of)


def table(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The scan's figures by language."""
    yield "| language | faults: stop | stop or ask | or note | harmless: stop | stop or ask | or note |"
    yield "|---|---|---|---|---|---|---|"
    kinds = sorted({each.entry.kind for each in verdicts}, key=lambda kind: (kind in (CALLS, COMMANDS), kind))
    for name, chosen in [(kind, [each for each in verdicts if each.entry.kind == kind]) for kind in kinds] + [
        ("**all changes**", [each for each in verdicts if each.entry.files])
    ]:
        cells = []
        for fault in (True, False):
            for weight in WEIGHTS:
                part, whole = reached(chosen, weight, fault=fault)
                low, high = interval(part, whole)
                cells.append(
                    f"{part} of {whole}" + (f" ({low:.0f} to {high:.0f} %)" if name.startswith("*") else "")
                )
        yield f"| {name} | {' | '.join(cells)} |"


def beside(name: str, verdicts: Sequence[Verdict], kinds: tuple[str, ...]) -> str:
    """One row of the comparison: the languages that the tool reads, and all changes."""
    cells = []
    for chosen in (
        [each for each in verdicts if each.entry.kind in kinds],
        [each for each in verdicts if each.entry.files],
    ):
        for fault in (True, False):
            part, whole = reached(chosen, "ask", fault=fault)
            cells.append(f"{part} of {whole}")
    times = sorted(each.seconds for each in verdicts if each.entry.kind in kinds)
    return f"| {name} | {' | '.join(cells)} | {median(times):.2f}; {times[int(0.99 * len(times))]:.2f} s |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judgement")
    parser.add_argument(
        "--misses", action="store_true", help="name each fault that is missed, and each false alarm"
    )
    arguments = parser.parse_args()
    cases = entries()
    rows: list[str] = []
    for name, tool in tools():
        if tool is None:
            rows.append(f"| {name} | not installed | | | | |")
            continue
        print(f"judging by {name} …", file=sys.stderr, flush=True)
        verdicts = judge(tool, cases if name == "scan" else [each for each in cases if each.files])
        if name == "scan":
            print("\n".join(table(verdicts)))
            rows += [beside(f"{name}, {kind}", verdicts, (kind,)) for kind in ("python", "bash")]
            if arguments.misses:
                for each in verdicts:
                    if each.entry.is_fault != (each.weight in ("stop", "ask")):
                        found = "; ".join(f"{one.weight} {one.rule}" for one in scan(each.entry.case).found)
                        print(
                            f"{'missed' if each.entry.is_fault else 'alarm'}: {each.entry.id}: {found}",
                            file=sys.stderr,
                        )
        else:
            rows.append(beside(name, verdicts, ("bash" if name == "shellcheck" else "python",)))
    print(
        "\n| tool | faults in its language | harmless | faults of all languages | harmless | a review: median; p99 |"
    )
    print("|---|---|---|---|---|---|")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
