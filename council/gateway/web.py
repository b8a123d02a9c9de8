"""Serves an ASGI application over HTTP from a thread of its own, with limits on connections and time."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# Connections that are open at once; a council has a few that look at it.
OPEN_MAX = 200
# How long a connection may take to bring its next request whole and take the answer. An answer takes 5 s at most.
EXCHANGE_S = 20.0
_LOG = logging.getLogger("council.web")
_LOG.setLevel(logging.ERROR)  # no line for each malformed request


class AppServer:
    """Serves ``app`` at a socket of ``listening`` until ``close``."""

    def __init__(self, app: Any, listener: socket.socket, name: str) -> None:
        config = uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            log_config=None,  # its lines would name addresses, and these may hold a token
            access_log=False,
            lifespan="off",
            server_header=False,
            backlog=OPEN_MAX,
            timeout_graceful_shutdown=1,
        )
        self._listener = listener
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self._server.run(sockets=[self._listener])

    def alive(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stops; for a thread that may wait."""
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at ``host`` and ``port`` (0: a free one). Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # again at once after a restart
        made.bind(address)
        made.listen(OPEN_MAX)
    except OSError:
        made.close()
        raise
    return made


class _Connection(H11Protocol):
    """A connection that is closed when it takes too long, or when a new one needs its place.

    uvicorn itself waits for a request without end, and refuses all newer connections where very many wait.
    """

    transport: asyncio.Transport
    _ends: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.logger = _LOG
        super().connection_made(transport)
        self._give_time()
        if len(self.connections) > OPEN_MAX:
            open_ = [each for each in self.connections if isinstance(each, _Connection)]
            min(open_, key=_Connection._worth).abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ends.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._ends.cancel()
        self._give_time()
        super().on_response_complete()

    def abort(self) -> None:
        """Closes it at once, and takes it off the list, which the transport would do a moment later."""
        self.connections.discard(self)
        self.transport.abort()

    def _give_time(self) -> None:
        self._ends = self.loop.call_later(EXCHANGE_S, self.abort)

    def _worth(self) -> tuple[bool, float]:
        """A connection that is being answered is worth most. Of those that wait for a request, the newest is."""
        answered = self.cycle is not None and not self.cycle.response_complete
        return answered, self._ends.when()
