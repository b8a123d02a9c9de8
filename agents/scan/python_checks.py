"""Finds the checks in a syntax tree, each in one normal form.

A check is a condition that stops the code: ``if not user.is_admin: raise``, an ``assert``, a decorator such as
``@login_required``, a call such as ``verify_signature(...)``. Each is reduced to its *clauses*, so that
``if a or b: raise``, ``if a: raise`` with ``if b: raise``, and ``if not a and not b: go_on()`` are equal.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from council.agents.scan.pieces import Piece
from council.agents.scan.python import Statement
from council.agents.scan.rows import word_set

# Beginnings of words about permissions, and about whether something is genuine.
_STEMS = """acl admin allow auth banned blocked captcha credential csrf denied deny expire forbid hmac internal
logged login loopback owner password permi perms private privil public revoked role signature signed staff superuser
trust unsafe valid verif whitelist"""
AUTH_STEMS = tuple(_STEMS.split())
_NO_AUTHORITY = word_set(
    "author authors authored authority authorities permissive permit"
)  # also a part of a URL
_ACCESS_STEMS = (*AUTH_STEMS, "own", "guard", "access", "scope", "protect", "secure", "restrict")
_DECORATOR_STEMS = (*_ACCESS_STEMS, "require", "ratelimit", "limiter")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_CHECK_CALL = re.compile(
    r"_?(verify|check|validate|authori[sz]e|authenticate|require|ensure|enforce|assert|compare_digest|"
    r"has_perm|is_valid|is_allowed|must_|sanitize|raise_for_status|full_clean)"
)
_ADMITS = re.compile(r"_?(?:authenticate|authori[sz]e|require_\w|ensure_\w)")
_PREDICATE = re.compile(
    r"_?(?:verify|check|validate|is_|has_|can_|may_|authori[sz]e|authenticate|ensure|require)"
)
_STOPPING_CALLS = word_set("abort exit _exit fail deny forbid reject redirect")
_REFUSALS = re.compile(
    r"(?i)(\b4[0-3]\d\b|forbid|denied|deny|unauthor|reject|invalid|not allowed|bad_?request|error)"
)
_SMALL_WORDS = word_set("is not self none len get the of in isinstance cls has any")
_SURROUNDINGS = word_set("version platform python")  # a check of these protects nothing of the user's
NEIGHBOURS_MAX = 8  # statements before and after a check that identify its place
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.Is: ast.IsNot, ast.In: ast.NotIn,
}  # fmt: skip
_INVERSE = _OPPOSITES | {other: side for side, other in _OPPOSITES.items()}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(eq=False)
class Check:
    """One clause of a check. ``node`` is the clause, the decorator or the call, ``whole`` what is shown of it."""

    kind: str  # guard, assert, decorator or call
    node: ast.expr
    whole: ast.expr
    line: int
    is_plain: bool  # it is certainly a check, not a call for its value or an assert for the type checker
    after: tuple[ast.stmt, ...] = ()  # the identifying statements after it
    before: tuple[ast.stmt, ...] = ()
    owners: tuple[str, ...] = ()  # the functions and classes around it, innermost last
    path: str = ""
    raises: str = ""  # the exception, if it raises one
    refuses: bool = True  # False: it only ends its block early
    is_implied: bool = False  # it is the condition that avoids a refusal below it, and may be removed

    @cached_property
    def key(self) -> str:
        """Its normal form."""
        return {"decorator": "@", "call": "call "}.get(self.kind, "") + ast.dump(self.node)

    @cached_property
    def words(self) -> frozenset[str]:
        """The words in it."""
        return words_of(self.node)

    @property
    def is_condition(self) -> bool:
        return self.kind in ("guard", "assert")

    @cached_property
    def inverse(self) -> str:
        """The normal form of the opposite condition."""
        return ast.dump(_negated(self.node)) if self.is_condition else ""

    @cached_property
    def parts(self) -> frozenset[str]:
        """The normal forms of the conjuncts of a condition."""
        parts = self.node.values if isinstance(self.node, ast.BoolOp) else [self.node]
        return frozenset(map(ast.dump, parts)) if self.is_condition else frozenset()

    @property
    def function(self) -> str:
        """The innermost function or class around it; "" if none is visible."""
        return self.owners[-1] if self.owners else ""

    @property
    def shown(self) -> str:
        """Its text, shortened."""
        text = " ".join(ast.unparse(self.whole).split())
        text = text if len(text) <= 80 else text[:79] + "…"
        return {"guard": f"if {text}: …", "assert": f"assert {text}", "decorator": f"@{text}"}.get(
            self.kind, text
        )

    @property
    def subject(self) -> str:
        """The one name whose presence it tests, if that is all: ``x`` of ``x is None`` and ``not x``."""
        match self.node:
            case ast.Compare(left=left, ops=[ast.Is(), *_], comparators=[ast.Constant(value=None), *_]):
                return dotted(left)
            case ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name)):
                return name
        return ""

    @property
    def is_gate(self) -> bool:
        """Whether it is a decorator that controls access, by its name."""
        return self.kind == "decorator" and any(word.startswith(_ACCESS_STEMS) for word in self.words)


def checks_of(piece: Piece) -> Iterator[Check]:
    """All checks of a piece, with the lines of its file."""
    for block in piece.tree.blocks if piece.tree else ():
        body = [statement.node for statement in block]
        for at, statement in enumerate(block):
            node, owners = statement.node, statement.owners
            found, rest = (
                list(_checks_of(statement, body[at + 1 : at + 2])),
                tuple(body[at + 1 : at + 1 + NEIGHBOURS_MAX]),
            )
            for check in found:
                check.line, check.path = piece.line_of(check.line - 1, check.line - 1), piece.path
                check.before = tuple(body[max(0, at - NEIGHBOURS_MAX) : at])
                if check.kind == "decorator" and isinstance(node, Function | ast.ClassDef):
                    check.owners = (*owners, node.name)
                else:
                    check.owners, check.after = owners, rest + check.after
            yield from (check for check in found if check.line)


def hollow(function: Function) -> bool:
    """Whether a function returns true, or nothing, before it has examined anything."""
    body = (node for node in function.body if not isinstance(node, ast.Pass) and not _is_remark(node))
    match next(body, None):
        case None | ast.Return(value=None) | ast.Return(value=ast.Constant(value=True | 1 | None)):
            return True
    return False


def _is_remark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def decides(function: Function) -> bool:
    """Whether a function decides who may do what, or whether something is genuine, by its name and body."""
    is_named = _PREDICATE.match(function.name) is not None
    return is_named and speaks_of_authority(split(function.name) | words_of(function))


def _checks_of(statement: Statement, following: Sequence[ast.stmt]) -> Iterator[Check]:
    node = statement.node
    if isinstance(node, ast.If):
        yield from _conditions(node, following)
    elif isinstance(node, ast.Assert):
        is_narrowing = _is_narrowing(node.test)
        for clause in _clauses(_negated(node.test)):
            yield Check("assert", clause, node.test, node.lineno, not is_narrowing)
    elif isinstance(node, Function | ast.ClassDef):
        for decorator in node.decorator_list:
            name = decorator.func if isinstance(decorator, ast.Call) else decorator
            if any(word.startswith(_DECORATOR_STEMS) for word in words_of(name)):
                body = tuple(node.body[:NEIGHBOURS_MAX])
                yield Check("decorator", decorator, decorator, decorator.lineno, True, body)
    for call in checking_calls(node, statement.inner):
        # A check whose result is dropped can only serve to stop the code.
        called = dotted(call.func)
        is_statement = isinstance(node, ast.Expr) and "raise_for_status" not in called
        is_statement |= isinstance(node, ast.Assign) and bool(_ADMITS.match(called.rpartition(".")[2]))
        yield Check("call", call, call, call.lineno, is_statement)


def _conditions(node: ast.If, following: Sequence[ast.stmt]) -> Iterator[Check]:
    """``if bad: raise`` and ``if good: go_on()`` both stop the code if it is bad."""
    words = words_of(node.test)
    if words & _SURROUNDINGS:
        return
    is_auth = speaks_of_authority(words)
    stops, refuses = how_it_ends(node.body)
    if stops and (refuses or is_auth):
        yield from _guards(node, _clauses(node.test), node.orelse, refuses=refuses)
    elif not stops and (how_it_ends(node.orelse)[1] or is_auth) and not isinstance(node.body[0], ast.Pass):
        yield from _guards(node, _clauses(_negated(node.test)), node.body)
    if stops and not refuses and not node.orelse and how_it_ends(following)[1]:
        # "if good: return it", followed by a refusal, stops the code if it is bad.
        yield from _guards(node, _clauses(_negated(node.test)), node.body, is_implied=True)


def _guards(
    node: ast.If,
    clauses: Iterable[ast.expr],
    after: Sequence[ast.stmt],
    *,
    refuses: bool = True,
    is_implied: bool = False,
) -> Iterator[Check]:
    last = node.body[-1]
    raised = last.exc if isinstance(last, ast.Raise) else None
    raises = dotted(raised.func if isinstance(raised, ast.Call) else raised)
    for clause in clauses:
        check = Check("guard", clause, node.test, node.lineno, True, tuple(after), raises=raises)
        check.refuses, check.is_implied = refuses, is_implied
        yield check


def how_it_ends(body: Sequence[ast.stmt]) -> tuple[bool, bool]:
    """Whether a block stops the code, and whether that is certainly a refusal."""
    match body[-1] if body else None:
        case ast.Raise():
            return True, True
        case ast.Return(value=value):
            return True, value is not None and bool(_REFUSALS.search(ast.unparse(value)[:80]))
        case ast.Expr(value=ast.Call(func=called)):
            is_stopping = dotted(called).rsplit(".", 1)[-1] in _STOPPING_CALLS
            return is_stopping, is_stopping
        case ast.Continue():
            return True, False
    return False, False


def checking_calls(node: ast.stmt, inner: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """Checking calls among the nodes of a statement."""
    if isinstance(node, ast.If | ast.Assert | ast.With | ast.AsyncWith | Function | ast.ClassDef):
        return  # a condition is a clause already, and a definition's decorators are handled elsewhere
    for call in (each for each in inner if isinstance(each, ast.Call)):
        name = dotted(call.func).rsplit(".", 1)[-1]
        if _CHECK_CALL.match(name):
            yield call


def _is_narrowing(test: ast.expr) -> bool:
    """`assert x is not None` and `assert isinstance(x, T)` are mostly there for the type checker."""
    match test:
        case ast.Compare(ops=[ast.IsNot(), *_], comparators=[ast.Constant(value=None), *_]):
            return True
    return isinstance(test, ast.Call) and dotted(test.func) == "isinstance"


# Normal forms


def _clauses(test: ast.expr) -> Iterator[ast.expr]:
    """The parts of a condition's top-level ``or``, each of which stops the code."""
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


def dotted(node: ast.AST | None) -> str:
    """``a.b.c`` of a name or attribute, without a base that is not a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def names_in(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The names and attributes among them."""
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name


def split(name: str) -> frozenset[str]:
    """The words of a name, in lower case."""
    return frozenset(word.lower() for word in _WORD.findall(name[:200]))


def words_of(node: ast.AST) -> frozenset[str]:
    """The words of all names and short texts in an expression, without those that have no meaning."""
    nodes = list(ast.walk(node))
    texts = (inner.value for inner in nodes if isinstance(inner, ast.Constant))
    names = [*names_in(nodes), *(text for text in texts if isinstance(text, str) and len(text) <= 40)]
    return frozenset(word for name in names for word in split(name)) - _SMALL_WORDS


def speaks_of_authority(words: Iterable[str]) -> bool:
    """Whether one of the words is about permissions, or about whether something is genuine."""
    return any(word.startswith(AUTH_STEMS) and word not in _NO_AUTHORITY for word in words)
