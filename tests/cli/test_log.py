"""``council log``, ``show`` and ``replay``: a journal as people see it, with and without a council."""

from __future__ import annotations

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace
from rich.console import Console, RenderableType

from council.agents.mind import Case, Opinion, Ruling, ShownBallot
from council.api.client import Council
from council.cli import render
from council.cli.record import log, story, story_view
from council.cli.record.sources import HistorySource
from council.cli.report import UsageFault
from council.journal import history, packets
from council.journal.entries import DAMAGED, wanted
from council.journal.packets import Packer
from council.journal.store import PacketStore
from council.kinds.table import BY_KIND
from tests.cases import each
from tests.cli.conftest import Chair, Cli, council_of
from tests.journal.journals import NAME, begun, fill, life, nothing
from tests.patience import HANG_S
from tests.runtime.harness import COUNCIL_ID, Hand

Up = Callable[[Council], Council]
HOSTILE = "\x1b[2J\x1b]0;title\x07[bold red]all is well[/] \u202egnol\u2069 \x9b31m\r\x08\u200b"
ASKS = Chair(Opinion.no("too risky", risk_level="high"), Ruling("human", "a person must see this"))


class Lived(NamedTuple):
    """A store that holds a council's journal."""

    path: Path
    hand: Hand
    ids: dict[str, str]

    @property
    def options(self) -> tuple[str, ...]:
        return "--url", str(self.path), "--name", NAME


@pytest.fixture
def lived(home: Path) -> Lived:
    hand, ids = life()
    return Lived(kept(home / "s.db", hand), hand, ids)


def kept(path: Path, hand: Hand) -> Path:
    with PacketStore.open(str(path)) as store:
        fill(store, hand.records)
    return path


def documents(out: str) -> list[dict[str, Any]]:
    assert out.isascii()
    return [json.loads(line) for line in out.splitlines()]


def drawn(shown: RenderableType, **how: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=80, force_terminal=False, highlight=False).print(shown, **how)
    return out.getvalue()


def source_of(store: PacketStore) -> HistorySource:
    return HistorySource(
        NAME,
        store.where,
        lambda asked: history.page(store.database, NAME, wanted(asked)),
        lambda: history.records(store.database, NAME),
    )


# council log


def test_a_line_for_each_record_in_their_order(cli: Cli, lived: Lived) -> None:
    said = cli("log", *lived.options)
    assert said.code == 0, said
    lines = said.out.splitlines()
    assert len(lines) == len(lived.hand.records)
    for position, line in enumerate(lines, 1):
        assert f"#{position} " in line
    approved = lived.ids["approved"][:8]
    for words in (
        f"#2 proposal    {approved} Rotate the staging key (client)",
        f"#4 ballot      {approved} lite yes 1.00 → approved, a majority of yes: lite says yes",
        "prime reject 0.90 → rejected, prime ruled against it",
        "ada approves → approved: I was there",
        "the time is up → to a human, too few seats voted for a quorum",
        f"revises {lived.ids['revised'][:8]}: Ship half of it (client) → cancelled",
        "Drop the table (client, med risk)",
        f"seat died   {lived.ids['revision'][:8]} codemind → rejected, a tie, broken by prime's no: its actor died",
        "? forged: ",
    ):
        assert words in said.out, words
    assert "2023-11-14T" in lines[0]
    assert said.err == ""


def test_records_are_chosen(cli: Cli, lived: Lived) -> None:
    def chosen(*options: str) -> list[int]:
        said = cli("log", *lived.options, "--json", *options)
        assert said.code == 0, said
        return [each["position"] for each in documents(said.out)]

    newest = len(lived.hand.records)
    assert chosen("--limit", "3") == [newest - 2, newest - 1, newest]
    assert chosen("--limit", "3", "--oldest-first") == [1, 2, 3]
    assert chosen("--limit", "0") == list(range(1, newest + 1))
    assert chosen("--type", "ruling", "--type", "answer") == [14, 19, 20]
    assert chosen("--type", "decision") == [4, 9, 14, 20, 25, 30]
    assert chosen("--seat", "ada") == [20]
    assert chosen("--proposal", lived.ids["ruled"][:5]) == list(range(10, 15))
    assert chosen("--since", "2023-11-14T23:00Z", "--until", "2023-11-14T23:15:30Z") == [20, 21, 22]
    assert chosen("--since", "2h") == []
    (first,) = documents(cli("log", *lived.options, "--json", "--limit", "1", "--oldest-first").out)
    assert (first["kind"], first["at"], first["epoch"]) == ("start", "2023-11-14T22:13:20+00:00", 1)
    assert len(first["row_hash"]) == 64


NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "ago"),
    [
        ("45s", timedelta(seconds=45)),
        ("10m", timedelta(minutes=10)),
        ("10 min", timedelta(minutes=10)),
        ("2h", timedelta(hours=2)),
        ("3d", timedelta(days=3)),
        ("1w", timedelta(weeks=1)),
        ("2026-11-21T11:00:00Z", timedelta(hours=1)),
        ("2026-11-21T13:00:00+02:00", timedelta(hours=1)),
    ],
)
def test_a_time_is_read(given: str, ago: timedelta) -> None:
    assert log.moment("--since", given, NOW) == NOW - ago


def test_a_time_without_an_offset_is_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-3")
    time.tzset()
    try:
        assert log.moment("--since", "2026-11-21T12:00", NOW) == NOW - timedelta(hours=3)
        assert log.moment("--since", "2026-11-21", NOW) == NOW - timedelta(hours=15)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("given", ["", "soon", "10", "m", "-3h", "99999999d", "2026-13-01", "9" * 12 + "s"])
def test_what_is_no_time_is_told(given: str) -> None:
    with pytest.raises(UsageFault, match="as in 10m, 2h, 3d"):
        log.moment("--since", given, NOW)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--type", "balot"], "did you mean ballot"),
        (["--proposal", "10"], "'10' is not the id of a proposal"),
        (["--proposal", "0123456789"], "no proposal with an id that begins with 0123456789"),
        (["--since", "soon"], "--since"),
        (["--follow", "--oldest-first"], "--follow"),
        (["--follow", "--until", "1h"], "--follow"),
        (["--limit", "-1"], "--limit"),
        (["--address", "127.0.0.1:1"], "--url names a store"),
    ],
)
def test_wrong_usage_of_the_log_exits_2(cli: Cli, lived: Lived, options: list[str], word: str) -> None:
    said = cli("log", *lived.options, *options)
    assert said.code == 2, said
    assert word in said.err
    assert said.out == ""


def test_a_log_of_what_is_not_there_says_what_is(cli: Cli, lived: Lived, home: Path) -> None:
    for command in (["log"], ["show", "abcd"], ["replay"]):
        said = cli(*command, "--url", str(lived.path), "--name", "other")
        assert said.code == 2, said
        assert "no record of a council 'other' (journals there: 'test')" in " ".join(said.err.split())
        said = cli(*command, "--url", str(home / "none.db"), "--name", NAME)
        assert said.code == 4
        assert "none.db" in said.err
    assert not (home / "none.db").exists()
    said = cli("log", "--json")
    assert (said.code, json.loads(said.out)["error"]["code"]) == (4, "unreachable")
    assert "council up" in said.out


def test_what_came_from_outside_moves_nothing(home: Path, cli: Cli) -> None:
    hand = begun()
    proposal_id = hand.propose(summary=HOSTILE, body=HOSTILE)
    hand.receive(hand.vote("lite", proposal_id, "no", content={"reason": HOSTILE}))
    path = str(kept(home / "s.db", hand))
    for command in (["log"], ["show", proposal_id], ["show", "#3"]):
        said = cli(*command, "--url", path, "--name", NAME)
        assert "[bold red]all is well[/]" in said.out
        assert not any(char in said.out for char in "\x1b\x07\x08\r\x9b\u202e\u200b\u2069")


def test_each_record_is_one_line_of_a_terminal(lived: Lived) -> None:
    with PacketStore.open(str(lived.path), read_only=True) as store:
        every = history.page(store.database, NAME, wanted({})).entries
    assert {each.kind for each in every} > {"start", "refusal", "seat_died", "ballot_unreadable", "deadline"}
    for entry in every:
        row = render.row(entry)
        assert len(drawn(row, **log.ONE_LINE).splitlines()) == 1
        assert row.plain.index(render.kind(entry)) == 17  # in a column


