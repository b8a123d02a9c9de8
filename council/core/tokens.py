"""Counts the uses of tokens, and takes their results (rules 5).

A token is issued by the record of its decision (``conclusion``). An executor asks for each use, and may run the
action once its request is acknowledged, which waits for the record. If a use has no
result in time, its outcome is unknown. An alert says so, a human is asked whether it ran, and it is never run again.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from council.core import conclusion, escalation
from council.core import effects as do
from council.core import events as ev
from council.core.state import (
    CHECK_S,
    REASON_TOLD_MAX,
    RESULT_GRACE_S,
    Answer,
    CouncilState,
    Moment,
    Proposal,
    Token,
    Use,
    UseRequest,
    UseResult,
    escalated_by,
    escalation_id_of,
    token_id_of,
)
from council.core.state_store import Effects, store
from council.protocol.errors import Refused

# Uses


@ev.handles(ev.ExecutorStarted)
def started(state: CouncilState, event: ev.ExecutorStarted, now: Moment) -> Effects:
    """An executor's process began. The uses that an earlier process of that name left open get an unknown outcome."""
    return _end_earlier_runs(state, event.executor, event.run, now)


def _end_earlier_runs(state: CouncilState, executor: str, run: str, now: Moment) -> Effects:
    governance = state.governance
    effects: Effects = []
    for proposal_id in dict.fromkeys([proposal_id for proposal_id, _ in governance.under_way.values()]):
        token = governance.tokens[proposal_id]
        for use in token.under_way():
            if token.terms.executor == executor and use.run != run:
                why = f"{executor} restarted before it reported a result"
                effects += _close(state, _assumed(token, use, why), now)
    return effects


@ev.handles(ev.UseAsked)
def asked(state: CouncilState, event: ev.UseAsked, now: Moment) -> Effects:
    """Counts one use, or refuses it and names the first difference from the approval, in a fixed order."""
    request = event.request
    token = _token(state, request.proposal_id, request.executor)
    for use in token.uses:
        if use.use_id == request.use_id:
            if use.result is None:
                return [do.NoteIgnored(request.executor, "the same use again")]
            raise _refused(token, request.executor, f"this use is over: {use.result.outcome}", "use_over")
    if (found := _differs(token, request) or _ended(token, now)) is not None:
        code, why = found
        raise _refused(token, request.executor, why, code)
    effects = _end_earlier_runs(state, request.executor, request.run, now)
    token = state.governance.tokens[request.proposal_id]
    until_s = now.uptime_s + token.terms.timeout_s + RESULT_GRACE_S
    counted = Use(request.use_id, request.run, now.uptime_s, until_s)
    state.governance.tokens[request.proposal_id] = replace(token, uses=(*token.uses, counted))
    state.governance.under_way[request.use_id] = request.proposal_id, until_s
    return [*effects, do.AnnounceUse(request)]


def _differs(token: Token, request: UseRequest) -> tuple[str, str] | None:
    """The code and the description of the first difference from what was approved."""
    terms = token.terms
    if request.token_id != token.token_id:
        return "token_unknown", f"{request.token_id} is not the token of {token.proposal_id}"
    if request.executor != terms.executor:
        return "token_executor", f"it was issued to {terms.executor}, not to {request.executor}"
    if request.tool != token.tool:
        return "token_tool", f"it is for the tool {token.tool}, not for {request.tool}"
    if request.arguments != terms.digest:
        return (
            "token_arguments",
            f"the arguments are not those that were approved: their sha256 is {request.arguments}, and "
            f"{terms.digest} was approved",
        )
    for what, code, wanted, allowed in (
        ("operation", "token_operation", request.operations, terms.operations),
        ("resource", "token_resource", request.resources, terms.resources),
    ):
        if (
            what == "resource" and token.check is not UNSET
        ):  # they follow from the arguments, and are only read
            continue
        beyond = [each for each in wanted if each not in allowed]
        if beyond or (what == "operation" and not wanted):
            named = beyond[0] if beyond else "none"
            return code, f"it allows the {what}s {', '.join(allowed) or 'none'}, and {named} was asked for"
    return None


def _ended(token: Token, now: Moment) -> tuple[str, str] | None:
    if token.revoked:
        return "token_revoked", f"it was revoked: {token.revoked}"
    if token.expired(now):
        return "token_expired", f"it expired {token.terms.ttl_s:g} s after the decision"
    if token.spent():
        count = len(token.uses)
        return "token_used", f"it allows {count} use{'s' * (count != 1)}, and {count} were counted"
    return None


