"""Seats' profiles in the form of the control-packet document's config.json.

Knows their fields, and takes parsed data. Knows no files, and not which seat uses which profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from council.protocol.answer.sections import Section
from council.protocol.errors import ConfigError, EnvelopeError
from council.protocol.models import malformed
from council.protocol.packet import Word
from council.protocol.values import freeze, items_of, kind_of, quoted


def _unset(value: object) -> object:
    # The programs of that document write unset values as 0, or as an empty name.
    return None if value in (0, "") and not isinstance(value, bool) else value


Limit = Annotated[Annotated[int, Field(gt=0, le=2**63 - 1)] | None, BeforeValidator(_unset)]
Seconds = Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(_unset)]
Model = Annotated[Word | None, BeforeValidator(_unset)]


class SeatProfile(Section):
    """How a seat's model is called; None if the profile does not say. Unknown keys are kept."""

    model: Model = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Annotated[float, Field(gt=0, le=1)] | None, BeforeValidator(_unset)] = None
    max_context_tokens: Limit = None
    max_output_tokens: Limit = None
    max_execution_time_sec: Seconds = None
    max_facts_in_shard_kernel: Limit = None


@dataclass(frozen=True, slots=True)
class ImportedProfiles:
    """The profiles of a config.json. ``ignored`` lists its keys that we do not use, in order."""

    profiles: Mapping[str, SeatProfile]
    default: SeatProfile
    ignored: tuple[str, ...]

    def profile(self, name: str) -> SeatProfile:
        """The profile of this name, or the default."""
        return self.profiles.get(name, self.default)


def import_config(data: Any, where: str = "config.json") -> ImportedProfiles:
    """The profiles in the data of a config.json. Raises ConfigError that lists every fault."""
    problems: list[str] = []
    top = _object(data, where, problems)
    shards = _object(top.get("shard_profiles", {}), f"{where}: shard_profiles", problems)
    profiles = {
        name: _read(profile, f"{where}: shard_profiles.{_key(name)}", problems)
        for name, profile in shards.items()
    }
    default = _read(top.get("default_shard", {}), f"{where}: default_shard", problems)
    if problems:
        raise ConfigError("\n".join(problems), problems=tuple(problems))
    ignored = tuple(_key(name) for name in top if name not in ("shard_profiles", "default_shard"))
    return ImportedProfiles(profiles, default, ignored)


def _key(name: object) -> str:
    return name if isinstance(name, str) and name.isidentifier() and len(name) <= 64 else quoted(name)


def _object(value: Any, where: str, problems: list[str]) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    problems.append(f"{where}: expected an object, found {kind_of(value)}")
    return {}


def _read(value: Any, where: str, problems: list[str]) -> SeatProfile:
    given = _object(value, where, problems)
    try:
        return SeatProfile.model_validate(dict(items_of(freeze(given))))
    except EnvelopeError as fault:
        problems.append(f"{where}.{fault.field}: {fault.message}")
    except ValidationError as error:
        problems.extend(f"{where}.{problem}" for problem in malformed(error).problems)
    return SeatProfile()
