"""A short round of SIGKILLs on Ray; ``make chaos`` runs the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import ray as chaos


@pytest.mark.long
def test_kills_under_load_lose_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAOS_ADA", "ad" * 32)
    found = chaos.run(4, 1, tmp_path, behind=200, name=name)
    assert found.whole, str(found)
    assert found.kills == 5, "the coordinator, a seat, the coordinator, and one that is killed again"
    assert found.acknowledged > 200
    assert (found.notes["seats killed"], found.notes["killed again while it recovered"]) == (1, 1)
