"""Parses Python that is cut out of its file, such as a hunk of a diff.

A hunk starts and ends anywhere: inside a call, under an ``else:``, in a docstring. A *repair* describes the missing
surroundings: how many lines of context to leave off at either edge, and which brackets or quotes are open there. Both
sides of a hunk share their context, so that a repair under which the old side parses must also serve the new side. If
none does, the change itself broke the syntax.
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from council.agents.scan.diff import FileChange, Hunk
from council.agents.scan.diff_lines import shown

PARSE_TRIES = 5  # two trees are seldom built at the same instant
TRIM_MAX = 12  # lines of context left off at an edge; more context than that is not an edge any more
# The work of a parse, and of all that reads its tree, grows with its tokens: of people's code one in four characters,
# of hostile text each. A parse can't be stopped, and no other thread runs meanwhile.
TOKENS_MAX = 40_000  # of one parse, and of both sides together: some 4,000 lines of people's code
HUNK_TOKENS_MAX = 300_000  # for the repairs of one hunk together
# For all of a change: people's code has a token in four characters, so it may be read twice; a short one more often.
CHARS_A_TOKEN, EFFORT_TOKENS_MIN, EFFORT_TOKENS_MAX = 2, 20_000, 500_000
TOO_MANY = "more words, marks and lines than are read of one change"
DEPTH_MAX = 250  # of a tree: what dumps one goes down three calls a level, of Python's 1,000
SOURCE_CHARS_MAX = 2_000_000  # of one file; CPython needs some hundred times that in memory

_PARSING = threading.Lock()
_TOKEN_OR_LINE = re.compile(r"\w+|[^\w\s]|\n")
_TOKEN = re.compile(r"\"\"\"|'''|\\.|[\"'#\n()\[\]{}]", re.DOTALL)
_CLOSER = {"(": ")", "[": "]", "{": "}"}
_OPENER = {closer: opener for opener, closer in _CLOSER.items()}
_CONTINUES = re.compile(r"(else|elif|except|finally)\b")
_CODE = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.Call,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Delete,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """Python that parses: ``text`` with its ``tree``, and for each line of text its number in the file.

    A line that the repair put in has the number 0. ``changed`` are the numbers that the change touches.
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
        """The file's line of a place, the first changed one if there is any; 0 if it is only in a repair."""
        lines = range(first, min(last, first + 500) + 1)
        numbers = [number for at in lines if (number := self.number(at))]
        return next((number for number in numbers if number in self.changed), numbers[0] if numbers else 0)


@dataclass(frozen=True, slots=True)
class Sides:
    """A hunk, or a whole file, before and after. A side that could not be parsed is None.

    ``error`` is (line, message) of a syntax error which the change surely brings in, if the syntax is not
    merely newer than this Python's: ``broken`` is the text that another parser may confirm it on. ``unread`` says
    what there is too much of, where a bound ended the reading: nothing is known of the rest.
    """

    old: Piece | None
    new: Piece | None
    error: tuple[int, str] | None = None
    broken: str = ""
    unread: str = ""


@dataclass(frozen=True, slots=True)
class Unparsable:
    """Why a text is no Python that this interpreter can read."""

    line: int
    message: str
    is_limit: bool = False


def tokens_in(text: str) -> int:
    """About how many tokens a text has: its words, marks and lines, those in strings and comments among them."""
    return len(_TOKEN_OR_LINE.findall(text))


