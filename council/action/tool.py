"""The interface of a tool, and the result of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from council.protocol.errors import CallerError

Safety = Literal["READ", "WRITE", "MIXED"]
Operation = Literal["read", "write", "delete", "modify"]
OUTSIDE = "outside"  # the level of a tool that starts no program: it runs in the executor's process


class ArgumentsRefused(CallerError):
    """The arguments of a tool are wrong (``tool``, ``argument``). Nothing was run."""

    code = "arguments"

    @classmethod
    def at(cls, tool: str, argument: str, found: str, expected: str) -> ArgumentsRefused:
        """An error of one argument; ``found`` and ``expected`` are words."""
        text = f"{tool}: {argument}: found {found}, expected {expected}"
        return cls(text, tool=tool, argument=argument)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a run.

    ``exit_code`` is a program's, negative for the signal that ended it; None without a program, or after a time-out.
    ``sandbox`` is the level that the program ran at ('bubblewrap', 'landlock: …', 'none'), or 'outside' for a tool
    without a program. ``truncated`` is true if the program wrote more than was kept. ``undo`` is what
    ``Tool.revert`` needs; it stays in the executor's memory.
    """

    ok: bool
    output: str
    error: str
    exit_code: int | None
    sandbox: str
    seconds: float
    truncated: bool
    undo: Any = field(default=None, repr=False, compare=False)


@runtime_checkable
class Tool(Protocol):
    """A tool that a council can approve and run. ``args`` are JSON: str, int, float, bool, None, lists and dicts.

    A tool may also have ``revert(args, result) -> None``. It undoes a run, or raises CallerError if it can't.
    """

    name: str
    safety: Safety
    operations: tuple[Operation, ...]

    def check(self, args: Mapping[str, Any]) -> None:
        """Raises CallerError for wrong arguments. It names the argument, the value, and what is expected."""
        ...

    def resources(self, args: Mapping[str, Any]) -> tuple[str, ...]:
        """The resources of a run, such as 'file:/path' and 'https://host'. A token allows only these."""
        ...

    def run(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolResult:
        """Runs once, and returns within about ``timeout_s``. A failure of the tool is a result, with ``ok`` false."""
        ...

    def verify(self, args: Mapping[str, Any], result: ToolResult) -> str:
        """What is wrong with the state after the run; empty if nothing is wrong."""
        ...
