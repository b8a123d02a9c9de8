"""Searches a case for what policy forbids: secrets, personal data, dangerous commands.

Lite and Prime share it. Only what a change adds is judged, never what it removes. A file that an action writes counts
as added. ``shell_finder`` finds shell text in other files (Makefiles, Dockerfiles, CI, Python calls).
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from council.agents.mind import Case, Observation, Stream
from council.agents.scan import other_languages, shell_finder
from council.agents.scan.change import DiffLine, FileChange, Hunk, ScannedText, read_changes, short_quote
from council.agents.scan.datafiles import CARRIERS, CHARS_MAX
from council.agents.scan.languages import has_generated_name, is_docs, is_generated, is_test
from council.agents.scan.other_languages import Weight
from council.agents.scan.python import TOKENS_MAX, TOO_MANY, tokens_in, unread_python
from council.agents.scan.remote_rules import Grade
from council.agents.scan.secrets import LENIENT_KINDS, PrivateSpot, find_private
from council.agents.scan.shell import ParseEffort, ShellReading, read_shell
from council.agents.scan.shell_rules import Scene
from council.agents.static import marks
from council.agents.static.actions import CODE_KEYS, Argument, ParsedAction, holds_diff, read_action

_SHELL_WEIGHTS: dict[Grade, Weight] = {"destructive": "fault", "risky": "concern", "notable": "mention"}
_RANK = {"fault": 0, "concern": 1, "mention": 2}
LIST_OF_PERSONS = 5  # addresses or numbers in one file: more than a signature, so a list of people
SHELL_CHARS_MAX = 150_000  # in one case; scripts of this length take 0.2 s
PROSE_COMMANDS_MAX = 2_000  # lines of text that may be commands: a document of about 300 kB; they take 0.1 s
NOTES_MAX = 200  # a reason names a few; the gravest decides

_SOURCE = re.compile(r"\.(?:py|js|jsx|ts|tsx|go|rs|java|kt|rb|php|c|cc|cpp|h|hpp|cs|swift|scala|ex|sql)$")
# Files with these names are text. If one is shown as binary, its source was not seen.
_TEXT = re.compile(
    r"\.(?:py[iw]?|[cm]?[jt]sx?|vue|svelte|go|rs|java|kts?|rb|php|cc?|cpp|hh?|hpp|cs|swift|scala|exs?|sql|lua|p[lm]|r|"
    r"sh|bash|zsh|ps1|bat|cmd|ya?ml|toml|json|ini|cfg|conf|env|tf|hcl|gradle|html?|xml|css|ipynb|mk)$|"
    r"(?:^|/)(?:(?:GNU)?[Mm]akefile|Dockerfile|Containerfile|Jenkinsfile|\.env)[^/]{0,60}$",
    re.IGNORECASE,
)
UNREAD = 0.2  # the confidence if a part of a change was not seen: below 0.3, so Prime rules (rules 1.8)
_NPM_HOOKS = ("preinstall", "install", "postinstall")  # they run where the package is installed
_VERSION = re.compile(r"[~^<>=v*]{0,2}\d")  # of a package that is named install
FOREIGN_SHARE = 0.1  # of a file's new characters that could not be decoded; umlauts in Latin-1 are fewer
_AUTHOR = re.compile(
    r"author|maintainer|copyright|signed-off|co-authored|mailto:|codeowner|credit|contact|@author",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Note:
    """One finding: what, where, and its weight. ``what`` never holds a secret, only its first characters."""

    weight: Weight
    family: Literal["secret", "personal", "shell", "guard", "tests"]
    what: str
    place: str

    def __str__(self) -> str:
        return f"{self.what} ({self.place})"


@dataclass(frozen=True, slots=True)
class Sight:
    """The contents of a case: its changes, policy's findings in them, and what could not be read.

    ``unread`` names damaged diffs, source in an unknown encoding, and shell text above a limit. ``binaries`` names
    files that nobody expects to read, such as images. ``added`` and ``removed`` count lines, without generated files.
    """

    reading: ScannedText
    notes: tuple[Note, ...]
    unread: tuple[str, ...]
    added: int
    removed: int
    sources: tuple[str, ...]
    tests: tuple[str, ...]
    gone_tests: tuple[str, ...]  # test files that are deleted without any source
    generated: tuple[str, ...]
    binaries: tuple[str, ...]

    def of(self, weight: Weight) -> list[Note]:
        return [note for note in self.notes if note.weight == weight]


def listed(items: Sequence[object], most: int = 5, between: str = "; ") -> str:
    """The first items, for a reason, and the number of the others."""
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return between.join(map(str, items[:most])) + more


def is_python(change: FileChange) -> bool:
    """Whether a file is readable Python: by its name, or by its first line."""
    lines = change.hunks[0].lines if change.hunks and not (change.is_binary or change.is_link) else ()
    first = next((line.text for line in lines if (line.new_no or line.old_no) == 1), "")
    return bool(lines) and shell_finder.is_python(change.path, first)


def inspect_case(case: Case) -> Sight:
    """Everything that policy finds in a case. No text in a case makes it raise."""
    action = read_action(case.action)
    reading = read_changes(case.body)
    by_action = [written_file(argument) for argument in action.args if action.names_file(argument)]
    told = []  # the arguments, without the diffs that are applied: only what these add is judged
    for argument in action.args:
        text = argument.text
        if holds_diff(text):
            more = read_changes(text)
            reading, text = reading.with_more(more), more.prose if action.applies(argument) else text
        if not action.writes(argument):
            told.append(f"{argument.key} = {json.dumps(text)}")
    for key, text, _ in filter(lambda one: not (action.writes(one) or action.applies(one)), action.commands):
        told.append(f"{key} = {json.dumps(text)}")
    unread = (*reading.faults, *filter(None, map(_unreadable, reading.files)), *_too_long(reading, action))
    shell = _Shell(list(unread))
    notes = [note for change in (*reading.files, *by_action) for note in _in_file(change, shell)]
    notes += _in_prose(case, reading, shell)
    for finding in _real("\n".join(told)):
        weight: Weight = "fault" if finding.grade == "sure" else "mention"
        notes.append(_note(weight, finding, "the action's arguments"))
    notes += _in_action(action, shell)
    notes = sorted(dict.fromkeys(notes), key=lambda note: _RANK[note.weight])[:NOTES_MAX]
    written = [change for change in reading.files if not is_generated(change)]
    live = [change for change in written if change.kind != "deleted"]
    gone = [change for change in written if change.kind == "deleted"]
    is_pruned = any(_SOURCE.search(change.path) and not is_test(change.path) for change in gone)
    gone_tests = (c.path for c in gone if not is_pruned and is_test(c.path) and _SOURCE.search(c.path))
    return Sight(
        reading,
        tuple(notes),
        tuple(dict.fromkeys(shell.unread)),
        sum(len(change.added) for change in written),
        sum(len(change.removed) for change in written),
        tuple(c.path for c in live if _SOURCE.search(c.path) and not is_test(c.path)),
        tuple(c.path for c in live if is_test(c.path)),
        tuple(gone_tests),
        tuple(c.path for c in reading.files if is_generated(c)),
        tuple(c.path for c in reading.files if c.is_binary and c.kind != "deleted" and not _unreadable(c)),
    )


# A plan does not run what it will look for. But "check the disk, then run `...`" tells somebody to run it.
_LOOKED_FOR = re.compile(
    r"\b(?:check|verify|ensure|confirm|examine|inspect|search|look|test|see|ask|flag|whether|if|nothing|none)\b"
    r"(?!.*\bthen\b)",
    re.IGNORECASE,
)
_TICKED = re.compile(r"`[^`]{0,500}`")


def observed(case: Case, stream: Stream) -> Observation:
    """A halt if another seat's work has a fault that the case does not have: a quotation is not its own."""
    lines = stream.text.split("\n")
    told = [
        _TICKED.sub("", line) if _LOOKED_FOR.search(line[:2_000].partition("`")[0]) else line
        for line in lines
    ]
    said = inspect_case(Case(case.proposal_id, stream.seat, "", "\n".join(told))).of("fault")
    if said:
        known = {note.what for note in inspect_case(case).notes}
        said = [note for note in said if note.what not in known]
    if said:
        return Observation(True, f"{marks.POLICY}its {stream.stage} holds {listed(said)}")
    return Observation(False, marks.POLICY + "nothing against it")


