"""A client's connection to councils on Ray: start one, find one, talk to its coordinator."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import ray
from ray import exceptions as ray_errors

from council.agents.messaging.mailbox import Reply, frame, unframe_reply
from council.cluster import connection as ray_link
from council.cluster import known, panel_actor, raw_answers
from council.cluster.actors import START_TIMEOUT_S, CoordinatorActor, Keys, actor_name, end_seats
from council.cluster.admission import GONE_ON, ClusterHead, refuse_if_nobody_listens
from council.cluster.connection import current, ensure_ray, link, on_node
from council.cluster.placement import pinned
from council.config.charter_files import resolve_charter
from council.config.human_keys import keys_of_humans
from council.config.settings import MEMORY, CouncilConfig
from council.protocol.errors import (
    ConfigError,
    CouncilClosed,
    CouncilDied,
    CouncilError,
    NameTaken,
    Unreachable,
)
from council.runtime.build import new_council_id
from council.runtime.journals import council_id_of, journal_key, with_store_paths
from council.runtime.questions import Question, answer_type, to_bytes
from council.runtime.session import RETRY_S
from council.telemetry.tracing import refuse_untraceable

# During a call, so many seconds between two checks whether the cluster's head is still there.
LOOK_S = 2.0
# The share of a call's time in which it is repeated. The rest is left to report why it failed.
RECONNECTING = 0.9
# A healthy coordinator closes at once. After this time it is killed.
CLOSE_TIMEOUT_S = 15.0

T = TypeVar("T")


class RayPort:
    """A coordinator's actor, for the clients' ``Session``. Every Ray error becomes a CouncilError.

    ``config`` says where it is, and ``connection`` how it is reached. With ``wanted``, the configuration that was
    asked for, it is found again after it was lost.
    """

    def __init__(
        self,
        handle: Any,
        config: CouncilConfig,
        connection: Any,
        release: Callable[[], None] | None = None,
        wanted: CouncilConfig | None = None,
    ) -> None:
        self.config = config
        self._wanted = wanted
        self._release = release
        self._name = config.name
        self._set_coordinator(handle, config, connection)
        self._asked: set[asyncio.Future[bytes]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._look_error: CouncilError | None = None  # of the last check of the cluster's head
        self._loss: CouncilDied | None = None  # the reason why the council was lost
        self._lost_error: CouncilError | None = None  # what callers get while it is lost
        self._reconnecting: asyncio.Task[None] | None = None
        self._released = False

    def _set_coordinator(self, handle: Any, config: CouncilConfig, connection: Any) -> None:
        self._handle = handle
        self._connection = connection
        kept = None if self._wanted is None or self._wanted.ray_address else known.read(self._name)
        self._remembered = kept is not None
        local = config.ray_address is None or (kept is not None and kept.pid is not None)
        self._head = ClusterHead(str(connection.gcs_address), self._name, may_return=not local)

    async def join(self, name: str, role: str, key: bytes) -> dict[str, Any]:
        return dict(await self._ask_again(raw_answers.Joined, "join", name, role, key))

    async def leave(self, session: str) -> None:
        await self._ask(None, "leave", session)

    async def exchange(self, session: str, batch: Sequence[bytes]) -> Reply:
        return unframe_reply(await self._ask(bytes, "exchange", frame([session.encode(), *batch])))

    async def ask(self, question: Question[T]) -> T:
        return await self._ask_again(answer_type(question), "ask", to_bytes(question))

    async def close(self) -> None:
        """Ends the council and its actors."""
        crashed = None if self._look_error is None else self._look_error.message
        with contextlib.suppress(CouncilDied, Unreachable, TimeoutError):  # then it is killed instead
            await asyncio.wait_for(self._ask(None, "close", crashed), CLOSE_TIMEOUT_S)
        if self._look_error is None:  # without its head, Ray would wait for that first
            with _as_ours(self._name), link.used(self._connection):
                ray.kill(self._handle, no_restart=True)
                end_seats(self._name, self.config.ray_namespace)

    def release(self) -> None:
        """Releases the connection to Ray."""
        with link.changing:
            self._released = True
            if self._release is not None:
                self._release()

    async def _ask_again(self, kind: type[T], method: str, *arguments: Any) -> T:
        """A question, repeated while the coordinator may be restarting; it must be safe to repeat."""
        ends_s = time.monotonic() + RECONNECTING * (self._wanted or self.config).call_timeout_s
        while True:
            try:
                return await self._ask(kind, method, *arguments)
            except (Unreachable, CouncilDied) as error:
                # A session that joins in order to send joins again by itself.
                returns = "reconnecting" in error.facts and method != "join"
                passes = isinstance(error, Unreachable) or returns
                if not passes or time.monotonic() > ends_s:
                    raise
                await asyncio.sleep(RETRY_S)

    async def _ask(self, kind: type[T] | None, method: str, *arguments: Any) -> T:
        if self._lost_error is None:
            try:
                with _as_ours(self._name):
                    answer = await self._answer(method, arguments)
                return raw_answers.result_or_raise(answer, cast(type[T], kind))
            except CouncilDied as error:
                if self._wanted is None:  # it can't be found again
                    raise
                if self._lost_error is None:
                    self._loss = self._lost_error = error
        self._reconnect()
        assert self._lost_error is not None
        raise _to_return(self._lost_error)

    async def _answer(self, method: str, arguments: tuple[Any, ...]) -> bytes:
        with link.used(self._connection):
            call: Any = getattr(self._handle, method).remote(*arguments)
        asked: asyncio.Future[bytes] = asyncio.wrap_future(call.future())
        self._asked.add(asked)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._watch_head())
        try:
            return await asked
        except asyncio.CancelledError:
            task, why = asyncio.current_task(), self._lost_error or self._look_error
            if why is None or task is None or task.cancelling():
                raise
            raise why from None  # ``_watch_head`` or ``_find_again`` gave the call up
        except ray_errors.RayError as error:
            if not isinstance(
                error, (raw_answers.NotBytes, ray_errors.RayTaskError)
            ):  # the call did not arrive
                await self._check_head()
            raise
        finally:
            self._asked.discard(asked)

    async def _watch_head(self) -> None:
        """During calls, checks that there is still a cluster to answer them."""
        while self._asked:
            await asyncio.sleep(LOOK_S)
            try:
                if self._asked:
                    await self._check_head()
            except CouncilError:
                for asked in self._asked:
                    asked.cancel()
                return

    async def _check_head(self) -> None:
        try:
            await asyncio.to_thread(self._refuse_if_gone)
            self._look_error = None
        except CouncilError as error:
            self._look_error = error
            raise

    def _refuse_if_gone(self) -> None:
        """Raises CouncilDied if this council's Ray is gone, or this process's connection to it."""
        with _as_ours(self._name), link.used(self._connection):
            pass
        self._refuse_if_forgotten()
        self._head.check()

    def _refuse_if_forgotten(self) -> None:
        """Raises CouncilClosed or CouncilDied if this user's file says that the council has ended."""
        if self._remembered and known.located(self._name) is None:
            raise CouncilClosed(
                f"council {self._name} was taken down, and is not up: bring it up again with council up",
                name=self._name,
                open_ids=[],
            )

    # Reconnecting

    def _reconnect(self) -> None:
        """Begins to look for the council again, unless that is under way. Callers get the reason of the loss."""
        if self._reconnecting is None or self._reconnecting.done():
            self._reconnecting = asyncio.get_running_loop().create_task(self._find_again())

    async def _find_again(self) -> None:
        for asked in self._asked:  # nobody will answer these
            asked.cancel()
        try:
            await asyncio.to_thread(self._connect_again)
            self._loss = self._lost_error = self._look_error = None
        except CouncilError as error:
            self._lost_error = self._why_lost(error)

    def _why_lost(self, error: CouncilError) -> CouncilError:
        """The error for callers if ``error`` keeps the council from being found; a crash or an end stays one."""
        loss = self._loss
        assert loss is not None
        if isinstance(error, Unreachable):
            return type(loss)(f"{loss.message}; it is not found again: {error.message}", **loss.facts)
        # A council that announced its end, and is dead then, has not crashed. If there is a file, that one says so.
        ended = isinstance(loss, CouncilClosed) and type(error) is CouncilDied and not self._remembered
        return loss if ended else error

    def _connect_again(self) -> None:
        assert self._wanted is not None
        self._refuse_if_forgotten()
        with link.renewed():
            if self._released:
                return
            found, door = _located(self._wanted)
            if ray.is_initialized():
                link.move(found.ray_address, held=self._release is not None)
            if not ray.is_initialized():
                ray_link.connect(found.ray_address, **door)
            self._release = self._release or link.hold()
            connection = current()
        handle = _find_coordinator(found, connection)
        if isinstance(self._loss, CouncilClosed) and handle._actor_id == self._handle._actor_id:
            raise self._loss  # it is still about to end
        self._set_coordinator(handle, found, connection)
        self.config = found


