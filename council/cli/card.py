"""Draws an escalation for a human: first the action to approve, then what helps to decide.

The order is: the action with its arguments, the change, who asks, the risk and the time; the votes; the gaps in what
is known, the options and the next step; and the commands that answer it. A card fits 24 lines of 80 columns. What
does not fit is cut, and a line says how much is left out and which command shows it.

Everything from outside goes through ``clean``: control characters and invisible ones are shown as their numbers.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from council.api.handle import MADE_UP_NAME
from council.cli.render import DIM, RISK_STYLES, VOTE_STYLES, text
from council.core import words
from council.kinds.text import clean, count, exact, line, span
from council.runtime.open_escalations import argument_texts, is_static, reason_of, tool_text

if TYPE_CHECKING:
    from council.cli.reach import Where
    from council.runtime.open_escalations import OpenEscalation

ROWS = 23  # a screen of 24 lines, with one for the prompt
SUBJECT_ROWS_LEAST = 5  # of the action and the change, however much else there is
VOTE_ROWS = 6  # where the rest is long
LABEL_CELLS = 10
NARROW = 40  # below this width a text begins right behind its label
TEXT_CHARS_MAX = 4_000  # of a reason, a summary or the like; show --json has all of it
REQUESTER_CHARS = 80  # of who asks, where the client's name follows it and must not be cut
_DIFF_BEGINS = ("diff --git ", "--- ", "@@ ")
NOT_AT_HAND = "its action and its change are not at hand; as long as its record is kept, this shows them:"
STATIC_ONLY = "no model read it: these votes are from static checks alone"


def council_options(where: Where) -> list[str]:
    """The options that named the council in this command, to be used in the next one."""
    given = (("--name", where.name), ("--address", where.address), ("--config", where.config))
    return [f"{option} {shlex.quote(str(value))}" for option, value in given if value is not None]


class Card:
    """One escalation as it stands at ``now_s``. ``where`` are the options that name its council in a command.

    With ``whole``, nothing is cut. Without ``answers``, the commands that answer it are left out.
    """

    def __init__(
        self,
        escalation: OpenEscalation,
        now_s: float,
        *,
        where: Sequence[str] = (),
        whole: bool = False,
        answers: bool = True,
    ) -> None:
        self._of = escalation
        self._now_s = now_s
        self._where = "".join(f" {option}" for option in where)
        self._whole = whole
        self._answers = answers

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet = _Sheet(console, options.max_width)
        more = f"council show {self._of.proposal_id}{self._where}"
        subject = [*self._subject(sheet, more)]
        if self._whole:
            yield from self._around(sheet, subject, None, None)
            return
        for rows in ((2, 2), (2, 1), (1, 1)):
            left = ROWS - len(self._around(sheet, [], *rows))
            if left >= len(subject):
                break
        yield from self._around(sheet, sheet.cut(subject, max(left, SUBJECT_ROWS_LEAST), more), *rows)

    def _around(
        self, sheet: _Sheet, subject: list[Text], vote_rows: int | None, rows: int | None
    ) -> list[Text]:
        """The card's lines: at most ``vote_rows`` of each vote, and ``rows`` of each other text."""
        votes = self._votes(sheet, vote_rows)
        if vote_rows == 1:
            votes = sheet.cut(votes, VOTE_ROWS, f"council show {self._of.proposal_id}{self._where}")
        return [
            *sheet.wrapped(Text.assemble(text(self._of.escalation_id, "bold yellow"), "  waits for a human")),
            *subject,
            *self._facts(sheet, rows),
            Text(),
            *votes,
            *self._rest(sheet, rows),
            *(self._commands(sheet) if self._answers else ()),
        ]

    def _subject(self, sheet: _Sheet, more: str) -> Iterator[Text]:
        """The action with its arguments, the short ones first, so that no long one hides them; then the change."""
        action = self._of.action
        if action is None:
            yield from sheet.wrapped(Text(_short(self._of.summary), "bold"))
        else:
            yield from sheet.wrapped(text(tool_text(action), "bold"))
            for lines in sorted((sheet.argument(*each) for each in action.args.items()), key=len):
                yield from lines
            if not action.args:
                yield from sheet.wrapped(Text("without arguments", DIM), "  ")
        if not self._of.proposer:
            yield from sheet.wrapped(Text(f"{NOT_AT_HAND} {clean(more)}", "bold yellow"), "  ")
        yield from sheet.change(self._of.body)

    def _facts(self, sheet: _Sheet, rows: int | None) -> list[Text]:
        """The facts: what the proposer says about its action, who asks, the risk, the age and the time left."""
        of = self._of
        if rows is not None and sheet.is_narrow:
            rows += 3
        says = [] if of.action is None else sheet.labelled("says", Text(_short(of.summary)), rows)
        name = "" if of.requester is None else line(str(of.requester), TEXT_CHARS_MAX)
        asks = name
        if (
            not name or rows is None or not MADE_UP_NAME.fullmatch(of.proposer)
        ):  # its key is known, unlike who asks
            short = name if rows is None else line(name, REQUESTER_CHARS)
            asks = f"{short or 'not said'}, as client {clean(of.proposer) or 'not known'}"
        times = f" · asked {span(of.age_s(self._now_s))} ago · {span(of.time_left_s(self._now_s))} left"
        return [
            *says,
            *sheet.labelled("asked by", Text(asks), rows),
            *sheet.labelled("risk", Text.assemble((of.risk, f"bold {RISK_STYLES[of.risk]}"), times), rows),
            *sheet.labelled("why", Text(_short(of.detail)), rows),
            *(
                part
                for label, said in words.notes(of.ballots)
                if label != words.NOTE_LABELS["learning"]
                for part in sheet.labelled(label, Text(_short(said), "yellow"), rows)
            ),
        ]

    def _votes(self, sheet: _Sheet, rows: int | None) -> list[Text]:
        """Each seat's vote with its reason, and Prime's ruling. A reason that was there before is not repeated."""
        ballots = self._of.ballots
        found: list[Text] = []
        for each in ballots:
            vote = (f"{each.vote} {each.confidence:.2f}", VOTE_STYLES[each.vote])
            risk = (f" {each.risk_level} risk", RISK_STYLES[each.risk_level])
            said = Text.assemble(
                vote, "" if each.risk_level == "low" else risk, f"  {_short(reason_of(each))}"
            )
            found += sheet.labelled(each.seat, said, rows)
        if not ballots:
            found += sheet.labelled("votes", Text("none"), rows)
        if (ruling := self._of.ruling) is not None:
            said = Text(f"{clean(ruling.seat)}: {ruling.ruling} {ruling.confidence:.2f}")
            is_known = any(each.seat == ruling.seat and each.reason == ruling.reason for each in ballots)
            said.append(", for the reason of its vote" if is_known else f"  {_short(reason_of(ruling))}")
            found += sheet.labelled("ruling", said, rows)
        return found

    def _rest(self, sheet: _Sheet, rows: int | None) -> list[Text]:
        """The rest: what is not known, the options, and the next step."""
        of = self._of
        told = {f"{each.seat} abstained: {each.reason}" for each in of.ballots}
        gaps = [gap for gap in of.gaps if gap not in told]
        if any(map(is_static, of.ballots)) and all(is_static(b) or b.vote == "abstain" for b in of.ballots):
            gaps.insert(0, STATIC_ONLY)
        found = sheet.labelled("unknown", Text(_short("; ".join(gaps))), rows) if gaps else []
        for names, said in self._options():
            found += sheet.labelled(names, Text(_short(said)), rows)
        return found + sheet.labelled("next", Text(_short(of.next_step)), rows)

    def _options(self) -> Iterator[tuple[str, str]]:
        """The options, with the seats instead of their reasons, which stand above."""
        seats = {f"{each.seat}: {each.reason}": each.seat for each in self._of.ballots}
        seats |= {f"{each.seat} sees high risk": each.seat for each in self._of.ballots}
        seats[f"{self._of.proposer} rates the risk of the proposal high"] = "its proposer rates the risk high"

        def named(reasons: Iterable[str]) -> str:
            return ", ".join(dict.fromkeys(seats.get(each, each) for each in reasons)) or "nothing"

        options = self._of.options
        if len(options) == 2 and (options[0].pros, options[0].cons) == (options[1].cons, options[1].pros):
            # The pros of one option are the cons of the other.
            yield "options", ", or ".join(f"{each.name} (for it: {named(each.pros)})" for each in options)
            return
        for option in options:
            yield option.name, f"for: {named(option.pros)}; against: {named(option.cons)}"

    def _commands(self, sheet: _Sheet) -> list[Text]:
        """The two commands, each on a line of its own, so that it can be copied."""
        command = clean(f"{self._of.command}{self._where}")
        approve, reject = f'{command} --approve --reason "…"', f"{command} --reject"
        return [
            Text(),
            *sheet.labelled("approve", Text(approve, "bold"), None),
            *sheet.labelled("reject", Text(reject, "bold"), None),
        ]


