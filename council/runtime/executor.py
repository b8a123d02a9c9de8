"""An executor: the party that runs approved actions, in a process of its choice (rules 5).

It joins with a key of its own. For each run it asks the council for a use of the action's token, with the digest of
the arguments that it was handed. It runs once the council has acknowledged the request, which waits until the use is
on disk (rules 4.7). Then it reports the result. A request is acknowledged to the process that made it alone: a
new process has no request of an earlier one, so that nothing runs twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import json
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from council.action.redact import Redactor
from council.action.tool import Tool, ToolResult
from council.agents.messaging.ids import new_id
from council.agents.messaging.logs import get_logger
from council.core.state import UseOutcome, token_id_of
from council.journal.entries import Asked, wanted
from council.protocol.envelope import Action, Proposal
from council.protocol.errors import CallerError, CouncilError, NoAnswer, Refused
from council.protocol.packet import args_digest
from council.protocol.values import plain
from council.runtime.questions import AskEvents, AskHistory, AskStatus, AskTokens
from council.runtime.session import Port, Session
from council.runtime.token_standing import TokenStanding

log = get_logger("council")
T = TypeVar("T")
# Characters of a run's output that its report holds; the report has the digest of all of it.
OUTPUT_CHARS_MAX = 10_000
# A tool ends by itself about when its time is up. One that does not is left behind after this many seconds more.
LEFT_BEHIND_S = 5.0
PREPARE_S = 30.0  # a tool has so many seconds to check its arguments, and to name its resources
EVENTS_READ, EVENTS_WAIT_S = 500, 10.0
RETRY_S = 1.0  # a client looks for its council again after this many seconds
DONE_KEPT = 1_000
LATE = "not run: the grant came too late"


class Done(NamedTuple):
    """The result of a run. ``reported``: the council has the report on disk."""

    outcome: UseOutcome
    result: ToolResult
    reported: bool


class Executor:
    """One executor, on one event loop. ``tools`` are those that it runs, by name; others may be added later."""

    def __init__(
        self, port: Port, name: str, key: bytes, call_timeout_s: float, tools: Mapping[str, Tool]
    ) -> None:
        self.tools = tools
        self._session = Session(port, name, "executor", key, call_timeout_s)
        self._run = secrets.token_hex(8)
        self._checks: dict[str, asyncio.Task[None]] = {}  # those under way, by token
        self.begun: dict[str, asyncio.Task[None]] = {}  # by proposal; a few are kept once they are done

    @property
    def name(self) -> str:
        return self._session.name

    async def open(self) -> None:
        """Joins the council. What an earlier process of this name had under way then has an unknown outcome.

        Raises as ``Session.open`` does.
        """
        await self._session.open()
        await self._session.inform(None, "executor", "", {"run": self._run})

    async def close(self) -> None:
        """Leaves the council. What is under way may still run, and is not reported."""
        checks = list(self._checks.values())
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        await self._session.close()

    async def perform(
        self, proposal_id: str, tool: str, args: Mapping[str, Any], timeout_s: float, check: int | None = None
    ) -> Done:
        """Runs an approved action once, and reports it. ``timeout_s`` is the time that its run has.

        ``check`` is the number of a check before the decision, if it is one: it runs a READ tool alone. Raises
        CallerError for an unknown tool or wrong arguments; Refused, which names what differs from what was approved;
        NoAnswer if the council did not grant it in time. Then nothing was run.
        """
        found = self.tools.get(tool)
        if found is None:
            raise CallerError(f"{self.name} has no tool {tool!r}; it has {', '.join(self.tools) or 'none'}")
        if check is not None and found.safety != "READ":
            raise CallerError(f"{tool} is a {found.safety} tool, and a check runs READ tools alone")
        args = copy.deepcopy(dict(args))  # the caller's may change while this waits: what is digested is run
        try:  # both are the tool's own code
            async with asyncio.timeout(PREPARE_S) as limit:
                await _on_thread(lambda: found.check(args))
                resources = await _on_thread(lambda: found.resources(args))
        except TimeoutError:
            if not limit.expired():  # it is the tool's own
                raise
            raise CallerError(f"{tool} did not check its arguments within {PREPARE_S:g} s") from None
        request = {
            "run": self._run,
            "token": token_id_of(proposal_id, check),
            "tool": tool,
            "operations": tuple(found.operations),
            "resources": resources,
            "arguments": args_digest(args),
        }
        ends_s = asyncio.get_running_loop().time() + timeout_s
        use_id = new_id()
        try:
            await self._session.inform(proposal_id, "use", "", request, use_id)
        except Refused:
            raise
        except CouncilError as error:  # it may be counted, and is not run
            await self._report(proposal_id, use_id, "cancelled", _nothing(f"not run: {error.message}"))
            raise
        left_s = ends_s - asyncio.get_running_loop().time()
        if left_s <= 0:
            await self._report(proposal_id, use_id, "cancelled", _nothing(LATE))
            raise NoAnswer(
                f"{tool} was {LATE}, after {timeout_s:g} s", waited_s=timeout_s, proposal_id=proposal_id
            )
        outcome, result = await _carry_out(found, args, left_s)
        return Done(outcome, result, await self._report(proposal_id, use_id, outcome, result))

    async def _report(self, proposal_id: str, use_id: str, outcome: UseOutcome, result: ToolResult) -> bool:
        """Reports the result of a use, and returns whether the council has it. Without it the outcome is unknown."""
        whole = result.output.encode(errors="backslashreplace")
        data = {
            "use": use_id,
            "outcome": outcome,
            "sandbox": result.sandbox,
            "exit_code": result.exit_code,
            "output": hashlib.sha256(whole).hexdigest(),
        }
        text = await _on_thread(lambda: report_text(result))  # redaction takes a while, and loads its tables
        try:
            await self._session.inform(proposal_id, "result", text, data)
        except CouncilError as error:
            log.warning("the result of an action was not reported", proposal=proposal_id, why=error.message)
            return False
        return True

    def begin_check(self, proposal_id: str, number: int, check: Mapping[str, Any], timeout_s: float) -> None:
        """Begins to run the check of that number before a decision on a proposal. Its result is reported.

        Does nothing if the check is under way. ``check`` has the tool and its arguments as JSON; ``timeout_s`` is the
        time that its run has.
        """
        token_id = token_id_of(proposal_id, number)
        if token_id in self._checks:
            return
        task = asyncio.get_running_loop().create_task(self._check(proposal_id, number, check, timeout_s))
        self._checks[token_id] = task
        task.add_done_callback(lambda _: self._checks.pop(token_id, None))

    async def _check(self, proposal_id: str, number: int, check: Mapping[str, Any], timeout_s: float) -> None:
        try:
            tool, args = check["tool"], json.loads(check["args"])
            try:
                await self.perform(proposal_id, tool, args, timeout_s, number)
            except CallerError as error:
                await self._refuse(proposal_id, tool, args, ("read",), (), error.message, number)
        except Exception as error:  # noqa: BLE001 - the tool's own code; the council asks a human in time
            why = getattr(error, "message", None) or repr(error)
            log.warning("a check was not run", proposal=proposal_id, why=why)

    async def refuse(self, proposal_id: str, action: Action, why: str) -> None:
        """Reports that an approved action can't be run here, on a use of its token: so its proposer hears of it."""
        allows = action.authorization
        assert allows is not None
        await self._refuse(proposal_id, action.tool, action.args, allows.operations, allows.resources, why)

    async def _refuse(
        self,
        proposal_id: str,
        tool: str,
        args: Mapping[str, Any],
        operations: Sequence[str],
        resources: Sequence[str],
        why: str,
        check: int | None = None,
    ) -> None:
        use_id = new_id()
        request = {
            "run": self._run,
            "token": token_id_of(proposal_id, check),
            "tool": tool,
            "operations": tuple(operations),
            "resources": tuple(resources),
            "arguments": args_digest(args),
        }
        await self._session.inform(proposal_id, "use", "", request, use_id)
        await self._report(proposal_id, use_id, "failed", _nothing(f"not run: {why}"))


