"""What the parts of a cognition packet have in common: what their fields may hold, reading and writing.

A part is frozen all the way down and keeps the keys it does not know, which are written back behind its own.
What it knows is strict: ``"false"`` is no boolean, 5.0 no integer, and a number stays written as it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from council.protocol.errors import EnvelopeError
from council.protocol.jsondata import INT_MAX, INT_MIN, JSON_BYTES_MAX, FrozenDict, kind_of, plain
from council.protocol.models import AS_PLAIN, json_value, length, malformed, no_nul
from council.protocol.models import Model as Strict

T = TypeVar("T")


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _number(value: object) -> Any:
    """A number as it was written: 1 does not become 1.0, for other programs have hashed it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("number", "must be a number")
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise PydanticCustomError("number", "must be a number that 64 bits hold")
    elif not math.isfinite(value):
        raise PydanticCustomError("number", "NaN and infinities are no numbers here")
    return value


def _object(value: object) -> Any:
    if not isinstance(value, Mapping):
        problem = f"must be an object, found {kind_of(value)}"
        raise PydanticCustomError("json_value", "{problem}", {"path": "", "problem": problem})
    return value


# One text may be as long as the whole packet, which is limited when it is read and when it is written.
Text = Annotated[str, length(JSON_BYTES_MAX), AfterValidator(no_nul)]
Whole = Annotated[int, Field(ge=INT_MIN, le=INT_MAX)]
Number = Annotated[float, PlainValidator(_number, json_schema_input_type=float)]
Anything = Annotated[Any, json_value(JSON_BYTES_MAX, JSON_BYTES_MAX), PlainSerializer(plain)]
JsonObject = Annotated[
    Mapping[str, Any], json_value(JSON_BYTES_MAX, JSON_BYTES_MAX), AfterValidator(_object), AS_PLAIN
]
Many = Annotated[tuple[T, ...], BeforeValidator(_as_tuple)]
# By value and exactly: neither another case of it nor the member's name.
BY_VALUE = Field(strict=False)


class Part(Strict):
    """A part of a packet. Read it from a mapping with ``from_dict``, change it with ``model_copy``."""

    model_config = ConfigDict(extra="allow")
    if TYPE_CHECKING:  # whose checkers would take it for an argument
        __pydantic_extra__: dict[Text, Anything] = Field(init=False)
    else:
        __pydantic_extra__: dict[Text, Anything]

    @property
    def model_extra(self) -> dict[str, Any]:
        """The keys that are not known here, with their frozen values; a copy."""
        return dict(self.__pydantic_extra__)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The part that a mapping of JSON values says. Raises EnvelopeError with the path of each fault."""
        if not isinstance(data, Mapping):
            raise EnvelopeError(f"expected an object, found {kind_of(data)}", field="envelope")
        try:
            return cls.model_validate(data if isinstance(data, dict) else dict(data))
        except ValidationError as error:
            raise malformed(error) from None

    def to_dict(self) -> dict[str, Any]:
        """It as JSON values, all new: the fields in order, null where nothing is, unknown keys last."""
        known = {name: _plain(getattr(self, name)) for name in type(self).model_fields}
        return known | {key: plain(value) for key, value in self.__pydantic_extra__.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return value.to_dict()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, FrozenDict):
        return plain(value)
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return value
