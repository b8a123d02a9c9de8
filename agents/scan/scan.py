"""The one door of the static checks: ``scan(case)`` reads a case, and gives what all rules find in it.

The findings are made once a case, however many minds of this process ask. Only what a change adds or takes away is
judged, never what was there before. A file that an action writes counts as added.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date

from council.agents.mind import Case
from council.agents.scan import (
    code,
    constants,
    hidden,
    lines,
    linters,
    removed,
    scanners,
    secrets,
    shell_texts,
)
from council.agents.scan.action import Argument, ParsedAction, holds_diff, read_action
from council.agents.scan.change import (
    DiffLine,
    FileChange,
    Hunk,
    ScannedText,
    narrowed,
    read_changes,
    short_quote,
)
from council.agents.scan.compare import compare
from council.agents.scan.finding import WEIGHTS, Family, Finding, Weight
from council.agents.scan.languages import (
    BY_NAME,
    Language,
    has_generated_name,
    is_docs,
    is_generated,
    is_test,
    language_of,
)
from council.agents.scan.own import NOTHING, Own
from council.agents.scan.pieces import Piece, piece_of, pieces_of
from council.agents.scan.ruleset import code_rules, line_rules
from council.agents.scan.spelling import spelled
from council.agents.scan.tools import ToolFailed

FINDINGS_MAX = 200  # a reason names a few; the gravest decides
SECONDS_MAX = 20.0  # of one analyzer; for an ordinary change it takes a tenth of a second
KEPT = 8  # cases whose findings are kept for the other minds
FOREIGN_SHARE = 0.1  # of a file's new characters that could not be decoded; umlauts in Latin-1 are fewer
# These weigh the same in tests, documents and generated files.
_EVERYWHERE: frozenset[Family] = frozenset({"secret", "tests", "ci"})
_IN_LOCK_FILES = _EVERYWHERE | {"supply"}  # and these in files that have a generated file's name
_PROSE = {"text", "markdown"}
_ARGUMENTS = "the action's arguments"  # a place
_NAMES = {
    "py": "python", "python3": "python", "js": "javascript", "ts": "typescript", "sh": "bash", "shell": "bash",
    "golang": "go", "rb": "ruby", "c#": "csharp", "cs": "csharp", "kt": "kotlin", "tf": "hcl", "yml": "yaml",
}  # fmt: skip
_TRANSLATED = re.compile(
    r"(?:^|/)(?:locales?|i18n|l10n|translations?|lang|languages|[Ll]ocali[sz]ations?)/|[.](?:po|pot|xlf|arb)$"
)
_SOURCE = re.compile(
    r"\.(?:py|[cm]?jsx?|[cm]?tsx?|go|rs|java|kts?|rb|php|cc?|cpp|hh?|hpp|cs|swift|scala|exs?|sql|jl|r|dart|lua|"
    r"pl|pm|hs|clj|erl|fs|groovy|m|mm|vb|zig|nim|cr|ml|f90|pas|adb|cob|asm|s|sol|v|vhd|tcl|awk|el|lisp|rkt|ps1|bat)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Parts:
    """What a change consists of: paths by kind, and how many lines it adds and removes, without generated files.

    ``binaries`` are files that nobody expects to read, such as images.
    """

    added: int = 0
    removed: int = 0
    sources: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    gone_tests: tuple[str, ...] = ()  # test files that are deleted without any source
    generated: tuple[str, ...] = ()
    binaries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """What all rules found in a case, gravest first, and what they could not read.

    ``unread`` names damaged diffs, source in an unknown encoding, and text above a limit. ``unknown`` names source in
    a language that no rule reads. ``failed`` names analyzers that did not do their work. ``only_lines`` names files
    of which no grammar is known here, templates, dialects and links. If there is nothing else, ``has_code``
    is false. ``silenced`` are findings that a user's silence takes out, each with its reason.
    """

    found: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    only_lines: tuple[str, ...] = ()
    files: tuple[FileChange, ...] = ()
    has_code: bool = False
    is_readable: bool = False
    parts: Parts = Parts()
    silenced: tuple[tuple[Finding, str], ...] = ()

    def of(self, weight: Weight, families: Collection[Family] | None = None) -> list[Finding]:
        """The findings of a weight, of all families or of some."""
        return [
            each
            for each in self.found
            if each.weight == weight and (families is None or each.family in families)
        ]


_kept: OrderedDict[bytes, Future[Findings]] = OrderedDict()
_keeping = threading.Lock()


def scan(case: Case, own: Own = NOTHING) -> Findings:
    """The findings in a case, by the rules of this package and the user's ``own``.

    Blocks for some tenths of a second if there is code, and for as long as the user's scanners take. No text in a
    case makes it raise.
    """
    told = repr((case.summary, case.body, case.action, own.key))
    key = hashlib.sha256(told.encode("utf-8", "surrogatepass")).digest()
    with _keeping:
        known = _kept.get(key)
        made = known or Future()
        if known is None:
            _kept[key] = made
            while len(_kept) > KEPT:
                _kept.popitem(last=False)
    if known is not None:
        return known.result()
    try:
        found = _scanned(case, own)
        made.set_result(found)
        is_kept = not found.failed  # an analyzer that failed is tried again
    except BaseException as error:  # noqa: BLE001 - raised again in each thread that waits for this scan
        made.set_exception(error)
        is_kept = False
    if not is_kept:
        with _keeping:
            _kept.pop(key, None)
    return made.result()


@dataclass(slots=True)
class _Texts:
    """The texts of a case, apart: changes of files, code, and words."""

    reading: ScannedText
    written: list[FileChange] = field(default_factory=list)
    code: list[Piece] = field(default_factory=list)
    words: list[tuple[str, str]] = field(default_factory=list)  # (place, text)

    @property
    def changes(self) -> tuple[FileChange, ...]:
        return (*self.reading.files, *self.written)


def _scanned(case: Case, own: Own) -> Findings:
    action = read_action(case.action)
    texts = _texts_of(case, action)
    timeout_s = max(1.0, min(SECONDS_MAX, case.time_left_s / 2))
    changes = texts.changes
    unread = [*texts.reading.faults, *filter(None, map(_unreadable, changes))]
    folded = constants.fold(changes)
    shell, shell_unread, one_liners = shell_texts.findings(case, texts.reading, changes, action, folded)
    shown = pieces_of(changes)
    pieces = spelled([*shown, *texts.code, *one_liners])
    with ThreadPoolExecutor(3) as pool:
        scanned = pool.submit(scanners.findings, own.scanners, changes, time_left_s=case.time_left_s)
        analyzers: list[Future[tuple[list[Finding], Sequence[str]]]] = [
            pool.submit(_code, pieces, own, timeout_s),
            pool.submit(linters.of_changes, changes, shown, timeout_s),
        ]
        found = compare(lines.matches(pieces, own.over(line_rules({piece.path for piece in pieces}))), pieces)
        gone, gone_unread = removed.findings(changes, shown)
        found += [
            *gone,
            *shell,
            *hidden.findings(changes),
            *_secrets(texts),
            *constants.findings(changes, folded),
        ]
        found += [*_by_kind(changes), *own.touched(changes)]
        unread += [*gone_unread, *shell_unread]
        failed: list[str] = []
        for analyzer in analyzers:
            more, faults = analyzer.result()
            found += more
            failed += faults
        found += scanned.result()
    left, silenced = own.silence(_ordered(found), date.today())
    return replace(_counted(case, texts, left, unread, failed), silenced=silenced)


def _code(pieces: Sequence[Piece], own: Own, timeout_s: float) -> tuple[list[Finding], Sequence[str]]:
    languages = sorted(code.languages(pieces))
    rules = own.over(dict.fromkeys(rule for language in languages for rule in code_rules(language)))
    try:
        return compare(code.matches(pieces, rules, timeout_s=timeout_s), pieces), []
    except ToolFailed as error:
        return [], [str(error)]


def _ordered(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each weakness of a line once, with its weight where it stands, gravest first."""
    ordered = sorted(
        map(_placed, found), key=lambda each: (WEIGHTS.index(each.weight), each.path, each.line, each.rule)
    )
    # A linter and a rule may see the same.
    unique = {(each.path, each.line, each.cwe or each.rule): each for each in reversed(ordered)}
    return tuple(reversed(unique.values()))[:FINDINGS_MAX]


