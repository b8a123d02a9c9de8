"""Runs a mind's plain methods where they may block, and says in words what a mind did wrong. Knows no council."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from council.protocol.errors import EnvelopeError

# Reviews that hang on threads of their own can't be ended, only given up. With so many the mind is broken.
HUNG_THREADS_MAX = 64


class Threads:
    """Daemon threads of one seat, one for each call; ``hung`` counts those that were given up and still run.

    They are for ``what``, and with ``hung_max`` that hang no more is begun.
    """

    def __init__(self, seat: str, what: str = "reviews", hung_max: int | None = None) -> None:
        self.hung = 0
        self._seat, self._what = seat, what
        self._hung_max = HUNG_THREADS_MAX if hung_max is None else hung_max

    async def run(self, think: Callable[[], Any]) -> Any:
        """Runs a plain function on a daemon thread: it may block, and if it hangs, it hangs alone."""
        if self.hung >= self._hung_max:
            raise RuntimeError(f"{self.hung} earlier {self._what} of this mind still hang; restart its seat")
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Any] = loop.create_future()
        context = copy_context()  # what the work belongs to, its mind's thread belongs to

        def settle(value: Any, error: Exception | None) -> None:
            if result.cancelled():
                self.hung -= 1  # it was given up, and came to its end after all
            elif error is not None:
                result.set_exception(error)
            else:
                result.set_result(value)

        def run() -> None:
            outcome: tuple[Any, Exception | None]
            try:
                outcome = (context.run(think), None)
            except BaseException as error:  # noqa: BLE001 - carried to the loop, where it costs the ballot
                if not isinstance(error, Exception) or isinstance(
                    error, StopIteration
                ):  # no future takes these
                    error = RuntimeError(_text_of(error, repr))
                outcome = (None, error)
            try:
                loop.call_soon_threadsafe(settle, *outcome)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

        threading.Thread(target=run, name=f"council-{self._seat}", daemon=True).start()
        try:
            return await result
        except asyncio.CancelledError:
            self.hung += result.cancelled()  # else it had ended just before
            raise


def in_words(error: BaseException) -> str:
    """What a mind raised, or what it returned that is none of its answers."""
    if isinstance(error, EnvelopeError):
        return f"its mind returned nonsense: {error}"
    text = _text_of(error, str)
    if isinstance(error, TypeError) and text.startswith(("its mind returned", "its mind, ")):
        return text
    return f"its mind raised {type(error).__name__}: {text}"


def short(value: Any) -> str:
    """What a mind returned, as far as an error shows it."""
    text = _text_of(value, repr)
    return text if len(text) <= 80 else text[:77] + "..."


def _text_of(value: Any, form: Callable[[Any], str]) -> str:
    """``value`` by ``str`` or ``repr``, which the mind's own classes may have got wrong."""
    try:
        return form(value)
    except Exception:  # noqa: BLE001 - the mind's code again
        return f"a {type(value).__name__} that can't be shown"
