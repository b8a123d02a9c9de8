"""The screens of ``council watch`` and ``council top``: live on a terminal, lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from council.cli import overview, render
from council.cli.report import DONE, Report
from council.kinds.text import line
from council.protocol.errors import CouncilDied, CouncilError, PositionLost

if TYPE_CHECKING:
    from council.api.client import Council
    from council.api.event_stream import Event
    from council.core.state import Escalation

LOOK_S = 1.0  # between two looks at the roll; beats come at most every few seconds
PAUSE_S = 2.0  # before another try, while the council does not answer
RECENT_MAX = 200
REFRESHES_PER_S = 4
PACE = timedelta(minutes=1)  # tokens a minute are those of the calls that ended within it
CALLS_MAX = 100_000  # kept for that; more in a minute than any council makes
PROPOSALS_MAX = 10_000
ONCE_ROWS = 40  # lines of a screen, and calls, that are printed once
SPENDING_KINDS = frozenset({"spending", "denial", "overrun"})


class Screen:
    """Shows a council's status above its newest events, until it is ended.

    It begins after the event with cursor ``since`` (None: now). Without ``follow`` it shows what has happened so far,
    and ends.
    """

    def __init__(
        self, council: Council, report: Report, *, since: int | None = None, follow: bool = True
    ) -> None:
        self._council = council
        self._report = report
        self._since = since
        self._follow = follow
        self._screen = follow and not report.as_json and report.out.is_terminal
        self._status: dict[str, Any] | None = None
        self._waiting: Sequence[Escalation] = []
        self._recent: deque[Event] = deque(maxlen=RECENT_MAX)
        self._trouble = ""
        self._ended = asyncio.Event()

    def watch(self) -> int:
        """Until q, Ctrl-C, or the council's end. Returns the exit code."""
        return asyncio.run(self._run())

    def wants(self, event: Event) -> bool:
        """Whether an event is shown. Called once for each event, in order."""
        return True

    def parts(self, status: Mapping[str, Any], height: int) -> list[RenderableType]:
        """What is above the events, on a screen of that many lines."""
        found: list[RenderableType] = [overview.heading(status), "", overview.seats(status)]
        found += [*overview.inactive_seats(status), *overview.stalled(status)]
        found += [rule("open"), overview.open_proposals(status, rows_max=max(3, height // 4))]
        if self._waiting:
            found.append(rule(f"waiting for a human ({len(self._waiting)})"))
            found.append(render.waiting_lines(self._waiting, time.time(), rows_max=max(2, height // 6)))
        return [*found, rule("events")]

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ended.set)
        status = await self._council.aio.status()
        self._status = status
        since = self._since
        if since is None:  # a screen begins with the recent events
            since = max(0, status["events"] - (RECENT_MAX if self._screen else 0))
        with self._drawn():
            return await self._until_ended(since)

    async def _until_ended(self, since: int) -> int:
        work = [asyncio.create_task(self._events(since))]
        if self._screen:
            work.append(asyncio.create_task(self._watch()))
        ended: asyncio.Task[Any] = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait([*work, ended], return_when=asyncio.FIRST_COMPLETED)
            for task in work:
                if task.done():
                    task.result()  # raises what ended it
            return DONE
        finally:  # an error is printed once the screen is restored
            for task in (*work, ended):
                task.cancel()
            await asyncio.gather(*work, ended, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            try:
                self._status = await self._council.aio.status()
                self._waiting = await self._council.aio.escalations()
                self._trouble = ""
            except CouncilDied:
                raise
            except CouncilError as error:
                self._trouble = f"no answer since {datetime.now():%H:%M:%S}, trying again: {error}"
                await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(LOOK_S)

    async def _events(self, cursor: int) -> None:
        while True:
            events = self._council.aio.events(cursor, follow=self._follow)
            try:
                async for event in events:
                    cursor = event.cursor
                    self._add(event)
                if not self._follow:
                    return
            except PositionLost as lost:
                if cursor >= lost.oldest:
                    raise  # the cursor is after the newest event
                self._print(f"events up to cursor {lost.oldest - 1} are no longer kept")
                cursor = lost.oldest - 1
            except CouncilDied:
                raise
            except CouncilError as error:
                self._print(f"no answer, trying again: {error}")
                await asyncio.sleep(PAUSE_S)

    def _add(self, event: Event) -> None:
        if not self.wants(event):
            return
        if self._screen:
            self._recent.append(event)
            return
        if self._report.as_json:
            place = {"cursor": event.cursor, "position": event.position}
            document = {**place, "at": event.at.isoformat(), "kind": event.kind}
            is_open = self._report.print_json({**document, "data": event.data})
        else:
            is_open = self._report.print(render.row(event), soft_wrap=True)
        if not is_open:
            self._ended.set()

    def _print(self, text: str) -> None:
        if not self._screen:
            self._report.note(text)

    @contextlib.contextmanager
    def _drawn(self) -> Iterator[None]:
        if not self._screen:
            yield
            return
        live = Live(
            get_renderable=self._drawing,
            console=self._report.out,
            screen=True,
            refresh_per_second=REFRESHES_PER_S,
            vertical_overflow="crop",
        )
        with live, _keys(self._ended):
            yield

    def _drawing(self) -> RenderableType:
        if self._status is None:
            return Text("")
        console = self._report.out
        height = console.size.height
        parts = self.parts(self._status, height)
        foot = Text(line(self._trouble), "yellow") if self._trouble else Text("q or Ctrl-C ends", render.DIM)
        used = len(console.render_lines(Group(*parts), pad=False)) + 2
        for event in list(self._recent)[-max(1, height - used) :]:
            parts.append(_on_one_line(render.row(event)))
        return Group(*parts, "", _on_one_line(foot))


class Top(Screen):
    """The screen of ``council top``: the current cost of the seats' models, and the calls.

    It begins with the events that the council still keeps. With ``once``, and without a terminal, it prints what the
    screen would show, and ends.
    """

    def __init__(self, council: Council, report: Report, *, once: bool = False) -> None:
        super().__init__(council, report, since=0 if once else None, follow=not once)
        self._calls: deque[tuple[datetime, str, int]] = deque(maxlen=CALLS_MAX)
        self._proposals: dict[str, tuple[int, int, int]] = {}

    async def _until_ended(self, since: int) -> int:
        code = await super()._until_ended(since)
        if not self._follow:
            calls = [render.row(event) for event in list(self._recent)[-ONCE_ROWS:]]
            self._report.print(Group(*self.parts(await self._council.aio.status(), ONCE_ROWS), *calls))
        return code

    def _add(self, event: Event) -> None:
        if self._follow:
            super()._add(event)
        elif self.wants(event):
            self._recent.append(event)

    def wants(self, event: Event) -> bool:
        if event.kind == "spending":
            call, spent = event.data["call"], event.data["spent"]
            self._calls.append((event.at, call["seat"], spent["tokens"]))
            calls, tokens, microusd = self._proposals.pop(call["proposal_id"], (0, 0, 0))
            sums = (calls + 1, tokens + spent["tokens"], microusd + spent["microusd"])
            self._proposals[call["proposal_id"]] = sums  # the newest at the end
            if len(self._proposals) > PROPOSALS_MAX:
                del self._proposals[next(iter(self._proposals))]
        return event.kind in SPENDING_KINDS

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


def _on_one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def rule(title: str) -> RenderableType:
    return Group("", Rule(Text(f"{title} ", render.DIM), align="left", characters="─", style=render.DIM))


@contextlib.contextmanager
def _keys(ended: asyncio.Event) -> Iterator[None]:
    """Has q end the screen if there is a keyboard, and restores the terminal."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        keys = os.read(descriptor, 64)
        if not keys or b"q" in keys.lower() or b"\x03" in keys:
            ended.set()

    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, pressed)
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
