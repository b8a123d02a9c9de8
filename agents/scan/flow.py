"""Follows secrets, downloads and dumps through the commands of a script, by the table ``rules/flow.yml``.

A row joins a kind of source to a kind of sink. What a source gives reaches a sink over a pipe, as a word (also by a
substitution or a variable), or in a file that an earlier command wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import islice, pairwise
from pathlib import Path

import msgspec

from council.agents.scan.rows import Rule, convert, load
from council.agents.scan.shell_words import DOWNLOADERS, INTERPRETERS, Scene, base_name, reads_stdin

RULES = Path(__file__).parent / "rules" / "flow.yml"
WORD_CHARS_MAX = LINE_CHARS_MAX = 4_000
_MARKS = {"!": "secret", "?": "token"}
_MARK = re.compile(r"[$<]\(([!?])")
_KEPT_KINDS = {"secret", "dump"}
_HEADER = re.compile(r"[A-Za-z-]*(?:authorization|token|key): ", re.IGNORECASE)
_KEPT = re.compile(r"\.(?:t?gz|tar|zip|7z|xz|bz2|zst|enc|gpg|asc|b64|txt|out|sql|json)$")


class Source(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What gives a kind: a command whose line matches, or any command that reads a file whose name matches.

    ``keeps`` is a word that names this kind in later commands of the script.
    """

    kind: str
    line: str = ""
    file: str = ""
    excepted: str = msgspec.field(name="except", default="")
    keeps: str = ""


