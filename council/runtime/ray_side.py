"""Everything that calls Ray: starting it, the actors, and the ways to them. Holds no rule.

Actors are named ``<council>/coordinator`` and ``<council>/<seat>`` in the namespace of the council. Ray's own
task retries are off: a call may run twice with them, and retries by envelope id are ours. A seat's actor is
restarted by Ray; the coordinator's is not, for its memory is the only record: its death is told as such.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import platform
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# A dead actor is told from a slow one after so long, in milliseconds; Ray's default is a second.
os.environ.setdefault("RAY_timeout_ms_task_wait_for_death_info", "50")

import ray
from ray import exceptions as ray_errors

from council.agents.exchange import Reply
from council.journal.record import MemoryJournal
from council.protocol.errors import (
    CouncilDied,
    CouncilError,
    MindError,
    NameTaken,
    OperatorError,
    Unreachable,
    VersionMismatch,
)
from council.runtime.coordinator import Coordinator
from council.runtime.inline import new_council_id, new_seat, rules_of, system_clock
from council.settings import CouncilConfig

# Clients park up to two calls each at the coordinator; seats and heartbeats come on top.
COORDINATOR_CALLS_MAX = 5_000
# Starting a process on a busy machine takes seconds; a council that is not up by then will not be.
START_TIMEOUT_S = 120.0
# A host that is there answers a connection within a fraction of this.
PROBE_TIMEOUT_S = 5.0
# Shared memory is not used by small messages; Ray's default takes a third of the machine.
OBJECT_STORE_BYTES = 100 * 2**20


# Ray's own types know neither concurrency groups nor what a decorated class can do.
_remote: Any = ray.remote
F = TypeVar("F", bound=Callable[..., Any])


def _in_group(name: str) -> Callable[[F], F]:
    """Has an actor's method run on a concurrency group's own thread and event loop."""
    return cast(Callable[[F], F], cast(Any, ray.method)(concurrency_group=name))


@_remote(num_cpus=0, max_restarts=-1, max_task_retries=0, concurrency_groups={"heartbeat": 2, "letters": 8})
class SeatActor:
    """A seat: hosts one mind. Its heartbeat has a concurrency group, and so a thread, of its own."""

    def __init__(self, config: CouncilConfig, name: str, key: bytes, council_id: str) -> None:
        _spare_the_collector()
        self._title = f"Seat {name} of {council_id}"
        self._config, self._name, self._key, self._council_id = config, name, key, council_id
        self._host = new_seat(config, name, key, council_id)

    def __repr__(self) -> str:
        return self._title

    @_in_group("letters")
    async def exchange(self, batch: list[bytes]) -> Reply:
        return await self._host.exchange(batch)

    @_in_group("heartbeat")
    async def attend(self, boot: int, coordinator: Any) -> None:
        async def send(sealed: bytes, name: str) -> None:
            await coordinator.hear.options(name=name).remote(sealed)

        try:
            await self._host.attend(boot, send)
        except ray_errors.ActorDiedError:  # not restarting: dead for good, and this seat has nobody to serve
            cast(Any, ray.actor).exit_actor()

    @_in_group("heartbeat")
    async def pid(self) -> int:
        return os.getpid()


@_remote(num_cpus=0, max_restarts=0, max_task_retries=0, max_concurrency=COORDINATOR_CALLS_MAX)
class CoordinatorActor:
    """A council's coordinator; creates its seats, and ends them when it is closed."""

    def __init__(self, config: CouncilConfig, council_id: str) -> None:
        _spare_the_collector()
        self._config = config
        self._council_id = council_id
        self._coordinator: Coordinator | None = None

    def __repr__(self) -> str:
        return f"Coordinator of {self._council_id}"

    async def open(self) -> dict[str, Any]:
        """Starts the seats. Raises MindError for a mind that can't be had; then nothing is left running."""
        config = self._config
        keys = {seat.name: secrets.token_bytes(32) for seat in config.seats}
        me = ray.get_runtime_context().current_actor
        transport = RayTransport(config, keys, self._council_id, me)
        try:
            await transport.start()
        except BaseException:
            await transport.close()
            raise
        self._coordinator = Coordinator(
            rules_of(config),
            self._council_id,
            keys,
            transport,
            MemoryJournal(config.events_kept),
            system_clock(),
            events_kept=config.events_kept,
        )
        await self._coordinator.open()
        return self.about()

    def about(self) -> dict[str, Any]:
        return {"council_id": self._council_id, "pid": os.getpid(), **versions()}

    async def hello(self) -> dict[str, Any]:
        """What runs here, for a client to compare itself with."""
        return self.about()

    async def join(self, name: str, role: str, key: bytes) -> dict[str, Any]:
        return await self._opened().join(name, role, key)

    async def leave(self, session: str) -> None:
        await self._opened().leave(session)

    async def exchange(self, session: str, batch: list[bytes]) -> Reply:
        return await self._opened().exchange(session, batch)

    async def hear(self, sealed: bytes) -> None:
        await self._opened().hear(sealed)

    async def status(self) -> dict[str, Any]:
        return {**await self._opened().status(), "name": self._config.name, "pid": os.getpid()}

    async def decision(self, proposal_id: str) -> bytes | None:
        return await self._opened().decision(proposal_id)

    async def escalations(self) -> bytes:
        return await self._opened().escalations()

    async def events(self, after: int, limit: int, wait_s: float) -> list[dict[str, Any]]:
        return await self._opened().events(after, limit, wait_s)

    async def close(self) -> None:
        if self._coordinator is not None:
            await self._coordinator.close()

    def _opened(self) -> Coordinator:
        if self._coordinator is None:
            raise Unreachable("the council is still starting; try again", name=self._config.name)
        return self._coordinator


