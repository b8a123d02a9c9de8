"""Tries the models of seats, for ``council doctor``: one short call each, as the mind itself would call.

Seats with the same endpoint share the call. It is in no council's budget, and costs some hundred tokens. A key is
looked up and sent, and never shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import structlog

from council.agents.llm.calls import Answer, Form
from council.agents.llm.endpoint import Endpoint, is_loopback, shared
from council.agents.llm.provider import calls_for
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

# A model that its server still has to load takes so long; doctor waits for all of them at once.
CALL_S = 30.0
LIST_S = 3.0
OUTPUT_TOKENS = 64
# Nothing in it asks for the answer's keys: whoever begins with them is held to the schema. Some servers want the
# word JSON in what they are to answer in JSON.
_ASKED = "This is a test of the line. Say in JSON that you are ready."
_FIRST_KEY = "control_packet"
_SHOWN = 6  # models of a server, in a finding


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of an endpoint: an answer and its form, or trouble; and what its server lists."""

    answer: Answer | None = None
    form: Form = "text"
    trouble: str = ""
    cost: Cost | None = None
    seconds: float = 0.0
    listing: Listing | None = None


class _OwnPurse:
    """Grants every call: whoever runs doctor pays for it."""

    def __init__(self) -> None:
        self.used: Cost | None = None

    async def reserve(self, proposal_id: str, task: str, model: str, worst: Cost, **facts: Any) -> str:
        return "doctor"

    def settle(self, call_id: str, used: Cost | None, error: str = "") -> None:
        self.used = used


def examine(seats: Sequence[SeatConfig], *, offline: bool) -> Iterator[Finding]:
    """The findings on these seats, each of which is backed by a model. Raises nothing."""
    with _quiet():
        minds = {seat.name: _mind(seat) for seat in seats}
    endpoints = {name: mind.endpoint for name, mind in minds.items() if isinstance(mind, ModelMind)}
    tried: Mapping[Endpoint, Tried] = {}
    if not offline:
        with _quiet():
            tried = asyncio.run(_try_all(set(endpoints.values())))
        tried = _with_listings(tried)
    for seat in seats:
        mind = minds[seat.name]
        if isinstance(mind, ModelMind):
            yield from _findings(seat, mind.endpoint, tried.get(mind.endpoint))
        else:
            yield "fail", f"seat {seat.name}", line(mind.removeprefix(f"seat {seat.name}: "))
    yield from _together(seats, list(endpoints.values()))


def _mind(seat: SeatConfig) -> ModelMind | str:
    """A seat's mind, whose key is there; or why there is none."""
    try:
        mind = build_mind(seat)
        assert isinstance(mind, ModelMind)
        mind.endpoint.key()
        return mind
    except CouncilError as error:
        return error.message


def _together(seats: Sequence[SeatConfig], endpoints: Sequence[Endpoint]) -> Iterator[Finding]:
    """What concerns several seats."""
    unpriced = [each for each in endpoints if each.usd_per_million_input is None]
    models = sorted({each.model for each in unpriced if not is_loopback(each.base_url)})
    if models:
        mend = "usd_per_million_input and usd_per_million_output have dollars counted and capped"
        yield "warn", "prices", f"not known of {line(', '.join(models))}: {mend}"
    for label, names in shared((each.name, each.model, each.vendor, each.base_url) for each in seats):
        if not label.startswith("server"):
            yield "warn", "votes", f"{', '.join(names)} share {line(label)}: their votes are not independent"


