"""Merges the values of several sources, and remembers where each value came from.

A document is the content of one source: a mapping of keys to values, ``seats`` to a mapping of tables.
``council.config.load`` describes the sources and their order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from council.config.settings import (
    CHECK_COUNCIL,
    CHECK_SEAT,
    COUNCIL_KEYS,
    DEFAULT_SEATS,
    ENABLED,
    MODEL_KEYS,
    MODEL_MIND,
    SEAT_KEYS,
    SHOWN_CHARS_MAX,
    CouncilConfig,
    SeatConfig,
    contradictions,
    did_you_mean,
    expected,
    seat_contradictions,
    unpriced,
)

ENVIRONMENT_PREFIX = "COUNCIL_"
RAY_ORIGIN = "environment RAY_ADDRESS"  # the one variable of Ray's own that is a setting here
PROBLEMS_MAX = 100  # of one source; past this the file is some other program's
# What is told of the server at a seat's base_url, and of no other.
_OF_ONE_SERVER = (
    "provider",
    "api_key_env",
    "api_key_file",
    "vendor",
    "context_window",
    "special_tokens",
    "usd_per_million_input",
    "usd_per_million_output",
)
# What a seat's table says of its mind, and of no other.
_OF_ONE_MIND = ("options", "model", "vendor", *MODEL_KEYS)
_PASSWORD = re.compile(r"(://[^/@:\s]{0,100}:)[^/@\s]{1,200}@")  # in an address; not shown
_QUERY = re.compile(r"(://[^?#\s]{0,300}[?#]).{1,1000}")  # nor this, where keys are given too
_UNREAD = "(unread)"  # stands among the broken keys for a file that could not be read


def shown(value: Any) -> str:
    """A value as a problem shows it: recognisable, short, and harmless on a terminal."""
    if isinstance(value, str):
        value = _QUERY.sub(r"\1…", _PASSWORD.sub(r"\1…@", value))
        return repr(value) if len(value) <= SHOWN_CHARS_MAX else f"{value[:SHOWN_CHARS_MAX]!r}… (cut)"
    if isinstance(value, Mapping):
        return f"a table of {len(value)} keys"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a whole number of {value.bit_length()} bits"  # Python refuses to write out longer ones
    if isinstance(value, int | float):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def key_shown(key: Any) -> str:
    """A key that somebody wrote, as a problem shows it."""
    plain = isinstance(key, str) and len(key) <= SHOWN_CHARS_MAX and key.isprintable()
    return str(key) if plain else shown(key)


def seat_variable(seat: str) -> str:
    """A seat's name as variables spell it: ``my-seat`` → ``MY_SEAT``."""
    return seat.upper().replace("-", "_").replace(".", "_")


@dataclass(frozen=True)
class Source:
    """One place that values come from; ``file`` is the file's path, for a file."""

    kind: Literal["default", "file", "ray", "environment", "flag"]
    file: str = ""

    def origin(self, key: str) -> str:
        """Where the value of the dotted ``key`` came from, as ``Loaded.origins`` says it."""
        table, dot, last = key.rpartition(".")
        match self.kind:
            case "environment" if table:
                seat = seat_variable(table.removeprefix("seats."))
                return f"environment {ENVIRONMENT_PREFIX}SEATS__{seat}__{last.upper()}"
            case "environment":
                return f"environment {ENVIRONMENT_PREFIX}{key.upper()}"
            case "flag":
                return f"flag --{table}{dot}{last.replace('_', '-')}"
            case "file":
                return self.file
            case "ray":
                return RAY_ORIGIN
            case "default":
                return "default"

    def at(self, key: str) -> str:
        """How a problem with ``key`` begins: source, file and key."""
        match self.kind:
            case "file":
                return f"file {self.file}: key {key}"
            case "default":
                return f"default: key {key}"
            case _:
                return self.origin(key)


DEFAULT = Source("default")


