"""Seats' profiles and the core's limits, as the control-packet document's config.json writes them.

Knows their fields and takes the parsed data; knows no files, and not which profile is which seat's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from council.protocol.errors import ConfigError, EnvelopeError
from council.protocol.jsondata import freeze, items_of, kind_of, quoted
from council.protocol.models import malformed
from council.protocol.packet import Word
from council.protocol.sections import Section

# rules 6.4
FACTS_DEFAULT = 200_000
DERIVED_FACTS_DEFAULT = 100_000


def _unset(value: object) -> object:
    # The programs of that document save what was never set as 0, or as an empty name.
    return None if value in (0, "") and not isinstance(value, bool) else value


Positive = Annotated[int, Field(gt=0, le=2**63 - 1)]
Limit = Annotated[Positive | None, BeforeValidator(_unset)]
Seconds = Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(_unset)]
Model = Annotated[Word | None, BeforeValidator(_unset)]


class SeatProfile(Section):
    """How a seat's model is asked; None where the profile leaves it open. Unknown keys are kept."""

    model: Model = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Annotated[float, Field(gt=0, le=1)] | None, BeforeValidator(_unset)] = None
    max_context_tokens: Limit = None
    max_output_tokens: Limit = None
    max_execution_time_sec: Seconds = None
    max_facts_in_shard_kernel: Limit = None


class CoreLimits(Section):
    """What the whole may hold; limits on facts always stand (rules 6.4)."""

    max_total_memory_mb: Limit = None
    max_concurrent_shards: Limit = None
    max_facts_in_kernel: Positive = FACTS_DEFAULT
    max_derived_facts_limit: Positive = DERIVED_FACTS_DEFAULT


@dataclass(frozen=True, slots=True)
class Imported:
    """What a config.json gave; ``ignored`` names its keys that are not for us, in order."""

    profiles: Mapping[str, SeatProfile]
    default: SeatProfile
    core_limits: CoreLimits
    ignored: tuple[str, ...]

    def profile(self, name: str) -> SeatProfile:
        """The profile of this name, else the default."""
        return self.profiles.get(name, self.default)


def import_config(data: Any, where: str = "config.json") -> Imported:
    """The profiles and limits in the data of a config.json. Raises ConfigError that lists every fault."""
    problems: list[str] = []
    top = _object(data, where, problems)
    shards = _object(top.get("shard_profiles", {}), f"{where}: shard_profiles", problems)
    profiles = {
        name: _read(SeatProfile, profile, f"{where}: shard_profiles.{_key(name)}", problems)
        for name, profile in shards.items()
    }
    default = _read(SeatProfile, top.get("default_shard", {}), f"{where}: default_shard", problems)
    limits = _read(CoreLimits, top.get("core_limits", {}), f"{where}: core_limits", problems)
    if problems:
        raise ConfigError("\n".join(problems), problems=tuple(problems))
    known = ("shard_profiles", "default_shard", "core_limits")
    ignored = tuple(_key(name) for name in top if name not in known)
    return Imported(profiles, default, limits, ignored)


def _key(name: object) -> str:
    return name if isinstance(name, str) and name.isidentifier() and len(name) <= 64 else quoted(name)


def _object(value: Any, where: str, problems: list[str]) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    problems.append(f"{where}: expected an object, found {kind_of(value)}")
    return {}


def _read(kind: type[Any], value: Any, where: str, problems: list[str]) -> Any:
    given = _object(value, where, problems)
    if kind is CoreLimits:  # their defaults stand for what is not set
        given = {name: limit for name, limit in given.items() if _unset(limit) is not None}
    try:
        return kind.model_validate(dict(items_of(freeze(given))))
    except EnvelopeError as fault:
        problems.append(f"{where}.{fault.field}: {fault.message}")
    except ValidationError as error:
        problems.extend(f"{where}.{problem}" for problem in malformed(error).problems)
    return kind()
