"""What one seed means: the council, its proposals and the faults that befall it. Knows nothing of how it goes.

Every choice is a hash of the seed and of what is chosen, never the next number of a generator: taking one
fault or proposal away leaves all others as they were, which is what makes shrinking work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")

# Each seed has its own subset, each with a rate of its own. Rates are per message or per piece of work.
FAULTS = {
    "loss": 0.25,
    "duplicate": 0.3,
    "jitter": 0.5,
    "delay": 0.15,
    "partition": 1.0,
    "crash": 1.0,
    "false_death": 1.0,
    "zombie": 0.6,
    "hang": 0.25,
    "nonsense": 0.2,
    "garble": 0.2,
    "forge": 0.3,
    "alter": 0.1,
    "replay": 0.2,
    "intrude": 0.6,
    "two_faced": 0.25,
    "unasked": 0.3,
    "skew": 1.0,
    "wall_jump": 1.0,
    "late_timer": 0.5,
    "slow_journal": 0.6,
    "aim_vote": 0.5,
    "aim_beat": 0.1,
    "retry": 0.6,
    "reuse_id": 0.3,
    "cancel": 0.3,
    "supersede": 0.4,
    "observe": 0.8,
    "speak": 0.8,
    "escalate": 0.2,
    "doubt": 0.25,
    "risk": 0.25,
    "gate": 0.15,
    "poll": 0.5,
    "kill": 1.0,
    "kill_stepped": 0.05,
    "kill_unwritten": 0.05,
    "kill_syncing": 0.08,
    "kill_untold": 0.08,
    "kill_told": 0.05,
    "kill_recovering": 0.6,
    "takeover": 1.0,
    "misled": 0.6,
    "jump_down": 0.6,
    "disk_full": 1.0,
    "torn": 0.6,
    "snapshot": 0.4,
    "snapshot_lost": 0.6,
    "spend": 0.4,
    "unknown_usage": 0.4,
    "aim_call": 0.8,
    "tight": 0.8,
    "act": 1.0,
    "govern": 1.0,
}
BUDGETS = (0.5, 2.0, 10.0, 30.0, 60.0, 60.0, 60.0, 90.0, 120.0, 250.0)


def unit(seed: int, *about: object) -> float:
    """A number in 0..1 that belongs to ``about`` under this seed."""
    text = "|".join(map(str, about))
    found = blake2b(text.encode(), digest_size=7, key=seed.to_bytes(8, "big")).digest()
    return int.from_bytes(found, "big") / 2**56


def pick(choices: Sequence[T], seed: int, *about: object) -> T:
    return choices[int(unit(seed, *about) * len(choices))]


def name_of(seed: int, *about: object, digits: int = 16) -> str:
    """An id, in hex, that belongs to ``about`` under this seed."""
    text = "|".join(map(str, about))
    return blake2b(text.encode(), digest_size=digits // 2, key=seed.to_bytes(8, "big")).hexdigest()


def history_of(seed: int, *about: object) -> list[tuple[str, str]]:
    """What was said and done before something was proposed: for most nothing, else turns that look like votes."""
    turns = int(5 * unit(seed, "turns before", *about)) - 2
    return [(pick(("user", "tool"), seed, "who", n, *about), f"VOTE: no\nturn {n}") for n in range(turns)]


@dataclass(frozen=True, slots=True)
class Motion:
    """One proposal that will be made; ``at_s`` is seconds after the launch."""

    number: int
    at_s: float
    proposer: str
    budget_s: float
    wait_for: str
    confidence: float
    risk: str
    supersedes: int | None


@dataclass(slots=True)
class Plan:
    seed: int
    seats: tuple[str, ...]
    prime: str
    quorum: int
    sole_seat: str
    ttl_s: float
    open_max: int
    escalations_max: int
    calm_s: float
    rates: dict[str, float]
    motions: list[Motion]
    clients: tuple[str, ...] = ("ann", "bob")
    humans: tuple[str, ...] = ("carol", "dave")
    # (identity, seat, from, to) for stretches; crashes are silent until their detection
    partitions: list[tuple[str, str, float, float]] = field(default_factory=list)
    crashes: list[tuple[str, str, float, float, float]] = field(default_factory=list)
    false_deaths: list[tuple[str, str, float]] = field(default_factory=list)
    wall_jumps: list[tuple[str, float, float]] = field(default_factory=list)
    # deaths of the coordinator at a moment; others come where they hurt most (see coordinators.py)
    kills: list[tuple[str, float]] = field(default_factory=list)
    takeovers: list[tuple[str, float]] = field(default_factory=list)
    full: list[tuple[str, float, float]] = field(default_factory=list)
    transaction_max: int = 128
    linger_s: float = 0.0  # of what the journals say of themselves; 0: nothing is put off
    observer: str = ""
    # rules 2.6: tokens by scope; a call costs up to 1,000
    caps: dict[str, int | None] = field(default_factory=dict)


def make(seed: int) -> Plan:
    """The plan of a seed."""

    def u(*about: object) -> float:
        return unit(seed, "plan", *about)

    shape = u("size")
    size = 3 if shape < 0.55 else 1 + int(u("other size") * (5 if shape < 0.93 else 15))
    seats = ("prime", "lite", "codemind", *(f"seat{n}" for n in range(3, 15)))[:size]
    # Prime may stand anywhere in the list, so that an order of the list is never mistaken for a rank.
    turn = int(u("turn") * size)
    seats = seats[turn:] + seats[:turn]
    rates = {name: most * u("rate", name) for name, most in FAULTS.items() if u("has", name) < 0.4}
    span_s = 60.0 + 540.0 * u("span")
    count = 1 + int(u("count") * 7)
    motions = [_motion(seed, n, span_s, seats, rates) for n in range(count)]
    linger_s = 0.01 * 100 ** u("linger") if u("lingers") < 0.4 else 0.0
    if linger_s:
        rates["kill_lingering"] = 0.3 * u("rate", "kill_lingering")
        if u("together") < 0.5:  # so that several wait for one write
            first_s = motions[0].at_s
            motions = [
                replace(each, at_s=first_s + 2 * linger_s * u("after", each.number)) for each in motions
            ]
    plan = Plan(
        seed=seed,
        seats=seats,
        prime="prime",
        quorum=2 if u("quorum") < 0.8 or size < 3 else 2 + int(u("more") * (size - 1)),
        sole_seat="allow-low-risk" if u("sole") < 0.4 else "never",
        ttl_s=5.0 + 500.0 * u("ttl"),
        open_max=2_000 if u("open") < 0.9 else 1 + int(3 * u("few")),
        escalations_max=10_000 if u("escalations") < 0.9 else 1 + int(3 * u("few escalations")),
        calm_s=span_s,
        rates=rates,
        observer=pick((*seats, *seats, ""), seed, "observer"),
        linger_s=linger_s,
        transaction_max=(1, 1, 2, 128)[int(u("transactions") * 4)],
        motions=motions,
        caps={
            scope: int(most * u("cap", scope)) if u("tight", scope) < rates.get("tight", 0.0) else None
            for scope, most in (("proposal", 3_000), ("seat", 6_000), ("council", 12_000))
        },
    )
    _add_troubles(plan, u)
    return plan


def _motion(seed: int, n: int, span_s: float, seats: tuple[str, ...], rates: dict[str, float]) -> Motion:
    def u(*about: object) -> float:
        return unit(seed, "motion", n, *about)

    def has(name: str) -> bool:
        return u(name) < rates.get(name, 0.0)

    proposer = pick(("ann", "bob", "ann", pick(seats, seed, "seat proposes", n)), seed, "proposer", n)
    doubt = pick((0.0, 1e-5, 0.1, 0.29999, 0.3, 0.30001), seed, "motion doubt", n) if has("doubt") else 0.9
    return Motion(
        number=n,
        at_s=span_s * 0.8 * u("at"),
        proposer=proposer,
        budget_s=pick(BUDGETS, seed, "budget", n),
        wait_for="all" if u("wait") < 0.4 else "decisive",
        confidence=doubt,
        risk="high" if has("risk") else pick(("low", "low", "med"), seed, "motion risk", n),
        supersedes=int(u("which") * n) if n and has("supersede") else None,
    )


def _add_troubles(plan: Plan, u: object) -> None:
    """Stretches of trouble, most of them in the seconds around a proposal, where they hurt."""
    assert callable(u)

    def moment(*about: object) -> float:
        if u("aimed", *about) < 0.7:
            motion = plan.motions[int(u("at which", *about) * len(plan.motions))]
            return motion.at_s + motion.budget_s * 1.2 * float(u("within", *about)) ** 2
        return float(plan.calm_s * u("anywhere", *about))

    def seat(*about: object) -> str:
        return plan.seats[int(u("seat", *about) * len(plan.seats))]

    for n in range(4):
        for kind in ("partition", "crash", "false_death", "wall_jump", "kill", "takeover", "disk_full"):
            if u(kind, n) >= plan.rates.get(kind, 0.0):
                continue
            identity, at_s = f"{kind}/{n}", moment(kind, n)
            length_s = 200.0 * float(u("length", kind, n)) ** 2
            if kind == "partition":
                plan.partitions.append((identity, seat(kind, n), at_s, at_s + length_s))
            elif kind == "crash":
                noticed_s = at_s + 120.0 * float(u("noticed", n)) ** 3
                plan.crashes.append((identity, seat(kind, n), at_s, at_s + length_s, noticed_s))
            elif kind == "false_death":
                plan.false_deaths.append((identity, seat(kind, n), at_s))
            elif kind == "kill":
                plan.kills.append((identity, min(at_s, plan.calm_s)))
            elif kind == "takeover":
                plan.takeovers.append((identity, min(at_s, plan.calm_s)))
            elif kind == "disk_full":
                plan.full.append((identity, at_s, at_s + 0.3 * length_s))
            else:
                plan.wall_jumps.append((identity, at_s, 400.0 * (u("by", n) - 0.3)))
