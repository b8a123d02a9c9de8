"""The engine: one council on one thread in virtual time, with its network, disk, coordinators and supervision.

The council is the real ``Driver`` with its core, keys, envelopes and packets. This is its shell: it carries
bytes, keeps records after a delay, wakes the driver, reports deaths, and lets coordinators die and follow each
other; and it tells the oracle the truth of it all.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from council.agents.messaging.seat_messages import Letter
from council.core.state import Budget, Caps, Rules
from council.runtime.messages import Told
from tests.core.invariants import check
from tests.sim import compare, crew, people
from tests.sim import plan as plans
from tests.sim.callers import Callers
from tests.sim.coordinators import Coordinators
from tests.sim.crew import Crew
from tests.sim.disk import Disk
from tests.sim.life import Killed, Life
from tests.sim.memory import Memory
from tests.sim.network import Network
from tests.sim.oracle import Oracle
from tests.sim.plan import Plan, name_of, unit
from tests.sim.truth import Said, Violation

WALL_0 = 1_700_000_000.0
# No history is longer; what is not over by then never ends.
T_MAX = 20_000.0


class World(Callers, Crew, Network, Coordinators):  # these are apart to keep it readable
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
        names = (*plan.seats, *plan.clients, *plan.humans, crew.NAME, "mallory")
        self.keys = {name: name_of(plan.seed, "key", name, digits=64).encode()[:32] for name in names}
        self.rules = Rules(
            seats=plan.seats,
            prime=plan.prime,
            observer=plan.observer,
            quorum=plan.quorum,
            escalation_ttl_s=plan.ttl_s,
            lost_at_once=True,
            asks_outcome=True,
            keeps_escalation=True,
            sole_seat=plan.sole_seat,  # type: ignore[arg-type]  # the plan's word is one of the two
            open_max=plan.open_max,
            escalations_max=plan.escalations_max,
            budget=Budget(**{scope: Caps(most) for scope, most in plan.caps.items()}),
        )
        self._ids = self._starts = 0
        self.pens = {name: people.Pen(self, name, "voter", self.keys[name]) for name in plan.seats}
        for names_, role in ((plan.clients, "proposer"), (plan.humans, "human")):
            for name in names_:
                self.pens[name] = people.Pen(self, name, role, self.keys[name])
        self.pens[crew.NAME] = crew.pen_of(self)
        self.raced, self.ran = set(), {}
        self.lateness_s = 3.0 if "late_timer" in plan.rates else 0.0
        self.memory = Memory(self._oracle)
        self.disk = Disk()
        self.life: Life | None = None  # the coordinator that counts
        self.others: list[Life] = []  # those that were replaced and do not know it yet
        self.shadow = self._driver(0.0)  # what a replay of the journal on disk comes to
        self.feed_told: dict[int, Any] = {}
        self.acknowledged: list[Said] = []  # answers and cancellations that were acknowledged
        # What clients and humans have sent without an answer: they send it again to a new coordinator.
        self.unanswered: dict[tuple[str, str], Said] = {}
        self.asked_humans: set[str] = set()
        self.acted_on: set[str] = set()
        self._heap: list[tuple[float, int, Any, tuple[Any, ...]]] = []
        self._order = 0
        self._labels = Counter[str]()
        self._muted: dict[str, float] = {}
        self.spoken: dict[tuple[str, str], set[str]] = {}  # what was said aloud, by speaker and proposal
        self._down_until: dict[str, float] = {}
        self._died_in: dict[str, int] = {}
        self._sent = Counter[bytes]()
        self._read: dict[bytes, Letter] = {}
        self._lives = Counter(plan.seats)
        self.seats = {name: people.Seat(self, name, self.keys[name], 1) for name in plan.seats}
        self._schedule()

    def _oracle(self) -> Oracle:
        plan = self.plan
        return Oracle(
            seats=plan.seats,
            prime=plan.prime,
            observer=plan.observer,
            quorum=plan.quorum,
            sole_seat=plan.sole_seat,
            ttl_s=plan.ttl_s,
            open_max=plan.open_max,
            escalations_max=plan.escalations_max,
            lateness_s=self.lateness_s,
            caps=plan.caps,
        )

    # Time and chance

    @property
    def wall_s(self) -> float:
        return WALL_0 + self.t + self.jumped_s

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
                self._nothing_waits_too_long()
                try:
                    act(*args)
                except Killed:
                    pass
            self._look_back()
        except Violation:
            raise
        except Exception as error:
            raise Violation("code", f"{type(error).__name__}: {error}") from error
        return self

    def _nothing_waits_too_long(self) -> None:
        """By the uptime that the rules go by, and by real time once no coordinator has died for a while."""
        life = self.life
        if life is None:
            return
        self.oracle.not_overslept(life.uptime(self.t))
        up_s = self.t - life.began_s
        for pid, case in self.oracle.live.items():
            longest_s = 2 * (case.said.facts["budget"] + self.lateness_s) + 1.0
            if case.phase != "human" and min(up_s, life.uptime(self.t) - case.heard_s) > longest_s:
                raise Violation("1.7", f"{pid} is neither decided nor with a human after {longest_s} s")

    def _is_over(self) -> bool:
        # Until replays and delays have all arrived.
        if self.life is None or self.t <= self.plan.calm_s + 320.0:
            return False
        return not (self.oracle.live or self.life.driver.awaits_saving or self.life.commit.writing)

    def _look_back(self) -> None:
        """Once all is quiet: replay and run agree, and nobody is still owed an answer."""
        life = self.life
        assert life is not None
        driver = life.driver
        state = compare.whole(driver, self.oracle.cases)
        compare.state(self.oracle, state, self.t, all_of_it=True)
        if self._own_checks:
            check(state)
        compare.live(driver, self.shadow, all_of_it=True)
        for owed in life.owed:
            compare.hold("1.9", owed in life.answered, f"{owed[0]} is owed the decision on {owed[1]}")
        for session in (*self.plan.clients, *self.plan.humans):
            compare.hold(
                "1.12", not driver.announcements.owes(session), f"{session} is owed something for ever"
            )
        for pid, case in self.oracle.cases.items():  # the same bytes again get the same decision (rules 1.12)
            self._receive(driver, case.said, self._now(life), "again")
            driver.saved(driver.position)
            compare.hold("1.12", bool(driver.announcements.to_sessions), f"a retry of {pid} is not answered")
            _, message = driver.announcements.to_sessions.popleft()
            compare.hold("1.12", isinstance(message, Told), f"a retry of {pid} gets {message}")
            compare.words(self.oracle, message.decision, driver.decision(pid), "a retry was")
        self._recover(self._starts + 1)
        compare.kept_for_good(self.oracle.told, self.acknowledged, self.shadow.state.closed)

    def _schedule(self) -> None:
        plan = self.plan
        self._start()
        for motion in plan.motions:
            identity = f"propose/{motion.number}"
            if identity not in self.dropped:
                self.fired.append(identity)
                self.at(motion.at_s, self._propose, motion)
        self._schedule_seats_troubles()
        self._schedule_coordinators_troubles()

    def _schedule_seats_troubles(self) -> None:
        plan = self.plan
        for identity, name, from_s, _, noticed_s in plan.crashes:
            if self.happens(identity):
                self.at(from_s, self._crash, identity, name)
                self.at(noticed_s, self._noticed, identity, name)
        for identity, name, at_s in plan.false_deaths:
            if self.happens(identity):
                self.at(at_s, self._lost, name, "it can't be reached", None)

    def _schedule_coordinators_troubles(self) -> None:
        plan = self.plan
        for identity, at_s, by_s in plan.wall_jumps:
            if self.happens(identity):
                self.at(at_s, self._jump, by_s)
        for identity, at_s in plan.kills:
            if self.happens(identity):
                self.at(at_s, self._kill, identity)
        for identity, at_s in plan.takeovers:
            if self.happens(identity):
                self.at(at_s, self._take_over, identity)
        for identity, from_s, to_s in plan.full:
            if self.happens(identity):
                self.at(from_s, self._fill, True)
                self.at(to_s, self._fill, False)

    def _fill(self, full: bool) -> None:
        self.tell("the disk {}", "is full" if full else "has room again")
        self.disk.full = full

    def _jump(self, by_s: float) -> None:
        self.tell("wall time jumps by {:.1f} s", by_s)
        self.jumped_s += by_s

    # Seats

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


def run(seed: int, **options: Any) -> World:
    """The history of one seed. Raises Violation."""
    return World(plans.make(seed), **options).run()
