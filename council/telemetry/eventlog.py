"""A council's log: one JSON line for each event that an operator may have to act on.

These are decisions, escalations, alerts, seats that fell silent or came back, and a coordinator that took over. A
line has ids, names, outcomes and times, and never the text of a proposal, a mind or a human.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

from council.agents.messaging.logs import get_logger
from council.kinds.table import ANNOUNCED
from council.telemetry.watcher import Announced, Watcher

if TYPE_CHECKING:
    from council.runtime.coordinator import Coordinator, View

# 100,000 decisions, and as many before them.
FILE_BYTES_MAX, FILES_BEFORE = 20 * 2**20, 1


class EventLog(Watcher):
    """Writes the events of one coordinator to ``folder/<council>.log``.

    If the file can't be written, the process's own log says so once, and the council goes on without it.
    """

    def __init__(self, council: str, coordinator: Coordinator, folder: Path) -> None:
        self._council = council
        self._file: _File | None = None
        self.path = folder / f"{council}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = _File(self.path)
        except OSError as error:
            _warn(self.path, error)
        super().__init__(coordinator)

    def see(self, announced: Announced, view: View) -> None:
        if self._file is None:
            return
        for wall_s, effect in announced:
            if line := ANNOUNCED[type(effect)].logged(effect):
                at = datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds")
                fields = {"council": self._council, "level": line.level, "at": at, **line.facts}
                self._file.write(json.dumps({**fields, "event": line.title}, ensure_ascii=False))

    def close(self) -> None:
        super().close()
        if self._file is not None:
            self._file.close()
            self._file = None


class _File(RotatingFileHandler):
    """Writes lines, and begins a new file once this one is large."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_BEFORE, encoding="utf-8")
        self._warned = False

    def write(self, line: str) -> None:
        self.handle(logging.makeLogRecord({"msg": line}))

    def handleError(self, record: logging.LogRecord) -> None:
        """A line that could not be written is lost. That is logged once; the next line opens the file again."""
        if not self._warned:
            self._warned = True
            _warn(Path(self.baseFilename), sys.exc_info()[1])
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # of the lines that could not be written
            super().close()


def _warn(path: Path, error: BaseException | None) -> None:
    get_logger("council").warning("no event log", path=str(path), why=str(error))
