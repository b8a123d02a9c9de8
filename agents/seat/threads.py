"""Runs a mind's methods, plain ones on threads because they may block, and describes a mind's errors."""

from __future__ import annotations

import asyncio
import inspect
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextvars import copy_context
from dataclasses import replace
from typing import Any, NamedTuple

from council.agents.messaging import spans as tracing
from council.agents.mind import READS_TOKENS, Case, Mind, Opinion, Ruling
from council.agents.seat.plan_stream import sayable
from council.protocol.errors import CouncilError, EnvelopeError, TokenBudgetError

# A review that hangs on its thread can't be ended, only given up. If this many hang, the mind is broken.
HUNG_THREADS_MAX = 64
# The same for observations. They are counted apart, so that no ballot waits for them or is lost because of them.
LOOKS_HUNG_MAX = 16
# In the log, of what a mind raised: its text, and the last part of its traceback.
WHY_CHARS_MAX = 2_000
FRAMES_SHOWN_MAX = 30
TRACEBACK_CHARS_MAX = 8_000
FORM_BYTES = 100  # of the words around a case's texts
METHODS = {"ballot": "review", "ruling": "rule", "observation": "observe"}


class Held(NamedTuple):
    """What policy says of a case. ``rejects``: the mind is not asked. ``human``: whatever it says, a human decides.

    ``note`` is added to the ballot. Each is the reason, or "" if no row of the policy applies.
    """

    rejects: str = ""
    human: str = ""
    note: str = ""


Policy = Callable[[Case], Held]


class MindRunner:
    """Runs the methods of one seat's mind: an async one on the event loop, a plain one on a thread.

    Each run is recorded as a span if there are ``spans``. ``policy`` is asked before the mind, for ballots and
    rulings.
    """

    def __init__(
        self, seat: str, mind: Mind, spans: tracing.Spans | None, policy: Policy | None = None
    ) -> None:
        self._seat = seat
        self._mind = mind
        self._spans = spans
        self._policy = policy
        self._reads_tokens: int | None = getattr(mind, "reads_tokens", READS_TOKENS)
        self._is_async = {
            kind: inspect.iscoroutinefunction(inspect.unwrap(getattr(mind, method, None)))  # type: ignore[arg-type]
            for kind, method in METHODS.items()
        }
        self._threads = Threads(seat, "reviews", HUNG_THREADS_MAX)
        self._observation_threads = Threads(seat, "looks at others", LOOKS_HUNG_MAX)

    async def run(self, kind: str, case: Case, *more: Any) -> Any:
        """What policy says, or the method for this kind of work returns.

        Raises what the method raises, and TypeError if the mind has none.
        """
        if kind == "observation":
            return await self._think(kind, case, *more)
        await self._refuse_too_long(case)
        if self._policy is None:
            return await self._think(kind, case, *more)
        policy = self._policy
        held = await self._threads.run(lambda: policy(case))  # it reads foreign text
        if held.rejects:
            return (
                Ruling("reject", held.rejects, 1.0, "high")
                if kind == "ruling"
                else Opinion.no(held.rejects, confidence=1.0, risk_level="high")
            )
        return _under(held, await self._think(kind, case, *more))

    async def _refuse_too_long(self, case: Case) -> None:
        """Raises TokenBudgetError for a case that is longer than a mind without a model reads (rules 2.2)."""
        limit = self._reads_tokens
        chars = len(case.summary) + len(case.body) + len(str(case.action or ""))
        if (
            limit is None or 4 * chars + FORM_BYTES <= limit
        ):  # a character has 4 bytes at most, a token at least 1
            return
        from council.agents.prompting.builder import case_text
        from council.agents.prompting.tokens import WITHOUT_MODEL, TokenCounter

        text, count = case_text(case), TokenCounter("", WITHOUT_MODEL)
        if len(text.encode()) <= limit:
            return
        if (found := await asyncio.to_thread(count, text)) > limit:
            raise TokenBudgetError(
                f"{self._seat} reads {limit:,} tokens, and the proposal has {found:,}: propose less at once",
                field="prompt",
                limit=limit,
                found=found,
            )

    async def _think(self, kind: str, case: Case, *more: Any) -> Any:
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


def _under(held: Held, thought: Any) -> Any:
    """What a mind thinks, under what policy says. Anything but an opinion or a ruling is left to the seat's check."""
    if isinstance(thought, Ruling):
        is_held = held.human and thought.ruling == "confirm"
        return Ruling("human", held.human, 1.0, thought.risk_level) if is_held else thought
    if isinstance(thought, Opinion):
        said = f"{thought.reason}; {held.note}" if held.note else thought.reason
        return replace(thought, reason=said, escalate=thought.escalate or held.human)
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
        raised: list[
            BaseException
        ] = []  # not in the future, which would replace some by others without traceback

        def run() -> None:
            try:
                result.set_result(context.run(think))
            except BaseException as error:  # noqa: BLE001 - passed to the loop, where it costs the ballot
                if not isinstance(error, Exception) or isinstance(error, StopIteration | CancelledError):
                    told = RuntimeError(_text_of(error, repr))  # no task may raise these
                    told.__cause__, error = error, told
                raised.append(error)
                result.set_result(None)

        threading.Thread(target=run, name=f"council-{self._seat}", daemon=True).start()
        try:
            thought = await asyncio.wrap_future(result)
        except asyncio.CancelledError:
            self._hung.add(result)
            result.add_done_callback(self._hung.discard)  # at once if it has ended
            raise
        if raised:
            raise raised.pop()
        return thought


def in_words(error: BaseException) -> str:
    """Describes what a mind raised, or which invalid value it returned, as a text for people."""
    if isinstance(error, EnvelopeError):
        return f"its mind returned nonsense: {error}"
    text = _text_of(error, str)
    if isinstance(error, TypeError) and text.startswith(("its mind returned", "its mind, ")):
        return text
    return f"its mind raised {type(error).__name__}: {text}"


def traceback_of(error: BaseException) -> str:
    """The traceback of a mind's error, cut and printable; empty for errors whose text says enough.

    These are the package's own: a model that can't be reached, a spent budget, an invalid return value.
    """
    if isinstance(error, CouncilError) or in_words(error).startswith("its mind returned"):
        return ""
    try:
        parts = traceback.format_exception(error, limit=-FRAMES_SHOWN_MAX)
    except Exception:  # noqa: BLE001 - the mind's code again
        return f"no traceback of {type(error).__name__} can be shown"
    shown = (part if len(part) <= WHY_CHARS_MAX else f"{part[:WHY_CHARS_MAX]}…\n" for part in parts)
    return sayable("".join(shown)[-TRACEBACK_CHARS_MAX:].rstrip())


def short(value: Any) -> str:
    """A value that a mind returned, cut for an error message."""
    text = _text_of(value, repr)
    return text if len(text) <= 80 else text[:77] + "..."


def _text_of(value: Any, form: Callable[[Any], str]) -> str:
    """``value`` by ``str`` or ``repr``, which may fail for the mind's own classes."""
    try:
        return form(value)
    except BaseException:  # noqa: BLE001 - the mind's code again
        return f"a {type(value).__name__} that can't be shown"
