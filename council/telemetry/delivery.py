"""Delivers notices to a command or to a webhook, each on a thread of its own.

A channel delivers in order, and at least once. It tries a notice again after pauses, then logs that it is lost and
goes on with the next one. Neither a command that hangs nor a webhook that is away delays the council. With a
``Spool``, notices that wait outlast the process, and lost ones can be read and sent again.

A webhook gets the headers ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature`` of the Standard Webhooks
specification: ``v1,`` and the Base64 of the HMAC-SHA256 of ``id.timestamp.body`` under the key.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import http.client
import itertools
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
from pathlib import Path
from typing import Any

from council.action.redact import Filter
from council.agents.messaging.logs import get_logger
from council.protocol.errors import CouncilError

log = get_logger("council")

# The pauses in seconds before each further attempt: about two and a half minutes in all.
PAUSES_S = (1.0, 5.0, 30.0, 120.0)
# Notices that wait in one channel. With more, the newest are lost, and the log says so.
WAITING_MAX = 1_000
# How long the end of a council waits for notices that are still to be delivered.
CLOSE_S = 5.0
# Characters of a command's standard error that are logged.
STDERR_BYTES_MAX = 2_000

# Lost notices that a spool keeps. With more, the oldest are removed.
DEAD_MAX = 1_000
WHY_CHARS_MAX = 3_000

Notice = Mapping[str, Any]


class Spool:
    """A folder of notices that wait, a file for each, and its folder ``dead`` of those that were lost.

    To send a lost notice again, move its file up: it is sent when the council starts.
    """

    def __init__(self, folder: Path) -> None:
        """Raises OSError if the folder can't be made."""
        self.folder, self.dead = folder, folder / "dead"
        self.dead.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._numbers = itertools.count()

    def add(self, notice: Notice) -> Path:
        """Keeps a notice. Its file's name sorts after those of earlier ones."""
        path = self.folder / f"{time.time_ns():020}-{os.getpid()}-{next(self._numbers)}.json"
        self._write(path, {"notice": dict(notice)})
        return path

    def waiting(self) -> list[tuple[Notice, Path]]:
        """The notices that wait, the oldest first. A file that can't be read goes to ``dead``."""
        found: list[tuple[Notice, Path]] = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                notice = json.loads(path.read_bytes())["notice"]
                found.append(({**notice, "id": str(notice["id"])}, path))
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.error(
                    "a kept notice can't be read", file=str(path), why=f"{type(error).__name__}: {error}"
                )
                path.replace(self.dead / path.name)
        return found

    def bury(self, notice: Notice, path: Path, why: str) -> None:
        """Moves a lost notice to ``dead``, with the reason."""
        self._write(self.dead / path.name, {"notice": dict(notice), "why": why})
        path.unlink(missing_ok=True)
        for oldest in sorted(self.dead.glob("*.json"))[:-DEAD_MAX]:
            oldest.unlink(missing_ok=True)

    @staticmethod
    def _write(path: Path, content: Mapping[str, Any]) -> None:
        partial = path.with_suffix(".partial")
        partial.write_bytes(body_of(content))
        partial.replace(path)


