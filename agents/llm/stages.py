"""The stages of a seat's work (GCP 6, rules 3.1): which stages a case needs, and what each answer must be.

    stages_for(case)  # ("plan", "refine"): two calls of a model, where something is to be run

A vote takes Plan and Refine. The answer to Refine is the ballot (``accept``). Observe belongs to another seat; Act
and Verify follow an approved action. If a prompt has a nonce, an answer consists of blocks, and text after another
stage's marker is ignored; otherwise it is one JSON object. In both forms, foreign text that an answer repeats has no
effect (rules 3.2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from council.agents.llm.accept import Unusable, one_object
from council.agents.llm.received import Answer
from council.agents.mind import Case, Observation
from council.agents.prompting.prompt import Prompt
from council.protocol.answer.markers import Block, Marker, MarkerStream, Outcome, parse, read_verification
from council.protocol.errors import CouncilError
from council.protocol.values import quoted

Setting = Literal["auto", "one", "two"]
VoteStage = Literal["plan", "refine"]

# The plan's share of the time for a ballot; the other half is for the call that gives the ballot.
PLAN_SHARE = 0.5
# Enough for a reason that is shown to a seat or to Prime; an envelope can hold more.
REASON_CHARS_MAX = 1_000
# A step is a sentence or two. A longer one is published when the plan is complete, not as it arrives.
_STEP_CHARS_MAX = 8_000
_HEAD_CHARS_MAX = 200
_BROKE_OFF = "\n[this broke off; it begins anew]\n"
_BLANKS = " \t\r\n"  # whitespace around a block
_THINKS, _THOUGHT = "<think>", "</think>"
# What an observer answers in blocks if it sees no fault (``observe_marked.txt``), with any emphasis.
_GOES_ON = re.compile(r"[\s*_`\"'“”]*it may go on[\s.!*_`\"'“”]*", re.IGNORECASE)
# A reason that says that there is none. It is unclear whether its model wants a halt.
_NO_REASON = re.compile(
    r"[\W_]*+(?:null|none|nil|no|n/?a|false|nothing|ok|fine|it may go on)?[\W_]*", re.IGNORECASE
)
# The beginning of a plan as one JSON object, the text between steps, and the rest of a step.
_LIST = re.compile(r'(?:```[^\n`]*\n)?\s*\{\s*"plan"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_MORE = re.compile(r'(?:[^"\\]|\\.)*+', re.DOTALL)


def stages_for(case: Case, setting: Setting = "auto") -> tuple[VoteStage, ...]:
    """The calls for a vote. If there is an action, or a risk above low, a plan comes first (rules 3.1); it doubles
    the cost.

    ``setting`` is the seat's own: always "one", always "two", or "auto".
    """
    is_grave = case.action is not None or case.risk_level != "low"
    plans = is_grave if setting == "auto" else setting == "two"
    return ("plan", "refine") if plans else ("refine",)


# The checks of answers


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether an execution had the intended effect, by the state found afterwards. Never true by default."""

    outcome: Outcome
    summary: str

    def __bool__(self) -> bool:
        return self.outcome == "success"


def plan(case: Case, answer: Answer, prompt: Prompt) -> str:
    """The plan in an answer, as numbered steps. Raises Unusable if there is none."""
    if prompt.nonce is not None:
        return _block("PLAN", answer, prompt.nonce)
    value = one_object(answer.text, "plan", prompt)
    more = sorted(value.keys() - {"plan"})
    if more:  # for example a ballot, which must not come before the plan was observed
        raise Unusable(f'it has more in it than the "plan": {quoted(", ".join(more))}')
    steps = value.get("plan")
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise Unusable('its "plan" is no list of texts')
    steps = [step.strip() for step in steps if step.strip()]
    if not steps:
        raise Unusable("its plan has no step")
    return "\n".join(_numbered(at, step) for at, step in enumerate(steps, 1))


def observation(case: Case, answer: Answer, prompt: Prompt) -> Observation:
    """What an observer's answer says of a stream. Raises Unusable: then it neither agrees nor interrupts."""
    if prompt.nonce is not None:
        blocks = [block.text for block in _blocks(answer, prompt.nonce) if block.marker == "INTERRUPT"]
        # A halt with a wrong marker is not a permission to continue.
        if not blocks and not _GOES_ON.fullmatch(answer.text):
            raise Unusable('it is neither an INTERRUPT block behind its mark nor "It may go on."')
        why = "\n".join(blocks).strip()
        if blocks and _NO_REASON.fullmatch(why):
            raise Unusable("its INTERRUPT says no reason")
        return Observation(bool(blocks), why[:REASON_CHARS_MAX])
    value = one_object(answer.text, "interrupt", prompt, may_echo=True)
    said = value.get("interrupt", False)
    if said is None:
        return Observation(False)
    if not isinstance(said, str) or _NO_REASON.fullmatch(said):
        raise Unusable('its "interrupt" is neither null nor a reason')
    return Observation(True, said.strip()[:REASON_CHARS_MAX])


def response(case: Case, answer: Answer, prompt: Prompt) -> str:
    """The text for the user. Raises Unusable."""
    if prompt.nonce is not None:
        return _block("RESPONSE", answer, prompt.nonce)
    said = one_object(answer.text, "response", prompt).get("response")
    if not isinstance(said, str) or not said.strip():
        raise Unusable('its "response" is no text')
    return said.strip()


