"""The screens of ``council watch`` and ``council top``: live on a terminal, lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.segment import SegmentLines
from rich.text import Text

from council.cli import overview, render
from council.cli.operate.cases import ROOMY_LINES, ROW_COLUMNS, Cases, on_one_line, rule
from council.cli.operate.keyboard import QUIT, keys
from council.cli.report import DONE, Report
from council.kinds.text import count, line
from council.protocol.errors import CouncilDied, CouncilError, PositionLost

if TYPE_CHECKING:
    from council.api.client import Council
    from council.api.event_stream import Event

LOOK_S = 1.0  # between two looks at the roll; beats come at most every few seconds
PAUSE_S = 2.0  # before another try, while the council does not answer
RECENT_MAX = 200
REDRAW_S = 0.25
# The size that the tables of seats and of what they spent need. A smaller screen has lines in their place.
SEATS_COLUMNS, SEATS_LINES, BUDGET_COLUMNS = 72, 30, 80
PACE = timedelta(minutes=1)  # tokens a minute are those of the calls that ended within it
CALLS_MAX = 100_000  # kept for that; more in a minute than any council makes
PROPOSALS_MAX = 10_000
ONCE_ROWS = 40  # lines of a screen, and calls, that are printed once
SPENDING_KINDS = frozenset({"spending", "denial", "overrun"})


class Screen:
    """Shows a council's status above its newest events, until it is ended.

    It begins after the event with cursor ``since`` (None: now). Without ``follow`` it shows what has happened so far,
    and ends.
    ``where`` are the options that name the council in a command.
    """

    def __init__(
        self,
        council: Council,
        report: Report,
        *,
        since: int | None = None,
        follow: bool = True,
        where: Sequence[str] = (),
    ) -> None:
        self._council = council
        self._report = report
        self._since = since
        self._follow = follow
        console = report.out
        # A dumb terminal, as screen readers and editors have, can't place anything: it gets lines.
        self._screen = follow and not report.as_json and console.is_terminal and not console.is_dumb_terminal
        self._status: dict[str, Any] | None = None
        self._recent: deque[Event] = deque(maxlen=RECENT_MAX)
        self._trouble = ""
        self._live: Live | None = None
        self._cases = Cases(council, where)
        self._ended = asyncio.Event()
        self._look, self._changed = asyncio.Event(), asyncio.Event()

    def watch(self) -> int:
        """Until q, Ctrl-C, or the council's end. Returns the exit code."""
        return asyncio.run(self._run())

    def wants(self, event: Event) -> bool:
        """Whether an event is shown. Called once for each event, in order."""
        return True

    def parts(self, status: Mapping[str, Any], height: int) -> list[RenderableType]:
        """The parts above the events, on a screen of that many lines. What waits for a human is first."""
        width, roomy = self._report.out.width, height >= ROOMY_LINES
        found: list[RenderableType] = [overview.heading(status)]
        found += [*overview.inactive_seats(status), *overview.stalled(status)]
        found += self._cases.lists(status, width, height)
        found.append(rule("seats", roomy=roomy))
        is_large = width >= SEATS_COLUMNS and height >= SEATS_LINES
        found.append(overview.seats(status) if is_large else overview.seats_in_a_line(status))
        return [*found, rule("events", roomy=roomy)]

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
        if self._live is not None:
            work += [asyncio.create_task(self._watch()), asyncio.create_task(self._draw(self._live))]
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
                self._cases.wait(await self._council.aio.escalations())
                await self._cases.load()
                self._trouble = ""
            except CouncilDied:
                raise
            except CouncilError as error:
                self._trouble = f"no answer since {datetime.now():%H:%M:%S}, trying again: {error}"
                await asyncio.sleep(PAUSE_S)
            self._changed.set()
            await _within(LOOK_S, self._look)

    async def _draw(self, live: Live) -> None:
        while True:
            live.refresh()
            await _within(REDRAW_S, self._changed)

    def _pressed(self, key: str) -> None:
        if key == QUIT:
            self._ended.set()
        elif self._cases.pressed(key):
            self._look.set()
        self._changed.set()

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
        # It is refreshed on the loop, so that what fails in drawing ends the command, with the screen restored.
        self._live = live = Live(
            get_renderable=self._drawing, console=self._report.out, screen=True, auto_refresh=False
        )
        with contextlib.ExitStack() as taken:

            def take() -> None:
                taken.enter_context(live)
                taken.enter_context(keys(self._pressed))

            def suspended() -> None:  # Ctrl-Z: the shell gets its terminal back meanwhile
                taken.close()
                os.kill(os.getpid(), signal.SIGSTOP)
                take()

            take()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTSTP, suspended)
            yield

    def _drawing(self) -> RenderableType:
        if self._status is None:
            return Text("")
        console = self._report.out
        height = console.size.height
        room = max(1, height - 1)
        if self._cases.opened is not None:
            shown = self._cases.case_lines(console, room)
        else:
            shown, marked = [], 0
            for part in self.parts(self._status, height):
                marked = len(shown) if part is self._cases.marked else marked
                shown += console.render_lines(part, pad=False)
            for event in list(self._recent)[-max(1, room - len(shown)) :]:
                row = render.row(event) if console.width >= ROW_COLUMNS else render.happened(event)
                shown += console.render_lines(on_one_line(row), pad=False)
            first = max(0, marked + 1 - room)  # the selected row is on the screen, however low that is
            shown = shown[first : first + room]
        shown += [[]] * (room - len(shown))
        said = self._help() if console.width >= ROW_COLUMNS else self._help().replace("  ·  ", ", ")
        foot = Text(line(self._trouble), "yellow") if self._trouble else Text(said, render.DIM)
        return Group(SegmentLines(shown, new_lines=True), on_one_line(foot))

    def _help(self) -> str:
        if self._cases.opened is not None:
            more = f"  ·  {count(below, 'more line')}" if (below := self._cases.lines_below) else ""
            return f"q ends  ·  Esc goes back  ·  arrows scroll{more}"
        if self._cases.marked is None:
            return "q or Ctrl-C ends"
        return "q ends  ·  arrows select  ·  Enter opens"


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
        is_wide = self._report.out.width >= BUDGET_COLUMNS
        budget = overview.budget if is_wide else overview.budget_in_lines
        found.append(budget(status["budget"], pace=self._pace()))
        if self._proposals:
            dearest = sorted(
                ((proposal_id, *sums) for proposal_id, sums in self._proposals.items()),
                key=lambda each: (each[3], each[2]),
                reverse=True,
            )
            listed = overview.costliest if is_wide else overview.costliest_in_lines
            found += [rule("costliest of late"), listed(dearest[: max(3, height // 4)])]
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


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Waits for the event, at most for that time, and takes it back."""
    # Not wait_for: before Python 3.12 it can lose a cancellation that comes with the event.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    event.clear()
