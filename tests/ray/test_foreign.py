"""Actors that are not ours, under a council's name: what they send is not unpickled in the process that calls."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private import ray_constants
from ray._private.function_manager import FunctionActorManager

from council import Council
from council.agents.messaging.logs import LogSettings
from council.cluster import connection, port, raw_answers
from council.cluster.actors import RayTransport
from council.cluster.panel_actor import Panel
from council.config.settings import CouncilConfig
from council.protocol.errors import OperatorError, Unreachable
from council.runtime import answers
from tests.patience import HANG_S, until
from tests.runtime.harness import run

pytestmark = pytest.mark.ray

# Each process that unpickles a Trap leaves a file of its own id.
FOREIGN = """
import os
import sys
import time
import msgspec
import ray

def made(name, folder, how):
    class Trap:
        def __reduce__(self):
            return exec, (f"import os; open(os.path.join({folder!r}, str(os.getpid())), 'w').close()",)

    class Error(Exception):
        def __reduce__(self):
            return Trap().__reduce__()

    class Foreign:
        if how == "class":
            trap = Trap()

        def ready(self):
            return True

        def hello(self):
            while how == "late error" and not os.path.exists(os.path.join(folder, "go")):
                time.sleep(0.05)
            if how == "result":
                return Trap()
            if how in ("error", "late error"):
                raise Error()
            versions = {"council_id": "c", "pid": 1, "ray": ray.__version__, "python": sys.version.split()[0]}
            return b"+" + msgspec.msgpack.encode(versions)

        def join(self, name, role, key):
            if how == "later error":
                raise Error()
            return Trap()

        def about(self):
            return Trap()

        def node(self):
            return Trap()

    options = {"name": name, "namespace": "council", "lifetime": "detached", "num_cpus": 0}
    return ray.remote(Foreign).options(**options).remote()

address, *words = sys.argv[1:]
ray.init(address=address, log_to_driver=False)
actors = [made(*words[at : at + 3]) for at in range(0, len(words), 3)]
ray.wait([each.ready.remote() for each in actors], num_returns=len(actors))
"""
HOW = ["result", "error", "class", "later result", "later error"]


def put(*actors: tuple[str, Path, str]) -> None:
    """Puts foreign actors into this Ray: the name of each, the folder of its traps, and how it springs them."""
    arguments = [str(word) for actor in actors for word in actor]
    subprocess.run(
        [sys.executable, "-c", FOREIGN, connection.here(), *arguments],
        env={**os.environ, "RAY_AUTH_MODE": "token"},
        check=True,
        timeout=HANG_S,
    )


def end(name: str) -> None:
    with contextlib.suppress(ValueError):  # it was ended
        ray.kill(raw_answers.find(name, "council", Harmless))


@pytest.fixture
def foreign(name: str, tmp_path: Path) -> Any:
    """Puts foreign actors under the names of actors of a council's, by default its coordinator."""
    parts: list[str] = []

    def begin(how: str, *those: str) -> None:
        put(*((f"{name}/{part}", tmp_path, how) for part in those or ["coordinator"]))
        parts.extend(those or ["coordinator"])

    yield begin
    for part in parts:
        end(f"{name}/{part}")


@pytest.fixture(scope="module")
def foreigners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[str, Path]]]:
    """One foreign coordinator for each way, with the folder of its traps."""
    found = {how: (f"foreign-{at}", tmp_path_factory.mktemp("traps")) for at, how in enumerate(HOW)}
    put(*((f"{name}/coordinator", folder, how) for how, (name, folder) in found.items()))
    yield found
    for name, _ in found.values():
        end(f"{name}/coordinator")


@ray.remote
class Harmless:
    """Answers rightly, at length, or not."""

    def much(self, count: int) -> bytes:
        return bytes(count)

    def other(self) -> str:
        return "no bytes"


@ray.remote
class Other:
    """Of another class than the actor that is found as one of it."""


