"""The council from Python: launch, connect, propose, watch, answer. Knows nothing of how it decides.

    from council import Council
    with Council.launch() as council:
        decision = council.propose("Delete the staging bucket", risk="high", timeout_s=60)
        print(decision.outcome, decision.tally, decision.dissent)

Every method blocks; ``council.aio``, an AsyncCouncil, has the same ones as coroutines.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack

from council.agents.messaging import spans
from council.api.aio import AsyncCouncil
from council.api.events import Events
from council.api.keywords import (
    ClientSettings,
    Details,
    Guarding,
    History,
    Settings,
    check_many,
    check_seconds,
    configured,
    new_proposal,
    outcome_of,
    refuse_unknown,
    turns_of,
)
from council.config.human_keys import enrolled_key, me
from council.core.state import ActionStage, Decision, Escalation, RiskLevel
from council.journal import entries
from council.journal.entries import Asked, HistoryPage
from council.protocol.envelope import Envelope
from council.protocol.errors import CallerError, CouncilError
from council.runtime import messages
from council.runtime.blocking_session import shortcut_of
from council.runtime.loop_thread import Background
from council.runtime.session import Port, Session
from council.telemetry.tracing import Traces, end, traces_if, traces_of

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Council:
    """A running council. Made by ``launch``, ``inline`` or ``connect``; close it, or use it in ``with``."""

    def __init__(
        self,
        port: Port,
        background: Background,
        session: Session,
        config: CouncilConfig,
        *,
        owned: bool,
        release: Callable[[], None] | None = None,
        traces: Traces | None = None,
    ) -> None:
        self._traces = traces
        self._spans = None if traces is None else traces.spans(session.council_id)
        self._port = port
        self._background = background
        self._session = session
        self._config = config
        self._owned = owned
        self._release = release
        self._humans: dict[tuple[str, str], Session] = {}  # by name, and by the council that the key is for
        self._closed = False
        self._shortcut = shortcut_of(port, session, lambda: background.wait(session.beside()))
        self.aio = AsyncCouncil(self)

    # How one comes by a council

    @classmethod
    def launch(
        cls,
        config: CouncilConfig | Path | str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        dashboard: bool = False,
        **settings: Unpack[Settings],
    ) -> Council:
        """A council on Ray, which ends with this object. ``settings`` are those of ``council.toml``.

        Without ``ray_address`` it uses the Ray that this process is connected to, else starts a local one.
        With a store, the key of ``sender`` is kept in the state folder for the next run, unless ``key`` gives it.
        Raises ConfigError, MindError, NameTaken, Unreachable, VersionMismatch, OperatorError.
        """
        from council.cluster import port as ray_side  # Ray is imported when it is used
        from council.runtime import journals

        found = configured(config, settings)
        key = journals.sender_key(found, sender) if key is None else key
        port = ray_side.launch(found, dashboard=dashboard)
        return cls._open(port, found, sender, owned=True, release=port.release, key=key)

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
    ) -> Council:
        """A council that runs already, by its name and the address of its Ray; it goes on after ``close``.

        Without an address it uses the council that this user brought up here; ``ray_address`` of the settings and
        RAY_ADDRESS count as an address. If there is none, it looks in the Ray that this process is connected to.
        ``address="auto"`` joins whichever Ray runs on this machine, anybody's, and refuses one that demands no token
        unless ``ray_insecure=True``. ``sender`` and ``key`` (32 bytes) let a client be known by the same name again.
        Where the council goes away and comes up again, the next call connects anew, within its own time. Raises
        Unreachable, CouncilDied (it has crashed), VersionMismatch, NameTaken, ConfigError.
        """
        refuse_unknown("connect", settings, ClientSettings)
        from council.cluster import port as ray_side

        port = ray_side.connect(configured(config, {**settings, "ray_address": address, "name": name}))
        return cls._open(port, port.config, sender, owned=False, release=port.release, key=key)

    @classmethod
    def inline(
        cls,
        config: CouncilConfig | Path | str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        **settings: Unpack[Settings],
    ) -> Council:
        """A council in this process, without Ray, for scripts, notebooks and tests; the rules are the same.

        Asynchronous minds share one event loop here, on a thread of the council's own. ``sender`` and ``key`` are
        as in ``launch``. Raises ConfigError, MindError, NameTaken, OperatorError.
        """
        from council.api import inline
        from council.runtime import journals

        found = configured(config, settings)
        if key is None and found.store is not None:  # else nothing is kept
            key = journals.sender_key(found, sender)
        traces = traces_of(found, "inline")
        background = Background(f"council-{found.name}")
        try:
            port = background.wait(inline.start(found, traces))
        except BaseException:
            background.stop()
            end(traces)
            raise
        return cls._open(port, found, sender, owned=True, background=background, key=key, traces=traces)

    @classmethod
    def _open(
        cls,
        port: Port,
        config: CouncilConfig,
        sender: str | None,
        *,
        owned: bool,
        background: Background | None = None,
        release: Callable[[], None] | None = None,
        key: bytes | None = None,
        traces: Traces | None = None,
    ) -> Council:
        background = background or Background(f"council-{config.name}-client")
        name = sender or f"client-{secrets.token_hex(8)}"
        key = secrets.token_bytes(32) if key is None else key
        session = Session(port, name, "proposer", key, config.call_timeout_s)
        try:
            background.wait(session.open())
        except BaseException:
            with contextlib.suppress(Exception):  # what went wrong first is what is told
                if owned:
                    background.wait(port.close())
            background.stop()
            end(traces)
            if release is not None:
                release()
            raise
        traces = traces or traces_if(config, session.name)
        return cls(port, background, session, config, owned=owned, release=release, traces=traces)

    # What one does with it

    @property
    def name(self) -> str:
        """The council's name."""
        return self._config.name

    @property
    def sender(self) -> str:
        """The name that this client proposes under."""
        return self._session.name

    @property
    def config(self) -> CouncilConfig:
        """The configuration it was launched or connected with."""
        return self._config

    def draft(
        self,
        summary: str,
        body: str = "",
        *,
        risk: RiskLevel = "low",
        confidence: float = 1.0,
        action: Mapping[str, Any] | None = None,
        wait_for: Literal["decisive", "all"] | None = None,
        timeout_s: float | None = None,
        supersedes: str | None = None,
        history: History | None = None,
    ) -> Envelope:
        """A PROPOSAL envelope, not yet submitted: submitting it again is a retry, never a second proposal.

        ``action`` is ``{"tool": str, "args": {...}}``; ``timeout_s`` the time budget in seconds. Proposals
        with an action wait for every seat unless told otherwise (rules 1.5). ``history`` is what was said and
        done before, oldest first: pairs such as ``("user", "…")`` or ``("tool", "…")``, of which each seat's
        model is shown what bears on the proposal. Raises EnvelopeError or CallerError, which names the field.
        """
        content = {
            "summary": summary,
            "body": body,
            "action": action,
            "wait_for": ("decisive" if action is None else "all") if wait_for is None else wait_for,
            "time_budget_s": self._config.time_budget_s if timeout_s is None else timeout_s,
            "supersedes": supersedes,
            "history": turns_of(history),
        }
        metadata = spans.carried(self._spans)
        return new_proposal(self.sender, content, confidence=confidence, risk_level=risk, metadata=metadata)

    def propose(
        self,
        proposal: str | Envelope,
        body: str = "",
        *,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
        **details: Unpack[Details],
    ) -> Decision:
        """Submits a proposal, or one that ``draft`` made, and waits for the decision.

        ``details`` are those of ``draft``. A decision that waits for a human has ``final`` False, unless
        ``wait_for_human``, which waits for the answer or its expiry, ``human_timeout_s`` at most. Raises
        TooManyOpen, Refused, TokenBudgetError (it fits no seat's prompt), EnvelopeError, NoAnswer, CouncilDied.
        """
        check_seconds("human_timeout_s", human_timeout_s)
        with spans.proposing(self._spans, proposal) as told:
            envelope = self._drafted(proposal, body, details)
            council = self._session.council_id
            if self._shortcut is not None and not wait_for_human:
                self._background.refuse_unless_running()
                decision = self._shortcut.propose(envelope)
                if decision is not None:
                    return told(decision)
                if self._closed:
                    raise self._session.closed([envelope.msg_id])
            return told(self._wait(self._session.propose(envelope, wait_for_human, human_timeout_s, council)))

    async def _propose(
        self,
        proposal: str | Envelope,
        body: str,
        wait_for_human: bool,
        human_timeout_s: float | None,
        details: Details,
        around: spans.Context | None,
    ) -> Decision:
        check_seconds("human_timeout_s", human_timeout_s)
        with spans.proposing(self._spans, proposal, around) as told:
            envelope = self._drafted(proposal, body, details)
            return told(await self._session.propose(envelope, wait_for_human, human_timeout_s))

    def _drafted(self, proposal: str | Envelope, body: str, details: Details) -> Envelope:
        self._refuse_if_closed()
        refuse_unknown("propose", details, Details)
        if not isinstance(proposal, Envelope):
            return self.draft(proposal, body, **details)
        if body or details:
            raise CallerError("a drafted proposal is complete: give its details to draft")
        return proposal

    def propose_many(
        self,
        proposals: Iterable[str | Envelope],
        *,
        wait_for_human: bool = False,
        **details: Unpack[Details],
    ) -> list[Decision | CouncilError]:
        """Submits many proposals at once; a decision for each, in order, or the error it came to."""
        return self._wait(self._propose_many(proposals, wait_for_human, details, spans.here(self._spans)))

    async def _propose_many(
        self,
        proposals: Iterable[str | Envelope],
        wait_for_human: bool,
        details: Details,
        around: spans.Context | None,
    ) -> list[Decision | CouncilError]:
        refuse_unknown("propose_many", details, Details)
        check_many(proposals)

        async def one(proposal: str | Envelope) -> Decision | CouncilError:
            try:
                return await self._propose(proposal, "", wait_for_human, None, details, around)
            except CouncilError as error:
                return error

        return list(await asyncio.gather(*(one(proposal) for proposal in proposals)))

    def cancel(self, proposal_id: str, reason: str = "") -> None:
        """Takes back a proposal of this client's. Raises Refused: not its own, unknown, or decided."""
        self._wait(self._cancel(proposal_id, reason))

    async def _cancel(self, proposal_id: str, reason: str) -> None:
        await self._session.inform(proposal_id, "cancel", reason, {})

    def report(
        self, decision: Decision | str, *, stage: ActionStage = "act", ok: bool, text: str = ""
    ) -> None:
        """Tells what became of an approved action of this client's, once for each ``stage``, in their order.

        The decision stays as it is. Raises Refused: not its own, not approved, told before, or out of order.
        """
        self._wait(self._report(decision, stage, ok, text))

    async def _report(self, decision: Decision | str, stage: ActionStage, ok: bool, text: str) -> None:
        await self._session.inform(*outcome_of(decision, stage, ok, text))

    def answer(
        self, escalation_id: str, *, approve: bool, reason: str = "", human: str | None = None
    ) -> Decision:
        """The decision that an answer to an escalation makes, given as ``human`` (by default this user).

        It is signed with that human's own key, and the first one is the decision (rules 1.9). Raises
        NotEnrolled, which says who may answer, and Refused: unknown, not escalated, or answered by another.
        """
        return self._wait(self._answer(escalation_id, approve, reason, human))

    async def _answer(self, escalation_id: str, approve: bool, reason: str, human: str | None) -> Decision:
        if not isinstance(approve, bool):  # "no" would be an approval
            raise CallerError(f"approve is {approve!r:.80}, expected True or False")
        session = await self._as_human(me() if human is None else human)
        proposal_id = escalation_id.removeprefix("esc-")
        await session.inform(proposal_id, "answer", reason, {"approve": approve})
        decision = await self._decision(proposal_id)
        assert decision is not None  # the council has taken the answer, which is the decision
        return decision

    async def _as_human(self, name: str) -> Session:
        status = await self._status()
        council_id = status["council_id"]  # another has another key of this human
        if (known := self._humans.get((name, council_id))) is not None:
            return known
        key = enrolled_key(name, self._config, council_id, status["humans"])
        session = Session(self._port, name, "human", key, self._config.call_timeout_s, council_id)
        await session.open()
        kept = self._humans.setdefault((name, council_id), session)
        if kept is not session:  # two answers of this human were given at once
            await session.close()
        return kept

    def decision(self, proposal_id: str) -> Decision | None:
        """The decision on a proposal or how it stands with a human; None while the seats deliberate.

        Raises Refused for an id that the council was never given, and StoreError while its journal can't keep what
        has become of it (rules 4.7).
        """
        return self._wait(self._decision(proposal_id))

    async def _decision(self, proposal_id: str) -> Decision | None:
        packed = await self._session.within(self._port.decision(proposal_id), "decision")
        message = None if packed is None else messages.from_bytes(packed)
        return message.decision if isinstance(message, messages.Told) else None

    def escalations(self) -> list[Escalation]:
        """What waits for a human, oldest first."""
        return self._wait(self._escalations())

    async def _escalations(self) -> list[Escalation]:
        return messages.escalations_from_bytes(
            await self._session.within(self._port.escalations(), "escalations")
        )

    def status(self) -> dict[str, Any]:
        """The council at a glance, as plain data: seats and their heartbeats, what is open, counts."""
        return self._wait(self._status())

    async def _status(self) -> dict[str, Any]:
        return {**await self._session.within(self._port.status(), "status"), "name": self._config.name}

    def history(self, **asked: Unpack[Asked]) -> HistoryPage:
        """A page of the journal's records, the newest first unless ``newest_first=False``.

        All on one ``proposal`` (its id, or the first 4 or more characters of it), of some ``types`` ("ballot",
        "decision" …), of one ``seat``, client or human, ``since`` a time and ``until`` another. Up to ``limit``
        of them; the same question with the page's ``cursor`` goes on, until that is None. With ``envelopes``,
        each with the one that brought it. Raises CallerError, Refused for an unknown proposal, StoreError.
        """
        return self._wait(self._history(asked))

    async def _history(self, asked: Asked) -> HistoryPage:
        packed = entries.to_bytes(entries.wanted(asked))
        return entries.page_from_bytes(await self._session.within(self._port.history(packed), "history"))

    def events(self, after: int = 0, *, follow: bool = True) -> Events:
        """Events from position ``after`` on, for ``for`` and ``async for``; with ``follow``, without end.

        Raises PositionLost, while iterating, where events after ``after`` are no longer kept.
        """
        if type(after) is not int:
            raise CallerError(f"after is {after!r:.80}, expected a position: a whole number")
        return Events(self._port.events, self._wait, self.aio._run, after, follow=follow)

    def guard(self, **how: Unpack[Guarding]) -> Callable[[F], F]:
        """Puts the council in front of a function: a call of it runs only once it is approved.

        ``describe`` makes the summary from the arguments: a format string (``"Delete {bucket}"``) or a
        function. The arguments are shown to the seats and in the events, whole, but for those that ``hide``
        names or that are pydantic's secrets, shown as ``<hidden>``. Raises NotApproved with the decision
        where it is not approved, also while it waits for a human, unless ``wait_for_human``; and CallerError,
        unproposed, for an argument that can't be shown, as one whose repr is an address and no ``describe``
        stands for. What became of the call is reported. ``verify(result, *args)`` says after it whether all is
        as wanted; where that gives nothing true or raises, or the call itself raises, ``revert(*args)`` runs,
        and the caller gets NotVerified, or what the call raised.
        """
        from council.api.guard import Guard

        return Guard(self, how)

    # Its end

    def close(self) -> None:
        """Ends a council that was launched here; only leaves one that was not.

        What is open goes on when a council of this name and store is launched again; without a journal on disk
        it ends undecided.
        """
        if self._closed:
            return
        self._background.refuse_own_thread()
        self._closed = True
        try:
            self._background.wait(self._close())
        finally:
            self._background.stop()
            end(self._traces)
            if self._release is not None:
                self._release()

    def end(self) -> None:
        """Ends the council itself, also one that was only connected to; see ``close``."""
        if not self._closed:
            self._background.refuse_own_thread()
        self._owned = True
        self.close()

    async def _close(self) -> None:
        for human in self._humans.values():
            await human.close()
        await self._session.close()
        if self._owned:
            await self._port.close()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine of the council's own loop, for a caller on a thread."""
        if self._closed:
            coroutine.close()
            self._refuse_if_closed()
        return self._background.wait(coroutine)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise CallerError("this council was closed; launch or connect anew")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> AsyncCouncil:
        return self.aio

    async def __aexit__(self, *_: object) -> None:
        await self.aio.close()

    def __repr__(self) -> str:
        return f"<Council {self.name} as {self.sender}{' (closed)' if self._closed else ''}>"
