"""The cases on the screen of ``council watch``: lists with a selection, and the case that is opened."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.segment import Segment
from rich.text import Text

from council.cli import overview, render
from council.cli.operate.case_view import case_view
from council.cli.record.story import Story
from council.cli.render import DIM, text
from council.journal.entries import PAGE_MAX, Entry
from council.kinds.phrases import ID_SHOWN
from council.kinds.text import line, span
from council.protocol.errors import CouncilError, Refused

if TYPE_CHECKING:
    from council.api.client import Council
    from council.runtime.open_escalations import OpenEscalation

# A narrower screen has a short form of each row; one as wide as VOTES_COLUMNS names every seat's vote.
ROW_COLUMNS, VOTES_COLUMNS = 60, 100
# Above each list is an empty line if the screen has this many lines.
ROOMY_LINES = 40
MARK = "> "
# A large case takes seconds to draw. It is drawn again after so many times as long, and keys are read meanwhile.
DRAWN_FOR = 20


class Cases:
    """The lists of cases: waiting for a human, open, decided. ``opened`` is the proposal id of the opened case.

    As it was last drawn, ``marked`` is the row of the selected case, and ``lines_below`` the number of lines of the
    opened case that are below the screen.
    """

    def __init__(self, council: Council, where: Sequence[str] = ()) -> None:
        self._council = council
        self._where = where  # the options that name the council in a command
        self._ids: list[str] = []  # as drawn, from top to bottom
        self._selected: str | None = None  # the first, until a key has chosen another
        self._waiting: dict[str, OpenEscalation] = {}
        self._case: OpenEscalation | Story | None = None
        self._trouble = ""
        self._first_line = self._page = 0
        self._drawn: _Drawn | None = None
        self.opened: str | None = None
        self.marked: RenderableType | None = None
        self.lines_below = 0

    # Keys

    def pressed(self, key: str) -> bool:
        """Acts on a key. True if a case was opened by it, which is to be loaded."""
        if self.opened is None:
            return self._choose(key)
        steps = {"up": -1, "down": 1, "page up": -self._page, "page down": self._page}
        if key in ("escape", "left"):
            self.opened = self._case = None
        elif key in steps:
            self._first_line = max(0, self._first_line + steps[key])
        elif key in ("home", "end"):
            self._first_line = 0 if key == "home" else 10**6  # drawing it stops at the last page
        return False

    def _choose(self, key: str) -> bool:
        at, last = self._place(), len(self._ids) - 1
        places = {"up": max(at - 1, 0), "down": min(at + 1, last), "home": 0, "end": last}
        if not self._ids:
            return False
        if key in places:
            self._selected = self._ids[places[key]]
        if key not in ("enter", "right"):
            return False
        self._selected = self.opened = self._ids[at]
        self._first_line, self._trouble = 0, ""
        return True

    def _place(self) -> int:
        return self._ids.index(self._selected) if self._selected and self._selected in self._ids else 0

    # The lists

    def wait(self, waiting: Sequence[OpenEscalation]) -> None:
        """Sets the list of what waits for a human now."""
        self._waiting = {each.proposal_id: each for each in sorted(waiting, key=lambda e: -e.asked_wall_s)}

    def lists(self, status: Mapping[str, Any], width: int, height: int) -> list[RenderableType]:
        """The lists, each row on one line, for a screen of that size; the newest first."""
        opened = [each for each in status["open"] if each["stage"] != "human"]
        names, now_s, wide = [each["name"] for each in status["seats"]], time.time(), width >= ROW_COLUMNS
        escalated = {key: _waiting_row(each, now_s, wide) for key, each in self._waiting.items()}
        open_rows = {each["proposal_id"]: _open_row(each, names, width) for each in opened}
        decided = {each["proposal_id"]: _decided_row(each, wide) for each in status["decisions"]}
        place = self._place()
        self._ids = list(dict.fromkeys([*escalated, *open_rows, *decided]))
        if self._selected is not None and self._selected not in self._ids:  # the one that took its place
            self._selected = self._ids[min(place, len(self._ids) - 1)] if self._ids else None
        self.marked = None
        counts = (len(self._waiting), status["open_count"], sum(status["decided"].values()))
        waits = f"wait{'s' if len(self._waiting) == 1 else ''} " if wide else ""
        titles = (f"{waits}for a human", "open", "decided")
        rows = (max(1, height // 4), max(1, height // 6), max(1, height // 8))
        found: list[RenderableType] = []
        for title, number, listed, rows_max in zip(
            titles, counts, (escalated, open_rows, decided), rows, strict=True
        ):
            style = "bold yellow" if number and listed is escalated else DIM
            found.append(rule(f"{number:,} {title}", style, roomy=height >= ROOMY_LINES))
            found += self._window(listed, number, rows_max)
        return found

    def _window(self, listed: Mapping[str, Text], number: int, rows_max: int) -> list[RenderableType]:
        """As many rows as there is room for, around the selected one, and how many more there are."""
        ids = list(listed)
        selected = self._ids[self._place()] if self._ids else None
        first = max(0, ids.index(selected) - rows_max + 1) if selected and selected in listed else 0
        found: list[RenderableType] = []
        for each in ids[first : first + rows_max]:
            is_selected = each == selected
            row = on_one_line(Text.assemble(MARK if is_selected else " " * len(MARK), listed[each]))
            if is_selected:
                row.stylize("reverse")
                self.marked = row
            found.append(row)
        if (more := number - len(found)) > 0:
            found.append(on_one_line(Text(f"{' ' * len(MARK)}{more:,} more", DIM)))
        return found

    # The opened case

    async def load(self) -> None:
        """Reads the opened case, as far as the council still keeps it. An error is shown in its place."""
        proposal_id = self.opened
        if proposal_id in self._waiting:
            self._case = self._waiting[proposal_id]
            return
        known = self._case.decision if isinstance(self._case, Story) else None
        if proposal_id is None or (known is not None and known.final):
            return
        council, entries, decision = self._council.aio, tuple[Entry, ...](), None
        try:
            try:
                page = await council.history(
                    proposal=proposal_id, newest_first=False, limit=PAGE_MAX, envelopes=True
                )
                entries = page.entries
            except Refused:  # a journal in memory has forgotten it
                pass
            decision = await council.decision(proposal_id)
        except CouncilError as error:
            self._trouble = f"the case can't be read: {error}"
            return
        if self.opened == proposal_id:
            self._trouble = ""
            self._case = Story(proposal_id, entries, (), decision, None)

    def _case_shown(self) -> RenderableType:
        if self._case is None:
            return text(self._trouble or "reading the case ...", "yellow")
        shown = case_view(self._case, time.time(), self._where)
        return Group(text(self._trouble, "yellow"), shown) if self._trouble else shown

    def case_lines(self, console: Console, height: int) -> list[list[Segment]]:
        """The lines of the opened case that are on a screen of that height."""
        about = (self._case, self._trouble, console.width)
        drawn = self._drawn
        if drawn is None or drawn.about != about or time.monotonic() >= drawn.until_s:
            began_s = time.monotonic()
            lines = console.render_lines(self._case_shown(), pad=False)
            ended_s = time.monotonic()
            drawn = self._drawn = _Drawn(about, lines, ended_s + DRAWN_FOR * (ended_s - began_s))
        lines = drawn.lines
        self._page = max(1, height - 1)
        self._first_line = min(self._first_line, max(0, len(lines) - height))
        self.lines_below = max(0, len(lines) - height - self._first_line)
        return lines[self._first_line : self._first_line + height]


class _Drawn(NamedTuple):
    """The lines of a drawn case, the data that they were drawn from, and the time until which they are used."""

    about: tuple[object, ...]
    lines: list[list[Segment]]
    until_s: float


def _waiting_row(each: OpenEscalation, now_s: float, wide: bool) -> Text:
    risk = Text(f"{each.risk_level:<4} ", render.RISK_STYLES[each.risk_level])
    summary = line(each.summary, 160)
    if not wide:
        return Text.assemble(risk, summary)
    left = f"{span(max(0.0, each.expires_wall_s - now_s))} left"
    return Text.assemble((f"{each.proposal_id[:ID_SHOWN]}  ", DIM), f"{left:>16}  ", risk, f" {summary}")


def _open_row(each: Mapping[str, Any], names: Sequence[str], width: int) -> Text:
    summary = line(each["summary"], 160)
    if width < ROW_COLUMNS:
        return Text(f"{len(each['voted'])}/{len(names)} {summary}")
    left = "" if each["time_left_s"] is None else f"{span(max(0.0, each['time_left_s']))} left"
    risk = Text(f"{each['risk_level']:<4}", render.RISK_STYLES.get(each["risk_level"], ""))
    votes = Text(f"{len(each['voted'])} of {len(names)} voted")
    if width >= VOTES_COLUMNS:
        votes = overview.votes(names, each["voted"], each["lost"], each["stage"])
    return Text.assemble(
        (f"{each['proposal_id'][:ID_SHOWN]}  ", DIM), f"{left:>16}  ", risk, "  ", votes, f"  {summary}"
    )


def _decided_row(each: Mapping[str, Any], wide: bool) -> Text:
    how = each["outcome"] or "escalated"
    summary, style = line(each["summary"], 160), render.OUTCOME_STYLES[how]
    if not wide:
        return Text.assemble((f"{how} ", style), summary)
    at = f"{datetime.fromtimestamp(each['at']):%H:%M:%S}"
    shown = (f"{how:<9}", style)
    return Text.assemble((f"{each['proposal_id'][:ID_SHOWN]}  ", DIM), f"{at:>16}  ", shown, f"  {summary}")


def on_one_line(found: Text) -> Text:
    found.no_wrap, found.overflow = True, "ellipsis"
    return found


def rule(title: str, style: str = DIM, *, roomy: bool = True) -> RenderableType:
    """A line that begins a part of the screen, below an empty line if there is room for one."""
    drawn = Rule(Text(f"{title} ", style), align="left", characters="─", style=DIM)
    return Group("", drawn) if roomy else drawn
