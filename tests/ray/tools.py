"""Tools of a council's own executor, in its process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from council.action.tool import OUTSIDE, ArgumentsRefused, Operation, Safety, ToolResult
from tests.patience import until


class Append:
    """Appends this process's id to a file. With ``gate``, it then waits until that file is there."""

    name = "append"
    safety: Safety = "WRITE"
    operations: tuple[Operation, ...] = ("write",)

    def check(self, args: Mapping[str, Any]) -> None:
        if not isinstance(args.get("path"), str):
            raise ArgumentsRefused.at(self.name, "path", repr(args.get("path")), "a text")

    def resources(self, args: Mapping[str, Any]) -> tuple[str, ...]:
        return (f"file:{args['path']}",)

    def run(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolResult:
        with Path(args["path"]).open("a") as file:
            file.write(f"{os.getpid()}\n")
        if gate := args.get("gate"):
            until(Path(gate).exists)
        return ToolResult(True, str(os.getpid()), "", None, OUTSIDE, 0.0, False)

    def verify(self, args: Mapping[str, Any], result: ToolResult) -> str:
        return "" if Path(args["path"]).exists() else "the file is not there"


class Look(Append):
    """Reads a file."""

    name = "look"
    safety: Safety = "READ"
    operations: tuple[Operation, ...] = ("read",)

    def run(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolResult:
        return ToolResult(
            True, f"{os.getpid()}: {Path(args['path']).read_text()}", "", None, OUTSIDE, 0.0, False
        )


TOOLS = [Append(), Look()]
