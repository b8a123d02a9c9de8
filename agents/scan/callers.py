"""Finds what a change breaks for the callers of its functions, also in other files of the change.

Only what the change shows is judged: a function that it changes, and a call that is on its new side. Python is read
as trees, JavaScript and TypeScript line by line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from council.agents.scan.change import FileChange, short_quote
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.languages import is_test
from council.agents.scan.line_pairs import Pair, is_remark
from council.agents.scan.personal import words
from council.agents.scan.python import PythonPiece
from council.agents.scan.python_checks import dotted, names_in

CALLS_MAX = 50  # of one function that are judged
_Parents = dict[ast.AST, ast.AST]
_Function = ast.FunctionDef | ast.AsyncFunctionDef
# What a coroutine may be handed to, and what drives a generator.
_DRIVES = words(
    """run create_task ensure_future gather wait wait_for shield run_until_complete run_coroutine_threadsafe
    start_soon spawn Task run_sync async_to_sync list tuple set sorted next iter sum any all max min enumerate zip map
    filter dict join chain from_iterable extend islice deque update writelines contextmanager
    asynccontextmanager partial"""
)
_PLAIN_CALLS = words("bool str int len print repr isinstance format float type")
# Methods of many classes: an attribute of such a name says nothing about its class.
_COMMON = words(
    """send_all read_all from_dict to_dict from_json to_json get_all __init__ set_up tear_down as_dict as_view"""
)


@dataclass(frozen=True, slots=True)
class _Signature:
    """What a call must fit: the names of the parameters, and how many may and must be given."""

    positional: tuple[str, ...]
    keywords: frozenset[str]
    required: frozenset[str]
    has_args: bool
    has_kwargs: bool


@dataclass(frozen=True, slots=True)
class _Defined:
    piece: PythonPiece
    node: _Function
    owner: str  # the class around it, or ""


def findings(old: Sequence[PythonPiece], new: Sequence[PythonPiece]) -> Iterator[Finding]:
    """Calls of the old kind of functions that became another kind, and names that the change takes away."""
    before, after = _defined(old), _defined(new)
    changed = [
        (before[key][0].node, found[0])
        for key, found in after.items()
        if len(found) == len(before.get(key, ())) == 1 and _differs(before[key][0].node, found[0].node)
    ]
    if changed:
        shown = _Shown(new, {now.node.name for _, now in changed})
        for was, now in changed:
            for piece, call, parents in islice(shown.calls_of(now), CALLS_MAX):
                yield from _judge_call(was, now, piece, call, parents)
    yield from _names_gone(old, new)


def _defined(pieces: Sequence[PythonPiece]) -> dict[tuple[str, str, str], list[_Defined]]:
    found: dict[tuple[str, str, str], list[_Defined]] = {}
    for piece in pieces:
        pending: list[tuple[str, ast.AST]] = [("", piece.tree)]
        while pending:
            owner, node = pending.pop()
            for inner in ast.iter_child_nodes(node):
                if isinstance(inner, _Function):
                    is_inner = not owner and inner.col_offset > 0  # the class around it is out of sight
                    known = _Defined(piece, inner, owner or ("?" if is_inner else ""))
                    found.setdefault((piece.path, known.owner, inner.name), []).append(known)
                elif isinstance(inner, ast.ClassDef):
                    pending.append((inner.name, inner))
                elif isinstance(inner, ast.stmt):
                    pending.append((owner, inner))
    return found


def _differs(was: _Function, now: _Function) -> bool:
    kinds = type(was) is not type(now) or _yields(was) != _yields(now)
    return (kinds or _signature(was) != _signature(now)) and not any(
        "overload" in names_in(decorator) or "property" in names_in(decorator)
        for decorator in now.decorator_list
    )


def _yields(function: _Function) -> bool:
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, _Function | ast.Lambda | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(node))
    return False


def _signature(function: _Function) -> _Signature:
    given = function.args
    positional = [item.arg for item in (*given.posonlyargs, *given.args)]
    optional = positional[len(positional) - len(given.defaults) :]
    only = [item.arg for item in given.kwonlyargs]
    needed = [name for name, value in zip(only, given.kw_defaults, strict=True) if value is None]
    required = frozenset(name for name in positional if name not in optional) | frozenset(needed)
    keywords = frozenset([*(item.arg for item in given.args), *only])
    return _Signature(
        tuple(positional), keywords, required, given.vararg is not None, given.kwarg is not None
    )


class _Shown:
    """The calls on the new side of a change, by the last name of what they call."""

    def __init__(self, pieces: Sequence[PythonPiece], wanted: set[str]) -> None:
        self._calls: dict[str, list[tuple[PythonPiece, ast.Call, _Parents]]] = {}
        self._bound: dict[int, set[str]] = {}  # by id of a piece: the names that it assigns
        self._origins: dict[int, dict[str, str]] = {}  # and the modules that it imports names from
        for piece in pieces:
            parents: _Parents = {}
            bound, origins = self._bound[id(piece)], self._origins[id(piece)] = set[str](), dict[str, str]()
            for node in ast.walk(piece.tree):
                parents.update((inner, node) for inner in ast.iter_child_nodes(node))
                match node:
                    case ast.Call() if (name := dotted(node.func).rpartition(".")[2]) in wanted:
                        self._calls.setdefault(name, []).append((piece, node, parents))
                    case ast.Name(id=name, ctx=ast.Store()):
                        bound.add(name)
                    case ast.ImportFrom():
                        module = (node.module or "").rpartition(".")[2]
                        origins.update((item.asname or item.name, module) for item in node.names)

    def calls_of(self, found: _Defined) -> Iterator[tuple[PythonPiece, ast.Call, _Parents]]:
        """The calls that certainly are calls of this function, each with the parents of its piece's nodes."""
        name, path = found.node.name, found.piece.path
        module = path.rpartition("/")[2].removesuffix(".py")
        package = path.rsplit("/", 2)[-2] if "/" in path else ""
        for piece, call, parents in self._calls.get(name, ()):
            is_own = piece.path == path
            match call.func:
                case ast.Name():
                    is_bound = bool(found.owner) or name in self._bound[id(piece)]
                    is_its = is_own or self._origins[id(piece)].get(name) in (module, package)
                    is_its = is_its and not is_bound
                case ast.Attribute(value=ast.Name(id="self" | "cls")) if is_own and found.owner:
                    is_its = _class_of(call, parents) in ("", found.owner)
                case ast.Attribute(value=ast.Name(id=base)) if not found.owner:
                    is_its = base == module
                case ast.Attribute():
                    is_its = bool(found.owner) and is_own and "_" in name.strip("_") and name not in _COMMON
                case _:
                    is_its = False
            if is_its:
                yield piece, call, parents


