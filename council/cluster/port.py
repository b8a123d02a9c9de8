"""A client's connection to councils on Ray: start one, find one, talk to its coordinator."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar, cast

import ray
from ray import exceptions as ray_errors

from council.agents.messaging import logs
from council.agents.messaging.mailbox import Reply, frame, unframe_reply
from council.cluster import connection as ray_link
from council.cluster import known, panel_actor, raw_answers
from council.cluster.actors import START_TIMEOUT_S, CoordinatorActor, Keys, actor_name, end_seats
from council.cluster.admission import GONE_ON, ClusterHead, refuse_if_nobody_listens
from council.cluster.connection import Joining, current, ensure_ray, link, on_node
from council.cluster.placement import pinned
from council.config.charter_files import resolve_charter
from council.config.human_keys import keys_of_humans
from council.config.notify import receivers_of
from council.config.outputs import outputs_of
from council.config.settings import MEMORY, CouncilConfig
from council.protocol.errors import (
    ConfigError,
    CouncilClosed,
    CouncilDied,
    CouncilError,
    NameTaken,
    Unreachable,
)
from council.runtime import answers
from council.runtime.build import new_council_id
from council.runtime.journals import council_id_of, journal_key, refuse_held, with_store_paths
from council.runtime.questions import AskPages, Question, answer_type, to_bytes
from council.runtime.session import RETRY_S
from council.telemetry.tracing import refuse_untraceable

# Seconds between two checks, during a call, whether the cluster's head is still there.
LOOK_S = 2.0
# The share of a call's time in which it is repeated. The rest is left to report why it failed.
RECONNECTING = 0.9
# A healthy coordinator closes at once. After this time it is killed.
CLOSE_TIMEOUT_S = 15.0

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Place:
    """A coordinator's actor, and how this process reaches it."""

    name: str
    handle: Any
    connection: Any
    head: ClusterHead
    remembered: bool  # whether this user's file says where the council is
    gone: CouncilError | None = None  # the error of the last check
    _checking: asyncio.Task[CouncilError | None] | None = None
    _answers: set[asyncio.Future[bytes]] = field(default_factory=set)

    @classmethod
    def of(cls, config: CouncilConfig, handle: Any, connection: Any, wanted: CouncilConfig | None) -> Self:
        """The place of that actor. ``wanted`` is the configuration that a client asked for; None at a launch."""
        kept = None if wanted is None or wanted.ray_address else known.read(config.name)
        local = config.ray_address is None or (kept is not None and kept.pid is not None)
        head = ClusterHead(str(connection.gcs_address), config.name, may_return=not local)
        return cls(config.name, handle, connection, head, remembered=kept is not None)

    async def answer(self, method: str, arguments: tuple[Any, ...]) -> bytes:
        """The answer to a call. Raises CouncilError if no answer is possible any more, and Ray's errors."""
        with link.used(self.connection):
            call: Any = getattr(self.handle, method).remote(*arguments)
        answer: asyncio.Future[bytes] = asyncio.wrap_future(call.future())
        self._answers.add(answer)
        try:
            while not (await asyncio.wait([answer], timeout=LOOK_S))[0]:
                check = self._check()
                both: list[asyncio.Future[Any]] = [answer, check]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done() and (gone := check.result()) is not None:
                    raise gone
            if answer.cancelled():  # by ``give_up``
                raise self.gone or ray_link.Dropped("this process looks for it again")
            return answer.result()
        except (raw_answers.NotBytes, ray_errors.RayTaskError):
            raise
        except ray_errors.RayError:  # the call did not arrive
            if (gone := await asyncio.shield(self._check())) is not None:
                raise gone from None
            raise
        finally:
            self._answers.discard(answer)
            answer.cancel()

    def give_up(self) -> None:
        """Ends the wait for all answers: nothing of Ray may be awaited while its connection is replaced."""
        for answer in self._answers:
            answer.cancel()

    def _check(self) -> asyncio.Task[CouncilError | None]:
        """The check that sets ``gone``. All calls await the same one: it may take seconds, and takes a thread."""

        async def check() -> CouncilError | None:
            try:
                await asyncio.to_thread(self.refuse_if_gone)
                self.gone = None
            except CouncilError as error:
                self.gone = error
            return self.gone

        if self._checking is None or self._checking.done():
            self._checking = asyncio.get_running_loop().create_task(check())
        return self._checking

    def refuse_if_gone(self) -> None:
        """Raises CouncilDied if this council's Ray is gone, or this process's connection to it."""
        with _as_ours(self.name), link.used(self.connection):
            pass
        self.refuse_if_forgotten()
        self.head.check()

    def refuse_if_forgotten(self) -> None:
        """Raises CouncilClosed or CouncilDied if this user's file says that the council has ended."""
        if self.remembered and known.located(self.name) is None:
            raise CouncilClosed(
                f"council {self.name!r} was taken down, and is not up: bring it up again with council up",
                name=self.name,
                open_ids=[],
            )

    def kill(self, namespace: str) -> None:
        """Ends the coordinator and the seats."""
        with _as_ours(self.name), link.used(self.connection):
            ray.kill(self.handle, no_restart=True)
            end_seats(self.name, namespace)


