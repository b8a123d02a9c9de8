"""Writes the calls of a Python text with what their names stand for, so that rules see the values.

``run(command, **{"shell": True})`` becomes ``run(command, shell=True)``, and an alias of a function becomes its name.
A text or list that is put together before a call stands in the call. What is constant becomes a literal. Values are
followed within the text alone. No line moves.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any

from council.agents.scan.pieces import Piece
from council.agents.scan.python import Statement
from council.agents.scan.python_checks import dotted

FOLLOWED_MAX = 8  # names of names, and values in values; more is a cycle or a puzzle
DEPTH_MAX = 100  # of operations in operations: Python itself stops at some hundreds
ITEMS_MAX = 64  # of a list; a longer command is a table
VALUES_MAX = 50_000  # that are followed in one text
WRITTEN_CHARS_MAX = 2_000  # of a call; a longer one stays as it is
_SAFE_CALLS = {"int", "float", "len", "bool", "abs", "round", "quote", "hash", "ord"}  # quote: shlex.quote
_BUILDS = ("format", "join", "replace")
_BUILT = (ast.JoinedStr, ast.BinOp, ast.List, ast.Tuple)
_CALLABLE = (ast.Name, ast.Attribute, ast.Call)


class NameFacts:
    """What the visible assignments and imports say about names."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        self.values: dict[str, list[ast.expr]] = {}
        self.grown: dict[str, list[ast.expr]] = {}  # the values appended to the list of that name
        self.imported: dict[str, str] = {}
        self.given: set[str] = set()  # the parameters of functions
        self._fixed: dict[int, bool] = {}  # by id: the nodes live as long as their tree
        for statement in statements:
            self._read(statement.node)
            for node in statement.inner:
                if isinstance(node, ast.Call | ast.arg | ast.withitem | ast.NamedExpr):
                    self._read(node)

    def _read(self, node: ast.AST) -> None:
        match node:
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value)
            case ast.AnnAssign() | ast.NamedExpr():
                self._assign(node.target, node.value)
            case ast.AugAssign():
                self._assign(node.target, ast.BinOp(ast.Constant(""), ast.Add(), node.value))
            case ast.withitem():
                self._assign(node.optional_vars, node.context_expr)
            case ast.Call(func=ast.Attribute(attr="append" | "extend" | "insert", value=grown)):
                self.grown.setdefault(dotted(grown), []).extend(node.args[-1:])
            case ast.Import():
                self.imported.update({item.asname: item.name for item in node.names if item.asname})
            case ast.ImportFrom():
                for item in node.names:
                    self.imported[item.asname or item.name] = f"{node.module}.{item.name}"
            case ast.arg():
                self.given.add(node.arg)

    def _assign(self, target: ast.expr | None, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name) and value is not None:
            self.values.setdefault(target.id, []).append(value)

    def origin(self, name: str) -> str:
        """A dotted name, with the alias of its import resolved."""
        first, dot, rest = name.partition(".")
        return self.imported.get(first, first) + dot + rest

    def called(self, call: ast.Call) -> str:
        """The dotted name of a called function, with aliases, imports and getattr with a literal resolved."""
        node: ast.expr = call.func
        for _ in range(FOLLOWED_MAX):
            values = self.values.get(node.id, []) if isinstance(node, ast.Name) else []
            if len(values) != 1 or not isinstance(values[0], _CALLABLE):
                break
            node = values[0]
        if isinstance(node, ast.Call) and dotted(node.func) == "getattr" and len(node.args) > 1:
            name = literal(node.args[1])
            return f"{self.origin(dotted(node.args[0]))}.{name}" if name else ""
        return self.origin(dotted(node))

    def resolve(self, node: ast.expr) -> ast.expr:
        """The value of a name: one that is put together at run time, or the last if all are fixed; or itself."""
        for _ in range(FOLLOWED_MAX):
            if not isinstance(node, ast.Name) or not (choices := self.values.get(node.id, [])[:ITEMS_MAX]):
                break
            built = (value for value in choices if _is_built(value) and not self.is_fixed(value))
            if (value := next(built, None)) is None:
                if node.id in self.given or not all(map(self.is_fixed, choices)):
                    break
                value = choices[-1]
            node = value
        return node

    def items(self, node: ast.expr, depth: int = 0) -> list[ast.expr]:
        """The visible items of a list: literal, added, or appended to its name."""
        grown = self.grown.get(node.id, [])[:ITEMS_MAX] if isinstance(node, ast.Name) else []
        node = self.resolve(node)
        if isinstance(node, ast.BinOp) and depth < FOLLOWED_MAX:
            sides = [self.items(side, depth + 1) or [side] for side in (node.left, node.right)]
            return [*sides[0], *sides[1], *grown][:ITEMS_MAX]
        return [*node.elts[:ITEMS_MAX], *grown][:ITEMS_MAX] if isinstance(node, ast.List | ast.Tuple) else []

    def is_fixed(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether the source alone says what a value is, as far as it can be seen."""
        known = self._fixed.get(id(node))
        if known is None:
            self._fixed[id(node)] = False  # the value of a name that is defined by itself
            parts = self._parts(node) if depth <= DEPTH_MAX else None
            known = parts is not None and len(parts) <= 2 * ITEMS_MAX
            known = known and all(self.is_fixed(part, depth + 1) for part in parts or ())
            self._fixed[id(node)] = known
        return known

    def _parts(self, node: ast.expr) -> list[ast.expr] | None:
        """The values that all must be fixed for this one to be; None if it is not."""
        match node:
            case ast.Constant():
                return []
            case ast.Name(id=name) if name in self.values:
                return [*self.values[name], *self.grown.get(name, [])]
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return [] if name.isupper() or "placeholder" in name.lower() else None
            case ast.List() | ast.Tuple() | ast.Set():
                return node.elts
            case ast.JoinedStr():
                return [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
            case ast.BinOp(left=ast.Constant() | ast.List() as repeated, op=ast.Mult()):
                return [repeated]  # "?" * n
            case ast.BinOp():
                return [node.left, node.right]
            case ast.IfExp():
                return [node.body, node.orelse]
            case ast.ListComp() | ast.GeneratorExp():
                return [node.elt]
            case ast.Call() if last_of(node.func) in _SAFE_CALLS:
                return []
            case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in (*_BUILDS, "strip", "lower"):
                return [value, *node.args, *(item.value for item in node.keywords)]
        return None


def _is_built(node: ast.expr) -> bool:
    return isinstance(node, _BUILT) or (isinstance(node, ast.Call) and last_of(node.func) in _BUILDS)


def last_of(node: ast.AST | None) -> str:
    """The last part of a dotted name."""
    return dotted(node).rsplit(".", 1)[-1]


def literal(node: ast.AST | None) -> str:
    """The text of a literal, or of some that are added; "" for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, other = literal(left), literal(right)
            return one + other if one and other else ""
    return ""


def written_out(piece: Piece) -> str:
    """The piece's text, with the calls on changed lines written out. A text that was not parsed stays as it is."""
    if piece.tree is None:
        return piece.text
    found: list[tuple[ast.expr, str]] = []
    try:
        writer = _Writer(NameFacts(piece.statements))
        for statement in piece.statements:
            if any(isinstance(node, ast.Call) for node in statement.inner):
                found += _written(statement.node, writer, piece)
    except RecursionError:
        return piece.text
    lines = [line.encode() for line in piece.text.split("\n")]
    for old, new in sorted(found, key=lambda pair: (pair[0].lineno, pair[0].col_offset), reverse=True):
        assert old.end_lineno is not None
        first, last = old.lineno - 1, old.end_lineno - 1
        if last < len(lines):  # Python splits lines at more characters than a line feed
            rest = new.encode("utf-8", "replace") + lines[last][old.end_col_offset :]
            lines[first] = lines[first][: old.col_offset] + rest
            lines[first + 1 : last + 1] = [b""] * (last - first)
    return b"\n".join(lines).decode("utf-8", "replace")


def _written(statement: ast.stmt, writer: _Writer, piece: Piece) -> Iterator[tuple[ast.expr, str]]:
    """The outermost calls of a statement on changed lines that are written in another way, and that way."""
    waiting = list(ast.iter_child_nodes(statement))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            continue
        if isinstance(node, ast.Call) and piece.touches(node.lineno - 1, (node.end_lineno or 0) - 1):
            if (new := writer.written(node)) is node:
                continue  # the calls in it are as they were too
            try:
                told, before = ast.unparse(new), ast.unparse(node)
            except ValueError:  # Python 3.11 can't write some texts into an f-string
                told = before = ""
            if told != before and len(told) <= WRITTEN_CHARS_MAX and "\n" not in told:
                yield node, told
                continue
        waiting.extend(ast.iter_child_nodes(node))


class _Writer:
    """Writes out the calls of a tree. The tree itself is not changed, for names are followed in it."""

    def __init__(self, names: NameFacts) -> None:
        self._names = names
        self._left = VALUES_MAX
        self._open: set[int] = set()  # by id: the calls that are being written, one in another

    def written(self, node: ast.AST) -> ast.AST:
        """The node with its calls written out: a new one, or the same if none of them changes."""
        if not isinstance(node, ast.Call):
            return self._with_parts(node)
        if id(node) in self._open:  # the value of a name that is defined by itself
            return node
        self._open.add(id(node))
        new = self._with_parts(self._call(node))
        self._open.discard(id(node))
        return new

    def _with_parts(self, node: ast.AST) -> ast.AST:
        parts: dict[str, object] = {}
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                parts[name] = [self.written(part) if isinstance(part, ast.AST) else part for part in value]
            elif isinstance(value, ast.AST) and name != "ctx":
                parts[name] = self.written(value)
        return _with(node, parts)

    def _call(self, node: ast.Call) -> ast.AST:
        parts: dict[str, object] = {"args": [self._value(arg) for arg in node.args]}
        parts["keywords"] = [part for item in node.keywords for part in self._keyword(item)]
        called = self._names.called(node)
        if called and called != self._names.origin(dotted(node.func)):
            parts["func"] = ast.Name(called.removeprefix("builtins."))
        return _with(node, parts)

    def _keyword(self, item: ast.keyword) -> list[ast.keyword]:
        if item.arg is not None:
            if isinstance(item.value, ast.Name) and item.value.id in self._names.imported:
                return [ast.keyword(item.arg, ast.Name(self._names.imported[item.value.id]))]
            value = self._value(item.value)
            return [item if value is item.value else ast.keyword(item.arg, value)]
        mapping = item.value
        if isinstance(mapping, ast.Name) and mapping.id in self._names.values:
            mapping = self._names.values[mapping.id][-1]
        match mapping:
            case ast.Call(func=ast.Name(id="dict"), args=[]):
                return mapping.keywords
            case ast.Dict(keys=keys, values=values):
                names = [key.value for key in keys if isinstance(key, ast.Constant)]
                if len(names) == len(keys) and all(str(name).isidentifier() for name in names):
                    return [ast.keyword(str(name), value) for name, value in zip(names, values, strict=True)]
        return [item]

    def _value(self, node: ast.expr, depth: int = 0) -> ast.expr:
        """What an argument stands for: a literal, a list with its items, a text with its parts, or itself."""
        self._left -= 1
        if depth > FOLLOWED_MAX or self._left < 0:
            return node
        match node:
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                sides = [left, right]
            case _:
                sides = [node]
        if not isinstance(node, ast.List | ast.Tuple) and any(map(self._is_list, sides)):
            items = self._names.items(node)
            self._left -= len(items)
            return ast.List(items)
        if isinstance(node, ast.Name):
            value = self._names.resolve(node)
            return node if isinstance(value, ast.Name) else self._value(value, depth + 1)
        if isinstance(node, ast.Call) and last_of(node.func) == "join" and self._names.is_fixed(node):
            return self._joined(node, depth)
        return _told(self._parts(node, depth)) or node

    def _joined(self, node: ast.Call, depth: int) -> ast.expr:
        """The text that a join of fixed items gives, a "?" for each item that is not seen."""
        items = self._names.items(node.args[0]) if len(node.args) == 1 else []
        between = literal(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        parts = [self._part(item, depth) for item in items]
        return ast.Constant(between.join(literal(part) or "?" for part in parts) or "?")

    def _is_list(self, node: ast.expr) -> bool:
        return isinstance(self._names.resolve(node), ast.List | ast.Tuple)

    def _parts(self, node: ast.expr, depth: int) -> list[ast.expr]:
        """The parts of a text that is put together; empty for a sum that is no text."""
        match node:
            case ast.JoinedStr(values=values):
                return [self._part(part, depth) for part in values[:ITEMS_MAX]]
            case ast.BinOp(left=left, op=ast.Add(), right=right) if depth <= 2 * FOLLOWED_MAX:
                sides = [self._parts(side, depth + 1) or [self._part(side, depth)] for side in (left, right)]
                parts = [*sides[0], *sides[1]]
                return parts if any(map(_is_text, parts)) else []
        return []

    def _part(self, node: ast.expr, depth: int) -> ast.expr:
        inner = node.value if isinstance(node, ast.FormattedValue) else node
        value = self._value(inner, depth + 1)
        if _is_text(value):
            return value
        return ast.Constant("?") if self._names.is_fixed(inner) else inner


def _with(node: ast.AST, parts: dict[str, Any]) -> ast.AST:
    """A copy with other parts; the node itself if they are its own."""
    if all(_is_same(getattr(node, name), part) for name, part in parts.items()):
        return node
    new = copy.copy(node)
    for name, part in parts.items():
        setattr(new, name, part)
    return new


def _is_same(one: Any, other: Any) -> bool:
    """Whether two nodes are one, or two lists are of the same nodes."""
    if not isinstance(one, list):
        return one is other
    return len(one) == len(other) and all(map(is_, one, other))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _told(parts: list[ast.expr]) -> ast.expr | None:
    """Parts as one literal, if all are literals, or else as an f-string; None if there are none."""
    if not parts:
        return None
    # An f-string with a line feed would be written over two lines.
    told = [ast.Constant(literal(part).replace("\n", " ")) if _is_text(part) else part for part in parts]
    if all(map(_is_text, told)):
        return ast.Constant("".join(map(literal, told)))
    return ast.JoinedStr([part if _is_text(part) else ast.FormattedValue(part, -1) for part in told])
