"""The driver: every envelope becomes the event it stands for, and nobody hears of what is not kept."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from council.core import events as ev
from council.core.state import REASON_TOLD_MAX, REASONS_MAX
from council.kinds.incoming import PROPOSAL_BYTES_MAX, within_tokens
from council.protocol import codec, signing
from council.protocol.envelope import REASON_CHARS_MAX
from council.protocol.errors import (
    ConfigError,
    EnvelopeError,
    NameTaken,
    NotEnrolled,
    OperatorError,
    PositionLost,
    Refused,
)
from council.protocol.values import plain
from council.runtime import feed as feed_module
from council.runtime import messages, senders
from council.runtime.driver import Driver, Opened
from council.runtime.event_reader import PARTS
from council.runtime.messages import Acknowledged, Failed, Told, from_bytes, reference, to_bytes
from council.runtime.outbox import SHOWN_REASON_MAX
from council.runtime.status import status as status_of
from tests.cases import each
from tests.examples import tried
from tests.runtime.harness import COUNCIL_ID, THREE, Hand, greeting, key_of


@pytest.fixture
def hand() -> Hand:
    return Hand()


def newest(hand: Hand) -> ev.Event:
    return hand.records[-1].event


# Envelopes to events


def test_a_proposal_becomes_a_submission_and_goes_to_every_seat(hand: Hand) -> None:
    pid = hand.propose(action={"tool": "rm", "args": {"path": "/x"}}, time_budget_s=7.0, risk_level="med")
    event = newest(hand)
    assert isinstance(event, ev.ProposalSubmitted)
    what = event.what
    assert (what.proposal_id, what.proposer, what.tool, what.wait_for) == (pid, "client", "rm", "all")
    assert (what.time_budget_s, what.risk_level, what.summary) == (7.0, "med", "do it")
    given_to = hand.to_seats()
    assert [seat for seat, _ in given_to] == list(THREE)
    assert {envelope.msg_id for _, envelope in given_to} == {pid}
    assert hand.records[-1].sealed == hand.sealed(given_to[0][1])
    assert hand.records[-1].position == hand.driver.position == 1
    assert hand.told() == []  # its answer is the decision
    assert hand.kinds() == ["proposal"]


def test_votes_make_a_decision_which_its_session_is_told(hand: Hand) -> None:
    pid = hand.propose()
    hand.receive(hand.vote("lite", pid, confidence=0.7))
    event = newest(hand)
    assert isinstance(event, ev.BallotCast)
    assert (event.ballot.seat, event.ballot.vote, event.ballot.confidence) == ("lite", "yes", 0.7)
    assert hand.told() == []
    hand.receive(hand.vote("codemind", pid))
    decision = hand.decision()
    assert decision.outcome == "approved"
    assert decision.early
    assert hand.kinds() == ["proposal", "ballot", "ballot", "decision"]
    assert hand.driver.announcements.counts == {"approved": 1}
    assert not hand.driver.announcements.owes("s1")


@pytest.mark.parametrize(
    "gates",
    [{"requires_user_approval": gate} for gate in (True, "true", False)] + [[], 1, {}],
)
def test_a_safety_gate_that_is_true_or_unreadable_asks_for_a_human(hand: Hand, gates: object) -> None:
    """rules 6.1, 6.6"""
    pid = hand.propose(wait_for="all")
    hand.receive(hand.vote("lite", pid, content={"control_packet": {"safety_gates": gates}}))
    for seat in ("prime", "codemind"):
        hand.receive(hand.vote(seat, pid))
    asks = gates not in ({}, {"requires_user_approval": False})
    assert hand.decision().standing == ("escalated" if asks else "decided")


def test_a_seats_escalation_goes_to_prime(hand: Hand) -> None:
    pid = hand.propose()
    content = {"proposal_id": pid, "reason": "smells"}
    hand.receive(hand.sealed(hand.envelope("lite", "ESCALATION", content, parent_id=pid)))
    event = newest(hand)
    assert isinstance(event, ev.EscalationRaised)
    assert (event.seat, event.reason) == ("lite", "smells")
    assert "to_prime" in hand.kinds()


def test_a_heartbeat_names_its_run_and_leaves_no_record(hand: Hand) -> None:
    hand.t = 80.0
    content = {"beat": 0, "busy_with": None, "uptime_s": 80.0}
    hand.receive(hand.sealed(hand.envelope("lite", "HEARTBEAT", content, parent_id="00000000")))
    assert hand.records == []
    hand.wait(20.0)
    hand.save()
    seats = {seat["name"]: seat for seat in status_of(hand.driver, hand.now)["seats"]}
    assert seats["lite"]["active"]
    assert not seats["codemind"]["active"]
    assert (seats["lite"]["heartbeats"], seats["lite"]["heartbeat_age_s"]) == (1, 20.0)


def test_every_kind_of_info_becomes_its_event() -> None:
    hand = Hand(observer="prime")
    pid = hand.propose()
    hand.receive(hand.info("lite", pid, "fault", "it raised", task="ballot"))
    assert newest(hand) == ev.WorkFailed(pid, "lite", "ballot", "it raised")
    hand.receive(hand.info("prime", pid, "observation", "halt", stream="codemind", interrupt=True))
    event = newest(hand)
    assert isinstance(event, ev.StreamObserved)
    assert (event.observer, event.stream, event.interrupt) == ("prime", "codemind", True)
    hand.receive(hand.info("client", pid, "cancel", "never mind"), "s2")
    assert newest(hand) == ev.ProposalCancelled(pid, "client", "never mind")
    hand.acknowledged("s2")
    assert hand.decision().outcome == "cancelled"


def test_ruling_and_answer_become_their_events(hand: Hand) -> None:
    pid = hand.propose(risk_level="high")
    for seat in THREE:
        hand.receive(hand.vote(seat, pid))
    assert hand.kinds_to("prime") == ["PROPOSAL", "ruling_request"]
    hand.receive(hand.ruling(pid, "human"))
    event = newest(hand)
    assert isinstance(event, ev.RulingGiven)
    assert (event.ruling.seat, event.ruling.ruling) == ("prime", "human")
    standing = hand.decision()
    assert (standing.final, standing.escalation_id) == (False, f"esc-{pid}")
    assert [each.escalation_id for each in hand.driver.escalations()] == [f"esc-{pid}"]
    hand.receive(hand.info("ada", pid, "answer", "go on", approve=True), "s9")
    event = newest(hand)
    assert isinstance(event, ev.HumanAnswered)
    assert (event.answer.human, event.answer.approve) == ("ada", True)
    hand.acknowledged("s9")
    assert hand.decision().outcome == "approved"
    assert hand.driver.escalations() == []


def test_a_seat_may_propose_and_still_votes_once(hand: Hand) -> None:
    pid = hand.propose(None, sender="lite")
    hand.receive(hand.vote("lite", pid))
    hand.receive(hand.vote("lite", pid, vote="no"))
    assert hand.driver.refused == {"second_ballot": 1}
    hand.receive(hand.vote("prime", pid))
    assert hand.last("decision")["decision"]["tally"] == {"yes": 2, "no": 0, "abstain": 0}


# Refusals, each by its code


def refusals() -> dict[str, object]:
    def second(hand: Hand, pid: str) -> bytes:
        hand.receive(hand.vote("lite", pid))
        return hand.vote("lite", pid, "no")

    def closed(hand: Hand, pid: str) -> bytes:
        hand.receive(hand.info("client", pid, "cancel"))
        content = {"proposal_id": pid, "reason": "too late"}
        return hand.sealed(hand.envelope("lite", "ESCALATION", content, parent_id=pid))

    def answered(hand: Hand, pid: str) -> bytes:
        hand.wait(61.0)
        hand.receive(hand.info("ada", pid, "answer", approve=False))
        return hand.info("ada", pid, "answer", approve=True)

    def id_reused(hand: Hand, pid: str) -> bytes:
        return hand.sealed(hand.envelope("client", "PROPOSAL", {"summary": "other"}, msg_id=pid))

    def not_asked(hand: Hand, pid: str) -> bytes:
        hand.driver.seat_died("codemind", 0, "gone", hand.now)
        return hand.vote("codemind", hand.propose("other"))

    def proposal(sender: str, **content: object) -> object:
        return lambda hand, pid: hand.sealed(hand.envelope(sender, "PROPOSAL", {"summary": "x", **content}))

    def too_large(hand: Hand, pid: str) -> bytes:
        body = "é" * (PROPOSAL_BYTES_MAX // 2)
        return hand.sealed(hand.envelope("client", "PROPOSAL", {"summary": "x", "body": body}))

    def altered(hand: Hand, pid: str) -> bytes:
        sealed = bytearray(hand.vote("lite", pid))
        sealed[-1] ^= 1
        return bytes(sealed)

    def for_another_council(hand: Hand, pid: str) -> bytes:
        envelope = hand.envelope(
            "lite", "VOTE", {"proposal_id": pid, "vote": "yes", "reason": ""}, parent_id=pid
        )
        return hand.sealed(envelope, council_id="another.council")

    def anothers_key(hand: Hand, pid: str) -> bytes:
        envelope = hand.envelope(
            "prime", "VOTE", {"proposal_id": pid, "vote": "yes", "reason": ""}, parent_id=pid
        )
        return hand.sealed(envelope, key=key_of("lite"))

    def newer(hand: Hand, pid: str) -> bytes:
        payload = codec.encode(hand.envelope("client", "PROPOSAL", {"summary": "x"}))
        assert payload[1] == codec.WIRE_VERSION[0]
        bad = payload[:1] + bytes([codec.WIRE_VERSION[0] + 9]) + payload[2:]
        return signing.seal(bad, sender_key=key_of("client"), council_id=COUNCIL_ID)

    def client_votes(hand: Hand, pid: str) -> bytes:
        content = {"proposal_id": pid, "vote": "yes", "reason": "me too"}
        return hand.sealed(hand.envelope("client", "VOTE", content, parent_id=pid))

    return {
        "malformed": lambda hand, pid: b"x" * 200,
        "malformed ": lambda hand, pid: b"",
        "malformed  ": lambda hand, pid: hand.info("lite", pid, "fault", "no task"),
        "malformed   ": lambda hand, pid: hand.ruling(pid, "perhaps"),
        "malformed    ": lambda hand, pid: hand.info("ada", pid, "answer", approve=1),
        "too_large": too_large,
        "version": newer,
        "forged": altered,
        "forged ": for_another_council,
        "forged  ": anothers_key,
        "unknown_sender": lambda hand, pid: hand.sealed(
            hand.envelope("stranger", "PROPOSAL", {"summary": "x"})
        ),
        "not_a_seat": client_votes,
        "wrong_role": proposal("ada"),
        "wrong_role ": lambda hand, pid: hand.info("client", pid, "answer", approve=True),
        "wrong_role  ": lambda hand, pid: hand.info("lite", pid, "answer", approve=True),
        "wrong_role   ": lambda hand, pid: hand.info("client", pid, "fault", "x", task="ballot"),
        "wrong_role    ": lambda hand, pid: hand.info("ada", pid, "ruling", ruling="confirm"),
        "unknown_kind": lambda hand, pid: hand.info("lite", pid, "note", "hello"),
        "second_ballot": second,
        "not_asked": not_asked,
        "unknown_proposal": lambda hand, pid: hand.vote("lite", "ffffffff"),
        "unknown_proposal ": lambda hand, pid: hand.info("client", None, "cancel"),
        "unknown_proposal  ": proposal("client", supersedes="ffffffff"),
        "closed": closed,
        "already_answered": answered,
        "id_reused": id_reused,
        "not_the_proposer": lambda hand, pid: hand.info("lite", pid, "cancel"),
        "not_the_proposer ": proposal("lite", supersedes="PID"),
        "not_escalated": lambda hand, pid: hand.info("ada", pid, "answer", approve=True),
        "not_prime": lambda hand, pid: hand.ruling(pid, "confirm", seat="lite"),
        "no_ruling_asked": lambda hand, pid: hand.ruling(pid, "confirm"),
        "unknown_boot": lambda hand, pid: hand.sealed(
            hand.envelope("lite", "HEARTBEAT", {"beat": 0, "uptime_s": 1.0}, parent_id="00000007")
        ),
        "own_stream": lambda hand, pid: hand.info("lite", pid, "observation", stream="lite", interrupt=True),
        "not_a_seat ": lambda hand, pid: hand.info("lite", pid, "observation", stream="ada", interrupt=True),
    }


@pytest.mark.parametrize("case", refusals())
def test_a_refusal_is_counted_journaled_answered_and_changes_nothing(hand: Hand, case: str) -> None:
    pid = hand.propose("owner")
    make = refusals()[case]
    if case == "not_the_proposer ":
        sealed = hand.sealed(hand.envelope("lite", "PROPOSAL", {"summary": "x", "supersedes": pid}))
    else:
        sealed = make(hand, pid)  # type: ignore[operator]
    hand.save()
    hand.driver.announcements.to_sessions.clear()
    before = hand.driver.decision(pid), dict(hand.driver.state.open), dict(hand.driver.announcements.counts)
    hand.driver.refused.clear()
    hand.receive(sealed, "s1")
    code = case.strip()
    assert hand.driver.refused == {code: 1}
    failed = hand.failed()
    assert (failed.code, failed.ref) == (code, reference(sealed))
    error = failed.error()
    assert error.code == code
    assert str(error)
    event = newest(hand)
    assert isinstance(event, ev.EnvelopeRefused)
    assert event.code == code
    assert hand.last("refusal")["code"] == code
    assert (
        hand.driver.decision(pid),
        dict(hand.driver.state.open),
        dict(hand.driver.announcements.counts),
    ) == before
    assert hand.driver.announcements.owes("s1") is False


def test_a_refusal_keeps_its_facts_on_the_way_to_the_client() -> None:
    hand = Hand(open_max=1)
    hand.propose("a")
    hand.propose("b")
    failed = hand.failed("b")
    error = failed.error()
    assert (failed.code, type(error).__name__) == ("too_many_open", "TooManyOpen")
    assert "1 proposals are open" in str(error)
    assert (error.open, error.limit) == (1, 1)
    back = messages.from_bytes(messages.to_bytes(Failed("r", error.code, "TooManyOpen", "m", error.facts)))
    assert isinstance(back, Failed)
    assert (back.error().open, back.error().limit) == (1, 1)


def test_a_refusal_keeps_the_facts_that_are_short_and_no_others(hand: Hand) -> None:
    """Mutation: to tell all facts tells a novel, or what is no data at all."""
    facts = {"sender": "x" * 200, "why": "y" * 201, "open_ids": ["a"], "object": object(), "n": 1, "s": 0.5}
    hand.driver.receive(Opened(b"sealed", error=Refused("no", code="closed", **facts)), hand.now, "s1")
    hand.save()
    failed = hand.failed()
    assert failed.facts == {"code": "closed", "sender": "x" * 200, "n": 1, "s": 0.5}
    error = failed.error()
    assert isinstance(error, Refused)
    assert (error.code, error.sender, error.n, error.s) == ("closed", "x" * 200, 1, 0.5)
    assert messages.from_bytes(messages.to_bytes(failed)) == failed


def test_a_long_error_is_told_and_kept_by_its_beginning(hand: Hand) -> None:
    hand.driver.receive(Opened(b"sealed", error=EnvelopeError("é" * 50_000)), hand.now, "s1")
    hand.save()
    assert hand.failed().message == "é" * 2_000
    assert newest(hand) == ev.EnvelopeRefused("?", "?", "malformed", "é" * 2_000)


HUGE = {
    "text": "\x01" * 800_000,
    "list": [["deep"] * 9_000],
    "object": {"k" * 100: 1},
    "int": 10**15,
    "none": None,
}


@pytest.mark.parametrize("field", ["ruling", "approve", "task", "interrupt"])
@pytest.mark.parametrize("value", HUGE)
def test_a_fact_that_does_not_fit_is_quoted_shortly(hand: Hand, field: str, value: str) -> None:
    if (field, value) == ("task", "text"):
        return  # a task may be any text
    kind = {"ruling": "ruling", "approve": "answer", "task": "fault", "interrupt": "observation"}[field]
    data = {"stream": "lite"} if kind == "observation" else {}
    pid = hand.propose("s2")
    sender = "ada" if kind == "answer" else "prime"
    hand.receive(hand.info(sender, pid, kind, "x", **data, **{field: HUGE[value]}), "s1")
    failed = hand.failed()
    assert failed.code == "malformed"
    assert failed.error().field == f"content.data.{field}"
    assert len(failed.message) < 300
    assert newest(hand).why == failed.message  # type: ignore[union-attr]


ROLES = ("proposer", "voter", "observer", "coordinator", "human")


@each(("role", "sender"), product(ROLES, ["lite", "client", "ada"]))
def test_a_part_that_does_not_fit_how_its_sender_joined_is_refused(sender: str, role: str) -> None:
    """rules 1.1. Mutation: a client whose envelopes say ``coordinator`` or ``human`` reads like one on record.

    What fits is accepted from the proposer, and from a human.
    """
    hand = Hand()
    pid = hand.propose("s2", sender="client")
    joined = hand.driver.senders.roles[sender]
    fits = role in PARTS[joined]
    assert fits is (
        role
        in {"lite": ("voter", "observer", "proposer"), "client": ("proposer",), "ada": ("human",)}[sender]
    )
    what = {"kind": "cancel", "text": "", "data": {}}
    hand.receive(hand.sealed(hand.envelope(sender, "INFO", what, parent_id=pid, role=role)), "s1")
    (message,) = hand.told()
    if fits and sender in ("client", "ada"):
        assert not isinstance(message, Failed)
        return
    assert isinstance(message, Failed)
    assert (message.code == "wrong_role") is not fits
    if not fits:
        assert f"{sender} joined as a {joined} and may not speak as {role}" in message.message
    assert pid in hand.driver.state.open


@pytest.mark.parametrize(
    ("type", "role"),
    [
        ("PROPOSAL", "voter"),
        ("PROPOSAL", "observer"),
        ("HEARTBEAT", "proposer"),
        ("VOTE", "proposer"),
        ("VOTE", "observer"),
        ("VOTE", "coordinator"),
        ("VOTE", "human"),
    ],
)
def test_each_type_of_message_has_its_part(hand: Hand, type: str, role: str) -> None:
    """rules 1.1. Mutation: a seat that only observes is counted as a voter."""
    pid = hand.propose()
    content = {
        "PROPOSAL": {"summary": "x"},
        "HEARTBEAT": {"beat": 1, "uptime_s": 1.0},
        "VOTE": {"proposal_id": pid, "vote": "yes", "reason": ""},
    }[type]
    parent_id = pid if type == "VOTE" else None
    hand.receive(hand.sealed(hand.envelope("lite", type, content, role=role, parent_id=parent_id)))
    assert hand.driver.refused == {"wrong_role": 1}
    assert set(hand.driver.state.open) == {pid}
    hand.receive(hand.vote("lite", pid))  # in its own part it still may
    assert len(hand.driver.state.open[pid].ballots) == 1


# Ids (rules 1.15)


def test_an_id_is_used_once(hand: Hand) -> None:
    """Mutation: a seat's ballot under the id of another's ballot, or of the proposal itself, is counted."""
    pid = hand.propose("s1")
    hand.receive(hand.vote("lite", pid, msg_id="a" * 16))
    for again in ("a" * 16, pid):
        hand.receive(hand.vote("prime", pid, msg_id=again))
    hand.receive(hand.sealed(hand.envelope("client", "PROPOSAL", {"summary": "y"}, msg_id="a" * 16)))
    assert hand.driver.refused == {"id_reused": 3}
    assert pid in hand.driver.state.open
    assert set(hand.driver.state.open) == {pid}
    assert f"client used the id {'a' * 16}" in hand.last("refusal")["why"]
    hand.receive(hand.vote("prime", pid))
    assert pid in hand.driver.state.closed


def test_what_was_refused_does_not_use_its_id_up(hand: Hand) -> None:
    pid = hand.propose("s1")
    early = hand.vote("lite", "b" * 16, msg_id="c" * 16)
    hand.receive(early)
    assert hand.driver.refused == {"unknown_proposal": 1}
    hand.receive(hand.vote("lite", pid, msg_id="c" * 16))
    assert len(hand.driver.state.open[pid].ballots) == 1


# Floods


def test_garbage_does_not_push_what_happened_out_of_the_feed() -> None:
    """Mutation: each refusal is told, and 20,000 pieces of garbage are all that a watcher still finds."""
    hand = Hand(events_kept=1_000)
    hand.propose("s1")
    began = hand.driver.announcements.feed.position
    for n in range(2_000):
        hand.receive(b"garbage" + bytes(40) + n.to_bytes(4), "s1")
    hand.save()
    assert hand.driver.refused == {"malformed": 2_000}
    assert hand.driver.announcements.feed.position - began == feed_module.REFUSALS_TOLD_MAX
    assert hand.driver.announcements.feed.after(0, 1)[0]["kind"] == "proposal"
    assert "more within this minute are counted" in hand.last("refusal")["why"]
    hand.wait(61.0)
    hand.save()
    began = hand.driver.announcements.feed.position
    hand.receive(b"garbage" + bytes(40), "s1")
    hand.save()
    assert hand.driver.announcements.feed.position == began + 1
    assert "more within" not in hand.last("refusal")["why"]


# Unreadable ballots (rules 1.2)


def test_an_unreadable_ballot_is_asked_for_once_more_and_the_second_counts(hand: Hand) -> None:
    pid = hand.propose(wait_for="all")
    hand.to_seats()
    hand.receive(hand.unreadable_vote("lite", pid))
    assert isinstance(newest(hand), ev.BallotUnreadable)
    assert hand.kinds_to("lite") == ["ask_again"]
    assert hand.last("loss") | {"why": ""} == {
        "proposal_id": pid,
        "seat": "lite",
        "task": "ballot",
        "why": "",
        "retrying": True,
        "overruns": [],
    }
    for seat in THREE:
        hand.receive(hand.vote(seat, pid))
    decision = hand.decision()
    assert decision.tally.yes == 3
    assert not decision.degraded


def test_a_ballot_unreadable_twice_is_lost_and_never_an_abstention(hand: Hand) -> None:
    pid = hand.propose(wait_for="all")
    hand.receive(hand.unreadable_vote("lite", pid, "maybe"))
    hand.to_seats()
    hand.receive(hand.unreadable_vote("lite", pid, "dunno"))
    assert hand.to_seats() == []
    hand.receive(hand.vote("prime", pid))
    hand.receive(hand.vote("codemind", pid))
    decision = hand.decision()
    assert (decision.outcome, decision.degraded) == ("approved", True)
    assert decision.tally.abstain == 0
    assert "could not be read twice" in dict(decision.missing)["lite"]


def test_the_same_unreadable_bytes_again_are_a_duplicate_not_a_second_try(hand: Hand) -> None:
    pid = hand.propose(wait_for="all")
    sealed = hand.unreadable_vote("lite", pid)
    hand.receive(sealed)
    hand.to_seats()
    hand.receive(sealed)
    assert hand.to_seats() == []
    assert "lite" not in hand.driver.state.open[pid].lost
    hand.receive(hand.vote("lite", pid))
    assert [ballot.seat for ballot in hand.driver.state.open[pid].ballots] == ["lite"]


def test_an_unreadable_vote_of_a_client_is_refused_and_asks_nobody(hand: Hand) -> None:
    pid = hand.propose("s2")
    hand.to_seats()
    good = codec.encode(
        hand.envelope("client", "VOTE", {"proposal_id": pid, "vote": "abstain", "reason": ""}, parent_id=pid)
    )
    bad = good.replace(b"\xa7abstain", b"\xa5maybe")
    hand.receive(signing.seal(bad, sender_key=key_of("client"), council_id=COUNCIL_ID), "s1")
    assert hand.failed().code == "malformed"
    assert hand.to_seats() == []


def test_a_forged_unreadable_vote_asks_nobody(hand: Hand) -> None:
    """Mutation: dropping the check of ``authentic`` lets anybody make a seat vote anew."""
    pid = hand.propose()
    hand.to_seats()
    sealed = bytearray(hand.unreadable_vote("lite", pid))
    sealed[0] ^= 1
    hand.receive(bytes(sealed), "s1")
    assert hand.failed().code == "forged"
    assert hand.to_seats() == []


def test_an_unreadable_vote_after_the_seats_ballot_leaves_that_standing(hand: Hand) -> None:
    pid = hand.propose(wait_for="all")
    hand.receive(hand.vote("lite", pid, "no"))
    hand.to_seats()
    hand.receive(hand.unreadable_vote("lite", pid))
    assert hand.to_seats() == []
    assert [ballot.vote for ballot in hand.driver.state.open[pid].ballots] == ["no"]


# Keeping before telling (rules 4.7)


def test_nobody_is_told_anything_before_it_is_kept_but_seats_think_at_once(hand: Hand) -> None:
    pid = hand.propose(risk_level="high", save=False)
    assert [seat for seat, _ in hand.to_seats()] == list(THREE)
    for seat in THREE:
        hand.receive(hand.vote(seat, pid), save=False)
    assert hand.to_seats() == []  # rules 1.14: the request shows ballots, so it waits
    assert hand.driver.announcements.feed.position == 0
    hand.receive(hand.vote("lite", "ffffffff"), "s1", save=False)
    assert not hand.driver.announcements.to_sessions
    assert hand.driver.announcements.owes("s1")
    hand.save()
    assert hand.kinds_to("prime") == ["ruling_request"]
    hand.receive(hand.ruling(pid, "confirm"), save=False)
    assert [type(message) for message in hand.told()] == [Failed]
    assert not hand.driver.announcements.to_sessions
    hand.save()
    assert hand.decision().outcome == "approved"


def test_saved_tells_up_to_its_position_only(hand: Hand) -> None:
    first = hand.propose("a", save=False)
    hand.receive(hand.vote("lite", first), save=False)
    hand.receive(hand.vote("prime", first), save=False)
    position = hand.driver.position
    second = hand.propose("b", save=False)
    hand.receive(hand.vote("lite", second), save=False)
    hand.receive(hand.vote("prime", second), save=False)
    hand.driver.saved(position)
    assert [name for name, _ in hand.driver.announcements.to_sessions] == ["a"]
    hand.driver.saved(hand.driver.position)
    assert [name for name, _ in hand.driver.announcements.to_sessions] == ["a", "b"]


def test_a_retry_is_answered_only_once_the_decision_is_kept(hand: Hand) -> None:
    envelope = hand.envelope("client", "PROPOSAL", {"summary": "x"})
    sealed = hand.sealed(envelope)
    hand.receive(sealed, "s1")
    hand.receive(hand.vote("lite", envelope.msg_id), save=False)
    hand.receive(hand.vote("prime", envelope.msg_id), save=False)
    hand.receive(sealed, "s2", save=False)
    assert not hand.driver.announcements.to_sessions
    hand.save()
    assert hand.decision("s1") == hand.decision("s2")


def test_effects_and_answers_are_paid_in_the_order_in_which_they_came_to_be(hand: Hand) -> None:
    """Mutation: answers from a queue of their own tell of a decision's retry before the decision."""
    envelope = hand.envelope("client", "PROPOSAL", {"summary": "x"})
    sealed, pid = hand.sealed(envelope), envelope.msg_id
    hand.receive(sealed, "s1", save=False)
    hand.receive(b"junk" * 30, "s1", save=False)
    hand.receive(hand.vote("lite", pid), "s1", save=False)
    hand.receive(hand.info("client", pid, "cancel"), "s1", save=False)
    hand.receive(sealed, "s1", save=False)
    hand.receive(hand.vote("lite", "ffffffff"), "s1", save=False)
    hand.save()
    told = hand.told()
    assert [type(each) for each in told] == [Failed, Acknowledged, Told, Acknowledged, Told, Failed]
    assert [each.code for each in told if isinstance(each, Failed)] == ["malformed", "unknown_proposal"]
    assert told[2] == told[4]
    assert hand.kinds() == ["proposal", "refusal", "ballot", "decision", "refusal"]


