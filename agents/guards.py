"""Finds checks that a change takes away. Knows the syntax trees of both sides, and nothing of files.

A check is a condition under which code does not go on: ``if not user.is_admin: raise``, an ``assert``, a
decorator such as ``@login_required``, a call such as ``verify_signature(...)``. Each is reduced to its
*clauses* in one normal form, so that ``if a or b: raise``, ``if a: raise`` with ``if b: raise``, and
``if not a and not b: go_on()`` say the same. A clause that is gone from the whole change, though the code
it stood before is not, is a deleted check, unless a new check on the same subject takes its place.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from council.agents.fragments import Piece

# Beginnings of words that speak of who may do what, and of whether something is genuine.
_STEMS = """acl admin allow auth banned blocked captcha credential csrf denied deny expire forbid hmac logged
login owner password permi perms privil revoked role signature signed staff superuser trust valid verif
whitelist"""
AUTH_STEMS = tuple(_STEMS.split())
_DECORATOR_STEMS = (*AUTH_STEMS, "require", "protect", "secure", "restrict", "ratelimit", "limiter")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_CHECK_CALL = re.compile(
    r"_?(verify|check|validate|authori[sz]e|authenticate|require|ensure|enforce|assert|compare_digest|"
    r"has_perm|is_valid|is_allowed|must_|sanitize|raise_for_status|full_clean)",
)
_NO_CHECK_CALLS = {"check_output", "check_call", "ensure_future", "assertion", "validator"}
_STOPPING_CALLS = {"abort", "exit", "_exit", "fail", "deny", "forbid", "reject", "redirect"}
_REFUSALS = re.compile(r"(?i)(40[13]|forbid|denied|deny|unauthor|reject|invalid|not allowed|error)")
_SMALL_WORDS = {
    "is",
    "not",
    "self",
    "none",
    "len",
    "get",
    "the",
    "of",
    "in",
    "isinstance",
    "cls",
    "has",
    "any",
}
_SURROUNDINGS = {"version", "platform", "python"}  # a check of these guards nothing of the user's
_INVERSE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True, slots=True)
class Check:
    """One clause of a check. ``key`` is its normal form; ``words`` are what it speaks of."""

    key: str
    kind: str  # guard, assert, decorator or call
    shown: str
    words: frozenset[str]
    line: int
    function: str
    after: tuple[ast.stmt, ...]  # the statements it stands before, as far as they tell something
    inverse: str  # the normal form of the opposite
    is_plain: bool  # it stops the code by a raise, or speaks of authority: surely a check

    @property
    def is_auth(self) -> bool:
        return any(word.startswith(AUTH_STEMS) for word in self.words)


@dataclass(frozen=True, slots=True)
class Vanished:
    """A check that is gone. ``sure``: the code that it guarded is still there, and nothing replaces it."""

    path: str
    line: int
    shown: str
    kind: str
    sure: bool


def vanished_checks(old: Sequence[Piece], new: Sequence[Piece]) -> list[Vanished]:
    """The checks of the old pieces that the new ones lack. Give it all pieces of a change: code moves."""
    before = [(piece, check) for piece in old for check in _checks(piece)]
    after = [check for piece in new for check in _checks(piece)]
    left = Counter(check.key for check in after)
    gone: list[tuple[Piece, Check]] = []
    for piece, check in before:
        if left[check.key] > 0:
            left[check.key] -= 1
        else:
            gone.append((piece, check))
    if not gone:
        return []
    known = Counter(check.key for _, check in before)
    fresh: list[Check] = []
    for check in after:
        if known[check.key] > 0:
            known[check.key] -= 1
        else:
            fresh.append(check)
    statements = {
        _normal(node) for piece in new for node in ast.walk(piece.tree) if isinstance(node, ast.stmt)
    }
    functions = {name for piece in new for name in _function_names(piece.tree)}
    found: list[Vanished] = []
    for piece, check in gone:
        if any(_replaces(other, check) for other in fresh):
            continue
        survives = any(_normal(statement) in statements for statement in check.after)
        if check.kind == "decorator":
            survives = check.function in functions
        is_in_sight = bool(check.after or check.function)
        if is_in_sight and not survives and check.function not in functions:
            continue  # what it guarded is gone too
        found.append(Vanished(piece.path, check.line, check.shown, check.kind, survives and check.is_plain))
    return found


def _replaces(new: Check, old: Check) -> bool:
    """Whether a check that is new may stand for one that is gone: it speaks of the same subject."""
    if new.key == old.inverse:
        return False
    if new.key.startswith("BoolOp(op=And()") and old.key in new.key:
        return False  # it stops in fewer cases than the old one did
    common = new.words & old.words
    if old.is_auth:
        stems = {stem for stem in AUTH_STEMS if any(word.startswith(stem) for word in old.words)}
        shares_stem = any(word.startswith(tuple(stems)) for word in new.words)
        return shares_stem or (new.is_auth and (bool(common) or new.kind == "decorator"))
    return len(common) * 2 >= len(old.words) > 0 or (new.kind == "call" and bool(common))


# What the checks of a tree are


def _checks(piece: Piece) -> Iterator[Check]:
    for function, body in _bodies(piece.tree):
        for at, node in enumerate(body):
            rest = _telling(body[at + 1 : at + 9])
            for check in _checks_of(node, function, rest):
                number = piece.number(check.line)
                if number:
                    yield replace(check, line=number)


def _checks_of(node: ast.stmt, function: str, rest: tuple[ast.stmt, ...]) -> Iterator[Check]:
    if isinstance(node, ast.If):
        yield from _conditions(node, function, rest)
    elif isinstance(node, ast.Assert):
        is_narrowing = _is_narrowing(node.test)
        for clause in _clauses(_negated(node.test)):
            yield _check(
                clause, "assert", "assert " + _shown(node.test), node, function, rest, not is_narrowing
            )
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        body = _telling(node.body[:8])
        for decorator in node.decorator_list:
            name = decorator.func if isinstance(decorator, ast.Call) else decorator
            words = _words(decorator)
            if any(word.startswith(_DECORATOR_STEMS) for word in _words(name)):
                key = f"@{_normal(decorator)}"
                text = "@" + _shown(decorator)
                yield Check(key, "decorator", text, words, decorator.lineno, node.name, body, "", True)
    for call in _check_calls(node):
        is_statement = isinstance(node, ast.Expr) and "raise_for_status" not in _called(call)
        text = _shown(call)
        words = _words(call)
        # A check whose answer is thrown away can only be there to stop the code.
        yield Check(
            f"call {_normal(call)}", "call", text, words, call.lineno, function, rest, "", is_statement
        )


def _conditions(node: ast.If, function: str, rest: tuple[ast.stmt, ...]) -> Iterator[Check]:
    """``if bad: raise`` and ``if good: go_on()`` both forbid to go on when it is bad."""
    text = _shown(node.test)
    words = _words(node.test)
    if words & _SURROUNDINGS:
        return
    stops, refuses = _stops(node.body)
    else_stops, else_refuses = _stops(node.orelse)
    if stops:
        after = rest + _telling(node.orelse)
        is_plain = refuses or _speaks_of_authority(words)
        if is_plain:
            for clause in _clauses(node.test):
                yield _check(clause, "guard", f"if {text}: …", node, function, after, True)
    elif else_stops or _speaks_of_authority(words):
        after = _telling(node.body)
        is_plain = else_refuses or _speaks_of_authority(words)
        if is_plain and after:
            for clause in _clauses(_negated(node.test)):
                yield _check(clause, "guard", f"if {text}: …", node, function, after, True)


def _check(
    clause: ast.expr,
    kind: str,
    text: str,
    node: ast.stmt,
    function: str,
    after: tuple[ast.stmt, ...],
    is_plain: bool,
) -> Check:
    key = _normal(clause)
    inverse = _normal(_negated(clause))
    return Check(key, kind, text, _words(clause), node.lineno, function, after, inverse, is_plain)


def _stops(body: Sequence[ast.stmt]) -> tuple[bool, bool]:
    """Whether a block ends the code's run, and whether it surely does so as a refusal."""
    if not body:
        return False, False
    last = body[-1]
    if isinstance(last, ast.Raise):
        return True, True
    if isinstance(last, ast.Return):
        text = _shown(last.value) if last.value is not None else ""
        return True, bool(_REFUSALS.search(text[:400]))
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        is_stopping = _called(last.value).rsplit(".", 1)[-1] in _STOPPING_CALLS
        return is_stopping, is_stopping
    return isinstance(last, ast.Continue), False


