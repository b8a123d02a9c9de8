"""What has come of a model's answer so far, and the whole answer with its cost."""

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

# A token is rarely more than a word; the longest are rows of blanks or dashes, some dozen characters.
CHARS_A_TOKEN_MAX = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said. ``finish`` is why it stopped, as the server tells it; None where it broke off."""

    text: str
    finish: str | None
    refusal: str = ""


class Received:
    """What has come of an answer; servers are many, and nothing about a chunk is taken for granted."""

    def __init__(self, chars_max: int) -> None:
        self.parts: list[str] = []
        self.refusals: list[str] = []
        self.finish: str | None = None
        self.usage: Any = None
        self.chars = self.chunks = 0
        self._chars_max = chars_max

    @property
    def is_whole(self) -> bool:
        """Nothing more is needed, though the server may not close the line."""
        return self.finish is not None and self.usage is not None

    def take(self, chunk: Any) -> str:
        """Keeps what a chunk brings; gives what of it is the answer's text."""
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
        """Keeps the answer's next piece."""
        self.chunks += 1
        self.parts.append(text)
        self.chars += len(text)
        self._bound()

    def _bound(self) -> None:
        if self.chars > self._chars_max:
            raise http.TooMuch


def whole_answer(endpoint: Endpoint, prompt: Prompt, received: Received) -> tuple[Answer, Cost | None]:
    """The answer that was received, and what it cost. Raises Failed where it is none, or not all of one."""
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
    """What the server says that it used, where that can be true; None where it can't, or nothing was said."""
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
    # Some count a model's thinking in the total alone; it is paid for like what is written.
    written = max(written, (both or 0) - read)
    spans.answered(received.finish, read, written)
    return endpoint.cost(read, written)


def endless(endpoint: Endpoint, prompt: Prompt, received: Received) -> Failed:
    most = prompt.written_max(endpoint.max_output_tokens)
    what = f"it did not stop: {received.chars:,} characters and more, where {most:,} tokens were asked for"
    return Failed(what, again=False, used=None)
