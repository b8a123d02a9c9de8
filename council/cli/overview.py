"""Draws a council for a terminal: its seats, what is open, its settings, its costs.

Everything from outside goes through ``clean`` into ``Text``, which holds no markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from council.cli.render import (
    DIM,
    OUTCOME_STYLES,
    RISK_STYLES,
    VOTE_STYLES,
    WAITING_ROWS,
    facts,
    one_line,
    table,
    text,
    waiting_lines,
)
from council.kinds.phrases import ID_SHOWN
from council.kinds.text import count, line, span

if TYPE_CHECKING:
    from council.core.state import Escalation

BAR_CELLS = 16
BUDGET_NUMBERS = ("calls", "tokens", "held", "left", "cost", "left ")


def status(
    facts: Mapping[str, Any], waiting: Sequence[Escalation], now_s: float, where: Sequence[str] = ()
) -> RenderableType:
    """The council at a glance. ``waiting`` is newest first; ``where`` are the options that name it in a command."""
    parts: list[RenderableType] = [
        heading(facts),
        "",
        seats(facts),
        *inactive_seats(facts),
        *stalled(facts),
        "",
    ]
    if change := facts["identity"]["change"]:
        said = f"the identity was changed to {change['after']['hash'][:12]}: add it to the charter, and launch again"
        parts += [text(said, "yellow"), ""]
    parts += placement(facts) + served(facts)
    parts += [open_proposals(facts), ""]
    if waiting:
        parts += [waiting_lines(waiting, now_s)]
        if (older := len(waiting) - WAITING_ROWS) > 0:
            parts += [text(" ".join((f"{older:,} older: council escalations --all", *where)), "yellow")]
        parts += [""]
    parts.append(totals(facts))
    return Group(*parts)


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


def seats(status: Mapping[str, Any]) -> Table:
    """The roll: each seat, whether it is active, and the time since its last heartbeat."""
    limit_s = float(status["inactivity_limit_s"])
    found = table("seat", "", "heartbeat", "ago", "beats", "restarts", numbers=("ago", "beats", "restarts"))
    for seat in status["seats"]:
        active = bool(seat["active"])
        name = Text.assemble(text(seat["name"]), (" (prime)" if seat["name"] == status["prime"] else "", DIM))
        if name.plain == "prime (prime)":
            name = text(seat["name"])
        found.add_row(
            name,
            Text("active", "green") if active else Text("inactive", "red"),
            bar(seat["heartbeat_age_s"], limit_s),
            Text(f"{seat['heartbeat_age_s']:.0f} s of {limit_s:g} s", DIM),
            str(seat["heartbeats"]),
            Text(str(seat["restarts"]), "yellow" if seat["restarts"] else ""),
        )
    return found


def seats_in_a_line(status: Mapping[str, Any]) -> Text:
    """The roll in few cells: who is active, and who is not."""
    active = [seat["name"] for seat in status["seats"] if seat["active"]]
    others = [seat["name"] for seat in status["seats"] if not seat["active"]]
    return Text.assemble(
        text(", ".join(active) or "none", "green" if active else "red"),
        " active" if active else "",
        text(f"; {', '.join(others)} inactive", "red") if others else "",
    )


def bar(age_s: float, limit_s: float) -> Text:
    """The share of the time that a seat may be silent which has passed."""
    part = min(max(age_s / limit_s, 0.0), 1.0)
    full = round(part * BAR_CELLS)
    style = "green" if part < 0.5 else "yellow" if part < 1 else "red"
    return Text.assemble(("━" * full, style), ("─" * (BAR_CELLS - full), DIM))


def inactive_seats(status: Mapping[str, Any]) -> list[Text]:
    """The inactive seats, each with the reason."""
    return [
        text(f"{seat['name']} is inactive: {line(str(seat['why']))}", "yellow")
        for seat in status["seats"]
        if not seat["active"]
    ]


def open_proposals(status: Mapping[str, Any], *, rows_max: int = 20) -> RenderableType:
    """The proposals that seats or Prime still work on, with the votes so far."""
    found = [each for each in status["open"] if each["stage"] != "human"]
    if not found:
        return Text("no open proposal", DIM)
    columns = ("proposal", "for", "left", "risk", "votes", "summary")
    rows = one_line(table(*columns, numbers=("for", "left"), wide="summary"))
    for each in found[:rows_max]:
        left = each["time_left_s"]
        rows.add_row(
            text(each["proposal_id"][:10]),
            span(each["age_s"]),
            "" if left is None else span(max(left, 0.0)),
            Text(each["risk_level"], RISK_STYLES.get(each["risk_level"], "")),
            votes([seat["name"] for seat in status["seats"]], each["voted"], each["lost"], each["stage"]),
            text(line(each["summary"], 160)),
        )
    more = status["open_count"] - min(len(found), rows_max)
    return Group(rows, Text(f"and {more:,} more", DIM)) if more > 0 else rows


def votes(names: Sequence[str], voted: Mapping[str, str], lost: Mapping[str, str], stage: str) -> Text:
    """The votes so far, in few cells."""
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
    """Counts of what was decided, refused and ignored so far."""
    lines = []
    for label, counts in (("decided", status["decided"]), ("refused", status["refused"])):
        said = Text("  ").join(
            Text.assemble((f"{number:,} ", ""), text(name, OUTCOME_STYLES.get(name, "")))
            for name, number in sorted(counts.items())
        )
        if label == "decided" and (ways := _ways(status)):
            said.append(f"  ({ways})", DIM)
        lines.append((label, said if said else Text("none", DIM)))
    who = ", ".join(status["humans"]) or "nobody"
    waiting = f"{count(status['with_human'], 'proposal')} for a human ({who} may answer)"
    lines.append(("waiting", text(waiting, "yellow" if status["with_human"] else DIM)))
    lines += _tokens(status.get("tokens") or {})
    return facts([*lines, ("journal", _journal(status))])


def _ways(status: Mapping[str, Any]) -> str:
    """The numbers of early, degraded and other special decisions, and of ballots that came too late."""
    found = [f"{number:,} {way.replace('_', '-')}" for way, number in status["ways"].items() if number]
    return ", ".join(found + [count(late, "late ballot") for late in (status["late_ballots"],) if late])


def _journal(status: Mapping[str, Any]) -> Text:
    """The journal's newest position, and the number of records that are not on disk."""
    if not status["durable"]:
        return Text(f"#{status['position']:,}, in memory", DIM)
    restarts = f" ({count(status['epoch'] - 1, 'restart')})" if status["epoch"] > 1 else ""
    said = Text(f"#{status['position']:,}, epoch {status['epoch']}{restarts}")
    said.append(f"  ·  {status['journal_lag']:,} behind", "yellow" if status["journal_lag"] else DIM)
    if (took_s := status["journal_write_s"]) is not None:
        said.append(f"  ·  last write {span(took_s) if took_s > 0.1 else f'{1000 * took_s:.3g} ms'}", DIM)
    return said


