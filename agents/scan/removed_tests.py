"""Finds tests that a change removes, skips, focuses or weakens, in any language, line by line."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from council.agents.scan.change import DiffLine, FileChange, Hunk, short_quote
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.line_pairs import Block, Pair, is_code, is_remark, is_test_file

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
_FOCUS = re.compile(
    r"\s*(?:it|test|describe|context|suite|specify)\.only\s*\(|\s*f(?:it|describe|context)\s*\(\s*['\"`]|"
    r"\s*(?:it|describe|context)\s.{0,200}(?:,\s*:focus\b|\bfocus:\s*true)"
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
_VACUOUS = re.compile(
    r"\s*(?:assert\s+(?:True|1)\s*(?:,|$)|(?:self\.)?assertTrue\(\s*True|expect\(\s*true\s*\)\.toBe|\$this->assertTrue\(\s*true\b|"
    r"assert(?:\.ok)?\(\s*true\s*[,)]|Assert\.(?:True|IsTrue)\(\s*true\b)"
)
_BOOLEAN = re.compile(r"\b(?:True|False|None|true|false|null|nil|undefined|0)\b|\[\]|\{\}|''|\"\"")
_BROAD_ERROR = {"Exception", "BaseException", "Throwable", "Error", "StandardError"}
_TOLERANCE = re.compile(
    r"(?i)\b(?:abs|rel|[ar]tol|delta|toler\w*|eps\w*|within|\w*InDelta|closeTo|approx\w*)\b"
)
_NOTHING = {"pass", "return", "..."}
_DIGITS = re.compile(r"\b(?:places|decimals?|toBeCloseTo|assert_almost_equal|assertAlmostEqual)\b")
_NUMBER = re.compile(r"-?\d[\d_]*(?:\.\d+)?(?:e-?\d+)?", re.IGNORECASE)
_LITERAL = re.compile(r"['\"].*|[\d.]+$|True$|False$|None$|true$|false$|null$")
_DEFINED = re.compile(
    r"\s*(?:export\s+|default\s+|public\s+|private\s+|static\s+|async\s+){0,4}(?:def|class|func|function|fun|fn|interface|"
    r"const|struct|type)\s+(?:\([^)]{0,80}\)\s*)?(\w{3,})"
)
_LONG_NAME = re.compile(r"[A-Za-z]{1,40}(?:_[a-z0-9]{1,40}|[a-z]{1,40}[A-Z])\w{3,60}")
_WORDS = re.compile(r"\w{3,}")


def findings(
    changes: Sequence[FileChange], blocks: Sequence[Block], pairs: Sequence[Pair]
) -> Iterator[Finding]:
    """What becomes of the tests of a whole change."""
    tests = [change for change in changes if is_test_file(change.path) and is_code(change)]
    if not tests:
        return
    after = {
        name
        for change in tests
        for hunk in change.hunks
        for name, line in _names(hunk, "-")
        if line.tag != "-"
    }
    before = {name for change in tests for hunk in change.hunks for name, _ in _names(hunk, "+")}
    come = len(after - before)
    gone_code = _gone_definitions(changes)
    for change in tests:
        if change.kind == "deleted":
            yield from _deleted(change, after, gone_code, come)
            continue
        yield from _marked(change)
        yield from _removed(change, after, gone_code, come)
    in_tests = {change.path for change in tests if change.kind != "deleted"}
    added = {_bare(text) for change in changes for _, text in change.added}
    leaving = {(change.path, number) for change in tests for number in _lines_of_lost_tests(change, after)}
    gains: dict[int, int] = {}  # by id of a hunk: the assertions that come in it
    for block in blocks:
        if block.path in in_tests:
            if (key := id(block.hunk)) not in gains:
                gains[key] = sum(_ASSERTION.match(text[:500]) is not None for _, text in block.hunk.added)
            yield from _assertions_gone(block, added, leaving, gains[key], gone_code)
    has_code = any(not is_test_file(change.path) and is_code(change) for change in changes)
    for pair in pairs:
        if pair.path in in_tests and _ASSERTION.match(pair.old):
            yield from _weakened(pair, has_code)


def _finding(rule: str, weight: Weight, path: str, line: int, message: str) -> Finding:
    return Finding(rule, "tests", weight, path, line, message)


# Tests


def _names(hunk: Hunk, other: str) -> Iterator[tuple[str, DiffLine]]:
    """(name, its line) of each test on a side of a hunk; ``other`` is the tag of the other side's lines."""
    is_marked = 0
    for line in hunk.lines:
        if line.tag == other:
            continue
        text = line.text[:500]
        if _MARK.match(text):
            is_marked = 4
        elif found := _NAMED.match(text):
            yield next(name for name in found.groups() if name), line
            is_marked = 0
        elif is_marked and (found := _METHOD.match(text)) and not text.lstrip().startswith(("@", "[", "#")):
            yield found[1], line
            is_marked = 0
        is_marked = max(0, is_marked - 1)


