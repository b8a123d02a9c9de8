"""The job as a workflow of Microsoft's agent-framework: fan-out to three executors, fan-in to one that counts.

A workflow runs one proposal at a time. Its documentation advises a new one for each request (``fresh``). Here a
workflow holds no state, so that one which has ended can be run again, which is quicker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Never

from agent_framework import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler

from benchmarks import job
from benchmarks.peers.child import Decide


class Proposer(Executor):
    @handler
    async def submit(self, proposal: tuple[int, str], ctx: WorkflowContext[tuple[int, str]]) -> None:
        await ctx.send_message(proposal)


class Voter(Executor):
    @handler
    async def review(self, proposal: tuple[int, str], ctx: WorkflowContext[bool]) -> None:
        await ctx.send_message(job.votes_yes(self.id, proposal[0]))


class Majority(Executor):
    @handler
    async def tally(self, votes: list[bool], ctx: WorkflowContext[Never, bool]) -> None:
        await ctx.yield_output(sum(votes) > 1)


def _workflow() -> Workflow:
    proposer, majority = Proposer(id="proposer"), Majority(id="majority")
    voters = [Voter(id=name) for name in job.VOTERS]
    builder = WorkflowBuilder(start_executor=proposer, output_from=[majority])
    return builder.add_fan_out_edges(proposer, voters).add_fan_in_edges(voters, majority).build()


async def _run(workflow: Workflow, number: int) -> bool:
    found: list[bool] = (await workflow.run((number, job.body(number)))).get_outputs()
    (approved,) = found
    return approved


@asynccontextmanager
async def reused(folder: Path) -> AsyncIterator[Decide]:
    idle = [_workflow() for _ in range(max(job.LEVELS))]

    async def decide(number: int) -> bool:
        workflow = idle.pop()
        approved = await _run(workflow, number)
        idle.append(workflow)
        return approved

    yield decide


@asynccontextmanager
async def fresh(folder: Path) -> AsyncIterator[Decide]:
    async def decide(number: int) -> bool:
        return await _run(_workflow(), number)

    yield decide
