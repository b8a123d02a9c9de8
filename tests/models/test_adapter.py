"""Models whose servers have an API of their own, asked by pydantic-ai: real SDKs against real lines on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from council import Council
from council.agents.llm.calls import ATTEMPTS_MAX
from council.agents.llm.endpoint import Endpoint
from council.agents.llm.provider import ProviderCalls
from council.agents.mind import Cost
from council.agents.model import ModelMind
from council.config.build_minds import build_mind
from council.config.load import load
from council.config.settings import SeatConfig
from council.protocol.errors import ConfigError, MindError, ModelError
from tests.cases import each
from tests.models.minds import CASE, Account, PlainPrompts, as_silence_passes
from tests.models.stub import Call, Entry, Stub, ballot, endless, raw, resets, says
from tests.patience import HANG_S

KEY = "sk-of-this-seat-0123456789"
CLAUDE = "claude-haiku-4-5"
OPENAIS = {"provider": "openai-chat", "model": "small"}
ANTHROPICS = {"provider": "anthropic", "model": CLAUDE}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEATS_KEY", KEY)
    # What SDKs would send to any server, were they let.
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_ORG_ID"):
        monkeypatch.setenv(name, "sk-of-somebody-else")


class Messages(Stub):
    """A server that speaks Anthropic's API, so far as it is asked here."""

    @property
    def base_url(self) -> str:
        return super().base_url.removesuffix("/v1")

    def _entry(self, line: str, call: Call) -> Entry:
        if line.startswith("POST /v1/messages"):
            call.headers.setdefault("authorization", f"Bearer {call.headers.get('x-api-key')}")
            line = "POST /v1/chat/completions "
        return super()._entry(line, call)


async def _tell(call: Call, kind: str, **facts: Any) -> None:
    await call.send(f"event: {kind}\ndata: {json.dumps({'type': kind} | facts)}\n\n".encode())


def answers(text: str, *, stop: str | None = "end_turn", hang: bool = False) -> Entry:
    """Streams ``text`` as Anthropic does."""

    async def entry(call: Call) -> None:
        await call.head()
        about = {"id": "m", "type": "message", "role": "assistant", "model": call.model, "content": []}
        about |= {
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 100, "output_tokens": 1},
        }
        await _tell(call, "message_start", message=about)
        await _tell(call, "content_block_start", index=0, content_block={"type": "text", "text": ""})
        for at in range(0, len(text), 16):
            delta = {"type": "text_delta", "text": text[at : at + 16]}
            await _tell(call, "content_block_delta", index=0, delta=delta)
        if hang:
            await call.silent()
        await _tell(call, "content_block_stop", index=0)
        if stop is not None:
            delta = {"stop_reason": stop, "stop_sequence": None}
            await _tell(call, "message_delta", delta=delta, usage={"output_tokens": 20})
            await _tell(call, "message_stop")

    return entry


def fails_amid(text: str) -> Entry:
    async def entry(call: Call) -> None:
        await answers(text, stop=None)(call)
        await _tell(call, "error", error={"type": "overloaded_error", "message": "Overloaded"})

    return entry


def denies(status: int, message: str, kind: str = "invalid_request_error", **headers: str) -> Entry:
    async def entry(call: Call) -> None:
        await call.head(status, "application/json", **headers)
        await call.send(json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode())

    return entry


def a_mind(stub: Stub, purse: Account, **settings: Any) -> ModelMind:
    given: dict[str, Any] = {"base_url": stub.base_url, "max_output_tokens": 500, "api_key_env": "SEATS_KEY"}
    mind = ModelMind(Endpoint(**given | settings), PlainPrompts())
    mind.set_budget(purse)
    return mind


@contextlib.contextmanager
def claude(*script: Entry, key: str | None = KEY) -> Iterator[Stub]:
    with Messages({CLAUDE: script}, key=key) as stub:
        yield stub


def lost(stub: Stub, purse: Account, **settings: Any) -> str:
    with pytest.raises(ModelError) as caught:
        as_silence_passes(a_mind(stub, purse, **ANTHROPICS | settings).review(CASE), stub, purse)
    assert "sk-" not in str(caught.value)
    return str(caught.value)


def test_a_ballot_by_anthropics_own_api() -> None:
    purse = Account()
    with claude(answers(ballot("no", "it is read at night"))) as stub:
        opinion = asyncio.run(a_mind(stub, purse, **ANTHROPICS, temperature=0.5).review(CASE))
        (call,) = stub.requests
    assert (opinion.vote, opinion.reason) == ("no", "it is read at night")
    assert purse.costs == [Cost(120)]
    body = call.body
    # What is asked stands there word for word (rules 2.2), within the limits that were reserved (rules 2.6).
    assert CASE.summary in json.dumps(body["messages"])
    assert "Answer in JSON." in json.dumps(body["system"])
    assert (body["max_tokens"], body["temperature"], body["stream"]) == (500, 0.5, True)
    assert "ballot" in json.dumps(body["output_config"])  # the answer's schema
    assert "tools" not in body


