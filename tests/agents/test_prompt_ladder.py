"""The ladder of rules 2.4: its steps in their order, each once, what they are asked, and what they came to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.agents.prompting.prompt import Overrun, Prompt
from council.agents.prompting.shorten import TEMPLATE_TOKENS, Field, Step, fresh_nonce, shorten
from council.agents.prompting.summary import MARK
from council.agents.prompting.texts import load_texts
from council.agents.prompting.tokens import ESTIMATE, TokenCounter
from council.protocol.errors import EnvelopeError, OperatorError, TokenBudgetError
from tests.agents.writings import TEXTS
from tests.examples import tried

GPT = TokenCounter("gpt-4o", "o200k_base")
QWEN = TokenCounter("qwen3", "qwen3")
TORN = "one_sentence_without_end " * 500


def field(text: str, count: Any = GPT) -> Field:
    return Field("cafe4321", "feed0123feed0123", "history", text, count)


class Models:
    """Lite and Prime, who say what they are told to, and remember what they were asked."""

    def __init__(self, *said: str | Exception, count: Any = GPT, mtu: int = 100_000) -> None:
        self.said, self.count, self.mtu = list(said), count, mtu
        self.asked: list[tuple[str, Prompt]] = []

    def steps(self) -> list[Step]:
        return [self.step("lite"), self.step("prime")]

    def step(self, how: Any) -> Step:
        async def ask(prompt: Prompt, until_s: float) -> str:
            self.asked.append((how, prompt))
            said = self.said.pop(0)
            if isinstance(said, Exception):
                raise said
            return said

        return Step(how, ask, self.count, self.mtu)


def climb(
    text: str, limit: int, steps: Sequence[Step] = (), count: Any = GPT
) -> tuple[str, tuple[Overrun, ...]]:
    return asyncio.run(
        shorten(
            field(text, count),
            limit,
            texts=load_texts(),
            steps=steps,
            new_nonce=lambda: "5f3a9c17e2b80000",
            way="tf-idf",
        )
    )


def test_where_a_sentence_fits_no_model_is_asked() -> None:
    models = Models()
    text = " ".join(f"Step {at} moved table number {at * 7}." for at in range(200))
    short, taken = climb(text, 100, models.steps())
    assert models.asked == []
    assert taken == (Overrun("cafe4321", "history", 100, GPT(text), GPT(short), "local tf-idf"),)
    assert short.startswith(f"{MARK}\n")
    assert GPT(short) <= 100


def test_lite_is_asked_with_the_compressor_prompt() -> None:
    models = Models("  It has no end.\n")
    short, taken = climb(TORN, 100, models.steps())
    assert short == f"{MARK}\nIt has no end."
    ((how, request),) = models.asked
    target = 100 - GPT(f"{MARK}\n")
    (message,) = request.messages
    assert how == "lite"
    assert message.text.startswith("You are GAIA-Compressor. Rewrite the following section in ≤ ")
    assert f"≤ {target} tokens" in message.text
    assert message.text.endswith(f"START>> 5f3a9c17e2b80000\n{TORN}\n<<END 5f3a9c17e2b80000")
    assert request.tokens == GPT(message.text) + TEMPLATE_TOKENS
    assert (request.proposal_id, request.output_tokens_max) == ("feed0123feed0123", 2 * target)
    whole = GPT(TORN)
    assert taken == (
        Overrun("cafe4321", "history", 100, whole, whole, "local tf-idf"),
        Overrun("cafe4321", "history", 100, whole, GPT(short), "lite"),
    )


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("long " * 300, "what it wrote has 304 tokens"),
        (" \n", "it wrote nothing"),
        ("a\0b", "what it wrote holds a NUL character, which databases refuse; remove it"),
        (OperatorError("the server is down"), "'the server is down'"),
    ],
)
def test_where_lite_is_of_no_help_prime_is_asked_once(said: str | Exception, why: str) -> None:
    models = Models(said, "Short.")
    short, taken = climb(TORN, 100, models.steps())
    assert short == f"{MARK}\nShort."
    assert [how for how, _ in models.asked] == ["lite", "prime"]
    assert [one.how for one in taken] == ["local tf-idf", f"lite, in vain: {why}", "prime"]
    assert [one.after for one in taken] == [GPT(TORN), GPT(TORN), GPT(short)]


def test_an_error_of_ours_is_not_taken_for_a_step_in_vain() -> None:
    with pytest.raises(ZeroDivisionError):
        climb(TORN, 100, Models(ZeroDivisionError()).steps())


def test_where_no_step_helps_the_error_tells_the_figures_and_all_steps() -> None:
    models = Models("long " * 300, "long " * 300)
    with pytest.raises(TokenBudgetError, match="nor lite nor prime brought it within") as refused:
        climb(TORN, 100, models.steps())
    error = refused.value
    assert (error.field, error.limit, error.found) == ("history", 100, GPT(TORN))
    assert [one.how.partition(",")[0] for one in error.overruns] == ["local tf-idf", "lite", "prime"]
    assert len(models.asked) == 2


def test_without_models_the_local_step_is_the_last() -> None:
    with pytest.raises(TokenBudgetError, match="nor a model, for there is none, brought"):
        climb(TORN, 100)


def test_the_mark_counts() -> None:
    """What fits without it does not: a model that uses its limit up to the last token gains nothing."""
    models = Models("x " * 120, "x " * 90)
    room = GPT(f"{MARK}\n{('x ' * 120).strip()}") - 1
    short, _ = climb(TORN, room, models.steps())
    assert short == f"{MARK}\n{('x ' * 90).strip()}"


def test_a_model_is_never_given_more_than_it_can_read() -> None:
    models = Models(mtu=GPT(TORN))
    with pytest.raises(TokenBudgetError) as refused:
        climb(TORN, 100, models.steps())
    assert models.asked == []
    assert all("it would have to read" in one.how for one in refused.value.overruns[1:])


def test_no_model_is_asked_for_a_handful_of_tokens() -> None:
    models = Models()
    with pytest.raises(TokenBudgetError):
        climb(TORN, 30, models.steps())
    assert models.asked == []


@settings(max_examples=tried(60))
@given(
    st.builds(lambda text, times: text.replace("\0", "") * times, TEXTS, st.integers(1, 20)),
    st.integers(0, 300),
    st.sampled_from([GPT, QWEN, TokenCounter("m", "llama2"), TokenCounter("m", ESTIMATE)]),
    st.lists(TEXTS, min_size=2, max_size=2),
    st.integers(300, 2000),
)
def test_whatever_it_is_it_fits_or_is_refused(
    text: str, limit: int, count: Any, said: list[str], mtu: int
) -> None:
    if count(text) <= limit:
        return
    models = Models(*said, count=QWEN, mtu=mtu)
    try:
        found: Any = climb(text, limit, models.steps(), count)
    except TokenBudgetError as error:
        found = error
    if isinstance(found, TokenBudgetError):
        assert len(found.overruns) == 3
    else:
        short, taken = found
        assert short.startswith(f"{MARK}\n")
        assert count(short) == taken[-1].after <= limit
    assert [how for how, _ in models.asked] in ([], ["lite"], ["lite", "prime"])
    for _, request in models.asked:
        assert request.tokens == sum(QWEN(one.text) for one in request.messages) + TEMPLATE_TOKENS <= mtu


def test_a_nonce_is_one_that_the_text_does_not_hold() -> None:
    made = iter(["a" * 16, "b" * 16, "no hex", "c" * 16])
    assert fresh_nonce(lambda: next(made), f"{'a' * 16} {'B' * 16}") == "c" * 16
    with pytest.raises(EnvelopeError, match="nonce"):
        fresh_nonce(lambda: "a" * 16, "a" * 16)
