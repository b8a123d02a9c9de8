"""The entry point of the static checks: ``scan(case)`` returns what all rules find in a case.

A case is scanned once, however many minds of this process ask. Only what a change adds or takes away is
judged, never what was there before. A file that an action writes counts as added.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
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
from council.agents.scan.action import read_action
from council.agents.scan.change import FileChange, short_quote
from council.agents.scan.compare import compare
from council.agents.scan.finding import WEIGHTS, Family, Finding, Weight
from council.agents.scan.languages import (
    Language,
    has_generated_name,
    is_a,
    is_docs,
    is_generated,
    is_test,
    language_of,
)
from council.agents.scan.own import NOTHING, Own
from council.agents.scan.pieces import Piece, pieces_of
from council.agents.scan.ruleset import code_rules, line_rules
from council.agents.scan.spelling import spelled
from council.agents.scan.texts import ARGUMENTS, Texts, texts_of
from council.agents.scan.tools import ToolFailed

FINDINGS_MAX = 200  # a reason names a few; the gravest decides
SECONDS_MAX = 20.0  # of one analyzer; for an ordinary change it takes a tenth of a second
KEPT = 8  # cases whose findings are kept for the other minds
FOREIGN_SHARE = 0.1  # of a file's new characters that could not be decoded; umlauts in Latin-1 are fewer
# These weigh the same in tests, documents and generated files.
_EVERYWHERE: frozenset[Family] = frozenset({"secret", "tests", "ci"})
_IN_LOCK_FILES = _EVERYWHERE | {"supply"}  # these weigh the same in files with a generated file's name


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
    whose grammar is not known here, templates, dialects and links. If there is nothing else, ``has_code`` is false.
    ``silenced`` are findings that a user's silence takes out, each with its reason.
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
        is_first = key not in _kept
        made = _kept.setdefault(key, Future())
        if len(_kept) > KEPT:
            _kept.popitem(last=False)
    if is_first:
        try:
            made.set_result(_scanned(case, own))
        except BaseException as error:  # noqa: BLE001 - raised in each thread that waits for this scan
            made.set_exception(error)
        if made.exception() or made.result().failed:  # it is tried again
            with _keeping:
                _kept.pop(key, None)
    return made.result()


def _scanned(case: Case, own: Own) -> Findings:
    action = read_action(case.action)
    texts = texts_of(case, action)
    changes = texts.changes
    timeout_s = max(1.0, min(SECONDS_MAX, case.time_left_s / 2))
    folded = constants.fold(changes)
    shell, shell_unread, one_liners = shell_texts.findings(case, texts.reading, changes, action, folded)
    shown = pieces_of(changes)
    pieces = spelled([*shown, *texts.code, *one_liners])
    with ThreadPoolExecutor(3) as pool:
        analyzers = [
            pool.submit(_code, pieces, own, timeout_s),
            pool.submit(linters.findings, changes, shown, timeout_s),
            pool.submit(scanners.findings, own.scanners, changes, time_left_s=case.time_left_s),
        ]
        gone, gone_unread = removed.findings(changes, shown)
        rules = own.over(line_rules({piece.path for piece in pieces}))
        found = [
            *compare(lines.matches(pieces, rules), pieces),
            *gone,
            *shell,
            *hidden.findings(changes),
            *_secrets(texts),
            *constants.findings(changes, folded),
            *own.touched(changes),
        ]
        failed = []
        for analyzer in analyzers:
            try:
                found += analyzer.result()
            except ToolFailed as error:
                failed.append(str(error))
    left, silenced = own.silence(_ordered(found), date.today())
    unread = [*texts.reading.faults, *filter(None, map(_unreadable, changes)), *gone_unread, *shell_unread]
    return replace(
        _counted(case, texts),
        found=left,
        unread=tuple(dict.fromkeys(unread)),
        failed=tuple(failed),
        silenced=silenced,
    )


def _code(pieces: Sequence[Piece], own: Own, timeout_s: float) -> list[Finding]:
    names = sorted(code.languages(pieces))
    rules = own.over(dict.fromkeys(rule for name in names for rule in code_rules(name)))
    return compare(code.matches(pieces, rules, timeout_s=timeout_s), pieces)


def _ordered(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each weakness of a line once, with the weight that it has in its file, gravest first."""
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


def _secrets(texts: Texts) -> Iterator[Finding]:
    for change in texts.changes:
        path = change.path
        if change.kind == "deleted" or change.is_binary:
            continue
        is_made = has_generated_name(path) or is_a("translated", path)
        lenient = is_made or is_test(path) or is_docs(path)
        yield from secrets.findings(short_quote(path), change.added, lenient=lenient, assignments=not is_made)
    for place, text in texts.words:
        for found in secrets.findings(place, list(enumerate(text.split("\n"), start=1))):
            # Words name people, and arguments hold values: only a secret that is sure weighs as in a file.
            is_lighter = found.family == "privacy" or place == ARGUMENTS
            yield replace(found, weight="note") if is_lighter and found.weight == "ask" else found


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


def _counted(case: Case, texts: Texts) -> Findings:
    """What a case consists of, without findings."""
    files = texts.reading.files
    shown = [c for c in texts.changes if c.hunks and c.kind != "deleted" and not is_docs(c.path)]
    reads = {change.path: language_of(change.path, _first(change)) for change in shown}
    only_lines = tuple(filter(None, (_unjudged(change, reads[change.path]) for change in shown)))
    is_parsed = any(piece.language and piece.language.ast_grep for piece in texts.code)
    has_words = bool(case.summary.strip() or case.body.strip() or case.action)
    return Findings(
        unknown=tuple(
            f"{short_quote(path)} (in no language that a rule reads)"
            for path, language in reads.items()
            if is_a("source", path) and not is_read(language)
        ),
        only_lines=only_lines,
        files=files,
        has_code=bool(len(only_lines) < len(shown) or is_parsed or texts.reading.faults),
        is_readable=any(not change.is_binary for change in files) or (not files and has_words),
        parts=_parts(files),
    )


def _parts(files: Sequence[FileChange]) -> Parts:
    written = [change for change in files if not is_generated(change)]
    live = [change.path for change in written if change.kind != "deleted"]
    gone = [change.path for change in written if change.kind == "deleted" and is_a("source", change.path)]
    return Parts(
        added=sum(len(change.added) for change in written),
        removed=sum(len(change.removed) for change in written),
        sources=tuple(path for path in live if is_a("source", path) and not is_test(path)),
        tests=tuple(filter(is_test, live)),
        gone_tests=tuple(gone) if all(map(is_test, gone)) else (),
        generated=tuple(change.path for change in files if is_generated(change)),
        binaries=tuple(c.path for c in files if c.is_binary and c.kind != "deleted" and not _unreadable(c)),
    )


def _unjudged(change: FileChange, language: Language | None) -> str:
    """A file whose lines alone were read, and why; "" for any other file."""
    path = short_quote(change.path)
    if change.is_link:
        return f"{path} (a symbolic link)"
    if language is None:
        return "" if is_a("source", change.path) else path
    fault = removed.data_fault(change) if language.name in ("json", "yaml") else None
    return f"{path} ({fault.message})" if fault and not (fault.sure or fault.is_limit) else ""


def is_read(language: Language | None) -> bool:
    """Whether there are rules for a language."""
    return language is not None and (not language.ast_grep or bool(code_rules(language.ast_grep)))


def _first(change: FileChange) -> str:
    return next((line.text for line in change.hunks[0].lines if line.new_no == 1), "")
