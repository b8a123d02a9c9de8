"""Parses Python: whole files, and what is cut out of one, such as a hunk of a diff.

A hunk may start and end anywhere: inside a call, under an ``else:``, in a docstring. A *repair* describes the missing
surroundings: which brackets or quotes are open there. Both sides of a hunk share their context. So a repair under
which the old side parses must also serve the new side. If none does, the change itself broke the syntax.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from council.agents.scan.change import FileChange, Hunk

PARSE_TRIES = 5  # two trees are seldom built at the same instant
# The work of a parse, and of reading its tree, grows with the number of tokens. Code by people has one in four
# characters; hostile text has one in each. A parse can't be stopped, and no other thread runs meanwhile.
TOKENS_MAX = 40_000  # of one parse, and of both sides together: about 4,000 lines of code by people
HUNK_TOKENS_MAX = 300_000  # for the repairs of one hunk together
# For a whole change. Code by people has a token in four characters, so it may be read twice; a short one more often.
CHARS_A_TOKEN, EFFORT_TOKENS_MIN, EFFORT_TOKENS_MAX = 2, 20_000, 500_000
TOO_MANY = "more words, marks and lines than are read of one change"
DEPTH_MAX = 250  # of a tree: dumping one takes three calls a level, of Python's 1,000
SOURCE_CHARS_MAX = 2_000_000  # of one file; CPython needs about a hundred times as much memory

_PARSING = threading.Lock()
_TOKEN_OR_LINE = re.compile(r"\w+|[^\w\s]|\n")
_TOKEN = re.compile(r"\"\"\"|'''|\\.|[\"'#\n()\[\]{}]", re.DOTALL)
_CLOSER = {"(": ")", "[": "]", "{": "}"}
_OPENER = {closer: opener for opener, closer in _CLOSER.items()}
_CONTINUES = re.compile(r"(else|elif|except|finally)\b")
_HEADER = re.compile(r"(?:async\s+)?(?:def|class|if|elif|while|for|with|except|match|case)\b")
_CODE = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.Call,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Delete,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PythonPiece:
    """Python that parses: ``text`` with its ``tree``, and the file's line number for each line.

    A line that the repair added has the number 0. ``changed`` are the numbers of the lines that the change touches.
    """

    path: str
    text: str
    tree: ast.Module
    numbers: tuple[int, ...]
    changed: frozenset[int]
    is_whole: bool

    def number(self, line: int) -> int:
        """The file's line number of a line of ``text`` (both from 1)."""
        return self.numbers[line - 1] if 0 < line <= len(self.numbers) else 0

    def line_of(self, first: int, last: int) -> int:
        """The file's line of a place: the first changed one, if any; 0 if it is only in a repair."""
        lines = range(first, min(last, first + 500) + 1)
        numbers = [number for at in lines if (number := self.number(at))]
        return next((number for number in numbers if number in self.changed), numbers[0] if numbers else 0)


@dataclass(frozen=True, slots=True)
class Sides:
    """A hunk, or a whole file, before and after. A side that could not be parsed is None.

    ``error`` is (line, message) of a syntax error that the change certainly adds, unless the syntax is only newer
    than this Python's; another parser may confirm it on the text ``broken``. ``unread`` names the limit that ended
    the reading; the rest is unknown.
    """

    old: PythonPiece | None
    new: PythonPiece | None
    error: tuple[int, str] | None = None
    broken: str = ""
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Unparsable:
    """Why this interpreter can't read a text as Python."""

    line: int
    message: str
    is_limit: bool = False


def tokens_in(text: str) -> int:
    """The approximate number of tokens: words, marks and lines, also in strings and comments."""
    return len(_TOKEN_OR_LINE.findall(text))


