"""A mind backed by a language model: asks it with a prompt, and takes from its answer a ballot or a ruling.

Knows what an answer must be to count. What can't be taken is shown to the model once, and is lost if the next is no
better: a ballot is what the model said, or none. How prompts are made says ``prompt``, how a model is called
``calls``, how an answer is read ``council.protocol.control``.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

import structlog

from council.agents.calls import Answer, ModelCalls
from council.agents.endpoint import Endpoint
from council.agents.mind import Case, Opinion, Ruling, RulingWord, ShownBallot
from council.agents.prompt import Prompt, Prompter
from council.agents.purse import Purse
from council.protocol import control, embedded
from council.protocol.errors import MindError, TokenBudgetError
from council.protocol.jsondata import quoted

log = structlog.get_logger("council.model")

T = TypeVar("T")
# What takes a ballot or a ruling from an answer to a prompt.
Taking = Callable[[Case, Answer, Prompt], T]

# So much sooner than its time is over a mind says why it has no ballot; the seat could tell only that it is over.
MARGIN_S = 0.25
# Of the faults in an answer; a model that mends these is read again anyway.
PROBLEMS_MAX = 5
# A ruling is read and weighed like a ballot (rules 6.6), of which these are the words.
_RULINGS: dict[RulingWord, str] = {"confirm": "yes", "reject": "no", "human": "abstain"}
_RULING_OF = {vote: ruling for ruling, vote in _RULINGS.items()}

# How servers say that a model stopped by itself.
_DONE = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})

_ESCAPE = re.compile(r"(?<!\\)\\++u00([0-7][0-9a-f])", re.IGNORECASE)
# Some models think aloud before they answer; no server then tells the one from the other.
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


class _Unusable(Exception):
    """Why an answer can't be taken; ``final`` where asking again is of no use."""

    def __init__(self, problem: str, *, final: bool = False) -> None:
        super().__init__(problem)
        self.final = final


class ModelMind:
    """Reviews and rules by asking the model at ``endpoint`` with the prompts of ``prompter``.

    It spends from the purse that its seat hands it, and asks nothing without one. It pickles as its configuration;
    clients are made where it works. ``pause`` waits between attempts, as asyncio.sleep does.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        prompter: Prompter,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.endpoint = endpoint
        self.prompter = prompter
        self._pause = pause
        self._calls = ModelCalls(endpoint, pause)
        self._purse: Purse | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.endpoint, self.prompter, self._pause)

    def __repr__(self) -> str:
        return f"ModelMind({self.endpoint})"

    def take_purse(self, purse: Purse) -> None:
        self._purse = purse

    async def review(self, case: Case) -> Opinion:
        """The model's ballot. Raises ModelError, CallDenied or TokenBudgetError, and the ballot is lost."""
        return await self._within(case, lambda: self.prompter.ballot(case), _opinion)

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        """The model's ruling, shown all ballots (rules 1.8). Raises as ``review`` does."""
        return await self._within(case, lambda: self.prompter.ruling(case, ballots), _ruling)

    async def _within(self, case: Case, prompted: Callable[[], Awaitable[Prompt]], taken: Taking[T]) -> T:
        """What ``taken`` makes of the answer, within the time that the case and the endpoint leave."""
        limit_s = case.time_left_s - min(MARGIN_S, case.time_left_s / 10)
        limit_s = min(limit_s, self.endpoint.max_execution_time_s or limit_s)
        troubles: list[str] = []
        try:
            async with asyncio.timeout(limit_s):
                until_s = asyncio.get_running_loop().time() + limit_s
                return await self._ask(case, self._told(await prompted()), taken, until_s, troubles)
        except TimeoutError:
            before = f"; before that: {troubles[-1]}" if troubles else ""
        raise self.endpoint.error(f"it gave no answer within {limit_s:.3g} s{before}")

    async def _ask(
        self, case: Case, prompt: Prompt, taken: Taking[T], until_s: float, troubles: list[str]
    ) -> T:
        if self._purse is None:
            raise MindError(
                f"{self.endpoint}: it has no purse to pay from: hand it one with take_purse, as a seat does",
                mind=repr(self),
            )
        first = ""
        while True:
            answer = await self._calls.answer(prompt, self._purse, until_s, troubles)
            try:
                return _checked(case, prompt, answer, taken)
            except _Unusable as unusable:
                problem, final = str(unusable), unusable.final
            troubles.append(problem)
            if final or first:
                asked = "" if not first else f"; asked again, as before {first}"
                raise self.endpoint.error(f"its answer can't be taken, as {problem}{asked}")
            try:
                prompt = self._told(await self.prompter.again(prompt, answer.text, problem))
            except TokenBudgetError as error:
                raise self.endpoint.error(
                    f"its answer can't be taken, as {problem}; there is no room to ask again: {error}"
                ) from error
            first = problem

    def _told(self, prompt: Prompt) -> Prompt:
        """The prompt, once the log has what was done to make it fit (rules 2.4)."""
        for overrun in prompt.overruns:
            log.warning("TOKEN_BUDGET_OVERRUN", proposal=prompt.proposal_id, **asdict(overrun))
        return prompt


