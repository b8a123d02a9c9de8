"""A council whose coordinator is killed: it comes back by itself, and nobody who waits for it notices more.

rules 1.9 to 1.12, 4.7: what was told stands, what was open goes on, and each proposal is decided once.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from council import Council, SeatConfig
from council.cluster import panel_actor
from council.journal.packets import unpacked
from council.journal.store import PacketStore
from council.journal.verify import verify
from council.protocol.errors import JournalHeld
from tests.patience import until
from tests.ray.test_council_on_ray import MINDS, events_until, launch, proposing, seats


def pid_of(council: Council) -> int:
    pid: int = council.status()["pid"]
    return pid


def kill(council: Council) -> int:
    """Kills the coordinator, and gives the id of the process it was."""
    pid = pid_of(council)
    os.kill(pid, signal.SIGKILL)
    return pid


def kept(council: Council) -> Counter[str]:
    """How often each proposal is decided in the journal, which must hold."""
    found: Counter[str] = Counter()
    with PacketStore.open(str(council.config.store), read_only=True) as opened:
        verify(opened, council.name)
        after = 0
        while rows := opened.records(council.name, after, 1_000):
            for row in rows:
                found.update(each.proposal_id for each in unpacked(row.content, row.position).decisions)
            after = rows[-1].position
    return found


def test_a_proposal_in_flight_survives_its_coordinator(shared: Council, tmp_path: Path) -> None:
    """Mutation: without a retry by the client, or a replay by the coordinator, it hangs or is unknown."""
    gate = tmp_path / "gate"
    earlier = shared.propose("decided before", wait_for="all")
    before = shared.status()
    order = f"wait {gate}"
    with proposing(shared, f"prime: {order}; lite: {order}; codemind: {order}", gate) as waiting:
        events_until(shared, before["events"], lambda event: event.kind == "proposal")
        old = kill(shared)
        until(
            lambda: shared.status()["epoch"] == before["epoch"] + 1
        )  # the killed one is to take no ballot in
    decision = waiting.result()
    assert decision.outcome == "approved"
    assert pid_of(shared) != old
    status = shared.status()
    assert status["epoch"] == before["epoch"] + 1
    assert status["decided"] == {**before["decided"], "approved": before["decided"]["approved"] + 1}
    again = shared.decision(earlier.proposal_id)
    assert again is not None
    assert (again.outcome, again.ballots, again.position) == (
        earlier.outcome,
        earlier.ballots,
        earlier.position,
    )
    started = events_until(shared, before["events"], lambda event: event.kind == "start")[-1]
    still_open = before["open_count"] + before["with_human"] + 1
    assert dict(started.data) == {"epoch": status["epoch"], "open": still_open}
    counted = kept(shared)
    assert (counted[earlier.proposal_id], counted[decision.proposal_id]) == (1, 1)


def in_vain() -> int:
    """How often coordinators of this Ray told that they can't begin yet."""
    logs = panel_actor.logs_folder().glob("worker-*.err")
    return sum(path.read_text(errors="replace").count("coordinator can't begin yet") for path in logs)


@pytest.mark.long
def test_a_coordinator_that_comes_back_to_a_locked_store_waits_for_it(shared: Council) -> None:
    """Mutation: it gives up at the first try, and the council stays dead though its store is well again."""
    first = shared.propose("before")
    epoch, tries = shared.status()["epoch"], in_vain()
    other = sqlite3.connect(str(shared.config.store), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    kill(shared)
    until(lambda: in_vain() > tries, "it never tried")
    other.execute("ROLLBACK")
    other.close()
    second = shared.propose("after")
    assert second.outcome == "approved"
    assert shared.status()["epoch"] == epoch + 1
    counted = kept(shared)
    assert (counted[first.proposal_id], counted[second.proposal_id]) == (1, 1)
    assert set(counted.values()) == {1}


@pytest.mark.long
def test_what_waits_and_who_sent_it_survive_the_end_of_everything(name: str, tmp_path: Path) -> None:
    """rules 1.9, 1.12: a council that is launched again under its name goes on with its journal.

    Whoever is launched again speaks as the same client, and a retry gets the first decision.
    """
    settings: Any = {"store": str(tmp_path / "store.db"), "humans": {"ada": "kept"}, "sender": "agent"}
    settings["seats"] = (SeatConfig(name="prime", mind=f"{MINDS}agree"), *seats()[1:])  # it does not rule
    told = tmp_path / "told"
    settings["notify"] = {"command": ["sh", "-c", 'cat >> "$0"; echo >> "$0"', str(told)]}
    with launch(name, **settings) as council:
        standing = council.propose("mind the gap", risk="high")
        assert not standing.final
        draft = council.draft("once")
        first = council.propose(draft)
        council_id = council.status()["council_id"]
        with pytest.raises(JournalHeld, match="another name"):
            Council.inline(name=name, store=settings["store"])
    with launch(name, **settings) as council:
        assert council.status()["council_id"] == council_id
        (waiting,) = council.escalations()
        assert waiting.proposal_id == standing.proposal_id
        decision = council.answer(waiting.escalation_id, approve=True, human="ada")
        assert (decision.outcome, decision.proposal_id) == ("approved", standing.proposal_id)
        again = council.propose(draft)
        assert (again.outcome, again.position) == (first.outcome, first.position)
    assert kept(council) == {standing.proposal_id: 1, first.proposal_id: 1}
    notices = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
    assert [each["kind"] for each in notices] == ["waiting", "reminder", "answered"]
    assert notices[1]["to_answer"] == f"council answer {waiting.escalation_id}"
