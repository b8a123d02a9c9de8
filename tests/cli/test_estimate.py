"""``council estimate``: never less than what seats then reserve, and whether the caps hold it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council import Council
from council.agents.llm import calls
from council.agents.mind import Case, ShownBallot, Turn
from council.agents.prompting.builder import case_text
from council.agents.prompting.prompt import Halt
from council.agents.seat.plan_stream import HALTS_MAX, OBSERVATIONS_MAX
from council.cli.decide import submit
from council.cli.decide.worst import SeatCost, estimated, total
from council.config.build_minds import build_mind
from council.config.load import CouncilConfig, load
from council.protocol.identity.charter import history_limit
from tests.cli.conftest import Cli
from tests.examples import tried
from tests.models import stub as stubs
from tests.models.stub import Entry, Stub, ballot, for_each, hangs, plan, ruling
from tests.patience import HANG_S, until

SEATS = ("prime", "lite", "codemind")
# More than the worst nonces have over any that are drawn.
NONCES_SLACK = 120
# With no usage: one that was made up would be a prompt's that its server cut.
says = partial(stubs.says, usage="none")
NOWHERE = "http://127.0.0.1:1/v1"
BODY = "The report of last month still reads it; nobody else does. " * 12


@pytest.fixture(scope="module", autouse=True)
def _the_sdk_is_loaded() -> None:
    calls.load_sdk()


def configured(base_url: str = NOWHERE, *, model: str = "qwen3:8b", **own: Any) -> CouncilConfig:
    """Three seats on a model, "" for one each; ``own`` are keys of each, or the council's where they end in _max."""
    flags: dict[str, Any] = {key: own.pop(key) for key in list(own) if key.endswith("_max")}
    for seat in SEATS:
        given = {"model": model or seat, "base_url": base_url, **own}
        flags |= {f"seats.{seat}.{key}": value for key, value in given.items()}
    return load(Path("/dev/null"), env={}, flags=flags).config


def found(
    config: CouncilConfig, body: str = BODY, risk: str = "low", turns: Sequence[Turn] = ()
) -> dict[str, SeatCost]:
    before = [turn._asdict() for turn in turns]
    content = {"summary": "Delete the old index", "body": body, "history": before}
    proposal = submit.drafted("estimate", {"body": "", "action": None, **content}, risk)
    return {seat.seat: seat for seat in asyncio.run(estimated(config, proposal)).seats}


def tokens(cost: SeatCost) -> dict[str, int]:
    return {call.task: call.tokens for call in cost.calls}


def reserved(
    scripts: dict[str, Sequence[Entry]], body: str, risk: Any, turns: Sequence[Turn] = ()
) -> dict[tuple[str, str], list[int]]:
    """What three seats on a real server reserve for a proposal, by seat and task, in order."""
    with Stub(scripts) as stub:
        seats = {seat: {"model": seat, "base_url": stub.base_url, "tokenizer": "qwen3"} for seat in SEATS}
        with Council.inline(seats=seats, observer="lite") as council:
            given: dict[str, Any] = {"risk": risk, "history": turns, "wait_for": "all", "timeout_s": HANG_S}
            council.propose("Delete the old index", body, **given)
            spent = [each.data["call"] for each in council.events(follow=False) if each.kind == "spending"]
    asked: dict[tuple[str, str], list[int]] = {}
    for call in spent:
        asked.setdefault((call["seat"], call["task"]), []).append(call["worst"]["tokens"])
    return asked


# Never less than what is reserved


