"""The shell text in a case, and what it does: scripts, recipes and steps in files, code blocks, prose, actions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from council.agents.mind import Case
from council.agents.scan import constants, shell, shell_finder
from council.agents.scan.action import ParsedAction
from council.agents.scan.change import FileChange, Hunk, ScannedText, short_quote
from council.agents.scan.commands import Judge
from council.agents.scan.finding import Finding
from council.agents.scan.languages import BY_NAME, is_docs, is_generated, is_test
from council.agents.scan.pieces import Piece, piece_of
from council.agents.scan.shell_words import Scene

SHELL_CHARS_MAX = 150_000  # in one case; scripts of this length take 0.2 s
PROSE_COMMANDS_MAX = 2_000  # lines of text that may be commands: a document of about 300 kB; they take 0.1 s
FOLDED_COMMANDS_MAX = 50  # texts put together from constants that are read as commands

_COMMAND = re.compile(r"\s*(?:[a-z_-]{2,20}/|/[a-z/]{2,40})?[a-z]{2,20}\s+[-/.~$*\w]")


class _Shell:
    """Reads the shell texts of one case, up to a common limit, and records what was not read."""

    def __init__(self) -> None:
        self.unread: list[str] = []
        self.code: list[Piece] = []  # of interpreters' one-liners
        self._left = SHELL_CHARS_MAX
        self._work = shell.ParseEffort()

    def read(self, script: str, place: str, scene: Scene | None = None) -> list[Finding]:
        self._left -= len(script)
        if self._left < 0:
            fault = f"more than {SHELL_CHARS_MAX:,} characters of shell text in one proposal"
            self.unread.append(f"{place}: {fault}")
            return []
        reading = shell.read(script, place, scene, self._work, in_file=scene is not None)
        if reading.fault:
            self.unread.append(f"{place}: {reading.fault}")
        for name, text, line in reading.one_liners:
            language = BY_NAME.get(name)
            if language is not None and language.ast_grep:
                self.code.append(piece_of(place, language, text, line))
        return list(reading.findings)


def findings(
    case: Case,
    reading: ScannedText,
    changes: Sequence[FileChange],
    action: ParsedAction,
    folded: Sequence[constants.Folded],
) -> tuple[list[Finding], list[str], list[Piece]]:
    """The findings in all shell text of a case, what was not read of it, and code that it gives an interpreter.

    ``folded`` are the texts that the changes put together from constants.
    """
    scripts = _Shell()
    found = [each for change in changes for each in _in_file(change, scripts)]
    found += _in_prose(case, reading, scripts)
    found += _in_action(action, scripts)
    found += _in_constants(changes, folded, scripts)
    return found, scripts.unread, scripts.code


def _in_file(change: FileChange, scripts: _Shell) -> Iterator[Finding]:
    """What the new side does that the old one did not, also on unchanged lines."""
    is_fixture = is_test(change.path) and change.path.endswith(".sql")
    if change.kind == "deleted" or change.is_binary or is_docs(change.path) or is_fixture:
        return  # documentation shows commands, but nobody runs them
    before, after = Scene(), Scene()
    had = Counter(
        found.rule
        for hunk in change.hunks
        for _, read in _read_side(change, hunk, "+", before, False, scripts)
        for found in read
    )
    for hunk in change.hunks:
        fresh = {number for number, _ in hunk.added}
        # If `set -u` is removed, every later variable is unguarded, also in other hunks.
        bared = before.stops_on_unset and not after.stops_on_unset
        for origin, read in _read_side(change, hunk, "-", after, bared, scripts):
            for found in read:
                number = origin[min(found.line, len(origin)) - 1] if found.line else 0
                had[found.rule] -= number not in fresh
                if number in fresh:
                    yield replace(found, line=number)
                elif had[found.rule] < 0 and found.weight != "note":  # its protection was removed
                    message = f"{found.message} Nothing guards it any more."
                    yield replace(found, line=number, weight="stop", message=message)


def _read_side(
    change: FileChange, hunk: Hunk, other: str, scene: Scene, bared: bool, scripts: _Shell
) -> Iterator[tuple[list[int], list[Finding]]]:
    """What one side of a hunk runs. For a shell script the scene is kept from hunk to hunk.

    ``bared``: the change removed ``set -u``, so variables that are not shown count as unset.
    """
    lines = [line for line in hunk.lines if line.tag != other]
    side = [((line.old_no if other == "+" else line.new_no) or 0, line.text) for line in lines]
    first = side[0][1] if side else ""
    keeps_scene = shell_finder.name_of(change.path, first) == "bash"
    scene.directory = ""
    # Otherwise the lines before this hunk are not shown, and may set its variables.
    scene.is_whole = bared or (hunk is change.hunks[0] and (hunk.new_start <= 1 or change.kind == "added"))
    for script, origin in shell_finder.in_lines(change.path, side):
        yield origin, scripts.read(script, short_quote(change.path), scene if keeps_scene else Scene())


def _in_prose(case: Case, reading: ScannedText, scripts: _Shell) -> Iterator[Finding]:
    """Commands in fenced blocks, and on lines that are commands."""
    for block in reading.blocks:
        if not block.has_diff:
            for script, _ in shell_finder.in_block(block.language, block.code):
                yield from scripts.read(script, f"code block, line {block.line}")
    for count, line in enumerate(shell_finder.commands_in_prose(f"{case.summary}\n{reading.prose}")):
        if count >= PROSE_COMMANDS_MAX:
            scripts.unread.append(f"text: more than {PROSE_COMMANDS_MAX:,} lines that may be commands")
            break
        # In words that only may be a command, smaller findings do not count.
        yield from (found for found in scripts.read(line, "the text") if found.weight == "stop")


def _in_action(action: ParsedAction, scripts: _Shell) -> Iterator[Finding]:
    for argument in (*action.args, *action.commands):
        place = f"the action's {argument.key[:40]!r}"
        language = action.language_of(argument)
        if language == "shell":
            has_program = argument.text.split(maxsplit=1)[:1] == [action.program]
            text = argument.text if has_program else f"{action.program} {argument.text}".lstrip()
            yield from scripts.read(text, place)
        elif language == "sql":
            from council.agents.scan import sql  # it loads sqlglot, which takes 0.1 s

            yield from sql.findings(argument.text, place, around=action.tool)
        elif language:
            for script, _ in shell_finder.in_block(language, argument.text):
                yield from scripts.read(script, place)
            # What a rule asks about in a one-liner is usual in longer code.
            judge = Judge(place)
            judge.code(language, argument.text, 0)
            yield from (each for each in judge.findings if each.weight == "stop")
    judge = Judge("the action's file")
    touched = {">": action.written_paths, "<": action.read_paths, "rm -r": action.removed_paths}
    for how, path in ((how, path) for how, paths in touched.items() for path in paths):
        judge.command([*how.split(), path], Scene(), 0)
    yield from judge.findings


def _in_constants(
    changes: Sequence[FileChange], folded: Sequence[constants.Folded], scripts: _Shell
) -> Iterator[Finding]:
    """The commands that the change puts together from constants."""
    unread = {each.path for each in changes if is_docs(each.path) or is_generated(each) or is_test(each.path)}
    folded = [each for each in folded if each.path not in unread and _COMMAND.match(each.text)]
    for each in folded[:FOLDED_COMMANDS_MAX]:
        for found in scripts.read(each.text, short_quote(each.path)):
            if found.weight == "stop":
                yield replace(found, line=each.line)
