"""What clients were told, and whether the journal says the same. Knows nothing of how a council was hurt.

The journal is read from its tables, past the code under test; ``verify`` and a replay through the core run on
it besides.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from council.core.state import Decision
from council.journal import history
from council.journal.store import PacketStore
from council.journal.verify import verify
from council.runtime.replay import Replay
from tests.chaos.proposals import expected, number_of

JOURNAL = "chaos"
# Of each proposal every decision that stands in the journal: its outcome, and its mark where it is there whole.
Kept = dict[str, list[tuple[str, str | None]]]


def mark(decision: Decision) -> str:
    """A decision in a few characters: all of it but what a late ballot may add to it."""
    same = msgspec.structs.replace(decision, late=(), missing=())
    return hashlib.sha256(msgspec.json.encode(same, order="deterministic")).hexdigest()[:16]


@dataclass
class Round:
    """The result of a kind of fault.

    ``back_s`` are the times from each kill until the council accepted a call again, ``decided_s`` until something
    proposed after the kill was decided; ``back_s_max`` are what the former's p95 and maximum must not exceed.
    """

    kind: str
    kills: int = 0
    acknowledged: int = 0
    escalations: int = 0
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    back_s: list[float] = field(default_factory=list)
    back_s_max: tuple[float, float] | None = None
    decided_s: list[float] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def whole(self) -> bool:
        return not (self.lost or self.duplicated or self.changed)

    @property
    def in_time(self) -> bool:
        if self.back_s_max is None or not self.back_s:
            return True
        p95_s, most_s = self.back_s_max
        return quantile(self.back_s, 0.95) <= p95_s and max(self.back_s) <= most_s

    def __str__(self) -> str:
        told = (
            f"{self.kind}: kills {self.kills}, acknowledged {self.acknowledged} ({self.escalations} escalations), "
            f"lost {len(self.lost)}, duplicated {len(self.duplicated)}, changed {len(self.changed)}"
        )
        for name, times in (("back", self.back_s), ("decided", self.decided_s)):
            if times:
                p50, p95, most = (quantile(times, part) for part in (0.5, 0.95, 1.0))
                told += f"; {name} p50 {p50:.2f} s, p95 {p95:.2f} s, max {most:.2f} s"
        if not self.in_time:
            told += f"; TOO LATE: p95 and max must be at most {self.back_s_max}"
        for name, counts in (("typed refusals", self.refused), ("seen", self.notes)):
            if counts:
                told += f"; {name}: " + ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))
        for name in ("lost", "duplicated", "changed"):
            told += "".join(f"\n  {name}: {each}" for each in getattr(self, name)[:20])
        return told


def quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


class Ledger:
    """What was sent and told, as it was noted at the moment, and so is known whatever was killed since."""

    def __init__(self) -> None:
        self.sent: set[int] = set()
        self.final: dict[str, tuple[str, str]] = {}  # outcome and mark of the decision that was told
        self.standing: set[str] = set()  # told that a human is asked
        self.answered: set[str] = set()  # a human was told that the answer is taken
        self.changed: list[str] = []
        self.unknown: list[str] = []
        self.refused: Counter[str] = Counter()

    def note(self, what: str, *rest: Any) -> None:
        match what, rest:
            case "sent", (number,):
                self.sent.add(number)
            case "told", (proposal_id, None, _):
                self.standing.add(proposal_id)
            case "told", (proposal_id, outcome, marked):
                first = self.final.setdefault(proposal_id, (outcome, marked))
                if first != (outcome, marked):
                    self.changed.append(f"{proposal_id} was told as {first}, then as {(outcome, marked)}")
            case "unknown", (proposal_id,):
                self.unknown.append(f"{proposal_id}: the council does not know it any more")
            case "answered", (proposal_id,):
                self.answered.add(proposal_id)
            case "refused", (code,):
                self.refused[code] += 1
            case "died", (why,):
                raise AssertionError(f"a process of the council failed by itself:\n{why}")

    @property
    def unanswered(self) -> list[int]:
        """Proposals that were sent, and of which nothing final was told: to be sent again, byte for byte."""
        return sorted(number for number in self.sent if self.known(number) not in self.final)

    @staticmethod
    def known(number: int) -> str:
        return f"{number:016x}"

    def compare(self, address: str, journal: str, into: Round) -> None:
        """Adds to ``into`` what of all this is in the journal, and what is not. Raises where that does not hold."""
        check_whole(address, journal)
        self.judge(*kept(address, journal), into)

    def judge(self, decisions: Kept, escalated: Counter[str], into: Round) -> None:
        """Compares what was told with the decisions and escalations that are kept."""
        into.acknowledged += len(self.final) + len(self.standing - self.final.keys())
        into.escalations += len(self.standing)
        into.refused += self.refused
        into.changed += self.changed
        into.lost += self.unknown
        for proposal_id in sorted(self.final.keys() | self.answered):
            if proposal_id not in decisions:
                into.lost.append(f"the decision on {proposal_id}, told as {self.final.get(proposal_id)}")
        for proposal_id in sorted(self.standing - escalated.keys() - decisions.keys()):
            into.lost.append(f"the escalation of {proposal_id}")
        for proposal_id, found in decisions.items():
            outcome, marked = found[0]
            if len(found) > 1:
                into.duplicated.append(f"{proposal_id} was decided {len(found)} times: {found}")
            told = self.final.get(proposal_id)
            if told is not None and (told[0] != outcome or marked not in (None, told[1])):
                into.changed.append(f"{proposal_id} was told as {told}, and is kept as {found[0]}")
            wanted = None if proposal_id in escalated else expected(number_of(proposal_id))
            if wanted not in (None, outcome):
                into.changed.append(f"{proposal_id} should be {wanted}, and is {outcome}")
        into.duplicated += [f"{each} was escalated {n} times" for each, n in escalated.items() if n > 1]


def rows(address: str, journal: str) -> Iterator[dict[str, Any]]:
    """The payloads of a journal's packets, in order, by nothing but SQL."""
    statement = "SELECT content FROM packet_store WHERE journal = {} ORDER BY position"
    if "://" in address:
        import psycopg

        with psycopg.connect(address) as connection:
            found = connection.execute(statement.format("%s"), (journal,)).fetchall()
    else:
        connection = sqlite3.connect(f"file:{address}?mode=ro", uri=True)
        try:
            found = connection.execute(statement.format("?"), (journal,)).fetchall()
        finally:
            connection.close()
    for (content,) in found:
        yield json.loads(content)["payload"]


def kept(address: str, journal: str) -> tuple[Kept, Counter[str]]:
    """Every decision of a journal, with its outcome and mark, and how often each proposal went to a human."""
    decisions: Kept = defaultdict(list)
    escalated: Counter[str] = Counter()
    for payload in rows(address, journal):
        for each in payload.get("decisions", ()):
            decision = msgspec.convert(each, Decision)
            decisions[decision.proposal_id].append((str(decision.outcome), mark(decision)))
        for proposal_id, outcome in payload.get("more_decisions", {}).items():
            decisions[proposal_id].append((outcome, None))
        escalated.update(each["proposal_id"] for each in payload.get("escalations", ()))
        escalated.update(payload.get("more_escalations", {}))
    return decisions, escalated


def check_whole(address: str, journal: str) -> int:
    """How many records a journal has, each of them in its place, and coming to the same again. Raises what not."""
    with PacketStore.open(address, read_only=True) as store:
        found = verify(store, journal)
        replay = Replay()
        for record in history.records(store.database, journal) if found.rows else ():
            replay.replay(record)
        assert replay.records == found.rows
    return found.rows