def _to_return(error: CouncilError) -> CouncilError:
    """``error``, marked as one that the client repairs by itself."""
    return type(error)(error.message, **{**error.facts, "reconnecting": True})


@contextlib.contextmanager
def _as_ours(name: str) -> Iterator[None]:
    """Turns Ray's errors into the council's."""
    try:
        yield
    except ray_link.Dropped as error:
        raise CouncilDied(f"council {name} is lost: {error}", name=name, open_ids=[]) from error
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


def launch(config: CouncilConfig, *, detached: bool = False, dashboard: bool = False) -> RayPort:
    """Starts a council on Ray, and waits until all its seats are up.

    Raises NameTaken, MindError, ConfigError, Unreachable, VersionMismatch, OperatorError. After an error nothing is
    left running.
    """
    name = config.name
    durable = config.store != MEMORY
    refuse_untraceable(config)
    config = resolve_charter(config)
    if config.ray_address is None or pinned(config):  # on this machine, whatever Ray's settings
        config = with_store_paths(config)
    dashboard = dashboard or config.ray_dashboard
    config = panel_actor.with_panel(config, dashboard=dashboard)
    with link.renewed(), panel_actor.for_dashboard(config, dashboard=dashboard):
        release = ensure_ray(
            config.ray_address, dashboard=dashboard, insecure=config.ray_insecure, ship=config.ray_ship
        )
        connection = current()
    try:
        with _as_ours(name), link.used(connection):
            if config.ray_address is not None:
                ray_link.check_nodes(START_TIMEOUT_S)
            council_id = _council_id(config)
            seats = {seat.name: secrets.token_bytes(32) for seat in config.seats}
            keys = Keys(seats, keys_of_humans(config, council_id), journal_key(name) if durable else b"")
            try:
                coordinators: Any = CoordinatorActor
                handle = coordinators.options(
                    name=actor_name(name, "coordinator"),
                    namespace=config.ray_namespace,
                    lifetime="detached" if detached else "non_detached",
                    max_restarts=-1 if durable else 0,  # an empty council must not replace a full one
                    scheduling_strategy=_where(config),
                ).remote(config, council_id, keys)
            except ValueError as error:
                raise NameTaken(
                    f"a council named {name} runs already in namespace {config.ray_namespace}: connect to it, "
                    "take it down, or choose another name",
                    name=name,
                ) from error
            opening = handle.open.remote()
        try:
            with _as_ours(name):
                began = link.result(connection, opening, START_TIMEOUT_S + 30, ray_link.refuse_if_gone)
                raw_answers.result_or_raise(began, cast(type, None))
        except BaseException:
            with _as_ours(name), link.used(connection):
                ray.kill(handle, no_restart=True)
                end_seats(name, config.ray_namespace)
            raise
    except BaseException:
        if release is not None:
            release()
        raise
    return RayPort(handle, config, connection, release)


