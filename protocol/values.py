"""JSON values that are checked: read, limited, frozen, compared.

An object is frozen into a ``FrozenDict``, an array into a tuple; ``plain`` converts both back. Everything has a
limit, because the values come from outside and are kept for as long as the journal.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from council.protocol.errors import EnvelopeError, EnvelopeTooLarge

# Deeper than any tool's arguments or control packet, but shallow enough that a recursive walk stays far below
# Python's limit.
DEPTH_MAX = 32
# Objects' entries and arrays' elements in total: a limit for the work that one message causes.
ITEMS_MAX = 10_000
# Characters of all texts and keys in total: no value needs more than an envelope's limit in bytes.
CHARS_MAX = 1 << 20
# One byte of text may take six in JSON (``\\u0001``), and written values must be readable again.
JSON_BYTES_MAX = 8 << 20
# Braces and brackets of a JSON text, counted before it is parsed. There is room for a value of DEPTH_MAX inside an
# envelope, and for one that is slightly too deep, so that the error names its field. Far below the parser's
# recursion.
_TEXT_DEPTH_MAX = 100
# Commas outside strings, counted before parsing: ITEMS_MAX, the envelope's own fields, and room for a value that is
# slightly too large, so that the error names its field.
_TEXT_COMMAS_MAX = ITEMS_MAX + 1_000
# Integers that every 64-bit reader can hold, signed or unsigned.
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
# The characters of a foreign key that an error quotes.
_QUOTED_MAX = 40
NUL = "holds a NUL character, which databases refuse; remove it"

# Strings and the structure between them. Possessive, so that no input makes it backtrack. An unterminated string is
# consumed whole, so that it is scanned once.
STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)


class FrozenDict(Mapping[str, Any]):
    """A JSON object with its keys in order, and no method that changes it.

    Only ``freeze`` and ``freeze_value`` make one.

    It equals another object exactly if their canonical bytes are equal: 1, 1.0 and True all differ.
    """

    __slots__ = ("_items",)

    def __init__(self, items: dict[str, Any]) -> None:
        self._items = items

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return _same(self, other)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return f"FrozenDict({self._items!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _frozen_again, (plain(self),)


def freeze(value: object, items_max: int = ITEMS_MAX, chars_max: int = CHARS_MAX) -> FrozenDict:
    """``value``, a mapping of JSON values, as a frozen object within the limits above; two can be set here.

    Raises EnvelopeError, or EnvelopeTooLarge; ``field`` is the dotted path within ``value``.
    """
    if type(value) is FrozenDict:
        return value
    if not isinstance(value, Mapping):
        raise EnvelopeError(f"expected an object, found {kind_of(value)}", field="")
    frozen = freeze_value(value, items_max, chars_max)
    assert isinstance(frozen, FrozenDict)
    return frozen


def freeze_value(
    value: object, items_max: int = ITEMS_MAX, chars_max: int = CHARS_MAX, *, signed_zero: bool = False
) -> Any:
    """Any JSON value, frozen within the limits. Raises as ``freeze`` does.

    ``signed_zero`` keeps -0.0, for bytes that another program has hashed.
    """
    try:
        return _Freezer(items_max, chars_max, signed_zero).value(value, 0)
    except _Fault as fault:
        facts: dict[str, Any] = {"field": dotted(reversed(fault.path))}
        if fault.limit is None:
            raise EnvelopeError(fault.problem, **facts) from None
        raise EnvelopeTooLarge(fault.problem, **facts, limit=fault.limit, found=fault.found) from None


def plain(value: Any) -> Any:
    """``value`` with every frozen object as a new dict and every tuple as a new list."""
    if isinstance(value, FrozenDict | dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple | list):
        return [plain(inner) for inner in value]
    return value


def items_of(value: FrozenDict) -> dict[str, Any]:
    """The dict behind a frozen object, one level deep, with keys in order, for a serializer. Never change it."""
    return value._items


def read_json(
    text: str | bytes, *, field: str, bytes_max: int = JSON_BYTES_MAX, commas_max: int = _TEXT_COMMAS_MAX
) -> Any:
    """The value of a JSON text. Checks size and nesting first; refuses duplicate keys, NaN and trailing text.

    Raises EnvelopeError or EnvelopeTooLarge with ``field`` as given.
    """
    if len(text) > bytes_max:
        unit = "bytes" if isinstance(text, bytes) else "characters"
        raise too_large(field, f"{unit} of JSON", bytes_max, len(text))
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise EnvelopeError.at(field, f"not UTF-8 at byte {error.start}") from None
    _check_structure(text, field, commas_max)
    try:
        return json.loads(
            text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant, parse_int=_short_int
        )
    except _Fault as fault:
        raise EnvelopeError.at(field, fault.problem) from None
    except ValueError as error:
        raise EnvelopeError.at(field, f"not JSON: {error}") from None


def read_object(
    text: str | bytes, *, field: str, bytes_max: int = JSON_BYTES_MAX, commas_max: int = _TEXT_COMMAS_MAX
) -> dict[str, Any]:
    """``read_json`` for a text that must hold an object."""
    found = read_json(text, field=field, bytes_max=bytes_max, commas_max=commas_max)
    if not isinstance(found, dict):
        raise EnvelopeError.at(field, f"expected an object, found {kind_of(found)}")
    return found


class NoValue:
    """Stands for a part of a text that has no JSON value. It can't be frozen."""

    __slots__ = ("problem",)

    def __init__(self, problem: str) -> None:
        self.problem = problem


