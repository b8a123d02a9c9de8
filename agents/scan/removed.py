"""Finds what a change takes away or breaks, seen from both its sides.

``findings`` reads all files of a change together, because code, checks, tests and callers move between files. What is
moved is not taken away. Rules that need one side only are data, and are elsewhere.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from council.agents.scan import callers, datafiles, removed_guards, removed_tests
from council.agents.scan.change import FileChange, short_quote
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.languages import is_test
from council.agents.scan.line_pairs import blocks_of, is_code, pairs_of
from council.agents.scan.python import TOO_MANY, PythonPiece, parse, sides_of, walk
from council.agents.scan.python_checks import checking_calls, dotted, speaks_of_authority, words_of
from council.agents.scan.removed_checks import vanished_checks

_PYTHON = re.compile(r"\.pyi?w?$")
_SHEBANG = re.compile(r"#!.{0,60}\bpython")
_BROAD = {"Exception", "BaseException"}


def findings(changes: Sequence[FileChange]) -> tuple[list[Finding], list[str]]:
    """The findings of a whole change, and the parts that were too long or too deep to be read.

    Never raises, and never runs what it reads.
    """
    lined = [change for change in changes if is_code(change)]
    blocks = [block for change in lined for block in blocks_of(change)]
    pairs = pairs_of(blocks)
    found = [
        *removed_tests.findings(changes, blocks),
        *removed_guards.findings(changes, blocks, pairs),
    ]
    found += callers.awaits_gone(changes, pairs)
    old: list[PythonPiece] = []
    new: list[PythonPiece] = []
    unread, is_partial = [], False
    for change, start, sides in sides_of([change for change in changes if is_python(change)]):
        old += [sides.old] if sides.old else []
        new += [sides.new] if sides.new else []
        if sides.unread:
            unread.append(f"{short_quote(change.path)}:{start} is unread: {sides.unread}")
        is_partial = is_partial or (sides.new is None and change.kind != "deleted")
    for change in changes:
        unread += _read_carrier(change, old, new)
        fault = data_fault(change)
        if fault is not None and fault.is_limit:
            unread.append(f"{short_quote(change.path)} is unread: {fault.message}")
        elif fault is not None and fault.sure:
            message = f"{fault.message}. Correct it."
            found.append(Finding("syntax", "syntax", "stop", change.path, fault.line, message))
    try:
        found += _python_findings(old, new, is_partial=is_partial)
    except RecursionError:  # the parser accepts deeper nesting than a tree walk
        unread.append("Python that is nested too deeply is unread")
    unique = dict.fromkeys(found)
    return sorted(unique, key=lambda item: (item.path, item.line, item.rule)), unread


def is_python(change: FileChange) -> bool:
    """Whether a file is readable Python: by its name, or by its first line."""
    if change.is_binary or change.is_link or not change.hunks:
        return False
    first = next((line.text for line in change.hunks[0].lines if (line.new_no or line.old_no) == 1), "")
    return bool(_PYTHON.search(change.path) or _SHEBANG.match(first))


def _python_findings(
    old: Sequence[PythonPiece], new: Sequence[PythonPiece], *, is_partial: bool
) -> Iterator[Finding]:
    source_old = [piece for piece in old if not is_test(piece.path)]
    source_new = [piece for piece in new if not is_test(piece.path)]
    for gone in vanished_checks(source_old, source_new):
        # A check that is not surely gone may have moved out of sight.
        weight: Weight = "note" if not gone.sure else "ask" if is_partial else "stop"
        message = (
            f"Takes away the check `{short_quote(gone.shown)}`, which nothing replaces. Keep it, or move it."
        )
        yield Finding(f"removed-{gone.kind}", "guard", weight, gone.path, gone.line, message, 862)
    yield from (finding for piece in source_new for finding in _swallows(piece))
    yield from callers.became_async(old, new)


def _swallows(piece: PythonPiece) -> Iterator[Finding]:
    """A handler that the change puts around a check, and that lets everything pass."""
    for node in walk(piece.tree):
        if not isinstance(node, ast.Try):
            continue
        calls = [call for statement in node.body for call in checking_calls(statement)]
        for handler in node.handlers if calls else ():
            number = piece.number(handler.body[-1].lineno)
            if number not in piece.changed or not _passes(handler):
                continue
            is_access = any(speaks_of_authority(words_of(call.func)) for call in calls)
            message = f"Lets errors of the check `{short_quote(dotted(calls[0].func))}`. pass. Refuse then."
            weight: Weight = "stop" if is_access or isinstance(handler.body[-1], ast.Return) else "ask"
            yield Finding("check-swallowed", "guard", weight, piece.path, number, message, 390)


def _passes(handler: ast.ExceptHandler) -> bool:
    """Whether a handler goes on as if nothing had happened, or catches everything and only tells it."""
    match handler.body[-1]:
        case ast.Pass() | ast.Return(value=ast.Constant(value=True)):
            return True
        case ast.Continue() | ast.Expr(value=ast.Constant() | ast.Call()):
            return handler.type is None or dotted(handler.type) in _BROAD
    return False


# What can't be parsed


def data_fault(change: FileChange) -> datafiles.SyntaxFault | None:
    """The fault of a whole JSON, TOML or YAML file that was well-formed before, if it was there."""
    if change.kind == "deleted" or change.is_link or not (change.is_whole and change.hunks):
        return None
    if not datafiles.is_known(change.path):
        return None
    fault = datafiles.syntax_fault(change.path, change.hunks[0].new_text())
    if fault and change.kind != "added" and datafiles.syntax_fault(change.path, change.hunks[0].old_text()):
        return None
    return fault


def _read_carrier(change: FileChange, old: list[PythonPiece], new: list[PythonPiece]) -> Iterator[str]:
    """Adds the Python in a whole notebook or .pth file to both sides."""
    if not (change.is_whole and change.hunks and change.path.lower().endswith(datafiles.CARRIERS)):
        return
    hunk = change.hunks[0]
    sides = [(new, hunk.new_text(), hunk.added)] if change.kind != "deleted" else []
    sides += [(old, hunk.old_text(), hunk.removed)] if change.kind != "added" else []
    for pieces, text, changed in sides:
        code = datafiles.code_in(change.path, text)
        tree = parse(code[0]) if code else None
        if code and isinstance(tree, ast.Module):
            fresh = frozenset(number for number, _ in changed)
            pieces.append(PythonPiece(change.path, tree, code[1], fresh))
        elif len(text) > datafiles.CHARS_MAX or (isinstance(tree, str) and tree):
            yield f"{short_quote(change.path)} is unread: {TOO_MANY}"
