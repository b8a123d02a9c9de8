"""Calls a model: reserves, streams its answer, tries again where that may help, and settles. Reads no answer.

Everything that a server can do wrong ends here, in a text that says what to mend: it is slow or silent, refuses,
breaks off, never ends, or does not know what it is asked with. What it can't do (a JSON Schema, a name for the
output's limit, telling its usage) is found out once and remembered.

No connection outlives the calls that need it, and no client travels: each process makes its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from council.agents.llm import http
from council.agents.llm.endpoint import NO_KEY, Endpoint, chat
from council.agents.messaging import span_names, spans
from council.agents.messaging.logs import get_logger
from council.agents.mind import COST_MAX, Cost, Purse
from council.agents.prompting.prompt import Prompt
from council.protocol.errors import ModelError
from council.protocol.values import quoted

if TYPE_CHECKING:
    import httpx2

log = get_logger("council.model")

# Calls for one prompt; a server that failed so often, with growing pauses, is down for longer than a case waits.
ATTEMPTS_MAX = 6
# The first pause; each further one is twice as long, and between a half and the whole of that, so that seats that
# failed together do not come back together.
PAUSE_S = 0.5
PAUSE_MAX_S = 8.0
# A token is rarely more than a word; the longest are rows of blanks or dashes, some dozen characters.
CHARS_A_TOKEN_MAX = 64
TIMEOUT = "timeout"
CLOCK_S = 0.001  # what a timer may come too early by
SAID_CHARS_MAX = 300  # of a server's own words in an error
# What begins like the key is the key, or what a server shows of it.
KEY_SHOWN_MAX = 8
_TOO_LONG = "the prompt is too long for it"

# Is given an answer piece by piece, as it comes; None where all of it is void, as it broke off and begins anew.
Hear = Callable[[str | None], None]

# By these a refusal is known to be of a form of answer, and by those of a prompt that is too long.
_OF_A_FORM = ("response_format", "response format", "json_schema", "json schema", "json_object", "grammar")
_OF_A_LENGTH = ("context_length", "context length", "context size", "context window", "maximum context")
# llama.cpp can't read what its model wrote: by chance, or for good, as model and template don't fit. Each such call
# has written a whole answer.
_OF_AN_ANSWER = ("does not match the expected", "failed to parse input")
UNREAD_MAX = 2
# What says that a server did not begin: it is not up yet, or has too much to do. A gateway's bare 503 may come after
# the server has worked.
_BUSY = (503, 529)
_OF_TOO_MUCH = ("loading", "overload", "capacity", "busy", "not ready")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said. ``finish`` is why it stopped, as the server tells it; None where it broke off."""

    text: str
    finish: str | None
    refusal: str = ""


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


class Failed(Exception):
    """A call failed. ``used`` is what it cost, None if nobody knows; ``after_s``: as long as the server wants.

    ``error_type`` says of which kind it is, in a word or by its status, for the attempt's span and settlement.
    """

    def __init__(
        self,
        what: str,
        *,
        again: bool,
        used: Cost | None,
        after_s: float | None = None,
        status: int | None = None,
        kind: str = span_names.OTHER,
    ) -> None:
        super().__init__(what)
        self.what, self.again, self.used, self.after_s, self.status = what, again, used, after_s, status
        self.error_type = kind if status is None else str(status)


NOTHING = Cost(0)  # what a call has cost that the server did not begin


