"""The commands for a council that outlives the shell: up, down, status, watch, budget, top."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from council.cli.options import Address, Config, Dashboard, Insecure, Json, Name, Ship
from council.cli.reach import Where, opened
from council.cli.report import DONE, REJECTED, Interrupted, Report, UsageFault

NOTHING_SPENT = "nothing spent: no model has been called"


def up(
    name: Name = None,
    address: Address = None,
    insecure: Insecure = False,
    ship: Ship = False,
    dashboard: Dashboard = False,
    config: Config = None,
    json: Json = False,
) -> int:
    """Start a council that keeps running after this command.

    Without an address it starts its own Ray on this machine, which council down ends. With --address or RAY_ADDRESS
    the council's actors run detached on that cluster, with its seats spread over the nodes. Run the command on a node
    of the cluster, because actors can be called only from there.
    """
    from council.cli.operate import host_launch
    from council.protocol.extras import require_ray

    require_ray("council up")
    report = Report(as_json=json)
    where = Where(config, name, address, insecure=insecure, ship=ship, dashboard=dashboard)
    where.refuse_keys_found()
    where.refuse_insecure_found()
    wanted = where.loaded().config
    found = host_launch.up(wanted, report)
    seats = [seat.name for seat in wanted.seats]
    if json:
        keys = ("name", "address", "namespace", "pid", "log", "panel", "dashboard")
        return report.result({"up": {key: getattr(found, key) for key in keys} | {"seats": seats}}, None)
    report.print(f"council {found.name!r} is up: {', '.join(seats)}", style="green")
    for line in host_launch.notes_on(found, wanted):
        report.print(line, style="bright_black", soft_wrap=True)
    named = "" if found.name == "council" else f" --name {found.name}"
    next_ones = "   ".join(f"council {what}{named}" for what in ("propose …", "watch", "down"))
    report.print(f"next: {next_ones}", soft_wrap=True)
    return DONE


def down(
    name: Name = None,
    config: Config = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, even if proposals are open.")] = False,
    json: Json = False,
) -> int:
    """Stop a council that council up started.

    Open proposals continue when it is up again, or end undecided if it keeps no journal on disk. If any are open, the
    command asks first.
    """
    from council.cli.operate import host_launch
    from council.cluster import known
    from council.protocol.errors import Unreachable

    report = Report(as_json=json)
    wanted = Where(config, name).loaded().config.name
    kept = known.read(wanted)
    if kept is None:
        raise Unreachable(f"no council named {wanted!r} is up here: there is nothing to take down")
    if kept.stale():
        host_launch.forget(kept)
        said = f"it had crashed; its process {kept.pid} had ended already"
    else:
        if not yes:
            _confirm_down(wanted, config, report)
        said = host_launch.down(kept, report)
    return report.result({"down": {"name": wanted, "how": said}}, f"council {wanted!r} is down: {said}")


def _confirm_down(name: str, config: Path | None, report: Report) -> None:
    from council.kinds.text import count
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
        open_now = f"open proposals can't be read ({error})"
    if report.as_json or not sys.stdin.isatty():
        raise UsageFault(f"council {name!r}: {open_now}; give --yes to take it down anyway")
    report.note(f"council {name!r}: {open_now}.")
    if not typer.confirm("Take it down?", err=True):
        raise Interrupted(f"council {name!r} stays up", REJECTED)


def status(name: Name = None, address: Address = None, config: Config = None, json: Json = False) -> int:
    """Show the state of the council.

    Shows seats and their heartbeats, open proposals, what waits for a human, and counts of decisions and refusals.
    """
    report = Report(as_json=json)
    where = Where(config, name, address)
    with opened(where, report, sole="running") as (council, _):
        found, waiting = council.status(), council.escalations()
    from council.cli import overview
    from council.cli.card import council_options

    now_s = time.time()
    drawn = overview.status(found, waiting[::-1], now_s, council_options(where))
    return report.result({**found, "escalations": [each.document(now_s) for each in waiting]}, drawn)


def watch(
    since: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="CURSOR",
            help="Begin after the event with this cursor, as in --json; 0: the oldest kept. Default: now.",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show what has happened so far, and end.")] = False,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON for each event.")] = False,
) -> int:
    """Watch the council live.

    Shows seats, open proposals, ballots as they are cast, and decisions. Press q or Ctrl-C to end. Without a terminal
    it prints one line for each event.
    """
    report = Report(as_json=json)
    where = Where(config, name, address)
    with opened(where, report, sole="running") as (council, _):
        from council.cli.card import council_options
        from council.cli.operate.live import Screen

        since = 0 if once and since is None else since
        return Screen(council, report, since=since, follow=not once, where=council_options(where)).watch()


def budget(name: Name = None, address: Address = None, config: Config = None, json: Json = False) -> int:
    """Show what the seats' models have cost.

    Shows tokens and money since the council began, what is reserved for calls in progress, and what is left.
    """
    report = Report(as_json=json)
    with opened(Where(config, name, address), report, sole="running") as (council, _):
        found = council.status()["budget"]
    from council.cli import overview

    return report.result(found, overview.budget(found) if _is_spending(found) else NOTHING_SPENT)


def top(
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each call.")] = False,
) -> int:
    """Watch what the seats' models cost.

    Shows each seat's tokens and money, how fast they are spent and what is left, and the costliest recent proposals.
    q or Ctrl-C ends it. If no model has been called, it says so and ends.

    Without a terminal it prints this once and ends. With --json it prints each call as it ends, until Ctrl-C.
    """
    report = Report(as_json=json)
    with opened(Where(config, name, address), report, sole="running") as (council, _):
        from council.cli.operate.live import Top

        if not json and not _is_spending(council.status()["budget"]):
            report.print(NOTHING_SPENT)
            return DONE
        return Top(council, report, once=not json and not report.out.is_terminal).watch()


def _is_spending(budget: Mapping[str, Any]) -> bool:
    """Whether a model has been called, or is being called."""
    return bool(budget["council"]["calls"] or budget["council"]["held"]["tokens"])
