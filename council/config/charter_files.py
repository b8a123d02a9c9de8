"""Reads the files that a configuration names: charter, personas, predicates, profiles.

They are read once, when a council is launched, and are part of its configuration from then on. A seat that restarts
has the same content as the others, even if the files have changed (rules 7.1).
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from council.agents.messaging.logs import get_logger
from council.config.human_keys import me
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
from council.protocol.answer.mangle import Schema, shipped
from council.protocol.errors import ConfigError, CouncilError, EnvelopeError, Refused, TokenBudgetError
from council.protocol.identity.charter import Charter, Identity, Persona, Share, check_limits, check_persona
from council.protocol.identity.persona import Contradiction
from council.protocol.identity.profiles import Imported, SeatProfile, import_config
from council.protocol.models import malformed
from council.protocol.values import kind_of, quoted, read_json

T = TypeVar("T")

log = get_logger("council")

FILE_BYTES_MAX = 2**20  # far above any charter that fits a prompt; a wrong path may be a device
SCHEMA_FILES_MAX = 100
_PERSONA = ".persona"  # a seat's key that names a file
TABLES = ("identity", "persona", "task_instructions")
PROFILE_TABLES = ("shard_profiles", "default_shard", "core_limits")
UNREAD_TOLD_MAX = 20
_NAME = re.compile(r"[^.\[\]]+|\[[0-9]+\]")


@dataclass(frozen=True, slots=True)
class Papers:
    """What stands in a configuration's files; what ships, where it names none. ``named`` are their paths.

    ``unread`` are the keys of a config.json of profiles that nothing here goes by.
    """

    charter: Charter = field(default_factory=Charter)
    personas: Mapping[str, Persona] = field(default_factory=dict)
    schemas: tuple[tuple[str, str], ...] = ()
    named: tuple[tuple[str, str], ...] = ()
    unread: tuple[str, ...] = ()

    def of(self, seat: str) -> Charter:
        """The charter as a seat has it: with a persona of its own, where it has one."""
        own = self.personas.get(seat)
        return self.charter if own is None else self.charter.model_copy(update={"persona": own})

    def schema(self) -> Schema | None:
        """The predicates that models may use, where there are more than those that ship (rules 6.3)."""
        return _extended(self.schemas) if self.schemas else None


def papers_of(config: CouncilConfig) -> Papers:
    """The configuration's papers, read where they were not yet. Raises ConfigError that lists every fault."""
    known = charter_files(config)
    named = _named(config)
    return known if isinstance(known, Papers) and dict(known.named) == named else read_papers(named)


def chartered(config: CouncilConfig) -> CouncilConfig:
    """The configuration with its papers read and held against each seat's limits, and its profiles applied.

    Its creator is named: one of the humans who will be enrolled. Raises ConfigError that lists every fault.
    """
    humans = (me(),) if config.humans is None else tuple(config.humans)
    if config.profiles is not None:
        found = read_profiles(config.profiles)
        seats = tuple(_profiled(seat, found, config.profiles) for seat in config.seats)
        config = config.model_copy(update={"seats": seats})
    papers = papers_of(config)
    problems = _over_limits(config, papers) if papers.named else []  # what ships is told at the seat
    if config.creator is not None and config.creator not in humans:
        who = ", ".join(humans) or "nobody"
        problems.append(f"creator: {config.creator} is not enrolled, expected one of the humans: {who}")
    if problems:
        raise _faults(problems)
    if papers.unread:
        told = ", ".join(papers.unread[:UNREAD_TOLD_MAX])
        log.warning("keys of the profiles' file that nothing goes by", file=config.profiles, keys=told)
    creator = config.creator or next(iter(humans), None)
    return with_charter_files(config.model_copy(update={"creator": creator}), papers)


def read_papers(named: Mapping[str, str], origin: Callable[[str], str] = str) -> Papers:
    """What stands in files, ``named`` by the keys of a configuration; ``origin`` says how a fault with a key begins.

    Raises ConfigError that lists every fault of every file, each with its file and what to do; then none counts.
    """
    problems: list[str] = []

    def read(key: str, how: Callable[[str], T], default: T) -> T:
        if key not in named:
            return default
        try:
            return how(named[key])
        except ConfigError as error:
            problems.extend(f"{origin(key)}: {problem}" for problem in error.facts["problems"])
            return default

    charter = read("charter", read_charter, Charter())
    personas: dict[str, Persona] = {}
    for key in named:
        if key.endswith(_PERSONA):
            own = read(key, lambda path: read_persona(path, charter.identity), None)
            personas |= {} if own is None else {key.removeprefix("seats.").removesuffix(_PERSONA): own}
    none: tuple[tuple[str, str], ...] = ()
    schemas = read("schemas", read_schemas, none)
    nothing: tuple[str, ...] = ()
    unread = read("profiles", lambda path: read_profiles(path).ignored, nothing)
    if problems:
        raise _faults(problems)
    return Papers(charter, personas, schemas, tuple(named.items()), unread)


