"""A loop on a thread: results, errors and cancellation cross, nothing hangs, nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from council.protocol.errors import CallerError, Unreachable
from council.runtime import loop_thread as background_module
from council.runtime.loop_thread import Background
from tests.patience import HANG_S, until


@pytest.fixture
def background() -> Iterator[Background]:
    made = Background("test-background")
    made._loop.set_exception_handler(lambda loop, context: None)
    yield made
    made.stop()


async def give(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def fail() -> None:
    raise ValueError("no")


async def forever(began: threading.Event, ended: threading.Event | None = None) -> None:
    began.set()
    try:
        await asyncio.sleep(3600)
    finally:
        if ended is not None:
            ended.set()


def test_results_and_errors_cross_to_threads_and_loops(background: Background) -> None:
    async def scenario() -> None:
        assert await background.wrap(give(3)) == 3
        with pytest.raises(ValueError, match="no"):
            await background.wrap(fail())

    assert background.wait(give(3)) == 3
    with pytest.raises(ValueError, match="no"):
        background.wait(fail())
    for _ in range(2):
        asyncio.run(scenario())
    background.wait(scenario())  # on its own loop, it awaits


@pytest.mark.parametrize("way", ["thread", "loop"])
def test_a_timeout_of_the_work_itself_is_raised(background: Background, way: str) -> None:
    """Mutation: a wait that takes each TimeoutError for its own asks again and again."""

    async def late() -> None:
        raise TimeoutError("the mind's own")

    with pytest.raises(TimeoutError, match="own"):
        background.wait(late()) if way == "thread" else asyncio.run(background.wrap(late()))


def test_many_threads_and_loops_at_once_get_each_their_own(background: Background) -> None:
    def from_a_thread(n: int) -> int:
        return background.wait(give(n))

    def from_a_loop(n: int) -> int:
        async def whole() -> int:
            return sum(await asyncio.gather(*(background.wrap(give(n)) for _ in range(20))))

        return asyncio.run(whole())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(from_a_thread, range(100))) == list(range(100))
        assert list(pool.map(from_a_loop, range(30))) == [20 * n for n in range(30)]


def test_a_blocking_call_or_stop_on_its_own_loop_is_refused(background: Background) -> None:
    async def scenario() -> None:
        inner = give(1)
        with pytest.raises(CallerError, match=r"use council\.aio"):
            background.wait(inner)
        assert inner.cr_frame is None, "the coroutine was left open"
        with pytest.raises(CallerError, match=r"use council\.aio"):
            background.stop()

    background.wait(scenario())
    assert background.wait(give(8)) == 8


def test_cancelled_here_is_cancelled_there(background: Background) -> None:
    async def scenario() -> None:
        began, ended = threading.Event(), threading.Event()
        task = asyncio.ensure_future(background.wrap(forever(began, ended)))
        await asyncio.to_thread(began.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(ended.wait, 30)

    asyncio.run(scenario())


def test_the_error_of_a_cancelled_call_is_not_reported_as_lost(background: Background) -> None:
    """Mutation: the task's error is never read, and asyncio prints it when the task is collected."""
    reported: list[Any] = []
    background._loop.set_exception_handler(lambda loop, context: reported.append(context))
    began, ended = threading.Event(), threading.Event()

    async def fails_when_cancelled() -> None:
        try:
            await forever(began)
        except asyncio.CancelledError:
            raise ValueError("no") from None
        finally:
            ended.set()

    async def scenario() -> None:
        task = asyncio.ensure_future(background.wrap(fails_when_cancelled()))
        await asyncio.to_thread(began.wait, HANG_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert ended.wait(HANG_S)
    background.wait(give(1))  # the task is over
    gc.collect()
    assert reported == []


def test_an_interrupt_ends_the_wait_and_cancels_the_work(background: Background) -> None:
    """Mutation: a wait that can't be interrupted makes Ctrl-C do nothing until the council answers."""
    began, ended = threading.Event(), threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        assert began.wait(HANG_S)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        background.wait(forever(began, ended))
    assert ended.wait(HANG_S)
    assert background.wait(give(6)) == 6


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, None])
def test_a_task_that_tries_to_end_the_loop_does_not(
    background: Background, kind: type[BaseException] | None
) -> None:
    """Mutation: a loop that ends with a mind's sys.exit() or loop.stop() leaves every caller hanging."""
    ran = threading.Event()

    async def rogue() -> None:
        ran.set()
        if kind is not None:
            raise kind
        asyncio.get_running_loop().stop()

    async def begin() -> None:
        asyncio.ensure_future(rogue())  # noqa: RUF006 - nobody awaits it

    background.wait(begin())
    assert ran.wait(HANG_S)
    done: list[int] = []
    caller = threading.Thread(target=lambda: done.append(background.wait(give(7))), daemon=True)
    caller.start()
    caller.join(HANG_S)
    assert done == [7]


@pytest.mark.parametrize("way", ["thread", "loop"])
def test_a_call_that_other_code_cancels_says_so_and_that_it_may_be_made_again(
    background: Background, way: str
) -> None:
    """Mutation: a caller on another loop gets the error of a closed council."""

    async def cancelled() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def from_another_loop() -> None:
        await background.wrap(cancelled())

    with pytest.raises(CallerError, match=r"cancelled on the council's own loop.*call again"):
        background.wait(cancelled()) if way == "thread" else asyncio.run(from_another_loop())
    assert background.wait(give(9)) == 9


# Its end