@settings(max_examples=tried(60))
@given(st.lists(st.sampled_from(["junk", "late", "cancel", "propose", "retry"]), max_size=14), st.data())
def test_whenever_saving_comes_the_order_told_is_the_same(plan: list[str], data: st.DataObject) -> None:
    def heard(cuts: list[int]) -> tuple[list[str], list[str]]:
        hand = Hand()
        last = b""
        for n, act in enumerate(plan):
            pid = f"{n:08x}"
            if act == "propose" or not last:
                last = hand.sealed(hand.envelope("client", "PROPOSAL", {"summary": "x"}, msg_id=pid))
                hand.receive(last, "s1", save=False)
                target = pid
            elif act == "junk":
                hand.receive(b"junk" * 30 + bytes([n]), "s1", save=False)
            elif act == "late":
                hand.receive(hand.vote("lite", f"ffff{n:04x}"), "s1", save=False)
            elif act == "cancel":
                hand.receive(hand.info("client", target, "cancel"), "s1", save=False)
            else:
                hand.receive(last, "s1", save=False)
            if n in cuts:
                hand.save()
        hand.save()
        told = hand.told()
        found = [m.decision.proposal_id if isinstance(m, Told) else m.ref for m in told]
        assert not hand.driver.announcements._held
        return found, hand.kinds()

    cuts = data.draw(st.lists(st.integers(0, 13), max_size=5))
    assert heard(cuts) == heard([])