@dataclass
class Layers:
    """The values of all sources taken so far, each beside its source, and what was wrong with them.

    ``broken`` holds the keys whose value is not known for a fault, so that nothing more is concluded from
    them; ``seats`` there says that it is not even known which seats there are.
    """

    values: dict[str, Any] = field(default_factory=dict)
    seats: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {seat.name: {"mind": seat.mind} for seat in DEFAULT_SEATS}
    )
    removed: dict[str, Source] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    _counts: Counter[Source] = field(default_factory=Counter)

    def unreadable(self, problems: Iterable[str]) -> None:
        """A source could not be read at all, so what is absent here may stand there."""
        self.problems += problems
        self.broken |= {"seats", _UNREAD}

    def report(self, source: Source, problem: str) -> None:
        """One more problem of a source, or word that there are too many."""
        self._counts[source] += 1
        if self._counts[source] <= PROBLEMS_MAX:
            self.problems.append(problem)
        elif self._counts[source] == PROBLEMS_MAX + 1:
            where = f"file {source.file}" if source.kind == "file" else source.kind
            self.problems.append(
                f"{where}: more than {PROBLEMS_MAX} problems: mend these, or is it another's?"
            )

    def take(self, source: Source, document: Mapping[str, Any]) -> None:
        """Lay one source over what was taken before it; its faults are noted, its right values count."""
        for key, value in document.items():
            if key == "seats":
                self._take_seats(source, value)
            elif key not in COUNCIL_KEYS:
                self._unknown(source, key, key, COUNCIL_KEYS)
            elif self._right(source, key, value, CHECK_COUNCIL[key], CouncilConfig):
                self.values[key] = value
                self.sources[key] = source

    def _fault(self, source: Source, key: str, text: str, *, breaks: str | None = None) -> None:
        self.broken.add(breaks or key)
        self.report(source, f"{source.at(key_shown(key))}: {text}")

    def _unknown(self, source: Source, key: str, found: Any, known: Iterable[str]) -> None:
        listed = tuple(known)
        # Looking for the word that was meant costs time; a file of a megabyte has room for many unknown ones.
        hint = did_you_mean(found, listed) if self._counts[source] < PROBLEMS_MAX else ""
        self._fault(source, key, f"unknown key, expected one of {', '.join(listed)}{hint}")

    def _right(
        self, source: Source, key: str, value: Any, check: TypeAdapter[Any], model: type[BaseModel]
    ) -> bool:
        try:
            check.validate_python(value)
        except ValidationError:
            last = key.rpartition(".")[2]
            breaks = "seats" if last == ENABLED else key
            self._fault(source, key, f"found {shown(value)}, expected {expected(last, model)}", breaks=breaks)
            return False
        return True

    def _take_seats(self, source: Source, seats: Any) -> None:
        self.sources["seats"] = source
        if isinstance(seats, Mapping):
            for name, given in seats.items():
                self._take_seat(source, name, given)
        elif source.kind == "flag" and _are_seats(seats):
            self.seats.clear()
            self.removed.clear()
            for seat in seats:
                if seat.name in self.seats:
                    self._fault(source, f"seats.{seat.name}", "two seats share this name: give each its own")
                self._replace(source, seat)
        else:
            self._fault(source, "seats", f"found {shown(seats)}, expected {expected('seats', CouncilConfig)}")

    def _take_seat(self, source: Source, name: Any, given: Any) -> None:
        try:
            CHECK_SEAT["name"].validate_python(name)
        except ValidationError:
            text = f"found {shown(name)} as a seat's name, expected {expected('name', SeatConfig)}"
            self._fault(source, "seats", text)
            return
        key = f"seats.{name}"
        if isinstance(given, SeatConfig):
            if given.name != name:
                self._fault(source, key, f"found a seat named {given.name}, expected one named {name}")
            self._replace(source, given)
        elif isinstance(given, Mapping):
            self._amend(source, name, self._right_parts(source, key, given))
        elif isinstance(given, str) or source.kind == "flag":
            self._amend(source, name, self._right_parts(source, key, {"mind": given}))
        else:
            text = f"found {shown(given)}, expected a table, as in [seats.{name}], or an import path"
            self._fault(source, key, text, breaks="seats")

    def _right_parts(self, source: Source, key: str, table: Mapping[str, Any]) -> dict[str, Any]:
        right: dict[str, Any] = {}
        for part, value in table.items():
            where = f"{key}.{part}"
            if part not in (*SEAT_KEYS, ENABLED):
                self._unknown(source, where, part, (*SEAT_KEYS, ENABLED))
            elif part == "mind" and source.kind != "flag" and not isinstance(value, str):
                found = f"found {shown(value)}"
                self._fault(source, where, f"{found}, expected an import path 'package.module:Name'")
            elif self._right(source, where, value, CHECK_SEAT[part], SeatConfig):
                right[part] = value
        return right

    def _replace(self, source: Source, seat: SeatConfig) -> None:
        self._drop(seat.name, SEAT_KEYS)
        given = {part: getattr(seat, part) for part in SEAT_KEYS if part in seat.model_fields_set}
        self._amend(source, seat.name, given)

    def _drop(self, name: str, parts: Iterable[str]) -> None:
        """What was said of a seat so far, and no longer counts."""
        for part in parts:
            self.seats.setdefault(name, {}).pop(part, None)
            self.sources.pop(f"seats.{name}.{part}", None)

    def _amend(self, source: Source, name: str, table: dict[str, Any]) -> None:
        enabled = table.pop(ENABLED, True if "mind" in table else None)
        if enabled is not None:
            self.removed.pop(name, None)
        if enabled is False:
            self.removed[name] = source
        seat = self.seats.setdefault(name, {})
        was, now = seat.get("base_url"), table.get("base_url")
        if now is not None and "mind" not in table and seat.get("mind") != MODEL_MIND:
            # Its mind becomes a model's; what was told of the model before, perhaps by another source, stays.
            self._drop(name, ("options",))
            seat["mind"] = MODEL_MIND
            self.sources[f"seats.{name}.mind"] = source
        if was is not None and now is not None and was != now:
            self._drop(name, _OF_ONE_SERVER)  # a key goes to the server it was given for alone
        if "mind" in table and not _same_mind(table["mind"], seat.get("mind")):
            self._drop(name, _OF_ONE_MIND)
        seat.update(table)
        self.sources.update({f"seats.{name}.{part}": source for part in table})
        self.sources[f"seats.{name}"] = source

    def fill(self, source: Source, given: Callable[[str], Mapping[str, Any]]) -> None:
        """Take, for each seat that is backed by a model, what ``given`` says of its role and no source has said."""
        for name, seat in self.seats.items():
            if name in self.removed or seat.get("mind") != MODEL_MIND:
                continue
            told = given(seat.get("role") or name)
            missing = {key: value for key, value in told.items() if key not in seat}
            right = self._right_parts(source, f"seats.{name}", missing)
            seat.update(right)
            self.sources.update({f"seats.{name}.{key}": source for key in right})

    def finish(self) -> CouncilConfig | None:
        """The configuration, once no source has more to say; None if there are ``problems``."""
        defaults = {key: info.default for key, info in CouncilConfig.model_fields.items() if key != "seats"}
        values = defaults | self.values
        seats = self._seats()
        self._compare(values, seats)
        return None if self.problems else CouncilConfig(seats=tuple(seats), **values)

    def _seats(self) -> list[SeatConfig]:
        seats = []
        for name, table in self.seats.items():
            key = f"seats.{name}"
            if name in self.removed:
                continue
            if "mind" in table:
                seats += self._seat(name, table)
            elif f"{key}.mind" not in self.broken and _UNREAD not in self.broken:
                hint = did_you_mean(name, [other for other in self.seats if other != name])
                text = f"not given, and a new seat needs one: {expected('mind', SeatConfig)}{hint}"
                self._fault(self.sources[key], f"{key}.mind", text)
        return seats

    def _seat(self, name: str, table: Mapping[str, Any]) -> list[SeatConfig]:
        wrong = seat_contradictions(table)  # each part is right by itself
        for part, why in wrong:
            key = f"seats.{name}.{part}"
            if key not in self.broken:
                self._fault(self.sources.get(key, self.sources.get(f"seats.{name}", DEFAULT)), key, why)
        return [] if wrong else [SeatConfig(name=name, **table)]

    def _compare(self, values: Mapping[str, Any], seats: Iterable[SeatConfig]) -> None:
        """Note what the values that are right by themselves get wrong together."""
        unsure = self.broken | ({"prime", "observer", "quorum"} if "seats" in self.broken else set())
        names = [name for name in self.seats if name not in self.removed]
        fit = {key: value for key, value in values.items() if key not in unsure}
        for key, text in contradictions(fit, names) + unpriced(fit, seats):
            if key not in self.broken:
                self._fault(*self._blame(key), text)

    def _blame(self, key: str) -> tuple[Source, str]:
        """The source and key to name for a contradiction: the value's own, or the one it disagrees with."""
        others = {"prime": ["seats"], "inactivity_s": ["heartbeat_s"]}
        if key == "prime" and key not in self.sources and "prime" in self.removed:
            return self.removed["prime"], f"seats.prime.{ENABLED}"
        for each in (key, *others.get(key, ())):
            if each in self.sources:
                return self.sources[each], each
        return DEFAULT, key


def _are_seats(seats: Any) -> bool:
    return isinstance(seats, list | tuple) and all(isinstance(seat, SeatConfig) for seat in seats)


def _same_mind(one: Any, other: Any) -> bool:
    # Objects are compared by identity: an object's own == may answer anything.
    return one is other or (isinstance(one, str) and isinstance(other, str) and one == other)
