"""Finds calls that a change leaves as they were although the called function became async.

Only what the change shows is judged: a function that it changes, and a call that is on its new side, also in another
file. Python is read as trees, JavaScript and TypeScript line by line.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from council.agents.scan.change import FileChange, short_quote
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.languages import is_test
from council.agents.scan.line_pairs import Pair, is_remark
from council.agents.scan.pieces import Piece
from council.agents.scan.python_checks import dotted

SAME_NAME_MAX = 20  # functions of one name that became async
_Function = ast.FunctionDef | ast.AsyncFunctionDef
# What takes away the value of a call, so that a coroutine in its place is an error.
_USES = (ast.Attribute, ast.Subscript, ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.FormattedValue)


def became_async(old: Sequence[Piece], new: Sequence[Piece]) -> Iterator[Finding]:
    """Calls in Python whose coroutine is dropped or used as a value."""
    before, after = _functions(old), _functions(new)
    changed: dict[str, list[tuple[str, str]]] = {}  # the paths and classes of functions of a name
    for (path, owner, name), now in after.items():
        was = before.get((path, owner, name), [])
        if [*map(type, was), None, *map(type, now)] == [ast.FunctionDef, None, ast.AsyncFunctionDef]:
            changed.setdefault(name, []).append((path, owner))
    named = Counter(name for _, _, name in after)
    for piece in new if changed else ():
        sources = _sources(piece)
        for call in _misused(piece):
            name = dotted(call.func).rpartition(".")[2]
            line = piece.line_of(call.lineno - 1, (call.end_lineno or call.lineno) - 1)
            functions = changed.get(name, ())[:SAME_NAME_MAX]
            # By its name alone, if its import is not shown and the change has no other function of the name.
            is_sole = piece.number(0) != 1 and name not in sources and named[name] == 1
            if line and any(
                _is_call_of(call, piece.path, sources, path, owner)
                or (is_sole and not owner and isinstance(call.func, ast.Name))
                for path, owner in functions
            ):
                message = f"`{name}` became async, and is called here as before. Await it."
                yield Finding("became-async", "bug", "stop", piece.path, line, message, 670)


def _functions(pieces: Sequence[Piece]) -> dict[tuple[str, str, str], list[_Function]]:
    """The functions by path, class and name. A class that a hunk does not show is "?"."""
    found: dict[tuple[str, str, str], list[_Function]] = {}
    for piece in pieces:
        for statement in piece.statements:
            node = statement.node
            if isinstance(node, _Function):
                owner = statement.owners[-1] if statement.owners else "?" if node.col_offset else ""
                found.setdefault((piece.path, owner, node.name), []).append(node)
    return found


def _misused(piece: Piece) -> Iterator[ast.Call]:
    """The calls that are a statement, a condition, a part of an operation, or the value of a name.

    A call that is the value of a name counts only if the name is never awaited.
    """
    nodes = [node for statement in piece.statements for node in (statement.node, *statement.inner)]
    awaited = {
        name.id
        for node in nodes
        if not isinstance(node, _USES)
        for name in ast.iter_child_nodes(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and _may_await(node, name)
    }
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Call() as call):
                yield call
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if name not in awaited:
                yield call
            case ast.If(test=ast.Call() as call) | ast.While(test=ast.Call() as call):
                yield call
            case ast.IfExp(test=ast.Call() as call) | ast.Assert(test=ast.Call() as call):
                yield call
            case _ if isinstance(node, _USES):
                yield from (inner for inner in ast.iter_child_nodes(node) if isinstance(inner, ast.Call))


def _may_await(node: ast.AST, name: ast.Name) -> bool:
    """Whether a node awaits a name, or hands it to code that may."""
    if isinstance(node, ast.Call):
        return name is not node.func and dotted(node.func) not in (
            "bool",
            "str",
            "int",
            "len",
            "print",
            "repr",
        )
    return not isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert | ast.Expr)


def _is_call_of(call: ast.Call, at: str, sources: dict[str, set[str]], path: str, owner: str) -> bool:
    """Whether a call in the file ``at`` certainly calls a function: by its name, its module's name, or ``self``."""
    module = path.rpartition("/")[2].removesuffix(".py")
    match call.func:
        case ast.Name(id=name) if not owner:
            return path == at or module in sources.get(name, ())
        case ast.Attribute(value=ast.Name(id=base)):
            return base in ("self", "cls") and path == at if owner else base == module
    return False


def _sources(piece: Piece) -> dict[str, set[str]]:
    """The last names of the modules that each name is imported from."""
    found: dict[str, set[str]] = {}
    for node in (statement.node for statement in piece.statements):
        if isinstance(node, ast.ImportFrom):
            for item in node.names:
                found.setdefault(item.asname or item.name, set()).add((node.module or "").rpartition(".")[2])
    return found


# Line by line

_SCRIPT = re.compile(r"\.(?:[cm]?[jt]s|[jt]sx|vue|svelte)$")
_NOW_ASYNC = re.compile(
    r".{0,60}\basync\s+(?:function\s+)?(?!function\b)(\w{4,})\s*\(|.{0,60}?(\w{4,})\s*[=:]\s*async\b"
)
_HANDLED = re.compile(
    r"\b(?:await|return|yield|void|async|function|then|catch|finally|Promise|expect|import|export)\b|=>|\bnew\s"
)
# A call whose value decides or is compared, so that a promise in its place is an error.
_USED = re.compile(
    r"\b(?:if|while)\s*\([\s!(]*(?:this\.)?\w+\(|!\s*(?:this\.)?\w+\(|\)\s*(?:[=!]==?|[<>]=?|\?|&&|\|\|)\s"
)


def awaits_gone(changes: Sequence[FileChange], pairs: Sequence[Pair]) -> Iterator[Finding]:
    """Awaits that are taken off, in any language, and calls of JavaScript functions that became async."""
    pairs = [pair for pair in pairs if not is_test(pair.path)]
    if not any("async" in pair.cut and "async" not in pair.put for pair in pairs):
        # A client that is synchronous now has another name. In JavaScript a promise runs without await.
        cut = "\n".join(text for change in changes for _, text in change.removed)
        is_other = re.search(r"(?i)\baio|\w+async|async\w", cut) is not None
        for pair in pairs:
            if pair.cut == ("await",) and not pair.put and not is_remark(pair.new):
                message = f"Awaits no more: {short_quote(pair.new.strip())}. Await it, or say who does."
                returns, is_python = pair.new.lstrip().startswith("return "), pair.path.endswith(".py")
                weight: Weight = "stop" if is_python and not (is_other or returns) else "ask"
                if returns and not is_python:
                    weight = "note"  # the caller awaits it
                yield Finding("await-removed", "bug", weight, pair.path, pair.line, message, 670)
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
            is_used = _USED.search(text) is not None
            is_call = called is not None and called[1] in names and (is_used or text.rstrip()[-1:] != "{")
            if (
                called
                and is_call
                and not (_HANDLED.search(text) or _HANDLED.search(above) or is_remark(text))
            ):
                message = f"`{called[1]}` became async, and is called here as before. Await it."
                weight: Weight = "stop" if is_used else "ask"
                yield Finding("became-async", "bug", weight, change.path, line.new_no or 0, message, 670)
            above = text if text.rstrip().endswith(("(", "[", "=", ",")) else ""