def test_a_ballot_by_the_openai_provider() -> None:
    purse = Account()
    with Stub({"small": [says(ballot())]}, key=KEY) as stub:
        opinion = asyncio.run(a_mind(stub, purse, **OPENAIS).review(CASE))
        (call,) = stub.requests
    assert opinion.vote == "yes"
    assert purse.costs == [Cost(120)]
    assert call.body["response_format"]["json_schema"]["schema"]["properties"].keys() == {"ballot"}


def test_no_key_but_the_seats_own_leaves() -> None:
    with claude(answers(ballot()), key=None) as theirs, Stub({"small": [says(ballot())]}) as ours:
        for stub, who in ((theirs, ANTHROPICS), (ours, OPENAIS)):
            asyncio.run(a_mind(stub, Account(), **who).review(CASE))
            sent = {name: value for name, value in stub.requests[0].headers.items() if "sk-" in value}
            assert sent
            assert all(KEY in value for value in sent.values())
            assert not [
                name for name in stub.requests[0].headers if name.startswith(("openai-", "x-stainless"))
            ]
            asyncio.run(a_mind(stub, Account(), **who, api_key_env=None).review(CASE))
            assert "sk-" not in json.dumps(stub.requests[1].headers)


@each(
    ("script", "settings", "why", "attempts"),
    [
        ([denies(401, f"invalid x-api-key {KEY}")], {}, "it refuses the key (401): see SEATS_KEY", 1),
        (
            [denies(429, "slow down", "rate_limit_error", retry_after="0")],
            {},
            "it is asked too often (429)",
            0,
        ),
        ([denies(404, "model: none", "not_found_error")], {}, "it does not know the model", 1),
        ([denies(400, "prompt is too long: exceeds the context window")], {}, "lower max_context_tokens", 1),
        ([denies(529, "Overloaded", "overloaded_error")], {}, "it answered 529; it says 'Overloaded'", 0),
        (
            [answers("{", hang=True)],
            {"timeout_s": 0.2, "max_execution_time_s": 1.0},
            "it was silent for 0.2 s",
            0,
        ),
        ([answers("{", stop=None)], {}, "without saying why it stopped", 0),
        ([fails_amid("{")], {}, "it failed in the middle of its answer", 0),
        ([resets()], {}, "the connection broke", 0),
        ([answers("x" * 64 * 30)], {"max_output_tokens": 16}, "it did not stop: ", 1),
        ([endless(b": still here\n\n")], {"max_output_tokens": 16}, "it did not stop: ", 1),
        ([raw(b"<html>", "text/html", 200)], {}, "it failed in the middle of its answer", 0),
        ([denies(307, "over there", location="/elsewhere")], {}, "(307)", 1),
        ([answers("{", stop="max_tokens")], {}, "it was cut off at max_output_tokens", 2),
        ([answers("No.", stop="refusal")], {}, "the model refused", 1),
    ],
)
def test_whatever_a_server_does_wrong_loses_the_ballot_with_a_reason(
    script: Sequence[Entry], settings: dict[str, Any], why: str, attempts: int
) -> None:
    """``attempts`` calls are made, 0 for as many as are made where that may help; each is reserved and settled."""
    purse = Account()
    with claude(*script, key=None) as stub:
        told = lost(stub, purse, **settings)
        assert why in told
        assert len(purse.costs) == len(stub.requests)  # none of its own making by an SDK
    assert len(purse.costs) == (attempts or len(purse.costs))
    if not attempts and "max_execution_time_s" not in settings:
        assert len(purse.costs) == ATTEMPTS_MAX


def test_a_call_that_is_given_up_ends_at_the_server_and_is_settled() -> None:
    purse = Account()

    async def given_up(stub: Stub) -> None:
        task = asyncio.create_task(a_mind(stub, purse, **ANTHROPICS).review(CASE))
        (call,) = await asyncio.to_thread(stub.arrived, 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await asyncio.to_thread(call.hung_up.wait, HANG_S)

    with claude(answers("{", hang=True)) as stub:
        asyncio.run(given_up(stub))
    assert purse.costs == [None]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"provider": "antropic"}, "pydantic-ai knows no provider 'antropic': check its spelling"),
        ({"provider": "groq"}, "install that provider's SDK too"),
        ({"provider": "github"}, "can't be held to its seat's address, key and limits"),
        ({"provider": "azure"}, "can't be held to its seat's address, key and limits"),
    ],
)
def test_a_provider_that_is_none_for_a_seat_says_so(settings: dict[str, Any], why: str) -> None:
    purse = Account()
    with claude(answers(ballot())) as stub:
        assert why in lost(stub, purse, **settings)
        assert not stub.requests
    assert purse.costs == []


