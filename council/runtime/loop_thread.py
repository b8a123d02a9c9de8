"""A thread with an event loop, for callers on other threads and loops. Knows nothing of councils."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from council.protocol.errors import CallerError, Unreachable

T = TypeVar("T")
_Finished = tuple[asyncio.Future[Any], asyncio.Task[Any]]  # a caller's future, and its finished task
STOP_TIMEOUT_S = 10.0
# A cancelled task has so many seconds to end; a mind may ignore its cancellation.
CANCEL_TIMEOUT_S = 1.0
# The council blocks its loop for milliseconds at most, but a mind on the same loop may block it longer.
BLOCKED_S = 10.0
_OURS = Path(__file__).parents[1]


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's event loop, which Ray's actors use too, if it exists for this platform."""
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    return uvloop.new_event_loop()


class Background:
    """Runs coroutines on the event loop of a daemon thread, for other threads and other loops.

    A waiting caller gets an error if the loop has not turned for ``blocked_s`` seconds; None means no such limit.
    """

    def __init__(self, name: str, blocked_s: float | None = BLOCKED_S) -> None:
        self._blocked_s = blocked_s
        self._loop = new_loop()
        self._finished: dict[asyncio.AbstractEventLoop, list[_Finished]] = {}  # by the loop of the caller
        self._turns = 0  # turns of the loop that were counted, for tasks passed to it
        # Held while a task is passed to the loop, so that none reaches a loop that has begun to stop.
        self._handing_over = threading.RLock()
        self._ending = self._over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._over:
            try:
                self._loop.run_forever()  # and again, if foreign code stopped it
            except (SystemExit, KeyboardInterrupt) as error:  # from a task that is not ours
                context = {"message": "a task tried to end the loop of others", "exception": error}
                self._loop.call_exception_handler(context)

    def refuse_own_thread(self) -> None:
        """Raises CallerError on the loop's own thread, where waiting for the loop would hang."""
        if threading.current_thread() is self._thread:
            raise CallerError("a blocking call from the council's own loop would hang: use council.aio")

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, from a thread. An interrupt ends the wait and cancels the coroutine.

        Raises CallerError on the loop's own thread and if the loop has stopped. Raises Unreachable if something
        blocks the loop.
        """
        try:
            self.refuse_own_thread()
        except CallerError:
            coroutine.close()
            raise
        tasks: list[asyncio.Task[T]] = []
        done = threading.Lock()  # a plain lock takes half the time of a concurrent.futures.Future
        done.acquire()

        def begin() -> None:
            self._turn()
            task = self._loop.create_task(coroutine)
            tasks.append(task)
            task.add_done_callback(lambda task: done.release())

        turns = self._turns
        with self._handing_over:
            self._refuse_when_ended(coroutine)
            self._loop.call_soon_threadsafe(begin)
        try:
            while not done.acquire(timeout=-1 if self._blocked_s is None else self._blocked_s):
                turns = self._turned_since(turns)
        except BaseException:
            self._cancel(tasks)
            raise
        if tasks[0].cancelled():
            raise self._given_up()
        return tasks[0].result()

    def _given_up(self) -> CallerError:
        """The error for a task that ended without result and without error."""
        if self._ending:
            return _ended()
        return CallerError(
            "the call was cancelled on the council's own loop, by code that runs there; call again"
        )

    def _cancel(self, tasks: list[asyncio.Task[T]]) -> None:
        """Cancels tasks, on the loop, that no caller waits for any more."""

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        with self._handing_over:
            if not self._ending:
                self._loop.call_soon_threadsafe(cancel)

    def _turned_since(self, turns: int) -> int:
        """The number of turns of the loop. Raises Unreachable if it has not turned since ``turns``."""
        if self._turns == turns:
            raise Unreachable(
                f"the council's event loop has not turned for {self._blocked_s:g} s; it is at {self._place()}. "
                "An asynchronous mind must await where it waits: make one that blocks a plain function, "
                "which has a thread of its own",
                name=self._thread.name,
            )
        turns = self._turns
        with self._handing_over:
            if not self._ending:
                self._loop.call_soon_threadsafe(self._turn)  # an idle loop turns because of this
        return turns

    def _turn(self) -> None:
        self._turns += 1

    def _place(self) -> str:
        """The loop's current position: the code that the council called last, and its line."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        stack = traceback.extract_stack(frame) if frame is not None else []
        ours = [index for index, entry in enumerate(stack) if Path(entry.filename).is_relative_to(_OURS)]
        called = stack[ours[-1] + 1 :] if ours else stack
        entry = next(iter(called or stack), None)
        return "an unknown place" if entry is None else f"{entry.filename}:{entry.lineno} in {entry.name}"

    async def wrap(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, from another event loop. Cancelling the wait cancels the coroutine.

        Raises CallerError if the loop has stopped, and Unreachable if something blocks it.
        """
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return await coroutine
        result: asyncio.Future[T] = loop.create_future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            self._turn()
            task = self._loop.create_task(coroutine)
            tasks.append(task)
            task.add_done_callback(finish)

        def finish(task: asyncio.Task[T]) -> None:
            finished = self._finished.setdefault(loop, [])
            finished.append((result, task))
            if len(finished) == 1:
                self._loop.call_soon(self._hand_back, loop)

        timer: asyncio.TimerHandle | None = None

        def look_later(turns: int) -> None:
            nonlocal timer
            if self._blocked_s is not None:
                timer = loop.call_later(self._blocked_s, look, turns)

        def look(turns: int) -> None:
            if not result.done():
                try:
                    look_later(self._turned_since(turns))
                except Unreachable as error:
                    result.set_exception(error)

        turns = self._turns
        with self._handing_over:
            self._refuse_when_ended(coroutine)
            self._loop.call_soon_threadsafe(begin)
        look_later(turns)
        try:
            return await result
        except (asyncio.CancelledError, Unreachable):
            self._cancel(tasks)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _hand_back(self, loop: asyncio.AbstractEventLoop) -> None:
        """Settles on ``loop`` all that finished in one turn of ours. Waking it for each takes a sixth of the CPU."""
        finished = self._finished.pop(loop)

        def settle() -> None:
            for result, task in finished:
                self._settle(result, task)

        with contextlib.suppress(RuntimeError):  # the caller's loop is closed
            loop.call_soon_threadsafe(settle)

    def _settle(self, result: asyncio.Future[T], task: asyncio.Task[T]) -> None:
        error = self._given_up() if task.cancelled() else task.exception()
        if result.done():  # cancelled here meanwhile, so the task's error counts as retrieved
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())

    def _refuse_when_ended(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        if self._ending or not self._thread.is_alive():
            coroutine.close()
            raise _ended()

    def stop(self) -> None:
        """Stops the loop and everything on it. Raises CallerError on the loop's own thread."""
        self.refuse_own_thread()

        async def end() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others, timeout=CANCEL_TIMEOUT_S)
            self._over = True
            self._loop.call_soon(self._loop.stop)

        with self._handing_over:
            if self._ending:
                return
            self._ending = True
            asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join(STOP_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()


def _ended() -> CallerError:
    return CallerError("this loop has ended, since its council was closed; launch or connect anew")
