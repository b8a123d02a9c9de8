"""A user's own rules: the folder ``council.rules`` of a repository, with its silences, and the user's scanners.

The folder's texts are read once, where a council is launched, and go to all of its seats. A review of git revisions
reads them from the revision before the change, because a change must not choose the rules that it is judged by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Literal

import msgspec

from council.agents.scan import code
from council.agents.scan.change import FileChange, short_quote
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.ruleset import (
    EXAMPLES,
    Rule,
    RuleError,
    check_foreign,
    checked,
    reads,
    yaml_items,
)

FOLDER = "council.rules"
SILENCES = "silence.yml"
FILES_MAX, FILE_BYTES_MAX = 200, 1_000_000
# Files that hold the rows of [[policy]] and [[scanners]].
SETTINGS = ("council.toml",)

Level = Literal["error", "warning", "note", "none"]


class Silence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Findings of ``rule`` in files that match one of ``paths`` are silent, up to the day ``until``."""

    rule: str
    reason: str
    paths: tuple[str, ...] = ()
    until: date | None = None


@dataclass(frozen=True, slots=True)
class Scanner:
    """A program that prints SARIF. ``levels`` has the weight of each level; results of other levels do not count."""

    command: tuple[str, ...]
    timeout_s: float
    levels: tuple[tuple[Level, Weight], ...]

    @property
    def name(self) -> str:
        return Path(self.command[0]).name


@dataclass(frozen=True, slots=True, eq=False)
class Own:
    """What a user adds to this package's rules. ``key`` tells it from others; ``folder`` is its folder's name."""

    rules: tuple[Rule, ...] = ()
    silences: tuple[Silence, ...] = ()
    scanners: tuple[Scanner, ...] = ()
    folder: str = FOLDER
    key: str = ""

    def over(self, rules: Iterable[Rule]) -> list[Rule]:
        """These rules and the user's, whose rule replaces one of the same id."""
        ids = {rule.id for rule in self.rules}
        return [*(rule for rule in rules if rule.id not in ids), *self.rules]

    def silence(
        self, found: Iterable[Finding], today: date
    ) -> tuple[tuple[Finding, ...], tuple[tuple[Finding, str], ...]]:
        """The findings that are left, and those that are silenced, each with the reason.

        A finding whose silence has ended says so.
        """
        left, silent = [], []
        for each in found:
            rows = [row for row in self.silences if row.rule == each.rule and reads(row.paths, each.path)]
            row = next((row for row in rows if row.until is None or today <= row.until), None)
            if row is not None:
                silent.append((each, row.reason))
            elif rows:
                left.append(replace(each, message=f"{each.message} Its silence ended on {rows[0].until}."))
            else:
                left.append(each)
        return tuple(left), tuple(silent)

    def touched(self, changes: Iterable[FileChange]) -> Iterator[Finding]:
        """The files of a change that say how later changes are judged."""
        for change in changes:
            for path in dict.fromkeys(filter(None, (change.path, change.old_path))):
                parts = path.split("/")
                if {FOLDER, self.folder}.intersection(parts[:-1]) or parts[-1] in SETTINGS:
                    message = "The change edits the rules that changes are judged by. A human should look."
                    yield Finding("own-rules-changed", "audit", "ask", short_quote(path), 0, message)


NOTHING = Own()


def read_folder(folder: Path) -> tuple[tuple[str, str], ...]:
    """The texts of a folder of rules, each with its file's path. Raises RuleError."""
    try:
        files = sorted(each for each in folder.iterdir() if holds_rules(each.name))
        if strange := [file for file in files if not file.is_file()]:  # a pipe would never end
            raise RuleError(f"{strange[0]}: it is no file")
        return texts_of(
            [(str(file), file.stat().st_size) for file in files], lambda name: Path(name).read_bytes()
        )
    except OSError as error:
        what, why = error.filename or folder, error.strerror or type(error).__name__
        raise RuleError(f"{what}: it can't be read: {why}; expected a folder of rules") from error


def holds_rules(name: str) -> bool:
    """Whether a file of a folder of rules is read, by its name. Examples are read by tests alone."""
    return name.endswith(".yml") and not name.endswith(EXAMPLES)


def texts_of(files: Sequence[tuple[str, int]], read: Callable[[str], bytes]) -> tuple[tuple[str, str], ...]:
    """The texts of files, each given by its name and its bytes.

    Raises RuleError if they are too many or too large, or not UTF-8.
    """
    if len(files) > FILES_MAX:
        raise RuleError(f"{files[0][0]}: there are more than {FILES_MAX} files of rules beside it")
    texts = []
    for name, size in files:
        if size > FILE_BYTES_MAX:
            raise RuleError(f"{name}: it has {size:,} bytes, {FILE_BYTES_MAX:,} at most")
        data = read(name)
        try:
            texts.append((name, data.decode("utf-8")))
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise RuleError(f"{name}:{line}: it is not UTF-8") from error
    return tuple(texts)


def own_of(texts: Sequence[tuple[str, str]], scanners: Sequence[Scanner] = (), folder: str = FOLDER) -> Own:
    """What the texts of a folder of rules, each with its file's name, amount to. Raises RuleError."""
    for name, text in texts:
        check_foreign(text, name)
    silences = [(name, text) for name, text in texts if name.rsplit("/", 1)[-1] == SILENCES]
    rules = checked(each for each in texts if each not in silences)
    rows = tuple(row for name, text in silences for row in _silences(text, name))
    key = hashlib.sha256(msgspec.json.encode((texts, scanners, folder))).hexdigest()
    return Own(rules, rows, tuple(scanners), folder, key)


def check(own: Own) -> None:
    """Raises RuleError, with the rule's place, if ast-grep refuses a rule. Runs ast-grep if there are code rules."""
    if any(rule.languages for rule in own.rules):
        code.check(own.rules)


def _silences(text: str, name: str) -> Iterator[Silence]:
    for raw, line in yaml_items(text, name):
        try:
            silence = msgspec.convert(raw, Silence)
            if not silence.reason.strip():
                raise ValueError("reason is empty: say why the finding is harmless here")
        except ValueError as error:  # msgspec.ValidationError is one
            expected = "expected rule, reason, and perhaps paths, until"
            raise RuleError(f"{name}:{line}: silence: {error}; {expected}") from error
        yield silence