# Retries and duplicates (rules 1.3, 1.12)


def test_the_same_bytes_are_a_retry_at_every_stage(hand: Hand) -> None:
    envelope = hand.envelope("client", "PROPOSAL", {"summary": "x"})
    sealed = hand.sealed(envelope)
    hand.receive(sealed, "s1")
    hand.to_seats()
    hand.receive(sealed, "s1")
    assert hand.told() == []
    assert hand.to_seats() == []
    assert hand.driver.announcements.owes("s1")
    hand.wait(61.0)
    hand.save()
    assert hand.decision().standing == "escalated"
    hand.receive(sealed, "s1")
    assert hand.decision().standing == "escalated"
    hand.receive(hand.info("ada", envelope.msg_id, "answer", approve=False))
    first = hand.decision()
    hand.receive(sealed, "s1")
    assert hand.decision() == first
    assert sum(isinstance(r.event, ev.ProposalSubmitted) for r in hand.records) == 1
    assert hand.driver.announcements.counts == {"rejected": 1}


def test_duplicates_are_ignored_counted_and_leave_no_record(hand: Hand) -> None:
    pid = hand.propose()
    ballot = hand.vote("lite", pid)
    hand.receive(ballot)
    records = len(hand.records)
    hand.receive(ballot)
    hand.receive(ballot)
    assert len(hand.records) == records
    assert hand.driver.ignored == {"the same ballot again": 2}
    assert hand.driver.refused == {}


