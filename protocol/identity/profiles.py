"""Seats' profiles in the form of the control-packet document's config.json, as parsed data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from council.protocol.answer.sections import Section
from council.protocol.models import EMPTY, Model
from council.protocol.packet import Word
from council.protocol.values import quoted


def _unset(value: object) -> object:
    # The programs of that document write unset values as 0, or as an empty name.
    return None if value in (0, "") and not isinstance(value, bool) else value


Limit = Annotated[Annotated[int, Field(gt=0, le=2**63 - 1)] | None, BeforeValidator(_unset)]
Seconds = Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(_unset)]
ModelName = Annotated[Word | None, BeforeValidator(_unset)]


def _shown(key: object) -> str:
    return key if isinstance(key, str) and key.isidentifier() and len(key) <= 64 else quoted(key)


class SeatProfile(Section):
    """The settings of a seat's model; None if the profile does not say. Unknown keys are kept."""

    model: ModelName = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Annotated[float, Field(gt=0, le=1)] | None, BeforeValidator(_unset)] = None
    max_context_tokens: Limit = None
    max_output_tokens: Limit = None
    max_execution_time_sec: Seconds = None
    max_facts_in_shard_kernel: Limit = None


class Profiles(Model):
    """The profiles in the data of a config.json. ``ignored`` lists its keys that we do not use, in order."""

    shard_profiles: Mapping[str, SeatProfile] = EMPTY
    default_shard: SeatProfile = SeatProfile()
    ignored: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _ignore_others(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        known = {key: value[key] for key in ("shard_profiles", "default_shard") if key in value}
        return known | {"ignored": tuple(_shown(key) for key in value if key not in known)}

    def profile(self, name: str) -> SeatProfile:
        """The profile of this name, or the default."""
        return self.shard_profiles.get(name, self.default_shard)
