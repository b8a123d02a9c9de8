"""A new verb of the client costs two edits: its coroutine, and one line for the blocking method."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from council import AsyncCouncil, Council
from council.api.client import blocking
from council.protocol.errors import CallerError


class AsyncNewer(AsyncCouncil):
    async def count(self, kind: str, *, twice: bool = False) -> int:
        """How many events of a kind there were."""
        found = [event.kind async for event in self.events(follow=False)].count(kind)
        return 2 * found if twice else found


class Newer(Council):
    aio: AsyncNewer
    count = blocking(AsyncNewer.count)


def test_a_new_verb_is_a_coroutine_and_a_line() -> None:
    with Council.inline() as council:
        newer = Newer(council._handle)
        newer.aio = AsyncNewer(council._handle)
        council.propose("Rename the variable total to sum")
        assert newer.count("decision") == asyncio.run(newer.aio.count("decision")) == 1
        assert newer.count("decision", twice=True) == 2
        assert inspect.signature(Newer.count) == inspect.signature(AsyncNewer.count)
        assert Newer.count.__doc__ == AsyncNewer.count.__doc__
        wrong: Any = newer.count
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(CallerError, match="was closed"):
        newer.count("decision")
