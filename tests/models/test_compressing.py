"""The ladder's models (rules 2.4): Lite, then Prime, asked at their own servers and paid from the asker's purse."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from council import Council, Decision
from council.agents.llm.compress import Compressor
from council.agents.llm.endpoint import Endpoint
from council.agents.mind import Case
from council.agents.model import ModelMind
from council.agents.prompting.builder import PromptBuilder
from council.agents.prompting.prompt import Message, Prompt
from council.agents.prompting.tokens import TokenCounter
from council.config.load import build_mind
from council.config.settings import CouncilConfig, SeatConfig
from council.protocol.errors import CallDenied, MindError, ModelError
from tests.models.minds import CASE, Account, as_silence_passes
from tests.models.stub import Call, Entry, Stub, ballot, hangs, plan, refuse, ruling, says, used
from tests.patience import HANG_S

KEYS = {"PRIMES_KEY": "sk-prime-0123456789", "LITES_KEY": "sk-lite-0123456789"}
READ = used(1_500, 20)  # as a server tells it that read all of a prompt
TORN = "one_sentence_without_end " * 400  # no sentence of it can be left out


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


def request(output_tokens_max: int = 100, sent: int = 0) -> Prompt:
    shown = (Message("user", "Write it shorter: …"),)
    return Prompt("compress", "00" * 8, shown, {}, 50, sent=sent, output_tokens_max=output_tokens_max)


def soon() -> float:
    return asyncio.get_running_loop().time() + HANG_S


def asked(stub: Stub, purse: Account, wanted: Prompt | None = None, **more: Any) -> str:
    """What a model on the stub made of a text."""

    async def ask() -> str:
        compressor = Compressor(Endpoint(model="small", base_url=stub.base_url, **more))
        compressor.set_budget(purse)
        return await compressor(wanted or request(), soon())

    return asyncio.run(ask())


# One step's model


def test_it_is_asked_for_text_within_the_limit_and_paid_for() -> None:
    purse = Account()
    with Stub({"small": [says("Shorter.")]}) as stub:
        assert asked(stub, purse, max_output_tokens=500, answer_format="json_schema") == "Shorter."
        body = stub.requests[0].body
    assert body["max_tokens"] == 100
    assert "response_format" not in body
    ((proposal_id, task, model, worst),) = purse.reserved.values()
    assert (proposal_id, task, model, worst.tokens) == ("00" * 8, "compress", "small", 150)
    assert [cost.tokens for cost in purse.costs if cost] == [120]


def test_its_own_limit_may_be_lower() -> None:
    with Stub({"small": [says("Shorter.")]}) as stub:
        asked(stub, Account(), max_output_tokens=64)
        assert stub.requests[0].body["max_tokens"] == 64


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (says("Shorter, but", finish="length"), "it stopped for 'length'"),
        (says("", refusal="I can't help with that"), "the model refused"),
        (refuse(401, "no"), "it wants a key (401)"),
        (refuse(400, "maximum context length is 5"), "too long for it"),
    ],
)
def test_what_is_torn_refused_or_not_said_is_an_error_that_leads_to_the_next_step(
    entry: Entry, why: str
) -> None:
    """Mutation: the beginning of a summary is taken for the summary."""
    with Stub({"small": [entry]}) as stub, pytest.raises(ModelError) as caught:
        asked(stub, purse := Account())
    assert why in str(caught.value)
    assert len(purse.costs) == 1


def test_a_server_that_cut_the_prompt_has_shortened_its_tail_alone() -> None:
    """Mutation: what Ollama made of the last 200 of 3,000 tokens stands for the whole."""
    read = used(200, 5)
    with (
        Stub({"small": [says("Tail.", usage=read)]}) as stub,
        pytest.raises(ModelError, match="cut the prompt"),
    ):
        asked(stub, Account(), request(sent=3_000))
    with Stub({"small": [says("Whole.", usage=used(2_900, 5))]}) as stub:
        assert asked(stub, Account(), request(sent=3_000)) == "Whole."


def test_what_a_server_does_not_understand_it_is_asked_once_with() -> None:
    """Mutation: new calls for each text, and each is refused first, and reads the certificates anew."""
    refused = refuse(400, "use max_completion_tokens instead of max_tokens")
    with Stub({"small": [refused, says("Short."), says("Shorter.")]}) as stub:

        async def twice() -> list[str]:
            compressor = Compressor(Endpoint(model="small", base_url=stub.base_url))
            compressor.set_budget(Account())
            return [await compressor(request(most), soon()) for most in (100, 40)]

        assert asyncio.run(twice()) == ["Short.", "Shorter."]
        bodies = [call.body for call in stub.requests]
    assert [body.get("max_tokens") for body in bodies] == [100, None, None]
    assert [body.get("max_completion_tokens") for body in bodies] == [None, 100, 40]


def test_it_is_given_up_in_time_and_settled() -> None:
    async def ask(stub: Stub, purse: Account) -> None:
        compressor = Compressor(Endpoint(model="small", base_url=stub.base_url))
        compressor.set_budget(purse)
        await compressor(request(), asyncio.get_running_loop().time() + 0.2)

    purse = Account()
    with Stub({"small": [hangs("Short")]}) as stub, pytest.raises(ModelError, match="did not answer in time"):
        as_silence_passes(ask(stub, purse), stub, purse)
    assert purse.costs == [None]


def test_thoughts_are_no_summary_and_words_of_templates_are_broken_up() -> None:
    with Stub({"small": [says("<think>Hm.</think>\nIt <|im_end|> stops.")]}) as stub:
        assert asked(stub, Account()).strip() == "It < |im_end|> stops."


def test_it_asks_nothing_without_a_purse_and_travels_without_one() -> None:
    with Stub({"small": [says("Shorter.")]}) as stub:
        compressor = Compressor(Endpoint(model="small", base_url=stub.base_url))
        compressor.set_budget(Account())
        twin = pickle.loads(pickle.dumps(compressor))
        assert twin.endpoint == compressor.endpoint
        with pytest.raises(MindError, match="no budget"):
            asyncio.run(twin(request(), 2.0**40))
        assert stub.requests == []


def test_what_does_not_fit_the_purse_is_not_asked() -> None:
    with Stub({"small": [says("Shorter.")]}) as stub:
        with pytest.raises(CallDenied):
            asked(stub, Account(tokens=149))
        assert stub.requests == []


def test_behind_a_plan_a_prompt_is_made_in_the_time_that_is_left() -> None:
    """Mutation: the ballot's ladder may take half of the case's whole time, and no ballot comes in it."""
    times: list[float] = []

    class Timed(PromptBuilder):
        async def ballot(self, case: Case, plan: str | None = None) -> Prompt:
            times.append(case.time_left_s)
            return await super().ballot(case, plan)

    async def late(call: Call) -> None:
        await asyncio.sleep(0.3)
        await says(plan(), usage=READ)(call)

    with Stub({"small": [late, says(ballot(), usage=READ)]}) as stub:
        mind = ModelMind(
            Endpoint(model="small", base_url=stub.base_url),
            Timed("lite", count=TokenCounter("gpt-4o", "o200k_base"), mtu=8_192),
            stages="two",
        )
        mind.set_budget(Account())
        asyncio.run(mind.review(CASE))
    assert times
    assert times[0] <= HANG_S - 0.3


# Which steps a seat has


def steps(*seats: SeatConfig, seat: str, prime: str = "prime") -> list[tuple[str, str, int]]:
    config = CouncilConfig(seats=seats, prime=prime)
    own = next(each for each in seats if each.name == seat)
    mind: Any = build_mind(own, config)
    return [(step.how, step.ask.endpoint.model, step.mtu) for step in mind.prompter.common.steps]


def backed(name: str, model: str, url: str = "http://127.0.0.1:1/v1", **more: Any) -> SeatConfig:
    return SeatConfig(name=name, model=model, base_url=url, role="lite", **more)


STATIC = SeatConfig(name="codemind", mind="council.agents.codemind:CodeMind")


def test_lite_then_prime_where_models_are_behind_them() -> None:
    seats = (backed("prime", "big", max_context_tokens=9_000), backed("lite", "small"), backed("third", "m"))
    wanted = [("lite", "small", 4_096), ("prime", "big", 9_000)]
    assert [steps(*seats, seat=each.name) for each in seats] == [wanted] * 3
    assert steps(seats[0], STATIC, seat="prime") == [("prime", "big", 9_000)]
    chaired = (backed("chair", "big"), backed("lite", "small"))
    assert steps(*chaired, seat="lite", prime="chair") == [("lite", "small", 4_096), ("prime", "big", 4_096)]


def test_one_model_behind_both_is_asked_once() -> None:
    """Mutation: a seat asks the same model twice under two names."""
    both = (backed("prime", "m"), backed("lite", "m"))
    assert steps(*both, seat="prime") == [("lite", "m", 4_096)]
    elsewhere = (backed("prime", "m"), backed("lite", "m", "http://127.0.0.1:2/v1"))
    assert len(steps(*elsewhere, seat="prime")) == 2
    assert steps(backed("lite", "m"), backed("third", "m"), seat="third", prime="lite") == [
        ("lite", "m", 4_096)
    ]


def test_a_counter_that_is_not_here_costs_its_step_alone(tmp_path: Any) -> None:
    seats = (
        backed("prime", "big"),
        backed("lite", "small", tokenizer=str(tmp_path / "gone" / "tokenizer.json")),
    )
    assert [how for how, _, _ in steps(*seats, seat="prime")] == ["prime"]


# A council


def ruled(lite: Entry, prime: list[Entry], **more: Any) -> tuple[Decision, list[Any], Stub, Stub]:
    """A decision for which Prime rules, shown a reason that is far too long for its prompt; lite and prime on servers
    with keys of their own."""
    answer = says(ballot("no", TORN, risk_level="high"), usage=used(1_500, 2_000))
    scripts = {"lite": [answer, lite]}
    first, second = (
        Stub(scripts, key=KEYS["LITES_KEY"]),
        Stub({"prime": [says(ballot("yes"), usage=READ), *prime]}, key=KEYS["PRIMES_KEY"]),
    )
    with first, second:
        seats: dict[str, Any] = {
            "lite": {"model": "lite", "base_url": first.base_url, "api_key_env": "LITES_KEY"},
            "prime": {
                "model": "prime",
                "base_url": second.base_url,
                "api_key_env": "PRIMES_KEY",
                "max_context_tokens": 1_900,
            },
        }
        for each in seats.values():
            each |= {"tokenizer": "o200k_base", "max_output_tokens": 4_000, "stages": "one"}
        with Council.inline(seats={**seats, "codemind": {"enabled": False}}, **more) as running:
            decision = running.propose("Delete the old index", wait_for="all", timeout_s=HANG_S)
            kept = list(running.history(types=["call", "fault"], newest_first=False))
        return decision, kept, first, second


@pytest.mark.usefixtures("keys")
def test_what_is_too_long_for_primes_ruling_lite_shortens_and_prime_pays() -> None:
    """Mutation: Lite's own purse pays, its key goes to Prime's server, or the step is in no journal."""
    decision, kept, first, second = ruled(
        says("It is read at night.", usage=READ), [says(ruling("reject"), usage=READ)]
    )
    assert decision.outcome == "rejected"
    tasks = [(entry.who, entry.data["call"]["task"], entry.data["call"]["model"]) for entry in kept]
    assert sorted(tasks[:2]) == [("lite", "ballot", "lite"), ("prime", "ballot", "prime")]
    assert tasks[2:] == [("prime", "compress", "lite"), ("prime", "ruling", "prime")]
    shown = second.requests[-1].body["messages"][-1]["content"]
    assert "⚠SUMMARY\\nIt is read at night." in shown
    assert "one_sentence_without_end" not in shown
    (overruns,) = [entry.data["overruns"] for entry in kept if entry.data["overruns"]]
    assert [(one["field"], one["how"]) for one in overruns] == [
        ("ballots.lite.reason", "local tf-idf"),
        ("ballots.lite.reason", "lite"),
    ]
    # What Lite is asked with is the text, in a fence, and it is asked with its own key.
    assert TORN[:1_000].strip() in first.requests[1].body["messages"][-1]["content"]
    assert {call.headers["authorization"] for call in first.requests} == {f"Bearer {KEYS['LITES_KEY']}"}
    assert {call.headers["authorization"] for call in second.requests} == {f"Bearer {KEYS['PRIMES_KEY']}"}
    spent = {each.seat: each.calls for each in decision.spent}
    assert spent == {"lite": 1, "prime": 3}


@pytest.mark.usefixtures("keys")
def test_where_lite_fails_prime_is_asked_once_and_both_steps_are_on_the_record() -> None:
    decision, kept, _, second = ruled(
        refuse(404, "no such model"), [says("At night.", usage=READ), says(ruling("confirm"), usage=READ)]
    )
    assert decision.ruling is not None
    assert decision.ruling.ruling == "confirm"
    tasks = [(entry.data["call"]["task"], entry.data["call"]["model"]) for entry in kept[2:]]
    assert tasks == [("compress", "lite"), ("compress", "prime"), ("ruling", "prime")]
    hows = [one["how"] for one in kept[-1].data["overruns"]]
    assert hows[0] == "local tf-idf"
    assert "lite, in vain: " in hows[1]
    assert "does not know the model" in hows[1]
    assert hows[2] == "prime"
    assert "At night." in second.requests[-1].body["messages"][-1]["content"]
