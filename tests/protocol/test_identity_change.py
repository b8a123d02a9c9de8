"""Who may change the identity (rules 7.2): each way that is allowed, and everything else refused with its reason."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from council.protocol.identity import DEFAULT_IDENTITY, Identity
from council.protocol.identity_change import STABLE_S, IdentityChange, StackEvidence, Verdict, judge_change

CURRENT = DEFAULT_IDENTITY
OTHER = Identity(core_rules=("Never lie",))
DAY = float(STABLE_S)
STABLE: dict[str, float] = {
    "stability_score": 0.9,
    "measured_s": DAY,
    "prime_online_s": DAY,
    "lite_online_s": DAY,
    "initiative_s": DAY,
}


def judged(
    *agreed: str,
    by: str = "azrael",
    evidence: dict[str, float] | None = None,
    earlier: tuple[str, ...] = (),
    waiting: str = "",
    **more: Any,
) -> Verdict:
    fields = {"identity": OTHER, "base_hash": CURRENT.content_hash(), "why": "because", **more}
    seats = [name for name in agreed if name in ("prime", "lite")]
    fields |= {"seats": seats, "agreed_by": [name for name in agreed if name not in seats]}
    change = IdentityChange(proposed_by=by, by_seat=by in ("prime", "lite", "codemind"), **fields)
    shown = None if evidence is None else StackEvidence(**evidence)
    return judge_change(change, CURRENT, creator="azrael", evidence=shown, earlier=earlier, waiting=waiting)


def test_a_verdict_names_both_hashes() -> None:
    found = judged()
    assert (found.before_hash, found.after_hash) == (CURRENT.content_hash(), OTHER.content_hash())


def test_the_creator_alone_while_nothing_measures() -> None:
    found = judged()
    assert (found.is_allowed, found.basis) == (True, "creator")
    assert "nothing measures" in found.reason


@pytest.mark.parametrize(
    ("lacks", "value", "reason"),
    [
        (
            "stability_score",
            math.nextafter(0.9, 0),
            "its stability score fell to 0.8999999999999999, below 0.9",
        ),
        ("measured_s", DAY - 3600, "its stability has been measured for 23 of 24 hours"),
        ("prime_online_s", DAY - 3600, "Prime has been online for 23 of 24 hours"),
        ("lite_online_s", 0.0, "Lite has been online for 0 of 24 hours"),
        ("initiative_s", 3600.0, "initiative loop has run without failure for 1 of 24 hours"),
    ],
)
def test_the_creator_alone_while_no_stack_is_stable(lacks: str, value: float, reason: str) -> None:
    """Each condition by itself. Mutation: one of the five not looked at."""
    found = judged(evidence={**STABLE, lacks: value})
    assert (found.is_allowed, found.basis) == (True, "creator")
    assert "no stack is stable" in found.reason
    assert reason in found.reason


def test_a_stable_stack_has_a_say() -> None:
    """At least 0.9 for at least 24 h: both bounds are within. Mutation: > for >=."""
    found = judged(evidence=STABLE)
    assert (found.is_allowed, found.basis) == (False, None)
    assert "Prime and Lite has not agreed" in found.reason
    assert not judged("prime", evidence=STABLE).is_allowed
    assert not judged("lite", evidence=STABLE).is_allowed
    agreed = judged("prime", "lite", evidence=STABLE)
    assert (agreed.is_allowed, agreed.basis) == (True, "stable_stack")


def test_creator_and_prime_in_an_emergency() -> None:
    for kind in ("patch", "rollback"):
        found = judged("prime", evidence=STABLE, emergency=kind, earlier=(OTHER.content_hash(),))
        assert (found.is_allowed, found.basis) == (True, "emergency")
        assert kind in found.reason
    alone = judged(evidence=STABLE, emergency="patch")
    assert not alone.is_allowed
    assert "an emergency needs Prime" in alone.reason
    assert not judged("lite", evidence=STABLE, emergency="patch").is_allowed
    assert judged("azrael", by="prime", evidence=STABLE, emergency="patch").basis == "emergency"


def test_a_rollback_goes_back() -> None:
    found = judged("prime", emergency="rollback", earlier=("0" * 64,))
    assert not found.is_allowed
    assert "never was one" in found.reason


def test_nothing_changes_without_the_creator() -> None:
    for evidence, kind in itertools.product((None, STABLE), (None, "patch")):
        found = judged("lite", by="prime", evidence=evidence, emergency=kind)
        assert not found.is_allowed
        assert "azrael has not agreed" in found.reason


def test_nobody_else_proposes() -> None:
    found = judged("azrael", "prime", "lite", by="codemind", evidence=STABLE, emergency="patch")
    assert not found.is_allowed
    assert "codemind may not propose" in found.reason
    assert judged("azrael", by="lite").basis == "creator"


def test_it_is_about_the_identity_there_is() -> None:
    """Mutation: a change agreed on for one identity, made to another."""
    stale = judged("prime", "lite", base_hash=OTHER.content_hash())
    assert not stale.is_allowed
    assert "propose it anew" in stale.reason
    same = judged(identity=CURRENT)
    assert not same.is_allowed
    assert same.reason == "it changes nothing"


def test_a_human_who_is_called_like_a_seat_is_not_that_seat() -> None:
    """Mutation: seats and humans in one list of voices; a creator named prime has Prime's agreement then."""
    fields: dict[str, Any] = {"identity": OTHER, "base_hash": CURRENT.content_hash(), "why": "because"}
    shown = StackEvidence(**STABLE)

    def alone(creator: str, **who: Any) -> Verdict:
        change = IdentityChange(**fields, emergency="patch", **who)
        return judge_change(change, CURRENT, creator=creator, evidence=shown)

    assert "an emergency needs Prime" in alone("prime", proposed_by="prime").reason
    assert alone("prime", proposed_by="prime", seats=["prime"]).basis == "emergency"
    assert "prime may not propose" in alone("azrael", proposed_by="prime", agreed_by=["azrael"]).reason
    seat = alone("prime", proposed_by="lite", by_seat=True, seats=["prime"])
    assert "prime has not agreed" in seat.reason  # the human