class RayPort:
    """A coordinator's actor, for the clients' ``Session``. Every Ray error becomes a CouncilError.

    ``config`` says where it is. With ``wanted``, the configuration that was asked for, it is found again after it was
    lost.
    """

    def __init__(
        self,
        place: _Place,
        config: CouncilConfig,
        release: Callable[[], None] | None = None,
        wanted: CouncilConfig | None = None,
    ) -> None:
        self.config = config
        self._place = place
        self._wanted = wanted
        self._release = release
        self._released = False
        self._connecting = threading.Lock()  # of the thread that looks for the council
        self._loss: CouncilDied | None = None  # the reason why the council was lost
        self._lost_error: CouncilError | None = None  # what callers get while it is lost
        self._reconnecting: asyncio.Task[None] | None = None

    async def join(self, name: str, role: str, key: bytes) -> dict[str, Any]:
        return dict(await self._ask_again(answers.Joined, "join", name, role, key))

    async def leave(self, session: str) -> None:
        with _as_ours(self._place.name):  # a lost council is not looked for
            await self._place.answer("leave", (session,))

    async def exchange(self, session: str, batch: Sequence[bytes]) -> Reply:
        return unframe_reply(await self._ask(bytes, "exchange", frame([session.encode(), *batch])))

    async def ask(self, question: Question[T]) -> T:
        if isinstance(question, AskPages):
            return cast(T, await asyncio.to_thread(self._pages, question))
        return await self._ask_again(answer_type(question), "ask", to_bytes(question))

    def _pages(self, question: AskPages) -> dict[str, Any]:
        with _as_ours(self._place.name), link.used(self._place.connection):
            return panel_actor.pages(self.config, install=question.install)

    async def close(self) -> None:
        """Ends the council and its actors."""
        gone = self._place.gone  # as a call has found: by now another head may answer at that address
        if gone is None:
            try:
                await asyncio.to_thread(self._place.head.check)
            except CouncilError as error:
                gone = error
        crashed = None if gone is None else gone.message
        with contextlib.suppress(CouncilDied, Unreachable, TimeoutError):  # then it is killed instead
            await asyncio.wait_for(self._ask(None, "close", crashed), CLOSE_TIMEOUT_S)
        if crashed is None:  # without its head, Ray would wait for that first
            self._place.kill(self.config.ray_namespace)

    def release(self) -> None:
        """Releases the connection to Ray once no thread of this port looks for the council, or after ``END_S``."""
        self._released = True
        ended = self._connecting.acquire(timeout=ray_link.END_S)
        try:
            with link.changing:
                if self._release is not None:
                    self._release()
        finally:
            if ended:
                self._connecting.release()

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
        place = self._place
        if self._lost_error is None:
            try:
                with _as_ours(place.name):
                    answer = await place.answer(method, arguments)
                return answers.result_or_raise(answer, cast(type[T], kind))
            except CouncilDied as error:
                if self._wanted is None:  # it can't be found again
                    raise
                if place is not self._place:  # it was found again meanwhile
                    raise _to_return(error) from error
                if self._lost_error is None:
                    self._loss = self._lost_error = error
        if self._reconnecting is None or self._reconnecting.done():
            self._reconnecting = asyncio.get_running_loop().create_task(self._find_again())
        raise _to_return(self._lost_error)

    # Reconnecting

    async def _find_again(self) -> None:
        self._place.give_up()
        try:
            await asyncio.to_thread(self._connect_again)
            self._loss = self._lost_error = None
        except CouncilError as error:
            self._lost_error = self._why_lost(error)

    def _why_lost(self, error: CouncilError) -> CouncilError:
        """The error for callers if ``error`` keeps the council from being found; a crash or an end stays one."""
        loss = self._loss
        assert loss is not None
        if isinstance(error, Unreachable):
            return type(loss)(f"{loss.message}; it is not found again: {error.message}", **loss.facts)
        # A council that announced its end, and is dead then, has not crashed. If there is a file, that one says so.
        ended = isinstance(loss, CouncilClosed) and type(error) is CouncilDied and not self._place.remembered
        return loss if ended else error

    def _connect_again(self) -> None:
        assert self._wanted is not None
        with self._connecting:
            self._place.refuse_if_forgotten()
            with link.renewed():
                if self._released:
                    return
                found, how = _located(self._wanted)
                ray_link.connect(found.ray_address, held=self._release is not None, **how)
                self._release = self._release or link.hold()
                connection = current()
            place = _find_coordinator(found, connection, self._wanted)
            if (
                isinstance(self._loss, CouncilClosed)
                and place.handle._actor_id == self._place.handle._actor_id
            ):
                raise self._loss  # it is still about to end
            self._place, self.config = place, found


