"""A council's methods as coroutines, for any event loop. What each method does is written here only.

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
from council.api import requester as requesters
from council.api.event_stream import Events
from council.api.guard import Guard
from council.api.handle import MADE_UP_NAME, Handle
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
from council.config.human_keys import current_user
from council.core.state import ActionStage, Decision
from council.journal.entries import Asked, HistoryPage, wanted
from council.protocol.envelope import Envelope
from council.protocol.errors import CallerError, CouncilError
from council.runtime.open_escalations import OpenEscalation, opened
from council.runtime.questions import AskDecision, AskEscalations, AskHistory

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig

T = TypeVar("T")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])
Verb = Callable[Concatenate["AsyncCouncil", P], Coroutine[Any, Any, T]]


def _on_its_loop(verb: Verb[P, T]) -> Verb[P, T]:
    """Runs a method on the council's own loop, whichever loop awaits it."""

    @functools.wraps(verb)
    async def carried(self: AsyncCouncil, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._handle.run(verb(self, *args, **kwargs))

    return carried


async def decision_or_error(proposing: Coroutine[Any, Any, Decision]) -> Decision | CouncilError:
    try:
        return await proposing
    except CouncilError as error:
        return error


class AsyncCouncil:
    """A council's methods as coroutines, for use from any event loop. ``Council`` describes them.

    Await the result of ``launch``, ``connect`` and ``inline``, or use it in ``async with``, which closes the council.
    A thread creates the council, so that the loop is not blocked.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @functools.cached_property
    def _requester(self) -> dict[str, str]:
        """Who this client says it is: its own name, if it was given one, and what this process knows."""
        return requesters.of_this_process(None if MADE_UP_NAME.fullmatch(self.sender) else self.sender)

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
            "requester": requesters.changed(self._requester, details.get("requester")) or None,
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
        """Submits a proposal, or one that ``draft`` made, and waits for the decision.

        ``details`` are those of ``draft``. A decision that waits for a human has ``final`` False. With
        ``wait_for_human`` the call waits for the human's answer or its expiry, ``human_timeout_s`` seconds at most.
        Raises TooManyOpen, Refused, TokenBudgetError (it fits no seat's prompt), EnvelopeError, NoAnswer,
        CouncilDied.
        """
        check_seconds("human_timeout_s", human_timeout_s)
        refuse_unknown("propose", details, Details)
        with spans.proposing(self._handle.spans, proposal) as decided:
            if not isinstance(proposal, Envelope):
                proposal = self.draft(proposal, body, **details)
            elif body or details:
                raise CallerError("a drafted proposal is complete: give its details to draft")
            return decided(await self._handle.session.propose(proposal, wait_for_human, human_timeout_s))

    @_on_its_loop
    async def propose_many(
        self,
        proposals: Iterable[str | Envelope],
        *,
        wait_for_human: bool = False,
        **details: Unpack[Details],
    ) -> list[Decision | CouncilError]:
        """Submits many proposals at once. Returns a decision or an error for each, in order."""
        refuse_unknown("propose_many", details, Details)
        check_many(proposals)
        proposing = (self.propose(each, wait_for_human=wait_for_human, **details) for each in proposals)
        return list(await asyncio.gather(*map(decision_or_error, proposing)))

    @_on_its_loop
    async def cancel(self, proposal_id: str, reason: str = "") -> None:
        """Withdraws a proposal of this client. Raises Refused: not its own, unknown, or decided."""
        await self._handle.session.inform(proposal_id, "cancel", reason, {})

    @_on_its_loop
    async def report(
        self, decision: Decision | str, *, stage: ActionStage = "act", ok: bool, text: str = ""
    ) -> None:
        """Reports the result of an approved action of this client, once for each ``stage``, in their order.

        The decision does not change. Raises Refused: not its own, not approved, reported before, or out of order.
        """
        await self._handle.session.inform(*outcome_of(decision, stage, ok, text))

    @_on_its_loop
    async def answer(
        self, escalation_id: str, *, approve: bool, reason: str = "", human: str | None = None
    ) -> Decision:
        """Answers an escalation as ``human`` (by default this user). Returns the decision that follows.

        The answer is signed with that human's own key; the first one is the decision (rules 1.9). Raises NotEnrolled,
        which says who may answer, and Refused: unknown, not escalated, or answered by another.
        """
        if not isinstance(approve, bool):  # "no" would be an approval
            raise CallerError(f"approve is {approve!r:.80}, expected True or False")
        session = await self._handle.human(current_user() if human is None else human)
        proposal_id = escalation_id.removeprefix("esc-")
        await session.inform(proposal_id, "answer", reason, {"approve": approve})
        # Not by ``decision``, which a simultaneous close would refuse.
        decision = await self._handle.session.ask(AskDecision(proposal_id))
        assert decision is not None  # the council has accepted the answer, which is the decision
        return decision

    @_on_its_loop
    async def decision(self, proposal_id: str) -> Decision | None:
        """The decision on a proposal, or its standing with a human; None while the seats deliberate.

        Raises Refused for an unknown id, and StoreError if the journal can't keep the proposal's present state
        (rules 4.7).
        """
        return await self._handle.session.ask(AskDecision(proposal_id))

    @_on_its_loop
    async def escalations(self) -> list[OpenEscalation]:
        """The escalations that wait for a human, oldest first, with the action that is asked for and who asks."""
        return [opened(each) for each in await self._handle.session.ask(AskEscalations())]

    @_on_its_loop
    async def status(self) -> dict[str, Any]:
        """The council's status as plain data: seats and their heartbeats, open proposals, counts."""
        return await self._handle.status()

    @_on_its_loop
    async def history(self, **asked: Unpack[Asked]) -> HistoryPage:
        """A page of the journal's records, newest first unless ``newest_first=False``.

        Filters: one ``proposal`` (its id, or its first 4 or more characters), ``types`` ("ballot", "decision" …), one
        ``seat``, client or human, and the times ``since`` and ``until``. A page has up to ``limit`` records. The same
        query with the page's ``cursor`` continues, until that is None. With ``envelopes``, each record has the
        envelope that caused it. Raises CallerError, Refused for an unknown proposal, StoreError.
        """
        return await self._handle.session.ask(AskHistory(wanted(asked)))

    def events(self, after: int = 0, *, follow: bool = True) -> Events:
        if type(after) is not int:
            raise CallerError(f"after is {after!r:.80}, expected a position: a whole number")

        return Events(self._handle, after, follow=follow)

    def guard(self, **how: Unpack[Guarding]) -> Callable[[F], F]:
        """Like ``Council.guard``, but only for async functions: decorating a plain one raises CallerError."""
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
    """A council that is not created yet: await it, or use it in ``async with``."""

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
            # Creation can't be interrupted: it ends, and then the same thread closes the unused council.
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
