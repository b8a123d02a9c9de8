"""A council whose coordinator is killed: it comes back by itself, and nobody who waits for it notices more.

rules 1.9 to 1.12, 4.7: what was told stands, what was open goes on, and each proposal is decided once.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from council import Council, Decision
from council.journal.store import TIMEOUT_S, PacketStore
from council.journal.verify import verify
from council.protocol.errors import JournalHeld
from tests.ray.test_council_on_ray import launch, seats, until

WITHIN_S = 60.0


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def pid_of(council: Council) -> int:
    pid: int = council.status()["pid"]
    return pid


def kill(council: Council) -> int:
    """Kills the coordinator, and gives the id of the process it was."""
    pid = pid_of(council)
    os.kill(pid, signal.SIGKILL)
    return pid


def kept(store: str, name: str) -> Counter[str]:
    """How often each proposal is decided in the journal, which must hold."""
    from council.journal.packets import unpacked

    found: Counter[str] = Counter()
    with PacketStore.open(store, read_only=True) as opened:
        verify(opened, name)
        after = 0
        while rows := opened.records(name, after, 1_000):
            for row in rows:
                found.update(each.proposal_id for each in unpacked(row.content, row.position).decisions)
            after = rows[-1].position
    return found


def test_a_proposal_in_flight_survives_its_coordinator(name: str, store: str, tmp_path: Path) -> None:
    """Mutation: without a retry by the client, or a replay by the coordinator, it hangs or is unknown."""
    gate = tmp_path / "gate"
    gate.touch()
    with launch(name, seats=seats("Gated", "Gated", "Gated", gate=str(gate)), store=store) as council:
        earlier = council.propose("decided before", wait_for="all", timeout_s=30)
        gate.unlink()
        before = council.status()["events"]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(council.propose, "in flight", timeout_s=60)
            try:
                until(council, before, lambda event: event.kind == "proposal")
                old = kill(council)
                ends_s = time.monotonic() + WITHIN_S
                while council.status()["epoch"] != 2:  # the one that is killed is to take no ballot in
                    assert time.monotonic() < ends_s, "it did not come back"
                    time.sleep(0.1)
            finally:
                gate.touch()
            decision = waiting.result(WITHIN_S)
        assert decision.outcome == "approved"
        assert pid_of(council) != old
        status = council.status()
        assert (status["epoch"], status["decided"]) == (2, {"approved": 2})
        again = council.decision(earlier.proposal_id)
        assert again is not None
        assert (again.outcome, again.ballots, again.position) == (
            earlier.outcome,
            earlier.ballots,
            earlier.position,
        )
        started = until(council, 0, lambda event: event.kind == "start")[-1]
        assert dict(started.data) == {"epoch": 2, "open": 1}
    assert kept(store, name) == {earlier.proposal_id: 1, decision.proposal_id: 1}


def test_kills_under_load_lose_and_double_nothing(name: str, store: str) -> None:
    with launch(name, seats=seats("agree"), store=store) as council:
        told: dict[str, Decision] = {}
        ended = threading.Event()

        def propose(number: int) -> None:
            while not ended.is_set():
                decision = council.propose(f"by {number}", timeout_s=30)
                told[decision.proposal_id] = decision

        with ThreadPoolExecutor(4) as pool:
            work = [pool.submit(propose, number) for number in range(4)]
            try:
                for pause_s in (0.5, 0.0, 1.0):  # the second one, most likely, while it recovers
                    time.sleep(pause_s)
                    kill(council)
                time.sleep(1.0)
            finally:
                ended.set()
            for each in work:
                each.result(WITHIN_S)
        for proposal_id, decision in told.items():
            again = council.decision(proposal_id)
            assert again is not None
            assert again.outcome == decision.outcome == "approved"
        assert council.status()["epoch"] == 4
    counted = kept(store, name)
    assert told.keys() <= counted.keys()
    assert set(counted.values()) == {1}


def test_what_waits_for_a_human_survives_the_end_of_everything(name: str, store: str) -> None:
    """rules 1.9: a council that is launched again under its name goes on with its journal."""
    who: Any = {"ada": "kept"}
    with launch(name, seats=seats("agree"), store=store, humans=who) as council:
        standing = council.propose("mind the gap", risk="high", timeout_s=30)
        assert not standing.final
        council_id = council.status()["council_id"]
        with pytest.raises(JournalHeld, match="another name"):
            Council.inline(name=name, store=store)
    with launch(name, seats=seats("agree"), store=store, humans=who) as council:
        assert council.status()["council_id"] == council_id
        (waiting,) = council.escalations()
        assert waiting.proposal_id == standing.proposal_id
        decision = council.answer(waiting.escalation_id, approve=True, human="ada")
        assert (decision.outcome, decision.proposal_id) == ("approved", standing.proposal_id)
    assert kept(store, name)[standing.proposal_id] == 1


def test_a_sender_comes_back_to_its_journal(name: str, store: str) -> None:
    """rules 1.12: whoever is launched again speaks as the same client, and a retry gets the first decision."""
    with launch(name, seats=seats("agree"), store=store, sender="agent") as council:
        draft = council.draft("once")
        first = council.propose(draft)
    with launch(name, seats=seats("agree"), store=store, sender="agent") as council:
        again = council.propose(draft)
    assert (again.outcome, again.position) == (first.outcome, first.position)
    assert kept(store, name) == {first.proposal_id: 1}


def test_a_coordinator_that_comes_back_to_a_locked_store_waits_for_it(name: str, store: str) -> None:
    """Mutation: it gives up at the first try, and the council stays dead though its store is well again."""
    with launch(name, seats=seats("agree"), store=store) as council:
        first = council.propose("before", timeout_s=30)
        pid = pid_of(council)
        other = sqlite3.connect(store, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        os.kill(pid, signal.SIGKILL)
        time.sleep(TIMEOUT_S + 3.0)  # so that it has tried in vain at least once
        other.execute("ROLLBACK")
        other.close()
        second = council.propose("after", timeout_s=30)
        assert second.outcome == "approved"
        assert council.status()["epoch"] == 2
    assert kept(store, name) == {first.proposal_id: 1, second.proposal_id: 1}
