"""Finds checks that a change removes.

A check is removed if it is gone from its function while the code that it protected is still there, unless something
replaces it: a new check on the same subject, or the same check in a helper, decorator, caller or hook of the
function. A function that decided who may do what, and now allows everything, is a removed check too.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from council.agents.scan.personal import words
from council.agents.scan.python import PythonPiece
from council.agents.scan.python_checks import (
    AUTH_STEMS,
    Check,
    checks_of,
    deciders,
    functions_of,
    hollow,
    names_in,
    speaks_of_authority,
    words_of,
)

# Methods that run before all others of their class. A check that is moved there still protects them.
_HOOKS = words("__init__ __post_init__ dispatch initial setup prepare before_request has_permission")
_VALIDATORS = words("validate_call validate_arguments validate_params beartype typechecked")
_PLAIN = words("int float str bytes bool list dict tuple set Any object None Optional")
COMPARED_MAX = (
    4_000_000  # pairs of checks: some seconds; a change with more is refused with the advice to split it
)
_OUT_OF_SIGHT = ""  # the function of a check, if its hunk does not show the function's beginning


@dataclass(frozen=True, slots=True)
class Vanished:
    """A check that is gone. ``sure``: the code that it protected is still there, and nothing replaces it."""

    path: str
    line: int
    shown: str
    kind: str
    sure: bool
    is_access: bool = True


def vanished_checks(old: Sequence[PythonPiece], new: Sequence[PythonPiece]) -> list[Vanished]:
    """The checks of the old pieces that the new ones lack. Pass all pieces of a change, because code may move."""
    before = [check for piece in old for check in checks_of(piece)]
    if not before:
        return _hollowed(old, new)
    after = _NewSide(new)
    found = [_judge(check, after) for check in after.without(before)]
    return [item for item in found if item is not None] + _hollowed(old, new)


def _judge(check: Check, after: _NewSide) -> Vanished | None:
    if after.compared > COMPARED_MAX:
        return Vanished(check.path, check.line, check.shown, check.kind, False)
    if after.stands_in(check) or after.still_tests(check):
        return None
    alive = check.function in after.functions or after.holds(check.path, check.before)
    if check.kind == "decorator":
        survives = check.function in after.functions
    else:
        survives = after.holds("", check.after) or (alive and after.holds_edited(check))
    is_in_sight = bool(check.after or check.function)
    if is_in_sight and not survives and not alive:
        return None  # the protected code is gone too
    sure = survives and check.is_plain
    is_access = speaks_of_authority(check.words) or check.kind == "decorator"
    return Vanished(check.path, check.line, check.shown, check.kind, sure, is_access)


def _hollowed(old: Sequence[PythonPiece], new: Sequence[PythonPiece]) -> list[Vanished]:
    looked = {function.name for piece in old for function in deciders(piece.tree) if not hollow(function)}
    return [
        Vanished(piece.path, number, f"{function.name}(…)", "check", True)
        for piece in new
        for function in functions_of(piece.tree)
        if function.name in looked and hollow(function) and (number := piece.number(function.lineno))
    ]


class _NewSide:
    """The new side of a change: its checks, its statements, and which function names which."""

    def __init__(self, pieces: Sequence[PythonPiece]) -> None:
        self.checks = [check for piece in pieces for check in checks_of(piece)]
        self.functions: dict[str, list[ast.AST]] = {}  # and classes
        self.compared = 0
        self._fresh = [True] * len(self.checks)
        self._words: dict[str, list[frozenset[str]]] = {}  # of the simple statements of a file
        self._names: dict[str, set[str]] = {}  # of a function, and of a file ("\0path"): the names in it
        self._normal: dict[str, set[str]] = {}  # the statements of a file
        for piece in pieces:
            statements = [node for node in ast.walk(piece.tree) if isinstance(node, ast.stmt)]
            simple = (node for node in statements if not hasattr(node, "body"))
            self._normal.setdefault(piece.path, set()).update(map(ast.dump, statements))
            self._words.setdefault(piece.path, []).extend(map(words_of, simple))
            self._names.setdefault("\0" + piece.path, set()).update(names_in(piece.tree))
            for node in statements:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    self.functions.setdefault(node.name, []).append(node)
                    self._names.setdefault(node.name, set()).update(names_in(node))
        trees = (node for piece in pieces for node in ast.walk(piece.tree))
        self._tests = {ast.dump(node.test) for node in trees if isinstance(node, ast.If)}
        self._all = set().union(*self._normal.values())

    def without(self, before: Sequence[Check]) -> list[Check]:
        """Those of ``before`` that are not in a function of the same name any more."""
        places: dict[tuple[str, str], list[int]] = {}
        for at, check in enumerate(self.checks):
            places.setdefault((check.key, check.function), []).append(at)
        gone = []
        for check in before:
            same = places.get((check.key, check.function))
            if same:
                self._fresh[same.pop(0)] = False
            elif check.force != "implied":
                gone.append(check)
        return gone

    def stands_in(self, old: Check) -> bool:
        """Whether another check may replace one that is gone."""
        self.compared += len(self.checks)
        for at, new in enumerate(self.checks):
            is_same = new.key == old.key
            if not (is_same or _replaces(new, old)):
                continue
            if new.function != old.function and self._tied(new, old):
                return True
            if self._fresh[at] and self._may_be_its_place(new, old):
                if is_same:
                    self._fresh[at] = False  # it replaces one check, not two
                return True
        return False

    def _tied(self, new: Check, old: Check) -> bool:
        """Whether a check in another function protects this one too: as a callee, decorator, caller or hook."""
        uses = self._names.get(old.function or "\0" + old.path, set())
        if uses.intersection(new.owners):
            return True
        if old.function and any(old.function in self._names.get(owner, ()) for owner in new.owners):
            return True
        return new.function in _HOOKS and new.owners[:-1] == old.owners[:-1]

    def _may_be_its_place(self, new: Check, old: Check) -> bool:
        if new.function == old.function or old.function not in self.functions:
            return True
        return new.function == _OUT_OF_SIGHT and new.path == old.path

    def still_tests(self, old: Check) -> bool:
        """Whether a condition that refused nothing is still there, with another block."""
        return old.force == "ends" and old.clause is not None and ast.dump(old.clause) in self._tests

    def holds(self, path: str, statements: Sequence[ast.stmt]) -> bool:
        """Whether any of the statements is still in the file; with "", in any file."""
        known = self._normal.get(path, set()) if path else self._all
        return any(ast.dump(statement) in known for statement in statements)

    def holds_edited(self, check: Check) -> bool:
        """Whether a statement of its file has all the words of a protected one, and more."""
        here = self._words.get(check.path, [])
        told = [words for words in map(words_of, check.after) if len(words) >= 2]
        self.compared += len(here) * len(told)
        return any(words <= other for words in told for other in here)


@lru_cache(maxsize=10_000)
def _stems(words: frozenset[str]) -> frozenset[str]:
    return frozenset(stem for stem in AUTH_STEMS if any(word.startswith(stem) for word in words))


def _replaces(new: Check, old: Check) -> bool:
    """Whether a check may replace one that is gone: both have the same subject."""
    if new.key == old.inverse or (old.parts and old.parts < new.parts):
        return False  # it stops in the opposite case, or in fewer cases than the old one
    if new.key.startswith("BoolOp(op=And()") and old.key in new.key:
        return False
    common = new.words & old.words
    if stems := _stems(old.words):
        others = _stems(new.words)
        is_gate = new.kind == "decorator" and new.is_access
        return bool(stems & others) or is_gate or bool(others and common)
    return len(common) * 2 >= len(old.words) > 0 or (new.kind == "call" and bool(common))
