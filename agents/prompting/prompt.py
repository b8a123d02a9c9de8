"""The prompt of one model call: its messages, and the data that the answer is checked against.

``builder`` builds a prompt; ``model`` sends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Literal

from council.protocol.errors import CouncilError
from council.protocol.values import text_problem

Task = Literal["ballot", "ruling", "plan", "observe", "act", "verify", "compress"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Overrun:
    """TOKEN_BUDGET_OVERRUN: ``field`` had more tokens than its ``limit``, and was shortened (rules 2.4).

    ``how`` is the step and the method: ``local tf-idf``, ``local minilm``, ``lite``, ``prime``.
    """

    packet: str
    field: str
    limit: int
    before: int
    after: int
    how: str


# The overruns that a seat reports for one prompt: one for each field and step, in a council of the largest size. A
# text in one has at most this many characters.
OVERRUNS_MAX, OVERRUN_CHARS_MAX = 100, 1_000


def bounded(overruns: Sequence[Overrun]) -> tuple[Overrun, ...]:
    """As many as are reported. If there are more, the last one says how many."""
    if len(overruns) <= OVERRUNS_MAX:
        return tuple(overruns)
    first, more = overruns[: OVERRUNS_MAX - 1], len(overruns) - OVERRUNS_MAX + 1
    return (*first, Overrun(first[0].packet, "…", 0, 0, 0, f"and {more} steps more, which are not recorded"))


def overruns_of(error: BaseException) -> list[dict[str, Any]]:
    """The overruns of an error or of its cause, as mappings; invalid ones are left out."""
    for each in (error, error.__cause__):
        found = each.facts.get("overruns") if isinstance(each, CouncilError) else None
        if isinstance(found, tuple | list) and found:
            steps = [one for one in found if isinstance(one, Overrun)]
            reported = [one for one in steps if all(map(_is_reportable, asdict(one).values()))]
            return [asdict(one) for one in bounded(reported)]
    return []


def _is_reportable(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= OVERRUN_CHARS_MAX and text_problem(value) is None
    return type(value) is int


@dataclass(frozen=True, slots=True)
class Prompt:
    """One call to a model.

    ``tokens`` is the number of tokens that the model reads: all messages and its chat template. ``schema`` is the
    JSON Schema of the whole answer, for servers that enforce one. A ballot's is an object of ``control_packet``,
    ``surface_response`` and ``ballot`` {vote, reason, confidence, risk_level; proposal_id, if it must be named}. A
    ruling's has ``ruling`` {ruling: confirm|reject|human, reason, confidence, risk_level} in place of ``ballot``.
    ``canary`` is in the messages and must never come back: an answer that holds it is not accepted. If it is empty,
    there is none. ``nonce`` is carried by the markers of an answer in blocks; such a prompt has no schema.
    ``sources`` are the names of its files, each with its sha256. ``sent`` is the number of tokens of the messages
    alone by the model's own vocabulary; 0 if that is unknown. ``output_tokens_max`` is a limit for the answer, if its
    endpoint allows more.
    """

    task: Task
    proposal_id: str
    messages: tuple[Message, ...]
    schema: Mapping[str, Any]
    tokens: int
    canary: str = ""
    sources: tuple[tuple[str, str], ...] = ()
    overruns: tuple[Overrun, ...] = ()
    nonce: str | None = None
    sent: int = 0
    output_tokens_max: int | None = None

    @property
    def mark(self) -> str:
        """The sha256, in hex, of its source files; empty if there are none."""
        named = "".join(f"{name} {digest}\n" for name, digest in sorted(self.sources))
        return sha256(named.encode()).hexdigest() if named else ""

    def written_max(self, most: int) -> int:
        """The token limit of an answer, if its endpoint allows ``most``."""
        return most if self.output_tokens_max is None else min(most, self.output_tokens_max)

    def cut(self, read: int) -> str:
        """The error if a server reports that it read too few tokens; empty if it may have read the whole prompt.

        Some servers silently drop the beginning of a long prompt, and with it who the seat is and how to answer.
        """
        if 2 * read >= self.sent:
            return ""
        return (
            f"the server cut the prompt: it read {read:,} of {self.sent:,} tokens; raise its context (num_ctx or "
            "OLLAMA_CONTEXT_LENGTH in Ollama, --ctx-size in llama.cpp) or lower max_context_tokens, and see that "
            "tokenizer is the model's own"
        )


@dataclass(frozen=True, slots=True)
class Execution:
    """The result of an approved action, and its log: its output, or its error. It is data."""

    ok: bool
    log: str


@dataclass(frozen=True, slots=True)
class Halt:
    """An interrupt: the observer's reason, and what the seat had said. Both are data."""

    reason: str
    said: str
