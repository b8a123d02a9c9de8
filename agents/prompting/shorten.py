"""The ladder of rules 2.4: a text over its limit is shortened by a local step, then by Lite, then once by Prime.

The steps that call models are arguments. Each step reports its result. If no step brings a text within its limit,
TokenBudgetError is raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from council.agents.prompting.prompt import Message, Overrun, Prompt
from council.agents.prompting.special_tokens import without_specials
from council.agents.prompting.summary import MARK, Way, summarize
from council.agents.prompting.texts import Texts
from council.protocol.answer.markers import check_nonce
from council.protocol.errors import CouncilError, EnvelopeError, TokenBudgetError
from council.protocol.identity.charter import Counter
from council.protocol.values import quoted, text_problem

# No model can summarize in fewer tokens. Below this, a text that may be left out is left out.
ASKED_TOKENS_MIN = 32
# A model that writes beyond the limit is stopped here. Its text is then too long, and refused, but never cut off.
OUTPUT_TIMES_LIMIT = 2
# The tokens that a chat template adds to two messages. ChatML and Llama add 11 to 37 with their dates, and Harmony,
# which names channels, about 90.
TEMPLATE_TOKENS = 96
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Step:
    """A step that asks a model. ``ask`` returns its text; on CouncilError the next step is tried.

    Its arguments are the prompt and a time of the loop's clock after which the text is not used.
    """

    how: Literal["lite", "prime"]
    ask: Callable[[Prompt, float], Awaitable[str]]
    count: Counter
    mtu: int


@dataclass(frozen=True, slots=True)
class Field:
    """A text to be shortened, and its place; ``count`` counts it as it will appear in the prompt.

    ``problem`` says why a model's summary can't be used there; it is empty if it can.
    """

    packet: str
    proposal_id: str
    name: str
    text: str
    count: Counter
    problem: Callable[[str], str] = lambda _: ""

    def overrun(self, limit: int, after: int, how: str) -> Overrun:
        return Overrun(self.packet, self.name, limit, self.count(self.text), after, how)


async def shorten(
    field: Field,
    limit: int,
    *,
    texts: Texts,
    steps: Sequence[Step],
    new_nonce: Callable[[], str],
    way: Way | None = None,
    until_s: float = math.inf,
) -> tuple[str, tuple[Overrun, ...]]:
    """The field's text in at most ``limit`` tokens, marked as a summary, and the steps taken.

    A step that did not help is reported with an unchanged number of tokens. Models may take until ``until_s`` of the
    loop's clock, each an equal share of the rest. Raises TokenBudgetError with ``overruns`` if no step helped.
    """
    # Off the event loop: a long history takes a quarter of a second, and MiniLM takes seconds.
    summary = await asyncio.to_thread(summarize, field.text, max(limit, 0), field.count, way=way)
    before = summary.tokens_before
    taken = [field.overrun(limit, summary.tokens if summary.text else before, f"local {summary.way}")]
    if summary.text:
        return summary.text, tuple(taken)
    for at, step in enumerate(steps):
        now_s = asyncio.get_running_loop().time()
        ends_s = now_s + (until_s - now_s) / (len(steps) - at)
        found, problem = await _summarized(
            step, field, limit, texts, fresh_nonce(new_nonce, field.text), ends_s
        )
        tokens = field.count(found) if found else before
        taken.append(field.overrun(limit, tokens, f"{step.how}, in vain: {problem}" if problem else step.how))
        if found:
            return found, tuple(taken)
    raise TokenBudgetError(
        f"{field.name}: {before:,} tokens, where {limit:,} fit, and neither a whole sentence nor "
        f"{' nor '.join(step.how for step in steps) or 'a model, for there is none,'} brought it within; write less",
        field=field.name,
        limit=limit,
        found=before,
        overruns=tuple(taken),
    )


async def _summarized(
    step: Step, field: Field, limit: int, texts: Texts, nonce: str, until_s: float
) -> tuple[str, str]:
    """The model's summary with the mark; or None, and the reason."""
    target = limit - field.count(f"{MARK}\n")
    if target < ASKED_TOKENS_MIN:
        return "", f"{limit} tokens are too few to ask for"
    # Its server may interpret special tokens, whatever the asking seat's server does.
    text = without_specials(field.text)
    asked = texts.fill("compressor", target_tokens=str(target), text=text, nonce=nonce)
    sent, written = step.count(asked), OUTPUT_TIMES_LIMIT * target
    tokens = sent + TEMPLATE_TOKENS
    if tokens > step.mtu:
        return "", f"it would have to read {tokens:,} tokens, and its MTU is {step.mtu:,}"
    if asyncio.get_running_loop().time() >= until_s:
        return "", "no time is left to ask it"
    prompt = Prompt(
        "compress",
        field.proposal_id,
        (Message("user", asked),),
        schema={},
        tokens=tokens,
        sources=texts.sources("compressor"),
        sent=0 if getattr(step.count, "is_estimate", True) else sent,
        output_tokens_max=written,
    )
    try:
        said = await step.ask(prompt, until_s)
    except CouncilError as error:
        return "", quoted(error.message, 200)
    said = said.strip()
    if not said or text_problem(said) is not None:
        return "", "it wrote nothing" if not said else f"what it wrote {text_problem(said)}"
    if problem := field.problem(said):
        return "", f"what it wrote can't be taken: {quoted(problem, 200)}"
    found = f"{MARK}\n{said}"
    needed = field.count(found)
    return (found, "") if needed <= limit else ("", f"what it wrote has {needed:,} tokens")


def fresh_nonce(new_nonce: Callable[[], str], text: str) -> str:
    """A nonce that the text does not hold. Raises EnvelopeError if ``new_nonce`` gives none that is fit."""
    for _ in range(_TRIES - 1):
        nonce = new_nonce()
        with contextlib.suppress(EnvelopeError):
            check_nonce(nonce, text)
            return nonce
    nonce = new_nonce()
    check_nonce(nonce, text)
    return nonce
