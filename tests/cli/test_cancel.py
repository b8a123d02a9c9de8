"""``council cancel``: an open proposal is taken back under a human's key."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from council.agents.mind import Case, Opinion, Ruling
from council.api.client import Council
from council.config.human_keys import current_user
from tests.cli.conftest import Chair, Cli, council_of
from tests.patience import HANG_S

Up = Callable[[Council], Council]


def waiting(**settings: Any) -> Council:
    """A council that hands what it is asked to a human."""
    chair = Chair(Opinion.yes("agreed"), Ruling("human", "a person must see this"))
    return council_of(prime=chair, **settings)


def test_a_human_cancels_what_another_proposed_by_a_prefix(cli: Cli, up: Up) -> None:
    """Mutation: the command as a client of its own, which is never the proposer."""
    council = up(waiting())
    proposal_id = council.propose("Pay the invoice", risk="high").proposal_id
    said = cli("cancel", proposal_id[:8], "--reason", "paid already")
    assert said.code == 0
    assert "cancelled" in said.out
    decision = council.decision(proposal_id)
    assert decision is not None
    assert (decision.outcome, decision.reason) == (
        "cancelled",
        f"cancelled by {current_user()}: paid already",
    )
    assert council.escalations() == []
    record = next(iter(council.history(proposal=proposal_id, types=["cancellation"])))
    assert record.data["by_human"] is True


def test_what_the_seats_deliberate_is_cancelled_and_its_proposer_told(cli: Cli, up: Up) -> None:
    begun, gate = threading.Event(), threading.Event()

    def slow(case: Case) -> Opinion:
        begun.set()
        gate.wait(HANG_S)
        return Opinion.yes("at last")

    council = up(council_of(prime=slow, lite=slow))
    draft, told = council.draft("Rotate the key", wait_for="all"), list[str]()
    proposing = threading.Thread(target=lambda: told.append(str(council.propose(draft).outcome)))
    proposing.start()
    try:
        assert begun.wait(HANG_S)
        said = cli("cancel", draft.msg_id, "--json")
        proposing.join(HANG_S)
    finally:
        gate.set()
    found = json.loads(said.out)
    assert (said.code, found["exit_code"]) == (0, 0)
    assert (found["council"], found["mode"], found["outcome"]) == ("council", "connected", "cancelled")
    assert told == ["cancelled"]


def test_cancelling_once_more_changes_nothing(cli: Cli, up: Up) -> None:
    council = up(waiting())
    proposal_id = council.propose("Pay the invoice", risk="high").proposal_id
    for reason in ("first", "second"):
        said = cli("cancel", proposal_id, "--reason", reason, "--json")
        assert (said.code, json.loads(said.out)["reason"]) == (0, f"cancelled by {current_user()}: first")


def test_what_can_not_be_cancelled_is_told(cli: Cli, up: Up) -> None:
    council = up(council_of(humans={"ada": "kept"}))
    decided = council.propose("Rotate the key").proposal_id
    said = cli("cancel", decided, "--as", "ada")
    assert (said.code, "decided already (approved)" in said.err) == (1, True)
    said = cli("cancel", "0" * 32, "--as", "ada")
    assert (said.code, "0" * 32 in said.err) == (2, True)
    said = cli("cancel", decided, "--as", "mallory")
    assert (said.code, "ada" in said.err) == (2, True), "who may is named"


def test_without_a_council_it_exits_4(cli: Cli) -> None:
    said = cli("cancel", "0e3d", "--json")
    assert (said.code, json.loads(said.out)["error"]["code"]) == (4, "unreachable")


def test_it_is_not_sent_to_a_ray_that_only_the_folder_names(cli: Cli, home: Path) -> None:
    (home / "council.toml").write_text('ray_address = "10.0.0.1:6379"\n', encoding="utf-8")
    said = cli("cancel", "0e3d")
    assert (said.code, "--address" in said.err) == (2, True)