def _check_calls(node: ast.stmt) -> Iterator[ast.Call]:
    """Calls of this one statement, not of the blocks in it, that check something."""
    if isinstance(node, ast.If | ast.Assert):
        return  # its condition is a clause already
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for value in (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)):
        for inner in ast.walk(value):
            if isinstance(inner, ast.Call):
                name = _called(inner).rsplit(".", 1)[-1]
                if _CHECK_CALL.match(name) and name not in _NO_CHECK_CALLS:
                    yield inner


def _is_narrowing(test: ast.expr) -> bool:
    """`assert x is not None` and `assert isinstance(x, T)` are mostly there for the type checker."""
    if isinstance(test, ast.Compare):
        return isinstance(test.ops[0], ast.IsNot) and _shown(test.comparators[0]) == "None"
    return isinstance(test, ast.Call) and _called(test) == "isinstance"


def _telling(statements: Sequence[ast.stmt]) -> tuple[ast.stmt, ...]:
    """Those by which one can tell whether the guarded code is still there: not `pass` or `return None`."""
    return tuple(
        node
        for node in statements
        if not isinstance(node, ast.Pass | ast.Continue | ast.Break)
        and not (
            isinstance(node, ast.Return) and (node.value is None or isinstance(node.value, ast.Constant))
        )
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    )