def test_the_same_answer_or_cancellation_again_is_acknowledged(hand: Hand) -> None:
    answered, cancelled = hand.propose(), hand.propose()
    hand.wait(61.0)
    for act in (hand.info("ada", answered, "answer", approve=True), hand.info("client", cancelled, "cancel")):
        for _ in range(2):
            hand.receive(act, "s9")
            hand.acknowledged("s9")


# Watchers


def test_all_who_submitted_the_same_bytes_are_told_and_those_who_left_are_not(hand: Hand) -> None:
    sealed = hand.sealed(hand.envelope("client", "PROPOSAL", {"summary": "x"}, msg_id="aaaaaaaa"))
    for session in ("s1", "s2", "s3"):
        hand.receive(sealed, session)
    hand.driver.announcements.forget("s2")
    hand.receive(hand.vote("lite", "aaaaaaaa"))
    hand.receive(hand.vote("prime", "aaaaaaaa"))
    assert sorted(name for name, _ in hand.driver.announcements.to_sessions) == ["s1", "s3"]
    assert not any(hand.driver.announcements.owes(session) for session in ("s1", "s2", "s3"))


def test_a_session_that_waits_for_a_human_is_owed_and_told_twice(hand: Hand) -> None:
    pid = hand.propose()
    hand.wait(61.0)
    hand.save()
    assert not hand.decision().final
    assert hand.driver.announcements.owes("s1")
    hand.receive(hand.info("ada", pid, "answer", approve=True))
    assert hand.decision().final
    assert not hand.driver.announcements.owes("s1")


