"""Reads the files that a configuration names: charter, personas, predicates, profiles.

They are read once, when a council is launched, and are part of its configuration from then on. A seat that restarts
has the same content as the others, even if the files have changed (rules 7.1).
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from council.agents.messaging.logs import get_logger
from council.agents.scan import own
from council.agents.scan.finding import Weight
from council.agents.scan.ruleset import RuleError
from council.agents.scan.tools import ToolFailed
from council.config.human_keys import current_user
from council.config.settings import (
    FILES,
    MODEL_MIND,
    SHOWN_CHARS_MAX,
    CouncilConfig,
    SeatConfig,
    charter_files,
    of_profile,
    with_charter_files,
)
from council.protocol.errors import ConfigError, CouncilError, EnvelopeError, Refused, TokenBudgetError
from council.protocol.identity.charter import Charter, Identity, Persona, Share, check_limits, check_persona
from council.protocol.values import kind_of, quoted, read_json

if TYPE_CHECKING:
    from council.protocol.answer.mangle import Schema
    from council.protocol.identity.profiles import Profiles

T = TypeVar("T")

log = get_logger("council")

FILE_BYTES_MAX = 2**20  # far above any charter that fits a prompt; a wrong path may be a device
SCHEMA_FILES_MAX = 100
IGNORED_SHOWN_MAX = 20
_PERSONA = ".persona"  # a seat's key that names a file
TABLES = ("identity", "persona", "task_instructions")
_LEVELS: dict[own.Level, Weight] = {"error": "stop", "warning": "ask", "note": "note"}
PROFILE_TABLES = ("shard_profiles", "default_shard", "core_limits")


@dataclass(frozen=True, slots=True)
class CharterFiles:
    """The content of a configuration's files, and the built-in content for those that it does not name.

    ``rules`` are the texts of the user's rules, each with its file's name. ``named`` are the paths of the files by
    their keys.
    """

    charter: Charter = field(default_factory=Charter)
    personas: Mapping[str, Persona] = field(default_factory=dict)
    schemas: tuple[tuple[str, str], ...] = ()
    rules: tuple[tuple[str, str], ...] = ()
    named: tuple[tuple[str, str], ...] = ()

    def of(self, seat: str) -> Charter:
        """The charter of a seat, with the seat's own persona if it has one."""
        own = self.personas.get(seat)
        return self.charter if own is None else self.charter.model_copy(update={"persona": own})

    def schema(self) -> Schema | None:
        """The predicates that models may use, if there are more than the built-in ones (rules 6.3)."""
        if not self.schemas:
            return None
        from council.protocol.answer.mangle import shipped

        schema = shipped()
        for where, text in self.schemas:
            schema = schema.extended(text, where)
        return schema


def charter_files_of(config: CouncilConfig) -> CharterFiles:
    """The content of the configuration's files, as it was read once. Raises ConfigError that lists all faults."""
    known = charter_files(config)
    named = file_paths(dict(config), {seat.name: dict(seat) for seat in config.seats})
    if isinstance(known, CharterFiles) and dict(known.named) == named:
        return known
    return read_charter_files(named)


def resolve_charter(config: CouncilConfig) -> CouncilConfig:
    """The configuration as it is launched: with its files read, its profiles applied and its creator named.

    Raises ConfigError that lists all faults: of the files, of texts above a seat's limits, and of a creator who is
    not one of the humans.
    """
    humans = (current_user(),) if config.humans is None else tuple(config.humans)
    if config.profiles is not None:
        found = read_profiles(config.profiles)
        seats = tuple(_profiled(seat, found, config.profiles) for seat in config.seats)
        config = config.model_copy(update={"seats": seats})
        if found.ignored:
            keys = ", ".join(found.ignored[:IGNORED_SHOWN_MAX])
            log.warning("keys of the profiles' file that nothing uses", file=config.profiles, keys=keys)
    files = charter_files_of(config)
    problems = _over_limits(config, files) if files.named else []  # for the built-in charter the seat says it
    try:
        own.check(own_rules(config, files))
    except (RuleError, ToolFailed) as error:
        problems.append(f"rules: {error}")
    if config.creator is not None and config.creator not in humans:
        who = ", ".join(humans) or "none"
        problems.append(f"creator: {config.creator} is not enrolled, expected one of the humans: {who}")
    if problems:
        raise _faults(problems)
    creator = config.creator or next(iter(humans), None)
    return with_charter_files(config.model_copy(update={"creator": creator}), files)


def read_charter_files(named: Mapping[str, str], origin: Callable[[str], str] = str) -> CharterFiles:
    """The content of files, ``named`` by the keys of a configuration.

    Raises ConfigError that lists all faults of all files; each begins with the ``origin`` of its key.
    """
    problems: list[str] = []

    def read(key: str, reader: Callable[[str], T], default: T) -> T:
        if key not in named:
            return default
        try:
            return reader(named[key])
        except ConfigError as error:
            problems.extend(f"{origin(key)}: {problem}" for problem in error.facts["problems"])
            return default

    charter = read("charter", read_charter, Charter())
    personas = {
        key.removeprefix("seats.").removesuffix(_PERSONA): read(
            key, lambda path: read_persona(path, charter.identity), Persona()
        )
        for key in named
        if key.endswith(_PERSONA)
    }
    none: tuple[tuple[str, str], ...] = ()
    schemas = read("schemas", read_schemas, none)
    rules = read("rules", read_rules, none)
    if problems:
        raise _faults(problems)
    return CharterFiles(charter, personas, schemas, rules, tuple(named.items()))


