"""What minds say while they think: relayed to the seat that observes, journaled nowhere, and never a ballot."""

from __future__ import annotations

from typing import Any

import pytest

from council.agents.messaging import seat_messages
from council.agents.seat.plan_stream import PIECE_CHARS, PIECES_MAX
from council.core import events as ev
from council.journal.record import Record
from council.protocol.envelope import Info
from council.protocol.values import plain as as_data
from council.runtime.status import status as status_of
from tests.runtime.harness import Hand, key_of


@pytest.fixture
def hand() -> Hand:
    return Hand(observer="lite")


def piece(
    hand: Hand, pid: str | None, text: str = "first I look at the diff", seat: str = "prime", **data: Any
) -> bytes:
    facts = {"stage": "plan", "round": 5, "at": 0, "whole": False, **data}
    return hand.info(seat, pid, "stream", text, **facts)


def relayed(hand: Hand) -> list[tuple[str, str, dict[str, Any]]]:
    """What was handed on: to whom, the text and its facts."""
    found = []
    while hand.driver.outbox.perishable:
        seat, item = hand.driver.outbox.perishable.popleft()
        envelope, about, _ = seat_messages.read(item)
        assert isinstance(envelope.content, Info)
        assert (envelope.content.kind, envelope.sender, about) == ("stream", "coordinator", None)
        found.append((seat, envelope.content.text, as_data(envelope.content.data)))
    return found


def halt(hand: Hand, pid: str, **data: Any) -> bytes:
    facts = {"stream": "prime", "stage": "plan", "round": 5, "interrupt": True, **data}
    return hand.info("lite", pid, "observation", "that deletes all", **facts)


def test_a_piece_goes_to_the_seat_that_observes_at_once_and_leaves_no_record(hand: Hand) -> None:
    pid = hand.propose()
    before = hand.driver.position
    hand.receive(piece(hand, pid), save=False)
    facts = {"seat": "prime", "stage": "plan", "round": 5, "at": 0, "whole": False}
    assert relayed(hand) == [("lite", "first I look at the diff", facts)]
    hand.receive(piece(hand, pid, "", at=24, whole=True), save=False)
    assert relayed(hand) == [("lite", "", {**facts, "at": 24, "whole": True})]
    assert hand.driver.position == before
    assert not hand.driver.unsaved
    assert hand.kinds() == ["proposal"]
    assert not hand.driver.ignored
    assert not hand.driver.refused


def test_listeners_hear_each_seat_at_work_whether_it_is_observed_or_not() -> None:
    hand, heard = Hand(), []
    hand.driver.relay.listeners.append(lambda piece: heard.append((piece.seat, piece.text)))
    pid = hand.propose()
    for seat in ("prime", "lite"):
        hand.receive(piece(hand, pid, f"by {seat}", seat))
    hand.receive(hand.vote("prime", pid))
    hand.receive(piece(hand, pid, "too late"))
    assert heard == [("prime", "by prime"), ("lite", "by lite")]
    assert relayed(hand) == []


def nobody(hand: Hand, pid: str) -> bytes:
    hand.driver.state.rules = Hand().rules
    return piece(hand, pid)


def own(hand: Hand, pid: str) -> bytes:
    return piece(hand, pid, seat="lite")


def unknown(hand: Hand, pid: str) -> bytes:
    return piece(hand, "ffffffff")


def about_none(hand: Hand, pid: str) -> bytes:
    return piece(hand, None)


def voted(hand: Hand, pid: str) -> bytes:
    hand.receive(hand.vote("prime", pid))
    return piece(hand, pid)


def decided(hand: Hand, pid: str) -> bytes:
    hand.receive(hand.info("client", pid, "cancel"))
    return piece(hand, pid)


def silent(hand: Hand, pid: str) -> bytes:
    hand.driver.seat_died("lite", 0, "killed", hand.now)
    return piece(hand, pid)


def no_deliberation(hand: Hand, pid: str) -> bytes:
    grave = hand.propose(risk_level="high")
    hand.driver.seat_died("codemind", 0, "killed", hand.now)
    for seat in ("prime", "lite"):
        hand.receive(hand.vote(seat, grave))
    assert hand.driver.state.open[grave].stage == "ruling"
    return piece(hand, grave, seat="codemind")


def not_given(hand: Hand, pid: str) -> bytes:
    hand.driver.seat_died("prime", 0, "killed", hand.now)
    return piece(hand, hand.propose())


def too_long(hand: Hand, pid: str) -> bytes:
    return piece(hand, pid, "x" * (PIECE_CHARS + 1))


