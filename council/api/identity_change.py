"""Changes a running council's identity, as its creator (rules 7.2). The council judges the change."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from council.agents.messaging.ids import new_id
from council.api.client import Council, handle_of
from council.core.state import Decision
from council.journal.entries import wanted
from council.kinds import identity
from council.protocol.envelope import Envelope
from council.runtime.questions import AskHistory

if TYPE_CHECKING:
    from council.api.aio import AsyncCouncil
    from council.api.handle import Handle
    from council.protocol.identity.charter import Identity


def ask(council: Council, before: str, after: Identity, why: str) -> Decision:
    """What the seats decide on a change: the ballots that Prime and Lite agree with, where they do."""
    kept = identity.kept_identity(after)
    return council.propose(identity.summary(before, kept.hash, why), identity.body(kept), wait_for="all")


def change_identity(
    council: Council,
    after: Identity,
    why: str,
    *,
    before: str,
    emergency: Literal["", "rollback", "patch"] = "",
    agreed: str = "",
    human: str | None = None,
) -> dict[str, Any]:
    """Has the identity whose hash is ``before`` changed to ``after``, asked for by ``human``, or the creator.

    ``agreed`` is the proposal that ``ask`` decided. Gives the change with the council's verdict on it; it is in
    force from the first launch on whose charter has it. With the identity in force as ``after`` a change that is
    not in force yet is withdrawn. Raises Refused (``identity_refused``) with the reason,
    which is journaled, and as ``Council.answer`` does.
    """
    handle = handle_of(council)
    return handle.wait(_changed(council.aio, handle, after, why, before, emergency, agreed, human))


async def _changed(
    council: AsyncCouncil,
    handle: Handle,
    after: Identity,
    why: str,
    before: str,
    emergency: str,
    agreed: str,
    human: str | None,
) -> dict[str, Any]:
    creator = (await council.status())["identity"]["creator"]
    session = await handle.human(human or creator)
    kept = identity.kept_identity(after)
    data = {"identity": kept.text, "before": before, "emergency": emergency, "agreed": agreed}
    await session.act(
        Envelope.build(
            msg_id=new_id(),
            timestamp=datetime.now(UTC),
            sender=session.name,
            role="human",
            type="INFO",
            content={"kind": identity.KIND, "text": why, "data": data},
        )
    )
    # Not by ``council.history``, which a close that began meanwhile would refuse.
    (entry,) = await handle.session.ask(AskHistory(wanted({"types": ["identity_change"], "limit": 1})))
    found: dict[str, Any] = entry.data["change"]
    return found
