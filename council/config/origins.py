"""Merges the values of several sources, and remembers where each value came from.

A document is the content of one source: a mapping of keys to values, ``seats`` to a mapping of tables.
``docs/settings.md`` describes the sources and their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic import BaseModel, ValidationError

from council.config.field_types import quoted_value as quoted_value
from council.config.settings import (
    COUNCIL_KEYS,
    DEFAULT_SEATS,
    ENABLED,
    MODEL_KEYS,
    MODEL_MIND,
    ROWS,
    SEAT_KEYS,
    SHOWN_CHARS_MAX,
    ActionConfig,
    CouncilConfig,
    NotifyConfig,
    OutputChannel,
    OutputConfig,
    SeatConfig,
    checker,
    contradictions,
    did_you_mean,
    expected,
    seat_contradictions,
    unpriced,
)
from council.protocol.errors import ConfigError

ENVIRONMENT_PREFIX = "COUNCIL_"
RAY_ORIGIN = "environment RAY_ADDRESS"  # the one variable of Ray's own that is a setting here
PROBLEMS_MAX = 100  # of one source; with more, the file is some other program's
# The keys of a seat that describe the server at its base_url, and no other.
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
# The keys of a seat that describe its mind, and no other.
_OF_ONE_MIND = ("options", "model", "vendor", *MODEL_KEYS)


def key_shown(key: Any) -> str:
    """A key of a file or a variable's name, for a problem."""
    plain = isinstance(key, str) and len(key) <= SHOWN_CHARS_MAX and key.isprintable()
    return str(key) if plain else quoted_value(key)


def seat_variable(seat: str) -> str:
    """A seat's name as variables spell it: ``my-seat`` → ``MY_SEAT``."""
    return seat.upper().replace("-", "_").replace(".", "_")


@dataclass(frozen=True)
class ConfigSource:
    """One place that values come from; ``file`` is a file's path."""

    kind: Literal["default", "file", "ray", "environment", "flag"]
    file: str = ""

    def origin(self, key: str) -> str:
        """The origin of the value of the dotted ``key``, in the form of ``Loaded.origins``."""
        table, dot, last = key.rpartition(".")
        match self.kind:
            case "environment":
                seat = seat_variable(table.removeprefix("seats."))
                return f"environment {ENVIRONMENT_PREFIX}{f'SEATS__{seat}__' if table else ''}{last.upper()}"
            case "flag":
                return f"flag --{table}{dot}{last.replace('_', '-')}"
            case "file":
                return self.file
            case "ray":
                return RAY_ORIGIN
            case "default":
                return "default"

    def at(self, key: str) -> str:
        """The beginning of a problem with ``key``: source, file and key."""
        if self.kind == "file":
            return f"file {self.file}: key {key}"
        return f"default: key {key}" if self.kind == "default" else self.origin(key)


DEFAULT = ConfigSource("default")