@settings(max_examples=tried(25, least=4))
@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=300),
    st.sampled_from(["qwen3:8b", "gpt-4o-mini", "llama3.1:8b", "gemma3", "unheard-of"]),
    st.sampled_from([0, 1, 60]),
)
def test_no_prompt_has_more_tokens_than_were_told(body: str, model: str, many: int) -> None:
    """Whatever the nonces are. Mutation: it counts the nonces that it happens to draw."""
    config = configured(model=model, stages="two")
    turns = tuple(Turn("user", f"{n} {BODY.replace('.', ',')}.") for n in range(many))
    told = found(config, body, turns=turns)
    mind: Any = build_mind(config.seats[0])
    case = Case("00" * 8, "ada", "Delete the old index", body, history=turns)
    ballots = [ShownBallot(seat, "yes", body * 20, 0.9, "low") for seat in SEATS]

    async def made() -> dict[str, int]:
        planned = await mind.prompter.plan(case, marked=False)
        marked = await mind.prompter.plan(case, marked=True)
        halted = await mind.prompter.plan(case, marked=False, halt=Halt("why " * 400, body * 20 or "x"))
        by_plan = await mind.prompter.ballot(case, body * 20 or "x")
        first = await mind.prompter.ballot(case)
        again = await mind.prompter.again(first, body * 20 or "x", "wrong " * 400)
        ruled = await mind.prompter.ruling(case, ballots)
        ruled_again = await mind.prompter.again(ruled, "word " * 400, body * 20 or "x")
        return {
            "plan": max(planned.tokens, marked.tokens),
            "plan anew": halted.tokens,
            "ballot": max(first.tokens, by_plan.tokens),
            "ballot alone": first.tokens,
            "ballot again": again.tokens,
            "ruling": ruled.tokens,
            "ruling again": ruled_again.tokens,
        }

    needed = asyncio.run(made())
    prompts = {call.task: call.prompt_tokens for call in told["prime"].calls}
    (alone,) = (
        call
        for call in found(configured(model=model, stages="one"), body, turns=turns)["prime"].calls
        if call.certain
    )
    prompts["ballot alone"] = alone.prompt_tokens
    assert {task: prompts[task] >= needed[task] for task in needed} == dict.fromkeys(needed, True), (
        prompts,
        needed,
    )
    if many == 60:  # one that has to be shortened may take all its share: what is left of it are sentences
        bare = asyncio.run(mind.prompter.ballot(replace(case, history=()))).tokens
        asked = mind.prompter.common.count(case_text(case))
        left = mind.prompter.common.mtu - bare + asked
        assert prompts["ballot alone"] >= bare + min(history_limit(left), left - asked)
    else:
        assert prompts["ballot alone"] - needed["ballot alone"] <= NONCES_SLACK
    assert prompts["plan"] - needed["plan"] <= NONCES_SLACK
    assert all(prompt <= config.seats[0].max_context_tokens for prompt in prompts.values())


def test_what_seats_reserve_is_what_was_told() -> None:
    """Of each task no call reserves more, and there are no more calls; the observer's are among them."""
    prose, planned = says("Let me think about it."), says(plan("Look at what it reaches. " * 60))
    scripts: dict[str, Sequence[Entry]] = {
        "prime": [
            for_each(
                plan=[prose, planned],
                ballot=[prose, says(ballot("yes", "it saves space"))],
                ruling=[prose, says(ruling())],
            )
        ],
        "lite": [
            for_each(
                plan=[planned],
                ballot=[prose, says(ballot("yes", "it is clear. " * 60))],
                observe=[says('{"interrupt": null}')],
            )
        ],
        "codemind": [for_each(plan=[planned], ballot=[says(ballot("yes", "nothing reads it. " * 60))])],
    }
    real = reserved(scripts, BODY, "high")
    with Stub({}) as stub:
        told = found(configured(stub.base_url, tokenizer="qwen3"), BODY, "high")
        assert stub.requests == []
    made = {(seat, task): len(asked) for (seat, task), asked in real.items()}
    assert 0 < made.pop(("lite", "observe")) <= 2 * OBSERVATIONS_MAX
    assert made == {
        ("prime", "plan"): 2,
        ("prime", "ballot"): 2,
        ("prime", "ruling"): 2,
        ("lite", "plan"): 1,
        ("lite", "ballot"): 2,
        ("codemind", "plan"): 1,
        ("codemind", "ballot"): 1,
    }
    for (seat, task), asked in real.items():
        for at, needed in zip((task, f"{task} again"), asked, strict=False):
            assert needed <= tokens(told[seat])[at if task != "observe" else task]
    assert real["lite", "plan"][0] > tokens(told["lite"])["plan"] - NONCES_SLACK


def test_what_lite_and_prime_are_asked_to_shorten_is_told() -> None:
    """Mutations: the ladder's calls are left out; Prime's is certain, though Lite's text may fit."""

    async def wordy(call: Any) -> None:
        asks = "GAIA-Compressor" in call.body["messages"][0]["content"]
        await (says("far too many words " * 2_000) if asks else says(ballot()))(call)

    turns = [Turn("user", "one_sentence_without_end " * 600)]
    real = reserved({seat: [wordy] for seat in SEATS}, BODY, "low", turns)
    with Stub({}) as stub:
        told = found(configured(stub.base_url, model="", tokenizer="qwen3"), BODY, turns=turns)
    for seat in SEATS:
        asked = [call for call in told[seat].calls if call.task == "compress"]
        assert [call.certain for call in asked][:2] == [True, False]
        made = real[seat, "compress"]
        assert all(call.tokens >= tokens for call, tokens in zip(asked, made, strict=False))
        assert 2 <= len(made) <= len(asked)
    assert found(configured(), BODY)["prime"].calls[0].task == "ballot"


