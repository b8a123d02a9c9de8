"""The types of fields that the parts of a cognition packet share, and how a part is read and written.

A part is frozen all the way down. It keeps unknown keys, and writes them after its own. Known fields are strict:
``"false"`` is not a boolean, 5.0 is not an integer, and a number is written as it was read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator
from pydantic_core import PydanticCustomError

from council.protocol.errors import EnvelopeError
from council.protocol.models import AS_PLAIN, AS_TUPLE, JSON_VALUE, Open, refusal
from council.protocol.values import INT_MAX, INT_MIN, kind_of

T = TypeVar("T")


def _number(value: object) -> Any:
    """A number as it was written: 1 does not become 1.0, because other programs have hashed it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("number", "must be a number")
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise PydanticCustomError("number", "must be a number that 64 bits hold")
    elif not math.isfinite(value):
        raise PydanticCustomError("number", "must be finite, found NaN or an infinity")
    return value


def _object(value: object) -> Any:
    if not isinstance(value, Mapping):
        raise refusal(f"must be an object, found {kind_of(value)}")
    return value


Whole = Annotated[int, Field(ge=INT_MIN, le=INT_MAX)]
Number = Annotated[
    float, PlainValidator(_number, json_schema_input_type=float), PlainSerializer(lambda number: number)
]
JsonObject = Annotated[Mapping[str, Any], JSON_VALUE, AfterValidator(_object), AS_PLAIN]
Many = Annotated[tuple[T, ...], AS_TUPLE]
# By its exact value: neither in another case nor by the member's name.
BY_VALUE = Field(strict=False)


class Part(Open):
    """A part of a packet. Read it from a mapping with ``from_dict``, change it with ``model_copy``."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The part of a mapping of JSON values. Raises EnvelopeError with the path of each error."""
        if not isinstance(data, Mapping):
            raise EnvelopeError(f"expected an object, found {kind_of(data)}", field="envelope")
        return cls.checked(dict(data))

    def to_dict(self) -> dict[str, Any]:
        """The part as new JSON values: fields in order, null for None, unknown keys last."""
        return self.model_dump(mode="json")
