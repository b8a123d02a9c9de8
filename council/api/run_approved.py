"""Runs an approved call, verifies or reverts it, and reports each step to the council.

The order of the steps is written once, for plain and for async functions: a coroutine, which never suspends for a
plain function. Each step is reported before the next one begins. If a report fails, the steps still run, and the
caller is told what ran (rules 3.1).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from council.agents.messaging.logs import get_logger
from council.core.state import REASON_TOLD_MAX, ActionStage, Decision
from council.protocol.errors import CallerError, NotVerified
from council.runtime.messages import printable

log = get_logger("council")


class StepResult(NamedTuple):
    """The result of a step: a value or an error."""

    value: Any = None
    error: BaseException | None = None

    def value_or_raise(self) -> Any:
        """The value. Raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


Work = Callable[[], Any]


@dataclass(slots=True)
class Performance:
    """One run of an approved call. ``report`` tells the council. ``awaits``: results that can be awaited are awaited.

    ``discreet``: of an error only the type is reported, because its text may hold a hidden argument.
    """

    name: str
    decision: Decision
    report: Callable[..., Any]
    awaits: bool
    discreet: bool
    _unheard: bool = False
    _ended_by: BaseException | None = None

    async def steps(
        self, function: Work, verify: Callable[[Any], Any] | None = None, revert: Work | None = None
    ) -> StepResult:
        """The steps in order. Returns the function's result, or its error or NotVerified."""
        ran = await self._step(function)
        if ran.error is None and not self.awaits and _is_still_to_run(ran.value):
            return self._not_run(ran.value, checked=verify is not None or revert is not None)
        await self._report("act", "" if ran.error is None else self._words(ran.error))
        error: BaseException | None = ran.error
        if error is None and verify is not None:
            found = await self._step(lambda: verify(ran.value))
            why = self._amiss(found)
            await self._report("verify", why)
            error = self._unverified(why, found.error) if why else None
        if error is None:
            return StepResult(ran.value, self._ended_by)
        if revert is not None:
            undone = await self._step(revert)
            failed = "" if undone.error is None else self._words(undone.error)
            if _is_still_to_run(undone.value):
                failed = _unstarted(undone.value, "revert")
            await self._report("revert", failed)
            error = self._put_back(error, failed, undone.error)
        return StepResult(error=self._ended_by or error)

    async def _step(self, work: Work) -> StepResult:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - ``steps`` decides what is raised
            return StepResult(error=error)
        if not self.awaits or not inspect.isawaitable(value):
            return StepResult(value)
        try:
            return StepResult(await value)
        except GeneratorExit:  # this coroutine itself is being closed, and may not await any more
            raise
        except BaseException as error:  # noqa: BLE001 - ``steps`` decides what is raised
            return StepResult(error=error)

    async def _report(self, stage: ActionStage, why: str) -> None:
        """Reports a step; ``why`` is its error, if it failed. After a failed report no more are made."""
        if self._unheard:
            return
        told = await self._step(lambda: self.report(self.decision, stage=stage, ok=not why, text=why))
        if told.error is None:
            return
        self._unheard = True  # the council would refuse later stages without this one
        if not isinstance(told.error, Exception):  # for Ctrl-C, the revert still runs, and then it ends
            self._ended_by = told.error
        about = {"proposal_id": self.decision.proposal_id, "stage": stage, "ok": not why}
        log.warning("the result of an action was not reported", call=self.name, **about, why=str(told.error))

    def _amiss(self, found: StepResult) -> str:
        """Why the result of verify is not a success; empty if it is."""
        if found.error is not None:
            return f"verify raised {self._words(found.error)}"
        if _is_still_to_run(found.value):
            return _unstarted(found.value, "verify")
        try:
            if found.value:
                return ""
            kind = "" if found.value is None or found.value is False else "a false "
            return f"verify gave {kind}{type(found.value).__name__ if kind else found.value}"
        except Exception as error:  # noqa: BLE001 - the value's own code
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
        """The error for the caller, with the result of the revert."""
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
        except Exception:  # noqa: BLE001 - the exception's own code
            said = ""
        return printable(f"{kind}: {said}" if said else kind)[:REASON_TOLD_MAX]

    def _not_run(self, given: Any, *, checked: bool) -> StepResult:
        """The result of a plain function that returned a coroutine or iterator: it has not run yet."""
        if not checked:
            return StepResult(given)
        why = _unstarted(given, self.name)
        return StepResult(
            error=CallerError(
                f"{self.name} did not run: {why}; make it an async function to have it verified"
            )
        )


def run_blocking(steps: Coroutine[Any, Any, StepResult]) -> Any:
    """The result of steps that never suspend, because they await nothing."""
    try:
        steps.send(None)
    except StopIteration as end:
        result: StepResult = end.value
        return result.value_or_raise()
    raise AssertionError("a step of a plain function was awaited")


def _is_still_to_run(value: Any) -> bool:
    return inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value)


def _unstarted(value: Any, name: str) -> str:
    """The description of a coroutine that is never awaited. It is closed, so it never runs."""
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        value.close()
    return f"{name} gave a {type(value).__name__}, which has not run"
