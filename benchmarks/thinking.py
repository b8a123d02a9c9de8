"""Seats that think with models: what their prompts cost to put together, and how many tokens a decision spends."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from openai import AsyncOpenAI

from benchmarks.job import Load
from benchmarks.measure import Row, cpu, in_turn, timed, times_row
from benchmarks.naive import GroupChat
from benchmarks.proposals import Planted, load
from council import Council
from council.agents.llm.stages import Setting
from council.agents.mind import Case, Turn
from council.agents.prompting.builder import PromptBuilder
from council.agents.prompting.prompt import Prompt
from council.agents.prompting.tokens import TokenCounter, counter_for
from council.config.settings import SeatConfig
from tests.logged import capture_logs
from tests.models.stub import Call, Stub, says, used

GROUP = "thinking"
# Three models with one vocabulary, so that all is counted alike; their names tell the seats' requests apart.
MODELS = {"prime": "gpt-4o", "lite": "gpt-4o-mini", "codemind": "gpt-4.1"}
MTU = 4_096
SHARE_OF_NAIVE, FACTS_KEPT = 0.60, 0.95

# What every model says, in either way, in the same words.
FOUND = (
    "For it: the change does what its summary says, is small, and comes with a test. Against it: it can't be taken "
    "back without work once it has run, and nothing here shows who was asked."
)
WHY = "What it does is bounded and was tried before, and nobody else depends on what goes."
# What a schema's keys are filled with; where one is not here, by its type.
_SAID: Mapping[str, Any] = {
    "vote": "yes",
    "ruling": "confirm",
    "confidence": 0.85,
    "risk_level": "low",
    "estimated_scope": "minor",
    "verb": "/deploy",
    "reason": WHY,
    "surface_response": FOUND,
    "plan": ["Read what would be run.", "Compare it with its summary.", "Look for what can't be undone."],
}
_EMPTY: Mapping[str, Any] = {"string": WHY, "array": [], "boolean": False, "number": 0.85, "integer": 1}


def filled(schema: Mapping[str, Any], key: str = "") -> Any:
    """An answer in the form of a schema that says yes."""
    kind = schema.get("type", "")
    if kind == "object":
        return {name: filled(part, name) for name, part in schema["properties"].items()}
    if "anyOf" in schema:  # a text, or null
        return None
    return _SAID.get(key, schema["enum"][0] if "enum" in schema else _EMPTY[kind])


def answer_to(body: Mapping[str, Any]) -> str:
    """What the stub says to a request: by the schema that it holds, else in prose."""
    if (form := body.get("response_format")) is None:
        plans = "VOTE:" not in body["messages"][0]["content"]
        return " ".join(_SAID["plan"]) if plans else f"{FOUND} {WHY}\nVOTE: yes"
    return json.dumps(filled(form["json_schema"]["schema"]))


def schema_tokens(body: Mapping[str, Any], count: Callable[[str], int]) -> int:
    """The tokens of a request's schema, which servers may put in front of the model."""
    form = body.get("response_format")
    return 0 if form is None else count(json.dumps(form["json_schema"]["schema"]))


def read_by(body: Mapping[str, Any], count: Callable[[str], int]) -> int:
    """The tokens of a request: its messages, and its schema."""
    return schema_tokens(body, count) + sum(count(message["content"]) for message in body["messages"])


def answering(count: Callable[[str], int] | None) -> Stub:
    """A server that answers at once; with a counter it tells what that took."""

    async def entry(call: Call) -> None:
        text = answer_to(call.body)
        usage = "none" if count is None else used(read_by(call.body, count), count(text))
        await says(text, usage=usage, piece=len(text))(call)

    return Stub({model: [entry] for model in MODELS.values()})


def model_seats(base_url: str, stages: Setting = "auto") -> tuple[SeatConfig, ...]:
    """Seats with models, as a configuration has them."""
    own: dict[str, Any] = {"base_url": base_url, "max_context_tokens": MTU, "stages": stages}
    return tuple(SeatConfig(name=name, model=model, **own) for name, model in MODELS.items())


# Tokens of a decision


