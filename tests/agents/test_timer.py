"""Timer: it wakes at the earliest of the times that were set, once."""

from __future__ import annotations

import asyncio
import math

import pytest

from council.agents.messaging.timer import Timer
from council.runtime.loop_thread import new_loop
from tests.patience import HANG_S
from tests.runtime.harness import run, until


def test_it_wakes_at_the_earliest_time_once() -> None:
    """Mutations: a later time replaces an earlier one; an earlier one is not set; it wakes for both."""

    async def scenario() -> None:
        loop, woken = asyncio.get_running_loop(), list[float]()
        timer = Timer(lambda: woken.append(loop.time()))
        began_s = loop.time()
        for after_s in (50.0, 20.0, 40.0):
            timer.set(began_s + after_s)
        await until(lambda: woken)
        assert not timer.is_set
        await asyncio.sleep(100.0)
        assert woken == pytest.approx([began_s + 20.0])
        timer.set(loop.time() + 1.0)  # it may be set again
        await until(lambda: len(woken) == 2)

    run(scenario(), in_virtual_time=True)


def test_it_never_wakes_at_infinity_nor_once_it_is_cancelled() -> None:
    async def scenario() -> None:
        woken = list[bool]()
        timer = Timer(lambda: woken.append(True))
        timer.set(math.inf)
        assert not timer.is_set
        timer.set(asyncio.get_running_loop().time() + 1.0)
        timer.cancel()
        assert not timer.is_set
        await asyncio.sleep(10.0)
        assert woken == []

    run(scenario(), in_virtual_time=True)


def test_it_takes_a_time_that_is_near_or_over_on_the_loop_of_a_council() -> None:
    """Mutation: ask the loop's timer when it is due. For such a time uvloop has none."""

    async def scenario() -> None:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        timer = Timer(woken.set)
        timer.set(loop.time() + 0.0001)
        timer.set(loop.time() - 1.0)
        await asyncio.wait_for(woken.wait(), HANG_S)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())
