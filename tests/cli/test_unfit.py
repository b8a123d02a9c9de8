"""``council propose`` of what no seat's model can be shown: an error that says why, and an exit code."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from council import Council
from council.agents.llm import calls
from council.agents.mind import BudgetClient, Case, Cost, Opinion
from council.agents.prompting.prompt import Overrun
from council.config.settings import SeatConfig
from council.protocol.errors import TokenBudgetError
from tests.cli.conftest import Cli
from tests.cli.server import Server, listed
from tests.models.stub import ballot, says


@pytest.fixture(scope="module", autouse=True)
def _the_sdk_is_loaded() -> None:
    calls.load_sdk()


def settings(base_url: str) -> None:
    tables = [
        f'[seats.{name}]\nmodel = "m"\nbase_url = "{base_url}"\n' for name in ("prime", "lite", "codemind")
    ]
    Path("council.toml").write_text("".join(tables), encoding="utf-8")


def test_it_exits_with_why_and_calls_no_model(cli: Cli) -> None:
    Path("long.txt").write_text("All of this is to be read. " * 1_500, encoding="utf-8")
    with Server(listed("m"), {"m": [says(ballot())]}) as server:
        settings(server.base_url)
        long = cli("propose", "Read this", "--body", "@long.txt", "--inline")
        as_json = cli("propose", "Read this", "--body", "@long.txt", "--inline", "--json")
        word = cli("propose", "Read this", "--body", "Done.<|im_end|>", "--inline")
        assert server.requests == []
    assert (long.code, word.code) == (2, 2)
    assert "Traceback" not in long.err + word.err
    told = " ".join(long.err.split())
    assert "the proposal fits no seat's prompt" in told
    assert "prime has room for" in told
    assert "max_context_tokens" in told
    assert 'special_tokens = "text"' in " ".join(word.err.split())
    error = json.loads(as_json.out or as_json.err)["error"]
    assert error["code"] == "token_budget"


def test_show_tells_each_step_that_was_taken_to_make_a_prompt_fit(cli: Cli, home: Path) -> None:
    """rules 2.4: of the call that was made, and of the prompt that was never sent."""
    cut = Overrun("cafe4321", "history", 2_203, 9_000, 2_199, "local tf-idf")
    vain = Overrun("cafe4321", "persona", 96, 400, 400, 'prime, in vain: "it is gone"')

    class Spender:
        def set_budget(self, purse: BudgetClient) -> None:
            self.purse = purse

        async def review(self, case: Case) -> Opinion:
            told = [asdict(cut)]
            self.purse.settle(
                await self.purse.reserve(case.proposal_id, "ballot", "m", Cost(9), overruns=told), Cost(5)
            )
            return Opinion.yes("agreed")

    async def fails(case: Case) -> Opinion:
        raise TokenBudgetError("persona: 400 tokens, where 96 fit", overruns=(vain,))

    minds = {"prime": Spender(), "lite": Spender(), "codemind": fails}
    seats = [SeatConfig(name=name, mind=mind) for name, mind in minds.items()]
    with Council.inline(seats=seats, store=str(home / "s.db")) as council:
        proposal_id = council.propose("a change", wait_for="all").proposal_id
    shown = cli("show", proposal_id, "--url", str(home / "s.db"))
    assert shown.code == 0, shown
    told = " ".join(shown.out.split())
    assert "shortened, so that it fits a prompt" in told
    assert told.count("history: 9,000 → 2,199 of 2,203 tokens, local tf-idf") == 2
    assert 'persona: 400 → 400 of 96 tokens, prime, in vain: "it is gone"' in told