def _placed(found: Finding) -> Finding:
    is_lighter = found.family not in _EVERYWHERE and (is_test(found.path) or is_docs(found.path))
    is_lighter |= found.family not in _IN_LOCK_FILES and has_generated_name(found.path)
    if not is_lighter or found.weight == "note":
        return found
    return replace(found, weight=WEIGHTS[WEIGHTS.index(found.weight) + 1])


# The texts of a case


def _texts_of(case: Case, action: ParsedAction) -> _Texts:
    texts = _Texts(_read(case.body))
    texts.words += [("the summary", case.summary), ("the body", texts.reading.prose)]
    told = []  # arguments, without the diffs that are applied: only what these add is judged
    for argument in action.args:
        text, place = argument.text, f"the action's {argument.key[:40]!r}"
        if holds_diff(text):
            more = _read(text)
            texts.reading = replace(
                texts.reading,
                files=texts.reading.files + more.files,
                blocks=texts.reading.blocks + more.blocks,
                faults=texts.reading.faults + more.faults,
            )
            text = more.prose if action.applies(argument) else text
        elif action.writes(argument) or action.names_file(argument):
            texts.written.append(written(argument))
        elif (language := BY_NAME.get(action.language_of(argument))) and language.ast_grep:
            texts.code.append(piece_of(place, language, text))
        if not action.writes(argument):
            told.append(f"{argument.key} = {json.dumps(text, ensure_ascii=False)}")
    left = (each for each in action.commands if not (action.writes(each) or action.applies(each)))
    told += [f"{each.key} = {json.dumps(each.text, ensure_ascii=False)}" for each in left]
    texts.words.append((_ARGUMENTS, "\n".join(told)))
    for block in texts.reading.blocks:
        name = _NAMES.get(block.language, block.language)
        if (language := BY_NAME.get(name)) and name not in _PROSE and not block.has_diff:
            place = f"code block at line {block.line}"
            texts.code.append(piece_of(place, language, block.code))
    return texts