def test_a_ruling_is_sure_where_the_risk_is_high() -> None:
    """rules 1.8; and a plan above low (rules 3.1)."""
    planned = ["plan", "plan again", "ballot", "ballot again"]
    anew = ["plan anew", "plan anew again", "ballot anew", "ballot anew again"]
    rulings = ["ruling", "ruling again"]
    for risk, tasks in (
        ("low", ["ballot"]),
        ("med", ["plan", "ballot"]),
        ("high", ["plan", "ballot", "ruling"]),
    ):
        prime, lite, codemind = found(configured(), risk=risk).values()
        assert [call.task for call in prime.calls if call.certain] == tasks
        if risk == "low":
            assert [call.task for call in prime.calls] == ["ballot", "ballot again", *rulings]
            assert [[call.task for call in each.calls] for each in (lite, codemind)] == [planned[2:]] * 2
        else:
            assert [call.task for call in prime.calls] == [*planned, *anew, *rulings]
            assert [call.task for call in lite.calls] == [*planned, "observe"]
            assert [call.task for call in codemind.calls] == [*planned, *anew]


def test_halts_and_observations_count_as_often_as_they_may_come() -> None:
    """Mutations: once each; also with nobody to observe; the observer halts itself."""
    prime, lite, _ = found(configured(), risk="med").values()
    times = {call.task: call.times for call in (*prime.calls, *lite.calls)}
    assert {task: at for task, at in times.items() if at > 1} == {
        **dict.fromkeys(("plan anew", "plan anew again", "ballot anew", "ballot anew again"), HALTS_MAX),
        "observe": OBSERVATIONS_MAX * 2,
    }
    assert total([prime], certain=False).tokens == sum(call.tokens * call.times for call in prime.calls)
    none = configured().model_copy(update={"observer": "none"})
    assert {call.times for seat in found(none, risk="med").values() for call in seat.calls} == {1}


def test_money_is_rounded_up_as_the_endpoint_does_it() -> None:
    config = configured(usd_per_million_input=0.15, usd_per_million_output=0.6)
    mind: Any = build_mind(config.seats[1])
    for call in found(config)["lite"].calls:
        assert call.microusd == mind.endpoint.cost(call.prompt_tokens, call.output_tokens).microusd
    assert total(found(configured()).values(), certain=False).microusd is None


# Caps


def written(**keys: Any) -> None:
    """A council.toml with three seats on a model that is nowhere."""
    lines = [f"{key} = {value}" for key, value in keys.items()]
    for seat in SEATS:
        lines += [f"[seats.{seat}]", 'model = "qwen3:8b"', f'base_url = "{NOWHERE}"']
        lines += ["usd_per_million_input = 1.0", "usd_per_million_output = 2.0"]
    Path("council.toml").write_text("\n".join(lines), encoding="utf-8")


def estimate_of(cli: Cli, *arguments: str) -> tuple[int, dict[str, Any]]:
    said = cli("estimate", *(arguments or ("Delete the old index",)), "--json")
    assert said.out, said.err
    return said.code, json.loads(said.out)["estimate"]


def test_caps_are_held_against_one_answer_of_each_and_the_worst(cli: Cli) -> None:
    written()
    code, told = estimate_of(cli)
    assert (code, told["caps"]) == (0, [])
    first, worst = told["first"]["tokens"], told["worst"]["tokens"]
    assert 0 < first < worst
    for cap, holds, exits in (
        (worst, "fits", 0),
        (worst - 1, "tight", 0),
        (first, "tight", 0),
        (first - 1, "denied", 1),
    ):
        written(proposal_tokens_max=cap)
        code, told = estimate_of(cli)
        [found] = told["caps"]
        assert (code, found["holds"], told["works"]) == (exits, holds, exits == 0)
    dollars = told["worst"]["microusd"] / 1e6
    written(council_usd_max=dollars, seat_tokens_max=10**9)
    code, told = estimate_of(cli)
    assert {(each["key"], each["unit"]): each["holds"] for each in told["caps"]} == {
        ("council", "microusd"): "fits",
        **{(f"seat {seat}", "tokens"): "fits" for seat in SEATS},
    }


def denials(council: Council) -> int:
    return [each.kind for each in council.events(follow=False)].count("denial")