def read_parts(text: str) -> Any:
    """The value of a text with checked size and nesting. A part without a JSON value becomes ``NoValue``.

    So a NaN or a duplicate key costs only its own part. Line ends and tabs may appear in strings. Raises
    EnvelopeError if the text is not JSON.
    """
    try:
        return json.loads(
            text,
            strict=False,
            object_pairs_hook=_twice_as_none,
            parse_constant=lambda word: NoValue(f"{word} is no JSON number"),
            parse_int=_int_or_none,
        )
    except ValueError as error:
        raise EnvelopeError(f"not JSON: {error}", field="text") from None


def kind_of(value: object) -> str:
    """The kind of a value, in words; never its content, which may be huge, deep or secret."""
    if value is None:
        return "null"
    words = {bool: "a boolean", int: "an integer", float: "a number", str: "a text", bytes: "bytes"}
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    return words.get(type(value)) or f"a value of type {type(value).__name__}"


def quoted(text: object, most: int = _QUOTED_MAX) -> str:
    """Foreign text for an error, escaped and cut; for other values, their kind."""
    if not isinstance(text, str):
        return kind_of(text)
    return ascii(text if len(text) <= most else text[:most] + "…")


def dotted(path: Iterable[str | int]) -> str:
    """A path from the outside in: ``args.files[3].name``. A foreign key is escaped and cut."""
    steps = []
    for step in path:
        if isinstance(step, int):
            steps.append(f"[{step}]")
        else:
            steps.append("." + (step if len(step) <= _QUOTED_MAX and step.isidentifier() else quoted(step)))
    return "".join(steps).removeprefix(".")


def too_large(field: str, what: str, limit: int, found: int) -> EnvelopeTooLarge:
    """The error for a value above a limit on reading."""
    return EnvelopeTooLarge.at(
        field, f"{found:,} {what}; at most {limit:,} are read", limit=limit, found=found
    )


# Behind the names above


class _Fault(Exception):
    """An error in a value. Its path grows as the exception passes through the containers."""

    def __init__(self, problem: str, *, limit: int | None = None, found: int = 0) -> None:
        super().__init__(problem)
        self.problem = problem
        self.limit = limit
        self.found = found
        self.path: list[str | int] = []


