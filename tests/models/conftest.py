"""No test waits for the pauses between attempts, or for the SDK to be loaded."""

from __future__ import annotations

import pytest

from council.agents.llm import calls


@pytest.fixture(scope="session", autouse=True)
def _the_sdk_is_loaded() -> None:
    """Once in a process it takes a second or two, of which a proposal of one second would have to pay."""
    calls.load_sdk()


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many seconds each pause would have lasted."""
    found: list[float] = []

    async def pause(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr("council.agents.llm.calls.sleep", pause)
    return found
