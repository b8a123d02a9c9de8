"""A journal replayed comes to the same, word for word; by other rules to what the rules would have made of it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from council.core import events as ev
from council.journal import packets
from council.journal.packets import StoredRecord
from council.protocol.errors import CallerError, ReplayDiverged
from council.runtime import archive
from council.runtime.replay import Replay
from council.runtime.whatif import End, WhatIfChange, WhatIfResult, what_if
from tests.journal.journals import begun, kept, life
from tests.runtime.harness import Hand


def replayed(records: list[StoredRecord]) -> Replay:
    run = Replay()
    for each in records:
        run.replay(each)
    return run


def other(hand: Hand, *changes: str) -> WhatIfResult:
    return what_if(kept(hand.records), WhatIfChange.read(changes))


def ends(hand: Hand, *changes: str) -> dict[str, tuple[str, str]]:
    """Of the proposals that would have ended differently, what they were and would be."""
    return {each.proposal_id: (each.was.word, each.would.word) for each in other(hand, *changes).otherwise}


def why(hand: Hand, *changes: str) -> str:
    (one,) = other(hand, *changes).otherwise
    return one.would.why


def votes(hand: Hand, proposal_id: str, **said: str) -> None:
    for seat, vote in said.items():
        hand.receive(hand.vote(seat, proposal_id, vote))


def years(seed: int, *, proposals: int = 40) -> Hand:
    """A council at random: votes, losses, rulings, answers, deaths, silence, restarts, and time."""
    chance = random.Random(seed)
    hand = begun(escalation_ttl_s=500.0, inactivity_limit_s=90.0)
    epoch = 1
    for _ in range(proposals):
        risk = chance.choice(["low", "low", "med", "high"])
        proposal_id = hand.propose(risk_level=risk, wait_for=chance.choice(["decisive", "all"]))
        for seat in chance.sample(hand.rules.seats, chance.randint(0, 3)):
            hand.wait(chance.choice([0.0, 0.5, 20.0]))
            if chance.random() < 0.15:
                hand.receive(hand.info(seat, proposal_id, "fault", "it raised", task="ballot"))
            else:
                said = {"confidence": chance.choice([0.1, 0.9]), "risk_level": chance.choice(["low", "high"])}
                hand.receive(hand.vote(seat, proposal_id, chance.choice(["yes", "no", "abstain"]), **said))
        if chance.random() < 0.6:
            hand.receive(hand.ruling(proposal_id, chance.choice(["confirm", "reject", "human"])))
        if chance.random() < 0.3:
            hand.receive(hand.info("ada", proposal_id, "answer", "so be it", approve=chance.random() < 0.5))
        if chance.random() < 0.1:
            seat = chance.choice(hand.rules.seats)
            hand.driver.seat_died(seat, hand.driver.boot(seat), "it died", hand.now)
        if chance.random() < 0.1:
            epoch += 1
            hand.driver.begin(epoch, hand.rules, hand.now)
        for number, seat in enumerate(hand.rules.seats):
            content = {"beat": 10_000 + len(hand.records) + number, "busy_with": None, "uptime_s": hand.t}
            hand.receive(hand.sealed(hand.envelope(seat, "HEARTBEAT", content, role="voter")))
        hand.wait(chance.choice([0.0, 1.0, 70.0, 600.0]))
        hand.save()
    return hand


# The same again


def test_a_journal_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "PART_MAX", 7)
    hand, _ = life()
    found = replayed(kept(hand.records))
    assert (found.records, found.decisions, found.escalations) == (len(hand.records), 6, 2)


@pytest.mark.parametrize("seed", range(8))
def test_journals_at_random_come_to_the_same_and_so_they_do_by_their_own_rules(seed: int) -> None:
    """Mutation: deadlines that pass at another moment, or for one who would not have been asked."""
    hand = years(seed)
    assert replayed(kept(hand.records)).records == len(hand.records)
    assert sum(hand.driver.announcements.counts.values()) > 10
    same = other(hand, "quorum=2")
    assert (same.otherwise, same.refounded, same.proposals) == ((), 0, 40)


def test_a_coordinator_that_starts_again_is_replayed() -> None:
    hand = begun()
    proposal_id = hand.propose()
    votes(hand, proposal_id, prime="yes")
    hand.driver.begin(2, hand.rules, hand.now)
    hand.save()
    votes(hand, proposal_id, lite="yes")
    assert replayed(kept(hand.records)).decisions == 1


def changed(records: list[StoredRecord], position: int, **what: Any) -> list[StoredRecord]:
    """These records, one of them changed."""
    index = position - 1
    return [*records[:index], replace(records[index], **what), *records[position:]]


def test_an_effect_that_was_another_is_found() -> None:
    records = kept(life()[0].records)
    for position in (2, 4, 14, 20, 26, 30):
        marked = replace(records[position - 1].record, mark=bytes(8))
        with pytest.raises(ReplayDiverged, match="of which a hash is kept") as found:
            replayed(changed(records, position, record=marked))
        assert found.value.position == position


def test_a_decision_that_was_another_is_told_in_words() -> None:
    records = kept(life()[0].records)
    (decision,) = records[3].decisions
    lied = replace(decision, outcome="rejected", early=False)
    with pytest.raises(ReplayDiverged) as found:
        replayed(changed(records, 4, decisions=(lied,)))
    assert f"record 4 (ballot) comes to something else by this version's rules: the decision on {decision.proposal_id}: " in str(found.value)  # fmt: skip  # noqa: E501
    assert "outcome was 'rejected' and is 'approved'; early was False and is True" in str(found.value)
    with pytest.raises(
        ReplayDiverged, match=f"came to no decision, and now to {decision.proposal_id} approved"
    ):
        replayed(changed(records, 4, decisions=()))
    with pytest.raises(ReplayDiverged, match="and now to no decision"):
        replayed(changed(records, 3, decisions=(decision,)))
    escalated = next(each for each in records if each.escalations)
    lied_too = replace(escalated.escalations[0], reason="tie")
    with pytest.raises(ReplayDiverged, match="reason was 'tie' and is 'prime_asks'"):
        replayed(changed(records, escalated.record.position, escalations=(lied_too,)))


def test_an_event_that_is_refused_now_is_told() -> None:
    records = kept(life()[0].records)
    twice = replace(records[2].record, event=records[7].record.event)
    with pytest.raises(ReplayDiverged, match="it is refused now: this council has no proposal"):
        replayed(changed(records, 3, record=twice))
    with pytest.raises(ReplayDiverged, match="begins with a coordinator's start"):
        replayed(records[1:])


def test_of_very_many_decisions_those_that_are_kept_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packets, "OUTCOME_BYTES_MAX", 10)
    hand = begun()
    for proposal_id in [hand.propose() for _ in range(3)]:
        votes(hand, proposal_id, prime="yes", lite="no")
    hand.driver.seat_died("codemind", hand.driver.boot("codemind"), "it died", hand.now)
    hand.save()
    records = kept(hand.records)
    assert len(records[-1].decisions) == 1
    assert replayed(records).decisions == 3


def test_an_escalation_that_its_record_does_not_hold_beside_a_decision_is_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packets, "OUTCOME_BYTES_MAX", 10)
    hand = begun("prime", "lite", "codemind", "jurist")
    decided, tied = hand.propose(), hand.propose()
    votes(hand, decided, prime="yes", lite="yes", codemind="no")
    hand.receive(hand.info("prime", tied, "fault", "it raised", task="ballot"))
    votes(hand, tied, lite="yes", codemind="no")
    hand.driver.seat_died("jurist", hand.driver.boot("jurist"), "it died", hand.now)
    hand.save()
    found = replayed(kept(hand.records))
    assert (found.decisions, found.escalations) == (1, 1)


# Otherwise


def test_a_higher_quorum_waits_for_the_ballot_that_came_late() -> None:
    hand = begun()
    late = hand.propose()
    votes(hand, late, prime="yes", lite="yes", codemind="no")
    never = hand.propose()
    votes(hand, never, prime="yes", lite="yes")
    found = other(hand, "quorum=3")
    assert found.refounded == 1  # approved, with the third ballot
    (one,) = found.otherwise
    assert (one.proposal_id, one.was.word) == (never, "approved")
    assert one.would == End("undecided", "open where the journal ends", "2 yes, 0 no, 0 abstained")
    hand.wait(61)  # past its deadline
    hand.propose()
    (one,) = other(hand, "quorum=3").otherwise
    why = "too few seats voted for a quorum; nobody was ever asked"
    assert one.would == End("human", why, "2 yes, 0 no, 0 abstained")


def test_what_the_record_left_open_is_open_at_its_end() -> None:
    hand = begun(lost_at_once=UNSET)  # else a human would be asked for want of a quorum
    proposal_id = hand.propose()
    hand.receive(hand.info("prime", proposal_id, "fault", "it raised", task="ballot"))
    votes(hand, proposal_id, lite="yes", codemind="no")  # a tie, which is with a human
    (one,) = other(hand, "quorum=3").otherwise
    assert one.was.word == "human"
    assert one.would == End("undecided", "open where the journal ends", "1 yes, 1 no, 0 abstained")


def test_without_a_seat_the_others_decide() -> None:
    hand = begun()
    agreed, tied, turned = hand.propose(), hand.propose(), hand.propose(wait_for="all")
    votes(hand, agreed, prime="yes", lite="yes", codemind="yes")
    votes(hand, tied, prime="yes", lite="no", codemind="no")
    votes(hand, turned, prime="yes", lite="no", codemind="no")
    found = other(hand, "without=lite")
    assert {each.proposal_id: each.would for each in found.otherwise} == {
        each: End("approved", "a tie, broken by prime's yes", "1 yes, 1 no, 0 abstained")
        for each in (tied, turned)
    }
    assert ends(hand, "without=prime") == {}
    hand.wait(61)
    hand.propose()
    alone = ends(hand, "without=codemind", "without=lite")
    assert {would for _, would in alone.values()} == {"human"}
    assert alone.keys() == {agreed, tied, turned}


def test_what_a_ballot_escalated_is_decided_without_it() -> None:
    """Prime's ruling is not asked for then, and changes nothing."""
    hand = begun()
    proposal_id = hand.propose()
    hand.receive(hand.vote("lite", proposal_id, "yes", risk_level="high"))
    votes(hand, proposal_id, prime="yes", codemind="yes")
    hand.receive(hand.ruling(proposal_id, "reject"))
    assert ends(hand, "without=lite") == {proposal_id: ("rejected", "approved")}


