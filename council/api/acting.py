"""Acts through the council: proposes a tool call, runs it once if it is approved, and records the result.

The proposal carries an authorization, so the approval issues a token in the same record (rules 5). An executor in
this process, with its own name and key, runs the tools of this process.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import hmac
import inspect
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from council.action.installed import EXECUTOR, tools_of
from council.action.tool import Operation, Safety, Tool, ToolResult
from council.api.keywords import checked
from council.api.tools import FunctionTool, Ran, Resources
from council.core.state import (
    REASON_TOLD_MAX,
    RESULT_GRACE_S,
    Decision,
    RiskLevel,
    UseOutcome,
    token_id_of,
)
from council.core.words import because
from council.protocol.errors import ActionFailed, CallerError, NoAnswer, NotApproved, OutcomeUnknown, Refused
from council.runtime.questions import AskStatus
from council.runtime.session import Port
from council.runtime.token_standing import TokenStanding

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig
    from council.protocol.envelope import Requester
    from council.runtime.executor import Executor

# The longest name of a client whose executor is named after it.
_SENDER_CHARS_MAX = 59
TTL_S, RUN_S = 600.0, 60.0
SHOWN_CHARS = 200  # of the output, in one line


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of an approved action. It is true in a condition only if the action succeeded.

    ``value`` is what a Python function returned, if it ran in this process; ``output`` is its text. ``outcome`` is
    ok, failed or cancelled. ``sandbox`` is the sandbox level of the run. ``reported`` is false if the council did not
    get the result. Its record may then say that the outcome is unknown.
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
        """The id of the token that allowed the run."""
        return token_id_of(self.decision.proposal_id)

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        """One line: the outcome, and the beginning of the output or of the error."""
        text = " ".join((self.output if self.ok else self.error)[:SHOWN_CHARS].split())
        text = "".join(char if char.isprintable() else "?" for char in text)
        line = f"{self.outcome}: {text}" if text else self.outcome
        return line if self.reported else f"{line} (the council could not be told, see council tokens)"

    def value_or_raise(self) -> Any:
        """The function's value, or the output. Raises the function's own error, or ActionFailed."""
        if self.raised is not None:
            raise self.raised
        if not self.ok:
            raise ActionFailed(f"{self.outcome}: {self.error}", result=self)
        return self.output if self.value is None else self.value


class Acting(Protocol):
    """A council as ``act`` uses it."""

    def draft(self, *args: Any, **kwargs: Any) -> Any: ...
    async def propose(self, *args: Any, **kwargs: Any) -> Decision: ...
    async def tokens(self, proposal_id: str | None = None) -> list[TokenStanding]: ...
    async def status(self) -> dict[str, Any]: ...
    def events(self, after: int = 0) -> Any: ...


class Tools:
    """The tools of the client ``sender``, and the executor that runs them in its process.

    The executor's key follows from the client's ``key``, so that a client that comes back has the same executor.
    """

    def __init__(self, port: Port, sender: str, key: bytes, config: CouncilConfig, *, inline: bool) -> None:
        self._port, self._config, self._inline = port, config, inline
        self._key = hmac.digest(key, b"executor", "sha256")
        self._name = f"{sender[:_SENDER_CHARS_MAX]}.exec"
        self.own: dict[str, Tool] = {}
        self._executor: Executor | None = None
        self._opening = asyncio.Lock()
        self._checks: asyncio.Task[None] | None = None

    def add(self, tool: Tool) -> None:
        """Adds a tool. Raises CallerError if there is one of that name."""
        if tool.name in self.own:
            raise CallerError(f"there is a tool named {tool.name!r} already: give this one another name")
        self.own[tool.name] = tool

    def find(self, name: object) -> Tool:
        """The tool of that name. Raises CallerError, which lists the known ones."""
        if isinstance(name, str) and name in self.own:
            return self.own[name]
        found = self._installed.get(name) if isinstance(name, str) else None
        if found is not None:
            return found
        known = ", ".join(sorted({*self.own, *self._installed})) or "none"
        raise CallerError(
            f"no tool is named {name!r:.80}; the known tools are {known}. Register a function with @council.tool, "
            "or name a root (for command, file.write, file.patch, git.commit) or hosts (for http.request) under "
            "[action] in the settings"
        )

    @functools.cached_property
    def _installed(self) -> dict[str, Tool]:
        """The tools of the settings. A council in process has no executor of its own: its program runs them."""
        return tools_of(self._config)

    def is_remote(self, name: str) -> bool:
        """Whether the council's own executor runs this tool."""
        return name not in self.own and not self._inline

    async def executor(self) -> Executor:
        """This client's executor. It joins the council on the first call."""
        async with self._opening:
            if self._executor is None:
                from council.runtime.executor import (  # a client that runs nothing needs none
                    Executor,
                    serve_checks,
                )

                tools = ChainMap(self.own, self._installed)
                executor = Executor(self._port, self._name, self._key, self._config.call_timeout_s, tools)
                await executor.open()
                self._executor, after = executor, (await self._port.ask(AskStatus()))["events"]
                self._checks = asyncio.create_task(serve_checks(executor, self._port, after))
            return self._executor

    async def close(self) -> None:
        if self._checks is not None:
            self._checks.cancel()
            await asyncio.gather(self._checks, return_exceptions=True)
        if self._executor is not None:
            await self._executor.close()


