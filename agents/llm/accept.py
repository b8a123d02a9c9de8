"""Accepts a model's answer as a ballot or a ruling, whole or not at all.

``council.protocol.answer.read`` reads an answer; ``stages`` says what the answers of the other stages must be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from council.agents.llm.calls import ModelAnswer
from council.agents.mind import Action, Case, Opinion, Ruling, RulingWord
from council.agents.prompting.prompt import Prompt
from council.protocol.answer import find_json, read
from council.protocol.answer.mangle import Schema
from council.protocol.errors import EnvelopeError
from council.protocol.values import quoted, read_object

T = TypeVar("T")
# Reads a ballot, a ruling or another result from an answer to a prompt. Raises Unusable.
Reader = Callable[[Case, ModelAnswer, Prompt], T]

# How many faults of an answer are reported. If the model corrects these, its next answer is checked again.
PROBLEMS_MAX = 5
# A ruling is read and weighed like a ballot (rules 6.6). These are the corresponding votes.
_RULINGS: dict[RulingWord, str] = {"confirm": "yes", "reject": "no", "human": "abstain"}
_RULING_OF = {vote: ruling for ruling, vote in _RULINGS.items()}

# The words of servers for a model that ended its answer itself.
DONE = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})

_ESCAPE = re.compile(r"(?<!\\)\\++u00([0-7][0-9a-f])", re.IGNORECASE)
# Some models write their thoughts before the answer, and their servers do not separate the two.
THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


class Unusable(Exception):
    """An answer is not accepted; the text says why. ``final``: asking again is of no use."""

    def __init__(self, problem: str, *, final: bool = False) -> None:
        super().__init__(problem)
        self.final = final


def checked(case: Case, prompt: Prompt, answer: ModelAnswer, reader: Reader[T]) -> T:
    """Returns what ``reader`` reads from the answer. Raises Unusable if the answer is incomplete or an echo."""
    answer = replace(answer, text=THOUGHTS.sub("", answer.text))
    if shows(prompt.canary, answer.text):
        raise Unusable("it repeats a mark that no answer holds: it may follow what it was shown", final=True)
    if answer.refusal or answer.finish == "content_filter":
        why = f": {quoted(answer.refusal)}" if answer.refusal else " by its server's filter"
        raise Unusable(f"the model refused{why}", final=True)
    if not answer.text.strip():
        more = (
            ": all its tokens went into thinking; raise max_output_tokens"
            if answer.finish == "length"
            else ""
        )
        raise Unusable(f"it is empty{more}")
    if answer.finish == "length":
        raise Unusable("it was cut off at max_output_tokens: answer more shortly")
    if (answer.finish or "").casefold() not in DONE:
        raise Unusable(f"the model stopped for {quoted(answer.finish)}, not because it was done")
    return reader(case, answer, prompt)


def shows(canary: str, text: str) -> bool:
    """Whether the canary is in a text, in any case, also if its letters are written as JSON escapes."""
    return bool(canary) and canary.casefold() in _unescaped(text).casefold()


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def bare(text: str) -> str:
    """An answer without the fence that many models put around it."""
    text = text.strip()
    first, _, rest = text.partition("\n")
    body, _, last = rest.rpartition("\n")
    fenced = first.startswith("```") and "`" not in first.lstrip("`") and last.strip().strip("`") == ""
    return body.strip() if fenced and last.strip().startswith("```") else text


def one_object(text: str, key: str, prompt: Prompt, *, may_echo: bool = False) -> dict[str, Any]:
    """The JSON object of an answer. Raises Unusable if there is other text, or if the object is an echo.

    Other text might withdraw the object, quote it or discuss it, and no reader can tell. An object that ``may_echo``
    has so few words that the prompt may hold the same one.
    """
    text = bare(text)
    found = _objects(text)
    if len(found) != 1 or (found[0].start, found[0].end) != (0, len(text)):
        raise Unusable(f'it is not one JSON object with a "{key}", and nothing else')
    value = dict(found[0].value)
    shown = (message.text for message in prompt.messages if message.role != "system")
    if not may_echo and any(_holds(text, value) for text in shown):
        raise Unusable("it repeats word for word an answer in the text that it was shown")
    return value


def _objects(text: str) -> tuple[find_json.JsonInText, ...]:
    return find_json.find_objects(text, lambda value: True, read.DEPTH_MAX).found


def _holds(text: str, value: dict[str, Any]) -> bool:
    """Whether this object is in a text: by itself, in another object, or in a string of that."""
    waiting: list[Any] = [text]
    while waiting:
        shown = waiting.pop()
        if isinstance(shown, dict):
            if shown == value:
                return True
            waiting.extend(shown.values())
        elif isinstance(shown, list):
            waiting.extend(shown)
        elif isinstance(shown, str):
            waiting.extend(found.value for found in _objects(shown))
    return False


def opinion(case: Case, answer: ModelAnswer, prompt: Prompt, predicates: Schema | None = None) -> Opinion:
    """The ballot in an answer, as it counts (rules 6.6). Raises Unusable if no ballot is certain."""
    one_object(answer.text, "ballot", prompt)
    reading = read.read(bare(answer.text), predicates)
    weighed = _weighed(case, reading, "ballot")
    packet = _with_check(reading.packet.data())
    return Opinion(weighed.vote, weighed.reason, weighed.confidence, weighed.risk_level, packet or None)


def _with_check(packet: Mapping[str, Any]) -> Mapping[str, Any]:
    """A control packet with the arguments of its check as an object. In the answer schema they are a text."""
    check = packet.get("check")
    if not isinstance(check, Mapping) or not isinstance(check.get("args"), str):
        return packet
    try:
        return {**packet, "check": {**check, "args": read_object(check["args"], field="args")}}
    except EnvelopeError:
        return packet  # the council says what is wrong with it, and asks a human


def _weighed(case: Case, reading: read.Reading, key: str) -> read.Weighed:
    weighed = read.weigh(reading)
    if weighed is None or reading.ballot is None:
        own = [problem.replace("ballot", key) for problem in reading.warnings if problem.startswith("ballot")]
        problems = own or [f'it has no "{key}"', *reading.warnings]
        raise Unusable(f"it holds no {key} that can be read ({'; '.join(problems[:PROBLEMS_MAX])})")
    if reading.ballot.proposal_id not in (None, case.proposal_id):
        raise Unusable(f"it is for another proposal, {quoted(reading.ballot.proposal_id)}")
    return weighed


def ruling(case: Case, answer: ModelAnswer, prompt: Prompt, predicates: Schema | None = None) -> Ruling:
    """The ruling in an answer, weighed like a ballot. Raises Unusable unless the answer is one JSON object."""
    value = one_object(answer.text, "ruling", prompt)
    if "ruling" not in value:
        raise Unusable('it has no "ruling"')
    given = value.pop("ruling")
    word = given.get("ruling") if isinstance(given, dict) else None
    if word not in _RULINGS:
        raise Unusable(f'its "ruling" has no word that is one of {", ".join(_RULINGS)}')
    value["ballot"] = {
        **{key: part for key, part in given.items() if key != "ruling"},
        "vote": _RULINGS[word],
    }
    as_ballot = json.dumps(value, ensure_ascii=False, default=lambda broken: broken.problem)
    weighed = _weighed(case, read.read(as_ballot, predicates), "ruling")
    final: RulingWord = "human" if weighed.asks_human else _RULING_OF[weighed.vote]
    packet = value.get("control_packet")
    check = _with_check(packet).get("check") if isinstance(packet, dict) else None
    if check and given["ruling"] == "human" and not weighed.asks_human:  # a check may spare the human
        try:
            return Ruling("verify", weighed.reason, weighed.confidence, weighed.risk_level, Action.of(check))
        except EnvelopeError as error:
            raise Unusable(error.message) from None
    return Ruling(final, weighed.reason, weighed.confidence, weighed.risk_level)
