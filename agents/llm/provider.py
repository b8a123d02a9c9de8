"""Calls a model whose server has its own API, by pydantic-ai (the extra ``pydantic-ai``).

Attempts, reservations, limits and errors are those of ``calls``. A provider is accepted only if it keeps the same
rules: its key and address come from the seat alone, its requests leave by our HTTP client, and its SDK does not
retry, because each attempt is reserved (rules 2.6).
"""

from __future__ import annotations

import inspect
import ssl
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from council.agents.llm import http as wire
from council.agents.llm.calls import (
    ATTEMPTS_MAX,
    Dialect,
    ModelCalls,
    OnPiece,
    Received,
)
from council.agents.llm.endpoint import Endpoint
from council.agents.llm.failures import NOTHING, CallFailed, broken, refused, unreached, without_key
from council.agents.prompting.prompt import Prompt

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters

_INSTALL = "pip install 'council-runtime[pydantic-ai]'"
# The headers in which providers expect their key. A key of another provider, from a variable that the SDK reads, is
# never sent.
_KEYS = frozenset({"api-key", "authorization", "x-api-key", "x-goog-api-key"})
_SENT = wire.HEADERS | _KEYS | {"anthropic-beta", "anthropic-version"}


def calls_for(endpoint: Endpoint, attempts_max: int = ATTEMPTS_MAX) -> ModelCalls:
    """The calls to an endpoint: by the OpenAI API, or by pydantic-ai if it names a provider."""
    if endpoint.provider is None:
        return ModelCalls(endpoint, attempts_max)
    return ProviderCalls(endpoint, attempts_max)


@dataclass(frozen=True, slots=True)
class _Client:
    """A model of pydantic-ai, and the client that sends its requests."""

    model: Model
    http: httpx2.AsyncClient

    async def close(self) -> None:
        await self.http.aclose()


class ProviderCalls(ModelCalls):
    """The calls to an endpoint that names a provider, with the rules of ``ModelCalls``."""

    def prepare(self) -> ssl.SSLContext | bool:
        _provider_class(self.endpoint)
        return wire.trusted(self.endpoint.base_url)

    def new_client(self, tls: ssl.SSLContext | bool) -> _Client:
        key = self.endpoint.key()

        def ours_alone(request: httpx2.Request) -> None:
            for name, value in list(request.headers.items()):
                if name not in _SENT or (name in _KEYS and key not in value):
                    del request.headers[name]

        http = wire.new_client(self.endpoint, tls, ours_alone)
        model = self._model(key, http)
        takes_schema = model.profile.get("supports_json_schema_output", False)
        if self.endpoint.answer_format == "auto" and not takes_schema:
            self.dialect = replace(self.dialect, form="text")
        return _Client(model, http)

    def _model(self, key: str, http: httpx2.AsyncClient) -> Model:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model

        endpoint = self.endpoint
        made = _provider_class(endpoint)
        try:
            return infer_model(
                f"{endpoint.provider}:{endpoint.model}",
                lambda _: made(api_key=key, base_url=endpoint.base_url, http_client=http),
            )
        except (UserError, ValueError, TypeError, ImportError) as error:
            what = f"pydantic-ai can't make it of provider {endpoint.provider}: {error}"
            raise endpoint.error(without_key(endpoint, what)) from None

    async def receive(
        self, client: _Client, dialect: Dialect, prompt: Prompt, received: Received, on_piece: OnPiece | None
    ) -> None:
        from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
        from pydantic_ai.settings import ModelSettings

        if dialect.form == "json_object":
            what = "pydantic-ai asks for JSON by a schema, json_schema, and not by json_object"
            raise CallFailed(what, again=False, used=NOTHING, status=501)
        endpoint = self.endpoint
        most = prompt.written_max(endpoint.max_output_tokens)
        settings = ModelSettings(max_tokens=most, timeout=endpoint.timeout_s, max_retries=0)
        if endpoint.temperature is not None:
            settings["temperature"] = endpoint.temperature
        if endpoint.top_p is not None:
            settings["top_p"] = endpoint.top_p
        form = _form(dialect, prompt)
        async with client.model.request_stream(_messages(prompt), settings, form) as stream:
            async for event in stream:
                piece = ""
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    piece = event.part.content
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    piece = event.delta.content_delta
                received.add(piece)
                if piece and on_piece is not None:
                    on_piece(piece)
            received.finish = stream.finish_reason
            usage = stream.usage
            received.usage = SimpleNamespace(
                prompt_tokens=usage.input_tokens,
                completion_tokens=usage.output_tokens,
                total_tokens=usage.total_tokens,
            )

    def failure(self, error: Exception) -> CallFailed | None:
        from pydantic_ai import exceptions

        if isinstance(error, exceptions.UserError):
            what = without_key(self.endpoint, f"pydantic-ai won't ask it: {error}")
            return CallFailed(what, again=False, used=NOTHING, status=501)
        if isinstance(error, exceptions.ModelConnectionError):
            began = error.phase not in ("pool", "connect")
            return unreached(
                self.endpoint, began=began, silent=isinstance(error, exceptions.ModelTimeoutError)
            )
        if not isinstance(error, exceptions.AgentRunError):
            return self._sdk_failure(error)
        body = getattr(error, "body", None)
        about = SimpleNamespace(
            body=body.get("error", body) if isinstance(body, dict) else None,
            message="",
            code=getattr(error, "provider_error_code", None),
        )
        # The SDK's error has the status of the server's answer. pydantic-ai also raises errors of its own from it.
        status = getattr(error.__cause__, "status_code", None)
        if status is None and not getattr(error, "in_stream", False):
            status = getattr(error, "status_code", None)
        if status is None or status < 300:
            return broken(self.endpoint, about)
        about.status_code = status
        about.response = SimpleNamespace(headers=getattr(error, "headers", None) or {})
        return refused(self.endpoint, about)

    def _sdk_failure(self, error: Exception) -> CallFailed | None:
        """An error within pydantic-ai or an SDK, about the answer or our arguments."""
        kinds = ValueError | TypeError | AttributeError | LookupError | RuntimeError | AssertionError
        if not isinstance(error, kinds):
            return None
        at = traceback.extract_tb(error.__traceback__)[-1]  # its message may hold the prompt or the key
        where = f"{type(error).__name__} in {Path(at.filename).name}, line {at.lineno}"
        again = not isinstance(error, AssertionError | NotImplementedError)
        return CallFailed(f"{self.endpoint.provider}'s SDK failed at it ({where})", again=again, used=None)


