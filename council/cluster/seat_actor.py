"""The Ray actor of a seat.

The coordinator's actor is in another file, so that a seat's process does not import what only the coordinator needs.
Those imports take half a second.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import ray
from ray import exceptions as ray_errors

from council.agents.messaging import logs
from council.agents.messaging.mailbox import frame_reply, unframe
from council.agents.seat.remote import RemoteSeat
from council.cluster.panel_actor import PERMANENT, Watched
from council.config.settings import CouncilConfig
from council.runtime.build import new_seat
from council.runtime.loop_thread import Background
from council.telemetry.tracing import end, traces_here

# A seat that nobody attends checks at this interval whether its coordinator lives.
WATCH_S = 5.0

# Ray's types know neither concurrency groups nor the methods of a decorated class.
_remote: Any = ray.remote
F = TypeVar("F", bound=Callable[..., Any])


def _in_group(name: str) -> Callable[[F], F]:
    """Runs an actor's method on the thread and event loop of a concurrency group."""
    return cast(Callable[[F], F], cast(Any, ray.method)(concurrency_group=name))


@_remote(num_cpus=0, max_restarts=-1, max_task_retries=0, concurrency_groups={"heartbeat": 4, "letters": 8})
class SeatActor:
    """A seat: hosts one mind. Its heartbeat has its own concurrency group, and so its own thread.

    Its methods are plain, and use the seat's own event loop: Ray's calls of an actor's coroutines make each decision
    a tenth slower. They answer in bytes, because a restarted coordinator unpickles nothing of the seats that it finds
    (``raw_answers``).
    """

    def __init__(
        self,
        config: CouncilConfig,
        name: str,
        key: bytes,
        council_id: str,
        coordinator: Any,
        log_settings: logs.LogSettings,
    ) -> None:
        logs.configure(log_settings)
        freeze_gc()
        self._attended = threading.Event()
        # Before the mind is built, which may take long: the seat is detached, and its coordinator may die meanwhile.
        threading.Thread(target=self._watch, args=(coordinator,), name="orphan-watch", daemon=True).start()
        self._background = Background(f"council-{name}", blocked_s=None)  # a mind may take minutes
        self._title = f"Seat {name} of {council_id}"
        self._traces = traces_here(config, name)
        spans = None if self._traces is None else self._traces.spans(council_id)
        self._seat = RemoteSeat(new_seat(config, name, key, council_id, spans), key, council_id)

    def __repr__(self) -> str:
        return self._title

    @_in_group("letters")
    def exchange(self, batch: bytes) -> bytes:
        return frame_reply(self._background.wait(self._seat.exchange(unframe(batch))))

    def _watch(self, coordinator: Any) -> None:
        """Ends this actor if its coordinator dies for good while it does not attend the seat."""
        me = ray.get_runtime_context().current_actor
        watched, pause = Watched(coordinator), threading.Event()
        while not pause.wait(WATCH_S):
            if not self._attended.is_set() and watched.ended(WATCH_S):
                ray.kill(me, no_restart=True)
                return

    @_in_group("heartbeat")
    def attend(self, boot: int, coordinator: Any) -> bytes:
        self._attended.set()

        async def send(sealed: bytes, name: str) -> None:
            await coordinator.hear.options(name=name).remote(sealed)

        try:
            # On this thread, because the mind may block its own.
            asyncio.run(self._seat.host.attend(boot, send))
        except PERMANENT:  # it is dead for good and does not restart, so this seat is not needed
            cast(Any, ray.actor).exit_actor()
        except ray_errors.RayError:
            self._attended.clear()  # it may be restarting; ``_watch`` finds out
            raise
        return b""

    @_in_group("heartbeat")
    def pid(self) -> bytes:
        return b"%d" % os.getpid()

    @_in_group("heartbeat")
    def flush(self) -> bytes:
        end(self._traces)
        return b""

    @_in_group("heartbeat")
    def node(self) -> bytes:
        return str(ray.get_runtime_context().get_node_id()).encode()


def freeze_gc() -> None:
    """Makes this actor's process look for garbage cycles less often: it makes many objects and hardly any cycles.

    Python's default, every 700 objects, took a fifth of a coordinator's time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
