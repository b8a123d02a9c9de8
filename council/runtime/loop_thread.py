"""A thread with an event loop, for callers on other threads and loops."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Coroutine
from concurrent import futures
from pathlib import Path
from typing import Any, TypeVar

from council.protocol.errors import CallerError, Unreachable

T = TypeVar("T")
STOP_TIMEOUT_S = 10.0
# A cancelled task has this many seconds to end; a mind may ignore its cancellation.
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

    A waiting caller gets an error if the loop does not turn for ``blocked_s`` seconds; None means no such limit.
    """

    def __init__(self, name: str, blocked_s: float | None = BLOCKED_S) -> None:
        self._blocked_s = blocked_s
        self._loop = new_loop()
        # Held while a task is passed to the loop, so that none reaches a loop that has begun to stop.
        self._passing = threading.RLock()
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
        future = self._begin(coroutine)
        try:
            while not futures.wait([future], self._blocked_s).done:
                probe = self._probe()
                both: list[futures.Future[Any]] = [future, probe]
                futures.wait(both, self._blocked_s, futures.FIRST_COMPLETED)
                self._refuse_if_blocked(future, probe)
            return future.result()
        except futures.CancelledError:
            raise self._cancelled() from None
        except BaseException:
            future.cancel()
            raise

    async def wrap(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, from another event loop. Cancelling the wait cancels the coroutine.

        Raises CallerError if the loop has stopped, and Unreachable if something blocks it.
        """
        if asyncio.get_running_loop() is self._loop:
            return await coroutine
        future = self._begin(coroutine)
        result = asyncio.wrap_future(future)
        try:
            while not (await asyncio.wait([result], timeout=self._blocked_s))[0]:
                probe = self._probe()
                both: list[asyncio.Future[Any]] = [result, asyncio.wrap_future(probe)]
                await asyncio.wait(both, timeout=self._blocked_s, return_when=asyncio.FIRST_COMPLETED)
                self._refuse_if_blocked(future, probe)
        except BaseException:
            future.cancel()
            raise
        if result.cancelled():
            raise self._cancelled()
        return result.result()

    def _begin(self, coroutine: Coroutine[Any, Any, T]) -> futures.Future[T]:
        try:
            self.refuse_own_thread()
            with self._passing:
                self._refuse_if_ended()
                return asyncio.run_coroutine_threadsafe(_run(coroutine), self._loop)
        except CallerError:
            coroutine.close()
            raise

    def _cancelled(self) -> CallerError:
        """The error for a task that ended without result and without error."""
        if self._ending:
            return _ended()
        return CallerError(
            "the call was cancelled on the council's own loop, by code that runs there; call again"
        )

    def _refuse_if_ended(self) -> None:
        if self._ending or not self._thread.is_alive():
            raise _ended()

    def _probe(self) -> futures.Future[None]:
        """A future that the loop sets in its next turn."""
        probe: futures.Future[None] = futures.Future()
        with self._passing:
            self._refuse_if_ended()
            self._loop.call_soon_threadsafe(probe.set_result, None)
        return probe

    def _refuse_if_blocked(self, *waited: futures.Future[Any]) -> None:
        """Raises Unreachable if the loop has set none of these within ``blocked_s`` seconds."""
        if not any(future.done() for future in waited):
            raise Unreachable(
                f"the council's event loop has not turned for {self._blocked_s:g} s; it is at {self._place()}. "
                "An asynchronous mind must await where it waits: make one that blocks a plain function, "
                "which has a thread of its own",
                name=self._thread.name,
            )

    def _place(self) -> str:
        """The loop's current position: the code that the council called last, and its line."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        stack = traceback.extract_stack(frame) if frame is not None else []
        ours = [index for index, entry in enumerate(stack) if Path(entry.filename).is_relative_to(_OURS)]
        called = stack[ours[-1] + 1 :] if ours else stack
        entry = next(iter(called or stack), None)
        return "an unknown place" if entry is None else f"{entry.filename}:{entry.lineno} in {entry.name}"

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

        with self._passing:
            if self._ending:
                return
            self._ending = True
            asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join(STOP_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()


def _ended() -> CallerError:
    return CallerError("this council or pool was closed; launch or connect again")


async def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result. Its error counts as retrieved, although a caller that has cancelled ignores it."""
    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    return await coroutine
