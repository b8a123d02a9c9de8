"""The engine: one council on one thread in virtual time, with its network, journal and supervision.

The council is the real ``Driver`` with its core, keys and envelopes. This is its shell: it carries bytes,
keeps records after a delay, wakes the driver, reports deaths; and it tells the oracle the truth of it all.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from council.agents import letters
from council.core.effects import AnnounceBallot, AnnounceDecision, AnnounceEscalation
from council.core.invariants import check
from council.core.proposals import how_it_stands
from council.core.state import Decision, Moment, Rules, found
from council.core.step import step
from council.protocol import signing
from council.runtime.driver import Driver, reference
from council.runtime.messages import Acknowledged, Failed, Told
from tests.sim import compare, people
from tests.sim import plan as plans
from tests.sim.callers import Callers
from tests.sim.oracle import Oracle
from tests.sim.plan import Plan, name_of, pick, unit
from tests.sim.truth import Said, Violation

WALL_0 = 1_700_000_000.0
# A human's deadline is looked at this often at least, since wall time may jump (as the coordinator does).
WALL_CHECK_S = 60.0
# No history is longer; what is not over by then never ends.
T_MAX = 20_000.0


class World(Callers):  # the callers are apart to keep this readable
    """One seed's history. ``drop`` names faults and proposals to leave out; ``story`` takes its lines."""

    def __init__(
        self,
        plan: Plan,
        *,
        drop: Collection[str] = (),
        story: Callable[[str], None] | None = None,
        own_checks: bool = True,
    ) -> None:
        self._own_checks = own_checks  # whether the core's own invariants are looked at too
        self.plan, self.dropped, self.story = plan, frozenset(drop), story
        self.t = self.jumped_s = 0.0
        self.fired: list[str] = []
        self.council_id = f"sim.{plan.seed}"
        names = (*plan.seats, *plan.clients, *plan.humans, "mallory")
        self.keys = {name: name_of(plan.seed, "key", name, digits=64).encode()[:32] for name in names}
        rules = Rules(
            seats=plan.seats,
            prime=plan.prime,
            quorum=plan.quorum,
            escalation_ttl_s=plan.ttl_s,
            sole_seat=plan.sole_seat,  # type: ignore[arg-type]  # the plan's word is one of the two
            open_max=plan.open_max,
            escalations_max=plan.escalations_max,
        )
        self._ids = 0
        seat_keys = {name: self.keys[name] for name in plan.seats}
        humans = {name: self.keys[name] for name in plan.humans}
        self.driver = Driver(
            rules, self.council_id, seat_keys, self.now(), new_id=self._new_id, humans=humans
        )
        self.pens = {name: people.Pen(self, name, "voter", self.keys[name]) for name in plan.seats}
        for names_, role in ((plan.clients, "proposer"), (plan.humans, "human")):
            for name in names_:
                if role == "proposer":
                    self.driver.join(name, role, self.keys[name])
                self.pens[name] = people.Pen(self, name, role, self.keys[name])
        self.lateness_s = 3.0 if "late_timer" in plan.rates else 0.0
        self.oracle = Oracle(
            seats=plan.seats,
            prime=plan.prime,
            quorum=plan.quorum,
            sole_seat=plan.sole_seat,
            ttl_s=plan.ttl_s,
            open_max=plan.open_max,
            escalations_max=plan.escalations_max,
            lateness_s=self.lateness_s,
        )
        # The journal on disk, and what a replay of it comes to.
        self.kept: list[Any] = []
        self.kept_position = 0
        self.replayed = found(rules, Moment(*self.now(), 0))
        self._writing = False
        self._heap: list[tuple[float, int, Any, tuple[Any, ...]]] = []
        self._order = 0
        self._wake_at = math.inf
        self._wall_wake_at = math.inf
        self._feed_seen = 0
        self._due_reply: dict[str, int] = {}
        self._muted: dict[str, float] = {}
        self._down_until: dict[str, float] = {}
        self._died_in: dict[str, int] = {}
        self._sent: Counter[bytes] = Counter()
        self._read: dict[bytes, Any] = {}
        self._asked: dict[int, list[tuple[str, Decision]]] = {}  # by the position they wait for
        self._answered: set[tuple[str, str]] = set()  # (session, proposal) that were told how it ended
        self._lives = Counter(plan.seats)
        self._positions: dict[str, int] = {}
        self.seats = {name: people.Seat(self, name, self.keys[name], 1) for name in plan.seats}
        self._schedule()

    # Time and chance

    @property
    def wall_s(self) -> float:
        return WALL_0 + self.t + self.jumped_s

    def now(self) -> tuple[float, float]:
        return self.t, self.wall_s

    def at(self, when_s: float, act: Any, *args: Any) -> None:
        self._order += 1
        heapq.heappush(self._heap, (max(when_s, self.t), self._order, act, args))

    def after(self, delay_s: float, act: Any, *args: Any) -> None:
        self.at(self.t + delay_s, act, *args)

    def u(self, *about: object) -> float:
        return unit(self.plan.seed, *about)

    def fires(self, fault: str, label: object) -> bool:
        """Whether this fault befalls this message or piece of work. Notes that it did."""
        rate = self.plan.rates.get(fault)
        if rate is None or self.t > self.plan.calm_s or self.u(fault, label) >= rate:
            return False
        return self.happens(f"{fault}:{label}")

    def happens(self, identity: str) -> bool:
        if identity in self.dropped:
            return False
        self.fired.append(identity)
        return True

    def tell(self, line: str, *about: object) -> None:
        if self.story is not None:
            self.story(f"{self.t:12.6f}  {line.format(*about)}")

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:016x}"

    # The run

    def run(self) -> World:
        """Lets the history happen. Raises Violation, naming the rule, where the council breaks one."""
        try:
            while self._heap and not self._is_over():
                when_s, _, act, args = heapq.heappop(self._heap)
                if when_s > T_MAX:
                    raise Violation("1.7-1.9", f"still undecided after {T_MAX} s: {list(self.oracle.live)}")
                self.t = when_s
                self.oracle.not_overslept(self.t)
                act(*args)
            self._look_back()
        except Violation:
            raise
        except Exception as error:
            raise Violation("code", f"{type(error).__name__}: {error}") from error
        return self

    def _is_over(self) -> bool:
        quiet = self.t > self.plan.calm_s + 320.0  # replays and delays have all arrived by then
        return quiet and not self.oracle.live and not self.driver.awaits_saving

    def _look_back(self) -> None:
        """Once all is quiet: replay and run agree, and nobody is still owed an answer."""
        compare.state(self.oracle, self.driver.state, self.t, all_of_it=True)
        if self._own_checks:
            check(self.driver.state)
        for pid, closed in self.driver.state.closed.items():
            compare.words(self.oracle, closed.decision, how_it_stands(self.replayed, pid), "the run")
        for session, pid in self._positions:
            name = f"{session} is owed the decision on {pid}"
            compare.hold("1.9", (session, pid) in self._answered, name)
        for session in (*self.plan.clients, *self.plan.humans):
            compare.hold("1.12", not self.driver.owes(session), f"{session} is owed something for ever")

    def _schedule(self) -> None:
        plan = self.plan
        for name in plan.seats:
            self.at(0.3 * self.u("launch", name), self._attend, name, 0)
        for motion in plan.motions:
            identity = f"propose/{motion.number}"
            if identity not in self.dropped:
                self.fired.append(identity)
                self.at(motion.at_s, self._propose, motion)
        for identity, name, from_s, _, noticed_s in plan.crashes:
            if self.happens(identity):
                self.at(from_s, self._crash, identity, name)
                self.at(noticed_s, self._noticed, identity, name)
        for identity, name, at_s in plan.false_deaths:
            if self.happens(identity):
                self.at(at_s, self._lost, name, "it can't be reached", None)
        for identity, at_s, by_s in plan.wall_jumps:
            if self.happens(identity):
                self.at(at_s, self._jump, by_s)
        self.at(0.0, self._settle)

    def _jump(self, by_s: float) -> None:
        self.tell("wall time jumps by {:.1f} s", by_s)
        self.jumped_s += by_s

    # The network

    def to_council(self, said: Said, *, link: str, session: str | None = None, again: str = "") -> None:
        """Carries an envelope to the coordinator, as well as the seed's network can."""
        label = said.label + again
        arrives_s = self.t + 0.001 + 0.02 * self.u("latency", label)
        if self.fires("jitter", label):
            arrives_s += 2.0 * self.u("jitters", label) ** 2
        if self.fires("delay", label):
            arrives_s += 60.0 * self.u("delays", label) ** 2
        if said.kind in ("vote", "ruling") and self.fires("aim_vote", label):
            arrives_s = self._aimed(said.pid, label) or arrives_s
        if said.kind == "beat":
            if self.t < self._muted.get(said.sender, 0.0):
                return
            if self.fires("aim_beat", label):
                arrives_s = self._nudged(self.oracle.roll[said.sender].heard_s + 90.0, label)
                self._muted[said.sender] = arrives_s = max(arrives_s, self.t)
        if self.fires("forge", label):
            wrong = people.forged(self, said, label)
            self.at(self.t + 5.0 * self.u("forged at", label) ** 3, self._arrive, wrong, session, label)
        if self.fires("replay", label):
            later_s = arrives_s + 300.0 * self.u("replayed at", label) ** 3
            self.at(later_s, self._arrive, said, pick((session, "bob"), self.plan.seed, "by", label), label)
        if self._is_cut(link) or self.fires("loss", label):
            self.tell("lost on its way: {}", label)
            return
        if self.fires("alter", label):
            self.at(arrives_s, self._arrive, people.forged(self, said, f"{label}/altered"), session, label)
            return
        self.at(arrives_s, self._arrive, said, session, label)
        if self.fires("duplicate", label):
            self.at(arrives_s + 3.0 * self.u("twice", label) ** 3, self._arrive, said, session, label)

    def _aimed(self, pid: str, label: str) -> float | None:
        case = self.oracle.live.get(pid)
        if case is None or case.phase == "human" or case.until_s <= self.t:
            return None
        return self._nudged(case.until_s, label)

    def _nudged(self, when_s: float, label: str) -> float:
        """At that moment, or a hair before or after."""
        before, after = math.nextafter(when_s, 0.0), math.nextafter(when_s, math.inf)
        return pick((before, when_s, when_s, after, when_s + 0.01), self.plan.seed, "nudge", label)

    def _is_cut(self, link: str) -> bool:
        return any(
            name == link
            and from_s <= self.t < to_s
            and identity not in self.dropped
            and self.happens(identity)
            for identity, name, from_s, to_s in self.plan.partitions
        )

    def _to_seat(self, name: str, sealed: bytes, *, kept: bool) -> None:
        payload = signing.payload_of(sealed)
        self._sent[sealed] += 1
        label = f"to/{name}/{reference(sealed)}/{self._sent[sealed]}"
        envelope, about, _ = self.read(payload)
        if envelope.type == "PROPOSAL":
            self.oracle.to_hand.discard((name, envelope.msg_id))
        elif envelope.content.kind == "ruling_request":
            self.oracle.to_ask.discard(envelope.parent_id)
            compare.hold("1.8", about is not None, "Prime is asked to rule on what it is not shown")
            self._check_request(name, envelope.parent_id, envelope.content.data, kept)
        arrives_s = self.t + 0.001 + 0.02 * self.u("latency", label)
        if self.fires("jitter", label):
            arrives_s += 2.0 * self.u("jitters", label) ** 2
        if self._is_cut(name) or self.fires("loss", label):
            self.tell("lost on its way: {}", label)
            return
        self.at(arrives_s, self._reach, name, sealed)
        if self.fires("duplicate", label):
            self.at(arrives_s + 3.0 * self.u("twice", label), self._reach, name, sealed)

    def _check_request(self, name: str, pid: str, data: Any, kept: bool) -> None:
        """Prime alone is shown ballots, and only such as are in the journal (rules 1.14)."""
        compare.hold("1.14", name == self.plan.prime, f"{name} is shown the others' ballots")
        compare.hold("4.7", kept, "Prime is shown ballots before the record of the request is kept")
        closed = self.replayed.closed.get(pid)  # it may have been taken back in the same breath
        stands: Any = self.replayed.open.get(pid) or (closed and closed.decision)
        in_journal = {b.seat for b in stands.ballots} if stands is not None else set()
        shown = {ballot["seat"] for ballot in data["ballots"]}
        compare.hold("1.14", shown <= in_journal, f"Prime is shown {shown}, kept are {in_journal}")

    def read(self, payload: bytes) -> letters.Letter:
        """The letter in these bytes; each proposal goes to many seats and is read once."""
        letter = self._read.get(payload)
        if letter is None:
            letter = self._read[payload] = letters.read(payload)
        return letter

    def _reach(self, name: str, sealed: bytes) -> None:
        seat = self.seats[name]
        if seat.alive:
            seat.receive(sealed)

    # The coordinator

    def _arrive(self, said: Said, session: str | None, label: str) -> None:
        driver = self.driver
        before = self._counted()
        driver.receive(said.sealed, self.now(), session)
        expected = self.oracle.heard(said, self.t, self.wall_s)
        if said.kind != "beat" or self.story is not None:
            self.tell("{} from {}: {} ({})", said.kind, said.sender, expected, label)
        counted = self._counted()
        noted, refused = counted[0] - before[0], counted[1] - before[1]
        if expected in ("taken", "retry"):
            compare.hold("1.3", noted == refused == 0, f"{label} was not taken: {dict(driver.refused)}")
        elif expected == "noted":
            compare.hold("1.3", noted + refused == 1, f"{label} should change nothing and be counted once")
        elif expected == "refused":
            compare.hold("1.14", refused == 1, f"{label} should be refused and counted once")
        if session is not None:
            self._due_reply.setdefault(reference(said.sealed), driver.position)
            if said.kind == "proposal" and expected == "taken":
                self._positions[(session, said.pid)] = driver.position
        compare.hold("code", "internal_error" not in driver.refused, "a step failed in itself")
        self._turned(check_all=said.kind != "beat")

    def _counted(self) -> tuple[int, int]:
        return sum(self.driver.ignored.values()), sum(self.driver.refused.values())

    def _wake(self) -> None:
        self._wake_at = self._wall_wake_at = math.inf
        self.driver.wake(self.now())
        self.oracle.pass_time(self.t, self.wall_s)
        self._turned()

    def _noticed(self, identity: str, name: str) -> None:
        self._lost(name, "its actor died", self._died_in.get(identity))

    def _lost(self, name: str, why: str, run: int | None) -> None:
        """The shell learns that a seat is gone, or believes so; it will have it back.

        News of the death of an earlier run may come late, when the seat is back in a later one.
        """
        run = self.oracle.roll[name].run if run is None else run
        self.tell("{} is reported dead in run {}: {}", name, run, why)
        self.driver.seat_died(name, run, why, self.now())
        self.oracle.died(name, run, self.t, self.wall_s)
        self._turned()
        self._revive(name, 0)

    def _revive(self, name: str, tries: int) -> None:
        if self._is_cut(name) or self.t < self._down_until.get(name, 0.0):
            self.after(min(30.0, 0.05 * 2**tries), self._revive, name, tries + 1)
        else:
            if not self.seats[name].alive:
                self._rise(name)
            self.after(0.05, self._attend, name, self.driver.boot(name))

    def _attend(self, name: str, run: int) -> None:
        if self.seats[name].alive:
            self.seats[name].attend(run)

    def _crash(self, identity: str, name: str) -> None:
        seat = self.seats[name]
        (down_until,) = [to_s for this, _, _, to_s, _ in self.plan.crashes if this == identity]
        self._down_until[name] = max(self._down_until.get(name, 0.0), down_until)
        zombie = self.fires("zombie", identity)
        self._died_in[identity] = self.oracle.roll[name].run
        self.tell("{} crashes{}", name, ", and a frozen copy lives on" if zombie else "")
        if zombie:  # after a frozen node thaws, the old copy goes on beside the new one
            self._rise(name)
            self.seats[name].alive = False
        else:
            seat.alive = False

    def _rise(self, name: str) -> None:
        self._lives[name] += 1
        self.seats[name] = people.Seat(self, name, self.keys[name], self._lives[name])

    def _turned(self, *, check_all: bool = True) -> None:
        """After each turn of the driver: nothing told that is not kept, and the state is as the rules say."""
        driver = self.driver
        compare.hold("4.7", not driver.to_sessions, "a session is told something in the turn that made it so")
        compare.hold("4.7", driver.feed.position == self._feed_seen, "an event was told before it was kept")
        if check_all and self._own_checks:
            check(driver.state)
        compare.state(self.oracle, driver.state, self.t)
        self._poll()
        self._settle()

    def _poll(self) -> None:
        """Somebody asks, at the worst moment, how a proposal stands."""
        if not self.oracle.cases or not self.fires("poll", self.driver.position):
            return
        pid = pick(sorted(self.oracle.cases), self.plan.seed, "asks for", self.driver.position)
        told = self.driver.decision(pid)
        if told is None:
            return
        if self.kept_position < self.driver.position:  # rules 4.7: it is told once the newest record is kept
            self._asked.setdefault(self.driver.position, []).append((pid, told))
        else:
            self._hear_answer(pid, told)

    def _hear_answer(self, pid: str, told: Decision) -> None:
        compare.words(self.oracle, told, how_it_stands(self.replayed, pid), "who asked was")

    # Keeping and telling

    def _settle(self) -> None:
        driver = self.driver
        while driver.to_seats:
            self._to_seat(*driver.to_seats.popleft(), kept=False)
        forgotten = self.oracle.to_hand
        compare.hold("1.10", not forgotten, f"these seats were not handed what is open: {forgotten}")
        if driver.awaits_saving and not self._writing:
            self._writing = True
            records, driver.unsaved = driver.unsaved, []
            delay_s = 0.0
            if records:
                delay_s = 0.0005 + 0.002 * self.u("fsync", driver.position)
                if self.fires("slow_journal", driver.position):
                    delay_s += 5.0 * self.u("slow", driver.position) ** 3
            self.after(delay_s, self._saved, records, driver.position)
        self._arm()

    def _saved(self, records: list[Any], position: int) -> None:
        """The disk has it: the record may be told of, and a restart would know it."""
        driver = self.driver
        for record in records:
            self.kept_position += 1
            compare.hold(
                "4.5", record.position == self.kept_position, f"record {record.position} out of turn"
            )
            self.kept.append(record)
            self.replayed, _ = step(self.replayed, record.event, record.moment)
            for pid, told in self._asked.pop(record.position, ()):
                self._hear_answer(pid, told)
        driver.saved(position)
        self._writing = False
        while driver.to_sessions:
            self._told(*driver.to_sessions.popleft())
        self._read_feed()
        while driver.to_seats:
            self._to_seat(*driver.to_seats.popleft(), kept=True)
        if not driver.unsaved:
            live = self.oracle.live  # one that went on to a human meanwhile needs no ruling any more
            forgotten = {p for p in self.oracle.to_ask if p in live and live[p].phase == "prime"}
            compare.hold("1.8", not forgotten, f"Prime was not asked to rule on {forgotten}")
        self._settle()

    def _told(self, session: str, message: Any) -> None:
        if isinstance(message, Told):
            decision = message.decision
            self.tell("{} is told: {} is {}", session, decision.proposal_id, decision.outcome or "escalated")
            compare.words(self.oracle, decision, how_it_stands(self.replayed, decision.proposal_id), session)
            answered = (session, decision.proposal_id)
            if decision.final:
                self._answered.add(answered)
            else:
                compare.hold(
                    "1.9", answered not in self._answered, f"{session} was told the end of it before"
                )
            return
        assert isinstance(message, (Acknowledged, Failed))
        due = self._due_reply.get(message.ref)
        compare.hold("4.7", due is not None, f"{session} is answered what it never asked")
        assert due is not None
        compare.hold(
            "4.7",
            self.kept_position >= due,
            f"{session} is told of record {due}, kept are {self.kept_position}",
        )

    def _read_feed(self) -> None:
        new = self.driver.feed.position - self._feed_seen
        for effect in self.driver.feed.last(new):
            if isinstance(effect, AnnounceDecision):
                pid = effect.decision.proposal_id
                compare.words(self.oracle, effect.decision, how_it_stands(self.replayed, pid), "the feed")
                self.tell("decided: {} {} ({})", pid, effect.decision.outcome, effect.decision.reason)
            elif isinstance(effect, AnnounceEscalation):
                self._ask_humans(effect.escalation)
            elif isinstance(effect, AnnounceBallot):
                kept = self.replayed.open.get(effect.ballot.proposal_id)
                ballots = kept.ballots + kept.late if kept is not None else None
                is_kept = ballots is None or effect.ballot in ballots
                compare.hold("4.7", is_kept, f"the feed shows {effect.ballot.msg_id}, which is not kept")
        self._feed_seen = self.driver.feed.position

    def _arm(self) -> None:
        deadlines = self.driver.deadlines()
        at_s = deadlines.uptime_s if deadlines.uptime_s is not None else math.inf
        if deadlines.wall_s is not None:
            at_s = min(at_s, self.t + min(max(deadlines.wall_s - self.wall_s, 0.0), WALL_CHECK_S))
        if at_s >= self._wake_at or at_s == math.inf:
            return
        self._wake_at = at_s
        late_s = 2.9 * self.u("late", at_s) ** 2 if self.fires("late_timer", at_s) else 0.0
        self.at(at_s + late_s, self._wake_if, at_s)

    def _wake_if(self, at_s: float) -> None:
        if at_s == self._wake_at:
            self._wake()


def run(seed: int, **options: Any) -> World:
    """The history of one seed. Raises Violation."""
    return World(plans.make(seed), **options).run()
