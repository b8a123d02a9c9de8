"""A client's way to councils on Ray: start one, find one, talk to its coordinator. Holds no rule."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import re
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import ray
from ray import exceptions as ray_errors

from council.agents.exchange import Reply, frame, unframe_reply
from council.humans import enrolled
from council.protocol.errors import CouncilDied, CouncilError, NameTaken, Unreachable, VersionMismatch
from council.runtime.inline import new_council_id
from council.runtime.journals import council_id_of, journal_key, settled
from council.runtime.ray_actors import (
    START_TIMEOUT_S,
    CoordinatorActor,
    Keys,
    actor_name,
    end_seats,
    versions,
)
from council.runtime.session import RETRY_S
from council.settings import MEMORY, CouncilConfig

# A host that is there answers a connection within a fraction of this.
PROBE_TIMEOUT_S = 5.0
# While a call is under way, so long between two looks whether the cluster's head is still there; and so long it
# must have been away: one that keeps its state on disk is back within 9 s (measured with Ray 2.60).
LOOK_S = 2.0
GONE_S = 12.0
# Ray ends the whole process, with exit code 1, once its head has been away for a minute. A program must hear of
# it as an error instead, which it does within GONE_S; so Ray is given a week. It keeps this in milliseconds.
RECONNECT_S = 7 * 86_400
# What becomes of what was open; from here nobody can see which of the two it is.
GONE_ON = (
    "launch it again: with a journal on disk it goes on with what was open, without one that is lost, and what is "
    "still wanted must be submitted again"
)
# A coordinator that was killed is back within so long, its journal replayed.
RESTART_S = 20.0
# A coordinator that is well closes at once; one that is not is ended after so long.
CLOSE_TIMEOUT_S = 15.0
# Shared memory is not used by small messages; Ray's default takes a third of the machine.
OBJECT_STORE_BYTES = 100 * 2**20
# Ray has no error of its own for a cluster of another version, but this RuntimeError of check_version_info.
_OTHER_VERSION = re.compile(r"Version mismatch: The cluster was started with:\s+Ray: (\S+)\s+Python: (\S+)")


class _Head:
    """Where a cluster's head listens. Without it a council is gone, and Ray does not say so in time."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self._name = name
        self._away_since_s: float | None = None

    def look(self) -> None:
        """Raises CouncilDied once nobody has listened there for GONE_S, Unreachable where the network fails."""
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S).close()
            self._away_since_s = None
        except OSError as error:
            now_s = time.monotonic()
            self._away_since_s = now_s if self._away_since_s is None else self._away_since_s
            if now_s - self._away_since_s < GONE_S:
                return
            what = f"the Ray of council {self._name} at {self._address} does not answer ({error})"
            if not isinstance(error, ConnectionRefusedError):
                raise Unreachable(what, name=self._name, address=self._address) from error
            raise CouncilDied(
                f"{what}: it has ended, and the council with it; {GONE_ON}",
                name=self._name,
                open_ids=[],
            ) from error


