"""Judges shell commands by the rows of ``rules/commands/``: which destroy, give rights away, or weaken a system.

A row names a program, its verb (words in order), flags and targets, all of which a command must have. ``shell``
parses scripts and hands each command to ``Judge``, ``flow`` follows secrets, and ``sql`` reads SQL statements.
The gravest row that matches is a command's finding. No finding repeats the command's own text.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path

import msgspec

from council.agents.scan import flow
from council.agents.scan.finding import WEIGHTS, Finding, Weight
from council.agents.scan.rows import Rule, convert, load, shifted
from council.agents.scan.shell_words import Scene, base_name

RULES = Path(__file__).parent / "rules" / "commands"
LINE_CHARS_MAX = 8_000  # of one command; a line of a script is shorter
WORD_CHARS_MAX = 4_000
SPAN_MAX = 800  # characters that .* spans in a row: a hostile line would cost the square of its length
_SPAN = re.compile(r"(?<!\(\?=)(?<!\(\?!)\.\*")


class Flags(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Each entry lists the spellings of one flag, such as ``-r -R --recursive``; ``--replicas=0`` has a value."""

    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()


class Row(Rule, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A row of the table. ``targets`` is searched in each word after the verb, ``line`` in all words as one line.

    A word in which ``except`` is found is no target. ``verb`` may hold ``a|b``, and ``*`` for any words. The program
    ``*`` is any that no other row names.
    """

    program: tuple[str, ...]
    verb: tuple[str, ...] = ()
    flags: Flags = Flags()
    targets: str = ""
    excepted: str = msgspec.field(name="except", default="")
    line: str = ""
    unless: tuple[str, ...] = ()


class Programs(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The content of ``programs.yml``. ``names`` are regexes, which rows use as ``<name>``.

    By program: ``options`` are those that take a value, and ``writes`` says which words are files that it writes
    (``last``, ``all``, or a regex on the line). ``databases`` are clients with their dialects of SQL. ``consoles``
    are programs whose input is judged as a command's words, and ``given`` are variables that are never empty.
    """

    names: dict[str, str]
    databases: dict[str, str]
    consoles: str
    given: str
    options: dict[str, str]
    writes: dict[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """All rows, in the order of the files, and those of each program."""

    rows: list[Row]
    by_program: dict[str, list[Row]]
    programs: Programs


@cache
def table(folder: Path = RULES) -> Table:
    """Loads the rows of a folder. Raises ValueError, which names the file, the place and why, if one is wrong."""
    programs = convert(load(folder / "programs.yml"), Programs, "programs.yml")
    files = [path for path in sorted(folder.glob("*.yml")) if path.name != "programs.yml"]
    rows = [_expanded(row, programs) for path in files for row in convert(load(path), list[Row], path.name)]
    by_program: dict[str, list[Row]] = {}
    for row in rows:
        for program in row.program:
            by_program.setdefault(program, []).append(row)
    return Table(rows, by_program, programs)


def _expanded(row: Row, programs: Programs) -> Row:
    """The row with named regexes written out. ``.*`` spans at most ``SPAN_MAX`` characters in it."""

    def pattern(text: str) -> str:
        named = re.sub(r"<([a-z-]+)>", lambda name: f"(?:{programs.names[name[1]]})", text)
        return _SPAN.sub(f".{{0,{SPAN_MAX}}}", named)

    return msgspec.structs.replace(
        row, targets=pattern(row.targets), excepted=pattern(row.excepted), line=pattern(row.line)
    )


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@dataclass(frozen=True, slots=True)
class _Words:
    """A command's words: ``flags`` with their values, and the other words, ``operands``.

    The boolean of an operand says that it may be the value of the option before it.
    """

    flags: list[tuple[str, str]]
    operands: list[tuple[str, bool]]
    line: str


def _words(argv: list[str], takes: str) -> _Words:
    flags: list[tuple[str, str]] = []
    operands: list[tuple[str, bool]] = []
    taking = takes.split()
    rest, at = argv[1:], 0
    while at < len(rest):
        word, following = rest[at], "".join(rest[at + 1 : at + 2])
        at += 1
        if word == "--":
            operands += [(each, False) for each in rest[at:]]
            break
        if not word.startswith("-") or word == "-":
            after_option = at >= 2 and rest[at - 2].startswith("-") and "=" not in rest[at - 2]
            operands.append((word, after_option))
            continue
        name, has_value, value = word.partition("=")
        flags.append((name, value if has_value else following))
        at += name in taking and not has_value
    return _Words(flags, operands, " ".join(rest)[:LINE_CHARS_MAX])


def _has(words: _Words, spellings: str) -> bool:
    """Whether one of a flag's spellings is there, also among combined letters; a value is a regular expression."""
    for spelling in spellings.split():
        name, _, wanted = spelling.partition("=")
        for flag, value in words.flags:
            combined = (
                len(name) == 2 and name[1] in flag and re.fullmatch(r"-[A-Za-z]{2,8}", flag) is not None
            )
            if (flag == name or combined) and (re.fullmatch(wanted, value) if wanted else value != "false"):
                return True
    return False


def _after_verb(words: _Words, verb: tuple[str, ...]) -> list[str] | None:
    """The operands after the verb; None if it is not there. A word after an option, maybe its value, is skipped."""
    at = 0
    skips = False
    for wanted in verb:
        if wanted == "*":
            skips = True
            continue
        while at < len(words.operands) and words.operands[at][0] not in wanted.split("|"):
            if not (skips or words.operands[at][1]):
                return None
            at += 1
        if at == len(words.operands):
            return None
        at, skips = at + 1, False
    return [word for word, _ in words.operands[at:]]


def _match(row: Row, words: _Words, scene: Scene) -> bool:
    if any(_has(words, flag) for flag in row.unless) or not all(
        _has(words, flag) for flag in row.flags.all_of
    ):
        return False
    if row.flags.any_of and not any(_has(words, flag) for flag in row.flags.any_of):
        return False
    targets = _after_verb(words, row.verb) if _compiled(row.line).search(words.line) else None
    if targets is None or not row.targets:
        return targets is not None
    wanted, excepted = _compiled(row.targets), _compiled(row.excepted or "(?!)")
    for word in chain(targets, (value for _, value in words.flags if value)):
        forms = {word[:WORD_CHARS_MAX], path_of(word[:WORD_CHARS_MAX], scene)}
        if any(map(wanted.search, forms)) and not any(map(excepted.search, forms)):
            return True
    return False


_HOME = re.compile(r"^(?:\$\{HOME\}|/root|/home/[^/*]{1,64}|/Users/[^/*]{1,64}|~[a-z0-9_-]{1,32})(?=/|$)")
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*|\d)\}")


