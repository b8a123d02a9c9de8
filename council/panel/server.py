"""Serves the panel from a thread of its own. Knows nothing of what it shows."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Sequence

import uvicorn

from council.agents.logs import get_logger
from council.panel.app import Ask, app
from council.protocol.errors import OperatorError

log = get_logger("council.panel")

# Connections that wait to be taken, and those that are open at once: a panel has a few that look at it.
BACKLOG, OPEN_MAX = 64, 200


class Server:
    """Listens at ``host`` and ``port`` (0: a free one) until ``close``. Raises OperatorError where it can't."""

    def __init__(
        self,
        ask: Ask,
        name: str,
        token: str,
        host: str,
        port: int,
        *,
        reached_at: str = "",
        framed_by: Sequence[str] = (),
    ) -> None:
        self._socket = _listening(host, port)
        shown = host
        if ipaddress.ip_address(self._socket.getsockname()[0]).is_unspecified:
            shown = reached_at or socket.gethostname()
        self.url = f"http://{f'[{shown}]' if ':' in shown else shown}:{self._socket.getsockname()[1]}/"
        served = app(ask, name, token, hosts=[host, shown], framed_by=framed_by)
        config = uvicorn.Config(
            served,
            log_config=None,  # its lines would name addresses, and these may hold the token
            access_log=False,
            lifespan="off",
            server_header=False,
            limit_concurrency=OPEN_MAX,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="council-panel", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])

    def alive(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Stops; for a thread that may wait."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _unserved(host, port, error) from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # again at once after a restart
        made.bind(address)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise _unserved(host, port, error) from error
    return made


def _unserved(host: str, port: int, error: OSError) -> OperatorError:
    return OperatorError(
        f"the panel can't be served at {host} port {port}: {error.strerror or error}; end what listens there, or set "
        "panel_port (0: any free one) or panel_host"
    )