def _gone_definitions(changes: Sequence[FileChange]) -> set[str]:
    """The names of functions and classes outside tests that the change defines no more, and of deleted files.

    Other long names, such as those of options, count if no line of code that is shown has them any more.
    """
    sides: tuple[set[str], set[str]] = set(), set()
    gone: set[str] = set()
    words: tuple[set[str], set[str]] = set(), set()
    for change in changes:
        if is_test_file(change.path) or not is_code(change):
            continue
        for names, lines in zip(sides, (change.removed, change.added), strict=True):
            names.update(found[1] for _, text in lines if (found := _DEFINED.match(text[:500])))
        for hunk in change.hunks:
            for line in hunk.lines:
                words[line.tag != "-"].update(_LONG_NAME.findall(line.text[:500]))
        if change.kind in ("deleted", "renamed"):
            gone.add((change.old_path or change.path).rsplit("/", 1)[-1].partition(".")[0])
    return (sides[0] - sides[1]) | gone | (words[0] - words[1])


def _removed(change: FileChange, after: set[str], gone_code: set[str], elsewhere: int) -> Iterator[Finding]:
    """Tests that are gone, unless as many come, here or ``elsewhere``."""
    lost = [
        (name, line)
        for hunk in change.hunks
        for name, line in _names(hunk, "+")
        if line.tag == "-" and name not in after
    ]
    before = {name for hunk in change.hunks for name, _ in _names(hunk, "+")}
    come = [
        name
        for hunk in change.hunks
        for name, line in _names(hunk, "-")
        if line.tag == "+" and name not in before
    ]
    if len(come) >= len(lost):
        return
    words = {word for _, text in change.removed for word in _WORDS.findall(text[:500])}
    weight: Weight = "note" if come or elsewhere >= len(lost) or words & gone_code else "ask"
    for name, line in lost[:3]:
        message = f"Removes the test {short_quote(name)}. Keep it, or say why what it tests is gone."
        yield _finding("test-removed", weight, change.path, line.old_no or 0, message)


def _deleted(change: FileChange, after: set[str], gone_code: set[str], come: int) -> Iterator[Finding]:
    """A file of tests that goes, unless half as many tests or more come elsewhere."""
    names = [name for hunk in change.hunks for name, _ in _names(hunk, "+")]
    if not names or sum(name in after for name in names) * 2 >= len(names):
        return
    words = {word for _, text in change.removed for word in _WORDS.findall(text[:500])}
    weight: Weight = "note" if words & gone_code or come * 2 >= len(names) else "ask"
    message = f"Deletes a file of {len(names)} tests, but not what they test. Keep it, or say why."
    yield _finding("test-file-deleted", weight, change.path, 0, message)


def _marked(change: FileChange) -> Iterator[Finding]:
    """Tests that are skipped, or that alone are run."""
    removed = {_bare(text) for _, text in change.removed}
    for hunk in change.hunks:
        before = {name for name, _ in _names(hunk, "+")}
        tests = [(line.new_no or 0, line.tag == " " or name in before) for name, line in _names(hunk, "-")]
        above = ""
        for line in (line for line in hunk.lines if line.tag != "-" and line.text.strip()):
            text, over, above = line.text[:500], above, line.text[:500]
            if line.tag != "+" or _bare(text) in removed:
                continue
            number = line.new_no or 0
            if _FOCUS.match(text):
                message = "Only this test is run from now on. Remove the focus."
                yield _finding("test-focused", "stop", change.path, number, message)
            elif _SKIP.match(text) and not _CONDITION.match(over):
                if text.lstrip().startswith(("pending", "skip")) and not change.path.endswith(".rb"):
                    continue
                weight: Weight = "ask" if _skips_an_old_test(text, number, tests) else "note"
                message = "Skips a test. Repair it, or say why it can't run."
                yield _finding("test-skipped", weight, change.path, number, message)


def _skips_an_old_test(text: str, number: int, tests: Sequence[tuple[int, bool]]) -> bool:
    """Whether the test that a skipping line belongs to was there before.

    ``tests`` are (line, whether it was there before) of the tests of the hunk, in order.
    """
    is_above = text.lstrip().startswith(("@", "[", "#["))
    at = bisect_left(tests, (number, False))
    if at < len(tests) and (is_above or tests[at][0] == number):
        return tests[at][1]
    return tests[at - 1][1] if at and not is_above else True


# Assertions