class HowActed(TypedDict):
    """The keywords of ``tool`` that are passed to ``act`` for each call; see ``AsyncCouncil.act``."""

    risk: RiskLevel
    timeout_s: float | None
    requester: Requester | Mapping[str, str | None] | None
    wait_for_human: bool
    human_timeout_s: float | None
    run_timeout_s: float
    ttl_s: float


class Registering(Protocol):
    """A council as ``tool`` uses it; results of an asynchronous one are awaited."""

    def register(self, *args: Any, **kwargs: Any) -> Any: ...
    def act(self, *args: Any, **kwargs: Any) -> Any: ...


@checked
def tool(
    self: Registering,
    function: Any = None,
    /,
    *,
    name: str | None = None,
    safety: Safety = "WRITE",
    operations: Sequence[Operation] | None = None,
    resources: Resources = (),
    verify: Callable[..., Any] | None = None,
    revert: Callable[..., Any] | None = None,
    risk: RiskLevel = "low",
    timeout_s: float | None = None,
    requester: Requester | Mapping[str, str | None] | None = None,
    wait_for_human: bool = False,
    human_timeout_s: float | None = None,
    run_timeout_s: float = RUN_S,
    ttl_s: float = TTL_S,
) -> Any:
    """Makes a Python function a tool: a call of it is proposed, and runs if it is approved.

    ``safety`` is READ, WRITE or MIXED. ``operations`` are among read, write, delete and modify; the default is read
    if ``safety`` is READ, else write. ``resources`` lists what a call touches, as texts such as ``file:/srv/x``; it
    may be a function of the arguments. The arguments must be JSON, or of types that pydantic reads from JSON; the
    annotations are their schema. ``verify(result, **args)`` says whether the result is as intended; if not,
    ``revert(**args)`` undoes it. The keywords from ``risk`` on are those of ``act``, for each call. A function runs
    on a thread of its own. A call returns the function's value, and raises NotApproved, the function's own error,
    ActionFailed or OutcomeUnknown. An async function, and each function of an asynchronous council, is awaited.
    Raises CallerError for a wrong declaration.
    """
    how: HowActed = {
        "risk": risk,
        "timeout_s": timeout_s,
        "requester": requester,
        "wait_for_human": wait_for_human,
        "human_timeout_s": human_timeout_s,
        "run_timeout_s": run_timeout_s,
        "ttl_s": ttl_s,
    }

    def decorate(function: Any) -> Any:
        if not callable(function):
            raise CallerError(
                f"tool is given {function!r:.80}, expected a function; its settings are keywords"
            )
        own_name = str(name or getattr(function, "__name__", type(function).__name__))
        allowed = operations if operations is not None else ("read",) if safety == "READ" else ("write",)
        made = FunctionTool(function, own_name, safety, allowed, resources, verify, revert)
        self.register(made)
        return _calling(self, made, function, how)

    return decorate if function is None else decorate(function)