async def _result(ref: Any) -> Any:
    return await asyncio.wrap_future(ref.future())


class RayTransport:
    """Seats as detached, named actors: they outlive nothing, for whoever closes the council ends them."""

    def __init__(self, config: CouncilConfig, keys: dict[str, bytes], council_id: str, me: Any) -> None:
        self._config = config
        self._keys = keys
        self._council_id = council_id
        self._me = me
        self._actors: dict[str, Any] = {}

    async def start(self) -> None:
        end_seats(self._config.name, self._config.ray_namespace)  # of a council that died without closing
        for seat in self._config.seats:
            self._actors[seat.name] = self._create(seat.name)
        for name, actor in self._actors.items():
            await self._begun(name, actor)

    def _create(self, name: str) -> Any:
        seats: Any = SeatActor
        options = seats.options(
            name=actor_name(self._config.name, name),
            namespace=self._config.ray_namespace,
            lifetime="detached",
        )
        return options.remote(self._config, name, self._keys[name], self._council_id)

    async def _begun(self, name: str, actor: Any) -> None:
        """Waits until the seat's process is up; a mind that can't be built is told as what it is."""
        try:
            await asyncio.wait_for(_result(actor.pid.remote()), START_TIMEOUT_S)
        except TimeoutError:
            raise OperatorError(
                f"seat {name} did not start within {START_TIMEOUT_S:g} s: see the cluster's resources",
                seat=name,
            ) from None
        except ray_errors.RayActorError as error:
            cause = _mind_error(error)
            raise cause or MindError(f"seat {name} could not start: {error}", seat=name, mind="?") from None

    async def exchange(self, seat: str, batch: list[bytes]) -> Reply:
        reply: Reply = await _result(self._actors[seat].exchange.remote(batch))
        return reply

    async def attend(self, seat: str, boot: int) -> None:
        await _result(self._actors[seat].attend.remote(boot, self._me))

    async def revive(self, seat: str) -> None:
        """Waits for Ray to restart the actor, or creates it again where it is gone for good."""
        try:
            await asyncio.wait_for(_result(self._actors[seat].pid.remote()), START_TIMEOUT_S)
        except ray_errors.ActorDiedError:
            self._actors[seat] = self._create(seat)
            await self._begun(seat, self._actors[seat])

    async def close(self) -> None:
        for actor in self._actors.values():
            ray.kill(actor, no_restart=True)


def _mind_error(error: BaseException) -> MindError | None:
    """The MindError that an actor's constructor raised, found in Ray's report of its death."""
    seen: BaseException | None = error
    while seen is not None:
        for candidate in (seen, getattr(seen, "cause", None)):
            if isinstance(candidate, MindError):
                return candidate
        seen = getattr(seen, "cause", None) or seen.__cause__ or seen.__context__
    text = str(error)
    marker = "MindError: "
    if marker in text:
        return MindError(text.split(marker, 1)[1].strip().splitlines()[0], seat="?", mind="?")
    return None


