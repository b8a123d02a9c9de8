"""What the visible assignments and imports of a Python text say of its names. Judges nothing.

Names are followed within what is visible; a name in capitals counts as a constant.
"""

from __future__ import annotations

import ast
from typing import Literal

from council.agents.checks import dotted

Built = Literal["constant", "unknown", "built"]

FOLLOWED_MAX = 8  # names of names; more is a circle or a puzzle
DEPTH_MAX = 100  # of operations in operations: Python itself stops at some hundreds
PARTS_MAX = 20  # of a text that is put together from literals
TOLD_CHARS_MAX = 400  # of an expression, where its text is searched
ITEMS_MAX = 64  # of a list; a command of more words is a table
_SAFE_CALLS = {"int", "float", "len", "bool", "abs", "round", "quote", "hash", "ord"}  # quote: shlex.quote


class Names:
    """What the visible assignments and imports say of names."""

    def __init__(self, tree: ast.Module) -> None:
        self.values: dict[str, list[ast.expr]] = {}
        self.grown: dict[str, list[ast.expr]] = {}  # what is appended to the list of that name
        self.imported: dict[str, str] = {}
        self.defined: set[str] = set()
        self._kinds: dict[int, Built] = {}  # by id: the nodes live as long as their tree
        self._tree = tree
        self._told: dict[int, tuple[str, list[str]]] = {}
        self.speaks_http = False
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.values.setdefault(target.id, []).append(node.value)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and isinstance(node.target, ast.Name):
                if node.value is not None:
                    self.values.setdefault(node.target.id, []).append(node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                joined = ast.BinOp(ast.Constant(""), ast.Add(), node.value)
                self.values.setdefault(node.target.id, []).append(joined)
            elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
                self.values.setdefault(node.optional_vars.id, []).append(node.context_expr)
            elif isinstance(node, ast.Call) and last_of(node.func) in ("append", "extend", "insert"):
                self.grown.setdefault(dotted(node.func).rpartition(".")[0], []).extend(node.args[-1:])
            elif isinstance(node, ast.Import):
                self.imported.update({item.asname: item.name for item in node.names if item.asname})
            elif isinstance(node, ast.ImportFrom):
                self.imported.update(
                    {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
                )
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.defined.add(node.name)
            elif isinstance(node, ast.Name) and node.id in ("requests", "httpx"):
                self.speaks_http = True
        self.defined |= self.imported.keys() | self.values.keys()

    def origin(self, name: str) -> str:
        """A dotted name with the alias that its import gave it undone."""
        first, dot, rest = name.partition(".")
        return self.imported.get(first, first) + dot + rest

    def called(self, call: ast.Call) -> str:
        """The dotted name of what is called, aliases, imports and getattr with a literal undone."""
        node: ast.expr = call.func
        for _ in range(FOLLOWED_MAX):
            values = self.values.get(node.id, []) if isinstance(node, ast.Name) else []
            if len(values) != 1 or not isinstance(
                values[0], ast.Name | ast.Attribute | ast.Call | ast.Subscript
            ):
                break
            node = values[0]
        if isinstance(node, ast.Call) and dotted(node.func) == "getattr" and len(node.args) > 1:
            return f"{self.origin(dotted(node.args[0]))}.{joined(node.args[1]) or ''}"
        if isinstance(node, ast.Subscript) and dotted(node.value) == "__builtins__":
            return f"builtins.{joined(node.slice) or ''}"
        return self.origin(dotted(node))

    def resolve(self, node: ast.expr) -> ast.expr:
        """The value a name was given: the worst of those that are visible, or the name itself."""
        for _ in range(FOLLOWED_MAX):
            if not isinstance(node, ast.Name) or not self.values.get(node.id):
                break
            choices = self.values[node.id]
            node = next((value for value in choices if self.kind(value) == "built"), choices[-1])
        return node

    def items(self, node: ast.expr, depth: int = 0) -> list[ast.expr]:
        """The items of a list, as far as they are in sight: literal, added up, or appended to its name."""
        grown = self.grown.get(node.id, []) if isinstance(node, ast.Name) else []
        node = self.resolve(node)
        if isinstance(node, ast.BinOp) and depth < FOLLOWED_MAX:
            sides = [self.items(side, depth + 1) or [side] for side in (node.left, node.right)]
            return [*sides[0], *sides[1], *grown][:ITEMS_MAX]
        return [*node.elts, *grown][:ITEMS_MAX] if isinstance(node, ast.List | ast.Tuple) else []

    def behind(self, node: ast.expr) -> str:
        """The text of an expression and of what its names were given."""
        texts: list[str] = []
        waiting = [node]
        while waiting and len(texts) < FOLLOWED_MAX:
            node = waiting.pop(0)
            if id(node) not in self._told:
                names = [inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)]
                self._told[id(node)] = ast.unparse(node)[:TOLD_CHARS_MAX], names[:FOLLOWED_MAX]
            text, names = self._told[id(node)]
            texts.append(text)
            waiting += [value for name in names for value in self.values.get(name, [])[-FOLLOWED_MAX:]]
        return "\n".join(texts)

    def kind(self, node: ast.expr, depth: int = 0) -> Built:
        """Whether a value is fixed in the source, put together while the program runs, or not visible."""
        known = self._kinds.get(id(node))
        if known is None:
            self._kinds[id(node)] = "unknown"  # what a name defined by itself is
            known = self._kinds[id(node)] = "unknown" if depth > DEPTH_MAX else self._kind(node, depth)
        return known

    def _kind(self, node: ast.expr, depth: int) -> Built:
        if isinstance(node, ast.Constant):
            return "constant"
        if isinstance(node, ast.Name):
            return self._kind_of_name(node.id, depth)
        if isinstance(node, ast.Attribute):
            return "constant" if node.attr.isupper() else "unknown"
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return self._worst(list(node.elts), depth)
        if isinstance(node, ast.JoinedStr):
            parts = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
            return "constant" if self._worst(parts, depth) == "constant" else "built"
        if isinstance(node, ast.BinOp):
            return self._kind_of_operation(node, depth)
        if isinstance(node, ast.IfExp):
            return self._worst([node.body, node.orelse], depth)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self.kind(node.elt, depth + 1)
        if isinstance(node, ast.Call):
            return self._kind_of_call(node, depth)
        return "unknown"

    def _kind_of_name(self, name: str, depth: int) -> Built:
        if name in self.values:
            return self._worst([*self.values[name], *self.grown.get(name, [])], depth)
        return "constant" if name.isupper() or "placeholder" in name.lower() else "unknown"

    def _kind_of_operation(self, node: ast.BinOp, depth: int) -> Built:
        if isinstance(node.op, ast.Mult):  # "?" * n
            sides = (node.left, node.right)
            if any(
                isinstance(side, ast.Constant | ast.List) and self.kind(side) == "constant" for side in sides
            ):
                return "constant"
        return "constant" if self._worst([node.left, node.right], depth) == "constant" else "built"

    def _kind_of_call(self, node: ast.Call, depth: int) -> Built:
        last = dotted(node.func).rsplit(".", 1)[-1]
        if last in _SAFE_CALLS:
            return "constant"
        if isinstance(node.func, ast.Attribute) and node.func.attr in (
            "format",
            "join",
            "replace",
            "strip",
            "lower",
        ):
            values = [node.func.value, *node.args, *(item.value for item in node.keywords)]
            kind = self._worst(values, depth)
            return "built" if kind != "constant" and node.func.attr in ("format", "join", "replace") else kind
        return "unknown"

    def _worst(self, nodes: list[ast.expr], depth: int) -> Built:
        kinds = {self.kind(node, depth + 1) for node in nodes[:ITEMS_MAX]}
        return (
            "built"
            if "built" in kinds
            else "unknown"
            if "unknown" in kinds or len(nodes) > ITEMS_MAX
            else "constant"
        )

    def text(self, node: ast.expr) -> str:
        """The fixed beginning of a built string, as far as it is visible."""
        for _ in range(200):
            if isinstance(node, ast.BinOp):
                node = node.left
                if isinstance(node, ast.Constant) and node.value == "":
                    return "select "  # built by +=: what it starts with stands elsewhere
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                # " ".join(words) begins with the first word, and not with what stands between them.
                words = self.items(node.args[0]) if node.func.attr == "join" and node.args else []
                node = words[0] if words else node.func.value
            elif isinstance(node, ast.JoinedStr) and node.values:
                node = node.values[0]
            elif isinstance(node, ast.Name) and node.id in self.values:
                node = self.values[node.id][0]
            else:
                break
        return node.value[:200] if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def keyword(call: ast.Call, name: str, names: Names | None = None) -> ast.expr | None:
    """The value of a keyword argument, if it is given: by itself, or in a ``**`` mapping that is in sight."""
    for item in call.keywords:
        if item.arg == name:
            return item.value
        mapping = names.resolve(item.value) if names and item.arg is None else item.value
        if item.arg is None and isinstance(mapping, ast.Dict):
            for key, value in zip(mapping.keys, mapping.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    return value
        elif item.arg is None and isinstance(mapping, ast.Call) and dotted(mapping.func) == "dict":
            return keyword(mapping, name)
    return None


def joined(node: ast.AST | None) -> str | None:
    """The text that a literal is, or several that are added: a key in two halves is a key."""
    parts: list[str] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and len(parts) < PARTS_MAX:
        right = joined(node.right) if isinstance(node.right, ast.Constant) else None
        if right is None:
            return None
        parts.append(right)
        node = node.left
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str | bytes):
        return None
    first = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
    return "".join([first, *reversed(parts)])


def last_of(node: ast.AST | None) -> str:
    return dotted(node).rsplit(".", 1)[-1]
