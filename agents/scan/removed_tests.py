"""Finds tests that a change removes, skips or weakens, in any language, line by line."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal

from council.agents.scan.change import DiffLine, FileChange, short_quote
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.languages import is_test
from council.agents.scan.line_pairs import Block, Pair, bare, is_code, is_remark

_NAMED = re.compile(
    r"\s*(?:(?:async\s+)?(?:def|function)\s+(test\w*)|func\s+(?:\([^)]{0,80}\)\s*)?(Test\w+)\s*\(|"
    r"(?:public\s+|static\s+|async\s+|fn\s+){0,4}function\s+(test\w+)|def\s+(test_\w+)|"
    r"[xf]?(?:it|test|specify|scenario)(?:\.\w+)?\s*\(?\s*(['\"`][^'\"`]{1,200}))"
)
_MARK = re.compile(
    r"\s*(?:@(?:Parameterized|Repeated)?Test\b|\[(?:Fact|Theory|Test|TestMethod|TestCase)\b|#\[(?:\w+::)?test\])"
)
_METHOD = re.compile(r"\s*(?:[\w<>\[\]]+\s+){0,5}(\w+)\s*\(")
_SKIP = re.compile(
    r"\s*@(?:pytest\.mark\.|mark\.|unittest\.|pytest\.)?(?:skip|xfail|expectedFailure)(?=\W|$)|\s*@(?:Disabled|Ignore)\b|"
    r"\s*\[.{0,80}(?:\bIgnore\b|\bSkip\s*=)|\s*@Test\(.{0,80}enabled\s*=\s*false|\s*#\[ignore|"
    r"\s*(?:it|test|describe|context|suite|specify)\.(?:skip|todo|failing|fixme)\s*\(|\s*x(?:it|describe|test|specify|context)[\s(]|"
    r"\s*(?:t|b)\.Skip(?:f|Now)?\(|.{0,40}\bmarkTest(?:Skipped|Incomplete)\(|\s*(?:pytest\.skip|self\.skipTest)\(|"
    r"\s*raise\s+(?:unittest\.)?SkipTest|pytestmark\s*=\s*pytest\.mark\.skip\b|\s*(?:pending|skip)(?:\s+['\"]|$)"
)
_CONDITION = re.compile(r"\s*(?:\}?\s*)?(?:if|elif|else|unless|when|except|catch|case|rescue)\b")
_ASSERTION = re.compile(
    r"\s*(?:await\s+|return\s+|with\s+)?(?:\w+(?:\.|->|::)|\$this->){0,2}"
    r"(?:assert\w*!?|expect\w*|raises|warns|should\w*)\s*[( ]|"
    r"\s*(?:assert|require|Assert)\.\w+\(|\s*t\.(?:Error|Fatal)f?\(|\s*.{1,80}\.should[\s(.]"
)
_EQUAL = re.compile(
    r"assert_?(?:Equals?|Same|Is|DictEqual|ListEqual|AlmostEqual|CountEqual|eq|equal|same)\b|==|\bis\s+(?!not\b|None)|(?<!not)\.(?:toBe|toEqual|toStrictEqual|"
    r"toMatchObject|toHaveBeenCalledWith|toThrow|equal|eql?|deepEqual|strictEqual|isEqualTo|Equal|AreEqual|EqualTo|"
    r"DeepEqual)\(|assert_called_(?:once_)?with|(?i:assert_?equals?!?\()"
)
_LOOSE = re.compile(
    r"!=|(?i:not_?equals?)|\.not\.(?:toBe|toEqual)\(|(?:assert_?(?:True|IsNotNone|NotNull|NotNil|NotEmpty|IsInstance|Greater|In)|assert_not_nil|assert_called(?:_once)?)\b(?!_)|"
    r"\.(?:toBeDefined|toBeTruthy|toBeTrue|toBeInstanceOf|toBeGreaterThan|toHaveBeenCalled|exist|isNotNull|NotNull|"
    r"NotNil|NotEmpty|IsNotNull|IsTrue|True|ok|anything)\b|\.not\.(?:toBeNull|toBeUndefined|toThrow)|is not None|"
    r"\s*assert\s+[\w.()\[\]]{1,100}(?:,.{0,200})?$|\s*assert\s.{1,200}\bin\b|[<>]=?"
)
_BOOLEAN = re.compile(r"\b(?:True|False|None|true|false|null|nil|undefined|0)\b|\[\]|\{\}|''|\"\"")
_BROAD_ERROR = {"Exception", "BaseException", "Throwable", "Error", "StandardError"}
_NOTHING = {"pass", "return", "..."}
_DEFINED = re.compile(
    r"\s*(?:export\s+|default\s+|public\s+|private\s+|static\s+|async\s+){0,4}(?:def|class|func|function|fun|fn|interface|"
    r"const|struct|type)\s+(?:\([^)]{0,80}\)\s*)?(\w{3,})"
)
_WORDS = re.compile(r"\w{3,}")


def findings(
    changes: Sequence[FileChange], blocks: Sequence[Block], pairs: Sequence[Pair]
) -> Iterator[Finding]:
    """What becomes of the tests of a whole change."""
    code = [change for change in changes if is_code(change)]
    tests = [change for change in code if is_test(change.path)]
    if not tests:
        return
    sources = [change for change in code if not is_test(change.path)]
    # A test goes with the code that it tests, so that nothing is an alarm in a change that takes code away.
    shrinks = _lines(sources, "removed") > _lines(sources, "added")
    after = {name for change in tests for name, line in _names(change, "-")}
    is_kept = _lines(tests, "added") * 2 >= _lines(tests, "removed")
    covered = _Covered(sources)
    for change in tests:
        lost = [(name, line) for name, line in _names(change, "+") if line.tag == "-" and name not in after]
        if change.kind == "deleted":
            if lost:
                is_only = not _lines(tests, "added") and not shrinks
                yield _finding(
                    "test-file-deleted", "ask" if is_only else "note", change.path, 0,
                    f"Deletes a file of {len(lost)} tests, but not what they test. Keep it, or say why.",
                )  # fmt: skip
            continue
        yield from _marked(change)
        come = sum(line.tag == "+" for _, line in _names(change, "-"))
        if come < len(lost):
            is_alarm = not (shrinks or is_kept) and covered.by(change)
            for name, line in lost[:3]:
                message = f"Removes the test {short_quote(name)}. Keep it, or say why what it tests is gone."
                weight: Weight = "ask" if is_alarm else "note"
                yield _finding("test-removed", weight, change.path, line.old_no or 0, message)
    live = {change.path: change for change in tests if change.kind != "deleted"}
    added = {bare(text) for change in changes for _, text in change.added}
    leaving = {(path, number) for path, change in live.items() for number in _lines_of_lost(change, after)}
    for block in blocks:
        if block.path in live:
            yield from _assertions_gone(block, added, leaving, shrinks=shrinks)
    for pair in pairs:
        if pair.path in live and _ASSERTION.match(pair.old) and _is_looser(pair):
            message = f"Weakens an assertion to {short_quote(pair.new.strip())}. Keep it, or say why."
            yield _finding("assertion-weakened", "ask", pair.path, pair.line, message)


def _finding(rule: str, weight: Weight, path: str, line: int, message: str) -> Finding:
    return Finding(rule, "tests", weight, path, line, message)


def _lines(changes: Sequence[FileChange], side: Literal["added", "removed"]) -> int:
    return sum(len(getattr(change, side)) for change in changes)


class _Covered:
    """Which test files are about code that the change touches: by the files' names, or by a function's name."""

    def __init__(self, sources: Sequence[FileChange]) -> None:
        self._files = {_stem(change.path) for change in sources}
        lines = (line for change in sources for hunk in change.hunks for line in hunk.lines)
        shown = (_DEFINED.match(line.text[:500]) for line in lines if line.tag != "-")
        self._names = {found[1] for found in shown if found}

    def by(self, test: FileChange) -> bool:
        words = {word for _, text in test.removed for word in _WORDS.findall(text[:500])}
        return _stem(test.path) in self._files or not words.isdisjoint(self._names)


def _stem(path: str) -> str:
    """The name of the file that a test is about: ``pay`` of ``test_pay.py`` and ``src/PayTest.java``."""
    name = path.rsplit("/", 1)[-1].partition(".")[0].lower()
    return re.sub(r"^tests?_|[_-]?(?:tests?|spec)$", "", name)


def _names(change: FileChange, other: str) -> Iterator[tuple[str, DiffLine]]:
    """(name, its line) of each test on a side of a file; ``other`` is the tag of the other side's lines."""
    marked = 0  # in how many lines the name of a marked test may still come
    for line in (line for hunk in change.hunks for line in hunk.lines if line.tag != other):
        text = line.text[:500]
        marked -= 1
        if _MARK.match(text):
            marked = 4
        elif found := _NAMED.match(text):
            yield next(name for name in found.groups() if name), line
        elif marked > 0 and (found := _METHOD.match(text)) and not text.lstrip().startswith(("@", "[", "#")):
            yield found[1], line
            marked = 0


