"""Watching, and being interrupted: real councils in process, real signals."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console, Group
from rich.text import Text

from council.agents.mind import Case, Opinion, Ruling
from council.api.aio import AsyncCouncil
from council.api.client import Council, handle_of
from council.api.event_stream import Event
from council.cli import render
from council.cli.decide.deliberate import deliberate
from council.cli.operate import cases as cases_module
from council.cli.operate import live
from council.cli.operate.cases import DRAWN_FOR, Cases
from council.cli.operate.keyboard import Decoder
from council.cli.report import Interrupted, Report
from council.protocol.errors import CouncilDied, Refused, Unreachable
from tests.examples import at_first
from tests.patience import HANG_S

from .conftest import Chair, Cli, council_of, says
from .terminal import Terminal
from .watched import council_to_watch as watched_council

Up = Callable[[Council], Council]
ROOT = Path(__file__).parent.parent.parent


def interrupt_once(council: Council, kind: str, number: int = signal.SIGINT) -> threading.Thread:
    """Sends this process a signal once an event of that kind has happened."""

    def wait() -> None:
        for event in council.events():
            if event.kind == kind:
                os.kill(os.getpid(), number)
                return

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


async def never(case: Case) -> Opinion:
    await asyncio.sleep(3_600)
    raise AssertionError


def test_what_has_happened_is_printed_a_line_each(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=Chair(Opinion.no("wrong", risk_level="high"), Ruling("reject", "no"))))
    council.propose("Drop \x1b[31mthe table", wait_for="all")
    said = cli("watch", "--once")
    assert said.code == 0
    kinds = [each.split()[1] for each in said.out.splitlines()]
    assert (kinds[0], kinds[-1]) == ("proposal", "decision")
    assert kinds.count("ballot") == 3
    for word in (
        "prime no 1.00, high risk: wrong",
        "prime reject 1.00: no",
        "rejected: prime ruled against it",
    ):
        assert word in said.out
    assert "\x1b" not in said.out


def test_as_json_each_event_is_a_line(cli: Cli, up: Up) -> None:
    council = up(council_of())
    council.propose("Go", wait_for="all")
    events = [json.loads(each) for each in cli("watch", "--once", "--json").out.splitlines()]
    assert [event["cursor"] for event in events] == [1, 2, 3, 4, 5]
    assert events[-1]["data"]["decision"]["outcome"] == "approved"
    records = [json.loads(each) for each in cli("log", "--json").out.splitlines()]
    logged = {(each["kind"], each["proposal_id"]): each["position"] for each in records}
    assert events[0]["position"] == logged["proposal", events[0]["data"]["what"]["proposal_id"]]
    assert events[0]["position"] != events[0]["cursor"]
    later = cli("watch", "--once", "--json", "--since", "4").out.splitlines()
    assert [json.loads(each)["cursor"] for each in later] == [5]


def test_events_that_are_no_longer_kept_are_told(cli: Cli, up: Up) -> None:
    council = up(council_of(events_kept=2))
    council.propose("Go", wait_for="all")
    said = cli("watch", "--once", "--json")
    assert [json.loads(each)["cursor"] for each in said.out.splitlines()] == [4, 5]
    assert "no longer kept" in said.err


def test_an_interrupt_ends_a_watch_as_what_was_asked_for(
    cli: Cli, up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    up(council_of()).propose("Go")
    drawn = render.row

    def interrupted(event: Event) -> Text:
        if event.kind == "decision":
            os.kill(os.getpid(), signal.SIGINT)
        return drawn(event)

    monkeypatch.setattr(render, "row", interrupted)
    said = cli("watch", "--since", "0")
    assert said.code == 0
    assert "interrupted" not in said.err


def test_a_watch_ends_with_its_council(cli: Cli, up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    council = up(council_of())

    async def dead(*_: object) -> None:
        raise CouncilDied("the coordinator is dead", name="council", open_ids=[])

    monkeypatch.setattr(handle_of(council).port, "events", dead)
    said = cli("watch")
    assert said.code == 4
    assert "the coordinator is dead" in said.err


def told_by(council: Council, summary: str, **details: Any) -> Interrupted:
    with pytest.raises(Interrupted) as raised:
        deliberate(council, council.draft(summary), Report(), seats=[], **details)
    return raised.value


def test_an_interrupted_proposal_is_taken_back() -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with council_of(prime=never, lite=never) as council:
            interrupt_once(council, "ballot", number)
            told = told_by(council, "Wait")
            assert (told.code, "was cancelled" in str(told)) == (code, True)
            assert council.status()["decided"] == {"cancelled": 1}


def test_what_is_with_a_human_stays_there() -> None:
    asks = Chair(Opinion.no("risky", risk_level="high"), Ruling("human", "look"))
    with council_of(prime=asks) as council:
        interrupt_once(council, "to_human")
        told = told_by(council, "Wait", wait_for_human=True)
        assert "stays with a human: council answer esc-" in str(told)
        assert len(council.escalations()) == 1


def test_of_a_council_that_ends_too_it_says_that() -> None:
    with council_of(prime=never, lite=never) as council:
        interrupt_once(council, "ballot")
        assert "ended with it; proposal" in str(told_by(council, "Wait", ends_with_us=True))


def test_ballots_are_shown_as_they_land(capsys: pytest.CaptureFixture[str]) -> None:
    """The first ballot is on the terminal while the last seat still waits for what the test holds back."""
    gate = threading.Event()

    async def last(case: Case) -> Opinion:
        await asyncio.to_thread(gate.wait)
        return Opinion.yes("at last")

    with council_of(prime=last) as council:
        seen = []

        def look() -> None:
            for event in council.events():
                if event.kind == "ballot":
                    seen.append(event.data["ballot"]["seat"])
                if len(seen) == 2:
                    gate.set()
                    return

        threading.Thread(target=look, daemon=True).start()
        decision = deliberate(council, council.draft("Go", wait_for="all"), Report(), seats=["prime"])
    assert decision.outcome == "approved"
    lines = capsys.readouterr().err.splitlines()
    assert [each.split()[0] for each in lines][-1] == "prime"
    assert lines[-1].split()[1:] == ["yes", "1.00:", "at", "last"]


def test_ctrl_c_ends_a_command_without_a_traceback(home: Path) -> None:
    (home / "council.toml").write_text('[seats.lite]\nmind = "tests.cli.test_live:never"\n', encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "council.cli", "propose", "Wait", "--inline", "--wait-for", "all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stderr is not None
    first = process.stderr.readline()  # a ballot: it deliberates
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130, first + err
    assert "interrupted: the council was started for this command" in err
    assert "Traceback" not in err
    assert out == ""


def test_a_live_table_is_drawn_on_a_terminal_and_taken_away() -> None:
    report = Report()
    screen = io.StringIO()
    report.notes = Console(file=screen, force_terminal=True, width=80, color_system=None)
    with council_of(prime=says(Opinion.yes("hostile \x1b[31m"))) as council:
        deliberate(council, council.draft("Go", wait_for="all"), report, seats=["prime", "lite", "codemind"])
    out = screen.getvalue()
    assert "the seats deliberate" in out
    assert "\x1b[31m" not in out
    assert out.rstrip().endswith(("\x1b[2K", "\x1b[?25h", "\x1b[1A\x1b[2K"))


def test_an_observation_is_told_with_both_seats_and_why() -> None:
    for halts, said in ((True, "calls a halt on"), (False, "observes")):
        text = "its plan\x1b[2J deletes all"
        data = {"proposal_id": "p1", "observer": "lite", "stream": "prime", "interrupt": halts, "text": text}
        words = render.row(Event(1, datetime.now(UTC), "observation", data)).plain
        assert f" lite {said} prime: its plan" in words
        assert "\x1b" not in words


def test_a_stalled_journal_is_seen_on_the_screen() -> None:
    with council_of() as council:
        full = {**council.status(), "journal_trouble": "no room is left", "journal_lag": 2, "untold": 1}
        out = io.StringIO()
        Console(file=out, width=100).print(Group(*live.Screen(council, Report()).parts(full, 40)))
    assert "journal stalled: no room is left; 2 records not on disk (on 1 proposal)" in out.getvalue()


# On a terminal


def watched(mode: str = "", **how: Any) -> Terminal:
    return Terminal("tests.cli.watched", mode, **{"columns": 120, **how})


def test_a_screen_follows_its_terminal_to_any_width() -> None:
    """Mutation: pin the console's width. The terminal starts wider than a line gets, and becomes narrower."""
    with watched(columns=200) as terminal:
        terminal.see("4 wait for a human", "Drop table 3")
        for columns in (80, 40, 20, 100):
            terminal.resize(columns)
            found = terminal.see("for a human", "Drop ta", "q ends", columns=columns)
            assert len(found) == 30
        terminal.press("q")
        assert terminal.ended() == 0
        assert terminal.left_as_found()


