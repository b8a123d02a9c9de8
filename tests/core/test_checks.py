"""Checks before a decision (VERIFY_FIRST): run on a token that only reads, and voted on again (rules 5)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from council.core import effects as do
from council.core import events as ev
from council.core.state import (
    CHECK_CHARS_MAX,
    CHECK_S,
    CHECKS_MAX,
    RESULT_GRACE_S,
    Check,
    Token,
    UseRequest,
    plain,
)
from tests.core.council_in_hand import (
    Hand,
    abstain,
    answer,
    no,
    proposal,
    ruling,
    terms,
    use,
    use_result,
    yes,
)

SEATS = ("prime", "lite", "codemind")
LOOK = Check("prime", "look", '{"n":1}', "c1", "is it empty?")


def looks(number: int = 1, **fields: Any) -> UseRequest:
    given = {"tool": "look", "operations": ("read",), "resources": ("file:/srv",), "arguments": "c1"}
    return use(f"look{number}", token_id=f"token_p1-{number}", **{**given, **fields})


def checking(hand: Hand, check: Check = LOOK) -> Token:
    """The token of the check that Prime's ballot asks for, on a proposal of an action."""
    hand.submit(proposal(tool="write", terms=terms()))
    effects = hand.vote(abstain("prime", check=check), yes("lite"), yes("codemind"))
    (asked,) = [effect for effect in effects if isinstance(effect, do.AskCheck)]
    assert asked.check == check
    return asked.token


def checked(hand: Hand, number: int = 1, outcome: str = "ok", **fields: Any) -> list[do.Effect]:
    """The effects of the result of a check."""
    hand.do(ev.UseAsked(looks(number)))
    return hand.do(ev.UseReported(use_result(outcome, f"look{number}", text="it is empty", **fields)))


def again(seat: str, number: int = 1, **fields: Any) -> Any:
    """A ballot that was cast with the results of this many checks."""
    return yes(seat, checks_seen=number, msg_id=f"again-{seat}-{number}", **fields)


def test_a_ballot_has_a_check_run_and_all_vote_again() -> None:
    hand = Hand()
    token = checking(hand)
    assert (token.token_id, token.tool, token.terms.executor) == ("token_p1-1", "look", "exec")
    assert (token.terms.operations, token.terms.digest, token.terms.uses) == (("read",), "c1", 1)
    assert hand.open().stage == "checking"
    result, *delivered = checked(hand)
    assert isinstance(result, do.AnnounceResult)
    assert delivered == [do.DeliverProposal(seat, "p1") for seat in SEATS]
    assert (hand.open().stage, hand.open().ballots) == ("deliberating", ())
    (done,) = hand.open().all_checks
    assert (done.outcome, done.text) == ("ok", "it is empty")
    effects = hand.vote(again("prime"), again("lite"))
    decision, issued = effects[-2:]
    assert isinstance(decision, do.AnnounceDecision)
    assert decision.decision.outcome == "approved"
    assert decision.decision.checks == (done,)
    assert "Check of prime" in decision.decision.explain()
    assert isinstance(issued, do.IssueToken)
    assert issued.token.token_id == "token_p1"
    hand.refused(ev.UseAsked(looks()), "token_unknown")
    hand.do(ev.UseAsked(use()))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"operations": ("write",)}, "token_operation"),
        ({"operations": ("read", "write")}, "token_operation"),
        ({"tool": "write"}, "token_tool"),
        ({"arguments": "d1"}, "token_arguments"),
        ({"token_id": "token_p1"}, "token_unknown"),
        ({"executor": "other"}, "token_executor"),
    ],
)
def test_its_token_allows_that_one_read_alone(fields: dict[str, Any], code: str) -> None:
    hand = Hand()
    checking(hand)
    hand.refused(ev.UseAsked(msgspec.structs.replace(looks(), **fields)), code)
    checked(hand)
    hand.refused(ev.UseAsked(looks(2)), "token_unknown")


def test_prime_rules_to_verify_first() -> None:
    hand = Hand()
    hand.submit(proposal(tool="write", terms=terms(), risk_level="high"))
    hand.vote(*(yes(seat) for seat in SEATS))
    effects = hand.do(ev.RulingGiven(ruling("verify", check=LOOK)))
    assert [type(effect) for effect in effects] == [do.AnnounceRuling, do.AskCheck]
    checked(hand)
    assert (hand.open().ruling, len(hand.open().escalated_for)) == (None, 1)
    hand.vote(*(again(seat) for seat in SEATS))
    assert hand.open().stage == "ruling"
    hand.do(ev.RulingGiven(ruling("confirm", msg_id="r2")))
    assert hand.closed().outcome == "approved"


@pytest.mark.parametrize("outcome", ["failed", "cancelled", "unknown"])
def test_a_check_that_fails_goes_to_a_human_and_changes_nothing_else(outcome: str) -> None:
    hand = Hand()
    checking(hand)
    effects = checked(hand, outcome=outcome)
    assert [type(effect) for effect in effects] == [do.AnnounceResult, do.AnnounceEscalation]
    asked = hand.open().escalation
    assert asked is not None
    assert (asked.reason, len(asked.ballots)) == ("check_failed", 3)
    assert "it is empty" in asked.detail
    assert hand.state.governance.asked == {}  # a read of unknown outcome has changed nothing
    hand.do(ev.HumanAnswered(answer(True)))
    assert hand.closed().outcome == "approved"


