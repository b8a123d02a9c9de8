"""Finds checks that a change removes from Python.

A check is removed if it is gone from its function while the code that it protected is still there, unless something
replaces it: a new check on the same subject, or the same check in a helper, decorator, caller or hook of the
function. A function that decided who may do what, and now allows everything, is a removed check too.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from council.agents.scan.pieces import Piece
from council.agents.scan.python_checks import (
    AUTH_STEMS,
    Check,
    Function,
    checks_of,
    decides,
    dotted,
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


def vanished_checks(old: Sequence[Piece], new: Sequence[Piece]) -> list[Vanished]:
    """The checks of the old pieces that the new ones lack. Pass all pieces of a change, because code may move."""
    before = [check for piece in old for check in checks_of(piece)]
    if not before:
        return _hollowed(old, new)
    after = _NewSide(new)
    gone = after.without(before)
    if len(gone) * len(after.checks) > COMPARED_MAX:
        return [Vanished(check.path, check.line, check.shown, check.kind, False) for check in gone]
    gone = [check for check in gone if not (after.has_another(check) or after.still_tests(check))]
    lost = _imports(old) - _imports(new) if gone else set()
    found = [_judge(check, after) for check in gone if not _lost_its_library(check, lost)]
    return [*filter(None, found), *_hollowed(old, new)]


def _judge(check: Check, after: _NewSide) -> Vanished | None:
    is_there = check.function in after.functions
    alive = is_there or after.holds(check.path, check.before)
    if check.kind == "decorator":
        survives = is_there
    else:
        # Of a check around code that is no refusal, the end of that code must stay too.
        guarded = check.after if check.raises else check.after[-1:]
        survives = after.holds("", check.after) and after.holds("", guarded)
        survives = survives or (alive and after.holds_edited(check))
    if not survives and not alive and (check.after or check.function):
        return None  # the protected code is gone too
    sure = survives and check.is_plain and not after.gets_anew(check)
    return Vanished(check.path, check.line, check.shown, check.kind, sure)


def _imports(pieces: Sequence[Piece]) -> set[str]:
    """The names that are imported outside of blocks."""
    nodes = (each.node for piece in pieces if piece.tree for each in piece.tree.blocks[0])
    imports = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    return {(item.asname or item.name).partition(".")[0] for node in imports for item in node.names}


def _lost_its_library(check: Check, gone: set[str]) -> bool:
    """Whether a check that concerns no permissions uses an import that the change removes."""
    if not gone or not check.is_condition or speaks_of_authority(check.words):
        return False
    return not gone.isdisjoint(names_in(ast.walk(check.node)))


def _hollowed(old: Sequence[Piece], new: Sequence[Piece]) -> list[Vanished]:
    """Functions that decided permissions, and now let everything pass."""
    found = {}
    for piece in new if old else ():
        for function in filter(hollow, _functions_of(piece)):
            first, last = function.lineno - 1, (function.end_lineno or 0) - 1
            if piece.touches(first, last):
                line = piece.number(first)
                found[function.name] = Vanished(piece.path, line, f"{function.name}(…)", "check", True)
    was = [each for piece in old if found for each in _functions_of(piece) if each.name in found]
    return [found[each.name] for each in was if not hollow(each) and decides(each)]


def _functions_of(piece: Piece) -> Iterator[Function]:
    return (each.node for each in piece.statements if isinstance(each.node, Function))


class _NewSide:
    """The new side of a change: its checks, its statements, and which function names which."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self.checks = [check for piece in pieces for check in checks_of(piece)]
        self._fresh = [True] * len(self.checks)  # whether each is new: no check of the old side is the same

    @cached_property
    def functions(self) -> set[str]:
        """Functions and classes by name."""
        return {name for name in self._names if name[:1] != _FILE}

    @cached_property
    def _hooks(self) -> set[str]:
        """The functions that run before each request."""
        nodes = [each for piece in self._pieces for each in _functions_of(piece)]
        return {node.name for node in nodes if any("before" in dotted(each) for each in node.decorator_list)}

    @cached_property
    def _names(self) -> dict[str, set[str]]:
        """The names in each function and class, and in each file."""
        found: dict[str, set[str]] = defaultdict(set)
        for piece in self._pieces:
            for statement in piece.statements:
                node, owners = statement.node, (_FILE + piece.path, *statement.owners)
                if isinstance(node, Function | ast.ClassDef):
                    owners = (*owners, node.name)
                names = set(names_in(statement.inner))
                for owner in owners:
                    found[owner] |= names
        return found

    @cached_property
    def _statements(self) -> dict[str, dict[str, ast.stmt]]:
        """The statements of each file, and by "" of all, by their texts."""
        found: dict[str, dict[str, ast.stmt]] = {"": {}}
        for piece in self._pieces:
            inner = {_key(each.node): each.node for each in piece.statements}
            found.setdefault(piece.path, {}).update(inner)
            found[""] |= inner
        return found

    @cached_property
    def _tests(self) -> dict[str, bool]:
        """The conditions of blocks, and whether one raises somewhere."""
        found: dict[str, bool] = {}
        for node in self._statements[""].values():
            if isinstance(node, ast.If):
                raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                found[ast.dump(node.test)] = raises or found.get(ast.dump(node.test), False)
        return found

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
            elif not check.is_implied:
                gone.append(check)
        return gone

    def has_another(self, old: Check) -> bool:
        """Whether another check may replace one that is gone."""
        for at, new in enumerate(self.checks):
            is_same = new.key == old.key
            if not (is_same or _replaces(new, old)):
                continue
            if new.function != old.function and self._tied(new, old):
                return True
            if is_same and self._fresh[at] and new.function in self._hooks:
                return True  # it holds for all functions of the file
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
        raises = self._tests.get(old.key)
        return bool(raises) or (not old.refuses and raises is not None)

    def holds(self, path: str, statements: Sequence[ast.stmt]) -> bool:
        """Whether any of the statements is still in the file; with "", in any file."""
        known = self._statements.get(path, {})
        return any(_key(statement) in known for statement in statements)

    def holds_edited(self, check: Check) -> bool:
        """Whether for each protected statement one of its file has all its words, and perhaps more."""
        told = [words_of(node) for node in check.after]
        known = [words_of(node) for node in self._statements.get(check.path, {}).values() if _is_simple(node)]
        return bool(told) and all(len(one) > 1 and any(one <= other for other in known) for one in told)

    def gets_anew(self, check: Check) -> bool:
        """Whether the value that a check required now comes from another source, which may check it itself."""
        sources = [node for node in check.before if check.subject and _sets(node, check.subject)]
        return bool(sources) and not self.holds(check.path, sources)