def stalled(status: Mapping[str, Any]) -> list[RenderableType]:
    """The reason why the journal is stalled, and what waits for it; or why it has no checkpoint."""
    if status["journal_trouble"] is None:
        unsigned = status["journal_unsigned"]
        return [text(f"the journal has no checkpoint: {line(unsigned)}", "yellow")] if unsigned else []
    held = f"{count(status['journal_lag'], 'record')} not on disk"
    about = f" (on {count(status['untold'], 'proposal')})" if status["untold"] else ""
    return [text(f"journal stalled: {line(status['journal_trouble'])}; {held}{about}", "red")]


def served(facts: Mapping[str, Any]) -> list[RenderableType]:
    """The addresses of the panel and the metrics, or why there are none; nothing for one that is turned off."""
    seen = {what: facts.get(what) or {} for what in ("panel", "metrics")}
    lines: list[RenderableType] = [
        text(f"{what} {each['url']}" if each["url"] else f"no {what}: {each['notice']}", DIM)
        for what, each in seen.items()
        if each.get("url") or each.get("notice")
    ]
    return [*lines, ""] if lines else []


def placement(facts: Mapping[str, Any]) -> list[RenderableType]:
    """On a cluster, which node each of its actors is on."""
    found = facts.get("placement")
    if found is None or found["nodes"] < 2:
        return []
    on = {"coordinator": found["coordinator"], **found["seats"]}
    places = ", ".join(f"{who} on {node['host'] or 'a node that is gone'}" for who, node in on.items())
    stays = "; the coordinator stays where its journal is, a file" if found["pinned"] else ""
    return [text(f"{found['nodes']} nodes: {places}{stays}", DIM), ""]


def settings(lines: Sequence[tuple[str, Any, str]]) -> Table:
    """The configuration: key, value, and where the value came from."""
    found = table("key", "value", "from", wide="from")
    found.columns[1].no_wrap = False
    found.columns[1].overflow = "fold"
    found.columns[1].ratio, found.columns[2].ratio = 5, 2  # a long value leaves room for its source
    for key, value, origin in lines:
        set_by_hand = origin != "default"
        shown = Text("not set", DIM) if value is None else text(value, "bold" if set_by_hand else "")
        found.add_row(text(key), shown, text(origin, "cyan" if set_by_hand else DIM))
    return found


