"""Judges whether a change of the identity is allowed (rules 7.2, GCP 3.3).

Nothing measures whether a stack is stable, so the creator decides. The caller checks the signatures before, and
journals the change after.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from council.protocol.envelope import Sender
from council.protocol.identity.charter import Hash, Identity, Text
from council.protocol.models import AS_TUPLE, Model

Basis = Literal["creator", "emergency"]
Seat = Literal["prime", "lite"]  # of the stack

PRIME, LITE = "prime", "lite"


class IdentityChange(Model):
    """A human's proposal of another identity, in place of the one with the hash ``base_hash``.

    ``seats`` are those of the stack that agreed, as the caller has verified. ``emergency`` is the kind of emergency,
    if any.
    """

    identity: Identity
    base_hash: Hash
    proposed_by: Sender
    seats: Annotated[tuple[Seat, ...], AS_TUPLE] = ()
    why: Annotated[Text, Field(min_length=1)]
    emergency: Literal["rollback", "patch"] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The authority by which the identity may change (None: it may not), and the reason for the journal."""

    basis: Basis | None
    reason: str


def judge_change(
    change: IdentityChange,
    current: Identity,
    *,
    creator: str,
    earlier: Collection[str] = (),
    waiting: str = "",
) -> Verdict:
    """Judges a change of ``current``. A rollback goes to one of the hashes in ``earlier``. ``waiting`` is the hash of
    an identity that was allowed and is not in force yet.

    - The creator alone can withdraw a waiting change, by proposing the identity in force.
    - The creator with Prime can make a rollback or patch in an emergency.
    - The creator alone can make other changes, because nothing measures whether a stack is stable.

    Anything else is refused, with the reason.
    """
    before, after = current.content_hash(), change.identity.content_hash()
    if change.proposed_by != creator:
        return Verdict(None, f"{change.proposed_by} may not propose it: only the creator, {creator}, does")
    if change.base_hash != before:
        return Verdict(
            None,
            f"it changes {change.base_hash[:12]}, and the identity is {before[:12]} now; propose it anew",
        )
    if after == before and waiting not in ("", before):
        return Verdict(
            "creator", f"{creator} withdraws the change to {waiting[:12]}, which was not in force yet"
        )
    if after == before:
        return Verdict(None, "it changes nothing")
    if change.emergency == "rollback" and after not in earlier:
        return Verdict(None, f"a rollback goes to an identity that there was, and {after[:12]} never was one")
    if change.emergency is not None and PRIME in change.seats:
        return Verdict("emergency", f"{creator} and Prime agree on an emergency {change.emergency}")
    return Verdict("creator", f"{creator} decides alone, for nothing measures a stack's stability yet")
