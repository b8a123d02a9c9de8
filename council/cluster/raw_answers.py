"""Calls actors that anyone may have registered, and accepts only bytes from them. Their answers are not unpickled.

Ray unpickles three things of an actor in the calling process: its class, the results of its methods, and their
errors. So anyone who registers an actor under a council's name could run code in the council's clients. Here the
class is this package's own, a method's result must be ``bytes`` (which Ray marks as raw and does not pickle), and an
error of the actor is reported without its contents. Ray has no public way to do this, so this module replaces two
private methods of Ray. If a version of Ray lacks one of them, importing this module fails. If it does not use the
first one to find an actor, ``find`` fails. If it does not use the second one to read a result,
tests/ray/test_foreign.py fails.

Ray logs the text of each error that was not retrieved. Once this module is imported, that log says only that there
was one, also for other actors and tasks of this process.

``runtime.answers`` has the form of an answer.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

import ray
from ray import exceptions as ray_errors
from ray._private import ray_constants
from ray._private.function_manager import FunctionActorManager
from ray._private.serialization import SerializationContext
from ray.core.generated.common_pb2 import ErrorType  # type: ignore[attr-defined]

from council.protocol.errors import OperatorError
from council.runtime.answers import answer_of

Answered = Callable[..., Awaitable[bytes]]
# Error types whose data Ray would unpickle.
_PICKLED = {ErrorType.Value(name) for name in ("TASK_EXECUTION_EXCEPTION", "TASK_CANCELLED")}
_RAW: bytes = ray_constants.OBJECT_METADATA_TYPE_RAW
# The ids of the actors whose results must be bytes. None is removed, because an answer may come at any time. There
# are a few for each connection, of 16 bytes each.
_actors: set[bytes] = set()
# The actor that ``find`` looks for on this thread.
_lookup = threading.local()


class Hello(TypedDict):
    """A coordinator's versions and ids."""

    ray: str
    python: str


class NotBytes(ray_errors.RayError):
    """An actor answered a call with something other than bytes."""


# The actor's side


def in_bytes(method: Callable[..., Awaitable[Any]]) -> Answered:
    """Makes an actor's method answer in bytes, also if it raises."""

    @functools.wraps(method)
    async def answering(*arguments: Any) -> bytes:
        return await answer_of(method, *arguments)

    return answering


# The caller's side


def find(name: str, namespace: str, actor: Any) -> Any:
    """The named actor, as one of the class ``actor`` whatever its own is. Raises ValueError if there is none.

    From now on only bytes are accepted from it, also for a call that was given up and ends later. Raises
    OperatorError if Ray did not ask for the class.
    """
    _lookup.actor_class, _lookup.asked = actor.__ray_metadata__.modified_class, False
    try:
        handle = ray.get_actor(name, namespace=namespace)
    finally:
        _lookup.actor_class = None
    if not _lookup.asked:
        raise OperatorError(
            f"the actor {name} can't be used: either it is not of Python, or Ray {ray.__version__} loads an actor's "
            "class in a way that this package does not guard"
        )
    _actors.add(handle._actor_id.binary())
    return handle


def _replace(owner: type, name: str, make: Callable[[Any], Any]) -> None:
    """Replaces a method of Ray by ``make(method)``. Raises OperatorError if Ray has no such method."""
    method = getattr(owner, name, None)
    if method is None:
        raise OperatorError(
            f"Ray {ray.__version__} has no {owner.__name__}.{name}, which this package replaces so that nothing from "
            "other actors is unpickled: use a version of Ray that has it"
        )
    setattr(owner, name, functools.wraps(method)(make(method)))


def _bytes_alone(deserialize: Any) -> Any:
    def deserialized(self: Any, data: Any, metadata: Any, call: Any, *more: Any, **named: Any) -> Any:
        kind = bytes(metadata or b"").split(b",")[0]
        # Ray also reads errors that no caller asked for, without saying from which call. They may be of any actor.
        ours = call is not None and call.task_id().actor_id().binary() not in _actors
        # A result without metadata is not an object.
        if ours or kind in (b"", _RAW):
            return deserialize(self, data, metadata, call, *more, **named)
        if call is None:
            return NotBytes(
                "an error that no caller waited for is not read, because it may be of a foreign actor"
            )
        if not kind.isdigit() or int(kind) in _PICKLED:
            return NotBytes("the actor answered with an error or an object of its own, which is not read")
        if int(kind) == ErrorType.Value("ACTOR_DIED"):
            return ray_errors.ActorDiedError()  # the cause of its death may be pickled
        return deserialize(self, data, metadata, call, *more, **named)

    return deserialized


def _class_looked_for(load: Any) -> Any:
    def loaded(self: Any, *arguments: Any, **named: Any) -> Any:
        actor_class = getattr(_lookup, "actor_class", None)
        if actor_class is None:
            return load(self, *arguments, **named)
        _lookup.asked = True
        return actor_class

    return loaded


_replace(SerializationContext, "_deserialize_object", _bytes_alone)
# Every look-up of a class begins here: the cache, this machine's modules, the cluster's table.
_replace(FunctionActorManager, "load_actor_class", _class_looked_for)
