"""What the package logs, for tests."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

LOGGER = logging.getLogger("council")


@contextlib.contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """What is logged meanwhile, at any level: each event as a dict of its fields, ``event`` and ``log_level``."""
    found: list[dict[str, Any]] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            fields: dict[str, Any] = vars(record).get("fields", {})
            event = vars(record).get("event", record.getMessage())
            found.append({**fields, "event": event, "log_level": record.levelname.lower()})

    handler, level = Kept(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    try:
        yield found
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