def _spare_the_collector() -> None:
    """Has this actor's process look for garbage cycles seldom: it makes next to none, and many objects.

    Python's default, every 700 objects, took a fifth of a coordinator's time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# The client's side


def versions() -> dict[str, str]:
    """What must agree between a client and the cluster."""
    return {"ray": ray.__version__, "python": platform.python_version()}


def actor_name(council: str, part: str) -> str:
    return f"{council}/{part}"


class RayPort:
    """A coordinator's actor, for the clients' ``Session``. Every Ray error becomes one of ours."""

    def __init__(
        self, handle: Any, name: str, namespace: str, release: Callable[[], None] | None = None
    ) -> None:
        self._handle = handle
        self._name = name
        self._namespace = namespace
        self._release = release

    async def join(self, name: str, role: str, key: bytes) -> dict[str, Any]:
        joined: dict[str, Any] = await self._ask(lambda: self._handle.join.remote(name, role, key))
        return joined

    async def leave(self, session: str) -> None:
        await self._ask(lambda: self._handle.leave.remote(session))

    async def exchange(self, session: str, batch: Sequence[bytes]) -> Reply:
        reply: Reply = await self._ask(lambda: self._handle.exchange.remote(session, list(batch)))
        return reply

    async def status(self) -> dict[str, Any]:
        status: dict[str, Any] = await self._ask(lambda: self._handle.status.remote())
        return status

    async def decision(self, proposal_id: str) -> bytes | None:
        packed: bytes | None = await self._ask(lambda: self._handle.decision.remote(proposal_id))
        return packed

    async def escalations(self) -> bytes:
        packed: bytes = await self._ask(lambda: self._handle.escalations.remote())
        return packed

    async def events(self, after: int, limit: int, wait_s: float) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self._ask(
            lambda: self._handle.events.remote(after, limit, wait_s)
        )
        return found

    async def close(self) -> None:
        """Ends the council and its actors."""
        with contextlib.suppress(CouncilDied):
            await self._ask(lambda: self._handle.close.remote())
        ray.kill(self._handle, no_restart=True)
        end_seats(self._name, self._namespace)

    def release(self) -> None:
        """Lets go of Ray, if it was started for this council alone."""
        if self._release is not None:
            self._release()

    async def _ask(self, call: Callable[[], Any]) -> Any:
        with _as_ours(self._name):
            return await _result(call())


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
            f"the coordinator of {name} is dead; what it had not answered is lost: launch it again, and submit "
            "what is still wanted",
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
        return None
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
        if "version" in str(error).lower():
            raise VersionMismatch(
                f"the Ray at {address} is of another version than ours ({versions()}): {error}",
                ours=versions(),
                theirs=str(error),
            ) from error
        raise Unreachable(
            f"no Ray answers at {address}: {error}; see that it runs there, and that RAY_AUTH_TOKEN is its own",
            address=address,
        ) from error
    return ray.shutdown


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

    Raises NameTaken, MindError, Unreachable, VersionMismatch, OperatorError; then nothing is left running.
    """
    release = ensure_ray(config.ray_address, dashboard=dashboard)
    name = config.name
    council_id = new_council_id(name)
    try:
        try:
            coordinators: Any = CoordinatorActor
            handle = coordinators.options(
                name=actor_name(name, "coordinator"),
                namespace=config.ray_namespace,
                lifetime="detached" if detached else "non_detached",
            ).remote(config, council_id)
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
            raise
    except BaseException:
        if release is not None:
            release()
        raise
    return RayPort(handle, name, config.ray_namespace, release)


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
        raise VersionMismatch(
            f"the council runs on Ray {theirs['ray']} and Python {theirs['python']}, this process on "
            f"{ours['ray']} and {ours['python']}: use the same",
            ours=ours,
            theirs=theirs,
        )


def address() -> str:
    """Where the Ray is that this process is connected to."""
    return str(ray.get_runtime_context().gcs_address)


def end_seats(name: str, namespace: str) -> None:
    """Ends the actors of the seats of a council whose coordinator is gone, or about to make new ones."""
    for actor in ray.util.list_named_actors(all_namespaces=True):
        council, _, part = actor["name"].rpartition("/")
        if actor["namespace"] == namespace and council == name and part != "coordinator":
            with contextlib.suppress(ValueError):  # gone between the two calls
                ray.kill(ray.get_actor(actor["name"], namespace=namespace), no_restart=True)


def running(namespace: str) -> list[str]:
    """The names of the councils that run in a namespace."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    suffix = "/coordinator"
    return sorted(
        actor["name"].removesuffix(suffix)
        for actor in actors
        if actor["namespace"] == namespace and actor["name"].endswith(suffix)
    )
