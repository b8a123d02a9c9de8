"""Tokens: issued with an approval, counted before a use, refused where anything differs (rules 4.6, 5)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from council.core import effects as do
from council.core import events as ev
from council.core import state_store
from council.core.state import Decision, Escalation, Submission, Token, Use, escalated_by
from council.core.step import next_due
from council.core.tokens import RESULT_GRACE_S
from tests.cases import each
from tests.core.council_in_hand import (
    WALL_0,
    Hand,
    answer,
    no,
    proposal,
    ruling,
    terms,
    use,
    use_result,
    yes,
)

TIMEOUT_S = 50.0 + RESULT_GRACE_S


def asked(**fields: Any) -> ev.UseAsked:
    return ev.UseAsked(use(**fields))


def told(*args: Any, **fields: Any) -> ev.UseReported:
    return ev.UseReported(use_result(*args, **fields))


def submitted(hand: Hand, proposal_id: str = "p1", **fields: Any) -> Submission:
    what = proposal(proposal_id, tool="write", terms=terms(**fields))
    hand.do(ev.ProposalSubmitted(what))
    return what


def approved(hand: Hand, proposal_id: str = "p1", **fields: Any) -> Token:
    """The token of a proposal that the seats approve."""
    submitted(hand, proposal_id, **fields)
    effects = hand.vote(yes("prime", proposal_id), yes("lite", proposal_id))
    (token,) = [effect.token for effect in effects if isinstance(effect, do.IssueToken)]
    return token


# Issued


def test_an_approval_issues_its_token_in_the_same_record() -> None:
    hand = Hand()
    what = submitted(hand)
    hand.vote(yes("prime"))
    hand.move_to(5.0)
    effects = hand.vote(yes("lite"))
    token = Token("p1", "client", "write", what.terms, 605.0, WALL_0 + 605.0)  # type: ignore[arg-type]
    ballot, decision, issued = effects
    assert isinstance(ballot, do.AnnounceBallot)
    assert isinstance(decision, do.AnnounceDecision)
    assert issued == do.IssueToken(token)
    assert hand.state.governance.tokens == {"p1": token}
    assert token.token_id == "token_p1"


def test_a_ruling_and_a_human_issue_it_too() -> None:
    hand = Hand()
    hand.submit(proposal(tool="write", terms=terms(), risk_level="high"))
    hand.vote(yes("prime"), yes("lite"), yes("codemind"))
    effects = hand.do(ev.RulingGiven(ruling("confirm")))
    assert [type(effect) for effect in effects] == [do.AnnounceRuling, do.AnnounceDecision, do.IssueToken]
    hand.submit(proposal("p2", tool="write", terms=terms()))
    hand.vote(yes("prime", "p2", asks_human=True), yes("lite", "p2"), yes("codemind", "p2"))
    effects = hand.do(ev.HumanAnswered(answer(True, "p2")))
    assert [type(effect) for effect in effects] == [do.AnnounceDecision, do.IssueToken]


def test_only_an_approval_with_terms_issues_one() -> None:
    hand = Hand()
    submitted(hand)
    hand.vote(no("prime"), no("lite"))
    hand.submit(proposal("p2", tool="write"))
    hand.vote(yes("prime", "p2"), yes("lite", "p2"))
    submitted(hand, "p3")
    hand.do(ev.ProposalCancelled("p3", "client", ""))
    assert bool(hand.closed("p2"))
    assert hand.state.governance.tokens == {}
    for proposal_id in ("p1", "p2", "p3", "never"):
        hand.refused(asked(proposal_id=proposal_id), "token_unknown")


# Counted


def test_a_use_is_counted_and_its_result_closes_it() -> None:
    hand = Hand()
    approved(hand)
    hand.move_to(7.0)
    assert hand.do(asked()) == [do.AnnounceUse(use())]
    assert hand.state.governance.tokens["p1"].uses == (Use("u1", "r1", 7.0, 7.0 + TIMEOUT_S),)
    result = use_result("ok", text="3 lines", sandbox="bubblewrap", exit_code=0)
    assert hand.do(ev.UseReported(result)) == [do.AnnounceResult(result)]
    assert hand.state.governance.tokens["p1"].uses[0].result == result
    assert hand.state.governance.under_way == {}
    hand.refused(asked(use_id="u2"), "token_used")


def test_the_same_request_again_is_answered_and_not_counted_again() -> None:
    hand = Hand()
    approved(hand, uses=2)
    hand.do(asked())
    assert hand.do(asked()) == [do.NoteIgnored("exec", "the same use again")]
    assert len(hand.state.governance.tokens["p1"].uses) == 1
    hand.do(told())
    hand.refused(asked(), "use_over")  # else a request that is replayed would be a second permission
    hand.do(asked(use_id="u2"))
    hand.refused(asked(use_id="u3"), "token_used")


@each(
    ("differing", "fields", "code"),
    [
        ("d2", {"arguments": "d2"}, "token_arguments"),
        ("read", {"tool": "read"}, "token_tool"),
        ("delete", {"operations": ("delete",)}, "token_operation"),
        ("delete", {"operations": ("write", "delete")}, "token_operation"),
        ("none was asked for", {"operations": ()}, "token_operation"),
        ("file:/srv/x2", {"resources": ("file:/srv/x2",)}, "token_resource"),
        ("file:/srv/x/y", {"resources": ("file:/srv/x/y",)}, "token_resource"),
        ("file:/etc", {"resources": ("file:/srv/x", "file:/etc")}, "token_resource"),
        ("other", {"executor": "other"}, "token_executor"),
        ("token_p2", {"token_id": "token_p2"}, "token_unknown"),
    ],
)
def test_what_differs_from_the_approved_is_refused_by_name(
    differing: str, fields: dict[str, Any], code: str
) -> None:
    hand = Hand()
    approved(hand)
    error = hand.refused(asked(**fields), code)
    assert differing in error.message
    assert hand.do(asked()) == [do.AnnounceUse(use())]  # nothing of it was used up


def test_it_expires_by_uptime_and_sooner_by_the_wall_clock() -> None:
    hand = Hand()
    approved(hand)
    hand.move_to(600.0)
    assert hand.do(asked()) == [do.AnnounceUse(use())]  # at exactly its end
    late, forward, back = Hand(), Hand(), Hand()
    for each_hand in (late, forward, back):
        approved(each_hand)
    late.move_to(600.1)
    late.refused(asked(), "token_expired")
    forward.wall += 700.0
    forward.refused(asked(), "token_expired")
    back.wall -= 700.0  # a clock that is set back lengthens nothing
    back.t = 600.1
    back.refused(asked(), "token_expired")


# Unknown outcomes


def test_without_a_result_in_time_the_outcome_is_unknown_and_people_hear_of_it() -> None:
    hand = Hand()
    approved(hand, uses=2)
    hand.do(asked())
    assert hand.wait(TIMEOUT_S) == []  # at exactly its end a result counts
    effects = hand.wait(1.0)
    result, alert, question = effects
    assert isinstance(result, do.AnnounceResult)
    assert (result.result.outcome, result.result.assumed) == ("unknown", True)
    assert isinstance(alert, do.RaiseAlert)
    assert (alert.proposal_id, alert.kind) == ("p1", "outcome_unknown")
    assert "is not run again" in alert.text
    assert isinstance(question, do.AskOutcome)
    hand.refused(asked(), "use_over")
    assert hand.wait(1_000.0) == []  # it is said once


def test_an_executor_that_restarts_leaves_unknown_outcomes() -> None:
    hand = Hand()
    approved(hand, uses=3)
    approved(hand, "p2", executor="another")
    hand.do(asked())
    hand.do(asked(proposal_id="p2", use_id="u2", executor="another"))
    assert hand.do(ev.ExecutorStarted("exec", "r1")) == []  # the run that asked
    effects = hand.do(ev.ExecutorStarted("exec", "r2"))
    assert [type(effect) for effect in effects] == [do.AnnounceResult, do.RaiseAlert, do.AskOutcome]
    assert list(hand.state.governance.under_way) == ["u2"]
    hand.do(asked(use_id="u3", run="r2"))
    # Also where the start itself was not heard of.
    kinds = [type(effect) for effect in hand.do(asked(use_id="u4", run="r3"))]
    assert kinds == [do.AnnounceResult, do.RaiseAlert, do.AskOutcome, do.AnnounceUse]


def test_a_late_result_replaces_an_unknown_outcome() -> None:
    hand = Hand()
    approved(hand)
    hand.do(asked())
    hand.wait(TIMEOUT_S + 1.0)
    result = use_result("ok")
    assert hand.do(ev.UseReported(result)) == [do.AnnounceResult(result)]
    assert hand.do(ev.UseReported(result)) == [do.NoteIgnored("exec", "the same result again")]
    hand.refused(told("failed"), "told_before")


# Questions about unknown outcomes


def asked_human(hand: Hand, **fields: Any) -> Escalation:
    """The question about the first use of a token whose outcome is unknown."""
    approved(hand, **fields)
    hand.do(asked())
    (question,) = [each.question for each in hand.wait(TIMEOUT_S + 1.0) if isinstance(each, do.AskOutcome)]
    return question


def test_a_human_is_asked_whether_it_ran() -> None:
    hand = Hand()
    question = asked_human(hand)
    assert (question.escalation_id, question.reason) == ("esc-p1-1", "outcome_unknown")
    assert escalated_by(question.escalation_id) == ("p1", 1)
    assert [option.name for option in question.options] == ["approve", "reject"]
    assert "file:/srv/x" in question.next_step
    assert hand.state.governance.asked == {"esc-p1-1": question}


@pytest.mark.parametrize(("ran", "outcome"), [(True, "ok"), (False, "cancelled")])
def test_the_answer_is_the_result_and_nothing_runs_again(ran: bool, outcome: str) -> None:
    hand = Hand()
    asked_human(hand)
    first = answer(ran, use=1, reason="the file is there")
    (told_of,) = hand.do(ev.HumanAnswered(first))
    assert isinstance(told_of, do.AnnounceResult)
    assert (told_of.result.executor, told_of.result.outcome) == ("ada", outcome)
    assert "the file is there" in told_of.result.text
    assert hand.state.governance.asked == {}
    assert hand.do(ev.HumanAnswered(first)) == [do.NoteIgnored("ada", "the same answer again")]
    error = hand.refused(
        ev.HumanAnswered(answer(not ran, use=1, human="bob", msg_id="b")), "already_answered"
    )
    assert f"ada reported {outcome}" in error.message
    hand.refused(told("ok", text="late"), "told_before")
    hand.refused(asked(use_id="u9"), "token_used")
    assert hand.closed("p1").answer is None  # the decision stands as it was


def test_a_late_report_ends_the_question() -> None:
    hand = Hand()
    asked_human(hand)
    hand.do(told("ok"))
    assert hand.state.governance.asked == {}
    hand.refused(ev.HumanAnswered(answer(True, use=1)), "already_answered")


def test_a_question_without_an_answer_expires_and_the_outcome_stays_unknown() -> None:
    hand = Hand(escalation_ttl_s=100.0)
    question = asked_human(hand)
    hand.wall = question.expires_wall_s
    assert next_due(hand.state, hand.moment()) is None
    hand.refused(ev.EscalationExpired("p1", 1), "not_expired")
    hand.wall += 1.0
    assert next_due(hand.state, hand.moment()) == ev.EscalationExpired("p1", 1)
    (alert,) = hand.drain()
    assert isinstance(alert, do.RaiseAlert)
    assert (alert.kind, hand.state.governance.asked) == ("outcome_unanswered", {})
    result = hand.state.governance.tokens["p1"].uses[0].result
    assert result is not None
    assert result.outcome == "unknown"


def test_only_a_use_of_unknown_outcome_is_answered() -> None:
    hand = Hand()
    hand.refused(ev.HumanAnswered(answer(True, use=1)), "token_unknown")
    approved(hand, uses=2)
    hand.refused(ev.HumanAnswered(answer(True, use=1)), "not_escalated")
    hand.do(asked())
    hand.refused(ev.HumanAnswered(answer(True, use=1)), "not_escalated")
    hand.do(told("ok"))
    hand.refused(ev.HumanAnswered(answer(True, use=1)), "already_answered")
    hand.refused(ev.HumanAnswered(answer(True, use=0)), "not_escalated")


def test_rules_before_the_question_ask_nobody() -> None:
    """Else a journal from before would have other effects when it is replayed."""
    hand = Hand(asks_outcome=UNSET)
    approved(hand)
    hand.do(asked())
    kinds = [type(effect) for effect in hand.wait(TIMEOUT_S + 1.0)]
    assert kinds == [do.AnnounceResult, do.RaiseAlert]
    assert b"asks_outcome" not in msgspec.json.encode(hand.rules)
    assert b"use" not in msgspec.json.encode(answer(True))


def test_only_its_executor_reports_on_a_use_and_once() -> None:
    hand = Hand()
    approved(hand)
    hand.refused(told(), "use_unknown")
    hand.do(asked())
    hand.refused(told(executor="another"), "token_executor")
    hand.refused(told(use_id="u2"), "use_unknown")
    hand.refused(told(proposal_id="p2"), "token_unknown")
    result = use_result("failed", text="exit code 1")
    kinds = [type(effect) for effect in hand.do(ev.UseReported(result))]
    assert kinds == [do.AnnounceResult, do.RaiseAlert]
    hand.refused(told("ok"), "told_before")


# Revoked


def test_its_proposer_or_a_human_revokes_it() -> None:
    hand = Hand()
    approved(hand, uses=2)
    approved(hand, "p2")
    hand.do(asked())
    hand.refused(ev.TokenRevoked("p1", "mallory", "no"), "not_the_proposer")
    effects = hand.do(ev.TokenRevoked("p1", "client", "the plan changed"))
    assert effects == [do.AnnounceRevocation("p1", "by client: the plan changed")]
    error = hand.refused(asked(use_id="u2"), "token_revoked")
    assert "the plan changed" in error.message
    hand.do(told())  # what was under way goes on
    assert hand.do(ev.TokenRevoked("p1", "client", "")) == [
        do.NoteIgnored("client", "a revocation of a revoked token")
    ]
    assert hand.do(ev.TokenRevoked("p2", "ada", "", by_human=True)) == [do.AnnounceRevocation("p2", "by ada")]
    hand.refused(ev.TokenRevoked("p3", "ada", "", by_human=True), "token_unknown")


@pytest.mark.parametrize("grave", [{"risk_level": "high"}, {"confidence": 0.1}, {"asks_human": True}])
def test_a_grave_late_ballot_revokes_what_is_not_used_yet(grave: dict[str, Any]) -> None:
    unused, used = Hand(), Hand()
    for hand in (unused, used):
        approved(hand, uses=2)
    used.do(asked())
    effects = unused.vote(no("codemind", **grave))
    assert [type(effect) for effect in effects] == [
        do.AnnounceBallot,
        do.RaiseAlert,
        do.AnnounceRevocation,
    ]
    unused.refused(asked(), "token_revoked")
    assert [type(effect) for effect in used.vote(no("codemind", **grave))] == [
        do.AnnounceBallot,
        do.RaiseAlert,
    ]
    used.do(asked(use_id="u2"))


def test_a_harmless_late_ballot_revokes_nothing() -> None:
    hand = Hand()
    approved(hand)
    assert [type(effect) for effect in hand.vote(no("codemind"))] == [do.AnnounceBallot]
    hand.do(asked())


# Kept

KEPT = 50


def test_those_that_ended_are_forgotten_and_those_that_may_be_used_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_store, "TOKENS_KEPT", KEPT)
    hand = Hand(open_max=10)
    approved(hand, "first", ttl_s=80_000.0)
    for number in range(2 * KEPT):
        proposal_id = f"p{number}"
        approved(hand, proposal_id)
        hand.do(ev.TokenRevoked(proposal_id, "client", ""))
    kept = hand.state.governance.tokens
    assert KEPT <= len(kept) < 2 * KEPT
    assert "first" in kept
    assert f"p{2 * KEPT - 1}" in kept
    hand.refused(asked(proposal_id="p0", token_id="token_p0"), "token_unknown")
    hand.do(asked(proposal_id="first", token_id="token_first"))


def test_what_a_decision_says_is_as_without_a_token() -> None:
    hand = Hand()
    what = submitted(hand)
    effects = hand.vote(yes("prime"), yes("lite"))
    decision = effects[1]
    assert isinstance(decision, do.AnnounceDecision)
    expected: Decision = hand.decision(
        what,
        "approved",
        "a majority of yes",
        yes("prime"),
        yes("lite"),
        early=True,
        missing=(("codemind", "had not voted yet; its ballot was not needed"),),
    )
    assert decision.decision == expected
