"""The options that several commands share, so that they are the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

EXIT_CODES = """Exit codes:
  0   approved, or done
  1   rejected, cancelled or too late, or a check failed
  2   wrong usage or configuration
  3   not decided: waits for a human, deferred, timed out, or too busy
  4   the council or its store can't be reached
  70  a fault of the council itself
  74  the output can't be written
  130 interrupted"""

# Examples of options that take more than one word.
EXAMPLES = {"--action": """--action shell '{"command": "ls"}'"""}


class Risk(StrEnum):
    """The risk of a proposal."""

    low = "low"
    med = "med"
    high = "high"


class WaitForOption(StrEnum):
    """The ballots that a decision waits for (rules 1.5)."""

    decisive = "decisive"
    all = "all"


_HERE = "Which council"
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The settings file to use, instead of the one found here."),
]
Name = Annotated[str | None, typer.Option(metavar="NAME", help="The council's name.", rich_help_panel=_HERE)]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="The address of the council's Ray; auto: the Ray on this machine.",
        rich_help_panel=_HERE,
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Allow a cluster without a token, where anybody who reaches it can do anything.",
        rich_help_panel=_HERE,
    ),
]
Ship = Annotated[
    bool,
    typer.Option("--ship", help="Send this package to the cluster's nodes.", rich_help_panel=_HERE),
]
Dashboard = Annotated[
    bool, typer.Option("--dashboard", help="Also start Ray's dashboard, if the council starts its own Ray.")
]
Body = Annotated[
    str,
    typer.Option("--body", metavar="TEXT|@FILE|-", help="More text: TEXT, @FILE, or - for standard input."),
]
Action = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--action",
        metavar="TOOL JSON",
        help='The tool call to decide on: for example shell \'{"command": "ls"}\'.',
    ),
]
History = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="FILE",
        help="Earlier turns as JSON: a list, or one object on each line, each with role and text.",
    ),
]
Inline = Annotated[
    bool,
    typer.Option(
        "--inline",
        help="Run a council in this process, without Ray, for this command.",
        rich_help_panel=_HERE,
    ),
]
Launch = Annotated[
    bool, typer.Option("--launch", help="Start a council on Ray for this command.", rich_help_panel=_HERE)
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Your own name for the proposal: the same key again gets the same decision.",
    ),
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", help="How long the seats may deliberate.")
]
WaitForHuman = Annotated[
    bool, typer.Option("--wait-for-human", help="If a human must decide, wait for the answer.")
]
RiskOption = Annotated[Risk, typer.Option("--risk", help="The risk as you see it; high goes to Prime.")]