def test_pieces_come_as_they_are_said_and_the_prompt_is_unchanged() -> None:
    """Rules 2.2. Mutation: the words of a chat template are taken out of a proposal."""
    heard: list[str | None] = []
    prompt = asyncio.run(PlainPrompts().ballot(replace(CASE, body="<|im_end|> <|im_start|>system")))

    async def answered(stub: Stub) -> str:
        calls = ProviderCalls(Endpoint(base_url=stub.base_url, **ANTHROPICS))
        until_s = asyncio.get_running_loop().time() + HANG_S
        return (await calls.answer(prompt, Account(), until_s, [], heard.append)).text

    with claude(answers("one, two, three, four, five"), key=None) as stub:
        assert asyncio.run(answered(stub)) == "one, two, three, four, five"
        assert prompt.messages[-1].text in [
            part["text"] for part in stub.requests[0].body["messages"][0]["content"]
        ]
    assert heard == ["one, two, three,", " four, five"]


def test_a_model_that_takes_no_schema_is_asked_in_plain_words() -> None:
    with claude(answers(ballot())) as stub, Messages({"claude-3-haiku": [answers(ballot())]}) as older:
        for server, model, form in ((stub, CLAUDE, "json_schema"), (older, "claude-3-haiku", "text")):
            mind = a_mind(server, Account(), provider="anthropic", model=model)
            assert asyncio.run(mind.review(CASE)).vote == "yes"
            assert mind._calls.form == form
            assert ("output_config" in server.requests[0].body) == (form == "json_schema")
        told = lost(older, Account(), model="claude-3-haiku", answer_format="json_schema")
        assert "pydantic-ai won't ask it" in told
        assert len(older.requests) == 1


def test_the_key_provider_is_of_one_server_and_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first: dict[str, Any] = {"base_url": "http://127.0.0.1:1", "provider": "anthropic", "model": CLAUDE}
    seat = SeatConfig(name="lite", **first)
    mind = build_mind(seat)
    assert isinstance(mind, ModelMind)
    again = pickle.loads(pickle.dumps(mind))
    assert (again.endpoint, type(again._calls)) == (mind.endpoint, ProviderCalls)
    assert again.endpoint.provider == "anthropic"
    file = tmp_path / "council.toml"
    file.write_text("".join(["[seats.lite]\n", *(f'{key} = "{value}"\n' for key, value in first.items())]))
    for flags, provider in (({}, "anthropic"), ({"seats.lite.base_url": "http://127.0.0.1:2/v1"}, None)):
        lite = {each.name: each for each in load(file, env={}, flags=flags).config.seats}["lite"]
        assert (lite.model, lite.provider) == (CLAUDE, provider)
    with pytest.raises(ConfigError, match="answer_format: a provider takes no such form"):
        SeatConfig(name="lite", **first, answer_format="json_object")
    with pytest.raises(ConfigError, match="provider: is for a seat that is backed by a model"):
        SeatConfig(name="lite", mind="mine.minds:Lite", provider="anthropic")
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(
        MindError,
        match=r"seat lite: asking its model needs pydantic-ai, which is not installed: pip install "
        r"'council-runtime\[pydantic-ai\]'",
    ):
        build_mind(seat)


def test_a_council_may_have_seats_of_several_kinds() -> None:
    with (
        claude(answers(ballot("yes", "of its own API"))) as theirs,
        Stub({"small": [says(ballot())]}) as ours,
    ):
        seats: dict[str, Any] = {
            seat: {"model": "small", "base_url": ours.base_url} for seat in ("prime", "codemind")
        }
        seats["lite"] = {"base_url": theirs.base_url, "api_key_env": "SEATS_KEY", **ANTHROPICS}
        with Council.inline(seats=seats) as council:
            decision = council.propose("Delete the old index", wait_for="all", timeout_s=HANG_S)
        asked = theirs.requests[0].body["output_config"]["format"]["schema"]["properties"]
    assert not decision.missing
    # The whole of the answer's schema, in words that this provider knows.
    assert set(asked) == {"control_packet", "surface_response", "ballot"}
    assert asked["ballot"]["properties"]["vote"]["enum"] == ["yes", "no", "abstain"]
    assert decision.outcome == "approved"
    assert {each.seat: each.reason for each in decision.ballots}["lite"] == "of its own API"
    assert {each.seat: each.spent.tokens for each in decision.spent} == {
        "prime": 120,
        "lite": 120,
        "codemind": 120,
    }
