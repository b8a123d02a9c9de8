"""Runs Python programs one after the other in one process: to start one for each takes longer than most of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.patience import HANG_S

# Each has a folder of its own for keys and known councils, and names of its own.
RUNS = """
import contextlib, io, json, os, sys, traceback
for name, (code, folder, state) in json.load(sys.stdin).items():
    os.chdir(folder)
    os.environ["XDG_STATE_HOME"] = state
    printed, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(code, name, "exec"), {"__name__": "__main__"})
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps([name, printed.getvalue(), error]), flush=True)
"""


class Ran(NamedTuple):
    """What a program printed, and the traceback with which it ended; empty if it ended well."""

    printed: str
    error: str


def ran(programs: Mapping[str, str], folder: Path, cwd: Path | None = None) -> dict[str, Ran]:
    """Runs programs, which are Python code by name, in ``cwd`` or each in a new folder below ``folder``."""
    given = {}
    for number, (name, code) in enumerate(programs.items()):
        own = folder / str(number)
        own.mkdir()
        given[name] = (code, str(cwd or own), str(folder / f"{number}-state"))
    done = subprocess.run(
        [sys.executable, "-c", RUNS],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {name: Ran(*rest) for name, *rest in map(json.loads, done.stdout.splitlines())}
    assert found.keys() == programs.keys(), done.stderr
    return found
