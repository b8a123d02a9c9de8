"""Python functions as tools: their arguments as JSON, checked by their signatures."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError, with_config
from pydantic_core import PydanticSerializationError
from typing_extensions import TypedDict

from council.action.tool import OUTSIDE, Operation, Safety, ToolResult
from council.protocol.errors import CallerError, EnvelopeError
from council.protocol.values import freeze, plain

# The kinds of arguments that a tool is called with by name.
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
Resources = Sequence[str] | Callable[..., Sequence[str]]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a function returned or raised, in the process that ran it."""

    value: Any = None
    error: Exception | None = None


class FunctionTool:
    """A Python function as a tool (``council.action.tool``). Its arguments are checked by its annotations.

    ``resources`` is a list of texts such as ``file:/srv/x``, or a function of the arguments that returns one.
    ``verify(result, **args)`` says whether the result is as intended, and ``revert(**args)`` undoes the call.
    Raises CallerError for what is wrong with them.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        safety: Safety,
        operations: Sequence[Operation],
        resources: Resources,
        verify: Callable[..., Any] | None,
        revert: Callable[..., Any] | None,
    ) -> None:
        if safety not in get_args(Safety):
            raise CallerError(f"safety is {safety!r:.80}, expected one of {', '.join(get_args(Safety))}")
        wrong = [each for each in operations if each not in get_args(Operation)]
        if wrong or not operations or isinstance(operations, str):
            expected = ", ".join(get_args(Operation))
            raise CallerError(
                f"operations are {operations!r:.80}, expected a list of one or more of {expected}"
            )
        if safety == "READ" and set(operations) != {"read"}:
            raise CallerError(f"a READ tool has the operation read alone, found {', '.join(operations)}")
        self.name, self.safety, self.operations = name, safety, tuple(operations)
        self._function, self._resources, self._verify = function, resources, verify
        self._signature = inspect.signature(function)
        self._adapter = _adapter(function, self._signature, name)
        if revert is not None:
            self.revert = lambda args, result: _called(revert, **self._values(args))

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        return self._adapter.json_schema()

    def bound(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The arguments of a call, as JSON, with their defaults. Raises TypeError, CallerError."""
        return self._as_json(self._signature.bind(*args, **kwargs))

    def complete(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as JSON, with the defaults of those left out. Raises CallerError."""
        try:
            bound = self._signature.bind(**args)
        except TypeError as error:
            takes = ", ".join(self._signature.parameters) or "none"
            raise CallerError(f"{self.name}: {error}; its arguments are {takes}") from None
        return self._as_json(bound)

    def _as_json(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        bound.apply_defaults()
        try:
            found = self._adapter.dump_python(self._checked(bound.arguments), mode="json", by_alias=True)
            whole: dict[str, Any] = plain(freeze(found))
        except (PydanticSerializationError, EnvelopeError) as error:
            raise CallerError(f"{self.name}: the arguments are not JSON: {error}") from None
        return whole

    def _checked(self, args: Mapping[str, Any]) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._adapter.validate_python(dict(args))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise CallerError(f"{self.name}: argument {place}: {first['msg']}", tool=self.name) from None
        return found

    def _values(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return self._checked(plain(args))

    def check(self, args: Mapping[str, Any]) -> None:
        self._values(args)

    def resources(self, args: Mapping[str, Any]) -> tuple[str, ...]:
        found = self._resources(**self._values(args)) if callable(self._resources) else self._resources
        if isinstance(found, str) or not all(isinstance(each, str) for each in found):
            raise CallerError(f"{self.name}: resources are {found!r:.80}, expected a list of texts")
        return tuple(found)

    def run(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolResult:
        began_s = time.monotonic()
        ran, error = Ran(), ""
        try:
            ran = Ran(_called(self._function, **self._values(args)))
        except Exception as raised:  # noqa: BLE001 - a function's error is a result
            ran, error = Ran(error=raised), f"{type(raised).__name__}: {raised}"
        seconds = time.monotonic() - began_s
        return ToolResult(not error, _text(ran.value), error, None, OUTSIDE, seconds, False, ran)

    def verify(self, args: Mapping[str, Any], result: ToolResult) -> str:
        if self._verify is None:
            return ""
        try:
            found = _called(self._verify, result.undo.value, **self._values(args))
        except Exception as error:  # noqa: BLE001 - the user's own code
            return f"verify raised {type(error).__name__}: {error}"
        return "" if found else f"verify gave {found!r:.80}"


def _called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a function, plain or async, on this thread."""
    found = function(*args, **kwargs)
    if not inspect.iscoroutine(found):
        return found

    async def awaited() -> Any:
        return await found

    return asyncio.run(awaited())


def _adapter(function: Callable[..., Any], signature: inspect.Signature, name: str) -> TypeAdapter[Any]:
    """Checks arguments by the annotations of a function; an argument without one takes any value."""
    other = [each.name for each in signature.parameters.values() if each.kind not in _NAMED]
    if other:
        raise CallerError(
            f"{name} takes {', '.join(other)}, which have no names or no limit: name each argument"
        )
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:  # noqa: BLE001 - names that only type checkers import
        raise CallerError(f"{name}: an annotation can't be read: {error}") from None
    fields = {each: hints.get(each, Any) for each in signature.parameters}
    kind: Any = TypedDict("Arguments", fields)  # type: ignore[misc]
    try:
        return TypeAdapter(with_config(ConfigDict(extra="forbid"))(kind))
    except PydanticUserError as error:
        raise CallerError(f"{name}: an argument can't be read from JSON: {error.message}") from None


def _text(value: Any) -> str:
    """A function's value for the record: JSON where it is, else its repr."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        try:
            return repr(value)
        except Exception as error:  # noqa: BLE001 - the value's own code
            return f"a {type(value).__name__} whose repr raised {type(error).__name__}"
