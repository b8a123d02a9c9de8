"""Where the package's log goes: to the standard error, unless the program has set structlog up itself."""

from __future__ import annotations

import sys
from typing import Any

import structlog


class _Log:
    """A logger that looks at each line where it belongs: a program may set structlog up after it has imported us."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        return getattr(self._own(), level)

    def _own(self) -> Any:
        if structlog.is_configured():
            return structlog.get_logger(self._name)
        before = structlog.get_config()["processors"][:-1]
        shown = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        return structlog.wrap_logger(structlog.PrintLogger(sys.stderr), processors=[*before, shown])


def get_logger(name: str) -> Any:
    """A logger of the package's."""
    return _Log(name)