@pytest.mark.parametrize("way", ["thread", "loop"])
def test_stop_ends_what_runs_and_refuses_what_comes(way: str) -> None:
    made = Background("test-background")
    began, ended = threading.Event(), threading.Event()

    def waiting() -> None:
        made.wait(forever(began, ended)) if way == "thread" else asyncio.run(made.wrap(forever(began, ended)))

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(waiting)
        assert began.wait(HANG_S)
        made.stop()
        with pytest.raises(CallerError, match="closed"):
            call.result(HANG_S)
    assert ended.is_set()
    assert not made._thread.is_alive()
    late = give(1)
    with pytest.raises(CallerError, match="closed"):
        made.wait(late) if way == "thread" else asyncio.run(made.wrap(late))
    assert late.cr_frame is None
    made.stop()


def test_work_that_ignores_its_cancellation_does_not_keep_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_module, "CANCEL_TIMEOUT_S", 0.1)
    made = Background("test-background")
    made._loop.set_exception_handler(lambda loop, context: None)
    began = threading.Event()

    async def stubborn() -> None:
        began.set()
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    async def begin() -> None:
        made_task.append(asyncio.ensure_future(stubborn()))

    made_task: list[asyncio.Task[None]] = []
    made.wait(begin())
    assert began.wait(HANG_S)
    made.stop()
    assert not made._thread.is_alive()


def test_callers_that_race_with_the_end_all_come_back() -> None:
    """Mutation: without the lock, a call handed over between the last task and the loop's end never returns."""
    for _ in range(20):
        made = Background("test-background")
        go = threading.Event()
        outcomes: list[object] = []

        def caller(
            made: Background = made, go: threading.Event = go, outcomes: list[object] = outcomes
        ) -> None:
            go.wait()
            for _ in range(50):
                try:
                    outcomes.append(made.wait(give(1)))
                except CallerError:
                    outcomes.append("closed")
                    return

        threads = [threading.Thread(target=caller, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        go.set()
        made.stop()
        for thread in threads:
            thread.join(HANG_S)
            assert not thread.is_alive(), "a caller hangs"


# A loop that something blocks


class LooksWhen(Background):
    """Judges its loop no sooner than it is ``ready``, which is given what is waited for: it may be slow."""

    ready: Callable[..., bool]
    looks = 0

    def _refuse_if_blocked(self, *waited: Future[Any]) -> None:
        until(lambda: self.ready(*waited))
        super()._refuse_if_blocked(*waited)
        self.looks += 1


@pytest.fixture
def impatient() -> Iterator[LooksWhen]:
    made = LooksWhen("impatient", blocked_s=0.1)
    yield made
    made.stop()


class NoThreads(ThreadPoolExecutor):
    """A caller's executor that is busy: what waits for a thread of it would wait for ever."""

    def submit(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a waiting call must not need a thread of the caller's loop")


async def block(blocked: threading.Event, free: threading.Event) -> int:
    blocked.set()
    free.wait()
    return 1


@pytest.mark.parametrize("way", ["thread", "loop"])
def test_a_waiting_caller_gets_what_blocks_the_loop(impatient: LooksWhen, way: str) -> None:
    """Mutations: without a check of the loop, callers wait as long as a mind blocks it; with a thread for each
    check, many callers wait for their turn.
    """
    blocked, free = threading.Event(), threading.Event()
    impatient.ready = lambda *_: blocked.is_set()

    async def from_another_loop() -> None:
        asyncio.get_running_loop().set_default_executor(NoThreads())
        calls = [impatient.wrap(block(blocked, free)) for _ in range(20)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error) for error in errors} == {Unreachable}
        raise errors[0]  # type: ignore[misc]

    try:
        with pytest.raises(
            Unreachable, match=r"not turned for 0\.1 s; it is at .*test_background\.py:\d+ in block"
        ):
            impatient.wait(block(blocked, free)) if way == "thread" else asyncio.run(from_another_loop())
    finally:
        free.set()
    impatient._blocked_s = None  # a busy machine may keep the loop for as long
    assert impatient.wait(give(2)) == 2


@pytest.mark.parametrize("way", ["thread", "loop"])
def test_a_loop_that_turns_may_take_its_time(way: str) -> None:
    """Mutation: a loop that has nothing to do counts as blocked."""
    patient = LooksWhen("patient", blocked_s=0.01)
    patient.ready = lambda *waited: any(each.done() for each in waited)

    async def slowly() -> int:
        while patient.looks < 3:  # noqa: ASYNC110 - another thread looks
            await asyncio.sleep(0.002)
        return 3

    async def from_another_loop() -> int:
        asyncio.get_running_loop().set_default_executor(NoThreads())
        return await patient.wrap(slowly())

    try:
        assert (patient.wait(slowly()) if way == "thread" else asyncio.run(from_another_loop())) == 3
    finally:
        patient.stop()


def test_a_fork_of_the_process_is_told_that_it_has_no_loop(background: Background) -> None:
    """Mutation: a forked child waits for ever for a thread that it does not have."""
    code = (
        "import os, sys\n"
        "from council.runtime.loop_thread import Background\n"
        "from council.protocol.errors import CallerError\n"
        "async def give() -> int:\n"
        "    return 7\n"
        "made = Background('parent')\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    try:\n"
        "        made.wait(give())\n"
        "    except CallerError:\n"
        "        os._exit(7)\n"
        "    os._exit(1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert (
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=HANG_S, check=False).returncode
        == 7
    )
