"""The part of a model's answer that has arrived, and the whole answer with its cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from council.agents.llm import http
from council.agents.llm.endpoint import Endpoint
from council.agents.llm.failures import Failed
from council.agents.messaging import spans
from council.agents.messaging.logs import get_logger
from council.agents.mind import COST_MAX, Cost
from council.agents.prompting.prompt import Prompt

log = get_logger("council.model")

# A token is rarely more than a word. The longest are rows of blanks or dashes, about a dozen characters.
CHARS_A_TOKEN_MAX = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer. ``finish`` is why it stopped, as the server reports; None if it broke off."""

    text: str
    finish: str | None
    refusal: str = ""


class Received:
    """Collects an answer. Servers differ, so nothing about a chunk is assumed."""

    def __init__(self, chars_max: int) -> None:
        self.parts: list[str] = []
        self.refusals: list[str] = []
        self.finish: str | None = None
        self.usage: Any = None
        self.chars = self.chunks = 0
        self._chars_max = chars_max

    @property
    def is_whole(self) -> bool:
        """Whether the answer is complete, though the server may not close the connection."""
        return self.finish is not None and self.usage is not None

    def add_chunk(self, chunk: Any) -> str:
        """Stores a chunk, and returns the part of the answer's text in it."""
        self.chunks += 1
        before = len(self.parts)
        usage = getattr(chunk, "usage", None)
        self.usage = usage if usage is not None else self.usage
        for choice in getattr(chunk, "choices", None) or ():
            if getattr(choice, "index", 0) not in (0, None):
                continue
            delta = getattr(choice, "delta", None)
            for kept, piece in ((self.parts, "content"), (self.refusals, "refusal")):
                text = getattr(delta, piece, None)
                if isinstance(text, str):
                    kept.append(text)
                    self.chars += len(text)
            finish = getattr(choice, "finish_reason", None)
            self.finish = finish if isinstance(finish, str) else self.finish
        self._bound()
        return "".join(self.parts[before:])

    def add(self, text: str) -> None:
        """Stores the answer's next piece."""
        self.chunks += 1
        self.parts.append(text)
        self.chars += len(text)
        self._bound()

    def _bound(self) -> None:
        if self.chars > self._chars_max:
            raise http.TooMuch


def whole_answer(endpoint: Endpoint, prompt: Prompt, received: Received) -> tuple[Answer, Cost | None]:
    """The received answer and its cost. Raises Failed if there is none, or it is incomplete."""
    if not received.chunks:
        what = "it sent no stream of chunks: is its base_url right? It mostly ends in /v1"
        raise Failed(what, again=False, used=None)
    if received.finish is None:
        what = f"it broke off after {received.chars:,} characters, without saying why it stopped"
        raise Failed(what, again=True, used=None)
    used = _used(endpoint, received)
    if used is not None and (cut := prompt.cut(received.usage.prompt_tokens)):
        raise Failed(cut, again=False, used=used)
    return Answer("".join(received.parts), received.finish, "".join(received.refusals)), used


def _used(endpoint: Endpoint, received: Received) -> Cost | None:
    """The usage that the server reports, if that is plausible; otherwise None."""
    usage = received.usage
    counts = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    read, written, both = (count if type(count) is int and count >= 0 else None for count in counts)
    if (
        not read
        or written is None
        or max(read, written, both or 0) > COST_MAX
        or written * CHARS_A_TOKEN_MAX < received.chars
    ):
        if usage is not None:
            log.warning("the model's server reported an impossible usage", model=str(endpoint))
        spans.answered(received.finish, None, None)
        return None
    # Some servers count a model's thinking only in the total. It costs as much as the answer.
    written = max(written, (both or 0) - read)
    spans.answered(received.finish, read, written)
    return endpoint.cost(read, written)


def endless(endpoint: Endpoint, prompt: Prompt, received: Received) -> Failed:
    most = prompt.written_max(endpoint.max_output_tokens)
    what = f"it did not stop: {received.chars:,} characters and more, where {most:,} tokens were asked for"
    return Failed(what, again=False, used=None)
