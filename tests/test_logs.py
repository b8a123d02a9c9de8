"""The package's log: Python's own, as the program has it; and as two variables say in the council's own processes."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys

import pytest

from council.agents.messaging import logs
from council.agents.messaging.logs import LogSettings, configure, get_logger
from council.cli import app
from tests.logged import capture_logs
from tests.patience import HANG_S
from tests.test_layout import place, sources


def test_a_program_that_configures_nothing_sees_warnings_and_no_handler_is_installed() -> None:
    """Mutation: a handler or a level set by an import, or a line on the program's own output."""
    code = (
        "import logging, council.api.client\n"
        "from council.agents.messaging.logs import get_logger\n"
        "names = ['', 'council', 'council.journal']\n"
        "assert [logging.getLogger(name).handlers for name in names] == [[], [], []]\n"
        "assert logging.getLogger('council').level == logging.NOTSET\n"
        "get_logger('council').info('quiet')\n"
        "get_logger('council.journal').warning('store', where='here')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert (done.stdout, done.stderr) == ("", "store where=here\n")


def test_a_programs_own_handlers_get_the_fields() -> None:
    """Mutation: a message without its fields, or no attributes."""
    own: list[logging.LogRecord] = []

    class Own(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            own.append(record)

    root, handler = logging.getLogger(), Own()
    root.addHandler(handler)
    try:
        get_logger("council.model").warning("seat lost", seat="lite", why="no answer", name="x")
    finally:
        root.removeHandler(handler)
    (record,) = own
    assert record.getMessage() == "seat lost seat=lite why='no answer' name=x"
    assert (record.name, record.levelno) == ("council.model", logging.WARNING)
    attributes = vars(record)
    assert (attributes["event"], attributes["seat"], attributes["why"]) == ("seat lost", "lite", "no answer")
    assert attributes["fields"] == {"seat": "lite", "why": "no answer", "name": "x"}
    assert record.filename == "test_logs.py", "the place of a record is that of the call"


def test_text_has_one_line_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    """Also with what would act on a terminal. Mutation: fields as they come."""
    configure(LogSettings())
    get_logger("council").warning("store", where="a\x1b[2J\nb", empty="", count=3)
    told = capsys.readouterr()
    assert told.out == ""
    wanted = r"""\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ warning  store where='a\\x1b\[2J\\nb' empty='' count=3\n"""
    assert re.fullmatch(wanted, told.err)


def test_json_has_one_object_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogSettings("debug", "json"))
    try:
        raise ValueError("broken")
    except ValueError as error:
        get_logger("council.journal").error("journal stalled", why="no room, ö", exc_info=error)
    get_logger("council").debug("detail", position=3)
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert {
        "level": "error",
        "logger": "council.journal",
        "event": "journal stalled",
    }.items() <= first.items()
    assert first["why"] == "no room, ö"
    assert first["traceback"].endswith("ValueError: broken")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert (second["level"], second["event"], second["position"]) == ("debug", "detail", 3)


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("", ["info", "warning", "error"]),
        ("DEBUG", ["debug", "info", "warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_the_level_is_the_variables(
    level: str, shown: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COUNCIL_LOG_LEVEL", level)
    monkeypatch.setenv("COUNCIL_LOG_FORMAT", "json")
    configure()
    log = get_logger("council")
    for each in (log.debug, log.info, log.warning, log.error):
        each("said")
    lines = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["level"] for line in lines] == shown


def test_another_value_is_told_and_has_no_effect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COUNCIL_LOG_LEVEL", "loud")
    monkeypatch.setenv("COUNCIL_LOG_FORMAT", "xml")
    assert logs.from_environment() == ("info", "text")
    configure()
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("COUNCIL_LOG_LEVEL is 'loud', expected info, debug, warning or error: info is used")
    assert second.endswith("COUNCIL_LOG_FORMAT is 'xml', expected text or json: text is used")


def test_a_command_logs_by_the_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are no unknown settings, and the result stays alone on the output. Mutation: a warning about them."""
    monkeypatch.setenv("COUNCIL_LOG_FORMAT", "json")
    monkeypatch.setenv("COUNCIL_QUORUN", "2")
    assert app.run(["config", "--json"]) == 0
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert "COUNCIL_QUORUN: unknown variable" in json.loads(line)["event"]
    assert json.loads(told.out)["exit_code"] == 0
    monkeypatch.setenv("COUNCIL_LOG_LEVEL", "error")
    assert app.run(["config", "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_a_mistyped_variable_of_the_log_is_told_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COUNCIL_LOG_LEVLE", "debug")
    app.run(["config", "--json"])
    assert "COUNCIL_LOG_LEVEL" in capsys.readouterr().err


def test_what_is_silenced_is_dropped_and_no_more() -> None:
    with capture_logs() as logged:
        with logs.silenced():
            get_logger("council.model").error("dropped")
        get_logger("council.model").error("kept")
    assert [line["event"] for line in logged] == ["kept"]


def test_nothing_is_logged_in_another_way() -> None:
    """Mutation: a module that asks logging for a logger of ours."""
    asks = re.compile(r"getLogger\((\"council|__name__|\))|structlog")
    found = [place(path) for path in sources() if asks.search(path.read_text(encoding="utf-8"))]
    assert found == ["council/gateway/web.py"], "whose logger is for the web server's own lines"


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("where", [Full(), None])
def test_a_line_that_can_not_be_written_ends_nothing(
    where: Full | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a disk that is as full as the journal's, or where the standard error was closed."""
    configure(LogSettings())
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", where)
        get_logger("council").error("journal stalled", why="no room")
    get_logger("council").error("journal goes on")
    told = capsys.readouterr()
    assert "goes on" in told.err
    assert told.out == ""
