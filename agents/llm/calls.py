"""Calls a model: reserves the cost, streams the answer, retries where that may help, and settles the cost.

Every fault of a server (slow, silent, refuses, breaks off, never ends) becomes a text that says what to correct. If a
server does not support something (JSON Schema, a name for the output's limit, usage), it is detected and remembered.

No connection outlives the calls that need it. Clients are not pickled: each process makes its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from asyncio import sleep
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from council.agents.llm import http
from council.agents.llm.endpoint import Endpoint, chat
from council.agents.llm.failures import TIMEOUT, TOO_LONG, CallFailed, broken, refused, unreached
from council.agents.messaging import spans
from council.agents.messaging.logs import get_logger
from council.agents.mind import COST_MAX, BudgetClient, Cost
from council.agents.prompting.prompt import Prompt
from council.protocol.errors import MindError

if TYPE_CHECKING:
    import httpx2

log = get_logger("council.model")

# Calls for one prompt. A server that failed so often, with growing pauses, is down for longer than a case can wait.
ATTEMPTS_MAX = 6
# The first pause in seconds. Each further one is twice as long, times a random factor from 0.5 to 1, so that seats
# which failed together do not retry together.
PAUSE_S = 0.5
PAUSE_MAX_S = 8.0
CLOCK_S = 0.001  # a timer may fire this much too early
# A token is rarely more than a word. The longest are rows of blanks or dashes, about a dozen characters.
CHARS_A_TOKEN_MAX = 64

# Gets an answer piece by piece; None if the answer broke off, so that it begins again.
OnPiece = Callable[[str | None], None]

# Words of a refusal that concerns the answer's format.
_OF_A_FORM = ("response_format", "response format", "json_schema", "json schema", "json_object", "grammar")
# llama.cpp could not parse what its model wrote: by chance, or always, if model and template don't fit. Each such
# call has produced a whole answer.
_OF_AN_ANSWER = ("does not match the expected", "failed to parse input")
UNREAD_MAX = 2
Form = Literal["json_schema", "json_object", "text"]


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model's answer. ``finish`` is why it stopped, as the server reports; None if it broke off."""

    text: str
    finish: str | None
    refusal: str = ""


class Received:
    """Collects an answer. Servers differ, so nothing about a chunk is assumed."""

    def __init__(self, chars_max: int) -> None:
        self.parts: list[str] = []
        self.refusals: list[str] = []
        self.finish: str | None = None
        self.usage: Any = None
        self.chars = self.chunks = 0
        self._chars_max = chars_max

    @property
    def is_whole(self) -> bool:
        """Whether the answer is complete, though the server may not close the connection."""
        return self.finish is not None and self.usage is not None

    def add_chunk(self, chunk: Any) -> str:
        """Stores a chunk, and returns the part of the answer's text in it."""
        self.chunks += 1
        before = len(self.parts)
        usage = getattr(chunk, "usage", None)
        self.usage = usage if usage is not None else self.usage
        for choice in getattr(chunk, "choices", None) or ():
            if getattr(choice, "index", 0) not in (0, None):
                continue
            delta = getattr(choice, "delta", None)
            for kept, piece in ((self.parts, "content"), (self.refusals, "refusal")):
                text = getattr(delta, piece, None)
                if isinstance(text, str):
                    kept.append(text)
                    self.chars += len(text)
            finish = getattr(choice, "finish_reason", None)
            self.finish = finish if isinstance(finish, str) else self.finish
        self._bound()
        return "".join(self.parts[before:])

    def add(self, text: str) -> None:
        """Stores the answer's next piece."""
        self.chunks += 1
        self.parts.append(text)
        self.chars += len(text)
        self._bound()

    def _bound(self) -> None:
        if self.chars > self._chars_max:
            raise http.TooMuch


def whole_answer(endpoint: Endpoint, prompt: Prompt, received: Received) -> tuple[ModelAnswer, Cost | None]:
    """The received answer and its cost. Raises CallFailed if there is none, or it is incomplete."""
    if not received.chunks:
        what = "it sent no stream of chunks: is its base_url right? It mostly ends in /v1"
        raise CallFailed(what, again=False, used=None)
    if received.finish is None:
        what = f"it broke off after {received.chars:,} characters, without saying why it stopped"
        raise CallFailed(what, again=True, used=None)
    used = _used(endpoint, received)
    if used is not None and (cut := prompt.cut(received.usage.prompt_tokens)):
        raise CallFailed(cut, again=False, used=used)
    return ModelAnswer("".join(received.parts), received.finish, "".join(received.refusals)), used


