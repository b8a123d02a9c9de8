"""The checker: an own reading of rules.md section 1, on what was delivered when. Shares no code with the core.

It is told the truth: every envelope as it was really meant, at the moment the coordinator received it, and
every death that was reported to it. From that it keeps a roll, deadlines and counts of its own, and compares
them with the council after every turn. It measures time by the simulation's own clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tests.sim.ledger import Ledger
from tests.sim.truth import Said, Violation

SILENCE_S = 90.0
# Timers fire one representable number after what they wait for; this is far above that, far below a beat.
HAIR_S = 1e-6
INTERRUPTS = 3


@dataclass(slots=True)
class OnRoll:
    heard_s: float = 0.0
    active: bool = True
    run: int = 0
    number: int = -1


@dataclass(slots=True)
class Case:
    said: Said
    until_s: float
    heard_s: float
    given: set[str]
    phase: str = "vote"  # then prime, human, over
    cast: dict[str, Said] = field(default_factory=dict)
    late: dict[str, Said] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    unpaid: set[str] = field(default_factory=set)  # for whose newest call, but for looks, no cap had room
    again: set[str] = field(default_factory=set)
    grave: bool = False
    runs: dict[str, int] = field(default_factory=dict)
    stopped: dict[str, list[int]] = field(default_factory=dict)  # by stream, the rounds that were halted
    acts: set[bytes] = field(default_factory=set)
    ruling: Said | None = None
    answer: Said | None = None
    for_human: str = ""  # why it went to a human, if it did
    expires_wall_s: float = math.inf
    outcome: str = ""
    early: bool = False
    degraded: bool = False
    sole: bool = False
    tie_break: bool = False
    missing: frozenset[str] | None = None
    steps: dict[str, Said] = field(default_factory=dict)  # of its action, as its proposer told of them

    def count(self, word: str) -> int:
        return sum(ballot.facts["vote"] == word for ballot in self.cast.values())


class Oracle:
    def __init__(
        self,
        *,
        seats: tuple[str, ...],
        prime: str,
        observer: str,
        quorum: int,
        sole_seat: str,
        ttl_s: float,
        open_max: int,
        escalations_max: int,
        lateness_s: float,
        caps: dict[str, int | None],
    ) -> None:
        self.seats, self.prime, self.quorum, self.observer = seats, prime, quorum, observer
        self.sole_allowed = sole_seat == "allow-low-risk"
        self.ttl_s, self.open_max, self.escalations_max = ttl_s, open_max, escalations_max
        self.lateness_s = lateness_s
        self.ledger = Ledger(caps)
        self.roll = {name: OnRoll() for name in seats}
        self.cases: dict[str, Case] = {}
        self.live: dict[str, Case] = {}  # those that are not over
        self.begun = False
        self.dirty: set[str] = set()
        self.told: dict[str, tuple[Any, ...]] = {}
        self.votes: dict[str, Said] = {}  # every ballot that a seat really cast, by msg_id
        self.to_hand: set[tuple[str, str]] = set()  # proposals that a seat must be handed at once
        self.to_ask: set[str] = set()  # proposals on which Prime must be asked, once that is kept
        self.to_relay: set[str] = set()  # pieces of streams that the observer must be handed at once
        self.halts: set[tuple[str, str, int]] = (
            set()
        )  # by seat, proposal and round: what was called a halt to
        self.to_halt: set[tuple[str, str, int]] = (
            set()
        )  # of these, what its seat must be told once that is kept
        self.reached = set[str]()  # what the run came to, for a look at the simulator's own coverage

    def active(self) -> set[str]:
        return {name for name, seat in self.roll.items() if seat.active}

    # Time

    def not_overslept(self, t: float) -> None:
        """Nothing was due for longer than the shell's timers may be late."""
        for name, seat in self.roll.items():
            if seat.active and t > seat.heard_s + SILENCE_S + self.lateness_s + HAIR_S:
                raise Violation("1.10", f"{name} is active, though silent since {seat.heard_s:.3f} s")
        for pid, case in self.live.items():
            if t > case.until_s + self.lateness_s + HAIR_S:
                raise Violation("1.7", f"the deadline of {pid} passed at {case.until_s:.3f} s, unhandled")

    def pass_time(self, t: float, wall_s: float, most: float = math.inf) -> None:
        """What time has brought when the council is next awake, in the order in which it fell due.

        Each is a record of the journal; a crash may leave the first of them only, ``most`` then says how many.
        """
        while most > 0:
            most -= 1
            due = [(case.until_s, 0, pid) for pid, case in self.live.items() if t > case.until_s]
            due += [
                (seat.heard_s + SILENCE_S, 1, name)
                for name, seat in self.roll.items()
                if seat.active and t > seat.heard_s + SILENCE_S
            ]
            if not due:
                due = [
                    (case.expires_wall_s, 2, pid)
                    for pid, case in self.live.items()
                    if wall_s > case.expires_wall_s
                ]
            if not due:
                break
            # Of what falls due at one moment, seats come in the order of the roll.
            _, what, name = min(due, key=lambda each: (*each[:2], each[2] if each[1] != 1 else ""))
            if what == 2:
                self._over(self.live[name], "deferred")
            elif what == 1:
                self.roll[name].active = False
                self.reached.add("silent")
                self._look_again(t, wall_s)
            else:
                case = self.live[name]
                if case.phase == "prime":
                    self._to_human(case, t, wall_s, "no_ruling")
                elif case.phase == "human":
                    self._over(case, "deferred")
                else:
                    self._settle(case, t, wall_s, expired=True)

    # What is heard

    def heard(self, said: Said, t: float, wall_s: float) -> str:
        """Taken, ignored, refused, noted (either of the two, and nothing else), retry, or free (not counted)."""
        self.pass_time(t, wall_s)
        if said.kind in ("forged", "illegal"):
            return "refused"
        if said.kind == "vote":
            self.votes[said.msg_id] = said
        return str(getattr(self, f"_{said.kind}")(said, t, wall_s))

    def started(self, t: float, wall_s: float) -> None:
        """A coordinator began, or took over: time while there was none is nobody's silence (rules 1.10)."""
        first, self.begun = not self.begun, True
        for seat in self.roll.values():
            seat.active, seat.heard_s, seat.number = True, t, -1
            seat.run += not first
        for case in list(self.live.values()):
            if case.phase == "vote":
                back = {name for name in self.seats if name not in case.cast and name not in case.gone}
                case.given |= back
                self.to_hand |= {(name, case.said.pid) for name in back}
                self._settle(case, t, wall_s)
            elif case.phase == "prime":
                self.to_ask.add(case.said.pid)
        if not first:
            self.ledger.abandon()
            self.reached.add("restarted")

    def died(self, name: str, run: int, t: float, wall_s: float) -> None:
        self.pass_time(t, wall_s)
        seat = self.roll[name]
        if run != seat.run:
            return  # that life ended before, and another began
        seat.active, seat.run, seat.number = False, seat.run + 1, -1
        self.ledger.abandon(name)
        self._look_again(t, wall_s)

    def _look_again(self, t: float, wall_s: float) -> None:
        for case in list(self.live.values()):
            if case.phase == "vote":
                self._settle(case, t, wall_s)

    def _beat(self, said: Said, t: float, wall_s: float) -> str:
        seat = self.roll[said.sender]
        if said.facts["run"] != seat.run or said.facts["number"] <= seat.number:
            return "noted"
        was_active, seat.active = seat.active, True
        seat.heard_s, seat.number = t, said.facts["number"]
        if not was_active:
            self.reached.add("back on the roll")
            for case in self.live.values():
                if case.phase == "vote" and said.sender not in case.cast and said.sender not in case.gone:
                    case.given.add(said.sender)
                    self.to_hand.add((said.sender, case.said.pid))
                elif case.phase == "prime" and said.sender == self.prime:
                    self.to_ask.add(case.said.pid)
            self._look_again(t, wall_s)  # who is back, and alone, may have voted before
        return "taken"

    def _proposal(self, said: Said, t: float, wall_s: float) -> str:
        known = self.cases.get(said.pid)
        if known is not None:
            return "retry" if known.said.sealed == said.sealed else "noted"
        old = None
        if said.facts["supersedes"] is not None:
            old = self.cases.get(said.facts["supersedes"])
            if old is None or old.said.sender != said.sender:
                return "noted"
        if not self._has_room(old):
            return "noted"
        if old is not None and old.phase != "over":
            self._over(old, "cancelled")
        case = Case(said, t + said.facts["budget"], t, self.active(), grave=said.grave)
        self.cases[said.pid] = self.live[said.pid] = case
        self.to_hand |= {(name, said.pid) for name in case.given}
        self.dirty.add(said.pid)
        return "taken"

    def _has_room(self, old: Case | None) -> bool:
        busy = sum(case.phase != "human" for case in self.live.values())
        waiting = len(self.live) - busy
        if old is not None and old.phase != "over":
            busy -= old.phase != "human"
            waiting -= old.phase == "human"
        return busy < self.open_max and waiting < self.escalations_max

    def _vote(self, said: Said, t: float, wall_s: float) -> str:
        case = self.cases.get(said.pid)
        if case is None or said.sender not in case.given:
            return "noted"
        if said.sender in case.cast or said.sender in case.late:
            return "noted"
        self.dirty.add(said.pid)
        if case.phase != "vote":
            case.late[said.sender] = said
            self.reached.add("late ballot")
            return "taken"
        case.cast[said.sender] = said
        case.gone.discard(said.sender)
        case.grave = case.grave or said.grave
        self._settle(case, t, wall_s)
        return "taken"

    def _unreadable(self, said: Said, t: float, wall_s: float) -> str:
        case = self.live.get(said.pid)
        if case is None or case.phase != "vote" or said.sender not in case.given:
            return "free"
        if said.sender in case.cast or said.sealed in case.acts:
            return "free"
        self.dirty.add(said.pid)
        self.reached.add("unreadable ballot")
        case.acts.add(said.sealed)  # the same bytes once more are no second try
        if said.sender not in case.again:
            case.again.add(said.sender)
        else:
            case.gone.add(said.sender)
            self._settle(case, t, wall_s)
        return "free"

    def _fault(self, said: Said, t: float, wall_s: float) -> str:
        case = self.live.get(said.pid)
        if case is None:  # it can't know yet that all is decided, and does no wrong
            return "ignored" if said.pid in self.cases else "noted"
        if said.facts["task"] == "observation":  # no ballot depends on it
            return "free" if said.sender in case.given else "refused"
        if said.facts["task"] == "ruling":
            if case.phase != "prime" or said.sender != self.prime:
                return "noted"
            self._to_human(case, t, wall_s, "no_ruling")
            return "taken"
        done = said.sender in case.cast or said.sender in case.gone
        if case.phase != "vote" or done or said.sender not in case.given:
            return "noted"
        case.gone.add(said.sender)
        self.reached.add("ballot lost")
        self._settle(case, t, wall_s)
        return "taken"

    def _observation(self, said: Said, t: float, wall_s: float) -> str:
        case = self.live.get(said.pid)
        stream, number = said.facts["stream"], said.facts.get("round", 0)
        if case is None or said.sealed in case.acts or said.sender != self.observer:
            return "noted"
        if not {said.sender, stream} <= case.given or stream == said.sender:
            return "noted"
        case.acts.add(said.sealed)
        awaited = case.phase == "vote" and stream not in case.cast and stream not in case.gone
        if said.facts["interrupt"] and number and awaited:
            self.halts.add((stream, said.pid, number))
            self.to_halt.add((stream, said.pid, number))
        newest = max(case.stopped.get(stream, [0]))
        if said.facts["interrupt"] and not (number and number == newest):  # once more is the same halt
            case.runs[stream] = case.runs.get(stream, 0) + 1
            case.stopped.setdefault(stream, [0]).append(number)
        elif said.facts["interrupt"]:
            self.reached.add("halted again")
        elif not said.facts.get("whole", True) or 0 < number <= newest:
            self.reached.add("too early to be clean")
        else:
            case.runs[stream] = 0
        if said.facts["interrupt"] and case.runs[stream] >= INTERRUPTS and case.phase == "vote":
            case.grave = True
            self.reached.add("three interrupts")
            self._settle(case, t, wall_s)
        return "taken"

    def _piece(self, said: Said, t: float, wall_s: float) -> str:
        """Relayed to the seat that observes while its speaker's ballot is awaited; else it comes to nothing."""
        case, observer = self.live.get(said.pid), self.observer
        if case is None or case.phase != "vote" or not {said.sender, observer} <= case.given:
            return "ignored"
        if said.sender == observer or said.sender in case.cast or not self.roll[observer].active:
            return "ignored"
        self.to_relay.add(said.facts["text"])
        self.reached.add("overheard")
        return "taken"

    def _escalation(self, said: Said, t: float, wall_s: float) -> str:
        case = self.live.get(said.pid)
        if case is None or case.phase != "vote" or said.sealed in case.acts:
            return "noted"
        case.acts.add(said.sealed)
        case.grave = True
        self._settle(case, t, wall_s)
        return "taken"

    def _reservation(self, said: Said, t: float, wall_s: float) -> str:
        case = self.cases.get(said.pid)
        if case is None:
            return "noted"
        if case.phase == "over":
            return "taken"
        rules_on_it = case.phase == "prime" and said.sender == self.prime
        if said.sender not in case.given and not rules_on_it:
            return "noted"
        before, tried = len(self.ledger.open), len(self.ledger.asked.get((said.pid, said.sender), ()))
        awaited = self.active() & case.given - case.gone - set(case.cast)
        looks = said.facts["task"] == "observe"
        expected = self.ledger.asks(said, waits=case.phase == "human", keeps_for=awaited if looks else set())
        if expected == "taken":
            granted = len(self.ledger.open) > before
            self.reached.add("call granted" if granted else "call denied")
            if granted and not looks:
                case.unpaid.discard(said.sender)
            elif not looks and len(self.ledger.asked.get((said.pid, said.sender), ())) > tried:
                case.unpaid.add(said.sender)
        return expected

    def _settlement(self, said: Said, t: float, wall_s: float) -> str:
        return self.ledger.settles(said)

    def _ruling(self, said: Said, t: float, wall_s: float) -> str:
        case = self.live.get(said.pid)
        if case is None or case.phase != "prime" or said.sender != self.prime:
            return "noted"
        case.ruling = said
        self.reached.add(f"ruling {said.facts['word']}")
        if not said.facts["confidence"] >= 0.3:
            self._to_human(case, t, wall_s, "ruling_unsure")
        elif said.facts["word"] == "human":
            self._to_human(case, t, wall_s, "prime_asks")
        elif said.facts["word"] == "reject":
            self._over(case, "rejected")
        else:
            self._by_sides(case, t, wall_s)
        return "taken"

    def _answer(self, said: Said, t: float, wall_s: float) -> str:
        case = self.live.get(said.pid)
        if case is None or case.phase != "human":
            return "noted"
        case.answer = said
        self._over(case, "approved" if said.facts["approve"] else "rejected")
        return "taken"

    def _cancel(self, said: Said, t: float, wall_s: float) -> str:
        case = self.live.get(said.pid)
        if case is None or not (said.facts.get("by_human") or case.said.sender == said.sender):
            return "noted"
        self._over(case, "cancelled")
        return "taken"

    def _use(self, said: Said, t: float, wall_s: float) -> str:
        """What the crew may run is held in ``crew``, against the journal on disk."""
        return "free"

    _result = _use

    def _report(self, said: Said, t: float, wall_s: float) -> str:
        """What its proposer tells of an approved action: each step once, in order, and the action first."""
        case = self.cases.get(said.pid)
        if case is None or case.said.sender != said.sender or case.outcome != "approved":
            return "refused"
        stage, order = said.facts["stage"], ("act", "verify", "revert")
        first = case.steps.get(stage)
        if first is not None:
            return "ignored" if first.sealed == said.sealed else "refused"
        later = order[order.index(stage) :]
        if (stage != "act" and "act" not in case.steps) or any(each in case.steps for each in later):
            return "refused"
        case.steps[stage] = said
        self.reached.add(f"told: {stage} {'went well' if said.facts['ok'] else 'failed'}")
        self.dirty.add(said.pid)
        return "taken"

    # What follows

    def _settle(self, case: Case, t: float, wall_s: float, *, expired: bool = False) -> None:
        """Rules 1.4 to 1.8 and 1.11: whether the vote is over, and what it comes to."""
        active = self.active()
        present = active | case.cast.keys()
        pending = active - case.cast.keys() - case.gone
        asks_human = any(ballot.facts["gate"] for ballot in case.cast.values())
        every_ballot = case.grave or asks_human or case.said.facts["wait_for"] == "all"
        enough = len(case.cast) >= self.quorum
        more = max(case.count("yes"), case.count("no"))
        if enough and not every_ballot and more * 2 > len(present):
            if pending and not expired:
                case.early = True
                self.reached.add("early")
            self._by_sides(case, t, wall_s, expired=expired)
        elif pending and not expired:
            return
        elif not enough:
            if self._sole(case, active):
                case.sole = True
                self.reached.add("sole seat")
                self._by_sides(case, t, wall_s, expired=expired)
            elif self._unpaid(case):
                self._to_human(case, t, wall_s, "budget_unmet")
            elif expired or self._in_vain(case):
                self._to_human(case, t, wall_s, "quorum_lost")
        elif asks_human:
            self._to_human(case, t, wall_s, "user_approval")
        elif case.grave:
            self._to_prime(case, t)
        else:
            self._by_sides(case, t, wall_s, expired=expired)

    def _unpaid(self, case: Case) -> bool:
        """Rules 1.8: with who may still vote, or has, there is no quorum, and with money for it there might be."""
        possible = [name for name in self.seats if name in case.cast or name not in case.gone]
        return len(possible) < self.quorum <= len({*possible, *(case.unpaid & case.gone)})

    def _in_vain(self, case: Case) -> bool:
        """Rule 1.5: whoever has not lost its ballot makes no quorum, and nobody silent may decide alone."""
        left = set(self.seats) - case.gone
        if (self.sole_allowed or len(self.seats) == 1) and not left <= case.cast.keys():
            return False
        return len(left | case.cast.keys()) < self.quorum

    def _sole(self, case: Case, active: set[str]) -> bool:
        if not self.sole_allowed or len(case.cast) != 1 or case.grave:
            return False
        (ballot,) = case.cast.values()
        alone = active == {ballot.sender}
        low = case.said.facts["risk"] == ballot.facts["risk"] == "low"
        return alone and low and ballot.facts["vote"] != "abstain" and not ballot.facts["gate"]

    def _by_sides(self, case: Case, t: float, wall_s: float, *, expired: bool = False) -> None:
        yes, no = case.count("yes"), case.count("no")
        if yes != no:
            self._over(case, "approved" if yes > no else "rejected", expired=expired)
            return
        own = case.cast.get(self.prime)
        if own is not None and own.facts["vote"] != "abstain":
            case.tie_break = True
            self.reached.add("tie-break")
            self._over(case, "approved" if own.facts["vote"] == "yes" else "rejected", expired=expired)
        elif case.phase == "vote" and own is None and self.prime not in case.gone and not expired:
            self.reached.add("waits for Prime's vote")  # by the deadline, active or not
        else:
            self._to_human(case, t, wall_s, "tie")

    def _end_voting(self, case: Case, *, expired: bool) -> None:
        """Who is missing, and whether that degrades the decision, is as of the end of the vote."""
        if case.missing is not None:
            return
        case.missing = frozenset(self.seats) - case.cast.keys()
        active = self.active()
        case.degraded = any(expired or name in case.gone or name not in active for name in case.missing)

    def _to_prime(self, case: Case, t: float) -> None:
        self._end_voting(case, expired=True)
        self.to_ask.add(case.said.pid)
        case.phase, case.until_s = "prime", t + case.said.facts["budget"]
        self.dirty.add(case.said.pid)

    def _to_human(self, case: Case, t: float, wall_s: float, why: str) -> None:
        self.reached.add(f"to a human: {why}")
        self._end_voting(case, expired=True)
        case.phase, case.for_human = "human", why
        # Wall time may end it sooner; a jump back never later.
        case.until_s, case.expires_wall_s = t + self.ttl_s, wall_s + self.ttl_s
        self.dirty.add(case.said.pid)

    def _over(self, case: Case, outcome: str, *, expired: bool = False) -> None:
        self.reached.add(outcome)
        self._end_voting(case, expired=expired)
        case.degraded = (case.degraded or case.sole) and outcome != "cancelled"
        case.outcome, case.phase = outcome, "over"
        del self.live[case.said.pid]
        self.dirty.add(case.said.pid)
