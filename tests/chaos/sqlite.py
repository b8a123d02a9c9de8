"""SIGKILL of the process that writes an SQLite journal, at any moment of its life, its recovery included."""

from __future__ import annotations

import itertools
import random
import time
from functools import partial
from pathlib import Path

from tests.chaos.child import Child, council, noted
from tests.chaos.ledger import JOURNAL, Ledger, Round
from tests.chaos.load import config
from tests.patience import HANG_S

# A file for so many kills: what it holds is read, verified and replayed as a whole at its end.
KILLS_PER_FILE = 250
DECISIONS = (1, 20)  # of a life, at least and at most, before it is killed
PAUSE_S = 0.02  # at most, so that a kill comes at any moment between two notes
EARLY_S = 0.12  # at most, from its start until it is killed
# Every fourth is killed before it is open, so in the middle of its recovery.
EARLY = 4


def run(count: int, seed: int, folder: Path) -> Round:
    result = Round("sqlite")
    while result.kills < count:
        one_file(min(KILLS_PER_FILE, count - result.kills), seed + result.kills, folder, result)
    return result


def one_file(count: int, seed: int, folder: Path, result: Round) -> None:
    chance = random.Random(seed)
    store = str(folder / f"sqlite-{seed}.db")
    ledger = Ledger()
    for kill in range(count):
        child = _begun(store, ledger)
        try:
            if kill % EARLY == EARLY - 1:
                opened = child.hear(chance.uniform(0, EARLY_S), noted("open"))
                result.notes["killed before it was open"] += opened is None
            else:
                assert child.hear(HANG_S, noted("open")), "it does not come back"
                result.back_s.append(time.monotonic() - child.began_s)
                child.decide(chance.randint(*DECISIONS))
                child.hear(chance.uniform(0, PAUSE_S))
        finally:
            child.kill()
        result.kills += 1
    finish(store, ledger, result)


def _begun(store: str, ledger: Ledger) -> Child:
    first = max(ledger.sent, default=-1) + 1
    again = ledger.unanswered
    return Child(lambda note: council(config(store), note, itertools.count(first), again=again), ledger)


def finish(store: str, ledger: Ledger, result: Round, journal: str = JOURNAL) -> None:
    """A last life decides what is open and is asked for everything again; then the journal is compared."""
    last = partial(
        council, config(store, journal), numbers=(), again=ledger.unanswered, ask=sorted(ledger.final)
    )
    child = Child(lambda note: last(note=note), ledger)
    try:
        assert child.hear(HANG_S, noted("asked")), "it can't be asked any more"
    finally:
        child.kill()
    ledger.compare(store, journal, result)
