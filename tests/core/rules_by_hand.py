"""An independent reading of rules.md section 1: recomputes every standing and decision, slowly and plainly.

Shares no code with council/core but the words of events and ballots. It is told the accepted events with
their moments and keeps its own roll, deadlines and counts; where the core and it disagree, one of them
misreads the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class View:
    """How one proposal stands: the fields of a decision that follow from the rules."""

    standing: str = "open"
    outcome: str | None = None
    early: bool = False
    degraded: bool = False
    missing: frozenset[str] = frozenset()
    tie_broken: bool = False
    escalated: bool = False
    for_human: str | None = None
    yes: int = 0
    no: int = 0
    abstain: int = 0
    late: tuple[str, ...] = ()


@dataclass
class OnRoll:
    last: float
    active: bool = True
    run: int = 0
    number: int = -1


@dataclass
class Case:
    what: Any
    until: float
    given: set[str]
    phase: str = "vote"  # then prime, human, over
    cast: list[Any] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    unpaid: set[str] = field(
        default_factory=set
    )  # for whose newest call no cap had room; those who watch tell of it
    again: dict[str, str] = field(default_factory=dict)
    grave: bool = False
    runs: dict[str, int] = field(default_factory=dict)
    acts: set[tuple[str, str]] = field(default_factory=set)
    unheard: frozenset[str] | None = None  # who had not voted when the vote ended, and
    unheard_degrades: bool = False
    alarms: list[str] = field(default_factory=list)
    ruling: Any = None
    steps: dict[str, Any] = field(default_factory=dict)  # of its action, as they were reported
    wall_until: float = 0.0
    view: View = field(default_factory=View)

    def has_cast(self, seat: str) -> bool:
        return any(vote.seat == seat for vote in self.cast)

    def heard(self, seat: str) -> bool:
        return self.has_cast(seat) or any(vote.seat == seat for vote in self.late)


def is_grave(part: Any) -> bool:
    """High risk, or a confidence that is not at least 0.3 (1.8)."""
    return part.risk_level == "high" or not part.confidence >= 0.3


class ByHand:
    def __init__(self, rules: Any, uptime_s: float) -> None:
        self.rules = rules
        self.roll = {name: OnRoll(uptime_s) for name in rules.seats}
        self.cases: dict[str, Case] = {}
        self.epoch = 0

    def active(self) -> set[str]:
        return {name for name, seat in self.roll.items() if seat.active}

    # One method for each kind of event, found by its name

    def feed(self, event: Any, now: Any) -> None:
        kind = type(event).__name__
        if kind not in ("DeadlinePassed", "SeatFellSilent", "EscalationExpired", "CoordinatorStarted"):
            self._nothing_was_missed(now)
        getattr(self, f"_{kind}")(event, now)

    def _nothing_was_missed(self, now: Any) -> None:
        for name, seat in self.roll.items():
            if seat.active:
                assert now.uptime_s - seat.last <= self.rules.inactivity_limit_s + 1e-9, (
                    f"{name} should be silent"
                )
        for proposal_id, case in self.cases.items():
            if case.phase != "over":
                assert now.uptime_s <= case.until, f"the deadline of {proposal_id} was missed"
            if case.phase == "human":
                assert now.wall_s <= case.wall_until, f"the expiry of {proposal_id} was missed"

    def _ProposalSubmitted(self, event: Any, now: Any) -> None:
        what = event.what
        if what.proposal_id in self.cases:
            return
        old = self.cases.get(what.supersedes)
        if old is not None and old.phase != "over":
            self._decide(old, "cancelled")
        case = Case(what, now.uptime_s + what.time_budget_s, self.active(), grave=is_grave(what))
        case.view.escalated = case.grave
        self.cases[what.proposal_id] = case

    def _BallotCast(self, event: Any, now: Any) -> None:
        vote = event.ballot
        case = self.cases[vote.proposal_id]
        assert vote.seat in case.given, "a seat voted on what it was not given"
        if case.heard(vote.seat):
            return
        if case.phase != "vote":
            case.late.append(vote)
            case.view.late = tuple(late.seat for late in case.late)
            if is_grave(vote) or vote.asks_human:
                case.alarms.append(vote.seat)
            return
        case.cast.append(vote)
        case.gone.discard(vote.seat)
        case.grave = case.grave or is_grave(vote)
        self._settle(case, now)

    def _BallotUnreadable(self, event: Any, now: Any) -> None:
        case = self.cases[event.proposal_id]
        assert case.phase != "over"
        assert event.seat in case.given, "a seat sent garbage on what it was not given"
        if case.again.get(event.seat) == event.digest:
            return  # the same bytes again
        assert not case.heard(event.seat), "a seat that had voted was heard again"
        if case.phase == "vote" and event.seat not in case.again:
            case.again[event.seat] = event.digest
        else:
            self._lose(case, event.seat, now)

    def _WorkFailed(self, event: Any, now: Any) -> None:
        case = self.cases[event.proposal_id]
        if case.phase == "over":
            return
        if event.task == "ruling":
            assert case.phase == "prime"
            self._to_human(case, "no_ruling", now)
        elif event.task == "observation":
            assert event.seat in case.given, "a seat failed to observe what it was not given"
        else:
            self._lose(case, event.seat, now)

    def _lose(self, case: Case, seat: str, now: Any) -> None:
        """Only while ballots are counted can one be lost."""
        assert seat in case.given, "a seat failed at what it was not given"
        if case.phase == "vote" and not case.has_cast(seat):
            case.gone.add(seat)
            self._settle(case, now)

    def _StreamObserved(self, event: Any, now: Any) -> None:
        case = self.cases[event.proposal_id]
        assert event.observer == self.rules.observer, "a seat observed that does not"
        if case.phase == "over":
            return
        assert {event.observer, event.stream} <= case.given, "who was not given it observed, or was observed"
        if (event.observer, event.msg_id) in case.acts:
            return
        case.acts.add((event.observer, event.msg_id))
        run, last = case.runs.get(event.stream, (0, 0))
        if event.interrupt:  # a round is halted once
            run, last = run + (event.round == 0 or event.round != last), max(last, event.round)
        elif event.whole and not 0 < event.round <= last:
            run = 0
        case.runs[event.stream] = run, last
        if case.phase == "vote" and run >= 3:
            case.grave = case.view.escalated = True
            self._settle(case, now)

    def _EscalationRaised(self, event: Any, now: Any) -> None:
        case = self.cases[event.proposal_id]
        if case.phase == "vote" and (event.seat, event.msg_id) not in case.acts:
            case.acts.add((event.seat, event.msg_id))
            case.grave = case.view.escalated = True
            self._settle(case, now)

    def _RulingGiven(self, event: Any, now: Any) -> None:
        ruling = event.ruling
        case = self.cases[ruling.proposal_id]
        if case.ruling is not None:
            assert case.ruling.digest == ruling.digest
            return
        assert case.phase == "prime"
        case.ruling = ruling
        if not ruling.confidence >= 0.3:
            self._to_human(case, "ruling_unsure", now)
        elif ruling.ruling == "human":
            self._to_human(case, "prime_asks", now)
        elif ruling.ruling == "reject":
            self._decide(case, "rejected")
        else:
            self._count(case, now)

    def _HumanAnswered(self, event: Any, now: Any) -> None:
        case = self.cases[event.answer.proposal_id]
        if case.phase == "over":
            return
        assert case.phase == "human"
        self._decide(case, "approved" if event.answer.approve else "rejected")

    def _ProposalCancelled(self, event: Any, now: Any) -> None:
        case = self.cases[event.proposal_id]
        assert event.sender == case.what.proposer
        if case.view.outcome != "cancelled":
            self._decide(case, "cancelled")

    def _ActionReported(self, event: Any, now: Any) -> None:
        """Of what was approved alone, by its proposer, each step once and in order; it decides nothing (3.1)."""
        report = event.report
        case = self.cases[report.proposal_id]
        assert case.view.outcome == "approved", "an action was reported that nobody had approved"
        assert report.sender == case.what.proposer, "another than its proposer reported an action"
        first = case.steps.setdefault(report.stage, report.digest)
        assert first == report.digest, "one step was reported twice"
        assert list(case.steps) == [each for each in ("act", "verify", "revert") if each in case.steps]
        assert "act" in case.steps

    def _SeatBeat(self, event: Any, now: Any) -> None:
        seat = self.roll[event.seat]
        if event.boot != seat.run or event.beat <= seat.number:
            return
        seat.last, seat.number = now.uptime_s, event.beat
        if not seat.active:
            seat.active = True
            for case in self.cases.values():
                if case.phase == "vote" and not case.has_cast(event.seat):
                    case.given.add(event.seat)
                self._settle(case, now)

    def _SeatDied(self, event: Any, now: Any) -> None:
        seat = self.roll[event.seat]
        if event.boot == seat.run:  # else a run that is over already, told of once more
            seat.run, seat.number = seat.run + 1, -1
            self._drop(event.seat, now)

    def _SeatFellSilent(self, event: Any, now: Any) -> None:
        seat = self.roll[event.seat]
        assert seat.active
        assert now.uptime_s - seat.last > self.rules.inactivity_limit_s - 1e-9, f"{event.seat} beat in time"
        self._drop(event.seat, now)

    def _drop(self, name: str, now: Any) -> None:
        self.roll[name].active = False
        for case in self.cases.values():
            self._settle(case, now)

    def _DeadlinePassed(self, event: Any, now: Any) -> None:
        case = self.cases[event.proposal_id]
        assert now.uptime_s > case.until, "a deadline passed too soon"
        if case.phase == "prime":
            self._to_human(case, "no_ruling", now)
        else:
            self._settle(case, now, expired=True)
            assert case.phase != "vote", "voting went on after the deadline"

    def _EscalationExpired(self, event: Any, now: Any) -> None:
        case = self.cases[event.proposal_id]
        assert case.phase == "human"
        over = now.wall_s > case.wall_until or now.uptime_s > case.until
        assert over, "an escalation expired too soon"
        self._decide(case, "deferred")

    def _CoordinatorStarted(self, event: Any, now: Any) -> None:
        """Nobody was silent while there was no coordinator, and nothing that was sent is sure to have arrived."""
        assert event.epoch > self.epoch, "an older coordinator took over"
        again, self.epoch, self.rules = self.epoch > 0, event.epoch, event.rules
        runs = {name: seat.run + again for name, seat in self.roll.items()}
        self.roll = {name: OnRoll(now.uptime_s, run=runs.get(name, 0)) for name in self.rules.seats}
        for case in self.cases.values() if again else ():
            if case.phase == "vote":
                case.given |= {
                    name for name in self.roll if not case.has_cast(name) and name not in case.gone
                }
            self._settle(case, now)

    def _EnvelopeRefused(self, event: Any, now: Any) -> None:
        pass

    def _IdentityChanged(self, event: Any, now: Any) -> None:
        """Of the identity that is in force alone; it is of no weight for any proposal (7.2)."""
        assert event.change.before == self.rules.identity.hash

    def _CallReserved(self, event: Any, now: Any) -> None:
        """Money decides nothing but what a denial does; what is spent is held to the rules in test_budget."""

    _CallSettled = _CallReserved

    # What follows

    def _settle(self, case: Case, now: Any, expired: bool = False) -> None:
        if case.phase != "vote":
            return
        case.view.escalated = case.grave
        active = self.active()
        voters = {vote.seat for vote in case.cast}
        votes = [vote.vote for vote in case.cast]
        approval = any(vote.asks_human for vote in case.cast)
        waiting = {name for name in active if name not in voters and name not in case.gone}
        quorum = len(voters) >= self.rules.quorum
        biggest = max(votes.count("yes"), votes.count("no"))
        decisive = case.what.wait_for == "decisive" and not case.grave and not approval
        if quorum and decisive and biggest > len(active | voters) / 2:
            self._count(case, now, early=bool(waiting) and not expired, ended=expired)
        elif waiting and not expired:
            return
        elif quorum and approval:
            self._to_human(case, "user_approval", now)
        elif quorum and case.grave:
            self._vote_ends(case, ended=True)
            case.phase, case.until = "prime", now.uptime_s + case.what.time_budget_s
        elif quorum or self._alone(case, active):
            self._count(case, now, ended=expired)
        elif (
            len(may := self.roll.keys() - case.gone | voters)
            < self.rules.quorum
            <= len(may | case.unpaid & case.gone)
        ):
            self._to_human(case, "budget_unmet", now)
        elif expired:
            self._to_human(case, "quorum_lost", now)

    def _alone(self, case: Case, active: set[str]) -> bool:
        """One active seat, low risk, nothing escalated, and a side taken (1.11)."""
        if self.rules.sole_seat != "allow-low-risk" or len(case.cast) != 1 or case.grave:
            return False
        vote = case.cast[0]
        low = case.what.risk_level == "low" and vote.risk_level == "low"
        return low and active == {vote.seat} and vote.vote != "abstain" and not vote.asks_human

    def _count(self, case: Case, now: Any, early: bool = False, ended: bool = False) -> None:
        votes = [vote.vote for vote in case.cast]
        difference = votes.count("yes") - votes.count("no")
        if difference == 0:
            prime = [vote.vote for vote in case.cast if vote.seat == self.rules.prime]
            if case.phase == "vote" and not prime and self.rules.prime not in case.gone and not ended:
                return  # Prime has until the deadline, active or not (1.6)
            difference = {"yes": 1, "no": -1}.get(prime[0], 0) if prime else 0
            if difference == 0:
                self._to_human(case, "tie", now)
                return
            case.view.tie_broken = True
        case.view.early = early
        self._decide(case, "approved" if difference > 0 else "rejected", ended)

    def _vote_ends(self, case: Case, ended: bool) -> None:
        """Who gave no ballot that counts, as of now; degraded if one could not be had (1.7, 1.11)."""
        if case.unheard is not None:
            return
        case.unheard = frozenset(name for name in self.rules.seats if not case.has_cast(name))
        case.unheard_degrades = any(
            ended or name in case.gone or not self.roll[name].active for name in case.unheard
        )

    def _tell(self, case: Case, ended: bool) -> None:
        self._vote_ends(case, ended)
        assert case.unheard is not None
        case.view.missing, case.view.degraded = case.unheard, case.unheard_degrades
        votes = [vote.vote for vote in case.cast]
        case.view.yes, case.view.no = votes.count("yes"), votes.count("no")
        case.view.abstain = votes.count("abstain")

    def _decide(self, case: Case, outcome: str, ended: bool = False) -> None:
        assert case.phase != "over", f"{case.what.proposal_id} is decided twice"
        self._tell(case, ended)
        if outcome == "cancelled":
            case.view.degraded = False
        elif len(case.cast) == 1 and case.phase == "vote":
            case.view.degraded = True  # what a sole seat decides (1.11)
        case.phase = "over"
        case.view.standing, case.view.outcome, case.view.for_human = "decided", outcome, None

    def _to_human(self, case: Case, reason: str, now: Any) -> None:
        self._tell(case, ended=True)
        case.phase = "human"
        case.wall_until = now.wall_s + self.rules.escalation_ttl_s
        # Wall time may cut a human's time short and never lengthen it (4.6).
        case.until = now.uptime_s + self.rules.escalation_ttl_s
        case.view.standing, case.view.for_human = "escalated", reason
