"""Reads a council's configuration from file, environment and flags; docs/settings.md describes them.

The problems of all sources are in one ConfigError, of each source the first 100. Nothing in a value is executed: only
``import_mind`` and ``build_mind`` (``council.config.build_minds``) import a mind.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from council.agents.messaging import logs
from council.config.build_minds import build_mind, import_mind
from council.config.origins import (
    ENVIRONMENT_PREFIX,
    PROBLEMS_MAX,
    ConfigSource,
    Layers,
    key_shown,
    quoted_value,
    seat_variable,
)
from council.config.settings import (
    COUNCIL_KEYS,
    DEFAULT_SEATS,
    ENABLED,
    FILES,
    MODEL_KEYS,
    MODEL_MIND,
    ROWS,
    SEAT_KEYS,
    ActionConfig,
    CouncilConfig,
    NotifyConfig,
    SeatConfig,
    did_you_mean,
    of_profile,
    with_charter_files,
)
from council.protocol.errors import ConfigError

if TYPE_CHECKING:
    from council.config.charter_files import CharterFiles

__all__ = [
    "DEFAULT_SEATS",
    "CouncilConfig",
    "Loaded",
    "SeatConfig",
    "build_mind",
    "describe",
    "import_mind",
    "load",
]

log = logs.get_logger("council")

FILE_NAME = "council.toml"
PROJECT_FILE_NAME = "pyproject.toml"
FILE_BYTES_MAX = 2**20  # far above any pyproject.toml written by hand; a wrong path may be a device
# Keys that a variable gives as a table of TOML.
TABLES = ("options", "humans", "notify", "output", "action", "resources", "labels", "runtime_env", *ROWS)
_VARIABLES = tuple(key.upper() for key in COUNCIL_KEYS if key != "seats")
_SEAT_VARIABLE = re.compile(f"SEATS__(.+)__({'|'.join((*SEAT_KEYS, ENABLED)).upper()})", re.DOTALL)
_TRUTH = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)


@dataclass
class Loaded:
    """A configuration, and the origin of each value.

    ``origins`` maps each dotted key (``quorum``, ``seats.lite.mind``) to ``default``, the file's path (followed by
    `` [tool.council]`` for a pyproject.toml), ``environment COUNCIL_QUORUM`` or ``flag --quorum``.
    """

    config: CouncilConfig
    origins: dict[str, str]


def load(
    path: Path | None = None,
    *,
    env: Mapping[str, str] | None = None,
    start: Path | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    """The configuration that file, environment and flags give together.

    ``path`` names the file; without it one is searched for from ``start`` (default: the working folder)
    upwards, and there need not be any. ``env`` replaces os.environ. ``flags`` are keyed ``quorum`` or
    ``seats.lite.mind``; one that is None was not given. Raises ConfigError with all ``problems``.
    """
    layers = Layers()
    try:
        found = _search((start or Path.cwd()).absolute()) if path is None else read_file(path, named=True)
    except ConfigError as error:
        layers.add_unreadable(error.problems)  # and go on, for the problems of the other sources
    else:
        if found is not None:
            layers.apply(*found)
    env = os.environ if env is None else env
    ray = env.get("RAY_ADDRESS", "").strip()
    if ray not in ("", "local"):  # where Ray itself looks, and where a job that was submitted to it runs
        layers.apply(ConfigSource("ray"), {"ray_address": ray})
    _apply_environment(layers, env)
    _apply(
        layers, ConfigSource("flag"), {key: each for key, each in (flags or {}).items() if each is not None}
    )
    files = _charter_files(layers)
    config = layers.finish()
    if config is None:
        raise _error(layers.problems)
    config = with_charter_files(config, files)
    origins = {
        key: layers.sources[key].origin(key) if key in layers.sources else "default" for key in _flat(config)
    }
    return Loaded(config, origins)


def _charter_files(layers: Layers) -> CharterFiles | None:
    """The content of the named files, with profiles applied; None without such files, or with problems in them."""
    seats = {name: seat for name, seat in layers.seats.items() if name not in layers.removed}
    personas = any(seat.get("persona") for seat in seats.values())
    if not personas and not any(key in layers.values for key in FILES):
        return None
    from council.config.charter_files import (  # which few configurations need
        file_paths,
        read_charter_files,
        read_profiles,
    )

    named = file_paths(layers.values, seats)
    profiles = named.get("profiles")
    if profiles is not None:
        try:
            found = read_profiles(profiles)
            layers.fill(ConfigSource("file", profiles), lambda role: of_profile(found.profile(role)))
        except ConfigError as error:
            at = layers.sources["profiles"].at("profiles")
            layers.add_unreadable(f"{at}: {problem}" for problem in error.problems)
            del named["profiles"]
    try:
        return read_charter_files(named, lambda key: layers.sources[key].at(key))
    except ConfigError as error:
        layers.problems += error.problems
        return None


def describe(loaded: Loaded) -> list[tuple[str, Any, str]]:
    """Each dotted key with its value and origin, in the order of the fields.

    A mind given as an object, class or function is described by its name.
    """
    lines = []
    for key, value in _flat(loaded.config).items():
        if key.startswith("seats.") and key.endswith(".mind") and not isinstance(value, str):
            named = value if hasattr(value, "__qualname__") else type(value)
            value = f"{named.__module__}:{named.__qualname__}"
        lines.append((key, value, loaded.origins[key]))
    return lines


def _flat(config: CouncilConfig) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key in COUNCIL_KEYS:
        if key != "seats":
            value = getattr(config, key)
            if isinstance(value, ActionConfig | NotifyConfig):
                value = value.model_dump(exclude_unset=True)
            elif key == "output":
                value = {name: each.model_dump(exclude_unset=True) for name, each in value.items()}
            elif key in ROWS:
                value = [row.model_dump(exclude_unset=True) for row in value]
            flat[key] = value
            continue
        for seat in config.seats:
            for part in SEAT_KEYS:
                if part not in MODEL_KEYS or seat.mind == MODEL_MIND:
                    flat[f"seats.{seat.name}.{part}"] = getattr(seat, part)
    return flat


def _error(problems: Sequence[str]) -> ConfigError:
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = "\n".join(f"  {problem}" for problem in problems)
    return ConfigError(f"the configuration has {count}:\n{lines}", problems=list(problems))


def _search(start: Path) -> tuple[ConfigSource, Mapping[str, Any]] | None:
    for folder in (start, *start.parents):
        own, project = folder / FILE_NAME, folder / PROJECT_FILE_NAME
        # A broken link is there too: it is reported when it is read, not passed over.
        found = [read_file(file, named=False) for file in (own, project) if os.path.lexists(file)]
        held = [each for each in found if each is not None]
        if len(held) > 1:
            both = f"file {own}: found beside a [tool.council] in {project}"
            raise _error([f"{both}, expected one of the two: merge them, or name the file to use"])
        if held:
            return held[0]
    return None


def read_file(path: Path, *, named: bool) -> tuple[ConfigSource, Mapping[str, Any]] | None:
    """The settings in a file; None if it is a pyproject.toml without any, unless the user ``named`` it."""
    document = _parsed(path)
    if path.name != PROJECT_FILE_NAME:
        return ConfigSource("file", str(path)), _placed(document, path)
    tools = document.get("tool")
    section = tools.get("council") if isinstance(tools, dict) else None
    if section is None and not named:
        return None
    if not isinstance(section, dict):
        found = "nothing" if section is None else quoted_value(section)
        raise _error([f"file {path}: key tool.council: found {found}, expected a table [tool.council]"])
    return ConfigSource("file", f"{path} [tool.council]"), _placed(section, path)


def _placed(document: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The settings of a file, with the folder of rules as an absolute path: it may be relative to the file's."""
    rules = document.get("rules")
    if not isinstance(rules, str) or not rules or rules.startswith(("/", "~")):
        return document
    return {**document, "rules": str(path.absolute().parent / rules)}


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            why = f"longer than {FILE_BYTES_MAX} bytes, expected a configuration in TOML"
        else:
            return tomllib.loads(raw.decode("utf-8-sig"))
    except OSError as error:
        why = f"can't be read: {error.strerror or type(error).__name__}; expected a readable TOML file"
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        why = f"line {line} is not UTF-8, expected TOML in UTF-8"
    except ValueError as error:  # TOMLDecodeError, whose text names line and column, or an endless number
        why = f"not TOML: {error}"
    except RecursionError:
        why = "not usable TOML: nested too deep"
    raise _error([f"file {path}: {why}"])


