"""Ids are of the form that the rules ask for, and nobody gets one that another has."""

from __future__ import annotations

import re

import pytest

from council.agents.messaging.ids import new_id


def test_form() -> None:
    assert all(re.fullmatch(r"[0-9a-f]{16}", new_id()) for _ in range(500))


def test_ids_of_one_moment_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: pure chance, which costs a journal three times the time."""
    now_ns = 1_800_000_000 * 10**9
    found = []
    for after_ns in (0, 0, 2**24, 2**24, 2**25, 2**40, 2**40 + 2**24):
        monkeypatch.setattr(
            "council.agents.messaging.ids.time.time_ns", lambda after_ns=after_ns: now_ns + after_ns
        )
        found.append(new_id())
    first = int(found[0][:4], 16)
    assert [(int(each[:4], 16) - first) % 2**16 for each in found] == [0, 0, 1, 1, 2, 0, 1]
    assert len({each[4:] for each in found}) == len(found)