def _read(text: str) -> ScannedText:
    reading = read_changes(text)
    return replace(reading, files=tuple(map(narrowed, reading.files)))


def written(argument: Argument) -> FileChange:
    """A file that an action writes, as a change that adds it."""
    added = tuple(DiffLine("+", text, None, at) for at, text in enumerate(argument.text.split("\n"), start=1))
    return FileChange(argument.path, None, "added", hunks=(Hunk(0, 1, added),), is_whole=True)


def _secrets(texts: _Texts) -> Iterator[Finding]:
    for change in texts.changes:
        path = change.path
        if change.kind == "deleted" or change.is_binary:
            continue
        # A translation holds labels and samples, no values.
        is_made = has_generated_name(path) or _TRANSLATED.search(path) is not None
        lenient = is_made or is_test(path) or is_docs(path)
        yield from secrets.findings(short_quote(path), change.added, lenient=lenient, assignments=not is_made)
    for place, text in texts.words:
        for found in secrets.findings(place, list(enumerate(text.split("\n"), start=1))):
            # Words name people, and arguments hold values: only a secret that is sure weighs as in a file.
            is_lighter = found.family == "privacy" or place == _ARGUMENTS
            yield replace(found, weight="note") if is_lighter and found.weight == "ask" else found


_PROGRAM = re.compile(
    r"\.(?:exe|dll|so|dylib|jar|war|class|pyc|pyd|o|a|ko|apk|msi|deb|rpm|wasm|node|bin|dmg|scr|com)$", re.I
)


