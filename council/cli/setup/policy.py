"""``council policy``: what the rows of policy say."""

from __future__ import annotations

import json as jsons
from pathlib import Path
from typing import Annotated, Any

import typer

from council.cli.decide.submit import text
from council.cli.options import Config, Json
from council.cli.reach import Where
from council.cli.report import DONE, REJECTED, UNDECIDED, Report, UsageFault

app = typer.Typer(help="Try the rows [[policy]] of the settings.", no_args_is_help=True)

CODES = {"reject": REJECTED, "human": UNDECIDED}
_SHAPE = 'a JSON object, for example {"tool": "shell", "args": {"command": "ls"}}'


@app.command("test")
def try_(
    action: Annotated[
        str, typer.Argument(metavar="FILE|TOOL", help="A JSON file with an action, or a tool's name.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ARGS]...", help="The tool's arguments: one JSON object, or NAME=VALUE each."
        ),
    ] = None,
    agent: Annotated[str, typer.Option(metavar="NAME", help="Who proposes it.")] = "client",
    config: Config = None,
    json: Json = False,
) -> int:
    """Print what the rows of policy say of an action.

    Needs no council, and runs nothing. Exits 0 if no row rejects it or asks for a human, 1 if one rejects it, 3 if
    one asks for a human.
    """
    from council.agents.mind import Action, Case
    from council.agents.scan.policy import judge
    from council.config.build_minds import rows_of
    from council.protocol.errors import EnvelopeError

    report = Report(as_json=json)
    try:
        given = Action.of(_action(action, arguments or []))
    except EnvelopeError as error:
        raise UsageFault(f"{action}: {error}") from error
    if not (isinstance(given.tool, str) and given.tool and isinstance(given.args, dict)):
        raise UsageFault(f"{action!r} names no tool, or its args are none: expected {_SHAPE}")
    rows = rows_of(Where(config).loaded().config)
    found = judge(Case("", agent, "", action=given), rows)
    lines = [f"{row.then}: {row}" for row in found.rows]
    none = f"no row fits: none of {len(rows)} says anything of this action"
    document = {
        "then": found.then or None,
        "rows": [{"row": row.number, "then": row.then, "reason": row.reason} for row in found.rows],
        "of": len(rows),
    }
    return report.result(document, "\n".join(lines) or none, CODES.get(found.then, DONE))


def _action(what: str, arguments: list[str]) -> Any:
    """The action in a file, or of a tool and its arguments. Raises UsageFault."""
    if not arguments and (what == "-" or Path(what).is_file()):
        given = _json(text(None if what == "-" else what, what), what)
        if not isinstance(given, dict):
            raise UsageFault(f"{what}: expected {_SHAPE}")
        return given
    if not arguments and ("/" in what or what.endswith(".json")):
        raise UsageFault(f"{what}: there is no such file; expected a file with {_SHAPE}, or a tool's name")
    if len(arguments) == 1 and arguments[0].lstrip().startswith("{"):
        return {"tool": what, "args": _json(arguments[0], "the arguments")}
    args = {}
    for each in arguments:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise UsageFault(
                f"{each!r}: expected NAME=VALUE, for example 'command=ls -l', or one JSON object"
            )
        args[name] = value
    return {"tool": what, "args": args}


def _json(given: str, where: str) -> Any:
    try:
        return jsons.loads(given)
    except (ValueError, RecursionError) as error:
        raise UsageFault(f"{where}: not JSON: {error}; expected {_SHAPE}") from error
