"""Random histories of councils of 1 to 15 seats, held against an independent reading of the rules.

Events come in any order, twice, too late and illegally; time stands still, runs, stops exactly at a
deadline, and the wall clock jumps. Every step is checked, and compared with the simulator's oracle.
"""

from __future__ import annotations

import contextlib
import math
import random
from typing import Any, get_args

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from council.core import effects as do
from council.core import events as ev
from council.core.escalation import HUMAN_REASONS
from council.core.state import (
    USE_OUTCOMES,
    Budget,
    Call,
    Caps,
    CouncilState,
    IdentityChange,
    KeptIdentity,
    Moment,
    Outcome,
    Overrun,
    Spend,
    Stage,
    new_council,
    plain,
)
from council.core.step import next_deadline, next_due, step
from council.protocol.errors import Refused, TooManyOpen
from tests.core.council_in_hand import (
    DAY_S,
    Hand,
    answer,
    ballot,
    proposal,
    report,
    ruling,
    terms,
    unreadable,
    use,
    use_result,
)
from tests.core.invariants import check
from tests.examples import tried
from tests.sim import compare
from tests.sim.oracle import Oracle
from tests.sim.truth import Said

BUDGETS_S = (5.0, 60.0, 200.0)
CAPS = {"proposal": 800, "seat": 1_500, "council": 4_000}
TIGHT = Budget(**{scope: Caps(tokens) for scope, tokens in CAPS.items()})
# What the council may make of a message, by the oracle's word for it.
ANSWERS = {
    "taken": {"taken"},
    "retry": {"taken"},
    "noted": {"refused", "ignored"},
    "ignored": {"ignored"},
    "refused": {"refused"},
    "free": {"taken", "ignored", "refused"},
}


class Watched(Hand):
    """A hand that holds every step against the simulator's oracle, an independent reading of the rules."""

    def __init__(self, seats: tuple[str, ...], **rules: Any) -> None:
        super().__init__(seats, **rules)
        given = self.rules
        self.oracle = Oracle(
            seats=seats,
            prime=given.prime,
            observer=given.observer,
            quorum=given.quorum,
            sole_seat=given.sole_seat,
            ttl_s=given.escalation_ttl_s,
            open_max=given.open_max,
            escalations_max=given.escalations_max,
            lateness_s=0.0,
            caps=CAPS if given.budget == TIGHT else dict.fromkeys(CAPS),
        )
        self.epoch = 0
        self.decided: set[str] = set()
        self.sent: list[ev.Event] = []
        self.launched = self.moment()
        self._step(ev.CoordinatorStarted("council", 1, self.rules))

    def _step(self, event: ev.Event) -> list[do.Effect]:
        now, oracle = self.moment(), self.oracle
        clock = now.uptime_s, now.wall_s
        if not isinstance(event, DUE):
            oracle.not_overslept(now.uptime_s)
        said = said_of(event)
        expected = oracle.heard(said, *clock) if said is not None else "free"
        try:
            effects = super()._step(event)
        except (Refused, TooManyOpen):
            assert "refused" in ANSWERS[expected], f"{event} was refused, expected {expected}"
            raise
        assert answer_of(effects) in ANSWERS[expected], f"{event} came to {effects}, expected {expected}"
        match event:
            case ev.CoordinatorStarted():
                assert event.epoch > self.epoch, "an older coordinator took over"
                self.epoch = event.epoch
                oracle.started(*clock)
            case ev.SeatDied():
                oracle.died(event.seat, event.boot, *clock)
            case ev.DeadlinePassed() | ev.SeatFellSilent() | ev.EscalationExpired():
                oracle.pass_time(*clock, most=1)
        self._compare(said, effects, now)
        return effects

    def _compare(self, said: Said | None, effects: list[do.Effect], now: Moment) -> None:
        oracle, state = self.oracle, self.state
        compare.state(oracle, state, now.uptime_s, all_of_it=True)
        handed = {(e.seat, e.proposal_id) for e in effects if isinstance(e, do.DeliverProposal)}
        assert handed >= oracle.to_hand, "a seat was not handed what is open"
        asked = {e.proposal_id for e in effects if isinstance(e, do.RequestRuling)}
        assert asked >= oracle.to_ask, "Prime was not asked to rule"
        halted = {(e.seat, e.proposal_id, e.round) for e in effects if isinstance(e, do.InterruptSeat)}
        assert halted == oracle.to_halt
        for demands in (oracle.to_hand, oracle.to_ask, oracle.to_halt):
            demands.clear()
        alarm = any(isinstance(e, do.RaiseAlert) and e.kind == "late_ballot" for e in effects)
        grave = False
        if said is not None and said.kind == "vote":
            case = oracle.cases.get(said.pid)
            late = case is not None and case.late.get(said.sender) is said
            grave = late and (said.grave or said.facts["gate"])
        assert alarm == grave, f"an alarm on a late ballot: {alarm}, expected {grave}"
        for effect in effects:
            if isinstance(effect, do.AnnounceDecision):
                decision = effect.decision
                assert decision.proposal_id not in self.decided, "it was decided twice"
                self.decided.add(decision.proposal_id)
                assert decision == self.closed(decision.proposal_id)
                assert decision.position == now.position

    def send(self, event: ev.Event) -> None:
        """Feeds an event that may be illegal; an illegal one must leave everything as it was."""
        self.drain()
        self.sent.append(event)
        before = snapshot(self.state)
        with contextlib.suppress(Refused, TooManyOpen):
            self._step(event)
            return
        assert self.state == before, f"{event} was refused and changed the state"


