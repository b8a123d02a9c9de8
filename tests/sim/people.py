"""Who speaks in a simulated council: seats that promise what agents/seat/host.py does, clients, humans, intruders.

They write real envelopes and sign them with real keys. They know the world's time only through their own
skewed clocks, and nothing of what the council makes of their words.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from council.protocol import codec, signing
from council.protocol.envelope import Envelope, Info, Proposal
from tests.sim.plan import Motion, history_of, name_of, pick, unit
from tests.sim.truth import Said

if TYPE_CHECKING:
    from tests.sim.world import World

BEAT_S, JITTER = 30.0, 0.1
# What an unreadable ballot claims as its confidence; the bytes stand in the place of these.
PLACEHOLDER = 0.123456789


class Pen:
    """Writes one speaker's envelopes. ``skew_s`` is how far its wall clock is off."""

    def __init__(self, world: World, name: str, role: str, key: bytes, skew_s: float = 0.0) -> None:
        self.world, self.name, self.role, self.key, self.skew_s = world, name, role, key, skew_s

    def write(self, kind: str, pid: str, label: str, type_: str, content: Any, **more: Any) -> Said:
        facts = more.pop("facts", {})
        garbled = more.pop("garbled", False)
        council_id = more.pop("council_id", self.world.council_id)
        key = more.pop("key", self.key)
        msg_id = more.pop("msg_id", None) or name_of(self.world.plan.seed, "msg", label)
        confidence = more.pop("confidence", 1.0)
        if garbled:
            confidence = PLACEHOLDER
        risk = more.pop("risk_level", "low")
        envelope = Envelope.build(
            msg_id=msg_id,
            timestamp=datetime.fromtimestamp(self.world.wall_s, UTC) + timedelta(seconds=self.skew_s),
            sender=more.pop("sender", self.name),
            role=more.pop("role", self.role),
            type=type_,
            confidence=confidence,
            risk_level=risk,
            content=content,
            **more,
        )
        payload = codec.encode(envelope)
        if garbled:  # a confidence of 7.5, which no valid envelope can hold
            payload = payload.replace(struct.pack(">d", PLACEHOLDER), struct.pack(">d", 7.5))
        sealed = signing.seal(payload, sender_key=key, council_id=council_id)
        facts = {"msg_id": msg_id, "confidence": confidence, "risk": risk, **facts}
        return Said(kind, self.name, pid, sealed, label, facts)

    def info(self, kind: str, pid: str, label: str, text: str, data: dict[str, Any], **more: Any) -> Said:
        facts = {**data, **more.pop("facts", {})}
        word = more.pop("word", kind)
        content = {"kind": word, "text": text, "data": data}
        return self.write(kind, pid, label, "INFO", content, parent_id=pid or None, facts=facts, **more)


