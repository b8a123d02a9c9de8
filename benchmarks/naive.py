"""The naive way to have three models decide: a group chat, in which each reads everything that was said so far.

Rounds of speakers as AutoGen's RoundRobinGroupChat has them: whoever's turn it is gets its own system message and the
whole conversation, which is the session that led to the proposal, the proposal, and every ballot cast before; its
answer joins the conversation. Where it can be cheaper it is: one round, after which there is a majority or none;
ballots in prose, without schema or fences; the role's own text and four lines as system message; a new chat for each
proposal, so that none pays for the ones before it. With ``plans`` there is a round of plans first, as seats have a
stage for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openai import OpenAI

from benchmarks.proposals import Planted
from council.agents.mind import Action, Case
from council.agents.prompting.builder import case_text
from council.agents.prompting.texts import load_texts

CHAT = """You are in a group chat with the other seats. You see the session that led to a proposal, the proposal,
and what the others have said."""
PLAN = "Say in steps how you will examine it, and what you see already. Don't vote yet."
ANSWER = """Say what speaks for it and against it, and why you vote as you do.
Your last line is VOTE: yes, VOTE: no or VOTE: abstain."""


class GroupChat:
    """Seats by name, each with the model that it asks."""

    def __init__(self, base_url: str, models: Mapping[str, str]) -> None:
        self._models = models
        self._client = OpenAI(base_url=base_url, api_key="none", max_retries=0)
        texts = load_texts()
        self._systems = {seat: f"{texts.of_role(seat)}\n\n{CHAT}" for seat in models}

    def decide(self, proposal: Planted, *, plans: bool = False) -> bool:
        """Whether more said yes than no."""
        action = None if proposal.action is None else Action.of(proposal.action)
        case = Case("", "", proposal.summary, proposal.body, action)
        said = [(turn.who, turn.text) for turn in proposal.history] + [("proposer", case_text(case))]
        for task in (PLAN, ANSWER) if plans else (ANSWER,):
            for seat in self._models:
                said.append((seat, self._asked(seat, task, said)))
        votes = [text.rpartition("VOTE:")[2].strip() for _, text in said[-len(self._models) :]]
        return votes.count("yes") > votes.count("no")

    def _asked(self, seat: str, task: str, said: list[tuple[str, str]]) -> str:
        told = [{"role": "user", "name": who, "content": text} for who, text in said]
        stream: Any = self._client.chat.completions.create(
            model=self._models[seat],
            messages=[{"role": "system", "content": f"{self._systems[seat]}\n{task}"}, *told],  # type: ignore[list-item]
            stream=True,
        )
        return "".join(choice.delta.content or "" for chunk in stream for choice in chunk.choices)

    def close(self) -> None:
        self._client.close()