def _calling(council: Any, made: FunctionTool, function: Any, how: HowActed) -> Any:
    """The replacement of the function: it calls ``act``, and returns the function's value."""
    acting = getattr(council, "aio", council)
    if acting is council or inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return (await acting.act(made.name, made.bound(*args, **kwargs), **how)).value_or_raise()

        return awaited

    @functools.wraps(function)
    def waited(*args: Any, **kwargs: Any) -> Any:
        return council.act(made.name, made.bound(*args, **kwargs), **how).value_or_raise()

    return waited


async def act(
    council: Acting,
    tools: Tools,
    tool: str,
    args: Mapping[str, Any],
    draft: Mapping[str, Any],
    waiting: Mapping[str, Any],
    terms: Mapping[str, Any],
) -> ActionResult:
    """See ``AsyncCouncil.act``. ``draft``, ``waiting`` and ``terms`` are for the draft, the wait, and the token."""
    found = tools.find(tool)
    given, resources = await asyncio.to_thread(_checked, found, args)
    executor = None if tools.is_remote(tool) else await tools.executor()
    authorization = {
        "executor": EXECUTOR if executor is None else executor.name,
        "operations": found.operations,
        "resources": resources,
        **terms,
    }
    action = {"tool": tool, "args": given, "authorization": authorization}
    envelope = council.draft(action=action, **draft)
    decision = await council.propose(envelope, **waiting)
    if not decision:
        waits = f"it waits for a human ({decision.escalation_id})"
        why = f"{decision.outcome if decision.final else waits}: {because(decision, REASON_TOLD_MAX)}"
        raise NotApproved(f"{tool} was not run: {why}", decision=decision)
    if executor is None:
        return await _awaited(council, decision, terms["ttl_s"] + terms["timeout_s"] + RESULT_GRACE_S)
    try:
        done = await executor.perform(decision.proposal_id, tool, given, terms["timeout_s"])
    except Refused as refused:
        if refused.code not in ("token_used", "token_executor"):  # else it ran before, under the same key
            raise
        return await _earlier(council, decision, refused)
    return _result(decision, done.outcome, done.result, reported=done.reported)


def _checked(tool: Tool, args: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments to propose, and the resources of a run. Raises CallerError. May call the user's functions."""
    if not isinstance(args, Mapping):
        raise CallerError(f"args is {args!r:.80}, expected a mapping of the tool's arguments by name")
    given = tool.complete(args) if isinstance(tool, FunctionTool) else copy.deepcopy(dict(args))
    tool.check(given)
    return given, tool.resources(given)


def _result(decision: Decision, outcome: UseOutcome, result: ToolResult, *, reported: bool) -> ActionResult:
    if outcome == "unknown":
        raise OutcomeUnknown(
            f"the outcome is unknown: {result.error}. It is not run again; a human is asked whether it ran",
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


async def _awaited(council: Acting, decision: Decision, limit_s: float) -> ActionResult:
    """The report of the council's own executor. Raises Refused if the token has ended, NoAnswer after ``limit_s``."""
    proposal_id = decision.proposal_id
    after = (await council.status())["events"]
    try:
        async with asyncio.timeout(limit_s):
            while True:
                (token,) = await council.tokens(proposal_id)
                ended = Refused(
                    f"{token.token_id} was not used: it is {token.standing}",
                    code=f"token_{token.standing}",
                    proposal_id=proposal_id,
                )
                if token.standing != "under way" and (token.uses or token.standing != "live"):
                    return await _earlier(council, decision, ended)
                async for event in council.events(after):
                    after = event.cursor
                    if event.proposal_id == proposal_id and event.kind in ("result", "revocation"):
                        break
    except TimeoutError:
        raise NoAnswer(
            f"the council's executor did not run {proposal_id} within {limit_s:g} s: see council status",
            waited_s=limit_s,
            proposal_id=proposal_id,
        ) from None


async def _earlier(council: Acting, decision: Decision, refused: Refused) -> ActionResult:
    """The result of an earlier run of the action. Raises ``refused`` if no earlier run has ended."""
    tokens = await council.tokens(decision.proposal_id)
    ended = [use.result for token in tokens for use in token.uses if use.result is not None]
    if not ended:
        raise refused
    last = ended[-1]
    error = "" if last.outcome == "ok" else last.text
    output = last.text if last.outcome == "ok" else ""
    result = ToolResult(last.outcome == "ok", output, error, last.exit_code, last.sandbox, 0.0, False)
    return _result(decision, last.outcome, result, reported=True)