def _council_id(config: CouncilConfig) -> str:
    """The id of the council in the journal, or a new one. It is read where the coordinator will run.

    Raises StoreError, Unreachable.
    """
    new_id = new_council_id(config.name)
    if config.ray_address is None or config.store == MEMORY or pinned(config):
        return council_id_of(config, new_id)
    look: Any = ray.remote(num_cpus=0, max_retries=0)(council_id_of)
    with _as_ours(config.name):
        return cast(str, ray.get(look.remote(config, new_id), timeout=START_TIMEOUT_S))


def _where(config: CouncilConfig) -> Any:
    """The node of the coordinator: this one if its journal is a file, otherwise any."""
    return on_node(ray.get_runtime_context().get_node_id()) if pinned(config) else "DEFAULT"


def connect(config: CouncilConfig) -> RayPort:
    """The running council of that name: at the configured address, or else where this user has brought it up.

    Without either, only the Ray that this process is connected to is searched. Raises Unreachable, CouncilDied,
    VersionMismatch, ConfigError.
    """
    with link.renewed():
        found, door = _located(config)
        release = ensure_ray(found.ray_address, **door)
        connection = current()
    try:
        return RayPort(_find_coordinator(found, connection), found, connection, release, wanted=config)
    except BaseException:
        if release is not None:
            release()
        raise