def test_the_creator_alone_withdraws_what_is_not_in_force_yet() -> None:
    """Mutation: "it changes nothing", and a change that was allowed waits for ever."""
    found = judged(identity=CURRENT, evidence=STABLE, waiting="ab" * 32)
    assert (found.is_allowed, found.basis) == (True, "creator")
    assert "withdraws the change to abababababab" in found.reason
    assert not judged(by="lite", identity=CURRENT, waiting="ab" * 32).is_allowed
    assert not judged(identity=CURRENT, waiting=CURRENT.content_hash()).is_allowed


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stability_score", math.nan),
        ("stability_score", 1.1),
        ("measured_s", -1.0),
        ("measured_s", math.inf),
        ("lite_online_s", "86400"),
    ],
)
def test_evidence_that_is_none_is_refused_at_the_edge(field: str, value: object) -> None:
    with pytest.raises(ValidationError):
        StackEvidence.model_validate({**STABLE, field: value})


VOICES = st.sampled_from(["azrael", "prime", "lite", "codemind", "mallory"])
EVIDENCE = st.fixed_dictionaries({name: st.sampled_from([0.0, most]) for name, most in STABLE.items()})


@given(VOICES, st.sets(VOICES), st.none() | EVIDENCE, st.sampled_from([None, "patch"]))
def test_what_is_allowed_is_what_the_rules_say(
    by: str, agreed: set[str], evidence: dict[str, float] | None, kind: str | None
) -> None:
    """The same by another way: rules 7.2 as one condition."""
    voices = {by, *agreed}
    is_stable = evidence is not None and min(evidence.values()) > 0
    allowed = "azrael" in voices and by in ("azrael", "prime", "lite")
    allowed = allowed and (
        not is_stable or {"prime", "lite"} <= voices or (kind is not None and "prime" in voices)
    )
    found = judged(*sorted(agreed), by=by, evidence=evidence, emergency=kind)
    assert found.is_allowed == allowed == (found.basis is not None)
    assert found.reason