@each("kind", sorted(BY_KIND))
def test_every_kind_has_words(kind: str) -> None:
    """Mutation: a kind that is told as its data."""
    act = {
        "seat": "lite",
        "vote": "yes",
        "ruling": "confirm",
        "confidence": 0.5,
        "risk_level": "high",
        "reason": "so",
    }
    data: dict[str, Any] = {
        "what": {"proposer": "ada", "risk_level": "high", "supersedes": None, "summary": "so"},
        "token": {
            "tool": "put",
            "terms": {
                "executor": "exec",
                "operations": ["write"],
                "resources": ["file:/x"],
                "uses": 1,
                "ttl_s": 60.0,
            },
        },
        "request": {"executor": "exec", "tool": "put", "operations": ["write"], "resources": ["file:/x"]},
        "result": {
            "executor": "exec",
            "outcome": "failed",
            "sandbox": "bubblewrap",
            "exit_code": 1,
            "assumed": False,
            "text": "so",
        },
        "call": {
            "seat": "lite",
            "model": "small-1",
            "task": "plan",
            "worst": {"tokens": 10, "microusd": 5},
        },
        "change": {"human": "ada", "before": "0f", "after": {"hash": "1f"}, "why": "so", "reason": "so"},
        "used": {"tokens": 10, "microusd": 0},
        "error": "",
        "report": {"sender": "ada", "stage": "verify", "ok": False, "text": "so"},
        "ballot": act,
        "ruling": act,
        "answer": {"human": "ada", "approve": False, "reason": "so"},
        "rules": {"seats": ["prime"], "quorum": 2, "identity": {"hash": "0f"}},
    }
    data |= {
        "seat": "lite",
        "why": "so",
        "task": "ballot",
        "observer": "prime",
        "stream": "lite",
        "text": "so",
    }
    data |= {
        "interrupt": True,
        "reason": "so",
        "sender": "ada",
        "executor": "exec",
        "code": "forged",
        "epoch": 1,
        "council_id": "c",
        "kind": "action_failed",
        "retrying": True,
        "late": True,
        "active": False,
        "before": "ada",
        "creator": "",
        "assumed": True,
        "spent": {"tokens": 10, "microusd": 0},
        "overruns": [{"field": "history", "before": 9, "after": 3, "limit": 4, "how": "lite"}],
        "escalation": {"detail": "so", "escalation_id": "esc-1"},
        "question": {"detail": "so", "escalation_id": "esc-0f-1"},
        "check": {"seat": "lite", "tool": "look", "args": "[]", "why": "so"},
        "decision": {"outcome": None, "standing": "escalated", "reason": "so"},
    }
    words = render.phrase(kind, data)
    assert "{" not in words.act + words.detail
    assert words.act or kind == DAMAGED
    alone = ("proposal", "deadline", "expiry", "spending", "creator_change", "executor", "use_timeout")
    assert words.detail or kind in alone


@pytest.mark.parametrize(
    ("more", "act"),
    [
        ({"interrupt": True, "stage": "plan"}, "lite calls a halt on prime's plan"),
        ({"interrupt": False, "stage": "plan"}, "lite observes prime's plan"),
        ({"interrupt": True, "stage": ""}, "lite calls a halt on prime"),
        ({"interrupt": True}, "lite calls a halt on prime"),  # as journals of earlier versions hold it
    ],
)
def test_an_observation_names_both_seats_the_stage_and_why(more: dict[str, Any], act: str) -> None:
    data = {"observer": "lite", "stream": "prime", "text": "it deletes all", **more}
    words = render.phrase("observation", data)
    assert (words.act, words.detail) == (act, "it deletes all")


def test_a_damaged_record_is_shown_among_the_others(cli: Cli, lived: Lived) -> None:
    connection = sqlite3.connect(lived.path, isolation_level=None)
    connection.execute("DROP TRIGGER packet_store_frozen")
    changed = "CAST(replace(CAST(content AS TEXT), 'yes', 'yEs') AS BLOB)"
    connection.execute(f"UPDATE packet_store SET content = {changed} WHERE position = 4")
    connection.close()
    said = cli("log", *lived.options)
    assert said.code == 1
    assert len(said.out.splitlines()) == len(lived.hand.records)
    assert "#4 damaged" in said.out
    assert "1 record damaged: council verify" in said.err
    shown = cli("show", lived.ids["approved"], *lived.options)
    assert "record 4 is damaged" in " ".join(shown.out.split())
    replayed = cli("replay", *lived.options)
    assert replayed.code == 1
    assert "record 4 is damaged: its content does not fit its content_hash" in " ".join(replayed.err.split())


