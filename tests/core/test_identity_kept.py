"""The identity that a council keeps to: what a coordinator may start with, and how it changes (rules 7.1, 7.2)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from council.core import effects as do
from council.core import events as ev
from council.core.identity import EARLIER_MAX
from council.core.roll import online_s
from council.core.state import IdentityChange, KeptIdentity, Moment, Rules, new_council
from council.core.step import step
from council.protocol.errors import Refused
from tests.core.council_in_hand import THREE, Hand
from tests.core.invariants import check


def kept(name: str) -> KeptIdentity:
    return KeptIdentity(name * 64, f'{{"core_rules":["{name}"]}}')


NONE, A, B, C = KeptIdentity(), kept("a"), kept("b"), kept("c")


class Council:
    """A core whose coordinators start with one identity or another."""

    def __init__(self, first: KeptIdentity = A) -> None:
        self.rules = Rules(seats=THREE, prime="prime", creator="ada", identity=first)
        self.now = 0.0
        self.position = 0
        self.events: list[tuple[Moment, Any]] = []
        self.state = new_council(self.rules, Moment(0.0, 0.0, 0))
        self.epoch = 0
        self.start(first)

    def feed(self, event: Any) -> list[do.Effect]:
        moment = Moment(self.now, 1_000.0 + self.now, self.position + 1)
        self.state, effects = step(self.state, event, moment)
        self.position += 1
        self.events.append((moment, event))
        check(self.state)
        return effects

    def start(self, identity: KeptIdentity = NONE) -> list[do.Effect]:
        effects = self.feed(
            ev.CoordinatorStarted("c", self.epoch + 1, replace(self.rules, identity=identity))
        )
        self.epoch += 1
        return effects

    def change(self, before: KeptIdentity, after: KeptIdentity) -> list[do.Effect]:
        return self.feed(ev.IdentityChanged(IdentityChange(before.hash, after, "ada", "better")))

    def refuses(self, identity: KeptIdentity) -> Refused:
        epoch, state = self.epoch, repr(self.state)
        with pytest.raises(Refused) as caught:
            self.start(identity)
        assert (self.epoch, repr(self.state)) == (epoch, state)  # as if it had never been tried
        return caught.value

    def force(self) -> KeptIdentity:
        return self.state.rules.identity


def test_a_coordinator_that_starts_with_the_same_identity_goes_on() -> None:
    council = Council()
    council.start(A)
    assert council.force() == A
    council.start()  # it names none: the one in force stays
    assert (council.force(), council.state.identity_past.earlier) == (A, ())


def test_another_identity_is_refused_and_says_what_to_do() -> None:
    """Mutation: the check is left out, and whoever edits the charter has changed the identity."""
    refusal = Council().refuses(B)
    assert (refusal.code, refusal.facts["found"], refusal.facts["expected"]) == (
        "identity_changed",
        B.hash,
        A.hash,
    )
    assert "council identity propose-change FILE" in refusal.message
    assert "bbbbbbbbbbbb" in refusal.message
    assert "aaaaaaaaaaaa" in refusal.message


def test_a_change_is_in_force_from_the_first_launch_on_that_has_it() -> None:
    council = Council()
    (told,) = council.change(A, B)
    assert told == do.AnnounceIdentityChange(IdentityChange(A.hash, B, "ada", "better"))
    assert council.force() == A  # prompts have the old one still
    council.start(A)  # a coordinator that was restarted meanwhile
    assert council.force() == A
    refusal = council.refuses(C)
    assert "bbbbbbbbbbbb, to which it was changed" in refusal.message
    council.start(B)
    assert (council.force(), council.state.identity_change) == (B, None)
    assert council.state.identity_past.earlier == (A.hash,)
    assert council.refuses(A).facts["expected"] == B.hash  # back only by a change


def test_a_change_that_was_not_taken_up_gives_way_to_the_next() -> None:
    council = Council()
    council.change(A, B)
    council.change(A, C)
    council.refuses(B)
    council.start(C)
    assert council.force() == C


def test_a_change_that_waits_is_withdrawn_by_one_to_the_identity_in_force() -> None:
    council = Council()
    council.change(A, B)
    council.change(A, A)
    assert (council.state.identity_change, council.state.identity_past.changed_at) == (None, council.position)
    council.refuses(B)
    council.start(A)


def test_another_creator_is_announced_where_a_coordinator_starts_with_one() -> None:
    """Mutation: whoever edits the settings is the creator, and nobody sees it."""
    council = Council()
    assert not any(isinstance(each, do.AnnounceCreator) for each in council.start(A))
    council.rules = replace(council.rules, creator="eve")
    assert do.AnnounceCreator("ada", "eve") in council.start(A)
    council.rules = replace(council.rules, creator="")
    assert do.AnnounceCreator("eve", "") in council.start(A)
    council.rules = replace(council.rules, creator="ada")
    assert not any(isinstance(each, do.AnnounceCreator) for each in council.start(A))  # there was none


def test_a_change_is_of_the_identity_in_force() -> None:
    council = Council()
    with pytest.raises(Refused, match="propose it anew") as caught:
        council.change(B, C)
    assert caught.value.code == "identity_refused"
    assert council.state.identity_change is None


def test_a_rollback_may_go_to_what_was_in_force_not_to_what_was_only_allowed() -> None:
    council = Council()
    council.change(A, B)
    council.change(A, C)
    council.start(C)
    council.change(C, A)
    council.start(A)
    assert council.state.identity_past.earlier == (A.hash, C.hash)
    council.change(A, C)
    council.start(C)
    assert council.state.identity_past.earlier == (A.hash, C.hash)  # each once


def test_a_journal_that_is_older_than_identities_takes_the_first_that_comes() -> None:
    council = Council(KeptIdentity())
    council.start(A)
    assert (council.force(), council.state.identity_past.earlier) == (A, ())
    council.refuses(B)


def test_earlier_identities_are_bounded() -> None:
    council = Council()
    council.state.identity_past.earlier = tuple(f"{number}" for number in range(EARLIER_MAX))
    council.change(A, B)
    council.start(B)
    assert len(council.state.identity_past.earlier) == EARLIER_MAX
    assert council.state.identity_past.earlier[-1] == A.hash


def test_a_journal_with_changes_replays_to_the_same() -> None:
    council = Council()
    council.change(A, B)
    council.start(A)
    council.start(B)
    council.change(B, C)
    state = new_council(council.rules, Moment(0.0, 0.0, 0))
    for moment, event in council.events:
        state, _ = step(state, event, moment)
    assert repr(state) == repr(council.state)


# How long a seat has been online without a gap (rules 7.2)


def test_online_is_counted_from_the_launch_the_return_and_the_coordinators_start() -> None:
    """Mutation: a seat that was gone for a moment counts as having been there all the time."""
    hand = Hand(start_s=100.0)
    hand.move_to(120.0)
    assert online_s(hand.state, "lite", 120.0) == 20.0
    hand.do(ev.SeatDied("lite", 0, "killed"))
    assert online_s(hand.state, "lite", 125.0) is None
    hand.move_to(130.0)
    hand.do(ev.SeatBeat("lite", 1, 0))
    hand.do(ev.SeatBeat("prime", 0, 5))
    assert (online_s(hand.state, "lite", 150.0), online_s(hand.state, "prime", 150.0)) == (20.0, 50.0)
    hand.move_to(160.0)
    for epoch in (1, 2):
        hand._step(ev.CoordinatorStarted("c", epoch, hand.rules))
    assert (online_s(hand.state, "lite", 161.0), online_s(hand.state, "prime", 161.0)) == (1.0, 1.0)
    assert online_s(hand.state, "nobody", 161.0) is None