# What time brings, and the start that may find it undone
DUE = (
    ev.DeadlinePassed,
    ev.SeatFellSilent,
    ev.EscalationExpired,
    ev.UseTimedOut,
    ev.CoordinatorStarted,
)


def answer_of(effects: list[do.Effect]) -> str:
    """What the council made of a message that it did not refuse."""
    return "ignored" if any(isinstance(e, do.NoteIgnored) for e in effects) else "taken"


def said_of(event: ev.Event) -> Said | None:  # noqa: C901 - one case for each kind of event
    """The message that brings an event, as the oracle is told of it; None if no message does."""

    def said(kind: str, sender: str, pid: str, sealed: str = "", **facts: Any) -> Said:
        return Said(kind, sender, pid, sealed.encode(), "", facts)

    match event:
        case ev.ProposalSubmitted(w):
            facts = {"budget": w.time_budget_s, "wait_for": w.wait_for, "supersedes": w.supersedes}
            return said(
                "proposal",
                w.proposer,
                w.proposal_id,
                w.digest,
                confidence=w.confidence,
                risk=w.risk_level,
                **facts,
            )
        case ev.BallotCast(b):
            facts = {"vote": b.vote, "confidence": b.confidence, "risk": b.risk_level, "gate": b.asks_human}
            return said("vote", b.seat, b.proposal_id, b.digest, msg_id=b.msg_id, **facts)
        case ev.BallotUnreadable():
            return said("unreadable", event.seat, event.proposal_id, event.digest)
        case ev.WorkFailed():
            return said("fault", event.seat, event.proposal_id, task=event.task)
        case ev.StreamObserved(pid, observer, stream, interrupt):
            facts = {"stream": stream, "interrupt": interrupt, "round": event.round, "whole": event.whole}
            return said("observation", observer, pid, event.msg_id, **facts)
        case ev.EscalationRaised():
            return said("escalation", event.seat, event.proposal_id, event.msg_id)
        case ev.RulingGiven(r):
            facts = {"word": r.ruling, "confidence": r.confidence, "msg_id": r.msg_id}
            return said("ruling", r.seat, r.proposal_id, r.digest, **facts)
        case ev.HumanAnswered(a):
            if isinstance(a.use, int):  # about a token, of which the oracle knows nothing
                return None
            return said("answer", a.human, a.proposal_id, a.digest, approve=a.approve, msg_id=a.msg_id)
        case ev.ProposalCancelled():
            return said("cancel", event.sender, event.proposal_id, by_human=event.by_human)
        case ev.ActionReported(r):
            return said("report", r.sender, r.proposal_id, r.digest, stage=r.stage, ok=r.ok)
        case ev.SeatBeat():
            return said("beat", event.seat, "", run=event.boot, number=event.beat)
        case ev.CallReserved(c):
            facts = {"msg_id": c.call_id, "tokens": c.worst.tokens, "task": c.task}
            return said("reservation", c.seat, c.proposal_id, **facts)
        case ev.CallSettled():
            tokens = None if event.used is None else event.used.tokens
            return said("settlement", event.seat, event.proposal_id, call=event.call_id, tokens=tokens)
    return None