def _by_kind(changes: Iterable[FileChange]) -> Iterator[Finding]:
    """Programs, which nobody can read, and links that lead out of the repository, among the files of a change."""
    for change in changes:
        path = short_quote(change.path)
        if change.is_binary and change.kind == "added" and _PROGRAM.search(change.path):
            message = (
                "A program that nobody can read comes in. Build it from source, or check where it is from."
            )
            yield Finding("binary-program", "supply", "ask", path, 0, message, 506)
        for line, target in change.added if change.is_link else ():
            place = posixpath.normpath(posixpath.join(posixpath.dirname(change.path), target))
            if place.startswith("/") or place.split("/")[0] == "..":
                message = "A symbolic link leads out of the repository. Link within it, or copy the file."
                yield Finding("link-outside", "path", "ask", path, line, message, 59)


def _unreadable(change: FileChange) -> str:
    """Why the new text of a file can't be read though it should be text, or ""."""
    language = language_of(change.path)
    if change.is_binary:
        hides = language is not None and not is_generated(change)
        return f"{short_quote(change.path)} is source by its name, and shown as binary" if hides else ""
    new = "".join(text for _, text in change.added)
    is_foreign = new.count("\ufffd") > FOREIGN_SHARE * len(new)
    return f"{short_quote(change.path)} is in no encoding that could be read" if is_foreign else ""


# What a case consists of


def _counted(
    case: Case, texts: _Texts, found: tuple[Finding, ...], unread: Sequence[str], failed: Sequence[str]
) -> Findings:
    files = texts.reading.files
    shown = [c for c in texts.changes if c.hunks and c.kind != "deleted" and not is_docs(c.path)]
    reads = {change.path: language_of(change.path, _first(change)) for change in shown}
    unknown = [path for path, read in reads.items() if _SOURCE.search(path) and not is_read(read)]
    only_lines = tuple(filter(None, (_unjudged(change, reads[change.path]) for change in shown)))
    is_parsed = any(piece.language and piece.language.ast_grep for piece in texts.code)
    has_words = bool(case.summary.strip() or case.body.strip() or case.action)
    return Findings(
        found,
        tuple(dict.fromkeys(unread)),
        tuple(f"{short_quote(path)} (in no language that a rule reads)" for path in unknown),
        tuple(failed),
        only_lines,
        files,
        has_code=bool(len(only_lines) < len(shown) or is_parsed or texts.reading.faults),
        is_readable=any(not change.is_binary for change in files) or (not files and has_words),
        parts=_parts(files),
    )


def _parts(files: Sequence[FileChange]) -> Parts:
    written = [change for change in files if not is_generated(change)]
    live = [change.path for change in written if change.kind != "deleted"]
    gone = [change.path for change in written if change.kind == "deleted" and _SOURCE.search(change.path)]
    is_pruned = any(not is_test(path) for path in gone)
    return Parts(
        added=sum(len(change.added) for change in written),
        removed=sum(len(change.removed) for change in written),
        sources=tuple(path for path in live if _SOURCE.search(path) and not is_test(path)),
        tests=tuple(filter(is_test, live)),
        gone_tests=() if is_pruned else tuple(gone),
        generated=tuple(change.path for change in files if is_generated(change)),
        binaries=tuple(c.path for c in files if c.is_binary and c.kind != "deleted" and not _unreadable(c)),
    )


def _unjudged(change: FileChange, language: Language | None) -> str:
    """A file whose lines alone were read, and why; "" for any other file."""
    path = short_quote(change.path)
    if change.is_link:
        return f"{path} (a symbolic link)"
    if language is None:
        return "" if _SOURCE.search(change.path) else path
    fault = removed.data_fault(change) if language.name in ("json", "yaml") else None
    return f"{path} ({fault.message})" if fault and not (fault.sure or fault.is_limit) else ""


def is_read(language: Language | None) -> bool:
    """Whether there are rules for a language."""
    if language is None:
        return False
    return not language.ast_grep or bool(code_rules(language.ast_grep))


def _first(change: FileChange) -> str:
    return next((line.text for line in change.hunks[0].lines if line.new_no == 1), "")
