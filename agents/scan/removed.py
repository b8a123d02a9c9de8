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
from council.agents.scan.pieces import Piece
from council.agents.scan.python_checks import (
    checking_calls,
    dotted,
    how_it_ends,
    speaks_of_authority,
    words_of,
)
from council.agents.scan.removed_checks import vanished_checks

_BROAD = {"Exception", "BaseException", ""}
_GOES_ON = (ast.Pass, ast.Assign, ast.AnnAssign, ast.Expr)
_ACCESS_DENIED = re.compile(r"\b40[13]\b")


def findings(changes: Sequence[FileChange], pieces: Sequence[Piece]) -> tuple[list[Finding], list[str]]:
    """The findings of a whole change, and the parts that were too long or too deep to be read.

    ``pieces`` are those of ``pieces_of(changes)``. Never raises, and never runs what it reads.
    """
    lined = [change for change in changes if is_code(change)]
    blocks = [block for change in lined for block in blocks_of(change)]
    pairs = pairs_of(blocks)
    found = [
        *removed_tests.findings(changes, blocks),
        *removed_guards.findings(changes, blocks, pairs),
        *callers.awaits_gone(changes, pairs),
    ]
    unread = [
        f"{short_quote(piece.path)}:{piece.line_of(0, len(piece.numbers))} is unread: {piece.unread}"
        for piece in pieces
        if piece.unread
    ]
    for change in changes:
        fault = data_fault(change)
        if fault is not None and fault.is_limit:
            unread.append(f"{short_quote(change.path)} is unread: {fault.message}")
        elif fault is not None and fault.sure:
            message = f"{fault.message}. Correct it."
            found.append(Finding("syntax", "syntax", "stop", change.path, fault.line, message))
    try:
        found += _in_python([piece for piece in pieces if piece.language and piece.language.name == "python"])
    except RecursionError:  # the parser accepts deeper nesting than a tree walk
        unread.append("Python that is nested too deeply is unread")
    unique = dict.fromkeys(found)
    return sorted(unique, key=lambda item: (item.path, item.line, item.rule)), unread


def _in_python(pieces: Sequence[Piece]) -> Iterator[Finding]:
    old, new = (
        [piece for piece in pieces if piece.is_new == is_new and piece.tree] for is_new in (False, True)
    )
    is_partial = any(piece.tree is None for piece in pieces)
    source_old, source_new = ([piece for piece in side if not is_test(piece.path)] for side in (old, new))
    for gone in vanished_checks(source_old, source_new):
        # A check that is not surely gone may have moved out of sight.
        weight: Weight = "note" if not gone.sure else "ask" if is_partial else "stop"
        message = (
            f"Takes away the check `{short_quote(gone.shown)}`, which nothing replaces. Keep it, or move it."
        )
        yield Finding(f"removed-{gone.kind}", "guard", weight, gone.path, gone.line, message, 862)
    yield from _swallows(source_old, source_new)
    yield from callers.became_async(old, new)


def _swallows(old: Sequence[Piece], new: Sequence[Piece]) -> Iterator[Finding]:
    """Handlers that let errors pass: of a check that the change puts them around, or that were a refusal before."""
    # The first handler of each body, and the first for each type, with its piece.
    before: dict[tuple[str, str], tuple[Piece, ast.ExceptHandler]] = {}
    for piece, node in _tries(old):
        body = ast.dump(node.body[0])
        for handler in node.handlers:
            before.setdefault((body, dotted(handler.type)), (piece, handler))
            before.setdefault((body, ":any"), (piece, handler))
    denials: dict[ast.ExceptHandler, bool] = {}
    for piece, node in _tries(new):
        body = ast.dump(node.body[0])
        calls = [call for inner in node.body for call in checking_calls(inner, ast.walk(inner))]
        is_access = any(speaks_of_authority(words_of(call.func)) for call in calls)
        for handler in node.handlers:
            kind = dotted(handler.type)
            was_in, was = before.get((body, kind)) or before.get((body, ":any")) or (piece, handler)
            at, end = handler.body[-1].lineno - 1, was.body[-1].lineno - 1
            if not (piece.touches(at, at) or was_in.touches(end, end)):
                continue
            weight: Weight | None = None
            if calls and _passes(handler):
                weight = "stop" if is_access or isinstance(handler.body[-1], ast.Return) else "ask"
                message = (
                    f"Lets errors of the check `{short_quote(dotted(calls[0].func))}` pass. Refuse instead."
                )
            elif was is not handler:
                if was not in denials:
                    denials[was] = _denies(was)
                weight = _goes_on(handler, was, is_access=denials[was])
                message = (
                    "The code goes on after an error that was handled here. Refuse or report it, as before."
                )
            if weight:
                yield Finding("check-swallowed", "guard", weight, piece.path, piece.number(at), message, 390)


def _tries(pieces: Sequence[Piece]) -> Iterator[tuple[Piece, ast.Try]]:
    for piece in pieces:
        yield from ((piece, each.node) for each in piece.statements if isinstance(each.node, ast.Try))


def _denies(handler: ast.ExceptHandler) -> bool:
    """Whether a handler refuses access."""
    return speaks_of_authority(words_of(handler)) or bool(_ACCESS_DENIED.search(ast.unparse(handler)[:500]))


def _goes_on(handler: ast.ExceptHandler, was: ast.ExceptHandler, *, is_access: bool) -> Weight | None:
    """What it weighs that a handler goes on where it ended the code, or told somebody, before."""
    last, refused = handler.body[-1], how_it_ends(was.body)[1]
    if not isinstance(last, _GOES_ON) or how_it_ends(handler.body)[0]:
        return None
    is_broad = dotted(handler.type) in _BROAD
    if refused and (is_access or (is_broad and not isinstance(last, ast.Assign))):
        return "stop"
    if is_broad and isinstance(last, ast.Pass) and not isinstance(was.body[-1], ast.Pass):
        return "ask"
    return ("ask" if is_broad else "note") if refused else None


def _passes(handler: ast.ExceptHandler) -> bool:
    """Whether a handler goes on as if nothing had happened, or catches everything and only tells it."""
    match handler.body[-1]:
        case ast.Pass() | ast.Return(value=ast.Constant(value=True)):
            return True
        case ast.Continue() | ast.Expr(value=ast.Constant() | ast.Call()):
            return dotted(handler.type) in _BROAD
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