def _marked(change: FileChange) -> Iterator[Finding]:
    """Tests that are skipped."""
    was_skipped = any(_SKIP.match(text[:500]) for _, text in change.removed)
    before = {name for name, _ in _names(change, "+")}
    tests = [(line.new_no or 0, line.tag == " " or name in before) for name, line in _names(change, "-")]
    above = ""
    for line in (
        line for hunk in change.hunks for line in hunk.lines if line.tag != "-" and line.text.strip()
    ):
        text, over, above = line.text[:500], above, line.text[:500]
        if line.tag != "+":
            continue
        number = line.new_no or 0
        if _SKIP.match(text) and not _CONDITION.match(over):
            if text.lstrip().startswith(("pending", "skip")) and not change.path.endswith(".rb"):
                continue
            is_old = _skips_an_old_test(text, number, tests) and not was_skipped
            message = "Skips a test. Repair it, or say why it can't run."
            yield _finding("test-skipped", "ask" if is_old else "note", change.path, number, message)


def _skips_an_old_test(text: str, number: int, tests: Sequence[tuple[int, bool]]) -> bool:
    """Whether the test that a skipping line belongs to was there before.

    ``tests`` are (line, whether it was there before) of the file's tests, in order.
    """
    is_above = text.lstrip().startswith(("@", "[", "#["))
    at = bisect_left(tests, (number, False))
    if at < len(tests) and (is_above or tests[at][0] == number):
        return tests[at][1]
    return bool(at) and not is_above and tests[at - 1][1]