def _to_return(error: CouncilError) -> CouncilError:
    """``error``, marked as one that the client repairs by itself."""
    return type(error)(error.message, **{**error.facts, "reconnecting": True})


@contextlib.contextmanager
def _as_ours(name: str) -> Iterator[None]:
    """Turns Ray's errors into the council's."""
    about: dict[str, Any] = {"name": name, "open_ids": []}
    try:
        yield
    except ray_link.Dropped as error:
        raise CouncilDied(f"council {name!r} is lost: {error}", **about) from error
    except ray_errors.ActorDiedError as error:
        raise CouncilDied(f"the coordinator of {name} is dead; {GONE_ON}", **about) from error
    except ray_errors.ActorUnschedulableError as error:
        raise CouncilDied(
            f"the coordinator of {name} has no node to run on: the one that holds its journal, a file, is gone. "
            "Bring it back and launch the council again there; with its journal in PostgreSQL it would have moved",
            **about,
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
        # On a Ray that runs already, the council's name is found to be taken as quickly.
        if config.ray_address is None:
            refuse_held(config)
    dashboard = dashboard or config.ray_dashboard
    config = panel_actor.with_panel(config, dashboard=dashboard)
    with link.renewed(), panel_actor.for_dashboard(config, dashboard=dashboard):
        release = ensure_ray(
            config.ray_address, dashboard=dashboard, insecure=config.ray_insecure, ship=config.ray_ship
        )
        connection = current()
    with contextlib.ExitStack() as undo:
        if release is not None:
            undo.callback(release)
        with _as_ours(name), link.used(connection):
            if config.ray_address is not None:
                ray_link.check_nodes(START_TIMEOUT_S)
            council_id = _council_id(config)
            seats = {seat.name: secrets.token_bytes(32) for seat in config.seats}
            here = ray.get_runtime_context().get_node_id()
            where: Any = on_node(here) if pinned(config) else "DEFAULT"
            humans, journal = keys_of_humans(config, council_id), journal_key(name) if durable else b""
            keys = Keys(
                seats, humans, journal, receivers_of(config), secrets.token_bytes(32), outputs_of(config)
            )
            try:
                coordinators: Any = CoordinatorActor
                handle = coordinators.options(
                    name=actor_name(name, "coordinator"),
                    namespace=config.ray_namespace,
                    lifetime="detached" if detached else "non_detached",
                    max_restarts=-1 if durable else 0,  # an empty council must not replace a full one
                    scheduling_strategy=where,
                ).remote(config, council_id, keys, logs.from_environment())
            except ValueError as error:
                raise NameTaken(
                    f"a council named {name!r} runs already in namespace {config.ray_namespace}: use it with "
                    "Council.connect, take it down with council down, or choose another name",
                    name=name,
                ) from error
            place = _Place.of(config, handle, connection, None)
            undo.callback(place.kill, config.ray_namespace)
            opening = handle.open.remote()
        with _as_ours(name):
            began = link.result(connection, opening, START_TIMEOUT_S + 30)
            answers.result_or_raise(began, cast(type, None))
        undo.pop_all()
    return RayPort(place, config, release)


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


def connect(config: CouncilConfig) -> RayPort:
    """The running council of that name: at the configured address, or else where this user has brought it up.

    Without either, only the Ray that this process is connected to is searched. Raises Unreachable, CouncilDied,
    VersionMismatch, ConfigError.
    """
    with link.renewed():
        found, how = _located(config)
        release = ensure_ray(found.ray_address, **how)
        connection = current()
    with contextlib.ExitStack() as undo:
        if release is not None:
            undo.callback(release)
        place = _find_coordinator(found, connection, config)
        undo.pop_all()
    return RayPort(place, found, release, wanted=config)


def _located(config: CouncilConfig) -> tuple[CouncilConfig, Joining]:
    """``config`` with the address at which the council was brought up here, unless it has one; and how to connect.

    A Ray without a token is accepted if its address or the setting was given, and no token is stored for it.
    """
    kept = known.located(config.name) if config.ray_address is None else None
    if kept is None:
        if config.ray_address is None and not ray.is_initialized():
            raise Unreachable(
                f"no council named {config.name!r} was brought up here by this user: bring it up with council up, "
                'give the address of its Ray, or use address="auto" for any Ray that runs on this machine',
                name=config.name,
            )
        return config, {"insecure": config.ray_insecure or config.ray_address != "auto"}
    try:
        refuse_if_nobody_listens(kept.address)
    except Unreachable as error:
        if kept.pid is None:
            raise
        raise CouncilDied(
            f"council {kept.name!r} has crashed: {error.message}; its process {kept.pid} is about to end. Bring the "
            "council up again with council up",
            name=kept.name,
            open_ids=[],
        ) from error
    place = {"ray_address": kept.address, "ray_namespace": kept.namespace}
    return config.model_copy(update=place), {"token": kept.token, "insecure": kept.token is None}


def _find_coordinator(config: CouncilConfig, connection: Any, wanted: CouncilConfig) -> _Place:
    """The place of the coordinator. Raises Unreachable if there is none, CouncilDied, and VersionMismatch."""
    name = config.name
    with _as_ours(name), link.used(connection):
        try:
            handle = raw_answers.find(actor_name(name, "coordinator"), config.ray_namespace, CoordinatorActor)
        except ValueError as error:
            raise Unreachable(
                f"no council named {name!r} runs in namespace {config.ray_namespace} of this Ray; "
                f"running: {', '.join(running(config.ray_namespace)) or 'none'}",
                name=name,
                address=config.ray_address,
            ) from error
        call = handle.hello.remote()
    with _as_ours(name):
        hello = cast(bytes, link.result(connection, call, config.call_timeout_s))
    theirs = cast(dict[str, Any], answers.result_or_raise(hello, raw_answers.Hello))
    ray_link.refuse_other_versions("the council", theirs)
    return _Place.of(config, handle, connection, wanted)


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
