"""As ``shapes``, for what needs Ray: ``python -m tests.hold.shapes_on_ray --write`` starts one, and ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.hold import shapes, texts

# Those after which the council is up, and those that end it.
FIRST = (
    ["up", "--dashboard"],
    ["up"],
    ["status"],
    ["dashboard"],
    ["dashboard", "--token"],
    ["dashboard", "open"],
    ["dashboard", "install"],
    ["propose", "Rotate the staging key", "--wait-for", "all"],
)
LAST = (["down", "--yes"], ["down", "--yes"])
Run = Callable[..., subprocess.CompletedProcess[str]]


def lines() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("COUNCIL_", "RAY_"))}
        env |= {"XDG_STATE_HOME": folder, "PYTHONPATH": str(shapes.ROOT), "BROWSER": "true"}

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            line = [sys.executable, "-P", "-m", "council.cli", *arguments]
            return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, check=False)

        try:
            yield from shapes.lines(told([*FIRST, *LAST], run))
        finally:
            run("down", "--yes")


def told(commands: Iterable[list[str]], run: Run) -> Iterator[tuple[str, int, Any]]:
    """Runs the commands; gives each with its exit code and what it printed."""
    for command in commands:
        done = run(*command, "--json")
        yield "council " + " ".join(command), done.returncode, json.loads(done.stdout)


if __name__ == "__main__":
    texts.command("shapes_on_ray", lines)