# Assertions


def _lines_of_lost(change: FileChange, after: set[str]) -> Iterator[int]:
    """The numbers of the old lines that belong to tests which are gone."""
    starts = {line.old_no: name for name, line in _names(change, "+")}
    for hunk in change.hunks:
        is_lost = False
        for line in hunk.lines:
            if line.tag != "+":
                is_lost = starts[line.old_no] not in after if line.old_no in starts else is_lost
                if is_lost:
                    yield line.old_no or 0


def _assertions_gone(
    block: Block, added: set[str], leaving: set[tuple[str, int]], *, shrinks: bool
) -> Iterator[Finding]:
    """Assertions that are taken out, or commented out, of a test that stays."""
    old = [(number, text) for number, text in block.removed if _ASSERTION.match(text)]
    remarks = {bare(text).lstrip("#/*").rstrip("*/") for _, text in block.added if is_remark(text)}
    put = {text.strip().rstrip(";") for _, text in block.added}
    for number, text in old:
        if bare(text) in remarks:
            message = f"Comments out the assertion {short_quote(text.strip())}. Keep it, or say why it goes."
            yield _finding("assertion-commented-out", "ask", block.path, number, message)
            return
    is_cut_short = not block.removed and put and _indent(block.after) == _indent(block.added[0][1])
    if put and put <= _NOTHING and (old or is_cut_short):
        message = "Ends a test before it asserts anything. Keep what it does, or remove it and say why."
        yield _finding("test-emptied", "ask", block.path, block.added[0][0], message)
        return
    lost = [
        (number, text)
        for number, text in old
        if bare(text) not in added and (block.path, number) not in leaving
    ]
    if not lost or not block.only_takes:
        return
    asserted = sum(_ASSERTION.match(text[:500]) is not None for _, text in block.hunk.added)
    has_others = any(text.strip() and not _ASSERTION.match(text) for _, text in block.removed)
    weight: Weight = "note" if shrinks or has_others or asserted >= len(lost) else "ask"
    message = (
        f"Takes out the assertion {short_quote(lost[0][1].strip())}. Keep it, or say why it holds no more."
    )
    yield _finding("assertion-removed", weight, block.path, lost[0][0], message)


def _is_looser(pair: Pair) -> bool:
    if pair.put and set(pair.put) <= _BROAD_ERROR and pair.cut and not set(pair.cut) & _BROAD_ERROR:
        return len(pair.cut) <= 3
    if not _ASSERTION.match(pair.new) or not _EQUAL.search(pair.old) or _EQUAL.search(pair.new):
        return False
    return bool(_LOOSE.search(pair.new)) and not _LOOSE.search(pair.old) and not _BOOLEAN.search(pair.old)


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip())] if text.strip() else "none"
