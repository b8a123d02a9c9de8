"""Each thing that a server can do wrong, over real HTTP: a lost ballot with a report at worst, and always settled."""

from __future__ import annotations

import asyncio
import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Coroutine
from dataclasses import asdict, replace
from email.utils import formatdate
from typing import Any

import pytest

from council.agents.llm import calls
from council.agents.llm.endpoint import Endpoint
from council.agents.mind import Case, Cost, Opinion
from council.agents.model import ModelMind
from council.agents.prompting.prompt import Overrun, Prompt, Task
from council.protocol.errors import CallDenied, ConfigError, MindError, ModelError
from tests.cases import each
from tests.examples import at_first
from tests.models.minds import CASE, Account, PlainPrompts, as_silence_passes, mind_on
from tests.models.stub import (
    Entry,
    Stub,
    after,
    ballot,
    endless,
    hangs,
    raw,
    refuse,
    resets,
    says,
    used,
    without,
)
from tests.patience import HANG_S

WORST = Cost(700)  # the plain prompts' 200 tokens, and the output's 500
USED = Cost(120)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def reviewed(*script: Entry, **settings: Any) -> tuple[Opinion, Account, list[Any]]:
    """What a mind says whose server answers by ``script``, with its accounts and what the server was asked."""
    purse = Account()
    with Stub({"small": script}) as stub:
        opinion = as_silence_passes(mind_on(stub, purse, **settings).review(CASE), stub, purse)
        return opinion, purse, [call.body for call in stub.requests]


def lost(*script: Entry, time_left_s: float = HANG_S, **settings: Any) -> tuple[str, Account]:
    """Why there is no ballot, and the accounts."""
    purse, case = Account(), replace(CASE, time_left_s=time_left_s)
    with Stub({"small": script}) as stub, pytest.raises(ModelError) as caught:
        as_silence_passes(mind_on(stub, purse, **settings).review(case), stub, purse)
    assert str(caught.value).startswith("small at http://127.0.0.1:")
    return str(caught.value), purse


# What goes well


def test_a_streamed_answer_becomes_a_ballot_and_is_paid_for_by_its_usage() -> None:
    opinion, purse, (asked,) = reviewed(says(ballot(confidence=0.8)), temperature=0.2, top_p=0.9)
    assert (opinion.vote, opinion.reason, opinion.confidence) == ("yes", "it is sound", 0.8)
    assert purse.costs == [USED]
    assert purse.reserved == {"call0": (CASE.proposal_id, "ballot", "small", WORST)}
    assert asked["stream"] is True
    assert asked["stream_options"] == {"include_usage": True}
    assert (asked["model"], asked["max_tokens"], asked["temperature"], asked["top_p"]) == (
        "small",
        500,
        0.2,
        0.9,
    )
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert asked["response_format"]["type"] == "json_schema"
    assert asked["response_format"]["json_schema"]["schema"]["properties"] == {"ballot": {"type": "object"}}


def test_prices_are_exact_and_rounded_up() -> None:
    """Mutations: floats, in the price or the product; rounding to the nearest; the prices exchanged."""
    endpoint = Endpoint(
        model="m", base_url="http://x/v1", usd_per_million_input=0.15, usd_per_million_output=0.6
    )
    assert endpoint.cost(100, 10) == Cost(110, 21)
    assert endpoint.cost(1, 0) == Cost(1, 1)
    assert endpoint.cost(0, 0) == Cost(0, 0)
    whole = replace(endpoint, usd_per_million_input=1.1)
    assert whole.cost(10, 0) == Cost(10, 11)  # 1.1 * 10 is 11.000000000000002 in floats
    tiny = replace(endpoint, usd_per_million_input=1e-7)
    assert tiny.cost(1, 0) == Cost(1, 1)


def test_each_attempt_is_reserved_at_its_worst_in_money_too() -> None:
    prices = {"usd_per_million_input": 0.15, "usd_per_million_output": 0.6}
    _, purse, _ = reviewed(refuse(429, "slow"), says(ballot()), **prices)
    assert [worst for *_, worst in purse.reserved.values()] == [Cost(700, 330), Cost(700, 330)]
    assert purse.costs == [Cost(0), Cost(120, 27)]


