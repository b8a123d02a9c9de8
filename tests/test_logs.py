"""The package's log: to the standard error by itself, and as the program wants it where that has said so."""

from __future__ import annotations

import io
import re
import sys

import pytest
import structlog

from council.agents.messaging.logs import get_logger
from tests.test_layout import place, sources


def test_by_itself_it_goes_to_the_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """A program's output is its own. Mutation: structlog's own default, the standard output."""
    get_logger("council").warning("store", where="here")
    told = capsys.readouterr()
    assert told.out == ""
    assert re.search(r"warning.*store.*where=here", told.err)
    assert not structlog.is_configured(), "what a program has not set up stays its own to set up"


def test_as_a_program_has_it_where_that_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Also once the logger is there. Mutation: the standard error all the same."""
    log, own = get_logger("council"), io.StringIO()
    log.info("before")
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()], logger_factory=structlog.PrintLoggerFactory(own)
    )
    log.info("after", where="here")
    told = capsys.readouterr()
    assert own.getvalue() == '{"where": "here", "event": "after"}\n'
    assert told.out == ""
    assert "after" not in told.err


def test_nothing_is_logged_in_another_way() -> None:
    """Mutation: a module that asks structlog for a logger."""
    found = [place(path) for path in sources() if "structlog.get_logger(" in path.read_text(encoding="utf-8")]
    assert found == ["agents/messaging/logs.py"]


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("where", [Full(), None])
def test_a_line_that_can_not_be_written_ends_nothing(
    where: Full | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a disk that is as full as the journal's, or where the standard error was closed."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", where)
        get_logger("council").error("journal stalled", why="no room")
    get_logger("council").error("journal goes on")
    told = capsys.readouterr()
    assert "goes on" in told.err
    assert told.out == ""
