"""The job in autogen-core: an agent asks three others by direct messages, all at once, and counts their replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from autogen_core import AgentId, MessageContext, RoutedAgent, SingleThreadedAgentRuntime, message_handler

from benchmarks import job
from benchmarks.peers.child import Decide


@dataclass
class Proposal:
    number: int
    body: str


@dataclass
class Vote:
    yes: bool


@dataclass
class Decision:
    approved: bool


class Voter(RoutedAgent):
    @message_handler
    async def review(self, message: Proposal, ctx: MessageContext) -> Vote:
        return Vote(job.votes_yes(self.id.type, message.number))


class Majority(RoutedAgent):
    @message_handler
    async def decide(self, message: Proposal, ctx: MessageContext) -> Decision:
        asked = (self.send_message(message, AgentId(name, "default")) for name in job.VOTERS)
        votes = await asyncio.gather(*asked)
        return Decision(sum(vote.yes for vote in votes) > 1)


@asynccontextmanager
async def runtime(folder: Path) -> AsyncIterator[Decide]:
    runtime = SingleThreadedAgentRuntime()
    for name in job.VOTERS:
        await Voter.register(runtime, name, lambda: Voter("votes by the proposal's number"))
    await Majority.register(runtime, "majority", lambda: Majority("counts the votes"))
    runtime.start()

    async def decide(number: int) -> bool:
        decision = await runtime.send_message(
            Proposal(number, job.body(number)), AgentId("majority", "default")
        )
        return bool(decision.approved)

    try:
        yield decide
    finally:
        await runtime.stop()
