"""Runs an approved call, verifies or reverts it, and reports each step to the council.

The order of the steps is written here once, for plain and for async functions: a course yields what is to be called,
and is sent the result. Each step is reported before the next one begins. If a report fails, the steps still run, and
the caller is told what ran (rules 3.1).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

from council.agents.messaging.logs import get_logger
from council.core.state import REASON_TOLD_MAX, ActionStage, Decision
from council.protocol.errors import CallerError, NotVerified
from council.runtime.messages import shown

log = get_logger("council")


class Done(NamedTuple):
    """What a step came to: what it gave, or what it raised."""

    value: Any = None
    error: BaseException | None = None

    def given(self) -> Any:
        """The value. Raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


Work = Callable[[], Any]
Course = Generator[Work, Done, Done]


@dataclass(slots=True)
class Performance:
    """One run of an approved call. ``report`` tells the council, and may give what is awaited where it ``awaits``.

    ``discreet``: of what is raised only the type is told, for the words may hold an argument that is hidden.
    """

    name: str
    decision: Decision
    report: Callable[..., Any]
    awaits: bool
    discreet: bool
    _unheard: bool = False
    _ended_by: BaseException | None = None

    def course(
        self, function: Work, verify: Callable[[Any], Any] | None = None, revert: Work | None = None
    ) -> Course:
        """The steps in order. Comes to the function's result, its own exception, or NotVerified."""
        ran = yield function
        if ran.error is None and not self.awaits and _is_still_to_run(ran.value):
            return self._not_run(ran.value, checked=verify is not None or revert is not None)
        yield from self._tell("act", "" if ran.error is None else self._words(ran.error))
        error: BaseException | None = ran.error
        if error is None and verify is not None:
            found = yield lambda: verify(ran.value)
            why = self._amiss(found)
            yield from self._tell("verify", why)
            error = self._unverified(why, found.error) if why else None
        if error is None:
            return Done(ran.value, self._ended_by)
        if revert is not None:
            undone = yield revert
            failed = "" if undone.error is None else self._words(undone.error)
            if _is_still_to_run(undone.value):
                failed = _unstarted(undone.value, "revert")
            yield from self._tell("revert", failed)
            error = self._put_back(error, failed, undone.error)
        return Done(error=self._ended_by or error)

    def _tell(self, stage: ActionStage, why: str) -> Generator[Work, Done, None]:
        """Reports a step; ``why`` it failed, if it did. One who can't be told is told no more."""
        if self._unheard:
            return
        told = yield lambda: self.report(self.decision, stage=stage, ok=not why, text=why)
        if told.error is None:
            return
        self._unheard = True  # it would have no place for what comes after this
        if not isinstance(told.error, Exception):  # a Ctrl-C: what is to be put back is, and then it ends
            self._ended_by = told.error
        about = {"proposal_id": self.decision.proposal_id, "stage": stage, "ok": not why}
        log.warning("the result of an action was not reported", call=self.name, **about, why=str(told.error))

    def _amiss(self, found: Done) -> str:
        """Why what verify came to is no success; empty where it is one."""
        if found.error is not None:
            return f"verify raised {self._words(found.error)}"
        if _is_still_to_run(found.value):
            return _unstarted(found.value, "verify")
        try:
            if found.value:
                return ""
            kind = "" if found.value is None or found.value is False else "a false "
            return f"verify gave {kind}{type(found.value).__name__ if kind else found.value}"
        except Exception as error:  # noqa: BLE001 - a value's own code
            return f"verify gave a {type(found.value).__name__} that is neither true nor false: {self._words(error)}"

    def _unverified(self, why: str, cause: BaseException | None) -> BaseException:
        if cause is not None and not isinstance(cause, Exception):
            return cause
        error = NotVerified(
            f"{self.name} ran, and is not verified: {why}", decision=self.decision, reverted=False
        )
        error.__cause__ = cause
        return error

    def _put_back(self, error: BaseException, failed: str, cause: BaseException | None) -> BaseException:
        """The error that the caller gets, with what became of the revert."""
        if cause is not None and not isinstance(cause, Exception):
            cause.__context__ = error
            return cause
        how = "it was reverted" if not failed else f"it could not be reverted: {failed}"
        if not isinstance(error, NotVerified) or error.decision is not self.decision:
            error.add_note(f"{self.name}: {how}")
            return error
        told = NotVerified(f"{error.message}; {how}", decision=self.decision, reverted=not failed)
        told.__cause__ = error.__cause__ or cause
        return told

    def _words(self, error: BaseException) -> str:
        kind = type(error).__name__
        try:
            said = "" if self.discreet else str(error)
        except Exception:  # noqa: BLE001 - an exception's own code
            said = ""
        return shown(f"{kind}: {said}" if said else kind)[:REASON_TOLD_MAX]

    def _not_run(self, given: Any, *, checked: bool) -> Done:
        """What a plain function gave runs later, if ever: nothing became of the action that could be told."""
        if not checked:
            return Done(given)
        why = _unstarted(given, self.name)
        return Done(
            error=CallerError(
                f"{self.name} did not run: {why}; make it an async function to have it verified"
            )
        )


def run(course: Course) -> Any:
    """Follows a course. Gives the function's result, and raises what the course came to otherwise."""
    work: Work | None = next(course)
    while work is not None:
        try:
            done = Done(work())
        except BaseException as error:  # noqa: BLE001 - the course says what is raised
            done = Done(error=error)
        work, done = _next(course, done)
    return done.given()


async def run_async(course: Course) -> Any:
    """As ``run``, and awaits what is to be awaited."""
    work: Work | None = next(course)
    while work is not None:
        try:
            value = work()
            done = Done(await value if inspect.isawaitable(value) else value)
        except GeneratorExit:  # the coroutine itself is closed, and may await nothing more
            raise
        except BaseException as error:  # noqa: BLE001 - the course says what is raised
            done = Done(error=error)
        work, done = _next(course, done)
    return done.given()


def _next(course: Course, done: Done) -> tuple[Work | None, Done]:
    """The next step, or None with what the course came to."""
    try:
        return course.send(done), done
    except StopIteration as end:
        return None, end.value


def _is_still_to_run(value: Any) -> bool:
    return inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value)


def _unstarted(value: Any, name: str) -> str:
    """What is said of a coroutine that nobody awaits; it is closed, and so never runs."""
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        value.close()
    return f"{name} gave a {type(value).__name__}, which has not run"
