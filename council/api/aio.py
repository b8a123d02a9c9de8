"""A council's methods as coroutines, for any event loop: what each does is written here, and nowhere else.

from council import AsyncCouncil
async with AsyncCouncil.launch() as council:
    decision = await council.propose("Delete the staging bucket", risk="high", timeout_s=60)
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from council.agents.messaging import spans
from council.api import handle as handles
from council.api.events import Events
from council.api.guard import Guard
from council.api.handle import Handle
from council.api.keywords import (
    ClientSettings,
    Details,
    Guarding,
    Settings,
    check_many,
    check_seconds,
    new_proposal,
    outcome_of,
    refuse_unknown,
    turns_of,
)
from council.config.human_keys import me
from council.core.state import ActionStage, Decision, Escalation
from council.journal.entries import Asked, HistoryPage, wanted
from council.protocol.envelope import Envelope
from council.protocol.errors import CallerError, CouncilError
from council.runtime.questions import AskDecision, AskEscalations, AskEvents, AskHistory

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig

T = TypeVar("T")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
Verb = Callable[Concatenate["AsyncCouncil", P], Coroutine[Any, Any, T]]


def _on_its_loop(verb: Verb[P, T]) -> Verb[P, T]:
    """Has a method run on the council's own loop, whichever loop it is awaited on."""

    @functools.wraps(verb)
    async def carried(self: AsyncCouncil, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._handle.run(verb(self, *args, **kwargs))

    return carried


class AsyncCouncil:
    """A council's methods as coroutines, for use from any event loop. See ``Council`` for each.

    ``launch``, ``connect`` and ``inline`` give what can be awaited, or used in ``async with``, which closes
    the council; a thread makes it, so that the loop goes on meanwhile.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @classmethod
    def launch(
        cls,
        config: CouncilConfig | Path | str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        dashboard: bool = False,
        **settings: Unpack[Settings],
    ) -> Opening:
        return Opening(lambda: handles.launch(config, sender, key, settings, dashboard=dashboard))

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        name: str | None = None,
        *,
        config: CouncilConfig | Path | str | None = None,
        sender: str | None = None,
        key: bytes | None = None,
        **settings: Unpack[ClientSettings],
    ) -> Opening:
        """As ``Council.connect``.

        Without an address it uses the council that this user brought up here; ``ray_address`` of the settings and
        RAY_ADDRESS count as an address.
        """
        return Opening(lambda: handles.connect(address, name, config, sender, key, settings))

    @classmethod
    def inline(
        cls,
        config: CouncilConfig | Path | str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        **settings: Unpack[Settings],
    ) -> Opening:
        return Opening(lambda: handles.in_process(config, sender, key, settings))

    @property
    def name(self) -> str:
        return self._handle.config.name

    @property
    def sender(self) -> str:
        return self._handle.session.name

    @property
    def config(self) -> CouncilConfig:
        return self._handle.config

    def draft(self, summary: str, body: str = "", **details: Unpack[Details]) -> Envelope:
        refuse_unknown("draft", details, Details)
        action, timeout_s, wait_for = (details.get(name) for name in ("action", "timeout_s", "wait_for"))
        content = {
            "summary": summary,
            "body": body,
            "action": action,
            "wait_for": ("decisive" if action is None else "all") if wait_for is None else wait_for,
            "time_budget_s": self.config.time_budget_s if timeout_s is None else timeout_s,
            "supersedes": details.get("supersedes"),
            "history": turns_of(details.get("history")),
        }
        return new_proposal(
            self.sender,
            content,
            confidence=details.get("confidence", 1.0),
            risk_level=details.get("risk", "low"),
            metadata=spans.carried(self._handle.spans),
        )

    @_on_its_loop
    async def propose(
        self,
        proposal: str | Envelope,
        body: str = "",
        *,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
        **details: Unpack[Details],
    ) -> Decision:
        check_seconds("human_timeout_s", human_timeout_s)
        refuse_unknown("propose", details, Details)
        with spans.proposing(self._handle.spans, proposal) as told:
            if not isinstance(proposal, Envelope):
                proposal = self.draft(proposal, body, **details)
            elif body or details:
                raise CallerError("a drafted proposal is complete: give its details to draft")
            return told(await self._handle.session.propose(proposal, wait_for_human, human_timeout_s))

    @_on_its_loop
    async def propose_many(
        self,
        proposals: Iterable[str | Envelope],
        *,
        wait_for_human: bool = False,
        **details: Unpack[Details],
    ) -> list[Decision | CouncilError]:
        refuse_unknown("propose_many", details, Details)
        check_many(proposals)

        async def one(proposal: str | Envelope) -> Decision | CouncilError:
            try:
                return await self.propose(proposal, wait_for_human=wait_for_human, **details)
            except CouncilError as error:
                return error

        return list(await asyncio.gather(*(one(proposal) for proposal in proposals)))

    @_on_its_loop
    async def cancel(self, proposal_id: str, reason: str = "") -> None:
        await self._handle.session.inform(proposal_id, "cancel", reason, {})

    @_on_its_loop
    async def report(
        self, decision: Decision | str, *, stage: ActionStage = "act", ok: bool, text: str = ""
    ) -> None:
        await self._handle.session.inform(*outcome_of(decision, stage, ok, text))

    @_on_its_loop
    async def answer(
        self, escalation_id: str, *, approve: bool, reason: str = "", human: str | None = None
    ) -> Decision:
        if not isinstance(approve, bool):  # "no" would be an approval
            raise CallerError(f"approve is {approve!r:.80}, expected True or False")
        session = await self._handle.human(me() if human is None else human)
        proposal_id = escalation_id.removeprefix("esc-")
        await session.inform(proposal_id, "answer", reason, {"approve": approve})
        # Not by ``decision``, which a close that began meanwhile would refuse.
        decision = await self._handle.session.ask(AskDecision(proposal_id))
        assert decision is not None  # the council has taken the answer, which is the decision
        return decision

    @_on_its_loop
    async def decision(self, proposal_id: str) -> Decision | None:
        return await self._handle.session.ask(AskDecision(proposal_id))

    @_on_its_loop
    async def escalations(self) -> list[Escalation]:
        return await self._handle.session.ask(AskEscalations())

    @_on_its_loop
    async def status(self) -> dict[str, Any]:
        return await self._handle.status()

    @_on_its_loop
    async def history(self, **asked: Unpack[Asked]) -> HistoryPage:
        return await self._handle.session.ask(AskHistory(wanted(asked)))

    def events(self, after: int = 0, *, follow: bool = True) -> Events:
        if type(after) is not int:
            raise CallerError(f"after is {after!r:.80}, expected a position: a whole number")

        async def page(after: int, limit: int, wait_s: float) -> list[dict[str, Any]]:
            return await self._handle.session.ask(AskEvents(after, limit, wait_s), wait_s)

        return Events(page, self._handle.wait, self._handle.run, after, follow=follow)

    def guard(self, **how: Unpack[Guarding]) -> Callable[[F], F]:
        """As ``Council.guard``, for async functions alone: a plain one raises CallerError when decorated."""
        return Guard(how, self)

    async def close(self) -> None:
        await asyncio.to_thread(self._handle.close)

    async def end(self) -> None:
        await asyncio.to_thread(self._handle.end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncCouncil {self._handle}>"


class Opening:
    """A council that is still to be made: await it, or use it in ``async with``."""

    def __init__(self, make: Callable[[], Handle]) -> None:
        self._make = make
        self._made: AsyncCouncil | None = None

    def __await__(self) -> Generator[Any, None, AsyncCouncil]:
        return self._open().__await__()

    async def _open(self) -> AsyncCouncil:
        maker = ThreadPoolExecutor(1, "council-opening")
        making = maker.submit(self._make)
        try:
            return AsyncCouncil(await asyncio.wrap_future(making))
        except asyncio.CancelledError:
            # What is begun comes to its end; the same thread then closes the council that nobody will have.
            maker.submit(lambda: making.result().close())
            raise
        finally:
            maker.shutdown(wait=False)

    async def __aenter__(self) -> AsyncCouncil:
        self._made = await self
        return self._made

    async def __aexit__(self, *_: object) -> None:
        assert self._made is not None
        await self._made.close()
