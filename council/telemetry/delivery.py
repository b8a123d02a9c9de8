"""Delivers notices to a command or to a webhook, each on a thread of its own.

A channel delivers in order, and at least once. It tries a notice again after pauses, then logs that it is lost and
goes on with the next one. Neither a command that hangs nor a webhook that is away delays the council.

A webhook gets the headers ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature`` of the Standard Webhooks
specification: ``v1,`` and the Base64 of the HMAC-SHA256 of ``id.timestamp.body`` under the key.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import http.client
import json
import os
import queue
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from council.agents.messaging.logs import get_logger

log = get_logger("council")

# The pauses in seconds before each further attempt: about two and a half minutes in all.
PAUSES_S = (1.0, 5.0, 30.0, 120.0)
# Notices that wait in one channel. With more, the newest are lost, and the log says so.
WAITING_MAX = 1_000
# How long the end of a council waits for notices that are still to be delivered.
CLOSE_S = 5.0
# Characters of a command's standard error that are logged.
STDERR_BYTES_MAX = 2_000

Notice = Mapping[str, Any]


class Channel:
    """A queue of notices, and the thread that delivers them.

    ``deliver`` raises OSError or ValueError if a notice was not delivered; ``shown`` names the receiver in the log.
    """

    def __init__(
        self, shown: str, deliver: Callable[[Notice], None], pauses_s: Sequence[float] = PAUSES_S
    ) -> None:
        self._shown = shown
        self._deliver = deliver
        self._pauses_s = tuple(pauses_s)
        self._queue: queue.Queue[Notice | None] = queue.Queue(WAITING_MAX)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"council-notify-{shown}", daemon=True)
        self._thread.start()

    def send(self, notice: Notice) -> None:
        """Queues a notice. Never waits."""
        try:
            self._queue.put_nowait(notice)
        except queue.Full:
            log.error("notice lost: too many wait", channel=self._shown, notice=notice["id"])

    def close(self, within_s: float = CLOSE_S) -> None:
        """Tries each waiting notice once more, for ``within_s`` seconds at most, and ends the thread."""
        self._closing.set()
        with contextlib.suppress(queue.Full):  # then the thread ends once it has emptied the queue
            self._queue.put_nowait(None)
        self._thread.join(within_s)
        if self._thread.is_alive():
            log.error("notices lost: the council has ended", channel=self._shown, waiting=self._queue.qsize())

    def _run(self) -> None:
        while True:
            try:
                notice = self._queue.get(timeout=0 if self._closing.is_set() else None)
            except queue.Empty:
                return
            if notice is None:
                return
            self._attempt(notice)

    def _attempt(self, notice: Notice) -> None:
        for pause_s in (*self._pauses_s, None):
            last = pause_s is None or self._closing.is_set()
            try:
                return self._deliver(notice)
            except (OSError, ValueError) as error:
                why = f"{type(error).__name__}: {error}"
            if last:
                break
            log.warning("notice not delivered yet", channel=self._shown, notice=notice["id"], why=why)
            self._closing.wait(pause_s)
        log.error("notice lost", channel=self._shown, notice=notice["id"], why=why)


def to_command(arguments: Sequence[str], timeout_s: float) -> Callable[[Notice], None]:
    """Runs a command for each notice, with the notice as JSON on its standard input.

    It fails if the command does not start, ends with another code than 0, or runs longer than ``timeout_s``; then it
    is ended. What it leaves in its process group is ended in any case.
    """

    def deliver(notice: Notice) -> None:
        with tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(
                [*arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                process.communicate(_body(notice), timeout_s)
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"the command ran longer than {timeout_s:g} s and was ended") from None
            finally:
                _end(process)
            if process.returncode:
                stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - STDERR_BYTES_MAX))
                said = stderr.read().decode(errors="replace").strip()
                raise OSError(f"the command ended with {process.returncode}: {said or 'it printed no error'}")

    return deliver


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a command and what it left in its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def to_webhook(url: str, key: bytes, timeout_s: float) -> Callable[[Notice], None]:
    """Posts each notice as JSON, signed with ``key``. It follows no redirect.

    It fails for each answer but 2xx, and if connecting, sending or the answer takes longer than ``timeout_s``.
    """
    opener = urllib.request.build_opener(_NoRedirect, _Http, _Https)

    def deliver(notice: Notice) -> None:
        body, at = _body(notice), str(int(time.time()))
        signed = b".".join((notice["id"].encode(), at.encode(), body))
        headers = {
            "content-type": "application/json",
            "user-agent": "council-runtime",
            "webhook-id": notice["id"],
            "webhook-timestamp": at,
            "webhook-signature": f"v1,{base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()}",
        }
        request = urllib.request.Request(url, body, headers, method="POST")
        try:
            opener.open(request, timeout=timeout_s).close()
        except urllib.error.HTTPError as error:
            with error:
                raise OSError(f"the webhook answered {error.code} {error.reason}") from None
        except urllib.error.URLError as error:
            raise OSError(f"the webhook can't be reached: {error.reason}") from None
        except http.client.HTTPException as error:
            raise OSError(f"the webhook's answer is not HTTP: {error!r:.200}") from None

    return deliver


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so that a notice reaches only the address that the settings name."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _LimitedHTTP(http.client.HTTPConnection):
    """Waits for an answer no longer than its timeout, also if the answer comes byte by byte."""

    def getresponse(self) -> http.client.HTTPResponse:
        connected, late = self.sock, threading.Event()

        def end() -> None:
            late.set()
            with contextlib.suppress(OSError):  # it was closed just now
                connected.shutdown(socket.SHUT_RDWR)

        limit = threading.Timer(self.timeout or 0, end)
        limit.daemon = True
        limit.start()
        try:
            response = super().getresponse()
        except (OSError, http.client.HTTPException):
            if not late.is_set():
                raise
        finally:
            limit.cancel()
        if late.is_set():
            raise TimeoutError(f"the webhook did not answer within {self.timeout:g} s")
        return response


class _LimitedHTTPS(_LimitedHTTP, http.client.HTTPSConnection):
    pass


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_LimitedHTTP, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_LimitedHTTPS, req)


def _body(notice: Notice) -> bytes:
    return json.dumps(notice, ensure_ascii=False).encode(errors="backslashreplace")