def named_in(values: Mapping[str, Any], seats: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The files that these values of a configuration and its seats name, by their dotted keys."""
    given = {key: values.get(key) for key in FILES}
    given |= {f"seats.{name}{_PERSONA}": seat.get("persona") for name, seat in seats.items()}
    return {key: path for key, path in given.items() if path is not None}


def _named(config: CouncilConfig) -> dict[str, str]:
    return named_in(dict(config), {seat.name: dict(seat) for seat in config.seats})


def _faults(problems: Sequence[str]) -> ConfigError:
    return ConfigError("\n".join(problems), problems=list(problems))


# Charters and personas


def read_charter(path: str) -> Charter:
    """The charter in a file of TOML or JSON. Raises ConfigError that lists every fault, with its line."""
    text, data = _document(path)
    slips = [*_slips("", data, (*TABLES, "TASK_INSTRUCTIONS"))]
    for table, kind in (("identity", Identity), ("persona", Persona)):
        slips += _slips(f"{table}.", data.get(table), tuple(kind.model_fields))
    if slips:
        raise _faults([_at(path, text, problem) for problem in slips])
    return _built(path, text, data, lambda: Charter.build(data))


def _slips(where: str, table: object, known: Sequence[str]) -> Iterator[str]:
    """Keys that are all but known: what is no charter's is kept, but a slip would leave what ships in its place."""
    for key in table if isinstance(table, Mapping) else ():
        close = difflib.get_close_matches(str(key).lower()[:SHOWN_CHARS_MAX], known, n=1, cutoff=0.8)
        if key not in known and close:
            yield f"{where}{key}: there is no such key; did you mean {close[0]}?"


def read_identity(path: str) -> Identity:
    """The identity of the charter in a file. Raises ConfigError."""
    text, data = _document(path)
    if "identity" not in data:
        raise _faults([f"{path}: holds no identity: expected a table [identity] with core_rules"])
    return _built(path, text, data, lambda: Charter.build(data)).identity


def read_persona(path: str, identity: Identity) -> Persona:
    """The persona in a file, over ``identity``; in a table of that name, or with nothing around it."""
    text, data = _document(path)
    others = [key for key in TABLES if key in data and key != "persona"]
    if others:
        raise _faults([f"{path}: holds {others[0]}, which is the charter's; expected a persona alone"])
    given = data.get("persona", data)

    def build() -> Persona:
        persona = Persona.build(given)
        check_persona(persona, identity)
        return persona

    return _built(path, text, {"persona": given}, build)


def _built(path: str, text: str, data: Mapping[str, Any], build: Callable[[], T]) -> T:
    try:
        return build()
    except Refused as refusal:
        found: Sequence[Contradiction] = refusal.facts.get("contradictions", ())
        lines = [line_of(text, f"persona.{each.where}", _leaf(data, each.where)) for each in found]
        told = [f"{_place(path, line)}{each}" for each, line in zip(found, lines, strict=True)]
        raise _faults(told or [_at(path, text, refusal.message)]) from None
    except EnvelopeError as error:
        problems = error.facts.get("problems") or (str(error),)
        raise _faults([_at(path, text, problem) for problem in problems]) from None


def _leaf(data: Mapping[str, Any], where: str) -> str:
    """The text of a persona at a place like ``constraints[1]``; empty where there is none."""
    value: Any = data.get("persona", {})
    for step in _NAME.findall(where):
        try:
            value = value[int(step[1:-1])] if step.startswith("[") else value[step]
        except (KeyError, IndexError, TypeError):
            return ""
    return value if isinstance(value, str) else ""


def _at(path: str, text: str, problem: str) -> str:
    """A problem behind its file and, where it is found, the line of the key that it begins with."""
    return _place(path, line_of(text, problem.partition(": ")[0])) + problem


def _place(path: str, line: int | None) -> str:
    return f"{path}: " if line is None else f"{path}, line {line}: "


def line_of(text: str, key: str, value: str = "") -> int | None:
    """The line of a file on which ``value``, or else a dotted key, stands; no reader of TOML or JSON tells it."""
    lines = text.splitlines()
    names = [name for name in _NAME.findall(key) if not name.startswith("[")]
    begun = 0
    for depth, name in enumerate(names):
        word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])\"?\s*(?:[=:\].]|$)")
        found = next((at for at in range(begun, len(lines)) if word.search(lines[at])), None)
        if found is None and depth == len(names) - 1 and not value:
            return None
        begun = begun if found is None else found
    first = next((line for line in value.splitlines() if line.strip()), "").strip()
    if first:
        written = {first, first.replace("\\", "\\\\").replace('"', '\\"')}
        at = next((at for at in range(begun, len(lines)) if any(each in lines[at] for each in written)), None)
        begun = begun if at is None else at
    return begun + 1 if lines else None


# Files


def _text(path: str) -> str:
    place = Path(path).expanduser()
    try:
        if place.exists() and not place.is_file():
            raise _faults([f"{place}: is no file; expected a readable file of text"])
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
        raise _faults([f"{place}, line {line}: no UTF-8; save it in UTF-8"]) from None


