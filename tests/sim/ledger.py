"""What model calls may cost, by an own reading of rules 2.6: the oracle's ledger. Shares no code with the core."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.sim.truth import Said, Violation

CALLS_MAX = 100  # of one seat for one proposal


@dataclass(slots=True)
class Ledger:
    """``caps`` are tokens by "proposal", "seat" and "council"; None for no limit."""

    caps: dict[str, int | None]
    open: dict[str, tuple[str, str, int]] = field(default_factory=dict)  # by id: proposal, seat, worst
    asked: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    spent: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    dearest: Counter[str] = field(default_factory=Counter)  # of the calls for a proposal

    def used(self, scope: str, name: str) -> int:
        held = sum(
            worst for pid, seat, worst in self.open.values() if name in (pid, seat) or scope == "council"
        )
        return held + self.spent[scope, name]

    def left(self, scope: str, name: str) -> int | None:
        most = self.caps[scope]
        return None if most is None else max(most - self.used(scope, name), 0)

    def asks(self, said: Said, *, waits: bool, keeps_for: set[str]) -> str:
        """A call is reserved or denied; ``waits`` says whether the proposal waits for a human.

        It must leave as much as the dearest call on the proposal for each ballot of the seats in ``keeps_for``.
        """
        pid, seat, worst = said.pid, said.sender, said.facts["tokens"]
        asked = self.asked.setdefault((pid, seat), set())
        if said.msg_id in self.open:
            return "retry"
        if said.msg_id in asked or waits or len(asked) >= CALLS_MAX:
            return "taken"
        asked.add(said.msg_id)
        kept = max(worst, self.dearest[pid])
        own = keeps_for & {seat}
        fits = all(
            (most := self.caps[scope]) is None or self.used(scope, name) + worst + kept * len(whose) <= most
            for scope, name, whose in (
                ("proposal", pid, keeps_for),
                ("seat", seat, own),
                ("council", "", keeps_for),
            )
        )
        if fits:
            self.dearest[pid] = kept
            self.open[said.msg_id] = pid, seat, worst
            self.calls[seat] += 1
        return "taken"

    def settles(self, said: Said) -> str:
        call = said.facts["call"]
        if self.open.get(call, ())[:2] != (said.pid, said.sender):
            return "noted"
        self._end(call, said.facts["tokens"])
        return "taken"

    def abandon(self, seat: str | None = None) -> None:
        """Nobody will tell what the calls of a seat, or of all, came to."""
        for call, (_, whose, _) in list(self.open.items()):
            if seat in (None, whose):
                self._end(call, None)

    def _end(self, call: str, tokens: int | None) -> None:
        pid, seat, worst = self.open.pop(call)
        for scope in (("proposal", pid), ("seat", seat), ("council", "")):
            self.spent[scope] += worst if tokens is None else tokens

    def compare(self, council: Any) -> None:
        """The council's own books say the same, and no cap is passed by one token."""
        theirs = {
            name: (each.call.proposal_id, each.call.seat, each.call.worst.tokens)
            for name, each in council.calls.items()
        }
        if theirs != self.open:
            raise Violation("2.6", f"calls under way are {theirs}, granted and not settled are {self.open}")
        for seat, account in council.paid.items():
            books = account.spent.tokens, account.spent.tokens + account.held.tokens, account.calls
            ours = self.spent["seat", seat], self.used("seat", seat), self.calls[seat]
            if books != ours:
                raise Violation("2.6", f"{seat} has spent, used and called {books}, the truth is {ours}")
        for scope, names in (("seat", council.paid), ("council", [""])):
            most = self.caps[scope]
            for name in names:
                if most is not None and self.used(scope, name) > most:
                    raise Violation("2.6", f"{scope} {name} used {self.used(scope, name)} of {most} tokens")

    def tells(self, decision: Any) -> None:
        """What a decision says that it cost."""
        told = sum(account.spent.tokens for account in decision.spent)
        wanted = self.spent["proposal", decision.proposal_id]
        if told != wanted:
            raise Violation("2.6", f"{decision.proposal_id} says that it cost {told}, it was {wanted}")
