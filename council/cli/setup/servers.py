"""Asks OpenAI-compatible servers which models they have, and how much each may read. Sends no prompt.

The caller gives the time at which all must be over, however slow a server is; later answers do not count.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from council.agents.llm.endpoint import is_loopback
from council.kinds.text import line
from council.protocol.errors import Unreachable

# Where they listen unless told otherwise.
LOCAL = ("http://127.0.0.1:11434/v1", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8080/v1")
ANSWER_BYTES_MAX = 4 * 2**20  # of hundreds of models, each with a page about it
MODELS_MAX = 2_000
# A name that goes into a file of settings and onto a terminal as it is.
_NAME = re.compile(r"[\x21-\x7e]{1,128}")
_KINDS = {"library": "Ollama", "vllm": "vLLM", "llamacpp": "llama.cpp"}
_OLLAMAS_PORT = 11434
# Under these servers tell how many tokens a model may read and write together.
_WINDOWS = ("max_model_len", "context_length", "context_window", "max_context_length")


@dataclass(frozen=True, slots=True)
class Window:
    """How many tokens a model reads and writes together: as its server runs it, and as it was trained, if told."""

    given: int | None = None
    trained: int | None = None

    @property
    def tokens(self) -> int | None:
        return self.given or self.trained


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server says that it has; ``kind`` is which server it is, in words."""

    base_url: str
    kind: str
    models: Mapping[str, Window]

    def window(self, model: str) -> Window | None:
        """The window of a model, None if there is no such model. Ollama's names may lack what says the newest."""
        return self.models.get(model, self.models.get(f"{model}:latest"))


def ask(base_url: str, key: str | None, until_s: float) -> Listing:
    """What a server has, asked until that moment of the monotonic clock. Raises Unreachable, without the key."""
    base_url = base_url.rstrip("/")
    document = _get(f"{base_url}/models", key, until_s)
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise _silent(
            base_url, "what answers there lists no models: is it the right address? It mostly ends in /v1"
        )
    found = [each for each in entries[:MODELS_MAX] if isinstance(each, dict) and _is_name(each.get("id"))]
    owners = {str(each.get("owned_by")).casefold() for each in found}
    kind = next((word for owner, word in _KINDS.items() if owner in owners), "")
    if not kind and urlsplit(base_url).port == _OLLAMAS_PORT:
        kind = "Ollama"
    models = {each["id"]: _window(each, is_given=kind != "Ollama") for each in found}
    if kind == "Ollama" and key is None:
        models |= _running(base_url, models, until_s)
    elif kind == "llama.cpp" and len(models) == 1:
        models = {name: _narrowed(base_url, window, key, until_s) for name, window in models.items()}
    return Listing(base_url, kind or "a server", models)


def ask_all(asked: Mapping[str, str | None], within_s: float) -> dict[str, Listing | Unreachable]:
    """What each of these servers has, or why that is not known, all asked at once, each with the key given."""
    until_s = time.monotonic() + within_s
    found: dict[str, Listing | Unreachable] = {}

    def one(base_url: str, key: str | None) -> None:
        try:
            found[base_url] = ask(base_url, key, until_s)
        except Unreachable as error:
            found[base_url] = error

    # None is waited for at the end of the program, as those of a pool are.
    threads = [threading.Thread(target=one, args=each, daemon=True) for each in asked.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(until_s - time.monotonic(), 0))
    return {each: found.get(each) or _silent(each, "it did not answer in time") for each in asked}


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _window(entry: Mapping[str, Any], *, is_given: bool) -> Window:
    """``is_given`` off: what the list tells is what the model could read, not what its server lets it."""
    meta = entry.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    listed = next((found for key in _WINDOWS if (found := _tokens(entry.get(key)))), None)
    own, trained = _tokens(meta.get("n_ctx")), _tokens(meta.get("n_ctx_train"))
    return Window(own or listed, trained) if is_given else Window(own, trained or listed)


def _tokens(value: Any) -> int | None:
    return value if type(value) is int and 0 < value <= 10**9 else None


def _running(base_url: str, models: Mapping[str, Window], until_s: float) -> dict[str, Window]:
    """The windows of the models that Ollama has in memory: it gives most of them far less than they could read."""
    try:
        document = _get(f"{base_url.removesuffix('/v1')}/api/ps", None, until_s)
    except Unreachable:
        return {}
    entries = document.get("models") if isinstance(document, dict) else None
    return {
        each["model"]: Window(given, models[each["model"]].trained)
        for each in (entries if isinstance(entries, list) else ())
        if isinstance(each, dict)
        and each.get("model") in models
        and (given := _tokens(each.get("context_length")))
    }


def _narrowed(base_url: str, window: Window, key: str | None, until_s: float) -> Window:
    """The window that llama.cpp gives its one model, where its list tells only what the model was trained for."""
    if window.given is not None:
        return window
    try:
        document = _get(f"{base_url.removesuffix('/v1')}/props", key, until_s)
    except Unreachable:
        return window
    own = document.get("default_generation_settings") if isinstance(document, dict) else None
    return Window(_tokens(own.get("n_ctx")) if isinstance(own, dict) else None, window.trained)


class _Stays(urllib.request.HTTPRedirectHandler):
    """A key goes where it was meant to, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _get(url: str, key: str | None, until_s: float) -> Any:
    """A JSON document. Raises Unreachable."""
    # No proxy knows the servers of this machine.
    proxies = [urllib.request.ProxyHandler({})] if is_loopback(url) else []
    headers = {"accept": "application/json"} | ({} if key is None else {"authorization": f"Bearer {key}"})
    try:
        request = urllib.request.Request(url, headers=headers)
        opener = urllib.request.build_opener(_Stays, *proxies)
        with opener.open(request, timeout=_left_s(until_s)) as response:
            data = b""
            while part := response.read1(2**16):
                data += part
                _left_s(until_s)
                if len(data) > ANSWER_BYTES_MAX:
                    raise ValueError("it does not stop")
        return json.loads(data)
    except urllib.error.HTTPError as error:
        wants = "it wants a key" if key is None else "it refuses the key"
        why = f"{wants} ({error.code})" if error.code in (401, 403) else f"it answered {error.code}"
        raise _silent(url, why, error.code) from None
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        cause = getattr(error, "reason", None) or error
        why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        raise _silent(url, line(str(why), 200)) from None


def _left_s(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("it did not answer in time")
    return left_s


def _silent(url: str, why: str, status: int | None = None) -> Unreachable:
    return Unreachable(f"no OpenAI-compatible server at {url}: {why}", address=url, status=status)
