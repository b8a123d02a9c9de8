"""A server that drops the beginning of a prompt and says nothing: its answer is no ballot."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from council.agents.llm.endpoint import Endpoint
from council.agents.mind import Case, Opinion
from council.agents.model import ModelMind
from council.agents.prompting.builder import PromptBuilder
from council.agents.prompting.tokens import ESTIMATE, TokenCounter
from council.protocol.errors import ModelError
from tests.models.minds import CASE, Account
from tests.models.stub import Entry, Stub, ballot, says, used

GPT = TokenCounter("gpt-4o", "o200k_base")


def reviewed(entry: Entry, purse: Account, *, count: Any = GPT, case: Case = CASE) -> Opinion:
    with Stub({"small": [entry]}) as stub:
        builder = PromptBuilder("lite", count=count, mtu=8_192)
        mind = ModelMind(Endpoint(model="small", base_url=stub.base_url), builder, stages="one")
        mind.set_budget(purse)
        return asyncio.run(mind.review(replace(case, body="word " * 2_000)))


def sent(count: Any = GPT) -> int:
    prompt = asyncio.run(
        PromptBuilder("lite", count=count, mtu=8_192).ballot(replace(CASE, body="word " * 2_000))
    )
    return sum(count(message.text) for message in prompt.messages)


def test_an_answer_to_less_than_half_of_the_prompt_is_lost_and_says_what_to_raise() -> None:
    """Mutation: Ollama drops who the seat is and how to answer, and what it makes of the rest is a ballot."""
    purse, read = Account(), sent() // 2 - 20  # nonces take some tokens more or less
    with pytest.raises(ModelError) as caught:
        reviewed(says(ballot(), usage=used(read, 50)), purse)
    told = str(caught.value)
    assert "the server cut the prompt: it read" in told
    assert "num_ctx or OLLAMA_CONTEXT_LENGTH in Ollama, --ctx-size in llama.cpp" in told
    # It is not asked again, and paid for by what it used.
    assert [cost and cost.tokens for cost in purse.costs] == [read + 50]


def test_what_read_more_may_count_a_little_otherwise() -> None:
    assert reviewed(says(ballot("no"), usage=used(sent() // 2 + 20, 50)), Account()).vote == "no"


def test_where_nobody_knows_the_vocabulary_or_the_usage_nothing_is_concluded() -> None:
    """Mutation: an estimate, on the high side, takes an honest server for one that cuts."""
    guessed = TokenCounter("small", ESTIMATE)
    assert reviewed(says(ballot("no"), usage=used(100, 50)), Account(), count=guessed).vote == "no"
    assert reviewed(says(ballot("no"), usage="none"), Account()).vote == "no"
    assert reviewed(says(ballot("no"), usage=used(0, 50)), Account()).vote == "no"
