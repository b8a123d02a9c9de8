"""The screen of ``council top``: the current cost of the seats' models."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from council.cli import overview, render
from council.cli.operate.live import Screen, rule
from council.cli.report import Report

if TYPE_CHECKING:
    from council.api.client import Council
    from council.api.events import Event

# What is over counts towards the pace for so long.
PACE = timedelta(minutes=1)
CALLS_MAX = 100_000  # remembered for the pace; more in a minute than any council makes
PROPOSALS_MAX = 10_000
KINDS = frozenset({"spending", "denial", "overrun"})


class Top(Screen):
    """Begins with what led here, as far as the council still knows it."""

    def __init__(self, council: Council, report: Report) -> None:
        super().__init__(council, report)
        self._calls: deque[tuple[datetime, str, int]] = deque(maxlen=CALLS_MAX)
        self._proposals: dict[str, tuple[int, int, int]] = {}

    def wants(self, event: Event) -> bool:
        if event.kind == "spending":
            call, spent = event.data["call"], event.data["spent"]
            self._calls.append((event.at, call["seat"], spent["tokens"]))
            calls, tokens, microusd = self._proposals.pop(call["proposal_id"], (0, 0, 0))
            sums = (calls + 1, tokens + spent["tokens"], microusd + spent["microusd"])
            self._proposals[call["proposal_id"]] = sums  # behind those that cost nothing of late
            if len(self._proposals) > PROPOSALS_MAX:
                del self._proposals[next(iter(self._proposals))]
        return event.kind in KINDS

    def parts(self, status: Mapping[str, Any], height: int) -> list[RenderableType]:
        found: list[RenderableType] = [overview.heading(status), ""]
        found.append(overview.budget(status["budget"], pace=self._pace()))
        if self._proposals:
            dearest = sorted(
                ((proposal_id, *sums) for proposal_id, sums in self._proposals.items()),
                key=lambda each: (each[3], each[2]),
                reverse=True,
            )
            found += [rule("costliest of late"), overview.costliest(dearest[: max(3, height // 4)])]
        found.append(rule("calls"))
        if not status["budget"]["council"]["calls"]:
            found.append(render.text("no model has been called", render.DIM))
        return found

    def _pace(self) -> dict[str, int]:
        """Tokens of the last minute, by seat."""
        now = datetime.now().astimezone()
        while self._calls and self._calls[0][0] < now - PACE:
            self._calls.popleft()
        pace: dict[str, int] = {}
        for _, seat, tokens in self._calls:
            pace[seat] = pace.get(seat, 0) + tokens
        return pace
