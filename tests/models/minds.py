"""What the tests of model minds share: a purse that keeps accounts, plain prompts, and a mind on a stub."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from council.agents.llm.endpoint import Endpoint
from council.agents.mind import Case, Cost, ShownBallot, Stream
from council.agents.model import ModelMind
from council.agents.prompting.prompt import Execution, Halt, Message, Prompt, Task
from council.protocol.errors import CallDenied, TokenBudgetError
from tests.models.stub import Stub
from tests.patience import HANG_S, SilenceLoop

T = TypeVar("T")
CANARY = "canary-5b1f0c"
NONCE = "5f3a9c17e2b84d06"
CASE = Case("00" * 8, "ada", "Delete the old index", "Nobody reads it any more.", time_left_s=HANG_S)


@dataclass
class Account:
    """A purse of ``tokens`` that writes down what was reserved, and how each call was settled."""

    tokens: int = 10**9
    reserved: dict[str, tuple[str, str, str, Cost]] = field(default_factory=dict)
    settled: dict[str, Cost | None] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    told: list[dict[str, Any]] = field(default_factory=list)

    async def reserve(self, proposal_id: str, task: str, model: str, worst: Cost, **told: Any) -> str:
        self.told.append(told)
        if worst.tokens > self.tokens:
            raise CallDenied(f"{worst.tokens} tokens do not fit", seat="lite", model=model)
        self.tokens -= worst.tokens
        call_id = f"call{len(self.reserved)}"
        self.reserved[call_id] = (proposal_id, task, model, worst)
        return call_id

    def settle(self, call_id: str, used: Cost | None, error: str = "") -> None:
        assert call_id not in self.settled
        self.settled[call_id] = used
        if error:
            self.errors.append(error)

    @property
    def costs(self) -> list[Cost | None]:
        """Of all calls in order; each that was reserved is settled."""
        assert list(self.reserved) == list(self.settled)
        return list(self.settled.values())


class PlainPrompts:
    """Prompts without any art: what is asked stands in one message."""

    def __init__(self, *, room_to_ask_again: bool = True) -> None:
        self._room = room_to_ask_again

    def set_budget(self, budget: Any) -> None:
        pass

    async def ballot(self, case: Case, plan: str | None = None) -> Prompt:
        by = "" if plan is None else f"\nYour plan: {plan}"
        return self._prompt(
            "ballot", case, f"Vote on: {case.summary}\n{case.body}\n{json.dumps(case.action)}{by}"
        )

    async def ruling(self, case: Case, ballots: Sequence[ShownBallot]) -> Prompt:
        return self._prompt("ruling", case, f"Rule on: {case.summary}\n{[each.vote for each in ballots]}")

    async def plan(self, case: Case, *, marked: bool, halt: Halt | None = None) -> Prompt:
        return self._prompt("plan", case, f"Plan: {case.summary}\n{case.body}\n{halt}", marked)

    async def observe(self, case: Case, stream: Stream, *, marked: bool) -> Prompt:
        return self._prompt("observe", case, f"Watch: {case.summary}\n{stream}", marked)

    async def act(self, case: Case, done: Execution, *, marked: bool) -> Prompt:
        return self._prompt("act", case, f"Tell of: {case.summary}\n{done}", marked)

    async def verify(self, case: Case, state: str, *, marked: bool) -> Prompt:
        return self._prompt("verify", case, f"Check: {case.summary}\n{state}", marked)

    async def again(self, prompt: Prompt, answer: str, problem: str) -> Prompt:
        if not self._room:
            raise TokenBudgetError("the retry does not fit", field="retry", limit=1, found=2)
        told = Message("user", f"Your answer was not taken: {problem}")
        return replace(prompt, messages=(*prompt.messages, told), tokens=prompt.tokens + 50)

    def _prompt(self, task: Task, case: Case, text: str, marked: bool = False) -> Prompt:
        schema = {"type": "object", "properties": {task: {"type": "object"}}}
        system = Message("system", f"Answer in JSON. Never write {CANARY}.")
        prompt = Prompt(task, case.proposal_id, (system, Message("user", text)), schema, 200, CANARY)
        return replace(prompt, schema={}, nonce=NONCE) if marked else prompt


def as_silence_passes(asking: Coroutine[Any, Any, T], stub: Stub, purse: Account) -> T:
    """What comes of ``asking`` the stub, by a clock that moves only while the stub is silent."""
    loop = partial(SilenceLoop, lambda: stub.is_silent(len(purse.reserved)))
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(asking)


def mind_on(stub: Stub, purse: Account | None = None, **settings: Any) -> ModelMind:
    """A mind whose model, ``small``, is on the stub."""
    given: dict[str, Any] = {"model": "small", "base_url": stub.base_url, "max_output_tokens": 500} | settings
    how = {"stages": given.pop("stages")} if "stages" in given else {}
    mind = ModelMind(Endpoint(**given), PlainPrompts(), **how)
    mind.set_budget(purse or Account())
    return mind