def test_forgetting_a_session_that_is_owed_a_reply_leaves_nothing_behind(hand: Hand) -> None:
    hand.receive(hand.vote("lite", "ffffffff"), "s1", save=False)
    hand.driver.announcements.forget("s1")
    hand.save()
    assert not hand.driver.announcements.owes("s1")


# The feed


@settings(max_examples=tried(60))
@given(kept=st.integers(1, 12), made=st.integers(0, 20), after=st.integers(0, 20), limit=st.integers(1, 30))
def test_pages_are_gapless(kept: int, made: int, after: int, limit: int) -> None:
    hand = Hand(events_kept=kept)
    for _ in range(made):
        hand.propose(None)
    oldest = max(1, made - kept + 1)
    if after + 1 < oldest or after > made:
        with pytest.raises(PositionLost) as caught:
            hand.driver.announcements.feed.after(after, limit)
        assert (caught.value.asked, caught.value.oldest) == (after, oldest)
    else:
        found = [event["cursor"] for event in hand.driver.announcements.feed.after(after, limit)]
        assert found == list(range(after + 1, min(made, after + limit) + 1))


# Who may join


def test_join_rules(hand: Hand) -> None:
    driver = hand.driver
    driver.join("client", "proposer", key_of("client"))  # a retry
    for name, role, key in (
        ("client", "proposer", key_of("other")),
        ("ada", "proposer", key_of("ada")),
        ("prime", "proposer", key_of("prime")),
        ("coordinator", "proposer", key_of("x")),
    ):
        with pytest.raises(NameTaken) as caught:
            driver.join(name, role, key)
        assert caught.value.name == name
    for role in ("voter", "coordinator", "observer", ""):
        with pytest.raises(Refused) as refused:
            driver.join("new", role, key_of("new"))
        assert refused.value.code == "wrong_role"
    for name, key in (("Bad Name", key_of("x")), ("", key_of("x")), ("new", b"short"), ("new", "text" * 8)):
        with pytest.raises(ConfigError):
            driver.join(name, "proposer", key)  # type: ignore[arg-type]
    assert "new" not in driver.senders.keyring


