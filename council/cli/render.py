"""Renders what happens to proposals: records and events on a line, ballots and decisions in full.

There is one function for each thing, for all commands. A record of the journal and an event of the feed have the same
words if they are about the same thing.

Everything from outside goes through ``clean`` into ``Text``, which holds no markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from council.agents.static.marks import NO_OBJECTION, without_marks
from council.core import words
from council.core.state import Spend
from council.journal.entries import Entry
from council.kinds.phrases import ID_SHOWN, certainty
from council.kinds.row import Phrase, Row
from council.kinds.text import clean, count, line, span

if TYPE_CHECKING:
    from council.api.event_stream import Event
    from council.core.state import Account, Ballot, Decision, Escalation

OUTCOME_STYLES = {
    "approved": "green",
    "rejected": "red",
    "escalated": "yellow",
    "deferred": "yellow",
    "cancelled": "bright_black",
}
VOTE_STYLES = {"yes": "green", "no": "red", "abstain": "yellow"}
RISK_STYLES = {"high": "red", "med": "yellow", "low": ""}
REASON_CHARS_MAX = 1_200  # of one reason on a terminal; --json has all of it
DIM = "bright_black"
WAITING_ROWS = 10  # of what waits for a human, where it is one of several lists


def text(value: object, style: str = "") -> Text:
    """``value``, whatever it holds, as harmless text."""
    return Text(clean(str(value)), style=style)


def standing_word(decision: Decision) -> str:
    """The standing of a proposal, in one word."""
    return decision.outcome or decision.standing


def decision(decided: Decision, *, council: str | None = None, ended: bool = False) -> RenderableType:
    """A decision with its reasons: every seat, the tally, the ruling, the dissent.

    ``ended``: its council has ended, so an escalation can't be answered.
    """
    how = standing_word(decided)
    style = OUTCOME_STYLES[how]
    why = Text.assemble(
        text(line(decided.reason)),
        (f"  ·  {decided.tally}  ·  quorum {decided.quorum}  ·  {span(decided.seconds)}", DIM),
    )
    parts: list[RenderableType] = [text(line(decided.summary, 300), "bold"), why, "", _votes(decided)]
    if others := list(_facts(decided, ended=ended)):
        parts += ["", facts(others)]
    title = Text.assemble((how, f"bold {style}"))
    foot = f"proposal {decided.proposal_id}" if council is None else f"{council} · {decided.proposal_id}"
    return Panel(
        Group(*parts),
        title=title,
        title_align="left",
        subtitle=Text(clean(foot), style=DIM),
        subtitle_align="right",
        border_style=style,
        box=box.ROUNDED,
        padding=(0, 1),
    )


def table(*columns: str, numbers: Iterable[str] = (), wide: str | None = None) -> Table:
    """A table without lines. The columns in ``numbers`` are right-aligned; ``wide`` gets the remaining width."""
    found = Table(box=None, header_style=DIM, pad_edge=False, padding=(0, 2, 0, 0), expand=wide is not None)
    for name in columns:
        found.add_column(name, no_wrap=name != wide, ratio=1 if name == wide else None)
        found.columns[-1].justify = "right" if name in numbers else "left"
    return found


def one_line(found: Table) -> Table:
    """Cuts the last column instead of wrapping it, so that a row is one line."""
    found.columns[-1].no_wrap, found.columns[-1].overflow = True, "ellipsis"
    return found


def facts(lines: Iterable[tuple[str, Text]]) -> Table:
    """Lines of a label and a text, which may be long."""
    found = table("label", "said", wide="said")
    found.show_header, found.columns[0].style, found.columns[1].overflow = False, DIM, "fold"
    for label, said in lines:
        found.add_row(label, said)
    return found


# What happened, on one line


KIND_CELLS = 11  # "observation"
PLACE_CELLS = 7
DETAIL_CHARS_MAX = 300
# What a row of the table may name instead of a colour
_STYLES = {**VOTE_STYLES, **{how: f"bold {style}" for how, style in OUTCOME_STYLES.items()}}


def row(found: Entry | Event, *, dated: bool = False) -> Text:
    """A record or an event on one line: its time, a record's position, its kind, proposal, facts and result."""
    at = found.at.astimezone()
    when = at.isoformat(timespec="seconds") if dated else f"{at:%H:%M:%S}"
    place, about = "", found.proposal_id
    if isinstance(found, Entry):
        place = f"{'#' + str(found.position):>{PLACE_CELLS}} "
        ended = [each.proposal_id for each in found.decisions] + [e.proposal_id for e in found.escalations]
        about = about or (ended[0] if len(ended) == 1 and not found.more else None)
    return Text.assemble(
        (f"{when} {place}", DIM),
        (f"{clean(kind(found)):<{KIND_CELLS}} ", style(found)),
        (f"{clean(about or '')[:ID_SHOWN]:<{ID_SHOWN}} ", DIM),
        happened(found),
    )


