"""Runs a mind's methods, plain ones on threads because they may block, and words what a mind did wrong."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextvars import copy_context
from typing import Any

from council.agents.messaging import spans as tracing
from council.agents.mind import Case, Mind
from council.protocol.errors import EnvelopeError

# A review that hangs on its thread can't be ended, only given up. If this many hang, the mind is broken.
HUNG_THREADS_MAX = 64
# The same for observations. They are counted apart, so that no ballot waits for them or is lost because of them.
LOOKS_HUNG_MAX = 16
METHODS = {"ballot": "review", "ruling": "rule", "observation": "observe"}


class MindRunner:
    """Runs the methods of one seat's mind: an async one on the event loop, a plain one on a thread.

    Each run is recorded as a span if there are ``spans``.
    """

    def __init__(self, seat: str, mind: Mind, spans: tracing.Spans | None) -> None:
        self._seat = seat
        self._mind = mind
        self._spans = spans
        self._is_async = {
            kind: inspect.iscoroutinefunction(inspect.unwrap(getattr(mind, method, None)))  # type: ignore[arg-type]
            for kind, method in METHODS.items()
        }
        self._threads = Threads(seat, "reviews", HUNG_THREADS_MAX)
        self._observation_threads = Threads(seat, "looks at others", LOOKS_HUNG_MAX)

    async def run(self, kind: str, case: Case, *more: Any) -> Any:
        """What the method for this kind of work returns. Raises what it raises, TypeError if the mind has none."""
        with tracing.work(self._spans, self._seat, case.proposal_id, kind):
            method = getattr(self._mind, METHODS[kind], None)
            if method is None:
                raise TypeError(
                    f"its mind, {type(self._mind).__name__}, has no rule(case, ballots): it can't hold this seat"
                )
            if self._is_async[kind]:
                thought = method(case, *more)
            else:
                threads = self._observation_threads if kind == "observation" else self._threads
                thought = await threads.run(lambda: method(case, *more))
            while inspect.isawaitable(thought):
                thought = await thought
            return thought


class Threads:
    """Daemon threads of one seat, one for each call. ``hung`` counts those that were given up and still run.

    ``what`` names the calls in the error that is raised instead of a new call when ``hung_max`` threads hang.
    """

    def __init__(self, seat: str, what: str, hung_max: int) -> None:
        self._seat, self._what = seat, what
        self._hung_max = hung_max
        self._hung: set[Future[Any]] = set()

    @property
    def hung(self) -> int:
        return len(self._hung)

    async def run(self, think: Callable[[], Any]) -> Any:
        """Runs a plain function on a daemon thread, so that a function that hangs blocks no other."""
        if self.hung >= self._hung_max:
            raise RuntimeError(f"{self.hung} earlier {self._what} of this mind still hang; restart its seat")
        result: Future[Any] = Future()
        result.set_running_or_notify_cancel()  # a thread can't be cancelled
        context = copy_context()  # the thread belongs to the same work item and span

        def run() -> None:
            try:
                result.set_result(context.run(think))
            except BaseException as error:  # noqa: BLE001 - passed to the loop, where it costs the ballot
                if not isinstance(error, Exception) or isinstance(error, StopIteration | CancelledError):
                    error = RuntimeError(_text_of(error, repr))  # no task may raise these
                result.set_exception(error)

        threading.Thread(target=run, name=f"council-{self._seat}", daemon=True).start()
        try:
            return await asyncio.wrap_future(result)
        except asyncio.CancelledError:
            self._hung.add(result)
            result.add_done_callback(self._hung.discard)  # at once if it has ended
            raise


def in_words(error: BaseException) -> str:
    """What a mind raised, or which invalid value it returned, as a text for people."""
    if isinstance(error, EnvelopeError):
        return f"its mind returned nonsense: {error}"
    text = _text_of(error, str)
    if isinstance(error, TypeError) and text.startswith(("its mind returned", "its mind, ")):
        return text
    return f"its mind raised {type(error).__name__}: {text}"


def short(value: Any) -> str:
    """What a mind returned, cut for an error message."""
    text = _text_of(value, repr)
    return text if len(text) <= 80 else text[:77] + "..."


def _text_of(value: Any, form: Callable[[Any], str]) -> str:
    """``value`` by ``str`` or ``repr``, which may fail for the mind's own classes."""
    try:
        return form(value)
    except Exception:  # noqa: BLE001 - the mind's code again
        return f"a {type(value).__name__} that can't be shown"
