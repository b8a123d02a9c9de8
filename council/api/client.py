"""The council from Python: connect, launch, propose, watch, answer.

    from council import Council
    with Council.connect() as council:  # the one that ``council up`` started
        decision = council.propose("Delete the staging bucket", risk="high", timeout_s=60)
        print(decision)

Every method blocks until the coroutine of the same name of ``council.aio``, an AsyncCouncil, is done. Those made by
``blocking`` have the signature and the docstring of that coroutine.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from council.api import handle as handles
from council.api.acting import tool
from council.api.aio import AsyncCouncil
from council.api.event_stream import Events
from council.api.guard import guard
from council.api.handle import Handle
from council.api.keywords import ClientSettings, Settings, check_many, spelled_out

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig

T = TypeVar("T")
P = ParamSpec("P")


def blocking(verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Makes a method that waits for the coroutine ``verb`` of its object's ``aio``."""

    @functools.wraps(verb)
    def waiting(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._wait(verb(self.aio, *args, **kwargs))
        return result

    return waiting


def blocking_many(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Like ``blocking``, for ``propose_many``: a caller's iterator of proposals runs on the caller's thread."""
    signature, wait = inspect.signature(verb), blocking(verb)

    @functools.wraps(verb)
    def waiting(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind_partial(self, *args)
        given: dict[str, Any]
        for given in (bound.arguments, kwargs):
            if "proposals" in given:
                check_many(given["proposals"])
                given["proposals"] = [*given["proposals"]]
        return wait(*bound.args, **kwargs)

    return waiting


def at_once(verb: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Makes a method that calls ``verb`` of its object's ``aio``, which is not a coroutine."""

    @functools.wraps(verb)
    def calling(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return verb(self.aio, *args, **kwargs)

    return calling


class Council:
    """A running council. Close it, or use it in ``with``.

    - ``Council.connect()``: the council that ``council up`` started; it goes on after ``close``.
    - ``Council.inline()``: a council in this process, without Ray, for scripts, notebooks and tests.
    - ``Council.launch()``: a council on Ray that ends with this object.
    """

    def __init__(self, handle: Handle, place: tuple[int, int] | None = None) -> None:
        self._handle = handle
        self._wait = handle.wait
        self.aio = AsyncCouncil(handle, place)

    # Connecting

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
    @spelled_out
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
    ) -> Council:
        """Starts a council on Ray, which ends with this object. ``settings`` are those of ``council.toml``.

        Without ``ray_address`` it uses the Ray that this process is connected to, or else starts a local one. If
        there is a store, the key of ``sender`` is kept in the state folder for the next run, unless ``key`` is given.
        Raises ConfigError, MindError, NameTaken, Unreachable, VersionMismatch, OperatorError.
        """
        return cls(handles.launch(config, sender, key, settings, dashboard=dashboard))

    # Proposals and events

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

    draft = at_once(AsyncCouncil.draft)
    register = at_once(AsyncCouncil.register)
    propose = blocking(AsyncCouncil.propose)
    act = blocking(AsyncCouncil.act)
    tokens = blocking(AsyncCouncil.tokens)
    revoke = blocking(AsyncCouncil.revoke)
    cancel = blocking(AsyncCouncil.cancel)
    report = blocking(AsyncCouncil.report)
    answer = blocking(AsyncCouncil.answer)
    decision = blocking(AsyncCouncil.decision)
    escalations = blocking(AsyncCouncil.escalations)
    status = blocking(AsyncCouncil.status)
    history = blocking(AsyncCouncil.history)
    episode = blocking(AsyncCouncil.episode)

    propose_many = blocking_many(AsyncCouncil.propose_many)

    def events(self, after: int = 0, *, follow: bool = True) -> Events:
        """Returns the events after the one whose ``cursor`` is ``after``, for use in ``for`` and ``async for``.

        The iteration waits for new events without end, unless ``follow=False``. ``after=0`` begins with the oldest
        event that the council still keeps. A position in the journal is not a cursor. The iteration raises
        PositionLost if events after ``after`` are no longer kept.
        """
        return self.aio.events(after, follow=follow)

    guard = guard
    tool = tool

    # Closing

    def close(self) -> None:
        """Ends the council if it was launched here. If this object only connected to it, the council goes on.

        Open proposals continue when a council of this name and store is launched again. Without a journal on disk
        they end undecided.
        """
        self._handle.close()

    def end(self) -> None:
        """Ends the council, even if this object only connected to it; see ``close``."""
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