def _is_simple(node: ast.stmt) -> bool:
    return not hasattr(node, "body")


def _key(node: ast.stmt) -> str:
    """What tells a statement from others: its tree; if it has a block, the tree of what stands before the block."""
    if _is_simple(node):
        return ast.dump(node)
    return type(node).__name__ + "".join(
        ast.dump(below) for below in ast.iter_child_nodes(node) if not isinstance(below, ast.stmt)
    )


def _sets(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and any(dotted(target) == name for target in node.targets)


def _stems(words: frozenset[str]) -> frozenset[str]:
    return frozenset(stem for stem in AUTH_STEMS if any(word.startswith(stem) for word in words))


def _replaces(new: Check, old: Check) -> bool:
    """Whether a check may replace one that is gone: both have the same subject."""
    if new.key == old.inverse or (old.parts and old.parts < new.parts):
        return False  # it stops in the opposite case, or in fewer cases than the old one
    if isinstance(new.node, ast.BoolOp) and isinstance(new.node.op, ast.And) and old.key in new.key:
        return False
    words = new.words.union(
        *(words_of(node) for node in new.before if new.subject and _sets(node, new.subject))
    )
    common = words & old.words
    if stems := _stems(old.words):
        others = _stems(new.words)
        if "authenticated" in new.words and others == {"auth"}:
            return bool(stems & others)  # a login is less than a role or an owner
        return bool(stems & others) or new.is_gate or bool(others and common)
    if old.raises == new.raises != "" and len(common) > 1 and "startswith" not in new.words:
        return True  # it refuses in the same way, on the same values; but /a/bc starts with /a/b
    is_alike = new.kind == "call" or new.kind == old.kind == "assert"
    return len(common) * 2 >= len(old.words) > 0 or (is_alike and bool(common))