def misshapen(hand: Hand, pid: str) -> bytes:
    return piece(hand, pid, round="first")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (nobody, "nobody observes it"),
        (own, "nobody observes it"),
        (unknown, "its proposal is deliberated no more, or never was"),
        (about_none, "its proposal is deliberated no more, or never was"),
        (decided, "its proposal is deliberated no more, or never was"),
        (no_deliberation, "its proposal is deliberated no more, or never was"),
        (voted, "its seat has voted"),
        (silent, "the seat that observes is inactive"),
        (not_given, "its seat, or the one that observes, was not given the proposal"),
        (too_long, "it can't be read"),
        (misshapen, "it can't be read"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_piece_that_nobody_is_to_hear_is_dropped_and_counted(hand: Hand, said: Any, why: str) -> None:
    """Each of them, said a thousand times, fills no journal."""
    sealed = said(hand, hand.propose())
    hand.save()
    before = hand.driver.position
    for _ in range(3):
        hand.receive(sealed)
    assert relayed(hand) == []
    assert hand.driver.ignored == {f"a piece of a stream: {why}": 3}
    assert hand.driver.position == before
    assert not hand.driver.refused


def test_a_client_has_no_stream_and_a_forged_piece_is_refused_as_all_that_is_forged(hand: Hand) -> None:
    pid = hand.propose()
    hand.told()
    hand.receive(piece(hand, pid, seat="client"), "s1")
    assert hand.failed().code == "wrong_role"
    envelope = hand.envelope("prime", "INFO", {"kind": "stream", "text": "x", "data": {}}, parent_id=pid)
    hand.receive(hand.sealed(envelope, key_of("codemind")))
    assert relayed(hand) == []
    assert hand.driver.refused == {"wrong_role": 1, "forged": 1}


def test_a_seat_is_relayed_so_much_about_one_proposal_and_no_more(hand: Hand) -> None:
    first, second = hand.propose(), hand.propose()
    for n in range(PIECES_MAX + 50):
        hand.receive(piece(hand, first, at=n))
    assert len(relayed(hand)) == PIECES_MAX
    assert hand.driver.ignored == {"a piece of a stream: its seat has said too much": 50}
    hand.receive(piece(hand, first, seat="codemind"))
    hand.receive(piece(hand, second))
    assert len(relayed(hand)) == 2  # neither another seat nor another proposal pays for it
    for pid in (first, second):
        hand.receive(hand.info("client", pid, "cancel"))
    assert not hand.driver.relay._pieces


def test_a_ballot_is_relayed_to_nobody(hand: Hand) -> None:
    """rules 1.14: only what a mind says by its voice."""
    pid = hand.propose()
    hand.receive(hand.vote("prime", pid))
    assert relayed(hand) == []


def test_a_halt_is_told_to_the_seat_once_it_is_kept_and_to_no_watcher_as_such(hand: Hand) -> None:
    """rules 4.7. Mutation: told at once, a crash would have a seat interrupted by nobody."""
    pid = hand.propose()
    hand.to_seats()
    hand.receive(halt(hand, pid), save=False)
    assert hand.to_seats() == []
    assert hand.driver.hurries  # its seat thinks on meanwhile
    hand.save()
    ((seat, envelope),) = hand.to_seats()
    content = envelope.content
    assert isinstance(content, Info)
    assert (seat, envelope.parent_id, content.kind, content.text) == (
        "prime",
        pid,
        "interrupt",
        "that deletes all",
    )
    assert as_data(content.data) == {"observer": "lite", "round": 5}
    assert hand.kinds() == ["proposal", "observation"]


def test_an_observation_is_kept_with_its_stage_and_round(hand: Hand) -> None:
    pid = hand.propose()
    hand.receive(halt(hand, pid))
    event = hand.records[-1].event
    assert isinstance(event, ev.StreamObserved)
    assert (event.stream, event.stage, event.round, event.interrupt) == ("prime", "plan", 5, True)
    hand.receive(hand.info("lite", pid, "observation", "x", stream="prime", interrupt=True))
    bare = hand.records[-1].event
    assert (bare.stage, bare.round, bare.whole) == ("", 0, True)
    hand.receive(halt(hand, pid, whole=False))
    begun = hand.records[-1].event
    assert (begun.whole, event.whole) == (False, True)
    hand.receive(halt(hand, pid, round=-1))
    hand.receive(halt(hand, pid, stage=7))
    assert hand.driver.refused == {"malformed": 2}


def test_an_observer_that_begins_anew_is_shown_again_what_it_has_voted_on(hand: Hand) -> None:
    """With the proposal beside, which it has lost: others may still speak of it."""
    pid = hand.propose(wait_for="all")
    hand.receive(hand.vote("lite", pid))
    hand.driver.seat_died("lite", 0, "killed", hand.now)
    hand.letters()
    beat = {"beat": 0, "busy_with": None, "uptime_s": 1.0}
    hand.receive(hand.sealed(hand.envelope("lite", "HEARTBEAT", beat, role="observer", parent_id=f"{1:08x}")))
    ((seat, letter),) = hand.letters()
    assert isinstance(letter.envelope.content, Info)
    assert (seat, letter.envelope.content.kind, letter.envelope.parent_id) == ("lite", "observe", pid)
    assert letter.about is not None
    assert letter.about.msg_id == pid


def test_an_observation_of_another_seat_is_refused(hand: Hand) -> None:
    pid = hand.propose()
    said = {"stream": "prime", "stage": "plan", "round": 5, "interrupt": True}
    hand.receive(hand.info("codemind", pid, "observation", "halt", **said))
    assert hand.driver.refused == {"not_observer": 1}
    assert hand.to_seats()[-1][1].type == "PROPOSAL"


def test_a_replay_tells_no_halt_again(hand: Hand) -> None:
    """Its seat may have died, or think of something else by now; what was counted is counted."""
    pid = hand.propose()
    hand.receive(piece(hand, pid))
    hand.receive(halt(hand, pid))
    hand.receive(hand.info("lite", pid, "fault", "no idea", task="observation"))
    again = Hand(observer="lite")
    for record in hand.records:
        assert isinstance(record, Record)
        again.driver.replay(record)
    assert again.to_seats() == []
    assert again.driver.state == hand.driver.state
    assert again.kinds() == hand.kinds() == ["proposal", "observation", "loss"]
    assert status_of(again.driver, again.now)["position"] == status_of(hand.driver, hand.now)["position"]
