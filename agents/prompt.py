"""What a model is asked with: the messages of one call, and what its answer is checked against.

Knows no model and no server (``model`` does), nor how a prompt is put together (``prompt_builder`` does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, Protocol

from council.agents.mind import Case, ShownBallot

Task = Literal["ballot", "ruling"]


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


@dataclass(frozen=True, slots=True)
class Prompt:
    """One call to a model.

    ``tokens`` is what the model reads: all messages, its chat template included. ``schema`` is the JSON Schema
    of the whole answer, for servers that hold a model to one: an object of ``control_packet``,
    ``surface_response`` and ``ballot`` {vote, reason, confidence, risk_level; proposal_id, if it is to be named};
    for a ruling of ``ruling`` {ruling: confirm|reject|human, reason, confidence, risk_level} in place of
    ``ballot``. ``canary`` stands in the messages and is never to come back: an answer with it is not taken.
    Empty: there is none. ``sources`` are the files it was made of, by name, with the sha256 of each.
    """

    task: Task
    proposal_id: str
    messages: tuple[Message, ...]
    schema: Mapping[str, Any]
    tokens: int
    canary: str = ""
    sources: tuple[tuple[str, str], ...] = ()
    overruns: tuple[Overrun, ...] = ()

    @property
    def mark(self) -> str:
        """The sha256, in hex, of the files it was made of; empty where there were none."""
        named = "".join(f"{name} {digest}\n" for name, digest in sorted(self.sources))
        return sha256(named.encode()).hexdigest() if named else ""


class Prompter(Protocol):
    """Puts prompts together, each within its seat's MTU. Every method raises TokenBudgetError (rules 2.2, 2.4)."""

    async def ballot(self, case: Case) -> Prompt:
        """The prompt for a seat's own ballot: no other's ballot is in it (rules 1.14)."""

    async def ruling(self, case: Case, ballots: Sequence[ShownBallot]) -> Prompt:
        """The prompt for Prime's ruling on an escalated proposal, with all ballots as data (rules 1.8)."""

    async def again(self, prompt: Prompt, answer: str, problem: str) -> Prompt:
        """The prompt once more, after an ``answer`` that could not be taken, with ``problem`` shown to the model.

        Its canary and its other checks may be new ones. ``answer`` may be as long as the model's output limit.
        """
