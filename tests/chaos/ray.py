"""SIGKILL of coordinator and seats on real Ray, under load, while they recover, with many decisions behind them."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from council import Council
from council.cluster import port as ray_side
from council.cluster.actors import actor_name
from council.cluster.actors import result as result_of
from council.config.settings import CouncilConfig
from council.protocol.errors import CouncilError
from council.runtime.answers import result_or_raise
from tests.chaos.ledger import JOURNAL, Ledger, Round, mark
from tests.chaos.load import KEY, PAUSE_S, Load, config
from tests.chaos.proposals import proposal
from tests.patience import HANG_S

ROOT = Path(__file__).parent.parent.parent
BEHIND = 10_000  # decisions that the journal holds before the first kill
BEHIND_AT_ONCE = 400
BACK_S_MAX = 5.0, 15.0  # p95 and maximum, with so many behind it
LOOK_S = 0.02
PROBE = 10**9
BLOCKING = 2
SEATS = ("prime", "lite", "codemind")
TURNS = ("coordinator", "seat", "coordinator", "successor", "coordinator")


def run(count: int, seed: int, folder: Path, *, behind: int = BEHIND, name: str = JOURNAL) -> Round:
    result, ledger = Round("ray", back_s_max=BACK_S_MAX), Ledger()
    store = str(folder / "ray.db")
    settings = config(store, name)
    if not ray.is_initialized():
        os.environ["PYTHONPATH"] = str(ROOT)  # the seats' processes import tests.chaos.minds
    release = ray_side.ensure_ray(None)
    try:
        with Council.launch(settings), _connected(settings) as port:
            asyncio.run(_hurt(port, settings, count, random.Random(seed), behind, ledger, result))
    finally:
        if release is not None:
            release()
    ledger.compare(store, name, result)
    return result


@contextmanager
def _connected(settings: CouncilConfig) -> Iterator[Any]:
    port = ray_side.connect(settings)
    try:
        yield port
    finally:
        port.release()


async def _hurt(
    port: Any,
    settings: CouncilConfig,
    count: int,
    chance: random.Random,
    behind: int,
    ledger: Ledger,
    result: Round,
) -> None:
    crowd = Load(port, settings, ledger.note, in_flight=BEHIND_AT_ONCE)
    await crowd.open()
    await crowd.run(iter(range(behind)))
    load, numbers = Load(port, settings, ledger.note), itertools.count(behind)
    await load.open()
    turns = itertools.cycle(TURNS)
    with _blocking(settings, numbers, ledger):
        working = asyncio.ensure_future(load.run(numbers))
        while result.kills < count:
            await asyncio.sleep(chance.uniform(0, 0.5))
            await _kill(next(turns), settings, port, result, chance)
            await asyncio.wait_for(_decided(load, result), HANG_S)
        load.finish()
        await asyncio.wait_for(working, HANG_S)
    await load.ask_all(sorted(ledger.final))


async def _kill(how: str, settings: CouncilConfig, port: Any, result: Round, chance: random.Random) -> None:
    """One of the seats, the coordinator, or that and its successor while this recovers."""
    if how == "seat":
        pid = await _pid(settings, chance.choice(SEATS), 0)
        result.notes["seats killed"] += 1
    else:
        pid = await _pid(settings, "coordinator", 0)
    os.kill(pid, signal.SIGKILL)
    result.kills += 1
    if how == "successor":
        pid = await _pid(settings, "coordinator", pid)
        await asyncio.sleep(chance.choice((0.0, chance.uniform(0, 0.5))))
        os.kill(pid, signal.SIGKILL)
        result.kills += 1
        result.notes["killed again while it recovered"] += 1
    result.decided_s.append(-time.monotonic())
    if how != "seat":
        began_s = time.monotonic()
        await asyncio.wait_for(_accepted(port), HANG_S)
        result.back_s.append(time.monotonic() - began_s)


async def _decided(load: Load, result: Round) -> None:
    await load.propose(PROBE + result.kills)
    result.decided_s[-1] += time.monotonic()


async def _accepted(port: Any) -> None:
    """Returns when a client can join again: a call that only a coordinator that has recovered takes."""
    while True:
        try:
            joined = await port.join("probe", "proposer", KEY)
            await port.leave(joined["session"])
            return
        except CouncilError:
            await asyncio.sleep(LOOK_S)


async def _pid(settings: CouncilConfig, part: str, other_than: int) -> int:
    """The process of an actor, once there is one and another than before."""
    ends_s = time.monotonic() + HANG_S
    actor: Any = ray.get_actor(actor_name(settings.name, part), namespace=settings.ray_namespace)
    while time.monotonic() < ends_s:
        try:
            if part == "coordinator":
                pid = int(
                    result_or_raise(
                        await asyncio.wait_for(result_of(actor.hello.remote()), 5), dict[str, Any]
                    )["pid"]
                )
            else:
                pid = int(await asyncio.wait_for(result_of(actor.pid.remote()), 5))
            if pid != other_than:
                return pid
        except (ray.exceptions.RayError, TimeoutError):
            pass
        await asyncio.sleep(LOOK_S / 2)
    raise AssertionError(f"{part} does not come back")


@contextmanager
def _blocking(settings: CouncilConfig, numbers: Iterator[int], ledger: Ledger) -> Iterator[None]:
    """Beside it, threads that propose by blocking calls, one after another."""
    ending = threading.Event()

    def propose_on(council: Council) -> None:
        while not ending.is_set():
            number = next(numbers)
            ledger.note("sent", number)
            while True:
                try:
                    decision = council.propose(proposal(number, council.sender))
                    break
                except CouncilError as error:
                    ledger.note("refused", error.code)
                    time.sleep(PAUSE_S)
            ledger.note("told", decision.proposal_id, decision.outcome, mark(decision))

    councils = [Council.connect(config=settings, sender=f"blocking-{n}") for n in range(BLOCKING)]
    threads = [threading.Thread(target=propose_on, args=(council,)) for council in councils]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join(HANG_S)
        for council in councils:
            council.close()