class RayPort:
    """A coordinator's actor, for the clients' ``Session``. Every Ray error becomes one of ours."""

    def __init__(
        self, handle: Any, name: str, namespace: str, release: Callable[[], None] | None = None
    ) -> None:
        self._handle = handle
        self._name = name
        self._namespace = namespace
        self._release = release
        self._head = _Head(address(), name)
        self._gone: CouncilError | None = None
        self._asked: set[asyncio.Future[Any]] = set()
        self._looking: asyncio.Task[None] | None = None

    async def join(self, name: str, role: str, key: bytes) -> dict[str, Any]:
        joined: dict[str, Any] = await self._ask_again(lambda: self._handle.join.remote(name, role, key))
        return joined

    async def leave(self, session: str) -> None:
        await self._ask(lambda: self._handle.leave.remote(session))

    async def exchange(self, session: str, batch: Sequence[bytes]) -> Reply:
        return unframe_reply(
            await self._ask(lambda: self._handle.exchange.remote(frame([session.encode(), *batch])))
        )

    def exchange_now(self, session: str, batch: Sequence[bytes], timeout_s: float) -> Reply:
        """``exchange`` for a thread that waits for it without an event loop."""
        with _as_ours(self._name):
            call: Any = self._handle.exchange.remote(frame([session.encode(), *batch]))
            ends_s = time.monotonic() + timeout_s
            while True:
                left_s = max(0.0, ends_s - time.monotonic())
                try:
                    return unframe_reply(cast(bytes, ray.get(call, timeout=min(left_s, LOOK_S))))
                except ray_errors.GetTimeoutError:
                    if left_s <= LOOK_S:
                        raise
                    self._head.look()

    async def status(self) -> dict[str, Any]:
        status: dict[str, Any] = await self._ask_again(lambda: self._handle.status.remote())
        return status

    async def decision(self, proposal_id: str) -> bytes | None:
        packed: bytes | None = await self._ask_again(lambda: self._handle.decision.remote(proposal_id))
        return packed

    async def escalations(self) -> bytes:
        packed: bytes = await self._ask_again(lambda: self._handle.escalations.remote())
        return packed

    async def history(self, asked: bytes) -> bytes:
        packed: bytes = await self._ask_again(lambda: self._handle.history.remote(asked))
        return packed

    async def events(self, after: int, limit: int, wait_s: float) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self._ask_again(
            lambda: self._handle.events.remote(after, limit, wait_s)
        )
        return found

    async def close(self) -> None:
        """Ends the council and its actors."""
        with contextlib.suppress(CouncilDied, Unreachable, TimeoutError):  # then it is ended all the same
            await asyncio.wait_for(self._ask(lambda: self._handle.close.remote()), CLOSE_TIMEOUT_S)
        if self._gone is None:  # without its head, Ray would wait for that one first
            ray.kill(self._handle, no_restart=True)
            end_seats(self._name, self._namespace)

    def release(self) -> None:
        """Lets go of Ray, if it was started for this council alone."""
        if self._release is not None:
            self._release()

    async def _ask_again(self, call: Callable[[], Any]) -> Any:
        """A question, asked again while the coordinator may be restarting: it changes nothing, or not twice."""
        ends_s = time.monotonic() + RESTART_S
        while True:
            try:
                return await self._ask(call)
            except Unreachable:
                if time.monotonic() > ends_s:
                    raise
                await asyncio.sleep(RETRY_S)

    async def _ask(self, call: Callable[[], Any]) -> Any:
        with _as_ours(self._name):
            asked = asyncio.wrap_future(call().future())
            self._asked.add(asked)
            if self._looking is None or self._looking.done():
                self._looking = asyncio.get_running_loop().create_task(self._look())
            try:
                return await asked
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if self._gone is None or task is None or task.cancelling():
                    raise
                raise self._gone from None  # it was ``_look`` that gave the call up
            except ray_errors.RayError as error:
                if not isinstance(error, ray_errors.RayTaskError):  # it did not come through
                    await self._look_once()
                raise
            finally:
                self._asked.discard(asked)

    async def _look(self) -> None:
        """While calls are under way, sees that there is still somebody to answer them."""
        while self._asked:
            await asyncio.sleep(LOOK_S)
            try:
                if self._asked:
                    await self._look_once()
            except CouncilError:
                for asked in self._asked:
                    asked.cancel()
                return

    async def _look_once(self) -> None:
        try:
            await asyncio.to_thread(self._head.look)
            self._gone = None
        except CouncilError as error:
            self._gone = error
            raise


@contextlib.contextmanager
def _as_ours(name: str) -> Iterator[None]:
    """Ray's errors as the council's."""
    try:
        yield
    except CouncilError as error:
        raise _bare(error) from None
    except ray_errors.RayTaskError as error:
        if isinstance(error.cause, CouncilError):
            raise error.cause from None
        raise Unreachable(f"the coordinator of {name} failed: {error.cause!r}", name=name) from error
    except ray_errors.ActorDiedError as error:
        raise CouncilDied(
            f"the coordinator of {name} is dead; {GONE_ON}",
            name=name,
            open_ids=[],
        ) from error
    except (ray_errors.RayError, ConnectionError) as error:
        raise Unreachable(f"the coordinator of {name} can't be reached: {error}", name=name) from error


