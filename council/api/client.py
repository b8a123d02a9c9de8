"""The council from Python: launch, connect, propose, watch, answer.

    from council import Council
    with Council.launch() as council:
        decision = council.propose("Delete the staging bucket", risk="high", timeout_s=60)
        print(decision.outcome, decision.tally, decision.dissent)

Every method blocks until the coroutine of the same name of ``council.aio``, an AsyncCouncil, is done. Those made by
``blocking`` have the signature and the docstring of that coroutine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, Unpack

from council.api import handle as handles
from council.api.aio import AsyncCouncil
from council.api.event_stream import Events
from council.api.guard import Guard
from council.api.handle import Handle
from council.api.keywords import ClientSettings, Details, Guarding, History, Settings, check_many
from council.core.state import Decision, RiskLevel
from council.protocol.envelope import Envelope
from council.protocol.errors import CouncilError

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig

T = TypeVar("T")
P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


def blocking(verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A method that waits for the coroutine ``verb`` of its object's ``aio``."""

    @functools.wraps(verb)
    def waiting(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._wait(verb(self.aio, *args, **kwargs))
        return result

    return waiting


class Council:
    """A running council. Create it by ``launch``, ``inline`` or ``connect``; close it, or use it in ``with``."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._wait = handle.wait
        self.aio = AsyncCouncil(handle)

    # Connecting

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
        """Starts a council on Ray, which ends with this object. ``settings`` are those of ``council.toml``.

        Without ``ray_address`` it uses the Ray that this process is connected to, or else starts a local one. If
        there is a store, the key of ``sender`` is kept in the state folder for the next run, unless ``key`` is given.
        Raises ConfigError, MindError, NameTaken, Unreachable, VersionMismatch, OperatorError.
        """
        return cls(handles.launch(config, sender, key, settings, dashboard=dashboard))

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
        """Connects to a running council by its name and the address of its Ray. The council goes on after ``close``.

        Without an address it uses the council that this user brought up here, over the Unix socket of its host and
        without Ray; ``ray_address`` of the settings and RAY_ADDRESS count as an address. A process that is connected
        to Ray uses that. If this user has brought up none, it looks in the Ray that this process is connected to.
        ``address="auto"`` joins any Ray on this machine, and refuses one that demands no token unless
        ``ray_insecure=True``. With ``sender`` and ``key`` (32 bytes) a client has the same name each time. If the
        council goes away and comes back, the next call connects again, within its own time limit. Raises Unreachable,
        CouncilDied (it has crashed), VersionMismatch, NameTaken, ConfigError.
        """
        return cls(handles.connect(address, name, config, sender, key, settings))

    @classmethod
    def inline(
        cls,
        config: CouncilConfig | Path | str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        **settings: Unpack[Settings],
    ) -> Council:
        """Starts a council in this process, without Ray, for scripts, notebooks and tests. The rules are the same.

        Asynchronous minds share one event loop, on a thread of the council. ``sender`` and ``key`` are as in
        ``launch``. Raises ConfigError, MindError, NameTaken, OperatorError.
        """
        return cls(handles.in_process(config, sender, key, settings))

    # Asking and deciding

    @property
    def name(self) -> str:
        """The council's name."""
        return self._handle.config.name

    @property
    def sender(self) -> str:
        """The name under which this client proposes."""
        return self._handle.session.name

    @property
    def config(self) -> CouncilConfig:
        """The configuration of the launch or the connection."""
        return self._handle.config

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
        """A PROPOSAL envelope, not submitted yet. Submitting it again is a retry, never a second proposal.

        ``action`` is ``{"tool": str, "args": {...}}``. ``timeout_s`` is the time budget in seconds. A proposal with
        an action waits for every seat by default (rules 1.5). ``history`` is what was said and done before, oldest
        first: pairs such as ``("user", "…")`` or ``("tool", "…")``. Each seat's model is shown the relevant part of
        it. Raises EnvelopeError or CallerError, which names the field.
        """
        return self.aio.draft(
            summary,
            body,
            risk=risk,
            confidence=confidence,
            action=action,
            wait_for=wait_for,
            timeout_s=timeout_s,
            supersedes=supersedes,
            history=history,
        )

    propose = blocking(AsyncCouncil.propose)
    cancel = blocking(AsyncCouncil.cancel)
    report = blocking(AsyncCouncil.report)
    answer = blocking(AsyncCouncil.answer)
    decision = blocking(AsyncCouncil.decision)
    escalations = blocking(AsyncCouncil.escalations)
    status = blocking(AsyncCouncil.status)
    history = blocking(AsyncCouncil.history)

    def propose_many(
        self,
        proposals: Iterable[str | Envelope],
        *,
        wait_for_human: bool = False,
        **details: Unpack[Details],
    ) -> list[Decision | CouncilError]:
        """Submits many proposals at once. Returns a decision or an error for each, in order."""
        check_many(proposals)
        given = [*proposals]  # a caller's iterator runs on this thread
        return self._wait(self.aio.propose_many(given, wait_for_human=wait_for_human, **details))

    def events(self, after: int = 0, *, follow: bool = True) -> Events:
        """Events after position ``after``, for ``for`` and ``async for``; with ``follow``, without end.

        Raises PositionLost, while iterating, if events after ``after`` are not kept any more.
        """
        return self.aio.events(after, follow=follow)

    def guard(self, **how: Unpack[Guarding]) -> Callable[[F], F]:
        """Puts the council in front of a function: a call of it runs only after approval.

        ``describe`` makes the summary from the arguments: a format string (``"Delete {bucket}"``) or a function. The
        seats and the events show the arguments in full. Those in ``hide``, and pydantic's secrets, are shown as
        ``<hidden>``. Raises NotApproved with the decision if the call is not approved, also while it waits for a
        human, unless ``wait_for_human``. Raises CallerError, without proposing, for an argument that can't be shown,
        such as one whose repr is an address, if there is no ``describe``. The result of the call is reported.
        ``verify(result, *args)`` then says whether it is as intended. If it returns nothing true or raises, or if the
        call itself raises, ``revert(*args)`` runs, and the caller gets NotVerified or the call's own error.
        """
        return Guard(how, self.aio, self)

    # Its end

    def close(self) -> None:
        """Ends a council that was launched here. Leaves one that was not.

        Open proposals continue when a council of this name and store is launched again. Without a journal on disk
        they end undecided.
        """
        self._handle.close()

    def end(self) -> None:
        """Ends the council itself, also if this object only connected to it; see ``close``."""
        self._handle.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> AsyncCouncil:
        return self.aio

    async def __aexit__(self, *_: object) -> None:
        await self.aio.close()

    def __repr__(self) -> str:
        return f"<Council {self._handle}>"


def handle_of(council: Council) -> Handle:
    """This process's handle of the council."""
    return council._handle