class _Freezer:
    """One walk through one value, with the rest of its limits."""

    def __init__(self, items_max: int, chars_max: int, signed_zero: bool) -> None:
        self.items_max = self.items_left = items_max
        self.chars_max = self.chars_left = chars_max
        # Adding 0.0 turns -0.0 into 0.0, so that equal numbers have equal bytes. Adding -0.0 changes nothing.
        self.zero = -0.0 if signed_zero else 0.0

    def value(self, value: object, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)  # type: ignore[arg-type]
        if value is None or kind is bool:
            return value
        if isinstance(value, int):
            if not INT_MIN <= value <= INT_MAX:
                raise _Fault(f"an integer of {int.bit_length(value)} bits; at most 64 bits fit")
            return int.__add__(value, 0)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise _Fault("NaN and infinities are no JSON numbers")
            return float.__add__(value, self.zero)
        if isinstance(value, list | tuple):
            return self.array(value, depth + 1)
        if isinstance(value, str):
            return self.text(str.__str__(value))
        if isinstance(value, Mapping):
            return self.object(value, depth + 1)
        if isinstance(value, NoValue):
            raise _Fault(value.problem)
        raise _Fault(
            f"{kind_of(value)} is no JSON value; use objects, arrays, texts, numbers, booleans, null"
        )

    def text(self, text: str) -> str:
        self.spend_chars(len(text))
        problem = text_problem(text)
        if problem is not None:
            raise _Fault(problem)
        return text

    def array(self, values: list[Any] | tuple[Any, ...], depth: int) -> tuple[Any, ...]:
        self.enter(len(values), depth)
        frozen, index = [], 0
        try:
            for inner in values:
                frozen.append(self.value(inner, depth))
                index += 1
        except _Fault as fault:
            fault.path.append(index)
            raise
        return tuple(frozen)

    def object(self, values: Mapping[Any, Any], depth: int) -> FrozenDict:
        self.enter(len(values), depth)
        found: dict[str, Any] = {}
        key: Any = None
        try:
            for key, inner in values.items():
                if not isinstance(key, str):
                    raise _Fault(f"a key is {kind_of(key)}; keys are texts")
                key = self.text(str.__str__(key))
                found[key] = self.value(inner, depth)
        except _Fault as fault:
            fault.path.append(key if isinstance(key, str) else kind_of(key))
            raise
        return FrozenDict(dict(sorted(found.items())))  # by code point, which is also UTF-8's order

    def enter(self, count: int, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise _Fault(f"nested more than {DEPTH_MAX} deep", limit=DEPTH_MAX, found=depth)
        self.items_left -= count
        if self.items_left < 0:
            raise _Fault(
                f"more than {self.items_max:,} entries and elements altogether",
                limit=self.items_max,
                found=self.items_max - self.items_left,
            )

    def spend_chars(self, count: int) -> None:
        self.chars_left -= count
        if self.chars_left < 0:
            raise _Fault(
                f"more than {self.chars_max:,} characters of text altogether",
                limit=self.chars_max,
                found=self.chars_max - self.chars_left,
            )


def text_problem(text: str) -> str | None:
    """The reason why a text can't be kept, or None: a NUL (rules 4.5), or half of a surrogate pair."""
    if "\0" in text:
        return NUL
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return f"holds half of a surrogate pair at character {error.start}, which is no text"
    return None


def _frozen_again(value: dict[str, Any]) -> Any:
    """A frozen object from a pickle. Its limits were checked before."""
    return freeze_value(value, JSON_BYTES_MAX, JSON_BYTES_MAX, signed_zero=True)


def _same(ours: Any, theirs: Any) -> bool:
    """Strict equality. The recursion ends with the frozen side, whose depth is limited."""
    if isinstance(ours, FrozenDict):
        return (
            isinstance(theirs, Mapping)
            and len(ours) == len(theirs)
            and all(key in theirs and _same(inner, theirs[key]) for key, inner in ours._items.items())
        )
    if isinstance(ours, tuple):
        return isinstance(theirs, tuple | list) and len(ours) == len(theirs) and all(map(_same, ours, theirs))
    return type(ours) is type(theirs) and bool(ours == theirs)


def _check_structure(text: str, field: str, commas_max: int) -> None:
    """Refuses a text before parsing if it would make the parser recurse or allocate without limit."""
    depth = commas = 0
    for found in STRUCTURE.finditer(text):
        mark = text[found.start()]
        if mark == ",":
            commas += 1
            if commas > commas_max:
                raise too_large(field, "or more entries", ITEMS_MAX, commas)
        elif mark in "[{":
            depth += 1
            if depth > _TEXT_DEPTH_MAX:
                raise too_large(field, "or more levels of nesting", DEPTH_MAX, depth)
        elif mark in "]}":
            depth -= 1


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Fault(f"the key {quoted(key)} stands twice in one object")
        found[key] = value
    return found


def _twice_as_none(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            found[key] = NoValue("stands twice in one object")
        seen.add(key)
    return found


def _int_or_none(digits: str) -> Any:
    try:
        return _short_int(digits)
    except _Fault as fault:
        return NoValue(fault.problem)


def _short_int(digits: str) -> int:
    # Parsing takes the square of the length. A number that is only slightly too long is reported by its field later.
    if len(digits) > 300:
        raise _Fault(f"an integer of {len(digits):,} digits; at most 64 bits fit")
    return int(digits)


def _no_constant(word: str) -> Any:
    raise _Fault(f"{word} is no JSON number")
