"""What the visible assignments and imports of a Python text say about its names.

Names are followed within the visible text; a name in capitals counts as a constant.
"""

from __future__ import annotations

import ast
from typing import Literal

from council.agents.scan.python_checks import dotted

Built = Literal["constant", "unknown", "built"]

FOLLOWED_MAX = 8  # names of names; more is a cycle or a puzzle
DEPTH_MAX = 100  # of operations in operations: Python itself stops at some hundreds
PARTS_MAX = 20  # of a text that is put together from literals
TOLD_CHARS_MAX = 400  # of an expression whose text is searched
ITEMS_MAX = 64  # of a list; a longer command is a table
_SAFE_CALLS = {"int", "float", "len", "bool", "abs", "round", "quote", "hash", "ord"}  # quote: shlex.quote
_BUILDS = ("format", "join", "replace")
_CALLABLE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


class NameFacts:
    """What the visible assignments and imports say about names."""

    def __init__(self, tree: ast.Module) -> None:
        self.values: dict[str, list[ast.expr]] = {}
        self.grown: dict[str, list[ast.expr]] = {}  # the values appended to the list of that name
        self.imported: dict[str, str] = {}
        self.defined: set[str] = set()
        self._kinds: dict[int, Built] = {}  # by id: the nodes live as long as their tree
        self._resolved: dict[str, ast.expr] = {}
        self._tree = tree
        self._told: dict[int, tuple[str, list[str]]] = {}
        self.speaks_http = False
        for node in ast.walk(tree):
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
                case ast.Call() if last_of(node.func) in ("append", "extend", "insert"):
                    self.grown.setdefault(dotted(node.func).rpartition(".")[0], []).extend(node.args[-1:])
                case ast.Import():
                    self.imported.update({item.asname: item.name for item in node.names if item.asname})
                case ast.ImportFrom():
                    for item in node.names:
                        self.imported[item.asname or item.name] = f"{node.module}.{item.name}"
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self.defined.add(node.name)
                case ast.Name(id="requests" | "httpx"):
                    self.speaks_http = True
        self.defined |= self.imported.keys() | self.values.keys()

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
            name = joined(node.args[1])
            return f"{self.origin(dotted(node.args[0]))}.{name}" if name else ""
        if isinstance(node, ast.Subscript) and dotted(node.value) == "__builtins__":
            name = joined(node.slice)
            return f"builtins.{name}" if name else ""
        return self.origin(dotted(node))

    def resolve(self, node: ast.expr) -> ast.expr:
        """The value of a name: the worst of the visible ones, or the name itself."""
        for _ in range(FOLLOWED_MAX):
            if not isinstance(node, ast.Name) or not self.values.get(node.id):
                break
            if node.id not in self._resolved:
                choices = self.values[node.id]
                built = (value for value in choices if self.kind(value) == "built")
                self._resolved[node.id] = next(built, choices[-1])
            node = self._resolved[node.id]
        return node

    def items(self, node: ast.expr, depth: int = 0) -> list[ast.expr]:
        """The visible items of a list: literal, added, or appended to its name."""
        grown = self.grown.get(node.id, [])[:ITEMS_MAX] if isinstance(node, ast.Name) else []
        node = self.resolve(node)
        if isinstance(node, ast.BinOp) and depth < FOLLOWED_MAX:
            sides = [self.items(side, depth + 1) or [side] for side in (node.left, node.right)]
            return [*sides[0], *sides[1], *grown][:ITEMS_MAX]
        return [*node.elts[:ITEMS_MAX], *grown][:ITEMS_MAX] if isinstance(node, ast.List | ast.Tuple) else []

    def behind(self, node: ast.expr) -> str:
        """The text of an expression and of its names' values."""
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
        """Whether a value is fixed in the source, built at run time, or not visible."""
        known = self._kinds.get(id(node))
        if known is None:
            self._kinds[id(node)] = "unknown"  # the value of a name that is defined by itself
            known = self._kinds[id(node)] = "unknown" if depth > DEPTH_MAX else self._kind(node, depth)
        return known

    def _kind(self, node: ast.expr, depth: int) -> Built:
        match node:
            case ast.Constant():
                return "constant"
            case ast.Name(id=name) if name in self.values:
                given = [*self.values[name][: ITEMS_MAX + 1], *self.grown.get(name, [])[: ITEMS_MAX + 1]]
                return self._worst(given, depth)
            case ast.Name(id=name):
                return "constant" if name.isupper() or "placeholder" in name.lower() else "unknown"
            case ast.Attribute():
                return "constant" if node.attr.isupper() else "unknown"
            case ast.List() | ast.Tuple() | ast.Set():
                return self._worst(node.elts, depth)
            case ast.JoinedStr():
                parts = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
                return "constant" if self._worst(parts, depth) == "constant" else "built"
            case ast.BinOp():
                sides = [node.left, node.right]
                literal = [side for side in sides if isinstance(side, ast.Constant | ast.List)]
                if isinstance(node.op, ast.Mult) and any(self.kind(side) == "constant" for side in literal):
                    return "constant"  # "?" * n
                return "constant" if self._worst(sides, depth) == "constant" else "built"
            case ast.IfExp():
                return self._worst([node.body, node.orelse], depth)
            case ast.ListComp() | ast.GeneratorExp():
                return self.kind(node.elt, depth + 1)
            case ast.Call() if last_of(node.func) in _SAFE_CALLS:
                return "constant"
            case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in (*_BUILDS, "strip", "lower"):
                kind = self._worst([value, *node.args, *(item.value for item in node.keywords)], depth)
                return "built" if kind != "constant" and attr in _BUILDS else kind
        return "unknown"

    def _worst(self, nodes: list[ast.expr], depth: int) -> Built:
        kinds = {self.kind(node, depth + 1) for node in nodes[:ITEMS_MAX]}
        if "built" in kinds:
            return "built"
        return "unknown" if "unknown" in kinds or len(nodes) > ITEMS_MAX else "constant"

    def text(self, node: ast.expr) -> str:
        """The visible fixed beginning of a built string."""
        for _ in range(200):
            if isinstance(node, ast.BinOp):
                node = node.left
                if isinstance(node, ast.Constant) and node.value == "":
                    return "select "  # built by +=: its beginning is elsewhere
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                # " ".join(words) begins with the first word, not with the separator.
                words = self.items(node.args[0]) if node.func.attr == "join" and node.args else []
                node = words[0] if words else node.func.value
            elif isinstance(node, ast.JoinedStr) and node.values:
                node = node.values[0]
            elif isinstance(node, ast.Name) and node.id in self.values:
                node = self.values[node.id][0]
            else:
                break
        return node.value[:200] if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def keyword(call: ast.Call, name: str, names: NameFacts | None = None) -> ast.expr | None:
    """The value of a keyword argument, if it is given: by itself, or in a visible ``**`` mapping."""
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
    """The text of a literal, or of several that are added: a key in two halves is a key."""
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
