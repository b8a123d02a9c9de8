"""The package's logger: writes to the standard error, unless the program has configured structlog itself."""

from __future__ import annotations

import contextlib
import sys
from typing import Any


class _Log:
    """Finds the configured logger for each line, because a program may configure structlog after importing us."""

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
    """Writes to the standard error. If a line can't be written, for example to a full disk, it is lost."""

    def msg(self, message: str) -> None:
        if sys.stderr is not None:  # without this it would go to the standard output
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"{message}\n")
                sys.stderr.flush()

    debug = info = warning = error = critical = msg


def get_logger(name: str) -> Any:
    """A logger of this package."""
    return _Log(name)
