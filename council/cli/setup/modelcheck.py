"""Tries the models of seats, for ``council doctor``: one short call each, as the mind itself would call.

Seats with the same endpoint share the call. It is in no council's budget, and costs some hundred tokens. A key is
read and sent, and never shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from council.agents.llm.calls import Form
from council.agents.llm.endpoint import Endpoint, is_loopback, shared
from council.agents.llm.provider import calls_for
from council.agents.messaging.logs import silenced
from council.agents.mind import Cost
from council.agents.model import ModelMind
from council.agents.prompting.answer_schema import SCHEMAS
from council.agents.prompting.prompt import Message, Prompt
from council.agents.prompting.tokens import counter_for
from council.cli.setup import servers
from council.cli.setup.servers import Listing
from council.config.build_minds import build_mind
from council.config.settings import SeatConfig, did_you_mean
from council.kinds.text import line, span
from council.protocol.errors import CouncilError, ModelError, Unreachable

Finding = tuple[str, str, str]

# Long enough for a server to load the model. All models are called at once.
CALL_S = 30.0
LIST_S = 3.0
OUTPUT_TOKENS = 64
# Some servers want the word JSON in a prompt whose answer is to be JSON.
_PROMPT = "This is a test of the line. Say in JSON that you are ready."
_MODELS_SHOWN = 6
# OpenAI's refusal if a model used up its tokens for thinking. The model works.
_STILL_THINKING = "max_tokens or model output limit"


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a call: the form of the answer, its cost and time; or ``trouble``, which says what failed."""

    trouble: str = ""
    form: Form = "text"
    cost: Cost | None = None
    seconds: float = 0.0


class _NoBudget:
    """Grants every call, because the user of doctor pays for it."""

    used: Cost | None = None

    async def reserve(self, proposal_id: str, task: str, model: str, worst: Cost, **facts: Any) -> str:
        return "doctor"

    def settle(self, call_id: str, used: Cost | None, error: str = "") -> None:
        self.used = used


def examine(seats: Sequence[SeatConfig], *, offline: bool) -> Iterator[Finding]:
    """The findings on these seats, each of which is backed by a model. Raises nothing."""
    endpoints: dict[str, Endpoint] = {}
    with silenced():  # each warning is a finding here
        for seat in seats:
            try:
                mind = build_mind(seat)
                assert isinstance(mind, ModelMind)
                mind.endpoint.key()
                endpoints[seat.name] = mind.endpoint
            except CouncilError as error:
                yield "fail", f"seat {seat.name}", line(error.message.removeprefix(f"seat {seat.name}: "))
        tried = {} if offline else asyncio.run(_try_all(set(endpoints.values())))
        listings = {} if offline else _listings(tried)
    for seat in seats:
        if endpoint := endpoints.get(seat.name):
            yield from _findings(seat, endpoint, tried.get(endpoint), listings.get(endpoint.base_url))
    unpriced = [each for each in endpoints.values() if each.usd_per_million_input is None]
    if models := sorted({each.model for each in unpriced if not is_loopback(each.base_url)}):
        mend = "usd_per_million_input and usd_per_million_output have dollars counted and capped"
        yield "warn", "prices", f"unknown for {line(', '.join(models))}: {mend}"
    for label, names in shared((each.name, each.model, each.vendor, each.base_url) for each in seats):
        if not label.startswith("server"):
            yield "warn", "votes", f"{', '.join(names)} share {line(label)}: their votes are not independent"


async def _try_all(endpoints: set[Endpoint]) -> dict[Endpoint, Tried]:
    ordered = list(endpoints)
    return dict(zip(ordered, await asyncio.gather(*map(_try, ordered)), strict=True))


