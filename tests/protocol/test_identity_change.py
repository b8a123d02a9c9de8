"""Who may change the identity (rules 7.2): each way that is allowed, and everything else refused with its reason."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from council.protocol.identity.change import IdentityChange, Verdict, judge_change
from council.protocol.identity.charter import DEFAULT_IDENTITY, Identity

CURRENT = DEFAULT_IDENTITY
OTHER = Identity(core_rules=("Never lie",))


def judged(
    *seats: str, by: str = "azrael", earlier: tuple[str, ...] = (), waiting: str = "", **more: Any
) -> Verdict:
    fields = {"identity": OTHER, "base_hash": CURRENT.content_hash(), "why": "because", **more}
    change = IdentityChange(proposed_by=by, seats=seats, **fields)
    return judge_change(change, CURRENT, creator="azrael", earlier=earlier, waiting=waiting)


def test_the_creator_alone_while_nothing_measures() -> None:
    found = judged()
    assert found.basis == "creator"
    assert "nothing measures" in found.reason


def test_creator_and_prime_in_an_emergency() -> None:
    for kind in ("patch", "rollback"):
        found = judged("prime", emergency=kind, earlier=(OTHER.content_hash(),))
        assert found.basis == "emergency"
        assert kind in found.reason
    assert judged(emergency="patch").basis == judged("lite", emergency="patch").basis == "creator"


def test_a_rollback_goes_back() -> None:
    found = judged("prime", emergency="rollback", earlier=("0" * 64,))
    assert found.basis is None
    assert "never was one" in found.reason


def test_nobody_else_proposes() -> None:
    """A human who is called like a seat is not that seat."""
    for by in ("mallory", "prime"):
        found = judged("prime", "lite", by=by, emergency="patch")
        assert found == Verdict(None, f"{by} may not propose it: only the creator, azrael, does")
    change = IdentityChange(
        identity=OTHER, base_hash=CURRENT.content_hash(), proposed_by="prime", why="x", emergency="patch"
    )
    assert judge_change(change, CURRENT, creator="prime").basis == "creator"


def test_it_is_about_the_identity_there_is() -> None:
    """Mutation: a change agreed on for one identity, made to another."""
    stale = judged("prime", "lite", base_hash=OTHER.content_hash())
    assert stale.basis is None
    assert "propose it anew" in stale.reason
    assert judged(identity=CURRENT) == Verdict(None, "it changes nothing")


def test_the_creator_alone_withdraws_what_is_not_in_force_yet() -> None:
    """Mutation: "it changes nothing", and a change that was allowed waits for ever."""
    found = judged(identity=CURRENT, waiting="ab" * 32)
    assert found.basis == "creator"
    assert "withdraws the change to abababababab" in found.reason
    assert judged(by="lite", identity=CURRENT, waiting="ab" * 32).basis is None
    assert judged(identity=CURRENT, waiting=CURRENT.content_hash()).basis is None


@given(
    st.sampled_from(["azrael", "prime", "mallory"]),
    st.sets(st.sampled_from(["prime", "lite"])),
    st.sampled_from([None, "patch"]),
)
def test_what_is_allowed_is_what_the_rules_say(by: str, seats: set[str], kind: str | None) -> None:
    """The same by another way: rules 7.2 as one condition."""
    found = judged(*seats, by=by, emergency=kind)
    allowed = "emergency" if kind is not None and "prime" in seats else "creator"
    assert found.basis == (allowed if by == "azrael" else None)
    assert found.reason
