"""Says when a proposal escalates, and what a human is shown.

There are two steps (rules 1.8, 1.9): to Prime, which rules from all ballots, and to a human, whose answer is the
decision.
"""

from __future__ import annotations

from collections.abc import Iterable

from council.core.state import (
    INTERRUPTS_MAX,
    Ballot,
    Escalation,
    Moment,
    Option,
    Proposal,
    RiskLevel,
    Rules,
    Submission,
    Token,
    escalation_id_of,
    unsure,
)

RISKS: tuple[RiskLevel, ...] = ("low", "med", "high")
OUTCOME_UNKNOWN = "outcome_unknown"  # the reason of a question about a use of a token
WHY_LOST_MAX = 300  # characters of a reason in an escalation's detail; its gaps have all of it
# For each reason: what it means, and what the human should do next.
HUMAN_REASONS = {
    "prime_asks": ("Prime ruled that a human must decide", "Read Prime's ruling, then approve or reject."),
    "ruling_unsure": (
        "Prime's confidence in its ruling is below 0.3",
        "Weigh the ballots yourself; Prime could not.",
    ),
    "no_ruling": ("Prime gave no ruling", "Decide from the ballots; see why Prime could not."),
    "tie": ("the vote is tied and Prime's own ballot does not break it", "Decide between the two sides."),
    "quorum_lost": (
        "too few seats voted for a quorum",
        "See why seats are missing; submit again when they are back, or decide yourself.",
    ),
    "budget_unmet": (
        "what the seats' models may cost does not fit the budget, and without them there is no quorum",
        "Raise the cap that is named and submit it again, or decide yourself.",
    ),
    "check_failed": (
        "a check that was asked for before the decision was not run",
        "Look into it yourself, then approve or reject.",
    ),
    "user_approval": ("a seat's control packet requires a user's approval", "Approve or reject in person."),
}


def for_submission(what: Submission) -> str | None:
    """The reason why this proposal goes to Prime from the start; None if it does not."""
    return _risky(what.proposer, what.risk_level, what.confidence, "the proposal")


def for_ballot(ballot: Ballot) -> str | None:
    """The reason why this ballot sends its proposal to Prime; None if it does not."""
    return _risky(ballot.seat, ballot.risk_level, ballot.confidence, "its ballot")


def _risky(who: str, risk_level: RiskLevel, confidence: float, what: str) -> str | None:
    if risk_level == "high":
        return f"{who} rates the risk of {what} high" if what == "the proposal" else f"{who} sees high risk"
    if unsure(confidence):
        return f"{who} is unsure: confidence {confidence:g} in {what}"
    return None


def to_human(
    rules: Rules,
    proposal: Proposal,
    reason: str,
    missing: Iterable[tuple[str, str]],
    now: Moment,
    why: str = "",
) -> Escalation:
    """The case for a human: two or three options, what is not known, and a next step (rules 1.9).

    ``why`` adds details to the ``reason``. The escalation's id is derived from the proposal's, because a proposal
    reaches a human at most once.
    """
    what = proposal.what
    detail, next_step = HUMAN_REASONS[reason]
    detail = f"{detail}: {why}" if why else detail
    if rules.lost_at_once is True and proposal.lost:  # rules 1.5
        detail += f"; ballots lost: {_lost(proposal)}"
    return Escalation(
        escalation_id=escalation_id_of(what.proposal_id),
        proposal_id=what.proposal_id,
        summary=what.summary,
        risk_level=_risk(proposal),
        reason=reason,
        detail=detail,
        options=_options(proposal),
        gaps=_gaps(proposal, missing),
        next_step=f"{next_step} With no answer within {rules.escalation_ttl_s / 3600:g} h it is deferred.",
        ballots=proposal.ballots,
        ruling=proposal.ruling,
        asked_wall_s=now.wall_s,
        expires_wall_s=now.wall_s + rules.escalation_ttl_s,
    )


def about_outcome(rules: Rules, token: Token, number: int, why: str, now: Moment) -> Escalation:
    """The question whether a use of a token took effect, from 1 ``number`` (rules 5). It is never run again."""
    where = ", ".join(token.terms.resources) or "what it changes"
    ran, did_not = "its result counts as ok", "its result counts as cancelled, and it may be proposed again"
    return Escalation(
        escalation_id=escalation_id_of(token.proposal_id, number),
        proposal_id=token.proposal_id,
        summary=f"Confirm that {token.tool} ran: its outcome is unknown",
        risk_level="high",
        reason=OUTCOME_UNKNOWN,
        detail=f"the outcome of {token.tool} is unknown: {why}",
        options=(
            Option("approve", pros=(f"it ran: {ran}",), cons=("if it did not run, it is not done",)),
            Option(
                "reject", pros=(f"it did not run: {did_not}",), cons=("if it ran, a new run does it twice",)
            ),
        ),
        gaps=(f"whether {token.tool} ran, and what of it took effect",),
        next_step=f"Look at {where}. Approve if it ran, reject if it did not. It is not run again either way.",
        ballots=(),
        ruling=None,
        asked_wall_s=now.wall_s,
        expires_wall_s=now.wall_s + rules.escalation_ttl_s,
    )


def _lost(proposal: Proposal) -> str:
    """The seats whose ballots are lost, by reason."""
    seats: dict[str, list[str]] = {}
    for seat, why in proposal.lost.items():
        seats.setdefault(why if len(why) <= WHY_LOST_MAX else why[:WHY_LOST_MAX] + "…", []).append(seat)
    return "; ".join(f"{', '.join(names)} ({why})" for why, names in seats.items())


def _risk(proposal: Proposal) -> RiskLevel:
    """The highest risk in the proposal, ballots and ruling; high after three interrupts in a row (rules 1.8, 3.1)."""
    risks = {proposal.what.risk_level, *(ballot.risk_level for ballot in proposal.ballots)}
    if proposal.ruling is not None:
        risks.add(proposal.ruling.risk_level)
    if any(run >= INTERRUPTS_MAX for run in proposal.interrupts.values()):
        risks.add("high")
    return max(risks, key=RISKS.index)


def _options(proposal: Proposal) -> tuple[Option, ...]:
    ayes = _reasons(proposal.ballots, "yes")
    noes = _reasons(proposal.ballots, "no") + proposal.escalated_for
    return (
        Option(
            "approve",
            pros=ayes or ("what was asked for is done",),
            cons=noes or ("no seat stands behind it",),
        ),
        Option(
            "reject", pros=noes or ("nothing is changed",), cons=ayes or ("what was asked for is not done",)
        ),
    )


def _reasons(ballots: Iterable[Ballot], vote: str) -> tuple[str, ...]:
    return tuple(f"{b.seat}: {b.reason}" for b in ballots if b.vote == vote)


def _gaps(proposal: Proposal, missing: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    gaps = [f"{seat} gave no ballot: {why}" for seat, why in missing]
    gaps += [f"{b.seat} abstained: {b.reason}" for b in proposal.ballots if b.vote == "abstain"]
    gaps += [
        f"{b.seat} is unsure of its {b.vote}: confidence {b.confidence:g}"
        for b in proposal.ballots
        if unsure(b.confidence)
    ]
    return tuple(gaps) or ("the seats agree on what they saw; what they could not see is not recorded",)