def file_paths(values: Mapping[str, Any], seats: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The files that the values of a configuration and of its seats name, by their dotted keys."""
    given = {key: values.get(key) for key in FILES}
    given |= {f"seats.{name}{_PERSONA}": seat.get("persona") for name, seat in seats.items()}
    return {key: path for key, path in given.items() if path is not None}


def _faults(problems: Sequence[str]) -> ConfigError:
    return ConfigError("\n".join(problems), problems=list(problems))


# Charters and personas


def read_charter(path: str) -> Charter:
    """The charter in a file of TOML or JSON. Raises ConfigError that lists all faults."""
    data = _document(path)
    slips = [*_slips("", data, (*TABLES, "TASK_INSTRUCTIONS"))]
    for table, kind in (("identity", Identity), ("persona", Persona)):
        slips += _slips(f"{table}.", data.get(table), tuple(kind.model_fields))
    if slips:
        raise _faults([f"{path}: {problem}" for problem in slips])
    return _built(path, lambda: Charter.build(data))


def _slips(where: str, table: object, known: Sequence[str]) -> Iterator[str]:
    """Unknown keys that are almost a known one: probably typos.

    They are refused, because a default would replace them.

    Other unknown keys are kept.
    """
    for key in table if isinstance(table, Mapping) else ():
        close = difflib.get_close_matches(str(key).lower()[:SHOWN_CHARS_MAX], known, n=1, cutoff=0.8)
        if key not in known and close:
            yield f"{where}{key}: there is no such key; did you mean {close[0]}?"


def read_identity(path: str) -> Identity:
    """The identity of the charter in a file. Raises ConfigError."""
    data = _document(path)
    if "identity" not in data:
        raise _faults([f"{path}: holds no identity: expected a table [identity] with core_rules"])
    return _built(path, lambda: Charter.build(data)).identity


def read_persona(path: str, identity: Identity) -> Persona:
    """The persona in a file, for a council of this identity. It is in a table ``persona``, or is the whole file."""
    data = _document(path)
    others = [key for key in TABLES if key in data and key != "persona"]
    if others:
        raise _faults([f"{path}: holds {others[0]}, which is the charter's; expected a persona alone"])

    def build() -> Persona:
        persona = Persona.build(data.get("persona", data))
        check_persona(persona, identity)
        return persona

    return _built(path, build)


def _built(path: str, build: Callable[[], T]) -> T:
    try:
        return build()
    except Refused as refusal:
        found = refusal.facts.get("contradictions") or (refusal.message,)
        raise _faults([f"{path}: {each}" for each in found]) from None
    except EnvelopeError as error:
        problems = error.facts.get("problems") or (str(error),)
        raise _faults([f"{path}: {problem}" for problem in problems]) from None


# Files


def _text(path: str) -> str:
    place = Path(path).expanduser()
    try:
        if place.exists() and not place.is_file():
            raise _faults([f"{place}: is not a file; expected a readable file of text"])
        with place.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise _faults([f"{place}: can't be read: {why}; expected a readable file of text"]) from None
    if len(raw) > FILE_BYTES_MAX:
        raise _faults([f"{place}: longer than {FILE_BYTES_MAX:,} bytes; is it the right file?"])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _faults([f"{place}, line {line}: not UTF-8; save it in UTF-8"]) from None


def _document(path: str) -> Mapping[str, Any]:
    """The object in a file: JSON if it begins with a brace, else TOML."""
    text = _text(path)
    if text.lstrip().startswith("{"):
        return _json(path, text)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise _faults([f"{path}: unusable TOML: nested too deep"]) from None
    except ValueError as error:  # it names line and column
        raise _faults([f"{path}: neither TOML nor JSON: {error}"]) from None


def _json(path: str, text: str) -> Mapping[str, Any]:
    try:
        found = read_json(text, field="file", bytes_max=FILE_BYTES_MAX)
    except EnvelopeError as error:
        raise _faults([f"{path}: unusable JSON: {error}"]) from None
    if not isinstance(found, Mapping):
        raise _faults([f"{path}: expected an object, found {kind_of(found)}"])
    return found


def read_schemas(path: str) -> tuple[tuple[str, str], ...]:
    """The texts of a ``.gl`` file or of those in a folder, each with its path.

    Raises ConfigError that lists all faults.
    """
    place = Path(path).expanduser()
    files = [place]
    if place.is_dir():
        files = sorted(each for each in place.iterdir() if each.suffix == ".gl")
        if not 1 <= len(files) <= SCHEMA_FILES_MAX:
            raise _faults([f"{place}: {len(files)} files of .gl; expected 1 to {SCHEMA_FILES_MAX}"])
    from council.protocol.answer.mangle import shipped

    problems: list[str] = []
    found = []
    for file in files:
        try:
            found.append((str(file), _text(str(file))))
            shipped().extended(found[-1][1], str(file))
        except ConfigError as error:
            problems.extend(error.facts["problems"])
    if problems:
        raise _faults(problems)
    return tuple(found)


def read_rules(path: str) -> tuple[tuple[str, str], ...]:
    """The texts of a folder of rules. Raises ConfigError, which names file, line and reason."""
    try:
        texts = own.read_folder(Path(path).expanduser())
        own.own_of(texts)
    except RuleError as error:
        raise _faults([str(error)]) from None
    return texts


def own_rules(config: CouncilConfig, files: CharterFiles) -> own.Own:
    """The user's rules, silences and scanners. Raises ConfigError."""
    scanners = [
        own.Scanner(tuple(each.command), each.timeout_s, tuple((_LEVELS | each.levels).items()))
        for each in config.scanners
    ]
    if not (files.rules or scanners):
        return own.NOTHING
    folder = Path(config.rules).name if config.rules else own.FOLDER
    try:
        return own.own_of(files.rules, scanners, folder)
    except RuleError as error:
        raise _faults([f"rules: {error}"]) from None


def read_profiles(path: str) -> Profiles:
    """The seats' profiles in a config.json. Raises ConfigError that lists all faults."""
    from council.protocol.identity.profiles import Profiles, SeatProfile

    data = _json(path, _text(path))
    slips = [*_slips("", data, PROFILE_TABLES)]
    named = data.get("shard_profiles")
    tables = dict(named) if isinstance(named, Mapping) else {}
    for where, table in (*tables.items(), ("default_shard", data.get("default_shard"))):
        slips += _slips(f"{quoted(where)}.", table, tuple(SeatProfile.model_fields))
    if slips:
        raise _faults([f"{path}: {problem}" for problem in slips])
    return _built(path, lambda: Profiles.checked(data))


def _profiled(seat: SeatConfig, found: Profiles, path: str) -> SeatConfig:
    if seat.mind != MODEL_MIND:
        return seat
    given = {key: getattr(seat, key) for key in seat.model_fields_set}
    try:
        return SeatConfig(**(of_profile(found.profile(seat.role or seat.name)) | given))
    except ConfigError as error:
        raise _faults([f"{path}: for seat {seat.name}: {problem}" for problem in error.problems]) from None


# Limits (rules 2.1, 2.5, 3.1)


@dataclass(frozen=True, slots=True)
class SeatShares:
    """The tokens of identity, persona and instructions for a seat, counted by ``tokenizer``; or why they can't be."""

    seat: str
    mtu: int
    tokenizer: str = ""
    shares: tuple[Share, ...] = ()
    instructions: tuple[Share, ...] = ()
    problem: str = ""


def shares(config: CouncilConfig, files: CharterFiles) -> Iterator[SeatShares]:
    """The shares of each seat that is backed by a model."""
    from council.agents.prompting.tokens import counter_for  # only for councils with models

    for seat in config.seats:
        if seat.mind != MODEL_MIND or seat.model is None:
            continue
        charter = files.of(seat.name)
        try:
            counter = counter_for(seat.model, seat.tokenizer)
            found = check_limits(charter, counter, mtu=seat.mtu)
            each = tuple(
                Share(one.key, counter(one.text), one.max_tokens) for one in charter.task_instructions
            )
        except CouncilError as error:
            yield SeatShares(seat.name, seat.mtu, problem=str(error))
            continue
        yield SeatShares(seat.name, seat.mtu, counter.description, found, each)


def refuse_identity(config: CouncilConfig, files: CharterFiles, identity: Identity) -> None:
    """Raises ConfigError for an identity that a launch of this configuration would refuse.

    It is too long for a seat, or does not approve a persona.
    """
    problems = []
    for whose, persona in (("the charter's persona", files.charter.persona), *files.personas.items()):
        try:
            check_persona(persona, identity)
        except Refused as refusal:
            problems.append(f"{whose}: {refusal.message}")
    if not problems:
        charter = files.charter.model_copy(update={"identity": identity})
        problems = _over_limits(config, replace(files, charter=charter))
    if problems:
        raise _faults(problems)


def _over_limits(config: CouncilConfig, files: CharterFiles) -> list[str]:
    """The faults of charters that do not fit their seat, for the seats with a model."""
    from council.agents.prompting.tokens import counter_for

    problems = []
    for seat in config.seats:
        if seat.mind != MODEL_MIND or seat.model is None:
            continue
        try:
            check_limits(files.of(seat.name), counter_for(seat.model, seat.tokenizer), mtu=seat.mtu)
        except TokenBudgetError as error:
            problems.append(f"{config.charter or 'the charter'}: for seat {seat.name}: {error.message}")
        except CouncilError:
            continue  # a missing tokenizer is reported with the seat
    return problems