def test_a_server_that_keeps_the_line_open_after_its_answer_is_not_waited_for() -> None:
    opinion, purse, _ = reviewed(says(ballot(), done=False, keeps_open=True), timeout_s=HANG_S * 3)
    assert (opinion.vote, purse.costs) == ("yes", [USED])


def test_an_answer_that_was_whole_counts_though_the_line_broke_behind_it() -> None:
    opinion, purse, _ = reviewed(says(ballot(), usage="none", done=False, keeps_open=True), timeout_s=0.6)
    assert (opinion.vote, purse.costs) == ("yes", [None])


def test_seats_reviews_share_a_client_and_no_connection_stays() -> None:
    async def several() -> list[Opinion]:
        mind = mind_on(stub, Account())
        opinions = await asyncio.gather(*(mind.review(CASE) for _ in range(3)))
        assert mind._calls._client is None
        return [*opinions, await mind.review(CASE)]

    with Stub({"small": [says(ballot(), keeps_open=True)]}) as stub:
        assert [opinion.vote for opinion in run(several())] == ["yes"] * 4
        assert all(call.hung_up.wait(HANG_S) for call in stub.requests)


def test_what_is_heard_whole_is_hung_up_on_though_others_still_talk() -> None:
    """Mutation: a stream that is no longer read is left to the garbage collector."""

    async def two() -> None:
        mind = mind_on(stub)
        other = asyncio.create_task(mind.review(CASE))
        await asyncio.to_thread(stub.arrived, 1)
        assert (await mind.review(CASE)).vote == "yes"
        assert await asyncio.to_thread(stub.requests[1].hung_up.wait, HANG_S)
        assert not stub.requests[0].hung_up.is_set()
        other.cancel()

    with Stub({"small": [hangs(), says(ballot(), keeps_open=True)]}) as stub:
        run(two())


def test_a_line_that_the_server_would_keep_is_not_kept() -> None:
    """Mutation: the client is left open behind its last call."""

    async def kept(call: Any) -> None:
        await call.send(b"HTTP/1.1 404 No\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
        await call.silent()

    async def asked() -> None:
        with pytest.raises(ModelError, match="404"):
            await mind_on(stub).review(CASE)
        assert await asyncio.to_thread(stub.requests[0].hung_up.wait, HANG_S)

    with Stub({"small": [kept]}) as stub:
        run(asked())


# What may be tried again


def test_retry_after_is_honoured_to_the_second(pauses: list[float]) -> None:
    _, purse, _ = reviewed(refuse(429, "slow down", retry_after="7"), says(ballot()))
    assert pauses == [7.0]
    assert purse.costs == [Cost(0), USED]


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5, 1.5),
        ({"retry_after": formatdate(usegmt=True)}, 0.0, 0.0),
        ({"retry_after": "-3"}, 0.0, 0.0),
        ({"retry_after": "soon"}, 0.25, 0.5),
        ({"retry_after": "nan"}, 0.25, 0.5),
    ],
)
def test_retry_after_is_read_in_all_its_forms(
    header: dict[str, str], least: float, most: float, pauses: list[float]
) -> None:
    reviewed(refuse(429, "slow down", **header), says(ballot()))
    assert least <= pauses[0] <= most


@pytest.mark.parametrize("wanted", ["3600", "inf"])
def test_a_server_that_wants_more_time_than_is_left_is_not_waited_for(
    wanted: str, pauses: list[float]
) -> None:
    why, purse = lost(refuse(429, "slow down", retry_after=wanted))
    assert "asked too often (429); it says 'slow down'" in why
    assert "s are left" in why
    assert (pauses, purse.costs) == ([], [Cost(0)])


def test_pauses_grow_and_attempts_end(pauses: list[float]) -> None:
    """Mutations: no end of attempts; the same pause each time."""
    why, purse = lost(refuse(500, "oh dear"))
    assert f"given up after {calls.ATTEMPTS_MAX} attempts" in why
    assert "it answered 500; it says 'oh dear'" in why
    assert purse.costs == [None] * calls.ATTEMPTS_MAX  # what broke may have cost what was reserved
    bounds = [(calls.PAUSE_S * 2**n / 2, calls.PAUSE_S * 2**n) for n in range(calls.ATTEMPTS_MAX - 1)]
    assert all(low <= pause <= high for pause, (low, high) in zip(pauses, bounds, strict=True))