# The calls


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Within it nothing is logged: what went wrong is a finding."""
    before = structlog.get_config() if structlog.is_configured() else None

    def drop(*_: Any) -> NoReturn:
        raise structlog.DropEvent

    structlog.configure(processors=[drop])
    try:
        yield
    finally:
        structlog.reset_defaults()
        if before is not None:
            structlog.configure(**before)


async def _try_all(endpoints: set[Endpoint]) -> dict[Endpoint, Tried]:
    ordered = list(endpoints)
    return dict(zip(ordered, await asyncio.gather(*(_try(each) for each in ordered)), strict=True))


async def _try(endpoint: Endpoint) -> Tried:
    """One call, and one more for each form of answer that the server says it does not know."""
    limit_s = min(CALL_S, endpoint.timeout_s)
    most = min(OUTPUT_TOKENS, endpoint.max_output_tokens)
    calls = calls_for(replace(endpoint, max_output_tokens=most, timeout_s=limit_s), attempts_max=1)
    prompt = Prompt("ballot", "doctor", (Message("user", _ASKED),), SCHEMAS["ballot"], len(_ASKED))
    purse, troubles = _OwnPurse(), list[str]()
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit_s + 5):  # the SDK is loaded first
            until_s = asyncio.get_running_loop().time() + 2 * CALL_S
            answer = await calls.answer(prompt, purse, until_s, troubles)
        return Tried(answer, calls.form, "", purse.used, time.monotonic() - began)
    except ModelError as error:
        trouble = (troubles or [error.message])[-1]
    except TimeoutError:
        trouble = f"it did not finish {OUTPUT_TOKENS} tokens within {limit_s:g} s"
    return Tried(trouble=trouble)


def _with_listings(tried: Mapping[Endpoint, Tried]) -> dict[Endpoint, Tried]:
    """What the servers list, asked after the calls: Ollama tells the window of a model that it has loaded."""
    asked: dict[str, str | None] = {}
    for endpoint in tried:
        named = endpoint.api_key_env or endpoint.api_key_file
        asked[endpoint.base_url] = endpoint.key() if named else asked.get(endpoint.base_url)
    found = servers.ask_all(asked, LIST_S)
    listings = {url: each for url, each in found.items() if not isinstance(each, Unreachable)}
    return {each: replace(what, listing=listings.get(each.base_url)) for each, what in tried.items()}


# What is found


def _findings(seat: SeatConfig, endpoint: Endpoint, tried: Tried | None) -> Iterator[Finding]:
    """One line of what is well, and one for each thing that is not."""
    what, wrong, well = f"seat {seat.name}", list[Finding](), list[str]()
    key = endpoint.api_key_env or endpoint.api_key_file
    failed = tried is not None and tried.trouble and not _thinks(tried)
    if tried is None:
        well.append(f"{endpoint} (not called: --offline)")
    elif not failed:
        well.append(f"{endpoint} answers{_cost(tried)}")
    well.append(f"key in {key}" if key else "no key")
    if tried is not None:
        if tried.answer is not None:
            _form(what, tried, seat, well, wrong)
        _model(what, seat, tried, well, wrong)
        _window(what, seat, tried, well, wrong)
    counter = counter_for(endpoint.model, seat.tokenizer)
    well.append(
        "tokens estimated, on the high side" if counter.is_estimate else f"tokens by {counter.description}"
    )
    prices = (endpoint.usd_per_million_input, endpoint.usd_per_million_output)
    known = [f"${price:g}" for price in prices if price is not None]
    well.append(f"{' and '.join(known)} a million tokens" if known else "no price")
    if endpoint.key_in_clear:
        wrong.append(("warn", f"{what} key", "it goes over the network in clear: use https"))
    if tried is not None and failed:
        yield "fail", what, line(f"{endpoint}: {tried.trouble}")
    else:
        yield "ok", what, line("; ".join(well))
    yield from wrong


def _thinks(tried: Tried) -> bool:
    """Whether a model thought for longer than doctor lets it: so OpenAI's say it."""
    return "max_tokens or model output limit" in tried.trouble


def _cost(tried: Tried) -> str:
    if tried.answer is None:
        return ", and thinks before it does"
    return f" ({span(tried.seconds)}{'' if tried.cost is None else f', {tried.cost.tokens:,} tokens'})"


def _form(what: str, tried: Tried, seat: SeatConfig, well: list[str], wrong: list[Finding]) -> None:
    assert tried.answer is not None
    text = tried.answer.text.strip()
    if tried.form != "json_schema":
        asked = "a JSON object" if tried.form == "json_object" else "plain text"
        why = (
            "it takes no JSON Schema"
            if seat.answer_format == "auto"
            else f"answer_format is {seat.answer_format}"
        )
        wrong.append(
            ("warn", f"{what} answers", f"{why}: asked for {asked}, more answers are asked for twice")
        )
    elif not text:
        well.append("takes a JSON Schema (its test went into thinking)")
    elif text.startswith("{") and text[1:].lstrip().startswith(f'"{_FIRST_KEY}"'):
        well.append("keeps to a JSON Schema")
    else:
        said = "it takes a JSON Schema and does not keep to it: more answers are asked for twice"
        wrong.append(("warn", f"{what} answers", said))


def _model(what: str, seat: SeatConfig, tried: Tried, well: list[str], wrong: list[Finding]) -> None:
    if tried.listing is None:
        well.append("its server lists no models")
        return
    assert seat.model is not None
    if tried.listing.window(seat.model) is not None:
        well.append("model listed")
        return
    names = list(tried.listing.models)
    has = f"{', '.join(names[:_SHOWN]) or 'none'}{', …' if len(names) > _SHOWN else ''}"
    hint = did_you_mean(seat.model, names)
    if tried.answer is None:
        wrong.append(("fail", f"{what} model", line(f"its server has no {seat.model}; it has {has}{hint}")))
    else:
        said = f"its server lists no {seat.model}, and answered: perhaps as another; it lists {has}"
        wrong.append(("warn", f"{what} model", line(said)))


def _window(what: str, seat: SeatConfig, tried: Tried, well: list[str], wrong: list[Finding]) -> None:
    """rules 2: a prompt has never more than the model's window less the answer's limit."""
    assert seat.model is not None
    window = tried.listing.window(seat.model) if tried.listing is not None else None
    if window is None or window.tokens is None:
        well.append("context window unknown")
        return
    prompt, answer = seat.mtu, seat.max_output_tokens
    if prompt + answer <= window.tokens:
        whose = "window" if window.given is not None else "trained for"
        said = f"{whose} {window.tokens:,}"
        own = seat.context_window
        well.append(said if own in (None, window.tokens) else f"{said} (context_window is {own:,})")
        return
    mend = f"set context_window = {window.tokens}"
    if window.tokens - answer < window.tokens // 2:
        mend = f"lower max_output_tokens, and {mend}"
    more = ", or give it more (OLLAMA_CONTEXT_LENGTH)" if _is_ollamas(tried.listing, window) else ""
    wrong.append(
        (
            "fail",
            f"{what} window",
            f"{window.tokens:,} tokens, where a prompt may have {prompt:,} and its answer {answer:,}: {mend}{more}",
        )
    )


def _is_ollamas(listing: Listing | None, window: servers.Window) -> bool:
    return listing is not None and listing.kind == "Ollama" and window.given is not None
