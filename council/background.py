"""A thread with an event loop, for callers on other threads and loops. Knows nothing of councils.

Work and results cross between loops in lanes: one wake-up carries all that waits. A wake-up for each call
would hand the interpreter's lock over each time, and a thousand calls in flight would crawl.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
STOP_TIMEOUT_S = 10.0


class _Lane:
    """Callbacks on their way to one event loop, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._woken = False

    def post(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._waiting.append((callback, arguments))
        if not self._woken:  # a wake-up that is under way takes this along
            self._woken = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._woken = False
        while self._waiting:
            callback, arguments = self._waiting.popleft()
            callback(*arguments)


class Background:
    """Runs coroutines on a daemon thread's event loop, for threads and for other loops alike."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._lane = _Lane(self._loop)
        self._lanes_back: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = (
            weakref.WeakKeyDictionary()
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, from a thread. An interrupt ends the wait and cancels the coroutine."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a blocking call from the council's own loop would hang: use council.aio")
        if self._loop.is_closed():
            coroutine.close()
            raise RuntimeError("the council's loop has ended")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def wrap(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, from another event loop; cancelled here, it is cancelled there."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return await coroutine
        if self._loop.is_closed():
            coroutine.close()
            raise RuntimeError("the council's loop has ended")
        back = self._lanes_back.get(loop)
        if back is None:
            back = self._lanes_back[loop] = _Lane(loop)
        result: asyncio.Future[T] = loop.create_future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            task = self._loop.create_task(coroutine)
            tasks.append(task)
            task.add_done_callback(finish)

        def finish(task: asyncio.Task[T]) -> None:
            if not loop.is_closed():
                back.post(_settle, result, task)

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        self._lane.post(begin)
        try:
            return await result
        except asyncio.CancelledError:
            self._lane.post(cancel)
            raise

    def stop(self) -> None:
        """Ends the loop with whatever still runs on it."""
        if not self._thread.is_alive():
            return

        async def end() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._loop.call_soon(self._loop.stop)

        asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join(STOP_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()


def _settle(result: asyncio.Future[T], task: asyncio.Task[T]) -> None:
    if result.done():
        return
    if task.cancelled():
        result.cancel()
        return
    error = task.exception()
    if error is not None:
        result.set_exception(error)
    else:
        result.set_result(task.result())
