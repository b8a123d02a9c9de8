"""Hands an action to the council instead of running it: proposed, approved, run once, on the record.

The proposal carries an authorization, so the approval issues a token in the same record (rules 5). A tool of this
process is run here, by an executor with a name and a key of its own.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from council.action.tool import Operation, Safety, Tool, ToolResult
from council.api.tools import FunctionTool, Ran, Resources
from council.core.state import REASON_TOLD_MAX, Decision, UseOutcome, token_id_of
from council.core.words import because
from council.protocol.errors import ActionFailed, CallerError, NotApproved, OutcomeUnknown, Refused
from council.runtime.executor import Executor
from council.runtime.questions import AskTokens

if TYPE_CHECKING:
    from council.api.aio import AsyncCouncil
    from council.api.handle import Handle

F = TypeVar("F", bound=Callable[..., Any])
# The longest name of a client whose executor is named after it.
_SENDER_CHARS_MAX = 59
TTL_S, RUN_S = 600.0, 60.0


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What came of an approved action. It is true in a condition only if the action ran well.

    ``value`` is what a Python function returned, where it ran in this process; ``output`` is its text. ``outcome`` is
    ok, failed or cancelled. ``sandbox`` is the level that it ran at. ``reported`` is false if the council could not
    be told: its record then says that the outcome is unknown.
    """

    decision: Decision
    outcome: UseOutcome
    output: str
    error: str = ""
    exit_code: int | None = None
    sandbox: str = ""
    seconds: float = 0.0
    reported: bool = True
    value: Any = field(default=None, repr=False, compare=False)
    raised: Exception | None = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def token_id(self) -> str:
        """The token that it ran on."""
        return token_id_of(self.decision.proposal_id)

    def __bool__(self) -> bool:
        return self.ok

    def value_or_raise(self) -> Any:
        """The function's value, or the output. Raises the function's own error, or ActionFailed."""
        if self.raised is not None:
            raise self.raised
        if not self.ok:
            raise ActionFailed(f"{self.outcome}: {self.error}", result=self)
        return self.output if self.value is None else self.value


class Tools:
    """The tools of one client, and the executor that runs them in its process."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.own: dict[str, Tool] = {}
        self._executor: Executor | None = None
        self._opening = asyncio.Lock()

    def add(self, tool: Tool) -> None:
        """Adds a tool. Raises CallerError if there is one of that name."""
        if tool.name in self.own:
            raise CallerError(f"there is a tool named {tool.name!r} already: give this one another name")
        self.own[tool.name] = tool

    def find(self, name: object) -> Tool:
        """The tool of that name. Raises CallerError, which lists the known ones."""
        if isinstance(name, str) and name in self.own:
            return self.own[name]
        known = ", ".join(sorted(self.own)) or "none; register a function with @council.tool"
        raise CallerError(f"no tool is named {name!r:.80}; the known tools are {known}")

    async def executor(self) -> Executor:
        """This client's executor, which joins when it is first needed."""
        async with self._opening:
            if self._executor is None:
                handle = self._handle
                name = f"{handle.session.name[:_SENDER_CHARS_MAX]}.exec"
                key = secrets.token_bytes(32)
                executor = Executor(handle.port, name, key, handle.config.call_timeout_s, self.own)
                await executor.open()
                self._executor = executor
            return self._executor

    async def close(self) -> None:
        if self._executor is not None:
            await self._executor.close()


