"""A user's own rules: the folder ``council.rules`` of a repository, with its silences, and the user's scanners.

The folder's texts are read once, where a council is launched, and go to all of its seats. A review of git revisions
reads them from the revision before the change, because a change must not choose the rules that it is judged by.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterable, Iterator, Sequence
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
    FILE_BYTES_MAX,
    Rule,
    RuleError,
    check_regexes,
    parse,
    refuse_depth,
    yaml_items,
)

FOLDER = "council.rules"
SILENCES = "silence.yml"
FILES_MAX = 200
# Files that hold the rows of [[policy]] and [[scanners]].
SETTINGS = ("council.toml",)

Level = Literal["error", "warning", "note", "none"]


class Silence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Findings of ``rule`` in files that match one of ``paths`` are silent, up to the day ``until``."""

    rule: str
    reason: str
    paths: tuple[str, ...] = ("*",)
    until: date | None = None

    def covers(self, found: Finding) -> bool:
        names = found.path, found.path.rsplit("/", 1)[-1]
        return found.rule == self.rule and any(
            fnmatch.fnmatchcase(name, glob) for name in names for glob in self.paths
        )


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
            rows = [row for row in self.silences if row.covers(each)]
            row = next((row for row in rows if row.until is None or today <= row.until), None)
            if row is not None:
                silent.append((each, row.reason))
            elif rows:
                ended = f"{each.message} Its silence ended on {rows[0].until}."
                left.append(replace(each, message=ended))
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
        names = sorted(each.name for each in folder.iterdir())
        files = [folder / name for name in names if holds_rules(name)]
        texts = []
        for file in files[: FILES_MAX + 1]:
            with file.open("rb") as stream:
                texts.append((str(file), stream.read(FILE_BYTES_MAX + 1)))
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise RuleError(
            f"{error.filename or folder}: it can't be read: {why}; expected a folder of rules"
        ) from error
    return decoded(texts)


def holds_rules(name: str) -> bool:
    """Whether a file of a folder of rules is read, by its name. Examples are read by tests alone."""
    return name.endswith(".yml") and not name.endswith(EXAMPLES)


def refuse_sizes(files: Sequence[tuple[str, int]]) -> None:
    """Raises RuleError if these files, each a name with its bytes, are too many or too large."""
    if len(files) > FILES_MAX:
        raise RuleError(f"{files[0][0]}: there are more than {FILES_MAX} files of rules beside it")
    for name, size in files:
        if size > FILE_BYTES_MAX:
            raise RuleError(f"{name}: it has more than {FILE_BYTES_MAX:,} bytes")


def decoded(files: Sequence[tuple[str, bytes]]) -> tuple[tuple[str, str], ...]:
    """The texts of files, each with its name. Raises RuleError for another encoding, and as ``refuse_sizes`` does."""
    refuse_sizes([(name, len(data)) for name, data in files])
    texts = []
    for name, data in files:
        try:
            texts.append((name, data.decode("utf-8")))
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise RuleError(f"{name}:{line}: it is not UTF-8") from error
    return tuple(texts)


def own_of(texts: Sequence[tuple[str, str]], scanners: Sequence[Scanner] = (), folder: str = FOLDER) -> Own:
    """What the texts of a folder of rules, each with its file's name, amount to. Raises RuleError."""
    rules: dict[str, Rule] = {}
    silences: list[Silence] = []
    for name, text in texts:
        refuse_depth(text, name)
        if name.rsplit("/", 1)[-1] == SILENCES:
            silences += _silences(text, name)
            continue
        for rule in parse(text, name):
            check_regexes(rule)
            if rule.id in rules:
                raise RuleError(f"{rule.place}: the id {rule.id} is taken by {rules[rule.id].place}")
            rules[rule.id] = rule
    key = hashlib.sha256(msgspec.json.encode((texts, scanners, folder))).hexdigest()
    return Own(tuple(rules.values()), tuple(silences), tuple(scanners), folder, key)


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
        except (msgspec.ValidationError, ValueError) as error:
            raise RuleError(
                f"{name}:{line}: silence: {error}; expected rule, reason, and paths, until"
            ) from error
        yield silence
