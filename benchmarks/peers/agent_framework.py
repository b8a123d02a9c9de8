"""The job in Microsoft's agent-framework, in three ways.

``custom_agents`` subclasses its base agent, which adds nothing to the voter's own function. ``chat_agents`` are its
own agents, whose chat client answers at once. Both are called in ``asyncio.gather``; the caller counts the votes.
``workflows`` has fan-out to three executors, and fan-in to one that counts. A workflow runs one proposal at a time,
and its documentation advises a new one for each request. Here it holds no state and is used again, which is quicker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Never

from agent_framework import (
    Agent,
    AgentResponse,
    BaseAgent,
    BaseChatClient,
    ChatResponse,
    Executor,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)

from benchmarks import job
from benchmarks.peers.child import Decide


def _vote(voter: str, text: str) -> Message:
    """The vote on a proposal whose text begins with its summary."""
    number = job.number_of(text.partition(".")[0])
    return Message("assistant", ["yes" if job.votes_yes(voter, number) else "no"])


class Voter(BaseAgent):
    async def run(self, messages: str, **_: Any) -> AgentResponse:
        return AgentResponse(messages=[_vote(str(self.name), messages)])


class Answering(BaseChatClient):
    """A chat client that answers for a voter, without a model."""

    def __init__(self, voter: str) -> None:
        super().__init__()
        self._voter = voter

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> Awaitable[ChatResponse]:
        async def answered() -> ChatResponse:
            return ChatResponse(messages=[_vote(self._voter, messages[-1].text)])

        return answered()


@asynccontextmanager
async def custom_agents(folder: Path) -> AsyncIterator[Decide]:
    yield _asked([Voter(name=name) for name in job.VOTERS])


@asynccontextmanager
async def chat_agents(folder: Path) -> AsyncIterator[Decide]:
    told = "Vote on the proposal: yes or no."
    yield _asked([Agent(client=Answering(name), name=name, instructions=told) for name in job.VOTERS])


def _asked(agents: list[Any]) -> Decide:
    async def decide(number: int) -> bool:
        body = job.body(number)
        responses = await asyncio.gather(*(agent.run(body) for agent in agents))
        return [response.text for response in responses].count("yes") > 1

    return decide


class Proposer(Executor):
    @handler
    async def submit(self, proposal: tuple[int, str], ctx: WorkflowContext[tuple[int, str]]) -> None:
        await ctx.send_message(proposal)


class Reviewer(Executor):
    @handler
    async def review(self, proposal: tuple[int, str], ctx: WorkflowContext[bool]) -> None:
        await ctx.send_message(job.votes_yes(self.id, proposal[0]))


class Majority(Executor):
    @handler
    async def tally(self, votes: list[bool], ctx: WorkflowContext[Never, bool]) -> None:
        await ctx.yield_output(sum(votes) > 1)


def _workflow() -> Workflow:
    proposer, majority = Proposer(id="proposer"), Majority(id="majority")
    reviewers = [Reviewer(id=name) for name in job.VOTERS]
    builder = WorkflowBuilder(start_executor=proposer, output_from=[majority])
    return builder.add_fan_out_edges(proposer, reviewers).add_fan_in_edges(reviewers, majority).build()


@asynccontextmanager
async def workflows(folder: Path) -> AsyncIterator[Decide]:
    idle = [_workflow() for _ in range(max(job.LEVELS))]

    async def decide(number: int) -> bool:
        workflow = idle.pop()
        result = await workflow.run((number, job.body(number)))
        idle.append(workflow)
        (approved,) = result.get_outputs()
        return bool(approved)

    yield decide
