"""What ``--help`` shows: examples that run, exit codes once, no types of flags; and the completion of shells."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from council.cli.examples import EXAMPLES
from tests.examples import at_first
from tests.hold import doors
from tests.hold.options import commands
from tests.patience import HANG_S

from .conftest import Cli

ALL = [name for name, _ in commands()]


def parsed(words: list[str]) -> Any:
    """The context of the command that these words call, with its arguments checked; nothing is called."""
    command = doors.command_line()
    context = command.make_context("council", words, resilient_parsing=False)
    while getattr(command, "commands", None) and context._protected_args:
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    return context


def called(example: str) -> list[str]:
    """The words after ``council`` in an example, without what is piped and redirected."""
    (part,) = [each for each in example.split(" | ") if each.startswith("council ")]
    return shlex.split(part.partition(" > ")[0])[1:]


def examples() -> Iterator[tuple[str, str]]:
    yield from ((command, each) for command, some in EXAMPLES.items() for each in some)


def test_every_command_has_two_examples() -> None:
    assert sorted(EXAMPLES) == sorted(ALL)
    assert {len(set(some)) for some in EXAMPLES.values()} == {2}


@pytest.mark.parametrize(("command", "example"), list(examples()))
def test_each_example_is_taken_by_its_command(command: str, example: str) -> None:
    """Mutation: an option or a command that was renamed."""
    context = parsed(called(example))
    path = context.command_path.removeprefix("council").strip()
    assert path.startswith(command)
    assert len(example) <= 78, "it fits on a line of a terminal"


@pytest.mark.parametrize("words", [["propose", "--no-such-option", "x"], ["cluster", "chekc", "x"], ["show"]])
def test_a_wrong_example_would_be_found(words: list[str]) -> None:
    with pytest.raises(Exception, match=r"No such|Missing"):
        parsed(words)


@pytest.mark.parametrize("command", ALL)
def test_help_shows_the_examples_and_no_type_of_a_flag(cli: Cli, command: str) -> None:
    said = cli(*command.split(), "--help")
    shown = " ".join(said.out.split())
    assert said.code == 0
    assert "<bool>" not in shown
    usage = shown.partition("Usage: ")[2].partition(" Examples: ")[0]
    assert not {"{", "}"} & set(usage.partition("[OPTIONS]")[2].split(".")[0]), "an argument is ID, not {ID}"
    for example in EXAMPLES[command]:
        assert example in shown
    assert ("Exit codes:" in shown) is (command == ""), "they are said once"


def test_examples_that_need_nothing_run(cli: Cli) -> None:
    for example in (
        EXAMPLES["propose"][0],
        EXAMPLES["estimate"][0],
        EXAMPLES["config"][0],
        EXAMPLES["identity show"][0],
        EXAMPLES["store migrate"][0],
        EXAMPLES["store info"][0],
        EXAMPLES["store export"][0],
        EXAMPLES["store import"][0],
        EXAMPLES["store gc"][0],
        EXAMPLES["doctor"][0],
    ):
        said = cli(*called(example))
        assert said.code == 0, (example, said.err)


# Completion


def completed(shell: str, line: str, **more: str) -> str:
    words = line.split(" ")
    variables = {
        "_COUNCIL_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    command = [sys.executable, "-m", "council.cli"]
    done = subprocess.run(
        command, env=os.environ | variables | more, capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("shell", at_first(1, "bash", "zsh", "fish"))
def test_commands_and_options_are_completed(shell: str) -> None:
    commands = completed(shell, "council pro")
    assert "propose" in commands
    assert "escalations" not in commands
    assert "migrate" in completed(shell, "council store mi")
    assert "--wait-for-human" in completed(shell, "council propose --wait")


@pytest.mark.parametrize("shell", at_first(1, "bash", "zsh", "fish"))
def test_the_script_of_a_shell_is_shown(shell: str) -> None:
    """What --install-completion puts where the shell reads it."""
    done = subprocess.run(
        [sys.executable, "-m", "council.cli"],
        env=os.environ | {"_COUNCIL_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    assert f"_COUNCIL_COMPLETE=complete_{shell}" in done.stdout
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=done.stdout, text=True, timeout=HANG_S, check=True)


def test_completion_imports_nothing_heavy() -> None:
    """Each press of the tab key is a process; typer itself imports pydantic there, to read options."""
    code = (
        "import atexit, os, sys\n"
        "heavy = ('ray', 'msgpack', 'council.config.settings', 'council.api.client')\n"
        "atexit.register(lambda: print([each for each in heavy if each in sys.modules]))\n"
        "from council.cli.app import main\n"
        "main()\n"
    )
    variables = {"_COUNCIL_COMPLETE": "complete_bash", "COMP_WORDS": "council pro", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    assert "propose" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