class Sink(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A program to which something goes, if its line matches ``line``. ``ignore`` are options whose values stay here.

    It takes its standard input if its line matches ``stdin``. ``words``: its words go there too. ``runs``: its input
    counts only if it runs it as a script.
    """

    to: str
    program: tuple[str, ...]
    line: str = ""
    ignore: str = ""
    stdin: str = ""
    words: bool = True
    runs: bool = False


class FlowRow(Rule, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A flow that is a finding. With ``by: pipe``, words do not count. The graver rows come first."""

    source: str = msgspec.field(name="from")
    to: str
    by: str = ""


class Flows(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``seen`` is how a command starts whose output can be read beside it; ``printers`` show what they read."""

    sources: tuple[Source, ...]
    blind: str
    seen: str
    printers: str
    sinks: tuple[Sink, ...]
    rows: tuple[FlowRow, ...]


@cache
def flows() -> Flows:
    """The table. Raises ValueError if it is wrong, with why."""
    return convert(load(RULES), Flows, RULES.name)


@cache
def _sinks() -> dict[str, list[Sink]]:
    """The sinks, by program."""
    programs = dict.fromkeys(program for sink in flows().sinks for program in sink.program)
    return {program: [sink for sink in flows().sinks if program in sink.program] for program in programs}


def judge(stages: list[list[str]], scene: Scene, *, is_shown: bool) -> Iterator[FlowRow]:
    """The flows in a pipeline. Files that it writes are kept in ``scene.secrets``, with what is in them.

    ``is_shown``: its output goes to the caller, unless it is redirected.
    """
    carried: set[str] = set()
    for argv in stages:
        name = base_name(argv[0]).lstrip("@") if argv else ""
        line = " ".join(argv)[:LINE_CHARS_MAX]
        for sink in _sinks().get(name, ()):
            if not re.search(sink.line, line):
                continue
            own = _in_words(_sent(argv, sink.ignore), scene) if sink.words else set()
            # A redirection of a secret file is its input, whatever else is ignored.
            own |= _in_words([word for word in argv if word.startswith("<")], scene)
            takes = re.search(sink.stdin, line) is not None and (not sink.runs or reads_stdin(argv))
            rows = [row for row in flows().rows if _flows(row, sink.to, carried if takes else set(), own)]
            yield from (row for row in rows if row.weight == rows[0].weight)
        if name and _saved(argv, name, scene):
            yield next(row for row in flows().rows if row.id == "flow-saved-run")
        if argv and argv[0].startswith(("$(", "<(")) and "download" in _in_words(argv[:1], scene):
            yield next(row for row in flows().rows if row.id == "flow-download-run")
        given = _given(argv, name, scene)
        carried |= given if re.search(flows().seen, line) else {*given, "unseen"}
        scene.secrets.update(
            (source.keeps, source.kind) for source in flows().sources if source.keeps and source.kind in given
        )
        if carried & _KEPT_KINDS:
            kind = "secret" if "secret" in carried else "dump"
            kept = [word[1:] for word in argv if word.startswith(">")]
            if given:
                kept += [word for word in argv[1:] if _KEPT.search(word)]
                kept += argv[-1:] if name in {"cp", "mv", "tee"} else []
            scene.secrets.update(dict.fromkeys(filter(None, kept), kind))
    last = stages[-1] if stages else []
    if is_shown and last and not any(word.startswith(">") for word in last):
        line = " ".join([base_name(last[0]), *last[1:]])[:LINE_CHARS_MAX]
        shown = set(_of_line(line)) | (carried if re.search(flows().printers, line) else set())
        yield from islice((row for row in flows().rows if _flows(row, "terminal", shown, set())), 1)


def _saved(argv: list[str], name: str, scene: Scene) -> bool:
    """Whether a command runs a file that an earlier one downloaded. Keeps the files that this one downloads."""
    files = [word for word in argv if not word.startswith("-")]
    ran = files[1:2] if name in INTERPRETERS else files[:1]
    if any(scene.secrets.get(word.removeprefix("./")) == "saved" for word in ran):
        return True
    if name in DOWNLOADERS:
        options = {"-o", "-O", "--output", "--output-document"}
        named = [word for before, word in pairwise(argv) if before in options]
        named += [word[1:] for word in argv if word.startswith(">")]
        named += [word.rsplit("/", 1)[-1] for word in files if "://" in word]
        scene.secrets.update((word.removeprefix("./"), "saved") for word in named if word)
    return False


def _flows(row: FlowRow, to: str, carried: set[str], own: set[str]) -> bool:
    kinds = set(row.source.split())
    return row.to in to.split() and bool(kinds & carried or (row.by != "pipe" and kinds & own))


def mark(stages: list[list[str]], scene: Scene) -> str:
    """The mark of a substitution that runs these commands: "!" if it prints a secret, "?" a token, else ""."""
    given: set[str] = set()
    for argv in stages:
        given |= _given(argv, base_name(argv[0]) if argv else "", scene)
    return next((sign for sign, kind in _MARKS.items() if kind in given), "")


def _given(argv: list[str], name: str, scene: Scene) -> set[str]:
    """The kinds that a command gives out."""
    found: set[str] = set(_of_line(" ".join([name, *argv[1:]])[:LINE_CHARS_MAX]))
    read = argv[1:] if name not in flows().blind.split() else [word for word in argv[1:] if "$" in word]
    return found | _in_words(read, scene)


def _in_words(words: list[str], scene: Scene) -> set[str]:
    """The kinds that words name: files, substitutions, variables. A header may hold a token, but no other secret."""
    found: set[str] = set()
    for word in words:
        is_header = ": " in word and _HEADER.match(word) is not None
        if "(" in word:
            found |= {_MARKS[sign] for sign in _MARK.findall(word) if not (sign == "?" and is_header)}
        if is_header or word.startswith(">"):
            continue
        if scene.secrets:
            found |= {scene.secrets[path] for path in re.split(r"[@=<]", word)[-1:] if path in scene.secrets}
        found |= _of_word(word[:WORD_CHARS_MAX])
    return found


@lru_cache(2_000)
def _of_line(line: str) -> frozenset[str]:
    return frozenset(
        source.kind for source in flows().sources if source.line and re.search(source.line, line)
    )


@lru_cache(2_000)
def _of_word(word: str) -> frozenset[str]:
    named = [source for source in flows().sources if source.file and re.search(source.file, word)]
    return frozenset(s.kind for s in named if not (s.excepted and re.search(s.excepted, word)))


def _sent(argv: list[str], ignore: str) -> list[str]:
    """A sink's words, without the values of options that stay here."""
    ignored = ignore.split()
    return [
        word
        for before, word in pairwise(argv)
        if before not in ignored and word.partition("=")[0] not in ignored
    ]