def test_a_ruling_that_was_never_asked_for_is_not_made_up() -> None:
    hand = begun()
    proposal_id = hand.propose(risk_level="high")
    votes(hand, proposal_id, prime="yes", lite="yes", codemind="yes")
    hand.receive(hand.ruling(proposal_id, "confirm"))
    hand.wait(200)
    hand.propose()
    assert ends(hand, "prime=lite") == {proposal_id: ("approved", "ruling")}
    assert why(hand, "prime=lite") == "lite would have been asked to rule, and never was"


def test_a_ruling_on_other_ballots_is_not_taken() -> None:
    hand = begun()
    proposal_id = hand.propose(risk_level="high")
    votes(hand, proposal_id, prime="yes", lite="yes")
    hand.driver.seat_died("codemind", hand.driver.boot("codemind"), "it died", hand.now)
    hand.receive(hand.ruling(proposal_id, "reject"))
    # With one ballot there is no quorum to ask Prime with, until codemind's comes, late as it was.
    assert ends(hand, "without=lite") == {proposal_id: ("rejected", "undecided")}
    votes(hand, proposal_id, codemind="yes")
    assert ends(hand, "without=lite") == {proposal_id: ("rejected", "ruling")}


def test_an_answer_to_something_else_is_not_taken() -> None:
    hand = begun(lost_at_once=UNSET)  # else a human would be asked for want of a quorum
    proposal_id = hand.propose()
    hand.receive(hand.info("prime", proposal_id, "fault", "it raised", task="ballot"))
    votes(hand, proposal_id, lite="yes", codemind="no")  # a tie, at once
    hand.receive(hand.info("ada", proposal_id, "answer", "so be it", approve=True))
    hand.wait(61)
    hand.propose()
    # With three ballots needed a human is asked at the deadline, after what ada said.
    assert ends(hand, "quorum=3") == {proposal_id: ("approved", "human")}
    assert (
        why(hand, "quorum=3")
        == "too few seats voted for a quorum; the answer in the record is to something else"
    )


