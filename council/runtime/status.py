"""Describes a council's current state as plain data. Decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from council.core import effects as do
from council.core.roll import online_s
from council.core.state import (
    Account,
    Ballot,
    Caps,
    CouncilState,
    Decision,
    Escalation,
    IdentityChange,
    Proposal,
    Ruling,
    Seat,
    Spend,
    plain,
)
from council.kinds.phrases import decided_by
from council.kinds.text import clean, line
from council.protocol import codec
from council.protocol.envelope import Proposal as Asked
from council.protocol.identity.change import LITE
from council.runtime.driver import Driver
from council.runtime.feed import WAYS, touched
from council.runtime.open_escalations import answering, args_text, argument_texts, reason_of, tool_text
from council.runtime.token_standing import standings

# So many are listed: of open proposals the oldest, of escalations the newest. The counts are of all.
ROWS_MAX, WAITING_MAX = 200, 50
ARGS_CHARS_MAX = 2_000  # characters of an action's arguments, as JSON
REASON_CHARS_MAX, BODY_CHARS_MAX = 1_000, 4_000  # of a vote's reason, and of a proposal's text
# This many decisions are listed, found among this many of the newest announcements.
DECISIONS_MAX, LOOKED_AT_MAX = 20, 1_000


def status(driver: Driver, now: tuple[float, float], *, stalled: bool = False) -> dict[str, Any]:
    """The council at a glance: seats, identity, budget, open proposals, decisions, refusals.

    ``now`` is seconds of uptime and Unix seconds. While the journal is ``stalled``, proposals, their counts and the
    identity's change are shown as the journal has kept them (rules 4.7). ``untold`` is the number of proposals that
    have changed since. Everything else is shown as it is now.
    """
    state, kept = driver.state, driver.kept
    opened = kept.open if stalled else state.open
    counts, ways = (
        (kept.counts, kept.ways) if stalled else (driver.announcements.counts, driver.announcements.ways)
    )
    change = kept.identity_change if stalled else state.identity_change
    waiting = kept.escalations() if stalled else driver.escalations()
    shown = list(islice(opened.values(), ROWS_MAX))
    stages = Counter(proposal.stage for proposal in opened.values())
    busy = Counter(seat for proposal in shown for seat in _at_work(proposal, state.rules.prime))
    return {
        "council_id": driver.council_id,
        "uptime_s": now[0],
        "epoch": state.epoch,
        "position": driver.position,
        "events": driver.announcements.feed.position,
        "prime": state.rules.prime,
        "quorum": state.rules.quorum,
        "pool": state.rules.pool,
        "seats": [_seat(seat, now[0], busy[seat.name]) for seat in state.seats.values()],
        "inactivity_limit_s": state.rules.inactivity_limit_s,
        "shared": plain(state.rules.shared),
        "humans": driver.senders.humans,
        "identity": _identity(state, now[0], change),
        "budget": _budget(state),
        "open": [_proposal(proposal, now[0]) for proposal in shown],
        "stages": dict(stages),
        "open_count": len(opened) - stages["human"],
        "with_human": len(waiting),
        "waiting": _waiting(waiting, driver.outbox.payloads),
        "tokens": _tokens(state, now),
        "untold": len(touched(driver.announcements.untold())) if stalled else 0,
        "decided": dict(counts),
        "ways": {way: ways.get(way, 0) for way in WAYS},
        "late_ballots": ways.get("late", 0),
        "decisions": [_decision(*each) for each in _newest(driver)],
        "refused": dict(driver.refused),
        "ignored": dict(driver.ignored),
    }


def _tokens(state: CouncilState, now: tuple[float, float]) -> dict[str, int]:
    """The numbers of tokens that may be used, that are used just now, and whose use has an unknown outcome."""
    found = Counter(each.standing for each in standings(state, now))
    return {"live": found["live"], "under_way": found["under way"], "unknown": found["unknown"]}


def _seat(seat: Seat, uptime_s: float, busy: int) -> dict[str, Any]:
    return {
        "name": seat.name,
        "active": seat.active,
        "heartbeat_age_s": uptime_s - seat.last_beat_s,
        "heartbeats": seat.beat + 1,
        "restarts": seat.boot - seat.handed_on,
        "busy": busy,
        "why": seat.why,
    }


def _proposal(proposal: Proposal, uptime_s: float) -> dict[str, Any]:
    return {
        "proposal_id": proposal.what.proposal_id,
        "summary": proposal.what.summary,
        "proposer": proposal.what.proposer,
        "risk_level": proposal.what.risk_level,
        "stage": proposal.stage,
        "age_s": uptime_s - proposal.opened_s,
        "time_left_s": proposal.deadline_s - uptime_s if proposal.stage != "human" else None,
        "voted": {ballot.seat: ballot.vote for ballot in proposal.ballots},
        "lost": dict(proposal.lost),
        "escalated_for": list(proposal.escalated_for),
    }


def _at_work(proposal: Proposal, prime: str) -> frozenset[str]:
    """The seats that have not sent their ballot or ruling on a proposal yet."""
    if proposal.stage == "ruling":
        return frozenset((prime,))
    if proposal.stage != "deliberating":
        return frozenset()
    return proposal.asked - proposal.done()


def _waiting(waiting: Sequence[Escalation], payloads: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """The newest escalations that wait for a human, newest first, with their main fields, and what they ask for."""
    names = (
        "escalation_id",
        "proposal_id",
        "summary",
        "risk_level",
        "reason",
        "detail",
        "next_step",
        "asked_wall_s",
        "expires_wall_s",
    )
    newest = sorted(waiting, key=lambda each: each.asked_wall_s)[: -WAITING_MAX - 1 : -1]
    return [
        {
            **{name: getattr(each, name) for name in names},
            **_asked_for(payloads.get(each.proposal_id, b"")),
            "votes": {ballot.seat: ballot.vote for ballot in each.ballots},
            "ballots": [{"vote": ballot.vote, **_said(ballot)} for ballot in each.ballots],
            "ruling": each.ruling and {"ruling": each.ruling.ruling, **_said(each.ruling)},
            "command": answering(each.escalation_id),
        }
        for each in newest
    ]


def _said(act: Ballot | Ruling) -> dict[str, Any]:
    """The fields that a ballot and a ruling share, with the reason cut for a page."""
    names = ("seat", "confidence", "risk_level")
    return {**{name: getattr(act, name) for name in names}, "reason": _cut(reason_of(act), REASON_CHARS_MAX)}


@lru_cache(
    maxsize=WAITING_MAX
)  # a status is asked for twice a second, and large arguments take 10 ms to read
def _asked_for(proposal: bytes) -> dict[str, Any]:
    """The action, its arguments as JSON on one line, who asks, and the text, from a proposal's canonical bytes."""
    envelope = codec.decode(proposal, canonical=True) if proposal else None
    content = None if envelope is None else envelope.content
    action = content.action if isinstance(content, Asked) else None
    requester = content.requester if isinstance(content, Asked) else None
    said = None
    if action is not None:
        args = clean(args_text(action)[: ARGS_CHARS_MAX + 1])  # with its spaces as they are
        said = {
            "tool": line(tool_text(action)),
            "args": _cut(args, ARGS_CHARS_MAX),
            **_arguments(action.args),
        }
    body = content.body if isinstance(content, Asked) else ""
    if envelope is not None and (more := len(body) - BODY_CHARS_MAX) > 0:
        body = f"{body[:BODY_CHARS_MAX]}\n… {more:,} characters more: council show {envelope.msg_id}"
    return {
        "action": said,
        "requester": None if requester is None else line(str(requester), 1_200),
        "body": body,
    }


