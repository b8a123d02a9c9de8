"""A council's events as a client follows them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

# How long one look for new events stays open at the council before it is made anew.
WAIT_S = 10.0
PAGE = 500
Fetch = Callable[[int, int, float], Awaitable[list[dict[str, Any]]]]
Found = Sequence["Event"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: ``position`` to resume after, ``at`` in UTC, ``kind``, and plain ``data``.

    Kinds: proposal, ballot, loss, observation, to_prime, ruling, to_human, decision, outcome, roll, start,
    identity_change, creator_change, overrun, spending, denial, alert, refusal.
    """

    position: int
    at: datetime
    kind: str
    data: Mapping[str, Any]

    @property
    def proposal_id(self) -> str | None:
        """The proposal that this is about, if it is about one."""
        for part in (self.data, *(value for value in self.data.values() if isinstance(value, Mapping))):
            if "proposal_id" in part:
                return str(part["proposal_id"])
        return None


class Events:
    """A council's events, for ``for`` and ``async for``. ``position`` is that of the last one handed out.

    ``fetch`` asks the council for a page; ``wait`` and ``run`` carry that to the council's own loop, for a
    thread and for another loop.
    """

    def __init__(
        self,
        fetch: Fetch,
        wait: Callable[[Coroutine[Any, Any, Found]], Found],
        run: Callable[[Coroutine[Any, Any, Found]], Awaitable[Found]],
        after: int,
        *,
        follow: bool,
    ) -> None:
        self._fetch = fetch
        self._wait = wait
        self._run = run
        self._follow = follow
        self.position = after

    def __iter__(self) -> Iterator[Event]:
        while True:
            found = self._wait(self._page())
            yield from self._hand_out(found)
            if not found and not self._follow:
                return

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            found = await self._run(self._page())
            for event in self._hand_out(found):
                yield event
            if not found and not self._follow:
                return

    async def _page(self) -> Found:
        found = await self._fetch(self.position, PAGE, WAIT_S if self._follow else 0.0)
        return [
            Event(event["position"], datetime.fromtimestamp(event["at"], UTC), event["kind"], event["data"])
            for event in found
        ]

    def _hand_out(self, found: Found) -> Iterator[Event]:
        for event in found:
            self.position = event.position
            yield event