def checks(found: Sequence[tuple[str, str, str]]) -> Table:
    """Doctor's findings: ``(level, what, said)``."""
    marks = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}
    rows = table("level", "what", "said", wide="said")
    rows.show_header = False
    for level, what, said in found:
        mark, style = marks[level]
        rows.add_row(Text(f"{mark} {level}", style), text(what), text(said))
    return rows


def budget(facts: Mapping[str, Any], pace: Mapping[str, int] | None = None) -> RenderableType:
    """The cost of models by seat, the amount reserved for calls under way, and what is left.

    ``pace`` are the tokens of the last minute, by seat.
    """
    columns = BUDGET_NUMBERS if pace is None else ("calls", "tokens", "a minute", *BUDGET_NUMBERS[2:])
    rows = table("seat", *columns, numbers=columns)
    for name, account in (*facts["seats"].items(), ("all together", facts["council"])):
        spent, held, caps = account["spent"], account["held"], account["caps"]
        tokens, money = (_left(caps[unit], spent[unit] + held[unit]) for unit in ("tokens", "microusd"))
        rows.add_row(
            text(name, "bold" if account is facts["council"] else ""),
            f"{account['calls']:,}",
            f"{spent['tokens']:,}",
            *(() if pace is None else (_paced(pace, None if account is facts["council"] else name),)),
            Text(f"{held['tokens']:,}", "" if held["tokens"] else DIM),
            Text("no limit", DIM) if tokens is None else Text(f"{tokens:,}", "" if tokens else "red"),
            f"${spent['microusd'] / 1e6:,.4f}",
            Text("no limit", DIM) if money is None else Text(f"${money / 1e6:,.4f}", "" if money else "red"),
        )
    assumed = facts["council"]["assumed"]
    parts: list[RenderableType] = [rows]
    caps = facts["proposal_caps"]
    if caps["tokens"] is not None or caps["microusd"] is not None:
        most = [f"{caps['tokens']:,} tokens"] if caps["tokens"] is not None else []
        most += [f"${caps['microusd'] / 1e6:,.4f}"] if caps["microusd"] is not None else []
        parts += ["", text(f"at most {' and '.join(most)} on one proposal", DIM)]
    if assumed:
        said = f"{count(assumed, 'call')} cost what was reserved: the usage is unknown"
        parts += ["", text(said, "yellow")]
    return Group(*parts)


def _paced(pace: Mapping[str, int], seat: str | None) -> Text:
    tokens = sum(pace.values()) if seat is None else pace.get(seat, 0)
    return Text(f"{tokens:,}", "" if tokens else DIM)


def _left(cap: int | None, used: int) -> int | None:
    return None if cap is None else max(cap - used, 0)


def costliest(found: Iterable[tuple[str, int, int, int]]) -> Table:
    """Proposals with their calls, tokens and micro-dollars."""
    rows = table("proposal", "calls", "tokens", "cost", numbers=("calls", "tokens", "cost"))
    for proposal_id, calls, tokens, microusd in found:
        rows.add_row(text(proposal_id[:40]), f"{calls:,}", f"{tokens:,}", f"${microusd / 1e6:,.4f}")
    return rows


def budget_in_lines(facts: Mapping[str, Any], pace: Mapping[str, int]) -> RenderableType:
    """As ``budget``, for a narrow screen: each seat's tokens, money and tokens of the last minute."""
    lines = list[Text]()
    for name, account in (*facts["seats"].items(), ("all", facts["council"])):
        spent, paced = account["spent"], sum(pace.values()) if name == "all" else pace.get(name, 0)
        said = f"{line(name, 12)} {spent['tokens']:,} ${spent['microusd'] / 1e6:,.2f}, {paced:,} a minute"
        lines.append(Text(said, no_wrap=True, overflow="ellipsis"))
    return Group(Text("tokens and cost", DIM), *lines)


def costliest_in_lines(found: Iterable[tuple[str, int, int, int]]) -> RenderableType:
    """As ``costliest``, for a narrow screen."""
    said = (f"{text(each[:ID_SHOWN]).plain} {tokens:,} ${usd / 1e6:,.2f}" for each, _, tokens, usd in found)
    return Group(*(Text(each, no_wrap=True, overflow="ellipsis") for each in said))


def _tokens(counts: Mapping[str, int]) -> list[tuple[str, Text]]:
    """The row on tokens, if there is something to say; an older council says nothing."""
    said = [f"{counts[each]} {each.replace('_', ' ')}" for each in counts if counts[each]]
    unknown = counts.get("unknown")
    note = ": council tokens says which to look at" if unknown else ""
    return [("tokens", text(", ".join(said) + note, "bold red" if unknown else DIM))] if said else []