def test_the_log_is_followed_until_it_is_interrupted(lived: Lived) -> None:
    """Mutation: a follow that shows a record twice, or none of those that do not match."""
    command = [
        sys.executable,
        "-m",
        "council.cli",
        "log",
        "-f",
        "--limit",
        "2",
        "--type",
        "proposal",
        *lived.options,
    ]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        os.set_blocking(running.stdout.fileno(), True)
        assert "Ship half of it" in running.stdout.readline()
        assert "Still at it" in running.stdout.readline()
        hand = lived.hand
        before = len(hand.records)
        with PacketStore.open(str(lived.path)) as store:
            packer = Packer(COUNCIL_ID, nothing)
            every = [packer.packed(record) for record in hand.records]
            for number in range(2):
                hand.propose(summary=f"new {number}")
                hand.receive(hand.vote("lite", lived.ids["open"], "yes"))
                every += [packer.packed(record) for record in hand.records[len(every) :]]
                epoch, head = store.begin_epoch(NAME, "a test")
                store.append_rows(NAME, epoch, every[before:], head)
                before = len(every)
                assert f"new {number}" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=HANG_S)
        assert (running.returncode, out, err) == (0, "", "")
    finally:
        running.kill()
        running.wait()


# council show


def test_a_decision_is_shown_whole(cli: Cli, lived: Lived) -> None:
    said = cli("show", lived.ids["answered"][:6], *lived.options)
    assert said.code == 0, said
    flat = " ".join(said.out.replace("│", " ").split())
    for words in (
        "Open the door",
        "ada approved it: I was there",
        "2 yes, 1 no, 0 abstained",
        "prime: human (0.90). prime rules human",
        "dissent lite (no, 1.00) ",
        "by client",
        "high risk, confidence 1.00",
        "+1 h 1 min",
        "from #15, #16, #17, #18, #19",
        "#20 answer, epoch 1",
    ):
        assert words in flat, words
    with PacketStore.open(str(lived.path), read_only=True) as store:
        row = store.records(NAME, 19, 1)[0]
    for hashed in (row.row_hash, row.content_hash, row.previous_hash):
        assert hashed.hex() in flat
    assert max(map(len, said.out.splitlines())) <= 80


def test_an_id_is_one_however_it_is_written(cli: Cli, lived: Lived) -> None:
    """Mutation: found by its record, and shown as still deliberated."""
    proposal_id = lived.ids["approved"]
    said = cli("show", f"ESC-{proposal_id[:8].upper()}", *lived.options)
    assert said.code == 0, said
    assert said.out == cli("show", proposal_id, *lived.options).out


def test_who_was_late_or_missing_and_what_was_revised_is_shown(cli: Cli, lived: Lived) -> None:
    late = cli("show", lived.ids["approved"], *lived.options)
    assert late.code == 0
    assert "late, not counted: codemind says no" in late.out
    assert "late: codemind no 1.00" in late.out
    assert "    Old: 2019.\n" in "\n".join(line.rstrip() for line in late.out.splitlines())
    revision = cli("show", lived.ids["revision"], *lived.options)
    assert revision.code == 1
    for words in (
        "inactive: its actor died",
        "a tie, broken by prime's no",
        f"revises   {lived.ids['revised']}",
    ):
        assert words in revision.out
    assert f"#24       {lived.ids['revised']}: Ship it" in revision.out
    assert "from #25, #28, #29" in revision.out


def test_what_is_not_decided_is_shown(cli: Cli, lived: Lived) -> None:
    still = cli("show", lived.ids["open"], *lived.options)
    assert (still.code, "the seats still deliberate" in still.out) == (3, True)
    waits = cli("show", f"esc-{lived.ids['lost']}", *lived.options)
    assert waits.code == 3
    assert "too few seats voted for a quorum" in waits.out
    assert "council answer esc-" in waits.out