def _rebuilt(endpoint: Endpoint, prompter: Prompter, pause: Callable[[float], Awaitable[None]]) -> ModelMind:
    return ModelMind(endpoint, prompter, pause=pause)


# What an answer must be to count


def _checked(case: Case, prompt: Prompt, answer: Answer, taken: Taking[T]) -> T:
    """What is taken from an answer that is whole and the model's own. Raises _Unusable."""
    answer = replace(answer, text=_THOUGHTS.sub("", answer.text))
    if _shows(prompt.canary, answer.text):
        raise _Unusable("it repeats a mark that no answer holds: it may follow what it was shown", final=True)
    if answer.refusal or answer.finish == "content_filter":
        why = f": {quoted(answer.refusal)}" if answer.refusal else " by its server's filter"
        raise _Unusable(f"the model refused{why}", final=True)
    if not answer.text.strip():
        more = (
            ": all its tokens went into thinking; raise max_output_tokens"
            if answer.finish == "length"
            else ""
        )
        raise _Unusable(f"it is empty{more}")
    if answer.finish == "length":
        raise _Unusable("it was cut off at max_output_tokens: answer more shortly")
    if (answer.finish or "").casefold() not in _DONE:
        raise _Unusable(f"the model stopped for {quoted(answer.finish)}, not because it was done")
    return taken(case, answer, prompt)


def _shows(canary: str, text: str) -> bool:
    """Whether the canary is in a text, in any case, also with its letters written as JSON escapes."""
    return bool(canary) and canary.casefold() in _unescaped(text).casefold()


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def _bare(text: str) -> str:
    """An answer without the fence that many models put around all of it."""
    text = text.strip()
    first, _, rest = text.partition("\n")
    body, _, last = rest.rpartition("\n")
    fenced = first.startswith("```") and "`" not in first.lstrip("`") and last.strip().strip("`") == ""
    return body.strip() if fenced and last.strip().startswith("```") else text


def _object(text: str, key: str, prompt: Prompt) -> dict[str, Any]:
    """The one JSON object that an answer is. Raises _Unusable where anything else is there, or it is an echo.

    Words around it may take it back, quote it or only weigh it: what a model means by them no reader can tell.
    """
    text = _bare(text)
    found = embedded.find_objects(text, lambda value: True, control.DEPTH_MAX).found
    if len(found) != 1 or (found[0].start, found[0].end) != (0, len(text)):
        raise _Unusable(f'it is not one JSON object with a "{key}", and nothing else')
    value = dict(found[0].value)
    for message in prompt.messages:
        if message.role != "system":
            shown = embedded.find_objects(message.text, lambda value: True, control.DEPTH_MAX).found
            if any(_within(each.value, value) for each in shown):
                raise _Unusable("it is word for word an answer that stands in what it was shown")
    return value


def _within(shown: Any, value: dict[str, Any]) -> bool:
    """Whether a value is, or holds, this object; its depth is bounded by who found it."""
    if isinstance(shown, dict):
        return shown == value or any(_within(each, value) for each in shown.values())
    return isinstance(shown, list) and any(_within(each, value) for each in shown)


def _opinion(case: Case, answer: Answer, prompt: Prompt) -> Opinion:
    """The ballot in an answer, as it counts (rules 6.6). Raises _Unusable where there is none that is surely it."""
    _object(answer.text, "ballot", prompt)
    reading = control.read(_bare(answer.text))
    weighed = _weighed(case, reading, "ballot")
    packet = reading.packet.data()
    return Opinion(weighed.vote, weighed.reason, weighed.confidence, weighed.risk_level, packet or None)


def _weighed(case: Case, reading: control.Reading, key: str) -> control.Weighed:
    weighed = control.weigh(reading)
    if weighed is None or reading.ballot is None:
        own = [problem.replace("ballot", key) for problem in reading.warnings if problem.startswith("ballot")]
        told = own or [f'it has no "{key}"', *reading.warnings]
        raise _Unusable(f"it holds no {key} that can be read ({'; '.join(told[:PROBLEMS_MAX])})")
    if reading.ballot.proposal_id not in (None, case.proposal_id):
        raise _Unusable(f"it is for another proposal, {quoted(reading.ballot.proposal_id)}")
    return weighed


def _ruling(case: Case, answer: Answer, prompt: Prompt) -> Ruling:
    """The ruling in an answer, weighed as a ballot is. Raises _Unusable; nothing but the JSON object may be there."""
    value = _object(answer.text, "ruling", prompt)
    if "ruling" not in value:
        raise _Unusable('it has no "ruling"')
    given = value.pop("ruling")
    word = given.get("ruling") if isinstance(given, dict) else None
    if word not in _RULINGS:
        raise _Unusable(f'its "ruling" has no word that is one of {", ".join(_RULINGS)}')
    value["ballot"] = {
        **{key: part for key, part in given.items() if key != "ruling"},
        "vote": _RULINGS[word],
    }
    as_ballot = json.dumps(value, ensure_ascii=False, default=lambda broken: broken.problem)
    weighed = _weighed(case, control.read(as_ballot), "ruling")
    ruling: RulingWord = "human" if weighed.asks_human else _RULING_OF[weighed.vote]
    return Ruling(ruling, weighed.reason, weighed.confidence, weighed.risk_level)