def test_arrows_select_enter_opens_a_case_and_escape_goes_back() -> None:
    with watched(columns=80, lines=40) as terminal:
        terminal.see("> ", "Drop table 3", "1 open")
        terminal.press("\x1b[B\x1bOB")  # both forms of the key
        terminal.press("\r")
        shown = terminal.see("drop_table", "its end", "Esc goes back")
        text = "\n".join(shown)
        for said in ("waits for a human", 'table = "t1"', "sure = true", "council answer esc-"):
            assert said in text, said
        assert "a person must look" in text
        assert "asked by" in text
        terminal.resize(20, 40)
        terminal.see("drop_table", columns=20)
        terminal.resize(80, 40)
        terminal.press("\x1b")
        terminal.see("4 wait for a human")
        terminal.press("\x1b[B" * 2 + "\r")
        opened = "\n".join(terminal.see("the seats still deliberate", "lite yes"))
        assert "slow: move the cache" in opened
        assert "council answer" not in opened
        terminal.press("\x1b[D")
        terminal.see("4 wait for a human")
        terminal.press("q")
        assert terminal.ended() == 0
        assert terminal.left_as_found()


@pytest.mark.parametrize("how", at_first(1, "SIGTERM", "SIGINT", "broken"))
def test_whatever_ends_a_screen_the_terminal_is_restored(how: str) -> None:
    with watched("broken" if how == "broken" else "") as terminal:
        if how == "broken":
            assert terminal.ended() == 1
            assert "drawing failed" in terminal.written.rpartition("\x1b[?1049l")[2]
        else:
            terminal.see("4 wait for a human")
            assert terminal.settings() != terminal.before
            terminal.process.send_signal(signal.Signals[how])
            assert terminal.ended() == 0
        assert terminal.left_as_found()


