"""Calls a model: reserves the cost, streams the answer, retries where that may help, and settles the cost.

Every fault of a server (it is slow, silent, refuses, breaks off or never ends) ends in a text that says what to mend.
What a server does not support (JSON Schema, a name for the output's limit, usage) is found out once and remembered.

No connection outlives the calls that need it. Clients are not pickled: each process makes its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from council.agents.llm import http
from council.agents.llm.endpoint import Endpoint, chat
from council.agents.llm.failures import TIMEOUT, TOO_LONG, Failed, broken, refused, unreached
from council.agents.llm.received import CHARS_A_TOKEN_MAX, Answer, Received, endless, whole_answer
from council.agents.messaging.logs import get_logger
from council.agents.mind import Cost, Purse
from council.agents.prompting.prompt import Prompt

if TYPE_CHECKING:
    import httpx2

log = get_logger("council.model")

# Calls for one prompt; a server that failed so often, with growing pauses, is down for longer than a case waits.
ATTEMPTS_MAX = 6
# The first pause; each further one is twice as long, and between a half and the whole of that, so that seats that
# failed together do not come back together.
PAUSE_S = 0.5
PAUSE_MAX_S = 8.0
CLOCK_S = 0.001  # what a timer may come too early by

# Is given an answer piece by piece, as it comes; None where all of it is void, as it broke off and begins anew.
Hear = Callable[[str | None], None]

# By these a refusal is known to be of a form of answer.
_OF_A_FORM = ("response_format", "response format", "json_schema", "json schema", "json_object", "grammar")
# llama.cpp can't read what its model wrote: by chance, or for good, as model and template don't fit. Each such call
# has written a whole answer.
_OF_AN_ANSWER = ("does not match the expected", "failed to parse input")
UNREAD_MAX = 2
Form = Literal["json_schema", "json_object", "text"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a server is spoken to, as far as it is known what it understands."""

    form: Form
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    tells_usage: bool = True

    def arguments(self, prompt: Prompt, endpoint: Endpoint) -> dict[str, Any]:
        """A call's arguments."""
        found: dict[str, Any] = {
            "model": endpoint.model,
            "messages": [{"role": each.role, "content": each.text} for each in prompt.messages],
            self.limit: prompt.written_max(endpoint.max_output_tokens),
            "stream": True,
        }
        for name in ("temperature", "top_p"):
            if getattr(endpoint, name) is not None:
                found[name] = getattr(endpoint, name)
        if self.tells_usage:
            found["stream_options"] = {"include_usage": True}
        if self.form == "json_schema" and prompt.schema:
            schema = {"name": prompt.task, "schema": dict(prompt.schema), "strict": True}
            found["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif self.form == "json_object" and prompt.schema:
            found["response_format"] = {"type": "json_object"}
        return found

    def without(self, refusal: str, *, may_change_form: bool) -> Dialect | None:
        """The dialect without what a server's ``refusal`` names; None where it names nothing of it."""
        if "max_completion_tokens" in refusal and self.limit == "max_tokens":
            return replace(self, limit="max_completion_tokens")
        if "stream_options" in refusal and self.tells_usage:
            return replace(self, tells_usage=False)
        if may_change_form and self.form != "text" and any(word in refusal for word in _OF_A_FORM):
            return replace(self, form="json_object" if self.form == "json_schema" else "text")
        return None


class ModelCalls:
    """The calls to one endpoint, from one event loop at a time. ``pause`` waits, as asyncio.sleep does."""

    def __init__(self, endpoint: Endpoint, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.endpoint = endpoint
        self._pause = pause
        form = endpoint.answer_format
        self.dialect = Dialect("json_schema" if form == "auto" else form)
        self._tls: ssl.SSLContext | bool | None = None
        self._client: Any = None
        self._users = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.endpoint, self._pause)

    @property
    def form(self) -> Form:
        """How the server is told of an answer's form, as far as is known what it understands."""
        return self.dialect.form

    async def answer(
        self, prompt: Prompt, purse: Purse, until_s: float, troubles: list[str], hear: Hear | None = None
    ) -> Answer:
        """What the model says to ``prompt``, each attempt reserved before it, and settled after it (rules 2.6).

        No attempt begins that could not before ``until_s`` of the loop's clock. What goes wrong meanwhile is
        added to ``troubles``; ``hear`` is given the answer as it comes. Raises ModelError, and CallDenied where the
        purse does.
        """
        endpoint, attempt = self.endpoint, 0
        told: dict[str, Any] = {"prompt": prompt.mark} if prompt.mark else {}
        told |= {"overruns": [asdict(each) for each in prompt.overruns]} if prompt.overruns else {}
        worst = endpoint.cost(prompt.tokens, prompt.written_max(endpoint.max_output_tokens))
        async with self._open() as client:
            known = dialect = self.dialect
            while True:
                call_id = await purse.reserve(prompt.proposal_id, prompt.task, endpoint.model, worst, **told)
                told.pop("overruns", None)  # once
                used: Cost | None = None
                error = ""
                try:
                    with chat(endpoint, prompt.task):
                        answer, used = await self.call(client, dialect, prompt, hear)
                    self._learn(known, dialect, troubles)
                    return answer
                except Failed as failure:
                    used, error, failed = failure.used, failure.error_type, failure
                except asyncio.CancelledError:  # by a halt, say; or since the time of its work is up
                    over = asyncio.get_running_loop().time() + CLOCK_S >= until_s
                    error = TIMEOUT if over else ""
                    raise
                finally:
                    purse.settle(call_id, used, error)
                troubles.append(failed.what)
                if hear is not None:
                    hear(None)
                if (simpler := self._simpler(dialect, failed)) is not None:
                    # Or another call has learned it meanwhile.
                    dialect = simpler if self.dialect == known else self.dialect
                    known = self.dialect
                    continue
                attempt += 1
                await self._before_next(failed, attempt, until_s)

    async def _before_next(self, failed: Failed, attempt: int, until_s: float) -> None:
        """Waits until it may be tried again. Raises ModelError where that is of no use, or too late."""
        if not failed.again:
            raise self.endpoint.error(failed.what, failed.status)
        unread = any(words in failed.what.casefold() for words in _OF_AN_ANSWER)
        if attempt == (UNREAD_MAX if unread else ATTEMPTS_MAX):
            raise self.endpoint.error(f"{failed.what}; given up after {attempt} attempts", failed.status)
        pause_s = min(PAUSE_S * 2 ** (attempt - 1), PAUSE_MAX_S) * (1 - random.random() / 2)
        if failed.after_s is not None:
            pause_s = failed.after_s
        left_s = until_s - asyncio.get_running_loop().time()
        if pause_s >= left_s:
            raise self.endpoint.error(
                f"{failed.what}; the next attempt should wait {pause_s:.3g} s, and {max(left_s, 0):.3g} s are left",
                failed.status,
            )
        log.info("model call failed", model=str(self.endpoint), why=failed.what, again_in_s=round(pause_s, 3))
        await self._pause(pause_s)

    def _simpler(self, dialect: Dialect, failed: Failed) -> Dialect | None:
        """The dialect without what the server says that it does not understand, and need not be asked with."""
        if failed.status not in (400, 404, 415, 422, 501) or failed.what.startswith(TOO_LONG):
            return None
        may_change = self.endpoint.answer_format == "auto"
        return dialect.without(failed.what.casefold(), may_change_form=may_change)

    def _learn(self, known: Dialect, dialect: Dialect, troubles: list[str]) -> None:
        """Remembers what was left out once it helped: a refusal of another thing may hold the same words."""
        if dialect != known == self.dialect:
            self.dialect = dialect
            log.warning(
                "the model's server does not understand something",
                model=str(self.endpoint),
                said=troubles[-1],
                now=str(dialect),
            )

    # One call

    async def call(
        self, client: Any, dialect: Dialect, prompt: Prompt, hear: Hear | None
    ) -> tuple[Answer, Cost | None]:
        import openai

        received = Received(CHARS_A_TOKEN_MAX * prompt.written_max(self.endpoint.max_output_tokens))
        try:
            stream = await client.chat.completions.create(**dialect.arguments(prompt, self.endpoint))
            try:
                async for chunk in stream:
                    piece = received.take(chunk)
                    if piece and hear is not None:
                        hear(piece)
                    if received.is_whole:
                        break
            finally:
                await stream.close()
        except openai.OpenAIError as error:
            if received.finish is None:
                raise self._failure(error) from None
        except http.TooMuch:
            raise endless(self.endpoint, prompt, received) from None
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            if received.finish is None:  # within the SDK
                what = f"it sent what is no stream of chunks ({type(error).__name__})"
                raise Failed(what, again=True, used=None) from None
        return whole_answer(self.endpoint, prompt, received)

    def _failure(self, error: Any) -> Failed:
        """What an error of the SDK means, what it cost, and whether to try again."""
        import httpx2
        import openai

        if isinstance(error, openai.APIStatusError):
            return refused(self.endpoint, error)
        if isinstance(error, openai.APIConnectionError):
            began = not isinstance(
                error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout
            )
            return unreached(self.endpoint, began=began, silent=isinstance(error, openai.APITimeoutError))
        return broken(self.endpoint, error)

    # The client

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        """The client, which all calls under way share; the last one closes it."""
        if self._tls is None:  # the SDK and certificates take a second to load, in which seats must beat
            self._tls = await asyncio.to_thread(self.prepare)
        if self._client is None:
            self._client = self.new_client(self._tls)
        self._users += 1
        try:
            yield self._client
        finally:
            self._users -= 1
            if not self._users:
                client, self._client = self._client, None
                await client.close()

    def prepare(self) -> ssl.SSLContext | bool:
        """What a client needs and takes long; what it gives is handed to ``new_client``."""
        return _prepared(self.endpoint.base_url)

    def new_client(self, tls: ssl.SSLContext | bool) -> Any:
        import openai

        key = self.endpoint.key()

        def ours_alone(request: httpx2.Request) -> None:
            for name in [name for name in request.headers if name not in http.HEADERS]:
                del request.headers[name]
            request.headers["authorization"] = f"Bearer {key}"

        return openai.AsyncOpenAI(
            api_key=key,
            base_url=self.endpoint.base_url,
            max_retries=0,  # ours are reserved for, each by itself
            http_client=http.new_client(self.endpoint, tls, ours_alone),
        )


def _prepared(base_url: str) -> ssl.SSLContext | bool:
    """What a client needs and takes long: the SDK, and for https the certificates that are trusted."""
    import openai.resources.chat.completions  # loaded when first used, else

    assert openai
    return http.trusted(base_url)