def day(at: datetime) -> Text:
    """A line between the records of two days."""
    return Text(f"── {at.astimezone():%A, %Y-%m-%d} ──", DIM)


def kind(found: Entry | Event) -> str:
    """The kind of a record or an event, in a word or two."""
    return _row_of(found.kind).label or found.kind


def style(found: Entry | Event) -> str:
    """The colour of a record's or an event's kind."""
    named = _row_of(found.kind).style_of(found.data)
    return _STYLES.get(named, named)


def happened(found: Entry | Event) -> Text:
    """The facts and the result of an event, on one line."""
    act, detail = phrase(found.kind, found.data)
    shown = Text(line(act, DETAIL_CHARS_MAX))
    if isinstance(found, Entry):
        shown.append_text(came_to(found))
    if detail:
        shown.append(f"{': ' if act else ''}{line(detail, DETAIL_CHARS_MAX)}")
    return shown


def came_to(entry: Entry) -> Text:
    """The decisions and escalations of a record, if any."""
    if entry.more or len(entry.decisions) + len(entry.escalations) > 1:
        ends = Counter(str(each.outcome) for each in entry.decisions)
        ends.update("to a human" if end is None else end for end in entry.more.values())
        ends.update("to a human" for _ in entry.escalations)
        return Text(" → " + ", ".join(f"{number:,} {end}" for end, number in ends.items()), "bold")
    for decision in entry.decisions:
        how = standing_word(decision)
        found = Text.assemble(" → ", (how, f"bold {OUTCOME_STYLES[how]}"))
        # The words of a human, a client or Prime are in the record itself.
        shown = entry.kind in ("answer", "cancellation")
        return found if shown else found.append(f", {line(decision.reason, 120)}")
    for escalation in entry.escalations:
        # The reason why a seat gives nothing is in the record itself.
        why = escalation.detail.removesuffix(f": {entry.data.get('why')}")
        return Text.assemble(" → ", ("to a human", "bold yellow"), f", {line(why, 120)}")
    return Text()


def phrase(kind: str, data: Mapping[str, Any]) -> Phrase:
    """Describes a record or an event by its kind and data. The text may hold anything."""
    return _row_of(kind).phrase(data)


def _row_of(kind: str) -> Row:
    """The row of a kind; of one that a newer council has, what shows its data."""
    from council.kinds.table import BY_KIND  # it loads all that reads a message

    return BY_KIND.get(kind) or Row(kind, lambda data: Phrase("", str(dict(data))))


# Ballots and decisions in full


def _ballots(cast: Iterable[Ballot]) -> Table:
    found = table("seat", "vote", "confidence", "risk", "reason", numbers=("confidence",), wide="reason")
    for ballot in cast:
        found.add_row(*ballot_cells(ballot))
    return found


def _votes(decided: Decision) -> Table:
    """Every seat's ballot, or why there is none; and those that came too late."""
    found = _ballots(decided.ballots)
    for seat, why in decided.missing:
        found.add_row(text(seat), Text("—", DIM), "", "", text(line(why), DIM))
    for ballot in decided.late:
        *cells, reason = ballot_cells(ballot)
        found.add_row(*cells, Text.assemble(("late, not counted: ", "yellow"), reason))
    return found


