"""A council on real Ray, with real processes and real SIGKILLs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from council import (
    AsyncCouncil,
    Case,
    Council,
    CouncilPool,
    Decision,
    Event,
    Opinion,
    SeatConfig,
)
from council.cluster import actors, connection
from council.cluster import port as ray_side
from council.protocol.errors import (
    CallerError,
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
from tests.patience import HANG_S, until

MINDS = "tests.ray.minds:"
SEATS = ("prime", "lite", "codemind")


def seats(lite: Any = "Told", codemind: Any = "ToldOnItsLoop") -> tuple[SeatConfig, ...]:
    """Three seats whose minds do what a proposal's summary says for them, unless they have others."""
    minds = {"prime": "Told", "lite": lite, "codemind": codemind}
    return tuple(
        SeatConfig(
            name=name,
            mind=MINDS + mind if isinstance(mind, str) else mind,
            options={"seat": name} if mind in ("Told", "ToldOnItsLoop") else {},
        )
        for name, mind in minds.items()
    )


def patient(**settings: Any) -> dict[str, Any]:
    """Settings of a council whose limits pass nowhere; beats are frequent."""
    limits = {"inactivity_s": HANG_S, "time_budget_s": HANG_S, "call_timeout_s": HANG_S}
    return {"seats": seats(), "heartbeat_s": 0.5} | limits | settings


def launch(name: str, **settings: Any) -> Council:
    return Council.launch(name=name, **patient(**settings))


def pid_of(council: Council, seat: str) -> int:
    actor = ray.get_actor(f"{council.name}/{seat}", namespace="council")
    return int(ray.get(actor.pid.remote(), timeout=HANG_S))


def events_until(council: Council, after: int, wanted: Callable[[Event], bool]) -> list[Event]:
    """Events after a cursor, up to and with the first that ``wanted`` takes."""
    seen: list[Event] = []

    def look() -> bool:
        for event in council.events(seen[-1].cursor if seen else after, follow=False):
            seen.append(event)
            if wanted(event):
                return True
        return False

    until(look)
    return seen


def rolled(seat: str, active: bool) -> Callable[[Event], bool]:
    return lambda e: e.kind == "roll" and e.data["seat"] == seat and e.data["active"] is active


def position(council: Council) -> int:
    found: int = council.status()["events"]
    return found


def told_of(council: Council, what: str) -> dict[str, Any]:
    """One of the figures of each seat, by its name."""
    return {seat["name"]: seat[what] for seat in council.status()["seats"]}


@contextlib.contextmanager
def proposing(council: Council, summary: str, *gates: Path) -> Iterator[Future[Decision]]:
    """A proposal that waits for all, made on a thread; in the end the gates that its seats wait for are open."""
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(council.propose, summary, wait_for="all")
        finally:
            for gate in gates:
                gate.touch()


def begun(gate: Path) -> bool:
    """Whether a seat waits for a gate."""
    return gate.with_suffix(".begun").exists()


@pytest.fixture
def council(shared: Council) -> Council:
    """The same, with all of its seats active, whatever the test before did to them."""
    until(lambda: all(told_of(shared, "active").values()))
    return shared


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of keys of whoever launched the next one."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def other(state: Path) -> Iterator[Council]:
    """Another council, without a journal on disk, of five open proposals at most.

    Its codemind refuses, and its Prime does not rule.
    """
    minds = SeatConfig(name="prime", mind=f"{MINDS}agree"), *seats(codemind="refuse")[1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state))
        council = launch("other", seats=minds, store="memory", humans={"ada": "kept"}, open_max=5)
    with council:
        yield council


def test_three_processes_decide_and_prime_rules_on_high_risk(council: Council) -> None:
    decision = council.propose("Delete the staging bucket; codemind: no", risk="high")
    assert decision, decision
    assert str(decision.tally) == "2 yes, 1 no, 0 abstained"
    assert decision.dissent == "codemind (no, 0.90): refused"
    assert decision.ruling is not None
    assert decision.ruling.reason == "3 ballots seen"
    assert (decision.early, decision.degraded) == (False, False)
    assert len({pid_of(council, seat) for seat in SEATS} | {os.getpid()}) == 4