def test_a_name_that_proposed_is_one_senders_for_good(hand: Hand) -> None:
    """rules 1.3. Mutation: a stranger takes the freed name, and revises what its predecessor proposed."""
    pid = hand.propose(None, sender="client")
    for seat in ("prime", "lite"):
        hand.receive(hand.vote(seat, pid))
    hand.save()
    hand.driver.retire("client")
    assert "client" not in hand.driver.senders.keyring
    with pytest.raises(NameTaken, match="was a client's with another key"):
        hand.driver.join("client", "proposer", key_of("mallory"))
    assert "client" not in hand.driver.senders.keyring
    hand.driver.join("client", "proposer", key_of("client"))
    revised = hand.envelope("client", "PROPOSAL", {"summary": "again", "supersedes": pid})
    hand.receive(hand.sealed(revised))
    assert revised.msg_id in hand.driver.state.open


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bob", greeting("bob")),
        ("client", greeting("client")),
        ("lite", greeting("lite")),
        ("coordinator", greeting("coordinator")),
        ("ada", greeting("ada", key_of("mallory"))),
        ("ada", greeting("ada", council_id="test.ffffffffffffffff")),
        ("ada", greeting("bob", key_of("ada"))),
        ("ada", key_of("mallory")),
        ("ada", key_of("ada")),
        ("ada", b""),
        ("ada", None),
        (None, greeting("ada")),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_nobody_becomes_a_human_by_joining(hand: Hand, name: Any, said: Any) -> None:
    """rules 1.14; mutation: to take a key that comes with a join lets whoever reaches the council answer in it."""
    pid = hand.propose(None, time_budget_s=1.0)
    hand.wait(1.5)
    hand.save()
    before = dict(hand.driver.senders.roles)
    with pytest.raises(NotEnrolled, match=r"those who may answer in test\.0123456789abcdef: ada;") as caught:
        hand.driver.join(name, "human", said)
    assert (caught.value.name, caught.value.humans) == (name, ["ada"])
    assert hand.driver.senders.roles == before
    forged = hand.envelope("ada", "INFO", {"kind": "answer", "data": {"approve": True}}, parent_id=pid)
    hand.receive(hand.sealed(forged, key_of("mallory")), "s2")
    assert hand.failed("s2").code == "forged"
    hand.receive(hand.info("client", pid, "answer", approve=True), "s2")
    assert hand.failed("s2").code == "wrong_role"
    assert hand.driver.state.open[pid].stage == "human"
    hand.driver.join("ada", "human", greeting("ada"))
    hand.receive(hand.info("ada", pid, "answer", approve=True), "s2")
    hand.acknowledged("s2")
    assert hand.driver.state.closed[pid].decision.outcome == "approved"


def test_where_nobody_is_enrolled_nobody_answers() -> None:
    driver = Driver(Hand().rules, COUNCIL_ID, {}, (0.0, 0.0), new_id=lambda: "1" * 16)
    with pytest.raises(NotEnrolled, match=r"those who may answer in .*: nobody;"):
        driver.join("ada", "human", greeting("ada"))
    assert status_of(driver, (0.0, 0.0))["humans"] == []
    assert status_of(Hand().driver, (0.0, 0.0))["humans"] == ["ada"]


def test_a_human_may_not_have_the_name_of_a_seat() -> None:
    keys = {"lite": key_of("lite")}
    with pytest.raises(NameTaken):
        Driver(Hand().rules, COUNCIL_ID, keys, (0.0, 0.0), new_id=lambda: "1" * 16, humans=keys)


def test_the_number_of_senders_is_bounded(monkeypatch: pytest.MonkeyPatch, hand: Hand) -> None:
    monkeypatch.setattr(senders, "SENDERS_MAX", 6)
    hand.driver.join("one-more", "proposer", key_of("a"))
    with pytest.raises(OperatorError, match="6 senders"):
        hand.driver.join("too-many", "proposer", key_of("b"))
    hand.driver.join("client", "proposer", key_of("client"))


# Seats