def _class_of(node: ast.AST, parents: _Parents) -> str:
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.ClassDef):
            return node.name
    return ""


def _judge_call(
    was: _Function, found: _Defined, piece: PythonPiece, call: ast.Call, parents: _Parents
) -> Iterator[Finding]:
    now, line = found.node, piece.line_of(call.lineno, call.end_lineno or call.lineno)
    if not line:
        return
    name = now.name
    became_async = isinstance(now, ast.AsyncFunctionDef) and isinstance(was, ast.FunctionDef)
    if became_async and not _is_driven(call, parents, ast.Await):
        how = "async for" if _yields(now) else "await"
        message = f"`{name}` became async, and is called here as before. Call it with {how}."
        yield Finding("became-async", "bug", "stop", piece.path, line, message, 670)
    became_generator = not became_async and _yields(now) and not (_yields(was) or _is_decorated(now))
    if became_generator and not _is_driven(call, parents, ast.YieldFrom):
        weight: Weight = "stop" if isinstance(parents.get(call), ast.Expr) else "ask"
        message = f"`{name}` became a generator, and is called here as before. Iterate over what it returns."
        yield Finding("became-generator", "bug", weight, piece.path, line, message, 670)
    if why := _misfit(_signature(was), _signature(now), call, bool(found.owner), now):
        message = f"`{name}` changed its parameters, and this call has the old ones: {why}. Adapt the call."
        yield Finding("signature-changed", "bug", "ask", piece.path, line, message, 628)