@each(
    ("fault", "cost"),
    [
        (refuse(500, "oh dear"), None),
        (refuse(503, "loading model"), Cost(0)),
        (refuse(503, "come again", retry_after="0"), Cost(0)),
        (refuse(503, "upstream connect error or disconnect/reset before headers"), None),
        (refuse(529, "overloaded"), Cost(0)),
        (resets(), None),
        (resets('{"ball'), None),
        (raw(b'data: {"choices": [{"ind\n\n'), None),
        (raw(b'data: {"error": {"message": "out of memory"}}\n\n'), None),
        (raw(b'data: {"choices": [{"index": 0, "delta": {"content": "{"}}]}\n\n'), None),
        (says(ballot()[:30], finish=None), None),
        (raw(b"data: " + b'{"choices":' * 50_000 + b"\n\n"), None),
    ],
)
def test_what_breaks_is_tried_again_and_settled(fault: Entry, cost: Cost | None) -> None:
    opinion, purse, asked = reviewed(fault, says(ballot("no", "a fault")))
    assert len(purse.errors) == 1
    assert (opinion.vote, opinion.reason) == ("no", "a fault")
    assert purse.costs == [cost, USED]
    assert len(asked) == 2


def test_each_attempt_that_failed_is_settled_with_the_kind_of_its_error() -> None:
    _, purse, _ = reviewed(refuse(429, "slow"), resets(), refuse(500, "oh"), says(ballot()))
    assert purse.errors == ["429", "connection_error", "500"]
    _, purse, _ = reviewed(hangs("{"), says(ballot()), timeout_s=0.6)
    assert (purse.costs, purse.errors) == ([None, USED], ["timeout"])
    why, purse = lost(hangs("{"), max_execution_time_s=0.2)  # by the seat's clock, and not by the client's
    assert "it gave no answer within 0.2 s" in why
    assert purse.errors == ["timeout"]


def test_a_hang_ends_before_the_case_does_and_says_what_was_before() -> None:
    why, purse = lost(refuse(503, "loading", retry_after="0"), hangs("{"), time_left_s=1.5)
    assert "it gave no answer within 1.35 s; before that: it answered 503; it says 'loading'" in why
    assert purse.costs == [Cost(0), None]


@pytest.mark.parametrize(
    "fault",
    [
        refuse(500, "The model produced output that does not match the expected peg-native format"),
        raw(b'data: {"error": {"code": 500, "message": "Failed to parse input at pos 9: <|"}}\n\n'),
    ],
    ids=["status", "event"],
)
def test_an_answer_that_its_server_can_not_read_is_asked_for_once_more(fault: Entry) -> None:
    """Mutation: each of six attempts pays for a whole answer."""
    why, purse = lost(fault)
    assert "given up after 2 attempts" in why
    assert purse.costs == [None, None]


def test_no_server() -> None:
    """Mutation: a call that never left is settled as if it might have cost something."""
    with Stub({}) as stub:
        url = stub.base_url
    purse = Account()
    mind = ModelMind(Endpoint(model="small", base_url=url), PlainPrompts())
    mind.set_budget(purse)
    with pytest.raises(ModelError, match="can't be reached: is the server running, and its base_url right"):
        run(mind.review(CASE))
    assert purse.costs == [Cost(0)] * calls.ATTEMPTS_MAX


# What is of no use to try again


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            refuse(404, "no model `small`"),
            "does not know the model, or the path (404); it says 'no model `small`'",
        ),
        (
            refuse(400, "too long", code="context_length_exceeded"),
            "the prompt is too long for it (400): lower max_",
        ),
        (
            refuse(400, "the request exceeds the available context size"),
            "the prompt is too long for it (400)",
        ),
        (refuse(400, "maximum context length is 9; response_format counts"), "the prompt is too long for it"),
        (refuse(429, "You exceeded your current quota"), "its quota is used up (429)"),
        (refuse(400, "temperature must be 1"), "it answered 400; it says 'temperature must be 1'"),
        (refuse(403, "not yours"), "it wants a key (403): set api_key_env"),
        (refuse(301, "", location="http://127.0.0.1:9/"), "it sends elsewhere (301)"),
    ],
)
def test_a_refusal_is_told_at_once_and_costs_nothing(fault: Entry, said: str, pauses: list[float]) -> None:
    why, purse = lost(fault)
    assert said in why
    assert (pauses, purse.costs) == ([], [Cost(0)])