class Channel:
    """A queue of notices, and the thread that delivers them.

    ``deliver`` raises OSError or ValueError if a notice was not delivered; ``shown`` names the receiver in the log.
    """

    def __init__(
        self,
        shown: str,
        deliver: Callable[[Notice], None],
        pauses_s: Sequence[float] = PAUSES_S,
        spool: Spool | None = None,
    ) -> None:
        self._shown = shown
        self._deliver = deliver
        self._pauses_s = tuple(pauses_s)
        self._spool = spool
        self._queue: queue.Queue[tuple[Notice, Path | None] | None] = queue.Queue(WAITING_MAX)
        for kept in spool.waiting() if spool else ():
            self._put(*kept)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"council-notify-{shown}", daemon=True)
        self._thread.start()

    def send(self, notice: Notice) -> None:
        """Queues a notice. Never waits, but for a spool's disk. Raises OSError if a spool can't keep it."""
        self._put(notice, self._spool.add(notice) if self._spool else None)

    def _put(self, notice: Notice, path: Path | None) -> None:
        try:
            self._queue.put_nowait((notice, path))
        except queue.Full:
            self._lose(notice, path, f"{WAITING_MAX:,} wait already")

    def _lose(self, notice: Notice, path: Path | None, why: str) -> None:
        log.error("notice lost", channel=self._shown, notice=notice["id"], why=why)
        if self._spool and path:
            self._spool.bury(notice, path, why)

    def close(self, within_s: float = CLOSE_S) -> None:
        """Tries each waiting notice once more, for ``within_s`` seconds at most, and ends the thread."""
        self._closing.set()
        with contextlib.suppress(queue.Full):  # then the thread ends once it has emptied the queue
            self._queue.put_nowait(None)
        self._thread.join(within_s)
        if self._thread.is_alive():
            what = "notices wait for the next start" if self._spool else "notices lost: the council has ended"
            log.error(what, channel=self._shown, waiting=self._queue.qsize())

    def _run(self) -> None:
        while True:
            try:
                waiting = self._queue.get(timeout=0 if self._closing.is_set() else None)
            except queue.Empty:
                return
            if waiting is None:
                return
            try:
                self._attempt(*waiting)
            except OSError as error:  # of the spool: it is full, or gone
                log.error("a notice can't be kept", channel=self._shown, why=str(error))

    def _attempt(self, notice: Notice, path: Path | None) -> None:
        for pause_s in (*self._pauses_s, None):
            ends = self._closing.is_set()
            try:
                self._deliver(notice)
            except (OSError, ValueError) as error:
                why = f"{type(error).__name__}: {error}"
            else:
                if path:
                    path.unlink(missing_ok=True)
                return
            if ends or pause_s is None:
                break
            log.warning("notice not delivered yet", channel=self._shown, notice=notice["id"], why=why)
            self._closing.wait(pause_s)
        if path is None or not ends:  # otherwise it waits for the next start
            self._lose(notice, path, why)


def redacting(deliver: Callable[[Notice], None], filter: Filter) -> Callable[[Notice], None]:
    """Delivers notices without secrets and personal data, and raises its errors without them (rules 3.4)."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return filter.redact(value).text
        if isinstance(value, Mapping):
            return {clean(key): clean(each) for key, each in value.items()}
        return [clean(each) for each in value] if isinstance(value, list | tuple) else value

    def redacted(notice: Notice) -> None:
        try:
            deliver({**clean(notice), "id": notice["id"]})
        except (OSError, ValueError, CouncilError) as error:
            raise OSError(clean(f"{type(error).__name__}: {error}"[:WHY_CHARS_MAX])) from None

    return redacted


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
                process.communicate(body_of(notice), timeout_s)
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


def signature(identity: str, body: bytes, key: bytes) -> dict[str, str]:
    """The headers that sign a body now."""
    at = str(int(time.time()))
    signed = b".".join((identity.encode(), at.encode(), body))
    return {
        "webhook-id": identity,
        "webhook-timestamp": at,
        "webhook-signature": f"v1,{base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()}",
    }


def to_webhook(url: str, key: bytes, timeout_s: float) -> Callable[[Notice], None]:
    """Posts each notice as JSON, signed with ``key``. It follows no redirect.

    It fails for each answer but 2xx, and if connecting, sending or the answer takes longer than ``timeout_s``.
    """
    opener = urllib.request.build_opener(_NoRedirect, _Http, _Https)

    def deliver(notice: Notice) -> None:
        body = body_of(notice)
        headers = {
            "content-type": "application/json",
            "user-agent": "council-runtime",
            **signature(notice["id"], body, key),
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


def body_of(notice: Notice) -> bytes:
    """A notice as JSON."""
    return json.dumps(notice, ensure_ascii=False).encode(errors="backslashreplace")
