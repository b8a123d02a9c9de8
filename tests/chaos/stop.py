"""SIGSTOP of a coordinator while another takes its journal over, then SIGCONT: it must hear that it was (rules 4.6).

In turn on SQLite and PostgreSQL. A process stopped inside a transaction keeps the database's own lock: SQLite's
until it goes on, PostgreSQL's until the server ends the transaction. The newcomer then hears StoreLocked.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from pathlib import Path

from tests.chaos.child import Child, council, noted
from tests.chaos.ledger import Ledger, Round
from tests.chaos.load import config
from tests.chaos.postgres import server
from tests.chaos.sqlite import DECISIONS, PAUSE_S, finish
from tests.patience import HANG_S

DECIDED_BY_THE_NEW_ONE = 10
REFUSALS = 50  # so many, and all that was under way in a coordinator has had an answer
ATTEMPTS = 20
NEW_NUMBERS = 10**6


def run(count: int, seed: int, folder: Path) -> Round:
    result, chance = Round("stop"), random.Random(seed)
    with server() as running:
        for number in range(count):
            engine = "sqlite" if number % 2 == 0 else "postgresql"
            store = str(folder / "stop.db") if engine == "sqlite" else running.address
            _one(store, f"stop{number}", chance, result)
            result.notes[f"on {engine}"] += 1
            result.kills += 1
    return result


def _one(store: str, journal: str, chance: random.Random, result: Round) -> None:
    ledger, settings = Ledger(), config(store, journal)
    old = Child(lambda note: council(settings, note, itertools.count()), ledger)
    new = None
    try:
        assert old.hear(HANG_S, noted("open")), "it did not begin"
        old.decide(chance.randint(*DECISIONS))
        old.hear(chance.uniform(0, PAUSE_S))
        _stop(old)
        began_s = time.monotonic()
        new = _taken_over(old, store, journal, ledger, result)
        result.back_s.append(time.monotonic() - began_s)
        for _ in range(DECIDED_BY_THE_NEW_ONE):
            assert new.hear(HANG_S, noted("told")), "the new one decides nothing"
        told = len(ledger.final)
        old.signal(signal.SIGCONT)
        fenced = old.hear(HANG_S, noted("refused", "epoch_fenced"))
        assert fenced, "the old coordinator was never told that it was replaced"
        # What it had kept before it was stopped, it may tell now, and behind that; compared below, as all is.
        _refused(old)
        result.notes["told by the old one when it woke"] += len(ledger.final) - told
        told = len(ledger.final)
        _refused(old)
        assert len(ledger.final) == told, "it decides on, though another has its journal"
    finally:
        for child in filter(None, (old, new)):
            child.kill()
    finish(store, ledger, result, journal)


def _refused(child: Child) -> None:
    for _ in range(REFUSALS):
        assert child.hear(HANG_S, noted("refused")), "it neither decides nor refuses"


def _stop(child: Child) -> None:
    child.signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)


def _taken_over(old: Child, store: str, journal: str, ledger: Ledger, result: Round) -> Child:
    """Another on the same journal, once the database lets it in."""
    for _ in range(ATTEMPTS):
        again, numbers = ledger.unanswered, itertools.count(NEW_NUMBERS)
        new = Child(
            lambda note, a=again, n=numbers: council(config(store, journal), note, n, again=a, takeover=True),
            ledger,
        )
        first = new.hear(HANG_S, lambda what, *_: what in ("open", "locked"))
        if first == ("open",):
            return new
        new.kill()
        assert first == ("locked",), "the new one neither begins nor says why"
        result.notes["stopped inside a transaction: StoreLocked meanwhile"] += 1
        old.signal(signal.SIGCONT)
        assert old.hear(HANG_S, lambda *_: True), "the old one does not go on"
        _stop(old)
    raise AssertionError(f"no takeover in {ATTEMPTS} attempts")
