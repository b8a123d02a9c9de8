"""Runs an approved call, verifies or reverts it, and reports each step to the council.

The order of the steps is written once, for plain and for async functions: a coroutine, which never suspends for a
plain function. Each step is reported before the next one begins. If a report fails, the steps still run, and the
caller learns what ran (rules 3.1).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

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
    _unreported: bool = False
    _ended_by: BaseException | None = None

    async def steps(
        self, function: Work, verify: Callable[[Any], Any] | None = None, revert: Work | None = None
    ) -> StepResult:
        """The steps in order. Returns the function's result, or its error or NotVerified."""
        ran = await self._step(function)
        if ran.error is None and not self.awaits and _has_not_run(ran.value):
            return self._refused(ran.value, checked=verify is not None or revert is not None)
        await self._report("act", self._describe(ran.error))
        found, why = StepResult(), ""
        if ran.error is None and verify is not None:
            found = await self._step(lambda: verify(ran.value))
            why = self._why_unverified(found)
            await self._report("verify", why)
        if ran.error is None and not why:
            return StepResult(ran.value, self._ended_by)
        undone, failed = StepResult(), ""
        if revert is not None:
            undone = await self._step(revert)
            unrun = _closed_unrun(undone.value, "revert") if _has_not_run(undone.value) else ""
            failed = unrun or self._describe(undone.error)
            await self._report("revert", failed)
        how = "" if revert is None else f"it could not be reverted: {failed}" if failed else "it was reverted"
        error: BaseException
        own = found.error if _is_interrupt(found.error) else ran.error
        if own is not None:
            error = own
            if how:
                error.add_note(f"{self.name}: {how}")
        else:
            words = f"{self.name} ran, and is not verified: {why}" + (f"; {how}" if how else "")
            error = NotVerified(words, decision=self.decision, reverted=bool(how) and not failed)
            error.__cause__ = found.error or undone.error
        if _is_interrupt(undone.error):
            undone.error.__context__ = error
            error = undone.error
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
        if self._unreported:
            return
        done = await self._step(lambda: self.report(self.decision, stage=stage, ok=not why, text=why))
        if done.error is None:
            return
        self._unreported = True  # the council would refuse later stages without this one
        if _is_interrupt(done.error):  # the revert still runs, and then it ends
            self._ended_by = done.error
        about = {"proposal_id": self.decision.proposal_id, "stage": stage, "ok": not why}
        log.warning("the result of an action was not reported", call=self.name, **about, why=str(done.error))

    def _why_unverified(self, found: StepResult) -> str:
        """The reason why the result of verify is not a success; empty if it is."""
        if found.error is not None:
            return f"verify raised {self._describe(found.error)}"
        if _has_not_run(found.value):
            return _closed_unrun(found.value, "verify")
        try:
            if found.value:
                return ""
            kind = "" if found.value is None or found.value is False else "a false "
            return f"verify gave {kind}{type(found.value).__name__ if kind else found.value}"
        except Exception as error:  # noqa: BLE001 - the value's own code
            kind = type(found.value).__name__
            return f"verify gave a {kind} that is neither true nor false: {self._describe(error)}"

    def _describe(self, error: BaseException | None) -> str:
        if error is None:
            return ""
        kind = type(error).__name__
        try:
            text = "" if self.discreet else str(error)
        except Exception:  # noqa: BLE001 - the exception's own code
            text = ""
        return printable(f"{kind}: {text}" if text else kind)[:REASON_TOLD_MAX]

    def _refused(self, given: Any, *, checked: bool) -> StepResult:
        """The result of a plain function that returned a coroutine or iterator: it has not run yet."""
        if not checked:
            return StepResult(given)
        why = _closed_unrun(given, self.name)
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
    else:
        raise AssertionError("a step of a plain function was awaited")
    return result.value_or_raise()  # not in the handler: the error would get StopIteration as its context


def _is_interrupt(error: BaseException | None) -> TypeGuard[BaseException]:
    """Whether it is to end the program, as Ctrl-C does."""
    return error is not None and not isinstance(error, Exception)


def _has_not_run(value: Any) -> bool:
    return inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value)


def _closed_unrun(value: Any, name: str) -> str:
    """The description of a coroutine that is never awaited. It is closed, so it never runs."""
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        value.close()
    return f"{name} gave a {type(value).__name__}, which has not run"
