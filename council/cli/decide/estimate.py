"""``council estimate``: says what a proposal may cost before it is made, as ``worst`` computes it."""

from __future__ import annotations

import asyncio
import json as jsons
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from council.cli.decide import submit
from council.cli.options import Config, History, Json, Risk, RiskOption
from council.cli.reach import Where
from council.cli.report import DONE, REJECTED, Report, UsageFault

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from council.cli.decide.worst import Cap, Estimate, SeatCost
    from council.protocol.envelope import Envelope

# What is shown of a seat's calls: all of them that are made for the same reason.
COLUMNS: dict[str, Callable[[str], bool]] = {
    "plan": lambda task: task == "plan",
    "ballot": lambda task: task == "ballot",
    "ruling": lambda task: task == "ruling",
    "again": lambda task: task in ("plan again", "ballot again", "ruling again"),
    "halted": lambda task: " anew" in task,
    "observing": lambda task: task == "observe",
    "shortening": lambda task: task == "compress",
}


def estimate(
    summary: Annotated[
        str | None, typer.Argument(metavar="PROPOSAL", help="What is to be decided, in a sentence.")
    ] = None,
    body: Annotated[
        str,
        typer.Option("--body", metavar="TEXT|@FILE|-", help="More on it: text, @file, or - for the input."),
    ] = "",
    action: Annotated[
        tuple[str, str] | None,
        typer.Option("--action", metavar="TOOL JSON", help="The call it is about: a tool and its arguments."),
    ] = None,
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
    """Tell what a proposal may cost at worst, before it is made.

    Tokens and money by seat: its plan and its ballot, Prime's ruling, each
    asked for once more where its answer can't be taken, all of it anew where
    an observer calls a halt, and what observing costs; and whether that fits
    the caps of the budget. Calls no model, and needs no council.

    Exits 1 where it would not work: too few seats have room for it, or a cap
    denies what one answer of each may take.
    """
    from council.cli.decide.worst import estimated

    report = Report(as_json=json)
    proposal = _proposal(summary, body, action, file, history, risk)
    configured = Where(config).loaded().config
    found = asyncio.run(estimated(configured, proposal))
    code = DONE if found.works else REJECTED
    return report.result({"estimate": found.plain()}, None if json else _rendered(found), code)


def _proposal(
    summary: str | None,
    body: str,
    action: tuple[str, str] | None,
    file: str | None,
    history: str | None,
    risk: Risk,
) -> Envelope:
    """The proposal as it would be submitted. Raises UsageFault and EnvelopeError."""
    if (summary is None) == (file is None) or (file is not None and (body or action)):
        raise UsageFault(
            "give the proposal, in a sentence with --body and --action, or all of it with --file"
        )
    before = {"history": submit.history(history)} if history is not None else {}
    if file is None:
        about = {"body": submit.body(body), "action": submit.action(action)}
        return _drafted({"summary": summary, **about, **before}, risk)
    try:
        text = submit.body(file if file == "-" else f"@{file}")
    except UsageFault as fault:
        raise UsageFault(str(fault).replace("--body @", "--file ")) from fault
    if not text.lstrip().startswith("{"):
        first, _, rest = text.strip().partition("\n")
        return _drafted({"summary": first.lstrip("#").strip(), "body": rest.strip("\r\n"), **before}, risk)
    try:
        given = jsons.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageFault(f"--file {file}: begins like JSON, and is not valid JSON: {error}") from error
    if "content" in given:
        given = given["content"]
    if not isinstance(given, dict):
        raise UsageFault(f"--file {file}: expected a proposal, with a summary; its content is no object")
    known = {key: given[key] for key in ("summary", "body", "action", "wait_for", "history") if key in given}
    return _drafted({**known, **before}, risk)


def _drafted(content: dict[str, Any], risk: Risk) -> Envelope:
    from council.agents.messaging.ids import new_id
    from council.protocol.envelope import Envelope

    return Envelope.build(
        msg_id=new_id(),
        timestamp=datetime.now(UTC),
        sender="estimate",
        role="proposer",
        type="PROPOSAL",
        risk_level=str(risk),
        content={"body": "", "action": None, **content},
    )


# How it is shown


def _rendered(found: Estimate) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from council.cli.render import DIM, table
    from council.kinds.text import line

    about: list[RenderableType] = [_about(seat) for seat in found.seats]
    if not any(seat.mind == "model" for seat in found.seats):
        return Group(Text("No seat has a model of the council's: nothing is spent."), "", *about)
    tasks = {call.task for seat in found.seats for call in seat.calls}
    columns = {name: of for name, of in COLUMNS.items() if any(map(of, tasks))}
    numbers = (*columns, "at worst", "dollars")
    rows = table("tokens", *numbers, numbers=numbers)
    for seat in found.seats:
        cells = [
            f"{sum(call.tokens * call.times for call in seat.calls if of(call.task)):,}"
            for of in columns.values()
        ]
        cells += [f"{seat.tokens(certain=False):,}", _dollars(seat.microusd(certain=False))]
        cells = ["—" if cell == "0" or not seat.calls else cell for cell in cells]
        rows.add_row(Text(seat.seat), *(Text(cell, DIM if cell == "—" else "") for cell in cells))
    (tokens, money), (first, first_money) = found.total(certain=False), found.total(certain=True)
    rows.add_row("all", *[""] * len(columns), Text(f"{tokens:,}", "bold"), Text(_dollars(money), "bold"))
    dollars = f", {_dollars(first_money)}" if first_money else ""
    again = (
        f"A call that breaks off is made again, {found.attempts_max} times at most, each at the same cost."
    )
    parts: list[RenderableType] = [rows, ""]
    if "halted" in columns:
        parts.append(
            Text(
                f"halted: all of a vote anew, {found.halts_max} times at most, where an observer calls a halt.",
                DIM,
            )
        )
    parts += [
        Text(f"At most {first:,} tokens{dollars} where every seat's first answer can be taken."),
        Text(again, DIM),
    ]
    parts += ["", *about, ""]
    parts += [
        Text(line(f"{seat.seat} can't vote: {seat.problem}"), "red") for seat in found.seats if seat.problem
    ]
    if found.caps:
        return Group(*parts, _caps_table(found.caps))
    return Group(
        *parts, Text("No cap is set; proposal_tokens_max and proposal_usd_max would hold it to one.", DIM)
    )


def _about(seat: SeatCost) -> Text:
    from rich.text import Text

    from council.cli.render import DIM
    from council.kinds.text import line

    if seat.mind != "model":
        said = (
            "static checks, no model"
            if seat.mind == "static"
            else "a mind of your own: what it calls is not known"
        )
        return Text.assemble(f"{seat.seat:<9} ", (said, DIM))
    said = f"{seat.model} at {seat.base_url}"
    prompts = [call for call in seat.calls if call.task == "ballot"]
    if prompts:
        read, written = prompts[0].prompt_tokens, prompts[0].output_tokens
        said += f"; reads {read:,} of {seat.mtu:,} tokens, writes up to {written:,}"
    counted = "estimated, on the high side" if seat.counter == "estimate" else f"counted by {seat.counter}"
    return Text.assemble(f"{seat.seat:<9} ", line(said), (f"; {counted}", DIM))


def _dollars(microusd: int | None) -> str:
    return "no price" if microusd is None else f"${microusd / 1e6:,.4f}" if microusd else "—"


def _caps_table(caps: Sequence[Cap]) -> RenderableType:
    from rich.text import Text

    from council.cli.render import DIM, table

    says = {
        "fits": ("fits", "green"),
        "tight": ("fits one answer each; asked again, or ruled on, it may not", "yellow"),
        "denied": ("does not fit: a call is denied, and its ballot lost", "red"),
    }
    rows = table("cap of", "limit", "", numbers=("limit",))
    for cap in caps:
        limit = f"{cap.limit:,} tokens" if cap.unit == "tokens" else f"${cap.limit / 1e6:,.4f}"
        whole = "" if cap.key == "proposal" else " (over the council's life: see council budget)"
        said, style = says[cap.holds]
        rows.add_row(cap.key, limit, Text.assemble((said, style), (whole, DIM)))
    return rows
