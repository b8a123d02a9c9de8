"""The council's own executor on Ray: an actor that runs the tools of the setting ``tools`` (rules 5).

It is ``<council>/executor``, in a process of its own, never the coordinator's. It has its key from the launch, and
ends with its council.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import ray
from ray import exceptions as ray_errors

from council.action.installed import EXECUTOR, tools_of
from council.agents.messaging import logs
from council.agents.messaging.mailbox import Reply, frame, unframe_reply
from council.cluster import raw_answers
from council.cluster.panel_actor import PERMANENT, Watched
from council.config.settings import CouncilConfig
from council.protocol.errors import CouncilDied, CouncilError, Unreachable
from council.runtime import answers
from council.runtime.executor import Executor, serve
from council.runtime.questions import Question, answer_type, to_bytes

log = logs.get_logger("council.executor")
T = TypeVar("T")
# It checks this often whether its coordinator exists, and starts again after a failure no sooner than this.
WATCH_S = 5.0

_remote: Any = ray.remote


class ActorPort:
    """The coordinator, as another actor of the council reaches it."""

    def __init__(self, name: str, coordinator: Any) -> None:
        self._name, self._coordinator = name, coordinator

    async def join(self, name: str, role: str, key: bytes) -> dict[str, Any]:
        return dict(await self._ask(answers.Joined, "join", name, role, key))

    async def leave(self, session: str) -> None:
        await self._ask(cast(type[None], None), "leave", session)

    async def exchange(self, session: str, batch: Sequence[bytes]) -> Reply:
        return unframe_reply(await self._ask(bytes, "exchange", frame([session.encode(), *batch])))

    async def ask(self, question: Question[T]) -> T:
        return await self._ask(answer_type(question), "ask", to_bytes(question))

    async def close(self) -> None:
        raise NotImplementedError("an executor does not end its council")

    async def _ask(self, kind: type[T], method: str, *arguments: Any) -> T:
        try:
            call = getattr(self._coordinator, method).remote(*arguments)
            answer = await asyncio.wrap_future(call.future())
        except PERMANENT as error:
            raise CouncilDied(
                f"the coordinator of {self._name} is dead", name=self._name, open_ids=[]
            ) from error
        except ray_errors.RayError as error:
            raise Unreachable(
                f"the coordinator of {self._name} can't be reached: {error}", name=self._name
            ) from error
        return answers.result_or_raise(answer, kind)


@_remote(num_cpus=0, max_restarts=-1, max_task_retries=0)
class ExecutorActor:
    """Runs what is issued to it. Restarted by Ray, it begins a new run: what it had under way is unknown then."""

    def __init__(
        self,
        config: CouncilConfig,
        council_id: str,
        key: bytes,
        coordinator: Any,
        log_settings: logs.LogSettings,
    ) -> None:
        logs.configure(log_settings)
        self._title = f"Executor of {council_id}"
        self._config, self._key, self._coordinator = config, key, coordinator
        threading.Thread(target=self._serve, name="executor", daemon=True).start()
        threading.Thread(target=self._watch, name="executor-watch", daemon=True).start()

    def __repr__(self) -> str:
        return self._title

    def pid(self) -> bytes:
        return b"%d" % os.getpid()

    def _serve(self) -> None:
        asyncio.run(self._serve_always())

    async def _serve_always(self) -> None:
        port = ActorPort(self._config.name, self._coordinator)
        tools = tools_of(self._config)
        executor = Executor(port, EXECUTOR, self._key, self._config.call_timeout_s, tools)
        while True:
            with contextlib.suppress(CouncilDied):  # then ``_watch`` ends this actor
                try:
                    await serve(executor, port)
                except CouncilError as error:
                    log.warning("executor restarts", council=self._config.name, why=error.message)
            await asyncio.sleep(WATCH_S)

    def _watch(self) -> None:
        """Ends this actor once its coordinator is dead for good."""
        me = ray.get_runtime_context().current_actor
        watched, pause = Watched(self._coordinator), threading.Event()
        while not pause.wait(WATCH_S):
            if watched.ended(WATCH_S):
                ray.kill(me, no_restart=True)
                return


def start_executor(
    config: CouncilConfig, council_id: str, key: bytes, coordinator: Any, log_settings: logs.LogSettings
) -> None:
    """Creates the executor's actor, if the settings name tools and it does not exist.

    Raises ConfigError if they can't be loaded.
    """
    if not tools_of(config):
        return
    name = f"{config.name}/{EXECUTOR}"
    with contextlib.suppress(ValueError):  # of the coordinator before this one, which serves this one too
        raw_answers.find(name, config.ray_namespace, ExecutorActor)
        return
    actors: Any = ExecutorActor
    actors.options(name=name, namespace=config.ray_namespace, lifetime="detached").remote(
        config, council_id, key, coordinator, log_settings
    )