def _arguments(args: Mapping[str, Any]) -> dict[str, Any]:
    """Each argument's name and value as texts, the short ones first, so that no long one hides them.

    Together they have at most ``ARGS_CHARS_MAX`` characters. ``arguments_cut`` says how many are cut or left out.
    """
    texts = sorted((argument_texts(*each) for each in args.items()), key=lambda each: sum(map(len, each)))
    shown, left = list[tuple[str, str]](), ARGS_CHARS_MAX
    for name, value in texts:
        if len(name) + len(value) > left:
            if len(name) < left:
                shown.append((name, _cut(value, left - len(name))))
            return {"arguments": shown, "arguments_cut": len(texts) - len(shown) + (len(name) < left)}
        shown.append((name, value))
        left -= len(name) + len(value)
    return {"arguments": shown, "arguments_cut": 0}


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _newest(driver: Driver) -> list[tuple[float, Decision]]:
    """The newest announced decisions with their Unix times, newest first."""
    found = [
        (wall_s, effect.decision)
        for wall_s, effect in driver.announcements.feed.newest(LOOKED_AT_MAX)
        if isinstance(effect, do.AnnounceDecision)
    ]
    return found[: -DECISIONS_MAX - 1 : -1]


def _decision(wall_s: float, decision: Decision) -> dict[str, Any]:
    names = ("proposal_id", "summary", "outcome", "reason", "degraded", "seconds")
    return {
        **{name: getattr(decision, name) for name in names},
        "at": wall_s,
        "decided_by": decided_by(decision),
    }


def _identity(state: CouncilState, uptime_s: float, change: IdentityChange | None) -> dict[str, Any]:
    """The identity, its changes, and how long Prime and Lite have been online (rules 7.1, 7.2)."""
    return {
        "hash": state.rules.identity.hash,
        "text": state.rules.identity.text,
        "change": None if change is None else plain(change),
        "earlier": list(state.identity_past.earlier),
        "creator": state.rules.creator,
        "prime_online_s": online_s(state, state.rules.prime, uptime_s),
        "lite_online_s": online_s(state, LITE, uptime_s),
        "stability_score": None,  # nothing measures it yet
    }


def _budget(state: CouncilState) -> dict[str, Any]:
    """Costs of model calls over the council's life, reservations of calls under way, and caps (rules 2.6)."""
    budget, paid = state.rules.budget, state.paid
    own = dict(budget.seats)

    def totals(accounts: Collection[Account], caps: Caps) -> dict[str, Any]:
        return {
            "calls": sum(account.calls for account in accounts),
            "assumed": sum(account.assumed for account in accounts),
            "spent": plain(sum((account.spent for account in accounts), Spend())),
            "held": plain(sum((account.held for account in accounts), Spend())),
            "caps": plain(caps),
        }

    names = dict.fromkeys((*state.rules.seats, *paid))  # with former seats, which have spent too
    return {
        "council": totals(paid.values(), budget.council),
        "seats": {
            name: totals([paid[name]] if name in paid else [], own.get(name, budget.seat)) for name in names
        },
        "proposal_caps": plain(budget.proposal),
        "under_way": len(state.calls),
    }
