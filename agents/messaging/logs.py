"""Where the package's log goes: to the standard error, unless the program has set structlog up itself."""

from __future__ import annotations

import contextlib
import sys
from typing import Any


class _Log:
    """A logger that looks at each line where it belongs: a program may set structlog up after it has imported us."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        return getattr(self._own(), level)

    def _own(self) -> Any:
        import structlog  # for the first line that is logged: most commands log none, and it brings rich

        if structlog.is_configured():
            return structlog.get_logger(self._name)
        before = structlog.get_config()["processors"][:-1]
        shown = structlog.dev.ConsoleRenderer(colors=_is_terminal())
        return structlog.wrap_logger(_Stderr(), processors=[*before, shown])


def _is_terminal() -> bool:
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()


class _Stderr:
    """Writes; a line that can't be written, as on a full disk, is lost, and ends nothing else."""

    def msg(self, message: str) -> None:
        if sys.stderr is not None:  # or it would go to the output
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"{message}\n")
                sys.stderr.flush()

    debug = info = warning = error = critical = msg


def get_logger(name: str) -> Any:
    """A logger of the package's."""
    return _Log(name)
