"""Reads an action: its tool's name, the texts in its arguments, and what would run them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from council.agents.scan.rows import table

DEPTH_MAX = 8  # nesting of arguments that is read
ARGS_MAX = 2_000  # values of arguments that are read
# Lists of words, and patterns, by name. The files say what each means.
WORDS = {name: frozenset(text.split()) for name, text in table("tools.yml").items()}
_PATTERNS = {name: re.compile(text) for name, text in table("tool-patterns.yml").items()}
_LANGUAGES = ("shell", "sql", "python", "javascript", "ruby", "perl", "php")
CODE_KEYS = WORDS["code_keys"]
_PATH_KEYS = ("path", "file", "filename", *sorted(WORDS["path_keys"]))  # the first that is given counts
_TARGET_KEYS = WORDS["path_keys"] | WORDS["target_keys"]
_WRITES = WORDS["writes_alone"] | WORDS["writes_a_file"]


class Argument(NamedTuple):
    """A text in an action's arguments; ``path`` is the file that it is for, if one is named beside it."""

    key: str
    text: str
    path: str


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """An action as it is read. ``tool`` is in lower case, in separate words; it is "" if there is no action.

    The names of the tool and of its arguments say what it does: ``runs_shell``, ``runs_python``, ``sends``.
    ``language`` is the one that an argument names, such as ``shell``, ``sql`` or ``python``. ``commands`` are the
    lists whose items are separate lines or texts in ``args``. Each may also be one command, so it is joined here.
    """

    tool: str
    args: list[Argument]
    commands: list[Argument]
    runs_shell: bool
    runs_python: bool
    sends: bool
    language: str = ""

    def runs_sql_in(self, key: str, text: str) -> bool:
        """Whether it runs an argument as SQL; an argument named query may be another kind of query."""
        if re.search(r"search|docs|grep|wiki|web", self.tool):
            return False
        is_database = bool(_PATTERNS["sql_tools"].search(self.tool))
        return is_database or bool(
            key in WORDS["sql_keys"] and (key != "query" or _PATTERNS["sql_start"].match(text))
        )

    @property
    def program(self) -> str:
        """The program that the tool is by its name, such as ``kubectl``; its arguments are the program's words."""
        named = set(re.findall("[a-z]+", self.tool)) - WORDS["program_fillers"]
        return next(iter(named), "") if len(named) == 1 and named <= WORDS["program_tools"] else ""

    def runs_shell_in(self, key: str) -> bool:
        """Whether it runs an argument as a command."""
        if self.program:
            return key in WORDS["shell_keys"] or key in {"args", "arguments", "input", "subcommand"}
        return key in WORDS["shell_keys"] or (self.runs_shell and key not in WORDS["sql_keys"])

    def language_of(self, argument: Argument) -> str:
        """The language in which it runs an argument: ``shell``, ``sql``, ``python`` …; "" if it does not."""
        key, text = argument.key.lower(), argument.text
        if self.does_not_run(argument) or key in WORDS["language_keys"]:
            return ""
        if self.language and key in CODE_KEYS | {"input", "snippet", "program"}:
            return self.language
        if self.runs_python and key in CODE_KEYS:
            return "python"
        if self.runs_sql_in(key, text):
            return "sql" if " " in text else ""
        return "shell" if self.runs_shell_in(key) else ""

    def does_not_run(self, argument: Argument) -> bool:
        """Whether an argument is a command of an editor, such as ``create``, or its text."""
        commands = {each.text for each in self.args if each.key.lower() == "command"}
        return bool(_PATTERNS["editors"].search(self.tool) and commands & (WORDS["edits"] | WORDS["looks"]))

    @property
    def written_paths(self) -> list[str]:
        """The files that it writes, as far as the names of the tool and its arguments say so."""
        paths = [path for each in self.args for path in _PATTERNS["patched"].findall(each.text)]
        words = set(re.findall("[a-z]+", self.tool))
        looks = any(each.key.lower() == "command" and each.text in WORDS["looks"] for each in self.args)
        if words & (_WRITES | WORDS["changes"]) and not looks:
            paths += [
                each.text for each in self.args if each.key.lower() in _TARGET_KEYS and "\n" not in each.text
            ]
        return list(dict.fromkeys(paths))

    @property
    def removed_paths(self) -> list[str]:
        """The files that it removes or moves away, if its tool's name says that it does so to files."""
        words = set(re.findall("[a-z]+", self.tool))
        removes = words & WORDS["removes"] and words & WORDS["removes_what"]
        keys = {*_PATH_KEYS, "source", "src", "from", "paths", "directory"}
        return [each.text for each in self.args if removes and each.key.lower() in keys]

    @property
    def read_paths(self) -> list[str]:
        """The files that it shows, if its tool's name says that it reads."""
        reads = set(re.findall("[a-z]+", self.tool)) & WORDS["shows"]
        named = [each.text for each in self.args if each.key.lower() in _PATH_KEYS and "\n" not in each.text]
        return named if reads else []

    def names_file(self, argument: Argument) -> bool:
        """Whether an argument is the text of a named file, and is not run at once."""
        key = argument.key.lower()
        is_text = bool(argument.path) and key in CODE_KEYS
        return is_text and (self.does_not_run(argument) or not (self.runs_python or self.runs_shell_in(key)))

    def writes(self, argument: Argument) -> bool:
        """Whether an argument is certainly the text of a file that is written here, and goes nowhere else."""
        words = re.findall("[a-z]+", self.tool)
        verbs, what = _WRITES.intersection(words), WORDS["writes_what"].intersection(words)
        is_writer = verbs | what == set(words) and bool(
            verbs & WORDS["writes_alone"] or (verbs and "file" in words)
        )
        return is_writer and not self.sends and "://" not in argument.path and self.names_file(argument)

    def applies(self, argument: Argument) -> bool:
        """Whether it applies an argument as a diff: removed lines and context then go nowhere else."""
        says = any(map(_PATTERNS["applies"].search, (self.tool, _apart(argument.key))))
        return says and not self.sends


