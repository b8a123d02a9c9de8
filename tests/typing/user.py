"""What a user's type checker must accept and refuse: ``make check`` reads this file, and nothing runs it.

An ``ignore`` stands where an error is due. One that is not needed is an error itself, so that a misspelled keyword
that any ``**kwargs: Any`` let pass is found.
"""

from __future__ import annotations

from typing import assert_type

from council import (
    Action,
    AsyncCouncil,
    Case,
    Council,
    CouncilConfig,
    CouncilPool,
    Decision,
    Event,
    Opinion,
    SeatConfig,
)
from council.testing import approving, escalating, rejecting


def plain() -> None:
    with Council.launch(
        quorum=2, name=None, sole_seat="allow-low-risk", sender="ada", dashboard=True
    ) as council:
        given = council.propose("x", risk="high", timeout_s=3, action={"tool": "t", "args": {}})
        assert_type(given, Decision)
        council.propose_many(["a", council.draft("b", risk="med")], wait_for="all", confidence=0.5)
        council.propose("x", riks="high")  # type: ignore[call-arg]
        council.propose("x", risk="higher")  # type: ignore[arg-type]
        council.propose("x", timeout_s="3")  # type: ignore[arg-type]
        council.propose_many(["x"], human_timeout_s=3)  # type: ignore[call-arg]

        @council.guard(risk="med", hide=("key",))
        def guarded(key: str) -> int:
            return 1

        assert_type(guarded("x"), int)
        guarded(3)  # type: ignore[arg-type]
        council.draft("x", riks="high")  # type: ignore[call-arg]
        council.propose("x", action=Action("shell", {"command": "ls"}))
        council.propose("x", action=("shell", "ls"))  # type: ignore[arg-type]
        council.history(limit=3, newest="first")  # type: ignore[call-arg]

        @council.guard
        def bare(key: str) -> int:
            return 1

        assert_type(bare("x"), int)
        bare(3)  # type: ignore[arg-type]
        council.guard(riks="high")  # type: ignore[call-overload]
        assert_type(str(given), str)
        assert_type(given.explain(), str)
        for event in council.events(follow=False):
            follows(event)
    Council.launch(quorom=2)  # type: ignore[call-arg]
    Council.inline(quorom=2)  # type: ignore[call-arg]
    Council.inline(CouncilConfig(), quorum="2")  # type: ignore[arg-type]
    Council.inline(seats=[SeatConfig(name="a", mind="a:B")], time_budget_s=3.5)
    Council.inline(seats={"lite": {"enabled": False}})
    Council.connect("a:1", "b", ray_namespace="c", call_timeout_s=2.0)
    Council.connect(quorum=2)  # type: ignore[call-arg]


def follows(event: Event) -> None:
    if event.kind == "decision":
        assert_type(event.position, int)
    if event.kind == "decided":  # type: ignore[comparison-overlap]
        assert_type(event.cursor, int)


def careful(case: Case) -> Opinion:
    if case.action is not None and case.action.tool == "shell":
        assert_type(case.action, Action)
        return Opinion.no(f"no {case.action['tool']} with {case.action.args.get('command')}")
    return Opinion.yes("nothing speaks against it")


def seats_and_tests() -> None:
    SeatConfig("prime")
    SeatConfig(name="x", mind=careful, max_concurrent=2)
    SeatConfig("x", mnd=careful)  # type: ignore[call-arg]
    SeatConfig()  # type: ignore[call-arg]
    for council in (approving(), rejecting("no"), escalating(reason="ask")):
        assert_type(council, Council)
    with CouncilPool.inline(2) as pool:
        assert_type(pool.propose("x", key="a", risk="high"), Decision)
        pool.propose("x", kye="a")  # type: ignore[call-arg]


async def coroutines() -> None:
    async with AsyncCouncil.launch(quorum=2, dashboard=False) as council:
        given = await council.propose("x", risk="low", wait_for="decisive", supersedes=None)
        assert_type(given, Decision)
        await council.propose("x", riks="high")  # type: ignore[call-arg]
        await council.propose("x", wait_for="some")  # type: ignore[arg-type]
        council.draft("x", confidence="sure")  # type: ignore[arg-type]

        @council.guard(risk="low")
        async def guarded(n: int) -> str:
            return str(n)

        assert_type(await guarded(1), str)
        await guarded("1")  # type: ignore[arg-type]

        @council.guard()  # type: ignore[type-var]
        def blocks() -> None: ...

        @council.guard
        async def bare(n: int) -> str:
            return str(n)

        assert_type(await bare(1), str)

    assert_type(await AsyncCouncil.inline(prime="lite"), AsyncCouncil)
    AsyncCouncil.launch(quorom=2)  # type: ignore[call-arg]
    AsyncCouncil.inline(quorom=2)  # type: ignore[call-arg]
    AsyncCouncil.connect(prime="lite")  # type: ignore[call-arg]