def test_show_as_data_has_the_envelopes(cli: Cli, lived: Lived) -> None:
    said = cli("show", lived.ids["answered"], *lived.options, "--json")
    (found,) = documents(said.out)
    assert (found["standing"], found["outcome"], found["exit_code"]) == ("decided", "approved", 0)
    assert [each["envelope"]["type"] for each in found["records"]] == [
        "PROPOSAL",
        *3 * ["VOTE"],
        "INFO",
        "INFO",
    ]
    assert found["records"][0]["envelope"]["content"]["summary"] == "Open the door"
    assert found["decision"]["answer"]["human"] == "ada"
    assert found["escalation"]["reason"] == "prime_asks"
    assert len(found["records"][-1]["parents"]) == 5
    revised = documents(cli("show", lived.ids["revision"], *lived.options, "--json").out)[0]["revised"]
    assert [each["proposal_id"] for each in revised] == [lived.ids["revised"]]


def test_show_as_data_says_what_became_of_each(cli: Cli, lived: Lived) -> None:
    """Mutation: a decision that is not approved, which is false in a condition, is shown as still deliberated."""
    expected = {
        "approved": (0, "decided", "approved"),
        "rejected": (1, "decided", "rejected"),
        "ruled": (1, "decided", "rejected"),
        "revised": (1, "decided", "cancelled"),
        "lost": (3, "escalated", None),
        "open": (3, "deliberating", None),
    }
    for name, shown in expected.items():
        code, out, _ = cli("show", lived.ids[name], *lived.options, "--json")
        (found,) = documents(out)
        assert (code, found["standing"], found["outcome"]) == shown


def test_a_record_is_shown_by_its_position(cli: Cli, lived: Lived) -> None:
    assert cli("show", "#16", *lived.options).out == cli("show", lived.ids["answered"], *lived.options).out
    died = cli("show", "#30", *lived.options)
    assert died.code == 0
    for words in ("record #30 seat_died", f"{lived.ids['revision']} rejected", "its actor died"):
        assert words in died.out
    (found,) = documents(cli("show", "#30", *lived.options, "--json").out)
    assert found["record"]["kind"] == "seat_died"
    none = cli("show", "#99", *lived.options)
    assert (none.code, "has no record #99" in none.err) == (2, True)


def test_a_decision_that_its_record_does_not_hold_is_found_by_the_core(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packets, "OUTCOME_BYTES_MAX", 10)
    hand = begun()
    ids = [hand.propose(summary=f"thing {number}") for number in range(3)]
    for proposal_id in ids:
        hand.receive(hand.vote("prime", proposal_id, "yes"))
        hand.receive(hand.vote("lite", proposal_id, "no"))
    hand.driver.seat_died("codemind", hand.driver.boot("codemind"), "it died", hand.now)
    hand.save()
    path = str(kept(home / "s.db", hand))
    said = cli("show", ids[2], "--url", path, "--name", NAME, "--json")
    (found,) = documents(said.out)
    assert found["decision"]["reason"] == "a tie, broken by prime's yes"
    assert found["outcome"] == "approved"
    assert "3 approved" in cli("log", "--url", path, "--name", NAME, "--limit", "1").out


def test_a_long_body_is_cut_and_says_so(home: Path) -> None:
    hand = begun()
    body = "\n".join(f"line {number}" for number in range(100))
    proposal_id = hand.propose(body=body)
    with PacketStore.open(str(home / "s.db")) as store:
        fill(store, hand.records)
        shown = drawn(story_view.proposal(story.story_of(source_of(store), proposal_id), NAME))
    assert "line 29" in shown
    assert "line 30" not in shown
    assert "characters more: --json" in shown


def test_what_a_proposal_came_with_is_counted(home: Path) -> None:
    """And is no part of what is read of it on a terminal."""
    hand = begun()
    turns = [("user", "Ship it."), ("tool", "It holds."), ("tool", "\x1b[2J")]
    given = [{"role": role, "text": text} for role, text in turns]
    with_turns, without = hand.propose(history=given), hand.propose()
    with PacketStore.open(str(home / "s.db")) as store:
        fill(store, hand.records)
        shown = [
            drawn(story_view.proposal(story.story_of(source_of(store), each), NAME))
            for each in (with_turns, without)
        ]
    assert "history   3 turns (user, tool), 21 characters: --json" in shown[0]
    assert "Ship it." not in shown[0]
    assert "history" not in shown[1]