def read_action(action: Mapping[str, Any] | None) -> ParsedAction:
    """What is known of an action. Without an action, nothing is run."""
    given = action or {}
    tool = _apart(str(given.get("tool", "")))
    args, commands = _arguments(given.get("args"))
    keys = [argument.key.lower() for argument in args]
    named = [argument.text.lower() for argument in args if argument.key.lower() in WORDS["language_keys"]]
    language = next((each for each in _LANGUAGES if any(map(_PATTERNS[each].fullmatch, named))), "")
    return ParsedAction(
        tool,
        args,
        commands,
        runs_shell=bool(
            WORDS["shell_tools"] & set(re.findall("[a-z]+", tool)) or WORDS["shell_keys"] & set(keys)
        ),
        runs_python=bool(_PATTERNS["python_tools"].search(tool)) or language == "python",
        sends=bool(_PATTERNS["sends"].search(tool)) or not WORDS["addresses"].isdisjoint(keys),
        language=language,
    )


def _apart(name: str) -> str:
    """A name in lower case, in separate words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name[:200]).lower()


def _arguments(args: Any) -> tuple[list[Argument], list[Argument]]:
    """Every text in the arguments, also nested ones; lists of words as one line, lists of code as lines.

    The second result holds the lists that are not read as one line, but may be one.
    """
    found: list[Argument] = []
    commands: list[Argument] = []
    stack: list[tuple[str, Any, str, int]] = [("args", args, "", 0)]
    while stack and len(found) < ARGS_MAX:
        key, value, path, depth = stack.pop()
        if isinstance(value, str):
            found.append(Argument(key, value, path))
        elif depth >= DEPTH_MAX:
            continue
        elif isinstance(value, Mapping):
            path = next((str(value[name]) for name in _PATH_KEYS if value.get(name)), path)
            items = list(value.items())[:ARGS_MAX]
            program = value.get("command") or value.get("program")
            words = value.get("args") or value.get("arguments")
            if isinstance(program, str) and isinstance(words, list) and _are_texts(words):
                commands.append(Argument("command", f"{program} {shlex.join(words)}", path))
            stack.extend((str(name), item, path, depth + 1) for name, item in reversed(items))
        elif isinstance(value, list | tuple):
            is_text = bool(value) and _are_texts(value)
            is_lines = key.lower() in CODE_KEYS and any(re.search(r"\s", str(each)) for each in value)
            has_diff = is_text and any(map(holds_diff, value))
            if not is_text or has_diff:
                stack.extend((key, item, path, depth + 1) for item in reversed(value[:ARGS_MAX]))
            elif is_lines:
                found.append(Argument(key, "\n".join(item.removesuffix("\n") for item in value), path))
            if is_text:
                (commands if has_diff or is_lines else found).append(Argument(key, shlex.join(value), path))
        elif value is not None:
            found.append(Argument(key, str(value)[:200], path))
    return found, commands


def _are_texts(values: list[Any] | tuple[Any, ...]) -> bool:
    return all(isinstance(each, str) for each in values)


def holds_diff(text: str) -> bool:
    """Whether a text seems to contain a diff."""
    return "\n@@ " in text or text.startswith("diff --git ")