def path_of(word: str, scene: Scene) -> str:
    """A word as a path: absolute, ``~`` for home folders, without a last ``/*``; or one of three words.

    ``:unset``: the path is / if a variable is empty, and nothing prevents that. ``:maybe-unset``: likewise, but
    something that is not shown may prevent it. ``:project``: the folder that the script starts in, or its history.
    """
    path = re.sub(r"/{2,}", "/", word.removeprefix("file://"))
    if scene.directory[:1] in {"/", "~", "$"} and path[:1] not in {"/", "~", "$", "-", ""}:
        path = scene.directory.rstrip("/") + "/" + path.removeprefix("./")
    names = _VARIABLE.findall(path)
    is_root = re.fullmatch(r"/+\.?\**", _VARIABLE.sub("", path)) is not None
    given = table().programs.given.split()
    if (
        names
        and not scene.stops_on_unset
        and not any(name in given or name in scene.looked_at for name in names)
    ):
        is_set_elsewhere = not scene.is_whole or any(name.isdigit() for name in names)
        if is_root:
            return ":maybe-unset" if is_set_elsewhere else ":unset"
    if path in {".", "*", "./", "./*", ".git", "./.git"}:
        return path if scene.directory else ":project"
    if "/../" in path or "/./" in path or path.endswith("/.."):
        path = posixpath.normpath(path) + ("/*" if path.endswith("*") else "")
    path = _HOME.sub("~", re.sub(r"(?:/\.?\**|/\{[^{}]*\}|/\.)$", "", path))
    return path or "/" * bool(word)


