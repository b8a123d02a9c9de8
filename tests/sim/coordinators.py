"""The coordinators of a simulated council, one after another and beside each other: how they live, die and recover.

Knows nothing of rules: what a coordinator does is the real driver's, when it writes and tells is for the real
``Commit`` to say, and what it should do for the oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from council.core.effects import (
    AnnounceDecision,
    AnnounceEscalation,
    DenyCall,
    GrantCall,
    InterruptSeat,
    RaiseAlert,
    RequestRuling,
)
from council.core.events import CoordinatorStarted
from council.core.step import next_deadline
from council.journal.packets import Packer, packet_id, unpacked
from council.protocol.errors import EpochFenced, NameTaken
from council.runtime.archive import Away
from council.runtime.commit import Commit
from council.runtime.driver import Driver
from council.runtime.messages import reference
from tests.core.invariants import check
from tests.sim import compare, crew
from tests.sim.life import Life, Writing, name_of
from tests.sim.mortality import Mortality
from tests.sim.telling import Telling
from tests.sim.truth import Said, Violation

DISK_FULL_RETRY_S = 0.3
# The part of the snapshots that can't be kept when they are taken, and go to the disk with the next one.
SNAPSHOT_WAITS = 0.3
# Of what is told once it is kept, that which a client, a human, Prime or another seat waits for, or should look at.
WAITED_FOR = (
    AnnounceDecision,
    AnnounceEscalation,
    RaiseAlert,
    RequestRuling,
    InterruptSeat,
    GrantCall,
    DenyCall,
)


class Coordinators(Telling, Mortality):
    """The part of the world that runs the council itself."""

    @property
    def oracle(self) -> Any:
        return self.memory.oracle

    # Beginning

    def _start(self, after_s: float = 0.0) -> None:
        """Has a coordinator begin after a while: unless another does before."""
        self._starts += 1
        self.after(after_s, self._begin_epoch, self._starts)

    def _begin_epoch(self, start: int) -> None:
        if start != self._starts:
            return
        if self.life is not None:
            self.others.append(self.life)
            self.life = None
        for other in self.others:  # what it had on its way is there by now, or never will be
            if other.epoch == self.disk.epoch:
                self._sync_some(other, "fenced")
        epoch = self.disk.begin_epoch()
        label = f"start{start}"
        self.tell("coordinator {} begins epoch {}, {} records behind it", start, epoch, self.disk.position)
        if self.fires("kill_recovering", label):
            self.tell("and dies while it recovers")
            self.oracle.reached.add("killed while recovering")
            self._start(1.0 * self.u("recovers in", label))
            return
        self.after(0.3 * self.u("recovers", label) if start > 1 else 0.0, self._recovered, start, epoch)

    def _recovered(self, start: int, epoch: int) -> None:
        if start != self._starts:
            return
        driver = self._recover(start)
        last_s = self.memory.cut(self.disk.position)
        uptime_s = driver.state.uptime_s
        known_s = max([last_s, *(taken_s for _, taken_s in self.disk.snapshots)])
        compare.hold(
            "1.10",
            last_s <= uptime_s <= known_s,
            f"it goes on from {uptime_s} s of uptime, the last record is of {last_s}",
        )
        packer = Packer(self.council_id, self.disk.lines)
        commit = Commit(driver.position, self.plan.linger_s)
        life = Life(start, epoch, driver, commit, packer, self.disk.head, self.t, uptime_s)
        life.feed_seen = driver.announcements.feed.position - len(driver.announcements.feed.newest(10**9))
        life.heard_s = dict.fromkeys(self.plan.seats, self.t)
        self.life = life
        self._admit(life)
        self._read_feed(life)
        before, now = driver.position, self._now(life)
        driver.begin(epoch, self.rules, now)
        self.memory.tell(before, before + 1, "started", *now)
        self.memory.tell(before + 1, driver.position, "pass_time", *now)
        if driver.position > before + 1:
            self.oracle.reached.add("expired while down")
        # A run of a seat is told of once it is kept: else a crash would have its number used again.
        life.when_kept.append((before + 1, lambda: self._greet(life)))
        self._turned(life)

    def _recover(self, start: int) -> Driver:
        """A driver that has taken back what the disk holds, by snapshot or from the first record on."""
        driver, kept = self._driver(0.0), self.disk.snapshots
        if kept and self.fires("snapshot_lost", f"start{start}"):
            del kept[int(len(kept) * self.u("loses", start)) :]
        if self.u("without snapshots", start) < 0.2:
            kept.clear()
        after = 0
        if kept:
            newest = kept[-1][0]
            after = newest.position
            self.tell("it recovers from a snapshot of {}", after)
            self.oracle.reached.add("restored")
            mores = [(at, more) for each, _ in kept for at, (more, _) in each.added.items()]
            driver.restore(after, newest.base, mores, self._envelopes)
        for record in self.disk.records(after):
            driver.replay(record)
        compare.recovered(driver, self.shadow)
        announced = driver.announcements.feed.newest(10**9)
        for position, (_, effect) in enumerate(
            announced, driver.announcements.feed.position - len(announced) + 1
        ):
            told = self.feed_told.get(position, effect)
            if told != effect:
                raise Violation("1.12", f"event {position} was told as {told}, and is {effect} now")
        return driver

    def _envelopes(self, msg_ids: Any) -> dict[str, bytes]:
        return {each: self.disk.sealed(packet_id(self.council_id, each)) for each in msg_ids}

    def _driver(self, uptime_s: float, decided: Callable[[int], bytes] | None = None) -> Driver:
        plan = self.plan
        seats, humans = ({name: self.keys[name] for name in names} for names in (plan.seats, plan.humans))
        now = uptime_s, self.wall_s
        return Driver(
            self.rules,
            self.council_id,
            seats,
            now,
            new_id=self._new_id,
            humans=humans,
            executors={crew.NAME: self.keys[crew.NAME]},
            decided=decided or self.disk.decided,
        )

    def _admit(self, life: Life) -> None:
        """Clients join anew, and an intruder tries to be one of them first (rules 1.3)."""
        for name in self.plan.clients:
            if any(case.said.sender == name for case in self.oracle.cases.values()):
                try:
                    life.driver.join(name, "proposer", self.keys["mallory"])
                except NameTaken:
                    pass
                else:
                    compare.hold("1.14", False, f"mallory got the name of {name}")
            life.driver.join(name, "proposer", self.keys[name])

    def _greet(self, life: Life) -> None:
        """Its start is kept: seats are attended to, and clients notice, and say again what is unanswered."""
        for name in self.plan.seats:
            self.after(0.3 * self.u("greets", name, life.number), self._attend_first, life, name)
        for (session, ref), said in self.unanswered.items():
            in_s = 2.0 * self.u("notices", session, life.number)
            self.after(in_s, self._say_again, session, ref, said, f"/life{life.number}")
        for escalation in life.driver.escalations():
            self._ask_humans(escalation)

    def _say_again(self, session: str, ref: str, said: Said, again: str) -> None:
        if (session, ref) in self.unanswered:
            self.to_council(said, link="client", session=session, again=again)

    # Seats

    def _attend_first(self, life: Life, name: str) -> None:
        if life is self.life:
            if self.seats[name].alive:
                self._attend(life, name)
            else:
                self._lost(name, "it can't be reached", None)

    def _noticed(self, identity: str, name: str) -> None:
        self._lost(name, "its actor died", self._died_in.get(identity))

    def _lost(self, name: str, why: str, run: int | None) -> None:
        """The shell learns that a seat is gone, or believes so; it will have it back.

        News of the death of an earlier run may come late, when the seat is back in a later one.
        """
        life = self.life
        if life is None:
            return  # who comes next will notice for itself
        run = self.oracle.roll[name].run if run is None else run
        self.tell("{} is reported dead in run {}: {}", name, run, why)
        before, boot, now = life.driver.position, life.driver.boot(name), self._now(life)
        life.driver.seat_died(name, run, why, now)
        self.memory.tell(before, life.driver.position, "died", name, run, *now)
        if run == boot:  # else that run is over already, and its seat has been had back, or will be
            life.reported.add(name)
            life.when_kept.append((life.driver.position, lambda: self._revive(life, name, boot + 1, 0)))
        self._turned(life)

    def _revive(self, life: Life, name: str, run: int, tries: int) -> None:
        if life is not self.life or run != life.driver.boot(name):
            return
        if self._is_cut(name) or self.t < self._down_until.get(name, 0.0):
            self.after(min(30.0, 0.05 * 2**tries), self._revive, life, name, run, tries + 1)
        else:
            if not self.seats[name].alive:
                self._rise(name)
            self.after(0.05, self._attend, life, name)

    def _attend(self, life: Life, name: str) -> None:
        if life is self.life and self.seats[name].alive:
            self.seats[name].attend(self.shadow.boot(name), life.number)  # as it is kept

    # What arrives

    def _now(self, life: Life) -> tuple[float, float]:
        return life.uptime(self.t), self.wall_s

    def _arrive(self, said: Said, session: str | None, label: str) -> None:
        life = self.life
        if self.others and self.fires("misled", label):
            self._mislead(self.others[-1], said, session, label)
            return
        if life is None:
            self.tell("nobody hears {}", label)
            return
        driver = life.driver
        counted, before, now = self._counted(driver), driver.position, self._now(life)
        self._receive(driver, said, now, session)
        expected = self.memory.tell(before, driver.position, "heard", said, *now)
        if said.kind != "beat" or self.story is not None:
            self.tell("{} from {}: {} ({})", said.kind, said.sender, expected, label)
        noted, refused = (a - b for a, b in zip(self._counted(driver), counted, strict=True))
        if expected in ("taken", "retry"):
            compare.hold("1.3", noted == refused == 0, f"{label} was not taken: {dict(driver.refused)}")
        elif expected == "noted":
            compare.hold("1.3", noted + refused == 1, f"{label} should change nothing and be counted once")
        elif expected == "ignored":
            compare.hold("1.3", (noted, refused) == (1, 0), f"{label} should be ignored")
        elif expected == "refused":
            compare.hold("1.14", refused == 1, f"{label} should be refused and counted once")
        if said.kind == "beat":
            self._is_alive(life, said, taken=expected == "taken")
        if session is not None:
            self._owe(life, said)
            if said.kind == "proposal" and expected in ("taken", "retry"):
                life.owed.add((session, said.pid))
        compare.hold("code", "internal_error" not in driver.refused, "a step failed in itself")
        self._turned(life, check_all=said.kind != "beat")

    def _receive(self, driver: Driver, said: Said, now: tuple[float, float], session: str | None) -> None:
        """What speaks of a decision that is on disk alone is heard once that is taken back, as shells do."""
        for _ in range(3):  # an envelope names two proposals at most
            if (away := driver.receive(driver.open(said.sealed), now, session)) is None:
                return
            self._take_back(driver, away)
        compare.hold("1.12", False, "a decision is still away once it is taken back")

    def _take_back(self, driver: Driver, away: Away) -> None:
        self.oracle.reached.add("taken back")
        driver.take_back(away, driver.archive.fetch(away))

    def _is_alive(self, life: Life, said: Said, *, taken: bool) -> None:
        """A sign of life, whatever the council makes of it: one of a seat as this coordinator attends to it."""
        name, sign = said.sender, said.facts["sign"]
        if taken:
            life.reported.discard(name)
        if said.facts["by"] == life.number and name not in life.reported and sign > life.signs.get(name, ()):
            life.signs[name], life.heard_s[name] = sign, self.t

    def _mislead(self, life: Life, said: Said, session: str | None, label: str) -> None:
        """An envelope goes to a coordinator that was replaced: what it makes of it must come to nothing."""
        if life.frozen:
            life.inbox.append((said, session, label))
            return
        self.tell("coordinator {}, which was replaced, gets {}", life.number, label)
        self.oracle.reached.add("misled")
        life.driver.receive(
            life.driver.open(said.sealed), self._now(life), session
        )  # what is away, its successor may have cut
        if session is not None:
            self._owe(life, said)
        self._settle(life)

    def _owe(self, life: Life, said: Said) -> None:
        """Whoever said that is to be answered, once what is on the record by now is kept."""
        ref = reference(said.sealed)
        life.due_reply.setdefault(ref, life.driver.position)
        life.arrived_s[ref] = self.t

    @staticmethod
    def _counted(driver: Driver) -> tuple[int, int]:
        return sum(driver.ignored.values()), sum(driver.refused.values())

    def _wake(self, life: Life) -> None:
        life.wake_at = math.inf
        if life.commit.lingers:
            self._may_die(life, "kill_lingering", self._label(life.driver))
        if life.commit.stall_due(self.t):
            self._check_stall(life)
        before, now = life.driver.position, self._now(life)
        life.driver.wake(now)
        if life is not self.life:
            self._settle(life)
            return
        self.memory.tell(before, life.driver.position, "pass_time", *now)
        self._turned(life)

    def _turned(self, life: Life, *, check_all: bool = True) -> None:
        """After each turn of the driver: nothing told that is not kept, and the state is as the rules say."""
        driver = life.driver
        told = driver.announcements
        compare.hold("4.7", not told.to_sessions, "a session is told something in the turn that made it so")
        compare.hold("4.7", told.feed.position == life.feed_seen, "an event was told before it was kept")
        state = compare.whole(driver, self.oracle.cases)
        if check_all and self._own_checks:
            check(state)
        compare.state(self.oracle, state, life.uptime(self.t))
        self._none_wronged(life)
        self._poll(life)
        self._settle(life)

    def _none_wronged(self, life: Life) -> None:
        """Who is inactive was silent for 90 s of a coordinator's real time, or reported dead (rules 1.10)."""
        inactive = {name for name, seat in life.driver.state.seats.items() if not seat.active}
        for name in inactive - life.inactive:
            silent_s = self.t - life.heard_s[name]
            wronged = name not in life.reported and silent_s < 90.0 - 1e-6
            compare.hold("1.10", not wronged, f"{name} is inactive after {silent_s} s of real silence")
        life.inactive = inactive

    # Keeping and telling

    def _settle(self, life: Life) -> None:
        driver = life.driver
        label = self._label(driver)
        if label:
            self._may_die(life, "kill_stepped", label)
        self._hand_out(life, kept=False)
        if life is self.life:
            forgotten = self.oracle.to_hand | self.oracle.to_relay
            compare.hold("1.10", not forgotten, f"seats were not handed what is open, or said: {forgotten}")
        while self._writes(life, label):
            self._write(life, label)
        if driver.awaits_saving and not life.commit.writing:
            waited_for = [
                effect for effect in driver.announcements.untold() if isinstance(effect, WAITED_FOR)
            ]
            waited_for += [asked for asked in life.asked if asked[0] > life.commit.kept_position]
            compare.hold("hurry", not waited_for, f"the write lingers that somebody waits for: {waited_for}")
        self._tell_who_asked(life)
        self._arm(life)

    def _writes(self, life: Life, label: str) -> bool:
        """Whether a write begins, as the council's own policy has it; a story may go without a linger."""
        driver, commit, lingered = life.driver, life.commit, life.commit.lingers
        begins = not commit.writes(driver, self.t) and commit.lingers and not lingered
        if begins and not self.happens(f"linger:{label}"):
            commit.hurry(driver.position)
        return commit.writes(driver, self.t)

    def _label(self, driver: Driver) -> str:
        """What is to be written now, in words that are said once."""
        if not driver.unsaved:
            return ""
        name = name_of(driver.unsaved[-1])
        self._labels[name] += 1
        return f"{name}/{self._labels[name]}"

    def _write(self, life: Life, label: str) -> None:
        if label:
            self._may_die(life, "kill_unwritten", label)
        driver = life.driver
        writing = Writing(driver.position, driver.drain(), label=label, idle_s=life.idle_s, begun_s=self.t)
        if not writing.records:
            self._told_of(life, writing)
            return
        life.writing = writing
        life.commit.began(writing.position, self.t)
        rows = [life.packer.packed(record) for record in writing.records]
        most = self.plan.transaction_max
        writing.transactions = [rows[at : at + most] for at in range(0, len(rows), most)]
        if self.fires("snapshot", label):
            writing.snapshot = driver.snapshot(), life.uptime(self.t)
        delay_s = 0.0005 + 0.002 * self.u("fsync", label)
        if self.fires("slow_journal", label):
            delay_s += 5.0 * self.u("slow", label) ** 3
        several = len(writing.transactions) > 1
        if self.fires("kill_syncing", label) or (several and self.fires("torn", label)):
            self.after(delay_s * self.u("in its fsync", label), self._die_if, life, writing, label)
        self.after(delay_s, self._synced, life, writing)

    def _synced(self, life: Life, writing: Writing) -> None:
        """The disk has it: the records may be told of, and a restart would know them."""
        if life.gone:
            return
        if life.frozen:
            life.synced_while_frozen = True
            return
        if self.disk.full and writing.done < len(writing.transactions):
            self.oracle.reached.add("full")
            life.troubled = True
            self.after(DISK_FULL_RETRY_S, self._synced, life, writing)
            return
        try:
            self._sync(life, len(writing.transactions))
        except EpochFenced:
            self.tell("coordinator {} was replaced, and ends", life.number)
            self.oracle.reached.add("fenced")
            self._end(life)
            return
        if writing.label:
            self._may_die(life, "kill_untold", writing.label)
        life.writing, life.troubled = None, False
        self._told_of(life, writing)
        if writing.label:
            self._may_die(life, "kill_told", writing.label)
        self._settle(life)

    def _sync(self, life: Life, count: int) -> None:
        """Has the first ``count`` transactions on disk, and the snapshot, if they are all."""
        writing = life.writing
        assert writing is not None
        while writing.done < count:
            rows = writing.transactions[writing.done]
            life.head = self.disk.append(life.epoch, life.head, rows)
            made = sum(map(len, writing.transactions[: writing.done]))
            writing.done += 1
            for record, row in zip(writing.records[made:], self.disk.rows[-len(rows) :], strict=False):
                kept = unpacked(row.content, row.position)
                compare.packet(record, kept)
                if isinstance(record.event, CoordinatorStarted):
                    compare.hold("4.6", record.event.epoch == row.epoch, f"{record.event} is of {row.epoch}")
                self.shadow.replay(kept.record)
        if writing.snapshot is not None and writing.done == len(writing.transactions):
            life.waiting.append(writing.snapshot)
            writing.snapshot = None
            if self.u("keeps the snapshot", writing.label) >= SNAPSHOT_WAITS:
                self.disk.snapshots += life.waiting
                life.waiting = []

    def _told_of(self, life: Life, writing: Writing) -> None:
        driver, life.idle_s = life.driver, self.t
        life.commit.written(writing.position, self.t)
        if life is self.life and not driver.unsaved and driver.position == self.disk.position:
            compare.live(driver, self.shadow)
        driver.saved(writing.position)
        if life is self.life and self.disk.snapshots:
            driver.let_go(self.disk.snapshots[-1][0].position)
        while driver.announcements.to_sessions:
            self._told(life, writing, *driver.announcements.to_sessions.popleft())
        self._read_feed(life)
        self._hand_out(life, kept=True)
        self._tell_who_asked(life)
        if life is self.life and not driver.unsaved:
            live = self.oracle.live  # one that went on to a human meanwhile needs no ruling any more
            forgotten = {p for p in self.oracle.to_ask if p in live and live[p].phase == "prime"}
            compare.hold("1.8", not forgotten, f"Prime was not asked to rule on {forgotten}")
            compare.hold(
                "3.1", not self.oracle.to_halt, f"these were not told to halt: {self.oracle.to_halt}"
            )
        ready = [act for position, act in life.when_kept if position <= writing.position]
        life.when_kept = [each for each in life.when_kept if each[0] > writing.position]
        for act in ready:
            act()

    def _arm(self, life: Life) -> None:
        at_s = life.time_of(next_deadline(life.driver.state).wake_at(*self._now(life)))
        at_s = min(at_s, life.commit.next_due)
        if at_s >= life.wake_at:
            return
        life.wake_at = at_s
        late_s = 2.9 * self.u("late", at_s) ** 2 if self.fires("late_timer", at_s) else 0.0
        self.at(at_s + late_s, self._wake_if, life, at_s)

    def _wake_if(self, life: Life, at_s: float) -> None:
        if at_s == life.wake_at and not life.gone and not life.frozen:
            self._wake(life)