def ballot_cells(ballot: Ballot) -> tuple[Text, Text, Text, Text, Text]:
    """A ballot as cells of a table: seat, vote, confidence, risk, reason."""
    return (
        text(ballot.seat),
        Text(ballot.vote, VOTE_STYLES[ballot.vote]),
        Text(f"{ballot.confidence:.2f}", "yellow" if not ballot.confidence >= 0.3 else ""),
        Text(ballot.risk_level, RISK_STYLES[ballot.risk_level]),
        text(shortened(ballot.reason)),
    )


def shortened(reason: str) -> str:
    """A reason without the marks of static checks, cut to what is read on a terminal."""
    reason = without_marks(reason)
    if len(reason) <= REASON_CHARS_MAX:
        return reason.strip() or "(no reason given)"
    rest = len(reason) - REASON_CHARS_MAX
    return f"{reason[:REASON_CHARS_MAX].rstrip()}… ({rest:,} characters more: --json)"


def _facts(decided: Decision, *, ended: bool) -> Iterator[tuple[str, Text]]:
    """The other facts of a decision."""
    if decided.escalated_for:
        yield "escalated", text("; ".join(decided.escalated_for))
    if decided.tie_break is not None:
        yield "tie", text(f"broken by {decided.tie_break.seat}'s own ballot: {decided.tie_break.vote}")
    if (ruling := decided.ruling) is not None:
        said = f"{ruling.seat}: {ruling.ruling} ({certainty(ruling.confidence, ruling.risk_level)})"
        is_known = any(each.seat == ruling.seat and each.reason == ruling.reason for each in decided.ballots)
        why = ", for the reason of its vote" if is_known else f". {shortened(ruling.reason)}"
        yield "ruling", text(said + why)
    if (answer := decided.answer) is not None:
        said = f"{answer.human} {'approved' if answer.approve else 'rejected'} it"
        yield "human", text(f"{said}: {answer.reason}" if answer.reason else said)
    if decided.dissent:
        said = decided.dissent
        for ballot in decided.ballots:  # the table of votes has their reasons
            said = said.replace(f"): {ballot.reason}", ")")
        yield "dissent", text(shortened(said))
    for label, said in (*words.checks(decided), *words.notes(decided.ballots)):
        yield label, text(shortened(said))
    if decided.static_only:
        yield "seen", Text(NO_OBJECTION)
    if decided.early:
        yield "early", Text("no missing ballot could have changed the result")
    if decided.degraded:
        yield "degraded", Text("decided without every seat that should have voted", "yellow")
    if decided.spent:
        yield "spent", text(spending(decided.spent))
    for label, seats in decided.shared:
        yield "shared", text(f"{', '.join(seats)} share {label}: their votes are not independent")
    if not decided.final and decided.escalation_id and not ended:
        yield "next", text(_answering(decided.escalation_id), "bold")


def _answering(escalation_id: str) -> str:
    return f"council answer {escalation_id}"


def spending(accounts: Sequence[Account]) -> str:
    """The cost of the seats' models, in words: in total, by seat, and what is not known yet."""
    spent = sum((account.spent for account in accounts), Spend())
    held = sum((account.held for account in accounts), Spend())
    said = f"{spent} ({', '.join(f'{each.seat} {each.spent.tokens:,}' for each in accounts)})"
    under_way = f"; up to {held} for calls still under way" if held != Spend() else ""
    assumed = sum(account.assumed for account in accounts)
    unknown = f"; {count(assumed, 'call')} as reserved, because the usage is unknown" if assumed else ""
    return said + under_way + unknown


def waiting_lines(waiting: Sequence[Escalation], now_s: float) -> Table:
    """The first ``WAITING_ROWS`` escalations, one line each, as they stand at ``now_s``."""
    found = one_line(
        table("escalation", "risk", "left", "because", "summary", numbers=("left",), wide="summary")
    )
    for each in waiting[:WAITING_ROWS]:
        left = _left_to_answer(each, now_s)
        risk = Text(each.risk_level, RISK_STYLES[each.risk_level])
        found.add_row(text(each.escalation_id), risk, left, text(each.reason), text(line(each.summary, 160)))
    return found


def _left_to_answer(waiting: Escalation, now_s: float) -> str:
    return span(max(0.0, waiting.expires_wall_s - now_s))
