"""The base class of all settings. It puts the faults of a model into words, all in one error."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails

from council.config import field_types as fields
from council.config.field_types import SHOWN_CHARS_MAX
from council.protocol.errors import ConfigError

ENABLED = "enabled"  # a key of a seat's table, not of a seat: it says whether there is one


class SettingsModel(BaseModel):
    """Settings that are checked when they are created. All faults are in one ConfigError, which names their keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="wrap")
    @classmethod
    def _in_words(cls, given: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return check(given)
        except ValidationError as error:
            problems = [_problem(cls, fault) for fault in error.errors()]
        raise config_error(cls, problems)


def config_error(model: type[BaseModel], problems: Sequence[str]) -> ConfigError:
    """One error for the problems of a model, a line for each."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = "".join(f"\n  {problem}" for problem in problems)
    return ConfigError(f"{model.__name__} has {count}:{lines}", problems=list(problems))


def _problem(model: type[BaseModel], fault: ErrorDetails) -> str:
    """A fault that pydantic found, in words."""
    found = fields.quoted_value(fault["input"])
    if not fault["loc"]:
        return f"found {found}, expected its keys with their values"
    key = str(fault["loc"][0])
    if key not in model.model_fields:
        known = model.model_fields
        return f"{key}: unknown key, expected one of {', '.join(known)}{did_you_mean(key, known)}"
    found = "is missing" if fault["type"] == "missing" else f"found {found}"
    return f"{key}: {found}, expected {expected(key, model)}"


def expected(key: str, model: type[BaseModel]) -> str:
    """The values that a key takes, in words."""
    if key == ENABLED and key not in model.model_fields:
        return "true or false"
    extra = model.model_fields[key].json_schema_extra
    return str(extra["expected"]) if isinstance(extra, dict) else "another value"


def did_you_mean(found: Any, known: Iterable[str]) -> str:
    """A hint at the nearest known word, or nothing."""
    # Compared by their beginnings: difflib's time grows with the square of the length.
    close = difflib.get_close_matches(str(found)[:SHOWN_CHARS_MAX], list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