class _Sheet:
    """Makes lines of at most ``width`` cells."""

    def __init__(self, console: Console, width: int) -> None:
        self._console = console
        self._width = max(width, 12)
        self.is_narrow = width < NARROW

    def wrapped(self, said: Text, first: str = "", other: str | None = None) -> list[Text]:
        """``said`` on lines: the first begins with ``first``, the others with ``other``, or with ``first`` too."""
        other = first if other is None else other
        if (
            len(said) + max(len(first), len(other)) <= self._width
            and said.plain.isascii()
            and "\n" not in said
        ):
            return [
                Text.assemble((first, DIM), said)
            ]  # as most lines of a change, of which there may be many
        lines = said.wrap(self._console, self._width - max(len(first), len(other)), overflow="fold")
        for each in lines:
            each.rstrip()
        begins = (first, *[other] * (len(lines) - 1))
        return [Text.assemble((begin, DIM), each) for begin, each in zip(begins, lines, strict=True)]

    def labelled(self, label: str, said: Text, rows: int | None) -> list[Text]:
        """A label and a text on at most ``rows`` lines; None for as many as it takes."""
        label = clean(label)
        if self.is_narrow or len(label) >= LABEL_CELLS:
            lines = self.wrapped(Text.assemble((f"{label}  ", DIM), said))
        else:
            lines = self.wrapped(said, f"{label:<{LABEL_CELLS}}", " " * LABEL_CELLS)
        if rows is None or len(lines) <= rows:
            return lines
        kept = lines[:rows]
        kept[-1].truncate(self._width - 2)
        kept[-1].append(" …", DIM)
        return kept

    def argument(self, name: str, value: Any) -> list[Text]:
        """An argument: its exact value as JSON, or, if it is text of several lines, as a block."""
        shown, said = argument_texts(name, value)
        if isinstance(value, str) and "\n" in value.rstrip("\n"):
            return [*self.wrapped(Text(f"{shown}:", DIM), "  "), *self.change(exact(value))]
        return self.wrapped(Text.assemble((f"{shown} = ", DIM), said), "  ")

    def change(self, said: str) -> list[Text]:
        """Text of several lines. If it holds a diff: how much that changes, the diff, and the text before it."""
        if not said.strip():
            return []
        lines = said.rstrip("\n").split("\n")
        begin = next((at for at, each in enumerate(lines) if each.startswith(_DIFF_BEGINS)), None)
        if begin is None:
            return self.block(lines)
        diff = lines[begin:]
        files = sum(each.startswith("+++ ") for each in diff)
        added, removed = (sum(each[:1] == sign and each[:3] != 3 * sign for each in diff) for sign in "+-")
        size = Text(f"{count(files, 'file')} changed, {added:,} lines added, {removed:,} removed", DIM)
        return [*self.wrapped(size, "  "), *self.block(diff, _diff_style), *self.block(lines[:begin])]

    def block(self, lines: Iterable[str], style: Callable[[str], str] = lambda _: "") -> list[Text]:
        """Lines behind a bar, so that none of them looks like one of the card's."""
        return [part for each in lines for part in self.wrapped(text(each, style(each)), "  │ ")]

    def cut(self, lines: list[Text], rows: int, command: str) -> list[Text]:
        """At most ``rows`` of these lines; the last one says how many more there are, and what shows them."""
        if len(lines) <= rows:
            return lines
        said = self.wrapped(
            Text(f"… {count(len(lines) - rows + 1, 'more line')}: {clean(command)}", "yellow")
        )
        return [*lines[: rows - 1], *said]


def _short(said: str) -> str:
    return line(said, TEXT_CHARS_MAX)


def _diff_style(said: str) -> str:
    if said.startswith(("+++", "---", "diff --git ", "index ")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(said[:1], "")