def test_a_council_in_memory_is_asked_itself(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=ASKS, humans={"ada": "kept"}))
    proposal_id = council.propose("Drop the table", "All of it.").proposal_id
    said = cli("log")
    assert said.code == 0, said
    assert "client" in said.out
    assert "→ to a human, Prime ruled that a human must decide" in said.out
    assert "asking the running council" in said.err
    shown = cli("show", proposal_id[:8])
    assert shown.code == 3
    for words in ("All of it.", "a person must see this", "what happened"):
        assert words in shown.out
    assert "in the journal" not in shown.out


def test_why_a_human_is_asked_is_said_once(cli: Cli, up: Up) -> None:
    """Where a seat's fault is the reason. Mutation: the detail of what is asked repeats the fault."""

    class Breaks(Chair):
        async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
            raise RuntimeError("a screw is loose")

    risky = Breaks(Opinion.no("too risky", risk_level="high"), Ruling("human", "look"))
    up(council_of(prime=risky, humans={"ada": "kept"})).propose("Drop the table")
    (told,) = [each for each in cli("log").out.splitlines() if "gives no ruling" in each]
    assert "→ to a human, Prime gave no ruling: " in told
    assert told.count("a screw is loose") == 1


def test_a_proposal_whose_records_are_gone_is_shown_as_decided(cli: Cli, up: Up) -> None:
    council = up(council_of(events_kept=4))
    first = council.propose("First")
    council.propose("Second", wait_for="all")
    said = cli("show", first.proposal_id)
    assert said.code == 0, said
    assert "First" in said.out
    assert "its record is no longer kept" in said.out


# council replay


def test_a_journal_is_replayed(cli: Cli, lived: Lived) -> None:
    said = cli("replay", *lived.options)
    assert said.code == 0, said
    told = "31 records replayed, each with the effects in the journal: 6 decisions, 2 escalations to a human"
    assert f"test: {told}" in " ".join(said.out.split())
    (found,) = documents(cli("replay", *lived.options, "--json").out)
    assert found["replayed"] == {"council": "test", "records": 31, "decisions": 6, "escalations": 2}


def test_what_differs_is_told_and_exits_1(cli: Cli, home: Path) -> None:
    hand, _ = life()
    lied = replace(hand.records[3], effects=hand.records[3].effects[:1])
    hand.records[3] = lied
    path = str(kept(home / "s.db", hand))
    for options in ([], ["--what-if", "quorum=3"]):
        said = cli("replay", "--url", path, "--name", NAME, *options)
        assert said.code == 1, said
        assert "record 4 (ballot) comes to something else by this version's rules" in " ".join(
            said.err.split()
        )
    (found,) = documents(cli("replay", "--url", path, "--name", NAME, "--json").out)
    assert (found["exit_code"], found["error"]["code"], found["error"]["facts"]["position"]) == (
        1,
        "replay_diverged",
        4,
    )


def test_what_would_have_been_is_shown(cli: Cli, lived: Lived) -> None:
    said = cli("replay", *lived.options, "--what-if", "prime=lite", "--what-if", "quorum=2")
    assert said.code == 0, said
    flat = " ".join(said.out.split())
    for words in (
        "test with prime=lite, with quorum=2",
        f"{lived.ids['revision'][:8]} rejected approved Ship half of it a tie, broken by lite's yes",
        f"{lived.ids['ruled'][:8]} rejected asks Prime Pay the invoice lite would have been asked to rule, and never",
        "3 of 8 proposals would have ended differently",
    ):
        assert words in flat, words
    assert max(map(len, said.out.splitlines())) <= 80
    (found,) = documents(cli("replay", *lived.options, "--what-if", "without=lite", "--json").out)
    told = found["what_if"]
    assert (told["proposals"], told["without"], told["rules"]) == (8, ["lite"], {})
    assert {each["proposal_id"]: each["would"]["word"] for each in told["otherwise"]} == {
        lived.ids["revision"]: "undecided"
    }
    same = cli("replay", *lived.options, "--what-if", "quorum=2")
    assert "0 of 8 proposals would have ended differently" in same.out


def test_a_change_that_can_not_be_is_wrong_usage(cli: Cli, lived: Lived) -> None:
    for given, word in (
        ("quorun=3", "did you mean quorum"),
        ("quorum=9", "2 to 3"),
        ("without=bob", "never a seat"),
    ):
        said = cli("replay", *lived.options, "--what-if", given)
        assert (said.code, word in " ".join(said.err.split())) == (2, True), said