def _is_decorated(function: _Function) -> bool:
    return any(dotted(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list)


def _is_driven(call: ast.Call, parents: _Parents, by: type[ast.AST]) -> bool:
    """Whether the result is awaited or iterated over, handed on, or returned to a caller that may do so."""
    node: ast.AST = call
    while (above := parents.get(node)) is not None and not isinstance(
        above, _Function | ast.ClassDef | ast.Module
    ):
        match above:
            case ast.Await() | ast.Return() | ast.Lambda() | ast.Yield() | ast.YieldFrom() | ast.Starred():
                return True
            case ast.For(iter=it) | ast.AsyncFor(iter=it) | ast.comprehension(iter=it) if it is node:
                return True
            case ast.Attribute() | ast.Subscript() | ast.Compare() | ast.BinOp() | ast.UnaryOp():
                return False
            case ast.withitem() | ast.Raise():
                return True
            case ast.Assign(targets=[ast.Name(id=name)]) if above.value is node:
                return _is_used_so(name, above, parents)
            case ast.Call() if above is not call and node is not above.func:
                called = dotted(above.func).rsplit(".", 1)[-1]
                return called in _DRIVES or by is ast.Await
            case ast.List() | ast.Tuple() | ast.ListComp() | ast.GeneratorExp() | ast.Dict():
                return True
        node = above
    return False


def _is_used_so(name: str, assigned: ast.AST, parents: _Parents) -> bool:
    """Whether a name that holds a coroutine or generator is used like one anywhere in its function."""
    scope: ast.AST = assigned
    while (above := parents.get(scope)) is not None:
        scope = above
        if isinstance(scope, _Function):
            break
    for node in ast.walk(scope):
        match node:
            case ast.Await(value=ast.Name(id=used)) | ast.For(iter=ast.Name(id=used)) if used == name:
                return True
            case ast.AsyncFor(iter=ast.Name(id=used)) | ast.comprehension(iter=ast.Name(id=used)) if (
                used == name
            ):
                return True
            case ast.Call() if any(isinstance(given, ast.Name) and given.id == name for given in node.args):
                if dotted(node.func) not in _PLAIN_CALLS:
                    return True
            case ast.Return(value=ast.Name(id=used)) if used == name:
                return True
    return False


def _misfit(was: _Signature, now: _Signature, call: ast.Call, is_method: bool, node: _Function) -> str:
    """Why a call fits the old signature and not the new one, or ""."""
    if any(isinstance(item, ast.Starred) for item in call.args) or any(
        item.arg is None for item in call.keywords
    ):
        return ""
    if _is_decorated(node) and not any("staticmethod" in names_in(item) for item in node.decorator_list):
        return ""
    is_bound = is_method and was.positional[:1] in (("self",), ("cls",))
    old, new = _faults(was, call, is_bound), _faults(now, call, is_bound)
    if old or new:
        return new if not old else ""
    same = set(was.positional) == set(now.positional) and was.positional != now.positional
    count = len(call.args) + is_bound
    if same and was.positional[:count] != now.positional[:count]:
        return "the order is another"
    return ""


def _faults(signature: _Signature, call: ast.Call, is_bound: bool) -> str:
    given = len(call.args) + is_bound
    if given > len(signature.positional) and not signature.has_args:
        return f"it takes at most {len(signature.positional) - is_bound} by position"
    named = {item.arg for item in call.keywords if item.arg}
    if (unknown := named - signature.keywords) and not signature.has_kwargs:
        return f"it has no `{min(unknown)}`"
    if missing := signature.required - named - set(signature.positional[:given]):
        return f"it needs `{min(missing)}`"
    return ""


# Line by line

_SCRIPT = re.compile(r"\.(?:[cm]?[jt]s|[jt]sx|vue|svelte)$")
_NOW_ASYNC = re.compile(
    r".{0,60}\basync\s+(?:function\s+)?(?!function\b)(\w{4,})\s*\(|.{0,60}?(\w{4,})\s*[=:]\s*async\b"
)
_HANDLED = re.compile(
    r"\b(?:await|return|yield|void|async|function|then|catch|finally|Promise|expect|import|export)\b|=>|\bnew\s"
)


def awaits_gone(changes: Sequence[FileChange], pairs: Sequence[Pair]) -> Iterator[Finding]:
    """Awaits that are taken off, in any language, and calls of JavaScript functions that became async."""
    pairs = [pair for pair in pairs if not is_test(pair.path)]
    if not any("async" in pair.cut and "async" not in pair.put for pair in pairs):
        for pair in pairs:
            if pair.cut == ("await",) and not pair.put and not is_remark(pair.new):
                message = f"Awaits no more: {short_quote(pair.new.strip())}. Await it, or say who does."
                yield Finding("await-removed", "bug", "ask", pair.path, pair.line, message, 670)
    names = {
        next(name for name in found.groups() if name)
        for pair in pairs
        if pair.put == ("async",) and _SCRIPT.search(pair.path) and (found := _NOW_ASYNC.match(pair.new))
    }
    for change in changes if names else ():
        if _SCRIPT.search(change.path) and change.kind != "deleted":
            yield from _calls_of_async(change, names)


def _calls_of_async(change: FileChange, names: set[str]) -> Iterator[Finding]:
    for hunk in change.hunks:
        above = ""
        for line in (line for line in hunk.lines if line.tag != "-"):
            text = line.text[:500]
            called = re.search(r"(?<![\w.$])(?:this\.)?(\w{4,})\(", text)
            is_call = called is not None and called[1] in names and not text.rstrip().endswith("{")
            if (
                called
                and is_call
                and not (_HANDLED.search(text) or _HANDLED.search(above) or is_remark(text))
            ):
                message = f"`{called[1]}` became async, and is called here as before. Await it."
                yield Finding("became-async", "bug", "ask", change.path, line.new_no or 0, message, 670)
            above = text if text.rstrip().endswith(("(", "[", "=", ",")) else ""


# Names that the change takes away


def _names_gone(old: Sequence[PythonPiece], new: Sequence[PythonPiece]) -> Iterator[Finding]:
    """Names that the change no longer binds at the top of a file, and that a changed or shown line still uses."""
    for path in {piece.path for piece in old if piece.path.endswith(".py")}:
        shown = [piece for piece in new if piece.path == path]
        bound = {name for piece in shown for name in _bound(piece.tree)}
        if "*" in bound or any(
            name in ("globals", "exec") for piece in shown for name in names_in(piece.tree)
        ):
            continue
        gone: dict[str, int] = {}
        for piece in (piece for piece in old if piece.path == path):
            for statement in piece.tree.body:
                number = piece.number(statement.lineno)
                if number in piece.changed and _is_at_margin(piece, statement):
                    gone.update(dict.fromkeys(_bound_here(statement), number))
        used = (
            (piece, node) for piece in shown for node in ast.walk(piece.tree) if isinstance(node, ast.Name)
        )
        for piece, node in used:
            line = piece.number(node.lineno) if node.id in gone and node.id not in bound else 0
            if line and _is_in_sight(piece, node):
                message = f"Uses `{node.id}`, which the change no longer imports or defines. Bring it back."
                yield Finding("name-gone", "bug", "stop", path, line, message, 457)
                gone.pop(node.id)


def _is_at_margin(piece: PythonPiece, statement: ast.stmt) -> bool:
    lines = piece.text.split("\n")
    return statement.lineno <= len(lines) and not lines[statement.lineno - 1][:1].isspace()


def _is_in_sight(piece: PythonPiece, node: ast.Name) -> bool:
    """Whether the scope that uses a name is shown from its start, so that nothing out of sight binds it."""
    if piece.is_whole:
        return True
    for above in piece.tree.body:
        if above.lineno <= node.lineno <= (above.end_lineno or 0):
            return piece.number(above.lineno) > 0 and _is_at_margin(piece, above)
    return False


def _bound_here(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.Import() | ast.ImportFrom():
            yield from (item.asname or item.name.partition(".")[0] for item in statement.names)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                yield name
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name
            case (
                ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef()
            ):
                yield from _bound_here(node)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names


def _uses(node: ast.AST, name: str, line: int) -> bool:
    """Whether the name is used in any case: not in a branch, a lambda or a loop over something that may be empty."""
    if isinstance(
        node, ast.IfExp | ast.BoolOp | ast.Lambda | ast.comprehension | ast.ListComp | ast.GeneratorExp
    ):
        return False
    if isinstance(node, ast.Name) and node.id == name:
        return node.lineno == line and isinstance(node.ctx, ast.Load)
    return any(_uses(inner, name, line) for inner in ast.iter_child_nodes(node))
