"""How the coordinators of a simulated council die, freeze, and are replaced. Knows nothing of what they do alive."""

from __future__ import annotations

from council.core.events import BallotCast, ProposalSubmitted
from tests.sim.life import Killed, Life, Writing
from tests.sim.plan import pick


class Mortality:
    """The part of the world that ends coordinators."""

    def _may_die(self, life: Life, how: str, label: str) -> None:
        if life is self.life and self.fires(how, label):
            self._die(life, f"{how}:{label}")
            raise Killed

    def _kill(self, identity: str) -> None:
        if self.life is not None:
            self._die(self.life, identity)

    def _die(self, life: Life, identity: str) -> None:
        """The coordinator's process is killed; another starts after a while."""
        self.tell("the coordinator dies: {}", identity)
        self.oracle.reached.add("killed")
        if life.commit.lingers:
            lost = [type(record.event) for record in life.driver.unsaved]
            self.oracle.reached.add("lost unwritten")
            if lost.count(ProposalSubmitted) > 1:
                self.oracle.reached.add("proposals lost together")
            if ProposalSubmitted in lost and BallotCast in lost:
                self.oracle.reached.add("lost with its ballots")
        self._sync_some(life, identity)
        self._end(life)
        if self.fires("jump_down", identity):
            self.jumped_s += 400.0 * (self.u("jumps down", identity) - 0.3)
        longest_s = pick((0.05, 1.0, 20.0, 100.0, 400.0), self.plan.seed, "down for", identity)
        self._start(longest_s * self.u("down", identity))

    def _sync_some(self, life: Life, identity: str) -> None:
        """Of what was not synced a prefix is there all the same: none, all, or something in between."""
        writing = life.writing
        if writing is not None and not life.gone and not self.disk.full:
            left = len(writing.transactions) - writing.done
            torn = self.u("torn", identity, life.number, writing.label)
            count = writing.done + int(torn * (left + 1))
            if count == writing.done + left:
                self.oracle.reached.add("kept, and nobody told")
            elif count > writing.done:
                self.oracle.reached.add("torn")
            self._sync(life, count)

    def _end(self, life: Life) -> None:
        life.gone = True
        if life is self.life:
            self.life = None
        elif life in self.others:
            self.others.remove(life)

    def _take_over(self, identity: str) -> None:
        """Another coordinator begins while this one lives: frozen, to thaw later, or in full swing."""
        life = self.life
        if life is None:
            return
        in_s = 10.0 * self.u("takes over", identity) ** 2
        frozen = self.u("freezes", identity) < 0.6
        self.tell(
            "another coordinator takes over in {:.1f} s{}", in_s, "; this one freezes" if frozen else ""
        )
        if frozen:
            life.frozen = True
            self.life = None
            self.others.append(life)
            self.after(in_s + 60.0 * self.u("thaws", identity) ** 2, self._thaw, life)
        self._start(in_s)

    def _thaw(self, life: Life) -> None:
        """It goes on as if no time had passed, and learns from the disk that it was replaced."""
        if life.gone:
            return
        life.frozen = False
        self.tell("coordinator {} thaws", life.number)
        self.oracle.reached.add("thawed")
        for said, session, label in life.inbox:
            if not life.gone:
                self._mislead(life, said, session, label)
        if not life.gone:
            self._wake(life)
        if life.synced_while_frozen and life.writing is not None:
            self._synced(life, life.writing)

    def _die_if(self, life: Life, writing: Writing, label: str) -> None:
        if life is self.life and life.writing is writing:
            self._die(life, f"kill_syncing:{label}")