def parse(text: str) -> ast.Module | Unparsable:
    """The syntax tree of ``text``. Never runs it. No text makes it raise."""
    if len(text) > SOURCE_CHARS_MAX:
        return Unparsable(0, f"longer than {SOURCE_CHARS_MAX:,} characters", is_limit=True)
    if len(text) > TOKENS_MAX and tokens_in(text) > TOKENS_MAX:
        return Unparsable(0, f"more than {TOKENS_MAX:,} words, marks and lines", is_limit=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in a reviewed text needs no warning from us
            tree = _parsed(text)
        if _is_deep(tree):
            return Unparsable(0, f"nested more than {DEPTH_MAX} deep", is_limit=True)
        return tree
    except SyntaxError as error:
        return Unparsable(error.lineno or 0, error.msg, is_limit="null byte" in error.msg)
    except (RecursionError, MemoryError, SystemError):
        return Unparsable(0, "nested too deeply to be parsed", is_limit=True)
    except ValueError as error:  # a lone surrogate, and before 3.12 a NUL
        return Unparsable(0, str(error), is_limit=True)


def _parsed(text: str) -> ast.Module:
    """CPython 3.11 counts the depth of a tree for all threads together, and fails if two build one."""
    with _PARSING:
        for _ in range(PARSE_TRIES - 1):
            try:
                return ast.parse(text)
            except SystemError:  # another thread was building one too
                continue
        return ast.parse(text)


def _is_deep(tree: ast.AST) -> bool:
    """Whether a tree is too deep for its readers."""
    level = [tree]
    for _ in range(DEPTH_MAX):
        level = [below for node in level for below in ast.iter_child_nodes(node)]
        if not level:
            return False
    return True


def sides_of(changes: Sequence[FileChange]) -> Iterator[tuple[FileChange, int, Sides]]:
    """(file, first line, both sides) of each hunk of these Python files, or of the whole file if it is shown."""
    chars = sum(len(line.text) for change in changes for hunk in change.hunks for line in hunk.lines)
    effort = min(EFFORT_TOKENS_MIN + chars // CHARS_A_TOKEN, EFFORT_TOKENS_MAX)
    for change in changes:
        if change.is_whole and change.hunks:
            hunk = change.hunks[0]
            effort -= (cost := _tokens_of(hunk))
            is_read = cost <= TOKENS_MAX and effort >= 0
            yield (
                change,
                hunk.new_start,
                parse_whole(change) if is_read else Sides(None, None, unread=TOO_MANY),
            )
            continue
        opened = [_opened(hunk.new_text()) - _opened(hunk.old_text()) for hunk in change.hunks]
        for hunk, more in zip(change.hunks, opened, strict=True):
            sides, spent = parse_hunk(change.path, hunk, max(0, min(HUNK_TOKENS_MAX, effort)))
            effort -= spent
            if sides.error is not None and more and not sum(opened):
                sides = replace(sides, error=None, broken="")  # other hunks close what this one opens
            yield change, hunk.new_start, sides


def _opened(text: str) -> int:
    """How many more brackets open than close, strings and comments included."""
    return sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))


def _tokens_of(hunk: Hunk) -> int:
    return tokens_in(hunk.old_text()) + tokens_in(hunk.new_text())


def parse_whole(change: FileChange) -> Sides:
    """Both sides of a file that the diff shows whole."""
    hunk = change.hunks[0]
    old = _whole(change.path, hunk.old_text(), hunk.removed) if change.kind != "added" else None
    new = _whole(change.path, hunk.new_text(), hunk.added) if change.kind != "deleted" else None
    old = old if isinstance(old, PythonPiece) else None
    if not isinstance(new, Unparsable):
        return Sides(old, new)
    if new.is_limit:
        return Sides(old, None, unread=new.message)
    if old is None and change.kind != "added":
        return Sides(old, None)
    return Sides(old, None, (new.line, new.message), hunk.new_text().lstrip("\ufeff"))


def _whole(path: str, text: str, changed: list[tuple[int, str]]) -> PythonPiece | Unparsable:
    text = text.lstrip("\ufeff")
    tree = parse(text)
    if isinstance(tree, Unparsable):
        return tree
    numbers = tuple(range(1, text.count("\n") + 2))
    return PythonPiece(path, text, tree, numbers, frozenset(number for number, _ in changed), True)


