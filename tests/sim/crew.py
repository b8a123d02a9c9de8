"""Executors that compete for the tokens of a simulated council, and checks of what they run.

Several processes of one executor compete for each token. A process runs the action after it gets the answer that its
use is counted, and only the process that asked gets that answer. Some end before they report.
"""

from __future__ import annotations

from typing import Any

from council.protocol.packet import args_digest
from council.runtime.messages import Acknowledged
from tests.sim import compare, people
from tests.sim.plan import pick
from tests.sim.truth import Said

RACERS = 8
NAME = "crew"


class Crew:
    """The part of the world that runs what is approved."""

    raced: set[str]
    ran: dict[str, set[str]]

    def _race(self: Any, token: Any) -> None:
        """The council has announced a token: every process asks for uses of it, more than it allows."""
        pid = token.proposal_id
        if pid in self.raced:
            return
        self.raced.add(pid)
        for n in range(RACERS):
            for again in range(2):
                label = f"use/{pid}/{n}/{again}"
                self.after(20.0 * self.u("asks", label) ** 3, self._ask_use, token, n, label)

    def _ask_use(self: Any, token: Any, n: int, label: str) -> None:
        terms, seed = token.terms, self.plan.seed
        wrong = self.fires("intrude", label)
        what = (
            pick(("arguments", "tool", "operations", "resources", "token"), seed, "differs", label)
            if wrong
            else ""
        )
        data = {
            "run": f"run {n}",
            "token": token.token_id,
            "tool": token.tool,
            "operations": terms.operations,
            "resources": terms.resources,
            "arguments": terms.digest,
        }
        if what:
            data[what] = ("delete",) if what in ("operations", "resources") else args_digest({"n": "another"})
        said = self.pens[NAME].info("use", token.proposal_id, label, "", data, facts={"wrong": what})
        self.to_council(said, link="client", session=f"{NAME} {n}")

    def _granted(self: Any, said: Said, session: str) -> None:
        """The process that asked gets the answer that its use is counted, and runs the action."""
        token = self.shadow.state.governance.tokens[said.pid]
        counted = {use.use_id for use in token.uses}
        ran = self.ran.setdefault(said.pid, set())
        compare.hold("4.6", said.msg_id in counted, f"{said.label} runs, and its use is not in the journal")
        compare.hold("5", said.msg_id not in ran, f"{said.label} runs twice")
        compare.hold("5", not said.facts["wrong"], f"{said.label} runs with other {said.facts['wrong']}")
        ran.add(said.msg_id)
        compare.hold("5", len(ran) <= token.terms.uses, f"{token.token_id} ran {len(ran)} times")
        self.oracle.reached.add("ran")
        if not self.fires("hang", said.label):
            self.after(
                2 * token.terms.timeout_s * self.u("runs for", said.label) ** 2,
                self._report_use,
                said,
                session,
            )

    def _report_use(self: Any, said: Said, session: str) -> None:
        outcome = pick(("ok", "ok", "failed", "cancelled"), self.plan.seed, "comes to", said.label)
        data = {"use": said.msg_id, "outcome": outcome}
        told = self.pens[NAME].info("result", said.pid, f"{said.label}/result", "as it was", data)
        self.to_council(told, link="client", session=session)

    def _heard_of(self: Any, said: Said, session: str, message: Any) -> bool:
        """Whether an answer is to the crew."""
        if said.sender != NAME:
            return False
        if said.kind == "use" and isinstance(message, Acknowledged):
            self._granted(said, session)
        return True


def pen_of(world: Any) -> people.Pen:
    return people.Pen(world, NAME, "executor", world.keys[NAME])
