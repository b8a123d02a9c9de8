"""Fragments: that what parses alone parses beside others, and that a change's hunks share one limit."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from council.agents.scan.change import read_changes
from council.agents.scan.pieces import pieces_of
from council.agents.scan.python import TOO_MANY, Tree, parse, tokens_in


@pytest.fixture
def _busy_threads() -> Iterator[None]:
    """Threads that take turns as often as they can, in the midst of a tree too: garbage collection lets them."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()

    def turn(_phase: str, _info: object) -> None:
        sum(range(200))

    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    gc.callbacks.append(turn)
    yield
    gc.callbacks.remove(turn)
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def at_depth(text: str, depth: int) -> object:
    """Parses it from a frame that many calls deep: trees of equal depth would not disturb each other."""
    return at_depth(text, depth - 1) if depth else parse(text)


@pytest.mark.usefixtures("_busy_threads")
def test_minds_on_threads_of_their_own_may_all_parse() -> None:
    """Without the lock CPython 3.11 raises SystemError: AST constructor recursion depth mismatch."""
    text = "\n".join(f"def f{n}(a, b={n}):\n    return [a + (b * {n}), {{'k': (a, b)}}]\n" for n in range(20))
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(lambda depth: at_depth(text, depth % 8), range(64)))
    assert all(isinstance(tree, Tree) for tree in trees)


def test_hunks_that_never_parse_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("council.agents.scan.python.EFFORT_TOKENS_MAX", 5_000)
    bad = "".join(f" )( if {n} ((\n" for n in range(12))
    hunk = "@@ -{0},25 +{0},25 @@\n" + bad + "-x = (\n+y = (\n" + bad
    diff = "--- a/a.py\n+++ b/a.py\n" + "".join(hunk.format(1 + 100 * n) for n in range(40))
    parsed = 0

    def counted(text: str) -> object:
        nonlocal parsed
        parsed += tokens_in(text)
        return parse(text)

    monkeypatch.setattr("council.agents.scan.python.parse", counted)
    found = pieces_of(read_changes(diff).files)
    assert len(found) == 80
    assert found[-1].unread == TOO_MANY
    assert 0 < parsed < 5_000 + 40 * 1_000
