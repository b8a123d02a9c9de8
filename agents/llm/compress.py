"""Asks a seat's model to shorten a text, for itself or another seat: a step of the ladder (rules 2.4).

The model is called at its own endpoint, with its own key. The seat that needs the text pays: the cost is reserved
before the call and settled after it (rules 2.6). The answer counts as plain text, whatever it says.
"""

from __future__ import annotations

import asyncio
from typing import Any

from council.agents.llm.accept import DONE, THOUGHTS
from council.agents.llm.endpoint import Endpoint
from council.agents.llm.provider import calls_for
from council.agents.mind import BudgetClient
from council.agents.prompting.prompt import Prompt
from council.agents.prompting.special_tokens import without_specials


class Compressor:
    """Asks the model at ``endpoint`` to shorten a text. It needs a budget for that, and pickles without one."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._calls = calls_for(endpoint)
        self._budget: BudgetClient | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.endpoint,)

    def set_budget(self, budget: BudgetClient) -> None:
        """The seat that needs the prompt pays."""
        self._budget = budget

    async def __call__(self, prompt: Prompt, until_s: float) -> str:
        """The model's text. Raises ModelError, also for an answer that is cut off or refused, and CallDenied."""
        troubles: list[str] = []
        try:
            async with asyncio.timeout_at(until_s):
                answer = await self._calls.answer(prompt, self._budget, until_s, troubles)
        except TimeoutError:
            before = f"; before that: {troubles[-1]}" if troubles else ""
            raise self.endpoint.error(f"it did not answer in time{before}") from None
        if answer.refusal or (answer.finish or "").casefold() not in DONE:
            why = "the model refused" if answer.refusal else f"it stopped for {answer.finish!r:.40}"
            raise self.endpoint.error(f"{why}, not because it was done")
        return without_specials(THOUGHTS.sub("", answer.text))
