"""Who may change the identity, and on what evidence (rules 7.2, GCP 3.3). A judgement, and no more.

Knows nothing of how the evidence is measured, whose signatures were checked, or where it is journaled: all three
are the caller's, before and after.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from council.protocol.envelope import Sender
from council.protocol.identity import Identity, Text
from council.protocol.models import AS_TUPLE, Confidence, Model, NotNegative

Basis = Literal["creator", "emergency", "stable_stack"]
Seat = Literal["prime", "lite"]  # of the stack

STABLE_SCORE = 0.9
STABLE_S = 24 * 3_600
PRIME, LITE = "prime", "lite"
VOICES_MAX = 64

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class StackEvidence(Model):
    """How stable a stack has been, as the journal shows it; all times in seconds, until now and without a gap.

    ``stability_score`` is the lowest self-reflection stability score of the last ``measured_s``; ``initiative_s`` is
    how long the initiative loop has run without a failure.
    """

    stability_score: Confidence
    measured_s: NotNegative
    prime_online_s: NotNegative
    lite_online_s: NotNegative
    initiative_s: NotNegative

    def lacking(self) -> tuple[str, ...]:
        """What it lacks to be a stable instance; nothing where it is one."""
        found = []
        if not self.stability_score >= STABLE_SCORE:
            found.append(f"its stability score fell to {self.stability_score!r}, below {STABLE_SCORE:g}")
        for what, seconds in (
            ("its stability has been measured", self.measured_s),
            ("Prime has been online", self.prime_online_s),
            ("Lite has been online", self.lite_online_s),
            ("its initiative loop has run without failure", self.initiative_s),
        ):
            if not seconds >= STABLE_S:
                found.append(f"{what} for {seconds / 3600:.4g} of {STABLE_S // 3600} hours")
        return tuple(found)


class IdentityChange(Model):
    """What is proposed: another identity in place of the one whose hash is ``base_hash``, and who stands behind it.

    ``proposed_by`` is a human, or with ``by_seat`` a seat. ``agreed_by`` are the humans and ``seats`` those of the
    stack whose agreement the caller has verified: two lists, for a human may be called as a seat is. ``emergency``
    says of which kind it is, if any.
    """

    identity: Identity
    base_hash: Hash
    proposed_by: Sender
    by_seat: bool = False
    agreed_by: Annotated[tuple[Sender, ...], Field(max_length=VOICES_MAX), AS_TUPLE] = ()
    seats: Annotated[tuple[Seat, ...], Field(max_length=VOICES_MAX), AS_TUPLE] = ()
    why: Annotated[Text, Field(min_length=1)]
    emergency: Literal["rollback", "patch"] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the identity may change, on whose authority (``basis``), and why, in words for the journal."""

    is_allowed: bool
    basis: Basis | None
    reason: str
    before_hash: str
    after_hash: str


def judge_change(
    change: IdentityChange,
    current: Identity,
    *,
    creator: str,
    evidence: StackEvidence | None,
    earlier: Collection[str] = (),
    waiting: str = "",
) -> Verdict:
    """Judge a change of ``current``. ``evidence`` is None while nothing measures it; ``earlier`` are the hashes of
    the identities that there were, to one of which a rollback goes; ``waiting`` is that of the one that a change
    which was allowed leads to, and that is not in force yet.

    - The creator alone withdraws a change that waits: who proposes the identity in force changes nothing.
    - The creator alone, while no stable instance exists or nothing measures one.
    - The creator with Prime, for a rollback or patch in an emergency, whatever the evidence.
    - The creator with the stack, which is Prime and Lite, once it has been stable for 24 hours.

    Anything else is refused, with the reason.
    """
    before, after = current.content_hash(), change.identity.content_hash()
    own = {change.proposed_by}
    humans = set(change.agreed_by) | (set() if change.by_seat else own)
    seats: set[str] = set(change.seats) | (own if change.by_seat else set())

    def verdict(basis: Basis | None, reason: str) -> Verdict:
        return Verdict(basis is not None, basis, reason, before, after)

    if change.proposed_by not in ((PRIME, LITE) if change.by_seat else (creator,)):
        return verdict(
            None, f"{change.proposed_by} may not propose it: the creator, {creator}, or the stack does"
        )
    if creator not in humans:
        return verdict(None, f"nothing changes without the creator: {creator} has not agreed")
    if change.base_hash != before:
        return verdict(
            None,
            f"it changes {change.base_hash[:12]}, and the identity is {before[:12]} now; propose it anew",
        )
    if after == before and waiting not in ("", before):
        return verdict(
            "creator", f"{creator} withdraws the change to {waiting[:12]}, which was not in force yet"
        )
    if after == before:
        return verdict(None, "it changes nothing")
    if change.emergency == "rollback" and after not in earlier:
        return verdict(None, f"a rollback goes to an identity that there was, and {after[:12]} never was one")
    if change.emergency is not None and PRIME in seats:
        return verdict("emergency", f"{creator} and Prime agree on an emergency {change.emergency}")
    if evidence is None:
        return verdict("creator", f"{creator} decides alone, for nothing measures a stack's stability yet")
    lacking = evidence.lacking()
    if lacking:
        return verdict("creator", f"{creator} decides alone, for no stack is stable: {'; '.join(lacking)}")
    silent = [name for seat, name in ((PRIME, "Prime"), (LITE, "Lite")) if seat not in seats]
    if silent:
        emergency = ", and an emergency needs Prime" if change.emergency else ""
        return verdict(
            None, f"the stack is stable, so it has a say: {' and '.join(silent)} has not agreed{emergency}"
        )
    return verdict("stable_stack", f"{creator} and a stack that has been stable for 24 hours agree")