@pytest.mark.parametrize("how", HOW)
def test_nothing_of_a_foreign_actor_is_unpickled(
    foreigners: dict[str, tuple[str, Path]], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails also where a version of Ray goes another way to unpickle than the one that is guarded."""
    monkeypatch.setattr(
        port, "RECONNECTING", 0.01
    )  # of the call's time; it has the rest to say why it failed
    name, folder = foreigners[how]
    try:
        with pytest.raises(Unreachable):
            Council.connect(connection.here(), name, call_timeout_s=HANG_S)
    finally:
        gc.collect()  # Ray reads an error that was not asked for once nobody can ask for it any more
    assert not (folder / str(os.getpid())).exists()


def test_an_error_that_comes_after_the_call_was_given_up_is_not_unpickled(
    name: str, foreign: Callable[[str], None], tmp_path: Path
) -> None:
    """Ray reads it to log it, and does not say then which call it comes from."""
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logger, trap = logging.getLogger("ray._private.worker"), tmp_path / str(os.getpid())
    foreign("late error")
    with pytest.raises(Unreachable):
        Council.connect(connection.here(), name, call_timeout_s=1.0)
    gc.collect()
    logger.addHandler(handler)
    try:
        (tmp_path / "go").touch()

        def came() -> bool:
            gc.collect()
            return any("no caller waited for" in each for each in logged) or trap.exists()

        until(came, "the error never came")
    finally:
        logger.removeHandler(handler)
    assert not trap.exists()


@pytest.mark.long
def test_ending_a_council_unpickles_nothing_of_foreign_actors_under_its_name(
    name: str, foreign: Callable[..., None], tmp_path: Path
) -> None:
    foreign("class", "early")  # which the coordinator ends, before it makes its seats
    with Council.launch(name=name, store="memory") as council:
        coordinator = council.status()["pid"]
        foreign("class", "evil")
        with Council.connect(connection.here(), name) as client:
            client.end()
        assert not (tmp_path / str(os.getpid())).exists()
        assert not (tmp_path / str(coordinator)).exists()
        named = ray.util.list_named_actors(all_namespaces=True)
        assert not [each["name"] for each in named if each["name"].startswith(f"{name}/")]


def test_a_coordinator_that_goes_on_unpickles_nothing_of_foreign_actors_in_the_places_of_its_own(
    name: str, foreign: Callable[..., None], tmp_path: Path
) -> None:
    config = CouncilConfig(name=name, panel=True)
    seat = config.seats[0]
    foreign("class", seat.name, "panel")

    async def find() -> None:
        transport = RayTransport(
            config.model_copy(update={"seats": (seat,)}), {}, f"{name}.0", None, LogSettings()
        )
        await transport.find()
        with pytest.raises(raw_answers.NotBytes):
            await transport.attend(seat.name, 1)
        panel = Panel(config, f"{name}.0", None, LogSettings())
        while (told := await panel.status()) is None or "does not answer" not in str(told["notice"]):
            pass
        assert "NotBytes" in told["notice"]

    run(find())
    assert not (tmp_path / str(os.getpid())).exists()


def test_an_actor_whose_class_ray_does_not_ask_for_is_not_used(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: a version of Ray that goes another way to the class unpickles it, and nobody sees it."""
    made: Any = Harmless.options(name=f"{name}/coordinator", namespace="council").remote()  # type: ignore[attr-defined]
    guarded: Any = FunctionActorManager.load_actor_class
    monkeypatch.setattr(FunctionActorManager, "load_actor_class", guarded.__wrapped__)
    with pytest.raises(OperatorError, match=f"Ray {ray.__version__} loads an actor's class in a way"):
        raw_answers.find(f"{name}/coordinator", "council", Harmless)
    with pytest.raises(
        OperatorError, match=r"has no FunctionActorManager\.another, which this package replaces"
    ):
        raw_answers._replace(FunctionActorManager, "another", lambda method: method)
    ray.kill(made)


def test_a_class_that_was_found_is_not_kept_as_the_actors_own(name: str) -> None:
    """Mutation: Ray's cache of classes holds ours under the foreign one's id."""
    made: Any = Harmless.options(name=f"{name}/coordinator", namespace="council").remote()  # type: ignore[attr-defined]
    manager = ray._private.worker.global_worker.function_actor_manager  # type: ignore[attr-defined]
    before = dict(manager._loaded_actor_classes)
    raw_answers.find(f"{name}/coordinator", "council", Other)
    assert manager._loaded_actor_classes == before
    ray.kill(made)


DEEP = b"\x91" * 200_000  # a list in a list in a list


@pytest.mark.parametrize(
    "told", [b"+\x81\xa1a" + DEEP, b"-\x94\xa1a\xa1b\xa1c\x81\xa1d" + DEEP, b"+", b"", b"x"]
)
def test_an_answer_that_cannot_be_read_is_told_as_that(told: bytes) -> None:
    with pytest.raises(Unreachable, match="the coordinator's answer can't be read"):
        answers.result_or_raise(told, dict[str, Any])


def test_bytes_of_any_size_are_taken_and_other_objects_of_this_process_are_left_alone(name: str) -> None:
    made: Any = Harmless.options(name=f"{name}/coordinator", namespace="council").remote()  # type: ignore[attr-defined]
    actor = raw_answers.find(f"{name}/coordinator", "council", Harmless)
    for count in (0, 10, 5_000_000):
        assert ray.get(actor.much.remote(count), timeout=HANG_S) == bytes(count)
    assert ray.get(ray.put({"of": "its own"})) == {"of": "its own"}
    with pytest.raises(raw_answers.NotBytes):
        ray.get(actor.other.remote(), timeout=HANG_S)
    ray.kill(made)


CONNECTS = """
import sys
from council import Council
from council.protocol.errors import Unreachable
try:
    Council.connect(sys.argv[1], "nobody")
except Unreachable as error:
    print(error.message)
"""


def test_a_function_that_the_head_names_is_not_called(tmp_path: Path) -> None:
    """Ray lets a cluster name a function that each driver imports and calls, to set tracing up."""
    head: Any = ray._private.worker.global_worker.gcs_client  # type: ignore[attr-defined]
    hook = b"tracing_startup_hook", ray_constants.KV_NAMESPACE_TRACING
    head.internal_kv_put(hook[0], b"tempfile:mkdtemp", True, hook[1])
    try:
        done = subprocess.run(
            [sys.executable, "-c", CONNECTS, connection.here()],
            env={**os.environ, "RAY_AUTH_MODE": "token", "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=HANG_S,
        )
    finally:
        head.internal_kv_del(hook[0], False, hook[1])
    assert "no council named 'nobody'" in done.stdout
    assert list(tmp_path.iterdir()) == []
