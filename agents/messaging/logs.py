"""The package's log: Python's own ``logging``, under the logger ``council``.

A record's message is the event with its fields. The fields are also attributes of the record, and together in
``record.fields``; ``record.event`` is the event alone. Importing the package installs no handler and sets no level: a
program that embeds the council configures logging as it does for any library. The council's own processes call
``configure``: commands, the process of ``council up``, and the actors on Ray.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

ROOT = "council"
LEVEL, FORMAT = "COUNCIL_LOG_LEVEL", "COUNCIL_LOG_FORMAT"
# The variables, and the values that each may have. The first one is the default.
VARIABLES: Mapping[str, tuple[str, ...]] = {
    LEVEL: ("info", "debug", "warning", "error"),
    FORMAT: ("text", "json"),
}
_OWN_ATTRIBUTES = {*vars(logging.makeLogRecord({})), "message", "asctime", "event", "fields"}


class Log:
    """A logger whose records have an event and fields."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: Any) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        self._log(logging.ERROR, event, fields)

    def _log(self, level: int, event: str, fields: dict[str, Any]) -> None:
        """Logs an event. A field ``exc_info`` is an exception whose traceback is logged, as in ``logging``.

        A field ``traceback`` is one as text, which the message has below its line.
        """
        if not self._logger.isEnabledFor(level):
            return
        exc_info = fields.pop("exc_info", None)
        extra = {name: value for name, value in fields.items() if name not in _OWN_ATTRIBUTES}
        extra |= {"event": event, "fields": fields}
        shown = [f"{name}={_shown(value)}" for name, value in fields.items() if name != "traceback"]
        message = " ".join([event, *shown])
        if "traceback" in fields:
            message += f"\n{fields['traceback']}"
        self._logger.log(level, message, exc_info=exc_info, extra=extra, stacklevel=3)


def get_logger(name: str) -> Log:
    """A logger of this package; ``name`` is ``council``, or begins with ``council.``."""
    return Log(name)


def _shown(value: Any) -> str:
    """A value on one line; quoted if it has spaces, or characters that could act on a terminal."""
    text = str(value)
    needs_quotes = isinstance(value, str) and (text == "" or " " in text)
    return repr(text) if needs_quotes or not text.isprintable() else text


# A process of the council's own


class LogSettings(NamedTuple):
    """The level and the format of a process's log."""

    level: str = VARIABLES[LEVEL][0]
    format: str = VARIABLES[FORMAT][0]


def from_environment() -> LogSettings:
    """The settings that the variables give; the default for one that is not set, or has another value."""
    return LogSettings(*(_value(variable) or known[0] for variable, known in VARIABLES.items()))


def _value(variable: str) -> str | None:
    given = os.environ.get(variable, "").strip().lower()
    return given if given in VARIABLES[variable] else None


def configure(settings: LogSettings | None = None) -> None:
    """Writes this process's log to the standard error, by the environment unless ``settings`` are given.

    Call it again to change them. A variable with another value is reported, and its default is used.
    """
    wanted = from_environment() if settings is None else settings
    logger = logging.getLogger(ROOT)
    handler = _Stderr()
    handler.setFormatter(_Json() if wanted.format == "json" else _Text())
    logger.handlers = [each for each in logger.handlers if not isinstance(each, _Stderr)] + [handler]
    logger.setLevel(wanted.level.upper())
    logger.propagate = False  # or a handler of the root, such as one of Ray's, would write each line again
    for variable, known in VARIABLES.items():
        given = os.environ.get(variable, "").strip()
        if settings is None and given and _value(variable) is None:
            expected = f"expected {', '.join(known[:-1])} or {known[-1]}"
            get_logger(ROOT).warning(f"{variable} is {given[:80]!r}, {expected}: {known[0]} is used")


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Drops what is logged meanwhile."""
    logger = logging.getLogger(ROOT)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Stderr(logging.Handler):
    """Writes to the present standard error. If a line can't be written, for example to a full disk, it is lost."""

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(f"{line}\n")
                sys.stderr.flush()


class _Text(logging.Formatter):
    """``2026-01-31T12:00:00Z warning  seat lost seat=lite``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(level)-8s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _at(record, "seconds")

    def format(self, record: logging.LogRecord) -> str:
        record.level = record.levelname.lower()
        return super().format(record)


class _Json(logging.Formatter):
    """One JSON object on one line, in ASCII: time, level, logger, event, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        line = {
            "time": _at(record, "milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", record.getMessage()),
        }
        return json.dumps(
            {**line, **{name: each for name, each in fields.items() if name not in line}}, default=str
        )


def _at(record: logging.LogRecord, precision: str) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec=precision).replace("+00:00", "Z")
