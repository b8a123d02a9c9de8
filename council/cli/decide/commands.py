"""The commands that decide: propose, review, demo, escalations, answer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from council.cli.decide import submit
from council.cli.options import (
    Action,
    Address,
    Body,
    Config,
    History,
    Inline,
    Json,
    Launch,
    Name,
    Risk,
    RiskOption,
    Timeout,
    WaitForHuman,
    WaitForOption,
)
from council.cli.reach import Where, opened
from council.cli.report import DONE, Report, UsageFault
from council.kinds.text import line


def propose(
    summary: Annotated[str, typer.Argument(help="What to decide, in one sentence.")],
    body: Body = "",
    risk: RiskOption = Risk.low,
    action: Action = None,
    wait_for: Annotated[
        WaitForOption | None,
        typer.Option(help="Decide once no vote can change the result, or wait for all. With an action: all."),
    ] = None,
    history: History = None,
    timeout: Timeout = None,
    wait_for_human: WaitForHuman = False,
    name: Name = None,
    address: Address = None,
    inline: Inline = False,
    launch: Launch = False,
    config: Config = None,
    json: Json = False,
) -> int:
    """Put a proposal to the council.

    Prints each vote as it arrives, then the decision. Uses the running council. If none is running, --inline or
    --launch starts one for this command.

    Ctrl-C cancels the proposal, unless it waits for a human already.
    """
    details: dict[str, Any] = {"risk": str(risk), "action": submit.action(action), "timeout_s": timeout}
    details |= {"wait_for": str(wait_for) if wait_for else None, "history": submit.history(history)}
    text = submit.body(body)
    where = Where(config, name, address, inline, launch)
    return submit.decide(where, Report(as_json=json), "error", summary, text, details, wait_for_human)


def review(
    change: Annotated[
        str | None,
        typer.Argument(
            metavar="[RANGE|COMMIT|FILE|-]",
            help="main..HEAD, a commit, a patch file, or - for standard input. By default HEAD.",
        ),
    ] = None,
    summary: Annotated[
        str | None,
        typer.Option(
            "--summary", metavar="TEXT", help="What the change is about; by default the commits' subjects."
        ),
    ] = None,
    risk: RiskOption = Risk.low,
    timeout: Timeout = None,
    wait_for_human: WaitForHuman = False,
    name: Name = None,
    address: Address = None,
    inline: Inline = False,
    launch: Launch = False,
    config: Config = None,
    json: Json = False,
) -> int:
    """Review a change; the exit code gates a CI job.

    The range A..B is what B adds since it left A, as a merge would bring it. Nothing in the change or its repository
    is executed, and no settings are read from there unless --config names them. An empty change is an error, because
    a gate must not pass on nothing.

    Uses the council that is named or that runs here. If there is none, a council in this process decides by the same
    rules. --launch starts one on Ray instead.
    """
    from council.cli.decide import changes

    found = changes.find(change, Path.cwd())
    details: dict[str, Any] = {"risk": str(risk), "timeout_s": timeout, "wait_for": "all"}
    where = Where(config, name, address, inline, launch, trusts_folder=False)
    return submit.decide(
        where, Report(as_json=json), "inline", summary or found.summary, found.body, details, wait_for_human
    )


def demo(inline: Inline = False, config: Config = None, json: Json = False) -> int:
    """Watch a council on Ray review a real change.

    It reviews the newest commit of this repository, or a bundled patch if there is none. It exits 0 whatever the
    decision is.
    """
    from rich.console import Group

    from council.cli import overview, render
    from council.cli.decide import changes
    from council.cli.decide.deliberate import deliberate
    from council.core.state import plain

    report = Report(as_json=json)
    try:
        change = changes.find(None, Path.cwd())
    except UsageFault as fault:
        why = str(fault).partition(";")[0]  # the rest is advice for a review
        report.note(f"{why}; the bundled sample is reviewed instead")
        change = changes.sample()
    where = Where(config, inline=inline, launch=not inline, trusts_folder=False)
    with opened(where, report) as (council, how):
        status = council.status()
        if not json:
            report.print(Group(overview.heading(status), "", overview.seats(status), ""))
            report.print(render.text(f"reviews {change.source}: {line(change.summary, 200)}", "bold"))
        decision = deliberate(
            council,
            council.draft(change.summary, change.body, wait_for="all"),
            report,
            seats=[seat["name"] for seat in status["seats"]],
            ends_with_us=True,
            keep_lines=True,
        )
    if json:
        named = {"council": council.name, "mode": how, "source": change.source}
        return report.result({**named, **plain(decision)}, None)
    report.print("")
    report.print(render.decision(decision))
    if not decision:
        report.note("a demonstration exits 0 whatever the decision; council review gates")
    return DONE


def escalations(name: Name = None, address: Address = None, config: Config = None, json: Json = False) -> int:
    """List what waits for a human.

    Each with its options, what is unknown, and the next step.
    """
    report = Report(as_json=json)
    with opened(Where(config, name, address), report, sole="running") as (council, _):
        waiting = council.escalations()
    from rich.console import Group

    from council.cli import render
    from council.core.state import plain

    now_s = time.time()
    shown = Group(*(render.escalation(each, now_s) for each in waiting)) if waiting else "nothing waits"
    return report.result({"escalations": plain(waiting)}, shown)


def answer(
    escalation: Annotated[str, typer.Argument(metavar="ID", help="The escalation, or its proposal.")],
    approve: Annotated[
        bool | None, typer.Option("--approve/--reject", help="Your answer, which is the decision.")
    ] = None,
    reason: Annotated[str, typer.Option(help="The reason, for the decision.")] = "",
    human: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Who answers; by default you.")
    ] = None,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Answer an escalation.

    The first answer is the decision, which is shown. Who may answer was fixed when the council was brought
    up (the setting humans; by default the user who did). Exits 0 once the answer is taken, whatever it says.

    An answer is signed, so it is not sent to a Ray that only a file in the working folder names, which may be
    anybody's repository. council up remembers the Ray, or --address, --config or COUNCIL_RAY_ADDRESS names it.
    """
    if approve is None:
        raise UsageFault("give --approve or --reject")
    report = Report(as_json=json)
    where = Where(config, name, address)
    where.refuse_address_found()
    with opened(where, report, sole="running") as (council, _):
        decided = council.answer(escalation, approve=approve, reason=reason, human=human)
        council_name = council.name
    return submit.show(decided, report, council_name, "connected", DONE)
