"""Finds calls and settings in Python that let an attacker in. Knows syntax trees; runs and fetches nothing.

It judges what the linters cannot: whether what reaches a shell, a database or ``eval`` is built while the
program runs. Names are followed within what is visible; a name in capitals counts as a constant.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from council.agents.checks import dotted
from council.agents.fragments import Piece
from council.agents.personal import words
from council.agents.secrets import find_tokens, named_secret

Risk = Literal["low", "med", "high"]
Built = Literal["constant", "unknown", "built"]

FOLLOWED_MAX = 8  # names of names; more is a circle or a puzzle
DEPTH_MAX = 100  # of operations in operations: Python itself stops at some hundreds
PARTS_MAX = 20  # of a text that is put together from literals
KEY_CHARS_MIN = 16  # shorter texts hold no key that shows by itself

_SQL = re.compile(
    r"\s*(select|insert|update|delete|drop|alter|create|truncate|replace|merge|with|grant|call|exec|pragma)\s",
    re.IGNORECASE,
)  # fmt: skip
_SQL_SINKS = {"execute", "executemany", "executescript", "raw", "text", "read_sql", "read_sql_query", "fetch"}
_SQL_SINKS |= {"fetchrow", "fetchval", "execute_sql", "RawSQL", "mogrify", "exec_driver_sql"}
_SUBPROCESS = {"run", "call", "Popen", "check_call", "check_output"}
_SHELLS = {
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "commands.getoutput",
}
_SHELLS |= {"asyncio.create_subprocess_shell", "create_subprocess_shell", "popen2.popen2"}
_SAFE_CALLS = {"int", "float", "len", "bool", "abs", "round", "quote", "hash", "ord"}  # quote: shlex.quote
_PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal"}
_SAFE_YAML = re.compile(r"(^|\.)C?(Safe|Base)Loader$")
_SWITCHES = ("verify", "verify_ssl", "verify_certs", "check_hostname", "ssl_verify", "verify_signature")
_CALLS_WITH_SSL = words(
    "get post put patch delete head options request ws_connect TCPConnector ClientSession"
)
_FOREIGN = re.compile(
    r"(?i)(request|body|payload|recv|sock|upload|message|cookie|input|param|remote|client|data)"
)


@dataclass(frozen=True, slots=True)
class Danger:
    """One dangerous spot. ``key`` is the same for the same code wherever it stands."""

    line: int
    end_line: int
    rule: str
    message: str
    risk: Risk
    sure: bool
    key: str


def fresh_dangers(
    old: Sequence[Piece], new: Sequence[Piece], *, is_test: Callable[[str], bool]
) -> Iterator[tuple[Piece, int, Danger]]:
    """What the new pieces of a change hold and the old ones did not, each with its piece and the file's line."""
    inherited = Counter(danger.key for piece in old for danger in dangers(piece.tree, is_test=False))
    for piece in new:
        for danger in dangers(piece.tree, is_test=is_test(piece.path)):
            line = piece.line_of(danger.line, danger.end_line)
            if inherited[danger.key] > 0:
                inherited[danger.key] -= 1
            elif line:
                yield piece, line, danger


def dangers(tree: ast.Module, *, is_test: bool) -> list[Danger]:
    """The dangerous spots of a tree. In tests they weigh less: their input is the author's own."""
    names = Names(tree)
    found: list[Danger] = []
    for node in ast.walk(tree):
        for rule, message, risk, sure in _judge(node, names):
            if is_test:
                is_code = rule in ("eval", "shell", "sql")
                risk, sure = ("med" if is_code and risk == "high" else "low"), False
            line = getattr(node, "lineno", 0)
            end_line = getattr(node, "end_lineno", None) or line
            found.append(Danger(line, end_line, rule, message, risk, sure, f"{rule}:{ast.dump(node)}"))
    return found


_Verdict = tuple[str, str, Risk, bool]


def _judge(node: ast.AST, names: Names) -> Iterator[_Verdict]:
    if isinstance(node, ast.Call):
        yield from _judge_code(node, names)
        yield from _judge_shell(node, names)
        yield from _judge_sql(node, names)
        yield from _judge_loading(node)
    yield from _judge_certificates(node, names)
    yield from _judge_secrets(node)


