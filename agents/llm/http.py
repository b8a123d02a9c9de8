"""The HTTP client of one endpoint: trusted certificates, time-outs and limits on size.

No connection outlives the calls that need it. Clients are not pickled: each process makes its own.
"""

from __future__ import annotations

import email.utils
import math
import ssl
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from council.agents.llm.endpoint import Endpoint, is_loopback

if TYPE_CHECKING:
    import httpx2

# A token arrives as an event with names and ids around it: some hundred bytes.
BYTES_A_TOKEN_MAX = 2_048
BYTES_MAX = 2**20
CONNECT_S = 10.0
# The headers that are sent. SDKs add headers from variables meant for one server, maybe a key, to all requests.
HEADERS = frozenset({"accept", "accept-encoding", "authorization", "connection", "content-length"})
HEADERS |= {"content-type", "host", "transfer-encoding", "user-agent"}


class TooMuch(Exception):
    """A server's answer is too long."""


def trusted(base_url: str) -> ssl.SSLContext | bool:
    """The trusted certificates, if the URL needs any. Reading them takes a while."""
    import httpx2

    return httpx2.create_ssl_context() if urlsplit(base_url).scheme == "https" else False


def new_client(
    endpoint: Endpoint, tls: ssl.SSLContext | bool, prepare: Callable[[httpx2.Request], None]
) -> httpx2.AsyncClient:
    """A client for this endpoint alone. ``prepare`` may change the request last."""
    import httpx2

    bytes_max = BYTES_MAX + BYTES_A_TOKEN_MAX * endpoint.max_output_tokens

    async def bounded(response: httpx2.Response) -> None:
        response.stream = Bounded(response.stream, bytes_max)

    async def prepared(request: httpx2.Request) -> None:
        prepare(request)

    class Bounded(httpx2.AsyncByteStream):
        """A body of limited size. Above the limit it raises an error."""

        def __init__(self, body: Any, left: int) -> None:
            self._body, self._left = body, left

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for data in self._body:
                self._left -= len(data)
                if self._left < 0:
                    raise TooMuch
                yield data

        async def aclose(self) -> None:
            await self._body.aclose()

    return httpx2.AsyncClient(
        verify=tls,
        timeout=httpx2.Timeout(endpoint.timeout_s, connect=min(CONNECT_S, endpoint.timeout_s), pool=None),
        follow_redirects=False,  # a key is sent only to the configured server
        trust_env=not is_loopback(endpoint.base_url),  # a proxy can't reach this machine's own servers
        event_hooks={"request": [prepared], "response": [bounded]},
        headers={"accept-encoding": "identity"},  # so that the counted bytes are the received ones
    )


def retry_after_s(headers: Any) -> float | None:
    """The pause in seconds that the server asks for, if any: in milliseconds, in seconds or by a date."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
            except (ValueError, OverflowError):
                continue
        if not math.isnan(seconds):
            return max(seconds, 0.0)
    return None
