"""The host's Unix socket, through which this user's processes reach the council without a client of Ray.

Each call is forwarded to the port of the host, which is connected to the coordinator already. ``socket_port`` has the
frames. A peer that sends garbage, sends too much, or does not read its answers loses its own connection, and no
other peer waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from council.agents.messaging.logs import get_logger
from council.agents.messaging.mailbox import frame_reply, unframe
from council.cluster import known
from council.cluster.socket_port import (
    CALL_BYTES_MAX,
    PROTOCOL,
    Call,
    Greeting,
    framed,
    read_size,
    refuse_open_folder,
    refuse_other_user,
)
from council.protocol.errors import CouncilError, EnvelopeError, OperatorError
from council.runtime import questions
from council.runtime.answers import answer, answer_of, refusal
from council.runtime.session import Port

log = get_logger("council.host")

# The bytes of a socket's path: 107 on Linux, 103 on macOS.
PATH_BYTES_MAX = 103
# Calls under way get this many seconds to be answered when the socket is closed.
CLOSE_S = 2.0


_JOIN = msgspec.msgpack.Decoder(tuple[str, str, bytes])


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the socket: connections, calls under way of each, bytes of a call, and times in seconds.

    ``idle_s`` is without any call; ``frame_s`` from the head of a call to its end; ``send_s`` to take an answer.
    """

    connections: int = 256
    calls: int = 64
    call_bytes: int = CALL_BYTES_MAX
    idle_s: float = 900.0
    frame_s: float = 30.0
    send_s: float = 30.0


def place(name: str) -> Path:
    """The path of the socket of council ``name``: in the state folder or, if that path is too long, in a short one.

    The folder is created if needed. Raises OperatorError if others may enter it, or if no path is short enough.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise OperatorError("Python has no Unix sockets on this system")
    path = known.folder() / f"{name}.sock"
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        given = os.environ.get("XDG_RUNTIME_DIR", "")
        folder = Path(given if os.path.isabs(given) else tempfile.gettempdir()) / f"council-{os.geteuid()}"
        with contextlib.suppress(OSError):  # ``refuse_open_folder`` reports it
            folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.sock"
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise OperatorError(
            f"{path} is too long for a socket, {PATH_BYTES_MAX} bytes at most: set XDG_RUNTIME_DIR"
        )
    refuse_open_folder(path.parent)
    return path


class SocketServer:
    """Serves ``port`` at ``path``. The caller holds the council's name, so a socket found there is a dead host's."""

    def __init__(self, port: Port, name: str, path: Path, limits: Limits | None = None) -> None:
        self.path = path
        self._port = port
        self._name = name
        self._limits = limits or Limits()
        self._server: asyncio.Server | None = None
        self._peers: set[_Peer] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listens. Raises OperatorError."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISSOCK(self.path.lstat().st_mode):
                    raise OperatorError(f"{self.path} is there, and is no socket: remove it")
                self.path.unlink()
            listening.bind(str(self.path))
            self.path.chmod(0o600)
            self._server = await asyncio.start_unix_server(self._begin, sock=listening, limit=2**16)
        except BaseException as error:
            listening.close()
            if isinstance(error, OSError):
                raise OperatorError(f"{self.path} can't be a socket: {error.strerror or error}") from error
            raise

    async def close(self) -> None:
        """Ends all connections, once the calls under way are answered, and removes the socket."""
        if self._server is None:
            return
        self._server.close()
        self.path.unlink(missing_ok=True)
        calls = [call for peer in self._peers for call in peer.calls]
        if calls:
            await asyncio.wait(calls, timeout=CLOSE_S)
        for peer in [*self._peers]:
            peer.drop()
        if self._serving:
            await asyncio.wait(self._serving, timeout=CLOSE_S)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = _Peer(self._port, self._limits, reader, writer)
        try:
            refuse_other_user(writer.get_extra_info("socket"))
            if len(self._peers) >= self._limits.connections:
                raise OperatorError(
                    f"{self._limits.connections} clients are connected to this council's process, the most it admits"
                )
        except OperatorError as error:
            writer.write(framed(refusal(error)))  # it fits the system's buffer
            writer.close()
            log.warning("a connection was refused", why=error.message)
            return
        self._peers.add(peer)
        try:
            await peer.send(answer(Greeting(protocol=PROTOCOL, name=self._name)))
            await peer.serve()
        except (OSError, EOFError):
            pass  # it has gone
        except CouncilError as error:
            log.warning("a connection was ended", why=error.message)
        finally:
            peer.drop()
            self._peers.discard(peer)


class _Peer:
    """One connection, and its calls under way."""

    def __init__(
        self, port: Port, limits: Limits, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.calls: set[asyncio.Task[None]] = set()
        self._port = port
        self._limits = limits
        self._reader, self._writer = reader, writer
        self._sending = asyncio.Lock()
        self._free = asyncio.Semaphore(limits.calls)  # without one, no more is read

    async def serve(self) -> None:
        """Answers calls until the peer leaves. Raises EnvelopeError for what is no call, OperatorError, OSError."""
        while content := await self._next():
            try:
                call = msgspec.msgpack.decode(content, type=Call)
            except (msgspec.MsgspecError, UnicodeError) as error:
                raise EnvelopeError(f"call: not one of this version's: {error}", field="call") from None
            await self._free.acquire()
            task = asyncio.get_running_loop().create_task(self._return(call))
            self.calls.add(task)
            task.add_done_callback(self._returned)

    async def _next(self) -> bytes:
        """The next call's bytes; b"" if the peer has left, or was idle for too long. Raises OperatorError if late."""
        limits = self._limits
        while True:
            try:
                async with asyncio.timeout(limits.idle_s):
                    size = await read_size(self._reader, limits.call_bytes)
                break
            except TimeoutError:
                if not self.calls:
                    return b""
        try:
            async with asyncio.timeout(limits.frame_s):
                return await self._reader.readexactly(size)
        except TimeoutError:
            raise OperatorError(
                f"a call of {size:,} bytes did not arrive within {limits.frame_s:g} s"
            ) from None

    def _returned(self, task: asyncio.Task[None]) -> None:
        self.calls.discard(task)
        self._free.release()

    async def _return(self, call: Call) -> None:
        try:
            packed = await answer_of(self._forward, call)
            await self.send(msgspec.msgpack.encode((call.number, packed)))
        except OSError:  # it has gone, or does not read
            self.drop()

    async def _forward(self, call: Call) -> Any:
        """The port's result, as something that msgpack holds."""
        match call.verb:
            case "join":
                return await self._port.join(*_JOIN.decode(call.payload))
            case "leave":
                await self._port.leave(call.payload.decode("ascii", "replace"))
            case "exchange":
                session, *batch = unframe(call.payload) or [b""]
                return frame_reply(await self._port.exchange(session.decode("ascii", "replace"), batch))
            case "ask":
                return await self._port.ask(questions.from_bytes(call.payload))
            case "close":
                await self._port.close()

    async def send(self, content: bytes) -> None:
        """Sends a frame. Raises OSError, TimeoutError if the peer does not read in time."""
        async with self._sending, asyncio.timeout(self._limits.send_s):
            self._writer.write(framed(content))
            await self._writer.drain()

    def drop(self) -> None:
        """Ends the connection, and what is under way."""
        current = asyncio.current_task()
        for call in self.calls:
            if call is not current:
                call.cancel()
        self._writer.transport.abort()