def test_a_page_in_place_of_a_stream_says_what_is_probably_wrong() -> None:
    why, purse = lost(raw(b"<html>Welcome</html>", "text/html"))
    assert "is its base_url right? It mostly ends in /v1" in why
    assert purse.costs == [None]


@pytest.mark.parametrize(
    "piece",
    at_first(
        2,
        b'data: {"choices": [{"index": 0, "delta": {"content": "%s"}}]}\n\n' % (b"more " * 500),
        b": keep-alive\n\n" * 500,
        b"x" * 65536,
        b'data: {"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]}\n\n' * 50,
    ),
    ids=["text", "comments", "a line", "thoughts"],
)
def test_endless_text_ends(piece: bytes) -> None:
    """Mutations: no limit on an answer's characters; none on what comes beside them."""
    why, purse = lost(endless(piece), max_output_tokens=16)
    assert "it did not stop" in why
    assert purse.costs == [None]


def test_endless_text_ends_with_the_tokens_asked_for() -> None:
    """Mutation: an answer's characters are not counted, only the bytes that come."""
    why, _ = lost(
        endless(b'data: {"choices": [{"index": 0, "delta": {"content": "more"}}]}\n\n'), max_output_tokens=16
    )
    assert f"it did not stop: {16 * calls.CHARS_A_TOKEN_MAX + 4:,} characters" in why


@pytest.mark.parametrize("status", [200, 500])
def test_an_endless_body_that_is_no_stream_ends(status: int) -> None:
    async def entry(call: Any) -> None:
        await call.head(status, "application/json")
        while not call.gone.is_set():
            await call.send(b" " * 65536)

    why, _ = lost(entry, max_output_tokens=16)
    assert "it did not stop" in why


# Usage


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (used(7, 3), Cost(10)),
        ("none", None),
        (
            {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 150},
            Cost(150),
        ),  # it thought in between
        ({"prompt_tokens": -5, "completion_tokens": 20, "total_tokens": 15}, None),
        ({"prompt_tokens": 100, "completion_tokens": 0, "total_tokens": 100}, None),
        ({"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101}, None),  # so much in one token
        ({"prompt_tokens": 0, "completion_tokens": 20, "total_tokens": 20}, None),
        ({"prompt_tokens": "100", "completion_tokens": 2.5, "total_tokens": None}, None),
        ({}, None),
        ([1, 2], None),
        (used(10**6, 10**6), Cost(2 * 10**6)),  # more than reserved: the council is told, and alerted
    ],
)
def test_usage_is_believed_where_it_can_be_true_and_unknown_otherwise(usage: Any, cost: Cost | None) -> None:
    _, purse, _ = reviewed(says(ballot(), usage=usage))
    assert purse.costs == [cost]


# What a server does not know


def test_what_a_server_does_not_know_is_found_out_once() -> None:
    """Mutation: the dialect is forgotten after the call."""
    old = without(
        "response_format",
        "This response_format type is unavailable now",
        without("response_format", "json_object: no", says(ballot()), in_form="json_object"),
        in_form="json_schema",
    )
    old = without("stream_options", "Unrecognized request argument supplied: stream_options", old)
    old = without("max_tokens", "'max_tokens' is not supported. Use 'max_completion_tokens' instead.", old)
    purse = Account()

    async def twice() -> None:
        mind = mind_on(stub, purse)
        for _ in range(2):
            assert (await mind.review(CASE)).vote == "yes"

    with Stub({"small": [old]}) as stub:
        run(twice())
        forms = [call.body.get("response_format", {}).get("type") for call in stub.requests]
        first, last = stub.requests[0].body, stub.requests[-1].body
    assert forms == ["json_schema"] * 3 + ["json_object", None, None]
    assert first["max_tokens"] == last["max_completion_tokens"] == 500
    assert "max_tokens" not in last
    assert "stream_options" not in last
    assert purse.costs == [Cost(0)] * 4 + [None] * 2


@pytest.mark.parametrize("words", ["no grammar of English", "'input': 'your response_format: …'"])
def test_a_refusal_that_holds_the_words_of_a_form_takes_none_away(words: str) -> None:
    """Mutation: one error that quotes a prompt, or names a model so, and no later answer is held to the schema."""
    purse = Account()

    async def twice() -> None:
        mind = mind_on(stub, purse)
        with pytest.raises(ModelError, match="422"):
            await mind.review(CASE)
        assert (await mind.review(CASE)).vote == "yes"

    with Stub({"small": [*[refuse(422, words)] * 3, says(ballot())]}) as stub:
        run(twice())
        assert stub.requests[-1].body["response_format"]["type"] == "json_schema"
    assert purse.costs == [Cost(0)] * 3 + [USED]


