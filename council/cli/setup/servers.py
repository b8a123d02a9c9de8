"""Asks OpenAI-compatible servers which models they have, and how much each may read. Sends no prompt."""

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

# The usual addresses of Ollama, vLLM and llama.cpp.
LOCAL = ("http://127.0.0.1:11434/v1", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8080/v1")
ANSWER_BYTES_MAX = 4 * 2**20  # of hundreds of models, each with a page about it
MODELS_MAX = 2_000
# A name goes into a settings file and onto a terminal as it is.
_NAME = re.compile(r"[\x21-\x7e]{1,128}")
_KINDS = {"library": "Ollama", "vllm": "vLLM", "llamacpp": "llama.cpp"}
_OLLAMAS_PORT = 11434
# The keys that servers use for the number of tokens that a model reads and writes together.
_WINDOWS = ("max_model_len", "context_length", "context_window", "max_context_length")


@dataclass(frozen=True, slots=True)
class Listing:
    """The models of a server, each with its window in tokens as the server runs it, or None if that is unknown."""

    base_url: str
    kind: str
    models: Mapping[str, int | None]

    def has(self, model: str) -> bool:
        return self._name(model) in self.models

    def window(self, model: str) -> int | None:
        return self.models.get(self._name(model))

    def _name(self, model: str) -> str:
        """Ollama lists the newest version as ``model:latest``, and takes the name without it."""
        return model if model in self.models else f"{model}:latest"


def ask(base_url: str, key: str | None, timeout_s: float) -> Listing:
    """The models of a server. Raises Unreachable, whose message never shows the key."""
    base_url = base_url.rstrip("/")
    document = _get(f"{base_url}/models", key, timeout_s)
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        why = "it answers, but lists no models: is the address right? Most addresses end in /v1"
        raise _unreachable(base_url, why)
    found = [each for each in entries[:MODELS_MAX] if isinstance(each, dict) and _is_name(each.get("id"))]
    owners = {str(each.get("owned_by")).casefold() for each in found}
    kind = next((word for owner, word in _KINDS.items() if owner in owners), None)
    if kind is None:
        kind = "Ollama" if urlsplit(base_url).port == _OLLAMAS_PORT else "a server"
    if kind != "Ollama":
        return Listing(base_url, kind, {each["id"]: _window(each) for each in found})
    windows: dict[str, int | None] = {each["id"]: None for each in found}
    if key is None:  # Ollama itself takes no key, so the key is for what is in front of it
        windows |= _loaded(base_url, timeout_s)
    return Listing(base_url, kind, windows)


def ask_all(asked: Mapping[str, str | None], timeout_s: float) -> dict[str, Listing | Unreachable]:
    """Asks all these servers at once, each with its key. Gives each one's models, or why they are unknown."""
    until_s = time.monotonic() + timeout_s
    found: dict[str, Listing | Unreachable] = {}

    def ask_one(base_url: str, key: str | None) -> None:
        try:
            found[base_url] = ask(base_url, key, timeout_s)
        except Unreachable as error:
            found[base_url] = error

    # Daemon threads, because the end of the program would wait for those of a pool.
    threads = [threading.Thread(target=ask_one, args=each, daemon=True) for each in asked.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(until_s - time.monotonic(), 0))
    return {url: found.get(url) or _unreachable(url, "it did not answer in time") for url in asked}


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _window(entry: Mapping[str, Any]) -> int | None:
    """The window that an entry of the list gives; of llama.cpp the one it runs with, not the one of the training."""
    meta = entry.get("meta")
    values = [meta.get("n_ctx") if isinstance(meta, dict) else None, *map(entry.get, _WINDOWS)]
    return next((value for value in values if _is_window(value)), None)


def _is_window(value: Any) -> bool:
    return type(value) is int and 0 < value <= 10**9


def _loaded(base_url: str, timeout_s: float) -> dict[str, int | None]:
    """The windows of the models that Ollama has loaded. They are far smaller than what most models could read."""
    try:
        document = _get(f"{base_url.removesuffix('/v1')}/api/ps", None, timeout_s)
    except Unreachable:
        return {}
    entries = document.get("models") if isinstance(document, dict) else None
    return {
        each["model"]: each["context_length"]
        for each in (entries if isinstance(entries, list) else ())
        if isinstance(each, dict) and _is_name(each.get("model")) and _is_window(each.get("context_length"))
    }


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would send the key to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _get(url: str, key: str | None, timeout_s: float) -> Any:
    """Gets a JSON document. Raises Unreachable."""
    until_s = time.monotonic() + timeout_s
    proxies = (
        [urllib.request.ProxyHandler({})] if is_loopback(url) else []
    )  # a proxy can't reach this machine
    headers = {"accept": "application/json"} | ({} if key is None else {"authorization": f"Bearer {key}"})
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.build_opener(_NoRedirect, *proxies).open(request, timeout=timeout_s) as response:
            data = b""
            while part := response.read1(2**16):
                data += part
                if len(data) > ANSWER_BYTES_MAX:
                    raise ValueError(f"its answer is longer than {ANSWER_BYTES_MAX:,} bytes")
                if time.monotonic() > until_s:  # timeout_s of the socket is for each read
                    raise TimeoutError("it did not answer in time")
        return json.loads(data)
    except urllib.error.HTTPError as error:
        wants = "it wants a key" if key is None else "it refuses the key"
        why = f"{wants} ({error.code})" if error.code in (401, 403) else f"it answered {error.code}"
        raise _unreachable(url, why, error.code) from None
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        cause = getattr(error, "reason", None) or error
        why = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        raise _unreachable(url, line(str(why), 200)) from None


def _unreachable(url: str, why: str, status: int | None = None) -> Unreachable:
    return Unreachable(f"no OpenAI-compatible server at {url}: {why}", address=url, status=status)
