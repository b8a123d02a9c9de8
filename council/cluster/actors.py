"""The coordinator's Ray actor, and its way to its seats.

Actors are named ``<council>/coordinator`` and ``<council>/<seat>``. Ray's own task retries are off, because a call
may then run twice; messages are retried by their envelope ids instead. Ray restarts a seat's actor. It restarts the
coordinator's too if its journal is on disk; the coordinator then continues where the journal ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Ray waits this many milliseconds to distinguish a dead actor from a slow one; its default is a second.
os.environ.setdefault("RAY_timeout_ms_task_wait_for_death_info", "50")
# By default Ray's workers get a low priority. Beside another program that computes, each vote would come late.
os.environ.setdefault("RAY_worker_niceness", "0")

import ray
from ray import exceptions as ray_errors

from council.action.installed import EXECUTOR
from council.agents.messaging import logs
from council.agents.messaging.mailbox import Courier, Reply, frame, frame_reply, unframe, unframe_reply
from council.agents.seat.remote import courier_to
from council.cluster import raw_answers
from council.cluster.connection import alive, versions
from council.cluster.executor_actor import start_executor
from council.cluster.panel_actor import PERMANENT, Panel, logs_folder
from council.cluster.placement import Node, lacking, pinned, place
from council.cluster.raw_answers import in_bytes
from council.cluster.ray_metrics import RaySink
from council.cluster.seat_actor import SeatActor, freeze_gc
from council.config.notify import Receivers
from council.config.outputs import Output, spool_of
from council.config.settings import CouncilConfig, OutputChannel, SeatConfig
from council.protocol.errors import (
    PASSING,
    ConfigError,
    CouncilDied,
    CouncilError,
    MindError,
    OperatorError,
    Unreachable,
)
from council.runtime import questions
from council.runtime.build import rules_of, system_clock
from council.runtime.coordinator import Coordinator
from council.runtime.journals import open_journal
from council.runtime.proposal_size import ProposalSize
from council.runtime.questions import AskStatus
from council.telemetry.decision_spans import decision_spans
from council.telemetry.eventlog import EventLog
from council.telemetry.exports import Exports
from council.telemetry.notices import Notices
from council.telemetry.outputs import Outputs
from council.telemetry.tracing import FLUSH_S, Traces, end, traces_here

log = logs.get_logger("council")

# Each client may have two calls parked at the coordinator. Seats and heartbeats need more.
COORDINATOR_CALLS_MAX = 5_000
# Starting a process on a busy machine takes seconds. A council that takes longer than this has failed.
START_TIMEOUT_S = 120.0
# A restarted actor calls itself at this interval, until a call succeeds.
REOPEN_S = 0.05
# Pauses if the store, or Ray, is away when a coordinator restarts. Each attempt that finds the store begins an epoch.
AWAY_FIRST_S, AWAY_LAST_S = 0.5, 15.0
# Ray gives every node this label.
NODE_LABEL = "ray.io/node-id"

_remote: Any = ray.remote  # Ray's types do not know the methods of a decorated class


class Keys(NamedTuple):
    """The keys of a coordinator, the same at the launch and at each restart: fixed at launch (rules 1.14)."""

    seats: dict[str, bytes]
    humans: dict[str, bytes]
    journal: bytes
    receivers: Receivers | None = None
    executor: bytes = b""
    outputs: dict[OutputChannel, Output] | None = None


@_remote(num_cpus=0, max_restarts=-1, max_task_retries=0, max_concurrency=COORDINATOR_CALLS_MAX)
class CoordinatorActor:
    """A council's coordinator. It creates its seats, and ends them when it is closed.

    Each method that clients call answers in bytes, because a client unpickles nothing (``raw_answers``).
    """

    def __init__(
        self, config: CouncilConfig, council_id: str, keys: Keys, log_settings: logs.LogSettings
    ) -> None:
        logs.configure(log_settings)  # those of the process that launched the council
        freeze_gc()
        self._log_settings = log_settings
        self._config = config
        self._council_id = council_id
        self._keys = keys
        self._opening: asyncio.Future[None] | None = None
        self._coordinator: Coordinator | None = None
        self._transport: RayTransport | None = None
        self._panel: Panel | None = None
        self._exports: Exports | None = None
        self._traces: Traces | None = None
        self._again = ray.get_runtime_context().was_current_actor_reconstructed
        if self._again:  # maybe no client will call
            me = ray.get_runtime_context().current_actor
            threading.Thread(target=self._open_again, args=(me,), name="restart", daemon=True).start()

    def __repr__(self) -> str:
        return f"Coordinator of {self._council_id}"

    def _open_again(self, me: Any) -> None:
        """Calls ``open`` until that succeeds: Ray fails calls to an actor that it still counts as restarting."""
        while self._opening is None:
            with contextlib.suppress(ray_errors.RayError, CouncilError):
                ray.get(me.open.remote(), timeout=START_TIMEOUT_S)
            time.sleep(REOPEN_S)

    @in_bytes
    async def open(self) -> None:
        """Starts the seats; after a restart, continues with the existing ones. Does nothing if it is open already.

        Raises MindError if a mind can't be built, and errors of the journal. A failed launch leaves nothing running.
        """
        if self._opening is None:
            self._opening = asyncio.ensure_future(self._open())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        pause_s = AWAY_FIRST_S
        while self._coordinator is None:
            try:
                self._coordinator = await self._begun()
            except (*PASSING, ray_errors.RayError) as error:
                if not self._again:
                    raise
                # Nobody else would open it again. Meanwhile clients get the answer that it is starting.
                log.warning("coordinator can't begin yet", council=self._council_id, why=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, AWAY_LAST_S)

    async def _begun(self) -> Coordinator:
        config, keys = self._config, self._keys
        me = ray.get_runtime_context().current_actor
        self._transport = transport = RayTransport(
            config, keys.seats, self._council_id, me, self._log_settings
        )
        # A restarted coordinator takes over from the one that died, which may not know that yet.
        journal = await asyncio.to_thread(
            open_journal, config, self._council_id, keys.journal, takeover=self._again
        )

        def begun() -> Coordinator:
            return Coordinator(
                rules_of(config),
                self._council_id,
                keys.seats,
                transport,
                journal,
                system_clock(),
                humans=keys.humans,
                executors={EXECUTOR: keys.executor},
                events_kept=config.events_kept,
                decisions_kept=config.decisions_kept,
                fitting=ProposalSize(config),
            )

        try:
            if self._again:
                await transport.find()
            else:
                await transport.start()
            self._panel = Panel(config, self._council_id, me, self._log_settings)
            coordinator = await asyncio.to_thread(begun)
            await asyncio.to_thread(
                start_executor, config, self._council_id, keys.executor, me, self._log_settings
            )
            events = EventLog(config.name, coordinator, logs_folder() / "council")
            await coordinator.open()
            self._traces = traces_here(config, "coordinator")
            traced = decision_spans(config, coordinator, self._traces)
            watchers = [events, *traced]
            if keys.receivers is not None:
                watchers.append(Notices(config.name, coordinator, keys.receivers))
            if keys.outputs:
                watchers.append(Outputs(coordinator, keys.outputs, spool_of(config.name)))
            self._exports = Exports(config, coordinator, sinks=[RaySink()], watchers=watchers)
        except BaseException:
            if not self._again:
                await transport.close()
            await journal.close()
            raise
        return coordinator

    @in_bytes
    async def hello(self) -> dict[str, Any]:
        """The versions and ids of what runs here, for a client to compare with its own."""
        return {"council_id": self._council_id, "pid": os.getpid(), **versions()}

    @in_bytes
    async def join(self, name: str, role: str, key: bytes) -> dict[str, Any]:
        return await self._opened().join(name, role, key)

    @in_bytes
    async def leave(self, session: str) -> None:
        await self._opened().leave(session)

    @in_bytes
    async def exchange(self, call: bytes) -> bytes:
        """A client's call: its session's name, then the envelopes, in one frame. Ray carries bytes unchanged."""
        session, *batch = unframe(call) or [b""]
        return frame_reply(await self._opened().exchange(session.decode("ascii", "replace"), batch))

    async def hear(self, sealed: bytes) -> None:
        await self._opened().hear(sealed)

    @in_bytes
    async def ask(self, packed: bytes) -> object:
        """The answer to a question. A status also has what only this process knows."""
        question = questions.from_bytes(packed)
        answer = await self._opened().ask(question)
        return {**answer, **await self._about()} if isinstance(question, AskStatus) else answer

    async def _about(self) -> dict[str, Any]:
        assert self._transport is not None
        placement = await asyncio.to_thread(self._transport.placement)
        return {
            "name": self._config.name,
            "pid": os.getpid(),
            "placement": placement,
            "panel": None if self._panel is None else await self._panel.status(),
            "metrics": self._exports and self._exports.status(),
        }

    @in_bytes
    async def close(self, crashed: str | None) -> None:
        """Ends the council. ``crashed`` is the reason if this was not requested."""
        if self._coordinator is not None:
            why = crashed and CouncilDied(crashed, name=self._config.name, open_ids=[])
            await self._coordinator.close(why or None)
        if self._exports is not None:
            await self._exports.close()
        await asyncio.to_thread(end, self._traces)

    def _opened(self) -> Coordinator:
        if self._coordinator is not None:
            return self._coordinator
        if self._opening is not None and self._opening.done():
            self._opening.result()  # raises the reason why it can't continue
        raise Unreachable("the council is still starting; try again", name=self._config.name)


async def result(ref: Any) -> Any:
    """The result of a Ray call."""
    return await asyncio.wrap_future(ref.future())


class RayTransport:
    """Seats as detached, named actors. They do not outlive the council: closing it ends them."""

    def __init__(
        self,
        config: CouncilConfig,
        keys: dict[str, bytes],
        council_id: str,
        me: Any,
        log_settings: logs.LogSettings,
    ) -> None:
        self._log_settings = log_settings
        self._config = config
        self._keys = keys
        self._council_id = council_id
        self._me = me
        self._actors: dict[str, Any] = {}
        self._exchanges: dict[str, Any] = {}
        self._places: dict[str, str] = {}

    async def start(self) -> None:
        end_seats(self._config.name, self._config.ray_namespace)  # of a council that died without closing
        for seat in self._config.seats:
            await self._create(seat)
        for seat in self._config.seats:
            await self._begun(seat)

    async def find(self) -> None:
        """Continues with the seats of a coordinator that died, and creates the missing ones."""
        for seat in self._config.seats:
            try:
                actor = raw_answers.find(
                    actor_name(self._config.name, seat.name), self._config.ray_namespace, SeatActor
                )
                self._hold(seat.name, actor)
            except ValueError:
                await self._create(seat)

    async def _create(self, seat: SeatConfig) -> None:
        nodes = await asyncio.to_thread(alive)
        seats: Any = SeatActor
        try:
            options = seats.options(
                name=actor_name(self._config.name, seat.name),
                namespace=self._config.ray_namespace,
                lifetime="detached",
                **self._wishes(seat, nodes),
            )
        except (ValueError, TypeError) as error:
            why = f"seats.{seat.name}: Ray does not accept its resources, labels or runtime_env: {error}"
            raise ConfigError(why, problems=[why]) from None
        self._hold(
            seat.name,
            options.remote(
                self._config,
                seat.name,
                self._keys[seat.name],
                self._council_id,
                self._me,
                self._log_settings,
            ),
        )

    def _hold(self, name: str, actor: Any) -> None:
        # Ray creates the method object at each look-up, and each ballot needs it.
        self._actors[name], self._exchanges[name] = actor, actor.exchange

    def _wishes(self, seat: SeatConfig, nodes: list[Node]) -> dict[str, Any]:
        """Ray's options for a seat: its resources, and the node that has the fewest actors of this council.

        Ray's SPREAD sometimes puts three actors without CPUs on one node, and its soft affinity is not kept. A node's
        own label, with a fallback for when the node is gone, is kept (12 of 12 tries with Ray 2.60).
        """
        needs: dict[str, Any] = dict(seat.resources)
        wishes: dict[str, Any] = {
            "num_cpus": needs.pop("CPU", 0),
            "num_gpus": needs.pop("GPU", None),
            "memory": int(needs.pop("memory", 0)) or None,
            "resources": needs,
        }
        if seat.runtime_env:
            wishes["runtime_env"] = seat.runtime_env
        own = str(ray.get_runtime_context().get_node_id())
        found = place(seat, nodes, [own, *self._places.values()]) if len(nodes) > 1 else None
        if found is not None:
            self._places[seat.name] = found
            wishes["label_selector"] = {NODE_LABEL: found}
            wishes["fallback_strategy"] = [{"label_selector": seat.labels}]
        elif seat.labels:
            wishes["label_selector"] = seat.labels
        return wishes

    async def _begun(self, seat: SeatConfig) -> None:
        """Waits until the seat's process is up. If the mind can't be built, raises its MindError."""
        name = seat.name
        try:
            self._places[name] = await asyncio.wait_for(self._node(name), START_TIMEOUT_S)
        except TimeoutError:
            why = lacking(seat, await asyncio.to_thread(alive))
            raise OperatorError(
                f"seat {name} did not start within {START_TIMEOUT_S:g} s: {why}", seat=name
            ) from None
        except ray_errors.RuntimeEnvSetupError as error:
            raise OperatorError(f"seat {name}: its runtime_env can't be set up: {error}", seat=name) from None
        except ray_errors.RayActorError as error:
            # Of the constructor's error Ray keeps only the text.
            _, found, text = str(error).partition("MindError: ")
            why = text.strip().splitlines()[0] if found else f"seat {name} could not start: {error}"
            raise MindError(why, seat=name, mind="?") from None

    async def _node(self, name: str) -> str:
        node: bytes = await result(self._actors[name].node.remote())
        return node.decode("ascii", "replace")

    def placement(self) -> dict[str, Any]:
        """The host of each actor, and whether the coordinator must stay on its own."""
        hosts = {node.node_id: node.host for node in alive()}
        own = str(ray.get_runtime_context().get_node_id())
        return {
            "nodes": len(hosts),
            "pinned": pinned(self._config),
            "coordinator": {"node": own, "host": hosts.get(own)},
            "seats": {
                name: {"node": node, "host": hosts.get(node)} for name, node in sorted(self._places.items())
            },
        }

    def link(
        self, seat: str, heard: Callable[[Sequence[bytes]], None], lost: Callable[[Exception], None]
    ) -> Courier:
        exchange = partial(self.exchange, seat)
        return courier_to(seat, self._keys[seat], self._council_id, exchange, heard, lost)

    async def exchange(self, seat: str, batch: list[bytes]) -> Reply:
        try:
            return unframe_reply(await result(self._exchanges[seat].remote(frame(batch))))
        except ray_errors.RayTaskError as error:  # its own message is a traceback of the other process
            raise error.cause if isinstance(error.cause, Exception) else error from None

    async def attend(self, seat: str, boot: int) -> None:
        self._places[seat] = await self._node(seat)
        await result(self._actors[seat].attend.remote(boot, self._me))

    async def revive(self, seat: str) -> None:
        """Waits until Ray has restarted the actor; creates it again if it is gone for good."""
        try:
            await asyncio.wait_for(result(self._actors[seat].pid.remote()), START_TIMEOUT_S)
        except PERMANENT:
            (again,) = (each for each in self._config.seats if each.name == seat)
            self._places.pop(seat, None)
            await self._create(again)
            await self._begun(again)

    async def close(self) -> None:
        if self._config.traces == "otlp":  # spans that a seat has not exported end with its process
            ends = [asyncio.ensure_future(result(actor.flush.remote())) for actor in self._actors.values()]
            if ends:  # none if the first seat could not be created
                await asyncio.wait(ends, timeout=2 * FLUSH_S)
        for actor in self._actors.values():
            ray.kill(actor, no_restart=True)


def actor_name(council: str, part: str) -> str:
    return f"{council}/{part}"


def end_seats(name: str, namespace: str) -> None:
    """Ends the seats' actors of a council whose coordinator is gone, or is about to create new ones."""
    for actor in ray.util.list_named_actors(all_namespaces=True):
        council, _, part = actor["name"].rpartition("/")
        if actor["namespace"] == namespace and council == name and part != "coordinator":
            with contextlib.suppress(ValueError):  # it ended between the two calls
                ray.kill(raw_answers.find(actor["name"], namespace, SeatActor), no_restart=True)