def _judge_code(call: ast.Call, names: Names) -> Iterator[_Verdict]:
    name = names.called(call).removeprefix("builtins.").removeprefix("__builtins__.")
    if name in ("eval", "exec") and call.args and name not in names.defined:
        first = call.args[0]
        if isinstance(first, ast.Call) and dotted(first.func) == "compile" and first.args:
            first = first.args[0]
        if names.kind(first) != "constant":
            yield "eval", f"calls {name} on what is no literal", "high", True


def _judge_shell(call: ast.Call, names: Names) -> Iterator[_Verdict]:
    name = names.called(call)
    last = name.rsplit(".", 1)[-1]
    first = call.args[0] if call.args else keyword(call, "args") or keyword(call, "cmd")
    shell = keyword(call, "shell")
    has_shell = isinstance(shell, ast.Constant) and shell.value in (True, 1)
    if first is None:
        if has_shell:
            yield "shell", "sets shell=True for a command that is not in sight", "med", False
        return
    if name in _SHELLS:
        kind = names.kind(first)
        if kind != "constant":
            yield "shell", f"hands {last} a command that is no literal", "high", True
        return
    if has_shell and names.kind(first) != "constant":
        is_known = name.startswith("subprocess.") or last in _SUBPROCESS
        yield (
            "shell",
            f"{last}(…, shell=True) with a command that is no literal",
            "high" if is_known else "med",
            is_known,
        )


def _judge_sql(call: ast.Call, names: Names) -> Iterator[_Verdict]:
    last = names.called(call).rsplit(".", 1)[-1]
    if last not in _SQL_SINKS or not call.args:
        return
    query = names.resolve(call.args[0])
    if isinstance(query, ast.Call) and dotted(query.func).rsplit(".", 1)[-1] in _SQL_SINKS:
        return  # text(...) inside execute(...) is judged by itself
    text = names.text(query)
    if last in ("text", "raw", "fetch") and not text.lstrip()[:4].isupper():
        return  # these names are also those of labels and pages, whose words are not in capitals
    if names.kind(query) == "built" and _SQL.match(text):
        yield "sql", "builds SQL from a string, so that its input can change the statement", "high", True


def _judge_loading(call: ast.Call) -> Iterator[_Verdict]:
    name = dotted(call.func)
    module, _, last = name.rpartition(".")
    if module in _PICKLES and last in ("load", "loads", "Unpickler") and call.args:
        is_foreign = bool(_FOREIGN.search(ast.unparse(call.args[0])[:400]))
        what = "from outside" if is_foreign else "whose origin is not visible"
        yield "pickle", f"{name} of data {what} can run any code", "high" if is_foreign else "med", is_foreign
    if module in ("yaml", "ruamel.yaml"):
        loader = keyword(call, "Loader") or (call.args[1] if len(call.args) > 1 else None)
        is_safe = loader is not None and bool(_SAFE_YAML.search(dotted(loader)))
        if last in ("unsafe_load", "unsafe_load_all") or (last in ("load", "load_all") and not is_safe):
            yield "yaml", f"{name} without a safe loader can build any object", "high", True


def _judge_certificates(node: ast.AST, names: Names) -> Iterator[_Verdict]:
    message = ""
    if isinstance(node, ast.Call):
        message = _unverified_call(node)
    elif isinstance(node, ast.Assign):
        message = _unverified_setting(node)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
            is_switch = name in _SWITCHES and (name != "verify" or names.speaks_http)
            if is_switch and _is_false(value):
                message = f"{name}: False turns a check of certificates or signatures off"
    if message:
        yield "certificate", message, "high", True


def _unverified_call(node: ast.Call) -> str:
    for name in _SWITCHES:
        if _is_false(keyword(node, name)):
            return f"{name}=False turns a check of certificates or signatures off"
    if _last(keyword(node, "cert_reqs")) == "CERT_NONE":
        return "cert_reqs=CERT_NONE turns the check of certificates off"
    last = _last(node.func)
    if last in _CALLS_WITH_SSL and _is_false(keyword(node, "ssl")):
        return f"{last}(ssl=False) turns the check of certificates off"
    algorithms = keyword(node, "algorithms")
    listed = algorithms.elts if isinstance(algorithms, ast.List | ast.Tuple | ast.Set) else []
    if last == "decode" and any(isinstance(item, ast.Constant) and item.value == "none" for item in listed):
        return "the algorithm none accepts tokens that nobody signed"
    if last == "_create_unverified_context":
        return "an unverified TLS context accepts any certificate"
    return ""