def readable(case: Case, sight: Sight) -> bool:
    """Whether there is anything that static checks can judge."""
    if sight.reading.files:
        return any(not change.is_binary for change in sight.reading.files)
    return bool(case.summary.strip() or case.body.strip() or case.action)


def _unreadable(change: FileChange) -> str:
    """Why the new text of a file can't be read though it should be text, or ""."""
    if change.is_binary:
        hides = _TEXT.search(change.path) and not is_generated(change)
        return f"{short_quote(change.path)} is source by its name, and shown as binary" if hides else ""
    new = "".join(text for _, text in change.added)
    is_foreign = new.count("\ufffd") > FOREIGN_SHARE * len(new)
    return f"{short_quote(change.path)} is in no encoding that could be read" if is_foreign else ""


def _too_long(reading: ScannedText, action: ParsedAction) -> Iterator[str]:
    """The parts with more code than is read. No mind may vote yes on these, whatever it reads itself."""
    yield from unread_python([change for change in reading.files if is_python(change)])
    for change in reading.files:
        if change.path.lower().endswith(CARRIERS) and sum(len(text) for _, text in change.added) > CHARS_MAX:
            yield f"{short_quote(change.path)} (more than {CHARS_MAX:,} characters)"
    blocks = [(f"the code block at line {block.line}", block.code) for block in reading.blocks]
    blocks += [(f"the action's {each.key!r}", each.text) for each in action.args if each.key in CODE_KEYS]
    yield from (f"{place} ({TOO_MANY})" for place, code in blocks if tokens_in(code) > TOKENS_MAX)