def test_a_seat_that_died_and_came_back_is_handed_what_is_open(hand: Hand) -> None:
    open_one = hand.propose()
    done = hand.propose()
    hand.receive(hand.vote("lite", done))
    hand.receive(hand.vote("codemind", done))
    hand.driver.seat_died("prime", 0, "killed", hand.now)
    hand.save()
    hand.to_seats()
    assert hand.driver.boot("prime") == 1
    content = {"beat": 0, "busy_with": None, "uptime_s": 0.0}
    hand.receive(hand.sealed(hand.envelope("prime", "HEARTBEAT", content, parent_id="00000001")))
    assert [(seat, envelope.msg_id) for seat, envelope in hand.to_seats()] == [("prime", open_one)]
    assert hand.last("roll")["active"] is True


def test_a_cancelled_proposal_is_withdrawn_from_those_who_still_think(hand: Hand) -> None:
    pid = hand.propose()
    hand.receive(hand.vote("lite", pid))
    hand.to_seats()
    hand.receive(hand.info("client", pid, "cancel"))
    assert [(seat, e.content.kind) for seat, e in hand.to_seats()] == [  # type: ignore[union-attr]
        ("prime", "withdraw"),
        ("codemind", "withdraw"),
    ]


def test_the_ruling_request_shows_all_ballots(hand: Hand) -> None:
    what = {"summary": "do it", "body": "why", "action": {"tool": "t", "args": {"a": [1]}}}
    proposal = hand.envelope("client", "PROPOSAL", what, risk_level="high")
    pid = proposal.msg_id
    hand.receive(hand.sealed(proposal))
    hand.receive(hand.vote("prime", pid))
    hand.receive(hand.vote("lite", pid, "no", content={"reason": "x" * 20_000}))
    hand.receive(hand.vote("codemind", pid, "abstain"))
    (letter,) = [letter for _, letter in hand.letters() if letter.envelope.type == "INFO"]
    assert letter.about == proposal
    data = plain(letter.envelope.content.data)  # type: ignore[union-attr]
    assert set(data) == {"ballots"}
    assert [shown["vote"] for shown in data["ballots"]] == ["yes", "no", "abstain"]
    assert len(data["ballots"][1]["reason"]) == SHOWN_REASON_MAX


def nested(depth: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "content",
    [
        pytest.param({"action": {"tool": "t", "args": nested(32)}}, id="deep"),
        pytest.param({"action": {"tool": "t", "args": {"a": [0] * 9_990}}}, id="many"),
        pytest.param({"body": "x" * (PROPOSAL_BYTES_MAX - 4_000)}, id="long"),
    ],
)
def test_whatever_could_be_proposed_can_be_ruled_on(content: dict[str, object]) -> None:
    """A proposal at a limit of its own must not break the request for its ruling (rules 1.8)."""
    hand = Hand()
    pid = hand.propose(risk_level="high", **content)
    for seat in THREE:
        hand.receive(hand.vote(seat, pid))
    assert hand.kinds_to("prime") == ["PROPOSAL", "ruling_request"]


def test_a_full_house_of_long_reasons_can_be_ruled_on() -> None:
    seats = ("prime", *(f"s{n}" for n in range(14)))
    hand = Hand(seats)
    pid = hand.propose(risk_level="high", body="x" * (PROPOSAL_BYTES_MAX - 4_000))
    content = {"proposal_id": pid, "reason": "🙂" * 20_000}
    hand.receive(hand.sealed(hand.envelope("s1", "ESCALATION", content, parent_id=pid)))
    for seat in seats:
        hand.receive(hand.vote(seat, pid, content={"reason": "🙂" * 20_000}))
    assert hand.kinds_to("prime") == ["PROPOSAL", "ruling_request"]


def test_the_largest_decision_there_can_be_is_told() -> None:
    """Control characters take six bytes each in a message, the most that a character can.

    Reasons are within 1,024 tokens now (rules 2.2); a journal of an older version holds longer ones.
    """
    seats = ("prime", *(f"s{n}" for n in range(14)))
    hand = Hand(seats)
    long = "\x01" * REASON_CHARS_MAX
    pid = hand.propose(risk_level="high", wait_for="all", summary="\x01" * 2_000)
    for n, seat in enumerate(seats):
        content = {"proposal_id": pid, "reason": long}
        hand.receive(hand.sealed(hand.envelope(seat, "ESCALATION", content, parent_id=pid)))
        hand.receive(hand.vote(seat, pid, "no" if n % 2 else "yes", content={"reason": long}))
    data = {"proposal_id": pid, "ruling": "human"}
    content = {"kind": "ruling", "text": long, "data": data}
    hand.receive(hand.sealed(hand.envelope("prime", "INFO", content, parent_id=pid)))
    assert not hand.decision().final
    hand.receive(hand.info("ada", pid, "answer", long, approve=True))
    decision = hand.decision()
    assert decision.final
    assert [ballot.reason for ballot in decision.ballots] == [within_tokens(long)] * 15
    decision = replace(decision, ballots=tuple(replace(ballot, reason=long) for ballot in decision.ballots))
    packed = messages.to_bytes(Told(decision))
    assert len(packed) > codec.ENVELOPE_BYTES_MAX
    sealed = signing.seal_to(packed, key_of("client"), COUNCIL_ID, "client")
    assert messages.from_bytes(signing.open_to(sealed, key_of("client"), COUNCIL_ID, "client")) == Told(
        decision
    )


def test_every_letter_says_how_much_time_is_left_and_what_it_is_about() -> None:
    hand = Hand()
    pid = hand.propose(time_budget_s=60.0, risk_level="high", wait_for="all")
    first = hand.letters()
    proposal = first[0][1].envelope
    assert [(seat, letter) for seat, letter in first] == [(seat, (proposal, None, 60.0)) for seat in THREE]
    hand.wait(20.0)
    hand.receive(hand.unreadable_vote("lite", pid))
    ((seat, asked),) = hand.letters()
    assert (seat, asked.envelope.content.kind) == ("lite", "ask_again")  # type: ignore[union-attr]
    assert (asked.about, asked.time_left_s) == (proposal, 40.0)
    hand.wait(10.0)
    for seat in THREE:
        hand.receive(hand.vote(seat, pid))
    ((seat, request),) = hand.letters()
    assert (seat, request.envelope.content.kind) == ("prime", "ruling_request")  # type: ignore[union-attr]
    assert request.about == proposal
    assert request.time_left_s == hand.driver.state.open[pid].deadline_s - hand.t > 0
    hand.receive(hand.info("client", pid, "cancel"))
    ((seat, withdrawn),) = hand.letters()
    assert (seat, withdrawn.envelope.content.kind) == ("prime", "withdraw")  # type: ignore[union-attr]
    assert (withdrawn.about, withdrawn.time_left_s) == (None, 0.0)