@dataclass
class Layers:
    """The values of all sources so far, the source of each, and the problems.

    ``broken`` holds the keys whose value is unknown because it is wrong, so that no further problem is concluded from
    it. With ``seats`` among them, it is unknown which seats there are.
    """

    values: dict[str, Any] = field(default_factory=dict)
    seats: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {seat.name: {"mind": seat.mind} for seat in DEFAULT_SEATS}
    )
    removed: dict[str, ConfigSource] = field(default_factory=dict)
    sources: dict[str, ConfigSource] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    _counts: Counter[ConfigSource] = field(default_factory=Counter)
    _is_unreadable: bool = False

    def add_unreadable(self, problems: Iterable[str]) -> None:
        """Notes that a source can't be read at all. What is missing may be there."""
        self.problems += problems
        self.broken.add("seats")
        self._is_unreadable = True

    def apply(self, source: ConfigSource, document: Mapping[str, Any]) -> None:
        """Applies one source over those before it: its right values count, and its problems are noted."""
        for key, value in document.items():
            if key == "seats":
                self._apply_seats(source, value)
            elif key in ("notify", "action") and isinstance(value, Mapping):
                model = NotifyConfig if key == "notify" else ActionConfig
                self._keep(source, key, self._table(source, key, value, model))
            elif key == "output" and isinstance(value, Mapping):
                self._apply_outputs(source, value)
            elif key in ROWS:
                self._apply_rows(source, key, value)
            elif key not in COUNCIL_KEYS:
                self._add_unknown(source, key, key, COUNCIL_KEYS)
            elif self._is_right(source, key, value, CouncilConfig, key):
                self.values[key] = value
                self.sources[key] = source

    def _add(self, source: ConfigSource, key: str, text: str, *, breaks: str | None = None) -> None:
        """Notes a problem with a key; past PROBLEMS_MAX of one source, only that there are more."""
        self.broken.add(breaks or key)
        self._counts[source] += 1
        if self._counts[source] <= PROBLEMS_MAX:
            self.problems.append(f"{source.at(key_shown(key))}: {text}")
        elif self._counts[source] == PROBLEMS_MAX + 1:
            where = f"file {source.file}" if source.kind == "file" else source.kind
            more = f"more than {PROBLEMS_MAX} problems: correct these first, or is it another program's?"
            self.problems.append(f"{where}: {more}")

    def _add_unknown(self, source: ConfigSource, key: str, found: Any, known: Sequence[str]) -> None:
        # Looking for the nearest word takes time, and a large file has room for many unknown ones.
        hint = did_you_mean(found, known) if self._counts[source] < PROBLEMS_MAX else ""
        self._add(source, key, f"unknown key, expected one of {', '.join(known)}{hint}")

    def _is_right(self, source: ConfigSource, at: str, value: Any, model: type[BaseModel], key: str) -> bool:
        """Whether a key of the model takes a value. If not, notes the problem at the key's place."""
        try:
            checker(model, key).validate_python(value)
        except (ValidationError, ConfigError):  # a table of its own, such as notify, raises the latter
            text = f"found {quoted_value(value)}, expected {expected(key, model)}"
            self._add(source, at, text, breaks="seats" if key == ENABLED else at)
            return False
        return True

    def _keep(self, source: ConfigSource, key: str, value: Any) -> None:
        """Keeps a right value, which replaces that of an earlier source."""
        if value is not None:
            self.values[key], self.sources[key] = value, source

    def _apply_outputs(self, source: ConfigSource, channels: Mapping[str, Any]) -> None:
        """Applies tables ``[output.CHANNEL]``, which replace those of an earlier source."""
        known = get_args(OutputChannel)
        right: dict[str, BaseModel | None] = {}
        for channel, given in channels.items():
            if channel in known:
                right[channel] = self._table(source, f"output.{channel}", given, OutputConfig)
            else:
                self._add_unknown(source, f"output.{key_shown(channel)}", channel, known)
                right[channel] = None
        if None not in right.values():
            self._keep(source, "output", right)

    def _apply_rows(self, source: ConfigSource, key: str, rows: Any) -> None:
        """Applies tables ``[[key]]``, which replace those of an earlier source."""
        if not isinstance(rows, list | tuple):
            self._add(source, key, f"found {quoted_value(rows)}, expected {expected(key, CouncilConfig)}")
            return
        right = [
            self._table(source, f"{key}.{number}", given, ROWS[key]) for number, given in enumerate(rows, 1)
        ]
        # All rows together, for their number.
        if None not in right and self._is_right(source, key, tuple(right), CouncilConfig, key):
            self._keep(source, key, tuple(right))

    def _table(self, source: ConfigSource, at: str, given: Any, model: type[BaseModel]) -> BaseModel | None:
        """A table as its model; None if it has a problem."""
        if isinstance(given, model):
            return given
        if not isinstance(given, Mapping):
            key, _, number = at.partition(".")
            shown = f"[[{key}]]" if number.isdigit() else f"[{at}]"
            self._add(source, at, f"found {quoted_value(given)}, expected a table {shown}")
            return None
        right = True
        for part, value in given.items():
            if part not in model.model_fields:
                self._add_unknown(source, f"{at}.{key_shown(part)}", part, tuple(model.model_fields))
                right = False
            elif not self._is_right(source, f"{at}.{part}", value, model, part):
                right = False
        for part, info in model.model_fields.items():
            if info.is_required() and part not in given:
                self._add(source, f"{at}.{part}", f"is missing, expected {expected(part, model)}")
                right = False
        try:
            return model(**given) if right else None
        except ConfigError as error:  # its keys contradict each other
            self._add(source, at, "; ".join(error.problems))
            return None

    # Seats

    def _apply_seats(self, source: ConfigSource, seats: Any) -> None:
        self.sources["seats"] = source
        if isinstance(seats, Mapping):
            for name, given in seats.items():
                self._apply_seat(source, name, given)
        elif (
            source.kind == "flag"
            and isinstance(seats, list | tuple)
            and all(isinstance(seat, SeatConfig) for seat in seats)
        ):
            self.seats.clear()
            self.removed.clear()
            for seat in seats:
                if seat.name in self.seats:
                    self._add(source, f"seats.{seat.name}", "two seats share this name: give each its own")
                self._replace(source, seat)
        else:
            text = f"found {quoted_value(seats)}, expected {expected('seats', CouncilConfig)}"
            self._add(source, "seats", text)

    def _apply_seat(self, source: ConfigSource, name: Any, given: Any) -> None:
        try:
            checker(SeatConfig, "name").validate_python(name)
        except ValidationError:
            text = f"found {quoted_value(name)} as a seat's name, expected {expected('name', SeatConfig)}"
            self._add(source, "seats", text)
            return
        key = f"seats.{name}"
        if isinstance(given, SeatConfig):
            if given.name != name:
                self._add(source, key, f"found a seat named {given.name}, expected one named {name}")
            self._replace(source, given)
        elif isinstance(given, Mapping):
            self._amend(source, name, self._right_parts(source, key, given))
        elif isinstance(given, str) or source.kind == "flag":
            self._amend(source, name, self._right_parts(source, key, {"mind": given}))
        else:
            text = f"found {quoted_value(given)}, expected a table, as in [seats.{name}], or an import path"
            self._add(source, key, text, breaks="seats")

    def _right_parts(self, source: ConfigSource, key: str, table: Mapping[str, Any]) -> dict[str, Any]:
        """The right values in a seat's table."""
        right: dict[str, Any] = {}
        for part, value in table.items():
            where = f"{key}.{part}"
            if part not in (*SEAT_KEYS, ENABLED):
                self._add_unknown(source, where, part, (*SEAT_KEYS, ENABLED))
            elif part == "mind" and source.kind != "flag" and not isinstance(value, str):
                found = f"found {quoted_value(value)}"
                self._add(source, where, f"{found}, expected an import path 'package.module:Name'")
            elif self._is_right(source, where, value, SeatConfig, part):
                right[part] = value
        return right

    def _replace(self, source: ConfigSource, seat: SeatConfig) -> None:
        """Applies a whole seat."""
        self._drop(seat.name, SEAT_KEYS)
        given = {part: getattr(seat, part) for part in SEAT_KEYS if part in seat.model_fields_set}
        self._amend(source, seat.name, given)

    def _drop(self, name: str, parts: Iterable[str]) -> None:
        """Removes values of earlier sources."""
        for part in parts:
            self.seats.setdefault(name, {}).pop(part, None)
            self.sources.pop(f"seats.{name}.{part}", None)

    def _amend(self, source: ConfigSource, name: str, table: dict[str, Any]) -> None:
        """Applies right values of a seat."""
        enabled = table.pop(ENABLED, True if "mind" in table else None)
        if enabled is not None:
            self.removed.pop(name, None)
        if enabled is False:
            self.removed[name] = source
        seat = self.seats.setdefault(name, {})
        was, now = seat.get("base_url"), table.get("base_url")
        if now is not None and "mind" not in table and seat.get("mind") != MODEL_MIND:
            # Its mind becomes a model's. What another source says of the model stays.
            self._drop(name, ("options",))
            seat["mind"] = MODEL_MIND
            self.sources[f"seats.{name}.mind"] = source
        if was is not None and now is not None and was != now:
            self._drop(name, _OF_ONE_SERVER)  # a key goes only to the server that it was given for
        if "mind" in table and not _is_same_mind(table["mind"], seat.get("mind")):
            self._drop(name, _OF_ONE_MIND)
        seat.update(table)
        self.sources.update({f"seats.{name}.{part}": source for part in table})
        self.sources[f"seats.{name}"] = source

    def fill(self, source: ConfigSource, profile: Callable[[str], Mapping[str, Any]]) -> None:
        """Applies to each seat with a model those values of the ``profile`` of its role that no source has given."""
        for name, seat in self.seats.items():
            if name in self.removed or seat.get("mind") != MODEL_MIND:
                continue
            values = profile(seat.get("role") or name)
            missing = {key: value for key, value in values.items() if key not in seat}
            right = self._right_parts(source, f"seats.{name}", missing)
            seat.update(right)
            self.sources.update({f"seats.{name}.{key}": source for key in right})

    # The whole

    def finish(self) -> CouncilConfig | None:
        """The configuration, after all sources; None if there are ``problems``."""
        values = {key: info.default for key, info in CouncilConfig.model_fields.items() if key != "seats"}
        values |= self.values
        names = [name for name in self.seats if name not in self.removed]
        seats = [seat for name in names if (seat := self._seat(name)) is not None]
        unsure = self.broken | ({"prime", "observer", "quorum"} if "seats" in self.broken else set())
        known = {key: value for key, value in values.items() if key not in unsure}
        for key, text in contradictions(known, names) + unpriced(known, seats):
            if key not in self.broken:
                self._add(*self._blame(key), text)
        return None if self.problems else CouncilConfig(seats=tuple(seats), **values)

    def _seat(self, name: str) -> SeatConfig | None:
        """A seat, each part of which is right by itself; None if it has a problem."""
        key, table = f"seats.{name}", self.seats[name]
        if "mind" not in table:
            if f"{key}.mind" not in self.broken and not self._is_unreadable:
                hint = did_you_mean(name, [other for other in self.seats if other != name])
                text = f"not given, and a new seat needs one: {expected('mind', SeatConfig)}{hint}"
                self._add(self.sources[key], f"{key}.mind", text)
            return None
        wrong = seat_contradictions(table)
        for part, why in wrong:
            if (at := f"{key}.{part}") not in self.broken:
                self._add(self.sources.get(at, self.sources.get(key, DEFAULT)), at, why)
        return None if wrong else SeatConfig(name=name, **table)

    def _blame(self, key: str) -> tuple[ConfigSource, str]:
        """The source and key to name for a contradiction: the value's own, or those of the other value."""
        if key == "prime" and key not in self.sources and "prime" in self.removed:
            return self.removed["prime"], f"seats.prime.{ENABLED}"
        for each in (key, {"prime": "seats", "inactivity_s": "heartbeat_s"}.get(key, key)):
            if each in self.sources:
                return self.sources[each], each
        return DEFAULT, key


def _is_same_mind(one: Any, other: Any) -> bool:
    # Objects are compared by identity: an object's own == may answer anything.
    return one is other or (isinstance(one, str) and isinstance(other, str) and one == other)
