"""``council budget`` and ``council top``: what the seats' models cost, once and as it happens. Draws nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from council.cli.options import Address, Config, Json, Name
from council.cli.reach import Where, opened
from council.cli.report import Report


def budget(name: Name = None, address: Address = None, config: Config = None, json: Json = False) -> int:
    """Show what the seats' models have cost.

    Tokens and money over the council's life, what is held for calls under way, and what is left.
    """
    report = Report(as_json=json)
    with opened(Where(config, name, address), report, sole="running") as (council, _):
        found = council.status()["budget"]
    from council.cli import show

    return report.result(found, show.budget(found))


def top(
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Annotated[bool, typer.Option("--json", help="One line of JSON for each call.")] = False,
) -> int:
    """Watch what the seats' models cost, as it happens.

    Each seat's tokens and money, how fast they go and what is left, and the
    costliest proposals of late. q or Ctrl-C ends. Without a terminal it prints
    one line for each call that is over.
    """
    report = Report(as_json=json)
    with opened(Where(config, name, address), report, sole="running") as (council, _):
        from council.cli.operate.top import Top

        return Top(council, report).watch()