def test_a_deadline_passes_at_its_own_moment_whenever_the_next_record_came() -> None:
    """Mutation: it passes when the next record came, so that all that counts from it ends too late."""
    hand = begun(escalation_ttl_s=500.0)
    proposal_id = hand.propose()
    hand.receive(hand.info("prime", proposal_id, "fault", "it raised", task="ballot"))
    votes(hand, proposal_id, lite="yes", codemind="no")  # a human is asked at once, else after a minute
    hand.wait(1_000)
    hand.save()
    assert hand.driver.announcements.counts["deferred"] == 1
    found = other(hand, "quorum=3")
    assert (found.otherwise, found.refounded) == ((), 0)


def test_what_stays_open_may_leave_no_room() -> None:
    hand = begun(open_max=1)
    first = hand.propose()
    votes(hand, first, prime="yes", lite="yes")
    second = hand.propose()
    assert ends(hand, "quorum=3") == {first: ("approved", "undecided"), second: ("undecided", "refused")}


def test_a_journal_that_does_not_come_to_the_same_tells_nothing_else() -> None:
    records = kept(life()[0].records)
    bad = changed(records, 9, decisions=())
    with pytest.raises(ReplayDiverged):
        what_if(bad, WhatIfChange.read(["quorum=3"]))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("quorum", "and =VALUE"),
        ("quorum=", "and =VALUE"),
        ("without", "and =VALUE"),
        ("quorum=x", "not a whole number"),
        ("quorum=2.5", "not a whole number"),
        ("quorun=3", "did you mean quorum"),
        ("=3", "expected quorum, prime, without"),
        ("inactivity_s=30", "expected quorum, prime, without"),
    ],
)
def test_what_can_not_be_set_is_told(given: str, says: str) -> None:
    with pytest.raises(CallerError, match=says):
        WhatIfChange.read([given])
    with pytest.raises(CallerError, match="given twice"):
        WhatIfChange.read(["quorum=2", "quorum=3"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("quorum=9", "quorum must be 2 to 3"),
        ("prime=jurist", "prime must be one of the seats"),
        ("without=jurist", "never a seat there; these were: codemind, lite, prime"),
    ],
)
def test_a_change_that_contradicts_the_rules_is_told(given: str, says: str) -> None:
    with pytest.raises(CallerError, match=says):
        other(begun(), given)


def test_an_unreadable_ballot_of_a_seat_that_is_left_out_stays() -> None:
    hand = begun()
    proposal_id = hand.propose()
    hand.receive(hand.unreadable_vote("lite", proposal_id))
    votes(hand, proposal_id, lite="yes", prime="yes", codemind="no")
    assert isinstance(hand.records[2].event, ev.BallotUnreadable)
    assert ends(hand, "without=lite") == {}  # a tie, and prime's yes breaks it