def test_heartbeats_are_heard(council: Council) -> None:
    """Mutation: an age that no beat ends."""
    before = told_of(council, "heartbeats")
    until(lambda: all(count >= before[seat] + 3 for seat, count in told_of(council, "heartbeats").items()))
    assert all(told_of(council, "active").values())
    until(lambda: all(age < 5 for age in told_of(council, "heartbeat_age_s").values()))


def test_two_hundred_at_once(council: Council) -> None:
    before = position(council)
    found = council.propose_many([f"number {n}; codemind: no" for n in range(200)])
    assert all(isinstance(decision, Decision) and decision for decision in found)
    ids = {decision.proposal_id for decision in found if isinstance(decision, Decision)}
    assert len(ids) == 200
    events = council.events(before, follow=False)
    decided = [e.data["decision"]["proposal_id"] for e in events if e.kind == "decision"]
    assert sorted(decided) == sorted(ids), "exactly one decision for each"


@pytest.mark.parametrize("store", ["memory", "disk"])
def test_its_journal_is_told_to_another_client(council: Council, other: Council, store: str) -> None:
    """Mutation: an error of the history that is Ray's own when it comes to the client."""
    one = council if store == "disk" else other
    decision = one.propose("Rotate the staging key", wait_for="all")
    with Council.connect(name=one.name) as client:
        (last,) = client.history(types=["decision"], proposal=decision.proposal_id[:8])
        assert last.decision == decision
        assert [each.kind for each in client.history(proposal=decision.proposal_id[:8])][-1] == "proposal"
        with pytest.raises(Refused):
            client.history(proposal="00000000")


def test_a_seat_killed_in_mid_vote_comes_back_and_votes(council: Council, tmp_path: Path) -> None:
    mark, gate = tmp_path / "died", tmp_path / "gate"
    before, restarts = position(council), told_of(council, "restarts")
    with proposing(council, f"lite: die {mark}; prime: wait {gate}", gate) as waiting:
        events_until(council, before, rolled("lite", True))
    decision = waiting.result()
    assert decision
    assert {ballot.seat for ballot in decision.ballots} == set(SEATS)
    assert not decision.degraded
    kinds = [
        (e.kind, e.data.get("seat"), e.data.get("active"))
        for e in events_until(council, before, lambda e: e.kind == "decision")
    ]
    assert ("roll", "lite", False) in kinds
    assert ("roll", "lite", True) in kinds
    assert pid_of(council, "lite") != int(mark.read_text())
    after = told_of(council, "restarts")
    assert after["lite"] > restarts["lite"]
    assert after["codemind"] == restarts["codemind"]


def test_a_dead_seat_is_not_waited_for(council: Council, tmp_path: Path) -> None:
    """Two ballots are in when the third seat dies: decided at once, degraded, the dead seat named."""
    gate = tmp_path / "gate"
    before = position(council)
    victim = pid_of(council, "lite")
    with proposing(council, f"wait for all; lite: wait {gate}", gate) as waiting:
        for seat in ("prime", "codemind"):
            events_until(
                council, before, lambda e, seat=seat: e.kind == "ballot" and e.data["ballot"]["seat"] == seat
            )
        until(lambda: begun(gate))
        os.kill(victim, signal.SIGKILL)
        decision = waiting.result(HANG_S / 2)  # its seats have twice the time
    assert decision
    assert decision.degraded
    # Two calls end with the actor; which of them is the first to tell is chance.
    why = dict(decision.missing)["lite"]
    assert re.match("inactive: (its actor died|it can't be reached): Actor", why), why
    events_until(council, before, rolled("lite", True))


def test_two_seats_killed_at_once(council: Council) -> None:
    before = position(council)
    for seat in ("lite", "codemind"):
        os.kill(pid_of(council, seat), signal.SIGKILL)
    events_until(council, before, rolled("lite", False))
    decision = council.propose("with one seat left")
    assert decision, decision  # it waited for a seat to come back: nothing is decided by one
    assert decision.tally.cast >= 2


