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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
_OWNERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement, the names of the functions and classes around it, and the nodes of its expressions, outer first.

    A statement in its block is not among the nodes, nor is a name's context, such as ``ast.Load``.
    """

    node: ast.stmt
    owners: tuple[str, ...]
    inner: list[ast.AST]


class Tree:
    """A syntax tree that is gone through once for all its readers. ``blocks`` are its statements, outer ones first.

    Raises RecursionError if it is deeper than ``DEPTH_MAX``.
    """

    def __init__(self, root: ast.Module) -> None:
        self.blocks: list[list[Statement]] = []
        pending: list[tuple[list[ast.stmt], tuple[str, ...], int]] = [(root.body, (), 1)]
        for body, owners, depth in pending:
            block = []
            for node in body:
                within = (*owners, node.name) if isinstance(node, _OWNERS) else owners
                inner, blocks = _parts_of(node, depth)
                pending += [(part, within, below) for part, below in blocks]
                block.append(Statement(node, owners, inner))
            self.blocks.append(block)


def _parts_of(node: ast.stmt, depth: int) -> tuple[list[ast.AST], list[tuple[list[ast.stmt], int]]]:
    """The nodes of a statement's expressions, and its blocks, each with its depth."""
    inner: list[ast.AST] = []
    blocks: list[tuple[list[ast.stmt], int]] = []
    level: list[ast.AST] = [node]
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise RecursionError
        below: list[ast.AST] = []
        for each in level:
            for name in each._fields:
                value = getattr(each, name, None)
                if isinstance(value, list):
                    if value and isinstance(value[0], ast.stmt):
                        blocks.append((value, depth))
                    else:
                        below += [item for item in value if isinstance(item, ast.AST)]
                elif isinstance(value, ast.AST) and name != "ctx":
                    below.append(value)
        inner += below
        level = below
    return inner, blocks


def tokens_in(text: str) -> int:
    """The approximate number of tokens: words, marks and lines, also in strings and comments."""
    return len(_TOKEN_OR_LINE.findall(text))


def parse(text: str) -> Tree | str:
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
            root = _parsed(text)
    except SyntaxError as error:
        return error.msg if "null byte" in error.msg else ""
    except (RecursionError, MemoryError, SystemError):
        return "nested too deeply to be parsed"
    except ValueError as error:  # a lone surrogate, and before 3.12 a NUL
        return str(error)
    try:
        return Tree(root)
    except RecursionError:
        return f"nested more than {DEPTH_MAX} deep"


def _parsed(text: str) -> ast.Module:
    """CPython 3.11 counts the depth of a tree for all threads together, and fails if two build one."""
    with _PARSING:
        for _ in range(PARSE_TRIES - 1):
            try:
                return ast.parse(text)
            except SystemError:  # another thread was building one too
                continue
        return ast.parse(text)


@dataclass(frozen=True, slots=True)
class Sides:
    """A hunk, or a whole file, before and after: the tree of each, and the lines that a repair puts above it.

    ``trees`` is empty if a side could not be parsed. ``unread`` names the limit that ended the reading.
    ``tokens``: how many were parsed.
    """

    trees: tuple[Tree, ...] = ()
    heads: tuple[list[str], ...] = ()
    unread: str = ""
    tokens: int = 0


def parse_sides(sides: Sequence[Sequence[str]], *, is_whole: bool, allowed: int) -> Sides:
    """The lines of both sides, parsed under the first repair that serves both.

    A whole file needs no repair, and its old side may have wrong syntax. Once more than ``allowed`` tokens are
    parsed, no further repair is tried. So the first parse may take more, unless ``allowed`` is below 0.
    """
    texts = ["\n".join(lines) for lines in sides]
    cost, spent = sum(map(tokens_in, texts)) + 50, 0
    if cost > TOKENS_MAX or allowed < 0:
        return Sides(unread=TOO_MANY)
    # If the old side is empty, the open brackets and quotes are read from the new side.
    for repair in [None] if is_whole else _repairs(next(filter(str.strip, texts), "")):
        around = [_around(lines, repair) if repair else ([], []) for lines in sides]
        trees = [
            parse("\n".join([*head, text, *tail]) + "\n")
            for (head, tail), text in zip(around, texts, strict=True)
        ]
        if is_whole and trees[0] == "":
            trees[0] = Tree(ast.Module([], []))
        spent += cost
        if limit := next((tree for tree in trees if tree and isinstance(tree, str)), ""):
            return Sides(unread=limit, tokens=spent)
        if parsed := tuple(tree for tree in trees if isinstance(tree, Tree)) if all(trees) else ():
            return Sides(parsed, tuple(head for head, _ in around), tokens=spent)
        if spent > allowed:
            return Sides(unread=TOO_MANY, tokens=spent)
    return Sides(tokens=spent)


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
