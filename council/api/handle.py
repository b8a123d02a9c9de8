"""A council that this process has joined: its port, its thread and its session, and how they are closed.

``wait`` runs the council's coroutines from a thread, and ``run`` from any event loop.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from council.agents.messaging.logs import get_logger
from council.api.acting import Tools
from council.api.keywords import ClientSettings, configured, refuse_unknown
from council.config.human_keys import enrolled_key
from council.core.state import InlineDecision
from council.kinds.text import line
from council.protocol.errors import CallerError, Unreachable
from council.protocol.extras import require_ray
from council.runtime.loop_thread import Background
from council.runtime.open_escalations import waiting_text
from council.runtime.questions import AskStatus
from council.runtime.session import Port, Session
from council.telemetry.tracing import Traces, end, traces_if, traces_of

if TYPE_CHECKING:
    from council.agents.messaging.span_recorder import SpanRecorder
    from council.cluster.socket_port import SocketPort
    from council.config.settings import CouncilConfig
    from council.core.state import Decision

log = get_logger("council")
T = TypeVar("T")
# The name of a client that was given none; also in ``pool``.
MADE_UP_NAME = re.compile("client-[0-9a-f]{16}")


class Handle:
    """A council that this process has joined. ``owned``: it ends with this handle.

    ``sender`` is the client's name, by default one that is made up, and ``key`` its key. Creating it joins the
    council. Raises the errors of ``Session.open``.
    """

    def __init__(
        self,
        port: Port,
        config: CouncilConfig,
        sender: str | None,
        key: bytes | None,
        *,
        owned: bool,
        background: Background | None = None,
        release: Callable[[], None] | None = None,
        traces: Traces | None = None,
    ) -> None:
        name = sender or f"client-{secrets.token_hex(8)}"
        key = secrets.token_bytes(32) if key is None else key
        self.port = port
        self.config = config
        self.background = background or Background(f"council-{config.name}-client")
        self.session = Session(port, name, "proposer", key, config.call_timeout_s)
        self._inline = owned and background is not None
        self.on_waiting: Callable[[Decision], None] | None
        self.on_waiting = _log_waiting_inline if self._inline else _log_waiting
        self.spans: SpanRecorder | None = None
        self._owned = owned
        self._release = release
        self._traces = traces
        self.tools = Tools(port, name, key, config, inline=self._inline)
        self._humans: dict[tuple[str, str], Session] = {}  # by name, and by the council that the key is for
        self._joined = self._closed = False
        try:
            self.wait(self._join())
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to report
                self.close()
            raise

    async def _join(self) -> None:
        await self.session.open()
        self._joined = True
        self._traces = self._traces or traces_if(self.config, self.session.name)
        self.spans = None if self._traces is None else self._traces.spans(self.session.council_id)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the council's own loop, for a caller on a thread."""
        self._refuse_if_closed(coroutine)
        return self.background.wait(coroutine)

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the council's own loop, for a caller on any loop."""
        self._refuse_if_closed(coroutine)
        return await self.background.wrap(coroutine)

    def _refuse_if_closed(self, coroutine: Coroutine[Any, Any, T]) -> None:
        if self._closed:
            coroutine.close()
            raise CallerError("this council was closed; launch or connect again")

    async def status(self) -> dict[str, Any]:
        status = await self.session.ask(AskStatus())
        return {**status, "name": self.config.name}

    async def human(self, name: str) -> Session:
        """The session of an enrolled human, which stays open. Raises NotEnrolled."""
        status = await self.status()
        council_id = status["council_id"]  # another council has another key of this human
        if (known := self._humans.get((name, council_id))) is not None:
            return known
        key = enrolled_key(name, self.config, council_id, status["humans"])
        session = Session(self.port, name, "human", key, self.config.call_timeout_s, council_id)
        await session.open()
        kept = self._humans.setdefault((name, council_id), session)
        if kept is not session:  # this human gave two answers at the same time
            await session.close()
        return kept

    def shown(self, decision: Decision) -> Decision:
        """A decision as this program gets it: one that waits for a human says how to answer it here."""
        if not self._inline or decision.final:
            return decision
        return InlineDecision(**{name: getattr(decision, name) for name in decision.__struct_fields__})

    def close(self) -> None:
        """Closes the session. Ends the council if it is owned."""
        if self._closed:
            return
        self.background.refuse_own_thread()
        self._closed = True
        try:
            self.background.wait(self._close())
        finally:
            self.background.stop()
            end(self._traces)
            if self._release is not None:
                self._release()

    def end(self) -> None:
        """Ends the council, owned or not."""
        if not self._closed:
            self.background.refuse_own_thread()
        self._owned = True
        self.close()

    async def _close(self) -> None:
        try:
            await self.tools.close()
            for human in [*self._humans.values()]:  # an answer under way may add another
                await human.close()
            if self._joined:
                await self.session.close()
        finally:
            if self._owned:
                await self.port.close()

    def __repr__(self) -> str:
        return f"{self.config.name} as {self.session.name}{' (closed)' if self._closed else ''}"


