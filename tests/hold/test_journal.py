"""A journal that commit 681f55c wrote: it is read, verified, replayed and gone on with, in both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from council import Council
from tests.hold import doors, kept, make_journal, story
from tests.journal.conftest import databases, engine, new_address, on_both, server
from tests.logged import capture_logs

__all__ = ["databases", "engine", "new_address", "server"]

RECORDS = 120
EVENTS = 143  # that these announced: whoever follows them goes on from there
KINDS = {
    *("proposal", "ballot", "ballot_unreadable", "fault", "observation", "escalation", "ruling", "answer"),
    *("cancellation", "call", "settlement", "outcome", "seat_back", "seat_died", "seat_silent", "deadline"),
    *("expiry", "start", "identity_change", "refusal"),
}


@pytest.fixture
def address(engine: str, new_address: Callable[[], str]) -> str:
    """A store that holds the kept journal."""
    kept.put_keys()
    if engine == "sqlite":
        return kept.put_sqlite(Path(new_address()))
    return kept.put_postgres(new_address().replace(":@", "@"))  # as settings take it: without a password


def exported(address: str, folder: Path) -> list[bytes]:
    file = folder / "export.jsonl"
    code, _ = doors.command("store", "export", str(file), "--url", address, "--json")
    assert code == 0
    return file.read_bytes().splitlines(keepends=True)


def test_it_has_every_kind_of_event() -> None:
    assert {line["kind"] for line in kept.told()["log"][1]} == KINDS


@on_both
def test_it_is_read_as_it_was(address: str) -> None:
    told = kept.told()
    found = kept.answers(address, told.pop("ids"))
    assert found.keys() == told.keys()
    for question, answer in told.items():
        assert found[question] == answer, question


def test_its_export_is_the_same(address: str, tmp_path: Path) -> None:
    assert exported(address, tmp_path) == kept.export()


def test_its_export_is_taken_in(new_address: Callable[[], str], tmp_path: Path) -> None:
    file, address = tmp_path / "kept.jsonl", new_address()
    file.write_bytes(b"".join(kept.export()))
    code, found = doors.command("store", "import", str(file), "--url", address, "--json")
    assert (code, found["imported"]["packets"]) == (0, RECORDS + len(story.PACKETS))
    assert exported(address, tmp_path) == kept.export()
    answer = doors.command("verify", "--name", story.NAME, "--url", address, "--json", placeless=True)
    assert list(answer) == kept.told()["verify"]


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    """So that the other tests mean something: the journal is really looked at."""
    kept.put_keys()
    lines = kept.export()
    at = next(n for n, line in enumerate(lines) if b"Rotate the staging key" in line)
    lines[at] = lines[at].replace(b"Rotate", b"Rotute", 1)
    (tmp_path / "changed.jsonl").write_bytes(b"".join(lines))
    file = str(tmp_path / "changed.jsonl")
    code, found = doors.command("store", "import", file, "--url", str(tmp_path / "s.db"), "--json")
    assert (code, found["error"]["code"]) == (2, "import_refused")


def test_the_same_story_is_kept_as_the_same_bytes(tmp_path: Path) -> None:
    """Packets and snapshots. Only the words of refusals may be others, and the hashes over them."""
    then, now = tmp_path / "then.db", tmp_path / "now.db"
    kept.put_sqlite(then)
    assert make_journal.fill(str(now)) == kept.told()["ids"]
    found = kept.comparable(exported(str(now), tmp_path))
    for was, line in zip(kept.comparable(kept.export()), found, strict=True):
        assert line == was
    was, found_now = kept.snapshots(then), kept.snapshots(now)
    for _, part, said in (*was, *found_now):
        if part == "base":
            said["version"] = "2 or 3, which differ in their part more"
    assert found_now == was


@pytest.fixture(params=["by its snapshot", "by its records"])
def gone_on(address: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, Council, list[Any]]]:
    """The council launched again, from the snapshot in the store or by replaying all records."""
    if request.param == "by its records":
        kept.drop_snapshots(address)
    with capture_logs() as logged, Council.inline(store=address, **story.SETTINGS) as council:
        yield address, council, logged


def test_it_goes_on(gone_on: tuple[str, Council, list[Any]], tmp_path: Path) -> None:
    address, council, logged = gone_on
    told = kept.told()
    ids = told["ids"]
    assert [each for each in logged if each["event"] == "snapshot passed over"] == []
    status = council.status()
    assert (status["epoch"], status["council_id"]) == (3, story.COUNCIL_ID)

    for was in (each for line in told["log"][1] for each in line["decisions"]):  # what was decided stands
        decision = council.decision(was["proposal_id"])
        assert (decision.outcome, decision.reason) == (was["outcome"], was["reason"])
        assert (decision.position, len(decision.ballots)) == (was["position"], len(was["ballots"]))

    decision = council.propose("Count the backups again")  # one more
    assert decision.final
    waited = {ids["open"]: {"approved", "rejected"}, ids["with_human"]: {"deferred"}}
    for event in council.events(
        after=EVENTS
    ):  # what was open is decided, and what waited for a human too long is deferred
        if event.kind == "decision" and event.data["decision"]["proposal_id"] in waited:
            proposal_id = event.data["decision"]["proposal_id"]
            assert event.data["decision"]["outcome"] in waited.pop(proposal_id)
        if not waited:
            break
    council.close()

    where = ["--name", story.NAME, "--url", address, "--json"]
    code, found = doors.command("verify", *where)
    assert (code, found["verified"]["epoch"]) == (0, 3)
    assert found["verified"]["rows"] > RECORDS
    code, replayed = doors.command("replay", *where)
    assert (code, replayed["replayed"]["records"]) == (0, found["verified"]["rows"])
    records = [line for line in exported(address, tmp_path) if b'"position":' in line]
    assert records[:RECORDS] == [line for line in kept.export() if b'"position":' in line][:RECORDS]
