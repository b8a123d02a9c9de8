"""Three seats on real Ray whose model is on a real server, llama.cpp's: decided end to end, and nothing imitated.

The model's weights are chance, and so are the votes: ``tests/models/llama`` has more about it.
"""

from __future__ import annotations

from typing import Any

import pytest

from council import Council
from council.agents.prompting.answer_schema import CONFIDENCES
from tests.models.llama.server import KEY, llama
from tests.patience import HANG_S

SEATS = ("prime", "lite", "codemind")
pytestmark = (
    pytest.mark.long
)  # its server alone is tried in tests/models/llama, seats with models beside this


def test_three_seats_of_a_real_server_decide_on_ray(name: str, tmp_path: Any) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o600)
    with llama(tmp_path) as server:
        seat = server.seat | {"api_key_env": None, "api_key_file": str(file)}
        with Council.launch(name=name, seats=dict.fromkeys(SEATS, seat), store="memory") as council:
            found = [
                council.propose(f"Delete index {at}", "Nobody reads it.", wait_for="all", timeout_s=HANG_S)
                for at in range(3)
            ]
    # Each has a decision, or waits for a human as the ballots, or a ruling, would have it.
    assert any(decision.final for decision in found), found
    for decision in found:
        assert decision.outcome in ("approved", "rejected") if decision.final else decision.reason
        assert len(decision.ballots) + len(decision.missing) == len(SEATS)
        assert {each.confidence for each in decision.ballots} <= set(CONFIDENCES)
        assert {each.seat for each in decision.spent} == set(SEATS)
        assert all(each.assumed == 0 and each.spent.tokens > 0 for each in decision.spent)
    assert sum(len(decision.ballots) for decision in found) > len(SEATS)
    assert KEY not in repr(found)
