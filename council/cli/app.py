"""The commands: reads the command line, has the work done elsewhere, and turns what comes of it into exit codes.

Nothing heavy is imported before a command needs it, so that ``council --help`` is there at once.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from council.cli import (
    dashboard,
    estimate,
    identity,
    init,
    log,
    proposing,
    replay,
    spending,
    store,
    verify,
    whole,
)
from council.cli.options import (
    EXIT_CODES,
    Address,
    Config,
    Dashboard,
    History,
    Inline,
    Insecure,
    Json,
    Launch,
    Name,
    Risk,
    RiskOption,
    Ship,
    Timeout,
    WaitFor,
    WaitForHuman,
)
from council.cli.reach import Where, opened
from council.cli.report import (
    DONE,
    INTERRUPTED,
    REJECTED,
    Interrupted,
    Report,
    Unwritable,
    UsageFault,
    flushed,
)

app = typer.Typer(
    name="council",
    help="Three minds vote before an agent acts.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        from council import __version__

        typer.echo(f"council {__version__}")
        raise typer.Exit


app.add_typer(store.app, name="store")
app.add_typer(dashboard.app, name="dashboard")
app.add_typer(identity.app, name="identity")
for _command in (
    init.init,
    estimate.estimate,
    log.log,
    spending.budget,
    spending.top,
    whole.show,
    replay.replay,
    verify.verify,
    verify.checkpoint,
    verify.prove,
):
    app.command(epilog=EXIT_CODES)(_command)


@app.callback()
def _all(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version, and end.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where in the code an error was raised.")
    ] = False,
) -> None:
    """Three minds vote before an agent acts."""


@app.command(epilog=EXIT_CODES)
def up(
    name: Name = None,
    address: Address = None,
    insecure: Insecure = False,
    ship: Ship = False,
    dashboard: Dashboard = False,
    config: Config = None,
    json: Json = False,
) -> int:
    """Bring a council up that outlives this shell.

    Without an address it starts a Ray of its own on this machine, held by a process of its own until
    council down. With one, or RAY_ADDRESS, the council's actors run detached on that cluster, its seats
    spread over the nodes. Run it on a node, as only from one can actors be called.
    """
    from council.cli import hosting

    report = Report(as_json=json)
    where = Where(config, name, address, insecure=insecure, ship=ship, dashboard=dashboard)
    where.refuse_keys_found()
    where.refuse_insecure_found()
    found = hosting.up(where.loaded().config, report)
    document = hosting.document(found, where.loaded().config)
    if json:
        return report.result({"up": document}, None)
    report.say(f"[green]council {found.name} is up[/], with {', '.join(document['seats'])}")
    held = f"process {found.pid}, log {found.log}" if found.pid else f"on the cluster at {found.address}"
    report.say(held, style="bright_black", soft_wrap=True, markup=False)
    for line in hosting.said(found, where.loaded().config):
        report.say(line, style="bright_black", soft_wrap=True, markup=False)
    named = "" if found.name == "council" else f" --name {found.name}"
    report.say(f"next: council propose{named} …   council watch{named}   council down{named}")
    return DONE


@app.command(epilog=EXIT_CODES)
def down(
    name: Name = None,
    config: Config = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, whatever is open.")] = False,
    json: Json = False,
) -> int:
    """Take a council down again.

    One that council up brought up. What is open goes on when it is up again, or ends undecided where it keeps
    no journal on disk; it asks first where something is.
    """
    from council.cli import hosting
    from council.protocol.errors import Unreachable
    from council.runtime import known

    report = Report(as_json=json)
    wanted = Where(config, name).loaded().config.name
    kept = known.read(wanted)
    if kept is None:
        raise Unreachable(
            f"no council named {wanted} is up here: there is nothing to take down (one whose process ended by itself "
            "is forgotten by the first command that notices)"
        )
    if kept.stale():
        known.forget(wanted)
        said = f"its process {kept.pid} had ended already"
    else:
        if not yes:
            _confirm_down(wanted, config, report)
        said = hosting.down(kept, report)
    return report.result({"down": {"name": wanted, "how": said}}, f"council {wanted} is down: {said}")


def _confirm_down(name: str, config: Path | None, report: Report) -> None:
    from council.cli.text import count
    from council.protocol.errors import CouncilError

    try:
        with opened(Where(config, name), report, sole="running") as (council, _):
            status = council.status()
        deliberated, waiting = status["open_count"], status["with_human"]
        if not deliberated and not waiting:
            return
        becomes = "they wait until it is up again" if status["durable"] else "they end undecided"
        open_now = f"{count(deliberated, 'proposal')} open, {waiting} with a human: {becomes}"
    except CouncilError as error:
        open_now = f"what is open can't be told ({error})"
    if report.as_json or not sys.stdin.isatty():
        raise UsageFault(f"council {name}: {open_now}; give --yes to take it down all the same")
    report.note(f"council {name}: {open_now}.")
    if not typer.confirm("Take it down?", err=True):
        raise Interrupted(f"council {name} stays up", REJECTED)


@app.command(epilog=EXIT_CODES)
def propose(
    summary: Annotated[str, typer.Argument(help="What is to be decided, in a sentence.")],
    body: Annotated[
        str,
        typer.Option("--body", metavar="TEXT|@FILE|-", help="More on it: text, @file, or - for the input."),
    ] = "",
    risk: RiskOption = Risk.low,
    action: Annotated[
        tuple[str, str] | None,
        typer.Option("--action", metavar="TOOL JSON", help="The call it is about: a tool and its arguments."),
    ] = None,
    wait_for: Annotated[
        WaitFor | None,
        typer.Option(help="Decide once no ballot can turn it, or wait for all; all with an action."),
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

    Shows the ballots as they land, and the decision. Uses the council that is up; without
    one, --inline or --launch run one for this command.

    Ctrl-C takes the proposal back, unless it is with a human by then.
    """
    details: dict[str, Any] = {"risk": str(risk), "action": proposing.action(action), "timeout_s": timeout}
    details |= {"wait_for": str(wait_for) if wait_for else None, "history": proposing.history(history)}
    text = proposing.body(body)
    where = Where(config, name, address, inline, launch)
    return proposing.decide(where, Report(as_json=json), "error", summary, text, details, wait_for_human)