@ev.handles(ev.UseReported)
def reported(state: CouncilState, event: ev.UseReported, now: Moment) -> Effects:
    """Takes the executor's report, which is not verified further. A late report replaces an unknown outcome."""
    result = event.result
    token = _token(state, result.proposal_id, result.executor)
    use = next((each for each in token.uses if each.use_id == result.use_id), None)
    if use is None:
        raise _refused(
            token, result.executor, f"{result.use_id} is no use of it that was counted", "use_unknown"
        )
    if result.executor != token.terms.executor:
        raise _refused(
            token, result.executor, f"only {token.terms.executor} may report on it", "token_executor"
        )
    if use.result is not None and not use.result.assumed:
        if use.result.digest == result.digest:
            return [do.NoteIgnored(result.executor, "the same result again")]
        raise _refused(
            token, result.executor, f"{use.result.outcome} was reported: that stands", "told_before"
        )
    return _close(state, result, now)


@ev.handles(ev.UseTimedOut)
def timed_out(state: CouncilState, event: ev.UseTimedOut, now: Moment) -> Effects:
    token = _token(state, event.proposal_id, "the clock")
    for use in token.under_way():
        if use.use_id == event.use_id and now.uptime_s > use.until_s:
            why = f"no result came within {use.until_s - use.at_s:g} s of the grant"
            return _close(state, _assumed(token, use, why), now)
    raise _refused(token, "the clock", f"the use {event.use_id} has not timed out", "not_expired")


def next_timeout(state: CouncilState) -> tuple[float, ev.UseTimedOut] | None:
    """The earliest deadline of the uses under way, and its event; None without a use under way."""
    under_way = state.governance.under_way
    if not under_way:
        return None
    use_id = min(under_way, key=lambda each: under_way[each][1])
    proposal_id, until_s = under_way[use_id]
    return until_s, ev.UseTimedOut(proposal_id, use_id)


def _assumed(token: Token, use: Use, why: str) -> UseResult:
    return UseResult(token.proposal_id, use.use_id, token.terms.executor, "unknown", why, assumed=True)


def _close(state: CouncilState, result: UseResult, now: Moment) -> Effects:
    """Closes a use. Raises an alert for a failure, and for an unknown outcome, about which it asks a human."""
    token = state.governance.tokens[result.proposal_id]
    kept = replace(result, text=result.text[:REASON_TOLD_MAX])  # the record has the whole text
    number, use = next((n, use) for n, use in enumerate(token.uses, 1) if use.use_id == result.use_id)
    is_check = token.check is not UNSET  # it has changed nothing, whatever came of it
    asks = result.outcome == "unknown" and state.rules.asks_outcome is True and not is_check
    question = escalation.about_outcome(state.rules, token, number, kept.text, now) if asks else UNSET
    _set_use(state, token, number, replace(use, result=kept, asked=question))
    state.governance.under_way.pop(result.use_id, None)
    effects: Effects = [do.AnnounceResult(result)]
    if is_check:
        proposal = state.open.get(token.proposal_id)
        if proposal is not None and proposal.stage == "checking" and token.check == len(proposal.all_checks):
            checked = conclusion.on_checked(state, proposal, result.outcome, result.text, now)
            effects += store(state, proposal, checked)
        return effects
    if result.outcome == "unknown":
        text = (
            f"the outcome of {token.tool} is unknown: {kept.text}. It may have run, and is not run again: "
            f"look at {', '.join(token.terms.resources) or 'what it changes'}"
        )
        effects.append(do.RaiseAlert(result.proposal_id, "outcome_unknown", text))
        if question is not UNSET:
            effects.append(do.AskOutcome(question))
    elif result.outcome == "failed":
        text = f"{token.tool} failed, {result.executor} reports: {kept.text}"
        effects.append(do.RaiseAlert(result.proposal_id, "action_failed", text))
    return effects


def check_overdue(state: CouncilState, proposal: Proposal, now: Moment) -> Effects:
    """Ends a check that no executor has run in time."""
    token = state.governance.tokens[proposal.what.proposal_id]
    why = f"no result came within {CHECK_S + RESULT_GRACE_S:g} s"
    for use in token.under_way():
        return _close(state, _assumed(token, use, why), now)
    effects = _revoke(state, token, why)
    return effects + store(state, proposal, conclusion.on_checked(state, proposal, "unknown", why, now))


def _set_use(state: CouncilState, token: Token, number: int, use: Use) -> None:
    uses = (*token.uses[: number - 1], use, *token.uses[number:])
    state.governance.tokens[token.proposal_id] = replace(token, uses=uses)
    question = escalation_id_of(token.proposal_id, number)
    state.governance.asked.pop(question, None)
    if use.asked is not UNSET:
        state.governance.asked[question] = use.asked


