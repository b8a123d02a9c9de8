"""The prompt of one model call: its messages, and what the answer is checked against.

``builder`` builds a prompt; ``model`` sends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Literal, Protocol

from council.agents.mind import Case, ShownBallot, Stream
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
    """TOKEN_BUDGET_OVERRUN: ``field`` had more tokens than its ``limit``, and what was done (rules 2.4).

    ``how`` is the step and what took it: ``local tf-idf``, ``local minilm``, ``lite``, ``prime``.
    """

    packet: str
    field: str
    limit: int
    before: int
    after: int
    how: str


# Of one prompt, as its seat reports them: one for each field, and for each step that was taken, of a council of the
# most seats. A text within may have so many characters.
OVERRUNS_MAX, OVERRUN_CHARS_MAX = 100, 1_000


def bounded(overruns: Sequence[Overrun]) -> tuple[Overrun, ...]:
    """As many as are reported; where there are more, the last one says how many."""
    if len(overruns) <= OVERRUNS_MAX:
        return tuple(overruns)
    first, more = overruns[: OVERRUNS_MAX - 1], len(overruns) - OVERRUNS_MAX + 1
    return (*first, Overrun(first[0].packet, "…", 0, 0, 0, f"and {more} steps more, which are not recorded"))


def overruns_of(error: BaseException) -> list[dict[str, Any]]:
    """The overruns that an error tells of, or the one that it came from, as tables; what is none is left out."""
    for each in (error, error.__cause__):
        found = each.facts.get("overruns") if isinstance(each, CouncilError) else None
        if isinstance(found, tuple | list) and found:
            steps = [one for one in found if isinstance(one, Overrun)]
            told = [one for one in steps if all(map(_can_be_told, asdict(one).values()))]
            return [asdict(one) for one in bounded(told)]
    return []


def _can_be_told(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= OVERRUN_CHARS_MAX and text_problem(value) is None
    return type(value) is int


@dataclass(frozen=True, slots=True)
class Prompt:
    """One call to a model.

    ``tokens`` is what the model reads: all messages, its chat template included. ``schema`` is the JSON Schema
    of the whole answer, for servers that hold a model to one; of a ballot's an object of ``control_packet``,
    ``surface_response`` and ``ballot`` {vote, reason, confidence, risk_level; proposal_id, if it is to be named};
    for a ruling of ``ruling`` {ruling: confirm|reject|human, reason, confidence, risk_level} in place of
    ``ballot``. ``canary`` stands in the messages and is never to come back: an answer with it is not taken.
    Empty: there is none. ``nonce`` is what the markers of an answer carry that is blocks, and no JSON object; then
    there is no schema. ``sources`` are the files it was made of, by name, with the sha256 of each. ``sent`` is how
    many tokens the messages alone have by the model's own vocabulary; 0 where that is not known.
    ``output_tokens_max``: no more than so many are wanted, where its endpoint may write more.
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
        """The sha256, in hex, of the files it was made of; empty where there were none."""
        named = "".join(f"{name} {digest}\n" for name, digest in sorted(self.sources))
        return sha256(named.encode()).hexdigest() if named else ""

    def written_max(self, most: int) -> int:
        """How many tokens an answer may have where its endpoint writes at most so many."""
        return most if self.output_tokens_max is None else min(most, self.output_tokens_max)

    def cut(self, read: int) -> str:
        """What is wrong where a server says that it read so few tokens; empty where it may have read all of them.

        Some drop the beginning of what is too long, and with it who the seat is and how to answer, and say nothing.
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
    """What was run for an approved proposal, and its log: what it printed, or how it failed. Data."""

    ok: bool
    log: str


@dataclass(frozen=True, slots=True)
class Halt:
    """Why an observer interrupted a seat, and what that had said so far. Data, both of them."""

    reason: str
    said: str


class Prompter(Protocol):
    """Puts prompts together, each within its seat's MTU. Every method raises TokenBudgetError (rules 2.2, 2.4).

    Those that take ``marked`` ask for a block behind a marker then, and else for one JSON object (rules 3.2).
    """

    async def ballot(self, case: Case, plan: str | None = None) -> Prompt:
        """The prompt for a seat's own ballot, with its plan, if any; no other's ballot is in it (rules 1.14)."""

    async def ruling(self, case: Case, ballots: Sequence[ShownBallot]) -> Prompt:
        """The prompt for Prime's ruling on an escalated proposal, with all ballots as data (rules 1.8)."""

    async def plan(self, case: Case, *, marked: bool, halt: Halt | None = None) -> Prompt:
        """The prompt for how the seat will examine a case; with ``halt``, for that anew (GCP 6)."""

    async def observe(self, case: Case, stream: Stream, *, marked: bool) -> Prompt:
        """The prompt by which a seat watches another's work; nothing of its own is in it (rules 6.7)."""

    async def act(self, case: Case, done: Execution, *, marked: bool) -> Prompt:
        """The prompt for what the user is told of what was run (GCP 6)."""

    async def verify(self, case: Case, state: str, *, marked: bool) -> Prompt:
        """The prompt for whether what is found afterwards is what was wanted (GCP 6)."""

    async def again(self, prompt: Prompt, answer: str, problem: str) -> Prompt:
        """The prompt once more, after an ``answer`` that could not be taken, with ``problem`` shown to the model.

        Its canary and its other checks may be new ones. ``answer`` may be as long as the model's output limit.
        """
