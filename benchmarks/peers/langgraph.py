"""The job as a graph of langgraph: three nodes run side by side, and a fourth counts their votes.

With checkpoints, each proposal is a thread of its own in SQLite. ``sync`` keeps each step before the next begins,
``exit`` keeps the last state alone, before the caller gets it.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks import job
from benchmarks.peers.child import Decide


class State(TypedDict):
    number: int
    body: str
    votes: Annotated[list[bool], operator.add]
    approved: bool


def _graph() -> Any:
    graph = StateGraph(State)
    for name in job.VOTERS:

        async def review(state: State, name: str = name) -> dict[str, Any]:
            return {"votes": [job.votes_yes(name, state["number"])]}

        graph.add_node(name, review)
        graph.add_edge(START, name)

    async def tally(state: State) -> dict[str, Any]:
        return {"approved": sum(state["votes"]) > 1}

    graph.add_node("majority", tally)
    graph.add_edge(list(job.VOTERS), "majority")
    graph.add_edge("majority", END)
    return graph


@asynccontextmanager
async def in_memory(folder: Path) -> AsyncIterator[Decide]:
    graph = _graph().compile()

    async def decide(number: int) -> bool:
        found = await graph.ainvoke({"number": number, "body": job.body(number), "votes": []})
        return bool(found["approved"])

    yield decide


@asynccontextmanager
async def _checkpointed(folder: Path, durability: Literal["sync", "exit"]) -> AsyncIterator[Decide]:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
        graph = _graph().compile(checkpointer=saver)

        async def decide(number: int) -> bool:
            found = await graph.ainvoke(
                {"number": number, "body": job.body(number), "votes": []},
                {"configurable": {"thread_id": str(uuid.uuid4())}},
                durability=durability,
            )
            return bool(found["approved"])

        yield decide


def each_step(folder: Path) -> Any:
    return _checkpointed(folder, "sync")


def last_state(folder: Path) -> Any:
    return _checkpointed(folder, "exit")