def _located(config: CouncilConfig) -> tuple[CouncilConfig, dict[str, Any]]:
    """``config`` with the address at which the council was brought up here, unless it has one; and how to connect.

    A Ray without a token is accepted if its address or the setting was given, and no token is stored for it.
    """
    kept = known.located(config.name) if config.ray_address is None else None
    if kept is None:
        if config.ray_address is None and not ray.is_initialized():
            raise Unreachable(
                f"no council named {config.name} was brought up here by this user: bring it up with council up, give "
                'the address of its Ray, or say address="auto" to use whichever Ray runs on this machine',
                name=config.name,
            )
        return config, {"insecure": config.ray_insecure or config.ray_address != "auto"}
    try:
        refuse_if_nobody_listens(kept.address)
    except Unreachable as error:
        if kept.pid is None:
            raise
        raise CouncilDied(
            f"council {kept.name} has crashed: {error.message}; its process {kept.pid} is about to end. Bring the "
            "council up again with council up",
            name=kept.name,
            open_ids=[],
        ) from error
    place = {"ray_address": kept.address, "ray_namespace": kept.namespace}
    return config.model_copy(update=place), {"token": kept.token, "insecure": kept.token is None}


def _find_coordinator(config: CouncilConfig, connection: object) -> Any:
    """The coordinator's actor. Raises Unreachable if there is none, CouncilDied, and VersionMismatch."""
    name = config.name
    with _as_ours(name), link.used(connection):
        try:
            handle = raw_answers.find(actor_name(name, "coordinator"), config.ray_namespace, CoordinatorActor)
        except ValueError as error:
            raise Unreachable(
                f"no council named {name} runs in namespace {config.ray_namespace} of this Ray; "
                f"running: {', '.join(running(config.ray_namespace)) or 'none'}",
                name=name,
                address=config.ray_address,
            ) from error
        call = handle.hello.remote()
    with _as_ours(name):
        hello = cast(bytes, link.result(connection, call, config.call_timeout_s, ray_link.refuse_if_gone))
    theirs = cast(dict[str, Any], raw_answers.result_or_raise(hello, raw_answers.Hello))
    ray_link.refuse_other_versions("the council", theirs)
    return handle


def address() -> str:
    """The address of the Ray that this process is connected to."""
    return ray_link.here()


def running(namespace: str) -> list[str]:
    """The names of the councils that run in a namespace."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    suffix = "/coordinator"
    return sorted(
        actor["name"].removesuffix(suffix)
        for actor in actors
        if actor["namespace"] == namespace and actor["name"].endswith(suffix)
    )


def check_cluster(cluster: dict[str, Any]) -> None:
    """Checks a launcher's file as ``ray up`` does. Raises ConfigError with Ray's message and the ``key``."""
    import jsonschema
    from ray.autoscaler._private import util

    try:
        util.validate_config(util.prepare_config(cluster))
    except jsonschema.ValidationError as error:
        raise ConfigError(error.message, key=".".join(map(str, error.absolute_path))) from error
    except Exception as error:
        raise ConfigError(f"ray up ends with {type(error).__name__}: {error}", key="") from error
