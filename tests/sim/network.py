"""How envelopes travel in a simulated council, and what befalls them. Knows nothing of what is in them."""

from __future__ import annotations

import math
import re
from typing import Any

from council.agents.messaging import seat_messages
from council.protocol import signing
from council.runtime.messages import reference
from tests.sim import compare, people
from tests.sim.plan import history_of, pick
from tests.sim.truth import Said


class Network:
    """The part of the world that carries envelopes."""

    def to_council(self, said: Said, *, link: str, session: str | None = None, again: str = "") -> None:
        """Carries an envelope to the coordinator, as well as the seed's network can."""
        label = said.label + again
        if session is not None:
            self.unanswered[(session, reference(said.sealed))] = said
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
            if self.life is not None and self.fires("aim_beat", label):
                silent_s = self.life.time_of(self.oracle.roll[said.sender].heard_s + 90.0)
                self._muted[said.sender] = arrives_s = max(self._nudged(silent_s, label), self.t)
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
        if self.life is None or case is None or case.phase == "human":
            return None
        until_s = self.life.time_of(case.until_s)
        return self._nudged(until_s, label) if until_s > self.t else None

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

    def _hand_out(self, life: Any, *, kept: bool) -> None:
        """Carries all that the driver has for seats; ``kept``: it waited for the record of what it speaks of."""
        for letters_ in (life.driver.outbox.to_seats, life.driver.outbox.perishable):
            while letters_:
                self._to_seat(life, *letters_.popleft(), kept=kept)

    def _to_seat(self, life: Any, name: str, payload: bytes, *, kept: bool) -> None:
        sealed = signing.seal_to(payload, self.keys[name], self.council_id, name)
        self._sent[sealed] += 1
        label = f"to/{name}/{reference(sealed)}/{self._sent[sealed]}"
        envelope, about, _ = self.read(payload)
        ruling = envelope.type != "PROPOSAL" and envelope.content.kind == "ruling_request"
        if life is self.life:
            if envelope.type == "PROPOSAL":
                self._check_proposal(name, envelope)
                self.oracle.to_hand.discard((name, envelope.msg_id))
            elif ruling:
                self.oracle.to_ask.discard(envelope.parent_id)
        if envelope.type != "PROPOSAL" and envelope.content.kind in ("granted", "denied"):
            compare.hold("2.6", kept, f"{name} is told {envelope.content.kind} before that is kept")
        if envelope.type != "PROPOSAL" and envelope.content.kind in ("stream", "interrupt"):
            self._check_observing(life, name, envelope, kept)
        if ruling:
            compare.hold("1.8", about is not None, "Prime is asked to rule on what it is not shown")
            self._check_request(name, envelope.parent_id, envelope.content.data, kept)
            self._usurp("ruling", envelope.parent_id, label)
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
        state = self.shadow.state
        closed = state.closed.get(pid)  # it may have been taken back in the same breath
        stands: Any = state.open.get(pid) or (closed and closed.decision)
        in_journal = {b.seat for b in stands.ballots} if stands is not None else set()
        shown = {ballot["seat"] for ballot in data["ballots"]}
        compare.hold("1.14", shown <= in_journal, f"Prime is shown {shown}, kept are {in_journal}")

    def _check_proposal(self, name: str, envelope: Any) -> None:
        """A seat is shown what came before a proposal as it was given, whatever happened to the council since."""
        number = re.match(r"motion (\d+)", envelope.content.summary)
        if number is not None:
            given = history_of(self.plan.seed, int(number[1]))
            shown = [(turn.role, turn.text) for turn in envelope.content.history]
            compare.hold(
                "1.2", shown == given, f"{name} is shown another history of {envelope.msg_id}: {shown}"
            )

    def _check_observing(self, life: Any, name: str, envelope: Any, kept: bool) -> None:
        """Only what a mind said is overheard, by the observer alone; halts are told once they are kept."""
        content, pid, oracle = envelope.content, envelope.parent_id, self.oracle
        if content.kind == "interrupt":
            compare.hold("4.7", kept, f"{name} is told to halt before the record of that is kept")
            halt = name, pid, content.data["round"]
            compare.hold(
                "3.1", life is not self.life or halt in oracle.halts, f"nobody called a halt to {halt}"
            )
            oracle.to_halt.discard(halt)
            return
        speaker = content.data["seat"]
        compare.hold("1.14", name == self.plan.observer, f"{name} overhears {speaker}, and is no observer")
        compare.hold("1.8", speaker != name, f"{name} observes its own stream")
        said = content.text in self.spoken.get((speaker, pid), ())
        compare.hold("1.14", said, f"{content.text!r} is no piece of what {speaker} said")
        if life is self.life:
            compare.hold("3.1", content.text in oracle.to_relay, f"{content.text} should come to nothing")
            oracle.to_relay.discard(content.text)

    def read(self, payload: bytes) -> seat_messages.Letter:
        """The letter in these bytes; each proposal goes to many seats and is read once."""
        letter = self._read.get(payload)
        if letter is None:
            letter = self._read[payload] = seat_messages.read(payload)
        return letter

    def _reach(self, name: str, sealed: bytes) -> None:
        seat = self.seats[name]
        if seat.alive:
            seat.receive(sealed)
