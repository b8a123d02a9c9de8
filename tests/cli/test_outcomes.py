"""What became of an action, as it is read: in one decision, in the log, and as it happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from council.api.client import Council

from .conftest import Cli, council_of

Up = Callable[[Council], Council]


def acted_on(council: Council) -> str:
    decision = council.propose("Rotate the key", wait_for="all")
    council.report(decision, ok=True)
    council.report(decision, stage="verify", ok=False, text="the old key \x1b[31mopens")
    council.report(decision, stage="revert", ok=True)
    return decision.proposal_id


def test_a_decision_shows_what_became_of_it(cli: Cli, up: Up, home: Path) -> None:
    council = up(council_of(store=f"sqlite:///{home / 'store.db'}"))
    proposal_id, who = acted_on(council), council.sender
    said = cli("show", proposal_id)
    assert said.code == 0  # it is approved, whatever became of it
    shown = said.out[said.out.index("the result of the action") : said.out.index("proposed")]
    lines = [" ".join(line.split()) for line in shown.splitlines()[1:] if line.strip()]
    assert lines == [
        f"act {who} ran it",
        f"verify {who} could not verify it: the old key \\x1b[31mopens",
        f"revert {who} reverted it",
    ]
    assert "\x1b" not in said.out
    log = [json.loads(line) for line in cli("log", "--json", "--type", "outcome").out.splitlines()]
    assert [(each["data"]["report"]["stage"], each["data"]["report"]["ok"]) for each in log] == [
        ("act", True),
        ("verify", False),
        ("revert", True),
    ]
    row = cli("log", "--type", "outcome").out
    assert "outcome" in row
    assert "could not verify it" in " ".join(row.split())


def test_without_a_report_nothing_became_of_it(cli: Cli, up: Up, home: Path) -> None:
    council = up(council_of(store=f"sqlite:///{home / 'store.db'}"))
    decision = council.propose("Rotate the key")
    assert "the result of the action" not in cli("show", decision.proposal_id).out


def test_it_is_watched_as_it_happens(cli: Cli, up: Up) -> None:
    council = up(council_of())
    acted_on(council)
    lines = [" ".join(line.split()[1:]) for line in cli("watch", "--once").out.splitlines()]
    found = [line for line in lines if line.startswith(("outcome", "alert"))]
    assert [line.split(" ", 2)[2] for line in found] == [
        f"{council.sender} ran it",
        f"{council.sender} could not verify it: the old key \\x1b[31mopens",
        f"verification_failed: verification failed, {council.sender} reports: the old key \\x1b[31mopens",
        f"{council.sender} reverted it",
    ]


def test_a_replay_comes_to_the_same(cli: Cli, up: Up, home: Path) -> None:
    council = up(council_of(store=f"sqlite:///{home / 'store.db'}"))
    acted_on(council)
    council.close()
    where = ("--url", str(home / "store.db"), "--name", "council")
    assert cli("replay", *where).code == 0
    assert "0 of 1 proposal" in cli("replay", *where, "--what-if", "without=lite").out
