"""The base of all protocol models: strictness, texts, times, JSON objects, and error messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, LiteralString, Self, cast

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    PlainValidator,
    ValidationError,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, PydanticKnownError, core_schema

from council.protocol.errors import EnvelopeError, EnvelopeTooLarge
from council.protocol.values import (
    CHARS_MAX,
    ITEMS_MAX,
    JSON_BYTES_MAX,
    NUL,
    dotted,
    freeze,
    freeze_value,
    plain,
    quoted,
)
from council.protocol.wording import fault_text

# At most this many errors are listed. Readers begin with the first ones anyway.
PROBLEMS_MAX = 100

_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)


def refusal(problem: str, path: str = "", **facts: Any) -> PydanticCustomError:
    """The error that a validator raises with a text of its own.

    ``path`` leads to the place inside the value; ``field`` names another field instead. ``limit`` and ``found`` are
    for a value that is too large.
    """
    kind: LiteralString = "too_large" if "limit" in facts else "refused"
    return PydanticCustomError(kind, "{problem}", {"problem": problem, "path": path, **facts})


# Direction marks, joiners, fillers and tags, by Unicode's property Default_Ignorable_Code_Point, and letters that are
# drawn as blanks. Not the two selectors that only choose how a sign is drawn (U+FE0E, U+FE0F).
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\ud800-\udfff]"
)


def unseen(text: str) -> str | None:
    """The first invisible character, as ``U+202E``, or None. Tabs and line feeds count as visible."""
    found = _UNSEEN.search(text)
    return None if found is None else f"U+{ord(found[0]):04X}"


def without_unseen(text: str) -> str:
    """The text without its invisible characters."""
    return _UNSEEN.sub("", text)


def at_most(most: int) -> BeforeValidator:
    """Refuses a longer text before pydantic encodes it, which it does before it counts characters."""

    def short(value: object) -> object:
        if isinstance(value, str) and str.__len__(value) > most:
            raise _too_long(most)
        return value

    return BeforeValidator(short)


@dataclass(frozen=True, slots=True)
class Length:
    """The limits of a text, in characters. A longer text is refused before it is read.

    A text with a NUL is refused too (rules 4.5), and, by pydantic, one with half of a surrogate pair.
    """

    most: int
    least: int = 0

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema(min_length=self.least, max_length=self.most)
        return core_schema.no_info_before_validator_function(self._kept, text)

    def _kept(self, value: object) -> object:
        if isinstance(value, str):
            if str.__len__(value) > self.most:
                raise _too_long(self.most)
            if str.__contains__(value, "\0"):  # faster than a pattern by a microsecond for each ballot
                raise refusal(NUL)
        return value


def _too_long(most: int) -> PydanticKnownError:
    return PydanticKnownError("string_too_long", {"max_length": most})


def _to_utc(moment: datetime) -> datetime:
    """The same time in UTC, as a plain datetime, so that subclasses pickle alike."""
    if moment.tzinfo is UTC and type(moment) is datetime:
        return moment
    if moment.utcoffset() is None:
        raise refusal("has no offset from UTC; give an aware time")
    try:
        m = moment.astimezone(UTC)
    except (OverflowError, ValueError):
        raise refusal("lies outside the years 1 to 9999 in UTC") from None
    return datetime(m.year, m.month, m.day, m.hour, m.minute, m.second, m.microsecond, UTC)


def _frozen(how: Callable[..., Any], value: object, *limits: int, **ways: bool) -> Any:
    """A frozen JSON value. Errors become pydantic's, with the path inside the value."""
    try:
        return how(value, *limits, **ways)
    except EnvelopeError as fault:
        facts = {name: fault.facts[name] for name in ("limit", "found") if name in fault.facts}
        raise refusal(fault.message, fault.field, **facts) from None


def json_object(items_max: int = ITEMS_MAX, chars_max: int = CHARS_MAX) -> PlainValidator:
    """A validator for a frozen object, with limits for its entries and elements, and its characters, in total."""

    def frozen(value: object) -> Mapping[str, Any]:
        return _frozen(freeze, value, items_max, chars_max)  # type: ignore[no-any-return]

    return PlainValidator(frozen, json_schema_input_type=dict[str, Any])


def _frozen_value(value: object) -> Any:
    return _frozen(freeze_value, value, JSON_BYTES_MAX, JSON_BYTES_MAX, signed_zero=True)


# A validator for any JSON value, frozen. It keeps -0.0.
JSON_VALUE = PlainValidator(_frozen_value, json_schema_input_type=Any)


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


# After it comes a tuple: JSON's lists are read into it.
AS_TUPLE = BeforeValidator(_as_tuple)
# A non-negative number equals its absolute value, except for -0.0. This gives each number one encoding.
NotNegative = Annotated[float, Field(ge=0), AfterValidator(float.__abs__)]
Confidence = Annotated[float, Field(ge=0, le=1), AfterValidator(float.__abs__)]
AS_PLAIN = PlainSerializer(plain, return_type=dict[str, Any])
JsonObject = Annotated[Mapping[str, Any], json_object(), AS_PLAIN]
EMPTY = freeze({})

