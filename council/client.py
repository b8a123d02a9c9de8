"""The council from Python: launch, connect, propose, watch, answer. Knows nothing of how it decides.

    from council import Council
    with Council.launch() as council:
        decision = council.propose("Delete the staging bucket", risk="high", timeout_s=60)
        print(decision.outcome, decision.tally, decision.dissent)

Every method blocks; ``council.aio`` has the same ones as coroutines.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from council.agents.ids import new_id
from council.background import Background
from council.core.state import Decision, Escalation, RiskLevel
from council.following import Events
from council.humans import human_key, me
from council.protocol.envelope import Envelope
from council.protocol.errors import CallerError, ConfigError, CouncilError
from council.runtime import messages
from council.runtime.session import Port, Session

if TYPE_CHECKING:
    from council.settings import CouncilConfig

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
    ) -> None:
        self._port = port
        self._background = background
        self._session = session
        self._config = config
        self._owned = owned
        self._release = release
        self._humans: dict[str, Session] = {}
        self._closed = False
        self.aio = AsyncCouncil(self)

    # How one comes by a council

    @classmethod
    def launch(
        cls,
        config: CouncilConfig | Path | str | None = None,
        *,
        sender: str | None = None,
        dashboard: bool = False,
        **settings: Any,
    ) -> Council:
        """A council on Ray, which ends with this object. ``settings`` are those of ``council.toml``.

        Without ``ray_address`` it uses the Ray that this process is connected to, else starts a local one.
        Raises ConfigError, MindError, NameTaken, Unreachable, VersionMismatch.
        """
        from council.runtime import ray_side  # Ray is imported when it is used

        found = _config(config, settings)
        port = ray_side.launch(found, dashboard=dashboard)
        return cls._open(port, found, sender, owned=True, release=port.release)

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        name: str | None = None,
        *,
        config: CouncilConfig | Path | str | None = None,
        sender: str | None = None,
        key: bytes | None = None,
        **settings: Any,
    ) -> Council:
        """A council that runs already, by its name and the address of its Ray; it goes on after ``close``.

        Without an address, one that ``council up`` brought up under that name is found by itself.
        ``sender`` and ``key`` (32 bytes) let a client be known by the same name again. Raises Unreachable,
        VersionMismatch, NameTaken, ConfigError.
        """
        from council.runtime import known

        found = known.located(_config(config, {**settings, "ray_address": address, "name": name}))
        from council.runtime import ray_side  # after the token is set that Ray reads when it is imported

        port = ray_side.connect(found)
        return cls._open(port, found, sender, owned=False, release=port.release, key=key)

    @classmethod
    def inline(
        cls, config: CouncilConfig | Path | str | None = None, *, sender: str | None = None, **settings: Any
    ) -> Council:
        """A council in this process, without Ray, for scripts, notebooks and tests; the rules are the same.

        Asynchronous minds share one event loop here, on a thread of the council's own. Raises ConfigError,
        MindError.
        """
        from council.runtime import inline

        found = _config(config, settings)
        background = Background(f"council-{found.name}")
        try:
            port = background.wait(inline.start(found))
        except BaseException:
            background.stop()
            raise
        return cls._open(port, found, sender, owned=True, background=background)

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
    ) -> Council:
        background = background or Background(f"council-{config.name}-client")

        async def join() -> Session:
            name = sender or f"client-{secrets.token_hex(4)}"
            session = Session(port, name, "proposer", key or secrets.token_bytes(32), config.call_timeout_s)
            await session.open()
            return session

        try:
            session = background.wait(join())
        except BaseException:
            if owned:
                background.wait(port.close())
            background.stop()
            if release is not None:
                release()
            raise
        return cls(port, background, session, config, owned=owned, release=release)

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
    ) -> Envelope:
        """A PROPOSAL envelope, not yet submitted: submitting it again is a retry, never a second proposal.

        ``action`` is ``{"tool": str, "args": {...}}``; ``timeout_s`` the time budget in seconds. Proposals
        with an action wait for every seat unless told otherwise (rules 1.5). Raises EnvelopeError, which
        names the field.
        """
        return Envelope.build(
            msg_id=new_id(),
            timestamp=datetime.now(UTC),
            sender=self._session.name,
            role="proposer",
            type="PROPOSAL",
            confidence=confidence,
            risk_level=risk,
            content={
                "summary": summary,
                "body": body,
                "action": action,
                "wait_for": wait_for or ("decisive" if action is None else "all"),
                "time_budget_s": self._config.time_budget_s if timeout_s is None else timeout_s,
                "supersedes": supersedes,
            },
        )

    def propose(
        self,
        proposal: str | Envelope,
        body: str = "",
        *,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
        **details: Any,
    ) -> Decision:
        """Submits a proposal, or one that ``draft`` made, and waits for the decision.

        ``details`` are those of ``draft``. A decision that waits for a human has ``final`` False, unless
        ``wait_for_human``, which waits for the answer or its expiry, ``human_timeout_s`` at most. Raises
        TooManyOpen, Refused, EnvelopeError, NoAnswer, CouncilDied.
        """
        return self._wait(self._propose(proposal, body, wait_for_human, human_timeout_s, details))

    async def _propose(
        self,
        proposal: str | Envelope,
        body: str,
        wait_for_human: bool,
        human_timeout_s: float | None,
        details: Mapping[str, Any],
    ) -> Decision:
        self._refuse_if_closed()
        if isinstance(proposal, Envelope):
            if body or details:
                raise CallerError("a drafted proposal is complete: give its details to draft")
            envelope = proposal
        else:
            envelope = self.draft(proposal, body, **details)
        return await self._session.propose(
            envelope, wait_for_human=wait_for_human, human_timeout_s=human_timeout_s
        )

    def propose_many(
        self, proposals: Iterable[str | Envelope], *, wait_for_human: bool = False, **details: Any
    ) -> list[Decision | CouncilError]:
        """Submits many proposals at once; a decision for each, in order, or the error it came to."""
        return self._wait(self._propose_many(proposals, wait_for_human, details))

    async def _propose_many(
        self, proposals: Iterable[str | Envelope], wait_for_human: bool, details: Mapping[str, Any]
    ) -> list[Decision | CouncilError]:
        async def one(proposal: str | Envelope) -> Decision | CouncilError:
            try:
                return await self._propose(proposal, "", wait_for_human, None, details)
            except CouncilError as error:
                return error

        return list(await asyncio.gather(*(one(proposal) for proposal in proposals)))

    def cancel(self, proposal_id: str, reason: str = "") -> None:
        """Takes back a proposal of this client's. Raises Refused: not its own, unknown, or decided."""
        self._wait(self._cancel(proposal_id, reason))

    async def _cancel(self, proposal_id: str, reason: str) -> None:
        self._refuse_if_closed()
        await self._session.act(_info(self._session, proposal_id, "cancel", reason, {}))

    def answer(
        self, escalation_id: str, *, approve: bool, reason: str = "", human: str | None = None
    ) -> None:
        """Answers an escalation, as ``human`` (by default this user), signed with that human's own key.

        The first answer is the decision (rules 1.9). Raises Refused: unknown, not escalated, or answered.
        """
        self._wait(self._answer(escalation_id, approve, reason, human))

    async def _answer(self, escalation_id: str, approve: bool, reason: str, human: str | None) -> None:
        self._refuse_if_closed()
        session = await self._as_human(human or me())
        proposal_id = escalation_id.removeprefix("esc-")
        await session.act(_info(session, proposal_id, "answer", reason, {"approve": bool(approve)}))

    async def _as_human(self, name: str) -> Session:
        known = self._humans.get(name)
        if known is not None:
            return known
        session = Session(self._port, name, "human", human_key(name), self._config.call_timeout_s)
        await session.open()
        kept = self._humans.setdefault(name, session)
        if kept is not session:  # two answers of this human were given at once
            await session.close()
        return kept

    def decision(self, proposal_id: str) -> Decision | None:
        """The decision on a proposal or how it stands with a human; None while the seats deliberate.

        Raises Refused for an id that the council was never given.
        """
        return self._wait(self._decision(proposal_id))

    async def _decision(self, proposal_id: str) -> Decision | None:
        self._refuse_if_closed()
        packed = await self._session.within(self._port.decision(proposal_id), "decision")
        message = None if packed is None else messages.from_bytes(packed)
        return message.decision if isinstance(message, messages.Told) else None

    def escalations(self) -> list[Escalation]:
        """What waits for a human, oldest first."""
        return self._wait(self._escalations())

    async def _escalations(self) -> list[Escalation]:
        self._refuse_if_closed()
        return messages.escalations_from_bytes(
            await self._session.within(self._port.escalations(), "escalations")
        )

    def status(self) -> dict[str, Any]:
        """The council at a glance, as plain data: seats and their heartbeats, what is open, counts."""
        return self._wait(self._status())

    async def _status(self) -> dict[str, Any]:
        self._refuse_if_closed()
        return {**await self._session.within(self._port.status(), "status"), "name": self._config.name}

    def events(self, after: int = 0, *, follow: bool = True) -> Events:
        """Events from position ``after`` on, for ``for`` and ``async for``; with ``follow``, without end.

        Raises PositionLost, while iterating, where events after ``after`` are no longer kept.
        """
        return Events(self._port.events, self._wait, self.aio._run, after, follow=follow)

    def guard(
        self,
        *,
        risk: RiskLevel = "low",
        describe: str | Callable[..., str] | None = None,
        wait_for_human: bool = False,
        timeout_s: float | None = None,
    ) -> Callable[[F], F]:
        """Puts the council in front of a function: a call of it runs only once it is approved.

        ``describe`` makes the summary from the arguments: a format string (``"Delete {bucket}"``) or a
        function. Raises NotApproved with the decision otherwise, also while it waits for a human, unless
        ``wait_for_human``.
        """
        from council.guards import Guard

        return Guard(self, risk, describe, wait_for_human, timeout_s)

    # Its end

    def close(self) -> None:
        """Ends a council that was launched here, with whatever is open; only leaves one that was not."""
        if self._closed:
            return
        self._background.refuse_own_thread()
        self._closed = True
        try:
            self._background.wait(self._close())
        finally:
            self._background.stop()
            if self._release is not None:
                self._release()

    def end(self) -> None:
        """Ends the council itself, with whatever is open, also one that was only connected to."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncCouncil:
        return self.aio

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aio.close()

    def __repr__(self) -> str:
        return f"<Council {self.name} as {self.sender}{' (closed)' if self._closed else ''}>"


class AsyncCouncil:
    """A council's methods as coroutines, for use from any event loop. See ``Council`` for each."""

    def __init__(self, council: Council) -> None:
        self._council = council

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._council._closed:
            coroutine.close()
            self._council._refuse_if_closed()
        return await self._council._background.wrap(coroutine)

    async def propose(
        self,
        proposal: str | Envelope,
        body: str = "",
        *,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
        **details: Any,
    ) -> Decision:
        return await self._run(
            self._council._propose(proposal, body, wait_for_human, human_timeout_s, details)
        )

    async def propose_many(
        self, proposals: Iterable[str | Envelope], *, wait_for_human: bool = False, **details: Any
    ) -> list[Decision | CouncilError]:
        return await self._run(self._council._propose_many(proposals, wait_for_human, details))

    async def cancel(self, proposal_id: str, reason: str = "") -> None:
        await self._run(self._council._cancel(proposal_id, reason))

    async def answer(
        self, escalation_id: str, *, approve: bool, reason: str = "", human: str | None = None
    ) -> None:
        await self._run(self._council._answer(escalation_id, approve, reason, human))

    async def decision(self, proposal_id: str) -> Decision | None:
        return await self._run(self._council._decision(proposal_id))

    async def escalations(self) -> list[Escalation]:
        return await self._run(self._council._escalations())

    async def status(self) -> dict[str, Any]:
        return await self._run(self._council._status())

    def draft(self, summary: str, body: str = "", **details: Any) -> Envelope:
        return self._council.draft(summary, body, **details)

    def events(self, after: int = 0, *, follow: bool = True) -> Events:
        return self._council.events(after, follow=follow)

    async def close(self) -> None:
        await asyncio.to_thread(self._council.close)


def _info(session: Session, proposal_id: str, kind: str, text: str, data: Mapping[str, Any]) -> Envelope:
    return Envelope.build(
        msg_id=new_id(),
        parent_id=proposal_id,
        timestamp=datetime.now(UTC),
        sender=session.name,
        role="human" if session.role == "human" else "proposer",
        type="INFO",
        content={"kind": kind, "text": text, "data": dict(data)},
    )


def _config(config: CouncilConfig | Path | str | None, settings: Mapping[str, Any]) -> CouncilConfig:
    """The configuration asked for: one that is complete, a file, or what is found; with settings on top."""
    from council.config import load  # imported when it is used: so that importing the package stays quick
    from council.settings import CouncilConfig

    given = {key: value for key, value in settings.items() if value is not None}
    if isinstance(config, CouncilConfig):
        if not given:
            return config
        raise ConfigError(
            "a complete CouncilConfig takes no further settings: put them into it",
            problems=[f"settings beside a CouncilConfig: {', '.join(given)}"],
        )
    return load(Path(config) if config is not None else None, flags=given).config
