"""A FastAPI service that asks a council before it deletes. Run it with: uvicorn examples.web_app:app"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

from council import Action, AsyncCouncil


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncCouncil.inline() as council:
        app.state.council = council
        yield


app = FastAPI(lifespan=lifespan)


@app.delete("/buckets/{name}")
async def delete(name: str) -> dict[str, str]:
    decision = await app.state.council.propose(
        f"Delete the bucket {name}", action=Action("delete_bucket", {"name": name})
    )
    if not decision.final:
        # A human must decide. The caller asks again later.
        raise HTTPException(202, {"waits_for": decision.escalation_id})
    if not decision:
        raise HTTPException(403, decision.explain())
    return {"deleted": name}


@app.get("/decisions/{proposal_id}")
async def decision(proposal_id: str) -> dict[str, str]:
    return {"decision": str(await app.state.council.decision(proposal_id))}