def _used(endpoint: Endpoint, received: Received) -> Cost | None:
    """The usage that the server reports, if that is plausible; otherwise None."""
    usage = received.usage
    counts = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    read, written, both = (count if type(count) is int and count >= 0 else None for count in counts)
    if (
        not read
        or written is None
        or max(read, written, both or 0) > COST_MAX
        or written * CHARS_A_TOKEN_MAX < received.chars
    ):
        if usage is not None:
            log.warning("the model's server reported an impossible usage", model=str(endpoint))
        spans.answered(received.finish, None, None)
        return None
    # Some servers count a model's thinking only in the total. It costs as much as the answer.
    written = max(written, (both or 0) - read)
    spans.answered(received.finish, read, written)
    return endpoint.cost(read, written)


def endless(endpoint: Endpoint, prompt: Prompt, received: Received) -> CallFailed:
    most = prompt.written_max(endpoint.max_output_tokens)
    what = f"it did not stop: {received.chars:,} characters and more, where {most:,} tokens were asked for"
    return CallFailed(what, again=False, used=None)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The features of a server's API, as far as they are known."""

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
        """The dialect without the feature that a server's ``refusal`` names; None if it names none."""
        if "max_completion_tokens" in refusal and self.limit == "max_tokens":
            return replace(self, limit="max_completion_tokens")
        if "stream_options" in refusal and self.tells_usage:
            return replace(self, tells_usage=False)
        if may_change_form and self.form != "text" and any(word in refusal for word in _OF_A_FORM):
            return replace(self, form="json_object" if self.form == "json_schema" else "text")
        return None