def test_an_escalations_long_reasons_fit_the_request() -> None:
    hand = Hand()
    pid = hand.propose(wait_for="all")
    for seat in THREE:
        content = {"proposal_id": pid, "reason": "界" * REASON_CHARS_MAX}
        hand.receive(hand.sealed(hand.envelope(seat, "ESCALATION", content, parent_id=pid)))
        hand.receive(hand.vote(seat, pid))
    (request,) = [letter.envelope.content for _, letter in hand.letters() if letter.envelope.type == "INFO"]
    text = request.text  # type: ignore[union-attr]
    assert text.count("escalated it: ") == 3
    assert len(text) < 3 * (REASON_TOLD_MAX + 3) <= REASON_CHARS_MAX


def test_a_seat_that_escalates_on_and_on_does_not_make_the_decision_too_large_to_tell(hand: Hand) -> None:
    """Mutation: a hundred long reasons make an answer of 12 MB, which no client is given."""
    pid = hand.propose("s1")
    for n in range(60):
        content = {"proposal_id": pid, "reason": f"{n} " + "\x01" * 19_000}
        hand.receive(hand.sealed(hand.envelope("lite", "ESCALATION", content, parent_id=pid, role="voter")))
    proposal = hand.driver.state.open[pid]
    assert len(proposal.escalated_for) == REASONS_MAX
    assert all(len(why) <= REASON_TOLD_MAX + 1 for why in proposal.escalated_for)


def test_a_refusal_can_be_read_by_whoever_is_refused(hand: Hand) -> None:
    """Mutation: an authentic act that is malformed is refused in words that its client can't read."""
    sealed = hand.info("client", "a" * 16, "cancel")
    odd = sealed[signing.SIGNATURE_BYTES :].replace(b"proposer", b"prOposer")
    hand.receive(signing.seal(odd, sender_key=key_of("client"), council_id=COUNCIL_ID), "s1")
    hand.save()
    ((_, failed),) = hand.driver.announcements.to_sessions
    assert failed.facts["field"] == "role"  # type: ignore[union-attr]
    assert from_bytes(to_bytes(failed)) == failed


# Status


def test_status_is_plain_data(hand: Hand) -> None:
    pid = hand.propose()
    hand.receive(hand.vote("lite", pid))
    hand.receive(b"junk" * 20)
    hand.t += 5.0
    status = status_of(hand.driver, hand.now)
    assert status["open_count"] == 1
    (open_one,) = status["open"]
    assert (open_one["proposal_id"], open_one["voted"]) == (pid, {"lite": "yes"})
    assert (open_one["age_s"], open_one["time_left_s"]) == (5.0, 55.0)
    assert status["refused"] == {"malformed": 1}
    assert status["council_id"] == COUNCIL_ID
    hand.wait(60.0)
    hand.save()
    status = status_of(hand.driver, hand.now)
    assert (status["open_count"], status["with_human"]) == (0, 1)
    assert status["open"][0]["time_left_s"] is None


# Hostile bytes


@settings(max_examples=tried(300))
@given(
    st.data(),
    st.sampled_from(["cut", "flip", "insert", "swap-signature", "noise"]),
    st.sampled_from(["vote", "proposal", "info", "beat"]),
)
def test_altered_bytes_are_refused_never_raise_and_never_count(
    data: st.DataObject, how: str, kind: str
) -> None:
    hand = Hand()
    pid = hand.propose("owner")
    sealed = {
        "vote": lambda: hand.vote("lite", pid),
        "proposal": lambda: hand.sealed(hand.envelope("client", "PROPOSAL", {"summary": "evil"})),
        "info": lambda: hand.info("client", pid, "cancel"),
        "beat": lambda: hand.sealed(
            hand.envelope("lite", "HEARTBEAT", {"beat": 0, "uptime_s": 0.0}, parent_id="00000000")
        ),
    }[kind]()
    at = data.draw(st.integers(0, len(sealed) - 1))
    match how:
        case "cut":
            bad = sealed[:at]
        case "flip":
            bad = sealed[:at] + bytes([sealed[at] ^ data.draw(st.integers(1, 255))]) + sealed[at + 1 :]
        case "insert":
            bad = sealed[:at] + data.draw(st.binary(min_size=1, max_size=9)) + sealed[at:]
            if bad == sealed:
                return
        case "swap-signature":
            bad = hand.vote("prime", pid)[:32] + sealed[32:]
        case _:
            bad = data.draw(st.binary(max_size=300))
    records = len(hand.records)
    hand.receive(bad, "s1")
    assert isinstance(hand.told()[0], Failed)
    assert sum(hand.driver.refused.values()) == 1
    assert len(hand.records) == records + 1
    assert hand.driver.state.open[pid].ballots == ()


@settings(max_examples=tried(200))
@given(st.binary(max_size=120))
def test_authentic_nonsense_of_a_seat_is_refused_and_never_raises(payload: bytes) -> None:
    hand = Hand()
    head = codec.encode(hand.envelope("lite", "HEARTBEAT", {"beat": 0, "uptime_s": 0.0}))[:40]
    hand.receive(signing.seal(head + payload, sender_key=key_of("lite"), council_id=COUNCIL_ID), "s1")
    assert isinstance(hand.told()[0], Failed)


def test_what_the_council_said_to_a_seat_cannot_be_sent_back_as_the_seats_own_word(hand: Hand) -> None:
    hand.propose(None)
    _, item = hand.driver.outbox.to_seats[0]
    hand.receive(signing.seal_to(item, key_of("lite"), COUNCIL_ID, "lite"), "s1")
    assert hand.failed().code == "malformed"  # a letter is no envelope
    pid = hand.propose(None)
    payload = signing.payload_of(hand.vote("lite", pid))
    hand.receive(signing.seal_to(payload, key_of("lite"), COUNCIL_ID, "lite"), "s1")
    assert hand.failed().code == "forged"  # and were it one, the direction is signed too
    assert hand.driver.state.open[pid].ballots == ()


def test_an_envelope_whose_sender_has_left_is_opened_again() -> None:
    """Another client may have the name by then. Mutation: what waited is accepted by the old key."""
    hand = Hand()
    proposed = hand.envelope("client", "PROPOSAL", {"summary": "do it"})
    opened = hand.driver.open(hand.sealed(proposed))
    hand.driver.retire("client")
    hand.driver.join("client", "proposer", b"n" * 32)
    hand.driver.receive(opened, hand.now, "s1")
    hand.save()
    assert hand.failed().code == "forged"
    assert not hand.driver.state.open
