"""Collects the evidence for a change of the identity, and has it judged by ``protocol/identity/change.py`` (rules
7.2).

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
# An identity of the most lines and settings that it may have, as JSON.
TEXT_BYTES_MAX = 512 * 2**10


def kept_identity(identity: Identity) -> KeptIdentity:
    """An identity as the journal keeps it."""
    return KeptIdentity(identity.content_hash(), identity.canonical().decode())


def of_text(text: str) -> Identity:
    """The identity that ``kept_identity`` made this text of. Raises EnvelopeError."""
    found = read_json(text, field="identity", bytes_max=TEXT_BYTES_MAX, commas_max=TEXT_BYTES_MAX)
    return Identity.build(found)


def summary(before: str, after: str, why: str) -> str:
    """What the council is asked where Prime and Lite are to agree: their ballots are on these very hashes."""
    return f"Change the identity {before} to {after}, as it stands below: {why}"


def body(after: KeptIdentity) -> str:
    """What stands below it: the identity that has the hash."""
    return f"{_SHOWN}{after.text}"


def refuse_another(content: Proposal) -> None:
    """Raises Refused for a proposal that asks for a change, and shows the seats something else than that."""
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
            raise EnvelopeError(f"content.data.{name} is no text", field=f"content.data.{name}")
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
    """The change with the verdict on it, where that allows it. Raises Refused with the reason where not."""
    change, rules = event.change, state.rules
    current = rules.identity
    if not current.hash:
        raise _refused(change, "this council was launched without an identity; launch it anew")
    if not rules.creator:
        raise _refused(
            change, "nobody was enrolled at launch who could be its creator: see humans and creator"
        )
    agreed_by = _agreed_by(state, change)
    verdict = identity_change.judge_change(
        _proposed(change, agreed_by),
        of_text(current.text),
        creator=rules.creator,
        earlier=state.earlier_identities,
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
    """Which of Prime and Lite agree to this very change, by the decision that it names: one that approved it.

    Whoever voted yes does; but Prime's last word is its ruling, where there was one. It holds for one change: what
    was decided before the last one, or before that was withdrawn, was about another council.
    """
    if not change.agreed:
        return ()
    closed = state.closed.get(change.agreed)
    if closed is None:
        raise _refused(change, f"{change.agreed} is no proposal that this council has decided")
    decision = closed.decision
    if not decision.summary.startswith(summary(change.before, change.after.hash, "")):
        raise _refused(change, f"{change.agreed} was about something else than this change")
    if decision.outcome != "approved":
        raise _refused(change, f"the council did not agree: {change.agreed} was {decision.outcome}")
    if decision.position < state.identity_changed_at:
        raise _refused(
            change, f"{change.agreed} was decided before the last change, and used up with it: ask anew"
        )
    voted = {ballot.seat for ballot in decision.ballots if ballot.vote == "yes"}
    if decision.ruling is not None and decision.ruling.ruling != "confirm":
        voted.discard(state.rules.prime)
    seats = ((PRIME, state.rules.prime), (LITE, LITE))
    return tuple(voice for voice, seat in seats if seat in voted)


def _refused(change: IdentityChange, why: str) -> Refused:
    return Refused(
        f"the identity does not change from {change.before[:12] or 'nothing'} to {change.after.hash[:12]}: {why}",
        code="identity_refused",
        before=change.before,
        after=change.after.hash,
    )
