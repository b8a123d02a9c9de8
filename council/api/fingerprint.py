"""Detects whether values have changed, however deep.

A value counts by its content as pickle finds it: its class, its attributes and slots, its items, or the result of
its ``__getstate__`` or ``__reduce__``. Classes, modules and locks count by identity. Nothing is pickled, and a digest
reveals nothing of the values.
"""

from __future__ import annotations

import copyreg
import hashlib
import inspect
import threading
import types
from collections.abc import Iterable
from typing import Any

from pydantic import Secret, SecretBytes, SecretStr

# Values in values: some seconds to go through, and far above what one call is about.
PARTS_MAX = 300_000
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_THEMSELVES = (type, types.ModuleType, type(threading.Lock()), type(threading.RLock()), property)
_SECRETS = (Secret, SecretBytes, SecretStr)


class Incomparable(Exception):
    """A value holds something of which nobody can tell whether it changed."""


class Likeness:
    """What a value is now. It keeps the parts that are compared by who they are, so that they stay those."""

    def __init__(self, value: Any) -> None:
        """Raises Incomparable."""
        self._hash = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self._held: list[Any] = []
        try:
            self._take(value)
        except RecursionError:
            raise Incomparable("it is nested too deep") from None
        self.digest = self._hash.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Likeness) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def _put(self, kind: str, data: bytes = b"") -> None:
        """One word; its length goes before it, so that no two values spell the same."""
        self._hash.update(f"{kind} {len(data)}:".encode() + data)

    def _all(self, kind: str, parts: Iterable[Any]) -> None:
        found = list(parts)
        self._put(kind, str(len(found)).encode())
        for part in found:
            self._take(part)

    def _take(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self._put(
                kind.__name__, value if kind is bytes else repr(value).encode(errors="backslashreplace")
            )
            return
        known = self._seen.get(id(value))
        if known is not None:  # the same thing once more, or a thing that holds itself
            self._put("again", str(known).encode())
            return
        if len(self._held) >= PARTS_MAX:
            raise Incomparable(f"it holds more than {PARTS_MAX:,} values")
        self._seen[id(value)] = len(self._held)
        self._held.append(value)  # also so that no other gets its id
        if isinstance(value, _THEMSELVES) or (inspect.isbuiltin(value) and _of_module(value)):
            self._put("itself", str(id(value)).encode())
        elif kind in (list, tuple, set, frozenset):
            self._all(kind.__name__, value)
        elif kind in (dict, types.MappingProxyType):
            self._all("dict", (part for pair in value.items() for part in pair))
        elif kind is bytearray:
            self._put("bytearray", bytes(value))
        elif isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
            self._put("function", str(id(value.__code__)).encode())
            self._all("bound", (value.__defaults__, value.__kwdefaults__, value.__dict__, cells))
            self._held.append(value.__code__)
        elif isinstance(value, _SECRETS):
            self._all("secret", (kind, value.get_secret_value()))
        else:
            self._reduced(value)

    def _reduced(self, value: Any) -> None:
        """Any other object, by what pickle would keep of it."""
        told_for = copyreg.dispatch_table.get(type(value))
        try:
            reduced = value.__reduce_ex__(4) if told_for is None else told_for(value)
        except Exception as error:
            raise Incomparable(f"of a {type(value).__qualname__} nothing can be told: {error}") from error
        if isinstance(reduced, str):  # the name of something global
            self._put("itself", str(id(value)).encode())
            return
        self._put("object", str(id(type(value))).encode())
        self._held.append(type(value))
        for index, part in enumerate(reduced):
            items = part is not None and index in (3, 4)  # iterators over a list's and a dict's items
            self._all("items", part) if items else self._take(part)


def _of_module(function: Any) -> bool:
    return function.__self__ is None or isinstance(function.__self__, types.ModuleType)


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises where there is nothing yet
    except ValueError:
        return False
    return True
