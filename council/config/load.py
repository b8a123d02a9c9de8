"""Reads a council's configuration from file, environment and flags. Knows nothing of Ray or votes.

Where a value comes from, each source going before the one above it:

1. the defaults below;
2. a file: ``council.toml``, or ``[tool.council]`` in ``pyproject.toml``. Named by the caller, or the first
   one found in the start folder or the nearest folder above it. One folder with both is an error, so that
   nobody has to wonder which of them counted;
3. the environment: ``COUNCIL_QUORUM=3``, ``COUNCIL_SEATS__LITE__MIND=mine:Careful``,
   ``COUNCIL_SEATS__LITE__OPTIONS={limit = 3}``. Values are read by the type of the key; an empty one unsets
   a key that may be unset and is wrong for any other. A seat called ``my-seat`` is ``MY_SEAT`` here;
   Ray's own ``RAY_ADDRESS`` stands for ``COUNCIL_RAY_ADDRESS`` where that is not set. Any other ``COUNCIL_*`` has
   no effect; a warning in the log names it, and the nearest variable that is known;
4. flags, keywords of Python or the command line: ``quorum=3``, ``{"seats.lite.mind": "mine:Careful"}``.
   A flag that is None was not given.

Seats are tables, keyed by name, and **amend** what stands before them, in every source alike:

    [seats.lite]                  # a seat that exists: the keys given change, the others stay
    vendor = "acme"
    [seats.jurist]                # a new name: one more seat, which needs a mind
    mind = "mine.law:Jurist"
    options = {strict = true}
    [seats.codemind]
    enabled = false               # the seat is left out

A seat that is given the address of an OpenAI-compatible server, and no mind, is backed by a model there. A key is
never given itself, but the variable or the file that it is in:

    [seats.lite]
    model = "llama3.1:8b"
    base_url = "http://127.0.0.1:11434/v1"

``options``, ``model``, ``vendor`` and what else is told of a model describe one mind, so a table that names
another mind drops those given before it; another ``base_url`` drops the earlier one's key, vendor and prices. A
seat left out by one source comes back where a later one says ``enabled = true`` or names its mind. ``[seats] lite
= "mine:Lite"`` is short for a table with that mind alone. From Python a seat may also be a mind itself (object,
class or function) or a SeatConfig, which is the whole seat; a list of SeatConfig is the whole council. Numbers are
numbers: only the environment may write them as text.

``humans`` says who may answer escalations, and where the key of each is, never the key itself; a source that
gives it gives all of it. Both who launches a council and who answers in it read it:

    [humans]
    ada = "kept"                  # her key is made for her, in the state folder of whoever launches or answers
    bob = "file:/etc/council/bob.key"    # 32 bytes that their owner alone may read
    eve = "env:EVE_ANSWERS"       # 64 hex digits in a variable

``charter``, ``schemas``, ``profiles`` and a seat's ``persona`` name files, read with the configuration; what
stands in a ``config.json`` of profiles goes before the defaults, and behind all sources.

Every fault of every source is told at once, in one ConfigError. Nothing in a value is ever executed; a mind
is imported only by ``import_mind`` and ``build_mind`` (``council.config.build_minds``). No secret has its place here:
``describe`` shows all.
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

from council.agents.messaging.logs import get_logger
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
    SEAT_KEYS,
    CouncilConfig,
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

log = get_logger("council")

FILE_NAME = "council.toml"
PROJECT_FILE_NAME = "pyproject.toml"
FILE_BYTES_MAX = 2**20  # far above any pyproject.toml written by hand; a wrong path may be a device
# Keys that a variable gives as a table of TOML.
TABLES = ("options", "humans", "resources", "labels", "runtime_env")
_VARIABLES = tuple(key.upper() for key in COUNCIL_KEYS if key != "seats")
_SEAT_VARIABLE = re.compile(f"SEATS__(.+)__({'|'.join((*SEAT_KEYS, ENABLED)).upper()})", re.DOTALL)
_ENVIRONMENT = ConfigSource("environment")
_RAY = ConfigSource("ray")
_FLAG = ConfigSource("flag")
_TRUTH = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)


@dataclass
class Loaded:
    """A configuration, and where each value came from.

    ``origins`` maps each dotted key (``quorum``, ``seats.lite.mind``) to ``default``, the file's path (with
    `` [tool.council]`` after it for a pyproject.toml), ``environment COUNCIL_QUORUM`` or ``flag --quorum``.
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
    """The configuration that file, environment and flags give together; see the module's own text.

    ``path`` names the file; without it one is searched for from ``start`` (default: the working folder)
    upwards, and there need not be any. ``env`` stands for os.environ. ``flags`` are keyed ``quorum`` or
    ``seats.lite.mind``. Raises ConfigError, whose ``problems`` lists every fault of every source.
    """
    layers = Layers()
    try:
        found = _search((start or Path.cwd()).absolute()) if path is None else read_file(path, named=True)
    except ConfigError as error:
        layers.unreadable(error.problems)  # and go on, so that the other sources' faults are told too
    else:
        if found is not None:
            layers.apply(*found)
    env = os.environ if env is None else env
    ray = env.get("RAY_ADDRESS", "").strip()
    if ray not in ("", "local"):  # where Ray itself looks, and where a job that was submitted to it runs
        layers.apply(_RAY, {"ray_address": ray})
    _apply_environment(layers, env)
    _apply(layers, _FLAG, {key: value for key, value in (flags or {}).items() if value is not None})
    papers = _charter_files(layers)
    config = layers.finish()
    if config is None:
        raise _error(layers.problems)
    config = with_charter_files(config, papers)
    origins = {
        key: layers.sources[key].origin(key) if key in layers.sources else "default" for key in _flat(config)
    }
    return Loaded(config, origins)


