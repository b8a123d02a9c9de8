"""A model on a server: its address, options, prices, and the place of its key.

A key is read from the environment, or from a file that only its owner may read, each time it is needed. It is never
stored: an endpoint holds only names, so it may be shown, pickled and journaled.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from council.agents.messaging import spans
from council.agents.mind import Cost
from council.protocol.errors import ConfigError, ModelError

# How a server enforces the answer's JSON Schema. "auto" finds out what the server supports, beginning with the
# strictest.
AnswerFormat = Literal["auto", "json_schema", "json_object", "text"]

KEY_CHARS_MAX = 4_096  # longer than any key; a wrong path may name any file
# Servers require some key, even if they do not check it.
NO_KEY = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A model, and how it is called.

    ``base_url`` is the base of the OpenAI API's paths; most end in ``/v1``. The key is in the variable
    ``api_key_env`` or the file ``api_key_file``; without both, the server gets none. ``temperature`` and ``top_p``
    are the server's defaults if they are None. ``timeout_s`` is how many seconds a server may be silent.
    ``max_execution_time_s`` is the limit for all the work on one case; None means the case's time. Prices are in
    dollars for a million tokens; None means free. ``provider`` names the server's API, as pydantic-ai does; None
    means OpenAI's.
    """

    model: str
    base_url: str
    api_key_env: str | None = None
    api_key_file: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int = 2_048
    timeout_s: float = 60.0
    max_execution_time_s: float | None = None
    usd_per_million_input: float | None = None
    usd_per_million_output: float | None = None
    answer_format: AnswerFormat = "auto"
    provider: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or "@" in parts.netloc or parts.query:
            problem = (
                f"base_url of {self.model}: expected http:// or https://, without name, password and query"
            )
            raise ConfigError(problem, problems=(problem,))  # without the URL, which may hold a password

    def __str__(self) -> str:
        return f"{self.model} at {self.base_url}"

    def cost(self, input_tokens: int, output_tokens: int) -> Cost:
        """The cost of that many tokens. Money is rounded up; dollars a million are millionths of a dollar each."""
        prices = (self.usd_per_million_input, self.usd_per_million_output)
        # Through the text, so that 0.15 is exactly 0.15.
        rates = [Decimal(0 if price is None else repr(price)) for price in prices]
        return Cost(
            input_tokens + output_tokens,
            math.ceil(rates[0] * input_tokens + rates[1] * output_tokens),
            output_tokens,
        )

    def key(self) -> str:
        """Reads the key. Raises ModelError, which never shows it, if there is none or it is invalid."""
        if self.api_key_env is not None:
            key, where = os.environ.get(self.api_key_env, ""), f"the variable {self.api_key_env}"
        elif self.api_key_file is not None:
            key, where = self._key_in_file(self.api_key_file), f"the file {self.api_key_file}"
        else:
            return NO_KEY
        key = key.strip()
        if not key:
            raise self.error(f"{where} should hold its key, and is not set or empty")
        if not (key.isascii() and key.isprintable() and " " not in key and len(key) <= KEY_CHARS_MAX):
            raise self.error(f"{where} holds no key: expected one line of ASCII without blanks")
        return key

    def _key_in_file(self, name: str) -> str:
        try:
            # Without waiting, in case it is a pipe that has no writer. Windows has no such pipes.
            handle = os.open(Path(name).expanduser(), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(handle, "rb") as file:
                about = os.fstat(handle)
                if not stat.S_ISREG(about.st_mode):
                    raise self.error(f"the file {name} should hold its key, and is no plain file")
                if os.name != "nt" and about.st_mode & 0o077:
                    raise self.error(f"the file {name} with its key is open to others: chmod 600 it")
                return file.read(KEY_CHARS_MAX + 2).decode("ascii", errors="replace")
        except OSError as error:
            raise self.error(f"the file {name} with its key can't be read: {error.strerror}") from None

    @property
    def key_in_clear(self) -> bool:
        """Whether its key would be sent over a network without encryption."""
        named = self.api_key_env or self.api_key_file
        return (
            named is not None and urlsplit(self.base_url).scheme == "http" and not is_loopback(self.base_url)
        )

    def error(self, what: str, status: int | None = None) -> ModelError:
        """A ModelError that names this model."""
        return ModelError(f"{self}: {what}", model=self.model, where=self.base_url, status=status)


def shared(
    seats: Iterable[tuple[str, str | None, str | None, str | None]],
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The seats that share a model, vendor or server, as ``(label, seats)`` (rules 1.1).

    Each seat is a tuple of name, model, vendor and base_url; None for unknown. Models are equal if their names
    without folder are, ignoring case: ``openai/gpt-4o`` is ``gpt-4o``. Labels show the first seat's spelling.
    """
    groups: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for name, model, vendor, base_url in seats:
        server = None if base_url is None else urlsplit(base_url).netloc.rpartition("@")[2]
        for kind, label in (("model", model), ("vendor", vendor), ("server", server)):
            if label is not None:
                same = label.casefold().rpartition("/")[2] if kind == "model" else label.casefold()
                groups.setdefault((kind, same), (f"{kind} {label}", []))[1].append(name)
    return tuple((label, tuple(names)) for label, names in groups.values() if len(names) > 1)


def is_loopback(base_url: str) -> bool:
    """Whether an address is this machine's own, and not a name that only looks so."""
    host = urlsplit(base_url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# The conventions' names of providers, if pydantic-ai's differ.
_PROVIDERS = {
    None: "openai",  # or any other server with its API
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "grok": "x_ai",
    "xai": "x_ai",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
}
_PORTS = {"http": 80, "https": 443}


def chat(endpoint: Endpoint, task: str) -> contextlib.AbstractContextManager[object]:
    """The span of one attempt to get an answer from a model; nothing if the current work has no span.

    Each attempt has its own span, because each is reserved and settled by itself (rules 2.6). OpenTelemetry's
    conventions would have one span for all of them. The trace is not sent to the model's server.
    """
    around = spans.current.get()
    if around is None:
        return contextlib.nullcontext()
    server = urlsplit(endpoint.base_url)
    attributes: dict[str, Any] = {
        spans.OPERATION: spans.CHAT,
        spans.PROVIDER: _PROVIDERS.get(endpoint.provider, endpoint.provider),
        spans.REQUEST_MODEL: endpoint.model,
        spans.REQUEST_MAX_TOKENS: endpoint.max_output_tokens,
        spans.REQUEST_STREAM: True,
        spans.REQUEST_TEMPERATURE: endpoint.temperature,
        spans.REQUEST_TOP_P: endpoint.top_p,
        spans.SERVER_ADDRESS: server.hostname or "",
        spans.SERVER_PORT: server.port or _PORTS[server.scheme],
        spans.TASK: task,
    }
    return around.span(f"{spans.CHAT} {endpoint.model}", spans.known(attributes), is_call=True)