def snapshot(state: CouncilState) -> CouncilState:
    """The state as it is, whatever is done to its maps; what they hold is frozen (Hand.refused copies deep)."""
    return replace(
        state,
        seats=dict(state.seats),
        open=dict(state.open),
        closed=dict(state.closed),
        timers=list(state.timers),
        wall_timers=list(state.wall_timers),
        calls=dict(state.calls),
        governance=replace(
            state.governance,
            tokens=dict(state.governance.tokens),
            under_way=dict(state.governance.under_way),
            asked=dict(state.governance.asked),
        ),
        paid=dict(state.paid),
    )


# What can be done to a council, and how long it waits before

KINDS = (
    *["submit"] * 4,
    *["vote"] * 30,
    *["ruling"] * 3,
    *["answer"] * 2,
    *["beat", "beats"] * 2,
    "old beat",
    "died",
    "unreadable",
    "failed",
    *["observed"] * 3,
    *["call", "settle"] * 2,
    *["unpaid"] * 4,
    "raised",
    *["report"] * 3,
    *["use"] * 3,
    *["result", "revoke"],
    "executor",
    "cancel",
    "again",
    "again",
    "due",
    "refused envelope",
    "started",
)
WAITS = (*["none"] * 12, "little", "to the deadline", "past the deadline", "30 s", "91 s", "wall +", "wall -")
# One of them: (kind, seat, proposal, variant, how long to wait before)
Op = tuple[str, int, int, int, str]
# A new proposal comes up every so many events, so that most events meet one that is open.
EVENTS_PER_PROPOSAL = 16


def history(seed: int, length: int) -> list[Op]:
    """The first ``length`` events of the history number ``seed``; hypothesis shortens it, and keeps the seed.

    Drawn from one seed and not event by event: hypothesis would draw mostly short histories, in which
    nothing is ever decided.
    """
    rng = random.Random(seed)
    hurry = rng.choice((0.05, 0.2, 0.6))  # how often time passes at all
    ops: list[Op] = []
    for i in range(length):
        fresh, step_in = divmod(i, EVENTS_PER_PROPOSAL)
        n = max(0, fresh - rng.choice((0, 0, 0, 0, 1, 1, 2)))
        kind = "submit" if step_in == 0 else rng.choice(KINDS)
        wait = rng.choice(WAITS) if rng.random() < hurry else "none"
        ops.append((kind, rng.randrange(15), fresh if step_in == 0 else n, rng.randrange(24), wait))
    return ops