def _unverified_setting(node: ast.Assign) -> str:
    target = node.targets[0]
    name = _last(target)
    is_switch = isinstance(target, ast.Attribute) and name in ("check_hostname", "verify", "verify_ssl")
    if is_switch and _is_false(node.value):
        return f"{name} = False turns the check of certificates off"
    if name == "verify_mode" and _last(node.value) == "CERT_NONE":
        return "CERT_NONE turns the check of certificates off"
    if _last(node.value) == "_create_unverified_context":
        return "an unverified TLS context accepts any certificate"
    return ""


def _judge_secrets(node: ast.AST) -> Iterator[_Verdict]:
    """A key shows by itself, or by the name it is given; what a name makes likely is no more than that."""
    text = _joined(node) if isinstance(node, ast.Constant | ast.BinOp) else None
    if text is not None:
        if len(text) >= KEY_CHARS_MIN and any(f.grade == "sure" for f in find_tokens(text)):
            yield "secret", "holds a key in plain text", "high", True
        return
    for name, value in _named_strings(node):
        grade = named_secret(name, value)
        if grade == "sure" and not any(finding.grade == "sure" for finding in find_tokens(value)):
            yield "secret", f"holds a key in plain text ({name[:60]})", "high", True
        elif grade == "likely":
            yield "secret", f"may hold a password in plain text ({name[:60]})", "med", False


def _named_strings(node: ast.AST) -> Iterator[tuple[str, str]]:
    pairs: list[tuple[str, ast.AST | None]] = []
    if isinstance(node, ast.Assign):
        pairs = [(_last(target), node.value) for target in node.targets]
    elif isinstance(node, ast.AnnAssign):
        pairs = [(_last(node.target), node.value)]
    elif isinstance(node, ast.keyword):
        pairs = [(node.arg or "", node.value)]
    elif isinstance(node, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else "" for key in node.keys]
        pairs = [(str(key), value) for key, value in zip(keys, node.values, strict=True)]
    for name, value in pairs:
        text = _joined(value)
        if text is not None:
            yield name, text


def _joined(node: ast.AST | None) -> str | None:
    """The text that a literal is, or several that are added: a key in two halves is a key."""
    parts: list[str] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and len(parts) < PARTS_MAX:
        right = _joined(node.right) if isinstance(node.right, ast.Constant) else None
        if right is None:
            return None
        parts.append(right)
        node = node.left
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str | bytes):
        return None
    first = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
    return "".join([first, *reversed(parts)])


# Names and values


class Names:
    """What the visible assignments and imports say of names."""

    def __init__(self, tree: ast.Module) -> None:
        self.values: dict[str, list[ast.expr]] = {}
        self.imported: dict[str, str] = {}
        self.defined: set[str] = set()
        self._kinds: dict[int, Built] = {}  # by id: the nodes live as long as their tree
        self._tree = tree
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
            return f"{self.origin(dotted(node.args[0]))}.{_joined(node.args[1]) or ''}"
        if isinstance(node, ast.Subscript) and dotted(node.value) == "__builtins__":
            return f"builtins.{_joined(node.slice) or ''}"
        return self.origin(dotted(node))

    def resolve(self, node: ast.expr) -> ast.expr:
        """The value a name was given: the worst of those that are visible, or the name itself."""
        for _ in range(FOLLOWED_MAX):
            if not isinstance(node, ast.Name) or not self.values.get(node.id):
                break
            choices = self.values[node.id]
            node = next((value for value in choices if self.kind(value) == "built"), choices[-1])
        return node

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
            return self._worst(self.values[name], depth)
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
        kinds = {self.kind(node, depth + 1) for node in nodes[:64]}
        return (
            "built"
            if "built" in kinds
            else "unknown"
            if "unknown" in kinds or len(nodes) > 64
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
                node = node.func.value
            elif isinstance(node, ast.JoinedStr) and node.values:
                node = node.values[0]
            elif isinstance(node, ast.Name) and node.id in self.values:
                node = self.values[node.id][0]
            else:
                break
        return node.value[:200] if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument, if it is given."""
    return next((item.value for item in call.keywords if item.arg == name), None)


def _last(node: ast.AST | None) -> str:
    return dotted(node).rsplit(".", 1)[-1]


def _is_false(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
