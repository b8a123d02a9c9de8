"""A council's events, as a client reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from council.api.handle import Handle
from council.kinds.row import EventKind
from council.runtime.questions import AskEvents

# How many seconds a request for new events stays open at the council before it is repeated.
WAIT_S = 10.0
PAGE = 500


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a council.

    - ``position``: the position of its record in the journal, as in ``Entry.position``; events of one record share it
    - ``at``: when it happened, in UTC
    - ``kind``: what happened, one of the words below
    - ``data``: plain data about it
    - ``cursor``: its number among the council's events; ``events(after=event.cursor)`` returns the later ones

    Kinds: proposal, ballot, loss, observation, to_prime, ruling, to_human, decision, outcome, roll, start,
    identity_change, creator_change, overrun, spending, denial, token, use, result, revocation, alert, refusal,
    check, outcome_asked.
    """

    position: int
    at: datetime
    kind: EventKind
    data: Mapping[str, Any]
    cursor: int = 0

    @property
    def proposal_id(self) -> str | None:
        """The proposal of this event, if any."""
        for part in (self.data, *(value for value in self.data.values() if isinstance(value, Mapping))):
            if "proposal_id" in part:
                return str(part["proposal_id"])
        return None


class Events:
    """A council's events, for ``for`` and ``async for``. ``cursor`` is that of the newest returned event."""

    def __init__(self, handle: Handle, after: int, *, follow: bool) -> None:
        self._handle = handle
        self._follow = follow
        self.cursor = after

    def __iter__(self) -> Iterator[Event]:
        while True:
            found = self._handle.wait(self._page())
            yield from self._hand_out(found)
            if not found and not self._follow:
                return

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            found = await self._handle.run(self._page())
            for event in self._hand_out(found):
                yield event
            if not found and not self._follow:
                return

    async def _page(self) -> list[Event]:
        wait_s = WAIT_S if self._follow else 0.0
        found = await self._handle.session.ask(AskEvents(self.cursor, PAGE, wait_s), wait_s)
        return [
            Event(
                event["position"],
                datetime.fromtimestamp(event["at"], UTC),
                event["kind"],
                event["data"],
                event["cursor"],
            )
            for event in found
        ]

    def _hand_out(self, found: list[Event]) -> Iterator[Event]:
        for event in found:
            self.cursor = event.cursor
            yield event
