"""No test waits for the pauses between attempts."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many seconds each pause would have lasted."""
    found: list[float] = []

    async def pause(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr("council.agents.llm.calls.sleep", pause)
    return found