def parse(text: str) -> ast.Module | Unparsable:
    """The syntax tree of ``text``. Never runs it, never raises for what it says."""
    if len(text) > SOURCE_CHARS_MAX:
        return Unparsable(0, f"longer than {SOURCE_CHARS_MAX:,} characters", is_limit=True)
    if len(text) > TOKENS_MAX and tokens_in(text) > TOKENS_MAX:
        return Unparsable(0, f"more than {TOKENS_MAX:,} words, marks and lines", is_limit=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in reviewed text is no warning of ours
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
    """CPython 3.11 counts the depth of a tree it builds for all threads together, and fails when two build."""
    with _PARSING:
        for _ in range(PARSE_TRIES - 1):
            try:
                return ast.parse(text)
            except SystemError:  # a thread of somebody else's was building one, too
                continue
        return ast.parse(text)


def _is_deep(tree: ast.AST) -> bool:
    """Whether a tree is deeper than what reads it may go down."""
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
        for hunk in change.hunks:
            sides, spent = parse_hunk(change.path, hunk, max(0, min(HUNK_TOKENS_MAX, effort)))
            effort -= spent
            yield change, hunk.new_start, sides


def unread_python(changes: Sequence[FileChange]) -> list[str]:
    """What ``sides_of`` would leave unread of these Python files for its length, without parsing any."""
    hunks = [(change, hunk) for change in changes for hunk in change.hunks]
    return [
        f"{shown(change.path)}:{hunk.new_start} ({TOO_MANY})"
        for change, hunk in hunks
        if _tokens_of(hunk) > TOKENS_MAX
    ]


def _tokens_of(hunk: Hunk) -> int:
    return tokens_in(hunk.old_text()) + tokens_in(hunk.new_text())


def parse_whole(change: FileChange) -> Sides:
    """Both sides of a file that the diff shows entirely."""
    hunk = change.hunks[0]
    old = _whole(change.path, hunk.old_text(), hunk.removed) if change.kind != "added" else None
    new = _whole(change.path, hunk.new_text(), hunk.added) if change.kind != "deleted" else None
    old = old if isinstance(old, Piece) else None
    if not isinstance(new, Unparsable):
        return Sides(old, new)
    if new.is_limit:
        return Sides(old, None, unread=new.message)
    if old is None and change.kind != "added":
        return Sides(old, None)
    return Sides(old, None, (new.line, new.message), hunk.new_text().lstrip("\ufeff"))


def _whole(path: str, text: str, changed: list[tuple[int, str]]) -> Piece | Unparsable:
    text = text.lstrip("\ufeff")
    tree = parse(text)
    if isinstance(tree, Unparsable):
        return tree
    numbers = tuple(range(1, text.count("\n") + 2))
    return Piece(path, text, tree, numbers, frozenset(number for number, _ in changed), True)


def parse_hunk(path: str, hunk: Hunk, allowed: int = HUNK_TOKENS_MAX) -> tuple[Sides, int]:
    """Both sides of a hunk, under the first repair that serves both, and how many tokens were parsed for them:
    hardly more than ``allowed``, but once at least. No side is parsed if both have too many tokens together."""
    old_lines = [(line.old_no or 0, line.text, line.tag == "-") for line in hunk.lines if line.tag != "+"]
    new_lines = [(line.new_no or 0, line.text, line.tag == "+") for line in hunk.lines if line.tag != "-"]
    tags = "".join(line.tag for line in hunk.lines)
    budget = allowed
    cost = _tokens_of(hunk) + 50
    if cost > TOKENS_MAX:
        return Sides(None, None, unread=TOO_MANY), 0
    only_old: Piece | None = None
    error: tuple[int, str] | None = None
    broken = ""
    for top, bottom in _trims(len(tags) - len(tags.lstrip(" ")), len(tags) - len(tags.rstrip(" "))):
        old_cut = old_lines[top : len(old_lines) - bottom]
        new_cut = new_lines[top : len(new_lines) - bottom]
        is_bare = not any(text.strip() for _, text, _ in old_cut)
        # With nothing on the old side to go by, what stands open is read off the new side.
        for repair in _repairs(new_cut if is_bare else old_cut):
            old, _ = _try(path, old_cut, repair)
            budget -= cost
            if isinstance(old, Piece) or is_bare:
                new, source = _try(path, new_cut, repair)
                if isinstance(new, Piece):
                    return Sides(old if isinstance(old, Piece) else None, new), allowed - budget
                if isinstance(old, Piece) and not (repair.is_text or repair.is_guess or new.is_limit):
                    if error is None and _holds_code(old.tree):
                        error, broken = (new.line, new.message), source
                    only_old = only_old or old
            if budget < 0:
                return Sides(only_old, None, unread=TOO_MANY), allowed - budget
        if error is not None:
            break  # leaving off more of what parses would only hide it
    return Sides(only_old, None, error, broken), allowed - budget


@dataclass(frozen=True, slots=True)
class _Repair:
    """What is supposed around a fragment. ``is_text``: that it stands in a string, so is no code.

    ``is_guess``: nothing in the fragment asks for it, so that it proves no syntax error.
    """

    before: str = ""
    after: str = ""
    is_text: bool = False
    is_guess: bool = False


_Numbered = tuple[int, str, bool]


def _trims(leading: int, trailing: int) -> Iterator[tuple[int, int]]:
    """How much context to leave off, least first."""
    pairs = product(range(min(leading, TRIM_MAX) + 1), range(min(trailing, TRIM_MAX) + 1))
    return iter(sorted(pairs, key=lambda pair: (sum(pair), pair)))


def _repairs(lines: Sequence[_Numbered]) -> Iterator[_Repair]:
    text = "\n".join(line for _, line, _ in lines)
    scan = _scan(text)
    after, unmatched = scan.closers(), scan.unmatched
    if not unmatched:
        yield _Repair("", after)
        # A line such as `timeout=3,` is a statement by itself and an argument in its place.
        for opener, closer in (("f(", ")"), ("[", "]"), ("{", "}"), ("def f(", "): pass")):
            yield _Repair(opener, after + closer, is_guess=True)
    else:
        outer, *inner = (_OPENER[bracket] for bracket in reversed(unmatched))
        for opener in ("f(", "def f(", "class f(") if outer == "(" else (outer,):
            yield _Repair(opener + "".join(inner), after)
    for quote in ('"""', "'''"):
        if text.count(quote) % 2:  # it starts inside a docstring
            yield _Repair(quote, _scan(quote + "\n" + text).closers())
        elif quote not in text:
            yield _Repair(quote, quote, is_text=True)


def _try(path: str, lines: Sequence[_Numbered], repair: _Repair) -> tuple[Piece | Unparsable, str]:
    """What the repaired lines are, and their text. A fault is placed in the file, or at the first changed
    line if it shows only in what was put in."""
    texts, numbers = _built(lines, repair)
    source = "\n".join(texts) + "\n"
    tree = parse(source)
    changed = [number for number, _, is_changed in lines if is_changed]
    if isinstance(tree, Unparsable):
        number = numbers[tree.line - 1] if 0 < tree.line <= len(numbers) else 0
        return replace(tree, line=number or [*changed, *(no for no, _, _ in lines[:1]), 0][0]), source
    if repair.is_text:
        return Unparsable(0, "it may be the inside of a string", is_limit=True), source
    return Piece(path, source, tree, tuple(numbers), frozenset(changed), False), source


def _holds_code(tree: ast.Module) -> bool:
    """Whether this is code and not prose that happens to parse, as `word` or `a, b` does."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="f")) | ast.If(test=ast.Constant()):
                pass  # a repair put it in
            case _ if isinstance(node, _CODE):
                return True
    return False


# What is put around a fragment


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
        # A statement that starts above is taken to start where the line that closes it does.
        indent = len(texts[closed_at - 1]) - len(texts[closed_at - 1].lstrip())
    head = _headers(marked, indent, has_opener=bool(repair.before))
    if repair.before:
        head.append(" " * indent + repair.before)
    tail = [repair.after] if repair.after else []
    if not (repair.is_text or repair.after):
        tail = _completion(marked)
    return head + texts + tail, [0] * len(head) + numbers + [0] * len(tail)


def _headers(marked: Sequence[tuple[int, str]], first: int, *, has_opener: bool) -> list[str]:
    """Blocks for the indents that a fragment falls back to, and what a dangling else or except needs."""
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
    """The block that the first line at this indent goes on with, if it does."""
    word = next((text for at, text in marked if at <= indent), "")
    return "try:" if word.startswith(("except", "finally")) else "if 1:"


def _completion(marked: Sequence[tuple[int, str]]) -> list[str]:
    """An end for what a fragment leaves unfinished: a block without body, a decorator, a try."""
    tail: list[str] = []
    if not marked:
        return tail
    indent, last = marked[-1]
    code = last.split("  #", 1)[0].rstrip()
    if last.startswith("@"):
        tail.append(" " * indent + "def f(): pass")
    elif code.endswith(":"):
        tail.append(" " * (indent + 1) + "pass")
    lowest = indent + 1 if code.endswith(":") else indent
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
        """What ends all that stands open at the end."""
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
                quote = ""  # an unfinished plain string ends with its line
            if not (quote or scan.open or token == "\\\n"):
                scan.statement_lines.add(line)
        elif quote:
            if token in (quote, quote * 3):  # its end and a new string, as near as a guess may come
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
