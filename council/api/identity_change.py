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
    """Asks the seats about a change. Their ballots show whether Prime and Lite agree."""
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
    """Changes the identity with the hash ``before`` to ``after``, on behalf of ``human``, by default the creator.

    ``agreed`` is the proposal that ``ask`` decided. Returns the change with the council's verdict. It takes effect at
    the first launch whose charter has it. If ``after`` is the identity in force, a change that is not in force yet is
    withdrawn. Raises Refused (``identity_refused``) with the reason, which is journaled, and the errors of
    ``Council.answer``.
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
    # Not by ``council.history``, which a simultaneous close would refuse.
    (entry,) = await handle.session.ask(AskHistory(wanted({"types": ["identity_change"], "limit": 1})))
    found: dict[str, Any] = entry.data["change"]
    return found
