"""A client's way to councils on Ray: start one, find one, talk to its coordinator. Holds no rule."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import ray
from ray import exceptions as ray_errors
from ray._private import services
from ray._raylet import Config  # type: ignore[attr-defined]

import council
from council.agents.exchange import Reply, frame, unframe_reply
from council.chartering import chartered
from council.humans import enrolled
from council.protocol.errors import (
    ConfigError,
    CouncilDied,
    CouncilError,
    NameTaken,
    OperatorError,
    Unreachable,
    VersionMismatch,
)
from council.runtime import admission, ray_panel
from council.runtime.admission import GONE_ON, Head
from council.runtime.journals import council_id_of, journal_key, settled
from council.runtime.parts import new_council_id
from council.runtime.placement import look_around, pinned, refuse_unequal
from council.runtime.ray_actors import (
    START_TIMEOUT_S,
    CoordinatorActor,
    Keys,
    actor_name,
    alive,
    end_seats,
    on_node,
    versions,
)
from council.runtime.session import RETRY_S
from council.settings import MEMORY, CouncilConfig
from council.tracing import refuse_untraceable

# While a call is under way, so long between two looks whether the cluster's head is still there.
LOOK_S = 2.0
# Ray ends the whole process, with exit code 1, once its head has been away for a minute. A program must hear of
# it as an error instead, which it does within GONE_S; so Ray is given a week. It keeps this in milliseconds.
RECONNECT_S = 7 * 86_400
# A coordinator that was killed is back within so long, its journal replayed.
RESTART_S = 20.0
# A coordinator that is well closes at once; one that is not is ended after so long.
CLOSE_TIMEOUT_S = 15.0
# Shared memory is not used by small messages; Ray's default takes a third of the machine.
OBJECT_STORE_BYTES = 100 * 2**20
# Ray has no error of its own for a cluster of another version, but this RuntimeError of check_version_info.
_OTHER_VERSION = re.compile(r"Version mismatch: The cluster was started with:\s+Ray: (\S+)\s+Python: (\S+)")
# Nor for a machine that runs no node of it; this is of get_node_to_connect_for_driver.
_NO_NODE = "No node info found matching attributes"
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}


class RayPort:
    """A coordinator's actor, for the clients' ``Session``. Every Ray error becomes one of ours."""

    def __init__(
        self, handle: Any, name: str, namespace: str, release: Callable[[], None] | None = None
    ) -> None:
        self._handle = handle
        self._name = name
        self._namespace = namespace
        self._release = release
        self._head = Head(address(), name)
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
    except ray_errors.ActorUnschedulableError as error:
        raise CouncilDied(
            f"the coordinator of {name} has no node to run on: the one that holds its journal, a file, is gone. "
            "Bring it back and launch the council again there; with its journal in PostgreSQL it would have moved",
            name=name,
            open_ids=[],
        ) from error
    except ray_errors.GetTimeoutError as error:
        raise Unreachable(f"the coordinator of {name} does not answer", name=name) from error
    except (ray_errors.RayError, ConnectionError) as error:
        raise Unreachable(f"the coordinator of {name} can't be reached: {error}", name=name) from error


def _bare(error: CouncilError) -> CouncilError:
    """The error that was raised over there, without Ray's wrapping class around it."""
    cause = getattr(error, "cause", None) if isinstance(error, ray_errors.RayTaskError) else None
    return cause if isinstance(cause, CouncilError) else error


def ensure_ray(
    address: str | None,
    *,
    dashboard: bool = False,
    insecure: bool = True,
    ship: bool = False,
    timeout_s: float = 30.0,
) -> Callable[[], None] | None:
    """Connects this process to Ray, starting a local one where ``address`` is None and none is in use yet.

    Returns how to let go of a Ray that was connected to here, else None. A local Ray demands a token, made for it
    alone, since its ports are open to the network; one elsewhere that demands none is refused unless ``insecure``.
    ``ship`` sends this package to its nodes. Raises Unreachable, VersionMismatch, OperatorError, ConfigError.
    """
    if ray.is_initialized():
        ours = ray.get_runtime_context().gcs_address
        util: Any = ray.util  # without types
        own = util.get_node_ip_address()
        if address not in (None, "auto", "local") and not admission.same_place(str(address), ours, own):
            raise Unreachable(
                f"this process is connected to the Ray at {ours} and can't use the one at {address} as well: "
                "call ray.shutdown() first, or leave the address out (and RAY_ADDRESS)",
                address=address,
            )
        if ship:
            why = (
                "ray_ship: this process is connected to its Ray already: give py_modules to ray.init instead"
            )
            raise ConfigError(why, problems=[why])
        return None
    # Read by Ray when it connects; also one of our own must not end this process.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(RECONNECT_S))
    if address in (None, "local"):
        _start(dashboard)
    else:
        _join(_resolved(str(address)), insecure=insecure, ship=ship, timeout_s=timeout_s)
    return ray.shutdown


