"""The panel over HTTP: its page, its data, and the answers that a Grafana with one page would give.

The Metrics tab of Ray's dashboard shows the page at ``{RAY_GRAFANA_HOST}/d/{uid}/``, if ``/api/health`` there and
``/api/v1/query`` at RAY_PROMETHEUS_HOST answer as Grafana and Prometheus do. Ray does not document that. If it stops
working, the tab says that it has no Grafana, and the panel stays at its own address.

How to ask the council is an argument, so that the panel works without Ray.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from council.gateway import web
from council.gateway.picture import picture
from council.protocol.errors import CouncilError, OperatorError

# The council is asked at most once in this many seconds, however many look at the panel.
FRESH_S = 0.5
# After this many seconds without an answer the panel says that the council does not answer.
ANSWER_S = 5.0
TYPES = {".css": "text/css", ".js": "text/javascript", ".html": "text/html"}
FILES = {path.name: path for path in Path(__file__).parent.iterdir() if path.suffix in TYPES}
# RFC 3986: a name, or an address, which of version 6 stands in brackets; and a port, which may be empty.
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]*)?")

Ask = Callable[[], Awaitable[Mapping[str, Any]]]


class StatusSource:
    """The council's status, asked for at most once in ``FRESH_S``, or what is wrong if there is none.

    There is one question at a time, because questions to a frozen council would pile up.
    """

    def __init__(self, ask: Ask, name: str) -> None:
        self._ask = ask
        self._name = name
        self._status: Mapping[str, Any] | None = None
        self._trouble: str | None = None
        self._wall_s = 0.0
        self._asked_s = -FRESH_S
        self._asking: asyncio.Future[Mapping[str, Any]] | None = None
        self._gives_up_s = 0.0
        self._lock = asyncio.Lock()

    async def picture(self, *, content: bool) -> dict[str, Any]:
        """The newest picture there is; ``trouble`` says why there is no newer one."""
        async with self._lock:
            if time.monotonic() - self._asked_s >= FRESH_S:
                await self._refresh()
                self._asked_s = time.monotonic()
        found: dict[str, Any] = {"name": self._name, "content": content, "at": None}
        if self._status is not None:
            found = picture(self._status, self._wall_s, content=content)
        return {**found, "now": time.time(), "trouble": self._trouble}

    async def _refresh(self) -> None:
        if self._asking is not None and self._asking.done():  # long after it was asked: it may be old
            self._asking.exception()
            self._asking = None
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask())
            self._gives_up_s = time.monotonic() + ANSWER_S
        left_s = max(self._gives_up_s - time.monotonic(), 0.0)
        if not (await asyncio.wait({self._asking}, timeout=left_s))[0]:
            self._trouble = f"the coordinator has not answered within {ANSWER_S:g} s"
            return
        asked, self._asking = self._asking, None
        try:
            self._status = asked.result()
            self._wall_s, self._trouble = time.time(), self._status["journal_trouble"]
        except CouncilError as error:
            self._trouble = error.message
        except Exception as error:  # noqa: BLE001 - the panel outlives what it shows, whatever became of that
            self._trouble = f"the coordinator can't be asked: {type(error).__name__}"


def app(
    ask: Ask, name: str, token: str, *, hosts: Sequence[str] = (), framed_by: Sequence[str] = ()
) -> Starlette:
    """The panel of council ``name``. ``token`` opens the content of proposals; ``hosts`` are further names that it
    is reached by, ``framed_by`` further origins whose pages may show it in a frame.
    """
    source = StatusSource(ask, name)
    own = {socket.gethostname(), socket.getfqdn(), "localhost", *hosts}

    async def council(request: Request) -> Response:
        given = _token(request)
        if given is not None and not _same(given, token):
            return JSONResponse(
                {"error": "the token is not this panel's; see council dashboard --token"}, 403
            )
        return JSONResponse(await source.picture(content=given is not None))

    def page(request: Request) -> Response:
        return _file("page.html")

    def part(request: Request) -> Response:
        return _file(request.path_params["part"])

    def solo(request: Request) -> Response:
        return _file("solo.html")

    def health(request: Request) -> Response:
        return JSONResponse({"database": "ok", "version": "council"})

    def query(request: Request) -> Response:
        # vector(1), which Ray asks to see that somebody answers; of any other metric there is nothing here.
        asked = request.query_params.get("query", "")
        found = [{"metric": {}, "value": [time.time(), "1"]}] if asked == "vector(1)" else []
        return JSONResponse({"status": "success", "data": {"resultType": "vector", "result": found}})

    return Starlette(
        routes=[
            Route("/", page),
            Route("/api/council", council),
            Route("/{part:str}", part),
            Route("/api/health", health),
            Route("/api/v1/query", query),
            Route("/d/{uid}/", page),
            Route("/d/{uid}", page),
            Route("/d/{uid}/{slug}", page),
            Route("/d-solo/{uid}", solo),
            Route("/d-solo/{uid}/{slug}", solo),
        ],
        middleware=[Middleware(_Guard, own=own, framed_by=framed_by)],
    )


class Server(web.AppServer):
    """Serves the panel at ``host`` and ``port`` (0: a free one) until ``close``. Raises OperatorError if it can't."""

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


def _token(request: Request) -> str | None:
    """The token that came with a request; None where none did."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else request.query_params.get("token")


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _file(name: str) -> Response:
    path = FILES.get(name)
    if path is None:
        return PlainTextResponse("there is no such page", 404)
    return Response(path.read_bytes(), media_type=TYPES[path.suffix])


def _host(request: Request) -> str | None:
    """The host that a request names, without its port and brackets; None where it names none, or several."""
    given = request.headers.getlist("host")
    found = _HOST.fullmatch(given[0]) if len(given) == 1 else None
    if found is None:
        return None
    try:
        return str(ipaddress.IPv6Address(found[1])) if found[1] else found[2].lower()
    except ValueError:
        return None


class _Guard(BaseHTTPMiddleware):
    """Answers only requests to one of the panel's own names, and sets the headers that restrict its pages.

    Otherwise a page elsewhere, whose name leads here (DNS rebinding), could read everything.
    """

    def __init__(self, app: Any, own: set[str], framed_by: Sequence[str]) -> None:
        super().__init__(app)
        self._own = {each.lower() for each in own}
        # Ray's dashboard, also where it is looked at through a tunnel, from another port of the own machine.
        frames = " ".join(("'self'", "http://127.0.0.1:*", "http://localhost:*", *framed_by))
        self._headers = {
            "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
            f"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors {frames}",
            "Referrer-Policy": "no-referrer",  # its address may hold the token
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        response: Response
        host = _host(request)
        if host is None:
            response = PlainTextResponse("a request names one host, and a port where it has one\n", 400)
        elif self._is_own(host):
            response = await call_next(request)
        else:
            response = PlainTextResponse(
                "this panel answers to an IP address, localhost, its machine's name and its panel_host\n", 421
            )
        response.headers.update(self._headers)
        return response

    def _is_own(self, host: str) -> bool:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return host in self._own
        return True