class Seat:
    """One life of a seat's process. A crash begins another, which remembers nothing."""

    def __init__(self, world: World, name: str, key: bytes, life: int) -> None:
        skew = world.plan.rates.get("skew", 0.0)
        seed = world.plan.seed
        self.world, self.name, self.life = world, name, life
        self.rate = 1.0 + 0.2 * skew * (unit(seed, "rate of", name) - 0.5)
        off_s = 1e6 * skew * (unit(seed, "wall of", name) - 0.5)
        self.pen = Pen(world, name, "voter", key, off_s)
        self.alive = True
        self.attendance = 0
        self.said: dict[tuple[str, str], Said] = {}
        self.work: dict[tuple[str, str], int] = {}
        self.calls: dict[str, tuple[tuple[str, str], int, str]] = {}  # asked for: work, its token, label
        self.worst: dict[str, int] = {}
        self.halts: dict[str, int] = {}
        self.made: dict[str, tuple[str, str]] = {}  # granted, and not settled: proposal, label
        self.tries = 0

    def after(self, delay_s: float, act: Any, *args: Any) -> None:
        """In ``delay_s`` of this seat's own clock, if it still lives."""
        self.world.after(delay_s / self.rate, self._if_alive, act, args)

    def _if_alive(self, act: Any, args: tuple[Any, ...]) -> None:
        if self.alive:
            act(*args)

    # Heartbeats

    def attend(self, run: int, by: int) -> None:
        """Beats from now on as this run, for the coordinator of that number."""
        self.attendance += 1
        self._beat(self.attendance, run, by, 0)

    def _beat(self, attendance: int, run: int, by: int, number: int) -> None:
        if attendance != self.attendance:
            return
        label = f"beat/{self.name}/{run}/{self.life}/{attendance}/{number}"
        content = {"beat": number, "busy_with": None, "uptime_s": self.world.t}
        said = self.pen.write(
            "beat",
            "",
            label,
            "HEARTBEAT",
            content,
            role="observer",
            parent_id=f"{run:08x}",
            facts={"run": run, "number": number, "by": by, "sign": (self.life, attendance, number)},
        )
        self.world.to_council(said, link=self.name)
        wait_s = BEAT_S * (1 - JITTER * unit(self.world.plan.seed, "beat after", label))
        self.after(wait_s, self._beat, attendance, run, by, number + 1)

    # What arrives

    def receive(self, sealed: bytes) -> None:
        payload = signing.open_to(sealed, self.pen.key, self.world.council_id, self.name)
        envelope, _, left_s = self.world.read(payload)
        content = envelope.content
        pid = envelope.parent_id or ""
        if isinstance(content, Proposal):
            self._begin(envelope.msg_id, "ballot", left_s)
        elif isinstance(content, Info) and content.kind == "ruling_request":
            self._begin(pid, "ruling", left_s)
        elif isinstance(content, Info) and content.kind == "ask_again":
            self.said.pop((pid, "ballot"), None)
            self._begin(pid, "ballot", left_s)
        elif isinstance(content, Info) and content.kind == "withdraw":
            for task in ("ballot", "ruling"):
                self.work.pop((pid, task), None)
            for call in [call for call, (what, _) in self.made.items() if what == pid]:
                self._settle(call)
        elif isinstance(content, Info) and content.kind in ("granted", "denied"):
            self._answered(pid, content.data["call"], granted=content.kind == "granted")
        elif isinstance(content, Info) and content.kind == "stream":
            self._overhear(pid, content.text, content.data)
        elif isinstance(content, Info) and content.kind == "interrupt" and (pid, "ballot") in self.work:
            self.world.oracle.reached.add("halted")
            self.halts[pid] = self.halts.get(pid, 0) + 1
            if self.halts[pid] <= 3:  # it begins anew, and listens no more after that
                self._think_aloud(pid, f"anew/{self.name}/{pid}/{self.life}/{self.halts[pid]}", 10.0)

    def _begin(self, pid: str, task: str, budget_s: float) -> None:
        world, key = self.world, (pid, task)
        if key in self.said:  # asked again after a lost reply: the same bytes
            self.tries += 1
            world.to_council(self.said[key], link=self.name, again=f"/again{self.tries}")
            return
        if key in self.work:
            return
        self.tries += 1
        token = self.work[key] = self.tries
        label = f"{task}/{self.name}/{pid}/{self.life}/{self.tries}"
        self.after(budget_s, self._out_of_time, key, token, label, budget_s)
        if world.fires("hang", label):
            return
        if world.fires("spend", label):
            self._ask(key, token, label)
        else:
            self.after(self._thinking_s(label, budget_s), self._speak, key, token, label)
        if task == "ballot":
            self._other_acts(pid, label, budget_s)

    # Model calls

    def _ask(self, key: tuple[str, str], token: int, label: str) -> None:
        """Asks for a call, and once more after a while, in the same bytes."""
        worst = 1 + int(1_000 * self.world.u("worst", label))
        scope = pick(("proposal", "seat", "council"), self.world.plan.seed, "aims at", label)
        left = self.world.oracle.ledger.left(scope, {"proposal": key[0], "seat": self.name}.get(scope, ""))
        if left is not None and self.world.fires("aim_call", label):  # to the last token, or one more
            worst = max(1, left + pick((0, 0, 1), self.world.plan.seed, "aimed", label))
        data = {"proposal_id": key[0], "task": key[1], "model": "small-1", "tokens": worst, "microusd": 0}
        said = self.pen.info("reservation", key[0], f"{label}/call", "", data, word="reserve")
        self.calls[said.msg_id] = key, token, label
        self.worst[said.msg_id] = worst
        self.world.to_council(said, link=self.name)
        self.after(5.0, self._ask_again, said)

    def _ask_again(self, said: Said) -> None:
        if said.msg_id in self.calls:
            self.world.to_council(said, link=self.name, again="/again")

    def _answered(self, pid: str, call: str, *, granted: bool) -> None:
        if call not in self.calls:
            return  # it was answered before, or asked by an earlier life
        key, token, label = self.calls.pop(call)
        if not granted:
            if self.work.get(key) == token:
                del self.work[key]
                self._fault(key, label, "its call was denied")
            return
        self.made[call] = pid, label
        if self.work.get(key) != token:
            self._settle(call, tokens=0)  # nobody waits for it any more
            return
        wait_s = self._thinking_s(label, 20.0)
        self.after(wait_s, self._settle, call)
        self.after(wait_s, self._speak, key, token, label)

    def _settle(self, call: str, tokens: int | None = None) -> None:
        if call not in self.made:
            return
        pid, label = self.made.pop(call)
        self.tries += 1
        if tokens is None and not self.world.fires("unknown_usage", label):
            tokens = int(self.worst.get(call, 0) * self.world.u("used", label))
        data = {"proposal_id": pid, "call": call, "tokens": tokens, "microusd": 0}
        said = self.pen.info("settlement", pid, f"{label}/settled{self.tries}", "", data, word="settle")
        self.world.to_council(said, link=self.name)

    def _thinking_s(self, label: str, budget_s: float) -> float:
        seed = self.world.plan.seed
        if unit(seed, "slow", label) < 0.25:
            return budget_s * (0.5 + 0.7 * unit(seed, "how slow", label))
        return min(budget_s, 20.0) * float(unit(seed, "think", label)) ** 3

    def _speak(self, key: tuple[str, str], token: int, label: str) -> None:
        if self.work.get(key) != token:
            return
        del self.work[key]
        pid, task = key
        if self.world.fires("nonsense", label):
            self._fault(key, label, "its mind returned nonsense")
            return
        said = self._ballot(pid, label) if task == "ballot" else self._ruling(pid, label)
        self.said[key] = said
        self.world.to_council(said, link=self.name)
        if task == "ballot" and self.world.fires("two_faced", label):
            second = self._ballot(pid, f"{label}/second", other_than=said.facts.get("vote", "yes"))
            self.world.to_council(second, link=self.name)

    def _out_of_time(self, key: tuple[str, str], token: int, label: str, limit_s: float) -> None:
        if self.work.get(key) == token:
            del self.work[key]
            self._fault(key, label, f"its mind did not answer within {limit_s:g} s")

    def _fault(self, key: tuple[str, str], label: str, why: str) -> None:
        pid, task = key
        said = self.pen.info("fault", pid, f"{label}/fault", why, {"proposal_id": pid, "task": task})
        self.said[key] = said
        self.world.to_council(said, link=self.name)

    # What it says

    def _ballot(self, pid: str, label: str, *, other_than: str = "") -> Said:
        world, seed = self.world, self.world.plan.seed
        lean = pick((0.05, 0.5, 0.5, 0.95), seed, "lean", pid)
        vote = "yes" if unit(seed, "vote", label) < lean else "no"
        if unit(seed, "abstains", label) < 0.12:
            vote = "abstain"
        if vote == other_than:
            vote = "no" if vote == "yes" else "yes"
        doubtful = world.fires("doubt", label)
        confidence = pick((0.0, 1e-7, 0.2999999, 0.3, 0.31), seed, "doubt", label) if doubtful else 0.8
        risk = "high" if world.fires("risk", label) else pick(("low",) * 4 + ("med",), seed, "sees", label)
        gate = world.fires("gate", label)
        packet = {"safety_gates": {"requires_user_approval": True}} if gate else None
        garbled = not other_than and world.fires("garble", label)
        return self.pen.write(
            "unreadable" if garbled else "vote",
            pid,
            label,
            "VOTE",
            {"proposal_id": pid, "vote": vote, "reason": f"as {label}", "control_packet": packet},
            parent_id=pid,
            confidence=confidence,
            risk_level=risk,
            garbled=garbled,
            facts={"vote": vote, "gate": gate},
        )

    def _ruling(self, pid: str, label: str) -> Said:
        seed = self.world.plan.seed
        word = pick(("confirm", "confirm", "confirm", "reject", "human"), seed, "rules", label)
        confidence = pick((0.9, 0.9, 0.9, 0.3, 0.2999999), seed, "sure", label)
        data = {"proposal_id": pid, "ruling": word}
        return self.pen.info(
            "ruling", pid, label, "so be it", data, confidence=confidence, facts={"word": word}
        )

    def _other_acts(self, pid: str, label: str, budget_s: float) -> None:
        """Observations of others' streams, and calls for Prime."""
        world, seed = self.world, self.world.plan.seed
        others = [name for name in world.plan.seats if name != self.name]
        if others and world.fires("observe" if self.name == world.plan.observer else "intrude", label):
            stream = pick(others, seed, "watches", pid)
            for n in range(4):
                at_s = min(budget_s, 10.0) * float(unit(seed, "observes", label, n)) ** 2
                halt = unit(seed, "halts", label, n) < 0.7
                data = {"stream": stream, "interrupt": halt}
                self.after(at_s, self._observe, pid, f"{label}/observation{n}", data)
        if world.fires("speak", label):
            self._think_aloud(pid, label, budget_s)
        if world.fires("escalate", label):
            self.after(budget_s * unit(seed, "calls", label), self._escalate, pid, f"{label}/escalation")

    def _think_aloud(self, pid: str, label: str, budget_s: float) -> None:
        """What it says while it thinks, for whoever observes; it goes on when its ballot is cast."""
        number = 10 * self.life + self.halts.get(pid, 0)
        for n in range(3):
            at_s = min(budget_s, 5.0) * float(unit(self.world.plan.seed, "says", label, n))
            self.after(at_s, self._say, pid, f"{label}/piece{n}", {"round": number, "at": n, "whole": n == 2})

    def _say(self, pid: str, text: str, data: dict[str, Any]) -> None:
        self.world.spoken.setdefault((self.name, pid), set()).add(text)
        facts = {"text": text}
        said = self.pen.info("piece", pid, text, text, {"stage": "plan", **data}, word="stream", facts=facts)
        self.world.to_council(said, link=self.name)

    def _overhear(self, pid: str, text: str, data: Any) -> None:
        if self.world.fires("speak", f"overhears {text}"):
            halt = unit(self.world.plan.seed, "halts", text) < 0.7
            told = {name: data[name] for name in ("stage", "round", "whole")}
            told |= {"stream": data["seat"], "interrupt": halt}
            self.tries += 1
            label = f"{text}/overheard{self.tries}/{self.life}"
            if self.world.fires("spend", label):
                self._ask((pid, "observe"), 0, label)
            self.after(0.5, self._observe, pid, label, told)

    def _observe(self, pid: str, label: str, data: dict[str, Any]) -> None:
        self.world.to_council(self.pen.info("observation", pid, label, "seen", data), link=self.name)

    def _escalate(self, pid: str, label: str) -> None:
        content = {"proposal_id": pid, "reason": "I would rather Prime saw this"}
        said = self.pen.write("escalation", pid, label, "ESCALATION", content, parent_id=pid)
        self.world.to_council(said, link=self.name)