class _Shell:
    """Reads the shell texts of one case, up to a common limit, and records what was not read."""

    def __init__(self, unread: list[str]) -> None:
        self.unread = unread
        self._left = SHELL_CHARS_MAX
        self._work = ParseEffort()

    def read(self, script: str, place: str, scene: Scene | None = None) -> ShellReading:
        self._left -= len(script)
        result = ShellReading(fault=f"more than {SHELL_CHARS_MAX} characters of shell text in one proposal")
        if self._left >= 0:
            result = read_shell(script, scene, self._work)
        if result.fault:
            self.unread.append(f"{place}: {result.fault}")
        return result


def written_file(argument: Argument) -> FileChange:
    """A file that an action writes, as a change that adds it."""
    lines = enumerate(argument.text.split("\n"), start=1)
    hunk = Hunk(0, 1, tuple(DiffLine("+", text, None, number) for number, text in lines))
    return FileChange(argument.path, None, "added", hunks=(hunk,), is_whole=True)


def _real(text: str, *, assignments: bool = True) -> list[PrivateSpot]:
    return [finding for finding in find_private(text, assignments=assignments) if finding.grade != "fake"]


def _note(weight: Weight, finding: PrivateSpot, place: str) -> Note:
    return Note(weight, finding.family, f"{finding.kind} {finding.masked}", place)


# Files of a diff


def _in_file(change: FileChange, shell: _Shell) -> Iterator[Note]:
    if change.kind == "deleted" or change.is_binary:
        return  # a deleted file is judged by what is left: see Sight.gone_tests
    path, lines = short_quote(change.path), change.added
    text = "\n".join(line for _, line in lines)
    # A claim in the text itself ("do not edit") turns no check off.
    has_tools_name = has_generated_name(change.path)
    found = _real(text, assignments=not has_tools_name)
    persons = {text[f.start : f.end] for f in found if f.family == "personal" and f.grade == "likely"}
    for finding in found:
        number, line = lines[finding.line - 1]
        yield _note(_weigh(finding, change.path, line, len(persons)), finding, f"{path}:{number}")
    is_fixture = is_test(change.path) and change.path.endswith(".sql")
    if not (is_docs(change.path) or is_fixture):  # documentation shows commands, but nobody runs them
        yield from _in_scripts(change, shell)
        yield from _in_tests(change)
        if not has_tools_name:
            for spot in other_languages.dangers(change, is_test=is_test(change.path)):
                yield Note(spot.weight, spot.family, spot.what, f"{path}:{spot.line}")


_SKIPS = re.compile(
    r"@(?:pytest\.mark|unittest)\.skip\b|\bpytest\.skip\(|\b(?:it|test|describe)\.skip\(|\bx(?:it|describe)\(|\bt\.Skip\("
)


def _in_tests(change: FileChange) -> Iterator[Note]:
    """Existing tests that are turned off."""
    if is_test(change.path) and change.kind != "added":
        for number, text in change.added:
            if _SKIPS.search(text):
                yield Note("mention", "tests", "skips a test", f"{short_quote(change.path)}:{number}")


def _in_scripts(change: FileChange, shell: _Shell) -> Iterator[Note]:
    """The dangers of the new side that the old one did not have, also on unchanged lines."""
    path = short_quote(change.path)
    if change.path.rsplit("/", 1)[-1] == "package.json":
        had_hooks = {pair for _, text in change.removed for pair in shell_finder.package_pairs(text)}
        for number, text in change.added:
            for key, value in shell_finder.package_pairs(text):
                if key in _NPM_HOOKS and (key, value) not in had_hooks and not _VERSION.match(value):
                    what = f"a script that npm runs on every install ({key})"
                    yield Note("mention", "shell", what, f"{path}:{number}")
    before, after = Scene(), Scene()
    had = Counter(
        danger.kind
        for hunk in change.hunks
        for _, result in _read_side(change, hunk, "+", before, False, shell)
        for danger in result.dangers
    )
    for hunk in change.hunks:
        fresh = {number for number, _ in hunk.added}
        # If `set -u` is removed, every later variable is unguarded, also in other hunks.
        bared = before.stops_on_unset and not after.stops_on_unset
        for origin, result in _read_side(change, hunk, "-", after, bared, shell):
            if result.fault and fresh.intersection(origin):
                yield Note("concern", "shell", result.fault, path)
            for danger in result.dangers:
                number = origin[min(danger.line, len(origin)) - 1]
                had[danger.kind] -= number not in fresh
                if number in fresh:
                    yield Note(_SHELL_WEIGHTS[danger.grade], "shell", danger.kind, f"{path}:{number}")
                elif had[danger.kind] < 0 and danger.grade != "notable":  # its protection was removed
                    what = f"{danger.kind}, now that nothing guards it"
                    yield Note("fault", "shell", what, f"{path}:{number}")


