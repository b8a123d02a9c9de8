"""The commands that decide: propose, review, demo, escalations, answer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    Key,
    Launch,
    Name,
    Risk,
    RiskOption,
    Timeout,
    WaitForHuman,
    WaitForOption,
)
from council.cli.reach import Where, opened
from council.cli.report import DONE, UNDECIDED, Report, UsageFault
from council.kinds.text import line

if TYPE_CHECKING:
    from rich.console import RenderableType

CARDS_MAX = 5  # that council escalations shows


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
    key: Key = None,
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
    details["key"] = key
    text = submit.body(body)
    where = Where(config, name, address, inline, launch, keyed=key is not None)
    return submit.decide(where, Report(as_json=json), "error", summary, text, details, wait_for_human)


def review(
    change: Annotated[
        str | None,
        typer.Argument(
            metavar="RANGE|COMMIT|FILE|-",
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
    key: Key = None,
    wait_for_human: WaitForHuman = False,
    name: Name = None,
    address: Address = None,
    inline: Inline = False,
    launch: Launch = False,
    config: Config = None,
    sarif: Annotated[
        bool, typer.Option("--sarif", help="Print what static checks find as SARIF 2.1.0, for code scanning.")
    ] = False,
    json: Json = False,
) -> int:
    """Review a change; the exit code gates a CI job.

    A range A..B has the changes on B since it branched off A, as a merge would bring them. Nothing in the change or
    its repository is executed, and no settings are read from there unless --config names them. An empty change is an
    error, because a gate must not pass on nothing. Rules and silences are read from council.rules/ before the change.

    Uses the council that is named or that runs here. If there is none, a council in this process decides by the same
    rules. --launch starts one on Ray instead.
    """
    from council.cli.decide import changes

    if sarif and json:
        raise UsageFault("--sarif prints one JSON document, as --json does: leave one of them out")
    found = changes.find(change, Path.cwd())
    details: dict[str, Any] = {"risk": str(risk), "timeout_s": timeout, "wait_for": "all", "key": key}
    where = Where(config, name, address, inline, launch, False, rules=found.rules, keyed=key is not None)
    what = summary or found.summary
    return submit.decide(
        where,
        Report(as_json=json or sarif),
        "inline",
        what,
        found.body,
        details,
        wait_for_human,
        document=(lambda: _sarif(where, what, found.body)) if sarif else None,
    )


def _sarif(where: Where, summary: str, body: str) -> dict[str, Any]:
    """What static checks find in a change, as SARIF."""
    from council import __version__
    from council.agents.mind import Case
    from council.agents.scan import sarif
    from council.agents.scan.scan import scan
    from council.config.charter_files import charter_files_of, own_rules

    config = where.ruled()
    seen = scan(Case("", "", summary, body), own_rules(config, charter_files_of(config)))
    return sarif.written(seen.found, seen.silenced, {each.path for each in seen.files}, __version__)


def demo(inline: Inline = False, config: Config = None, json: Json = False) -> int:
    """Watch a council on Ray review a real change.

    It reviews the newest commit of this repository, or a bundled patch if there is none. It exits 0 whatever the
    decision is.
    """
    from rich.console import Group

    from council.api.requester import of_this_process
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
    requester = of_this_process()  # before the working folder is left
    with opened(where, report) as (council, how):
        status = council.status()
        if not json:
            report.print(Group(overview.heading(status), "", overview.seats(status), ""))
            report.print(render.text(f"reviews {change.source}: {line(change.summary, 200)}", "bold"))
        decision = deliberate(
            council,
            council.draft(change.summary, change.body, wait_for="all", requester=requester),
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


def escalations(
    escalation: Annotated[
        str | None, typer.Argument(metavar="ID", help="One of them, by 4 or more characters of its id.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them; without it the newest five.")] = False,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Show what waits for a human, newest first.

    For each, shows the action to approve, who asks, the risk, the time left, the votes, and the commands that answer
    it. Shows the newest five, unless --all is given. --json has all of them.
    """
    from rich.console import Group

    from council.cli.card import Card, council_options
    from council.cli.decide import answering

    report = Report(as_json=json)
    where = Where(config, name, address)
    if escalation is not None:
        answering.check_id(escalation)
    with opened(where, report, sole="running") as (council, _):
        waiting = council.escalations()[::-1]
        if escalation is not None:
            waiting = [answering.find(council, waiting, escalation)]
    now_s, shown = time.time(), waiting if every else waiting[:CARDS_MAX]
    cards: list[RenderableType] = [
        part for each in shown for part in (Card(each, now_s, where=council_options(where)), "")
    ]
    if rest := len(waiting) - len(shown):
        cards.append(" ".join((f"… and {rest:,} more: council escalations --all", *council_options(where))))
    drawn = Group(*cards[: None if rest else -1]) if waiting else "nothing waits"
    return report.result({"escalations": [each.document(now_s) for each in waiting]}, drawn)


def answer(
    escalation: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The escalation or its proposal, by 4 or more characters of its id."
        ),
    ],
    approve: Annotated[bool, typer.Option("--approve", help="Approve it.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Reject it.")] = False,
    reason: Annotated[
        str, typer.Option(help="The reason, for the decision; needed to approve a high risk.")
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Answer as the options say, without asking.")
    ] = False,
    human: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Who answers; by default you.")
    ] = None,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Answer an escalation.

    On a terminal it shows the case first. It then asks for the answer, or, with --approve or --reject, for a
    confirmation. --yes answers without a question. Without a terminal, or with --json, the options are the answer.

    If the outcome of an action is unknown, --approve says that it ran, and --reject that it did not. Otherwise the
    first answer is the decision, and is shown. The people who may answer were fixed when the council was started:
    those that the setting humans names, by default the user who started it. Exits 0 once the answer is accepted, also
    for a rejection.

    An answer is signed, so it is not sent to a Ray that only a file in the working folder names, because that may be
    anybody's repository. Use a council that council up started here, or name its Ray with --address, --config or
    COUNCIL_RAY_ADDRESS.
    """
    from council.cli.card import council_options
    from council.cli.decide import answering
    from council.core.state import escalated_by

    report = Report(as_json=json)
    wanted = answering.Wanted(escalation, approve, reject, reason, asks=not yes and report.can_ask())
    where = Where(config, name, address)
    where.refuse_address_found()
    with opened(where, report, sole="running") as (council, _):
        found = answering.settle(council, wanted, report, council_options(where))
        if found is None:
            report.note("left as it is: nothing was answered")
            return UNDECIDED
        council_name = council.name
        decided = council.answer(found.escalation_id, approve=found.approve, reason=found.reason, human=human)
    if escalated_by(found.escalation_id)[1] is not None:  # about an outcome: the decision stands as it was
        said = (
            f"on the record: it {'ran' if found.approve else 'did not run'}; council tokens shows the result"
        )
        return report.result({"escalation_id": found.escalation_id, "ran": found.approve}, said, DONE)
    if wanted.asks and not json:  # the case was shown before
        return report.result({}, str(decided), DONE)
    return submit.show(decided, report, council_name, "connected", DONE)
