"""A council on real Ray, with real processes and real SIGKILLs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from council import AsyncCouncil, Case, Council, CouncilConfig, Decision, Event, Opinion, SeatConfig
from council.protocol.errors import (
    CouncilDied,
    CouncilError,
    MindError,
    NameTaken,
    NotEnrolled,
    Refused,
    TooManyOpen,
    Unreachable,
    VersionMismatch,
)
from council.runtime import ray_actors, ray_side

MINDS = "tests.ray.minds:"
WITHIN_S = 30.0


def seats(
    prime: Any = "Chair", lite: Any = "agree", codemind: Any = "agree", **options: Any
) -> tuple[SeatConfig, ...]:
    """Three seats; ``options`` go to every mind that is not a function."""
    minds = {"prime": prime, "lite": lite, "codemind": codemind}
    takers = ("Slow", "Mortal", "Waiting", "Gated")
    return tuple(
        SeatConfig(
            name=name,
            mind=MINDS + mind if isinstance(mind, str) else mind,
            options=options if mind in takers else {},
        )
        for name, mind in minds.items()
    )


def launch(name: str, **settings: Any) -> Council:
    return Council.launch(name=name, heartbeat_s=0.5, inactivity_s=5.0, **settings)


def pid_of(council: Council, seat: str) -> int:
    actor = ray.get_actor(f"{council.name}/{seat}", namespace="council")
    pid: int = ray.get(actor.pid.remote(), timeout=WITHIN_S)
    return pid


def until(council: Council, after: int, wanted: Any) -> list[Event]:
    """Events after a position, up to and with the first that ``wanted`` takes."""
    seen = []
    deadline = time.monotonic() + WITHIN_S
    position = after
    while time.monotonic() < deadline:
        for event in council.events(position, follow=False):
            position = event.position
            seen.append(event)
            if wanted(event):
                return seen
        time.sleep(0.02)
    raise AssertionError(f"not seen within {WITHIN_S} s; seen: {[(e.kind, dict(e.data)) for e in seen]}")


def rolled(seat: str, active: bool) -> Any:
    return lambda e: e.kind == "roll" and e.data["seat"] == seat and e.data["active"] is active


def position(council: Council) -> int:
    found: int = council.status()["events"]
    return found


@pytest.fixture(scope="module")
def divided() -> Iterator[Council]:
    """A council whose codemind refuses, for tests that leave it as it was."""
    with launch("divided", seats=seats(codemind="refuse")) as council:
        yield council


def test_three_processes_decide(divided: Council) -> None:
    decision = divided.propose("Rotate the staging key", wait_for="all")
    assert decision, decision
    assert str(decision.tally) == "2 yes, 1 no, 0 abstained"
    assert decision.dissent == "codemind (no, 0.90): refused"
    assert not decision.degraded
    assert len({pid_of(divided, seat) for seat in ("prime", "lite", "codemind")} | {os.getpid()}) == 4


def test_high_risk_is_ruled_on_by_prime(divided: Council) -> None:
    decision = divided.propose("Delete the staging bucket", risk="high")
    assert decision
    assert decision.ruling is not None
    assert decision.ruling.reason == "3 ballots seen"
    assert not decision.early


def test_heartbeats_are_heard(divided: Council) -> None:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        found = divided.status()["seats"]
        if all(seat["heartbeats"] >= 3 for seat in found):
            break
        time.sleep(0.1)
    assert all(seat["heartbeats"] >= 3 and seat["active"] for seat in found), found
    assert all(seat["heartbeat_age_s"] < 5 for seat in found), found


def test_two_hundred_at_once(divided: Council) -> None:
    before = position(divided)
    found = divided.propose_many([f"number {n}" for n in range(200)])
    assert all(isinstance(decision, Decision) and decision for decision in found)
    ids = {decision.proposal_id for decision in found if isinstance(decision, Decision)}
    assert len(ids) == 200
    events = divided.events(before, follow=False)
    decided = [e.data["decision"]["proposal_id"] for e in events if e.kind == "decision"]
    assert sorted(decided) == sorted(ids), "exactly one decision for each"


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_its_journal_is_told_to_another_client(name: str, tmp_path: Path, store: str) -> None:
    """Mutation: an error of the history that is Ray's own when it comes to the client."""
    where = "memory" if store == "memory" else str(tmp_path / "s.db")
    with launch(name, seats=seats(), store=where) as council, Council.connect(name=name) as other:
        decision = council.propose("Rotate the staging key", wait_for="all")
        (last,) = other.history(types=["decision"])
        assert last.decision == decision
        assert [each.kind for each in other.history(proposal=decision.proposal_id[:8])][-1] == "proposal"
        with pytest.raises(Refused):
            other.history(proposal="00000000")


