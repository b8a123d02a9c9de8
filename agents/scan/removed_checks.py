"""Finds checks that a change removes.

A check is removed if it is gone from its function while the code that it protected is still there, unless something
replaces it: a new check on the same subject, or the same check in a helper, decorator, caller or hook of the
function. A function that decided who may do what, and now allows everything, is a removed check too.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from council.agents.scan.python import PythonPiece
from council.agents.scan.python_checks import (
    AUTH_STEMS,
    Check,
    checks_of,
    deciders,
    dotted,
    functions_of,
    hollow,
    names_in,
    speaks_of_authority,
    words_of,
)

COMPARED_MAX = 4_000_000  # pairs of checks: some seconds; in a change with more, each check is only named
_FILE = "\0"  # before a path, where functions are kept by name


@dataclass(frozen=True, slots=True)
class Vanished:
    """A check that is gone. ``sure``: the code that it protected is still there, and nothing replaces it."""

    path: str
    line: int
    shown: str
    kind: str
    sure: bool


def vanished_checks(old: Sequence[PythonPiece], new: Sequence[PythonPiece]) -> list[Vanished]:
    """The checks of the old pieces that the new ones lack. Pass all pieces of a change, because code may move."""
    before = [check for piece in old for check in checks_of(piece)]
    if not before:
        return _hollowed(old, new)
    after, lost = _NewSide(new), _imports(old) - _imports(new)
    gone = [check for check in after.without(before) if not _lost_its_library(check, lost)]
    if len(gone) * len(after.checks) > COMPARED_MAX:
        return [Vanished(check.path, check.line, check.shown, check.kind, False) for check in gone]
    found = [_judge(check, after) for check in gone]
    return [item for item in found if item is not None] + _hollowed(old, new)


def _judge(check: Check, after: _NewSide) -> Vanished | None:
    if after.stands_in(check) or after.still_tests(check):
        return None
    alive = check.function in after.functions or after.holds(check.path, check.before, any)
    if check.kind == "decorator":
        survives = check.function in after.functions
    else:
        survives = bool(check.after) and (
            after.holds("", check.after, all if alive else any) or (alive and after.holds_edited(check))
        )
    if not survives and not alive and (check.after or check.function):
        return None  # the protected code is gone too
    return Vanished(
        check.path,
        check.line,
        check.shown,
        check.kind,
        survives and check.is_plain and not after.gets_anew(check),
    )


def _imports(pieces: Sequence[PythonPiece]) -> set[str]:
    nodes = (node for piece in pieces for node in ast.walk(piece.tree))
    imports = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    return {(item.asname or item.name).partition(".")[0] for node in imports for item in node.names}


def _lost_its_library(check: Check, gone: set[str]) -> bool:
    """Whether a check that concerns no permissions uses an import that the change removes."""
    if check.clause is None or speaks_of_authority(check.words):
        return False
    return not gone.isdisjoint(names_in(check.clause))


def _hollowed(old: Sequence[PythonPiece], new: Sequence[PythonPiece]) -> list[Vanished]:
    looked = {function.name for piece in old for function in deciders(piece.tree) if not hollow(function)}
    return [
        Vanished(piece.path, number, f"{function.name}(…)", "check", True)
        for piece in new
        for function in functions_of(piece.tree)
        if function.name in looked
        and hollow(function)
        and (number := piece.number(function.lineno))
        and piece.changed.intersection(
            range(number, number + (function.end_lineno or 0) - function.lineno + 1)
        )
    ]


class _NewSide:
    """The new side of a change: its checks, its statements, and which function names which."""

    def __init__(self, pieces: Sequence[PythonPiece]) -> None:
        self.checks = [check for piece in pieces for check in checks_of(piece)]
        self.functions: set[str] = set()  # and classes
        self._fresh = [True] * len(self.checks)
        self._names: dict[str, set[str]] = defaultdict(set)  # the names in a function, and in a file
        self._statements: dict[str, set[str]] = defaultdict(set)  # of a file, and of all by ""
        self._words: dict[str, list[frozenset[str]]] = defaultdict(list)  # of the simple statements of a file
        self._tests: set[str] = set()  # the conditions of blocks
        self._raising: set[str] = set()  # those of blocks that raise somewhere
        for piece in pieces:
            self._names[_FILE + piece.path] |= set(names_in(piece.tree))
            for node in ast.walk(piece.tree):
                if isinstance(node, ast.stmt):
                    self._statements[piece.path].add(ast.dump(node))
                    self._words[piece.path] += [] if hasattr(node, "body") else [words_of(node)]
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    self.functions.add(node.name)
                    self._names[node.name] |= set(names_in(node))
                if isinstance(node, ast.If):
                    self._tests.add(ast.dump(node.test))
                    if any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
                        self._raising.add(ast.dump(node.test))
        self._statements[""] = set().union(*self._statements.values())

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
        for at, new in enumerate(self.checks):
            is_same = new.key == old.key
            if not (is_same or _replaces(new, old)):
                continue
            if new.function != old.function and self._tied(new, old):
                return True
            if self._fresh[at] and (new.function == old.function or old.function not in self.functions):
                if is_same:
                    self._fresh[at] = False  # it replaces one check, not two
                return True
        return False

    def _tied(self, new: Check, old: Check) -> bool:
        """Whether a check in another function protects this one too: as a callee, decorator or caller."""
        uses = self._names[old.function or _FILE + old.path]
        is_called = any(old.function in self._names[owner] for owner in new.owners)
        return bool(uses.intersection(new.owners)) or is_called

    def still_tests(self, old: Check) -> bool:
        """Whether a condition is still there, with another block that refuses as much."""
        test = ast.dump(old.clause) if old.clause else ""
        return test in self._raising or (old.force == "ends" and test in self._tests)

    def holds(self, path: str, statements: Sequence[ast.stmt], how: Callable[[Iterable[bool]], bool]) -> bool:
        """Whether any or all of the statements are still in the file; with "", in any file."""
        known = self._statements[path]
        return how(ast.dump(statement) in known for statement in statements)

    def holds_edited(self, check: Check) -> bool:
        """Whether a statement of its file has all the words of the protected one, and more."""
        told = [words_of(node) for node in check.after]
        return all(len(one) > 1 and any(one <= other for other in self._words[check.path]) for one in told)

    def gets_anew(self, check: Check) -> bool:
        """Whether the value that a check required now comes from another source, which may check it itself."""
        sources = [node for node in check.before if check.subject and _sets(node, check.subject)]
        return bool(sources) and not self.holds(check.path, sources, any)


def _sets(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and any(dotted(target) == name for target in node.targets)


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
    is_alike = new.kind == "call" or new.kind == old.kind == "assert"
    return len(common) * 2 >= len(old.words) > 0 or (is_alike and bool(common))