def event_for(  # noqa: C901 - one case for each kind of event
    hand: Watched, kind: str, seat_no: int, n: int, variant: int
) -> ev.Event | None:
    seats = hand.rules.seats
    seat, other = seats[seat_no % len(seats)], seats[(seat_no + variant) % len(seats)]
    pid = f"p{n}"
    confidence = {7: 0.29, 8: float("nan"), 9: 0.3}.get(variant, 0.9)
    risk: Any = {10: "high", 11: "med"}.get(variant, "low")
    match kind:
        case "submit":
            return ev.ProposalSubmitted(
                proposal(
                    pid,
                    time_budget_s=BUDGETS_S[seat_no % 3],
                    wait_for="all" if variant % 3 == 0 else "decisive",
                    confidence=confidence,
                    risk_level=risk,
                    supersedes=f"p{n - 1}" if variant == 5 else None,
                    tool="write" if variant % 2 else None,
                    **({"terms": terms(uses=1 + variant % 2, ttl_s=45.0)} if variant % 4 else {}),
                )
            )
        case "vote":
            vote = ("yes", "no", "abstain", "yes", "no", "yes", "no")[variant % 7]
            asks = variant == 6 and seat_no % 3 == 0
            cast = ballot(
                seat,
                vote,
                pid,
                confidence=confidence,
                risk_level=risk,
                asks_human=asks,
                msg_id=f"v{len(hand.sent)}",
            )
            return ev.BallotCast(replace(cast, seat="mallory") if (seat_no, variant) == (14, 11) else cast)
        case "ruling":
            word = ("confirm", "confirm", "reject", "human")[variant % 4]
            seat = hand.rules.prime if seat_no else other
            return ev.RulingGiven(ruling(word, pid, seat=seat, confidence=confidence))
        case "answer":
            human: dict[str, Any] = {"human": ("ada", "bob")[seat_no % 2]}
            if pid in hand.state.governance.tokens:
                human["use"] = 1 + variant % 3
            return ev.HumanAnswered(answer(variant % 2 == 0, pid, **human))
        case "beats":
            return None
        case "beat":
            hand.beats[seat] += 1
            return ev.SeatBeat(seat, hand.state.seats[seat].boot, hand.beats[seat])
        case "old beat":
            return ev.SeatBeat(seat, hand.state.seats[seat].boot + variant % 3 - 1, variant)
        case "died":
            run = hand.state.seats[seat].boot + (-1, 0, 0, 0, 0, 1)[variant % 6]
            return ev.SeatDied(seat, run, "killed")
        case "unreadable":
            return unreadable(seat, f"prose {variant % 3}", pid)
        case "failed":
            task = ("ruling", "ballot", "ballot", "observation")[variant % 4]
            return ev.WorkFailed(pid, seat, task, "nonsense")
        case "observed":
            said = f"o{len(hand.sent)}"
            observer = seat if variant % 7 == 0 else hand.rules.observer or seat
            stream = other if other != observer else seat
            number, whole = variant % 3, variant % 5 != 0
            return ev.StreamObserved(
                pid, observer, stream, variant % 4 != 0, "seen", said, "plan", number, whole
            )
        case "call":
            worst = Spend((5, 50, 400)[variant % 3], variant)
            task = "observe" if variant % 3 == 0 else "ballot"
            cut = (Overrun(pid, "history", 9, 20, 8, "local tf-idf"),) if variant % 4 == 0 else ()
            return ev.CallReserved(Call(f"c{len(hand.sent)}", pid, seat, task, "model", worst), cut)
        case "unpaid":  # a seat asks for what no cap has room for, and then gives up its ballot
            open_ = hand.state.open.get(pid)
            if open_ is not None:
                seat = next((name for name in seats if name not in open_.done()), seat)
            if open_ is not None and f"{seat} denial" in open_.acts:
                return ev.WorkFailed(pid, seat, "ballot", "denied")
            return ev.CallReserved(Call(f"c{len(hand.sent)}", pid, seat, "ballot", "model", Spend(10_000)))
        case "settle":
            open_calls = [each.call for each in hand.state.calls.values()]
            call = (open_calls or [None])[variant % max(len(open_calls), 1)]
            used = None if variant % 5 == 0 else Spend(variant * 3, variant)
            if call is None:
                return ev.CallSettled(pid, seat, "none", used)
            return ev.CallSettled(call.proposal_id, seat if variant == 1 else call.seat, call.call_id, used)
        case "raised":
            return ev.EscalationRaised(pid, seat, f"because {variant}", f"e{len(hand.sent)}")
        case "report":
            stage: Any = ("act", "verify", "revert")[variant % 3]
            ok, sender = variant % 4 != 0, "mallory" if variant == 23 else "client"
            return ev.ActionReported(report(stage, pid, sender=sender, ok=ok))
        case "use":
            asks = use(f"u{len(hand.sent)}", pid, run=f"r{variant % 5 == 0}")
            return ev.UseAsked(replace(asks, executor="mallory") if variant == 22 else asks)
        case "result":
            known = [(at, uid) for uid, (at, _) in hand.state.governance.under_way.items()]
            at, uid = known[variant % len(known)] if known else (pid, "none")
            return ev.UseReported(use_result(USE_OUTCOMES[variant % 4], uid, at))
        case "revoke":
            return ev.TokenRevoked(pid, "client" if variant % 3 else "ada", "", by_human=variant % 3 == 0)
        case "executor":
            return ev.ExecutorStarted("exec", f"r{variant}")
        case "cancel":
            sender = "client" if variant % 4 == 0 else "mallory"
            return ev.ProposalCancelled(pid, sender, "", by_human=variant % 5 == 0)
        case "again":
            return hand.sent[-1 - variant % len(hand.sent)] if hand.sent else None
        case "started":  # variant 0: one that was replaced wakes up
            rules = replace(hand.rules, creator=("", "ada", "eve")[variant % 3])
            return ev.CoordinatorStarted("council", hand.state.epoch + (variant % 6 > 0), rules)
        case "due":
            return (ev.DeadlinePassed(pid), ev.SeatFellSilent(seat), ev.EscalationExpired(pid))[variant % 3]
        case _ if variant % 4 == 0:  # of an identity that it never had, too
            after = KeptIdentity(f"hash {variant}", "{}")
            return ev.IdentityChanged(IdentityChange("" if variant % 8 else "other", after, "ada", "better"))
        case _:
            return ev.EnvelopeRefused("mallory", "0f", "forged", "wrong signature")


