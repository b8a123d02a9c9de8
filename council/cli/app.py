"""The commands of ``council``: parses the command line, calls the command, and returns its exit code.

Nothing heavy is imported before a command needs it, so that ``council --help`` is quick.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import itertools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from council.agents.messaging import logs
from council.cli.decide import commands, estimate, rfc, tokens
from council.cli.decide.cancel import cancel
from council.cli.examples import examples
from council.cli.operate import cluster, dashboard, up_down
from council.cli.options import EXIT_CODES
from council.cli.record import log, replay, schema, show, store, validate, verify
from council.cli.report import (
    DONE,
    INTERRUPTED,
    TERMINATED,
    Interrupted,
    Report,
    Unwritable,
    UsageFault,
    flushed,
)
from council.cli.setup import config, doctor, identity, init, policy, rules


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> Any:
        return _without_flag_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words behind the command in its usage line, a needed argument as ``ID``: typer writes ``{ID}``."""
        return [
            each.replace("{", "").replace("}", "").upper() if each.startswith("{") else each
            for each in super().collect_usage_pieces(ctx)
        ]


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> Any:
        return _without_flag_types(super().get_params(ctx))


def _without_flag_types(parameters: Any) -> Any:
    """Parameters whose flags have no type in the help: typer writes ``<bool>`` beside each."""
    for each in parameters:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return parameters


def _version(wanted: bool) -> None:
    if wanted:
        from council import __version__

        typer.echo(f"council {__version__}")
        raise typer.Exit


def _all(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
) -> None:
    """Three minds vote before an agent acts."""


# In the order of council --help: headings, and below each its commands and groups of commands.
_PARTS: dict[str, dict[str, Callable[..., int] | typer.Typer]] = {
    "Decide": {
        "propose": commands.propose,
        "review": commands.review,
        "escalations": commands.escalations,
        "answer": commands.answer,
        "cancel": cancel,
        "tokens": tokens.tokens,
        "revoke": tokens.revoke,
        "estimate": estimate.estimate,
        "rfc": rfc.app,
        "demo": commands.demo,
    },
    "Run a council": {
        "up": up_down.up,
        "down": up_down.down,
        "status": up_down.status,
        "watch": up_down.watch,
        "budget": up_down.budget,
        "top": up_down.top,
        "dashboard": dashboard.app,
        "cluster": cluster.app,
    },
    "Journal and audit": {
        "log": log.log,
        "show": show.show,
        "replay": replay.replay,
        "verify": verify.verify,
        "checkpoint": verify.checkpoint,
        "prove": verify.prove,
        "validate": validate.validate,
        "store": store.app,
        "schema": schema.app,
    },
    "Settings": {
        "init": init.init,
        "config": config.config,
        "doctor": doctor.doctor,
        "identity": identity.app,
        "rules": rules.app,
        "policy": policy.app,
    },
}


def _flowing(command: Callable[..., object]) -> str:
    """A command's docstring with each paragraph on one line, so that the terminal breaks the lines."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def assembled(arguments: Sequence[str] = ()) -> typer.Typer:
    """The commands. If the first argument names one, only that: building all takes longer than most commands."""
    app = typer.Typer(
        name="council",
        cls=_Group,
        help="Three minds vote before an agent acts.",
        epilog=f"{examples('')}\n\n{EXIT_CODES}",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_all)
    every = [(part, name, command) for part, found in _PARTS.items() for name, command in found.items()]
    named = [each for each in every if each[1] in arguments[:1]]
    for part, name, command in named or every:
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, cls=_Group, epilog=examples(name), rich_help_panel=part)
            for each in command.registered_commands:
                assert each.callback is not None
                each.help, each.cls = _flowing(each.callback), _Command
                each.epilog = examples(f"{name} {each.name or each.callback.__name__}")
        else:
            as_command = app.command(
                name, cls=_Command, help=_flowing(command), epilog=examples(name), rich_help_panel=part
            )
            as_command(command)
    return app


def _raise_terminated(number: int, frame: object) -> NoReturn:
    raise Interrupted("ended by SIGTERM", TERMINATED)


def run(arguments: Sequence[str]) -> int:
    """Runs a command line, and returns the exit code. An error is one message, never a traceback."""
    given = list(arguments)
    wants_help = not {"--help", "-h"}.isdisjoint(given)
    report = Report(as_json="--json" in given)
    usage_error = typer.BadParameter.__base__  # the class of all errors in a command line
    assert usage_error is not None
    if not wants_help:
        logs.configure()
    try:
        command_line = typer.main.get_command(assembled(given))
        done = command_line(args=given, prog_name="council", standalone_mode=False)
        if done == INTERRUPTED:  # typer returns it for a Ctrl-C that no command handles
            raise KeyboardInterrupt
        return done if isinstance(done, int) else DONE
    except SystemExit:
        if not wants_help:
            raise
        return DONE  # the reader has closed the output
    except (KeyboardInterrupt, typer.Abort):
        return report.error(Interrupted("nothing was left open"))
    except Exception as error:  # noqa: BLE001 - every error is printed
        if isinstance(error, usage_error):
            from council.cli.usage import usage_text

            return report.error(UsageFault(usage_text(error)))
        if isinstance(error, OSError) and (wants_help or "--version" in given):
            return report.error(Unwritable(error.strerror or str(error)))  # typer prints these by itself
        if "--debug" in itertools.takewhile(lambda each: each.startswith("-"), given):
            traceback.print_exc()
        return report.error(error)


def main() -> NoReturn:
    """The entry point of the command ``council``."""
    with contextlib.suppress(ValueError):  # outside of the main thread
        signal.signal(signal.SIGTERM, _raise_terminated)
    gc.set_threshold(200_000, 20, 20)  # nearly all that a command's imports make lives until its end
    _open_closed_descriptors()
    code = flushed(run(sys.argv[1:]))
    gc.freeze()  # or the interpreter would look through all of it for cycles before it ends
    sys.exit(code)


def _open_closed_descriptors() -> None:
    """Opens the null device at closed standard descriptors, or the next open file would get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # at the lowest free number
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - for the life of the process, as the next one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
