"""A webhook's receiver on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.patience import HANG_S


class Hook:
    """A webhook's receiver on loopback. It answers with the next of ``answers``, then with 200."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                hook.requests.append(
                    ({k.lower(): v for k, v in self.headers.items()}, body)
                )  # it may be read at once
                code = hook.answers.pop(0) if hook.answers else 200
                self.send_response(code)
                if 300 <= code < 400:
                    self.send_header("location", hook.url + "/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def notices(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in [*self.requests]]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(HANG_S)


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    yield found
    found.close()
