"""The event log: a line for each thing that somebody may have to act on, whole JSON, and no word of a proposal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from council.core import effects as do
from council.core.state import ActionReport, IdentityChange, KeptIdentity
from council.journal.memory import MemoryJournal
from council.runtime.coordinator import View
from council.telemetry import eventlog
from council.telemetry.eventlog import EventLog
from tests.logged import capture_logs
from tests.runtime.harness import Hand

CANARY = "canary"


class Logged:
    """A driver in hand with an event log on it; it is a coordinator as far as the log reads one."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        self.hand = Hand(**rules)
        self.log = EventLog("main", self, folder)

    def view(self) -> View:
        return View(self.hand.driver, MemoryJournal(), self.hand.now, self.hand.driver.position)

    def lines(self) -> list[dict[str, Any]]:
        self.log.read()
        text = self.log.path.read_text(encoding="utf-8")
        assert CANARY not in text
        return [json.loads(line) for line in text.splitlines()]

    def events(self) -> list[str]:
        return [each["event"] for each in self.lines()]

    def decided(self, *votes: str, **content: Any) -> str:
        proposal = self.hand.propose(**content)
        for seat, vote in zip(("lite", "codemind", "prime"), votes, strict=False):
            content = {"reason": CANARY}
            self.hand.receive(self.hand.vote(seat, proposal, vote, content=content))
        return proposal


def test_a_decision_is_a_line_with_what_it_rests_on_and_no_content(tmp_path: Path) -> None:
    """Mutations: log its summary, its reason, a ballot's reason or the dissent."""
    logged = Logged(tmp_path)
    proposal = logged.decided("yes", "no", "yes", summary=CANARY, body=CANARY, wait_for="all")
    (line,) = logged.lines()
    assert line.pop("position") > 0
    assert line == {
        "event": "decision",
        "level": "info",
        "at": "2023-11-14T22:13:20.000+00:00",
        "council": "main",
        "proposal": proposal,
        "outcome": "approved",
        "by": "all_ballots",
        "tally": "2 yes, 1 no, 0 abstained",
        "degraded": False,
        "missing": [],
        "seconds": 0.0,
    }


def test_a_seat_that_is_silent_or_lost_and_comes_back(tmp_path: Path) -> None:
    logged = Logged(tmp_path)
    driver, hand = logged.hand.driver, logged.hand
    driver.seat_died("lite", driver.boot("lite"), f"its actor died: RuntimeError: {CANARY}", hand.now)
    hand.save()
    hand.wait(91)
    hand.save()
    boot = driver.boot("lite")
    hand.save()
    content = {"beat": 0, "busy_with": None, "uptime_s": 1.0}
    beat = hand.envelope("lite", "HEARTBEAT", content, role="observer", parent_id=f"{boot:08x}")
    hand.receive(hand.sealed(beat))
    found = [(each["event"], each["level"], each["seat"], each["why"]) for each in logged.lines()]
    silent = "no heartbeat for more than 90 s"
    assert found[0] == ("seat lost", "warning", "lite", "its actor died")
    assert sorted(found[1:3]) == [
        ("seat inactive", "warning", "codemind", silent),
        ("seat inactive", "warning", "prime", silent),
    ]
    assert found[3] == ("seat back", "info", "lite", "its heartbeat is back")


def test_escalations_are_told(tmp_path: Path) -> None:
    logged = Logged(tmp_path)
    logged.decided("yes", "yes", "yes", summary=CANARY, risk_level="high")
    assert logged.events() == ["escalated to Prime"]
    logged.hand.wait(61)
    logged.hand.save()
    human = logged.lines()[-1]
    assert (human["event"], human["reason"], human["level"]) == (
        "escalated to a human",
        "no_ruling",
        "warning",
    )


def test_what_else_somebody_may_have_to_act_on(tmp_path: Path) -> None:
    """Of what is told seldom: as it is announced, and no more of it than this."""
    logged = Logged(tmp_path)
    change = IdentityChange(
        "a" * 64, KeptIdentity("b" * 64, CANARY), "ada", CANARY, basis="creator", reason=CANARY
    )
    told: list[do.Effect] = [
        do.AnnounceStart(2, 3),
        do.AnnounceIdentityChange(change),
        do.RaiseAlert("0" * 16, "late_ballot", CANARY),
        do.AnnounceOutcome(ActionReport("0" * 16, "client", "act", False, CANARY, "d")),
        do.AnnounceOutcome(ActionReport("0" * 16, "client", "act", True, CANARY, "d")),
    ]
    for effect in told:
        logged.hand.driver.announcements.feed.append(logged.hand.wall, effect, logged.hand.driver.position)
    lines = logged.lines()
    assert [(each["event"], each["level"]) for each in lines] == [
        ("coordinator took over", "warning"),
        ("identity changed", "warning"),
        ("alert", "warning"),
        ("action step failed", "warning"),
    ]
    assert (lines[0]["epoch"], lines[0]["open"]) == (2, 3)
    assert (lines[1]["before"], lines[1]["after"], lines[1]["human"]) == ("a" * 64, "b" * 64, "ada")
    assert (lines[2]["alert"], lines[3]["stage"]) == ("late_ballot", "act")


def test_what_an_earlier_coordinator_told_is_not_written_again(tmp_path: Path) -> None:
    logged = Logged(tmp_path)
    logged.decided("yes", "yes", "yes")
    assert logged.events() == ["decision"]
    logged.log.close()
    again = EventLog("main", logged, tmp_path)
    again.read()
    assert logged.log.path.read_text(encoding="utf-8").count("\n") == 1
    logged.decided("yes", "yes", "yes")
    again.close()
    assert logged.log.path.read_text(encoding="utf-8").count("\n") == 2


def test_a_file_that_is_large_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventlog, "FILE_BYTES_MAX", 1_000)
    logged = Logged(tmp_path)
    for _ in range(40):
        logged.decided("yes", "yes", "yes")
        logged.log.read()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["main.log", "main.log.1"]
    assert all(each.stat().st_size <= 1_000 for each in tmp_path.iterdir())


def test_without_a_file_the_council_goes_on_and_it_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with capture_logs() as told:
        logged = Logged(tmp_path / "file")
        logged.decided("yes", "yes", "yes")
        logged.log.read()
    assert [each["event"] for each in told] == ["no event log"]


def test_a_disk_that_is_full_is_told_once(tmp_path: Path) -> None:
    """Every write to /dev/full fails as on a full disk."""
    (tmp_path / "main.log").symlink_to("/dev/full")
    with capture_logs() as told:
        logged = Logged(tmp_path)
        for _ in range(3):
            logged.decided("yes", "yes", "yes")
        logged.log.read()
        logged.log.close()
    assert [(each["event"], "No space left" in each["why"]) for each in told] == [("no event log", True)]
