"""Holds the council's state and words against the oracle's. Reads the council; shares no code with its core."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from council.core.state import Closed
from tests.sim.oracle import SILENCE_S, Case, Oracle
from tests.sim.truth import Violation

PHASES = {"vote": "deliberating", "prime": "ruling", "human": "human"}


def hold(rule: str, right: bool, what: str) -> None:
    if not right:
        raise Violation(rule, what)


def state(oracle: Oracle, council: Any, t: float, *, all_of_it: bool = False) -> None:
    """The roll, and every proposal that has moved since the last comparison (or all)."""
    for name, seat in oracle.roll.items():
        theirs = council.seats[name]
        if seat.active != theirs.active:
            silent_s = t - seat.heard_s
            raise Violation(
                "1.10", f"{name} active: {theirs.active}; silent for {silent_s!r} s of {SILENCE_S}"
            )
        hold("1.10", seat.run == theirs.boot, f"{name} is in run {theirs.boot}, expected {seat.run}")
    hold("1.12", council.open.keys() == oracle.live.keys(), _difference(oracle, council))
    oracle.ledger.compare(council)
    pids = set(oracle.cases) if all_of_it else oracle.dirty | oracle.live.keys()
    for pid in pids:
        case = oracle.cases[pid]
        if case.phase != "over":
            _open(case, council.open[pid])
        else:
            decision(oracle, case, council.closed[pid].decision)
            oracle.ledger.tells(council.closed[pid].decision)
            _acted_on(case, council.closed[pid].reports)
    oracle.dirty.clear()


def _difference(oracle: Oracle, council: Any) -> str:
    words = []
    for pid in sorted(council.open.keys() ^ oracle.live.keys()):
        case = oracle.cases.get(pid)
        ours = "unknown" if case is None else f"{case.phase} {case.outcome}"
        theirs = council.closed[pid].decision if pid in council.closed else council.open.get(pid)
        shown = "unknown" if theirs is None else getattr(theirs, "outcome", None) or theirs.stage
        words.append(f"{pid} is {shown}, the rules say {ours}")
    return "; ".join(words)


def _open(case: Case, theirs: Any) -> None:
    pid = case.said.pid
    hold("1.5", theirs.stage == PHASES[case.phase], f"{pid} is {theirs.stage}, expected {PHASES[case.phase]}")
    _ballots(pid, case, theirs.ballots, theirs.late)
    hold("1.2", set(theirs.lost) == case.gone, f"{pid} lost {set(theirs.lost)}, expected {case.gone}")
    asked = set(theirs.asked)
    hold("1.10", asked == case.given, f"{pid} was given to {asked}, expected {case.given}")
    again = set(theirs.asked_again)
    hold("1.2", again == case.again, f"{pid}: asked once more were {again}, expected {case.again}")
    hold("1.8", bool(theirs.escalated_for) == case.grave, f"{pid} is escalated: {theirs.escalated_for}")
    hold("1.7", theirs.deadline_s == case.until_s, f"{pid} ends at {theirs.deadline_s}, not {case.until_s}")
    if case.phase == "human":
        expiry = theirs.escalation.expires_wall_s
        hold("1.9", expiry == case.expires_wall_s, f"{pid} expires at {expiry}, not {case.expires_wall_s}")
        why, standing = theirs.escalation.reason, theirs.standing
        hold("1.9", why == case.for_human, f"{pid} is with a human for {why}, expected {case.for_human}")
        stands = standing.standing, standing.final
        hold("1.9", stands == ("escalated", False), f"{pid} stands as {stands}")
        _absent(case, standing)


def _ballots(pid: str, case: Case, counted: Any, late: Any) -> None:
    ours = [(b.sender, b.msg_id, b.facts["vote"]) for b in case.cast.values()]
    theirs = [(b.seat, b.msg_id, b.vote) for b in counted]
    hold("1.3", sorted(ours) == sorted(theirs), f"{pid} counts {theirs}, delivered were {ours}")
    ours = [(b.sender, b.msg_id, b.facts["vote"]) for b in case.late.values()]
    theirs = [(b.seat, b.msg_id, b.vote) for b in late]
    hold("1.7", sorted(ours) == sorted(theirs), f"{pid} has late {theirs}, delivered were {ours}")


def decision(oracle: Oracle, case: Case, theirs: Any) -> None:
    """One decision, as the rules make it from what was delivered."""
    pid = case.said.pid
    _alone(oracle, case, theirs)
    hold(
        "1.4-1.9", theirs.outcome == case.outcome, f"{pid} is {theirs.outcome}, the rules say {case.outcome}"
    )
    _ballots(pid, case, theirs.ballots, theirs.late)
    _absent(case, theirs)
    ruling = theirs.ruling.msg_id if theirs.ruling else None
    hold(
        "1.8", ruling == (case.ruling.msg_id if case.ruling else None), f"{pid} stands on the ruling {ruling}"
    )
    answer = theirs.answer.msg_id if theirs.answer else None
    hold(
        "1.9", answer == (case.answer.msg_id if case.answer else None), f"{pid} stands on the answer {answer}"
    )
    if theirs.outcome == "cancelled":
        return
    hold("1.5", theirs.early == case.early, f"{pid} early: {theirs.early}")
    hold("1.6", (theirs.tie_break is not None) == case.tie_break, f"{pid} tie-break: {theirs.tie_break}")
    hold("1.9", bool(theirs.escalation_id) == bool(case.for_human), f"{pid}: {theirs.escalation_id}")


def _absent(case: Case, theirs: Any) -> None:
    """Who is missing, and whether that degrades the decision."""
    pid, found = case.said.pid, {name for name, _ in theirs.missing}
    hold("1.13", found == case.missing, f"{pid} names as missing {found}, expected {case.missing}")
    hold("1.7", theirs.degraded == case.degraded, f"{pid} degraded: {theirs.degraded}")


def _acted_on(case: Case, theirs: Any) -> None:
    """Each step of its action is told once; that changes nothing of the decision, which is compared as ever."""
    ours = [(stage, said.facts["ok"]) for stage, said in case.steps.items()]
    found = [(stage, ok) for stage, ok, _ in theirs]
    hold("3.1", found == ours, f"of {case.said.pid} was told {found}, expected {ours}")


def _alone(oracle: Oracle, case: Case, theirs: Any) -> None:
    """What must hold of any decision by itself, whatever the oracle made of the same facts."""
    pid = case.said.pid
    hold("1.9", theirs.final and theirs.standing == "decided", f"{pid} is closed but not final")
    for ballot in theirs.ballots + theirs.late:
        said = oracle.votes.get(ballot.msg_id)
        hold("1.14", said is not None, f"{pid}: nobody cast the ballot {ballot.msg_id} of {ballot.seat}")
        assert said is not None
        real = (said.sender, said.pid, said.facts["vote"], said.facts["confidence"], said.facts["risk"])
        counted = (ballot.seat, ballot.proposal_id, ballot.vote, ballot.confidence, ballot.risk_level)
        hold("1.14", real == counted, f"{pid} counts {counted}, cast was {real}")
        hold("1.3", ballot.seat in case.given, f"{pid} counts {ballot.seat}, which was never given it")
    votes = [ballot.vote for ballot in theirs.ballots]
    tally = (theirs.tally.yes, theirs.tally.no, theirs.tally.abstain)
    hold("1.13", tally == tuple(map(votes.count, ("yes", "no", "abstain"))), f"{pid} counts {tally}")
    if theirs.outcome not in ("approved", "rejected") or theirs.answer is not None:
        return
    grave = case.said.grave or any(b.risk_level == "high" or not b.confidence >= 0.3 for b in theirs.ballots)
    hold("1.8", theirs.ruling is not None or not grave, f"{pid} is {theirs.outcome} without Prime's ruling")
    gated = any(ballot.facts["gate"] for ballot in case.cast.values())
    hold("1.8", not gated, f"{pid} is {theirs.outcome} without the user whose approval a seat asked for")
    if theirs.tie_break is not None:
        own = [b.msg_id for b in theirs.ballots if b.seat == oracle.prime]
        hold(
            "1.6", own == [theirs.tie_break.ballot_msg_id], f"{pid}: the tie was broken by {theirs.tie_break}"
        )


def packet(record: Any, kept: Any) -> None:
    """What is read back from the disk is what happened, but for its effects, of which it has the outcome."""
    told = record.event, record.moment, record.sealed, record.msg_id, record.key_mark
    again = kept.record
    read = again.event, again.moment, again.sealed, again.msg_id, again.key_mark
    if told != read:
        raise Violation("4.6", f"record {record.position} was {told}, and is read as {read}")
    for name, found in (("decision", kept.decisions), ("escalation", kept.escalations)):
        made = [each for effect in record.effects if (each := getattr(effect, name, None)) is not None]
        if tuple(made) != found:
            raise Violation("4.6", f"record {record.position} came to {made}, its packet says {found}")


def live(driver: Any, shadow: Any, *, all_of_it: bool = False) -> None:
    """The council as it runs is what a replay of its journal comes to; heartbeats are in none (rules 1.10)."""
    same(_known(driver), _known(shadow), "the council that runs")
    if all_of_it:
        same(_ended(driver, shadow), _ended(shadow, shadow), "the council that ran")


def recovered(driver: Any, shadow: Any) -> None:
    """A council that has recovered, from a snapshot or not, is what a replay of the whole journal comes to."""
    same(_known(driver), _known(shadow), "a council that has recovered")
    same(_ended(driver, shadow), _ended(shadow, shadow), "a council that has recovered")
    at, expected = (each.announcements.feed.position for each in (driver, shadow))
    hold("4.6", at == expected, "its feed goes on at another number")
    for pid in driver.state.open:
        hold(
            "4.6", driver.outbox.payloads[pid] == shadow.outbox.payloads[pid], f"it has other bytes of {pid}"
        )


def kept_for_good(told: dict[str, Any], acknowledged: list[Any], closed: Any) -> None:
    """What anybody was ever told is in the journal at the end, whoever wrote it meanwhile (rules 4.7)."""
    for pid, said in told.items():
        hold("4.7", pid in closed and essence(closed[pid].decision) == said, f"{pid} was told as {said[:3]}")
    for said in acknowledged:
        decision = closed[said.pid].decision
        if said.kind == "cancel":
            right = decision.outcome == "cancelled"
        elif said.kind == "report":
            right = any(stage == said.facts["stage"] for stage, _, _ in closed[said.pid].reports)
        else:
            right = decision.answer is not None and decision.answer.msg_id == said.msg_id
        hold("4.7", right, f"the {said.kind} {said.label} was acknowledged; {said.pid} is {decision.outcome}")


def same(ours: dict[str, Any], theirs: dict[str, Any], who: str) -> None:
    for name, value in ours.items():
        if value != theirs[name]:
            raise Violation("4.6", f"{who}: {name} is {value}, a replay has {theirs[name]}")


def _known(driver: Any) -> dict[str, Any]:
    state = driver.state
    return {
        "position": driver.position,
        "roll": {name: (seat.active, seat.boot, seat.why) for name, seat in state.seats.items()},
        "rules": (state.rules, state.ruled_from, state.epoch, state.with_human),
        "open": state.open,
        "calls": (state.calls, state.paid),
        "governance": state.governance,
        "counts": driver.announcements.counts,
        "refused": driver.refused,
        "announced": driver.announcements.announced,
        "proposers": driver.senders.proposers,
        "flood": driver.announcements.refusals.now(),
    }


def _ended(driver: Any, shadow: Any) -> dict[str, Any]:
    closed = whole(driver, shadow.state.closed).closed
    return {"closed": closed, "ids": entries(driver._ids)}


def entries(used: Any) -> set[bytes]:
    """The ids that are used up, each with what it is used for; snapshots may hold one twice."""
    size, filled = used._index._size, used._index._buckets.values()
    return {bytes(each[at : at + size]) for each in filled for at in range(0, len(each), size)}


def whole(driver: Any, pids: Iterable[str]) -> Any:
    """The state of a council with those decided proposals that are on disk alone."""
    closed = dict(driver.archive)
    for away in filter(None, map(driver.archive.away, pids)):
        closed[away.proposal_id] = msgspec.msgpack.decode(driver.archive.fetch(away), type=Closed)
    return replace(driver.state, closed=closed)


def words(oracle: Oracle, told: Any, kept: Any, by: str) -> None:
    """What somebody is told is what the journal on disk makes of it, and what all others were told."""
    pid = told.proposal_id
    hold("4.7", kept is not None, f"{by} told {told.outcome or 'escalated'} on {pid} before it was kept")
    if kept.final and not told.final:
        return  # it was kept, told and overtaken by its end, all in one breath of the journal
    said = essence(told)
    if said != essence(kept):
        raise Violation("4.7", f"{by} told {said} on {pid}; the journal makes it {essence(kept)}")
    if told.final and (first := oracle.told.setdefault(pid, said)) != said:
        raise Violation("1.12", f"{by} told {said} on {pid}, others {first}")


def essence(decision: Any) -> tuple[Any, ...]:
    """What never changes about a decision once it is told; late ballots may still be added to it."""
    return (
        decision.standing,
        decision.outcome,
        decision.final,
        decision.tally,
        decision.ballots,
        decision.ruling,
        decision.answer,
        decision.tie_break,
        decision.early,
        decision.degraded,
        decision.missing,
        decision.escalated_for,
        decision.position,
    )