@pytest.mark.parametrize("begun", [False, True])
def test_a_check_without_a_result_in_time_goes_to_a_human(begun: bool) -> None:
    hand = Hand()
    checking(hand)
    if begun:
        hand.do(ev.UseAsked(looks()))
    hand.wait(CHECK_S + RESULT_GRACE_S)
    assert hand.open().stage == "checking"
    hand.wait(1.0)
    asked = hand.open().escalation
    assert asked is not None
    assert "no result came within 40 s" in asked.detail
    assert hand.state.governance.under_way == {}
    if not begun:
        hand.refused(ev.UseAsked(looks()), "token_revoked")
    if begun:  # a late result of it begins nothing again
        kinds = [type(e) for e in hand.do(ev.UseReported(use_result("ok", "look1")))]
        assert kinds == [do.AnnounceResult]
        assert hand.open().stage == "human"


@pytest.mark.parametrize(
    ("what", "check", "said"),
    [
        ({}, LOOK, "names no executor"),
        ({"terms": terms()}, Check("prime", "", "", "", "?"), 'is not {"tool": name'),
    ],
)
def test_a_check_that_nobody_can_run_goes_to_a_human(what: dict[str, Any], check: Check, said: str) -> None:
    hand = Hand()
    hand.submit(proposal(tool="write", **what))
    hand.vote(abstain("prime", check=check), yes("lite"), yes("codemind"))
    asked = hand.open().escalation
    assert asked is not None
    assert asked.reason == "check_failed"
    assert said in asked.detail


def test_checks_are_bounded_and_none_is_run_twice() -> None:
    hand, same = Hand(), Hand()
    checking(hand)
    checking(same)
    checked(same)
    same.vote(again("prime", check=LOOK), again("lite"), again("codemind"))
    escalation = same.open().escalation
    assert escalation is not None
    assert "was run already" in escalation.detail
    for number in range(1, CHECKS_MAX + 1):
        hand.do(ev.UseAsked(looks(number, arguments=f"c{number}")))
        hand.do(ev.UseReported(use_result("ok", f"look{number}")))
        other = msgspec.structs.replace(LOOK, digest=f"c{number + 1}")
        hand.vote(again("prime", number, check=other), again("lite", number), again("codemind", number))
    escalation = hand.open().escalation
    assert escalation is not None
    assert f"{CHECKS_MAX} checks were run already" in escalation.detail


def test_a_rejection_waits_for_no_check() -> None:
    hand = Hand()
    hand.submit(proposal(tool="write", terms=terms()))
    hand.vote(yes("prime", check=LOOK), no("lite"), no("codemind"))
    assert hand.closed().outcome == "rejected"


def test_a_ballot_of_the_round_before_is_not_counted() -> None:
    hand = Hand()
    checking(hand)
    checked(hand)
    (ignored,) = hand.vote(no("lite", msg_id="slow"))
    assert isinstance(ignored, do.NoteIgnored)
    assert hand.open().ballots == ()
    (ignored,) = hand.vote(again("lite", 2))
    assert isinstance(ignored, do.NoteIgnored)
    hand.vote(again("lite"))
    assert len(hand.open().ballots) == 1


def test_a_cancelled_proposal_ends_its_check() -> None:
    hand = Hand()
    checking(hand)
    hand.do(ev.UseAsked(looks()))
    hand.do(ev.ProposalCancelled("p1", "client", ""))
    effects = hand.do(ev.UseReported(use_result("ok", "look1")))
    assert [type(effect) for effect in effects] == [do.AnnounceResult]
    assert hand.closed().outcome == "cancelled"


def test_the_seats_are_shown_only_so_much_of_a_result() -> None:
    hand = Hand()
    checking(hand)
    hand.do(ev.UseAsked(looks()))
    hand.do(ev.UseReported(use_result("ok", "look1", text="x" * (CHECK_CHARS_MAX + 1))))
    assert len(hand.open().all_checks[0].text) == CHECK_CHARS_MAX


def asked_for_ruling(hand: Hand) -> list[str]:
    """The reasons to ask Prime, once a check has ended that began after a seat asked for a ruling."""
    hand.submit(proposal(tool="write", terms=terms()))
    hand.do(ev.EscalationRaised("p1", "lite", "I can't see the table", "e1"))
    hand.vote(abstain("prime", check=LOOK, risk_level="high"), yes("lite"), yes("codemind"))
    checked(hand)
    return list(hand.open().escalated_for)


def test_a_check_undoes_no_escalation_of_another_seat() -> None:
    """The reasons that ballots gave end with them: they are cast anew (rules 1.8)."""
    hand = Hand()
    (reason,) = asked_for_ruling(hand)
    assert "I can't see the table" in reason
    hand.vote(*(again(seat) for seat in SEATS))
    assert hand.open().stage == "ruling"


def test_rules_before_it_forget_an_escalation_at_a_check() -> None:
    hand = Hand(keeps_escalation=msgspec.UNSET)
    assert asked_for_ruling(hand) == []
    assert b"keeps_escalation" not in msgspec.json.encode(hand.rules)


def test_nothing_of_checks_is_written_where_none_is_asked_for() -> None:
    """Else the records of an older version would have other hashes."""
    hand = Hand()
    hand.submit(proposal())
    hand.vote(yes("prime"), yes("lite"))
    kept = [
        plain(hand.closed()),
        plain(yes("prime")),
        plain(ruling("confirm")),
        plain(Token("p", "c", "t", terms(), 1.0, 1.0)),
    ]
    assert "check" not in str([each.keys() for each in kept])
