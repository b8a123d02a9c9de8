"""Nodes of a Ray cluster that are killed, frozen, thawed and cut off, under a council whose journal is in PostgreSQL.

What a frozen or a cut-off node held runs twice for a while, here and there; its old copies must count for nothing.
Two times are taken of each fault: until the council takes a call again, where its coordinator was there, and until
proposals that wait for all seats are decided, where seats were.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from council import Council
from council.cluster import port
from council.cluster.actors import actor_name
from council.config.settings import CouncilConfig
from council.protocol.envelope import Envelope
from council.protocol.errors import CouncilError
from council.runtime.questions import AskStatus
from council.runtime.session import Session
from tests.chaos.ledger import JOURNAL, Ledger, Round, quantile
from tests.chaos.load import KEY, TIMEOUT_S, Load, config
from tests.chaos.machines import Machine, Machines, machines, namespaces_allowed, nodes
from tests.chaos.postgres import server
from tests.chaos.proposals import proposal
from tests.chaos.ray import _accepted
from tests.patience import HANG_S

LOOK_S = 0.1
DECIDED_P95_S = 5.0
BACK_MAX_S = 10.0
# What was frozen or cut off ends by itself, once it hears that it is dead.
GONE_WITHIN_S = 60.0
WAITERS = 2
IN_FLIGHT = 4
WAITING = 10**10  # numbers of the proposals that wait for all, beside those of the load
KILLED = ("seat killed", "two seats killed", "coordinator killed")
FROZEN = ("seat frozen", "coordinator frozen")
CUT = ("seat cut off", "coordinator cut off")
APART = ("seat apart",)  # from its coordinator alone: the head reaches both
# So that a seat that is apart is silent for too long soon; a node that is dead is known to be so before.
BEATS = {"heartbeat_s": 1.0, "inactivity_s": 5.0}


@dataclass
class NodeRound(Round):
    """``by_kind``: of each kind of fault when the council had noticed it, answered, and was whole again."""

    by_kind: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    @property
    def in_time(self) -> bool:
        """Kills alone have limits: PostgreSQL waits 10 s for a writer that froze at the wrong moment."""
        return quantile(self.decided_s or [0.0], 0.95) <= DECIDED_P95_S and max(self.back_s, default=0.0) <= (
            BACK_MAX_S
        )

    def __str__(self) -> str:
        told = super().__str__()
        for kind, times in self.by_kind.items():
            shown = [
                f"{what} p50 {quantile(found, 0.5):.2f} s, max {max(found):.2f} s"
                for what, found in times.items()
            ]
            told += f"\n  {kind}: {'; '.join(shown)}"
        return told


def run(
    count: int, seed: int, folder: Path, *, kinds: tuple[str, ...] | None = None, name: str = JOURNAL
) -> Round:
    result, ledger = NodeRound("nodes"), Ledger()
    networks = namespaces_allowed()
    if not networks:
        result.notes["no network namespaces here, so nothing is cut"] += 1
    kinds = kinds or (KILLED + FROZEN + (CUT + APART if networks else ()))
    first = (seed - 1) % len(kinds)  # so that short rounds of several seeds are of several kinds
    kinds = kinds[first:] + kinds[:first]
    with server() as database, machines(2, networks=networks) as cluster:
        settings = _settings(database.address, cluster, name)
        with Council.launch(settings):
            asyncio.run(_Hurt(settings, cluster, ledger, result, random.Random(seed)).all(kinds, count))
        ledger.compare(database.address, name, result)
    return result


def _settings(store: str, cluster: Machines, name: str) -> CouncilConfig:
    """Its seats have room on the workers alone; on the head are the clients, whom Ray would end with it."""
    plain = config(store, name, ray_address=cluster.address, ray_insecure=True, **BEATS)
    seats = tuple(seat.model_copy(update={"resources": {"room": 1.0}}) for seat in plain.seats)
    return plain.model_copy(update={"seats": seats})


class _Hurt:
    """One council, hurt again and again. ``places`` are asked of it, and so are as it knows them."""

    def __init__(
        self,
        settings: CouncilConfig,
        cluster: Machines,
        ledger: Ledger,
        result: NodeRound,
        chance: random.Random,
    ) -> None:
        self._settings, self._cluster, self._ledger = settings, cluster, ledger
        self._result, self._chance = result, chance
        self._port = port.connect(settings)
        # Of each proposal that waits for all: who sent it, when, and when it was decided.
        self._waited: list[tuple[int, float, float]] = []
        self._told = asyncio.Event()
        self._ending = False

    async def all(self, kinds: tuple[str, ...], count: int) -> None:
        load = Load(self._port, self._settings, self._ledger.note, in_flight=IN_FLIGHT)
        await load.open()
        working = [asyncio.ensure_future(load.run(itertools.count()))]
        working += [
            asyncio.ensure_future(self._wait_for_all(load, WAITING * (n + 1))) for n in range(WAITERS)
        ]
        for kind in itertools.islice(itertools.cycle(kinds), count):
            await (self._apart(kind) if kind in APART else self._hurt(kind))
            self._result.kills += 1
        self._ending = True
        load.finish()
        await asyncio.wait_for(asyncio.gather(*working), HANG_S)
        await load.ask_all(sorted(self._ledger.final))

    async def _wait_for_all(self, load: Load, first: int) -> None:
        session = Session(self._port, f"all-{first}", "proposer", KEY, TIMEOUT_S)
        await session.open()
        for number in itertools.count(first, 10):  # of the kind that all agree to
            if self._ending:
                return
            sent_s, envelope = time.monotonic(), _for_all(number, f"all-{first}")
            self._ledger.note("sent", number)
            while True:
                try:
                    load.tell(await session.propose(envelope))
                    break
                except CouncilError as error:
                    self._ledger.note("refused", error.code)
                    await asyncio.sleep(LOOK_S)
            self._waited.append((first, sent_s, time.monotonic()))
            self._told.set()
            await asyncio.sleep(LOOK_S)

    # One fault

    async def _hurt(self, kind: str) -> None:
        part, how = kind.split(" ")[0], kind.split(" ")[-1]
        victim = await self._arranged(part)
        before = await self._pids(victim)
        await asyncio.sleep(self._chance.uniform(0.2, 0.7))
        began_s = time.monotonic()
        if how == "killed":
            self._cluster.lose(victim)
            victim.signal(signal.SIGKILL)
        elif how == "frozen":
            victim.signal(signal.SIGSTOP)
        else:
            self._cluster.cut_off(victim)
        times = self._result.by_kind[kind]
        if part == "coordinator":
            await asyncio.wait_for(_accepted(self._port), HANG_S)
            times["answers"].append(time.monotonic() - began_s)
            if how == "killed":
                self._result.back_s.append(times["answers"][-1])
        await self._whole(without=victim)
        whole_s = time.monotonic()
        times["whole"].append(whole_s - began_s)
        if how != "killed":
            await self._two_copies(kind, victim, before)
        await asyncio.to_thread(self._replace, victim)
        late_s = await asyncio.wait_for(self._last_decided(began_s, whole_s), HANG_S)
        times["all decided"].append(late_s)
        if part != "coordinator" and how == "killed":
            self._result.decided_s.append(late_s)
        self._waited.clear()

    async def _apart(self, kind: str) -> None:
        """Between a seat's node and the coordinator's nothing goes to and fro; Ray takes neither for dead."""
        victim = await self._arranged("seat", others_on_workers=True)
        placement = await self._placement()
        home = next(each for each in self._cluster.workers if each.node_id == placement["coordinator"])
        (seat,) = (part for part, node in placement.items() if node == victim.node_id)
        before, living = await self._pids(None), _living()
        times, began_s = self._result.by_kind[kind], time.monotonic()
        self._cluster.keep_apart(victim, home)
        while (await self._seat(seat))["active"]:
            assert time.monotonic() - began_s < HANG_S, f"{seat} is apart, and counts as active"
            await asyncio.sleep(LOOK_S)
        silent_s = time.monotonic()
        times["silent"].append(silent_s - began_s)
        assert (await self._seat(seat))["why"].startswith("no heartbeat"), await self._seat(seat)
        times["all decided"].append(await asyncio.wait_for(self._last_decided(began_s, silent_s), HANG_S))
        assert _living() == living, "a node that the head reaches counts as dead"
        self._cluster.keep_apart(victim, home, apart=False)
        began_s = time.monotonic()
        await self._whole()
        times["whole"].append(time.monotonic() - began_s)
        assert await self._pids(None) == before, "what was only apart was replaced"
        self._result.notes["seats that were apart and came back"] += 1
        self._waited.clear()

    async def _seat(self, name: str) -> dict[str, Any]:
        status = await asyncio.wait_for(self._port.ask(AskStatus()), HANG_S)
        (found,) = (each for each in status["seats"] if each["name"] == name)
        return dict(found)

    async def _last_decided(self, began_s: float, whole_s: float) -> float:
        """The longest that one waited that was open at the fault, or came before the council was whole again."""
        while len({who for who, sent, _ in self._waited if sent > whole_s}) < WAITERS:
            self._told.clear()
            await self._told.wait()
        before = [(sent, told) for _, sent, told in self._waited if told > began_s and sent < whole_s]
        return max(told - max(sent, began_s) for sent, told in before)

    async def _two_copies(self, kind: str, victim: Machine, before: dict[str, int]) -> None:
        """The node comes back beside those that replaced it, and ends by itself."""
        now = await self._pids(None)
        assert all(now[part] != pid for part, pid in before.items()), "nothing has replaced what was lost"
        if kind.endswith("frozen"):
            victim.signal(signal.SIGCONT)
        else:
            self._cluster.connect_again(victim)
        old = {each.pid for each in victim.processes()}
        self._result.notes["copies that lived twice"] += sum(pid in old for pid in before.values())
        self._cluster.lose(victim)
        began_s = time.monotonic()
        if await asyncio.to_thread(victim.gone_within, GONE_WITHIN_S):
            self._result.by_kind[kind]["old copies gone"].append(time.monotonic() - began_s)
        else:
            self._result.notes["old nodes that had to be ended"] += 1

    def _replace(self, victim: Machine) -> None:
        victim.kill()
        self._cluster.add()

    # Where everything is

    async def _placement(self) -> dict[str, str]:
        """The node of each part of the council, as far as it is known."""
        found = (await self._port.ask(AskStatus()))["placement"]
        seats = {name: place["node"] for name, place in found["seats"].items()}
        return {**seats, "coordinator": found["coordinator"]["node"]}

    async def _pids(self, victim: Machine | None) -> dict[str, int]:
        """The processes of the parts that are on a node, or of all."""
        placement = await self._placement()
        found = {}
        for part, node in placement.items():
            if victim is not None and node != victim.node_id:
                continue
            if part == "coordinator":
                found[part] = int((await self._port.ask(AskStatus()))["pid"])
            else:
                found[part] = int(await _asked(self._actor(part).pid))
        return found

    def _actor(self, part: str) -> Any:
        return ray.get_actor(actor_name(self._settings.name, part), namespace=self._settings.ray_namespace)

    async def _whole(self, without: Machine | None = None) -> dict[str, str]:
        """Waits until all seats are active, on nodes that live; where each part is then."""
        ends_s = time.monotonic() + HANG_S
        gone = None if without is None else without.node_id
        status: dict[str, Any] = {}
        while time.monotonic() < ends_s:
            with contextlib.suppress(CouncilError, TimeoutError):
                status = await asyncio.wait_for(self._port.ask(AskStatus()), 20)
                places = {name: place["node"] for name, place in status["placement"]["seats"].items()}
                living = _living() - {gone}
                active = sum(seat["active"] for seat in status["seats"])
                if active == len(places) == len(status["seats"]) and living.issuperset(places.values()):
                    return {**places, "coordinator": status["placement"]["coordinator"]["node"]}
            await asyncio.sleep(LOOK_S)
        raise AssertionError(f"the council does not become whole again: {status}")

    async def _arranged(self, part: str, *, others_on_workers: bool = False) -> Machine:
        """A worker that has the coordinator, one seat or two: what lies otherwise is moved, as an operator would.

        With ``others_on_workers`` the coordinator is on another worker, and not on the head.
        """
        for _ in range(30):
            placement = await self._whole()
            coordinator = placement.pop("coordinator")
            seats = Counter(placement.values())
            spread = len(seats) > 1
            if not spread:
                # Gone for good, so that the council makes it anew, where it has the fewest.
                ray.kill(self._actor(self._chance.choice(sorted(placement))), no_restart=True)
                await asyncio.sleep(1.0)
                continue
            wanted = {"coordinator": None, "seat": 1, "two": 2}[part]
            for machine in self._cluster.workers:
                here = coordinator == machine.node_id
                placed = not others_on_workers or any(
                    coordinator == other.node_id for other in self._cluster.workers
                )
                if placed and (here if wanted is None else not here and seats[machine.node_id] == wanted):
                    return machine
            self._result.notes["coordinator moved first"] += 1
            os.kill(int((await self._port.ask(AskStatus()))["pid"]), signal.SIGKILL)
            await asyncio.sleep(0.5)
        raise AssertionError(f"no node comes to hold {part}")


def _living() -> set[str]:
    return {node["NodeID"] for node in nodes() if node["Alive"]}


async def _asked(method: Any) -> Any:
    return await asyncio.wait_for(asyncio.wrap_future(method.remote().future()), HANG_S)


def _for_all(number: int, sender: str) -> Envelope:
    """As the load's, but decided only when every active seat has voted (rules 1.5)."""
    plain = proposal(number, sender)
    return plain.model_copy(update={"content": plain.content.model_copy(update={"wait_for": "all"})})