class ModelCalls:
    """The calls to one endpoint, from one event loop at a time."""

    def __init__(self, endpoint: Endpoint, attempts_max: int = ATTEMPTS_MAX) -> None:
        self.endpoint = endpoint
        self._attempts_max = attempts_max
        form = endpoint.answer_format
        self.dialect = Dialect("json_schema" if form == "auto" else form)
        self._tls: ssl.SSLContext | bool | None = None
        self._client: Any = None
        self._users = 0

    @property
    def form(self) -> Form:
        """The way to request the answer's format, by the features that are known."""
        return self.dialect.form

    async def answer(
        self,
        prompt: Prompt,
        budget: BudgetClient | None,
        until_s: float,
        troubles: list[str],
        on_piece: OnPiece | None = None,
    ) -> ModelAnswer:
        """The model's answer to ``prompt``. Each attempt is reserved before it and settled after it (rules 2.6).

        No attempt begins after ``until_s`` of the loop's clock. Errors of attempts are added to ``troubles``.
        ``on_piece`` gets the answer as it arrives. Raises ModelError, CallDenied if ``budget`` denies the call, and
        MindError if there is none.
        """
        if budget is None:
            raise MindError(
                f"{self.endpoint}: it has no budget: give the mind one with set_budget, as a seat does",
                mind=str(self.endpoint),
            )
        endpoint, attempt = self.endpoint, 0
        facts: dict[str, Any] = {"prompt": prompt.mark} if prompt.mark else {}
        facts |= {"overruns": [asdict(each) for each in prompt.overruns]} if prompt.overruns else {}
        worst = endpoint.cost(prompt.tokens, prompt.written_max(endpoint.max_output_tokens))
        async with self._open() as client:
            known = dialect = self.dialect
            while True:
                call_id = await budget.reserve(
                    prompt.proposal_id, prompt.task, endpoint.model, worst, **facts
                )
                facts.pop("overruns", None)  # they are reported once
                used: Cost | None = None
                error = ""
                try:
                    with chat(endpoint, prompt.task):
                        answer, used = await self.call(client, dialect, prompt, on_piece)
                    self._learn(known, dialect, troubles)
                    return answer
                except CallFailed as failure:
                    used, error, failed = failure.used, failure.error_type, failure
                except asyncio.CancelledError:  # by a halt, or because the time of its work is over
                    over = asyncio.get_running_loop().time() + CLOCK_S >= until_s
                    error = TIMEOUT if over else ""
                    raise
                finally:
                    budget.settle(call_id, used, error)
                troubles.append(failed.what)
                if on_piece is not None:
                    on_piece(None)
                if (simpler := self._simpler(dialect, failed)) is not None:
                    # Another call may have learned it at the same time.
                    dialect = simpler if self.dialect == known else self.dialect
                    known = self.dialect
                    continue
                attempt += 1
                await self._before_next(failed, attempt, until_s)

    async def _before_next(self, failed: CallFailed, attempt: int, until_s: float) -> None:
        """Waits until the next attempt. Raises ModelError if a retry is of no use, or too late."""
        if not failed.again:
            raise self.endpoint.error(failed.what, failed.status)
        unread = any(words in failed.what.casefold() for words in _OF_AN_ANSWER)
        if attempt >= self._attempts_max or (unread and attempt >= UNREAD_MAX):
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
        await sleep(pause_s)

    def _simpler(self, dialect: Dialect, failed: CallFailed) -> Dialect | None:
        """The dialect without the feature that the server does not understand, if it is optional."""
        if failed.status not in (400, 404, 415, 422, 501) or failed.what.startswith(TOO_LONG):
            return None
        may_change = self.endpoint.answer_format == "auto"
        return dialect.without(failed.what.casefold(), may_change_form=may_change)

    def _learn(self, known: Dialect, dialect: Dialect, troubles: list[str]) -> None:
        """Remembers an omitted feature once that has helped: another refusal may hold the same words."""
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
        self, client: Any, dialect: Dialect, prompt: Prompt, on_piece: OnPiece | None
    ) -> tuple[ModelAnswer, Cost | None]:
        received = Received(CHARS_A_TOKEN_MAX * prompt.written_max(self.endpoint.max_output_tokens))
        try:
            await self.receive(client, dialect, prompt, received, on_piece)
        except CallFailed:
            raise
        except Exception as error:
            if _is_caused_by(error, http.TooMuch):
                raise endless(self.endpoint, prompt, received) from None
            failure = self.failure(error)
            if failure is None:
                raise
            if received.finish is None:  # otherwise the answer is complete
                raise failure from None
        return whole_answer(self.endpoint, prompt, received)

    async def receive(
        self, client: Any, dialect: Dialect, prompt: Prompt, received: Received, on_piece: OnPiece | None
    ) -> None:
        """Calls the model, and stores what arrives."""
        stream = await client.chat.completions.create(**dialect.arguments(prompt, self.endpoint))
        try:
            async for chunk in stream:
                piece = received.add_chunk(chunk)
                if piece and on_piece is not None:
                    on_piece(piece)
                if received.is_whole:
                    break
        finally:
            await stream.close()

    def failure(self, error: Exception) -> CallFailed | None:
        """The meaning of an SDK's error: its cost, and whether to retry. None if the error is a fault of ours."""
        import httpx2
        import openai

        if isinstance(error, openai.APIStatusError):
            return refused(self.endpoint, error)
        if isinstance(error, openai.APIConnectionError):
            began = not isinstance(
                error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout
            )
            return unreached(self.endpoint, began=began, silent=isinstance(error, openai.APITimeoutError))
        if isinstance(error, openai.OpenAIError):
            return broken(self.endpoint, error)
        if isinstance(error, ValueError | TypeError | AttributeError | LookupError | RecursionError):
            what = f"it sent something other than a stream of chunks ({type(error).__name__})"
            return CallFailed(what, again=True, used=None)  # raised within the SDK
        return None

    # The client

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        """The client that all calls under way share. The last call closes it."""
        if self._tls is None:  # the SDK and certificates take a second to load, and heartbeats must not wait
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
        """Loads what a client needs, which takes long. The result is passed to ``new_client``."""
        load_sdk()
        return http.trusted(self.endpoint.base_url)

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


def load_sdk() -> None:
    """Loads the SDK, which takes a second."""
    import openai.resources.chat.completions  # else the first call would load it

    assert openai


def _is_caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether an error is of this kind, or has one among its causes: SDKs wrap errors of lower layers."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, kind):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