def parse_hunk(path: str, hunk: Hunk, allowed: int = HUNK_TOKENS_MAX) -> tuple[Sides, int]:
    """Both sides of a hunk under the first repair that serves both, and the number of tokens parsed.

    That is hardly more than ``allowed``, but one parse is always made. If both sides together have too many tokens,
    none is parsed.
    """
    old_lines = [(line.old_no or 0, line.text, line.tag == "-") for line in hunk.lines if line.tag != "+"]
    new_lines = [(line.new_no or 0, line.text, line.tag == "+") for line in hunk.lines if line.tag != "-"]
    budget = allowed
    old_cost, new_cost = tokens_in(hunk.old_text()) + 25, tokens_in(hunk.new_text()) + 25
    if old_cost + new_cost > TOKENS_MAX:
        return Sides(None, None, unread=TOO_MANY), 0
    only_old: PythonPiece | None = None
    error: tuple[int, str] | None = None
    broken = ""
    is_bare = not any(text.strip() for _, text, _ in old_lines)
    # If the old side is empty, the open brackets and quotes are read from the new side.
    for repair in _repairs(new_lines if is_bare else old_lines):
        old, _ = _try(path, old_lines, repair)
        budget -= old_cost
        if isinstance(old, PythonPiece) or is_bare:
            new, source = _try(path, new_lines, repair)
            budget -= new_cost
            if isinstance(new, PythonPiece):
                return Sides(old if isinstance(old, PythonPiece) else None, new), allowed - budget
            if isinstance(old, PythonPiece) and not (repair.is_guess or new.is_limit):
                if error is None and _holds_code(old.tree):
                    error, broken = (new.line, new.message), source
                only_old = only_old or old
        if budget < 0:
            return Sides(only_old, None, unread=TOO_MANY), allowed - budget
    return Sides(only_old, None, error, broken), allowed - budget


@dataclass(frozen=True, slots=True)
class _Repair:
    """The supposed surroundings of a fragment.

    ``is_guess``: nothing in the fragment requires it, so it proves no syntax error.
    """

    before: str = ""
    after: str = ""
    is_guess: bool = False


_Numbered = tuple[int, str, bool]


def _repairs(lines: Sequence[_Numbered]) -> Iterator[_Repair]:
    text = "\n".join(line for _, line, _ in lines)
    scan = _scan(text)
    after, unmatched = scan.closers(), scan.unmatched
    if not unmatched:
        yield _Repair("", after)
        # A line such as `timeout=3,` is also a statement by itself, but here it is an argument.
        for opener, closer in (("f(", ")"), ("{", "}"), ("def f(", "): pass")):
            yield _Repair(opener, after + closer, is_guess=True)
    else:
        outer, *inner = (_OPENER[bracket] for bracket in reversed(unmatched))
        for opener in ("f(", "def f(") if outer == "(" else (outer,):
            yield _Repair(opener + "".join(inner), after)
    for quote in ('"""', "'''"):
        if quote in text:  # it may start inside a docstring, surely so if their number is odd
            closers = _scan(quote + "\n" + text).closers()
            yield _Repair(quote, closers, is_guess=not text.count(quote) % 2)


def _try(path: str, lines: Sequence[_Numbered], repair: _Repair) -> tuple[PythonPiece | Unparsable, str]:
    """The repaired lines, parsed, and their text.

    A fault is placed in the file, or at the first changed line if it is only in an added line.
    """
    texts, numbers = _built(lines, repair)
    source = "\n".join(texts) + "\n"
    tree = parse(source)
    changed = [number for number, _, is_changed in lines if is_changed]
    if isinstance(tree, Unparsable):
        number = numbers[tree.line - 1] if 0 < tree.line <= len(numbers) else 0
        return replace(tree, line=number or [*changed, *(no for no, _, _ in lines[:1]), 0][0]), source
    return PythonPiece(path, source, tree, tuple(numbers), frozenset(changed), False), source