async def serve(executor: Executor, port: Port) -> None:
    """Runs each action whose token is issued to ``executor``, once, as the council announces it; until cancelled.

    What was issued while nobody served is run too, unless it has expired or was used. Raises CouncilError if the
    council is lost, or has lost its place; calling it again goes on.
    """
    await executor.open()
    after = (await port.ask(AskStatus()))["events"]
    begun = executor.begun

    def begin(proposal_id: str) -> None:
        if proposal_id in begun:
            return
        begun[proposal_id] = asyncio.get_running_loop().create_task(_run_issued(executor, port, proposal_id))
        for each in [each for each, task in begun.items() if task.done()][:-DONE_KEPT]:
            del begun[each]

    for token in await _unused(executor, port):
        if token.token_id == token_id_of(token.proposal_id):
            begin(token.proposal_id)
        else:
            await _begin_missed_check(executor, port, token)
    async for kind, issued in _issued(executor, port, after):
        if kind == "token":
            begin(issued["token"]["proposal_id"])
        else:
            _begin_check(executor, issued)


async def serve_checks(executor: Executor, port: Port, after: int) -> None:
    """Runs each check that is asked of ``executor``, as announced after the cursor ``after``; until cancelled.

    If the council is lost, it is asked again. Checks that were announced meanwhile are run then.
    """
    while True:
        try:
            async for kind, issued in _issued(executor, port, after):
                if kind == "check":
                    _begin_check(executor, issued)
        except CouncilError as error:  # the council is lost, or has lost the place
            log.warning("checks are not heard of for a while", executor=executor.name, why=error.message)
        await asyncio.sleep(RETRY_S)
        with contextlib.suppress(CouncilError):
            after = (await port.ask(AskStatus()))["events"]
            for token in await _unused(executor, port):
                if token.token_id != token_id_of(token.proposal_id):
                    await _begin_missed_check(executor, port, token)