async def _try(endpoint: Endpoint) -> Tried:
    """One attempt, repeated only if the server does not know the form of answer that it asks for."""
    limit_s = min(CALL_S, endpoint.timeout_s)
    most = min(OUTPUT_TOKENS, endpoint.max_output_tokens)
    calls = calls_for(replace(endpoint, max_output_tokens=most, timeout_s=limit_s), attempts_max=1)
    prompt = Prompt("ballot", "doctor", (Message("user", _PROMPT),), SCHEMAS["ballot"], len(_PROMPT))
    budget, troubles = _NoBudget(), list[str]()
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit_s + 5):  # the SDK is loaded first
            until_s = asyncio.get_running_loop().time() + limit_s
            await calls.answer(prompt, budget, until_s, troubles)
        trouble = ""
    except ModelError as error:
        trouble = (troubles or [error.message])[-1]
        trouble = "" if _STILL_THINKING in trouble else trouble
    except TimeoutError:
        trouble = f"it did not finish {OUTPUT_TOKENS} tokens within {limit_s:g} s"
    return Tried(trouble, calls.form, budget.used, time.monotonic() - began)


def _listings(tried: dict[Endpoint, Tried]) -> dict[str, Listing]:
    """The servers' models. They are asked after the calls, because Ollama tells the windows of loaded models."""
    keys: dict[str, str | None] = {}
    for endpoint in tried:
        has_key = endpoint.api_key_env or endpoint.api_key_file
        keys[endpoint.base_url] = endpoint.key() if has_key else keys.get(endpoint.base_url)
    found = servers.ask_all(keys, LIST_S)
    return {url: each for url, each in found.items() if not isinstance(each, Unreachable)}


def _findings(
    seat: SeatConfig, endpoint: Endpoint, tried: Tried | None, listing: Listing | None
) -> Iterator[Finding]:
    what = f"seat {seat.name}"
    if tried is not None and tried.trouble:
        yield "fail", what, line(f"{endpoint}: {tried.trouble}{_other_models(endpoint.model, listing)}")
    else:
        yield "ok", what, line("; ".join(_facts(seat, endpoint, tried, listing)))
        if other := _other_models(endpoint.model, listing):
            why = f"its server does not list {endpoint.model}, but answered, perhaps as another{other}"
            yield "warn", f"{what} model", line(why)
    window = None if listing is None else listing.window(endpoint.model)
    prompt, answer = seat.mtu, seat.max_output_tokens
    if window is not None and prompt + answer > window:  # rules 2: a prompt and its answer fit the window
        yield (
            "fail",
            f"{what} window",
            f"{window:,} tokens, but a prompt may have {prompt:,} and its answer {answer:,}: set context_window = "
            f"{window}, and max_output_tokens to less than half of it; or give the model a larger window",
        )
    if endpoint.key_in_clear:
        yield "warn", f"{what} key", "it goes over the network unencrypted: use https"


def _facts(
    seat: SeatConfig, endpoint: Endpoint, tried: Tried | None, listing: Listing | None
) -> Iterator[str]:
    """The facts about a model that works."""
    if tried is None:
        yield f"{endpoint} (not called: --offline)"
    else:
        cost = "" if tried.cost is None else f", {tried.cost.tokens:,} tokens"
        yield f"{endpoint} answers ({span(tried.seconds)}{cost})"
        yield f"answer format {tried.form}"
    key = endpoint.api_key_env or endpoint.api_key_file
    yield f"key in {key}" if key else "no key"
    if tried is not None:
        window = None if listing is None else listing.window(endpoint.model)
        yield "context window unknown" if window is None else f"window {window:,}"
    counter = counter_for(endpoint.model, seat.tokenizer)
    yield "tokens estimated, on the high side" if counter.is_estimate else f"tokens by {counter.description}"
    prices = (endpoint.usd_per_million_input, endpoint.usd_per_million_output)
    known = [f"${price:g}" for price in prices if price is not None]
    yield f"{' and '.join(known)} a million tokens" if known else "no price"


def _other_models(model: str, listing: Listing | None) -> str:
    """The models of a server that does not have this one."""
    if listing is None or listing.has(model):
        return ""
    names = list(listing.models)
    shown = ", ".join(names[:_MODELS_SHOWN]) + (", …" if len(names) > _MODELS_SHOWN else "")
    return f"; it has {shown or 'no model'}{did_you_mean(model, names)}"