def propose(world: World, pen: Pen, motion: Motion, *, variant: str = "") -> Said:
    """The sealed proposal of a motion; the same bytes each time, but for another ``variant``."""
    seed = world.plan.seed
    pid = name_of(seed, "motion", motion.number)
    old = name_of(seed, "motion", motion.supersedes) if motion.supersedes is not None else None
    return pen.write(
        "proposal",
        pid,
        f"propose/{motion.number}{variant}",
        "PROPOSAL",
        {
            "summary": f"motion {motion.number}{variant}",
            "time_budget_s": motion.budget_s,
            "wait_for": motion.wait_for,
            "supersedes": old,
            "history": [{"role": role, "text": text} for role, text in history_of(seed, motion.number)],
            "action": _action(world, motion.number),
        },
        role="proposer",
        msg_id=pid,
        confidence=motion.confidence,
        risk_level=motion.risk,
        facts={"budget": motion.budget_s, "wait_for": motion.wait_for, "supersedes": old},
    )


def _action(world: World, number: int) -> dict[str, Any] | None:
    """What a motion asks the crew to run, for some motions of some seeds."""
    seed = world.plan.seed
    if unit(seed, "governed", number) >= world.plan.rates.get("govern", 0.0):
        return None
    allows = {
        "executor": "crew",
        "operations": ["write"],
        "resources": ["file:/srv/x"],
        "uses": 1 + int(3 * unit(seed, "uses", number)),
        "ttl_s": 1.0 + 300.0 * unit(seed, "ttl of", number),
        "timeout_s": 0.5 + 30.0 * unit(seed, "timeout of", number),
    }
    return {"tool": "write", "args": {"n": number}, "authorization": allows}


