"""Rows of policy: what becomes of an action that fits, asked before any mind.

A row fits if all that it names fits: the tool, the arguments, one of the paths, one of the hosts, the agent. Of all
rows that fit, ``reject`` outranks ``human``, which outranks ``note``.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from council.agents.mind import Case
from council.agents.scan.action import ParsedAction, read_action
from council.agents.scan.change import read_changes
from council.agents.scan.languages import LANGUAGES
from council.agents.scan.rows import word_list

Then = Literal["reject", "human", "note"]

TOLD_MAX = 5  # rows in a reason
WORDS_MAX = 5_000  # of an action's texts that are looked at for paths and hosts
_ORDER: tuple[Then, ...] = ("reject", "human", "note")
_PATH_KEYS = re.compile(
    r"(?:^|_)(?:path|file|filename|filepath|dir|directory|folder|dest|destination|target|cwd)s?$"
)
_HOST_KEYS = re.compile(r"(?:^|_)(?:host|hostname|server|domain|address|endpoint|ip)s?$")
_URL = re.compile(r"[a-zA-Z][\w+.-]{1,20}://[^\s\"'<>`]{1,2000}")
_AT_HOST = re.compile(r"[\w.+-]{1,64}@([\w.-]{1,253})")
_DOTTED = re.compile(r"(?<![\w.@/-])((?:[a-zA-Z0-9-]{1,63}\.){1,10}(?:[a-zA-Z]{2,24}|\d{1,3}))(?![\w-]|\.\w)")
_NO_HOST = {
    *word_list("file_names"),
    *(extension for language in LANGUAGES for extension in language.extensions),
}


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One row. ``number`` counts from 1. Globs match in either case; one that begins with ! excludes.

    ``args`` maps the names of arguments, also nested ones, to regular expressions that are searched for. ``agent`` is
    compared with the proposer, and with the agent and the user that the proposer names; nobody checks these.
    """

    number: int
    then: Then
    reason: str
    tool: str | None = None
    args: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    agent: str | None = None

    def fits(self, seen: _Seen) -> bool:
        """Whether all that the row names fits."""
        tool, agent = (() if each is None else (each,) for each in (self.tool, self.agent))
        named = (tool, seen.tools), (self.paths, seen.paths), (self.hosts, seen.hosts), (agent, seen.agents)
        return all(_fits(globs, names) for globs, names in named if globs) and all(
            any(re.search(pattern, text) for key, text in seen.args if key == name)
            for name, pattern in self.args.items()
        )

    def __str__(self) -> str:
        return f"policy row {self.number}: {self.reason}"


class PolicyResult(NamedTuple):
    """What the rows say: the gravest ``then`` of those that fit, "" if none does; and these, gravest first."""

    then: Then | Literal[""]
    rows: tuple[PolicyRow, ...] = ()

    def reasons(self, then: Then) -> str:
        """The reasons of the first rows with this ``then``, and the number of the others; "" if there are none."""
        rows = [row for row in self.rows if row.then == then]
        more = f" and {len(rows) - TOLD_MAX:,} more rows" if len(rows) > TOLD_MAX else ""
        return "; ".join(map(str, rows[:TOLD_MAX])) + more


def judge(case: Case, rows: Sequence[PolicyRow]) -> PolicyResult:
    """What the rows say of a case."""
    if not rows:
        return PolicyResult("")
    seen = _seen(case)
    fitting = sorted((row for row in rows if row.fits(seen)), key=lambda row: _ORDER.index(row.then))
    return PolicyResult(fitting[0].then if fitting else "", tuple(fitting))


class _Seen(NamedTuple):
    """What rows are compared with."""

    tools: tuple[str, ...]
    args: tuple[tuple[str, str], ...]
    paths: frozenset[str]
    hosts: frozenset[str]
    agents: tuple[str, ...]


def _fits(globs: Iterable[str], names: Iterable[str]) -> bool:
    """Whether one of the names matches a glob, and none that excludes. With these alone, any other name does."""
    excluded = [glob[1:].lower() for glob in globs if glob.startswith("!")]
    wanted = [glob.lower() for glob in globs if not glob.startswith("!")] or ["*"]
    return any(
        any(fnmatch.fnmatchcase(name, glob) for glob in wanted)
        and not any(fnmatch.fnmatchcase(name, glob) for glob in excluded)
        for name in map(str.lower, names)
    )


def _seen(case: Case) -> _Seen:
    action = read_action(case.action)
    texts = [*action.args, *action.commands]
    return _Seen(
        (case.action.tool,) if case.action else (),
        tuple((each.key, each.text) for each in texts),
        frozenset(_paths(case, action)),
        frozenset(host.rstrip(".") for host in _hosts(action)),
        (case.proposer, *case.requester),
    )


def _paths(case: Case, action: ParsedAction) -> Iterator[str]:
    """The paths that an action names and the files that a diff changes: as they are, and as they resolve."""
    found = list(action.written_paths)
    for text in (case.body, *(argument.text for argument in action.args)):
        if "@@ " in text or "diff --git " in text:
            for change in read_changes(text).files:
                found += filter(None, (change.path, change.old_path))
    for argument in (*action.args, *action.commands):
        if argument.path:
            found.append(argument.path)
        if _PATH_KEYS.search(argument.key.lower()) and "\n" not in argument.text:
            found.append(argument.text)
        if action.runs_shell_in(argument.key.lower()):
            found += _words(argument.text)
    for path in dict.fromkeys(found):
        yield path
        yield posixpath.normpath(path)


def _words(text: str) -> list[str]:
    """The words of a command that may be paths, also those after = and behind a redirection."""
    try:
        words = shlex.split(text, comments=False)
    except ValueError:  # an open quote
        words = text.split()
    parts = (part for word in words[:WORDS_MAX] for part in (word, *re.split(r"[=<>:;|&()]", word)))
    return [part for part in parts if part and not part.startswith("-")]


def _hosts(action: ParsedAction) -> Iterator[str]:
    for argument in (*action.args, *action.commands):
        text = argument.text
        for url in _URL.findall(text):
            try:
                yield urlsplit(url).hostname or ""
            except ValueError:  # it looks like IPv6, and is not
                yield url.partition("://")[2].partition("/")[0]
        yield from _AT_HOST.findall(text)
        if _HOST_KEYS.search(argument.key.lower()) and not re.search(r"[\s/]", text):
            yield text.partition(":")[0]
        for word in _DOTTED.findall(text):
            if word.rsplit(".", 1)[-1].lower() not in _NO_HOST:
                yield word