def test_a_seat_killed_in_mid_vote_comes_back_and_votes(name: str, tmp_path: Path) -> None:
    mark, gate = tmp_path / "died", tmp_path / "gate"
    with launch(
        name,
        seats=(
            SeatConfig(name="prime", mind=MINDS + "Gated", options={"gate": str(gate)}),
            SeatConfig(name="lite", mind=MINDS + "Mortal", options={"mark": str(mark)}),
            SeatConfig(name="codemind", mind=MINDS + "agree"),
        ),
    ) as council:
        before = position(council)
        draft = council.draft("die, and come back", wait_for="all", timeout_s=60)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(council.propose, draft)
            try:
                until(council, before, rolled("lite", True))
            finally:
                gate.touch()
            decision = waiting.result(2 * WITHIN_S)
        assert decision
        assert {ballot.seat for ballot in decision.ballots} == {"prime", "lite", "codemind"}
        assert not decision.degraded
        kinds = [
            (e.kind, e.data.get("seat"), e.data.get("active"))
            for e in until(council, before, lambda e: e.kind == "decision")
        ]
        assert ("roll", "lite", False) in kinds
        assert ("roll", "lite", True) in kinds
        assert pid_of(council, "lite") != int(mark.read_text())
        restarts = {seat["name"]: seat["restarts"] for seat in council.status()["seats"]}
        assert restarts["lite"] >= 1
        assert restarts["codemind"] == 0


def test_a_dead_seat_is_not_waited_for(name: str, tmp_path: Path) -> None:
    """Two ballots are in when the third seat dies: decided at once, degraded, the dead seat named."""
    gate = tmp_path / "gate"
    with launch(
        name,
        seats=(
            SeatConfig(name="prime", mind=MINDS + "agree"),
            SeatConfig(name="lite", mind=MINDS + "Waiting", options={"gate": str(gate)}),
            SeatConfig(name="codemind", mind=MINDS + "agree"),
        ),
    ) as council:
        before = position(council)
        victim = pid_of(council, "lite")
        draft = council.draft("wait for all", wait_for="all", timeout_s=60)
        found: list[Decision] = []
        thread = threading.Thread(target=lambda: found.append(council.propose(draft)))
        thread.start()
        for seat in ("prime", "codemind"):
            until(
                council, before, lambda e, seat=seat: e.kind == "ballot" and e.data["ballot"]["seat"] == seat
            )
        wait_for_file(gate.with_suffix(".begun"))
        os.kill(victim, signal.SIGKILL)
        thread.join(WITHIN_S)
        assert found, "no decision although the seat is dead"
        assert found[0]
        assert found[0].degraded
        # Two calls end with the actor; which of them is the first to tell is chance.
        why = dict(found[0].missing)["lite"]
        assert re.match("inactive: (its actor died|it can't be reached): Actor", why), why
        until(council, before, rolled("lite", True))


def wait_for_file(path: Path) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


def test_two_seats_killed_at_once(name: str) -> None:
    with launch(name, seats=seats()) as council:
        before = position(council)
        for seat in ("lite", "codemind"):
            os.kill(pid_of(council, seat), signal.SIGKILL)
        until(council, before, rolled("lite", False))
        decision = council.propose("with one seat left", timeout_s=30)
        assert decision, decision  # it waited for a seat to come back: nothing is decided by one
        assert decision.tally.cast >= 2


def test_a_hung_mind_costs_its_ballot_and_its_heart_goes_on(name: str, tmp_path: Path) -> None:
    with launch(
        name,
        seats=(
            SeatConfig(name="prime", mind=MINDS + "agree"),
            SeatConfig(name="lite", mind=MINDS + "Waiting", options={"gate": str(tmp_path / "never")}),
            SeatConfig(name="codemind", mind=MINDS + "agree"),
        ),
    ) as council:
        decision = council.propose("hang", wait_for="all", timeout_s=7)
        assert decision
        assert decision.degraded
        assert "lite" in dict(decision.missing)
        lite = next(seat for seat in council.status()["seats"] if seat["name"] == "lite")
        assert lite["active"], "seven seconds of thought are longer than the limit of five, but it beat"
        assert lite["restarts"] == 0