@dataclass
class Judge:
    """Takes what a script runs, in order, and collects the findings. Lines count from 1; words are evaluated.

    A stage is a command of a pipeline; ``<file`` and ``>file`` in its words are its redirections. ``in_file``: the
    script stands in a file, and is not run now. ``around`` are the words of what runs it elsewhere, such as ssh.
    """

    place: str
    in_file: bool = False
    around: str = ""
    sql_chars: int = 0
    findings: list[Finding] = field(default_factory=list)
    one_liners: list[tuple[str, str, int]] = field(default_factory=list)

    def _add(self, row: Rule, line: int, words: str) -> None:
        if weight := self._weight(row, words):
            self.findings.append(Finding(row.id, row.family, weight, self.place, line, row.message, row.cwe))

    def _weight(self, row: Rule, words: str) -> Weight | None:
        weight = (row.in_files if self.in_file else None) or row.weight
        return shifted(weight, f"{self.around} {words}") if row.reach else weight

    def command(self, argv: list[str], scene: Scene, line: int) -> None:
        """A command without its prefixes."""
        self._rows(argv, scene, line)
        for target in _written(argv):
            self.write(target, base_name(argv[0]) not in {"ln", "cp", "mv", "install"}, scene, line)
        for word in argv[1:]:
            if " " in word:
                self.query(argv, word, line)

    def _rows(self, argv: list[str], scene: Scene, line: int) -> None:
        rules, name = table(), base_name(argv[0]).lstrip("@")
        short = name if name in rules.by_program else re.split(r"\.|\d", name, maxsplit=1)[0]
        if len(argv) > 1 and re.search(r"[$?*]|\w\[", name):
            short = "unknown-program"
        words = _words(argv, rules.programs.options.get(short, ""))
        if len(words.line) == LINE_CHARS_MAX:
            message = (
                f"A command of more than {LINE_CHARS_MAX} characters, not read to its end. Put it in a file."
            )
            self.findings.append(Finding("command-long", "command", "ask", self.place, line, message))
        others = rules.by_program.get("*", []) if re.fullmatch(r"[\w.+-]+", short) else []
        found = [
            (weight, row)
            for row in rules.by_program.get(short, others)
            if _match(row, words, scene) and (weight := self._weight(row, words.line))
        ]
        gravest = min((weight for weight, _ in found), key=WEIGHTS.index, default=None)
        first = {row.family: row for weight, row in reversed(found) if weight == gravest}
        for row in reversed(first.values()):
            self._add(row, line, words.line)

    def prefix(self, argv: list[str], line: int) -> None:
        """A prefix of a command, such as sudo, with all that follows it."""
        self._rows([f"prefix:{base_name(argv[0])}", *argv[1:]], Scene(), line)

    def write(self, target: str, append: bool, scene: Scene, line: int) -> None:
        """A file that output is redirected to."""
        self._rows([">", *["-a"] * append, target], scene, line)

    def flow(self, stages: list[list[str]], scene: Scene, line: int, *, is_shown: bool) -> None:
        """A pipeline, also one of a single command. ``is_shown``: no other command takes its output."""
        words = " ".join(chain.from_iterable(stages))[:LINE_CHARS_MAX]
        for row in flow.judge(stages, scene, is_shown=is_shown):
            self._add(row, line, words)

    def query(self, argv: list[str], text: str, line: int) -> None:
        """The input or a word of a command, if it is written out: SQL, if the command is a database client."""
        name = base_name(argv[0])
        if (dialect := table().programs.databases.get(name)) is not None:
            from council.agents.scan import sql  # it loads sqlglot, which takes 0.1 s

            self.sql_chars += len(text)
            if self.sql_chars > sql.SQL_CHARS_MAX:
                text = " " * (sql.SQL_CHARS_MAX + 1)  # unread, as a text of that length is
            for found in sql.findings(text, self.place, dialect, around=" ".join([self.around, *argv])):
                self.findings.append(replace(found, line=line))
        elif name in table().programs.consoles.split() and text not in argv:
            self._rows([name, *text.split()], Scene(), line)

    def code(self, language: str, text: str, line: int) -> None:
        """A one-liner, or a heredoc, of an interpreter that is no shell."""
        self.one_liners.append((language, text, line))
        self._rows([f"code:{language}", "--", " ".join(text.split())], Scene(), line)


def _written(argv: list[str]) -> list[str]:
    """The files that a command writes, besides redirections."""
    how = table().programs.writes.get(base_name(argv[0]), "")
    if how not in {"last", "all"}:
        return re.findall(how, " ".join(argv[1:])) if how else []
    operands = [word for word, _ in _words(argv, "").operands]
    return operands if how == "all" else operands[1:][-1:]
