"""``council estimate``: shows the highest cost of a proposal before it is made, as ``worst`` computes it."""

from __future__ import annotations

import asyncio
import json as jsons
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from council.cli.decide import submit
from council.cli.options import Action, Body, Config, History, Json, Risk, RiskOption
from council.cli.reach import Where
from council.cli.report import DONE, REJECTED, Report, UsageFault

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from council.cli.decide.worst import Cap, Estimate, SeatCost

COLUMNS = ("plan", "ballot", "ruling", "again", "halted", "observing", "shortening")


def estimate(
    summary: Annotated[
        str | None, typer.Argument(metavar="PROPOSAL", help="What to decide, in one sentence.")
    ] = None,
    body: Body = "",
    action: Action = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="FILE|-",
            help="The whole proposal instead: JSON, or text whose first line is the summary.",
        ),
    ] = None,
    history: History = None,
    risk: RiskOption = Risk.low,
    config: Config = None,
    json: Json = False,
) -> int:
    """Show the highest cost of a proposal before you make it.

    Shows the tokens and money of each seat, and whether they fit the caps of the budget. It counts each seat's
    plan and vote, Prime's ruling, and the cost of observing. It counts each answer twice, as an invalid one is
    asked for again, and all of it once more for each halt that an observer may call. Calls no model and needs
    no council.

    Exits 1 if the proposal would not work: too few seats have room for it, or a cap denies what one answer of
    each seat may take.
    """
    from council.cli.decide.worst import estimated

    report = Report(as_json=json)
    if (summary is None) == (file is None) or (file is not None and (body or action)):
        raise UsageFault(
            "give the proposal, in a sentence with --body and --action, or all of it with --file"
        )
    if file is None:
        content: dict[str, Any] = {
            "summary": summary,
            "body": submit.body(body),
            "action": submit.action(action),
        }
    else:
        content = _content(file)
    if history is not None:
        content["history"] = submit.history(history)
    proposal = submit.drafted("estimate", {"body": "", "action": None, **content}, str(risk))
    found = asyncio.run(estimated(Where(config).loaded().config, proposal))
    code = DONE if found.works else REJECTED
    return report.result({"estimate": found.plain()}, _rendered(found), code)


def _content(file: str) -> dict[str, Any]:
    """The proposal in a file: JSON, or text whose first line is the summary. Raises UsageFault."""
    text = submit.text(None if file == "-" else file, f"--file {file}")
    if not text.lstrip().startswith("{"):
        first, _, rest = text.strip().partition("\n")
        return {"summary": first.lstrip("#").strip(), "body": rest.strip("\r\n")}
    try:
        given = jsons.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageFault(f"--file {file}: begins like JSON, and is not valid JSON: {error}") from error
    given = given.get("content", given)
    if not isinstance(given, dict):
        raise UsageFault(f"--file {file}: expected a proposal, with a summary; its content is not an object")
    return {key: given[key] for key in ("summary", "body", "action", "wait_for", "history") if key in given}


# How it is shown


def _column(task: str) -> str:
    if " anew" in task:
        return "halted"
    return (
        "again"
        if task.endswith(" again")
        else {"observe": "observing", "compress": "shortening"}.get(task, task)
    )


def _rendered(found: Estimate) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from council.cli.decide.worst import ATTEMPTS_MAX, HALTS_MAX, total
    from council.cli.render import DIM, table
    from council.kinds.text import line

    about: list[RenderableType] = [_about(seat) for seat in found.seats]
    if not any(seat.mind == "model" for seat in found.seats):
        return Group(Text("No seat has a model of the council's: nothing is spent."), "", *about)
    used = {_column(call.task) for seat in found.seats for call in seat.calls}
    columns = [name for name in COLUMNS if name in used]
    numbers = (*columns, "at worst", "dollars")
    rows = table("tokens", *numbers, numbers=numbers)
    for seat in found.seats:
        by_column: Counter[str] = Counter()
        for call in seat.calls:
            by_column[_column(call.task)] += call.tokens * call.times
        tokens, money = total([seat], certain=False)
        cells = [f"{number:,}" if number else "—" for number in (*map(by_column.get, columns), tokens)]
        cells.append(_dollars(money) if seat.calls else "—")
        rows.add_row(Text(seat.seat), *(Text(cell, DIM if cell == "—" else "") for cell in cells))
    tokens, money = total(found.seats, certain=False)
    rows.add_row("all", *[""] * len(columns), Text(f"{tokens:,}", "bold"), Text(_dollars(money), "bold"))
    first, first_money = total(found.seats, certain=True)
    dollars = f", {_dollars(first_money)}" if first_money else ""
    parts: list[RenderableType] = [rows, ""]
    if "halted" in columns:
        halted = f"halted: all calls of a vote again, at most {HALTS_MAX} times, if an observer calls a halt."
        parts.append(Text(halted, DIM))
    again = f"A call that breaks off is made again, at most {ATTEMPTS_MAX} times, each at the same cost."
    parts += [
        Text(f"At most {first:,} tokens{dollars} if every seat's first answer is valid."),
        Text(again, DIM),
        "",
        *about,
        "",
    ]
    parts += [
        Text(line(f"{seat.seat} can't vote: {seat.problem}"), "red") for seat in found.seats if seat.problem
    ]
    no_cap = Text("No cap is set; proposal_tokens_max and proposal_usd_max would limit it.", DIM)
    return Group(*parts, _caps_table(found.caps) if found.caps else no_cap)


def _about(seat: SeatCost) -> Text:
    from rich.text import Text

    from council.cli.render import DIM
    from council.kinds.text import line

    if seat.mind == "static":
        return Text.assemble(f"{seat.seat:<9} ", ("static checks, no model", DIM))
    if seat.mind == "own":
        return Text.assemble(f"{seat.seat:<9} ", ("a mind of your own: what it calls is unknown", DIM))
    about = f"{seat.model} at {seat.base_url}"
    for call in seat.calls:
        if call.task == "ballot":
            about += (
                f"; reads {call.prompt_tokens:,} of {seat.mtu:,} tokens, writes up to {call.output_tokens:,}"
            )
            break
    counted = "estimated, on the high side" if seat.counter == "estimate" else f"counted by {seat.counter}"
    return Text.assemble(f"{seat.seat:<9} ", line(about), (f"; {counted}", DIM))


def _dollars(microusd: int | None) -> str:
    return "no price" if microusd is None else f"${microusd / 1e6:,.4f}" if microusd else "—"


def _caps_table(caps: Sequence[Cap]) -> RenderableType:
    from rich.text import Text

    from council.cli.render import DIM, table

    words = {
        "fits": ("fits", "green"),
        "tight": ("fits one answer of each; a second answer or a ruling may not fit", "yellow"),
        "denied": ("does not fit: a call is denied, and its ballot lost", "red"),
    }
    rows = table("cap of", "limit", "", numbers=("limit",))
    for cap in caps:
        limit = f"{cap.limit:,} tokens" if cap.unit == "tokens" else f"${cap.limit / 1e6:,.4f}"
        whole = "" if cap.key == "proposal" else " (over the council's life: see council budget)"
        rows.add_row(cap.key, limit, Text.assemble(words[cap.holds], (whole, DIM)))
    return rows