@dataclass
class Spent:
    """What one way took for each proposal, and which facts each seat had before it when it voted."""

    tokens: list[int] = field(default_factory=list)
    calls: int = 0
    by_task: Counter[str] = field(default_factory=Counter)
    in_schemas: int = 0
    shortened: int = 0
    shown: dict[str, list[tuple[bool, bool]]] = field(default_factory=dict)

    def add(self, proposal: Planted, requests: list[Call], count: Callable[[str], int]) -> None:
        bodies = [call.body for call in requests]
        self.calls += len(bodies)
        for body in bodies:
            self.by_task[_task(body)] += read_by(body, count) + count(answer_to(body))
        self.tokens.append(self.by_task.total() - sum(self.tokens))
        self.in_schemas += sum(schema_tokens(body, count) for body in bodies)
        for model in MODELS.values():
            prompt = _ballot_prompt([body for body in bodies if body["model"] == model])
            facts = [(fact, True) for fact in proposal.in_proposal] + [
                (fact, False) for fact in proposal.in_history
            ]
            self.shown.setdefault(model, []).extend((own, fact in prompt) for fact, own in facts)

    @property
    def per_decision(self) -> float:
        return statistics.fmean(self.tokens)

    def kept(self, own: bool | None = None) -> float:
        """Of the proposals' own facts, of the sessions' or of all, the share that the worst informed seat had."""
        return min(
            statistics.fmean(found for is_own, found in facts if own in (None, is_own))
            for facts in self.shown.values()
        )


def _task(body: Mapping[str, Any]) -> str:
    """What a request is for, as its schema is named; the group chat's have none."""
    form = body.get("response_format")
    return "ballot" if form is None else str(form["json_schema"]["name"])


def _ballot_prompt(bodies: list[dict[str, Any]]) -> str:
    """What a seat was shown when it was asked for its ballot; nothing where it never was."""
    shown = [body["messages"] for body in bodies if _task(body) == "ballot"]
    return "\n".join(message["content"] for message in shown[-1]) if shown else ""


def council_way(
    proposals: Iterable[Planted], *, with_history: bool = True, stages: Setting = "auto"
) -> Spent:
    """The council's way: all three seats are waited for, as reviews and actions are (rules 1.5)."""
    count, spent = counter_for(MODELS["prime"]), Spent()
    proposals = list(proposals)
    with answering(count) as stub, capture_logs() as told:
        with Council.inline(seats=model_seats(stub.base_url, stages)) as council:
            begins = []
            for proposal in proposals:
                begins.append(len(stub.requests))
                decision = council.propose(
                    proposal.summary,
                    proposal.body,
                    action=proposal.action,
                    wait_for="all",
                    history=[(turn.who, turn.text) for turn in proposal.history if with_history],
                )
                assert decision, decision
                assert not decision.missing, decision.missing
        # Once it is closed: an observation may come after its decision.
        for proposal, first, last in zip(proposals, begins, [*begins[1:], None], strict=True):
            spent.add(proposal, stub.requests[first:last], count)
        spent.shortened = len({one["proposal"] for one in told if one["event"] == "TOKEN_BUDGET_OVERRUN"})
    return spent


def naive_way(proposals: Iterable[Planted], *, plans: bool = False) -> Spent:
    """The group chat's."""
    count, spent = counter_for(MODELS["prime"]), Spent()
    with answering(count) as stub:
        chat = GroupChat(stub.base_url, MODELS)
        for proposal in proposals:
            before = len(stub.requests)
            assert chat.decide(proposal, plans=plans)
            spent.add(proposal, stub.requests[before:], count)
        chat.close()
    return spent


def spending_rows(proposals: tuple[Planted, ...]) -> list[Row]:
    """Tokens of a decision beside the group chat's, and how many of the planted facts each seat could see."""
    naive, planning = naive_way(proposals), naive_way(proposals, plans=True)
    none, ours = council_way(proposals, with_history=False), council_way(proposals)
    two = council_way(proposals, stages="two")
    told = _tokens_row("with their sessions", ours, naive)
    assert told.ratio is not None
    kept = ours.kept()
    return [
        _tokens_row("without their sessions", none, naive),
        replace(told, bound=f"ratio ≤ {SHARE_OF_NAIVE}", holds=told.ratio <= SHARE_OF_NAIVE),
        *_by_session(proposals, ours, naive),
        _tokens_row("the same, each seat with a plan first, beside a chat with plans", two, planning),
        Row(
            GROUP,
            f"facts before the worst informed seat (the proposals' own {ours.kept(True):.0%}, "
            f"the sessions' {ours.kept(False):.0%})",
            100 * kept,
            "%",
            bound=f"≥ {FACTS_KEPT:.0%}",
            holds=kept >= FACTS_KEPT,
        ),
    ]


def _tokens_row(name: str, ours: Spent, naive: Spent, places: Iterable[int] | None = None) -> Row:
    """The mean, since what is paid for is the sum; the middle and the greatest beside it."""
    chosen = range(len(ours.tokens)) if places is None else list(places)
    mine, theirs = ([spent.tokens[place] for place in chosen] for spent in (ours, naive))
    mean, floor = statistics.fmean(mine), statistics.fmean(theirs)
    middle = f"median {statistics.median(mine):,.0f}, most {max(mine):,}"
    return Row(GROUP, f"tokens of a decision, {name} ({middle})", mean, "tokens", floor, mean / floor)


