"""Models behind seats on real Ray: each seat's process makes its own client, and reads its own key."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from council import Council
from council.protocol.errors import TokenBudgetError
from tests.models.stub import Stub, ballot, ruling, says, used
from tests.patience import HANG_S


@pytest.mark.long
def test_primes_process_asks_lites_server_with_lites_key_and_what_fits_none_is_refused(
    name: str, tmp_path: Any
) -> None:
    """rules 2.2, 2.4. Mutation: a key of one seat's server goes to the other's, or the error is a stranger's."""
    keys = {seat: f"sk-of-{seat}-0123456789" for seat in ("prime", "lite")}
    for seat, key in keys.items():
        (tmp_path / seat).write_text(key)
        (tmp_path / seat).chmod(0o600)
    read = used(1_500, 20)
    torn = "one_sentence_without_end " * 400
    lites = [
        says(ballot("no", torn, risk_level="high"), usage=used(1_500, 2_000)),
        says("At night.", usage=read),
    ]
    primes = [says(ballot("yes"), usage=read), says(ruling("reject"), usage=read)]
    with Stub({"lite": lites}, key=keys["lite"]) as one, Stub({"prime": primes}, key=keys["prime"]) as other:
        seats: dict[str, Any] = {
            seat: {
                "model": seat,
                "base_url": stub.base_url,
                "api_key_file": str(tmp_path / seat),
                "tokenizer": "o200k_base",
                "max_output_tokens": 4_000,
                "stages": "one",
            }
            for seat, stub in (("lite", one), ("prime", other))
        }
        seats["prime"]["max_context_tokens"] = 1_900
        seats["codemind"] = {"enabled": False}
        with Council.launch(name=name, seats=seats, store="memory") as council:
            with pytest.raises(TokenBudgetError, match="lite has room for") as caught:
                council.propose("Read this", "All of this is to be read. " * 1_500)
            decision = council.propose("Delete the old index", wait_for="all", timeout_s=HANG_S)
    assert type(caught.value) is type(pickle.loads(pickle.dumps(caught.value))) is TokenBudgetError
    assert 0 < caught.value.limit < caught.value.found
    assert (decision.outcome, decision.ruling is not None) == ("rejected", True), decision
    assert "At night." in other.requests[-1].body["messages"][-1]["content"]
    assert {call.headers["authorization"] for call in one.requests} == {f"Bearer {keys['lite']}"}
    assert {call.headers["authorization"] for call in other.requests} == {f"Bearer {keys['prime']}"}
    assert {each.seat: each.calls for each in decision.spent} == {"lite": 1, "prime": 3}