def _bare(error: CouncilError) -> CouncilError:
    """The error that was raised over there, without Ray's wrapping class around it."""
    cause = getattr(error, "cause", None) if isinstance(error, ray_errors.RayTaskError) else None
    return cause if isinstance(cause, CouncilError) else error


def ensure_ray(
    address: str | None, *, dashboard: bool = False, timeout_s: float = 30.0
) -> Callable[[], None] | None:
    """Connects this process to Ray, starting a local one where ``address`` is None and none is in use yet.

    Returns how to let go of a Ray that was started here, else None. A local Ray demands a token, made for it
    alone, since its ports are open to the network. Raises Unreachable, VersionMismatch.
    """
    if ray.is_initialized():
        ours = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", "local") and not _same_place(str(address), ours):
            raise Unreachable(
                f"this process is connected to the Ray at {ours} and can't use the one at {address} as well: "
                "call ray.shutdown() first, or leave the address out",
                address=address,
            )
        return None
    # Read by Ray when it connects; also one of our own must not end this process.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(RECONNECT_S))
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address is None:
        # Ray turns its token on for a local cluster. Given one, it does not leave one in the home folder;
        # one for each process, for Ray keeps the first that it reads.
        if os.environ.get("RAY_AUTH_MODE", "token") == "token" and "RAY_AUTH_TOKEN_PATH" not in os.environ:
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        # It warns that it did so, in four lines, at whoever starts a council.
        warns = logging.getLogger("ray._private.authentication.authentication_token_setup")
        level = warns.level
        warns.setLevel(logging.ERROR)
        try:
            ray.init(
                address="local",
                include_dashboard=dashboard,
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=_temp_dir(),
                **quiet,
            )
        finally:
            warns.setLevel(level)
        return ray.shutdown
    os.environ.setdefault("RAY_AUTH_MODE", "token" if os.environ.get("RAY_AUTH_TOKEN") else "disabled")
    os.environ.setdefault("RAY_gcs_rpc_server_connect_timeout_s", str(int(timeout_s)))
    _refuse_if_nobody_listens(address)
    try:
        ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, ray_errors.RayError, OSError) as error:
        other = _OTHER_VERSION.match(str(error))
        if other is not None:
            raise _mismatch(f"the Ray at {address}", {"ray": other[1], "python": other[2]}) from error
        raise Unreachable(
            f"no Ray answers at {address}: {error}; see that it runs there, and that RAY_AUTH_TOKEN is its own",
            address=address,
        ) from error
    return ray.shutdown


def _same_place(one: str, other: str) -> bool:
    """Whether two addresses, ``host:port``, lead to one Ray; this machine's own names are all one host."""
    (host, _, port), (other_host, _, other_port) = one.rpartition(":"), other.rpartition(":")
    return port == other_port and bool(_numbers(host) & _numbers(other_host))


def _numbers(host: str) -> set[str]:
    """A host's IP addresses; where one of them is this machine's, the word for that instead."""
    host = host.strip("[]")
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return {host}  # a name that leads nowhere is that of another cluster, unless it is the very same
    util: Any = ray.util  # without types
    own = {util.get_node_ip_address()}
    return {"here"} if any(each in own or ipaddress.ip_address(each).is_loopback for each in found) else found


