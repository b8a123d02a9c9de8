"""A coordinator's answer to one call, as bytes: ``b"+"`` and the result, or ``b"-"`` and the error, in msgpack."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypedDict, TypeVar

import msgspec

from council.protocol.errors import CouncilError, Unreachable
from council.runtime.messages import error_of

T = TypeVar("T")


class Joined(TypedDict):
    """A coordinator's answer to a sender that joins."""

    council_id: str
    session: str


def answer(result: object) -> bytes:
    """An answer that holds a result."""
    return b"+" + msgspec.msgpack.encode(result)


async def answer_of(method: Callable[..., Awaitable[object]], *arguments: Any) -> bytes:
    """The answer to a call of ``method``, also if it raises."""
    try:
        return answer(await method(*arguments))
    except CouncilError as error:
        return refusal(error)
    except Exception as error:  # noqa: BLE001 - an error of our own; the caller waits for an answer
        return refusal(Unreachable(f"the coordinator failed: {error!r:.500}"))


def refusal(error: CouncilError) -> bytes:
    """An answer that holds an error."""
    content = (type(error).__name__, error.code, error.message, error.facts)
    return b"-" + msgspec.msgpack.encode(content, enc_hook=repr)


def result_or_raise(answer: bytes, kind: type[T]) -> T:
    """The result in an answer. Raises the error in it, and Unreachable for anything else."""
    try:
        if answer[:1] == b"+":
            return msgspec.msgpack.decode(answer[1:], type=kind)
        if answer[:1] == b"-":
            error = msgspec.msgpack.decode(answer[1:], type=tuple[str, str, str, dict[str, Any]])
        else:
            raise msgspec.DecodeError("it begins with neither + nor -")
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise Unreachable(
            f"the coordinator's answer can't be read ({problem}): is it of another version of this package?"
        ) from None
    raise error_of(*error)
