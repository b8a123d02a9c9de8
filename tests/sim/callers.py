"""What clients, humans and intruders do in a simulated council, and when. Knows nothing of how it is run."""

from __future__ import annotations

from typing import Any

from tests.sim import compare, people
from tests.sim.plan import Motion, pick
from tests.sim.truth import Said


class Callers:
    """The part of the world that calls the council from outside."""

    # Clients and humans

    def _propose(self, motion: Motion) -> None:
        session = motion.proposer if motion.proposer in self.plan.clients else None
        pen = self.pens[motion.proposer]
        said = people.propose(self, pen, motion)
        self.tell("{} proposes {} ({} s)", motion.proposer, said.pid, motion.budget_s)
        self.to_council(said, link="client", session=session)
        label = said.label
        for n in range(3):
            if self.fires("retry", f"{label}/{n}"):
                in_s = 1.5 * motion.budget_s * self.u("retries", label, n) ** 2
                self.after(in_s, self._say, said, session, f"/retry{n}")
            if self.fires("intrude", f"{label}/{n}"):
                in_s = motion.budget_s * 1.1 * self.u("intrudes at", label, n)
                self.after(in_s, self._intrude, said.pid, f"{label}/intruder{n}")
            if self.fires("unasked", f"{label}/{n}"):
                in_s = motion.budget_s * 1.1 * self.u("unasked at", label, n) ** 2
                self.after(in_s, self._vote_unasked, said.pid, f"{label}/unasked{n}")
        if self.fires("reuse_id", label):
            other = people.propose(self, pen, motion, variant="/other")
            self.after(motion.budget_s * self.u("reuses", label), self._say, other, session, "")
        if self.fires("cancel", label):
            self.after(motion.budget_s * 1.5 * self.u("cancels", label), self._cancel, motion, said.pid)

    def _say(self, said: Said, session: str | None, again: str) -> None:
        self.to_council(said, link="client", session=session, again=again)

    def _cancel(self, motion: Motion, pid: str) -> None:
        who = self.u("who cancels", pid)
        by = motion.proposer if who < 0.7 else "bob" if who < 0.85 else "carol"
        session = by if by in self.plan.clients else None
        facts = {"by_human": by == "carol"}
        said = self.pens[by].info("cancel", pid, f"cancel/{motion.number}", "no more", {}, facts=facts)
        self.to_council(said, link="client", session=session)

    def _intrude(self, pid: str, label: str) -> None:
        said = people.intruding(self, pid, label)
        self.at(self.t + 0.01, self._arrive, said, "ann" if said.sender == "ann" else None, label)

    def _usurp(self, what: str, pid: str, label: str) -> None:
        """Somebody rules or answers on what is another's to rule on or to answer."""
        label = f"{label}/usurper"
        seats = [name for name in self.plan.seats if what == "answer" or name != self.plan.prime]
        if self.fires("intrude", label):
            by = pick((*seats, *self.plan.clients), self.plan.seed, "usurps", label)
            data = {"approve": True} if what == "answer" else {"proposal_id": pid, "ruling": "confirm"}
            said = self.pens[by].info("illegal", pid, label, "", data, word=what)
            in_s = 0.02 * self.u("usurps in", label)
            self.after(in_s, self._arrive, said, by if by in self.plan.clients else None, label)

    def _vote_unasked(self, pid: str, label: str) -> None:
        case = self.oracle.cases.get(pid)
        unasked = [name for name in self.plan.seats if case is None or name not in case.given]
        seat = self.seats[pick(unasked or self.plan.seats, self.plan.seed, "votes unasked", label)]
        self.to_council(seat._ballot(pid, label), link=seat.name)

    def _ask_humans(self, escalation: Any) -> None:
        pid = escalation.proposal_id
        if pid in self.asked_humans:
            return
        self.asked_humans.add(pid)
        self.tell("{} waits for a human: {}", pid, escalation.reason)
        compare.hold("1.9", 2 <= len(escalation.options) <= 3, f"{pid} offers {escalation.options}")
        self._usurp("answer", pid, f"answer/{pid}")
        left_s = escalation.expires_wall_s - self.wall_s
        for human in self.plan.humans:
            label = f"answer/{human}/{pid}"
            if self.u("answers", label) < 0.4:
                continue
            in_s = left_s * 1.2 * self.u("answers in", label)
            if self.u("to the hair", label) < 0.15:
                in_s = self._nudged(self.t + left_s, label) - self.t
            self.after(max(in_s, 0.0), self._answer, human, pid, label)

    # What becomes of it

    def _act_on(self, pid: str) -> None:
        """Whoever proposed it acts, and tells of each step; some tell of what nobody approved, or is not theirs."""
        if pid in self.acted_on:
            return
        self.acted_on.add(pid)
        proposer = self.oracle.cases[pid].said.sender
        if not self.fires("act", pid):
            return
        steps = pick(
            (*(("act", "verify", "revert"),) * 3, ("act",), ("act", "revert"), ("verify", "act")),
            self.plan.seed,
            "steps",
            pid,
        )
        in_s = 0.0
        for n, stage in enumerate((*steps, steps[0])):  # at last of the first one, in other bytes
            label = f"report/{pid}/{n}"
            by = proposer
            if self.fires("intrude", label):
                by = pick((*self.plan.seats, *self.plan.clients), self.plan.seed, "reports", label)
            ok = self.u("goes well", label) < 0.6
            in_s += 3.0 * self.u("acts for", label) ** 2
            self.after(in_s, self._report, by, pid, label, {"proposal_id": pid, "stage": stage, "ok": ok})

    def _report(self, by: str, pid: str, label: str, data: dict[str, Any]) -> None:
        said = self.pens[by].info("report", pid, label, "as it was", data, word="outcome", role="proposer")
        client = by in self.plan.clients
        self.to_council(said, link="client" if client else by, session=by if client else None)

    def _answer(self, human: str, pid: str, label: str) -> None:
        approve = self.u("approves", label) < 0.5
        said = self.pens[human].info("answer", pid, label, "", {"approve": approve})
        self.to_council(said, link="client", session=human)
