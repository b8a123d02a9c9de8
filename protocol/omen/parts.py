"""What all parts of OMEN packets are made of: strict models with context rules, ids, texts, numbers and times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from council.protocol.errors import EnvelopeError
from council.protocol.models import (
    AS_PLAIN,
    AS_TUPLE,
    Anything,
    Confidence,
    JsonObject,
    Length,
    Model,
    NotNegative,
    Timestamp,
    at_most,
    json_object,
    read_timestamp,
    refusal,
    time_text,
)
from council.protocol.values import INT_MIN, freeze, plain, text_problem
from council.protocol.wording import matching

__all__ = ["AS_TUPLE", "Anything", "JsonObject"]

# A text of a packet is some pages at most; an id or a name is searched for and printed in tables.
TEXT_CHARS_MAX = 100_000
NAME_CHARS_MAX = 200
# No list of a packet is longer; an episode of more is several.
LIST_MAX = 1_000
# What every 64-bit reader and every database holds.
INT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Needs:
    """A context-dependent rule: if ``field`` has one of ``values``, ``needed`` must be there and not be null."""

    field: str
    values: tuple[Any, ...]
    needed: str

    def holds(self, part: Model) -> bool:
        return getattr(part, self.field) not in self.values or getattr(part, self.needed) is not None

    def words(self) -> str:
        said = " or ".join("empty" if value == () else str(value) for value in self.values)
        return f"is missing; it is required if {self.field} is {said}"

    def schema(self) -> dict[str, Any]:
        """The rule as ``if`` and ``then`` of a JSON Schema."""
        given = {"enum": [plain(value) for value in self.values]}
        return {
            "if": {"required": [self.field], "properties": {self.field: given}},
            "then": {"required": [self.needed], "properties": {self.needed: {"not": {"type": "null"}}}},
        }


def _with_rules(schema: dict[str, Any], part: type[Any]) -> None:
    if part.RULES:
        schema["allOf"] = [rule.schema() for rule in part.RULES]


class Part(Model):
    """A part of a packet. Unknown keys are refused. An optional field that is null counts as absent.

    ``RULES`` are its context-dependent rules: they are checked, and written into its JSON Schema.
    """

    model_config = ConfigDict(json_schema_extra=_with_rules)
    RULES: ClassVar[tuple[Needs, ...]] = ()


class RuledPart(Part):
    """A part with context-dependent rules."""

    @model_validator(mode="after")
    def _keeps_rules(self) -> Self:
        for rule in self.RULES:
            if not rule.holds(self):
                raise refusal(rule.words(), rule.needed)
        return self


def _whole(value: object) -> object:
    """JSON Schema counts 3.0 as an integer, and so do readers that know one kind of number only."""
    return int(value) if type(value) is float and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
Count = Annotated[int, Field(ge=0, le=INT_MAX), WHOLE]
AtLeastOne = Annotated[int, Field(ge=1, le=INT_MAX), WHOLE]
Number = NotNegative
Share = Confidence

# NUL can't be kept (rules 4.5).
_NO_NUL = Field(json_schema_extra={"pattern": r"^[^\u0000]*$"})
Text = Annotated[str, Length(TEXT_CHARS_MAX), _NO_NUL]
SomeText = Annotated[str, Length(TEXT_CHARS_MAX, 1), _NO_NUL]
Name = Annotated[str, Length(NAME_CHARS_MAX, 1), _NO_NUL]


def _id(prefix: str) -> StringConstraints:
    return matching(f"^{prefix}[a-zA-Z0-9_-]+$", f"an id: {prefix} and letters, digits, '_' or '-'")


_SHORT = (at_most(NAME_CHARS_MAX), Field(max_length=NAME_CHARS_MAX))
PacketId = Annotated[str, _id("pkt_"), *_SHORT]
EpisodeId = Annotated[str, _id("corr_"), *_SHORT]
CampaignId = Annotated[str, _id("camp_"), *_SHORT]
TaskId = Annotated[str, _id("task_"), *_SHORT]
TokenId = Annotated[str, _id("token_"), *_SHORT]


def _layer(value: object) -> object:
    if isinstance(value, bool):  # which a Literal would take for 1
        raise refusal("must be one of 1, 2, 3, 4, 5, 6 or 'Integrity'; found a boolean")
    return _whole(value)


Layer = Annotated[Literal[1, 2, 3, 4, 5, 6, "Integrity"], BeforeValidator(_layer)]

MOMENT_PATTERN = (
    "^(?!0000)[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"(\.[0-9]{1,9})?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
_MOMENT = re.compile(MOMENT_PATTERN.removesuffix("$") + r"\Z")


def _moment(value: object) -> object:
    if not isinstance(value, str):
        return value
    if len(value) > NAME_CHARS_MAX or _MOMENT.match(value) is None:
        raise refusal("must be a time with an offset from UTC, like 2025-07-11T19:22:00Z")
    try:
        return read_timestamp(value)
    except EnvelopeError:  # a day that its month does not have
        raise refusal("must be a day that exists, like 2025-07-11T19:22:00Z") from None


# An aware time. In JSON it is RFC 3339 with an offset; it is written in UTC.
Moment = Annotated[
    Timestamp,
    BeforeValidator(_moment),
    PlainSerializer(time_text, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": MOMENT_PATTERN}),
]


def _text_or(value: object, kinds: tuple[type, ...], words: str) -> Any:
    if isinstance(value, str):
        if len(value) > TEXT_CHARS_MAX:
            raise refusal(f"must have at most {TEXT_CHARS_MAX:,} characters; it has {len(value):,}")
        if (problem := text_problem(value)) is not None:
            raise refusal(problem)
    elif isinstance(value, bool) or not isinstance(value, kinds):
        raise refusal(f"must be a text or {words}")
    return value


def _text_or_number(value: object) -> Any:
    found = _text_or(value, (int, float), "a number")
    if not isinstance(found, str) and not INT_MIN <= found <= INT_MAX:  # NaN too
        raise refusal(f"must be a finite number from {INT_MIN:,} to {INT_MAX:,}")
    return found


TextOrNumber = Annotated[
    str | float,
    PlainValidator(
        _text_or_number,
        json_schema_input_type=Text | Annotated[float, Field(ge=INT_MIN, le=INT_MAX)],
    ),
]


def _text_or_object(value: object) -> Any:
    if isinstance(value, Mapping):
        return freeze(value)
    return _text_or(value, (), "an object")


TextOrObject = Annotated[
    str | Mapping[str, Any],
    PlainValidator(_text_or_object, json_schema_input_type=Text | dict[str, Any]),
    PlainSerializer(plain),
]


def _something(value: Mapping[str, Any]) -> Mapping[str, Any]:
    if not value:
        raise refusal("is empty; at least one key is needed")
    return value


SomeObject = Annotated[
    Mapping[str, Any],
    json_object(),
    AfterValidator(_something),
    AS_PLAIN,
    Field(json_schema_extra={"minProperties": 1}),
]