def _charter_files(layers: Layers) -> CharterFiles | None:
    """What stands in the files that are named, each fault noted; None where none is, or something is wrong there."""
    seats = {name: seat for name, seat in layers.seats.items() if name not in layers.removed}
    if not any(key in layers.values for key in FILES) and not any(
        seat.get("persona") for seat in seats.values()
    ):
        return None
    from council.config.charter_files import (  # which few configurations need
        file_paths,
        read_charter_files,
        read_profiles,
    )

    named = file_paths(layers.values, seats)
    try:
        if "profiles" in named:
            found = read_profiles(named["profiles"])
            layers.fill(ConfigSource("file", named["profiles"]), lambda role: of_profile(found.profile(role)))
    except ConfigError as error:
        at = layers.sources["profiles"].at("profiles")
        layers.unreadable(f"{at}: {problem}" for problem in error.problems)
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
        if key == "seats":
            for seat in config.seats:
                told = SEAT_KEYS if seat.mind == MODEL_MIND else [k for k in SEAT_KEYS if k not in MODEL_KEYS]
                flat |= {f"seats.{seat.name}.{part}": getattr(seat, part) for part in told}
        else:
            flat[key] = getattr(config, key)
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
    """What a file says of the council; None if it is a pyproject.toml, not named, that says nothing."""
    document = _parsed(path)
    if path.name != PROJECT_FILE_NAME:
        return ConfigSource("file", str(path)), document
    tools = document.get("tool")
    section = tools.get("council") if isinstance(tools, dict) else None
    if section is None and not named:
        return None
    if not isinstance(section, dict):
        found = "nothing" if section is None else quoted_value(section)
        raise _error([f"file {path}: key tool.council: found {found}, expected a table [tool.council]"])
    return ConfigSource("file", f"{path} [tool.council]"), section


def _parsed(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise _error([f"file {path}: can't be read: {why}; expected a readable TOML file"]) from error
    if len(raw) > FILE_BYTES_MAX:
        raise _error([f"file {path}: longer than {FILE_BYTES_MAX} bytes, expected a configuration in TOML"])
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _error([f"file {path}: line {line} is not UTF-8, expected TOML in UTF-8"]) from error
    except ValueError as error:  # TOMLDecodeError, whose text names line and column, or an endless number
        raise _error([f"file {path}: not TOML: {error}"]) from error
    except RecursionError as error:
        raise _error([f"file {path}: not usable TOML: nested too deep"]) from error


def _apply_environment(layers: Layers, env: Mapping[str, str]) -> None:
    found: dict[str, Any] = {}
    unknown: list[str] = []
    spelled = {seat_variable(name): name for name in layers.seats}
    for variable in sorted(each for each in env if each.startswith(ENVIRONMENT_PREFIX)):
        rest = variable.removeprefix(ENVIRONMENT_PREFIX)
        if of_seat := _SEAT_VARIABLE.fullmatch(rest):
            name, key = spelled.get(of_seat[1], of_seat[1].lower()), of_seat[2].lower()
            found[f"seats.{name}.{key}"] = _typed(env[variable], key, SeatConfig)
        elif rest in _VARIABLES:
            found[rest.lower()] = _typed(env[variable], rest.lower(), CouncilConfig)
        else:
            unknown.append(variable)
    for variable in unknown[:PROBLEMS_MAX]:
        _warn(variable)
    if len(unknown) > PROBLEMS_MAX:
        log.warning(f"environment: {len(unknown) - PROBLEMS_MAX:,} more unknown variables have no effect")
    _apply(layers, _ENVIRONMENT, found)


def _warn(variable: str) -> None:
    """Names a variable that is no setting, and the setting's variable that is closest, if one is close."""
    seat, _, _ = variable.removeprefix(f"{ENVIRONMENT_PREFIX}SEATS__").rpartition("__")
    named = seat if seat and key_shown(variable) == variable else "<SEAT>"
    known = [*_VARIABLES, *(f"SEATS__{named}__{part.upper()}" for part in (*SEAT_KEYS, ENABLED))]
    hint = did_you_mean(variable.upper(), [f"{ENVIRONMENT_PREFIX}{each}" for each in known])
    log.warning(f"environment {key_shown(variable)}: unknown variable, has no effect{hint}")


def _apply(layers: Layers, source: ConfigSource, values: Mapping[str, Any]) -> None:
    """Lays values over those taken before, by their dotted keys; ``seats.lite.mind`` is of a seat's table.

    A flag's ``-`` is a key's ``_``.
    """
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
    """A variable's text as its key's type; left as it is where it can't be, for the check to report it."""
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
