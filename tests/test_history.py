"""``council.history`` on real councils in process, with a journal in memory and with one on disk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from council import AsyncCouncil, Case, Council, Entry, HistoryPage, Opinion, SeatConfig
from council.protocol.envelope import Proposal
from council.protocol.errors import CallerError, Refused
from tests.runtime.harness import run


async def agrees(case: Case) -> Opinion:
    return Opinion.yes("fine", confidence=0.9)


SEATS = [SeatConfig(name=name, mind=agrees) for name in ("prime", "lite", "codemind")]


@pytest.fixture(params=["memory", "disk"])
def settings(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = "memory" if request.param == "memory" else str(tmp_path / "s.db")
    return {"seats": SEATS, "store": store, "name": "seen"}


def every(council: Council, **asked: Any) -> list[Entry]:
    found: list[Entry] = []
    page = council.history(**asked)
    while True:
        found += page
        if page.cursor is None:
            return found
        page = council.history(**asked, cursor=page.cursor)


def test_a_council_tells_what_is_in_its_journal(settings: dict[str, Any]) -> None:
    with Council.inline(**settings, sender="ada") as council:
        turns = [("user", "Please."), ("tool", "done")]
        decisions = [
            council.propose(f"thing {n}", "Its body.", wait_for="all", history=turns) for n in range(3)
        ]
        page = council.history()
        assert isinstance(page, HistoryPage)
        assert [each.kind for each in page][::-1] == [
            "start",
            *3 * ["proposal", "ballot", "ballot", "ballot"],
        ]
        assert (page.cursor, page.forgotten, len(page)) == (None, 0, 13)
        assert [each.position for each in every(council, limit=4)] == list(range(13, 0, -1))
        decided = council.history(types=["decision"], newest_first=False)
        assert [each.decision for each in decided] == decisions
        (only,) = council.history(proposal=decisions[1].proposal_id, types=["proposal"], envelopes=True)
        assert only.envelope is not None
        assert isinstance(only.envelope.content, Proposal)
        assert (only.who, only.envelope.content.body) == ("ada", "Its body.")
        assert [(turn.role, turn.text) for turn in only.envelope.content.history] == turns
        assert abs(only.at - datetime.now(UTC)) < timedelta(minutes=1)
        by = council.history(proposal=decisions[2].proposal_id[:12], seat="lite")
        assert [each.data["ballot"]["reason"] for each in by] == ["fine"]
        kept = settings["store"] != "memory"
        assert all((each.row_hash is not None) == kept for each in page)
        assert council.history(until=datetime(2020, 1, 1, tzinfo=UTC)).entries == ()


def test_what_is_asked_wrongly_is_told(settings: dict[str, Any]) -> None:
    with Council.inline(**settings) as council:
        council.propose("thing")
        for name in ("since", "until"):
            with pytest.raises(CallerError, match=f"{name}: found 'x', expected an aware datetime"):
                council.history(**{name: "x"})  # type: ignore[misc]
        with pytest.raises(CallerError, match="did you mean ballot"):
            council.history(types=["balot"])
        for asked in ("proposal", "seat"):
            with pytest.raises(CallerError, match="length <= 200"):  # also where nothing of that name is kept
                council.history(**{asked: "é" * 201})
        with pytest.raises(
            TypeError, match=r"history\(\) takes no keyword 'nosuch'; known are proposal, types"
        ):
            council.history(nosuch=1)  # type: ignore[call-arg]
        with pytest.raises(Refused) as refused:
            council.history(proposal="00000000")
        assert refused.value.code == "unknown_proposal"
    with pytest.raises(CallerError, match="closed"):
        council.history()


def test_coroutines_tell_the_same(settings: dict[str, Any]) -> None:
    async def told() -> None:
        async with AsyncCouncil.inline(**settings) as council:
            await council.propose("thing")
            page = await council.history(limit=2, newest_first=False)
            assert [each.kind for each in page] == ["start", "proposal"]
            rest = await council.history(newest_first=False, cursor=page.cursor)
            assert {each.kind for each in rest} == {"ballot"}

    run(told())


def test_a_journal_on_disk_tells_of_earlier_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for _ in range(2):
        with Council.inline(seats=SEATS, store=str(tmp_path / "s.db")) as council:
            council.propose("thing")
            page = council.history(types=["start", "proposal"], newest_first=False)
    assert [(each.kind, each.epoch) for each in page] == [
        ("start", 1),
        ("proposal", 1),
        ("start", 2),
        ("proposal", 2),
    ]


def test_a_memory_says_how_much_it_has_forgotten() -> None:
    with Council.inline(seats=SEATS, events_kept=10) as council:
        for number in range(5):
            council.propose(f"thing {number}", wait_for="all")
        page = council.history(newest_first=False)
        assert (page.forgotten, page.entries[0].position, len(page)) == (11, 12, 10)