def _apply_environment(layers: Layers, env: Mapping[str, str]) -> None:
    found: dict[str, Any] = {}
    unknown: list[str] = []
    names = {seat_variable(name): name for name in layers.seats}
    for variable in sorted(each for each in env if each.startswith(ENVIRONMENT_PREFIX)):
        rest = variable.removeprefix(ENVIRONMENT_PREFIX)
        if match := _SEAT_VARIABLE.fullmatch(rest):
            name, key = names.get(match[1], match[1].lower()), match[2].lower()
            found[f"seats.{name}.{key}"] = _typed(env[variable], key, SeatConfig)
        elif rest in _VARIABLES:
            found[rest.lower()] = _typed(env[variable], rest.lower(), CouncilConfig)
        elif variable not in logs.VARIABLES:  # which a process reads when it starts
            unknown.append(variable)
    for variable in unknown[:PROBLEMS_MAX]:
        seat, _, _ = variable.removeprefix(f"{ENVIRONMENT_PREFIX}SEATS__").rpartition("__")
        seat = seat if seat and key_shown(seat) == seat else "<SEAT>"
        known = [*_VARIABLES, *(f"SEATS__{seat}__{part.upper()}" for part in (*SEAT_KEYS, ENABLED))]
        hint = did_you_mean(
            variable.upper(), [*logs.VARIABLES, *(f"{ENVIRONMENT_PREFIX}{each}" for each in known)]
        )
        log.warning(f"environment {key_shown(variable)}: unknown variable, has no effect{hint}")
    if len(unknown) > PROBLEMS_MAX:
        log.warning(f"environment: {len(unknown) - PROBLEMS_MAX:,} more unknown variables have no effect")
    _apply(layers, ConfigSource("environment"), found)


def _apply(layers: Layers, source: ConfigSource, values: Mapping[str, Any]) -> None:
    """Applies values with dotted keys, as ``seats.lite.mind``. A flag's ``-`` is a key's ``_``."""
    document: dict[str, Any] = {}
    seats: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        table, _, last = key.rpartition(".")
        if table.startswith("seats."):
            seats.setdefault(table.removeprefix("seats."), {})[last.replace("-", "_")] = value
        else:
            document[key.replace("-", "_")] = value
    layers.apply(source, document)
    if seats:
        layers.apply(source, {"seats": seats})


def _typed(text: str, key: str, model: type[BaseModel]) -> Any:
    """A variable's text as its key's type; the text itself if that fails, for the check to report it."""
    annotation = bool if key == ENABLED else model.model_fields[key].annotation
    kinds = get_args(annotation) or (annotation,)
    if not text and type(None) in kinds:
        return None
    if bool in kinds:
        return _TRUTH.get(text.strip().lower(), text)
    try:
        if key in TABLES:
            table = tomllib.loads(f"{key} = {text}")
            return table[key] if len(table) == 1 else text
        number = next((number for number in (int, float) if number in kinds), None)
        return text if number is None else number(text)
    except (ValueError, RecursionError):
        return text