def _provider_class(endpoint: Endpoint) -> Any:
    """The model class of the endpoint's provider; imports its SDK. Raises ModelError if there is none that is fit."""
    try:
        from pydantic_ai.providers import infer_provider_class
    except ImportError:
        raise endpoint.error(f"to ask it as {endpoint.provider}, {_INSTALL}") from None
    assert endpoint.provider is not None
    try:
        found = infer_provider_class(endpoint.provider)
    except ImportError as error:
        what = f"to ask it as {endpoint.provider}, install that provider's SDK too: {error}"
        raise endpoint.error(what) from None
    except ValueError:
        raise endpoint.error(
            f"pydantic-ai knows no provider {endpoint.provider!r}: check its spelling"
        ) from None
    taken = inspect.signature(found).parameters
    missing = [name for name in ("api_key", "base_url", "http_client") if name not in taken]
    if missing or str(taken["http_client"].annotation).startswith("httpx."):
        raise endpoint.error(
            f"provider {endpoint.provider} can't be held to its seat's address, key and limits, because pydantic-ai "
            "can't pass them to it: ask the model through an OpenAI-compatible server"
        )
    return found


def _messages(prompt: Prompt) -> list[ModelMessage]:
    """The prompt in pydantic-ai's messages, unchanged."""
    from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart

    found: list[ModelMessage] = []
    for each in prompt.messages:
        if each.role == "assistant":
            found.append(ModelResponse(parts=[TextPart(each.text)]))
        else:
            part = SystemPromptPart(each.text) if each.role == "system" else UserPromptPart(each.text)
            found.append(ModelRequest(parts=[part]))
    return found


def _form(dialect: Dialect, prompt: Prompt) -> ModelRequestParameters:
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.output import OutputObjectDefinition

    if dialect.form != "json_schema" or not prompt.schema:
        return ModelRequestParameters()
    schema = OutputObjectDefinition(dict(prompt.schema), name=prompt.task, strict=True)
    return ModelRequestParameters(output_mode="native", output_object=schema)