def test_an_async_mind_that_stops_its_loop_keeps_its_heart(name: str) -> None:
    with launch(name, seats=seats(codemind="Stopped")) as council:
        decision = council.propose("stop", wait_for="all", timeout_s=7)
        assert decision.degraded
        codemind = next(seat for seat in council.status()["seats"] if seat["name"] == "codemind")
        assert codemind["active"], (
            "seven seconds without its loop are longer than the limit of five, but it beat"
        )


def test_a_late_ballot_is_shown_and_changes_nothing(name: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with launch(
        name,
        seats=(
            SeatConfig(name="prime", mind=MINDS + "agree"),
            SeatConfig(name="lite", mind=MINDS + "Waiting", options={"gate": str(gate)}),
            SeatConfig(name="codemind", mind=MINDS + "agree"),
        ),
    ) as council:
        before = position(council)
        decision = council.propose("decide early")
        assert decision.early
        gate.touch()
        events = until(council, before, lambda e: e.kind == "alert")
        late = next(e for e in events if e.kind == "ballot" and e.data["late"])
        assert late.data["ballot"]["seat"] == "lite"
        after = council.decision(decision.proposal_id)
        assert after is not None
        assert after.outcome == "approved"
        assert [ballot.seat for ballot in after.late] == ["lite"]
        assert after.ballots == decision.ballots


def test_two_councils_side_by_side(name: str) -> None:
    with launch(name, seats=seats()) as one, launch(f"{name}-b", seats=seats("refuse", "refuse")) as two:
        assert one.propose("same words")
        decision = two.propose("same words")
        assert decision.outcome == "rejected"
        with pytest.raises(CouncilError) as caught:
            one.decision(decision.proposal_id)
        assert caught.value.code == "unknown_proposal"
        with pytest.raises(NameTaken, match=name):
            launch(name, seats=seats())
        assert one.propose("still there")


def test_back_pressure_is_a_clear_refusal(name: str) -> None:
    with launch(
        name,
        seats=seats("Slow", "Slow", "Slow", seconds=1.0),
        open_max=5,
    ) as council:
        found = council.propose_many(["x"] * 20)
        refused = [error for error in found if isinstance(error, TooManyOpen)]
        assert len(refused) == 15
        assert "as many as this council allows" in str(refused[0])
        assert sum(isinstance(decision, Decision) and bool(decision) for decision in found) == 5


def test_a_mind_that_raises_is_reported(name: str) -> None:
    with launch(name, seats=seats(codemind="raising")) as council:
        decision = council.propose("x", wait_for="all")
        assert decision
        assert decision.degraded
        assert dict(decision.missing)["codemind"] == "its mind raised RuntimeError: no idea"


@pytest.mark.parametrize(
    ("mind", "told"),
    [
        ("no.such.module:Mind", "no module no"),
        (MINDS + "Missing", "Missing"),
        (MINDS + "Unbuildable", "no licence file"),
    ],
)
def test_a_mind_that_cannot_be_had_is_told_at_launch(name: str, mind: str, told: str) -> None:
    before = ray.util.list_named_actors(all_namespaces=True)
    with pytest.raises(MindError, match=told) as caught:
        launch(name, seats=(*seats()[:2], SeatConfig(name="codemind", mind=mind)))
    assert "codemind" in str(caught.value)
    gone(name, before)


def gone(name: str, before: list[dict[str, str]]) -> None:
    """Nothing of the council is left running."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        left = [a for a in ray.util.list_named_actors(all_namespaces=True) if a not in before]
        if not any(actor["name"].startswith(name) for actor in left):
            return
        time.sleep(0.1)
    raise AssertionError(f"left running: {left}")


def test_closing_leaves_nothing_running(name: str) -> None:
    before = ray.util.list_named_actors(all_namespaces=True)
    council = launch(name, seats=seats())
    assert council.propose("x")
    council.close()
    gone(name, before)
    with pytest.raises(CouncilError, match="closed"):
        council.propose("y")


@pytest.fixture(scope="module")
def detached() -> Iterator[str]:
    """The name of a council that was launched by somebody else."""
    config = CouncilConfig(name="detached", seats=seats(), heartbeat_s=0.5, inactivity_s=5.0)
    port = ray_side.launch(config, detached=True)
    try:
        yield config.name
    finally:
        asyncio.run(port.close())


def test_another_process_connects_and_proposes(detached: str) -> None:
    address = ray.get_runtime_context().gcs_address
    code = (
        "import sys\n"
        "from council import Council\n"
        f"with Council.connect({address!r}, {detached!r}) as council:\n"
        "    decision = council.propose('from next door')\n"
        "    print(decision.outcome, len(list(council.events(follow=False))) > 3)\n"
    )
    environment = {**os.environ, "RAY_AUTH_MODE": "token"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.stdout.split() == ["approved", "True"], done.stderr[-2000:]


def test_a_client_that_leaves_does_not_take_the_council_along(detached: str) -> None:
    address = ray.get_runtime_context().gcs_address
    for _ in range(2):
        with Council.connect(address, detached) as council:
            assert council.propose("x")


def test_the_ray_in_use_is_known_by_each_of_its_names_and_another_is_refused(detached: str) -> None:
    """Mutation: to compare ports alone takes another machine's council for this one's."""
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    for name in ("localhost", "127.0.0.1", "[::1]", host, ray.util.get_node_ip_address()):
        with Council.connect(f"{name}:{port}", detached) as council:
            assert council.propose("x")
    for other in (f"198.51.100.7:{port}", f"nowhere.invalid:{port}", "127.0.0.1:1", f"ray://{host}:{port}"):
        with pytest.raises(Unreachable, match="is connected to the Ray at") as caught:
            Council.connect(other, detached)
        assert caught.value.address == other


def test_who_may_answer_is_fixed_at_launch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rules 1.9, 1.14: whoever may use this Ray can join the council, and is no human of it for that."""
    with launch(name, seats=seats(prime="agree"), humans={"ada": "kept"}) as council:
        standing = council.propose("x", risk="high")
        assert re.match(r"Prime gave no ruling: its mind, \w+, has no rule", standing.reason), standing.reason
        waiting = str(standing.escalation_id)
        handle: Any = ray.get_actor(f"{name}/coordinator", namespace="council")
        with pytest.raises(TypeError, match="positional"):
            ray.get(handle.open.remote({"mallory": b"m" * 32}), timeout=WITHIN_S)
        with pytest.raises(NotEnrolled, match=r"those who may answer in .*: ada;"):
            council.answer(waiting, approve=True, human="mallory")
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
            with pytest.raises(NotEnrolled, match="not the key that ada is enrolled with"):
                council.answer(waiting, approve=True, human="ada")
        assert council.status()["with_human"] == 1
        decision = council.answer(waiting, approve=True, human="ada")
        assert (decision.outcome, decision.answer and decision.answer.human) == ("approved", "ada")


def test_connecting_to_nothing_says_so(name: str) -> None:
    with pytest.raises(Unreachable, match=f"no council named {name}"):
        Council.connect(ray.get_runtime_context().gcs_address, name)


def test_no_ray_to_connect_to_is_told_in_time() -> None:
    code = (
        "from council import Council\n"
        "from council.protocol.errors import Unreachable\n"
        "try:\n"
        "    Council.connect('127.0.0.1:1', 'nobody')\n"
        "except Unreachable as error:\n"
        "    print('told:', error.message[:60])\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.stdout.startswith("told: no Ray answers at 127.0.0.1:1"), done.stdout + done.stderr[-2000:]
    assert time.monotonic() - began < 60


def test_a_dead_coordinator_without_a_journal_is_told_at_once(name: str) -> None:
    council = launch(name, seats=seats("Slow", "Slow", seconds=20.0), store="memory")
    try:
        errors: list[BaseException] = []

        def propose() -> None:
            try:
                council.propose("never answered", timeout_s=30)
            except CouncilError as error:
                errors.append(error)

        thread = threading.Thread(target=propose)
        thread.start()
        until(council, 0, lambda e: e.kind == "proposal")
        began = time.monotonic()
        os.kill(council.status()["pid"], signal.SIGKILL)
        thread.join(WITHIN_S)
        assert time.monotonic() - began < 10
        assert isinstance(errors[0], CouncilDied)
        with pytest.raises(CouncilDied):
            council.propose("again")
    finally:
        council.close()
    deadline = time.monotonic() + WITHIN_S
    while any(a["name"].startswith(name) for a in ray.util.list_named_actors(all_namespaces=True)):
        assert time.monotonic() < deadline, "the seats of a dead coordinator are left running"
        time.sleep(0.2)


def test_another_version_of_ray_is_refused() -> None:
    theirs = {**ray_side.versions(), "ray": "1.0.0"}
    with pytest.raises(VersionMismatch, match=r"1\.0\.0"):
        ray_side._check_versions(theirs)
    ray_side._check_versions(ray_side.versions())


OTHER_VERSION = """
import sys
import ray._private.utils
from council import Council
from council.protocol.errors import Unreachable, VersionMismatch
own = ray._private.utils.compute_version_info
address = sys.argv[1]
for ours in (("1.0.0", own()[1]), (own()[0], "3.8.1")):
    ray._private.utils.compute_version_info = lambda: ours
    try:
        Council.connect(address, "version-of-nobody")
    except VersionMismatch as error:
        print("mismatch", error.theirs["ray"], error.theirs["python"], ray.is_initialized())
ray._private.utils.compute_version_info = own
try:
    Council.connect(address, "version-of-nobody")
except Unreachable as error:
    print(error.message)
"""


def test_rays_own_refusal_of_another_version_is_told_as_such() -> None:
    """Ray's own check fails, in a process that it takes for one of another version.

    Mutation: to look for other words than Ray's makes it Unreachable, which sends one to look at the network.
    """
    address = ray.get_runtime_context().gcs_address
    done = subprocess.run(
        [sys.executable, "-c", OTHER_VERSION, address],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    theirs = f"mismatch {ray.__version__} {ray_side.versions()['python']} False"
    assert done.stdout.splitlines()[:2] == [theirs, theirs], done.stdout + done.stderr
    assert "no council named version-of-nobody runs" in done.stdout


def test_a_council_is_launched_beside_the_callers_loop(name: str) -> None:
    """Mutation: to launch on the caller's loop stops it for the seconds that the actors take to start."""

    async def scenario() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.02)
                turns += 1

        counting = asyncio.ensure_future(count())
        began = time.monotonic()
        async with AsyncCouncil.launch(name=name, seats=seats()) as council:
            assert turns > 10 * (time.monotonic() - began)
            assert (await council.propose("x")).outcome == "approved"
            address = ray.get_runtime_context().gcs_address
            async with AsyncCouncil.connect(address, name, sender="guest") as guest:
                assert guest.sender in (await guest.status())["sessions"]
        opening = asyncio.ensure_future(AsyncCouncil.launch(name=name, seats=seats())._open())
        await asyncio.sleep(0.5)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        counting.cancel()

    asyncio.run(scenario())
    deadline = time.monotonic() + WITHIN_S
    while any(thread.name.startswith("council-opening") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the council that nobody has is not closed"
        time.sleep(0.05)
    assert name not in ray_side.running("council")


def test_a_users_own_mind_travels_to_its_seat(name: str) -> None:
    word = "closure"

    async def own(case: Case) -> Opinion:
        return Opinion.no(f"said by a {word}")

    with launch(name, seats=seats(lite=own, codemind=own)) as council:
        decision = council.propose("x", wait_for="all")
        assert decision.outcome == "rejected"
        assert {b.reason for b in decision.ballots if b.vote == "no"} == {"said by a closure"}


def test_a_coordinator_that_takes_too_long_is_told_in_our_words() -> None:
    with (
        pytest.raises(Unreachable, match=r"^the coordinator of mine does not answer$"),
        ray_side._as_ours("mine"),
    ):
        raise ray.exceptions.GetTimeoutError("Get timed out: some object(s) not ready.")


def test_a_coordinator_that_was_restarted_tries_again_where_ray_fails_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Mutation: one call of Ray's fails as its head restarts too, and nobody ever begins the council again."""
    monkeypatch.setattr(ray_actors, "AWAY_FIRST_S", 0.01)
    kind: Any = ray_actors.CoordinatorActor
    begun = iter([ray.exceptions.RaySystemError("the head is away"), "the council"])

    async def begin() -> Any:
        found = next(begun)
        if isinstance(found, Exception):
            raise found
        return found

    actor = SimpleNamespace(_coordinator=None, _again=True, _council_id="mine", _begun=begin)
    asyncio.run(kind.__ray_actor_class__._open(actor))
    assert actor._coordinator == "the council"