class ModelCalls:
    """The calls to one endpoint, from one event loop at a time. ``pause`` waits, as asyncio.sleep does."""

    def __init__(self, endpoint: Endpoint, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.endpoint = endpoint
        self._pause = pause
        form = endpoint.answer_format
        self._dialect = Dialect("json_schema" if form == "auto" else form)
        self._tls: ssl.SSLContext | bool | None = None
        self._client: Any = None
        self._users = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.endpoint, self._pause)

    @property
    def form(self) -> Form:
        """How the server is told of an answer's form, as far as is known what it understands."""
        return self._dialect.form

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
            known = dialect = self._dialect
            while True:
                call_id = await purse.reserve(prompt.proposal_id, prompt.task, endpoint.model, worst, **told)
                told.pop("overruns", None)  # once
                used: Cost | None = None
                error = ""
                try:
                    with chat(endpoint, prompt.task):
                        answer, used = await self._call(client, dialect, prompt, hear)
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
                    dialect = simpler if self._dialect == known else self._dialect
                    known = self._dialect
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
        if failed.status not in (400, 404, 415, 422, 501) or failed.what.startswith(_TOO_LONG):
            return None
        may_change = self.endpoint.answer_format == "auto"
        return dialect.without(failed.what.casefold(), may_change_form=may_change)

    def _learn(self, known: Dialect, dialect: Dialect, troubles: list[str]) -> None:
        """Remembers what was left out once it helped: a refusal of another thing may hold the same words."""
        if dialect != known == self._dialect:
            self._dialect = dialect
            log.warning(
                "the model's server does not understand something",
                model=str(self.endpoint),
                said=troubles[-1],
                now=str(dialect),
            )

    # One call

    async def _call(
        self, client: Any, dialect: Dialect, prompt: Prompt, hear: Hear | None
    ) -> tuple[Answer, Cost | None]:
        import openai

        heard = Heard(CHARS_A_TOKEN_MAX * prompt.written_max(self.endpoint.max_output_tokens))
        try:
            stream = await client.chat.completions.create(**dialect.arguments(prompt, self.endpoint))
            try:
                async for chunk in stream:
                    piece = heard.take(chunk)
                    if piece and hear is not None:
                        hear(piece)
                    if heard.is_whole:
                        break
            finally:
                await stream.close()
        except openai.OpenAIError as error:
            if heard.finish is None:
                raise self._failure(error) from None
        except http.TooMuch:
            raise self._endless(prompt, heard) from None
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            if heard.finish is None:  # within the SDK
                what = f"it sent what is no stream of chunks ({type(error).__name__})"
                raise Failed(what, again=True, used=None) from None
        return self._whole(prompt, heard)

    def _whole(self, prompt: Prompt, heard: Heard) -> tuple[Answer, Cost | None]:
        """The answer that was heard, and what it cost. Raises Failed where it is none, or not all of one."""
        if not heard.chunks:
            what = "it sent no stream of chunks: is its base_url right? It mostly ends in /v1"
            raise Failed(what, again=False, used=None)
        if heard.finish is None:
            what = f"it broke off after {heard.chars:,} characters, without saying why it stopped"
            raise Failed(what, again=True, used=None)
        used = self._used(heard)
        if used is not None and (cut := prompt.cut(heard.usage.prompt_tokens)):
            raise Failed(cut, again=False, used=used)
        return Answer("".join(heard.parts), heard.finish, "".join(heard.refusals)), used

    def _used(self, heard: Heard) -> Cost | None:
        """What the server says that it used, where that can be true; None where it can't, or nothing was said."""
        usage = heard.usage
        counts = [
            getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens", "total_tokens")
        ]
        read, written, both = (count if type(count) is int and count >= 0 else None for count in counts)
        if (
            not read
            or written is None
            or max(read, written, both or 0) > COST_MAX
            or written * CHARS_A_TOKEN_MAX < heard.chars
        ):
            if usage is not None:
                log.warning("the model's server told a usage that can't be true", model=str(self.endpoint))
            spans.answered(heard.finish, None, None)
            return None
        # Some count a model's thinking in the total alone; it is paid for like what is written.
        written = max(written, (both or 0) - read)
        spans.answered(heard.finish, read, written)
        return self.endpoint.cost(read, written)

    def _failure(self, error: Any) -> Failed:
        """What an error of the SDK means, what it cost, and whether to try again."""
        import httpx2
        import openai

        if isinstance(error, openai.APIStatusError):
            return self._refusal(error)
        if isinstance(error, openai.APIConnectionError):
            began = not isinstance(
                error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout
            )
            return self._unreached(began=began, silent=isinstance(error, openai.APITimeoutError))
        return self._broken(error)

    def _endless(self, prompt: Prompt, heard: Heard) -> Failed:
        most = prompt.written_max(self.endpoint.max_output_tokens)
        what = f"it did not stop: {heard.chars:,} characters and more, where {most:,} tokens were asked for"
        return Failed(what, again=False, used=None)

    def _unreached(self, *, began: bool, silent: bool) -> Failed:
        """No connection, or one that did not hold; ``began`` where the server may have got the request."""
        if not began:
            what = "it can't be reached: is the server running, and its base_url right?"
        elif silent:
            what = f"it was silent for {self.endpoint.timeout_s:g} s (timeout_s)"
        else:
            what = "the connection broke"
        kind = TIMEOUT if began and silent else "connection_error"
        return Failed(what, again=True, used=None if began else NOTHING, kind=kind)

    def _broken(self, error: Any) -> Failed:
        """An error in the place of what was still to come."""
        return Failed(f"it failed in the middle of its answer{self._said(error)}", again=True, used=None)

    def _refusal(self, error: Any) -> Failed:
        """What a status means that is no success."""
        status: int = error.status_code
        said, after_s = self._said(error), http.retry_after_s(error.response.headers)
        about = f"{said} {error.code or ''}".casefold()
        idle = status in _BUSY and (after_s is not None or any(word in about for word in _OF_TOO_MUCH))
        used = NOTHING if idle or (status < 500 and status != 408) else None
        again = status in (408, 409, 425, 429) or status >= 500
        if status in (401, 403):  # without the server's words, which may show the key
            which = self.endpoint.api_key_env or self.endpoint.api_key_file
            what = (
                f"it refuses the key ({status})" if which else f"it wants a key ({status}): set api_key_env"
            )
            what += f": see {which}" if which else ""
        elif status == 429 and "quota" in about:
            what, again = f"its quota is used up ({status}){said}", False
        elif status == 429:
            what = f"it is asked too often ({status}){said}"
        elif any(word in about for word in _OF_A_LENGTH):
            what = f"{_TOO_LONG} ({status}): lower max_context_tokens{said}"
        elif status == 404:
            what = f"it does not know the model, or the path ({status}){said}"
        elif 300 <= status < 400:
            what = f"it sends elsewhere ({status}): set base_url to where it leads"
        else:
            what = f"it answered {status}{said}"
        return Failed(what, again=again, used=used, after_s=after_s, status=status)

    def _said(self, error: Any) -> str:
        """The server's own words."""
        body = error.body
        said = body.get("message") if isinstance(body, dict) else None
        words = self._keyless(str(said if isinstance(said, str) else error.message))
        return f"; it says {quoted(words, SAID_CHARS_MAX)}" if words else ""

    def _keyless(self, words: str) -> str:
        """The words without the key, or all but its end, should they show it."""
        with contextlib.suppress(ModelError):
            key = self.endpoint.key()
            words = words if key == NO_KEY else re.sub(re.escape(key[:KEY_SHOWN_MAX]) + r"\S*", "…", words)
        return words

    # The client

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        """The client, which all calls under way share; the last one closes it."""
        if self._tls is None:  # the SDK and certificates take a second to load, in which seats must beat
            self._tls = await asyncio.to_thread(self._prepare)
        if self._client is None:
            self._client = self._new_client(self._tls)
        self._users += 1
        try:
            yield self._client
        finally:
            self._users -= 1
            if not self._users:
                client, self._client = self._client, None
                await client.close()

    def _prepare(self) -> ssl.SSLContext | bool:
        """What a client needs and takes long; what it gives is handed to ``_new_client``."""
        return _prepared(self.endpoint.base_url)

    def _new_client(self, tls: ssl.SSLContext | bool) -> Any:
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


class Heard:
    """What has come of an answer; servers are many, and nothing about a chunk is taken for granted."""

    def __init__(self, chars_max: int) -> None:
        self.parts: list[str] = []
        self.refusals: list[str] = []
        self.finish: str | None = None
        self.usage: Any = None
        self.chars = self.chunks = 0
        self._chars_max = chars_max

    @property
    def is_whole(self) -> bool:
        """Nothing more is needed, though the server may not close the line."""
        return self.finish is not None and self.usage is not None

    def take(self, chunk: Any) -> str:
        """Keeps what a chunk brings; gives what of it is the answer's text."""
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
        """Keeps the answer's next piece."""
        self.chunks += 1
        self.parts.append(text)
        self.chars += len(text)
        self._bound()

    def _bound(self) -> None:
        if self.chars > self._chars_max:
            raise http.TooMuch


def _prepared(base_url: str) -> ssl.SSLContext | bool:
    """What a client needs and takes long: the SDK, and for https the certificates that are trusted."""
    import openai.resources.chat.completions  # loaded when first used, else

    assert openai
    return http.trusted(base_url)
