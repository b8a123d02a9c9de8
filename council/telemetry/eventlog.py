"""A council's log: one JSON line for each event that somebody may have to act on.

It has seats that fell silent and came back, decisions, escalations, alerts, and a coordinator that took over. A line
holds ids, names, outcomes and times, and never the text of a proposal, a mind or a human.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from council.agents.messaging.logs import get_logger
from council.core import effects as do
from council.runtime.feed import decided_by
from council.runtime.watcher import Announced, Readable, Watcher

if TYPE_CHECKING:
    from council.journal.record import Journal
    from council.runtime.driver import Driver

# 100,000 decisions, and as many before them.
FILE_BYTES_MAX, FILES_BEFORE = 20 * 2**20, 1


class EventLog(Watcher):
    """Writes the events of one coordinator to ``folder/<council>.log``.

    A file that can't be written is told once on the process's own log, and the council goes on without.
    """

    def __init__(self, council: str, coordinator: Readable, folder: Path) -> None:
        self._file: _File | None = None
        self.path = folder / f"{council}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = _File(self.path)
        except OSError as error:
            _tell(self.path, error)
        self._log: Any = structlog.wrap_logger(
            self._file,
            processors=[structlog.processors.JSONRenderer(ensure_ascii=False)],
            wrapper_class=structlog.BoundLogger,
            council=council,
        )
        super().__init__(coordinator)

    def see(
        self, announced: Announced, driver: Driver, journal: Journal, now: tuple[float, float], kept: int
    ) -> None:
        if self._file is None:
            return
        for wall_s, effect in announced:
            for level, event, facts in _lines(effect):
                at = datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds")
                getattr(self._log, level)(event, level=level, at=at, **facts)

    def close(self) -> None:
        super().close()
        if self._file is not None:
            self._file.close()
            self._file = None


class _File(RotatingFileHandler):
    """Takes structlog's lines, and begins a new file once this one is large."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_BEFORE, encoding="utf-8")
        self._told = False

    def info(self, line: str) -> None:
        self.handle(logging.makeLogRecord({"msg": line}))

    warning = info

    def handleError(self, record: logging.LogRecord) -> None:
        """A line that could not be written is lost, and that is told once; the next begins with the file anew."""
        if not self._told:
            self._told = True
            _tell(Path(self.baseFilename), sys.exc_info()[1])
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # of what could not be written
            super().close()


def _tell(path: Path, error: BaseException | None) -> None:
    get_logger("council").warning("no event log", path=str(path), why=str(error))


def _lines(effect: do.Effect) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The line that an announcement is worth, if any: its level, the event and its facts."""
    match effect:
        case do.AnnounceRoll(seat, active, why):
            # What stands behind a colon may quote a mind, and a mind what it was shown.
            facts: dict[str, Any] = {"seat": seat, "why": why.split(":")[0]}
            gone = "seat inactive" if why.startswith("no heartbeat") else "seat lost"
            yield ("info", "seat back", facts) if active else ("warning", gone, facts)
        case do.AnnounceDecision(decision):
            facts = {
                "proposal": decision.proposal_id,
                "outcome": decision.outcome,
                "by": decided_by(decision),
                "tally": str(decision.tally),
                "degraded": decision.degraded,
                "missing": [seat for seat, _ in decision.missing],
                "seconds": round(decision.seconds, 6),
                "position": decision.position,
            }
            yield "info", "decision", facts
        case do.AnnouncePrimeEscalation(proposal_id):
            yield "info", "escalated to Prime", {"proposal": proposal_id}
        case do.AnnounceEscalation(escalation):
            facts = {"proposal": escalation.proposal_id, "reason": escalation.reason}
            yield "warning", "escalated to a human", facts
        case do.AnnounceStart(epoch, still_open):
            yield "warning", "coordinator took over", {"epoch": epoch, "open": still_open}
        case do.AnnounceOutcome(report) if not report.ok:
            yield "warning", "action step failed", {"proposal": report.proposal_id, "stage": report.stage}
        case do.AnnounceIdentityChange(change):
            facts = {
                "before": change.before,
                "after": change.after.hash,
                "human": change.human,
                "basis": change.basis,
            }
            yield "warning", "identity changed", facts
        case do.AnnounceCreator(before, creator):
            yield "warning", "creator changed by the settings", {"before": before, "creator": creator}
        case do.RaiseAlert(proposal_id, kind):
            yield "warning", "alert", {"proposal": proposal_id, "alert": kind}
