"""Says in words what is wrong with a value, so that users never see pydantic's own messages and patterns.

``fault_text`` has words for each type of error in pydantic. ``matching`` makes the check of a pattern together with
its words, so that no pattern lacks words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

from pydantic import StringConstraints
from pydantic_core import core_schema

from council.protocol.values import quoted

# The words for each pattern that ``matching`` was given.
_PATTERNS: dict[str, str] = {}
# The form of a model, by the name of its class; any other is an object.
_SHAPES = {
    "Action": 'an Action, or a dict like {"tool": "name", "args": {...}}',
    "Turn": 'a dict like {"role": "user", "text": "..."}',
}
_PYDANTICS = frozenset(get_args(core_schema.ErrorType))


def matching(pattern: str, words: str) -> StringConstraints:
    """A check that a text matches ``pattern``. ``words`` follow "must be" in its error: "an id of 8 digits"."""
    _PATTERNS[pattern] = words
    return StringConstraints(pattern=pattern)


def fault_text(
    kind: str, context: Mapping[str, Any], value: object, path: str = "", message: str = ""
) -> str:
    """Says what was expected, and what was found if that is short.

    ``kind``, ``context`` and ``value`` are type, ctx and input of a pydantic error. ``path`` ends in ``_s`` for a
    duration in seconds. ``message`` is the text of an error that a validator of ours raised.
    """
    if kind in _ALONE:
        return _ALONE[kind](context, value)
    if kind in ("too_large", "refused"):
        return message
    if kind == "value_error":
        said = str(context.get("error", message))
    elif kind not in _PYDANTICS:
        said = message
    else:
        said = _WORDS.get(kind, _unfit)(context, " seconds" if path.endswith("_s") else "")
    short = isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 64)
    return f"{said}; found {repr(value) if short else quoted(value)}"


def msgspec_text(error: Exception, whole: str) -> str:
    """The message of a msgspec.ValidationError, with the field first; ``whole`` names what has no field."""
    said, _, place = str(error).partition(" - at ")
    said = re.sub(" matching regex .*", " of another form", said)
    said = re.sub("`([^`]*)`", lambda name: " or ".join(map(_type, name[1].split(" | "))), said)
    said = said.replace(", got ", ", found ").replace("Object missing required field", "is missing the field")
    return f"{place.strip('`$').removeprefix('.') or whole}: {said[:1].lower()}{said[1:]}"


def _type(name: str) -> str:
    words = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false"}
    return (words | {"array": "a list", "object": "an object"}).get(name, name)


def _number(limit: object) -> str:
    whole = isinstance(limit, float) and limit.is_integer()
    return f"{int(limit) if whole else limit:,}" if isinstance(limit, int | float) else str(limit)


def _too_short(context: Mapping[str, Any], value: Any) -> str:
    least = context["min_length"]
    return "is empty" if least == 1 else f"must have at least {least:,} characters; it has {len(value):,}"


def _entries(context: Mapping[str, Any]) -> str:
    found = context["actual_length"]  # None if counting stopped at the limit
    return f"has {'another number of' if found is None else f'{found:,}'} entries"


# Complete texts, to which the found value is not added
_ALONE: dict[str, Callable[[Mapping[str, Any], Any], str]] = {
    "missing": lambda context, value: "is missing",
    "extra_forbidden": lambda context, value: "is not a known field; remove it",
    "string_unicode": lambda context, value: "holds half of a surrogate pair, which is not text",
    "string_too_short": _too_short,
    "string_too_long": lambda context, value: (
        f"must have at most {context['max_length']:,} characters; it has {len(value):,}"
    ),
    "too_short": lambda context, value: f"{_entries(context)}; at least {context['min_length']:,} are needed",
    "too_long": lambda context, value: f"{_entries(context)}; at most {context['max_length']:,} are allowed",
}


def _always(words: str) -> Callable[[Mapping[str, Any], str], str]:
    return lambda context, unit: f"must be {words}"


def _limit(words: str, key: str) -> Callable[[Mapping[str, Any], str], str]:
    return lambda context, unit: f"must be {words} {_number(context[key])}{unit}"


def _shape(context: Mapping[str, Any], unit: str) -> str:
    return f"must be {_SHAPES.get(context.get('class_name', ''), 'an object')}"


def _unfit(context: Mapping[str, Any], unit: str) -> str:
    return "can't be used here"


_WORDS: dict[str, Callable[[Mapping[str, Any], str], str]] = {
    **dict.fromkeys(("string_type", "string_sub_type", "bytes_type"), _always("a text")),
    **dict.fromkeys(
        ("int_type", "int_parsing", "int_parsing_size", "int_from_float"), _always("a whole number")
    ),
    **dict.fromkeys(("float_type", "float_parsing"), _always("a number")),
    **dict.fromkeys(("bool_type", "bool_parsing"), _always("true or false")),
    **dict.fromkeys(("dict_type", "mapping_type"), _always("an object")),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "iterable_type"), _always("a list")),
    **dict.fromkeys(("model_type", "model_attributes_type", "dataclass_type"), _shape),
    **dict.fromkeys(
        (
            "datetime_type",
            "datetime_parsing",
            "datetime_from_date_parsing",
            "timezone_aware",
            "timezone_offset",
        ),
        _always("a time with an offset from UTC (an aware datetime)"),
    ),
    "finite_number": _always("a finite number"),
    "none_required": _always("null"),
    "greater_than": _limit("more than", "gt"),
    "greater_than_equal": _limit("at least", "ge"),
    "less_than": _limit("less than", "lt"),
    "less_than_equal": _limit("at most", "le"),
    **dict.fromkeys(
        ("literal_error", "enum"), lambda context, unit: f"must be {_one_of(str(context['expected']))}"
    ),
    "string_pattern_mismatch": lambda context, unit: (
        f"must be {_PATTERNS.get(context['pattern'], 'of another form')}"
    ),
}


def _one_of(expected: str) -> str:
    return f"one of {expected}" if " or " in expected else expected
