"""The tool ``command``: a program and its arguments, run in the sandbox and by no shell."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from council.action.paths import under
from council.action.sandbox import Limits, run_sandboxed
from council.action.tool import ArgumentsRefused, Operation, Safety, ToolResult

ARGUMENTS_MAX, CHARS_MAX = 256, 32_768


def known_keys(
    tool: str, args: Mapping[str, Any], required: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    """Raises ArgumentsRefused for a missing or unknown argument."""
    for key in required:
        if key not in args:
            raise ArgumentsRefused.at(tool, key, "nothing", "a value")
    for key in args:
        if key not in (*required, *optional):
            names = ", ".join((*required, *optional))
            raise ArgumentsRefused.at(tool, str(key)[:80], "an unknown argument", f"one of {names}")


class Command:
    """``{"argv": ["make", "test"], "cwd": "sub/folder"}``. ``root`` is writable, the system is read-only."""

    name = "command"
    safety: Safety = "MIXED"
    operations: tuple[Operation, ...] = ("read", "write", "delete", "modify")

    def __init__(
        self,
        root: Path,
        *,
        limits: Limits | None = None,
        sandbox: Literal["auto", "none"] = "auto",
        readable: tuple[str, ...] = (),
    ) -> None:
        self._root = Path(os.path.realpath(root))
        self._limits = limits or Limits()
        self._sandbox: Literal["auto", "none"] = sandbox
        self._readable = readable

    def check(self, args: Mapping[str, Any]) -> None:
        known_keys(self.name, args, ("argv",), ("cwd",))
        argv = args["argv"]
        expected = (
            f"a list of 1 to {ARGUMENTS_MAX} texts without NUL, up to {CHARS_MAX:,} characters together"
        )
        if not isinstance(argv, list) or not 0 < len(argv) <= ARGUMENTS_MAX:
            raise ArgumentsRefused.at(self.name, "argv", f"a value of type {type(argv).__name__}", expected)
        if not all(isinstance(each, str) and "\0" not in each for each in argv) or not argv[0]:
            raise ArgumentsRefused.at(self.name, "argv", "another list", expected)
        if (length := sum(map(len, argv))) > CHARS_MAX:
            raise ArgumentsRefused.at(self.name, "argv", f"{length:,} characters", expected)
        under(self._root, self.name, "cwd", args.get("cwd", "."))

    def resources(self, args: Mapping[str, Any]) -> tuple[str, ...]:
        return (f"file:{self._root}",)

    def run(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolResult:
        began = time.monotonic()
        try:
            return run_sandboxed(
                args["argv"],
                cwd=under(self._root, self.name, "cwd", args.get("cwd", ".")),
                writable=(self._root,),
                readable=self._readable,
                limits=replace(self._limits, timeout_s=min(timeout_s, self._limits.timeout_s)),
                sandbox=self._sandbox,
            )
        except OSError as error:  # the folder is gone, the machine has no more processes
            text = f"the program was not started: {error}"
            return ToolResult(False, "", text, None, self._sandbox, time.monotonic() - began, False)

    def verify(self, args: Mapping[str, Any], result: ToolResult) -> str:
        return ""