def test_a_form_that_was_asked_for_is_never_left_out() -> None:
    why, purse = lost(
        without("response_format", "json_schema is not supported", says(ballot())),
        answer_format="json_schema",
    )
    assert "it answered 400; it says 'json_schema is not supported'" in why
    assert purse.costs == [Cost(0)]


@pytest.mark.parametrize("form", ["json_object", "text"])
def test_a_form_that_was_asked_for_is_used(form: Any) -> None:
    _, _, (asked,) = reviewed(says(ballot()), answer_format=form)
    assert asked.get("response_format") == (None if form == "text" else {"type": form})


def test_reviews_at_once_learn_the_same_thing_once() -> None:
    """Mutation: each of them takes a further step down, past what the server knows."""
    old = without("response_format", "no json_schema here", says(ballot()), in_form="json_schema")

    async def at_once() -> None:
        mind = mind_on(stub)
        await asyncio.gather(*(mind.review(CASE) for _ in range(4)))
        await mind.review(CASE)

    with Stub({"small": [old]}) as stub:
        run(at_once())
        assert stub.requests[-1].body["response_format"] == {"type": "json_object"}


def test_what_is_learned_late_takes_nothing_back() -> None:
    """Mutation: a refusal of what is no longer asked for sets the dialect to a form that is known to be refused."""
    release = threading.Event()
    no_schema = refuse(400, "no json_schema here")
    older = without("response_format", "no json_object here", says(ballot()), in_form="json_object")

    async def two() -> None:
        mind = mind_on(stub)
        slow = asyncio.create_task(mind.review(CASE))
        await asyncio.to_thread(stub.arrived, 1)
        await mind.review(CASE)
        release.set()
        await slow

    with Stub({"small": [after(release, no_schema), no_schema, older]}) as stub:
        run(two())
        forms = [call.body.get("response_format", {}).get("type") for call in stub.requests]
    assert forms == ["json_schema", "json_schema", "json_object", None, None]


# Money and the end


def test_a_call_that_does_not_fit_is_not_made() -> None:
    purse = Account(tokens=699)
    with Stub({"small": [says(ballot())]}) as stub:
        with pytest.raises(CallDenied):
            run(mind_on(stub, purse).review(CASE))
        assert stub.requests == []


def test_without_a_purse_nothing_is_asked() -> None:
    with Stub({"small": [says(ballot())]}) as stub:
        mind = ModelMind(Endpoint(model="small", base_url=stub.base_url), PlainPrompts())
        with pytest.raises(MindError, match="no budget"):
            run(mind.review(CASE))
        assert stub.requests == []


def test_a_review_that_is_given_up_hangs_up_and_settles() -> None:
    """Mutations: the stream is left open; the reservation is."""
    purse = Account()

    async def given_up() -> None:
        review = asyncio.create_task(mind_on(stub, purse).review(CASE))
        (call,) = await asyncio.to_thread(stub.arrived, 1)
        assert not call.hung_up.is_set()
        review.cancel()
        with pytest.raises(asyncio.CancelledError):
            await review
        assert (purse.costs, purse.errors) == ([None], [])
        assert await asyncio.to_thread(call.hung_up.wait, HANG_S)

    with Stub({"small": [hangs("{")]}) as stub:
        run(given_up())


# Keys

KEY = "sk-very-secret-0123456789"


def keyed(stub: Stub, **settings: Any) -> ModelMind:
    return mind_on(stub, Account(), api_key_env="SMALLS_KEY", **settings)


def test_the_key_is_read_from_its_variable_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with Stub({"small": [says(ballot())]}, key=KEY) as stub:
        mind = keyed(stub)
        with pytest.raises(
            ModelError, match="variable SMALLS_KEY should hold its key, and is not set or empty"
        ):
            run(mind.review(CASE))
        monkeypatch.setenv("SMALLS_KEY", KEY + "\n")
        assert run(mind.review(CASE)).vote == "yes"