def _by_session(proposals: tuple[Planted, ...], ours: Spent, naive: Spent) -> list[Row]:
    """The same by how long the sessions are: what is gained comes from the long ones alone."""
    count = counter_for(MODELS["prime"])
    sizes = [sum(count(turn.text) for turn in proposal.history) for proposal in proposals]
    rows = []
    for name, low, high in (
        ("that have none", 0, 0),
        ("of up to 1,500 tokens", 1, 1_500),
        ("longer ones", 1_501, 10**9),
    ):
        if at := [place for place, size in enumerate(sizes) if low <= size <= high]:
            rows.append(_tokens_row(f"{len(at)} {name}", ours, naive, at))
    return rows


# Time


# More than the sessions have, so that what is cut from them is as long as it is to be.
CHARS_A_TOKEN = 8


class Writings:
    """Texts of so many tokens, none like another, so that no count of theirs is remembered."""

    def __init__(self, proposals: Iterable[Planted], count: TokenCounter) -> None:
        self._lines = [line for each in proposals for turn in each.history for line in turn.text.splitlines()]
        self._count, self._number = count, itertools.count()

    def new(self, tokens: int) -> str:
        number = next(self._number)
        text = "\n".join(f"{line} {number}" for line in self._lines)
        text = text[: tokens * CHARS_A_TOKEN]
        ends = range(len(text) + 1)
        return text[: bisect_right(ends, tokens, key=lambda end: self._count(text[:end])) - 1]


def assembly_rows(proposals: tuple[Planted, ...], turns: int) -> list[Row]:
    """A prompt from a case and a session that nobody has counted before; beside one bare count of as many tokens.

    It waits for nothing: its CPU time is what it takes on a machine that does nothing else.
    """
    count = counter_for(MODELS["prime"])
    count.prime()
    builder = PromptBuilder("prime", count=count, mtu=MTU, way="tf-idf")
    writings = Writings(proposals, count)
    loop = asyncio.new_event_loop()
    prompts: list[Prompt] = []

    def assembly(body_tokens: int, history_tokens: int) -> Load:
        # Somebody said all of it: what tools printed is chosen from before, and hardly ever needs to be shortened.
        history = (Turn("user", writings.new(history_tokens)),)
        case = Case("00" * 8, "ada", "Do it", writings.new(body_tokens), history=history)
        return cpu(lambda: prompts.append(loop.run_until_complete(builder.ballot(case))))

    def bare(tokens: int) -> Load:
        text = writings.new(tokens)
        return cpu(lambda: count(text))

    left = MTU - loop.run_until_complete(builder.ballot(Case("00" * 8, "ada", "Do it", "x"))).tokens
    rows = []
    for name, history, bound_ms in (
        ("CPU of a prompt of 4,096 tokens put together", left * 55 // 100, 5.0),
        ("the same, with a session of 20,000 tokens shortened by tf-idf", 20_000, 250.0),
    ):
        prompts.clear()
        works = [partial(assembly, left * 40 // 100, history), partial(bare, max(MTU, history))]
        row = times_row(GROUP, name, *in_turn(works, turns))
        fits = history < left
        assert all(0.93 * MTU <= prompt.tokens <= MTU and (not prompt.overruns) == fits for prompt in prompts)
        rows.append(replace(row, bound=f"p50 ≤ {bound_ms:g} ms", holds=row.figure <= bound_ms))
    loop.close()
    return rows


def share_rows(proposals: tuple[Planted, ...], turns: int) -> list[Row]:
    """A question that three models decide, each answering at once; beside three bare calls."""
    writings = Writings(proposals, counter_for(MODELS["prime"]))
    with (
        answering(None) as stub,
        Council.inline(seats=model_seats(stub.base_url)) as council,
        asyncio.Runner() as runner,
    ):
        client = AsyncOpenAI(base_url=stub.base_url, api_key="none", max_retries=0)

        def decision() -> Load:
            body = writings.new(600)
            return timed(lambda: council.propose("Is it sound?", body, wait_for="all"), 1)

        async def asked(model: str, text: str) -> None:
            async for _ in await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": text}], stream=True
            ):
                pass

        async def all_asked(text: str) -> None:
            await asyncio.gather(*(asked(model, text) for model in MODELS.values()))

        def calls() -> Load:
            text = writings.new(1_200)
            return timed(lambda: runner.run(all_asked(text)), 1)

        mine, bare = in_turn([decision, calls], turns)
        runner.run(client.close())
    return [times_row(GROUP, "a decision by three models, beside three bare calls", mine, bare)]


def thinking_rows(scale: float = 1.0) -> list[Row]:
    proposals = load()
    turns = max(3, int(21 * scale))
    return [*assembly_rows(proposals, turns), *share_rows(proposals, turns), *spending_rows(proposals)]
