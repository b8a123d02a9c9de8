"""A client's calls to a coordinator on Ray, with a handle in the place of Ray's."""

from __future__ import annotations

import asyncio
import itertools
import threading
from concurrent import futures
from types import SimpleNamespace
from typing import Any

import pytest

from council import CouncilConfig
from council.cluster import connection, port
from council.protocol.errors import CouncilDied
from tests.patience import HANG_S
from tests.runtime.harness import run

NAME = "far"


class Head:
    """The head of a cluster. A check of it takes until ``gate`` is set."""

    def __init__(self, error: CouncilDied | None = None) -> None:
        self.error, self.checks, self.gate = error, 0, threading.Event()

    def check(self) -> None:
        self.checks += 1
        assert self.gate.wait(HANG_S)
        if self.error is not None:
            raise self.error


class Handle:
    """A coordinator's actor that answers no call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, method: str) -> Any:
        def remote(*arguments: Any) -> Any:
            self.calls.append((method, arguments))
            return SimpleNamespace(future=futures.Future)

        return SimpleNamespace(remote=remote)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> object:
    here = object()
    monkeypatch.setattr(connection, "current", lambda: here)
    monkeypatch.setattr(port, "LOOK_S", 0.001)
    return here


def place_of(head: Head, handle: Handle, here: object) -> port._Place:
    return port._Place(NAME, handle, here, head, remembered=False)  # type: ignore[arg-type]


def test_open_calls_share_one_check_of_the_head(here: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: with a check for each call, the last of many waits for all the others' checks."""
    head = Head(CouncilDied("the head is gone", name=NAME, open_ids=[]))
    place = place_of(head, Handle(), here)
    looks, looking, check = itertools.count(1), asyncio.Event(), port._Place._check

    def counted(place: port._Place) -> Any:
        if next(looks) == 40:
            looking.set()
        return check(place)

    monkeypatch.setattr(port._Place, "_check", counted)

    async def scenario() -> None:
        calls = [asyncio.create_task(place.answer("status", ())) for _ in range(40)]
        await looking.wait()
        head.gate.set()
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert errors == [head.error] * 40

    run(scenario())
    assert head.checks == 1


def test_a_head_that_a_call_found_gone_is_so_at_the_close(
    here: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: if another head answers at that address by then, the actors are killed over a dead connection."""
    head, handle = Head(CouncilDied("the head is gone", name=NAME, open_ids=[])), Handle()
    head.gate.set()
    place = place_of(head, handle, here)
    killed: list[str] = []
    monkeypatch.setattr(port._Place, "kill", lambda place, namespace: killed.append(namespace))
    monkeypatch.setattr(port, "CLOSE_TIMEOUT_S", 0.01)

    async def scenario() -> None:
        lost = port.RayPort(place, CouncilConfig(name=NAME))
        with pytest.raises(CouncilDied, match="the head is gone"):
            await lost.leave("session")
        head.error = None  # another one
        await lost.close()

    run(scenario())
    assert handle.calls[-1] == ("close", ("the head is gone",))
    assert killed == []