def _lines_of_lost_tests(change: FileChange, after: set[str]) -> Iterator[int]:
    """The numbers of the old lines that belong to tests which are gone."""
    for hunk in change.hunks:
        starts = {line.old_no: name for name, line in _names(hunk, "+")}
        is_lost = False
        for line in hunk.lines:
            if line.tag != "+":
                is_lost = starts[line.old_no] not in after if line.old_no in starts else is_lost
                if is_lost:
                    yield line.old_no or 0


def _assertions_gone(
    block: Block, added: set[str], leaving: set[tuple[str, int]], come: int, gone_code: set[str]
) -> Iterator[Finding]:
    """Assertions that are taken out, or commented out, of a test that stays."""
    is_old = [(number, text) for number, text in block.removed if _ASSERTION.match(text)]
    remarks = {_bare(text).lstrip("#/*").rstrip("*/") for _, text in block.added if is_remark(text)}
    for number, text in is_old:
        if _bare(text) in remarks:
            message = (
                f"Comments out the assertion {short_quote(text.strip())}. Keep it, or remove it and say why."
            )
            yield _finding("assertion-commented-out", "ask", block.path, number, message)
            return
    put = {text.strip().rstrip(";") for _, text in block.added}
    if (
        put
        and put <= _NOTHING
        and (is_old or (not block.removed and _indent(block.after) == _indent(block.added[0][1])))
    ):
        message = "Ends a test before it asserts anything. Keep what it does, or remove it and say why."
        yield _finding("test-emptied", "ask", block.path, block.added[0][0], message)
        return
    lost = [(number, text) for number, text in is_old if _bare(text) not in added]
    lost = [(number, text) for number, text in lost if (block.path, number) not in leaving]
    has_others = any(
        text.strip() and not is_remark(text) and not _ASSERTION.match(text) for _, text in block.removed
    )
    if not lost or any(_ASSERTION.match(text) for _, text in block.added) or not block.only_takes:
        return
    is_unneeded = all(gone_code.intersection(_WORDS.findall(text[:500])) for _, text in lost)
    weight: Weight = "note" if has_others or come >= len(lost) or is_unneeded else "ask"
    message = (
        f"Takes out the assertion {short_quote(lost[0][1].strip())}. Keep it, or say why it holds no more."
    )
    yield _finding("assertion-removed", weight, block.path, lost[0][0], message)


def _weakened(pair: Pair, has_code: bool) -> Iterator[Finding]:
    shown = short_quote(pair.new.strip())
    is_vacuous = _VACUOUS.match(pair.new) and not _VACUOUS.match(pair.old)
    if is_vacuous or pair.put[:2] in (("or", "True"), ("or", "1"), ("||", "true")):
        message = f"Asserts what is always true: {shown}. Assert the expected value."
        yield _finding("assertion-vacuous", "ask", pair.path, pair.line, message)
    elif _is_looser(pair):
        message = f"Weakens an assertion to {shown}. Keep the exact one, or say why."
        yield _finding("assertion-weakened", "ask", pair.path, pair.line, message)
    elif _has_wider_tolerance(pair):
        message = f"Widens the tolerance of an assertion: {shown}. Keep it, or say why."
        yield _finding("tolerance-widened", "ask", pair.path, pair.line, message)
    elif has_code and len(pair.cut) == len(pair.put) == 1 and all(map(_LITERAL.match, pair.cut + pair.put)):
        message = f"Changes an expected value together with the code: {shown}."
        yield _finding("expected-value-changed", "note", pair.path, pair.line, message)


def _is_looser(pair: Pair) -> bool:
    if pair.put and set(pair.put) <= _BROAD_ERROR and pair.cut and not set(pair.cut) & _BROAD_ERROR:
        return len(pair.cut) <= 3
    if not _ASSERTION.match(pair.new) or not _EQUAL.search(pair.old) or _EQUAL.search(pair.new):
        return False
    return bool(_LOOSE.search(pair.new)) and not _LOOSE.search(pair.old) and not _BOOLEAN.search(pair.old)


def _has_wider_tolerance(pair: Pair) -> bool:
    if not (len(pair.cut) == len(pair.put) == 1) or not _ASSERTION.match(pair.old):
        return False
    old, new = (_NUMBER.fullmatch(side[0]) for side in (pair.cut, pair.put))
    if old is None or new is None:
        return False
    before, later = (float(found[0].replace("_", "")) for found in (old, new))
    if _DIGITS.search(pair.new):
        return later < before and later == int(later)
    return bool(_TOLERANCE.search(pair.new)) and later > before


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip())] if text.strip() else "none"


def _bare(text: str) -> str:
    return "".join(text.split())
