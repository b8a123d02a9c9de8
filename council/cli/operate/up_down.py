"""The commands for a council that outlives the shell: up, down, status, watch, budget, top."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from council.cli.options import Address, Config, Dashboard, Insecure, Json, Name, Ship
from council.cli.reach import Where, opened
from council.cli.report import DONE, REJECTED, Interrupted, Report, UsageFault


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
    spread over the nodes. Run it on a node of the cluster: actors can be called only from there.
    """
    from council.cli.operate import host_launch

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
    report.print(f"council {found.name} is up, with {', '.join(seats)}", style="green")
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
    """Take a council down again.

    It must have been brought up by council up. Open proposals go on when it is up again, or end undecided if it
    keeps no journal on disk. If any are open, the command asks first.
    """
    from council.cli.operate import host_launch
    from council.cluster import known
    from council.protocol.errors import Unreachable

    report = Report(as_json=json)
    wanted = Where(config, name).loaded().config.name
    kept = known.read(wanted)
    if kept is None:
        raise Unreachable(f"no council named {wanted} is up here: there is nothing to take down")
    if kept.stale():
        host_launch.forget(kept)
        said = f"it had crashed, for its process {kept.pid} had ended already"
    else:
        if not yes:
            _confirm_down(wanted, config, report)
        said = host_launch.down(kept, report)
    return report.result({"down": {"name": wanted, "how": said}}, f"council {wanted} is down: {said}")


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
        raise UsageFault(f"council {name}: {open_now}; give --yes to take it down all the same")
    report.note(f"council {name}: {open_now}.")
    if not typer.confirm("Take it down?", err=True):
        raise Interrupted(f"council {name} stays up", REJECTED)


def status(name: Name = None, address: Address = None, config: Config = None, json: Json = False) -> int:
    """Show the council at a glance.

    Seats and their heartbeats, what is open, what was decided and refused.
    """
    report = Report(as_json=json)
    with opened(Where(config, name, address), report, sole="running") as (council, _):
        found, waiting = council.status(), council.escalations()
    from council.cli import overview

    now_s = time.time()
    escalations = [each.document(now_s) for each in waiting]
    return report.result({**found, "escalations": escalations}, overview.status(found, waiting, now_s))


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
    where = Where(config, name, address)
    with opened(where, report, sole="running") as (council, _):
        from council.cli.card import council_options
        from council.cli.operate.live import Screen

        since = 0 if once and since is None else since
        return Screen(council, report, since=since, follow=not once, where=council_options(where)).watch()


def budget(name: Name = None, address: Address = None, config: Config = None, json: Json = False) -> int:
    """Show what the seats' models have cost.

    Tokens and money over the council's life, what is held for calls under way, and what is left.
    """
    report = Report(as_json=json)
    with opened(Where(config, name, address), report, sole="running") as (council, _):
        found = council.status()["budget"]
    from council.cli import overview

    return report.result(found, overview.budget(found))


def top(
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON for each call.")] = False,
) -> int:
    """Watch what the seats' models cost, as it happens.

    Each seat's tokens and money, how fast they go and what is left, and the
    costliest recent proposals. q or Ctrl-C ends. Without a terminal it prints
    one line for each finished call.
    """
    report = Report(as_json=json)
    with opened(Where(config, name, address), report, sole="running") as (council, _):
        from council.cli.operate.live import Top

        return Top(council, report).watch()