def _read_side(
    change: FileChange, hunk: Hunk, other: str, scene: Scene, bared: bool, shell: _Shell
) -> Iterator[tuple[list[int], ShellReading]]:
    """What one side of a hunk runs. For a shell script the scene is kept from hunk to hunk."""
    lines = [line for line in hunk.lines if line.tag != other]
    side = [((line.old_no if other == "+" else line.new_no) or 0, line.text) for line in lines]
    first = side[0][1] if side else ""
    keeps_scene = shell_finder.is_shell(change.path, first)
    scene.directory = ""
    # Otherwise the lines before this hunk are not shown, and may set its variables.
    scene.is_whole = bared or (hunk is change.hunks[0] and (hunk.new_start <= 1 or change.kind == "added"))
    for script, origin in shell_finder.in_lines(change.path, side):
        yield origin, shell.read(script, short_quote(change.path), scene if keeps_scene else Scene())


def _weigh(finding: PrivateSpot, path: str, line: str, persons: int) -> Weight:
    """Secrets weigh the same everywhere unless they are only likely. Personal data weighs less in tests and docs."""
    lenient = is_test(path) or is_docs(path)
    if finding.family == "secret":
        if lenient and (finding.grade == "likely" or finding.kind in LENIENT_KINDS):
            return "mention"  # a fixture's password opens nothing
        return "fault" if finding.grade == "sure" else "concern"
    if finding.grade == "sure":
        return "concern" if lenient else "fault"
    if lenient or _AUTHOR.search(line):
        return "mention"
    return "fault" if persons >= LIST_OF_PERSONS else "concern"


# Text and action


def _in_prose(case: Case, reading: ScannedText, shell: _Shell) -> Iterator[Note]:
    """Secrets in the prose; commands in fenced blocks and on lines that are commands."""
    for place, text in (("summary", case.summary), ("body", reading.prose)):
        for finding in _real(text):
            likely: Weight = "concern" if finding.family == "secret" else "mention"
            weight = "fault" if finding.grade == "sure" else likely
            yield _note(weight, finding, f"{place}, line {finding.line}")
    for block in reading.blocks:
        if block.has_diff:
            continue
        for script, _ in shell_finder.in_block(block.language, block.code):
            yield from _in_script(script, f"code block, line {block.line}", shell)
    for count, line in enumerate(shell_finder.commands_in_prose(f"{case.summary}\n{reading.prose}")):
        if count >= PROSE_COMMANDS_MAX:
            shell.unread.append(f"text: more than {PROSE_COMMANDS_MAX:,} lines that may be commands")
            break
        for note in _in_script(line, "text", shell):
            if note.weight == "fault":
                yield note  # in words that only may be a command, smaller findings do not count


def _in_script(script: str, place: str, shell: _Shell) -> Iterator[Note]:
    result = shell.read(script, place)
    if (
        result.fault
    ):  # an unread part is not passed: a command hidden in 100,000 characters must not get a yes
        yield Note("concern", "shell", result.fault, place)
    for danger in result.dangers:
        yield Note(_SHELL_WEIGHTS[danger.grade], "shell", danger.kind, place)


def _in_action(action: ParsedAction, shell: _Shell) -> Iterator[Note]:
    for argument in (*action.args, *action.commands):
        place = f"the action's {argument.key[:40]!r}"
        for script in _run_by(action, argument):
            yield from _in_script(script, place, shell)


def _run_by(action: ParsedAction, argument: Argument) -> Iterator[str]:
    """The shell text in an argument: the argument itself, or code or SQL in it."""
    key, text = argument.key.lower(), argument.text
    if action.runs_python and key in CODE_KEYS:
        yield from (script for script, _ in shell_finder.in_block("python", text))
    elif action.runs_sql_in(key, text):
        if " " in text:
            yield f"psql -c {shlex.join([text])}"
    elif action.runs_shell_in(key):
        yield text
