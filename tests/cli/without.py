"""A program that runs command lines and Python code as if some packages were not installed.

    python -m tests.cli.without < request.json

The request is ``{"hidden": [module, ...], "steps": [step, ...]}``. A step is the list of a command line's arguments,
or a str of Python code. The program prints a list of ``[exit code, output, errors]``, one for each step. The code of
Python code is 0, or 1 with the error as ``Type: message``.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class Hidden:
    """A finder that refuses to import some modules, as if they were not installed."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = frozenset(modules)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in self._modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def run(step: Any) -> tuple[int, str, str]:
    """Runs one step."""
    from council.cli import app

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if isinstance(step, list):
            code = app.run(step)
        else:
            try:
                exec(step, {})
                code = 0
            except Exception as error:
                traceback.print_exc()
                print(f"{type(error).__name__}: {error}")
                code = 1
    return code, out.getvalue(), err.getvalue()


def main() -> None:
    """Answers the request on the standard input."""
    asked = json.load(sys.stdin)
    already = sorted({name.partition(".")[0] for name in sys.modules}.intersection(asked["hidden"]))
    for name in [name for name in sys.modules if name.partition(".")[0] in already]:
        del sys.modules[name]
    sys.meta_path.insert(0, Hidden(asked["hidden"]))
    print(json.dumps([run(step) for step in asked["steps"]]))


if __name__ == "__main__":
    main()
