"""Finds what a change breaks for the callers of its functions, also in other files of the change.

Only what the change shows is judged: a function that it changes, and a call that is on its new side. Python is read
as trees, JavaScript and TypeScript line by line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from council.agents.scan.diff import FileChange
from council.agents.scan.diff_lines import short_quote
from council.agents.scan.finding import Finding
from council.agents.scan.line_pairs import Pair, is_remark, is_test_file
from council.agents.scan.python import PythonPiece
from council.agents.scan.python_checks import dotted, names_in

_Function = ast.FunctionDef | ast.AsyncFunctionDef
# What a coroutine may be handed to, and what drives a generator.
_DRIVES = frozenset(
    "run create_task ensure_future gather wait wait_for shield run_until_complete run_coroutine_threadsafe start_soon "
    "list tuple set sorted next iter sum any all max min enumerate zip map filter dict join chain from_iterable extend "
    "islice deque update writelines run_sync async_to_sync contextmanager asynccontextmanager partial Task spawn".split()
)
_PLAIN_CALLS = frozenset(
    ("bool", "str", "int", "len", "print", "repr", "isinstance", "format", "float", "type")
)
# Methods of many classes: an attribute of such a name says nothing about its class.
_COMMON = frozenset(
    "get set put pop add run call send read write open close start stop load save update delete create build copy next "
    "items keys values process handle execute connect request fetch main init setup reset parse dispatch".split()
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
    for key, found in after.items():
        was = before.get(key)
        if was is None or len(found) != 1 or len(was) != 1:
            continue
        calls = list(_calls(found[0], new)) if _differs(was[0].node, found[0].node) else []
        for piece, call, parents in calls:
            yield from _judge_call(was[0].node, found[0], piece, call, parents)
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


def _calls(
    found: _Defined, pieces: Sequence[PythonPiece]
) -> Iterator[tuple[PythonPiece, ast.Call, dict[ast.AST, ast.AST]]]:
    """The calls on the new side that certainly call this function: by its name, or by an attribute of that name."""
    name, module = found.node.name, found.piece.path.rsplit("/", 1)[-1].removesuffix(".py")
    for piece in pieces:
        parents = {inner: node for node in ast.walk(piece.tree) for inner in ast.iter_child_nodes(node)}
        is_own = piece.path == found.piece.path
        rebound = {
            node.id for node in parents if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        origins = {
            item.asname or item.name: (node.module or "").rsplit(".", 1)[-1]
            for node in parents
            if isinstance(node, ast.ImportFrom)
            for item in node.names
        }
        for node in parents:
            if not isinstance(node, ast.Call):
                continue
            match node.func:
                case ast.Name(id=called) if called == name and not found.owner and name not in rebound:
                    if is_own or origins.get(name) in (module, _package(found.piece.path)):
                        yield piece, node, parents
                case ast.Attribute(attr=called, value=ast.Name(id=base)) if called == name:
                    is_self = (
                        base in ("self", "cls")
                        and found.owner
                        and is_own
                        and _class_of(node, parents) in ("", found.owner)
                    )
                    if is_self or (not found.owner and base == module):
                        yield piece, node, parents
                case ast.Attribute(attr=called) if called == name and found.owner and "_" in name.strip("_"):
                    if name not in _COMMON and is_own:
                        yield piece, node, parents


def _package(path: str) -> str:
    return path.rsplit("/", 2)[-2] if "/" in path else ""


def _class_of(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> str:
    while node in parents:
        node = parents[node]
        if isinstance(node, ast.ClassDef):
            return node.name
    return ""


def _judge_call(
    was: _Function, found: _Defined, piece: PythonPiece, call: ast.Call, parents: dict[ast.AST, ast.AST]
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
    elif not became_async and _yields(now) and not _yields(was) and not _is_decorated(now):
        if not _is_driven(call, parents, ast.YieldFrom):
            is_sure = isinstance(parents.get(call), ast.Expr)
            message = (
                f"`{name}` became a generator, and is called here as before. Iterate over what it returns."
            )
            yield Finding(
                "became-generator", "bug", "stop" if is_sure else "ask", piece.path, line, message, 670
            )
    if why := _misfit(_signature(was), _signature(now), call, bool(found.owner), now):
        message = f"`{name}` changed its parameters, and this call has the old ones: {why}. Adapt the call."
        yield Finding("signature-changed", "bug", "ask", piece.path, line, message, 628)


def _is_decorated(function: _Function) -> bool:
    return any(dotted(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list)


def _is_driven(call: ast.Call, parents: dict[ast.AST, ast.AST], by: type[ast.AST]) -> bool:
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


def _is_used_so(name: str, assigned: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
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
    """Awaits that are taken off, in any language, and JavaScript functions that became async and are called as before."""
    pairs = [pair for pair in pairs if not is_test_file(pair.path)]
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
            if called and called[1] in names and not (_HANDLED.search(text) or is_remark(text)):
                if not _HANDLED.search(above) and not text.rstrip().endswith("{"):
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
        for piece in shown:
            for node in ast.walk(piece.tree):
                if isinstance(node, ast.Name) and node.id in gone and node.id not in bound:
                    if (line := piece.number(node.lineno)) and _is_in_sight(piece, node):
                        message = (
                            f"Uses `{node.id}`, which the change no longer imports or defines. Bring it back."
                        )
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


def is_surely_used(tree: ast.Module, name: str, line: int) -> bool:
    """Whether the line that uses a name runs on every path through its function, or on import of the module."""
    if any(
        isinstance(node, ast.Name) and node.id in ("globals", "exec", "builtins") for node in ast.walk(tree)
    ):
        return False  # it may define names
    blocks: list[list[ast.stmt]] = [tree.body]
    while blocks:
        for node in blocks.pop():
            if node.lineno > line:
                break
            if isinstance(
                node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.With | ast.AsyncWith
            ):
                blocks.append(node.body)
            elif not hasattr(node, "body") and not isinstance(node, ast.Match):
                if (node.end_lineno or line) >= line:
                    return _uses(node, name, line)
            elif any(isinstance(inner, ast.Return | ast.Raise | ast.Break) for inner in ast.walk(node)):
                break  # the following lines may not be reached
    return False


def _uses(node: ast.AST, name: str, line: int) -> bool:
    """Whether the name is used in any case: not in a branch, a lambda or a loop over something that may be empty."""
    if isinstance(
        node, ast.IfExp | ast.BoolOp | ast.Lambda | ast.comprehension | ast.ListComp | ast.GeneratorExp
    ):
        return False
    if isinstance(node, ast.Name) and node.id == name:
        return node.lineno == line and isinstance(node.ctx, ast.Load)
    return any(_uses(inner, name, line) for inner in ast.iter_child_nodes(node))