def test_a_mind_that_hangs_or_stops_its_loop_costs_its_ballot_and_the_heart_goes_on(
    council: Council, tmp_path: Path
) -> None:
    """lite's hangs, codemind's stops the seat's whole event loop."""
    gates, hang = [tmp_path / "lite", tmp_path / "codemind"], ("lite", "codemind")
    restarts = told_of(council, "restarts")
    try:
        decision = council.propose(f"lite: wait {gates[0]}; codemind: wait {gates[1]}", timeout_s=3)
        assert decision.degraded
        assert {dict(decision.missing)[seat] for seat in hang} == {"had not voted by the deadline"}
        until(lambda: all(begun(gate) for gate in gates))
        before = told_of(council, "heartbeats")
        until(lambda: all(told_of(council, "heartbeats")[seat] >= before[seat] + 3 for seat in hang))
        assert all(told_of(council, "active").values())
        assert told_of(council, "restarts") == restarts
    finally:
        for gate in gates:
            gate.touch()


@pytest.mark.long
def test_seats_whose_minds_hang_past_the_inactivity_limit_stay_active(name: str, tmp_path: Path) -> None:
    """Mutation: the heart beats on the loop of the mind, and a mind that hangs makes its seat inactive for good.

    By the coordinator's clock, which status tells, they hang for twice the limit. A machine that stands still may
    make a seat inactive for a moment; the beat behind it takes that back.
    """
    gates, hang = [tmp_path / "lite", tmp_path / "codemind"], ("lite", "codemind")
    with launch(name, heartbeat_s=0.2, inactivity_s=1.0, store="memory") as council:
        with proposing(council, f"lite: wait {gates[0]}; codemind: wait {gates[1]}", *gates) as waiting:
            until(lambda: all(begun(gate) for gate in gates))
            before_s = council.status()["uptime_s"]
            until(lambda: council.status()["uptime_s"] > before_s + 2.0)
            before = told_of(council, "heartbeats")
            until(lambda: all(told_of(council, "heartbeats")[seat] > before[seat] for seat in hang))
            until(lambda: all(told_of(council, "active").values()))
            assert not waiting.done()
            assert set(told_of(council, "restarts").values()) == {0}
        assert waiting.result(HANG_S).outcome == "approved"


