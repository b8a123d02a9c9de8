"""Serves the panel at an address of its own."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from council.gateway import web
from council.gateway.panel import Ask, app
from council.protocol.errors import OperatorError


class Server(web.AppServer):
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
        try:
            listener = web.listening(host, port)
        except OSError as error:
            raise OperatorError(
                f"the panel can't be served at {host} port {port}: {error.strerror or error}; end what listens "
                "there, or set panel_port (0: any free one) or panel_host"
            ) from error
        bound, port = listener.getsockname()[:2]
        shown = host
        if ipaddress.ip_address(bound).is_unspecified:
            shown = reached_at or socket.gethostname()
        self.url = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"
        served = app(ask, name, token, hosts=[host, shown], framed_by=framed_by)
        super().__init__(served, listener, "council-panel")
