"""A client's connection to a council that this user brought up on this machine, through its host's Unix socket.

It does not import Ray. What is sent is what a client sends over Ray: envelopes that are signed already. The socket
adds no authority, and only processes of the same user reach it: its folder has mode 0700, the socket 0600, and both
sides check the other's user id where the system tells it.

A frame is its length in 4 bytes, big-endian, and so many bytes. The host begins with an answer that holds a
``Greeting``. After that each frame from the client is a ``Call``, and each from the host a ``Returned`` with the
call's number. Calls overlap, and answers come in any order.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, TypeVar, cast

import msgspec

from council.agents.messaging.mailbox import BATCH_BYTES_MAX, Reply, frame, unframe_reply
from council.cluster import known
from council.cluster.known import Known
from council.config.settings import CouncilConfig
from council.protocol.codec import ENVELOPE_BYTES_MAX
from council.protocol.errors import (
    CouncilClosed,
    CouncilDied,
    CouncilError,
    EnvelopeError,
    OperatorError,
    Unreachable,
)
from council.protocol.values import too_large
from council.runtime.answers import Joined, result_or_raise
from council.runtime.questions import Question, answer_type, to_bytes
from council.runtime.session import RETRY_S

# Changes whenever a client of one version can't talk to a host of the other.
PROTOCOL = 1
# A live host greets at once; one that is stopped or busy does not.
GREETING_TIMEOUT_S = 5.0
# The bytes of one call: a full batch, or one envelope, and room for the frame around it.
CALL_BYTES_MAX = BATCH_BYTES_MAX + ENVELOPE_BYTES_MAX
# The bytes of one answer. The largest is a page of the history, with its envelopes.
ANSWER_BYTES_MAX = 256 * 2**20
# The host itself gives the coordinator 15 s.
CLOSE_TIMEOUT_S = 30.0
# The share of a call's time in which it is repeated. The rest is left to report why it failed.
REPEATING = 0.9

T = TypeVar("T")


class Greeting(TypedDict):
    """The first message of a host: the version of the protocol, and its council."""

    protocol: int
    name: str


class Call(msgspec.Struct, array_like=True, frozen=True):
    """One call of the port's. ``payload`` has its arguments: msgpack, or for ``exchange`` a frame of bytes."""

    number: int
    verb: Literal["join", "leave", "exchange", "ask", "close"]
    payload: bytes


class Returned(msgspec.Struct, array_like=True, frozen=True):
    """The answer to the call of that number."""

    number: int
    answer: bytes


