"""The stages of a seat's work (GCP 6, rules 3.1): which stages a case needs, and what each answer must be.

    stages_for(case)  # ("plan", "refine"): two calls of a model, where something is to be run

A vote takes Plan and Refine. The answer to Refine is the ballot (``accept``). Observe belongs to another seat; Act
and Verify follow an approved action. If a prompt has a nonce, an answer consists of blocks, and text after another
stage's marker is ignored; otherwise it is one JSON object. In both forms, foreign text that an answer repeats has no
effect (rules 3.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic_core import from_json

from council.agents.llm.accept import Unusable, one_object
from council.agents.llm.calls import ModelAnswer
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
# This much of an answer is published as it arrives: more than a seat's plan stream accepts.
_PLAN_CHARS_MAX = 16_000
_BROKE_OFF = "\n[this broke off; it begins anew]\n"
_BLANKS = " \t\r\n"  # whitespace around a block
_THINKS, _THOUGHT = "<think>", "</think>"
# What an observer answers in blocks if it sees no fault (``observe_marked.txt``), with any emphasis.
_GOES_ON = re.compile(r"[\s*_`\"'“”]*it may go on[\s.!*_`\"'“”]*", re.IGNORECASE)
# A reason that says that there is none. It is unclear whether its model wants a halt.
_NO_REASON = re.compile(
    r"[\W_]*+(?:null|none|nil|no|n/?a|false|nothing|ok|fine|it may go on)?[\W_]*", re.IGNORECASE
)


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


def plan(case: Case, answer: ModelAnswer, prompt: Prompt) -> str:
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


def observation(case: Case, answer: ModelAnswer, prompt: Prompt) -> Observation:
    """The observation in an observer's answer. Raises Unusable if the answer neither agrees nor interrupts."""
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


def response(case: Case, answer: ModelAnswer, prompt: Prompt) -> str:
    """The text for the user. Raises Unusable."""
    if prompt.nonce is not None:
        return _block("RESPONSE", answer, prompt.nonce)
    said = one_object(answer.text, "response", prompt).get("response")
    if not isinstance(said, str) or not said.strip():
        raise Unusable('its "response" is no text')
    return said.strip()


def verification(case: Case, answer: ModelAnswer, prompt: Prompt) -> Verification:
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


def _blocks(answer: ModelAnswer, nonce: str) -> tuple[Block, ...]:
    try:
        return parse(answer.text, nonce=nonce)
    except CouncilError as error:
        raise Unusable(error.message) from error


def _block(marker: Marker, answer: ModelAnswer, nonce: str) -> str:
    """All text after this marker. Raises Unusable if it is empty."""
    found = "\n".join(block.text for block in _blocks(answer, nonce) if block.marker == marker)
    if not found.strip():
        raise Unusable(f"it has no {marker} block behind the mark that the system message shows")
    return found


# What is published of a plan as it arrives


class StepPublisher:
    """Publishes a plan's steps as they arrive from a model, and nothing else that it writes.

    ``add`` is passed to the call. ``rest`` publishes the remaining steps when the plan is complete.
    """

    def __init__(self, nonce: str | None, publish: Callable[[str], None]) -> None:
        self._nonce = nonce
        self._send = publish
        self._begin()

    def _begin(self) -> None:
        self._published = ""
        self._text = ""  # thoughts before the answer; then the answer, if it is JSON
        self._parsed = 0  # characters of the text when it was last parsed
        self._is_answer = False
        self._is_over = False  # nothing more is published before the plan is complete
        self._read = self._numbered = 0  # steps of its list that were read; those that were not empty
        self._markers = None if self._nonce is None else MarkerStream(self._nonce)

    def add(self, piece: str | None) -> None:
        """A piece of the answer; None if all of it so far is void."""
        if piece is None:
            if self._published:
                self._send(_BROKE_OFF)
            self._begin()
        elif not self._is_over:
            try:
                self._add(piece if self._is_answer else self._after_thoughts(piece))
            except (CouncilError, ValueError):
                # Endless, or not JSON: the check of the whole answer reports it.
                self._is_over = True

    def rest(self, plan: str) -> None:
        """The part of the plan that is not published yet; all of it if something else was published."""
        published = self._published.lstrip(_BLANKS)
        if not plan.startswith(published):
            published = published.rstrip(_BLANKS)
        left = plan.removeprefix(published) if plan.startswith(published) else f"{_BROKE_OFF}{plan}"
        if left.strip():
            self._publish(left)

    def _after_thoughts(self, piece: str) -> str:
        """The part of the piece that belongs to the answer. Thoughts before the answer do not."""
        self._text += piece
        if len(self._text) <= len(piece) + len(_THINKS):
            self._text = self._text.lstrip()
        if _THINKS.startswith(self._text):
            return ""
        answer = self._text
        if answer.startswith(_THINKS):
            thoughts, ends, answer = answer.partition(_THOUGHT)
            if not ends:
                self._text = _THINKS + thoughts.removeprefix(_THINKS)[-len(_THOUGHT) :]
                return ""
        self._is_answer, self._text = True, ""
        return answer

    def _add(self, piece: str) -> None:
        if self._markers is not None:
            for part in self._markers.feed(piece):
                if part.marker == "PLAN":
                    self._publish(part.text)
            return
        self._text += piece
        self._is_over = len(self._text) > _PLAN_CHARS_MAX
        # A parse reads the whole text, so the text must have grown by an eighth since the last one.
        if '"' in piece and not self._is_over and 8 * len(self._text) >= 9 * self._parsed:
            self._parsed = len(self._text)
            self._publish_steps()

    def _publish_steps(self) -> None:
        """Publishes the steps that are complete by now."""
        text = self._text.lstrip()
        text = text.partition("\n")[2] if text.startswith("```") else text
        value = from_json(text, allow_partial=True) if text else {}  # without a string that has not ended
        if not value:
            return
        steps = value.get("plan") if isinstance(value, dict) and len(value) == 1 else None
        if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
            self._is_over = True
            return
        for step in steps[self._read :]:
            self._read += 1
            if step.strip():
                self._numbered += 1
                self._publish(_numbered(self._numbered, step.strip()) + "\n")

    def _publish(self, text: str) -> None:
        self._published += text
        self._send(text)