def _refuse_if_nobody_listens(address: str) -> None:
    """Ray tries an address for minutes; a port that nobody listens on is told at once."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), PROBE_TIMEOUT_S).close()
    except OSError as error:
        raise Unreachable(f"no Ray answers at {address}: {error}", address=address) from error


def _temp_dir() -> str | None:
    """Ray's folder for sockets must have a short name; the system's own temporary folder mostly has."""
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return os.path.join(folder, "ray")


def launch(config: CouncilConfig, *, detached: bool = False, dashboard: bool = False) -> RayPort:
    """Starts a council on Ray; waits until all its seats are up.

    Raises NameTaken, MindError, ConfigError, Unreachable, VersionMismatch, OperatorError; then nothing is
    left running.
    """
    name = config.name
    durable = config.store != MEMORY
    if config.ray_address is None:  # on this machine, whatever the environment of Ray's processes says
        config = settled(config)
    release = ensure_ray(config.ray_address, dashboard=dashboard)
    try:
        council_id = _council_id(config)
        seats = {seat.name: secrets.token_bytes(32) for seat in config.seats}
        keys = Keys(seats, enrolled(config, council_id), journal_key(name) if durable else b"")
        try:
            coordinators: Any = CoordinatorActor
            handle = coordinators.options(
                name=actor_name(name, "coordinator"),
                namespace=config.ray_namespace,
                lifetime="detached" if detached else "non_detached",
                max_restarts=-1 if durable else 0,  # an empty council must not answer for a full one
            ).remote(config, council_id, keys)
        except ValueError as error:
            raise NameTaken(
                f"a council named {name} runs already in namespace {config.ray_namespace}: connect to it, "
                "take it down, or choose another name",
                name=name,
            ) from error
        try:
            with _as_ours(name):
                ray.get(handle.open.remote(), timeout=START_TIMEOUT_S + 30)
        except BaseException:
            ray.kill(handle, no_restart=True)
            end_seats(name, config.ray_namespace)
            raise
    except BaseException:
        if release is not None:
            release()
        raise
    return RayPort(handle, name, config.ray_namespace, release)


def _council_id(config: CouncilConfig) -> str:
    """The id of the council that this is, or begins to be: where the coordinator will be, its journal is.

    Raises StoreError, Unreachable.
    """
    new_id = new_council_id(config.name)
    if config.ray_address is None or config.store == MEMORY:
        return council_id_of(config, new_id)
    look: Any = ray.remote(num_cpus=0, max_retries=0)(council_id_of)
    with _as_ours(config.name):
        return cast(str, ray.get(look.remote(config, new_id), timeout=START_TIMEOUT_S))


def connect(config: CouncilConfig) -> RayPort:
    """The running council of that name. Raises Unreachable, VersionMismatch."""
    release = ensure_ray(config.ray_address or "auto")
    name = config.name
    try:
        try:
            handle = ray.get_actor(actor_name(name, "coordinator"), namespace=config.ray_namespace)
        except ValueError as error:
            raise Unreachable(
                f"no council named {name} runs in namespace {config.ray_namespace} of this Ray; "
                f"running: {', '.join(running(config.ray_namespace)) or 'none'}",
                name=name,
                address=config.ray_address,
            ) from error
        with _as_ours(name):
            hello: Any = handle.hello.remote()
            theirs = cast(dict[str, Any], ray.get(hello, timeout=config.call_timeout_s))
        _check_versions(theirs)
    except ray_errors.GetTimeoutError as error:
        raise Unreachable(f"the coordinator of {name} does not answer", name=name) from error
    except BaseException:
        if release is not None:
            release()
        raise
    return RayPort(handle, name, config.ray_namespace, release)


def _check_versions(theirs: dict[str, Any]) -> None:
    ours = versions()
    same_python = ours["python"].rsplit(".", 1)[0] == str(theirs["python"]).rsplit(".", 1)[0]
    if ours["ray"] != theirs["ray"] or not same_python:
        raise _mismatch("the council", theirs)


def _mismatch(what: str, theirs: dict[str, Any]) -> VersionMismatch:
    ours = versions()
    return VersionMismatch(
        f"{what} runs on Ray {theirs['ray']} and Python {theirs['python']}, this process on {ours['ray']} and "
        f"{ours['python']}: use the same",
        ours=ours,
        theirs=theirs,
    )


def address() -> str:
    """Where the Ray is that this process is connected to."""
    return str(ray.get_runtime_context().gcs_address)


def running(namespace: str) -> list[str]:
    """The names of the councils that run in a namespace."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    suffix = "/coordinator"
    return sorted(
        actor["name"].removesuffix(suffix)
        for actor in actors
        if actor["namespace"] == namespace and actor["name"].endswith(suffix)
    )
