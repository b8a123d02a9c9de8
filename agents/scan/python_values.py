"""Writes the calls of a Python text with what their names stand for, so that rules see the values.

``run(command, **{"shell": True})`` becomes ``run(command, shell=True)``, and an alias of a function becomes its name.
A text or list that is put together before a call stands in the call. What is constant becomes a literal. Values are
followed within the text alone. No line moves.
"""

from __future__ import annotations

import ast
import copy
from typing import TypeGuard

from council.agents.scan.python import parse
from council.agents.scan.python_checks import dotted
from council.agents.scan.python_names import ITEMS_MAX, NameFacts

FOLLOWED_MAX = 8  # values in values
WRITTEN_CHARS_MAX = 2_000  # of a call; a longer one stays as it is


def written_out(text: str) -> str:
    """The text, with such calls written out. A text that is not parsed stays as it is."""
    tree = parse(text)
    if not isinstance(tree, ast.Module):
        return text
    try:
        names = NameFacts(tree)
        # Found before any is rewritten, and the outermost of those that lie in each other.
        found = _changed(tree, _Writer(tree, names))
    except (RecursionError, ValueError):  # ast.unparse can't write every f-string
        return text
    lines = [line.encode() for line in text.split("\n")]
    for old, new in reversed(found):
        assert old.end_lineno is not None
        assert old.end_col_offset is not None
        first, last = old.lineno - 1, old.end_lineno - 1
        if last >= len(lines):  # Python splits lines at more characters than a line feed
            return text
        rest = new.encode("utf-8", "replace") + lines[last][old.end_col_offset :]
        lines[first] = lines[first][: old.col_offset] + rest
        lines[first + 1 : last + 1] = [b""] * (last - first)
    return b"\n".join(lines).decode("utf-8", "replace")


def _changed(tree: ast.Module, writer: _Writer) -> list[tuple[ast.expr, str]]:
    found: list[tuple[ast.expr, str]] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            new = writer.visit(copy.deepcopy(node))
            told = ast.unparse(ast.fix_missing_locations(new))
            if told != ast.unparse(node) and len(told) <= WRITTEN_CHARS_MAX and "\n" not in told:
                found.append((node, told))
                continue
        waiting.extend(ast.iter_child_nodes(node))
    return sorted(found, key=lambda pair: (pair[0].lineno, pair[0].col_offset))


class _Text(ast.Constant):
    """A literal that is a text; for the type checker."""

    value: str


class _Writer(ast.NodeTransformer):
    def __init__(self, tree: ast.Module, names: NameFacts) -> None:
        self._names = names
        self._given = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = self._names.called(node)
        if called and called != self._names.origin(dotted(node.func)):
            node.func = ast.Name(called.removeprefix("builtins."))
        node.keywords = [part for item in node.keywords for part in self._keyword(item)]
        node.args = [self._value(arg) for arg in node.args]
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "setattr" and len(node.args) == 3:
            name, value = node.args[1:]
            if isinstance(name, ast.Constant) and str(name.value).isidentifier():
                target = ast.Attribute(node.args[0], str(name.value))
                return ast.Assign([target], value, lineno=node.lineno)
        return node

    def _keyword(self, item: ast.keyword) -> list[ast.keyword]:
        if item.arg is not None:
            if isinstance(item.value, ast.Name) and item.value.id in self._names.imported:
                return [ast.keyword(item.arg, ast.Name(self._names.imported[item.value.id]))]
            return [ast.keyword(item.arg, self._value(item.value))]
        mapping = self._names.resolve(item.value)
        if isinstance(mapping, ast.Call) and dotted(mapping.func) == "dict" and not mapping.args:
            return list(mapping.keywords)
        keys = mapping.keys if isinstance(mapping, ast.Dict) else []
        if not keys or not all(
            isinstance(key, ast.Constant) and str(key.value).isidentifier() for key in keys
        ):
            return [item]
        assert isinstance(mapping, ast.Dict)
        return [
            ast.keyword(str(key.value), value)
            for key, value in zip(keys, mapping.values, strict=True)
            if isinstance(key, ast.Constant)
        ]

    def _value(self, node: ast.expr, depth: int = 0) -> ast.expr:
        """What an argument stands for: a literal, a list with its items, a text with its parts, or itself."""
        kind = self._names.kind(node)
        if depth > FOLLOWED_MAX or (
            kind == "unknown" and isinstance(node, ast.Name | ast.Attribute | ast.Call)
        ):
            is_seen = depth <= FOLLOWED_MAX and self._is_list(node) and not self._is_given(node)
            return ast.List(self._names.items(node)) if is_seen else node
        if isinstance(node, ast.Name):
            if kind == "constant" and self._is_given(node):
                return node
            if self._is_list(node):
                return ast.List(self._names.items(node))
            value = self._names.resolve(node)
            return node if value is node or isinstance(value, ast.Name) else self._value(value, depth + 1)
        if _is_sum(node) and any(self._is_list(side) for side in (node.left, node.right)):
            return ast.List(self._names.items(node))
        if isinstance(node, ast.JoinedStr | ast.BinOp) or _is_join(node):
            parts = self._parts(node, depth)
            return _told(parts) if parts else node
        return node

    def _is_list(self, node: ast.expr) -> bool:
        return isinstance(self._names.resolve(node), ast.List | ast.Tuple)

    def _is_given(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._given

    def _parts(self, node: ast.expr, depth: int) -> list[ast.expr]:
        """The parts of a text that is put together; empty for a sum that is no text."""
        if isinstance(node, ast.JoinedStr):
            return [self._part(part, depth) for part in node.values[:ITEMS_MAX]]
        if _is_sum(node) and depth <= 2 * FOLLOWED_MAX:
            sides = [
                self._parts(side, depth + 1) or [self._part(side, depth)] for side in (node.left, node.right)
            ]
            return [*sides[0], *sides[1]] if any(map(_is_text, (*sides[0], *sides[1]))) else []
        if _is_join(node):
            assert isinstance(node, ast.Call)
            assert isinstance(node.func, ast.Attribute)
            words = self._names.items(node.args[0]) if depth <= 2 * FOLLOWED_MAX else []
            told = [self._parts(word, depth + 1) or [self._part(word, depth)] for word in words]
            return [part for word in told for part in (node.func.value, *word)][1:]
        return []

    def _part(self, node: ast.expr, depth: int) -> ast.expr:
        inner = node.value if isinstance(node, ast.FormattedValue) else node
        value = self._value(inner, depth + 1)
        if _is_text(value):
            return value
        return (
            ast.Constant("?")
            if self._names.kind(inner) == "constant" and not self._is_given(inner)
            else inner
        )


def _is_text(node: ast.expr) -> TypeGuard[_Text]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_sum(node: ast.expr) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)


def _is_join(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "join"
        and _is_text(node.func.value)
        and len(node.args) == 1
    )


def _told(parts: list[ast.expr]) -> ast.expr:
    """Parts as one literal, if all are literals, or else as an f-string."""
    # An f-string with a line feed would be written over two lines.
    told = [ast.Constant(part.value.replace("\n", " ")) if _is_text(part) else part for part in parts]
    if all(map(_is_text, told)):
        return ast.Constant("".join(part.value for part in told if _is_text(part)))
    return ast.JoinedStr([part if _is_text(part) else ast.FormattedValue(part, -1) for part in told])
