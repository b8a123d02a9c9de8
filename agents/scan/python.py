"""Parses Python: whole files, and what is cut out of one, such as a hunk of a diff.

A hunk may start and end anywhere: inside a call, under an ``else:``, in a docstring. A *repair* describes the missing
surroundings: which brackets or quotes are open there. Both sides of a hunk share their context, so they are parsed
under the same repair. A hunk that no repair serves is not read as Python; ruff says whether its syntax is broken.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from council.agents.scan.change import DiffLine, FileChange

PARSE_TRIES = 5  # two trees are seldom built at the same instant
# The work of a parse, and of reading its tree, grows with the number of tokens. Code by people has one in four
# characters; hostile text has one in each. A parse can't be stopped, and no other thread runs meanwhile.
TOKENS_MAX = 40_000  # of one parse, and of both sides together: about 4,000 lines of code by people
EFFORT_TOKENS_MAX = 500_000  # of all parses of one change
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


@dataclass(frozen=True, slots=True)
class PythonPiece:
    """Python that parses: its ``tree``, and the file's line number for each line of its text.

    A line that the repair added has the number 0. ``changed`` are the numbers of the lines that the change touches.
    """

    path: str
    tree: ast.Module
    numbers: tuple[int, ...]
    changed: frozenset[int]

    def number(self, line: int) -> int:
        """The file's line number of a line of the text (both from 1)."""
        return self.numbers[line - 1] if 0 < line <= len(self.numbers) else 0

    def line_of(self, first: int, last: int) -> int:
        """The file's line of a place: the first changed one, if any; 0 if it is only in a repair."""
        numbers = [number for number in self.numbers[first - 1 : min(last, first + 500)] if number]
        return next((number for number in numbers if number in self.changed), numbers[0] if numbers else 0)


@dataclass(frozen=True, slots=True)
class Sides:
    """A hunk, or a whole file, before and after; None for a side that could not be parsed.

    ``unread`` names the limit that ended the reading; the rest is unknown.
    """

    old: PythonPiece | None = None
    new: PythonPiece | None = None
    unread: str = ""


def tokens_in(text: str) -> int:
    """The approximate number of tokens: words, marks and lines, also in strings and comments."""
    return len(_TOKEN_OR_LINE.findall(text))


def parse(text: str) -> ast.Module | str:
    """The syntax tree of ``text``, or the limit that it exceeds, or "" if its syntax is wrong.

    Never runs it. No text makes it raise.
    """
    if len(text) > SOURCE_CHARS_MAX:
        return f"longer than {SOURCE_CHARS_MAX:,} characters"
    if len(text) > TOKENS_MAX and tokens_in(text) > TOKENS_MAX:
        return f"more than {TOKENS_MAX:,} words, marks and lines"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in a reviewed text needs no warning from us
            tree = _parsed(text)
    except SyntaxError as error:
        return error.msg if "null byte" in error.msg else ""
    except (RecursionError, MemoryError, SystemError):
        return "nested too deeply to be parsed"
    except ValueError as error:  # a lone surrogate, and before 3.12 a NUL
        return str(error)
    for depth, _ in enumerate(_levels_of(tree)):
        if depth >= DEPTH_MAX:
            return f"nested more than {DEPTH_MAX} deep"
    return tree