def test_a_late_ballot_is_shown_and_changes_nothing(council: Council, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    before = position(council)
    decision = council.propose(f"decide early; lite: wait {gate}, warn")
    assert decision.early
    gate.touch()
    events = events_until(council, before, lambda e: e.kind == "alert")
    ballots = [e for e in events if e.kind == "ballot" and e.data["late"]]
    late = [e.data["ballot"] for e in ballots if e.data["ballot"]["proposal_id"] == decision.proposal_id]
    assert [ballot["seat"] for ballot in late] == ["lite"]
    after = council.decision(decision.proposal_id)
    assert after is not None
    assert after.outcome == "approved"
    assert [ballot.seat for ballot in after.late] == ["lite"]
    assert after.ballots == decision.ballots


def test_two_councils_side_by_side(council: Council, other: Council) -> None:
    assert council.propose("same words; lite: no")
    decision = other.propose("same words; lite: no")
    assert decision.outcome == "rejected"
    with pytest.raises(CouncilError) as caught:
        council.decision(decision.proposal_id)
    assert caught.value.code == "unknown_proposal"
    with pytest.raises(NameTaken, match=council.name):
        launch(council.name)
    assert council.propose("still there")


@pytest.mark.long
def test_a_mind_that_cannot_be_had_is_told_at_launch(name: str) -> None:
    before = ray.util.list_named_actors(all_namespaces=True)
    with pytest.raises(MindError, match="no licence file") as caught:
        launch(name, seats=seats(codemind="Unbuildable"))
    assert "codemind" in str(caught.value)
    until(lambda: gone(name, before), "some of it is left running")


def gone(name: str, before: Sequence[dict[str, str]] = ()) -> bool:
    """Whether nothing of the council runs that did not before."""
    left = [actor for actor in ray.util.list_named_actors(all_namespaces=True) if actor not in before]
    return not any(actor["name"].startswith(f"{name}/") for actor in left)


def test_back_pressure_is_a_clear_refusal(other: Council, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.propose_many, [f"lite: wait {gate}"] * 20)
        try:
            until(lambda: sum(other.status()["refused"].values()) == 15)
        finally:
            gate.touch()
        found = waiting.result()
    refused = [error for error in found if isinstance(error, TooManyOpen)]
    assert len(refused) == 15
    assert "as many as this council allows" in str(refused[0])
    assert sum(isinstance(decision, Decision) and bool(decision) for decision in found) == 5


def test_another_process_connects_proposes_and_leaves(other: Council) -> None:
    address = ray.get_runtime_context().gcs_address
    code = (
        "from council import Council\n"
        "for _ in range(2):\n"
        f"    with Council.connect({address!r}, {other.name!r}) as council:\n"
        "        decision = council.propose('from next door')\n"
        "        print(decision.outcome, len(list(council.events(follow=False))) > 3)\n"
    )
    environment = {**os.environ, "RAY_AUTH_MODE": "token"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.stdout.split() == ["approved", "True"] * 2, done.stderr[-2000:]


def test_the_ray_in_use_is_known_by_each_of_its_names_and_another_is_refused(other: Council) -> None:
    """Mutation: to compare ports alone takes another machine's council for this one's."""
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    for name in ("localhost", "127.0.0.1", "[::1]", host, ray.util.get_node_ip_address()):
        with Council.connect(f"{name}:{port}", other.name) as council:
            assert council.propose("x")
    for address in (f"198.51.100.7:{port}", f"nowhere.invalid:{port}", "127.0.0.1:1", f"ray://{host}:{port}"):
        with pytest.raises(Unreachable, match="is connected to the Ray at") as caught:
            Council.connect(address, other.name)
        assert caught.value.address == address


def test_who_may_answer_is_fixed_at_launch(
    other: Council, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rules 1.9, 1.14: whoever may use this Ray can join the council, and is no human of it for that."""
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    standing = other.propose("x", risk="high")
    assert re.match(r"Prime gave no ruling: its mind, \w+, has no rule", standing.reason), standing.reason
    waiting = str(standing.escalation_id)
    handle: Any = ray.get_actor(f"{other.name}/coordinator", namespace="council")
    with pytest.raises(TypeError, match="positional"):
        ray.get(handle.open.remote({"mallory": b"m" * 32}), timeout=HANG_S)
    with pytest.raises(NotEnrolled, match=r"those who may answer in .*: ada;"):
        other.answer(waiting, approve=True, human="mallory")
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
        with pytest.raises(NotEnrolled, match="not the key that ada is enrolled with"):
            other.answer(waiting, approve=True, human="ada")
    assert other.status()["with_human"] == 1
    decision = other.answer(waiting, approve=True, human="ada")
    assert (decision.outcome, decision.answer and decision.answer.human) == ("approved", "ada")


def test_a_dead_coordinator_without_a_journal_is_told_at_once(other: Council, tmp_path: Path) -> None:
    """The last of that council. Mutation: it is asked for as long as a call may take, which is as long as a hang."""
    gate = tmp_path / "gate"
    with proposing(other, f"never answered; lite: wait {gate}", gate) as waiting:
        until(lambda: begun(gate))
        os.kill(other.status()["pid"], signal.SIGKILL)
        assert isinstance(waiting.exception(HANG_S / 2), CouncilDied)
    with pytest.raises(CouncilDied):
        other.propose("again")
    until(lambda: gone(other.name), "the seats of a dead coordinator are left running")


def test_another_version_of_ray_is_refused() -> None:
    theirs = {**connection.versions(), "ray": "1.0.0"}
    with pytest.raises(VersionMismatch, match=r"1\.0\.0"):
        connection.refuse_other_versions("the council", theirs)
    connection.refuse_other_versions("the council", connection.versions())


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
        timeout=HANG_S,
        check=False,
    )
    theirs = f"mismatch {ray.__version__} {connection.versions()['python']} False"
    assert done.stdout.splitlines()[:2] == [theirs, theirs], done.stdout + done.stderr
    assert "no council named 'version-of-nobody' runs" in done.stdout


def test_a_council_is_launched_beside_the_callers_loop_with_a_users_own_minds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: to launch on the caller's loop stops it for the seconds that the actors take to start.

    A seat is not there before the loop has turned while it waits. And no call that waits for Ray is made on the loop.
    """
    word, gate = "closure", tmp_path / "gate"
    waited_on: set[str] = set()

    def noting(call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **more: Any) -> Any:
            waited_on.add(threading.current_thread().name)
            return call(*given, **more)

        return noted

    for each in ("get", "wait", "get_actor"):
        monkeypatch.setattr(ray, each, noting(getattr(ray, each)))

    async def own(case: Case) -> Opinion:
        return Opinion.no(f"said by a {word}")

    async def scenario() -> None:
        async def let_in() -> None:
            while not begun(gate):  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.01)
            gate.touch()

        letting_in = asyncio.ensure_future(let_in())
        gated = SeatConfig(name="codemind", mind=f"{MINDS}Gated", options={"gate": str(gate)})
        async with AsyncCouncil.launch(name=name, **patient(seats=(*seats(own)[:2], gated))) as council:
            assert letting_in.done()
            assert waited_on
            assert threading.current_thread().name not in waited_on
            decision = await council.propose("x", wait_for="all")
            assert decision.outcome == "rejected"
            assert {b.reason for b in decision.ballots if b.vote == "no"} == {"said by a closure", "let in"}
            address = ray.get_runtime_context().gcs_address
            async with AsyncCouncil.connect(address, name, sender="guest") as guest:
                assert guest.sender in (await guest.status())["sessions"]

    asyncio.run(scenario())


def opening() -> bool:
    """Whether a council is being launched beside a loop."""
    return any(thread.name.startswith("council-opening") for thread in threading.enumerate())


@pytest.mark.long
def test_a_launch_that_is_cancelled_leaves_no_council(name: str) -> None:
    async def scenario() -> None:
        launching = asyncio.ensure_future(
            AsyncCouncil.launch(name=name, **patient(seats=seats()[:2]))._open()
        )
        while not opening():  # noqa: ASYNC110 - it is a thread
            await asyncio.sleep(0.01)
        launching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launching

    asyncio.run(scenario())
    until(lambda: not opening(), "the council that nobody has is not closed")
    assert name not in ray_side.running("council")


@pytest.mark.long
def test_the_actors_log_as_the_process_that_launched_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their Ray was started without these variables. Mutation: each actor goes by its own environment."""
    monkeypatch.setenv("COUNCIL_LOG_LEVEL", "debug")
    monkeypatch.setenv("COUNCIL_LOG_FORMAT", "json")
    minds = [SeatConfig(name=each, mind="tests.ray.minds:tell_the_log") for each in ("prime", "lite")]
    with Council.launch(name=name, seats=minds, quorum=2) as council:
        decision = council.propose("Say how you log", wait_for="all")
    assert {ballot.reason for ballot in decision.ballots} == {"DEBUG {"}


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
    monkeypatch.setattr(actors, "AWAY_FIRST_S", 0.01)
    kind: Any = actors.CoordinatorActor
    begun = iter([ray.exceptions.RaySystemError("the head is away"), "the council"])

    async def begin() -> Any:
        found = next(begun)
        if isinstance(found, Exception):
            raise found
        return found

    actor = SimpleNamespace(_coordinator=None, _again=True, _council_id="mine", _begun=begin)
    asyncio.run(kind.__ray_actor_class__._open(actor))
    assert actor._coordinator == "the council"


@pytest.mark.long
def test_a_pool_is_joined_by_its_name_and_knows_its_size(name: str) -> None:
    with (
        CouncilPool.launch(2, name=name, seats=seats()[:2]) as pool,
        CouncilPool.connect(name=name, sender="guest") as other,
    ):
        assert (other.name, len(other.councils)) == (name, 2)
        assert [each.name for each in other.councils] == [f"{name}.0", f"{name}.1"]
        assert {each.sender for each in other.councils} == {"guest"}
        for key in ("a", "b", "c", "d"):
            decision = other.propose("Rotate the staging key", key=key)
            found = pool.decision(decision.proposal_id)
            assert found is not None
            assert found.position == decision.position
        assert other.status()["decided"] == {"approved": 4}


def test_a_council_by_itself_is_no_pool(council: Council) -> None:
    with pytest.raises(CallerError, match=r"shared\.0 is not part of a pool: use Council\.connect"):
        CouncilPool.connect(name="shared")
    assert council.propose("Rotate the staging key")


@pytest.mark.long
def test_ray_tasks_share_one_council(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The program of examples/ray_tasks.py."""
    runpy.run_path(str(Path(__file__).parents[2] / "examples/ray_tasks.py"))["main"](name)
    assert capsys.readouterr().out.count("approved") == 3