Timestamp = Annotated[AwareDatetime, AfterValidator(_to_utc)]


class Model(BaseModel):
    """A strict and frozen model. Input is checked in every case, and never shown in an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        revalidate_instances="always",
        hide_input_in_errors=True,
        defer_build=True,  # a validator is built when it is first used; most processes use few of them
    )

    @classmethod
    def checked(cls, data: Mapping[str, Any]) -> Self:
        """The model of this data. Raises EnvelopeError (EnvelopeTooLarge for a limit).

        ``field`` is the dotted path of the first error; ``problems`` is a tuple of all errors in words.
        """
        try:  # pydantic-core's own entry: a third faster than model_validate, and it runs for each message
            return cast(Self, cls.__pydantic_validator__.validate_python(data))
        except ValidationError as error:
            raise malformed(error) from None

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Like pydantic's, but validates the update; raises pydantic's ValidationError."""
        if not update:
            return super().model_copy(deep=deep)
        return type(self).model_validate({**dict(self), **update})


# Limited only by the object that holds it, which has a limit for reading and writing.
LongText = Annotated[str, Length(JSON_BYTES_MAX)]
Anything = Annotated[Any, JSON_VALUE, PlainSerializer(plain)]


class Open(Model):
    """A model that checks the fields it knows. It keeps unknown fields, frozen, and writes them back unchanged."""

    model_config = ConfigDict(extra="allow")
    if TYPE_CHECKING:  # type checkers would take it for an argument
        __pydantic_extra__: dict[LongText, Anything] = Field(init=False)
    else:
        __pydantic_extra__: dict[LongText, Anything]

    @property
    def model_extra(self) -> dict[str, Any]:
        """The unknown keys with their frozen values; a copy."""
        return dict(self.__pydantic_extra__)


# From pydantic's errors to ours


def malformed(error: ValidationError) -> EnvelopeError:
    """pydantic's errors as one EnvelopeError that names the first and lists all."""
    raised = error.errors(include_url=False)
    # A default that depends on other fields is not made if one of them is wrong: that is no fault of its own.
    faults = [fault for fault in raised if fault["type"] != "default_factory_not_called"]
    first = faults[0]
    field = _path(first)
    problems = tuple(f"{_path(fault)}: {_words(fault)}" for fault in faults[:PROBLEMS_MAX])
    message = _first_of(problems, len(faults))
    if first["type"] in ("too_large", "too_long", "string_too_long"):
        context = first["ctx"]
        limit = context.get("limit", context.get("max_length"))
        found = context["found"] if "found" in context else len(first["input"])
        return EnvelopeTooLarge(message, field=field, problems=problems, limit=limit, found=found)
    return EnvelopeError(message, field=field, problems=problems)


def _first_of(problems: Sequence[str], count: int) -> str:
    return problems[0] if count == 1 else f"{problems[0]} (and {count - 1} more, see problems)"


def renamed(error: EnvelopeError, names: Mapping[str, str]) -> EnvelopeError:
    """The same error with the names that its caller used, for the beginnings of paths: ``{"content.body": "body"}``.

    A name that begins with "the" is part of the sentence: "the summary is empty". ``field`` stays as it was.
    """
    problems = tuple(_renamed(each, names) for each in error.facts.get("problems", (error.message,)))
    facts = error.facts | ({"problems": problems} if "problems" in error.facts else {})
    return type(error)(_first_of(problems, len(problems)), **facts)


def _renamed(problem: str, names: Mapping[str, str]) -> str:
    for path, name in names.items():
        rest = problem.removeprefix(path)
        if rest == problem or rest[:1] not in (":", ".", "["):
            continue
        if name.startswith("the "):
            return name + rest.removeprefix(":")
        return f"{name} {rest.removeprefix('.')}" if name.startswith("--") and rest[0] != ":" else name + rest
    return problem


def _path(fault: ErrorDetails) -> str:
    """``content.action.args.files[3]``; a foreign key is cut and escaped."""
    context = fault.get("ctx", {})
    if "field" in context:
        return str(context["field"])
    path = dotted(fault["loc"])
    inner = str(context.get("path", ""))
    if not inner:
        return path or "envelope"
    return path + inner if inner.startswith("[") else f"{path}.{inner}"


def _words(fault: ErrorDetails) -> str:
    return fault_text(fault["type"], fault.get("ctx", {}), fault["input"], _path(fault), fault["msg"])


def time_text(moment: datetime) -> str:
    """A time in UTC in the form of the protocol's documents: ``2025-07-11T19:22:00Z``."""
    return moment.isoformat().replace("+00:00", "Z")


def read_timestamp(text: str) -> datetime:
    """Reads RFC 3339. Without an offset the result is naive, and the envelope refuses it."""
    found = _TIMESTAMP.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        day, clock, fraction, offset = found.groups(default="")
        return datetime.fromisoformat(f"{day}T{clock}{fraction}{offset.upper()}")
    except ValueError:
        message = f"timestamp: {quoted(text)} is no time; expected one like 2025-07-11T19:22:00Z"
        raise EnvelopeError(message, field="timestamp", problems=(message,)) from None