def verification(case: Case, answer: Answer, prompt: Prompt) -> Verification:
    """Whether it was a success. Raises Unusable if the answer says neither yes nor no."""
    if prompt.nonce is not None:
        blocks = _blocks(answer, prompt.nonce)
        outcome = read_verification(blocks)
        summary = "\n".join(block.text for block in blocks if block.marker == "VERIFY")
    else:
        value = one_object(answer.text, "verify", prompt)
        word, said = value.get("verify"), value.get("summary")
        outcome = word if word == "success" or word == "fail" else None
        summary = said if isinstance(said, str) else ""
    if outcome is None:
        raise Unusable("it does not say success or fail")
    return Verification(outcome, summary.strip()[:REASON_CHARS_MAX])


def _numbered(at: int, step: str) -> str:
    return f"{at}. {step}"


def _blocks(answer: Answer, nonce: str) -> tuple[Block, ...]:
    try:
        return parse(answer.text, nonce=nonce)
    except CouncilError as error:
        raise Unusable(error.message) from error


def _block(marker: Marker, answer: Answer, nonce: str) -> str:
    """All text after this marker. Raises Unusable if it is empty."""
    found = "\n".join(block.text for block in _blocks(answer, nonce) if block.marker == marker)
    if not found.strip():
        raise Unusable(f"it has no {marker} block behind the mark that the system message shows")
    return found


# What is published of a plan as it arrives


def _end(pattern: re.Pattern[str], text: str, begin: int) -> int:
    """The end of the match at this place; the match may be empty."""
    found = pattern.match(text, begin)
    return begin if found is None else found.end()


class StepPublisher:
    """Publishes a plan's steps as they arrive from a model, and nothing else that it writes.

    ``add`` is passed to the call. ``rest`` publishes the remaining steps when the plan is complete.
    """

    def __init__(self, nonce: str | None, say: Callable[[str], None]) -> None:
        self._nonce = nonce
        self._say = say
        self._begin()

    def _begin(self) -> None:
        self._said = ""
        self._held = ""  # what it may think aloud before its answer, then the beginning of a step
        self._answers = False
        self._deaf = False
        self._steps: int | None = None  # of its list so many were told; None before it has begun
        self._at = 0  # so much of what is held was read, of a step that has not ended
        self._markers = None if self._nonce is None else MarkerStream(self._nonce)

    def add(self, piece: str | None) -> None:
        """A piece of the answer; None where all of it so far is void."""
        if piece is None:
            if self._said:
                self._say(_BROKE_OFF)
            self._begin()
        elif not self._deaf:
            try:
                self._deaf = not self._advance(piece)
            except (CouncilError, ValueError):  # endless, or no JSON: whoever reads it whole says so
                self._deaf = True

    def rest(self, plan: str) -> None:
        """What of the plan was not said yet; all of it, where something else was."""
        said = self._said.strip(_BLANKS)
        left = plan.removeprefix(said) if plan.startswith(said) else f"{_BROKE_OFF}{plan}"
        if left.strip():
            self._publish(left)

    def _advance(self, piece: str) -> bool:
        """Whether there may be more to hear."""
        if not self._answers:
            piece = self._behind_thoughts(piece)
        if not piece:
            return True
        if self._markers is None:
            return self._advance_json(piece)
        for part in self._markers.feed(piece):
            if part.marker == "PLAN":
                self._publish(part.text)
        return True

    def _behind_thoughts(self, piece: str) -> str:
        """What of the piece is answer: thoughts that come before it are none."""
        self._held = (self._held + piece).lstrip() if len(self._held) < len(_THINKS) else self._held + piece
        if _THINKS.startswith(self._held):
            return ""
        if self._held.startswith(_THINKS):
            thoughts, ends, answer = self._held.partition(_THOUGHT)
            if not ends:
                self._held = _THINKS + thoughts.removeprefix(_THINKS)[-len(_THOUGHT) :]
                return ""
        else:
            answer = self._held
        self._answers, self._held = True, ""
        return answer

    def _advance_json(self, piece: str) -> bool:
        self._held += piece
        if self._steps is None:
            begins = _LIST.match(self._held)
            if begins is None:
                return len(self._held) <= _HEAD_CHARS_MAX
            self._steps, self._held = 0, self._held[begins.end() :]
        return self._publish_steps()

    def _publish_steps(self) -> bool:
        """Tells the steps that are whole by now, up to the list's end."""
        held, begin = self._held, 0
        while True:
            if not self._at:
                begin = _end(_BETWEEN, held, begin)
                if begin == len(held):
                    break
                if held[begin] != '"':
                    return False  # the list is over, or no list of texts
                self._at = begin + 1
            end = _end(_MORE, held, self._at)
            self._at = end
            if not held.startswith('"', end):
                break
            step = json.loads(held[begin : end + 1], strict=False).strip()
            begin, self._at = end + 1, 0
            if step:
                self._steps = (self._steps or 0) + 1
                self._publish(_numbered(self._steps, step) + "\n")
        self._held, self._at = held[begin:], max(self._at - begin, 0)
        return len(self._held) <= _STEP_CHARS_MAX

    def _publish(self, text: str) -> None:
        self._said += text
        self._say(text)
