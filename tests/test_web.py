"""The HTTP servers of the panel and of the metrics, under connections that bring no request."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import select
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from council import Case, Council, Opinion, SeatConfig
from council.gateway import web
from council.gateway.panel import Server as Panel
from tests.patience import HANG_S, until

HALF_OPEN = 1_500


def agree(case: Case) -> Opinion:
    return Opinion.yes("yes")


@pytest.fixture
def many() -> Iterator[int]:
    """As many connections as an attack had, or as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = HALF_OPEN + 2 * web.OPEN_MAX + 300
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    yield HALF_OPEN - (wanted - allowed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(params=["panel", "metrics"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """What the panel and the metrics are served at."""
    if request.param == "metrics":
        seats = [SeatConfig(name=name, mind=agree) for name in ("prime", "lite", "codemind")]
        with Council.inline(seats=seats, store="memory", metrics_port=0) as council:
            yield council.status()["metrics"]["url"]
        return

    async def ask() -> Mapping[str, Any]:
        raise AssertionError("nobody asks for its figures")

    panel = Panel(ask, "seen", "a token", "127.0.0.1", 0)
    yield panel.url
    panel.close()


@contextlib.contextmanager
def half_open(url: str, count: int) -> Iterator[list[socket.socket]]:
    """So many connections whose request never ends."""
    place = urllib.parse.urlsplit(url)
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            each = socket.create_connection((place.hostname, place.port), HANG_S)
            opened.append(each)
            each.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        yield opened
    finally:
        for each in opened:
            each.close()


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=HANG_S) as answer:
            code: int = answer.status
            return code
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def closed(opened: list[socket.socket]) -> int:
    """How many of these the server has closed; it has sent nothing."""
    asked = select.poll()
    for each in opened:
        asked.register(each, select.POLLIN)
    return len(asked.poll(0))


def test_half_open_requests_keep_nobody_away(url: str, many: int) -> None:
    """Mutation: wait for each request without end, on a thread of its own or within a fixed number."""
    assert status(url) == 200
    threads = threading.active_count()
    with half_open(url, many) as opened:
        assert status(url) == 200
        until(lambda: closed(opened) >= many - web.OPEN_MAX)
        assert threading.active_count() <= threads + 2
        assert closed(opened) < many, "those that fit are left their time"


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET / HTTP/1.1\r\nHost: x", b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nx"],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_request_that_does_not_end_in_time_is_closed(
    url: str, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "EXCHANGE_S", 0.05)
    place = urllib.parse.urlsplit(url)
    with socket.create_connection((place.hostname, place.port), HANG_S) as half:
        half.sendall(begun)
        while half.recv(4_096):  # an answer to what came, then the end
            pass


def test_a_request_that_is_answered_keeps_its_place() -> None:
    """Mutation: close the oldest connection, whatever it waits for."""
    asked, answered = threading.Event(), threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        await asyncio.to_thread(answered.wait, HANG_S)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    listener = web.listening("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server = web.AppServer(app, listener, "served")
    found: list[int] = []
    client = threading.Thread(target=lambda: found.append(status(address)))
    client.start()
    try:
        assert asked.wait(HANG_S)
        with half_open(address, web.OPEN_MAX + 50) as opened:
            until(lambda: closed(opened) >= 51)
            answered.set()
            client.join(HANG_S)
            assert found == [200]
    finally:
        answered.set()
        server.close()