def test_a_suspended_screen_gives_the_terminal_back_and_takes_it_again() -> None:
    with watched() as terminal:
        terminal.see("4 wait for a human")
        terminal.process.send_signal(signal.SIGTSTP)
        os.waitpid(terminal.process.pid, os.WUNTRACED)
        terminal.read()
        assert terminal.left_as_found()
        terminal.written = ""
        terminal.process.send_signal(signal.SIGCONT)
        terminal.see("4 wait for a human")
        terminal.press("q")
        assert terminal.ended() == 0
        assert terminal.left_as_found()


def test_a_terminal_that_can_place_nothing_gets_lines() -> None:
    """As screen readers and editors have it. Mutation: a screen there, which stays empty."""
    with watched(TERM="dumb") as terminal:
        terminal.see_written("move the cache")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 0
        assert "\x1b" not in terminal.written


def test_a_locale_without_utf_8_gets_plain_characters() -> None:
    with watched(PYTHONIOENCODING="ascii") as terminal:
        shown = "\n".join(terminal.see("4 wait for a human", "1 open", "q ends  -  arrows select"))
        assert shown.isascii()
        assert "open  ------" in shown
        terminal.press("q")
        assert terminal.ended() == 0


def test_our_own_characters_have_plain_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, "iso-8859-1"))
    Report().print("é · yes ✓ no ✗ none ○ … → ── 漢")
    assert out.getvalue().decode("iso-8859-1") == "é · yes + no x none o ~ > -- \\u6f22\n"


# Its lists


def listed(screen: live.Screen, council: Council, width: int, height: int) -> list[str]:
    """The lines of a screen, without its frame."""
    screen._status = council.status()
    screen._cases.wait(council.escalations())
    screen._report.out = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    out = screen._report.out
    out.print(screen._drawing())
    assert isinstance(out.file, io.StringIO)
    return [each.rstrip() for each in out.file.getvalue().splitlines()]


def test_a_list_that_is_cut_says_how_many_more_there_are_and_the_selection_moves_on_in_it() -> None:
    with watched_council() as council:
        screen = live.Screen(council, Report())
        lines = listed(screen, council, 80, 12)
        assert [each[36:] for each in lines[2:5]] == ["Drop table 3", "Drop table 2", "Drop table 1"]
        assert lines[5] == "  1 more"
        for row in ("Drop table 2", "Drop table 1", "Drop table 0", "Drop table 0"):
            screen._pressed("down")
            (selected,) = [each for each in listed(screen, council, 80, 12) if each.startswith("> ")]
            assert row in selected
        screen._pressed("home")
        for lines_there in (3, 2, 1):  # however few lines there are
            assert len(listed(screen, council, 20, lines_there)) <= 2 + lines_there