def forged(world: World, said: Said, label: str) -> Said:
    """Something that passes for ``said`` and is not its sender's word."""
    seed, sealed = world.plan.seed, said.sealed
    how = pick(("payload", "signature", "key", "council", "cut", "noise", "reflected"), seed, "forges", label)
    payload = signing.payload_of(sealed)
    if how == "payload":
        at = 32 + int(unit(seed, "where", label) * len(payload))
        sealed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
    elif how == "signature":
        sealed = bytes([sealed[0] ^ 1]) + sealed[1:]
    elif how == "key":
        sealed = signing.seal(payload, sender_key=world.keys["mallory"], council_id=world.council_id)
    elif how == "council":
        sealed = signing.seal(payload, sender_key=world.keys[said.sender], council_id="another")
    elif how == "cut":
        sealed = sealed[: int(unit(seed, "where", label) * len(sealed))]
    elif how == "noise":
        sealed = bytes(int(256 * unit(seed, "noise", label, n)) for n in range(60))
    else:  # what the council said to the seat, sent back as its own word
        sealed = signing.seal_to(payload, world.keys[said.sender], world.council_id, said.sender)
    return Said("forged", said.sender, said.pid, sealed, f"{label}/{how}")


def intruding(world: World, pid: str, label: str) -> Said:
    """Authentic words that are not their sender's to say (rules 1.1, 1.8, 1.14)."""
    seed = world.plan.seed
    ann, carol = world.pens["ann"], world.pens["carol"]
    other = next((name for name in world.plan.seats if name != world.plan.prime), None)
    prime = world.pens[world.plan.prime]
    vote = {"proposal_id": pid, "vote": "yes", "reason": "let me in"}
    acts = [
        lambda: ann.write("illegal", pid, label, "VOTE", vote, parent_id=pid),
        lambda: ann.write("illegal", pid, label, "VOTE", vote, parent_id=pid, role="voter"),
        lambda: ann.info("illegal", pid, label, "", {"approve": True}, word="answer"),
        lambda: ann.info("illegal", pid, label, "", {"ruling": "confirm"}, word="ruling"),
        lambda: ann.write("illegal", pid, label, "ESCALATION", {"proposal_id": pid, "reason": ""}),
        lambda: ann.write("illegal", "", label, "HEARTBEAT", {"beat": 10**6, "uptime_s": 1.0}),
        lambda: carol.write("illegal", pid, label, "VOTE", vote, parent_id=pid),
        lambda: carol.write("illegal", "", label, "PROPOSAL", {"summary": "mine"}, role="proposer"),
        lambda: carol.write("illegal", "", label, "PROPOSAL", {"summary": "mine"}),
        lambda: ann.write("illegal", "", label, "PROPOSAL", {"summary": "ours"}, role="human"),
        lambda: ann.info("illegal", pid, label, "I plan to", {"stage": "plan", "round": 1}, word="stream"),
        lambda: prime.info("illegal", pid, label, "", {"approve": True}, word="answer"),
        lambda: prime.info("illegal", pid, label, "", {"ruling": "perhaps"}, word="ruling"),
        lambda: prime.info(
            "illegal", pid, label, "", {"stream": "prime", "interrupt": True}, word="observation"
        ),
        lambda: prime.info("illegal", pid, label, "", {}, word="a word of my own"),
        lambda: prime.write(
            "illegal", "", label, "HEARTBEAT", {"beat": 1, "uptime_s": 1.0}, parent_id="0000ffff"
        ),
    ]
    if other is not None:
        data = {"proposal_id": pid, "ruling": "confirm"}
        acts += [lambda: world.pens[other].info("illegal", pid, label, "", data, word="ruling")] * 3
    return pick(acts, seed, "intrudes", label)()