def let_time_pass(hand: Watched, how: str) -> None:
    hand.drain()
    deadlines = next_deadline(hand.state)
    if how == "to the deadline" and deadlines.uptime_s is not None:
        hand.move_to(max(hand.t, math.nextafter(deadlines.uptime_s, -math.inf)))
        if deadlines.wall_s is None or hand.wall < deadlines.wall_s:
            assert next_due(hand.state, hand.moment()) is None, "something was due before next_deadline"
    elif how == "past the deadline" and deadlines.uptime_s is not None:
        hand.move_to(deadlines.uptime_s)
        assert next_due(hand.state, hand.moment()) is not None, "next_deadline woke us for nothing"
    elif how == "wall +":
        hand.wall += DAY_S if deadlines.wall_s is None else deadlines.wall_s - hand.wall
        if deadlines.wall_s is not None:
            hand.wall = deadlines.wall_s
            assert next_due(hand.state, hand.moment()) is not None, "the wall deadline woke us for nothing"
    elif how == "wall -":
        hand.wall -= DAY_S / 2
    else:
        hand.move_to(hand.t + {"little": 0.5, "30 s": 30.0, "91 s": 91.0}.get(how, 0.0))
    hand.drain()


def live(hand: Watched, ops: list[Op]) -> None:
    for kind, seat_no, n, variant, wait in ops:
        let_time_pass(hand, wait)
        if kind == "beats":
            for name in hand.rules.seats:
                hand.beats[name] += 1
                hand.send(ev.SeatBeat(name, hand.state.seats[name].boot, hand.beats[name]))
            continue
        happened = event_for(hand, kind, seat_no, n, variant)
        if happened is not None:
            hand.send(happened)