def test_the_selection_stays_with_its_case_when_others_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    with watched_council() as council:
        screen = live.Screen(council, Report())

        def selected() -> str:
            (found,) = [each for each in listed(screen, council, 80, 40) if each.startswith("> ")]
            return found

        assert "Drop table 3" in selected()  # the first, as nothing was chosen
        council.propose("Drop table 4", risk="high", wait_for="all")
        assert "Drop table 4" in selected()
        screen._pressed("down")
        assert "Drop table 3" in selected()
        council.propose("Drop table 5", risk="high", wait_for="all")
        assert "Drop table 3" in selected()
        council.answer(council.escalations()[3].escalation_id, approve=False, human="root", reason="no")
        assert "rejected   Drop table 3" in selected()  # it is among the decided ones now
        status = {**council.status(), "decisions": []}
        monkeypatch.setattr(council, "status", lambda: status)
        assert "Drop table 0" in selected()  # it is gone, and this is the nearest


def test_keys_are_read_from_whatever_pieces_they_come_in() -> None:
    """Mutations: take the first byte of a sequence for Escape; wait for more after an Escape alone."""
    for pieces, named in (
        ([b"\x1b[A\x1b[B"], ["up", "down"]),
        ([b"\x1b", b"[", b"A"], ["up"]),
        ([b"\x1bOC\x1b[5~\x1b[6", b"~"], ["right", "page up", "page down"]),
        ([b"\x1b[1;5A", b"\x1b[200~", "é".encode(), b"x"], []),  # of no meaning here
        ([b"\rjkq"], ["enter", "down", "up", "q"]),
        ([b"\x1bq"], ["escape", "q"]),
    ):
        decoder = Decoder()
        found = [key for piece in pieces for key in decoder.keys(piece)]
        assert (found, decoder.rest()) == (named, []), pieces
    decoder = Decoder()
    assert (decoder.keys(b"\x1b"), decoder.rest(), decoder.keys(b"A")) == ([], ["escape"], [])


def test_a_case_that_can_not_be_read_says_so_and_one_that_is_forgotten_shows_its_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutations: an error that ends the screen; a case that stays empty once the journal has forgotten it."""
    with council_of() as council:
        decided = council.propose("Raise the limit", wait_for="all")
        screen = live.Screen(council, Report())
        listed(screen, council, 80, 30)
        screen._pressed("enter")
        for error, told in (
            (
                Unreachable("the coordinator is away", name="council"),
                "can't be read: the coordinator is away",
            ),
            (Refused("no such proposal"), "Raise the limit"),
        ):

            async def failing(*_: object, error: Exception = error, **__: object) -> None:
                raise error

            monkeypatch.setattr(AsyncCouncil, "history", failing)
            asyncio.run(screen._cases.load())
            assert told in "\n".join(listed(screen, council, 80, 30))
        assert f"proposal {decided.proposal_id}" in "\n".join(listed(screen, council, 80, 30))


def test_a_large_case_is_drawn_seldom_so_that_keys_are_read_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutation: drawn again with each picture, or never again once the time left has changed."""
    now_s, drawn = 0.0, 0

    def slow(*arguments: Any) -> str:
        nonlocal now_s, drawn
        drawn += 1
        now_s += 1.0
        return "a\n" * 50

    clock = SimpleNamespace(monotonic=lambda: now_s, time=time.time)
    monkeypatch.setattr(cases_module, "time", clock)
    monkeypatch.setattr(cases_module, "case_view", slow)
    with watched_council() as council:
        cases, console = Cases(council), Console(width=80)
        cases.wait(council.escalations())
        cases.opened = council.escalations()[0].proposal_id
        asyncio.run(cases.load())
        for _ in range(5):
            assert len(cases.case_lines(console, 10)) == 10
        assert drawn == 1
        cases.case_lines(Console(width=40), 10)
        assert drawn == 2
        now_s += DRAWN_FOR + 0.5
        cases.case_lines(Console(width=40), 10)
        assert drawn == 3