@app.command(epilog=EXIT_CODES)
def review(
    change: Annotated[
        str | None,
        typer.Argument(
            metavar="[RANGE|COMMIT|FILE|-]",
            help="What to review: main..HEAD, a commit, a patch file, - for the input. By default HEAD.",
        ),
    ] = None,
    summary: Annotated[
        str | None, typer.Option("--summary", help="What it is about; by default the commits' subjects.")
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
    """Have a change reviewed; the exit code gates a CI job.

    A..B is what B brings on top of where it left A, as a merge would bring it. Nothing of the change, nor of
    the repository it is in, is executed, and no configuration is taken from there unless --config names it. An
    empty change is an error (2): a gate should not pass on nothing.

    Uses the council that was named, or is up here. Where there is none, one in this process decides, by the
    same rules, so that a CI job needs nothing but this command; --launch starts one on Ray instead.
    Staged changes: git diff --cached | council review -
    """
    from council.cli import changes

    found = changes.find(change, Path.cwd())
    details: dict[str, Any] = {"risk": str(risk), "timeout_s": timeout, "wait_for": "all"}
    where = Where(config, name, address, inline, launch, trusts_folder=False)
    return proposing.decide(
        where, Report(as_json=json), "inline", summary or found.summary, found.body, details, wait_for_human
    )


@app.command(epilog=EXIT_CODES)
def demo(inline: Inline = False, config: Config = None, json: Json = False) -> int:
    """See a council on Ray review a real change.

    The newest change of this repository, or a bundled patch where there is no history. Exits 0
    whatever the decision: it shows, it does not gate.
    """
    from council.cli import demo as play

    where = Where(config, inline=inline, launch=not inline, trusts_folder=False)
    return play.run(where, Report(as_json=json))


@app.command(epilog=EXIT_CODES)
def status(name: Name = None, address: Address = None, config: Config = None, json: Json = False) -> int:
    """Show the council at a glance.

    Seats and their heartbeats, what is open, what was decided and refused.
    """
    report = Report(as_json=json)
    with opened(Where(config, name, address), report, sole="running") as (council, _):
        told, waiting = council.status(), council.escalations()
    from council.core.state import plain

    if json:
        return report.result({**told, "escalations": plain(waiting)}, None)
    from council.cli import show

    return report.result({}, show.status(told, waiting))


@app.command(epilog=EXIT_CODES)
def watch(
    since: Annotated[
        int | None,
        typer.Option(min=0, help="Begin after this position; 0 is all that is kept. By default now."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show what has happened so far, and end.")] = False,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON for each event.")] = False,
) -> int:
    """Watch the council live.

    Seats, open proposals, ballots as they land, decisions. q or Ctrl-C ends.
    Without a terminal it prints one line for each event.
    """
    report = Report(as_json=json)
    with opened(Where(config, name, address), report, sole="running") as (council, _):
        from council.cli.live import Screen

        return Screen(council, report, since=0 if once and since is None else since, follow=not once).watch()


@app.command(epilog=EXIT_CODES)
def escalations(name: Name = None, address: Address = None, config: Config = None, json: Json = False) -> int:
    """List what waits for a human.

    Each with its options, what is not known, and the next step.
    """
    report = Report(as_json=json)
    with opened(Where(config, name, address), report, sole="running") as (council, _):
        waiting = council.escalations()
    from council.core.state import plain

    if json:
        return report.result({"escalations": plain(waiting)}, None)
    from rich.console import Group

    from council.cli import show

    return report.result(
        {}, Group(*(show.escalation(each) for each in waiting)) if waiting else "nothing waits"
    )


@app.command(epilog=EXIT_CODES)
def answer(
    escalation: Annotated[str, typer.Argument(metavar="ID", help="The escalation, or its proposal.")],
    approve: Annotated[
        bool | None, typer.Option("--approve/--reject", help="Your answer, which is the decision.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; it stands in the decision.")] = "",
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
    up (the setting humans; by default whoever did). Exits 0 once the answer is taken, whatever it says.

    An answer is signed, so the Ray that it goes to is not taken from a file in the working folder, which may be
    anybody's repository: council up remembers it, or --address, --config or COUNCIL_RAY_ADDRESS names it.
    """
    if approve is None:
        raise UsageFault("give --approve or --reject")
    report = Report(as_json=json)
    where = Where(config, name, address)
    where.refuse_address_found()
    with opened(where, report, sole="running") as (council, _):
        decided = council.answer(escalation, approve=approve, reason=reason, human=human)
    proposing.show(decided, report, "connected", DONE)
    return DONE


@app.command("config", epilog=EXIT_CODES)
def show_config(name: Name = None, address: Address = None, config: Config = None, json: Json = False) -> int:
    """Print the settings in effect, and where each came from."""
    from council.config import describe

    report = Report(as_json=json)
    lines = describe(Where(config, name, address).loaded())
    if json:
        entries = [{"key": key, "value": value, "origin": origin} for key, value, origin in lines]
        return report.result({"settings": entries}, None)
    from council.cli import show

    here = f"{Path.cwd()}/"
    return report.result({}, show.settings([(key, value, at.removeprefix(here)) for key, value, at in lines]))


@app.command(epilog=EXIT_CODES)
def doctor(
    ray: Annotated[bool, typer.Option("--ray", help="Also start a council on Ray, and end it.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Leave out the calls to the seats' models.")
    ] = False,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Look whether all is there that a council needs.

    Exits 1 where something does not work. Starts nothing, but with --ray.
    Each seat's model is called once, for a few tokens, outside of any budget.

    Minds, models and a Ray that a file in the working folder names are
    imported, called and connected to only where --config names that file.
    """
    from council.cli import doctor as examiner

    report = Report(as_json=json)
    found = list(examiner.examine(Where(config, name, address), report, try_ray=ray, offline=offline))
    code = REJECTED if any(level == "fail" for level, _, _ in found) else DONE
    if json:
        entries = [{"level": level, "what": what, "said": said} for level, what, said in found]
        return report.result({"checks": entries}, None, code)
    from council.cli import show

    return report.result({}, show.checks(found), code)


def _raise_terminated(number: int, frame: object) -> NoReturn:
    from council.cli.report import TERMINATED

    raise Interrupted("ended by SIGTERM; a council of this command ended with it", TERMINATED)


def run(arguments: Sequence[str]) -> int:
    """Does what a command line says; returns the exit code. Errors are one message, never a traceback."""
    given = list(arguments)
    report = Report(as_json="--json" in given)
    usage_error = typer.BadParameter.__base__  # the class of all errors in a command line
    assert usage_error is not None
    try:
        done = app(args=given, prog_name="council", standalone_mode=False)
        if done == INTERRUPTED:  # what typer makes of Ctrl-C outside of what handles it itself
            raise KeyboardInterrupt
        return done if isinstance(done, int) else DONE
    except (KeyboardInterrupt, typer.Abort):
        return report.error(Interrupted("nothing was left open"))
    except Exception as error:  # noqa: BLE001 - whatever it was, it is told
        if isinstance(error, usage_error):
            return report.error(_usage_fault(error))
        if isinstance(error, OSError) and not {"--help", "-h", "--version"}.isdisjoint(given):
            return report.error(Unwritable(error.strerror or str(error)))  # typer prints these by itself
        if "--debug" in itertools.takewhile(lambda each: each.startswith("-"), given):
            traceback.print_exc()
        return report.error(error)


def _usage_fault(error: Exception) -> UsageFault:
    """An error of the option parser, in our words; without a message where the help was shown instead."""
    told = getattr(error, "format_message", None)
    context = getattr(error, "ctx", None)
    message = told() if callable(told) else str(error)
    return UsageFault(f"{message} (see {context.command_path} --help)" if message and context else message)


def main() -> NoReturn:
    """The entry point of the command ``council``."""
    with contextlib.suppress(ValueError):  # outside of the main thread
        signal.signal(signal.SIGTERM, _raise_terminated)
    _open_what_is_closed()
    code = run(sys.argv[1:])
    sys.exit(flushed(code))


def _open_what_is_closed() -> None:
    """Puts something at the descriptors 0 to 2 where nothing is, lest the next file or socket be taken for them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lasts
