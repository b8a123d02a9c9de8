"""Minds and a council on llama.cpp's real server: a real sampler under our schema's grammar, real tokens and errors.

The weights are chance, and so is what is answered: within what the schema allows, any of it may come.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Sequence
from typing import Any

import pytest

from council import Council
from council.agents.llm.calls import ModelCalls
from council.agents.llm.endpoint import Endpoint
from council.agents.mind import Case, Opinion, Ruling, ShownBallot
from council.agents.model import ModelMind
from council.agents.prompting.answer_schema import CONFIDENCES, SCHEMA_TEXTS
from council.agents.prompting.builder import PromptBuilder
from council.agents.prompting.shorten import TEMPLATE_TOKENS
from council.agents.prompting.tokens import counter_for
from council.cli.setup import servers
from council.protocol.errors import ModelError
from tests.models.llama import weights
from tests.models.llama.server import CONTEXT, KEY, NAME, OUTPUT, PLACES, Llama
from tests.models.minds import Account
from tests.patience import HANG_S, until

pytestmark = pytest.mark.long

ROLES = ("prime", "lite", "codemind")
COUNT = counter_for(NAME, str(weights.TOKENIZER))
# A cut-off string, and one that chance gave a form that no reader takes, are lost and say so.
LOST = "its answer can't be taken, as "


def a_case(body: str = "Nobody reads it any more.", summary: str = "Delete the old index") -> Case:
    return Case("00" * 8, "ada", summary, body, time_left_s=HANG_S)


def a_prompter(role: str = "lite", mtu: int = 4_096) -> PromptBuilder:
    return PromptBuilder(role, count=COUNT, mtu=mtu)


def an_endpoint(server: Llama, **settings: Any) -> Endpoint:
    given = {key: value for key, value in server.seat.items() if key != "tokenizer"}
    return Endpoint(**given | settings)


def a_mind(server: Llama, purse: Account, role: str = "lite", mtu: int = 4_096, **settings: Any) -> ModelMind:
    mind = ModelMind(an_endpoint(server, **settings), a_prompter(role, mtu))
    mind.set_budget(purse)
    return mind


def lost(server: Llama, purse: Account, case: Case | None = None, **settings: Any) -> str:
    """Why a ballot is lost."""
    with pytest.raises(ModelError) as caught:
        asyncio.run(a_mind(server, purse, **settings).review(case or a_case()))
    return str(caught.value)


def is_proper(opinion: Opinion) -> bool:
    """Whether a ballot has what the schema asks for, each part in its own words. Parts that are empty or null go."""
    packet = opinion.control_packet
    assert packet is not None
    asked_for = json.loads(SCHEMA_TEXTS["ballot"])["properties"]["control_packet"]["required"]
    return (
        opinion.vote in ("yes", "no", "abstain")
        and opinion.confidence in CONFIDENCES
        and opinion.risk_level in ("low", "med", "high")
        and set(asked_for) <= {*packet, "mangle_updates", "memory_operations", "check"}
        and isinstance(packet["safety_gates"]["requires_user_approval"], bool)
    )


def test_each_ballot_is_what_the_schema_allows_or_lost_with_a_reason(server: Llama) -> None:
    purse = Account()

    async def all_of_them() -> list[Opinion | BaseException]:
        cases = [(role, a_case(summary=f"Delete index {at}")) for at in range(3) for role in ROLES]
        minds = [a_mind(server, purse, role).review(case) for role, case in cases]
        return await asyncio.gather(*minds, return_exceptions=True)

    found = asyncio.run(all_of_them())
    ballots = [each for each in found if isinstance(each, Opinion)]
    assert all(is_proper(each) for each in ballots)
    assert all(LOST in str(each) for each in found if not isinstance(each, Opinion)), found
    # Chance alone decides, and one of them all would be little: of some hundred tried none was lost.
    assert len(ballots) > len(found) / 2
    assert {each.vote for each in ballots} <= {"yes", "no", "abstain"}
    # What the server says that it used is never more than what was reserved for the call (rules 2.6).
    assert purse.reserved.keys() == purse.settled.keys()
    for call_id, used in purse.settled.items():
        assert used is not None
        assert 0 < used.tokens <= purse.reserved[call_id][-1].tokens


def test_prime_rules_by_the_schema_of_a_ruling(server: Llama) -> None:
    shown = [ShownBallot(seat, "yes", "it saves space", 0.85, "low") for seat in ROLES]

    async def ruled() -> list[Ruling | BaseException]:
        minds = [a_mind(server, Account(), "prime").rule(a_case(), shown) for _ in range(5)]
        return await asyncio.gather(*minds, return_exceptions=True)

    answers = asyncio.run(ruled())
    found = [each for each in answers if isinstance(each, Ruling)]
    assert found
    assert all(LOST in str(each) for each in answers if not isinstance(each, Ruling)), answers
    assert {each.ruling for each in found} <= {"confirm", "reject", "human"}
    assert {each.confidence for each in found} <= set(CONFIDENCES)


def test_the_server_reads_the_tokens_that_we_count(server: Llama) -> None:
    """Ours are above it by what is set aside for the chat template and the schema, and never below (rules 2)."""

    async def compared() -> tuple[int, int]:
        prompt, purse = await a_prompter().ballot(a_case("Since May. " * 50)), Account()
        await ModelCalls(an_endpoint(server, max_output_tokens=16)).answer(
            prompt, purse, asyncio.get_running_loop().time() + HANG_S, []
        )
        (used,) = purse.costs
        assert used is not None
        return prompt.tokens, used.tokens - 16

    ours, its = asyncio.run(compared())
    set_aside = TEMPLATE_TOKENS + COUNT(SCHEMA_TEXTS["ballot"])
    assert ours - set_aside <= its < ours
    assert its - (ours - set_aside) < TEMPLATE_TOKENS


def test_without_chance_the_same_prompt_gets_the_same_answer(server: Llama) -> None:
    async def twice() -> Sequence[str]:
        calls, prompt = (
            ModelCalls(an_endpoint(server, temperature=0.0, max_output_tokens=300)),
            await a_prompter().ballot(a_case()),
        )
        until_s = asyncio.get_running_loop().time() + HANG_S
        return [(await calls.answer(prompt, Account(), until_s, [])).text for _ in range(2)]

    first, second = asyncio.run(twice())
    assert first == second
    assert first.startswith("{")


@pytest.mark.parametrize(
    ("settings", "body", "why", "calls"),
    [
        ({"max_output_tokens": 40}, "", f"{LOST}it was cut off at max_output_tokens", 2),
        ({"answer_format": "text", "max_output_tokens": 300}, "", LOST, 2),
        ({"api_key_env": None}, "", "it wants a key (401): set api_key_env", 1),
        (
            {"mtu": 20_000},
            "Since May. " * 1_000,
            "the prompt is too long for it (400): lower max_context_tokens",
            1,
        ),
    ],
    ids=["cut off", "no grammar", "no key", "too long"],
)
def test_what_goes_wrong_at_the_server_loses_the_ballot_and_says_why(
    server: Llama, settings: dict[str, Any], body: str, why: str, calls: int
) -> None:
    purse = Account()
    assert why in lost(server, purse, a_case(body), **settings)
    assert (
        len(purse.costs) == calls
    )  # all of them settled, and none of what no other call mends is tried again


def test_an_answer_that_takes_too_long_is_not_waited_for(server: Llama) -> None:
    purse, endless = Account(), {"answer_format": "text", "max_output_tokens": 6_000}
    told = lost(server, purse, max_execution_time_s=0.5, **endless)
    assert "it gave no answer within 0.5 s" in told
    assert set(purse.costs) <= {None}  # what was under way counts as all that was reserved


def test_a_key_that_is_refused_is_named_by_its_variable_alone(
    server: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANOTHERS_KEY", "sk-of-another")
    told = lost(server, Account(), api_key_env="ANOTHERS_KEY")
    assert "it refuses the key (401): see ANOTHERS_KEY" in told
    assert "sk-" not in told


def test_an_answer_that_nobody_waits_for_frees_its_place(server: Llama) -> None:
    """A server of few places would else go on writing what is thrown away."""
    address = server.base_url.removesuffix("/v1")

    def at_work() -> int:
        request = urllib.request.Request(f"{address}/slots", headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request, timeout=HANG_S) as reply:
            return sum(slot["is_processing"] for slot in json.load(reply))

    async def given_up() -> None:
        purse = Account()
        # Without a grammar nothing ever stops it: it would write 6,000 tokens, which takes some seconds.
        endless = a_mind(server, purse, answer_format="text", max_output_tokens=4_000)
        task = asyncio.create_task(endless.review(a_case()))
        while not await asyncio.to_thread(at_work):
            assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert purse.costs == [None]  # settled at what was reserved

    asyncio.run(given_up())
    until(lambda: not at_work(), "the server still works for nobody")


def test_it_is_found_with_its_model_and_window(server: Llama) -> None:
    """As ``council init`` and ``council doctor`` look for servers."""
    found = servers.ask(server.base_url, KEY, HANG_S)
    assert (found.kind, list(found.models)) == ("llama.cpp", [NAME])
    assert found.models[NAME] == CONTEXT


def test_three_seats_on_it_decide_in_process(server: Llama) -> None:
    assert len(ROLES) == PLACES
    with Council.inline(seats=dict.fromkeys(ROLES, server.seat)) as council:
        found = [
            council.propose(f"Delete index {at}", "Nobody reads it.", wait_for="all", timeout_s=HANG_S)
            for at in range(4)
        ]
    for decision in found:
        assert {each.seat for each in decision.ballots} | {seat for seat, _ in decision.missing} == set(ROLES)
        assert all(LOST in why for _, why in decision.missing), decision.missing
        assert all(each.spent.tokens < 4 * (4_096 + OUTPUT) for each in decision.spent)
        votes = [each.vote for each in decision.ballots]
        ruled = decision.ruling.ruling if decision.ruling else None
        if decision.outcome == "approved":
            assert votes.count("yes") > votes.count("no")
            assert ruled in (None, "confirm")
        assert ("model " + NAME, ROLES) in [(label, tuple(seats)) for label, seats in decision.shared]
    assert any(decision.final for decision in found)
