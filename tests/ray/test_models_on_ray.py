"""Models behind seats on real Ray: each seat's process makes its own client, and reads its own key."""

from __future__ import annotations

from typing import Any

from council import Council
from tests.models.stub import Stub, ballot, says

KEY = "sk-of-the-council-0123456789"


def test_three_model_seats_decide_on_ray(name: str, tmp_path: Any) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o600)
    votes = {"prime": "yes", "lite": "no", "codemind": "yes"}
    scripts = {seat: [says(ballot(vote, f"{seat} says so"))] for seat, vote in votes.items()}
    with Stub(scripts, key=KEY) as stub:
        seats = {
            seat: {"model": seat, "base_url": stub.base_url, "api_key_file": str(file)} for seat in votes
        }
        with Council.launch(name=name, seats=seats, store="memory") as council:
            decision = council.propose("Delete the old index", wait_for="all", timeout_s=60)
    assert decision.outcome == "approved", decision.missing
    assert {each.seat: each.vote for each in decision.ballots} == votes
    assert {each.seat: (each.calls, each.spent.tokens) for each in decision.spent} == dict.fromkeys(
        votes, (1, 120)
    )
    assert KEY not in repr(decision)
