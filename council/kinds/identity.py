"""Collects the evidence for a change of the identity. ``protocol/identity/change.py`` judges it (rules 7.2).

The evidence comes from the council's own state, and so from the journal: how long Prime and Lite have been online,
counted from the last change of the roll or start of a coordinator. If the council was asked about the change, their
votes count too. Nothing measures a stack's stability yet, so no stack counts as stable, and the creator decides.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from msgspec.structs import replace
from pydantic import ValidationError

from council.core import events as ev
from council.core.roll import online_s
from council.core.state import CouncilState, IdentityChange, KeptIdentity
from council.protocol.envelope import Envelope, Info, Proposal
from council.protocol.errors import EnvelopeError, Refused
from council.protocol.identity import change as identity_change
from council.protocol.identity.change import LITE, PRIME
from council.protocol.identity.charter import Identity
from council.protocol.models import malformed
from council.protocol.values import read_json

KIND = "identity_change"  # of the INFO that asks for one
_ASKED = re.compile(r"Change the identity [0-9a-f]{64} to ([0-9a-f]{64}), as it stands below: ")
_SHOWN = "The identity would be:\n"
EMERGENCIES = ("", "rollback", "patch")
# The largest identity, as JSON.
TEXT_BYTES_MAX = 512 * 2**10


def kept_identity(identity: Identity) -> KeptIdentity:
    """The form of an identity that the journal keeps."""
    return KeptIdentity(identity.content_hash(), identity.canonical().decode())


def of_text(text: str) -> Identity:
    """The identity from the text of ``kept_identity``. Raises EnvelopeError."""
    found = read_json(text, field="identity", bytes_max=TEXT_BYTES_MAX, commas_max=TEXT_BYTES_MAX)
    return Identity.build(found)


def summary(before: str, after: str, why: str) -> str:
    """The summary of the proposal in which Prime and Lite agree to a change; their ballots are on these hashes."""
    return f"Change the identity {before} to {after}, as it stands below: {why}"


def body(after: KeptIdentity) -> str:
    """The body of that proposal: the identity with the new hash."""
    return f"{_SHOWN}{after.text}"


def refuse_another(content: Proposal) -> None:
    """Raises Refused for a proposal that asks for a change of the identity but shows the seats something else."""
    asked = _ASKED.match(content.summary)
    text = content.body.removeprefix(_SHOWN)
    shown = len(text) < len(content.body) and sha256(text.encode()).hexdigest()
    if asked is not None and (shown != asked[1] or content.action is not None or content.history):
        raise Refused(
            f"the proposal asks for a change of the identity to {asked[1][:12]}, and shows something else: its body "
            "must be that identity and no more, as council.api.identity_change.ask makes it",
            code="another_identity",
        )


def requested_change(envelope: Envelope, content: Info) -> ev.IdentityChanged:
    """The change that a human asks for, not yet judged. Raises EnvelopeError, which names the field."""
    facts = {name: content.data.get(name, "") for name in ("identity", "before", "emergency", "agreed")}
    for name, value in facts.items():
        if not isinstance(value, str):
            raise EnvelopeError(f"content.data.{name} is not a text", field=f"content.data.{name}")
    if facts["emergency"] not in EMERGENCIES:
        raise EnvelopeError(
            "content.data.emergency is neither rollback nor patch", field="content.data.emergency"
        )
    return ev.IdentityChanged(
        IdentityChange(
            before=facts["before"],
            after=kept_identity(of_text(facts["identity"])),
            human=envelope.sender,
            why=content.text,
            emergency=facts["emergency"],
            agreed=facts["agreed"],
        )
    )


def judged(state: CouncilState, event: ev.IdentityChanged, uptime_s: float) -> ev.IdentityChanged:
    """The change with the verdict on it. Raises Refused with the reason if it is not allowed."""
    change, rules = event.change, state.rules
    current = rules.identity
    if not current.hash:
        raise _refused(change, "this council was launched without an identity; launch it again")
    if not rules.creator:
        raise _refused(change, "no creator was enrolled at launch: see the settings humans and creator")
    agreed_by = _agreed_by(state, change)
    verdict = identity_change.judge_change(
        _proposed(change, agreed_by),
        of_text(current.text),
        creator=rules.creator,
        earlier=state.identity_past.earlier,
        waiting=state.identity_change.after.hash if state.identity_change is not None else "",
    )
    if verdict.basis is None:
        raise _refused(change, verdict.reason)
    return ev.IdentityChanged(
        replace(
            change,
            agreed_by=agreed_by,
            basis=verdict.basis,
            reason=verdict.reason,
            prime_online_s=online_s(state, rules.prime, uptime_s),
            lite_online_s=online_s(state, LITE, uptime_s),
        )
    )


def _proposed(change: IdentityChange, seats: tuple[str, ...]) -> identity_change.IdentityChange:
    fields: dict[str, Any] = {
        "identity": of_text(change.after.text),
        "base_hash": change.before,
        "proposed_by": change.human,
        "seats": seats,
        "why": change.why,
        "emergency": change.emergency or None,
    }
    try:
        return identity_change.IdentityChange.model_validate(fields)
    except ValidationError as error:
        raise malformed(error) from None


def _agreed_by(state: CouncilState, change: IdentityChange) -> tuple[str, ...]:
    """Those of Prime and Lite that agree to this change, by the decision that it names, which must have approved it.

    A seat agrees if it voted yes; for Prime, its ruling counts if there was one. A decision is good for one change:
    one that was made before the last change or withdrawal does not count.
    """
    if not change.agreed:
        return ()
    closed = state.closed.get(change.agreed)
    if closed is None:
        raise _refused(change, f"this council has decided no proposal {change.agreed}")
    decision = closed.decision
    if not decision.summary.startswith(summary(change.before, change.after.hash, "")):
        raise _refused(change, f"{change.agreed} was not about this change")
    if decision.outcome != "approved":
        raise _refused(change, f"the council did not agree: {change.agreed} was {decision.outcome}")
    if decision.position < state.identity_past.changed_at:
        raise _refused(
            change, f"{change.agreed} was decided before the last change, so it does not count: ask again"
        )
    voted = {ballot.seat for ballot in decision.ballots if ballot.vote == "yes"}
    if decision.ruling is not None and decision.ruling.ruling != "confirm":
        voted.discard(state.rules.prime)
    seats = ((PRIME, state.rules.prime), (LITE, LITE))
    return tuple(name for name, seat in seats if seat in voted)


def _refused(change: IdentityChange, why: str) -> Refused:
    return Refused(
        f"the identity does not change from {change.before[:12] or 'nothing'} to {change.after.hash[:12]}: {why}",
        code="identity_refused",
        before=change.before,
        after=change.after.hash,
    )