# Normal forms


def _clauses(test: ast.expr) -> Iterator[ast.expr]:
    """What a condition stops at, each by itself: the parts of its top-level ``or``."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        for value in test.values:
            yield from _clauses(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _negated(test.operand)
        if isinstance(inner, ast.UnaryOp):
            yield inner
        else:
            yield from _clauses(inner)
    else:
        yield test


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.BoolOp):
        flipped: ast.boolop = ast.And() if isinstance(test.op, ast.Or) else ast.Or()
        return ast.BoolOp(flipped, [_negated(value) for value in test.values])
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return ast.Compare(test.left, [_INVERSE[type(test.ops[0])]()], test.comparators)
    return ast.UnaryOp(ast.Not(), test)


def _normal(node: ast.AST) -> str:
    return ast.dump(node)


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 80 else text[:79] + "…"


def _called(call: ast.Call) -> str:
    """The dotted name that is called, as far as it is one."""
    parts: list[str] = []
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def _words(node: ast.AST) -> frozenset[str]:
    """The words of all names in an expression, in lower case, without those that say nothing."""
    names: list[str] = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            names.append(inner.id)
        elif isinstance(inner, ast.Attribute):
            names.append(inner.attr)
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str) and len(inner.value) <= 40:
            names.append(inner.value)
    words = {word.lower() for name in names for word in _WORD.findall(name[:200])}
    return frozenset(word for word in words if word not in _SMALL_WORDS)


def _speaks_of_authority(words: Iterable[str]) -> bool:
    return any(word.startswith(AUTH_STEMS) for word in words)


def _function_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def _bodies(tree: ast.Module) -> Iterator[tuple[str, list[ast.stmt]]]:
    """All blocks of statements, each with the name of the function around it ("" where none is seen)."""
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        function, node = pending.pop()
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            if block and isinstance(block[0], ast.stmt):
                yield function, block
            for inner in block:
                is_function = isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
                pending.append((inner.name if is_function else function, inner))
