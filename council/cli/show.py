"""Draws decisions, seats, escalations and settings for a terminal. Knows nothing of where they came from.

Everything from outside goes through ``clean`` into ``Text``, which holds no markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from council.cli.text import clean, count, line, span

if TYPE_CHECKING:
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
BAR_CELLS = 16
BUDGET_NUMBERS = ("calls", "tokens", "held", "left", "cost", "left ")
DIM = "bright_black"


def text(value: object, style: str = "") -> Text:
    """``value``, whatever it holds, as harmless text."""
    return Text(clean(str(value)), style=style)


def word(decision: Decision) -> str:
    """The one word for how a proposal stands."""
    return decision.outcome or decision.standing


def decision(decided: Decision, *, council: str | None = None, ended: bool = False) -> RenderableType:
    """A decision with all that it rests on: every seat, the tally, the ruling, the dissent.

    ``ended``: its council is no more, so that nobody can answer what is escalated.
    """
    how = word(decided)
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


def _table(*columns: str, numbers: Iterable[str] = (), wide: str | None = None) -> Table:
    table = Table(box=None, show_header=True, header_style=DIM, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        right = name in numbers
        table.add_column(
            name,
            justify="right" if right else "left",
            no_wrap=name != wide,
            ratio=1 if name == wide else None,
        )
    table.expand = wide is not None
    return table


def _one_line(table: Table) -> Table:
    """Has the last column cut instead of wrapped, so that a row is a line."""
    table.columns[-1].no_wrap, table.columns[-1].overflow = True, "ellipsis"
    return table


def facts(lines: Iterable[tuple[str, Text]]) -> Table:
    """Lines of a label and what is said of it, which may be long."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
    table.add_column(style=DIM, no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for label, said in lines:
        table.add_row(label, said)
    return table


def _ballots(cast: Iterable[Ballot]) -> Table:
    table = _table("seat", "vote", "sure", "risk", "reason", numbers=("sure",), wide="reason")
    for ballot in cast:
        table.add_row(*ballot_cells(ballot))
    return table


def _votes(decided: Decision) -> Table:
    """Every seat's ballot, or why there is none; and those that came too late."""
    table = _ballots(decided.ballots)
    for seat, why in decided.missing:
        table.add_row(text(seat), Text("—", DIM), "", "", text(line(why), DIM))
    for ballot in decided.late:
        *cells, reason = ballot_cells(ballot)
        table.add_row(*cells, Text.assemble(("late, not counted: ", "yellow"), reason))
    return table


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
    """A reason, as long as it is read on a terminal; says so where it is longer."""
    if len(reason) <= REASON_CHARS_MAX:
        return reason.strip() or "(no reason given)"
    rest = len(reason) - REASON_CHARS_MAX
    return f"{reason[:REASON_CHARS_MAX].rstrip()}… ({rest:,} characters more: --json)"


def _facts(decided: Decision, *, ended: bool) -> Iterator[tuple[str, Text]]:
    """What else the decision says of itself."""
    if decided.escalated_for:
        yield "escalated", text("; ".join(decided.escalated_for))
    if decided.tie_break is not None:
        yield "tie", text(f"broken by {decided.tie_break.seat}'s own ballot: {decided.tie_break.vote}")
    if (ruling := decided.ruling) is not None:
        said = f"{ruling.seat}: {ruling.ruling} ({ruling.confidence:.2f}, {ruling.risk_level} risk). "
        yield "ruling", text(said + shortened(ruling.reason))
    if (answer := decided.answer) is not None:
        said = f"{answer.human} {'approved' if answer.approve else 'rejected'} it"
        yield "human", text(f"{said}: {answer.reason}" if answer.reason else said)
    if decided.dissent:
        yield "dissent", text(shortened(decided.dissent))
    if decided.early:
        yield "early", Text("no ballot still to come could have turned it")
    if decided.degraded:
        yield "degraded", Text("decided without every seat that should have voted", "yellow")
    if decided.spent:
        yield "spent", text(spending(decided.spent))
    for label, seats in decided.shared:
        yield "shared", text(f"{', '.join(seats)} share {label}: their votes are not independent")
    if not decided.final and decided.escalation_id and not ended:
        yield "next", text(_answering(decided.escalation_id), "bold")


def _answering(escalation_id: str) -> str:
    return f"council answer {escalation_id} --approve | --reject --reason …"


def overruns(told: Sequence[Mapping[str, Any]]) -> str:
    """What was done to make a prompt fit, in words (rules 2.4)."""
    return ", ".join(f"{one['field']} {one['before']:,} → {one['after']:,} ({one['how']})" for one in told)


def spending(accounts: Sequence[Account]) -> str:
    """What the seats' models cost, in words: all of it, by seat, and what is not known yet."""
    from council.core.state import Spend

    spent = sum((account.spent for account in accounts), Spend())
    held = sum((account.held for account in accounts), Spend())
    said = f"{spent} ({', '.join(f'{each.seat} {each.spent.tokens:,}' for each in accounts)})"
    under_way = f"; up to {held} for calls still under way" if held != Spend() else ""
    assumed = sum(account.assumed for account in accounts)
    unknown = f"; {count(assumed, 'call')} as reserved, for nobody told the usage" if assumed else ""
    return said + under_way + unknown


def bar(age_s: float, limit_s: float) -> Text:
    """How much of the time that a seat may be silent has passed."""
    part = min(max(age_s / limit_s, 0.0), 1.0)
    full = round(part * BAR_CELLS)
    style = "green" if part < 0.5 else "yellow" if part < 1 else "red"
    return Text.assemble(("━" * full, style), ("─" * (BAR_CELLS - full), DIM))


def seats(status: Mapping[str, Any]) -> Table:
    """The roll: each seat, whether it counts, and how long ago its heart beat."""
    limit_s = float(status["inactivity_limit_s"])
    table = _table("seat", "", "heartbeat", "ago", "beats", "restarts", numbers=("ago", "beats", "restarts"))
    for seat in status["seats"]:
        active = bool(seat["active"])
        name = Text.assemble(text(seat["name"]), (" (prime)" if seat["name"] == status["prime"] else "", DIM))
        if name.plain == "prime (prime)":
            name = text(seat["name"])
        table.add_row(
            name,
            Text("active", "green") if active else Text("inactive", "red"),
            bar(seat["heartbeat_age_s"], limit_s),
            Text(f"{seat['heartbeat_age_s']:.0f} s of {limit_s:g} s", DIM),
            str(seat["heartbeats"]),
            Text(str(seat["restarts"]), "yellow" if seat["restarts"] else ""),
        )
    return table


def inactive_seats(status: Mapping[str, Any]) -> list[Text]:
    """Why each inactive seat is that."""
    return [
        text(f"{seat['name']} is inactive: {line(str(seat['why']))}", "yellow")
        for seat in status["seats"]
        if not seat["active"]
    ]


def heading(status: Mapping[str, Any]) -> Text:
    """One line on the council."""
    seats = status["seats"]
    active = sum(1 for seat in seats if seat["active"])
    return Text.assemble(
        text(status["name"], "bold"),
        (
            f"  up {span(status['uptime_s'])}  ·  {active} of {count(len(seats), 'seat')} active"
            f"  ·  quorum {status['quorum']}",
            DIM,
        ),
    )


def open_proposals(status: Mapping[str, Any], *, rows_max: int = 20) -> RenderableType:
    """What is deliberated or ruled on, with the votes that are in; what waits for a human stands elsewhere."""
    found = [each for each in status["open"] if each["stage"] != "human"]
    if not found:
        return Text("no open proposal", DIM)
    table = _table(
        "proposal", "for", "left", "risk", "votes", "summary", numbers=("for", "left"), wide="summary"
    )
    _one_line(table)
    for each in found[:rows_max]:
        left = each["time_left_s"]
        table.add_row(
            text(each["proposal_id"][:10]),
            span(each["age_s"]),
            "" if left is None else span(max(left, 0.0)),
            Text(each["risk_level"], RISK_STYLES.get(each["risk_level"], "")),
            votes([seat["name"] for seat in status["seats"]], each["voted"], each["lost"], each["stage"]),
            text(line(each["summary"], 160)),
        )
    more = status["open_count"] - min(len(found), rows_max)
    return Group(table, Text(f"and {more:,} more", DIM)) if more > 0 else table


def votes(names: Sequence[str], voted: Mapping[str, str], lost: Mapping[str, str], stage: str) -> Text:
    """Who voted what, in few cells."""
    marks = {"yes": "✓", "no": "✗", "abstain": "○"}
    shown = Text()
    for name in names:
        vote = voted.get(name)
        mark, style = (marks[vote], VOTE_STYLES[vote]) if vote else ("·", DIM)
        if vote is None and name in lost:
            mark, style = "!", "yellow"
        shown.append(f"{mark} ", style).append(f"{line(name, 8)} ", "" if vote else DIM)
    if stage == "ruling":
        shown.append("ruling", "yellow")
    return shown


def totals(status: Mapping[str, Any]) -> Table:
    """What was decided, refused and ignored so far."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style=DIM, no_wrap=True)
    table.add_column()
    for label, counts in (("decided", status["decided"]), ("refused", status["refused"])):
        said = Text("  ").join(
            Text.assemble((f"{number:,} ", ""), text(name, OUTCOME_STYLES.get(name, "")))
            for name, number in sorted(counts.items())
        )
        if label == "decided" and (ways := _ways(status)):
            said.append(f"  ({ways})", DIM)
        table.add_row(label, said if said else Text("none", DIM))
    who = ", ".join(status["humans"]) or "nobody"
    table.add_row("waiting", text(f"{count(status['with_human'], 'proposal')} for a human ({who} may answer)",
                                  "yellow" if status["with_human"] else DIM))  # fmt: skip
    table.add_row("journal", _journal(status))
    return table


def _ways(status: Mapping[str, Any]) -> str:
    """How decisions came about, beside their outcomes, and how many ballots came too late."""
    found = [f"{number:,} {way.replace('_', '-')}" for way, number in status["ways"].items() if number]
    return ", ".join(found + [count(late, "late ballot") for late in (status["late_ballots"],) if late])


def _journal(status: Mapping[str, Any]) -> Text:
    """How far the journal is, and how much of that is not on disk."""
    if not status["durable"]:
        return Text(f"#{status['position']:,}, in memory", DIM)
    restarts = f" ({count(status['epoch'] - 1, 'restart')})" if status["epoch"] > 1 else ""
    said = Text(f"#{status['position']:,}, epoch {status['epoch']}{restarts}")
    said.append(f"  ·  {status['journal_lag']:,} behind", "yellow" if status["journal_lag"] else DIM)
    if (took_s := status["journal_write_s"]) is not None:
        said.append(f"  ·  last write {span(took_s) if took_s > 0.1 else f'{1000 * took_s:.3g} ms'}", DIM)
    return said


def stalled(status: Mapping[str, Any]) -> list[RenderableType]:
    """Why nothing can be kept at the moment, and what that holds up; or why it is not vouched for."""
    if status["journal_trouble"] is None:
        unsigned = status["journal_unsigned"]
        return [text(f"the journal has no checkpoint: {line(unsigned)}", "yellow")] if unsigned else []
    held = f"{count(status['journal_lag'], 'record')} not on disk"
    about = f" (on {count(status['untold'], 'proposal')})" if status["untold"] else ""
    return [text(f"journal stalled: {line(status['journal_trouble'])}; {held}{about}", "red")]


def status(told: Mapping[str, Any], waiting: Sequence[Escalation], now_s: float) -> RenderableType:
    """The council at a glance."""
    parts: list[RenderableType] = [heading(told), "", seats(told), *inactive_seats(told), *stalled(told), ""]
    if change := told["identity"]["change"]:
        said = f"the identity was changed to {change['after']['hash'][:12]}: put it into the charter, and launch anew"
        parts += [text(said, "yellow"), ""]
    parts += placement(told) + served(told)
    parts += [open_proposals(told), ""]
    if waiting:
        parts += [waiting_lines(waiting, now_s), ""]
    parts.append(totals(told))
    return Group(*parts)


def served(told: Mapping[str, Any]) -> list[RenderableType]:
    """Where the council's page and its metrics are, or why they are not; of what it is not to have, nothing."""
    seen = {what: told.get(what) or {} for what in ("panel", "metrics")}
    lines: list[RenderableType] = [
        text(f"{what} {each['url']}" if each["url"] else f"no {what}: {each['notice']}", DIM)
        for what, each in seen.items()
        if each.get("url") or each.get("notice")
    ]
    return [*lines, ""] if lines else []


def placement(told: Mapping[str, Any]) -> list[RenderableType]:
    """On a cluster, which node each of its actors is on."""
    found = told.get("placement")
    if found is None or found["nodes"] < 2:
        return []
    on = {"coordinator": found["coordinator"], **found["seats"]}
    places = ", ".join(f"{who} on {node['host'] or 'a node that is gone'}" for who, node in on.items())
    stays = "; the coordinator stays where its journal is, a file" if found["pinned"] else ""
    return [text(f"{found['nodes']} nodes: {places}{stays}", DIM), ""]


def waiting_lines(waiting: Sequence[Escalation], now_s: float, *, rows_max: int = 10) -> Table:
    """Escalations, one line each, as they stand at ``now_s``."""
    table = _table("escalation", "risk", "left", "because", "summary", numbers=("left",), wide="summary")
    _one_line(table)
    for each in waiting[:rows_max]:
        left = _left_to_answer(each, now_s)
        risk = Text(each.risk_level, RISK_STYLES[each.risk_level])
        table.add_row(text(each.escalation_id), risk, left, text(each.reason), text(line(each.summary, 160)))
    return table


def _left_to_answer(waiting: Escalation, now_s: float) -> str:
    return span(max(0.0, waiting.expires_wall_s - now_s))


def escalation(waiting: Escalation, now_s: float) -> RenderableType:
    """One escalation in full: ballots, options, what is not known, and the next step, as it stands at ``now_s``."""
    left = _left_to_answer(waiting, now_s)
    parts: list[RenderableType] = [
        text(line(waiting.summary, 300), "bold"),
        Text.assemble(
            text(waiting.detail), (f"  ·  risk {waiting.risk_level}  ·  {left} left to answer", DIM)
        ),
        "",
    ]
    if waiting.ballots:
        parts += [_ballots(waiting.ballots), ""]
    if waiting.ruling is not None:
        said = f"{waiting.ruling.seat} ruled {waiting.ruling.ruling}: {shortened(waiting.ruling.reason)}"
        parts += [text(said), ""]
    for option in waiting.options:
        parts.append(text(option.name, "bold"))
        parts += [_item("+", "green", each) for each in option.pros]
        parts += [_item("−", "red", each) for each in option.cons]
    if waiting.gaps:
        parts += ["", Text("not known", "bold"), *(_item("?", "yellow", gap) for gap in waiting.gaps)]
    parts += ["", text(waiting.next_step), text(_answering(waiting.escalation_id), DIM)]
    return Panel(
        Group(*parts),
        title=text(waiting.escalation_id, "bold yellow"),
        title_align="left",
        border_style="yellow",
        box=box.ROUNDED,
        padding=(0, 1),
    )


def _item(mark: str, style: str, said: str) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_row(Text(mark, style), text(line(said, 400)))
    return Padding(grid, (0, 0, 0, 2))


def settings(lines: Sequence[tuple[str, Any, str]]) -> Table:
    """The configuration: key, value, and where the value came from."""
    table = _table("key", "value", "from", wide="from")
    table.columns[1].no_wrap = False
    table.columns[1].overflow = "fold"
    for key, value, origin in lines:
        set_by_hand = origin != "default"
        shown = Text("not set", DIM) if value is None else text(value, "bold" if set_by_hand else "")
        table.add_row(text(key), shown, text(origin, "cyan" if set_by_hand else DIM))
    return table


def checks(found: Sequence[tuple[str, str, str]]) -> Table:
    """Doctor's findings: ``(level, what, said)``."""
    marks = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for level, what, said in found:
        mark, style = marks[level]
        table.add_row(Text(f"{mark} {level}", style), text(what), text(said))
    return table


def budget(told: Mapping[str, Any], pace: Mapping[str, int] | None = None) -> RenderableType:
    """What models have cost by seat, what is held for calls under way, and what is left.

    ``pace`` are the tokens of the last minute, by seat.
    """
    columns = BUDGET_NUMBERS if pace is None else ("calls", "tokens", "a minute", *BUDGET_NUMBERS[2:])
    table = _table("seat", *columns, numbers=columns)
    rows = [*told["seats"].items(), ("all together", told["council"])]
    for name, account in rows:
        spent, held, caps = account["spent"], account["held"], account["caps"]
        tokens, money = (_left(caps[unit], spent[unit] + held[unit]) for unit in ("tokens", "microusd"))
        table.add_row(
            text(name, "bold" if account is told["council"] else ""),
            f"{account['calls']:,}",
            f"{spent['tokens']:,}",
            *(() if pace is None else (_paced(pace, None if account is told["council"] else name),)),
            Text(f"{held['tokens']:,}", "" if held["tokens"] else DIM),
            Text("no limit", DIM) if tokens is None else Text(f"{tokens:,}", "" if tokens else "red"),
            f"${spent['microusd'] / 1e6:,.4f}",
            Text("no limit", DIM) if money is None else Text(f"${money / 1e6:,.4f}", "" if money else "red"),
        )
    assumed = told["council"]["assumed"]
    parts: list[RenderableType] = [table]
    caps = told["proposal_caps"]
    if caps["tokens"] is not None or caps["microusd"] is not None:
        most = [f"{caps['tokens']:,} tokens"] if caps["tokens"] is not None else []
        most += [f"${caps['microusd'] / 1e6:,.4f}"] if caps["microusd"] is not None else []
        parts += ["", text(f"at most {' and '.join(most)} on one proposal", DIM)]
    if assumed:
        said = f"{count(assumed, 'call')} cost what was reserved: nobody told what was used"
        parts += ["", text(said, "yellow")]
    return Group(*parts)


def _paced(pace: Mapping[str, int], seat: str | None) -> Text:
    tokens = sum(pace.values()) if seat is None else pace.get(seat, 0)
    return Text(f"{tokens:,}", "" if tokens else DIM)


def costliest(found: Iterable[tuple[str, int, int, int]]) -> Table:
    """Proposals with their calls, tokens and micro-dollars."""
    table = _table("proposal", "calls", "tokens", "cost", numbers=("calls", "tokens", "cost"))
    for proposal_id, calls, tokens, microusd in found:
        table.add_row(text(proposal_id[:40]), f"{calls:,}", f"{tokens:,}", f"${microusd / 1e6:,.4f}")
    return table


def _left(cap: int | None, used: int) -> int | None:
    return None if cap is None else max(cap - used, 0)


def cost(spend: Mapping[str, Any]) -> str:
    """Tokens and money in words."""
    from council.core.state import Spend

    return str(Spend(spend["tokens"], spend["microusd"]))
