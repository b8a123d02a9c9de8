"""A server that speaks the OpenAI API as real ones do, on loopback, and does wrong whatever servers do wrong.

    with Stub({"small": [refuse(429, "slow down", retry_after="0"), says(ballot())]}) as stub:
        ...  # stub.base_url, stub.requests

Each model answers by its script, one entry for each call, the last one for all further calls. An entry is a coroutine
function of a ``Call``. The server runs on a thread of its own, so that councils of every kind can call it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.patience import HANG_S


@dataclass
class Call:
    """One request, and the line that its answer goes out on."""

    body: dict[str, Any]
    headers: dict[str, str]
    writer: asyncio.StreamWriter
    hung_up: threading.Event = field(default_factory=threading.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    fell_silent: threading.Event = field(default_factory=threading.Event)

    @property
    def model(self) -> str:
        return str(self.body.get("model"))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int = 200, kind: str = "text/event-stream", **more: str) -> None:
        lines = [f"HTTP/1.1 {status} Said", f"content-type: {kind}", "connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def event(self, data: str) -> None:
        await self.send(f"data: {data}\n\n".encode())

    async def chunk(self, content: str | None = None, finish: str | None = None, **delta: Any) -> None:
        said = {"content": content} if content is not None else {}
        choice = {"index": 0, "delta": said | delta, "finish_reason": finish}
        await self.event(json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice]}))

    async def usage(self, told: Any) -> None:
        await self.event(
            json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": told})
        )

    async def silent(self) -> None:
        """Until the caller hangs up."""
        self.fell_silent.set()
        await self.gone.wait()


Entry = Callable[[Call], Awaitable[None]]


def used(read: int = 100, written: int = 20) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def says(
    text: str,
    *,
    usage: Any = None,
    finish: str | None = "stop",
    piece: int = 16,
    done: bool = True,
    keeps_open: bool = False,
    **delta: Any,
) -> Entry:
    """Streams ``text`` in pieces. ``usage`` is told where the caller asks for it; "none" tells none."""

    async def entry(call: Call) -> None:
        await call.head()
        await call.chunk(role="assistant", **delta)
        for start in range(0, len(text), piece):
            await call.chunk(text[start : start + piece])
        if finish is not None:
            await call.chunk(finish=finish)
        if usage != "none" and call.body.get("stream_options", {}).get("include_usage"):
            await call.usage(used() if usage is None else usage)
        if done:
            await call.event("[DONE]")
        if keeps_open:
            await call.silent()

    return entry


def refuse(
    status: int, message: str, *, code: str | None = None, param: str | None = None, **headers: str
) -> Entry:
    """An error as OpenAI forms it."""

    async def entry(call: Call) -> None:
        error = {"message": message, "type": "invalid_request_error", "code": code, "param": param}
        await call.head(status, "application/json", **headers)
        await call.send(json.dumps({"error": error}).encode())

    return entry


def hangs(text: str = "") -> Entry:
    """Says the beginning of something, then nothing more, and keeps the line."""

    async def entry(call: Call) -> None:
        await call.head()
        await call.chunk(text)
        await call.silent()

    return entry


def resets(text: str | None = None) -> Entry:
    """Breaks the connection, before it says anything or in the middle."""

    async def entry(call: Call) -> None:
        if text is not None:
            await call.head()
            await call.chunk(text)
        line: socket.socket = call.writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        call.writer.transport.abort()

    return entry


def raw(data: bytes, kind: str = "text/event-stream", status: int = 200) -> Entry:
    async def entry(call: Call) -> None:
        await call.head(status, kind)
        await call.send(data)

    return entry


def endless(piece: bytes) -> Entry:
    """Sends the same for as long as somebody listens."""

    async def entry(call: Call) -> None:
        await call.head()
        while not call.gone.is_set():
            await call.send(piece)

    return entry


def after(release: threading.Event, entry: Entry) -> Entry:
    """A slow first token: begins once ``release`` is set."""

    async def slow(call: Call) -> None:
        await asyncio.to_thread(release.wait, HANG_S)
        await entry(call)

    return slow


def for_each(**scripts: Sequence[Entry]) -> Entry:
    """A model that answers each task by a script of its own, where it is asked with a JSON Schema."""
    left = {task: list(script) for task, script in scripts.items()}

    async def entry(call: Call) -> None:
        task = call.body["response_format"]["json_schema"]["name"]
        script = left[task]
        await (script.pop(0) if len(script) > 1 else script[0])(call)

    return entry


def without(argument: str, message: str, entry: Entry, *, in_form: str | None = None) -> Entry:
    """A server that does not know an argument, or a form of answer; asked without it, it goes on with ``entry``."""

    async def older(call: Call) -> None:
        found = call.body.get(argument)
        if found is not None and (in_form is None or found.get("type") == in_form):
            await refuse(400, message)(call)
        else:
            await entry(call)

    return older


def ballot(vote: str = "yes", reason: str = "it is sound", **more: Any) -> str:
    """An answer with a ballot; ``packet`` stands for its control packet."""
    packet = more.pop("packet", {})
    cast = {"vote": vote, "reason": reason, "confidence": 0.9, "risk_level": "low"} | more
    return json.dumps({"control_packet": packet, "surface_response": "Looked at it.", "ballot": cast})


def ruling(word: str = "confirm", **more: Any) -> str:
    """An answer with a ruling; ``packet`` stands for its control packet."""
    packet = more.pop("packet", {})
    given = {"ruling": word, "reason": "on the whole", "confidence": 0.8, "risk_level": "med"} | more
    return json.dumps({"control_packet": packet, "surface_response": "Ruled.", "ruling": given})


def plan(*steps: str) -> str:
    """An answer with a plan."""
    return json.dumps({"plan": steps or ["Look at what it reaches.", "Vote."]})


class Stub:
    """The server. ``key``: the one that it wants, if any. Models without a script are not known to it."""

    def __init__(self, scripts: Mapping[str, Sequence[Entry]], *, key: str | None = None) -> None:
        self._scripts = {model: list(script) for model, script in scripts.items()}
        self._key = key
        self._arrived = threading.Condition()
        self.requests: list[Call] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stub", daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def arrived(self, count: int) -> list[Call]:
        """The requests, once there are so many."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.requests) >= count, HANG_S)
            return list(self.requests)

    def is_silent(self, asked: int) -> bool:
        """Whether it got so many requests, and says nothing more to the last of them."""
        with self._arrived:
            return 0 < len(self.requests) == asked and self.requests[-1].fell_silent.is_set()

    def __enter__(self) -> Self:
        self._thread.start()
        opened = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        )
        self._server = opened.result(HANG_S)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(HANG_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_S)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
            }
            body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
            call = Call(body, headers, writer)
            watch = asyncio.create_task(self._watch(reader, call))
            try:
                await self._entry(head[0], call)(call)
            except ConnectionError:  # it hung up before it was told anything
                call.hung_up.set()
            finally:
                watch.cancel()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _watch(self, reader: asyncio.StreamReader, call: Call) -> None:
        try:
            await reader.read(1)
        except ConnectionError:
            pass
        call.gone.set()
        call.hung_up.set()

    def _entry(self, line: str, call: Call) -> Entry:
        with self._arrived:
            self.requests.append(call)
            self._arrived.notify_all()
        if not line.startswith("POST /v1/chat/completions "):
            return refuse(404, f"Invalid URL ({line})")
        if self._key is not None and call.headers.get("authorization") != f"Bearer {self._key}":
            return refuse(401, f"Incorrect API key provided: {call.headers.get('authorization')}")
        script = self._scripts.get(call.model)
        if not script:
            return refuse(404, f"The model `{call.model}` does not exist", code="model_not_found")
        return script.pop(0) if len(script) > 1 else script[0]