def _log_waiting(standing: Decision) -> None:
    """Logs that a proposal waits for a human, and the command to answer it, for the program's operator."""
    log.warning(waiting_text(standing.summary, str(standing.escalation_id)))


def _log_waiting_inline(standing: Decision) -> None:
    """As ``_log_waiting``, for a council in process, which no other process reaches."""
    log.warning(
        f"waits for a human: {line(standing.summary, 200)}; only this program can answer it: "
        f'council.answer("{standing.escalation_id}", approve=...). To answer from a shell, run council up and use '
        "Council.connect()"
    )


def launch(
    config: CouncilConfig | Path | str | None,
    sender: str | None,
    key: bytes | None,
    settings: Mapping[str, Any],
    *,
    dashboard: bool = False,
) -> Handle:
    """See ``Council.launch``."""
    require_ray("Council.launch()", "; or use Council.inline(), which needs none")
    from council.cluster import port as ray_side  # Ray is imported when it is used
    from council.runtime import journals

    found = configured(config, settings)
    key = journals.sender_key(found, sender) if key is None else key
    port = ray_side.launch(found, dashboard=dashboard)
    return Handle(port, found, sender, key, owned=True, release=port.release)


def connect(
    address: str | None,
    name: str | None,
    config: CouncilConfig | Path | str | None,
    sender: str | None,
    key: bytes | None,
    settings: Mapping[str, Any],
) -> Handle:
    """See ``Council.connect``."""
    refuse_unknown("connect", settings, ClientSettings.__annotations__)
    wanted = configured(config, {**settings, "ray_address": address, "name": name})
    found = _by_socket(wanted)
    if found is not None:
        port, background = found
        return Handle(port, port.config, sender, key, owned=False, background=background)
    require_ray("connecting to a council")
    from council.cluster import port as ray_side

    ray_port = ray_side.connect(wanted)
    return Handle(ray_port, ray_port.config, sender, key, owned=False, release=ray_port.release)


def _by_socket(wanted: CouncilConfig) -> tuple[SocketPort, Background] | None:
    """The port of a council that this user brought up here, and its loop; None where only Ray leads to it.

    Raises CouncilDied if it has crashed, and OperatorError.
    """
    from council.cluster import known
    from council.cluster.socket_port import SocketPort, connected_to_ray

    if wanted.ray_address is not None or connected_to_ray():
        return None
    kept = known.located(wanted.name)
    if kept is None or not kept.hosted_here():
        return None
    background = Background(f"council-{wanted.name}-client")
    try:
        return background.wait(SocketPort.opened(wanted, kept)), background
    except BaseException as error:
        background.stop()
        if not isinstance(error, Unreachable):
            raise
        log.warning("connecting through Ray instead of the socket", council=wanted.name, why=error.message)
        return None


def in_process(
    config: CouncilConfig | Path | str | None,
    sender: str | None,
    key: bytes | None,
    settings: Mapping[str, Any],
) -> Handle:
    """See ``Council.inline``."""
    from council.api import inline  # it loads seats and journals, which other clients do not need
    from council.runtime import journals

    found = configured(config, settings)
    if key is None and found.store is not None:  # otherwise no key is kept
        key = journals.sender_key(found, sender)
    traces = traces_of(found, "inline")
    background = Background(f"council-{found.name}")
    try:
        port = background.wait(inline.start(found, traces))
    except BaseException:
        background.stop()
        end(traces)
        raise
    return Handle(port, found, sender, key, owned=True, background=background, traces=traces)