def _document(path: str) -> tuple[str, Mapping[str, Any]]:
    """A file's text, and the object in it: JSON where it begins like that, else TOML."""
    text = _text(path)
    if text.lstrip().startswith("{"):
        return text, _json(path, text)
    try:
        return text, tomllib.loads(text)
    except RecursionError:
        raise _faults([f"{path}: no usable TOML: nested too deep"]) from None
    except ValueError as error:  # which names line and column
        raise _faults([f"{path}: neither TOML nor JSON: {error}"]) from None


def _json(path: str, text: str) -> Mapping[str, Any]:
    try:
        found = read_json(text, field="file", bytes_max=FILE_BYTES_MAX)
    except EnvelopeError as error:
        raise _faults([f"{path}: no usable JSON: {error}"]) from None
    if not isinstance(found, Mapping):
        raise _faults([f"{path}: expected an object, found {kind_of(found)}"])
    return found


def read_schemas(path: str) -> tuple[tuple[str, str], ...]:
    """The declarations in a ``.gl`` file, or in those of a folder, each with its file; they are read once to see."""
    place = Path(path).expanduser()
    files = [place]
    if place.is_dir():
        files = sorted(each for each in place.iterdir() if each.suffix == ".gl")
        if not 1 <= len(files) <= SCHEMA_FILES_MAX:
            raise _faults([f"{place}: {len(files)} files of .gl; expected 1 to {SCHEMA_FILES_MAX}"])
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


def _extended(schemas: Sequence[tuple[str, str]]) -> Schema:
    schema = shipped()
    for where, text in schemas:
        schema = schema.extended(text, where)
    return schema


def read_profiles(path: str) -> Imported:
    """The seats' profiles in a config.json. Raises ConfigError that lists every fault."""
    text = _text(path)
    data = _json(path, text)
    slips = [*_slips("", data, PROFILE_TABLES)]
    named = data.get("shard_profiles")
    tables = dict(named) if isinstance(named, Mapping) else {}
    for where, table in (*tables.items(), ("default_shard", data.get("default_shard"))):
        slips += _slips(f"{quoted(where)}.", table, tuple(SeatProfile.model_fields))
    if slips:
        raise _faults([_at(path, text, problem) for problem in slips])
    return import_config(data, path)


def _profiled(seat: SeatConfig, found: Imported, path: str) -> SeatConfig:
    if seat.mind != MODEL_MIND:
        return seat
    given = {key: getattr(seat, key) for key in seat.model_fields_set}
    try:
        return SeatConfig(**(of_profile(found.profile(seat.role or seat.name)) | given))
    except ValidationError as error:
        told = malformed(error).facts["problems"]
        raise _faults([f"{path}: for seat {seat.name}: {problem}" for problem in told]) from None


# Limits (rules 2.1, 2.5, 3.1)


@dataclass(frozen=True, slots=True)
class SeatShares:
    """What identity and persona take of a seat's tokens, counted by ``tokenizer``; or why that can't be told."""

    seat: str
    mtu: int
    tokenizer: str = ""
    shares: tuple[Share, ...] = ()
    instructions: tuple[Share, ...] = ()
    problem: str = ""


def shares(config: CouncilConfig, papers: Papers) -> Iterator[SeatShares]:
    """The shares of each seat that is backed by a model."""
    from council.agents.prompting.tokens import counter_for  # of no use to a council without models

    for seat in config.seats:
        if seat.mind != MODEL_MIND or seat.model is None:
            continue
        charter = papers.of(seat.name)
        try:
            counter = counter_for(seat.model, seat.tokenizer)
            found = check_limits(charter, counter, mtu=seat.mtu)
            each = tuple(
                Share(one.key, counter(one.text), one.max_tokens) for one in charter.task_instructions
            )
        except CouncilError as error:
            yield SeatShares(seat.name, seat.mtu, problem=str(error))
            continue
        yield SeatShares(seat.name, seat.mtu, counter.told, found, each)


def refuse_identity(config: CouncilConfig, papers: Papers, identity: Identity) -> None:
    """Raises ConfigError for an identity that no launch of this configuration would take: too long, or against
    a persona.
    """
    problems = []
    for whose, persona in (("the charter's persona", papers.charter.persona), *papers.personas.items()):
        try:
            check_persona(persona, identity)
        except Refused as refusal:
            problems.append(f"{whose}: {refusal.message}")
    if not problems:
        charter = papers.charter.model_copy(update={"identity": identity})
        problems = _over_limits(config, replace(papers, charter=charter))
    if problems:
        raise _faults(problems)


def _over_limits(config: CouncilConfig, papers: Papers) -> list[str]:
    """What of the charter does not fit a seat that is backed by a model, by its tokenizer."""
    from council.agents.prompting.tokens import counter_for

    problems = []
    for seat in config.seats:
        if seat.mind != MODEL_MIND or seat.model is None:
            continue
        try:
            check_limits(papers.of(seat.name), counter_for(seat.model, seat.tokenizer), mtu=seat.mtu)
        except TokenBudgetError as error:
            problems.append(f"{config.charter or 'the charter'}: for seat {seat.name}: {error.message}")
        except CouncilError:
            continue  # a tokenizer that can't be had is told with the seat
    return problems