def _holds_code(tree: ast.Module) -> bool:
    """Whether this is code, and not prose that happens to parse, such as `word` or `a, b`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="f")) | ast.If(test=ast.Constant()):
                pass  # a repair added it
            case _ if isinstance(node, _CODE):
                return True
    return False


# The lines around a fragment


def _built(lines: Sequence[_Numbered], repair: _Repair) -> tuple[list[str], list[int]]:
    """The lines with the repair around them, and their numbers."""
    texts = [text.expandtabs(8) if text[:1].isspace() else text for _, text, _ in lines]
    numbers = [number for number, _, _ in lines]
    scan = _scan((repair.before + "\n" if repair.before else "") + "\n".join(texts))
    starts = scan.statement_lines - {1} if repair.before else scan.statement_lines
    shift = 2 if repair.before else 1
    places = [at - shift for at in sorted(starts) if 0 <= at - shift < len(texts)]
    marked = [(len(texts[at]) - len(texts[at].lstrip()), texts[at].strip()) for at in places]
    marked = [(indent, text) for indent, text in marked if text and not text.startswith("#")]
    indent = marked[0][0] if marked else 0
    if repair.before and (closed_at := _scan("\n".join(texts)).closed_at):
        # A statement that starts above is assumed to start at the indentation of the line that closes it.
        indent = len(texts[closed_at - 1]) - len(texts[closed_at - 1].lstrip())
    head = _headers(marked, indent, has_opener=bool(repair.before))
    if repair.before:
        head.append(" " * indent + repair.before)
    tail = (
        [repair.after + (": pass" if marked and _HEADER.match(marked[-1][1]) else "")] if repair.after else []
    )
    if not repair.after:
        code = (text.split("  #", 1)[0].rstrip() for text in reversed(texts))
        last = next((text for text in code if text.strip() and not text.lstrip().startswith("#")), "")
        tail = _completion(marked, ends_open=last.endswith(":"))
    return head + texts + tail, [0] * len(head) + numbers + [0] * len(tail)


def _headers(marked: Sequence[tuple[int, str]], first: int, *, has_opener: bool) -> list[str]:
    """Blocks for the indents that a fragment returns to, and the statement before a dangling else or except."""
    head: list[str] = []
    lowest = first
    if marked and not has_opener and _CONTINUES.match(marked[0][1]):
        head = [" " * first + _block_for(marked, first), " " * (first + 1) + "pass"]
    for indent, _ in marked:
        if indent < lowest:
            head.insert(0, " " * indent + _block_for(marked, indent))
            lowest = indent
    if lowest > 0:
        head.insert(0, "if 1:")
    return head


def _block_for(marked: Sequence[tuple[int, str]], indent: int) -> str:
    """The block that the first line at this indent continues, if any."""
    word = next((text for at, text in marked if at <= indent), "")
    return "try:" if word.startswith(("except", "finally")) else "if 1:"


def _completion(marked: Sequence[tuple[int, str]], *, ends_open: bool) -> list[str]:
    """The end of an incomplete fragment: a block without body, a decorator, a try.

    ``ends_open``: its last line is the end of a block's header.
    """
    tail: list[str] = []
    if not marked:
        return tail
    indent, last = marked[-1]
    if last.startswith("@"):
        tail.append(" " * indent + "def f(): pass")
    elif ends_open:
        tail.append(" " * (indent + 1) + "pass")
    lowest = indent + 1 if ends_open else indent
    for at, text in reversed(marked):
        if text.startswith("try:") and at < lowest:
            tail.append(" " * at + "finally: pass")
        lowest = min(lowest, at)
    return tail


@dataclass(slots=True)
class _Scan:
    """Brackets and quotes of a text. ``statement_lines`` (from 1) start outside all of them.

    ``closed_at``: the line of the last closing bracket that nothing in the text opens.
    """

    open: list[str]
    unmatched: list[str]
    quote: str
    statement_lines: set[int]
    closed_at: int = 0

    def closers(self) -> str:
        """The closing brackets and quotes of all that is open at the end."""
        return self.quote + "".join(_CLOSER[bracket] for bracket in reversed(self.open))


def _scan(text: str) -> _Scan:
    scan = _Scan([], [], "", {1})
    line, quote, is_comment = 1, "", False
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token == "\n" or token == "\\\n":
            line += 1
            is_comment = False
            if token == "\n" and len(quote) < 3:
                quote = ""  # an unclosed plain string ends with its line
            if not (quote or scan.open or token == "\\\n"):
                scan.statement_lines.add(line)
        elif quote:
            if token in (quote, quote * 3):  # its end and the start of a new string, as a best guess
                quote = ""
        elif is_comment or token[0] == "\\":
            continue
        elif token == "#":
            is_comment = True
        elif token in _CLOSER:
            scan.open.append(token)
        elif token in _OPENER:
            if scan.open and scan.open[-1] == _OPENER[token]:
                scan.open.pop()
            elif not scan.open:
                scan.unmatched.append(token)
                scan.closed_at = line
        else:
            quote = token
    scan.quote = quote if len(quote) == 3 else ""
    return scan
