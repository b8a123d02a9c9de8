"""A council's methods as coroutines, for any event loop.

The methods are implemented here; those of ``client`` call them and block.

from council import AsyncCouncil
async with AsyncCouncil.connect() as council:
    decision = await council.propose("Delete the staging bucket", risk="high", timeout_s=60)
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, Unpack

from council.action.tool import Tool
from council.agents.messaging import spans
from council.agents.mind import Action
from council.api import acting
from council.api import handle as handles
from council.api import requester as requesters
from council.api.acting import RUN_S, TTL_S, ActionResult, tool
from council.api.event_stream import Events
from council.api.guard import guard_async
from council.api.handle import MADE_UP_NAME, Handle
from council.api.keywords import (
    PLAIN,
    ClientSettings,
    Details,
    History,
    Settings,
    action_of,
    check_many,
    check_seconds,
    checked,
    checked_id,
    new_proposal,
    outcome_of,
    spelled_out,
    turns_of,
)
from council.config.human_keys import current_user
from council.core.state import ActionStage, Decision, RiskLevel, escalated_by
from council.journal.entries import LIMIT, Asked, HistoryPage, wanted
from council.kinds.text import line
from council.protocol.envelope import SUMMARY_CHARS_MAX, Envelope, Requester
from council.protocol.errors import CallerError, CouncilError
from council.runtime.open_escalations import OpenEscalation, opened
from council.runtime.questions import AskDecision, AskEscalations, AskHistory, AskTokens
from council.runtime.token_standing import TokenStanding

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig

T = TypeVar("T")
P = ParamSpec("P")
Verb = Callable[Concatenate["AsyncCouncil", P], Coroutine[Any, Any, T]]


def _on_its_loop(verb: Verb[P, T]) -> Verb[P, T]:
    """Runs a method on the council's own loop, whichever loop awaits it."""
    verb = checked(verb)

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

    Await the result of ``connect``, ``inline`` and ``launch``, or use it in ``async with``, which closes the council.
    A thread creates the council, so that the loop is not blocked.
    """

    def __init__(self, handle: Handle, place: tuple[int, int] | None = None) -> None:
        """``place``: its number in a pool, and the size of the pool."""
        self._handle = handle
        self._place = place

    @functools.cached_property
    def _requester(self) -> dict[str, str]:
        """The default requester: this client's name, if it was given one, and what this process can find out."""
        return requesters.of_this_process(None if MADE_UP_NAME.fullmatch(self.sender) else self.sender)

    @classmethod
    @spelled_out
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
    @spelled_out
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
    @spelled_out
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

    @checked
    def draft(
        self,
        summary: str,
        body: str = "",
        *,
        risk: RiskLevel = "low",
        confidence: float = 1.0,
        action: Action | Mapping[str, Any] | None = None,
        wait_for: Literal["decisive", "all"] | None = None,
        timeout_s: float | None = None,
        supersedes: str | None = None,
        history: History | None = None,
        requester: Requester | Mapping[str, str | None] | None = None,
        key: str | None = None,
    ) -> Envelope:
        """Makes a PROPOSAL envelope and does not submit it. Submitting it twice is a retry, never a second proposal.

        ``action`` is an ``Action(tool, args)``, or the mapping ``{"tool": str, "args": {...}}``. ``timeout_s`` is the
        time budget in seconds. A proposal with an action waits for every seat by default (rules 1.5). ``history`` has
        the turns that led to the proposal, oldest first: pairs such as ``("user", "…")`` or ``("tool", "…")``. Each
        seat's model is shown the relevant part of it. ``requester`` says who asks: a ``Requester``, or a mapping with
        those of its fields that are not the default, such as ``{"agent": "deploy-bot"}``. By default it is this
        client's name or program, the user, the host, the working folder and its git repository. ``key`` is the
        caller's own name for the proposal. A client that submits it again under the same ``sender`` and key gets the
        same decision, also after a restart. Other content under a known key raises Refused (rules 1.12). Raises
        EnvelopeError or CallerError, which names the field.
        """
        if key is not None and MADE_UP_NAME.fullmatch(self.sender):
            raise CallerError(
                f"key is {key!r:.80}, but this client has a made-up name, which no later one has: connect with "
                "sender= and its key="
            )
        content = {
            "summary": summary,
            "body": body,
            "action": action_of(action),
            "wait_for": ("decisive" if action is None else "all") if wait_for is None else wait_for,
            "time_budget_s": self.config.time_budget_s if timeout_s is None else timeout_s,
            "supersedes": supersedes,
            "history": turns_of(history),
            "requester": requesters.changed(self._requester, requester) or None,
            "key": key,
        }
        return new_proposal(
            self.sender,
            content,
            self._place,
            confidence=confidence,
            risk_level=risk,
            metadata=spans.carried(self._handle.spans),
        )

    @_on_its_loop
    async def propose(
        self,
        proposal: str | Envelope,
        body: str = "",
        *,
        risk: RiskLevel = "low",
        confidence: float = 1.0,
        action: Action | Mapping[str, Any] | None = None,
        wait_for: Literal["decisive", "all"] | None = None,
        timeout_s: float | None = None,
        supersedes: str | None = None,
        history: History | None = None,
        requester: Requester | Mapping[str, str | None] | None = None,
        key: str | None = None,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
    ) -> Decision:
        """Submits a proposal, or one that ``draft`` made, and waits for the decision.

        The keywords up to ``key`` are those of ``draft``; a drafted proposal takes none of them. A decision
        that waits for a human has ``final`` False. With ``wait_for_human`` the call waits for the human's answer or
        its expiry, ``human_timeout_s`` seconds at most. Raises TooManyOpen, Refused, TokenBudgetError (it fits no
        seat's prompt), EnvelopeError, NoAnswer, CouncilDied.
        """
        check_seconds("human_timeout_s", human_timeout_s)
        details: Details = {
            "risk": risk,
            "confidence": confidence,
            "action": action,
            "wait_for": wait_for,
            "timeout_s": timeout_s,
            "supersedes": supersedes,
            "history": history,
            "requester": requester,
        }
        with spans.proposing(self._handle.spans, proposal) as decided:
            if not isinstance(proposal, Envelope):
                proposal = self.draft(proposal, body, key=key, **details)
            elif body or details != PLAIN or key is not None:
                raise CallerError("a drafted proposal is complete: give its details to draft")
            handle = self._handle
            found = await handle.session.propose(proposal, wait_for_human, human_timeout_s, handle.on_waiting)
            return decided(handle.shown(found))

    @_on_its_loop
    async def propose_many(
        self,
        proposals: Iterable[str | Envelope],
        *,
        risk: RiskLevel = "low",
        confidence: float = 1.0,
        action: Action | Mapping[str, Any] | None = None,
        wait_for: Literal["decisive", "all"] | None = None,
        timeout_s: float | None = None,
        supersedes: str | None = None,
        history: History | None = None,
        requester: Requester | Mapping[str, str | None] | None = None,
        wait_for_human: bool = False,
    ) -> list[Decision | CouncilError]:
        """Submits many proposals at once. Returns a decision or an error for each, in order.

        The keywords up to ``requester`` are those of ``draft``, the same for each proposal; to give each its own,
        draft them one by one. With ``wait_for_human`` the call waits until a human has answered each that needs one.
        """
        details: Details = {
            "risk": risk,
            "confidence": confidence,
            "action": action,
            "wait_for": wait_for,
            "timeout_s": timeout_s,
            "supersedes": supersedes,
            "history": history,
            "requester": requester,
        }
        check_many(proposals)
        proposing = (self.propose(each, wait_for_human=wait_for_human, **details) for each in proposals)
        return list(await asyncio.gather(*map(decision_or_error, proposing)))

    @_on_its_loop
    async def act(
        self,
        tool: str,
        args: Mapping[str, Any],
        *,
        summary: str = "",
        body: str = "",
        risk: RiskLevel = "low",
        confidence: float = 1.0,
        timeout_s: float | None = None,
        history: History | None = None,
        requester: Requester | Mapping[str, str | None] | None = None,
        key: str | None = None,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
        run_timeout_s: float = RUN_S,
        ttl_s: float = TTL_S,
    ) -> ActionResult:
        """Proposes a call of a tool, and runs it once if it is approved. Nothing else is run, and nothing twice.

        ``args`` are the tool's arguments by name, as JSON: the approval covers exactly these. ``summary`` is by
        default the call itself; it and the keywords up to ``human_timeout_s`` are as in ``propose``. The run has
        ``run_timeout_s`` seconds, and must begin within ``ttl_s`` seconds of the approval. With ``key``, a call
        under the same ``sender`` and key gets the result of the first run. Raises NotApproved with the decision,
        also while it waits for a human, unless ``wait_for_human``; NoAnswer if the council's own executor does not
        report in time; CallerError for an unknown tool or wrong
        arguments, before anything is proposed; Refused if the token was revoked, has expired or does not fit;
        OutcomeUnknown if it may have run. A failure of the tool is a result, which is false in a condition.
        """
        check_seconds("human_timeout_s", human_timeout_s)
        shown = json.dumps(args, ensure_ascii=False, default=repr) if isinstance(args, Mapping) else ""
        return await acting.act(
            self,
            self._handle.tools,
            tool,
            args,
            {
                "summary": line(summary or f"Run {tool} {shown}", SUMMARY_CHARS_MAX),
                "body": body,
                "risk": risk,
                "confidence": confidence,
                "timeout_s": timeout_s,
                "history": history,
                "requester": requester,
                "key": key,
            },
            {"wait_for_human": wait_for_human, "human_timeout_s": human_timeout_s},
            {"ttl_s": float(ttl_s), "timeout_s": float(run_timeout_s)},
        )

    def register(self, tool: Tool) -> None:
        """Adds a tool that ``act`` may run in this process (``council.action.tool``); ``tool`` adds a function.

        Raises CallerError if there is one of that name.
        """
        self._handle.tools.add(tool)

    @_on_its_loop
    async def tokens(self, proposal_id: str | None = None) -> list[TokenStanding]:
        """Returns the tokens of approved actions, oldest first: what may be run, has run, or is revoked.

        With ``proposal_id``, only the one of that proposal. Raises StoreError.
        """
        return await self._handle.session.ask(AskTokens(proposal_id))

    @_on_its_loop
    async def revoke(self, token_id: str, reason: str = "", *, human: str | None = None) -> None:
        """Revokes the token of an approved action of this client; or, as the enrolled ``human``, of any client.

        A use under way goes on. Raises Refused (not its own, or unknown) and NotEnrolled, which says who is.
        """
        session = self._handle.session if human is None else await self._handle.human(human)
        await session.inform(checked_id(token_id).removeprefix("token_"), "revoke", reason, {})

    @_on_its_loop
    async def cancel(self, proposal_id: str, reason: str = "", *, human: str | None = None) -> None:
        """Withdraws an open proposal of this client; or, as the enrolled ``human``, of any client.

        Raises Refused (not its own, unknown, or decided) and NotEnrolled, which says who is.
        """
        session = self._handle.session if human is None else await self._handle.human(human)
        await session.inform(checked_id(proposal_id), "cancel", reason, {})

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

        If the outcome of an action is unknown, ``approve`` says that it ran; its decision stands and is returned.

        The answer is signed with that human's own key; the first one is the decision (rules 1.9). Raises NotEnrolled,
        which says who may answer, and Refused: unknown, not escalated, or answered by another.
        """
        if not isinstance(approve, bool):  # "no" would be an approval
            raise CallerError(f"approve is {approve!r:.80}, expected True or False")
        session = await self._handle.human(current_user() if human is None else human)
        proposal_id, use = escalated_by(checked_id(escalation_id))
        about = {} if use is None else {"use": use}
        await session.inform(proposal_id, "answer", reason, {"approve": approve, **about})
        # Not by ``decision``, which a simultaneous close would refuse.
        decision = await self._handle.session.ask(AskDecision(proposal_id))
        assert decision is not None  # the council has accepted the answer, which is the decision
        return decision

    @_on_its_loop
    async def decision(self, proposal_id: str) -> Decision | None:
        """Returns the decision on a proposal, or its standing with a human; None while the seats deliberate.

        Raises Refused for an unknown id, and StoreError if the journal can't keep the proposal's present state
        (rules 4.7).
        """
        found = await self._handle.session.ask(AskDecision(checked_id(proposal_id)))
        return None if found is None else self._handle.shown(found)

    @_on_its_loop
    async def escalations(self) -> list[OpenEscalation]:
        """Returns the escalations that wait for a human, oldest first, each with its action and requester."""
        return [opened(each) for each in await self._handle.session.ask(AskEscalations())]

    @_on_its_loop
    async def status(self) -> dict[str, Any]:
        """Returns the council's status as plain data: seats and their heartbeats, open proposals, counts."""
        return await self._handle.status()

    @_on_its_loop
    async def history(
        self,
        *,
        proposal: str | None = None,
        types: Collection[str] | None = None,
        seat: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        newest_first: bool = True,
        limit: int = LIMIT,
        cursor: int | None = None,
        envelopes: bool = False,
    ) -> HistoryPage:
        """Returns a page of the journal's records, newest first unless ``newest_first=False``.

        Filters: one ``proposal`` (its id, or its first 4 or more characters), ``types`` ("ballot", "decision" …), one
        ``seat``, client or human, and the times ``since`` and ``until``. A page has up to ``limit`` records. The same
        query with the page's ``cursor`` continues, until that is None. With ``envelopes``, each record has the
        envelope that caused it. Raises CallerError, Refused for an unknown proposal, StoreError.
        """
        asked: Asked = {
            "proposal": proposal,
            "types": types,
            "seat": seat,
            "since": since,
            "until": until,
            "newest_first": newest_first,
            "limit": limit,
            "cursor": cursor,
            "envelopes": envelopes,
        }
        return await self._handle.session.ask(AskHistory(wanted(asked)))

    @_on_its_loop
    async def episode(self, proposal_id: str) -> list[dict[str, Any]]:
        """Returns the proposal's OMEN episode: its packets in order, each as JSON data.

        The journal's records give it: what was proposed, ballots, decision, escalation, token, uses and results.
        ``proposal_id`` may be its first 4 or more characters. Raises Refused if the proposal is unknown, or its first
        record is not kept any more, CallerError, StoreError.
        """
        from council.journal import episodes  # its models cost each start some milliseconds
        from council.protocol.omen import to_dict

        queries = episodes.episode(proposal_id)
        try:
            asked = next(queries)
            while True:
                asked = queries.send(await self._handle.session.ask(AskHistory(wanted(asked))))
        except StopIteration as done:
            return [to_dict(packet) for packet in done.value]

    def events(self, after: int = 0, *, follow: bool = True) -> Events:
        if type(after) is not int:
            raise CallerError(f"after is {after!r:.80}, expected the cursor of an event: a whole number")
        return Events(self._handle, after, follow=follow)

    guard = guard_async
    tool = tool

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