def framed(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


async def read_size(reader: asyncio.StreamReader, bytes_max: int) -> int:
    """The size of the next frame's content; 0 at the end of the stream.

    Raises EnvelopeTooLarge, OSError, and EOFError if the stream ends within it.
    """
    try:
        head = await reader.readexactly(4)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return 0
    (size,) = struct.unpack(">I", head)
    if size > bytes_max:
        raise too_large("frame", "bytes in one frame", bytes_max, size)
    return int(size)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """The next frame's content; b"" at the end of the stream. Raises as ``read_size``."""
    return await reader.readexactly(await read_size(reader, ANSWER_BYTES_MAX))


def refuse_open_folder(folder: Path) -> None:
    """Raises OperatorError unless ``folder`` is a folder of this user that nobody else may enter."""
    try:
        found = folder.lstat()
    except OSError as error:
        raise OperatorError(f"{folder} can't be used for a socket: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OperatorError(f"{folder} is not a folder of this user, expected one for the council's socket")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise OperatorError(f"{folder} is open to others (mode {mode:o}): chmod 700 {folder}")


def refuse_other_user(link: Any) -> None:
    """Raises OperatorError if the process at the other end is another user's, where the system tells that."""
    if hasattr(socket, "SO_PEERCRED"):
        size = struct.calcsize("3i")
        _, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        if user != os.geteuid():
            raise OperatorError(f"the process at the other end of the socket is of user {user}, not this one")


def _refuse_foreign(check: Callable[[Any], None], what: Any) -> None:
    """Runs a check, whose error says here that the socket is of no use. Raises Unreachable."""
    try:
        check(what)
    except OperatorError as error:
        raise Unreachable(error.message) from error


class _Wire:
    """One connection to a host. Once ``ended`` is set, no call over it gets an answer."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ended = False
        self._name = name
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def opened(cls, kept: Known) -> Self:
        """A connection to the host of ``kept``. Raises Unreachable, and OperatorError if the host refuses it."""
        writer: asyncio.StreamWriter | None = None
        try:
            if kept.socket is None:
                raise Unreachable("its process has no socket")
            _refuse_foreign(refuse_open_folder, Path(kept.socket).parent)
            async with asyncio.timeout(GREETING_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(kept.socket, limit=2**20)
                _refuse_foreign(refuse_other_user, writer.get_extra_info("socket"))
                greeting = result_or_raise(await _frame(reader), Greeting)
            if greeting["protocol"] != PROTOCOL or greeting["name"] != kept.name:
                raise Unreachable(
                    f"its process is {greeting['name']}'s and speaks version {greeting['protocol']} of the socket's "
                    f"protocol, expected {kept.name}'s and version {PROTOCOL}"
                )
            return cls(kept.name, reader, writer)
        except BaseException as error:
            if writer is not None:
                writer.close()
            if isinstance(error, (OSError, EOFError, EnvelopeError)):
                why = str(error) or f"no answer within {GREETING_TIMEOUT_S:g} s"
                raise Unreachable(f"its process can't be reached at {kept.socket}: {why}") from error
            raise

    async def answer(self, verb: str, payload: bytes) -> bytes:
        """The answer to a call. Raises CouncilDied if the connection ends before, and EnvelopeTooLarge."""
        number = next(self._numbers)
        packed = msgspec.msgpack.encode((number, verb, payload))
        if len(packed) > CALL_BYTES_MAX:
            raise too_large("call", "bytes in one call", CALL_BYTES_MAX, len(packed))
        if self.ended:
            raise self._lost()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls[number] = answer
        try:
            self._writer.write(framed(packed))
            with contextlib.suppress(OSError):  # then ``_read`` ends, too
                await self._writer.drain()
            return await answer
        finally:
            del self._calls[number]
            answer.cancel()

    async def _read(self) -> None:
        try:
            while content := await _frame(self._reader):
                returned = msgspec.msgpack.decode(content, type=Returned)
                waiting = self._calls.get(returned.number)
                if waiting is not None and not waiting.done():  # else the caller has given up
                    waiting.set_result(returned.answer)
        except (OSError, EOFError, msgspec.MsgspecError, CouncilError):
            pass  # the connection is of no use any more, as at its end
        finally:
            self.ended = True
            for waiting in self._calls.values():
                if not waiting.done():
                    waiting.set_exception(self._lost())
            self._writer.transport.abort()  # a stopped host would never take what is still to be sent
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    def _lost(self) -> CouncilDied:
        return CouncilDied(
            f"the connection to council {self._name} has ended",
            name=self._name,
            open_ids=[],
            reconnecting=True,
        )

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])


class SocketPort:
    """A coordinator behind its host's socket, for the clients' ``Session``. It belongs to one event loop.

    ``config`` says where the council's Ray is. If the council goes away and comes back, a call finds it again within
    its own time limit.
    """

    def __init__(self, wanted: CouncilConfig, kept: Known, wire: _Wire) -> None:
        self.config = _placed(wanted, kept)
        self._name = wanted.name
        self._wire = wire
        self._finding: asyncio.Task[None] | None = None
        self._loss: CouncilDied | None = None

    @classmethod
    async def opened(cls, wanted: CouncilConfig, kept: Known) -> Self:
        """A port to the host of ``kept``. Raises Unreachable, and OperatorError if the host refuses it."""
        return cls(wanted, kept, await _Wire.opened(kept))

    async def join(self, name: str, role: str, key: bytes) -> dict[str, Any]:
        payload = msgspec.msgpack.encode((name, role, key))
        return dict(await self._ask_again(Joined, "join", payload))

    async def leave(self, session: str) -> None:
        if not self._wire.ended:  # a lost council is not looked for
            await self._ask(None, "leave", session.encode())

    async def exchange(self, session: str, batch: Sequence[bytes]) -> Reply:
        return unframe_reply(await self._ask(bytes, "exchange", frame([session.encode(), *batch])))

    async def ask(self, question: Question[T]) -> T:
        return await self._ask_again(answer_type(question), "ask", to_bytes(question))

    async def close(self) -> None:
        """Ends the council and its actors. Raises Unreachable, and CouncilDied while its host seems to live."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._ask(None, "close", b"")
        except CouncilDied:
            if known.running(self._name) is not None:
                raise
        except TimeoutError:
            late = f"the process of council {self._name} has not ended it within {CLOSE_TIMEOUT_S:g} s"
            raise Unreachable(f"{late}: take it down with council down", name=self._name) from None

    async def _ask_again(self, kind: type[T], verb: str, payload: bytes) -> T:
        """A question, repeated while the council may come back; it must be safe to repeat."""
        ends_s = time.monotonic() + REPEATING * self.config.call_timeout_s
        while True:
            try:
                return await self._ask(kind, verb, payload)
            except (Unreachable, CouncilDied) as error:
                # A session that joins in order to send joins again by itself.
                passes = isinstance(error, Unreachable) or verb != "join"
                if not passes or time.monotonic() > ends_s:
                    raise
                await asyncio.sleep(RETRY_S)

    async def _ask(self, kind: type[T] | None, verb: str, payload: bytes) -> T:
        wire = await self._connected()
        try:
            return result_or_raise(await wire.answer(verb, payload), cast(type[T], kind))
        except CouncilDied as error:
            wire.ended = True
            self._loss = error
            raise _to_return(error) from None

    async def _connected(self) -> _Wire:
        """The connection, a new one if the last has ended. Raises what ``_find_again`` does, as ``reconnecting``."""
        if self._wire.ended:
            if self._finding is None or self._finding.done():
                self._finding = asyncio.get_running_loop().create_task(self._find_again())
                self._finding.add_done_callback(lambda task: task.cancelled() or task.exception())
            try:
                await asyncio.shield(self._finding)  # all calls await the same search
            except CouncilError as error:
                raise _to_return(error) from None
        return self._wire

    async def _find_again(self) -> None:
        """Raises CouncilClosed or CouncilDied if this user's file says that the council has ended, or it is lost."""
        await self._wire.close()
        kept = await asyncio.to_thread(known.located, self._name)
        if kept is None:
            raise CouncilClosed(
                f"council {self._name} was taken down, and is not up: bring it up again with council up",
                name=self._name,
                open_ids=[],
            )
        try:
            self._wire = await _Wire.opened(kept)
        except OperatorError as error:
            lost = self._loss or CouncilDied(f"council {self._name} is lost", name=self._name, open_ids=[])
            raise type(lost)(
                f"{lost.message}; it is not found again: {error.message}. If council status answers, connect again",
                **lost.facts,
            ) from error
        self._loss = None
        self.config = _placed(self.config, kept)


def _placed(config: CouncilConfig, kept: Known) -> CouncilConfig:
    return config.model_copy(update={"ray_address": kept.address, "ray_namespace": kept.namespace})


def connected_to_ray() -> bool:
    """Whether this process is connected to Ray, for example as a worker of it."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _to_return(error: CouncilError) -> CouncilError:
    """``error``, marked as one that the client repairs by itself."""
    return type(error)(error.message, **{**error.facts, "reconnecting": True})