def _start(dashboard: bool) -> None:
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
            **_QUIET,
        )
    finally:
        warns.setLevel(level)


def _join(address: str, *, insecure: bool, ship: bool, timeout_s: float) -> None:
    door = admission.knock(address)
    if not (door.demands_token or insecure):
        raise admission.insecure(address)
    local: Any = services  # without types
    if not local.find_gcs_addresses():  # Ray would look for a minute, and not say this
        raise admission.no_node(address)
    os.environ.setdefault("RAY_gcs_rpc_server_connect_timeout_s", str(int(timeout_s)))
    package = {"py_modules": [str(Path(council.__file__).parent)], "excludes": ["__pycache__"]}
    try:
        with door.mode():
            # Ray read how to show itself when it was imported, and is to read it again.
            Config.initialize("")
            ray.init(address=address, runtime_env=package if ship else None, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError, ray_errors.RayError, OSError) as error:
        other = _OTHER_VERSION.match(str(error))
        if other is not None:
            raise _mismatch(f"the Ray at {address}", {"ray": other[1], "python": other[2]}) from error
        if _NO_NODE in str(error):
            raise admission.no_node(address) from error
        raise Unreachable(
            f"no Ray answers at {address}: {error}; see that it runs there, and that RAY_AUTH_TOKEN is its own",
            address=address,
        ) from error


def _resolved(address: str) -> str:
    """Where ``auto`` leads: to the Ray of this machine."""
    if address != "auto":
        return address
    try:
        return str(services.canonicalize_bootstrap_address_or_die("auto"))
    except (ConnectionError, ValueError) as error:
        raise Unreachable(
            f"no Ray was found on this machine: {error}; start one, or give its address", address=address
        ) from error


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
    refuse_untraceable(config)
    config = chartered(config)
    if config.ray_address is None or pinned(config):  # on this machine, whatever Ray's processes are told
        config = settled(config)
    dashboard = dashboard or config.ray_dashboard
    config = ray_panel.with_panel(config, dashboard=dashboard)
    with ray_panel.for_dashboard(config, dashboard=dashboard):
        release = ensure_ray(
            config.ray_address, dashboard=dashboard, insecure=config.ray_insecure, ship=config.ray_ship
        )
    try:
        if config.ray_address is not None:
            _look_at_nodes()
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
                scheduling_strategy=_where(config),
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
    if config.ray_address is None or config.store == MEMORY or pinned(config):
        return council_id_of(config, new_id)
    look: Any = ray.remote(num_cpus=0, max_retries=0)(council_id_of)
    with _as_ours(config.name):
        return cast(str, ray.get(look.remote(config, new_id), timeout=START_TIMEOUT_S))


def _where(config: CouncilConfig) -> Any:
    """On which node the coordinator runs: this one where its journal is a file, else any."""
    return on_node(ray.get_runtime_context().get_node_id()) if pinned(config) else "DEFAULT"


def _look_at_nodes() -> None:
    """Raises OperatorError or VersionMismatch, naming the nodes on which a seat could not run."""
    looking: Any = ray.remote(num_cpus=0, max_retries=0)(look_around())
    found: dict[str, tuple[str | None, str]] = {}
    ends_s = time.monotonic() + START_TIMEOUT_S
    while left := [node for node in alive() if node.told not in found]:
        asked = {looking.options(scheduling_strategy=on_node(node.node_id)).remote(): node for node in left}
        ray.wait(list(asked), num_returns=len(asked), timeout=max(0.0, ends_s - time.monotonic()))
        for each, node in asked.items():
            # One that went meanwhile, or has come just now and is not known everywhere: it is looked for again.
            with contextlib.suppress(
                ray_errors.NodeDiedError, ray_errors.TaskUnschedulableError, ray_errors.GetTimeoutError
            ):
                found[node.told] = cast(tuple[str | None, str], ray.get(each, timeout=LOOK_S))
        if time.monotonic() > ends_s:
            hosts = ", ".join(node.told for node in left)
            raise OperatorError(f"no process starts within {START_TIMEOUT_S:g} s on {hosts}: see Ray's logs")
    refuse_unequal(found, council.__version__)


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


def completed(cluster: dict[str, Any]) -> dict[str, Any]:
    """A file of Ray's cluster launcher with Ray's defaults put in. Raises ConfigError where Ray would not take it."""
    from ray.autoscaler._private import util  # of the launcher, which only council cluster check needs

    try:
        complete: dict[str, Any] = util.prepare_config(cluster)
        util.validate_config(complete)
    except Exception as error:
        said = str(error) if " " in str(error) else repr(error)
        raise ConfigError(f"ray up would not take it: {said}", problems=[said]) from error
    return complete