def tool(
    self: Any,
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    safety: Safety = "WRITE",
    operations: Sequence[Operation] | None = None,
    resources: Resources = (),
    verify: Callable[..., Any] | None = None,
    revert: Callable[..., Any] | None = None,
    **how: Any,
) -> Any:
    """Makes a Python function a tool: calling it proposes the call, and runs it once it is approved.

    ``safety`` is READ, WRITE or MIXED, and ``operations`` are among read, write, delete and modify; by default read
    or write. ``resources`` lists what a call touches, as texts such as ``file:/srv/x``; it may be a function of the
    arguments. The arguments must be JSON, or of types that pydantic reads from JSON; the annotations are their
    schema. ``verify(result, **args)`` says whether the result is as intended; if not, ``revert(**args)`` undoes it.
    The other keywords are those of ``act``, for each call. Functions run on a thread of their own. A call returns
    the function's value, and raises NotApproved, the function's own error, ActionFailed or OutcomeUnknown. Raises
    CallerError for a wrong declaration.
    """
    if function is None:
        return functools.partial(
            tool,
            self,
            name=name,
            safety=safety,
            operations=operations,
            resources=resources,
            verify=verify,
            revert=revert,
            **how,
        )
    if not callable(function):
        raise CallerError(f"tool is given {function!r:.80}, expected a function")
    own_name = name or getattr(function, "__name__", type(function).__name__)
    if operations is None:
        operations = ("read",) if safety == "READ" else ("write",)
    made = FunctionTool(function, own_name, safety, operations, resources, verify, revert)
    self._handle.tools.add(made)
    asynchronous = getattr(self, "aio", self)
    if asynchronous is self or inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def acting(*args: Any, **kwargs: Any) -> Any:
            found = await asynchronous.act(own_name, made.bound(*args, **kwargs), **how)
            return found.value_or_raise()

        return acting

    @functools.wraps(function)
    def acts(*args: Any, **kwargs: Any) -> Any:
        return self.act(own_name, made.bound(*args, **kwargs), **how).value_or_raise()

    return acts


async def act(
    council: AsyncCouncil,
    handle: Handle,
    tool: str,
    args: Mapping[str, Any],
    draft: Mapping[str, Any],
    waiting: Mapping[str, Any],
    terms: Mapping[str, Any],
) -> ActionResult:
    """See ``AsyncCouncil.act``. ``draft``, ``waiting`` and ``terms`` are for the draft, the wait, and the token."""
    found = handle.tools.find(tool)
    if not isinstance(args, Mapping):
        raise CallerError(f"args is {args!r:.80}, expected a mapping of the tool's arguments by name")
    given = found.complete(args) if isinstance(found, FunctionTool) else dict(args)
    found.check(given)
    executor = await handle.tools.executor()
    authorization = {
        "executor": executor.name,
        "operations": found.operations,
        "resources": found.resources(given),
        **terms,
    }
    action = {"tool": tool, "args": given, "authorization": authorization}
    envelope = council.draft(action=action, **draft)
    decision = await council.propose(envelope, **waiting)
    if not decision:
        waits = f"it waits for a human ({decision.escalation_id})"
        why = f"{decision.outcome if decision.final else waits}: {because(decision, REASON_TOLD_MAX)}"
        raise NotApproved(f"{tool} was not run: {why}", decision=decision)
    try:
        done = await executor.perform(decision.proposal_id, tool, given, terms["timeout_s"])
    except Refused as refused:
        if refused.code not in ("token_used", "token_executor"):  # else it ran before, under the same key
            raise
        return await _earlier(handle, decision, refused)
    return _result(decision, done.outcome, done.result, reported=done.reported)


def _result(decision: Decision, outcome: UseOutcome, result: ToolResult, *, reported: bool) -> ActionResult:
    if outcome == "unknown":
        raise OutcomeUnknown(
            f"the outcome is unknown: {result.error}. It is not run again",
            token=token_id_of(decision.proposal_id),
        )
    ran = result.undo if isinstance(result.undo, Ran) else Ran()
    return ActionResult(
        decision,
        outcome,
        result.output,
        result.error,
        result.exit_code,
        result.sandbox,
        result.seconds,
        reported,
        ran.value,
        ran.error,
    )


async def _earlier(handle: Handle, decision: Decision, refused: Refused) -> ActionResult:
    """What came of the action when it ran before. Raises ``refused`` if there was no use of it that has ended."""
    tokens = await handle.session.ask(AskTokens(decision.proposal_id))
    ended = [use.result for token in tokens for use in token.uses if use.result is not None]
    if not ended:
        raise refused
    last = ended[-1]
    error = "" if last.outcome == "ok" else last.text
    output = last.text if last.outcome == "ok" else ""
    result = ToolResult(last.outcome == "ok", output, error, last.exit_code, last.sandbox, 0.0, False)
    return _result(decision, last.outcome, result, reported=True)