def test_no_other_key_of_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: no key is given to the SDK, which then takes OPENAI_API_KEY to whatever server there is."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ADMIN_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_ORG_ID", KEY)
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"Authorization: Bearer {KEY}\nX-Gateway: {KEY}")
    with Stub({"small": [says(ballot())]}) as stub:
        assert run(mind_on(stub).review(CASE)).vote == "yes"
        assert KEY not in str(stub.requests[0].headers)
        assert stub.requests[0].headers["authorization"] == "Bearer none"


@pytest.mark.parametrize("url", ["http://ada:secret@host/v1", "https://host/v1?key=secret", "host/v1"])
def test_an_address_holds_no_secret(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Endpoint(model="m", base_url=url)
    assert "secret" not in str(caught.value)


def test_a_key_in_a_file_that_its_owner_alone_may_read(tmp_path: Any) -> None:
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    file.chmod(0o600)
    endpoint = Endpoint(model="m", base_url="http://x/v1", api_key_file=str(file))
    assert endpoint.key() == KEY
    file.chmod(0o640)
    with pytest.raises(ModelError, match="open to others: chmod 600 it"):
        endpoint.key()


@pytest.mark.parametrize("content", ["", "two words", "line\nline", "k\u00e9y", "k" * 5_000])
def test_what_is_no_key_is_not_sent_and_not_shown(tmp_path: Any, content: str) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(ModelError) as caught:
        Endpoint(model="m", base_url="http://x/v1", api_key_file=str(file)).key()
    assert not content or content not in str(caught.value)


def test_a_key_file_that_is_none(tmp_path: Any) -> None:
    for path in (tmp_path, tmp_path / "gone"):
        with pytest.raises(ModelError, match=r"its key, and is no plain file|can't be read"):
            Endpoint(model="m", base_url="http://x/v1", api_key_file=str(path)).key()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
def test_the_key_is_nowhere_to_be_seen(
    status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    """A server that shows the key in its refusal is not repeated."""
    monkeypatch.setenv("SMALLS_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    with Stub({"small": [refuse(status, f"you sent {KEY}, and {KEY[:-4]}…", retry_after="999")]}) as stub:
        mind = keyed(stub)
        with pytest.raises(ModelError) as caught:
            run(mind.review(CASE))
    printed = capfd.readouterr()
    shown = [repr(mind), str(mind), repr(mind.endpoint), repr(vars(mind)), repr(mind._calls.__dict__)]
    shown += [str(caught.value), repr(caught.value.facts), caplog.text, printed.out, printed.err]
    assert not [text for text in shown if KEY[:12] in text]
    assert KEY.encode() not in pickle.dumps(mind) + pickle.dumps(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None  # whose request has it in a header


def test_a_mind_travels_as_its_configuration() -> None:
    async def both() -> None:
        first = mind_on(stub)
        assert (await first.review(CASE)).vote == "yes"
        second = pickle.loads(pickle.dumps(first))
        assert second.endpoint == first.endpoint
        with pytest.raises(MindError, match="no budget"):
            await second.review(CASE)
        second.set_budget(Account())
        assert (await second.review(CASE)).vote == "yes"

    with Stub({"small": [says(ballot())]}) as stub:
        run(both())


def test_importing_the_mind_does_not_load_the_sdk() -> None:
    code = "import sys, council.agents.model; sys.exit('loaded' if {'openai', 'httpx2'} & set(sys.modules) else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr


def test_what_a_prompt_was_made_of_and_what_was_left_out_is_told_with_the_call() -> None:
    """rules 2.4, and on the record: with the first attempt, not with each."""
    cut = Overrun(CASE.proposal_id, "history", 10, 20, 9, "local tf-idf")

    class Cut(PlainPrompts):
        def _prompt(self, task: Task, case: Case, text: str) -> Prompt:
            made_of = (("ballot.txt", "ab" * 32), ("lite.txt", "cd" * 32))
            return replace(super()._prompt(task, case, text), sources=made_of, overruns=(cut,))

    purse = Account()
    with Stub({"small": [refuse(429, "slow"), says(ballot())]}) as stub:
        mind = ModelMind(Endpoint(model="small", base_url=stub.base_url), Cut())
        mind.set_budget(purse)
        run(mind.review(CASE))
    first, second = purse.told
    assert first["prompt"] == second["prompt"]
    assert len(first["prompt"]) == 64
    assert first["overruns"] == [asdict(cut)]
    assert "overruns" not in second