def test_what_fits_is_granted_and_what_does_not_is_denied() -> None:
    """The core's own admission is the judge; a call that hangs keeps what it reserved."""
    told = found(configured(tokenizer="qwen3"))
    first = sum(tokens(each)["ballot"] for each in told.values())
    slack = 3 * NONCES_SLACK
    for cap, called in ((first, 3), (first - slack - 1, 2)):
        with Stub({seat: [hangs()] for seat in SEATS}) as stub:
            seats = {seat: {"model": seat, "base_url": stub.base_url, "tokenizer": "qwen3"} for seat in SEATS}
            with (
                Council.inline(seats=seats, proposal_tokens_max=cap) as council,
                ThreadPoolExecutor(1) as pool,
            ):
                draft = council.draft("Delete the old index", BODY, wait_for="all")
                waiting = pool.submit(council.propose, draft)
                stub.arrived(called)
                until(lambda denied=3 - called: denials(council) == denied, "nothing was denied")
                council.cancel(draft.msg_id)
                assert waiting.result(HANG_S).outcome == "cancelled"
            assert len(stub.requests) == called


def test_a_proposal_without_room_is_told_seat_by_seat(cli: Cli) -> None:
    written()
    (Path("long.txt")).write_text("Delete it\n" + "many words that nobody reads " * 900, encoding="utf-8")
    code, told = estimate_of(cli, "--file", "long.txt")
    assert (code, told["works"], told["worst"]["tokens"]) == (1, False, 0)
    for seat in told["seats"]:
        assert "tokens, where" in seat["problem"]
    shown = cli("estimate", "--file", "long.txt")
    assert shown.code == 1
    assert "lite can't vote: prompt:" in " ".join(shown.out.split())


# The proposal, and how it is shown


def test_a_proposal_is_taken_from_a_file_as_text_content_or_envelope(cli: Cli, home: Path) -> None:
    written()
    with_body = estimate_of(cli, "Delete it", "--body", "Nobody reads it.")[1]["worst"]
    act = '{"path": "x"}'
    with_action = estimate_of(cli, "Delete it", "--action", "rm", act)[1]["worst"]
    content = {"summary": "Delete it", "body": "", "action": {"tool": "rm", "args": {"path": "x"}}}
    for text, same in (
        ("# Delete it\n\nNobody reads it.\n", with_body),
        (json.dumps({"summary": "Delete it", "body": "Nobody reads it."}), with_body),
        (json.dumps(content), with_action),
        (json.dumps({"type": "PROPOSAL", "msg_id": "00" * 8, "content": content}), with_action),
    ):
        (home / "proposal").write_text(text, encoding="utf-8")
        assert estimate_of(cli, "--file", "proposal")[1]["worst"] == same


def test_wrong_usage_says_what_is_wrong(cli: Cli, home: Path) -> None:
    (home / "broken").write_text('{"summary": ', encoding="utf-8")
    (home / "no_object").write_text('{"content": 7}', encoding="utf-8")
    for arguments, words in (
        ([], "give the proposal"),
        (["Delete it", "--file", "x"], "give the proposal"),
        (["--file", "x", "--body", "y"], "give the proposal"),
        (["--file", "nowhere"], "--file nowhere: can't be read"),
        (["--file", "broken"], "begins like JSON, and is not valid JSON"),
        (["--file", "no_object"], "expected a proposal"),
        (["Delete it", "--action", "rm", "[1]"], "must be a JSON object"),
        (["x" * 5_000], "summary"),
    ):
        said = cli("estimate", *arguments)
        assert said.code == 2
        assert words in " ".join(said.err.split())


def test_seats_without_a_model_cost_nothing(cli: Cli) -> None:
    code, told = estimate_of(cli)
    assert (code, told["worst"], told["works"]) == (0, {"tokens": 0, "microusd": 0}, True)
    assert "nothing is spent" in cli("estimate", "Delete it").out
    Path("council.toml").write_text('[seats.lite]\nmind = "mine.minds:Own"\n', encoding="utf-8")
    assert "what it calls is unknown" in " ".join(cli("estimate", "Delete it").out.split())


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("risk", ["low", "high"])
def test_the_table_fits_the_terminal(
    columns: int, risk: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    written(proposal_tokens_max=10_000_000, council_usd_max=0.001)
    code, told = estimate_of(cli, "Delete the old index", "--risk", risk)
    said = cli("estimate", "Delete the old index", "--risk", risk)
    assert (code, said.code) == (1, 1)
    assert ("observing" in said.out) == (risk == "high")
    assert max(len(line.rstrip()) for line in said.out.splitlines()) <= columns
    for words in (f"{told['worst']['tokens']:,}", "fits", "does not fit", "qwen3:8b at"):
        assert words in said.out
