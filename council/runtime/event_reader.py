"""Reads an authentic envelope as an event of the core. Checks who may send what."""

from __future__ import annotations

from council.core import events as ev
from council.kinds.incoming import Incoming
from council.kinds.table import MESSAGES
from council.protocol.envelope import Envelope, Info
from council.protocol.errors import CouncilError, EnvelopeError, Refused
from council.protocol.signing import digest
from council.runtime.messages import printable

# rules 1.1: the roles that a sender may have in a message; a seat may propose too.
PARTS = {
    "voter": ("voter", "observer", "proposer"),
    "proposer": ("proposer",),
    "human": ("human",),
    "executor": ("executor",),
}


def event_of(envelope: Envelope, size: int, digest: str, role: str | None) -> ev.Event:
    """The event of an authentic envelope of ``size`` sealed bytes; ``role`` is its sender's.

    Raises Refused if its sender may not send it.
    """
    message = Incoming(envelope, size, digest)
    content, sender = message.content, message.sender
    if envelope.role not in PARTS.get(role or "", ()):
        raise Refused(
            f"{sender} joined as a {role} and may not speak as {envelope.role}",
            code="wrong_role",
            sender=sender,
        )
    kind = content.kind if isinstance(content, Info) else ""
    said = MESSAGES.get((envelope.type, kind))
    speaker = "voter" if said is None else said.by
    if not kind and speaker not in ("any", role):
        raise Refused(f"{sender} is not a seat and may not send {envelope.type}", code="not_a_seat")
    if said is not None and said.parts and envelope.role not in said.parts:
        raise Refused(
            f"{sender} sent a {envelope.type} as {envelope.role}: expected {' or '.join(said.parts)}",
            code="wrong_role",
            sender=sender,
        )
    if kind and speaker not in ("any", role):
        raise Refused(f"{sender} joined as a {role} and may not send INFO of kind {kind}", code="wrong_role")
    if kind and content.data.get("proposal_id", message.proposal_id) != message.proposal_id:
        raise EnvelopeError(
            "content.data.proposal_id names another proposal than parent_id", field="content.data.proposal_id"
        )
    if said is None:
        raise Refused(f"the council does not act on INFO of kind {kind!r}", code="unknown_kind")
    return said.read(message)


def reserved_for(envelope: Envelope) -> str:
    """The proposal that a reservation is for; empty for any other message."""
    content = envelope.content
    return (envelope.parent_id or "") if isinstance(content, Info) and content.kind == "reserve" else ""


def unreadable(error: CouncilError, sealed: bytes) -> ev.BallotUnreadable | None:
    """The event of an authentic VOTE that can't be read; None for any other error."""
    facts = error.facts
    if not (isinstance(error, EnvelopeError) and facts.get("authentic") and facts.get("type") == "VOTE"):
        return None
    return ev.BallotUnreadable(
        facts["parent_id"] or "", facts["sender"], printable(error.message), digest(sealed)
    )