# Questions about unknown outcomes


def answered(state: CouncilState, answer: Answer, number: int, now: Moment) -> Effects:
    """Takes a human's word for whether a use of unknown outcome ran. The first answer wins (rules 1.9, 5)."""
    token = _token(state, answer.proposal_id, answer.human)
    use = token.uses[number - 1] if 1 <= number <= len(token.uses) else None
    if use is None or use.asked is UNSET:
        result = None if use is None else use.result
        if result is not None and result.digest == answer.digest:
            return [do.NoteIgnored(answer.human, "the same answer again")]
        stands = "it was not used" if use is None else "it is under way"
        if result is not None:
            stands = f"{result.executor} reported {result.outcome}"
        raise Refused(
            f"no human is asked about use {number} of {token.token_id}: {stands}. Your answer was not counted.",
            code="not_escalated" if result is None else "already_answered",
            proposal_id=answer.proposal_id,
            sender=answer.human,
        )
    said = f"{answer.human} answered that it {'ran' if answer.approve else 'did not run'}"
    return _close(
        state,
        UseResult(
            token.proposal_id,
            use.use_id,
            answer.human,
            "ok" if answer.approve else "cancelled",
            f"{said}: {answer.reason}" if answer.reason else said,
            digest=answer.digest,
        ),
        now,
    )


def unanswered(state: CouncilState, event: ev.EscalationExpired, number: int, now: Moment) -> Effects:
    """Ends a question that no human answered in time. The outcome stays unknown."""
    question = state.governance.asked.get(escalation_id_of(event.proposal_id, number))
    if question is None or not now.wall_s > question.expires_wall_s:
        raise Refused(
            f"the question about use {number} of {event.proposal_id} has not expired", code="not_expired"
        )
    token = state.governance.tokens[event.proposal_id]
    _set_use(state, token, number, replace(token.uses[number - 1], asked=UNSET))
    text = f"no human answered {question.escalation_id} in time: whether {token.tool} ran stays unknown"
    return [do.RaiseAlert(event.proposal_id, "outcome_unanswered", text)]


def next_expiry(state: CouncilState) -> tuple[float, ev.EscalationExpired] | None:
    """The deadline, in Unix seconds, of the first question that expires, and its event; None without a question."""
    asked = state.governance.asked.values()
    if not asked:
        return None
    first = min(asked, key=lambda each: each.expires_wall_s)
    _, number = escalated_by(first.escalation_id)
    return first.expires_wall_s, ev.EscalationExpired(first.proposal_id, number or 1)


# Revocation


@ev.handles(ev.TokenRevoked)
def revoked(state: CouncilState, event: ev.TokenRevoked, now: Moment) -> Effects:
    """Revokes a token for its proposer or an enrolled human. A use under way goes on."""
    token = _token(state, event.proposal_id, event.sender)
    if not event.by_human and event.sender != token.proposer:
        why = f"{token.proposer} proposed it, so only {token.proposer} or a human may revoke it"
        raise _refused(token, event.sender, why, "not_the_proposer")
    if token.revoked:
        return [do.NoteIgnored(event.sender, "a revocation of a revoked token")]
    by = f"by {event.sender}" + (f": {event.reason}" if event.reason else "")
    return _revoke(state, token, by)


def late_ballot(state: CouncilState, proposal_id: str, seat: str) -> Effects:
    """A late ballot that would have escalated the proposal revokes a token that is not used yet (rules 1.7)."""
    token = state.governance.tokens.get(proposal_id)
    if token is None or token.revoked or token.uses:
        return []
    return _revoke(state, token, f"by the late ballot of {seat}")


def _revoke(state: CouncilState, token: Token, why: str) -> Effects:
    state.governance.tokens[token.proposal_id] = replace(token, revoked=why)
    return [do.AnnounceRevocation(token.proposal_id, why)]


def _token(state: CouncilState, proposal_id: str, sender: str) -> Token:
    token = state.governance.tokens.get(proposal_id)
    if token is None:
        raise Refused(
            f"this council has no token {token_id_of(proposal_id)}: its proposal was not approved here with an "
            "authorization, or the token ended long ago",
            code="token_unknown",
            proposal_id=proposal_id,
            sender=sender,
        )
    return token


def _refused(token: Token, sender: str, why: str, code: str) -> Refused:
    return Refused(
        f"{token.token_id} is refused to {sender}: {why}",
        code=code,
        proposal_id=token.proposal_id,
        sender=sender,
    )