async def _unused(executor: Executor, port: Port) -> list[TokenStanding]:
    """The tokens of ``executor`` that it may use, and has not used."""
    tokens = await port.ask(AskTokens())
    return [
        each
        for each in tokens
        if each.executor == executor.name and each.standing == "live" and not each.uses
    ]


def _begin_check(executor: Executor, issued: Mapping[str, Any]) -> None:
    token = issued["token"]
    executor.begin_check(token["proposal_id"], token["check"], issued["check"], token["terms"]["timeout_s"])


async def _begin_missed_check(executor: Executor, port: Port, token: TokenStanding) -> None:
    """Begins a check whose announcement was missed. The act that asked for it is in the journal."""
    asked: Asked = {"proposal": token.proposal_id, "types": ["ballot", "ruling"]}
    for entry in await port.ask(AskHistory(wanted(asked))):
        check = entry.data[entry.kind].get("check")
        if check is not None and (check["tool"], check["digest"]) == (token.tool, token.arguments):
            number = int(token.token_id.removeprefix(f"{token_id_of(token.proposal_id)}-"))
            executor.begin_check(token.proposal_id, number, check, token.timeout_s)
            return


async def _issued(executor: Executor, port: Port, after: int) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The announcements of tokens and checks for ``executor``, with their kinds, after a cursor."""
    while True:
        for event in await port.ask(AskEvents(after, EVENTS_READ, EVENTS_WAIT_S)):
            after = event["cursor"]
            kind, data = event["kind"], event["data"]
            if kind in ("token", "check") and data["token"]["terms"]["executor"] == executor.name:
                yield kind, data


async def _run_issued(executor: Executor, port: Port, proposal_id: str) -> None:
    """Reads what was approved from the journal, and runs it."""
    try:
        asked: Asked = {"proposal": proposal_id, "types": ["proposal"], "envelopes": True, "limit": 1}
        (entry,) = await port.ask(AskHistory(wanted(asked)))
        assert entry.envelope is not None
        content = entry.envelope.content
        assert isinstance(content, Proposal)
        action = content.action
        assert action is not None
        assert action.authorization is not None
        try:
            await executor.perform(
                proposal_id, action.tool, plain(action.args), action.authorization.timeout_s
            )
        except Refused as error:
            log.warning("an approved action was not run", proposal=proposal_id, why=error.message)
        except CallerError as error:
            await executor.refuse(proposal_id, action, error.message)
    except Exception as error:  # noqa: BLE001 - it costs this action only, and others are run
        why = getattr(error, "message", None) or repr(error)
        log.warning("an approved action was not run", proposal=proposal_id, why=why)


def report_text(result: ToolResult) -> str:
    """The text of a report: the error and the output, redacted and cut, in a form that can be journaled."""
    whole = "\n".join(filter(None, (result.error, result.output)))
    redactor = Redactor()
    text = redactor.feed(whole[: 2 * OUTPUT_CHARS_MAX])  # before the cut: half a secret is not known as one
    if len(whole) <= 2 * OUTPUT_CHARS_MAX:  # else its end may be half a secret
        text += redactor.close()
    text = text[:OUTPUT_CHARS_MAX]
    return text.replace("\0", "\\0").encode(errors="backslashreplace").decode()


async def _carry_out(tool: Tool, args: Mapping[str, Any], left_s: float) -> tuple[UseOutcome, ToolResult]:
    """Runs, verifies, and reverts what is not as intended if the tool can. Never raises."""

    def work() -> tuple[UseOutcome, ToolResult]:
        result = tool.run(args, timeout_s=left_s)
        why = tool.verify(args, result) if result.ok else ""
        if not why:
            return "ok" if result.ok else "failed", result
        return "failed", _with_error(result, f"not verified: {why}; {_reverted(tool, args, result)}")

    try:
        return await asyncio.wait_for(_on_thread(work), left_s + LEFT_BEHIND_S)
    except TimeoutError:
        return "unknown", _nothing(f"it did not end within {left_s:.0f} s, and may still run")
    except CallerError as error:
        return "failed", _nothing(error.message)
    except Exception as error:  # noqa: BLE001 - the tool's own code
        return "failed", _nothing(f"{type(error).__name__}: {error}")


def _reverted(tool: Tool, args: Mapping[str, Any], result: ToolResult) -> str:
    revert = getattr(tool, "revert", None)
    if revert is None:
        return f"{tool.name} has no revert"
    try:
        revert(args, result)
    except Exception as error:  # noqa: BLE001 - the tool's own code
        return f"it could not be reverted: {type(error).__name__}: {error}"
    return "it was reverted"


def _with_error(result: ToolResult, error: str) -> ToolResult:
    return replace(result, ok=False, error=error)


def _nothing(error: str) -> ToolResult:
    return ToolResult(False, "", error, None, "", 0.0, False)


def _on_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """The result of ``work``, on a daemon thread of its own: a tool that hangs blocks nothing else, also no exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(found: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(found)  # type: ignore[arg-type]

    def call() -> None:
        found, error = None, None
        try:
            found = work()
        except Exception as raised:  # noqa: BLE001 - it is the future's
            error = raised
        except BaseException as raised:  # noqa: BLE001 - a thread can't end the program
            error = RuntimeError(f"{type(raised).__name__}: {raised}")
        try:
            loop.call_soon_threadsafe(settle, found, error)
        except RuntimeError:  # the loop was closed while the tool hung
            return

    threading.Thread(target=call, name="council-tool", daemon=True).start()
    return future