@st.composite
def councils(draw: st.DrawFn) -> Watched:
    size = draw(st.one_of(st.sampled_from((3, 2, 4, 1, 5)), st.integers(1, 15)))
    names = tuple(f"s{i}" for i in range(size))
    return Watched(
        names,
        prime=draw(st.sampled_from(names)),
        quorum=draw(st.sampled_from((2, 2, 2, 3) if size >= 3 else (2,))),
        sole_seat=draw(st.sampled_from(("never", "allow-low-risk"))),
        open_max=draw(st.sampled_from((2, 2_000))),
        escalations_max=draw(st.sampled_from((1, 10_000))),
        start_s=draw(st.sampled_from((0.0, 12_345.678))),
        budget=draw(st.sampled_from((Budget(), TIGHT))),
        observer=draw(st.sampled_from((*names, ""))),
    )


HISTORIES = st.builds(history, st.integers(0, 2**32), st.sampled_from((150, 60, 20, 5)))
SETTINGS = settings(
    max_examples=tried(400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@SETTINGS
@given(councils(), HISTORIES)
def test_any_history_obeys_the_rules(hand: Watched, ops: list[Op]) -> None:
    """Every step is checked and compared by Watched; then time passes, and nothing stays open for ever."""
    live(hand, ops)
    for what in endings(hand):
        event(what)
    _let_all_time_pass(hand)


def endings(hand: Watched) -> set[str]:
    """What a history came to, in words."""
    found_ = {f"now: {case.stage}" for case in hand.state.open.values()}
    for _, _, effects in hand.journal:
        found_ |= {f"effect: {type(effect).__name__}" for effect in effects}
        for effect in effects:
            if isinstance(effect, do.AnnounceEscalation):
                found_.add(f"human: {effect.escalation.reason}")
            if isinstance(effect, do.AnnounceDecision):
                decision = effect.decision
                found_.add(f"decided: {decision.outcome}")
                marks = {
                    "early": decision.early,
                    "degraded": decision.degraded,
                    "tie broken": decision.tie_break is not None,
                    "ruled": decision.ruling is not None,
                    "answered": decision.answer is not None,
                    "alone": decision.answer is None
                    and decision.outcome in ("approved", "rejected")
                    and decision.tally.cast < decision.quorum,
                }
                found_ |= {f"{mark}: {decision.outcome}" for mark, holds in marks.items() if holds}
    return found_


def test_the_histories_come_to_every_ending() -> None:
    """Were the generator to dry up, the properties below would hold of nothing; this says so."""
    ours = (kind for kind in do.Effect.__subclasses__() if kind.__module__ == do.__name__)
    expected = {f"effect: {kind.__name__}" for kind in ours}
    expected |= {f"human: {reason}" for reason in HUMAN_REASONS}
    expected |= {f"now: {stage}" for stage in get_args(Stage)}
    expected |= {f"decided: {outcome}" for outcome in get_args(Outcome)}
    for mark in ("early", "degraded", "tie broken", "ruled", "answered", "alone"):
        expected |= {f"{mark}: approved", f"{mark}: rejected"}
    # The oracle does not model checks; test_checks.py tests them.
    expected -= {"effect: AskCheck", "human: check_failed", "now: checking"}
    seen: set[str] = set()
    for seed in range(120):
        if expected <= seen:
            break
        rng = random.Random(seed)
        names = tuple(f"s{i}" for i in range(rng.choice((1, 2, 3, 3, 4, 5, 9))))
        sole: Any = rng.choice(("never", "allow-low-risk"))
        watches = rng.choice(names)
        hand = Watched(names, prime=rng.choice(names), sole_seat=sole, budget=TIGHT, observer=watches)
        live(hand, history(seed, 150))
        seen |= endings(hand)
    assert expected - seen == set()


def _let_all_time_pass(hand: Watched) -> None:
    """First until only humans are waited for, then without them: by uptime alone, or by wall time alone."""
    for _ in range(500):
        hand.drain()
        only_humans = all(case.stage == "human" for case in hand.state.open.values())
        if only_humans and not hand.state.governance.under_way:
            break
        _wake_at_uptime(hand)
    by_uptime = hand.position % 2 == 0
    for _ in range(500):
        hand.drain()
        deadlines = next_deadline(hand.state)
        if not hand.state.open and not hand.state.governance.asked:
            break
        if by_uptime and hand.state.open:
            _wake_at_uptime(hand)
        else:
            assert deadlines.wall_s is not None
            hand.wall = deadlines.wall_s
            assert next_due(hand.state, hand.moment()) is not None
    assert hand.state.open == {}
    assert hand.state.with_human == 0
    assert next_deadline(hand.state).wall_s is None
    for _ in hand.rules.seats:  # what is left are seats that may fall silent
        if next_deadline(hand.state).uptime_s is None:
            break
        _wake_at_uptime(hand)
        hand.drain()
    assert next_deadline(hand.state).uptime_s is None


def _wake_at_uptime(hand: Watched) -> None:
    """At the next deadline of uptime, with a wall clock that stands still."""
    uptime_s = next_deadline(hand.state).uptime_s
    assert uptime_s is not None
    hand.t = uptime_s
    assert next_due(hand.state, hand.moment()) is not None


@SETTINGS
@given(councils(), HISTORIES)
def test_replaying_what_a_journal_keeps_gives_the_same(hand: Watched, ops: list[Op]) -> None:
    """The journal keeps every accepted event but heartbeats without effects (1.10)."""
    live(hand, ops)
    _replay_with_every_heartbeat(hand)
    for keeps_ignored in (True, False):  # a duplicate may be recorded or not: it changes nothing
        state = new_council(hand.rules, hand.launched)
        for happened, now, effects in hand.journal:
            if not _is_journaled(happened, effects) or (_is_ignored(effects) and not keeps_ignored):
                continue
            state, again = step(state, happened, now)
            check(state)
            assert _comparable(again) == _comparable(effects)
        assert _state(state) == _state(hand.state)


def _is_ignored(effects: list[do.Effect]) -> bool:
    return len(effects) == 1 and isinstance(effects[0], (do.NoteIgnored, do.AnswerAgain))


def _replay_with_every_heartbeat(hand: Watched) -> None:
    """Then nothing at all may differ: not a text, not an order; and time brings the same by itself."""
    state = new_council(hand.rules, hand.launched)
    for happened, now, effects in hand.journal:
        due = next_due(state, now)
        assert due is None or due == happened, "time brought something else"
        state, again = step(state, happened, now)
        assert repr(again) == repr(effects)
    assert repr(state.seats) == repr(hand.state.seats)
    assert repr(state.closed) == repr(hand.state.closed)
    assert repr(state.open) == repr(hand.state.open)


def _is_journaled(happened: ev.Event, effects: list[do.Effect]) -> bool:
    """Changes of the roll are journaled, heartbeats themselves are not (1.10); an old one changes nothing."""
    if not isinstance(happened, ev.SeatBeat):
        return True
    return any(isinstance(effect, do.AnnounceRoll) for effect in effects)


def _comparable(value: Any) -> Any:
    """As plain data, in which NaN equals itself."""
    return _told(plain(value))


def _told(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _told(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_told(item) for item in value]
    return repr(value) if isinstance(value, float) else value


def _state(state: CouncilState) -> Any:
    """All of a state but what heartbeats alone move, and timers of proposals that have moved on."""
    data = _comparable(state)
    for seat in data["seats"].values():
        del seat["last_beat_s"], seat["beat"]
    del data["uptime_s"]
    armed = {(p.deadline_s, pid) for pid, p in state.open.items()}
    data["timers"] = sorted(entry for entry in set(state.timers) if entry in armed)
    armed_wall = {(p.escalation.expires_wall_s, pid) for pid, p in state.open.items() if p.escalation}
    data["wall_timers"] = sorted(entry for entry in set(state.wall_timers) if entry in armed_wall)
    return data