def _parsed(text: str) -> ast.Module:
    """CPython 3.11 counts the depth of a tree for all threads together, and fails if two build one."""
    with _PARSING:
        for _ in range(PARSE_TRIES - 1):
            try:
                return ast.parse(text)
            except SystemError:  # another thread was building one too
                continue
        return ast.parse(text)


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree, outer ones first. It takes half the time of ``ast.walk``."""
    for level in _levels_of(tree):
        yield from level


def _levels_of(tree: ast.AST) -> Iterator[list[ast.AST]]:
    level = [tree]
    while level:
        yield level
        below: list[ast.AST] = []
        for node in level:
            for name in node._fields:
                value = getattr(node, name, None)
                if isinstance(value, ast.AST):
                    below.append(value)
                elif isinstance(value, list):
                    below.extend(item for item in value if isinstance(item, ast.AST))
        level = below


def sides_of(changes: Sequence[FileChange]) -> Iterator[tuple[FileChange, int, Sides]]:
    """(file, first line, both sides) of each hunk of these Python files, or of the whole file if it is shown."""
    left = EFFORT_TOKENS_MAX
    for change in changes:
        for hunk in change.hunks:
            sides, spent = parse_sides(change, hunk.lines, left)
            left -= spent
            yield change, hunk.new_start, sides


def parse_sides(change: FileChange, lines: Sequence[DiffLine], allowed: int) -> tuple[Sides, int]:
    """Both sides of a hunk under the first repair that serves both, and the number of tokens parsed.

    That is hardly more than ``allowed``, but one parse is made of each hunk that is short enough.
    """
    old = _Side(
        change.path, [(line.old_no or 0, line.text, line.tag == "-") for line in lines if line.tag != "+"]
    )
    new = _Side(
        change.path, [(line.new_no or 0, line.text, line.tag == "+") for line in lines if line.tag != "-"]
    )
    cost, spent = tokens_in(old.text) + tokens_in(new.text) + 50, 0
    if cost > TOKENS_MAX or allowed < 0:
        return Sides(unread=TOO_MANY), 0
    has_old, has_new = bool(old.text.strip()), bool(new.text.strip())
    # If the old side is empty, the open brackets and quotes are read from the new side.
    repairs: Iterable[_Repair] = _repairs(old.text if has_old else new.text)
    for repair in [_Repair()] if change.is_whole else repairs:
        sides = Sides(old.parsed(repair), new.parsed(repair), old.limit or new.limit)
        spent += cost
        is_old_lost = sides.old is None and has_old and not change.is_whole
        if sides.unread or not ((sides.new is None and has_new) or is_old_lost):
            return sides, spent
        if spent > allowed:
            return Sides(unread=TOO_MANY), spent
    return Sides(), spent


@dataclass(frozen=True, slots=True)
class _Repair:
    """The supposed surroundings of a fragment."""

    before: str = ""
    after: str = ""


def _repairs(text: str) -> Iterator[_Repair]:
    scan = _scan(text)
    if not scan.unmatched:
        yield _Repair("", scan.closers())
        # A line such as `timeout=3,` is also a statement by itself, but here it is an argument.
        for opener, closer in (("f(", ")"), ("{", "}"), ("def f(", "): pass")):
            yield _Repair(opener, scan.closers() + closer)
    else:
        outer, *inner = (_OPENER[bracket] for bracket in reversed(scan.unmatched))
        for opener in ("f(", "def f(") if outer == "(" else (outer,):
            yield _Repair(opener + "".join(inner), scan.closers())
    for quote in ('"""', "'''"):
        if quote in text:  # it may start inside a docstring
            yield _Repair(quote, _scan(quote + "\n" + text).closers())


class _Side:
    """One side of a hunk: its lines as (number, text, is changed). ``limit``: the one that a parse exceeded."""

    def __init__(self, path: str, lines: Sequence[tuple[int, str, bool]]) -> None:
        self.path = path
        self.text = "\n".join(text for _, text, _ in lines)
        self.limit = ""
        self._lines = lines

    def parsed(self, repair: _Repair) -> PythonPiece | None:
        texts = [text.expandtabs(8) if text[:1].isspace() else text for _, text, _ in self._lines]
        if texts and texts[0].startswith("\ufeff"):
            texts[0] = texts[0][1:]
        head, tail = _around(texts, repair)
        tree = parse("\n".join([*head, *texts, *tail]) + "\n")
        if isinstance(tree, str):
            self.limit = self.limit or tree
            return None
        numbers = [0] * len(head) + [number for number, _, _ in self._lines] + [0] * len(tail)
        changed = frozenset(number for number, _, is_changed in self._lines if is_changed)
        return PythonPiece(self.path, tree, tuple(numbers), changed)


# The lines around a fragment


def _around(texts: Sequence[str], repair: _Repair) -> tuple[list[str], list[str]]:
    """The lines that a repair puts before and after a fragment."""
    scan = _scan((repair.before + "\n" if repair.before else "") + "\n".join(texts))
    shift = 2 if repair.before else 1
    places = [at - shift for at in sorted(scan.statement_lines) if 0 <= at - shift < len(texts)]
    marked = [(_indent_of(texts[at]), texts[at].strip()) for at in places]
    marked = [(indent, text) for indent, text in marked if text and not text.startswith("#")]
    indent = marked[0][0] if marked else 0
    if repair.before and (closed_at := _scan("\n".join(texts)).closed_at):
        # A statement that starts above is assumed to start at the indentation of the line that closes it.
        indent = _indent_of(texts[closed_at - 1])
    head = _headers(marked, indent, has_opener=bool(repair.before))
    if repair.before:
        head.append(" " * indent + repair.before)
    if repair.after:
        return head, [repair.after + (": pass" if marked and _HEADER.match(marked[-1][1]) else "")]
    code = (text.split("  #", 1)[0].rstrip() for text in reversed(texts))
    last = next((text for text in code if text.strip() and not text.lstrip().startswith("#")), "")
    return head, _completion(marked, ends_open=last.endswith(":"))


def _indent_of(text: str) -> int:
    return len(text) - len(text.lstrip())


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

    open: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    quote: str = ""
    statement_lines: set[int] = field(default_factory=lambda: {1})
    closed_at: int = 0

    def closers(self) -> str:
        """The closing brackets and quotes of all that is open at the end."""
        return self.quote + "".join(_CLOSER[bracket] for bracket in reversed(self.open))


def _scan(text: str) -> _Scan:
    scan = _Scan()
    line, quote, is_comment = 1, "", False
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in ("\n", "\\\n"):
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
