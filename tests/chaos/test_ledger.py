"""What would be found: each fault that the rounds look for, made by hand, is seen."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.chaos import recording
from tests.chaos.ledger import Kept, Ledger, Round
from tests.chaos.power import File

KNOWN = Ledger.known


def judged(
    notes: list[tuple[object, ...]], decisions: Kept, escalated: dict[str, int] | None = None
) -> Round:
    ledger, found = Ledger(), Round("by hand")
    for what, *rest in notes:
        ledger.note(str(what), *rest)
    ledger.judge(decisions, Counter(escalated or {}), found)
    return found


def test_what_is_kept_as_it_was_told_is_whole() -> None:
    """Number 0 is agreed to, 8 goes to a human; what nobody was told of may be kept all the same."""
    notes = [("sent", 0), ("told", KNOWN(0), "approved", "a"), ("told", KNOWN(8), None, "-")]
    kept: Kept = {KNOWN(0): [("approved", "a")], KNOWN(2): [("rejected", "b")]}
    found = judged(notes, kept, {KNOWN(8): 1})
    assert found.whole
    assert (found.acknowledged, found.escalations) == (2, 1)


@pytest.mark.parametrize(
    ("notes", "kept", "escalated", "what"),
    [
        ([("told", KNOWN(0), "approved", "a")], {}, {}, "lost"),
        ([("told", KNOWN(8), None, "-")], {}, {}, "lost"),
        ([("unknown", KNOWN(0))], {}, {}, "lost"),
        ([("answered", KNOWN(8))], {}, {KNOWN(8): 1}, "lost"),
        ([], {KNOWN(0): [("approved", "a"), ("approved", "a")]}, {}, "duplicated"),
        ([], {}, {KNOWN(8): 2}, "duplicated"),
        ([("told", KNOWN(8), "approved", "a")], {KNOWN(8): [("rejected", "a")]}, {KNOWN(8): 1}, "changed"),
        ([("told", KNOWN(0), "approved", "a")], {KNOWN(0): [("approved", "b")]}, {}, "changed"),
        (
            [("told", KNOWN(8), "approved", "a"), ("told", KNOWN(8), "rejected", "b")],
            {KNOWN(8): [("approved", "a")]},
            {KNOWN(8): 1},
            "changed",
        ),
        ([], {KNOWN(2): [("approved", "a")]}, {}, "changed"),
    ],
)
def test_what_is_not_is_found(
    notes: list[tuple[object, ...]], kept: Kept, escalated: dict[str, int], what: str
) -> None:
    found = judged(notes, kept, escalated)
    assert not found.whole
    assert [name for name in ("lost", "duplicated", "changed") if getattr(found, name)] == [what]


def test_a_council_that_comes_back_late_is_told() -> None:
    for back_s, in_time in (
        ([1.0] * 19 + [14.0], True),
        ([1.0] * 18 + [6.0] * 2, False),
        ([1.0] * 99 + [16.0], False),
    ):
        found = Round("by hand", back_s=back_s, back_s_max=(5.0, 15.0))
        assert found.in_time is in_time
        assert ("TOO LATE" in str(found)) is not in_time


def test_a_process_that_fails_by_itself_ends_the_round() -> None:
    with pytest.raises(AssertionError, match="no licence"):
        Ledger().note("died", "RuntimeError: no licence")


def test_a_cut_leaves_what_was_synced_and_whole_sectors_of_the_rest() -> None:
    file = File()
    for op in (
        recording.Op("write", "", 0, b"a" * 1000),
        recording.Op("sync", ""),
        recording.Op("write", "", 500, b"b" * 1000),
    ):
        file.take(op)
    chance = random.Random(1)
    assert file.after_cut(chance, "none") == b"a" * 1000
    assert file.after_cut(chance, "all") == b"a" * 500 + b"b" * 1000
    prefixes = {file.after_cut(chance, "prefix") for _ in range(50)}
    assert prefixes == {
        b"a" * 1000,
        b"a" * 500 + b"b" * 12 + b"a" * 488,
        b"a" * 500 + b"b" * 524,
        b"a" * 500 + b"b" * 1000,
    }
