"""As ``shapes``, for what needs Ray: ``python -m tests.hold.shapes_on_ray --write`` starts one, and ends it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.hold import shapes, texts

COMMANDS = (
    ["up", "--dashboard"],
    ["up"],
    ["status"],
    ["dashboard"],
    ["dashboard", "--token"],
    ["dashboard", "open"],
    ["dashboard", "install"],
    ["propose", "Rotate the staging key", "--wait-for", "all"],
    ["down", "--yes"],
    ["down", "--yes"],
)


def lines() -> Iterator[str]:
    return shapes.lines(runs())


def runs() -> Iterator[tuple[str, int, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("COUNCIL_", "RAY_"))}
        env |= {"XDG_STATE_HOME": folder, "PYTHONPATH": str(shapes.ROOT), "BROWSER": "true"}
        down = True
        try:
            for command in COMMANDS:
                done = called(command, Path(folder), env)
                down = command[0] == "down"
                yield "council " + " ".join(command), done.returncode, json.loads(done.stdout)
        finally:
            if not down:
                called(["down", "--yes"], Path(folder), env)


def called(command: list[str], folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-P", "-m", "council.cli", *command, "--json"]
    return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=150, check=False)


if __name__ == "__main__":
    texts.command("shapes_on_ray", lines)
