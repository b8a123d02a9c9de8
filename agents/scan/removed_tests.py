"""Finds tests that a change removes, skips or empties, in any language, line by line.

What an assertion in a line becomes is data: rules/lines/tests.yml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from council.agents.scan.change import FileChange, short_quote
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.languages import is_test
from council.agents.scan.line_pairs import LINE_CHARS_MAX, Block, bare, is_code, is_remark, patterns

_NOTHING = {"pass", "return", "..."}
_SWALLOWS = {"try", "except", "Exception", "BaseException", "suppress", "contextlib"}
# Words that say little of what is expected.
_SMALL = {"is", "not", "in", "None", "True", "null", "nil", "true"}
_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class _Test:
    """What is shown of a test on one side: its changed lines, and all its assertions."""

    line: int = 0
    is_changed: bool = False  # the line with its name
    is_closed: bool = False  # its end is shown
    changed: list[str] = field(default_factory=list)
    asserts: list[tuple[int, str, bool]] = field(default_factory=list)  # number, text, whether it is changed


def findings(changes: Sequence[FileChange], blocks: Sequence[Block]) -> Iterator[Finding]:
    """What becomes of the tests of a whole change."""
    code = [change for change in changes if is_code(change)]
    tests = [change for change in code if is_test(change.path)]
    sources = [change for change in code if not is_test(change.path)]
    if not any(change.hunks for change in tests):
        return
    # A change that takes code away also takes its tests away, so a removed test is no alarm there.
    shrinks = _lines(sources, "removed") > _lines(sources, "added")
    before = {change.path: _tests_of(change, "+") for change in tests}
    after = {change.path: _tests_of(change, "-") for change in tests}
    left = set().union(*after.values())
    added = {bare(text) for change in changes for _, text in change.added}
    is_rewritten = _lines(tests, "added") * 2 >= _lines(tests, "removed")
    stems = {_stem(change.path) for change in sources}
    for change in tests:
        old, new = before[change.path], after[change.path]
        lost = [name for name, test in old.items() if name and test.is_changed and name not in left]
        if change.kind == "deleted":
            if lost:
                message = f"Deletes a file of {len(lost)} tests, but not what they test. Keep it, or say why."
                is_only = not _lines(tests, "added") and not shrinks
                yield _finding("test-file-deleted", "ask" if is_only else "note", change.path, 0, message)
            continue
        if sum(bool(name) and test.is_changed for name, test in new.items()) < len(lost):
            is_alarm = not (shrinks or is_rewritten) and _stem(change.path) in stems
            for name in lost[:3]:
                message = f"Removes the test {short_quote(name)}. Keep it, or say why what it tests is gone."
                weight: Weight = "ask" if is_alarm else "note"
                yield _finding("test-removed", weight, change.path, old[name].line, message)
        for name in old.keys() & new.keys():
            yield from _weaker(change.path, name, old[name], new[name], added, shrinks=shrinks)
    live = {change.path for change in tests if change.kind != "deleted"}
    for block in blocks:
        if block.path in live:
            yield from _skipped(block)
            yield from _ended(block)


def _finding(rule: str, weight: Weight, path: str, line: int, message: str) -> Finding:
    return Finding(rule, "tests", weight, path, line, message)


def _lines(changes: Sequence[FileChange], side: Literal["added", "removed"]) -> int:
    return sum(len(getattr(change, side)) for change in changes)


def _stem(path: str) -> str:
    """The name of the file that a test is about: ``pay`` of ``test_pay.py`` and ``src/PayTest.java``."""
    name = path.rsplit("/", 1)[-1].partition(".")[0].lower()
    return re.sub(r"^tests?_|[_-]?(?:tests?|spec)$", "", name)


def _tests_of(change: FileChange, other: str) -> dict[str, _Test]:
    """The tests on a side of a file by name; ``other`` is the tag of the other side's lines.

    Lines outside of tests, and of tests whose names are not shown, are by "".
    """
    known, found = patterns("tests"), dict[str, _Test]()
    for hunk in change.hunks:
        test, indent = found.setdefault("", _Test()), -1
        marked = 0  # in how many lines the name of a marked test may still come
        for line in (line for line in hunk.lines if line.tag != other and line.text.strip()):
            text, number = line.text[:LINE_CHARS_MAX], (line.old_no if other == "+" else line.new_no) or 0
            marked -= 1
            name = known["named"].search(text) or (marked > 0 and known["method"].search(text))
            if known["marked"].search(text):
                marked, test.is_closed, test, indent = 4, True, found.setdefault("", _Test()), -1
            elif name:
                test.is_closed = True
                test = _Test(number, line.tag != " ")
                found[next(group for group in name.groups() if group)] = test
                marked, indent = 0, _indent(text)
            elif _indent(text) <= indent and not text.lstrip().startswith("{"):
                test.is_closed, test, indent = True, found.setdefault("", _Test()), -1
            if known["asserts"].search(text):
                test.asserts.append((number, text, line.tag != " "))
            if line.tag != " ":
                test.changed.append(text)
    return found


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _weaker(
    path: str, name: str, old: _Test, new: _Test, added: set[str], *, shrinks: bool
) -> Iterator[Finding]:
    """Assertions that are taken out of a test that stays."""
    gone = [(number, text) for number, text, is_changed in old.asserts if is_changed]
    gone = [(number, text) for number, text in gone if bare(text) not in added]
    if not gone or len(new.asserts) >= len(old.asserts):
        return
    put = {word for text in new.changed if not is_remark(text) for word in _WORD.findall(text)}
    named = {word for word in put if not word[0].isdigit()}
    had = {word for text in old.changed for word in _WORD.findall(text)}
    number, shown = gone[0][0], short_quote(gone[0][1].strip())
    if name and old.is_closed and new.is_closed and not new.asserts and named <= had | _NOTHING | _SWALLOWS:
        message = f"The test {short_quote(name)} asserts nothing any more. Keep {shown}, or remove the test."
        yield _finding("test-emptied", "stop", path, number, message)
        return
    cut = [text for text in old.changed if bare(text) not in added]
    is_cut = len(cut) == len(gone) and named <= had | _SMALL and not had <= put
    message = f"Takes out the assertion {shown}. Keep it, or say why it holds no more."
    is_run = any(len(bare(text)) > 6 and bare(text) in bare(was) for text in new.changed for _, was in gone)
    weight: Weight = "stop" if is_run else "ask" if is_cut and not shrinks else "note"
    yield _finding("assertion-removed", weight, path, number, message)


def _ended(block: Block) -> Iterator[Finding]:
    """A test that returns before it asserts anything."""
    asserts = patterns("tests")["asserts"]
    put = {text.strip().rstrip(";") for _, text in block.added if text.strip()}
    is_cut_short = not block.removed and put and _indent(block.after) == _indent(block.added[0][1])
    if put and put <= _NOTHING and (is_cut_short or any(asserts.search(text) for _, text in block.removed)):
        message = "Ends a test before it asserts anything. Keep what it does, or remove it and say why."
        yield _finding("test-emptied", "stop", block.path, block.added[0][0], message)


def _skipped(block: Block) -> Iterator[Finding]:
    """Tests that were there, and are skipped."""
    known = patterns("tests")
    skips = [(number, text) for number, text in block.added if known["skips"].search(text)]
    if not block.path.endswith(".rb"):
        skips = [each for each in skips if not each[1].lstrip().startswith(("pending", "skip"))]
    above = dict(block.added)
    skips = [each for each in skips if not known["condition"].search(above.get(each[0] - 1, ""))]
    if not skips or any(known["skips"].search(text) for _, text in block.removed):
        return
    is_old = _headers(block.added) <= _headers(block.removed)
    message = "Skips a test. Repair it, or say why it can't run."
    yield _finding("test-skipped", "ask" if is_old else "note", block.path, skips[0][0], message)


def _headers(lines: Sequence[tuple[int, str]]) -> int:
    known = patterns("tests")
    return sum(bool(known["named"].search(text) or known["marked"].search(text)) for _, text in lines)
