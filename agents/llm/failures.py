"""Interprets a server's errors: what failed and how to correct it, the cost, and whether to retry."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from council.agents.llm import http
from council.agents.llm.endpoint import NO_KEY, Endpoint
from council.agents.messaging import spans
from council.agents.mind import Cost
from council.protocol.errors import ModelError
from council.protocol.values import quoted

TIMEOUT = "timeout"
SAID_CHARS_MAX = 300  # of a server's message, in an error
# A text that begins like the key is the key, or the part that a server shows.
KEY_SHOWN_MAX = 8
TOO_LONG = "the prompt is too long for it"
# Words of a refusal that means that a prompt is too long.
_OF_A_LENGTH = ("context_length", "context length", "context size", "context window", "maximum context")
# Statuses of a server that did no work: it is starting, or overloaded. A gateway's bare 503 may come after the server
# has worked.
_BUSY = (503, 529)
_OF_TOO_MUCH = ("loading", "overload", "capacity", "busy", "not ready")


class CallFailed(Exception):
    """A call failed. ``used`` is its cost, None if unknown. ``after_s`` is the pause that the server asks for.

    ``error_type`` is the kind of failure, a word or the status, for the attempt's span and settlement.
    """

    def __init__(
        self,
        what: str,
        *,
        again: bool,
        used: Cost | None,
        after_s: float | None = None,
        status: int | None = None,
        kind: str = spans.OTHER,
    ) -> None:
        super().__init__(what)
        self.what, self.again, self.used, self.after_s, self.status = what, again, used, after_s, status
        self.error_type = kind if status is None else str(status)


NOTHING = Cost(0)  # the cost of a call that the server did not begin


def unreached(endpoint: Endpoint, *, began: bool, silent: bool) -> CallFailed:
    """No connection, or it was lost. ``began``: the server may have got the request."""
    if not began:
        what = "it can't be reached: is the server running, and its base_url right?"
    elif silent:
        what = f"it was silent for {endpoint.timeout_s:g} s (timeout_s)"
    else:
        what = "the connection broke"
    kind = TIMEOUT if began and silent else "connection_error"
    return CallFailed(what, again=True, used=None if began else NOTHING, kind=kind)


def broken(endpoint: Endpoint, error: Any) -> CallFailed:
    """The server sent an error in place of the rest of the answer."""
    return CallFailed(
        f"it failed in the middle of its answer{_server_message(endpoint, error)}", again=True, used=None
    )


def refused(endpoint: Endpoint, error: Any) -> CallFailed:
    """The meaning of a status other than success."""
    status: int = error.status_code
    said, after_s = _server_message(endpoint, error), http.retry_after_s(error.response.headers)
    about = f"{said} {error.code or ''}".casefold()
    idle = status in _BUSY and (after_s is not None or any(word in about for word in _OF_TOO_MUCH))
    used = NOTHING if idle or (status < 500 and status != 408) else None
    again = status in (408, 409, 425, 429) or status >= 500
    if status in (401, 403):  # without the server's message, which may show the key
        which = endpoint.api_key_env or endpoint.api_key_file
        what = f"it refuses the key ({status})" if which else f"it wants a key ({status}): set api_key_env"
        what += f": see {which}" if which else ""
    elif status == 429 and "quota" in about:
        what, again = f"its quota is used up ({status}){said}", False
    elif status == 429:
        what = f"it is asked too often ({status}){said}"
    elif any(word in about for word in _OF_A_LENGTH):
        what = f"{TOO_LONG} ({status}): lower max_context_tokens{said}"
    elif status == 404:
        what = f"it does not know the model, or the path ({status}){said}"
    elif 300 <= status < 400:
        what = f"it sends elsewhere ({status}): set base_url to where it leads"
    else:
        what = f"it answered {status}{said}"
    return CallFailed(what, again=again, used=used, after_s=after_s, status=status)


def _server_message(endpoint: Endpoint, error: Any) -> str:
    """The server's own message."""
    body = error.body
    said = body.get("message") if isinstance(body, dict) else None
    words = without_key(endpoint, str(said if isinstance(said, str) else error.message))
    return f"; it says {quoted(words, SAID_CHARS_MAX)}" if words else ""


def without_key(endpoint: Endpoint, words: str) -> str:
    """The message without the key, or without all but its end, in case the server shows it."""
    with contextlib.suppress(ModelError):
        key = endpoint.key()
        words = words if key == NO_KEY else re.sub(re.escape(key[:KEY_SHOWN_MAX]) + r"\S*", "…", words)
    return words
